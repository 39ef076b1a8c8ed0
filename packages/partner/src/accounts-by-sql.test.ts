/** Accounts by three statements: how their file is read, and what the kit makes of the rows. The database is the test's. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { FAILURE_REASONS } from '@duebridge/contract';
import type { Database, Transaction } from '@duebridge/runtime';
import type { Posting } from './account-system.ts';
import { accountsBySql, readAccountStatements } from './accounts-by-sql.ts';

const statements = {
  find_account: 'FIND ACCOUNT',
  find_posting: 'FIND POSTING',
  post_payment: 'POST PAYMENT',
};
const active = { status: 'active' };

function posting(platform_payment_id: string, differences: Partial<Posting> = {}): Posting {
  return {
    platform_payment_id,
    payment_id: `i-${platform_payment_id}`,
    platform_batch_id: 'b',
    biller_id: 'acme',
    account_id: 'A-1',
    amount_in_cents: 100,
    initiated_at: '2026-01-01T00:00:00.000Z',
    ...differences,
  };
}

/** The rows that each statement gives; what was asked is in `asked`. */
function answering(rows: {
  readonly account?: object;
  readonly booked?: object;
  readonly posted?: object;
}) {
  const asked: [string, ...unknown[]][] = [];
  const given: Readonly<Record<string, object | undefined>> = {
    [statements.find_account]: rows.account,
    [statements.find_posting]: rows.booked,
    [statements.post_payment]: rows.posted,
  };
  const on = {
    query: (text: string, values: readonly unknown[]) => {
      asked.push([text, ...values]);
      return Promise.resolve(given[text] === undefined ? [] : [given[text]]);
    },
  };
  const system = accountsBySql(on as unknown as Database, statements);
  const post = (...payments: Posting[]) => system.post(payments, on as unknown as Transaction);
  return { asked, system, post };
}

test('the statements are what stands below their names, without the semicolon, in any order', () => {
  const text = [
    '-- about this file',
    'SELECT nothing;',
    '--name:post_payment  ',
    'INSERT INTO t',
    "SELECT ';' ;  ",
    '',
    '-- name: find_account',
    '-- a comment; kept',
    'SELECT 1',
    '-- name: find_posting',
    'SELECT 2;',
  ].join('\n');
  assert.deepEqual(readAccountStatements(text), {
    find_account: '-- a comment; kept\nSELECT 1',
    find_posting: 'SELECT 2',
    post_payment: "INSERT INTO t\nSELECT ';' ",
  });
});

test('a file that lacks a statement, or names one twice or another one, is refused by its name', () => {
  const [one, two, three] = ['find_account', 'find_posting', 'post_payment'].map(
    (name) => `-- name: ${name}\nSELECT 1\n`,
  );
  for (const [text, problem] of [
    [`${two}${three}`, /lacks find_account: write it below a line "-- name: find_account"/],
    [`${one}${three}`, /lacks find_posting/],
    [`${one}${two}-- name: post_payment\n;\n`, /lacks post_payment/],
    [`${one}${two}${three}${one}`, /names find_account: it must name .*, each once/],
    [`-- name: find_account\n${one}${two}${three}`, /names find_account: it must name/],
    [`${one}${two}${three}-- name: more\n`, /names more/],
  ] as const) {
    const error = { name: 'ConfigurationError', message: problem };
    assert.throws(() => readAccountStatements(text), error);
  }
});

test('an account shows the fields that its row has, and no field that it lacks [B1 AC1 TR3]', async () => {
  const { system, asked } = answering({
    account: {
      status: 'inactive',
      amount_due_in_cents: 0,
      due_date: '2026-12-01',
      last_updated_at: '2026-01-01T00:00:00Z',
      first_name: 'Ada',
      last_name: 'Lovelace',
      min_amount_in_cents: 0,
      max_amount_in_cents: 500,
      internal_note: 'pays late',
    },
  });
  assert.deepEqual(await system.findAccount('acme', 'A-1'), {
    biller_id: 'acme',
    account_id: 'A-1',
    status: 'inactive',
    holder: { first_name: 'Ada', last_name: 'Lovelace' },
    balance: {
      amount_due_in_cents: 0,
      due_date: '2026-12-01',
      last_updated_at: '2026-01-01T00:00:00Z',
    },
    payment_rules: { min_amount_in_cents: 0, max_amount_in_cents: 500 },
  });
  assert.deepEqual(asked, [['FIND ACCOUNT', 'acme', 'A-1']]);
  for (const half of [
    { first_name: 'Ada' },
    { last_name: 'Lovelace', first_name: null },
    { amount_due_in_cents: null },
  ]) {
    const { system: bare } = answering({ account: { ...active, ...half } });
    assert.deepEqual(await bare.findAccount('acme', 'A-1'), {
      biller_id: 'acme',
      account_id: 'A-1',
      status: 'active',
      balance: {},
      payment_rules: {},
    });
  }
  assert.equal(await answering({}).system.findAccount('acme', 'A-1'), undefined);
  assert.equal(system.posts, 'in_transaction');
});

