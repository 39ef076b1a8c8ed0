/**
 * The biller's statement: what a remittance is made of, as CSV and in the form of camt.054 (a bank's notification of a credit).
 *
 * enters: a remittance.  leaves: its lines: each payment, each refund and return that is taken off, what was carried from earlier ones, and
 *         the total, which is what the bank transfers.
 * holds:  the lines are read from the rows that the remittance was made of, not from its sums; a statement whose lines do not add up to its
 *         total is an error, and is not delivered whole.
 */
import { Refusal, type RemittanceView } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { csvCell } from '../csv-cell.ts';
import { IN_THE_BOOK } from '../store/money-book.ts';
import { xmlText } from './bank-file.ts';

/** Lines of one statement to the database. */
const PAGE = 5_000;

const REMITTANCE = `remittance_id, platform_batch_id, partner_id, biller_id, payments, gross_in_cents, deducted_in_cents, carried_in_cents,
  net_in_cents, sha256, due_on::text AS due_on, state, carried_to, file_id, reference, reason, made_at, sent_at, ended_at,
  r.state IN ('due', 'sending', 'sent') AND EXISTS (SELECT 1 FROM duebridge_platform.payouts o
    WHERE o.partner_id = r.partner_id AND o.biller_id = r.biller_id AND o.held) AS held`;
const getStatement = sql(`
   SELECT ${REMITTANCE} FROM duebridge_platform.remittances r WHERE remittance_id = $1`);
const listStatement = sql(`
   SELECT ${REMITTANCE} FROM duebridge_platform.remittances r
    WHERE ($1::text IS NULL OR partner_id = $1) AND ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR (made_at, remittance_id) <
           (SELECT c.made_at, c.remittance_id FROM duebridge_platform.remittances c WHERE c.remittance_id = $3))
    ORDER BY made_at DESC, remittance_id DESC LIMIT $4`);
const paymentsStatement = sql(`
   SELECT 'payment' AS kind, p.platform_payment_id, p.payment_id, p.account_id, p.amount_in_cents, p.posted_at AS note FROM duebridge_platform.payments p
    WHERE p.platform_batch_id = $1 AND p.biller_id = $2 AND p.platform_payment_id > $3 AND p.status = 'succeeded' AND ${IN_THE_BOOK}
    ORDER BY p.platform_payment_id LIMIT ${PAGE}`);
/** What is taken off, and what was carried from earlier ones. */
const restStatement = sql(`
   SELECT s.kind, s.platform_payment_id, '' AS payment_id, '' AS account_id, s.amount_in_cents, s.note
     FROM (SELECT d.kind, d.deduction_id AS id, d.platform_payment_id, -d.amount_in_cents AS amount_in_cents, d.reason AS note
             FROM duebridge_platform.deductions d WHERE d.remittance_id = $1
           UNION ALL
           SELECT 'carried', r.remittance_id, '', r.net_in_cents, r.remittance_id FROM duebridge_platform.remittances r WHERE r.carried_to = $1) AS s
    ORDER BY s.kind = 'carried', s.id`);

/** Remittances, newest first; those made before that of the id `cursor`, at most `limit` (default 100). */
export function listRemittances(
  database: Pick<Database, 'query'>,
  filter: {
    readonly partner_id?: string;
    readonly state?: string;
    readonly cursor?: string;
    readonly limit?: number;
  },
): Promise<RemittanceView[]> {
  const { partner_id = null, state = null, cursor = null, limit = 100 } = filter;
  return database.query<RemittanceView>(listStatement, [partner_id, state, cursor, limit]);
}

/** One remittance. Throws Refusal NOT_FOUND. */
export async function getRemittance(
  on: Pick<Database, 'query'>,
  remittance_id: string,
): Promise<RemittanceView> {
  const [remittance] = await on.query<RemittanceView>(getStatement, [remittance_id]);
  if (remittance === undefined) throw new Refusal('NOT_FOUND');
  return remittance;
}

/** One line. Amounts are below zero where they are taken off. */
export interface StatementLine {
  readonly kind: 'payment' | 'refund' | 'return' | 'correction' | 'carried';
  readonly platform_payment_id: string;
  readonly payment_id: string;
  readonly account_id: string;
  readonly amount_in_cents: number;
  /** The instant of a posting, the reason of a deduction, the remittance that was carried. */
  readonly note: string;
}

