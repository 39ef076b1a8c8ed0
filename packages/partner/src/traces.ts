/**
 * The kit's spans in the traces of its callers (OpenTelemetry): acceptance, status reads, and the posting that follows.
 *
 * A posting belongs to the trace of the request that was accepted; that is kept in memory until the payment has ended. A payment
 * that another process accepted, or this one before a restart, is posted in a trace of its own.
 */
import {
  failSpan,
  ROOT_CONTEXT,
  SpanKind,
  trace,
  traceOf,
  tracer,
  type Span,
  type TraceContext,
} from '@duebridge/runtime';
import type { Tried } from './posting.ts';

/** Maximum number of payments whose trace is remembered until they are posted; beyond that a posting starts its own trace. */
const MAX_REMEMBERED = 10_000;

/** The fields of a request that a span needs. */
interface Request {
  readonly id: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

/** The spans of the kit. */
export class KitTraces {
  readonly #accepted = new Map<string, TraceContext>();

  /** Runs the acceptance of a payment in a span of the caller's trace. */
  accept<T>(request: Request, platform_payment_id: string, work: () => Promise<T>): Promise<T> {
    const span = serving('accept payment', request, platform_payment_id);
    const accepted = this.#accepted;
    // A repeat of a request does not move the posting into its own trace.
    if (span.isRecording() && !accepted.has(platform_payment_id)) {
      accepted.set(platform_payment_id, trace.setSpan(ROOT_CONTEXT, span));
      if (accepted.size > MAX_REMEMBERED) accepted.delete(accepted.keys().next().value ?? '');
    }
    return during(span, work);
  }

  /** Runs a read of a payment's status in a span of the caller's trace. */
  read<T>(request: Request, platform_payment_id: string, work: () => Promise<T>): Promise<T> {
    return during(serving('read payment', request, platform_payment_id), work);
  }

  /** Starts the span of one try to post a payment; `end` takes its result. */
  posting(platform_payment_id: string): { end(result: Tried['result']): void } {
    const span = tracer.startSpan(
      'post payment',
      { attributes: { 'duebridge.payment_id': platform_payment_id } },
      this.#accepted.get(platform_payment_id) ?? ROOT_CONTEXT,
    );
    return {
      end: (result) => {
        span.setAttribute('duebridge.result', result);
        if (result === 'failed' || result === 'outage') failSpan(span, result);
        if (result === 'done') this.#accepted.delete(platform_payment_id);
        span.end();
      },
    };
  }
}

function serving(name: string, request: Request, platform_payment_id: string): Span {
  const attributes = {
    'duebridge.payment_id': platform_payment_id,
    'duebridge.request_id': request.id,
  };
  const kind = SpanKind.SERVER;
  return tracer.startSpan(name, { kind, attributes }, traceOf(request.headers['traceparent']));
}

async function during<T>(span: Span, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    failSpan(span, error instanceof Error ? error.name : 'error');
    throw error;
  } finally {
    span.end();
  }
}
