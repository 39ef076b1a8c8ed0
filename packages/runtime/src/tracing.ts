/**
 * OpenTelemetry spans of payments (decision 33), made with OpenTelemetry's API alone: they go where the SDK sends them that the process
 * was started with (docs/operations.md), and cost next to nothing without one.
 *
 * A payment's UUID is the id of its trace, and its second half stands for the span above all others of it. So every process finds the
 * trace of every payment without a column for it: after a crash, on another replica, a week later.
 *
 * holds: an attribute is an id that logs show too, a method, a status or a reason; never an amount, an account, a name, a secret.
 */
import {
  context,
  isSpanContextValid,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Context,
  type Span,
  type SpanContext,
} from '@opentelemetry/api';

export { SpanKind } from '@opentelemetry/api';
export type { Span } from '@opentelemetry/api';

/** Makes all spans; backends show its name beside each. */
export const tracer = trace.getTracer('duebridge');

/** The parent of a payment's spans; no parent for an id that is no UUID. */
export function paymentTrace(platform_payment_id: string): Context {
  const traceId = platform_payment_id.replaceAll('-', '').toLowerCase();
  const spanId = traceId.slice(16);
  return within({ traceId, spanId, traceFlags: TraceFlags.SAMPLED, isRemote: true });
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

/** Sends the spans that the SDK of this process still holds: a process that ends without it loses those of its last seconds. */
export async function sendSpans(): Promise<void> {
  const known = trace.getTracerProvider();
  const provider = known instanceof ProxyTracerProvider ? known.getDelegate() : known;
  if ('forceFlush' in provider && typeof provider.forceFlush === 'function') {
    await provider.forceFlush();
  }
}

function within(parent: SpanContext): Context {
  return isSpanContextValid(parent) ? trace.setSpanContext(ROOT_CONTEXT, parent) : ROOT_CONTEXT;
}
