import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import test from 'node:test';
import { systemClock, type Clock, type Database, type Statement } from '@duebridge/runtime';
import { force, until } from '@duebridge/runtime/testing';
import {
  batchFor,
  closeBatches,
  closeBatchNow,
  cutoffAfter,
  getBatch,
  listBatches,
  statementOf,
  windowDay,
  withLines,
  type StatementLine,
} from './batch.ts';
import {
  scriptedPartner,
  engineRig,
  type EngineRig,
  type ScriptedPartner,
} from '../../test/engine-rig.ts';
import { compareLines } from './compare.ts';
import { listDifferences } from './differences.ts';
import { readExport } from './export-file.ts';
import { openReconciliations, reconcileFile } from './reconcile.ts';
import { insertPayment, type PaymentRow } from '../store/payments.ts';

async function reconcileBatch(rig: EngineRig, batch: string) {
  const runs = openReconciliations({ ...rig, clock: systemClock });
  try {
    return await runs.compare(batch, 'operator');
  } finally {
    await runs.stop();
  }
}
/** A file as it is sent. */
async function* sent(csv: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(csv);
}
const settled = (row: PaymentRow): boolean => row.settled_at !== null;
const at = (text: string): number => Date.parse(text);

test('a batch window ends at the partner’s cut-off, in its own time zone, over daylight saving', () => {
  for (const [zone, cutoff, now, end] of [
    ['America/New_York', '17:00', '2026-01-15T22:00:00Z', '2026-01-16T22:00:00.000Z'],
    ['America/New_York', '17:00', '2026-07-15T12:00:00Z', '2026-07-15T21:00:00.000Z'],
    // 02:30 does not exist on that morning.
    ['America/New_York', '02:30', '2026-03-08T06:00:00Z', '2026-03-08T07:30:00.000Z'],
    ['Pacific/Kiritimati', '00:00', '2026-01-15T12:00:00Z', '2026-01-16T10:00:00.000Z'],
  ] as const) {
    const partner = { batch_time_zone: zone, batch_cutoff: cutoff };
    assert.equal(new Date(cutoffAfter(partner, at(now))).toISOString(), end);
  }
});

test('no window is skipped where clocks change, in any zone and year', () => {
  const zones = [
    'America/New_York',
    'Europe/Berlin',
    'Australia/Sydney',
    'Australia/Lord_Howe',
    // Their clocks change at midnight, so that 00:00 may not exist.
    'America/Santiago',
    'America/Havana',
    'Asia/Beirut',
    'Africa/Cairo',
    'UTC',
  ];
  const hour = 3_600_000;
  let changes = 0;
  for (const batch_time_zone of zones) {
    const offset = new Intl.DateTimeFormat('en-US', {
      timeZone: batch_time_zone,
      timeZoneName: 'longOffset',
    });
    const offsetAt = (now: number): string => offset.format(now).split(', ')[1] ?? '';
    for (let day = at('2024-01-01T12:00:00Z'); day < at('2029-01-01T00:00:00Z'); day += 24 * hour) {
      if (offsetAt(day) === offsetAt(day + 24 * hour)) continue;
      changes += 1;
      for (const batch_cutoff of ['00:00', '02:30', '17:00', '23:59']) {
        const zone = { batch_time_zone, batch_cutoff };
        let cutoff = cutoffAfter(zone, day - 48 * hour);
        for (let now = day - 48 * hour; now < day + 48 * hour; now += hour / 2) {
          if (now >= cutoff) {
            const before = Date.parse(windowDay(zone, cutoff));
            cutoff = cutoffAfter(zone, cutoff);
            assert.equal(Date.parse(windowDay(zone, cutoff)) - before, 24 * hour);
          }
          const where = `${batch_time_zone} ${batch_cutoff} ${new Date(now).toISOString()}`;
          assert.equal(cutoffAfter(zone, now), cutoff, where);
        }
      }
    }
  }
  assert.ok(changes >= 70, String(changes));
});

