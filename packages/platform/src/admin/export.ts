/**
 * Exports: payments as CSV, streamed.
 *
 * holds: a page is read only when the one before was taken by the reader, so that an export of millions needs no memory and holds no
 *        transaction open; what stands in it is what stood in the tables when its page was read. A cell that a spreadsheet would
 *        run as a formula begins with an apostrophe. Whole account ids only for the role admin, and the audit says so.
 */
import { Readable } from 'node:stream';
import type { Mode } from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';
import { withInitiated } from '../store/archived.ts';
import { listPayments, type PaymentFilter } from '../store/payment-search.ts';
import type { PaymentRow } from '../store/payments.ts';
import { csvCell } from '../csv-cell.ts';
import { maskAccountId } from '../mask.ts';

/** Payments of one page: about 1 MB of text. */
const PAGE_ROWS = 2_000;

/** The fields of an export, in the order of the columns. With whole account ids, `account` is called `account_id`. */
const COLUMNS = [
  'platform_payment_id',
  'payment_id',
  'platform_batch_id',
  'partner_id',
  'mode',
  'biller_id',
  'account',
  'status',
  'stage',
  'review_reason',
  'failure_reason',
  'amount_in_cents',
  'created_at',
  'initiated_at',
  'posted_at',
  'ended_at',
] as const;

/** The bytes of an export; `unmasked` writes the whole account id. */
export function exportPayments(
  database: Database,
  filter: Omit<PaymentFilter, 'limit' | 'cursor'>,
  as: {
    readonly unmasked: boolean;
    readonly modeOf: (payment: PaymentRow) => Promise<Mode>;
  },
): Readable {
  async function* pages(): AsyncGenerator<string> {
    // The partner's kit reads whole records again after a restore (`partner import-payments`), by the names of the interface.
    const account = as.unmasked ? ('account_id' as const) : ('account' as const);
    const names = COLUMNS.map((name) => (name === 'account' ? account : name));
    // Excel reads UTF-8 only with the byte order mark; every other reader of CSV skips it.
    yield `\uFEFF${names.join(',')}\r\n`;
    let cursor: string | undefined;
    for (;;) {
      // A search that finds nothing yields nothing, so it has to be told that nobody reads any more.
      const isRead = (): boolean => !stream.destroyed;
      const rows = await listPayments(database, { ...filter, cursor, limit: PAGE_ROWS }, isRead);
      if (!isRead()) return;
      let page = '';
      for (const row of rows.length === 0 ? [] : await withInitiated(database, rows)) {
        const line = { ...row, mode: await as.modeOf(row), account: maskAccountId(row.account_id) };
        page += `${names.map((name) => csvCell(line[name])).join(',')}\r\n`;
      }
      if (page !== '') yield page;
      if (rows.length < PAGE_ROWS) return;
      cursor = rows.at(-1)?.platform_payment_id;
    }
  }
  const stream: Readable = Readable.from(pages());
  return stream;
}
