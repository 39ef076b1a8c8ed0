/**
 * Files for the bank: NACHA is read back by a library of another author, pain.001.001.09 is compared with the order of elements that its
 * schema requires. A bank refuses a file that breaks either, or executes it wrongly.
 */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import test from 'node:test';
import { testTools } from '../../../../scripts/tool.ts';
import { isRoutingNumber, nacha, pain001, type BankFile } from './bank-file.ts';

const file: BankFile = {
  file_id: '01a20cd6-3839-703e-b1d3-c042e862089b',
  payer: {
    name: 'Payments & Co <Ltd>',
    routing_number: '011000015',
    account_number: '123456789',
    company_id: '1234567890',
  },
  made_at: '2026-03-06T17:05:09.123Z',
  execute_on: '2026-03-09',
  files_before: 0,
  transfers: Array.from({ length: 7 }, (_, n) => ({
    remittance_id: `01a20cd6-3fcc-7267-8d53-cdbf7feff4b${n}`,
    amount_in_cents: 100_001 + n,
    holder_name:
      n === 0 ? 'Müller’s Wasser\u0000 ]]> & Söhne GmbH, Abteilung Zahlungen' : `Biller ${n}`,
    routing_number: '021000021',
    account_number: `00011122${n}`,
  })),
};
const total = file.transfers.reduce((sum, one) => sum + one.amount_in_cents, 0);

/** What another author's reader finds in a NACHA file: one batch. */
interface ReadFile {
  readonly file: Readonly<Record<string, unknown>> & {
    readonly footer: Readonly<Record<string, unknown>>;
  };
  readonly batches: readonly (Readonly<Record<string, unknown>> & {
    readonly entries: readonly (Readonly<Record<string, unknown>> & { readonly addenda: object })[];
    readonly footer: Readonly<Record<string, unknown>>;
  })[];
}

async function readNacha(text: string): Promise<ReadFile> {
  const { default: library } = await (await testTools()).ach();
  const found = Readable.from([text]).pipe(library().getParser('ach'));
  const [read, ...more] = (await Readable.from(found).toArray()) as ReadFile[];
  assert.ok(read !== undefined && more.length === 0);
  return read;
}

test('NACHA: another reader finds each transfer, and counts, hash and sums that agree', async () => {
  const text = nacha(file);
  // Records of 94 characters in blocks of ten.
  const records = text.trimEnd().split('\n');
  assert.equal(records.length % 10, 0);
  assert.ok(records.every((record) => /^[\x20-\x7e]{94}$/.test(record)));
  const read = await readNacha(text);
  const [batch] = read.batches;
  assert.ok(batch !== undefined && read.batches.length === 1);
  const { payer, transfers } = file;
  assert.partialDeepStrictEqual(read.file, {
    destination: ` ${payer.routing_number}`,
    origin: payer.company_id,
    creationDate: '260306',
    creationTime: '1705',
    idModifier: 'A',
    recordSize: '094',
    blockingFactor: '10',
    originName: 'PAYMENTS & CO <LTD>',
  });
  assert.partialDeepStrictEqual(batch, {
    serviceClassCode: 220,
    companyId: payer.company_id,
    entryClassCode: 'CCD',
    effectiveDate: '260309',
    originatingDFIIdentification: '01100001',
  });
  assert.equal(batch.entries.length, transfers.length);
  for (const [n, one] of transfers.entries()) {
    assert.partialDeepStrictEqual(batch.entries[n], {
      transactionCode: '22',
      receivingDFIIdentification: Number(one.routing_number.slice(0, 8)),
      checkDigit: Number(one.routing_number.slice(8)),
      dfiAccount: one.account_number,
      amount: one.amount_in_cents,
      addendaIndicator: '1',
      traceNumber: Number(`01100001${String(n + 1).padStart(7, '0')}`),
      addenda: {
        type: '05',
        info: `DUEBRIDGE*${one.remittance_id.toUpperCase()}\\`,
        num: 1,
        entryNum: n + 1,
      },
    });
  }
  assert.match(String(batch.entries[0]?.['receivingCompanyName']), /^MULLERS WASSER/);
  const entryHash = transfers.reduce((sum, one) => sum + Number(one.routing_number.slice(0, 8)), 0);
  const sums = { entryAndAddendaCount: 14, entryHash, totalDebit: 0, totalCredit: total };
  assert.partialDeepStrictEqual(batch.footer, sums);
  assert.partialDeepStrictEqual(read.file.footer, {
    ...sums,
    batchCount: 1,
    blockCount: records.length / 10,
  });
  // The 36 files of a day.
  const modifiers = [0, 25, 26, 35].map((files_before) => nacha({ ...file, files_before })[33]);
  assert.deepEqual(modifiers, ['A', 'Z', '0', '9']);
  // A cut amount would be another amount.
  const [one] = file.transfers;
  assert.ok(one);
  assert.throws(
    () => nacha({ ...file, transfers: [{ ...one, amount_in_cents: 10_000_000_000 }] }),
    RangeError,
  );
});

