/**
 * Closing a review: how a person ends a payment that its partner refused for good (decisions 21 and 38).
 *
 * enters: a payment in review because of a refused PUT, and an operator's reason.  leaves: a failed payment, whose funds a worker
 *         releases and whose customer may pay anew; or a request that waits for a second person.
 * holds:  the partner is asked at this very moment, and only its own "not found" ends the payment; above the limit two different
 *         persons must ask, and the audit names both.
 */
import { Refusal, type PendingClose } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { plainText } from '../checkout/confirm.ts';
import { judgePoll } from '../engine/outcome.ts';
import type { PartnerClient } from '../partners/client.ts';
import type { PartnerRegistry } from '../partners/registry.ts';
import type { Attempts } from '../store/attempts.ts';
import { note } from '../store/audit.ts';
import { findPayment, type PaymentRow } from '../store/payments.ts';
import { closeRejected } from '../store/terminal.ts';

/** What closing stands on. */
export interface CloseGround {
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly client: PartnerClient;
  readonly attempts: Attempts;
  /** Above this amount a second person is needed. */
  readonly secondPersonAboveCents: number;
}

/** When the partner cannot be reached now, the operator may ask again after this. */
const retryAfterSeconds = '10';

const pendingStatement = sql(
  'review_close_pending',
  `SELECT requested_by, requested_at, reason FROM duebridge_platform.review_closes WHERE platform_payment_id = $1`,
);

/** The request that waits for a second person, or null. */
export async function pendingClose(
  database: Database,
  platform_payment_id: string,
): Promise<PendingClose | null> {
  const [row] = await database.query<PendingClose>(pendingStatement, [platform_payment_id]);
  return row ?? null;
}

/**
 * Closes a review, or notes the first of two requests. Throws Refusal PAYMENT_NOT_FOUND; CONFLICT when the payment is not one whose
 * PUT was refused, when the partner knows it after all, or when the same person asks twice; PARTNER_UNREACHABLE when the partner
 * does not say for certain that it does not know the payment.
 */
export async function closeReview(
  ground: CloseGround,
  platform_payment_id: string,
  reason: string,
  actor: string,
): Promise<{ outcome: 'closed' | 'second_person_needed'; payment: PaymentRow }> {
  const { database } = ground;
  const payment = await findPayment(database, platform_payment_id);
  if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  if (payment.stage !== 'review' || payment.review_reason?.startsWith('rejected') !== true) {
    throw new Refusal('CONFLICT', {
      message:
        payment.stage === 'review'
          ? 'This review is not about a refused PUT: the payment may exist at the partner, so only the partner can end it'
          : 'The payment is not in review',
    });
  }
  const pending = await pendingClose(database, platform_payment_id);
  if (payment.amount_in_cents > ground.secondPersonAboveCents) {
    if (pending === null) {
      await assertUnknownThere(ground, payment);
      await requestClose(database, payment, reason, actor);
      return { outcome: 'second_person_needed', payment };
    }
    if (pending.requested_by === actor) {
      throw new Refusal('CONFLICT', {
        message: 'You asked for this already: above the limit a second person must confirm it',
      });
    }
  }
  await assertUnknownThere(ground, payment);
  const closed = await closeRejected(database, {
    platform_payment_id,
    failure_reason: await failureReason(ground, payment),
    actor,
    reason,
    requested_by: pending?.requested_by,
  });
  return { outcome: 'closed', payment: closed };
}

/** The partner's own "not found", asked now: anything else leaves the payment as it is. */
async function assertUnknownThere(
  { registry, client }: CloseGround,
  payment: PaymentRow,
): Promise<void> {
  const partner = await registry.get(payment.partner_id);
  if (partner === undefined) throw new Refusal('CONFLICT', { message: 'The partner is gone' });
  const answer = await client.poll(partner, payment);
  const found = judgePoll(payment, answer);
  const isDefinite =
    found.kind === 'not_found' && answer.kind === 'reply' && answer.json !== undefined;
  if (isDefinite) return;
  if (found.kind === 'processing' || found.kind === 'ended' || found.kind === 'incomplete') {
    throw new Refusal('CONFLICT', {
      message: 'The partner knows this payment after all: resume it instead',
    });
  }
  if (found.kind === 'mismatch') {
    throw new Refusal('CONFLICT', {
      message: 'The partner has another payment under this id: ask the partner',
    });
  }
  throw new Refusal('PARTNER_UNREACHABLE', {
    message: 'The partner does not say for certain that it does not know the payment',
    headers: { 'Retry-After': retryAfterSeconds },
  });
}

async function requestClose(
  database: Database,
  { platform_payment_id, partner_id }: PaymentRow,
  reason: string,
  actor: string,
): Promise<void> {
  await database.transaction(async (tx) => {
    const made = await tx.query(
      `INSERT INTO duebridge_platform.review_closes (platform_payment_id, requested_by, reason) VALUES ($1, $2, $3)
       ON CONFLICT (platform_payment_id) DO NOTHING RETURNING 1`,
      [platform_payment_id, actor, reason],
    );
    if (made.length === 0) {
      throw new Refusal('CONFLICT', { message: 'Somebody asked for this at the same moment' });
    }
    await note(tx, {
      actor,
      event: 'review_close_requested',
      platform_payment_id,
      partner_id,
      detail: { reason },
    });
  });
}

/** What the customer is told: the partner's own words where it gave any. */
async function failureReason({ attempts }: CloseGround, payment: PaymentRow): Promise<string> {
  const tried = await attempts.of(payment.platform_payment_id, { bodies: true });
  const refusal = tried.findLast(({ kind, body }) => kind === 'put' && body !== null);
  const said = messageOf(refusal?.body ?? '');
  const code = payment.review_reason?.replace(/^rejected_/, '').replace('_', ' ') ?? '';
  return plainText(
    said === undefined
      ? `The biller refused the payment (${code}).`
      : `The biller refused the payment: ${said}`,
  );
}

function messageOf(body: string): string | undefined {
  try {
    const json: unknown = JSON.parse(body);
    if (typeof json !== 'object' || json === null || !('message' in json)) return undefined;
    return typeof json.message === 'string' && json.message !== '' ? json.message : undefined;
  } catch {
    return undefined;
  }
}