test('two statements are compared line by line, and every disagreement has its kind', async () => {
  const ours: StatementLine[] = [
    { platform_payment_id: 'a', status: 'succeeded', amount_in_cents: 100 },
    { platform_payment_id: 'b', status: 'succeeded', amount_in_cents: 100 },
    { platform_payment_id: 'c', status: 'failed', amount_in_cents: 100 },
    { platform_payment_id: 'd', status: 'succeeded', amount_in_cents: 100 },
  ];
  const theirs = await readExport(
    sent(
      '\uFEFFplatform_payment_id,status,amount_in_cents\r\na,succeeded,100\r\n"b",succeeded,99\nc,succeeded,100\ne,succeeded,5\na,succeeded,100\n\n',
    ),
  );
  assert.deepEqual((await compareLines([ours], theirs)).differences, [
    { platform_payment_id: 'a', kind: 'amount', here: '100', there: '200 in 2 lines' },
    { platform_payment_id: 'b', kind: 'amount', here: '100', there: '99' },
    { platform_payment_id: 'c', kind: 'status', here: 'failed', there: 'succeeded' },
    { platform_payment_id: 'd', kind: 'missing_there', here: 'succeeded', there: null },
    { platform_payment_id: 'e', kind: 'missing_here', here: null, there: 'succeeded' },
  ]);
  const same = ours.map((line) => Object.values(line).join(','));
  const own = await readExport(sent(same.join('\n')));
  assert.deepEqual(await compareLines([ours], own), { compared: 4, differences: [] });
  for (const text of [
    'a,succeeded',
    'a,paid,1',
    'a,succeeded,1.5',
    'a,succeeded,1e2',
    'a,succeeded,-1',
    'a b,failed,1',
    'a,failed,1,2',
  ]) {
    await assert.rejects(readExport(sent(text)), { code: 'INVALID_REQUEST' });
  }
});

async function paidBatch(
  t: Parameters<typeof engineRig>[0],
  count: number,
): Promise<{ rig: EngineRig; partner: ScriptedPartner; rows: PaymentRow[]; batch: string }> {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const engine = rig.engine();
  await engine.start();
  const rows: PaymentRow[] = [];
  for (let index = 0; index < count; index += 1) rows.push(await rig.pay(engine, 'acme'));
  const done = await Promise.all(rows.map((row) => rig.until(row.platform_payment_id, settled)));
  return { rig, partner, rows: done, batch: done[0]?.platform_batch_id ?? '' };
}

test('payments of one window share a batch, also when its opening is rolled back elsewhere [PF3]', async (t) => {
  const rig = await engineRig(t);
  await rig.register('acme', 'http://127.0.0.1:9');
  await rig.register('other', 'http://127.0.0.1:9');
  const [acme, other] = [await rig.registry.get('acme'), await rig.registry.get('other')];
  assert(acme && other);
  const now = at('2026-05-05T12:00:00Z');
  const opened = Promise.withResolvers<void>();
  const stopped = Promise.withResolvers<void>();
  const elsewhere = rig.database.transaction(async (tx) => {
    await tx.query(
      `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at) VALUES ('elsewhere', $1, $2)`,
      [acme.partner_id, new Date(cutoffAfter(acme, now)).toISOString()],
    );
    opened.resolve();
    await stopped.promise;
  });
  await opened.promise;
  const ids = Promise.all([batchFor(rig.database, acme, now), batchFor(rig.database, acme, now)]);
  await until('both wait for the other transaction', async () => {
    const waiting = await rig.database.query(
      `SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE a.datname = current_database() AND l.locktype = 'transactionid' AND NOT l.granted`,
    );
    return waiting.length === 2;
  });
  stopped.reject(new Error('rolled back'));
  await assert.rejects(elsewhere, /rolled back/);
  const [one, two] = await ids;
  assert.equal(one, two);
  for (const [partner, when] of [[other, now] as const, [acme, now + 86_400_000] as const]) {
    assert.notEqual(await batchFor(rig.database, partner, when), one);
  }
});

