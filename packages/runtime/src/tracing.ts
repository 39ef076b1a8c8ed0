/**
 * OpenTelemetry traces of payments (decision 33). Off unless a collector is named; then a server has no `Tracing` at all, and the
 * code that would make a span is not reached.
 *
 * A payment's UUID is the id of its trace, and the second half of it is the id of its first span, that of the customer's confirm.
 * So every process finds the trace of every payment without a column for it: after a crash, on another replica, a week later.
 *
 * holds: an attribute is an id that logs show too, a method, a status or a reason; never an amount, an account, a name, a secret.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import {
  context,
  isSpanContextValid,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Context,
  type Span,
  type SpanContext,
  type Tracer,
} from '@opentelemetry/api';
import { ConfigurationError, messageOf } from './errors.ts';

export { ROOT_CONTEXT, SpanKind, trace } from '@opentelemetry/api';
export type { Context as TraceContext, Span, Tracer } from '@opentelemetry/api';

/** The attributes of a span: ids, methods, statuses, reasons. */
export type SpanFacts = Attributes;

/** A server's traces. */
export interface Tracing {
  readonly tracer: Tracer;
  /**
   * The first span of a payment's trace, for work that began at `startedAt` (milliseconds since 1970) and ends now. The creator
   * of a payment calls it once.
   */
  began(platform_payment_id: string, name: string, startedAt: number, facts: SpanFacts): void;
  /** A later span of a payment's trace: a call to its partner. The caller ends it. */
  call(platform_payment_id: string, name: string, facts: SpanFacts): Span;
  /** Sends what is queued, waits at most two seconds for the collector, and ends. */
  close(): Promise<void>;
}

/** How a server's traces are set up. */
export interface TracingOptions {
  /** Address of the collector (OTLP over HTTP), such as http://127.0.0.1:4318. */
  readonly endpoint: string;
  /** Name of the service in the traces. */
  readonly service: string;
  /** Fraction of the payments that is traced, 0 to 1; both sides decide alike, by the id of the trace. Default 1. */
  readonly ratio?: number | undefined;
  /** Where spans go instead of to the endpoint: for tests. */
  readonly exporter?: SpanSink;
}

/** An exporter of the SDK, typed without importing the SDK, which programs that compile against this package may not have. */
export interface SpanSink {
  export(spans: readonly unknown[], done: (result: { code: number; error?: Error }) => void): void;
  shutdown(): Promise<void>;
}

/** How long a stop waits for the collector, in milliseconds: traces are worth less than a quick restart. */
const CLOSE_MS = 2_000;
/** Name of the tracer, which backends show beside each span. */
const TRACER = 'duebridge';

/**
 * Opens the traces of a server. Loads OpenTelemetry's SDK, an optional dependency; throws ConfigurationError with the command that
 * installs it when it is absent.
 */
export async function openTracing(options: TracingOptions): Promise<Tracing> {
  const { ratio = 1 } = options;
  const [sdk, { resourceFromAttributes }, { OTLPTraceExporter }] = await Promise.all([
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/resources'),
    import('@opentelemetry/exporter-trace-otlp-http'),
  ]).catch((error: unknown) => {
    throw new ConfigurationError(
      `OTEL_EXPORTER_OTLP_ENDPOINT is set, but the packages that send traces cannot be loaded (${messageOf(error)}): npm install @opentelemetry/sdk-trace @opentelemetry/resources @opentelemetry/exporter-trace-otlp-http, or unset it`,
    );
  });
  const url = `${options.endpoint.replace(/\/+$/, '')}/v1/traces`;
  const exporter = options.exporter ?? new OTLPTraceExporter({ url });
  const ids = new PaymentIds();
  const provider = new sdk.TracerProvider({
    resource: resourceFromAttributes({ 'service.name': options.service }),
    // By the id of the trace alone, so that every process makes the same decision for a payment.
    sampler: new sdk.TraceIdRatioBasedSampler(ratio),
    idGenerator: ids,
    spanProcessors: [
      options.exporter === undefined
        ? new sdk.BatchSpanProcessor({ exporter })
        : new sdk.SimpleSpanProcessor({ exporter }),
    ],
  });
  const tracer = provider.getTracer(TRACER);
  return {
    tracer,
    began(platform_payment_id, name, startTime, facts) {
      ids.next = paymentTrace(platform_payment_id);
      const span = tracer.startSpan(
        name,
        {
          root: true,
          kind: SpanKind.SERVER,
          startTime,
          attributes: { ...facts, 'duebridge.payment_id': platform_payment_id },
        },
        ROOT_CONTEXT,
      );
      ids.next = undefined;
      span.end();
    },
    call: (platform_payment_id, name, facts) =>
      tracer.startSpan(
        name,
        {
          kind: SpanKind.CLIENT,
          attributes: { ...facts, 'duebridge.payment_id': platform_payment_id },
        },
        within(paymentTrace(platform_payment_id)),
      ),
    async close() {
      // An unavailable collector must not keep a server from stopping.
      const late = delay(CLOSE_MS, undefined, { ref: false });
      await Promise.race([provider.shutdown().catch(() => undefined), late]);
    },
  };
}

/** Random ids, except for the one span whose ids are the payment's. */
class PaymentIds {
  next: SpanContext | undefined;
  generateTraceId(): string {
    return this.next?.traceId ?? randomBytes(16).toString('hex');
  }
  generateSpanId(): string {
    return this.next?.spanId ?? randomBytes(8).toString('hex');
  }
}

/** The trace of a payment and its first span; undefined for an id that is no UUID. */
export function paymentTrace(platform_payment_id: string): SpanContext | undefined {
  const traceId = platform_payment_id.replaceAll('-', '').toLowerCase();
  const found = {
    traceId,
    spanId: traceId.slice(16),
    traceFlags: TraceFlags.SAMPLED,
    isRemote: true,
  };
  return isSpanContextValid(found) ? found : undefined;
}

/** The trace that a request belongs to (W3C): the one that instrumentation of the process made active, or that of the header. */
export function traceOf(header: string | readonly string[] | undefined): Context {
  const active = context.active();
  if (trace.getSpanContext(active) !== undefined) return active;
  const [, traceId = '', spanId = '', flags = ''] =
    typeof header === 'string'
      ? (/^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(header) ?? [])
      : [];
  return within({ traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true });
}

/** A span's context as the header `traceparent`, for the call that the span describes. */
export function traceparentOf(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, '0')}`;
}

/** Ends a span with an error; `reason` is one of our own words. */
export function failSpan(span: Span, reason: string): void {
  span.setStatus({ code: SpanStatusCode.ERROR, message: reason });
}

function within(parent: SpanContext | undefined): Context {
  return parent !== undefined && isSpanContextValid(parent)
    ? trace.setSpanContext(ROOT_CONTEXT, parent)
    : ROOT_CONTEXT;
}

/** What opens the traces that the environment's variables describe; undefined when no collector is named. */
export function tracingOf(values: {
  readonly tracesEndpoint: string | undefined;
  readonly tracesRatio: number;
  readonly tracesService: string;
}): (() => Promise<Tracing>) | undefined {
  const { tracesEndpoint: endpoint, tracesRatio: ratio, tracesService: service } = values;
  return endpoint === undefined ? undefined : () => openTracing({ endpoint, ratio, service });
}
