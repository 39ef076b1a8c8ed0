import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import { Refusal } from '@duebridge/contract';
import { formerPayments, importFormerPayments } from './former-payments.ts';
import {
  applierOn,
  haveAccounts,
  instruction,
  kitDatabase,
  linesIn,
  paymentPath,
  startKit,
  untilOneWaits,
} from '../test/kit.ts';

const header =
  'platform_payment_id,payment_id,platform_batch_id,biller_id,account_id,status,amount_in_cents,initiated_at,posted_at,failure_reason\n';
const file =
  header +
  'old-1,R-1,batch-0,acme,A-1,succeeded,2500,2024-05-01T10:00:00+02:00,2024-05-01T10:00:03+02:00,\n' +
  'old-2,R-2,batch-0,acme,A-1,failed,100,2024-05-01T08:00:00Z,,"No such account, sorry"\n' +
  'old-3,R-3,batch-0,acme,A-9,canceled,1,2024-05-01T08:00:00Z,,\n';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** What is wrong with a file, as `line 2: problem`; nothing is stored of it. */
async function problems(csv: string): Promise<string[]> {
  try {
    await importFormerPayments({} as never, () => [csv]);
  } catch (error) {
    assert(error instanceof Refusal, String(error));
    return error.message.split('\n');
  }
  return assert.fail('it was taken');
}

const read = (csv: string) => linesIn(formerPayments, csv);

test('payments of a previous server are known forever: a repeated id returns them, and nothing is paid twice [PF2 RU5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  assert.deepEqual(await importFormerPayments(database, () => [file]), {
    imported: 3,
    known: 0,
    skipped: 0,
    differing: [],
  });
  const partner = await startKit(database);
  const repeat = await partner.call('PUT', paymentPath('old-1'), {
    body: instruction(2_500, 'batch-0'),
  });
  assert.deepEqual(repeat.body, {
    payment_id: 'R-1',
    platform_payment_id: 'old-1',
    platform_batch_id: 'batch-0',
    biller_id: 'acme',
    account_id: 'A-1',
    status: 'succeeded',
    amount_in_cents: 2_500,
    initiated_at: '2024-05-01T08:00:00.000Z',
    posted_at: '2024-05-01T08:00:03.000Z',
  });
  await applierOn(database).sweep(0);
  const balance = await partner.call('GET', '/biller/acme/account/A-1/balance');
  assert.equal(balance.body['amount_due_in_cents'], 100_000);
  // Again, with one that differs.
  const other = file.replace('2500', '2600');
  assert.deepEqual(await importFormerPayments(database, () => [other]), {
    imported: 0,
    known: 3,
    skipped: 0,
    differing: ['old-1'],
  });
  const [row] = await database.query(
    `SELECT ended_at FROM duebridge_partner.payment WHERE platform_payment_id = 'old-1'`,
  );
  assert.equal(row?.['ended_at'], '2024-05-01T08:00:03.000Z', 'when it was posted');
  assert.equal((await partner.call('GET', '/payment/old-1')).body['amount_in_cents'], 2_500);
});

test('a payment that another session stores during the import is named when it differs', async (t) => {
  const database = await kitDatabase(t);
  let imported: ReturnType<typeof importFormerPayments> | undefined;
  await database.transaction(async (tx) => {
    await tx.query(
      `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents)
       VALUES ('old-1', 'R-other', 'batch-0', 'acme', 'A-1', 'static-key', 9999)`,
    );
    imported = importFormerPayments(database, () => [file]);
    await untilOneWaits(database);
  });
  assert.deepEqual(await imported, {
    imported: 2,
    known: 1,
    skipped: 0,
    differing: ['old-1'],
  });
});

/** A line of the file; `canceled` unless the fields say otherwise. */
const line = (fields: Readonly<Record<string, string>> = {}): string => {
  const all: Record<string, string> = {
    platform_payment_id: 'p',
    payment_id: `R-${fields['platform_payment_id'] ?? 'p'}`,
    platform_batch_id: 'b',
    biller_id: 'acme',
    account_id: 'A-1',
    status: 'canceled',
    amount_in_cents: '1',
    initiated_at: '2024-05-01T08:00:00Z',
    posted_at: '',
    failure_reason: '',
    ...fields,
  };
  return `${header
    .trim()
    .split(',')
    .map((name) => all[name] ?? '')
    .join(',')}\n`;
};
const posted = { status: 'succeeded', posted_at: '2024-05-01T08:00:00Z' };