test('a batch closes once, after its cut-off, when its last payment has ended, and then no payment joins it', async (t) => {
  const { rig, partner, batch, rows } = await paidBatch(t, 3);
  assert.deepEqual(await closeBatches(rig.database, 'test'), []);
  // The day passes: the cut-off is the one column that the test moves, past the guard.
  await rig.database.transaction(async (tx) => {
    await tx.query('ALTER TABLE duebridge_platform.batches DISABLE TRIGGER batches_guard');
    await tx.query(
      "UPDATE duebridge_platform.batches SET cutoff_at = clock_timestamp() - interval '1 second'",
    );
    await tx.query('ALTER TABLE duebridge_platform.batches ENABLE TRIGGER batches_guard');
  });
  partner.pollsToEnd = Number.POSITIVE_INFINITY;
  const closed = await Promise.all(
    Array.from({ length: 4 }, () => closeBatches(rig.database, 'test')),
  );
  const all = await rig.database.query<{ count: number }>(
    "SELECT count(*) AS count FROM duebridge_platform.audit WHERE event = 'batch_closed'",
  );
  assert.equal(Number(all[0]?.count), 1);
  assert.ok(closed.flat().length <= 1);
  const view = await getBatch(rig.database, batch);
  assert.notEqual(view.closed_at, null);
  assert.deepEqual(view.statement.totals, [
    { status: 'succeeded', count: 3, amount_in_cents: 3 * 12_345 },
  ]);
  assert.deepEqual(view.statement, await statementOf(batch, [rows]));
  // A list leaves out what was compared.
  const { comparison: _comparison, ...listed } = view;
  assert.deepEqual(await listBatches(rig.database, 'acme'), [{ ...listed, differences: null }]);
  assert.deepEqual(await listBatches(rig.database, 'nobody'), []);
  await assert.rejects(
    rig.database.query(
      `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, funding_method)
       SELECT 'late', partner_id, biller_id, account_id, platform_batch_id, 1, 'x' FROM duebridge_platform.payments LIMIT 1`,
    ),
  );
  await assert.rejects(getBatch(rig.database, 'no-such'), { code: 'BATCH_NOT_FOUND' });
});

test('an operator ends the window of a test registration early, of a live one never', async (t) => {
  const { rig, batch } = await paidBatch(t, 1);
  const close = (id: string) => closeBatchNow(rig.database, id, 'tried out', 'ada');
  await rig.database.query(`UPDATE duebridge_platform.partners SET mode = 'live'`);
  await assert.rejects(close(batch), /window of the batch is open/);
  await rig.database.query(`UPDATE duebridge_platform.partners SET mode = 'test'`);
  const closed = await close(batch);
  assert.deepEqual(
    [closed.statement?.count, Date.parse(closed.cutoff_at) <= Date.now()],
    [1, true],
  );
  // The window goes on, with a batch of its own, which may be ended as well.
  const acme = await rig.registry.get('acme');
  assert.ok(acme);
  const next = await batchFor(rig.database, acme, Date.now());
  assert.notEqual(next, batch);
  assert.equal(await batchFor(rig.database, acme, Date.now()), next);
  await close(next);
  assert.equal(new Set([batch, next, await batchFor(rig.database, acme, Date.now())]).size, 3);
});

test('equal statements settle a batch in one call; without one each payment is read [PF3 EE3]', async (t) => {
  const { rig, partner, batch, rows } = await paidBatch(t, 4);
  const { file_needed, ...read } = await reconcileBatch(rig, batch);
  assert.match(file_needed ?? '', /only it has were not looked for.*batch export/);
  assert.deepEqual(read, {
    platform_batch_id: batch,
    method: 'payments',
    compared: 4,
    differences: [],
  });
  const own = await statementOf(batch, [rows]);
  partner.script = (seen) => (seen.path === `/batch/${batch}` ? { json: own } : undefined);
  const calls = partner.seen.length;
  const reconciled = await reconcileBatch(rig, batch);
  assert.deepEqual(reconciled, {
    platform_batch_id: batch,
    method: 'statement',
    compared: 4,
    differences: [],
  });
  assert.equal(partner.seen.length, calls + 1);
});

