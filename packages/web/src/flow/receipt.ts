/** The customer's receipt: the rows that the screen shows, and two self-contained files. */
import type { FlowPayment, FlowSession } from '@duebridge/contract';
import type { Language } from './i18n.ts';
import { escapeHtml, plainText } from './text.ts';

export type Row = readonly [label: string, value: string];

/** Everything a customer needs to talk to the biller about this payment, in reading order. */
export function receiptRows(session: FlowSession, payment: FlowPayment, words: Language): Row[] {
  const { say } = words;
  const biller = session.biller.name;
  const method = session.funding_methods.find((m) => m.funding_method === payment.funding_method);
  return [
    [say('pay_to'), biller],
    [say('account'), session.account.masked_account_id],
    [say('amount'), words.money(payment.amount_in_cents)],
    [say('pay_with'), method?.label ?? payment.funding_method],
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

/** Where to ask, and where the receipt is sent. */
export function receiptNote({ partner, biller, receipt }: FlowSession, { say }: Language): string {
  const contact = plainText(partner.support_contact ?? '');
  const help = say(contact === '' ? 'support' : 'support_at', { biller: biller.name, contact });
  const { mailed_to: address } = receipt ?? {};
  return address === undefined
    ? help
    : `${help} ${say('mailed_to', { address: plainText(address) })}`;
}

/** What a person reads out on the phone: the last eight characters of the id, in two groups. The whole id is on the receipt too. */
export function shortReference({ platform_payment_id: id }: FlowPayment): string {
  const end = id.replaceAll('-', '').slice(-8).toUpperCase();
  return `${end.slice(0, -4)}-${end.slice(-4)}`;
}

/** The receipt as a plain text file. */
export function receiptText(title: string, rows: readonly Row[], note: string): string {
  return [title, '', ...rows.map(([label, value]) => `${label}: ${value}`), '', note, ''].join(
    '\n',
  );
}

/** The receipt as one self-contained HTML file without scripts. */
export function receiptHtml(
  title: string,
  rows: readonly Row[],
  note: string,
  tag: string,
): string {
  const cells = rows.map(
    ([label, value]) => `<dt>${escapeHtml(label)}</dt><dd>${escapeHtml(value)}</dd>`,
  );
  return `<!doctype html><html lang="${tag}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>${escapeHtml(title)}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:2rem auto;padding:0 1rem}dt{color:#555}dd{margin:0 0 .75rem;overflow-wrap:anywhere}</style>
<h1>${escapeHtml(title)}</h1><dl>${cells.join('')}</dl><p>${escapeHtml(note)}</p></html>
`;
}

/** Hands a text to the browser as a file. */
export function saveFile(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The download has started by the next turn of the event loop; revoking frees the memory.
  setTimeout(() => URL.revokeObjectURL(url), 1_000);
}
