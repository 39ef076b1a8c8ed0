/**
 * Stripe's webhooks: a signed request becomes what happened to the money of one payment, or nothing where it concerns none of ours.
 */
import { Stripe } from 'stripe';
import {
  UnverifiedEvent,
  type EventMoney,
  type ProcessorEvent,
  type ProcessorRequest,
} from './adapter.ts';

/** Maximum age of a webhook in seconds: Stripe's own default. A replayed one is also detected by its id. */
const EVENT_TOLERANCE_S = 300;

/** What a webhook tells; undefined for what is not ours. Throws UnverifiedEvent. */
export async function readEvent(
  stripe: Stripe,
  secrets: readonly string[],
  request: ProcessorRequest,
): Promise<ProcessorEvent | undefined> {
  const event = verified(stripe, secrets, request.body, request.header('stripe-signature') ?? '');
  const of = (
    metadata: Stripe.Metadata | null,
    kind: ProcessorEvent['kind'],
    told: Pick<ProcessorEvent, 'detail' | 'money'> & { readonly subject?: string } = {},
  ): ProcessorEvent | undefined => {
    const platform_payment_id = metadata?.['platform_payment_id'];
    // An account may serve other systems too.
    if (platform_payment_id === undefined) return undefined;
    const { subject, ...rest } = told;
    // Stripe may tell one occurrence in two events with ids of their own; what is for operators is told once by its subject.
    const event_id = subject === undefined ? event.id : `${event.type}:${subject}`;
    return { event_id, platform_payment_id, kind, ...rest };
  };
  switch (event.type) {
    case 'payment_intent.amount_capturable_updated':
    case 'payment_intent.succeeded':
      return of(event.data.object.metadata, 'taken');
    case 'payment_intent.payment_failed': {
      const { id, metadata, payment_method_types, last_payment_error } = event.data.object;
      const reason = codeOf(last_payment_error ?? {});
      const money = [{ reference: id, amount_in_cents: event.data.object.amount, reason }];
      // A bank debit fails days after it was made; a card fails immediately, and then the payment was never sent.
      return payment_method_types.includes('us_bank_account')
        ? of(metadata, 'returned', { detail: { code: reason }, subject: id, money })
        : of(metadata, 'news');
    }
    case 'payment_intent.requires_action':
    case 'payment_intent.processing':
    case 'payment_intent.canceled':
    case 'setup_intent.requires_action':
    case 'setup_intent.succeeded':
    case 'setup_intent.setup_failed':
    case 'setup_intent.canceled':
      return of(event.data.object.metadata, 'news');
    case 'charge.dispute.created':
    case 'charge.dispute.closed': {
      const dispute = event.data.object;
      const { id, reason, status, amount } = dispute;
      const intent = idOf(dispute.payment_intent);
      if (intent === undefined) return undefined;
      // A dispute does not repeat the metadata of its payment.
      const { metadata } = await stripe.paymentIntents.retrieve(intent);
      const detail = { dispute: id, reason, status, amount_in_cents: amount };
      return of(metadata, 'disputed', { detail, subject: id, money: [disputedMoney(dispute)] });
    }
    case 'charge.refunded': {
      const { id, metadata, amount_refunded, payment_intent } = event.data.object;
      const intent = idOf(payment_intent);
      if (intent === undefined) return undefined;
      const { data } = await stripe.refunds.list({ payment_intent: intent, limit: 100 });
      // Ours carry our id: they are booked where they are made.
      const money = data
        .filter((one) => one.metadata?.['platform_payment_id'] === undefined)
        .filter(({ status }) => status === 'succeeded' || status === 'pending')
        .map(({ id: reference, amount }) => ({ reference, amount_in_cents: amount }));
      if (money.length === 0) return undefined;
      const detail = { amount_in_cents: amount_refunded };
      // A charge may be refunded in parts.
      return of(metadata, 'refunded', { detail, subject: `${id}:${amount_refunded}`, money });
    }
    case 'refund.failed': {
      const { id, metadata, amount, payment_intent, failure_reason } = event.data.object;
      const intent = idOf(payment_intent);
      if (intent === undefined) return undefined;
      const reason = `the refund ${id} failed (${failure_reason ?? 'no reason'})`;
      const money = [{ reference: metadata?.['refund_id'] ?? id, amount_in_cents: amount, reason }];
      // One that was made in the dashboard does not carry our ids.
      const { metadata: own } = await stripe.paymentIntents.retrieve(intent);
      return of(own, 'refund_failed', { detail: { refund: id }, subject: id, money });
    }
    default:
      return undefined;
  }
}

/** An inquiry (`warning_…`) takes no money yet; if it becomes a dispute, that is another case. */
function disputedMoney(dispute: Stripe.Dispute): EventMoney {
  const { id, status, amount, reason, evidence_details } = dispute;
  const outcome = outcomeOf(dispute);
  const isInquiry = status.startsWith('warning');
  const due = evidence_details.due_by;
  return {
    reference: isInquiry ? `${id}-inquiry` : id,
    amount_in_cents: isInquiry ? 0 : amount,
    reason,
    ...(due === null ? {} : { deadline: new Date(due * 1_000).toISOString() }),
    ...(outcome === undefined ? {} : { outcome }),
  };
}

/** How a dispute ended; undefined while it is open. */
function outcomeOf({ status, balance_transactions }: Stripe.Dispute): EventMoney['outcome'] {
  switch (status) {
    case 'won':
    case 'warning_closed':
      return 'won';
    case 'lost':
      return 'lost';
    case 'prevented':
      // Before it became a dispute: blocked, or given back at once. A withdrawal is one transaction, its return another.
      return balance_transactions.length === 1 ? 'lost' : 'won';
    default:
      return undefined;
  }
}

function verified(
  stripe: Stripe,
  secrets: readonly string[],
  body: Buffer,
  signature: string,
): Stripe.Event {
  let last: unknown;
  for (const secret of secrets) {
    try {
      return stripe.webhooks.constructEvent(body, signature, secret, EVENT_TOLERANCE_S);
    } catch (error) {
      last = error;
    }
  }
  throw new UnverifiedEvent('the signature is not valid', { cause: last });
}

/** Why Stripe refused something. */
export interface StripeError {
  readonly code?: string | undefined;
  readonly decline_code?: string | undefined;
}

/** Stripe's code of a refusal, the bank's own where there is one. */
export function codeOf({ code, decline_code }: StripeError): string {
  return decline_code ?? code ?? 'no code';
}

/** The id of an object that Stripe names by its id or shows whole. */
export function idOf(linked: string | { readonly id: string } | null): string | undefined {
  if (linked === null) return undefined;
  return typeof linked === 'string' ? linked : linked.id;
}
