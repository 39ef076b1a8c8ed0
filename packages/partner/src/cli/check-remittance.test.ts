/** Every way in which a statement and the ledger can disagree is named; one that agrees is not complained about. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { compareRemittances, readStatement, succeededIn } from './check-remittance.ts';

const HEAD =
  'kind,platform_payment_id,payment_id,account_id,amount_in_cents,platform_batch_id,note';
const csv = (...rows: string[]): string => [HEAD, ...rows, ''].join('\r\n');
const pay = (id: string, cents: number): string =>
  `payment,${id},P-${id},"A,1",${cents},b-1,2026-03-01`;
const total = (cents: number): string => `total,,,,${cents},b-1,r-1`;
const ledger = new Map([
  [
    'b-1',
    succeededIn(
      'platform_payment_id,status,amount_in_cents\np1,succeeded,700\np2,succeeded,500\np3,failed,900\n',
    ),
  ],
]);
const check = (...files: string[]): readonly string[] =>
  compareRemittances(
    files.map((text, n) => readStatement(`file ${n}`, text)),
    ledger,
  ).differences;

test('statements that agree with the ledger, with refunds and over several billers', () => {
  assert.deepEqual(check(csv(pay('p1', 700), pay('p2', 500), total(1_200))), []);
  assert.deepEqual(check(csv(pay('p1', 700), total(700)), csv(pay('p2', 500), total(500))), []);
  const refund = 'refund,p0,,,-300,b-1,charged twice';
  const checked = compareRemittances(
    [readStatement('f', csv(pay('p1', 700), pay('p2', 500), refund, total(900)))],
    ledger,
  );
  assert.deepEqual(
    [checked.differences, checked.net_in_cents, checked.other_in_cents],
    [[], 900, -300],
  );
});

test('each difference is named', () => {
  const cases: readonly [string, RegExp][] = [
    [csv(pay('p1', 700), total(700)), /p2 of \$5\.00 in batch b-1 is in no statement/],
    [csv(pay('p1', 700), pay('p2', 501), total(1_201)), /p2: \$5\.00 here, \$5\.01 there/],
    [csv(pay('p1', 700), pay('p2', 500), pay('p2', 500), total(1_700)), /p2 is there twice/],
    [
      csv(pay('p1', 700), pay('p2', 500), pay('p3', 900), total(2_100)),
      /p3 of \$9\.00 is not among/,
    ],
    [csv(pay('p1', 700), pay('p2', 500), total(1_100)), /make \$12\.00, and its total is \$11\.00/],
  ];
  for (const [file, words] of cases) {
    const found = check(file);
    assert.equal(found.length, 1, found.join());
    assert.match(found[0] ?? '', words);
  }
});

test('a file that is no statement, or was cut off, is refused by its name', () => {
  for (const [text, words] of [
    ['a,b\n1,2\n', /no column kind/],
    [csv(pay('p1', 700)), /last line is not the total/],
    [csv(pay('p1', 700).replace('700', '7.00'), total(700)), /line 2 has no amount/],
    ['"', /not CSV/],
  ] as const) {
    assert.throws(() => readStatement('march.csv', text), { message: words });
    assert.throws(() => readStatement('march.csv', text), /march\.csv/);
  }
});