test('each field is taken up to the limit of the wire, and not beyond it; a payment that has not ended is refused [PF1 PF2 PF5 PF6 PF7 PF8]', async () => {
  const long = (length: number): string => 'x'.repeat(length);
  const right: Record<string, string>[] = [
    { platform_payment_id: long(64), platform_batch_id: long(64) },
    { payment_id: long(128), biller_id: long(128), account_id: `~${long(127)}` },
    { payment_id: 'a:/b!' },
    { amount_in_cents: '99999999999' },
    { status: 'failed', failure_reason: long(500) },
    posted,
  ];
  for (const fields of right) await read(header + line(fields));
  const wrong: [Record<string, string>, RegExp][] = [
    [{ platform_payment_id: long(65) }, /^platform_payment_id must be 1 to 64 letters/],
    [{ platform_batch_id: '' }, /^platform_batch_id must be/],
    [{ payment_id: long(129) }, /^payment_id must be 1 to 128 visible characters$/],
    [{ payment_id: 'a b' }, /^payment_id must be/],
    [{ biller_id: long(129) }, /^biller_id must/],
    [{ account_id: '.' }, /^account_id must/],
    [{ amount_in_cents: '0' }, /^amount_in_cents must/],
    [{ amount_in_cents: '1e2' }, /^amount_in_cents must/],
    [{ amount_in_cents: '100000000000' }, /^amount_in_cents must/],
    [{ status: 'processing' }, /^status must be succeeded, failed or canceled$/],
    [{ status: 'succeeded' }, /^posted_at belongs to a payment that succeeded/],
    [{ posted_at: '2024-05-01T08:00:00Z' }, /^posted_at belongs to a payment that succeeded/],
    [{ initiated_at: '2024-05-01 08:00' }, /^initiated_at must/],
    [{ initiated_at: '' }, /^initiated_at must/],
    [{ status: 'failed', failure_reason: long(501) }, /^failure_reason must/],
    [{ failure_reason: 'No.' }, /^failure_reason belongs to a payment that failed/],
    [{ ...posted, initiated_at: '2024-05-01T08:00:00.001Z' }, /^posted_at is before initiated_at$/],
  ];
  for (const [fields, problem] of wrong) {
    const file = header + line() + line({ platform_payment_id: 'q', ...fields });
    const [first = '', ...more] = await problems(file);
    assert.deepEqual([first.slice(0, 8), more], ['line 3: ', []]);
    assert.match(first.slice(8), problem);
  }
  // All that is wrong in a row, and every wrong row.
  const many = header + line({ status: 'x', amount_in_cents: '' }) + line({ account_id: '' });
  const [second = '', third = ''] = await problems(many);
  assert.match(second, /^line 2: status .*; amount_in_cents must/);
  assert.match(third, /^line 3: account_id must .*; is the same payment as line 2$/);
});

test('a file as a spreadsheet writes it is read: a byte order mark, spaces, empty lines, columns in any order', async () => {
  const file =
    `\uFEFFstatus,failure_reason,posted_at,initiated_at,amount_in_cents,account_id,biller_id,platform_batch_id,payment_id,platform_payment_id,memo\n\n` +
    `failed , Closed. ,,2024-05-01T10:00:00+02:00, 250 ,A-1,acme,b,R,p,x\n`;
  assert.deepEqual(await read(file), [
    {
      platform_payment_id: 'p',
      payment_id: 'R',
      platform_batch_id: 'b',
      biller_id: 'acme',
      account_id: 'A-1',
      status: 'failed',
      amount_in_cents: 250,
      initiated_at: '2024-05-01T08:00:00.000Z',
      posted_at: null,
      failure_reason: 'Closed.',
    },
  ]);
  assert.match((await problems(`${header}${line()}p,R\n`))[0] ?? '', /^line 3: has 2 cells/);
  assert.match((await problems(`${header}${line()}"p,R\n`))[0] ?? '', /a quotation mark opens/);
  assert.deepEqual(await read(header), [], 'the other side had nothing that this one lost');
  assert.deepEqual(await problems(header.replace('biller_id,', '').repeat(2)), [
    'line 1: must name the columns biller_id',
  ]);
  assert.deepEqual(await problems(''), ['line 1: is missing: the file is empty']);
});

