/**
 * "What does the partner say now?": one GET of a payment's status, for an operator who does not want to wait for the next poll.
 *
 * holds: it changes no payment. The answer stands among the payment's attempts like any other, and in the audit; a worker that drives
 *        the payment takes it over at its own next poll.
 */
import { conflict, Refusal, type PartnerAnswer } from '@duebridge/contract';
import { judgePoll } from '../engine/outcome.ts';
import { evidenceOf } from '../engine/review.ts';
import type { Services } from '../services.ts';
import { note } from '../store/audit.ts';
import { findPayment } from '../store/payments.ts';

/** Polls the partner. Throws Refusal PAYMENT_NOT_FOUND, and CONFLICT for a payment that the partner cannot have. */
export async function pollNow(
  { database, registry, client }: Pick<Services, 'database' | 'registry' | 'client'>,
  platform_payment_id: string,
  reason: string,
  actor: string,
): Promise<PartnerAnswer> {
  const payment = await findPayment(database, platform_payment_id);
  const partner = payment && (await registry.get(payment.partner_id));
  if (payment === undefined || partner === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  if (payment.stage === 'created' || payment.stage === 'authorized') {
    throw conflict('Nothing has been sent to the partner yet');
  }
  const reply = await client.poll(partner, payment);
  // A partner that lost the payment may have accepted the repeated PUT under another payment_id.
  const answer = evidenceOf(judgePoll({ ...payment, payment_id: null }, reply));
  await note(database, {
    actor,
    event: 'payment_polled',
    platform_payment_id,
    partner_id: partner.partner_id,
    detail: { reason, answer },
  });
  return {
    platform_payment_id,
    answer,
    http_status: reply.kind === 'reply' ? reply.status : null,
  };
}