test('a partner that lost, changed or added money is caught, and nothing is repaired [PF6]', async (t) => {
  const { rig, partner, batch, rows } = await paidBatch(t, 5);
  const [lost, short, failed, moved] = rows;
  assert(lost && short && failed && moved);
  partner.payments.delete(lost.platform_payment_id);
  Object.assign(partner.payments.get(short.platform_payment_id)!, { amount_in_cents: 1 });
  Object.assign(partner.payments.get(failed.platform_payment_id)!, {
    status: 'failed',
    failure_reason: 'no',
    posted_at: null,
  });
  Object.assign(partner.payments.get(moved.platform_payment_id)!, {
    posted_at: '2030-01-01T00:00:00Z',
  });
  const { differences } = await reconcileBatch(rig, batch);
  const kinds = new Map(differences.map((one) => [one.platform_payment_id, one.kind]));
  assert.deepEqual(
    [lost, short, failed, moved].map((row) => kinds.get(row.platform_payment_id)),
    ['missing_there', 'amount', 'status', 'time'],
  );
  assert.equal(differences.length, 4);
  const after = await Promise.all(rows.map((row) => rig.until(row.platform_payment_id, settled)));
  assert.deepEqual(after, rows);
  const csv = `${rows.map((row) => `${row.platform_payment_id},succeeded,12345`).join('\n')}\nextra-1,succeeded,7\n`;
  const filed = await reconcileFile(rig.database, batch, sent(csv), 'operator');
  assert.deepEqual(filed.differences, [
    { platform_payment_id: 'extra-1', kind: 'missing_here', here: null, there: 'succeeded' },
  ]);
  const extra = { platform_payment_id: 'extra', status: 'succeeded', amount_in_cents: 7 } as const;
  const oneMore = await statementOf(batch, [[...rows, extra]]);
  partner.script = (seen) =>
    seen.path === `/batch/${batch}`
      ? { json: oneMore }
      : { json: rows.find((row) => seen.path.endsWith(row.platform_payment_id)) };
  const more = await reconcileBatch(rig, batch);
  assert.deepEqual(
    more.differences.map((one) => one.kind),
    ['missing_here'],
  );
  // One lost and one too many are not hidden by the equal count, nor is the one too many by what else differs.
  const [, ...kept] = rows;
  const anotherOne = await statementOf(batch, [[...kept, extra]]);
  partner.script = (seen) =>
    seen.path === `/batch/${batch}`
      ? { json: anotherOne }
      : seen.path.endsWith(lost.platform_payment_id)
        ? { status: 404, json: { code: 'PAYMENT_NOT_FOUND', message: 'no' } }
        : { json: rows.find((row) => seen.path.endsWith(row.platform_payment_id)) };
  const both = await reconcileBatch(rig, batch);
  assert.deepEqual(both.differences.map((one) => one.kind).toSorted(), [
    'missing_here',
    'missing_there',
  ]);
  // Nor when ours is not lost, but stands in another batch there.
  partner.script = (seen) => {
    if (seen.path === `/batch/${batch}`) return { json: anotherOne };
    const row = rows.find((one) => seen.path.endsWith(one.platform_payment_id));
    return { json: row === lost ? { ...row, platform_batch_id: 'elsewhere' } : row };
  };
  const elsewhere = await reconcileBatch(rig, batch);
  assert.deepEqual(elsewhere.differences.map((one) => one.kind).toSorted(), [
    'missing_here',
    'missing_there',
  ]);
});

