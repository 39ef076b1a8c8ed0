/**
 * Payments as an operator sees them, and the list of them: a page in any order, with what is happening to each payment now
 * (decision 215).
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
import type { Clock, Database } from '@duebridge/runtime';
import { emailDigests } from '../checkout/secrets.ts';
import type { Engine } from '../engine/engine.ts';
import { OVERDUE_AFTER_MS } from '../engine/poll-schedule.ts';
import { maskAccountId } from '../mask.ts';
import type { PartnerRegistry } from '../partners/registry.ts';
import type { Attempts } from '../store/attempts.ts';
import { followUpsOf } from '../store/follow-ups.ts';
import { cursorOf, isCursor } from '../store/payment-order.ts';
import { isNarrow, searchPayments, type PaymentFilter } from '../store/payment-search.ts';
import { PAUSED, type PaymentRow } from '../store/payments.ts';
import { openUsualTimes } from '../store/usual-times.ts';

/** Default page size: a screenful. */
export const DEFAULT_LIMIT = 50;

/** The payments of the admin API. */
interface PaymentList {
  /** What may be shown of each. */
  readonly shown: (payments: readonly PaymentRow[]) => Promise<PaymentView[]>;
  readonly showOne: (payment: PaymentRow) => Promise<PaymentView>;
  /** With what is happening to each now. */
  readonly listed: (payments: readonly PaymentRow[]) => Promise<ListedPayment[]>;
  /** Converts a query to a search filter. */
  readonly toFilter: (query: PaymentSearch) => Promise<Omit<PaymentFilter, 'limit'>>;
  /** One page. Throws Refusal INVALID_REQUEST for a cursor of no page, and for an order that its filter does not allow. */
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
  readonly clock: Clock;
  readonly engine: Pick<Engine, 'nextStepAt'>;
}): PaymentList {
  const { database, registry, attempts, clock } = dependencies;
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
    const [views, summaries, followUps] = await Promise.all([
      shown(payments),
      attempts.summaryOf(ids),
      followUpsOf(database, ids),
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
        follow_up: followUps.get(payment.platform_payment_id) ?? null,
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

  const usualTimes = openUsualTimes(database, clock);
  /** Converts a query to a search filter. */
  const toFilter = async (query: PaymentSearch): Promise<Omit<PaymentFilter, 'limit'>> => {
    const { amount_in_cents, min_amount_in_cents, max_amount_in_cents, min_attempts, ...others } =
      query;
    if (Number(min_amount_in_cents ?? 0) > Number(max_amount_in_cents ?? Number.MAX_SAFE_INTEGER)) {
      const problem = 'is more than max_amount_in_cents, so that nothing can match';
      throw new Refusal('INVALID_REQUEST', {
        details: [{ path: 'min_amount_in_cents', problem }],
      });
    }
    const { overdue, stuck, paused, follow_up, unsettled, email, ...rest } = others;
    const { limit: _limit, cursor: _cursor, ...filter } = rest;
    return {
      ...filter,
      amount_in_cents: numberOf(amount_in_cents),
      min_amount_in_cents: numberOf(min_amount_in_cents),
      max_amount_in_cents: numberOf(max_amount_in_cents),
      min_attempts: numberOf(min_attempts),
      email_digests: email === undefined ? undefined : emailDigests(dependencies.pepper, email),
      openForMs: overdue === undefined ? undefined : OVERDUE_AFTER_MS,
      stuck: stuck === undefined ? undefined : await usualTimes(),
      paused: paused !== undefined,
      follow_up: follow_up !== undefined,
      unsettled: unsettled !== undefined,
      unwritten:
        filter.sort === 'attempts' || min_attempts !== undefined ? attempts.unwritten() : undefined,
    };
  };

  const paymentPage = async (query: PaymentSearch) => {
    const limit = Number(query.limit ?? DEFAULT_LIMIT);
    const { sort = 'newest', cursor } = query;
    if (cursor !== undefined && !isCursor(sort, cursor)) throw badCursor();
    const filter = await toFilter(query);
    if (sort === 'attempts' && !isNarrow(filter)) throw tooManyToSort();
    // Read one row more than requested: it shows whether there is another page.
    const { rows, searched_to } = await searchPayments(database, {
      ...filter,
      cursor,
      limit: limit + 1,
    });
    const page = rows.slice(0, limit);
    const last = page.at(-1);
    return {
      payments: await listed(page),
      next_cursor:
        rows.length > limit && last !== undefined ? cursorOf(sort, last) : (searched_to ?? null),
    };
  };
  return { shown, showOne, listed, toFilter, paymentPage };
}

/** The refusal of a cursor that is not from a page. */
export function badCursor(): Refusal {
  return new Refusal('INVALID_REQUEST', {
    details: [{ path: 'query.cursor', problem: 'is not the next_cursor of a page' }],
  });
}

function tooManyToSort(): Refusal {
  return new Refusal('INVALID_REQUEST', {
    details: [
      {
        path: 'sort',
        problem:
          'attempts needs a filter that leaves few payments, such as status=processing, stuck=true or stage=review',
      },
    ],
  });
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
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
