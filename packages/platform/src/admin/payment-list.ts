/**
 * Payments as an operator sees them, and the list of them, with what is happening to each payment now.
 *
 * holds: no customer and no whole account id leaves here. The calls, and the due time of the next step, are those that this process
 *        knows: another one counts its own.
 */
import {
  invalidField,
  PaymentView,
  Refusal,
  type Mode,
  type PaymentSearch,
} from '@duebridge/contract';
import { emailDigests } from '../checkout/secrets.ts';
import { maskAccountId } from '../mask.ts';
import type { Services } from '../services.ts';
import { summarize } from '../store/attempts.ts';
import { casesOf } from '../store/cases.ts';
import { listPayments, type PaymentFilter } from '../store/payment-search.ts';
import { PAUSED, type PaymentRow } from '../store/payments.ts';

/** The id of the last row of a page. */
const CURSOR = /^[A-Za-z0-9._-]{1,64}$/;

/** Default page size: a screenful. */
const DEFAULT_LIMIT = 50;

/** One page of a list. One row more than asked for is read: it shows whether there is another page. */
export async function pageOf<Row>(
  asked: string | undefined,
  read: (limit: number) => Promise<Row[]>,
  cursorOf: (row: Row) => string,
): Promise<{ readonly page: Row[]; readonly next_cursor: string | null }> {
  const limit = Number(asked ?? DEFAULT_LIMIT);
  const rows = await read(limit + 1);
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  return { page, next_cursor: rows.length > limit && last ? cursorOf(last) : null };
}

/** The payments of the admin API. */
export type PaymentList = ReturnType<typeof openPaymentList>;

/** Opens the list. */
export function openPaymentList(
  services: Pick<Services, 'database' | 'registry' | 'attempts' | 'pepper' | 'engine'>,
) {
  const { database, registry, attempts, pepper, engine } = services;
  // A registration never changes its mode (decision 160).
  const modes = new Map<string, Mode>();
  const modeOf = async ({ partner_id }: PaymentRow): Promise<Mode> => {
    const mode = modes.get(partner_id) ?? (await registry.get(partner_id))?.mode ?? 'live';
    modes.set(partner_id, mode);
    return mode;
  };

  const nextStep = (payment: PaymentRow): PaymentView['next_step'] => {
    const { stage, settled_at, slot } = payment;
    const isDriven = settled_at === null && slot !== null && slot !== PAUSED;
    const at = isDriven ? engine.nextStepAt(payment.platform_payment_id) : undefined;
    if (at === undefined || stage === 'review') return null;
    return { step: stage === 'accepted' ? 'poll' : stage === 'ended' ? 'settle' : 'submit', at };
  };
  /** As operators see them. */
  const shown = async (payments: readonly PaymentRow[]): Promise<PaymentView[]> => {
    const ids = payments.map((payment) => payment.platform_payment_id);
    const [calls, cases] = await Promise.all([attempts.callsOf(ids), casesOf(database, ids)]);
    const views: PaymentView[] = [];
    // One payment after the other: a partner that is not known yet is read once for the whole list.
    for (const payment of payments) {
      const all = {
        ...payment,
        mode: await modeOf(payment),
        masked_account_id: maskAccountId(payment.account_id),
        ...summarize(calls.get(payment.platform_payment_id) ?? []),
        next_step: nextStep(payment),
        paused: payment.slot === PAUSED,
        withdrawable: isWithdrawable(payment),
        open_case: cases.get(payment.platform_payment_id) ?? null,
      };
      // What the admin API shows, and nothing else that a row has.
      views.push(Object.fromEntries(SHOWN.map((name) => [name, all[name]])) as PaymentView);
    }
    return views;
  };
  const showOne = async (payment: PaymentRow): Promise<PaymentView> => {
    const [view] = await shown([payment]);
    if (view === undefined) throw new Error('a payment has no view');
    return view;
  };

  /** Converts a query to a search filter. */
  const toFilter = ({
    amount_in_cents,
    email,
    limit: _limit,
    ...filter
  }: PaymentSearch): Omit<PaymentFilter, 'limit'> => ({
    ...filter,
    amount_in_cents: amount_in_cents === undefined ? undefined : Number(amount_in_cents),
    email_digests: email === undefined ? undefined : emailDigests(pepper, email),
  });

  /** One page. Throws Refusal INVALID_REQUEST for a cursor of no page. */
  const paymentPage = async (query: PaymentSearch) => {
    if (query.cursor !== undefined && !CURSOR.test(query.cursor)) throw badCursor();
    const { page, next_cursor } = await pageOf(
      query.limit,
      (limit) => listPayments(database, { ...toFilter(query), limit }),
      (row) => row.platform_payment_id,
    );
    return { payments: await shown(page), next_cursor };
  };
  return { modeOf, shown, showOne, toFilter, paymentPage };
}

/** The refusal of a cursor that is not from a page. */
export function badCursor(): Refusal {
  return invalidField('query.cursor', 'is not the next_cursor of a page');
}

/** Whether nothing of it can have left (store/operators-acts.ts, withdrawPayment, which decides). Pure. */
export function isWithdrawable({ status, stage, maybe_sent }: PaymentRow): boolean {
  const isUnsent = stage === 'created' || stage === 'authorized';
  return status === 'processing' && isUnsent && maybe_sent === null;
}

const SHOWN = Object.keys(PaymentView.properties) as (keyof PaymentView)[];