test('a comparison resolves what it looks for and does not find, and speaks of what was there when it began', async (t) => {
  const { rig, partner, batch, rows } = await paidBatch(t, 2);
  const csv = rows.map((row) => `${row.platform_payment_id},succeeded,12345`).join('\n');
  const file = (text: string) => reconcileFile(rig.database, batch, sent(text), 'operator');
  const open = async () =>
    (await listDifferences(rig.database, { state: 'open', limit: 9 })).map((one) => one.kind);
  // The partner has no statement: reading our payments shows none that only it has.
  await file(`${csv}\nextra-1,succeeded,7`);
  Object.assign([...partner.payments.values()][0]!, { posted_at: '2030-01-01T00:00:00Z' });
  await reconcileBatch(rig, batch);
  assert.deepEqual(await open(), ['time', 'missing_here']);
  // A file has no times.
  await file(csv);
  assert.deepEqual(await open(), ['time']);

  const held = Promise.withResolvers<void>();
  partner.script = () => held.promise.then(() => undefined);
  const calls = partner.seen.length;
  const slow = reconcileBatch(rig, batch);
  await until('it reads', () => partner.seen.length > calls);
  await file(csv.replace('12345', '1'));
  await closeBatchNow(rig.database, batch, 'tried out', 'ada');
  // As if a third had begun since, and had seen the other time.
  await rig.database.query(
    `UPDATE duebridge_platform.differences SET seen_at = '2300-01-01' WHERE kind = 'time'`,
  );
  held.resolve();
  await slow;
  const [, time] = await listDifferences(rig.database, { state: 'open', limit: 9 });
  assert.match(time?.seen_at ?? '', /^2300/);
  assert.deepEqual(await open(), ['amount', 'time']);
  const since = await rig.database.query(
    'SELECT 1 FROM duebridge_platform.comparisons c JOIN duebridge_platform.batches b USING (platform_batch_id) WHERE c.compared_at >= b.closed_at',
  );
  assert.deepEqual(since, [], 'before its batch was closed');
});

test('reading payment by payment keeps within half of the budget, and goes on while the caller asks for its progress', async (t) => {
  const { rig, partner, batch, rows } = await paidBatch(t, 12);
  await rig.registry.change('acme', { budget: { max_calls_per_second: 5 } }, 'operator');
  // Time passes as soon as somebody waits for it, except for the caller's patience.
  let elapsed = 0;
  let patience = Promise.withResolvers<void>();
  const clock: Clock = {
    ...systemClock,
    monotonic: () => elapsed,
    async sleep(ms) {
      if (ms >= 10_000) return patience.promise;
      elapsed += Math.max(0, ms);
      return Promise.resolve();
    },
  };
  const half = Promise.withResolvers<void>();
  const mayGoOn = Promise.withResolvers<void>();
  let reads = 0;
  partner.script = async (seen) => {
    if (seen.path.startsWith('/batch/')) return undefined;
    reads += 1;
    if (reads <= 6) return undefined;
    half.resolve();
    await mayGoOn.promise;
    return undefined;
  };
  const reconciliations = openReconciliations({ ...rig, clock });
  const first = reconciliations.compare(batch, 'operator');
  await half.promise;
  patience.resolve();
  const progress = await first;
  assert.deepEqual(progress.running, { of: rows.length });
  assert.ok(progress.compared <= 6 && progress.differences.length === 0);
  patience = Promise.withResolvers();
  const second = reconciliations.compare(batch, 'operator');
  mayGoOn.resolve();
  const done = await second;
  assert.deepEqual([done.compared, done.running, done.differences], [rows.length, undefined, []]);
  assert.equal(reads, rows.length, 'both requests are of one comparison');
  assert.ok(elapsed >= ((rows.length - 1) / 2.5) * 1_000, `${elapsed} ms for ${rows.length} reads`);
  await reconciliations.stop();
});

test('150,000 lines are read and compared in turns that hold nobody up', async () => {
  const line = (n: number): StatementLine => ({
    platform_payment_id: `${(n * 7_919) % 150_001}`.padStart(8, '0'),
    status: 'succeeded',
    amount_in_cents: n,
  });
  const all = Array.from({ length: 150_000 }, (_, n) => line(n));
  const ours = Array.from({ length: 30 }, (_, page) => all.slice(page * 5_000, (page + 1) * 5_000));
  const text = Buffer.from(all.map((one) => Object.values(one).join(',')).join('\n'));
  /** As a socket gives them. */
  const pieces = Array.from({ length: Math.ceil(text.length / 65_536) }, (_, n) =>
    text.subarray(n * 65_536, (n + 1) * 65_536),
  );
  let turns = 0;
  let runs = true;
  const count = (): void => {
    turns += 1;
    if (runs) setImmediate(count);
  };
  count();
  const theirs = await readExport(Readable.from(pieces));
  assert.deepEqual(await compareLines(ours, theirs), { compared: 150_000, differences: [] });
  runs = false;
  assert.ok(turns > pieces.length, `${turns} turns`);
});

