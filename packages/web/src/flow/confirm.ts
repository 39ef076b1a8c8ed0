/**
 * The confirm: it is sent until the platform has answered, whatever happens to the network and the session. The platform creates
 * the payment and keeps one per flow, so the same request may be repeated any number of times.
 */
import type { FlowPayment, FlowPaymentRequest, FlowSession } from '@duebridge/contract';
import { callError, CallError, type Api } from './api.ts';
import { FIRST_WAIT_MS, longer, type Waiting } from './waiting.ts';

/** Number of confirms that may get a server error before the customer sees a problem. */
const MAX_FAULTS = 3;

/** Result of a confirm. */
export type Confirmed =
  | { readonly kind: 'payment'; readonly payment: FlowPayment }
  /** The account's rules have changed; no payment was made. */
  | {
      readonly kind: 'amount_refused';
      readonly session: FlowSession;
      readonly requestId: string | undefined;
    }
  /** The session has ended and could not be replaced. */
  | { readonly kind: 'ended' }
  /** It is unknown whether there is a payment: the next attempt reads before it sends. */
  | { readonly kind: 'unclear'; readonly failed: CallError };

export interface Confirming {
  readonly api: Pick<Api, 'pay' | 'session'>;
  readonly waiting: Pick<Waiting, 'pause' | 'attempt'>;
  /** The payment that failed or was canceled before this one. */
  readonly ended: string | undefined;
  /** Replaces an ended session with a new one; false when that is not possible. */
  readonly renew: () => Promise<boolean>;
  /** Reads the session, renewing it when it has ended. */
  readonly read: () => Promise<FlowSession>;
  readonly connection: (lost: boolean) => void;
}

/** Sends the confirm until it is answered. Never rejects. */
export async function confirmPayment(
  request: FlowPaymentRequest,
  by: Confirming,
): Promise<Confirmed> {
  let faults = 0;
  /** Whether it arrived is not known: the platform may have lost what it had made of it. */
  let repeated = request.repeated;
  for (let wait = FIRST_WAIT_MS; ; wait = longer(wait)) {
    try {
      const sent = repeated === undefined ? request : { ...request, repeated };
      const payment = await by.waiting.attempt(() => by.api.pay(sent));
      // Its answer may be lost with its connection: the same request again is answered with the same payment.
      if (!payment) {
        repeated = true;
        continue;
      }
      by.connection(false);
      return { kind: 'payment', payment };
    } catch (error) {
      const failed = callError(error);
      if (failed.wire === 'network' || failed.status >= 500) repeated = true;
      try {
        if (failed.wire === 'network') {
          by.connection(true);
          await by.waiting.pause(wait);
        } else if (failed.wire === 'SESSION_EXPIRED') {
          if (!(await by.renew())) return { kind: 'ended' };
          // The confirm whose answer was lost with the session may have created the payment.
          const { payment } = await found(by);
          if (payment) return { kind: 'payment', payment };
        } else if (failed.wire === 'CONFLICT') {
          const { payment } = await found(by);
          return payment ? { kind: 'payment', payment } : { kind: 'unclear', failed };
        } else if (failed.code === 'amount_out_of_range') {
          const { payment, session } = await found(by);
          return payment
            ? { kind: 'payment', payment }
            : { kind: 'amount_refused', session, requestId: failed.requestId };
        } else if (failed.code === 'internal' && failed.status >= 408) {
          // The request may have arrived: repeat it until the platform answers.
          faults += 1;
          if (faults >= MAX_FAULTS) return { kind: 'unclear', failed };
          await by.waiting.pause(Math.max(failed.retryAfterMs ?? 0, wait));
        } else {
          return { kind: 'unclear', failed };
        }
      } catch (second) {
        // The read after a refusal failed too.
        const also = callError(second);
        if (also.wire !== 'network') return { kind: 'unclear', failed: also };
        by.connection(true);
        await by.waiting.pause(wait);
      }
    }
  }
}

/** The payment that the platform has, unless it is the one before. */
async function found(
  by: Confirming,
): Promise<{ session: FlowSession; payment: FlowPayment | undefined }> {
  const session = await by.read();
  const { payment } = session;
  const other = payment !== null && payment.platform_payment_id !== by.ended;
  return { session, payment: other ? payment : undefined };
}