test('a long import leaves one line in the audit, and names what differs [PF2]', async (t) => {
  const database = await kitDatabase(t);
  const rows = (fields: (index: number) => Record<string, string>): string =>
    Array.from({ length: 1_001 }, (_, index) =>
      line({ platform_payment_id: `p${1_000 - index}`, ...fields(index) }),
    ).join('');
  const payments = header + rows((index) => (index === 3 ? posted : {}));
  // One is known already.
  const first = header + line({ platform_payment_id: 'p1000' });
  await importFormerPayments(database, () => [first]);
  assert.deepEqual(await importFormerPayments(database, () => [payments]), {
    imported: 1_000,
    known: 1,
    skipped: 0,
    differing: [],
  });
  const lines = await database.query(
    `SELECT actor, detail FROM duebridge_partner.payment_audit WHERE event = 'payments_imported' ORDER BY audit_id`,
  );
  assert.deepEqual(lines, [
    {
      actor: 'operator',
      detail: { file_sha256: sha256(first), imported: 1, known: 0, differing: 0 },
    },
    {
      actor: 'operator',
      detail: { file_sha256: sha256(payments), imported: 1_000, known: 1, differing: 0 },
    },
  ]);
  const ended = await database.query(
    `SELECT count(*) FROM duebridge_partner.payment WHERE ended_at = '2024-05-01T08:00:00Z'`,
  );
  assert.deepEqual(ended, [{ count: 1_001 }]);
  const changes: Record<string, string>[] = [
    {},
    { payment_id: 'S' },
    { platform_batch_id: 'c' },
    { biller_id: 'water' },
    { account_id: 'A-2' },
    { status: 'failed', failure_reason: 'No.' },
    { amount_in_cents: '2' },
  ];
  const changed =
    header +
    rows((index) =>
      index >= 10 && index < 17 ? (changes[index - 10] ?? {}) : index === 3 ? posted : {},
    );
  const again = await importFormerPayments(database, () => [changed]);
  assert.deepEqual(again, {
    imported: 0,
    known: 1_001,
    skipped: 0,
    differing: ['p984', 'p985', 'p986', 'p987', 'p988', 'p989'],
  });
});

test('an export of a platform is imported: without payments that the partner never had, and without its apostrophes [PF2 RU5]', async () => {
  const exported =
    '\uFEFFplatform_payment_id,payment_id,platform_batch_id,partner_id,mode,biller_id,account_id,status,stage,review_reason,failure_reason,amount_in_cents,created_at,initiated_at,posted_at,ended_at\r\n' +
    "p-1,R-1,b,p,live,acme,'-A-1,failed,ended,,'-20.00 is too little,100,2024-05-01T08:00:00.000Z,2024-05-01T08:00:01.000Z,,2024-05-01T08:00:02.000Z\r\n" +
    'p-2,,b,p,live,acme,A-2,failed,ended,,The card was declined.,100,2024-05-01T08:00:00.000Z,,,2024-05-01T08:00:02.000Z\r\n';
  const payments = await read(exported);
  assert.deepEqual(
    payments.map((row) => row && [row.platform_payment_id, row.account_id, row.failure_reason]),
    [['p-1', '-A-1', '-20.00 is too little'], undefined],
  );
});

test('an import that breaks off leaves the digest of its file, also when the file was written to meanwhile [PF2]', async (t) => {
  const database = await kitDatabase(t);
  const payments = Array.from({ length: 1_500 }, (_, n) => line({ platform_payment_id: `p-${n}` }));
  const whole = header + payments.join('');
  const broken = function* (): Generator<string> {
    yield whole.slice(0, -100);
    throw new Error('the disk is gone');
  };
  for (const [later, message] of [
    [broken(), /^the disk is gone$/],
    [[whole.replace(/canceled(?=[^l]*$)/, 'processing')], /^line 1501: status must be/],
  ] as const) {
    const texts = [[whole], later];
    const importing = importFormerPayments(database, () => texts.shift() ?? []);
    await assert.rejects(importing, { message });
  }
  const lines = await database.query(
    `SELECT detail ->> 'file_sha256' AS digest FROM duebridge_partner.payment_audit WHERE event = 'payments_imported'`,
  );
  assert.deepEqual(lines, [{ digest: sha256(whole) }, { digest: sha256(whole) }]);
});