/** The elements of the schema that the file uses, in its order; `?` may be left out, `*` may be repeated. */
const SCHEMA: Readonly<Record<string, string>> = {
  Document: 'CstmrCdtTrfInitn',
  CstmrCdtTrfInitn: 'GrpHdr PmtInf*',
  GrpHdr: 'MsgId CreDtTm NbOfTxs CtrlSum? InitgPty',
  InitgPty: 'Nm?',
  PmtInf: 'PmtInfId PmtMtd NbOfTxs? CtrlSum? ReqdExctnDt Dbtr DbtrAcct DbtrAgt CdtTrfTxInf*',
  ReqdExctnDt: 'Dt',
  Dbtr: 'Nm?',
  DbtrAcct: 'Id Ccy?',
  DbtrAgt: 'FinInstnId',
  CdtTrfTxInf: 'PmtId Amt CdtrAgt? Cdtr? CdtrAcct? RmtInf?',
  PmtId: 'EndToEndId',
  Amt: 'InstdAmt',
  CdtrAgt: 'FinInstnId',
  Cdtr: 'Nm?',
  CdtrAcct: 'Id Ccy?',
  FinInstnId: 'ClrSysMmbId?',
  ClrSysMmbId: 'ClrSysId? MmbId',
  ClrSysId: 'Cd',
  Othr: 'Id',
  RmtInf: 'Ustrd*',
};
/** The types of its texts. */
const TEXTS: Readonly<Record<string, RegExp>> = {
  MsgId: /^.{1,35}$/,
  PmtInfId: /^.{1,35}$/,
  EndToEndId: /^.{1,35}$/,
  CreDtTm: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/,
  NbOfTxs: /^[0-9]{1,15}$/,
  CtrlSum: /^\d{1,15}\.\d\d$/,
  InstdAmt: /^\d{1,13}\.\d\d$/,
  Nm: /^.{1,140}$/,
  PmtMtd: /^TRF$/,
  Dt: /^\d{4}-\d\d-\d\d$/,
  MmbId: /^.{1,35}$/,
  Ccy: /^USD$/,
  Cd: /^USABA$/,
  Ustrd: /^.{1,140}$/,
};

interface Element {
  readonly name: string;
  readonly children: Element[];
  text: string;
}

/** A small reader of XML; throws for tags that do not match. */
function parse(xml: string): Element {
  const root: Element = { name: '', children: [], text: '' };
  const open = [root];
  for (const [, close, name, text] of xml
    .replace(/^<\?xml[^>]*\?>\n/, '')
    .matchAll(/<(\/?)(\w+)[^>]*>([^<]*)/g)) {
    const inside = open.at(-1);
    assert.ok(inside);
    if (close === '/') {
      assert.equal(inside.name, name);
      open.pop();
      continue;
    }
    const one: Element = { name: name ?? '', children: [], text: text ?? '' };
    inside.children.push(one);
    open.push(one);
  }
  assert.equal(open.length, 1);
  return root.children[0] ?? root;
}

function assertValid({ name, children, text }: Element, within = ''): void {
  // In an account, Id holds Othr; in Othr, it is a text.
  const model =
    name === 'Id' && within !== 'Othr' ? 'Othr' : name === 'Id' ? '' : (SCHEMA[name] ?? '');
  const pattern = model
    .split(' ')
    .filter((part) => part !== '')
    .map((part) => part.replace(/^(\w+)([?*]?)$/, '(?:$1 )$2'))
    .join('');
  const names = children.map((one) => `${one.name} `).join('');
  assert.match(names, new RegExp(`^${pattern}$`), `${name}: ${names}`);
  if (children.length === 0) assert.match(text, TEXTS[name] ?? /^.{1,34}$/, name);
  for (const one of children) assertValid(one, name);
}

test('pain.001: elements in the order of the schema, their types, and sums that agree', () => {
  const xml = pain001(file);
  const document = parse(xml);
  assertValid(document);
  assert.match(xml, /xmlns="urn:iso:std:iso:20022:tech:xsd:pain\.001\.001\.09"/);
  const amounts = [...xml.matchAll(/<InstdAmt Ccy="USD">([\d.]+)</g)].map(([, text]) => text);
  assert.deepEqual(amounts.slice(0, 2), ['1000.01', '1000.02']);
  assert.equal(
    amounts.reduce((sum, text) => sum + Number(text?.replace('.', '')), 0),
    total,
  );
  assert.deepEqual(
    [...xml.matchAll(/<NbOfTxs>7<\/NbOfTxs><CtrlSum>7000\.28<\/CtrlSum>/g)].length,
    2,
  );
  // What XML cannot hold is left out, what it reserves is escaped.
  assert.ok(xml.includes('<Nm>Müller’s Wasser ]]&gt; &amp; Söhne'));
  assert.ok(xml.includes('<Nm>Payments &amp; Co &lt;Ltd&gt;</Nm>'));
  const ids = [...xml.matchAll(/<EndToEndId>(\w+)</g)].map(([, id]) => id);
  assert.equal(new Set(ids).size, 7);
});

test('a routing number has a check digit', () => {
  for (const right of ['011000015', '021000021']) assert.ok(isRoutingNumber(right));
  for (const wrong of ['011000016', '21000021', '0210000211', 'abcdefghi', '']) {
    assert.ok(!isRoutingNumber(wrong));
  }
});