/** The lines of a remittance, page by page. Throws an Error at the end when they do not add up. */
export async function* linesOf(
  database: Pick<Database, 'query'>,
  { remittance_id, platform_batch_id, biller_id, net_in_cents }: RemittanceView,
): AsyncGenerator<StatementLine[]> {
  let sum = 0;
  const counted = (lines: StatementLine[]): StatementLine[] => {
    for (const { amount_in_cents } of lines) sum += amount_in_cents;
    return lines;
  };
  for (let above = ''; ;) {
    const page = await database.query<StatementLine>(paymentsStatement, [
      platform_batch_id,
      biller_id,
      above,
    ]);
    yield counted(page);
    above = page.at(-1)?.platform_payment_id ?? '';
    if (page.length < PAGE) break;
  }
  yield counted(await database.query<StatementLine>(restStatement, [remittance_id]));
  if (sum !== net_in_cents) {
    throw new Error(`the statement of ${remittance_id} adds up to ${sum}, not to ${net_in_cents}`);
  }
}

/** A statement, piece by piece, of the remittance with this id. Throws Refusal NOT_FOUND. */
export async function readStatementOf(
  database: Pick<Database, 'query'>,
  remittance_id: string,
  format: 'csv' | 'camt054',
): Promise<AsyncGenerator<string>> {
  const remittance = await getRemittance(database, remittance_id);
  const lines = linesOf(database, remittance);
  return format === 'csv' ? csvOf(remittance, lines) : camtOf(remittance, lines);
}

/** The columns of the CSV, which `duebridge partner check-remittance` reads by their names. */
const COLUMNS = [
  'kind',
  'platform_payment_id',
  'payment_id',
  'account_id',
  'amount_in_cents',
  'platform_batch_id',
  'note',
] as const;

async function* csvOf(
  { remittance_id, platform_batch_id, net_in_cents }: RemittanceView,
  pages: AsyncIterable<StatementLine[]>,
): AsyncGenerator<string> {
  const row = (line: Partial<Record<(typeof COLUMNS)[number], string | number>>): string => {
    const cells = { ...line, platform_batch_id };
    return `${COLUMNS.map((name) => csvCell(cells[name] ?? '')).join(',')}\r\n`;
  };
  yield `${COLUMNS.join(',')}\r\n`;
  for await (const page of pages) yield page.map((one) => row({ ...one })).join('');
  yield row({ kind: 'total', amount_in_cents: net_in_cents, note: remittance_id });
}

async function* camtOf(
  remittance: RemittanceView,
  pages: AsyncIterable<StatementLine[]>,
): AsyncGenerator<string> {
  const { remittance_id, net_in_cents, made_at, biller_id, reference } = remittance;
  const id = remittance_id.replaceAll('-', '').slice(0, 35);
  const amount = (cents: number): string =>
    `<Amt Ccy="USD">${Math.trunc(Math.abs(cents) / 100)}.${String(Math.abs(cents) % 100).padStart(2, '0')}</Amt>` +
    `<CdtDbtInd>${cents < 0 ? 'DBIT' : 'CRDT'}</CdtDbtInd>`;
  yield `<?xml version="1.0" encoding="UTF-8"?>
<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.054.001.08">
  <BkToCstmrDbtCdtNtfctn>
    <GrpHdr><MsgId>${id}</MsgId><CreDtTm>${made_at}</CreDtTm></GrpHdr>
    <Ntfctn>
      <Id>${id}</Id>
      <Acct><Id><Othr><Id>${xmlText(biller_id.slice(0, 34))}</Id></Othr></Id></Acct>
      <Ntry>
        ${amount(net_in_cents)}
        <Sts><Cd>BOOK</Cd></Sts>
        <AcctSvcrRef>${xmlText((reference ?? id).slice(0, 35))}</AcctSvcrRef>
        <BkTxCd><Prtry><Cd>BILLS</Cd></Prtry></BkTxCd>
        <NtryDtls>
`;
  for await (const page of pages) {
    yield page
      .map((one) => {
        const refs = one.platform_payment_id.replaceAll('-', '').slice(0, 35);
        const words = [one.kind, one.platform_payment_id, one.payment_id, one.account_id, one.note];
        return `          <TxDtls>${refs === '' ? '' : `<Refs><EndToEndId>${refs}</EndToEndId></Refs>`}${amount(one.amount_in_cents)}<RmtInf>${words
          .filter((word) => word !== '')
          .map((word) => `<Ustrd>${xmlText(word.slice(0, 140))}</Ustrd>`)
          .join('')}</RmtInf></TxDtls>\n`;
      })
      .join('');
  }
  yield `        </NtryDtls>
      </Ntry>
    </Ntfctn>
  </BkToCstmrDbtCdtNtfctn>
</Document>
`;
}
