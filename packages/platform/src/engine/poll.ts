/**
 * Stage 7, poll: one GET of a payment's status, and what its answer teaches (B5, decision 22).
 *
 * enters: an accepted payment.  leaves: an outcome for the engine; a poll that finds no change is written nowhere.
 * holds:  terminal only by membership in the three words, in a validated record of this payment; a partner that does not find
 *         what it has accepted gets the same PUT again, and the payment stays as it is (F15). next: terminal.ts.
 */
import type { Intent } from '../partners/payment-record.ts';
import type { Exchange } from '../partners/http-call.ts';
import type { NotSent } from '../partners/client.ts';
import { judgeAnswer, type AnswerOutcome } from './outcome.ts';

/** What a GET can teach. */
export type PollOutcome = AnswerOutcome | { readonly kind: 'not_found' };

/** Judges the answer to a GET. Pure. */
export function judgePoll(intent: Intent, answer: Exchange | NotSent): PollOutcome {
  const outcome = judgeAnswer(intent, answer);
  return outcome.kind === 'unknown' && outcome.reason === 'not_found'
    ? { kind: 'not_found' }
    : outcome;
}
