/**
 * Ending by an operator's word: who may close a payment that stands still, and who may settle funds that nothing else settles
 * (decisions 21 and 38).
 *
 * enters: a payment, and an operator's reason.  leaves: the payment as it then stands (engine/review.ts, store/terminal.ts), or a request
 *         that waits for a second person.
 * holds:  above the limit two different persons must ask for the same, and the audit names both. A request counts while its payment
 *         stands as it did when it was made, and while its author may still act.
 */
import {
  conflict,
  type CloseByWord,
  type PendingClose,
  type SettleFunds,
} from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import {
  closeByWord,
  closeRejected,
  NOT_REFUSED_BY_PARTNER,
  type ReviewDependencies,
} from '../engine/review.ts';
import { note } from '../store/audit.ts';
import { knownPayment, PAUSED, type PaymentRow } from '../store/payments.ts';
import { NOT_CLOSABLE, NOT_IN_REVIEW, settleByWord } from '../store/terminal.ts';

/** The dependencies of closing. */
export interface CloseDependencies extends ReviewDependencies {
  /** Above this amount, closing needs a second person. */
  readonly secondPersonAboveCents: number;
  /** Whether a person may act as an operator now. */
  readonly mayAct: (actor: string) => Promise<boolean>;
}

/** What came of a request. */
export interface Closed {
  readonly outcome: 'closed' | 'second_person_needed';
  readonly payment: PaymentRow;
}

const pendingStatement = sql(
  'review_close_pending',
  `SELECT requested_by, requested_at, reason, asked FROM duebridge_platform.review_closes WHERE platform_payment_id = $1`,
);
/** Since when the payment stands as it does. */
const sinceStatement = sql(
  'review_close_since',
  `SELECT max(a.at) AS at FROM duebridge_platform.audit a
    WHERE a.platform_payment_id = $1 AND a.event IN ('payment_review', 'payment_resumed', 'payment_paused', 'payment_ended')`,
);
const askStatement = sql(
  'review_close_ask',
  `INSERT INTO duebridge_platform.review_closes (platform_payment_id, requested_by, reason, asked) VALUES ($1, $2, $3, $4)
   ON CONFLICT (platform_payment_id) DO UPDATE SET requested_by = $2, reason = $3, asked = $4, requested_at = now()`,
);
const doneStatement = sql(
  'review_close_done',
  'DELETE FROM duebridge_platform.review_closes WHERE platform_payment_id = $1',
);

/** The request that waits for a second person, or null. One of before the payment came to stand as it does is none. */
export async function pendingClose(
  database: Database,
  platform_payment_id: string,
): Promise<PendingClose | null> {
  const [ask] = await database.query<PendingClose>(pendingStatement, [platform_payment_id]);
  if (ask === undefined) return null;
  const [since] = await database.query<{ at: string | null }>(sinceStatement, [
    platform_payment_id,
  ]);
  return Date.parse(ask.requested_at) >= Date.parse(since?.at ?? ask.requested_at) ? ask : null;
}

/**
 * Closes a payment, or records the first of two requests: without a word one that its partner refused, with it any that stands still.
 * Throws what `closeRejected` and `closeByWord` throw, and Refusal CONFLICT when the same person asks twice.
 */
export async function closeReview(
  dependencies: CloseDependencies,
  platform_payment_id: string,
  reason: string,
  actor: string,
  word?: CloseByWord,
): Promise<Closed> {
  const payment = await knownPayment(dependencies.database, platform_payment_id);
  if (word === undefined) {
    if (payment.stage !== 'review') throw conflict(NOT_IN_REVIEW);
    if (payment.review_reason?.startsWith('rejected_') !== true)
      throw conflict(NOT_REFUSED_BY_PARTNER);
  } else if (payment.stage !== 'review' && payment.slot !== PAUSED) {
    throw conflict(NOT_CLOSABLE);
  }
  const asked = word === undefined ? 'close' : `close as ${word.outcome}`;
  return byTwo(dependencies, payment, { asked, reason, actor }, (by) => {
    const act = { platform_payment_id, reason, ...by };
    if (word === undefined) return closeRejected(dependencies, act);
    const { evidence, ...stated } = word;
    return closeByWord(dependencies, { ...act, evidence, word: stated });
  });
}

/** Settles the funds of an ended payment by word, or records the first of two requests. Throws what `settleByWord` throws. */
export async function settleFundsByWord(
  dependencies: CloseDependencies,
  platform_payment_id: string,
  { outcome, reason, evidence }: SettleFunds,
  actor: string,
): Promise<Closed> {
  const { database } = dependencies;
  const payment = await knownPayment(dependencies.database, platform_payment_id);
  const asked = `settle as ${outcome}`;
  return byTwo(dependencies, payment, { asked, reason, actor }, (by) =>
    settleByWord(database, {
      platform_payment_id,
      outcome,
      reason,
      evidence,
      actor: by.actor,
      approved_by: by.approved_by ?? null,
    }),
  );
}

/** What a person asks for, such as `close as failed`, and why. */
interface Ask {
  readonly asked: string;
  readonly reason: string;
  readonly actor: string;
}

/** Acts at once, or above the limit when a second person asks for the same. */
async function byTwo(
  { database, secondPersonAboveCents, mayAct }: CloseDependencies,
  payment: PaymentRow,
  ask: Ask,
  act: (by: { readonly actor: string; readonly approved_by?: string }) => Promise<PaymentRow>,
): Promise<Closed> {
  const { platform_payment_id } = payment;
  const { asked, actor } = ask;
  if (payment.amount_in_cents <= secondPersonAboveCents) {
    return { outcome: 'closed', payment: await act({ actor }) };
  }
  const pending = await pendingClose(database, platform_payment_id);
  const counts =
    pending !== null && pending.asked === asked && (await mayAct(pending.requested_by));
  if (!counts) {
    await request(database, payment, ask);
    return { outcome: 'second_person_needed', payment };
  }
  if (pending.requested_by === actor) {
    throw conflict('You asked for this already: above the limit a second person must confirm it');
  }
  // The first person acts and the second approves; the audit line names both.
  const done = await act({ actor: pending.requested_by, approved_by: actor });
  await database.query(doneStatement, [platform_payment_id]);
  return { outcome: 'closed', payment: done };
}

/** Records a request in place of one that counts no more. Of two at the same moment the later one stands. */
async function request(
  database: Database,
  { platform_payment_id, partner_id }: PaymentRow,
  { asked, reason, actor }: Ask,
): Promise<void> {
  await database.transaction(async (tx) => {
    await tx.query(askStatement, [platform_payment_id, actor, reason, asked]);
    const event = 'review_close_requested';
    await note(tx, { actor, event, platform_payment_id, partner_id, detail: { reason, asked } });
  });
}
