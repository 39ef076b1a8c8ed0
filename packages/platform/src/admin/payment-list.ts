/**
 * Payments as an operator sees them, and the list of them, with what is happening to each payment now.
 *
 * holds: no customer and no whole account id leaves here. The calls, and the due time of the next step, are those that this process
 *        knows: another one counts its own.
 */
import type { KeyObject } from 'node:crypto';
import {
  Refusal,
  type ListedPayment,
  type Mode,
  type PaymentSearch,
  type PaymentView,
} from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';
import { emailDigests } from '../checkout/secrets.ts';
import type { Engine } from '../engine/engine.ts';
import { maskAccountId } from '../mask.ts';
import type { PartnerRegistry } from '../partners/registry.ts';
import type { Attempts } from '../store/attempts.ts';
import { casesOf } from '../store/cases.ts';
import { listPayments, type PaymentFilter } from '../store/payment-search.ts';
import { PAUSED, type PaymentRow } from '../store/payments.ts';

/** The id of the last row of a page. */
const CURSOR = /^[A-Za-z0-9._-]{1,64}$/;

/** Default page size: a screenful. */
export const DEFAULT_LIMIT = 50;

/** The payments of the admin API. */
export interface PaymentList {
  /** What may be shown of each. */
  readonly shown: (payments: readonly PaymentRow[]) => Promise<PaymentView[]>;
  readonly showOne: (payment: PaymentRow) => Promise<PaymentView>;
  /** With what is happening to each now. */
  readonly listed: (payments: readonly PaymentRow[]) => Promise<ListedPayment[]>;
  /** Converts a query to a search filter. */
  readonly toFilter: (query: PaymentSearch) => Omit<PaymentFilter, 'limit'>;
  /** One page. Throws Refusal INVALID_REQUEST for a cursor of no page. */
  readonly paymentPage: (
    query: PaymentSearch,
  ) => Promise<{ payments: ListedPayment[]; next_cursor: string | null }>;
}

/** Opens the list. */
export function openPaymentList(dependencies: {
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly attempts: Attempts;
  readonly pepper: KeyObject;
  readonly engine: Pick<Engine, 'nextStepAt'>;
}): PaymentList {
  const { database, registry, attempts } = dependencies;
  // A registration never changes its mode (decision 160).
  const modes = new Map<string, Mode>();
  const shown = async (payments: readonly PaymentRow[]): Promise<PaymentView[]> => {
    if (payments.some(({ partner_id }) => !modes.has(partner_id))) {
      for (const { partner_id, mode } of await registry.list()) modes.set(partner_id, mode);
    }
    return payments.map((payment) => toPaymentView(payment, modes.get(payment.partner_id)));
  };
  const showOne = async (payment: PaymentRow): Promise<PaymentView> => {
    const [view] = await shown([payment]);
    if (view === undefined) throw new Error('a payment has no view');
    return view;
  };

  /** With what is happening to each now. */
  const listed = async (payments: readonly PaymentRow[]): Promise<ListedPayment[]> => {
    const ids = payments.map((payment) => payment.platform_payment_id);
    const [views, summaries, cases] = await Promise.all([
      shown(payments),
      attempts.summaryOf(ids),
      casesOf(database, ids),
    ]);
    return payments.flatMap((payment, index) => {
      const view = views[index];
      const { attempts: count = 0, last_result = null } =
        summaries.get(payment.platform_payment_id) ?? {};
      if (view === undefined) return [];
      return {
        ...view,
        attempts: count,
        last_result,
        next_step: nextStep(payment),
        paused: payment.slot === PAUSED,
        open_case: cases.get(payment.platform_payment_id) ?? null,
      };
    });
  };
  const nextStep = (payment: PaymentRow): ListedPayment['next_step'] => {
    const isDriven =
      payment.settled_at === null && payment.slot !== null && payment.slot !== PAUSED;
    const at = isDriven ? dependencies.engine.nextStepAt(payment.platform_payment_id) : undefined;
    if (at === undefined) return null;
    switch (payment.stage) {
      case 'created':
      case 'authorized':
      case 'dispatching':
        return { step: 'submit', at };
      case 'accepted':
        return { step: 'poll', at };
      case 'ended':
        return { step: 'settle', at };
      case 'review':
        return null;
    }
  };

  const toFilter = ({
    amount_in_cents,
    email,
    limit: _limit,
    ...filter
  }: PaymentSearch): Omit<PaymentFilter, 'limit'> => ({
    ...filter,
    amount_in_cents: amount_in_cents === undefined ? undefined : Number(amount_in_cents),
    email_digests: email === undefined ? undefined : emailDigests(dependencies.pepper, email),
  });

  const paymentPage = async (query: PaymentSearch) => {
    const limit = Number(query.limit ?? DEFAULT_LIMIT);
    if (query.cursor !== undefined && !CURSOR.test(query.cursor)) throw badCursor();
    // Read one row more than requested: it shows whether there is another page.
    const rows = await listPayments(database, { ...toFilter(query), limit: limit + 1 });
    const page = rows.slice(0, limit);
    const next_cursor = rows.length > limit ? (page.at(-1)?.platform_payment_id ?? null) : null;
    return { payments: await listed(page), next_cursor };
  };
  return { shown, showOne, listed, toFilter, paymentPage };
}

/** The refusal of a cursor that is not from a page. */
export function badCursor(): Refusal {
  return new Refusal('INVALID_REQUEST', {
    details: [{ path: 'query.cursor', problem: 'is not the next_cursor of a page' }],
  });
}

/** A payment as an operator sees it. */
function toPaymentView(payment: PaymentRow, mode: Mode = 'live'): PaymentView {
  return {
    platform_payment_id: payment.platform_payment_id,
    payment_id: payment.payment_id,
    platform_batch_id: payment.platform_batch_id,
    partner_id: payment.partner_id,
    mode,
    biller_id: payment.biller_id,
    masked_account_id: maskAccountId(payment.account_id),
    status: payment.status,
    stage: payment.stage,
    review_reason: payment.review_reason,
    failure_reason: payment.failure_reason,
    amount_in_cents: payment.amount_in_cents,
    created_at: payment.created_at,
    initiated_at: payment.initiated_at,
    posted_at: payment.posted_at,
    ended_at: payment.ended_at,
  };
}
