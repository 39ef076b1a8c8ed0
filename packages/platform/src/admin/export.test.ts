import assert from 'node:assert/strict';
import test from 'node:test';
import type { Database } from '@duebridge/runtime';
import { recordEvidence, redact } from '../store/attempts.ts';
import { windowDay } from '../reconciliation/batch.ts';
import { csvCell } from '../csv-cell.ts';
import { exportPayments } from './export.ts';

test('a cell that a spreadsheet would run as a formula becomes text, and a comma or quote stays in its cell', () => {
  assert.equal(csvCell('=HYPERLINK("http://x")'), `"'=HYPERLINK(""http://x"")"`);
  for (const text of ['+1', '-1', '@x', '\tx', '\rx']) assert.match(csvCell(text), /^"?'/);
  assert.equal(csvCell('a, b'), '"a, b"');
  // Where lists are separated by semicolons, tabs or bars, a line is split there.
  assert.equal(csvCell('Closed;=1+1'), "Closed;'=1+1");
  assert.equal(csvCell('a\n=1+1'), '"a\n\'=1+1"');
  for (const mark of [';', '\t', '|']) {
    assert.ok(csvCell(`x${mark}@SUM(A1)`).includes(`${mark}'@`), JSON.stringify(mark));
  }
  assert.equal(csvCell('two\nlines'), '"two\nlines"');
  assert.equal(csvCell(-5), '-5');
  assert.equal(csvCell(null), '');
  assert.equal(csvCell('plain'), 'plain');
});

test('evidence of answers contains no secret, account, address, phone number or token', () => {
  const kept = redact(
    'Payment of 25.00 refused for ACC-99: jo.public@mail.example, +1 (512) 555-0100, Bearer abc.def, ' +
      '4111 1111 1111 1111, key s3cret, 0a1b2c3d4e5f60718293a4b5c6d7e8f9',
    ['s3cret', 'ACC-99'],
  );
  assert.equal(kept, 'Payment of 25.00 refused for •••: •••, •••, •••, •••, key •••, •••');
  assert.ok(redact('x '.repeat(10_000), []).length <= 1_001);
  assert.equal(redact('a\u0000b\u001b[31m', []), 'a b [31m');
});

test('evidence of a record that differs keeps what can be compared, and nothing else of it', () => {
  const record = {
    payment_id: '0193b7a0-9c00-7abc-8def-001122334455',
    amount_in_cents: 12_345_678,
    account_id: 'acct-775533',
    status: 'failed',
    failure_reason: 'Call +1 512 555 0100',
    posted_at: '2026-03-21T17:00:00.000Z',
    platform_batch_id: 's3cret',
    biller_id: { name: 'Jo Public' },
  };
  const customer = { name: 'Jo Public', email: 'jo@example.com' };
  assert.deepEqual(JSON.parse(recordEvidence({ ...record, customer }, ['s3cret'])), {
    ...record,
    account_id: '••••5533',
    failure_reason: 'Call •••',
    platform_batch_id: '•••',
    biller_id: null,
  });
  assert.ok(recordEvidence({ ...record, payment_id: 'x '.repeat(10_000) }, []).length < 1_000);
});

test('a batch is named after the day of its payments, in its partner’s time zone', () => {
  const utc = { batch_time_zone: 'UTC' };
  assert.equal(windowDay(utc, Date.parse('2026-03-22T00:00:00Z')), '2026-03-21');
  assert.equal(windowDay(utc, Date.parse('2026-03-21T17:00:00Z')), '2026-03-21');
  const chicago = { batch_time_zone: 'America/Chicago' };
  assert.equal(windowDay(chicago, Date.parse('2026-03-22T05:00:00Z')), '2026-03-21');
});

test('an export that finds nothing ends when nobody reads it any more', async () => {
  const made = { statements: 0 };
  // A table without an end, in which nothing matches: ids, and no payment under any of them.
  const database = {
    async query(statement: unknown, values: readonly unknown[]) {
      made.statements += 1;
      await new Promise(setImmediate);
      const isPage = String(statement).includes('ANY(');
      return isPage
        ? []
        : Array.from({ length: Number(values.at(-1)) }, (_, n) => ({
            platform_payment_id: String(n),
          }));
    },
  } as unknown as Database;
  const as = { unmasked: false, modeOf: () => Promise.resolve('test' as const) };
  const stream = exportPayments(database, { status: 'failed', partner_id: 'nobody' }, as);
  stream.resume();
  while (made.statements < 20) await new Promise(setImmediate);
  stream.destroy();
  let [seen, quiet] = [0, 0];
  for (let turn = 0; quiet < 1_000; turn += 1) {
    quiet = made.statements === seen ? quiet + 1 : 0;
    seen = made.statements;
    assert.ok(turn < 200_000, 'it went on');
    await new Promise(setImmediate);
  }
});
