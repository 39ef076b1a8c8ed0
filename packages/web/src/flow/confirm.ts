/**
 * The confirm of a payment, and following it to its end. Only a terminal status counts as the end of a payment; no trouble of this page,
 * its network or its session does.
 */
import type { FlowPayment, FlowSession } from '@duebridge/contract';
import { callError, spent, type CallError } from './api.ts';
import type { Waiting } from './waiting.ts';

/** Between polls while the customer watches: the receipt is at most this late, and a request, after the payment has ended. */
const POLL_MS = 1_000;
/** A payment that takes more polls than this, about two minutes, is with a biller that takes hours. */
const EAGER_POLLS = 120;
/** Between polls from then on: pages that stay open must not become a load. */
const LATE_POLL_MS = 5_000;

/** Result of a confirm: the payment; or why there is none, with the bill as it is now, where it could be read. */
export type Confirmed =
  | { readonly payment: FlowPayment; readonly unanswered?: never }
  | {
      readonly payment?: never;
      readonly failed: CallError;
      readonly session: FlowSession | undefined;
      /** One of the confirms got no answer: there may be a payment that no read has shown yet. */
      readonly unanswered: boolean;
    };

/**
 * Sends the confirm until it is answered. It names its payment, so it may be repeated any number of times, under a new session too;
 * `repeated`: whether one arrived before is not known, and the platform may have lost what it had made of it. A refusal may be of a
 * repetition whose first answer was lost, so what the platform has is read then. Never rejects. `ended` is the payment that failed or was
 * canceled before this one.
 */
export async function confirmPayment(
  by: Pick<Waiting, 'persist'>,
  pay: (repeated: boolean) => Promise<FlowPayment>,
  read: () => Promise<FlowSession>,
  wasUnanswered: boolean,
  ended: string | undefined,
): Promise<Confirmed> {
  let unanswered = wasUnanswered ? 1 : 0;
  const send = async (): Promise<FlowPayment> => {
    unanswered += 1;
    try {
      return await pay(unanswered > 1);
    } catch (error) {
      const failed = callError(error);
      // The platform looks at the account before it stores anything.
      const isRefused = failed.wire === 'PARTNER_UNREACHABLE' || failed.status < 500;
      if (failed.wire !== 'network' && isRefused) unanswered -= 1;
      throw failed;
    }
  };
  try {
    return { payment: await by.persist(send) };
  } catch (error) {
    const failed = callError(error);
    const session = spent(failed) ? undefined : await by.persist(read).catch(() => undefined);
    const payment = session?.payment;
    const isOurs = payment && payment.platform_payment_id !== ended;
    return isOurs ? { payment } : { failed, session, unanswered: unanswered > 0 };
  }
}

/**
 * Polls until the payment has ended or the signal aborts, whatever the platform answers meanwhile: also "not found", because a payment
 * that was confirmed exists or will exist. Throws CallError when the session has ended and cannot be replaced.
 */
export async function followPayment(
  by: Pick<Waiting, 'persist' | 'pause'>,
  poll: () => Promise<FlowPayment>,
  heard: (payment: FlowPayment) => void,
  signal: AbortSignal,
): Promise<void> {
  for (let polls = 1; ; polls += 1) {
    const payment = await by.persist(poll, (failed) => signal.aborted || spent(failed));
    if (signal.aborted) return;
    heard(payment);
    if (payment.progress === 'ended') return;
    await by.pause(polls < EAGER_POLLS ? POLL_MS : LATE_POLL_MS);
    if (signal.aborted) return;
  }
}
