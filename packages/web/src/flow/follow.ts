/**
 * Following a payment to its end: by stream while streams work, otherwise by polls. Only a terminal status counts as the end.
 */
import type { FlowPayment } from '@duebridge/contract';
import { callError, spent, type Api } from './api.ts';
import { FIRST_WAIT_MS, longer, type Waiting } from './waiting.ts';

/** Delay between polls when streams fail but requests work. */
const POLL_MS = 2_000;
/** The same while the customer may have to approve: as often as a session may be read. */
const ACT_POLL_MS = 1_000;
/** After this many consecutive failures of a stream, poll instead (a proxy that buffers, a server without a free stream). */
const MAX_STREAM_FAILURES = 3;

export interface Following {
  readonly api: Pick<Api, 'payment' | 'follow'>;
  readonly waiting: Pick<Waiting, 'pause' | 'attempt'>;
  /** Whether the browser reports a network. */
  readonly online: () => boolean;
  /** Runs a call; when the session has ended, renews it and runs the call again. */
  readonly renewed: <T>(act: () => Promise<T>) => Promise<T>;
  readonly heard: (payment: FlowPayment) => void;
  readonly connection: (lost: boolean) => void;
  /** The customer may have to approve the payment first: poll until it is sent, because streams do not report that. */
  readonly acts?: boolean;
  readonly signal: AbortSignal;
}

/**
 * Follows until the payment has ended or the signal aborts (both `done`), or until the session ends and cannot be replaced
 * (`ended`). Never rejects.
 */
export async function followPayment(id: string, by: Following): Promise<'done' | 'ended'> {
  let last: FlowPayment | undefined;
  const hear = (payment: FlowPayment): void => {
    if (by.signal.aborted || last?.progress === 'ended') return;
    last = payment;
    by.heard(payment);
  };
  const going = (): boolean => !by.signal.aborted && last?.progress !== 'ended';
  let streamFailures = 0;
  let cutShort = false;
  for (let wait = FIRST_WAIT_MS; going();) {
    const acts = by.acts === true && (last?.progress ?? 'sending') === 'sending';
    if (!acts && !cutShort && streamFailures < MAX_STREAM_FAILURES && by.online()) {
      const before = last;
      await stream(id, by, hear);
      streamFailures = before === last ? streamFailures + 1 : 0;
      if (!going()) break;
    }
    try {
      const payment = await by.waiting.attempt(() => by.renewed(() => by.api.payment(id)));
      // Asked again at once: a stream could hang as the request did.
      cutShort = payment === undefined;
      if (!payment) continue;
      hear(payment);
      wait = FIRST_WAIT_MS;
      if (going()) await by.waiting.pause(acts ? ACT_POLL_MS : POLL_MS);
    } catch (error) {
      const failed = callError(error);
      if (spent(failed)) return 'ended';
      // Also for "not found": the payment was confirmed, so it exists or will exist.
      if (failed.wire === 'network') by.connection(true);
      await by.waiting.pause(Math.max(failed.retryAfterMs ?? 0, wait));
      wait = longer(wait);
    }
  }
  return 'done';
}

/** One stream, however it ends; given up when the network is lost or back, or the customer: its connection may be dead. */
async function stream(
  id: string,
  { api, waiting, signal }: Following,
  hear: (payment: FlowPayment) => void,
): Promise<void> {
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  // The reason does not matter: the next poll meets the same problem and handles it.
  await waiting.attempt(() => api.follow(id, hear, either).catch(callError));
  stop.abort();
}