test('an unfinished comparison does not count as agreement', async (t) => {
  const { rig, partner, batch } = await paidBatch(t, 3);
  partner.script = () => ({ status: 503, json: {} });
  await assert.rejects(reconcileBatch(rig, batch), { code: 'PARTNER_UNREACHABLE' });
  await assert.rejects(reconcileBatch(rig, 'no-such'), { code: 'BATCH_NOT_FOUND' });
});

test('a payment that joins between check and close keeps its batch open', async (t) => {
  const rig = await engineRig(t);
  await rig.register('acme', 'http://127.0.0.1:1');
  const partner = await rig.registry.get('acme');
  const engine = rig.engine();
  // A window that has just ended by the database's clock; this host's is a moment behind.
  const justNow = Date.now() - 1_000;
  const batch_cutoff = new Date(justNow).toISOString().slice(11, 16);
  const cutoff = cutoffAfter({ batch_time_zone: 'UTC', batch_cutoff }, justNow - 60_000);
  const late = { ...partner!, batch_time_zone: 'UTC', batch_cutoff };
  const platform_batch_id = await batchFor(rig.database, late, cutoff - 1);
  let joined: PaymentRow | undefined;
  const database: Database = {
    ...rig.database,
    async query<Row>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> {
      const rows = await rig.database.query<Row>(statement, values);
      if (typeof statement !== 'string' && statement.text.includes('b.cutoff_at <= now()')) {
        joined = await insertPayment(rig.database, {
          partner_id: 'acme',
          biller_id: 'acme',
          account_id: 'A',
          platform_batch_id,
          amount_in_cents: 100,
          funding_method: 'sandbox_bank',
          slot: engine.placeForNew({ partner_id: 'acme', paused: false }, { funding_method: 'x' })
            .slot,
          stage: 'created',
          actor: 'test',
        });
      }
      return rows;
    },
  };
  assert.deepEqual(await closeBatches(database, 'test'), []);
  assert.equal(joined?.platform_batch_id, platform_batch_id);
  assert.equal((await getBatch(rig.database, platform_batch_id)).closed_at, null);
});

test('closing a batch holds a page of its lines at a time', async (t) => {
  const rig = await engineRig(t);
  await rig.register('acme', 'http://127.0.0.1:9');
  const partner = await rig.registry.get('acme');
  assert(partner);
  const batch = await batchFor(rig.database, partner, Date.now() - 2 * 86_400_000);
  const count = 12_345;
  await force(
    // Not in the order of their ids.
    rig.database,
    `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id,
              amount_in_cents, funding_method, slot, stage, status, payment_id, initiated_at, accepted_at, posted_at, ended_at, settled_at)
       SELECT md5(n::text), 'acme', 'acme', 'A', $1, n, 'sandbox_bank', 1, 'ended', 'succeeded', 'P-' || n, now(), now(), now(), now(), now()
         FROM generate_series(1, $2::int) n`,
    [batch, count],
  );
  const sizes: number[] = [];
  const lines: StatementLine[] = [];
  await withLines(rig.database, batch, async (pages) => {
    for await (const page of pages) {
      sizes.push(page.length);
      lines.push(...page);
    }
  });
  assert.deepEqual(sizes, [5_000, 5_000, 2_345]);
  assert.deepEqual(await closeBatches(rig.database, 'test'), [batch]);
  const { statement } = await getBatch(rig.database, batch);
  assert.deepEqual(statement, await statementOf(batch, [lines]));
  assert.equal(statement.totals[0]?.amount_in_cents, (count * (count + 1)) / 2);
});
