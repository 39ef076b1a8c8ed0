import assert from 'node:assert/strict';
import test from 'node:test';
import { Refusal } from '@duebridge/contract';
import { accountsKind } from './accounts-csv.ts';
import { linesIn } from '../test/kit.ts';

/** The problems of a file, as `line: message`; a valid file has none. */
async function problems(csv: string, biller_id?: string): Promise<string[]> {
  try {
    await linesIn(accountsKind({ biller_id }), csv);
    return [];
  } catch (error) {
    assert(error instanceof Refusal);
    return error.message.split('\n');
  }
}

test('an export in dollars is read to the cent, with quotes, a byte order mark and CRLF', async () => {
  const csv = [
    '\uFEFFaccount_id,biller_id,status,last_name,first_name,amount_due,due_date,min_amount,max_amount',
    'A-1,acme,active,"Lovelace, Countess",Ada,1234.56,2026-12-01,1.00,999999999.99',
    'A-2,acme,inactive,,,-0.07,,,',
    'A-3,acme,active,"O""Neil",Jo,0.00,2028-02-29,,0.01',
    '',
  ].join('\r\n');
  assert.deepEqual(await linesIn(accountsKind(), csv), [
    {
      biller_id: 'acme',
      account_id: 'A-1',
      status: 'active',
      first_name: 'Ada',
      last_name: 'Lovelace, Countess',
      amount_due_in_cents: 123_456,
      due_date: '2026-12-01',
      min_amount_in_cents: 100,
      max_amount_in_cents: 99_999_999_999,
    },
    {
      biller_id: 'acme',
      account_id: 'A-2',
      status: 'inactive',
      first_name: null,
      last_name: null,
      amount_due_in_cents: -7,
      due_date: null,
      min_amount_in_cents: null,
      max_amount_in_cents: null,
    },
    {
      biller_id: 'acme',
      account_id: 'A-3',
      status: 'active',
      first_name: 'Jo',
      last_name: 'O"Neil',
      amount_due_in_cents: 0,
      due_date: '2028-02-29',
      min_amount_in_cents: null,
      max_amount_in_cents: 1,
    },
  ]);
});

test('accounts of a biller that is not served are refused, and a single biller need not be named', async () => {
  const kind = accountsKind({ billers: [{ biller_id: 'acme' }] });
  const [account] = await linesIn(kind, 'account_id\nA-1\n');
  assert.equal(account?.biller_id, 'acme');
  await assert.rejects(linesIn(kind, 'biller_id,account_id\nacme,A-1\nother,A-2\n'), {
    message: /^line 3: .*not served here/,
  });
});

test('the biller may be given outside the file', async () => {
  const kind = accountsKind({ biller_id: 'acme' });
  const [account] = await linesIn(kind, 'account_id,amount_due\nA-1,-5.00\n');
  assert.deepEqual([account?.biller_id, account?.amount_due_in_cents], ['acme', -500]);
  assert.equal(account?.status, undefined, 'what the file does not say is kept');
});

test('every bad line is reported with its number and all its faults', async () => {
  const csv = [
    'biller_id,account_id,status,first_name,last_name,amount_due,due_date,min_amount,max_amount',
    'acme,A-1,active,Ada,Lovelace,10.00,2026-12-01,,',
    'acme,A\u00072,gone,Ada,,10.5,2026-02-30,0.00,',
    'acme,A-1,active,Ada,Lovelace,10.00,2026-12-01,,',
    'acme,A-3,active,Ada,Lovelace,"1,000.00",2026-12-01,5.00,4.99',
    'acme,A-4,active',
    'acme,A-5,active,Ada,Lovelace,,2026-12-01,,',
    '..,A-6,active,Ada,Lovelace,1e3,12/01/2026,,',
  ].join('\n');
  const found = await problems(csv);
  assert.deepEqual(
    found.map((line) => line.split(':', 1)[0]),
    ['line 3', 'line 4', 'line 5', 'line 6', 'line 7', 'line 8'],
  );
  for (const word of [
    'status',
    'amount_due',
    'due_date',
    'min_amount',
    'account_id',
    'last_name',
  ]) {
    assert.match(found[0] ?? '', new RegExp(word), word);
  }
  assert.match(found[1] ?? '', /line 2/);
  assert.match(found[2] ?? '', /amount_due.*min_amount must not be above max_amount/);
  assert.match(found[3] ?? '', /3 cells/);
  assert.match(found[4] ?? '', /must not be empty/);
  assert.match(found[5] ?? '', /amount_due.*biller_id|biller_id.*amount_due|due_date/);
});

test('amounts are never guessed', async () => {
  const amounts = [
    '12',
    '12.5',
    '12.345',
    '$12.00',
    '1 000.00',
    '1.000,00',
    '+5.00',
    '.50',
    '5.',
    'NaN',
  ];
  for (const amount of [...amounts, '9999999999.99', '0x10', '１２.００', '--1.00']) {
    assert.equal(
      (await problems(`biller_id,account_id,amount_due\nacme,A,"${amount}"`)).length,
      1,
      amount,
    );
  }
});

test('a header that is misspelt, duplicate, ambiguous or incomplete is refused at once', async () => {
  const headers = [
    'biller_id,account_id,ammount_due',
    'biller_id,account_id,account_id',
    'biller_id,account_id,amount_due,amount_due_in_cents',
    'biller_id,account_id,first_name',
    'biller_id,status',
    'account_id,status',
    '',
  ];
  for (const header of headers) {
    const found = await problems(`${header}\nacme,A,1.00,1\n`);
    assert.ok(found.length > 0 && found.every((line) => line.startsWith('line 1:')), header);
  }
});

test('an empty file, and one with semicolons or tabs, get one sentence with the cure', async () => {
  assert.deepEqual(await problems(''), ['line 1: is missing: the file is empty']);
  assert.deepEqual(await problems('biller_id;account_id\nacme;A-1\n'), [
    'line 1: separates its columns with semicolons: save it with commas',
  ]);
  assert.deepEqual(await problems('biller_id\taccount_id\nacme\tA-1\n'), [
    'line 1: separates its columns with tabs: save it with commas',
  ]);
});

test('text that is not CSV is reported, not thrown', async () => {
  assert.deepEqual((await problems('biller_id,account_id\nacme,"A')).length, 1);
  assert.deepEqual((await problems('biller_id,account_id\nacme,A"B"\n')).length, 1);
});

test('lines of one account are found however far apart, and a thousand bad lines are not all named', async () => {
  const rows = Array.from({ length: 100_000 }, (_, index) => `A-${index}\n`);
  const file = (...more: string[]): string => `account_id\n${rows.join('')}${more.join('')}`;
  assert.deepEqual(await problems(file('A-17\n', 'B\n'), 'acme'), [
    'line 100002: is the same account as line 19',
  ]);
  const many = await problems(file(...rows.filter((_, index) => index % 100 === 0)), 'acme');
  assert.equal(many.length, 101);
  assert.equal(many.at(-1), 'the file: has 900 more bad lines');
});
