/** The customer's receipt: the rows that the screen and the paper show. */
import type { FlowPayment } from '@duebridge/contract';
import type { Language } from './i18n.ts';
import type { Row } from './screens.tsx';
import { methodOf, type Bill } from './state.ts';
import { plainText } from './text.ts';

/** Everything a customer needs to talk to the biller about this payment, in reading order. */
export function receiptRows(bill: Bill, payment: FlowPayment, words: Language): Row[] {
  const { say } = words;
  const { session } = bill;
  const biller = session.biller.name;
  const refunded = session.receipt?.refunded_in_cents ?? 0;
  return [
    [say('pay_to'), biller],
    [say('account'), session.account.masked_account_id],
    [say('amount'), words.money(payment.amount_in_cents)],
    ...(refunded === 0 ? [] : ([[say('refunded'), words.money(refunded)]] as const)),
    [say('method'), methodLabel(bill, payment)],
    ...(session.receipt === undefined
      ? []
      : ([[say('paid_by'), plainText(session.receipt.payer_name)]] as const)),
    [say('initiated'), words.instant(payment.initiated_at ?? payment.created_at)],
    ...(payment.posted_at === null
      ? []
      : ([[say('posted'), words.instant(payment.posted_at)]] as const)),
    [say('reference'), shortReference(payment)],
    [say('full_reference'), payment.platform_payment_id],
    ...(payment.payment_id === null
      ? []
      : ([[say('biller_reference', { biller }), payment.payment_id]] as const)),
  ];
}

/** What the method is called that a payment was made with. */
export const methodLabel = (bill: Bill, payment: FlowPayment): string =>
  methodOf(bill, payment)?.label ?? payment.funding_method;

/** What a person reads out on the phone: the last eight characters of the id, in two groups. The whole id is on the receipt too. */
export function shortReference({ platform_payment_id: id }: FlowPayment): string {
  const end = id.replaceAll('-', '').slice(-8).toUpperCase();
  return `${end.slice(0, -4)}-${end.slice(-4)}`;
}
