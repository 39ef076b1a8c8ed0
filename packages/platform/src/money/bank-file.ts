/**
 * Files that a bank takes: ISO 20022 pain.001.001.09 (customer credit transfer initiation) and NACHA CCD entries with an addenda record.
 *
 * enters: who pays, and the transfers.  leaves: the text of the file. Pure: the same transfers give the same bytes.
 * holds:  the sums in the file are those of its transfers, and each transfer carries the id of its remittance, by which the biller finds
 *         the statement, and by which the bank refuses a second one.
 */

/** The account that pays: the platform's own. */
export interface Payer {
  readonly name: string;
  readonly routing_number: string;
  readonly account_number: string;
  /** The id by which the bank knows the company, ten characters at most; NACHA files need it. */
  readonly company_id: string;
}

/** A biller's account at a bank. */
export interface BankAccount {
  readonly holder_name: string;
  readonly routing_number: string;
  readonly account_number: string;
}

/** One transfer to a biller. */
export interface BankTransfer extends BankAccount {
  readonly remittance_id: string;
  readonly amount_in_cents: number;
}

/** What both forms need of a file. */
export interface BankFile {
  readonly file_id: string;
  readonly payer: Payer;
  /** When it is made, ISO 8601 in UTC, and the bank day on which it is to be executed, `YYYY-MM-DD`. */
  readonly made_at: string;
  readonly execute_on: string;
  /** How many files of this form were made on the same day before it. */
  readonly files_before: number;
  readonly transfers: readonly BankTransfer[];
}

/** Without hyphens: the ids of ISO 20022 have 35 characters at most. */
const shortId = (id: string): string => id.replaceAll('-', '').slice(0, 35);
const total = (transfers: readonly BankTransfer[]): number =>
  transfers.reduce((sum, one) => sum + one.amount_in_cents, 0);

/** True when the last digit of a routing number is its check digit. */
export function isRoutingNumber(text: string): boolean {
  if (!/^\d{9}$/.test(text)) return false;
  const weights = [3, 7, 1, 3, 7, 1, 3, 7, 1];
  return weights.reduce((sum, weight, at) => sum + weight * Number(text[at]), 0) % 10 === 0;
}

// ISO 20022 ----------------------------------------------------------------------------------------------------------------

const decimal = (cents: number): string =>
  `${Math.trunc(cents / 100)}.${String(cents % 100).padStart(2, '0')}`;

/** Text of an XML element; characters that XML 1.0 cannot hold are left out. */
export function xmlText(text: string): string {
  return text
    .replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;');
}

/** The file in ISO 20022. */
export function pain001({ file_id, payer, made_at, execute_on, transfers }: BankFile): string {
  const party = (name: string): string => `<Nm>${xmlText(name.slice(0, 140))}</Nm>`;
  const account = (number: string): string =>
    `<Id><Othr><Id>${xmlText(number)}</Id></Othr></Id><Ccy>USD</Ccy>`;
  const bank = (routing: string): string =>
    `<FinInstnId><ClrSysMmbId><ClrSysId><Cd>USABA</Cd></ClrSysId><MmbId>${routing}</MmbId></ClrSysMmbId></FinInstnId>`;
  const sums = `<NbOfTxs>${transfers.length}</NbOfTxs><CtrlSum>${decimal(total(transfers))}</CtrlSum>`;
  const entries = transfers.map(
    (one) => `      <CdtTrfTxInf>
        <PmtId><EndToEndId>${shortId(one.remittance_id)}</EndToEndId></PmtId>
        <Amt><InstdAmt Ccy="USD">${decimal(one.amount_in_cents)}</InstdAmt></Amt>
        <CdtrAgt>${bank(one.routing_number)}</CdtrAgt>
        <Cdtr>${party(one.holder_name)}</Cdtr>
        <CdtrAcct>${account(one.account_number)}</CdtrAcct>
        <RmtInf><Ustrd>duebridge ${one.remittance_id}</Ustrd></RmtInf>
      </CdtTrfTxInf>`,
  );
  return `<?xml version="1.0" encoding="UTF-8"?>
<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.001.001.09">
  <CstmrCdtTrfInitn>
    <GrpHdr>
      <MsgId>${shortId(file_id)}</MsgId><CreDtTm>${made_at.slice(0, 19)}</CreDtTm>${sums}
      <InitgPty>${party(payer.name)}</InitgPty>
    </GrpHdr>
    <PmtInf>
      <PmtInfId>${shortId(file_id)}</PmtInfId><PmtMtd>TRF</PmtMtd>${sums}
      <ReqdExctnDt><Dt>${execute_on}</Dt></ReqdExctnDt>
      <Dbtr>${party(payer.name)}</Dbtr>
      <DbtrAcct>${account(payer.account_number)}</DbtrAcct>
      <DbtrAgt>${bank(payer.routing_number)}</DbtrAgt>
${entries.join('\n')}
    </PmtInf>
  </CstmrCdtTrfInitn>
</Document>
`;
}

