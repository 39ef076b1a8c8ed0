/**
 * The kit's spans of a payment (OpenTelemetry). Acceptance and reads belong to the trace of their caller; a posting, which no caller
 * waits for, to the trace of its payment.
 */
import { failSpan, paymentTrace, SpanKind, tracer, traceOf } from '@duebridge/runtime';
import type { FastifyRequest } from 'fastify';
import type { Tried } from './posting.ts';

/** Runs what a request asks of a payment in a span, and returns its result. */
export async function traced<T>(
  name: 'accept payment' | 'read payment',
  platform_payment_id: string,
  request: Pick<FastifyRequest, 'id' | 'headers'>,
  work: () => Promise<T>,
): Promise<T> {
  const attributes = {
    'duebridge.payment_id': platform_payment_id,
    'duebridge.request_id': request.id,
  };
  const options = { kind: SpanKind.SERVER, attributes };
  const span = tracer.startSpan(name, options, traceOf(request.headers['traceparent']));
  try {
    return await work();
  } catch (error) {
    failSpan(span, error instanceof Error ? error.name : 'error');
    throw error;
  } finally {
    span.end();
  }
}

/** Runs one try to post a payment, which never throws, in a span that has its result. */
export async function tracedPosting(
  platform_payment_id: string,
  post: () => Promise<Tried>,
): Promise<Tried> {
  const attributes = { 'duebridge.payment_id': platform_payment_id };
  const span = tracer.startSpan('post payment', { attributes }, paymentTrace(platform_payment_id));
  const tried = await post();
  span.setAttribute('duebridge.result', tried.result);
  if (tried.result === 'failed' || tried.result === 'outage') failSpan(span, tried.result);
  span.end();
  return tried;
}