test('a payment that is booked already is posted with its time, and not booked again [PF2 ST2]', async () => {
  for (const [booked, time] of [
    [{ posted_at: '2026-02-03T00:00:00Z' }, { posted_at: '2026-02-03T00:00:00Z' }],
    [{ posted_at: null }, {}],
    [{}, {}],
  ] as const) {
    const { post, asked } = answering({ booked });
    assert.deepEqual(await post(posting('p')), [{ outcome: 'posted', ...time }]);
    assert.deepEqual(asked, [['FIND POSTING', 'p']]);
  }
});

test('a payment is booked once its account allows it, and fails with the reason of account, amount or statement [ST2 ST3 FR1]', async () => {
  const limited = { ...active, max_amount_in_cents: 99 };
  const time = '2026-02-03T00:00:00Z';
  for (const [rows, outcome, isBooked] of [
    [{ account: active, posted: {} }, { outcome: 'posted' }, true],
    [
      { account: active, posted: { posted_at: time } },
      { outcome: 'posted', posted_at: time },
      true,
    ],
    [{ account: active, posted: { reason: null } }, { outcome: 'posted' }, true],
    [
      { account: active, posted: { reason: 'Paid.' } },
      { outcome: 'failed', reason: 'Paid.' },
      true,
    ],
    [{ account: active }, { outcome: 'failed', reason: FAILURE_REASONS.account }, true],
    [{ account: limited }, { outcome: 'failed', reason: FAILURE_REASONS.maximum }, false],
    [{}, { outcome: 'failed', reason: FAILURE_REASONS.account }, false],
  ] as const) {
    const { post, asked } = answering(rows);
    assert.deepEqual(await post(posting('p', { account_id: 'A-2' })), [outcome]);
    const [, found, booked] = asked;
    assert.deepEqual(found, ['FIND ACCOUNT', 'acme', 'A-2']);
    assert.deepEqual(
      booked,
      isBooked ? ['POST PAYMENT', 'p', 'acme', 'A-2', 100, 'i-p'] : undefined,
    );
  }
});

test('a row of find_account that says neither active nor inactive, or a limit that is no number, decides no payment [ST3 FR1]', async () => {
  for (const account of [
    { status: 'Active' },
    { status: null },
    { ...active, max_amount_in_cents: '$500.00' },
    { ...active, min_amount_in_cents: '5.00' },
  ]) {
    const { post, asked } = answering({ account, posted: {} });
    await assert.rejects(post(posting('p')), {
      name: 'WrongAnswer',
      message: /^find_account must give/,
    });
    assert.equal(asked.length, 2, 'it was booked');
  }
});

test('accounts are posted to in one order whatever the order of the payments, those of one account as they came, and each gets its own outcome [PF2]', async () => {
  const { post, asked } = answering({ account: active, posted: {} });
  const payments = [
    posting('1', { account_id: 'B', biller_id: 'a' }),
    posting('2', { account_id: 'A', biller_id: 'z' }),
    posting('3', { account_id: 'A', biller_id: 'b', amount_in_cents: 0 }),
    posting('4', { account_id: 'C', biller_id: 'a' }),
    posting('5', { account_id: 'B', biller_id: 'a' }),
  ];
  await post(...payments);
  const order = (): unknown[] => asked.filter(([text]) => text === 'FIND POSTING').flat();
  const sorted = (...ids: string[]): string[] => ids.flatMap((id) => ['FIND POSTING', id]);
  assert.deepEqual(order(), sorted('3', '2', '1', '5', '4'));
  asked.length = 0;
  await post(...payments.toReversed());
  assert.deepEqual(order(), sorted('3', '2', '5', '1', '4'));
  const alone = answering({ account: { ...active, min_amount_in_cents: 100 }, posted: {} });
  const low = payments.map((one, index) => ({ ...one, amount_in_cents: index === 2 ? 1 : 100 }));
  assert.deepEqual(
    (await alone.post(...low)).map(({ outcome }) => outcome),
    ['posted', 'posted', 'failed', 'posted', 'posted'],
  );
});
