import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import { sqlState } from '@duebridge/runtime';
import { importFormerPayments, parseFormerPayments } from './former-payments.ts';
import type { PaymentRow } from './store.ts';
import {
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  startKit,
  watchingTransactions,
} from './testing.ts';

const header =
  'platform_payment_id,payment_id,platform_batch_id,biller_id,account_id,status,amount_in_cents,initiated_at,posted_at,failure_reason\n';
const file =
  header +
  'old-1,R-1,batch-0,acme,A-1,succeeded,2500,2024-05-01T10:00:00+02:00,2024-05-01T10:00:03+02:00,\n' +
  'old-2,R-2,batch-0,acme,A-1,failed,100,2024-05-01T08:00:00Z,,"No such account, sorry"\n' +
  'old-3,R-3,batch-0,acme,A-9,canceled,1,2024-05-01T08:00:00Z,,\n';

test('payments of a previous server are known forever: a repeated id returns them, and nothing is paid twice [PF2 RU5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const parsed = parseFormerPayments(file, 'static-key');
  assert.ok(parsed.ok);
  assert.deepEqual(await importFormerPayments(database, parsed.payments, parsed.sha256), {
    imported: 3,
    known: 0,
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
  await partner.app.partnerKit.sweep();
  const balance = await partner.call('GET', '/biller/acme/account/A-1/balance');
  assert.equal(balance.body['amount_due_in_cents'], 100_000);
  // Again, with one that differs.
  const other = parseFormerPayments(file.replace('2500', '2600'), 'static-key');
  assert.ok(other.ok);
  assert.deepEqual(await importFormerPayments(database, other.payments, other.sha256), {
    imported: 0,
    known: 3,
    differing: ['old-1'],
  });
  const [one] = other.payments;
  const alone = await importFormerPayments(database, one ? [one] : [], other.sha256);
  assert.deepEqual(alone, { imported: 0, known: 1, differing: ['old-1'] });
  const [row] = await database.query(
    `SELECT ended_at FROM duebridge_partner.payment WHERE platform_payment_id = 'old-1'`,
  );
  assert.equal(row?.['ended_at'], '2024-05-01T08:00:03.000Z', 'when it was posted');
  assert.equal((await partner.call('GET', '/payment/old-1')).body['amount_in_cents'], 2_500);
});

test('a file with an unfinished payment or an invalid field is refused, with its lines [PF2 PF7 PF8]', () => {
  const wrong: [string, RegExp][] = [
    ['p,R,b,acme,A,processing,1,2024-05-01T08:00:00Z,,', /status must be/],
    ['p,R,b,acme,A,succeeded,1,2024-05-01T08:00:00Z,,', /posted_at must be a time/],
    ['p,R,b,acme,A,succeeded,1,2024-05-01T08:00:00Z,2024-04-01T08:00:00Z,', /before initiated_at/],
    ['p,R,b,acme,A,canceled,1,2024-05-01 08:00,,', /initiated_at/],
    ['p,R,b,acme,A,failed,1,2024-05-01T08:00:00Z,,', /failure_reason/],
    ['p,R,b,acme,A,canceled,1.5,2024-05-01T08:00:00Z,,', /amount_in_cents/],
    ['p q,R,b,acme,A,canceled,1,2024-05-01T08:00:00Z,,', /platform_payment_id/],
  ];
  for (const [line, problem] of wrong) {
    const parsed = parseFormerPayments(`${header}${line}\n`, 'static-key');
    assert.ok(!parsed.ok, line);
    assert.match(parsed.problems[0]?.problem ?? '', problem);
  }
  const twice = parseFormerPayments(file + file.slice(header.length), 'static-key');
  assert.ok(!twice.ok && twice.problems.length === 3);
  const short = parseFormerPayments('platform_payment_id\np\n', 'static-key');
  assert.ok(!short.ok && /payment_id, platform_batch_id/.test(short.problems[0]?.problem ?? ''));
  assert.ok(!parseFormerPayments('a,b\n"', 'static-key').ok);
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

test('each field is taken up to the limit of the wire, and not beyond it [PF1 PF5 PF6 PF8]', () => {
  const long = (length: number): string => 'x'.repeat(length);
  const right: Record<string, string>[] = [
    { platform_payment_id: long(64), platform_batch_id: long(64) },
    { payment_id: long(128), biller_id: long(128), account_id: `~${long(127)}` },
    { payment_id: 'a:/b!' },
    { amount_in_cents: '99999999999' },
    { status: 'failed', failure_reason: long(500) },
    posted,
  ];
  for (const fields of right) {
    const parsed = parseFormerPayments(header + line(fields), 'static-key');
    assert.ok(parsed.ok, JSON.stringify(fields));
  }
  const wrong: [Record<string, string>, string][] = [
    [{ platform_payment_id: long(65) }, 'platform_payment_id is not one that the interface takes'],
    [{ platform_payment_id: '..' }, 'platform_payment_id is not one that the interface takes'],
    [{ platform_batch_id: '' }, 'platform_batch_id is not one that the interface takes'],
    [{ platform_batch_id: 'a~b' }, 'platform_batch_id is not one that the interface takes'],
    [{ payment_id: long(129) }, 'payment_id is not one that the interface takes'],
    [{ payment_id: '' }, 'payment_id is not one that the interface takes'],
    [{ payment_id: 'a b' }, 'payment_id is not one that the interface takes'],
    [{ biller_id: long(129) }, 'biller_id must be 1 to 128 printable characters'],
    [{ account_id: '.' }, 'account_id must be 1 to 128 printable characters'],
    [{ amount_in_cents: '0' }, 'amount_in_cents must be whole cents'],
    [{ amount_in_cents: '1e2' }, 'amount_in_cents must be whole cents'],
    [{ amount_in_cents: '100000000000' }, 'amount_in_cents must be whole cents'],
    [{ status: 'done' }, 'status must be succeeded, failed or canceled'],
    [{ posted_at: '2024-05-01T08:00:00Z' }, 'posted_at belongs to a payment that succeeded'],
    [
      { status: 'failed', failure_reason: long(501) },
      'failure_reason belongs to a payment that failed, and to each of them',
    ],
    [
      { failure_reason: 'No.' },
      'failure_reason belongs to a payment that failed, and to each of them',
    ],
    [{ initiated_at: '' }, 'initiated_at must be a time such as 2026-03-01T09:30:00Z'],
    [{ ...posted, initiated_at: '2024-05-01T08:00:00.001Z' }, 'posted_at is before initiated_at'],
  ];
  for (const [fields, problem] of wrong) {
    const parsed = parseFormerPayments(
      header + line() + line({ platform_payment_id: 'q', ...fields }),
      'c',
    );
    assert.ok(!parsed.ok, problem);
    assert.deepEqual(parsed.problems, [{ path: 'line 3', problem }]);
  }
  // All that is wrong in a row, and every wrong row.
  const many = parseFormerPayments(
    header + line({ status: 'x', amount_in_cents: '' }) + line({ account_id: '' }),
    'c',
  );
  assert.ok(!many.ok);
  assert.deepEqual(many.problems, [
    {
      path: 'line 2',
      problem: 'status must be succeeded, failed or canceled; amount_in_cents must be whole cents',
    },
    {
      path: 'line 3',
      problem:
        'account_id must be 1 to 128 printable characters; its platform_payment_id appears twice',
    },
  ]);
});

test('a file as a spreadsheet writes it is read: a byte order mark, spaces, empty lines, columns in any order', () => {
  const parsed = parseFormerPayments(
    `\uFEFFstatus,failure_reason,posted_at,initiated_at,amount_in_cents,account_id,biller_id,platform_batch_id,payment_id,platform_payment_id,memo\n\n` +
      `failed , Closed. ,,2024-05-01T10:00:00+02:00, 250 ,A-1,acme,b,R,p,x\n`,
    'client-1',
  );
  assert.ok(parsed.ok);
  assert.deepEqual(parsed.payments, [
    {
      platform_payment_id: 'p',
      payment_id: 'R',
      platform_batch_id: 'b',
      biller_id: 'acme',
      account_id: 'A-1',
      client_id: 'client-1',
      status: 'failed',
      amount_in_cents: 250,
      initiated_at: '2024-05-01T08:00:00.000Z',
      posted_at: null,
      failure_reason: 'Closed.',
    },
  ]);
  const short = parseFormerPayments(`${header}${line()}p,R\n`, 'c');
  assert.ok(!short.ok);
  assert.equal(short.problems[0]?.path, 'line 3');
  assert.match(short.problems[0].problem, /^is not CSV with one cell for each column: a cell/);
  const open = parseFormerPayments(`${header}${line()}"p,R\n`, 'c');
  assert.match(open.ok ? '' : (open.problems[0]?.problem ?? ''), /a quotation mark opens one/);
  // The other side had nothing that this one lost.
  assert.deepEqual(parseFormerPayments(header, 'c'), {
    ok: true,
    payments: [],
    skipped: 0,
    sha256: createHash('sha256').update(header).digest('hex'),
  });
  const lacking = parseFormerPayments(header.replace('biller_id,', '').repeat(2), 'c');
  assert.deepEqual(lacking, {
    ok: false,
    problems: [{ path: 'line 1', problem: 'must name the columns biller_id' }],
  });
  const empty = parseFormerPayments('', 'c');
  assert.ok(!empty.ok && empty.problems.length === 1);
  assert.equal(empty.problems[0]?.path, 'line 1');
  assert.match(
    empty.problems[0].problem,
    /^must name the columns platform_payment_id, .*failure_reason$/,
  );
  assert.throws(() => parseFormerPayments(7 as never, 'c'));
});

test('a long import is stored a thousand rows at a time, leaves one line in the audit, and names what differs [PF2]', async (t) => {
  const database = await kitDatabase(t);
  const sizes: number[] = [];
  const counting = watchingTransactions(database, (statement, values) => {
    const isImport = typeof statement !== 'string' && statement.name === 'kit_import_payments';
    const [ids] = (values ?? []) as [readonly string[]];
    if (isImport) sizes.push(ids.length);
  });
  const parse = (fields: (index: number) => Record<string, string>): readonly PaymentRow[] => {
    const rows = Array.from({ length: 1_001 }, (_, index) => {
      return line({ platform_payment_id: `p${1_000 - index}`, ...fields(index) });
    });
    const parsed = parseFormerPayments(header + rows.join(''), 'client-1');
    assert.ok(parsed.ok);
    return parsed.payments;
  };
  const payments = parse((index) => (index === 3 ? posted : {}));
  const [first = assert.fail()] = payments;
  // One is known already.
  await importFormerPayments(database, [first], 'a');
  assert.deepEqual(await importFormerPayments(counting, payments, 'b'), {
    imported: 1_000,
    known: 1,
    differing: [],
  });
  assert.deepEqual(sizes, [1_000, 1]);
  const lines = await database.query(
    `SELECT actor, detail FROM duebridge_partner.payment_audit WHERE event = 'payments_imported' ORDER BY audit_id`,
  );
  assert.deepEqual(lines, [
    { actor: 'import', detail: { file_sha256: 'a', imported: 1, known: 0, differing: 0 } },
    { actor: 'import', detail: { file_sha256: 'b', imported: 1_000, known: 1, differing: 0 } },
  ]);
  const ended = await database.query(
    `SELECT client_id FROM duebridge_partner.payment WHERE ended_at = '2024-05-01T08:00:00Z' GROUP BY client_id HAVING count(*) = 1001`,
  );
  assert.deepEqual(ended, [{ client_id: 'client-1' }]);
  const changes: Record<string, string>[] = [
    {},
    { payment_id: 'S' },
    { platform_batch_id: 'c' },
    { biller_id: 'water' },
    { account_id: 'A-2' },
    { status: 'failed', failure_reason: 'No.' },
    { amount_in_cents: '2' },
  ];
  const again = await importFormerPayments(
    database,
    parse((index) =>
      index >= 10 && index < 17 ? (changes[index - 10] ?? {}) : index === 3 ? posted : {},
    ),
    'c',
  );
  assert.deepEqual(again, {
    imported: 0,
    known: 1_001,
    differing: ['p984', 'p985', 'p986', 'p987', 'p988', 'p989'],
  });
});

test('two imports of the same file in other orders do not deadlock [PF2]', async (t) => {
  const database = await kitDatabase(t);
  const parsed = parseFormerPayments(
    header + ['c', 'a', 'b'].map((platform_payment_id) => line({ platform_payment_id })).join(''),
    'c',
  );
  assert.ok(parsed.ok);
  let waiting: Promise<unknown> = Promise.resolve();
  await database.transaction(async (tx) => {
    await tx.query(
      `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents)
       VALUES ('b', 'x', 'b', 'acme', 'A-1', 'c', 1)`,
    );
    waiting = importFormerPayments(database, parsed.payments, parsed.sha256);
    const end = performance.now() + 120_000;
    const isWaiting = async (): Promise<boolean> =>
      (
        await database.query(
          `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
        )
      ).length > 0;
    while (!(await isWaiting())) assert.ok(performance.now() < end, 'nobody waits for a lock');
    // It waits for b, so it has a and not yet c.
    const insert = (id: string, lockTimeoutMs: number): Promise<unknown> =>
      database.transaction(
        (other) =>
          other.query(
            `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents)
             VALUES ($1, 'x', 'b', 'acme', 'A-1', 'c', 1)`,
            [id],
          ),
        { lockTimeoutMs },
      );
    await insert('c', 5_000);
    await assert.rejects(insert('a', 50), (error) => sqlState(error) === '55P03');
  });
  await waiting;
});

test('an export of a platform is imported: without payments that the partner never had, and without its apostrophes [PF2 RU5]', () => {
  const exported =
    '\uFEFFplatform_payment_id,payment_id,platform_batch_id,partner_id,mode,biller_id,account_id,status,stage,review_reason,failure_reason,amount_in_cents,created_at,initiated_at,posted_at,ended_at\r\n' +
    "p-1,R-1,b,p,live,acme,'-A-1,failed,ended,,'-20.00 is too little,100,2024-05-01T08:00:00.000Z,2024-05-01T08:00:01.000Z,,2024-05-01T08:00:02.000Z\r\n" +
    'p-2,,b,p,live,acme,A-2,failed,ended,,The card was declined.,100,2024-05-01T08:00:00.000Z,,,2024-05-01T08:00:02.000Z\r\n';
  const parsed = parseFormerPayments(exported, 'static-key');
  assert.ok(parsed.ok, JSON.stringify(parsed));
  assert.deepEqual(
    parsed.payments.map((row) => [row.platform_payment_id, row.account_id, row.failure_reason]),
    [['p-1', '-A-1', '-20.00 is too little']],
  );
  assert.equal(parsed.skipped, 1);
});

test('a payment whose payment_id belongs to another one is not imported [PF1]', async (t) => {
  const database = await kitDatabase(t);
  const parsed = parseFormerPayments(file.replace('old-2,R-2', 'old-2,R-1'), 'static-key');
  assert.ok(parsed.ok);
  assert.deepEqual(await importFormerPayments(database, parsed.payments, parsed.sha256), {
    imported: 2,
    known: 0,
    differing: ['old-2'],
  });
});