// NACHA --------------------------------------------------------------------------------------------------------------------

/** Ten records fill a block; the last one is filled with nines. */
const BLOCK = 10;
const RECORD = 94;

/** Left-aligned upper-case text of ASCII, cut or filled to a width. */
const alpha = (text: string, width: number): string =>
  text
    .normalize('NFKD')
    .replaceAll(/[^\x20-\x7e]/g, '')
    .toUpperCase()
    .slice(0, width)
    .padEnd(width);
/** A number, right-aligned with zeros. Throws RangeError for one that does not fit: a cut amount would be another amount. */
const digits = (value: number, width: number): string => {
  const text = String(value).padStart(width, '0');
  if (text.length > width) throw new RangeError(`${value} has more than ${width} digits`);
  return text;
};
/** `YYMMDD`. */
const shortDay = (day: string): string => day.slice(2, 10).replaceAll('-', '');

/** The largest amount of one entry: ten digits of cents. */
export const MAX_NACHA_CENTS = 9_999_999_999;

/** By these a bank tells apart the files that one company sends on one day. */
const FILE_ID_MODIFIERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';
/** Files of one day. */
export const MAX_NACHA_FILES = FILE_ID_MODIFIERS.length;

/** The file in NACHA's form: one batch of CCD credits, each with one addenda record that holds the id of its remittance. */
export function nacha({ payer, made_at, execute_on, files_before, transfers }: BankFile): string {
  const origin = payer.routing_number.slice(0, 8);
  const hash = transfers.reduce((sum, one) => sum + Number(one.routing_number.slice(0, 8)), 0);
  // The sum of the routing numbers, of which ten digits are kept.
  const entryHash = digits(hash % 10_000_000_000, 10);
  const credits = digits(total(transfers), 12);
  const count = transfers.length * 2;
  const trace = (place: number): string => `${origin}${digits(place + 1, 7)}`;
  const company = alpha(payer.company_id, 10);
  const records = [
    `101 ${payer.routing_number}${company}${shortDay(made_at)}${made_at.slice(11, 16).replace(':', '')}${FILE_ID_MODIFIERS.charAt(files_before)}094101${alpha('', 23)}${alpha(payer.name, 23)}${alpha('', 8)}`,
    `5220${alpha(payer.name, 16)}${alpha('', 20)}${company}CCD${alpha('BILLS', 10)}${shortDay(made_at)}${shortDay(execute_on)}${alpha('', 3)}1${origin}${digits(1, 7)}`,
    ...transfers.flatMap((one, place) => [
      `622${one.routing_number}${alpha(one.account_number, 17)}${digits(one.amount_in_cents, 10)}${alpha(shortId(one.remittance_id).slice(-15), 15)}${alpha(one.holder_name, 22)}${alpha('', 2)}1${trace(place)}`,
      `705${alpha(`DUEBRIDGE*${one.remittance_id}\\`, 80)}0001${digits(place + 1, 7)}`,
    ]),
    `8220${digits(count, 6)}${entryHash}${digits(0, 12)}${credits}${company}${alpha('', 25)}${origin}${digits(1, 7)}`,
  ];
  const blocks = Math.ceil((records.length + 1) / BLOCK);
  records.push(
    `9${digits(1, 6)}${digits(blocks, 6)}${digits(count, 8)}${entryHash}${digits(0, 12)}${credits}${alpha('', 39)}`,
  );
  while (records.length % BLOCK !== 0) records.push('9'.repeat(RECORD));
  const wrong = records.find((record) => record.length !== RECORD);
  if (wrong !== undefined) throw new Error(`a NACHA record of ${wrong.length} characters`);
  return `${records.join('\n')}\n`;
}
