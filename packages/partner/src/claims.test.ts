/**
 * Which replica may hand a payment to the biller's own system. What is at stake: two replicas that both believe in their claim call
 * the biller's system twice at once for one payment, and a claim that nobody gives back leaves it processing.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { DatabaseUnavailable, silentLog, systemClock, type Database } from '@duebridge/runtime';
import { manualClock, type ManualClock, type TestDatabase } from '@duebridge/runtime/testing';
import { claimPayments, openLease, type Lease } from './claims.ts';
import { accepted, kitDatabase } from './testing.ts';

/** How often a lease is renewed, and how long after the last renewal calls may still start. */
const [RENEW_MS, TRUST_MS] = [5_000, 20_000];

/** Replicas that are only rows here. */
const [ALIVE, OTHER, DEAD, LONG_DEAD, WITHOUT_ROW] = [1, 2, 3, 4, 5].map(
  (digit) => `00000000-0000-4000-8000-00000000000${digit}`,
) as [string, string, string, string, string];

/** The database as a replica sees it: it can be cut off, and counts the statements that ended, by their name. */
function seenBy(database: Database): Database & { cut: boolean; ended: Map<string, number> } {
  const ended = new Map<string, number>();
  const seen = {
    ...database,
    cut: false,
    ended,
    async query<Row>(...[statement, values]: Parameters<Database['query']>): Promise<Row[]> {
      const name = typeof statement === 'string' ? statement : statement.name;
      try {
        if (seen.cut) throw new DatabaseUnavailable('cut off', 'not_executed');
        return await database.query<Row>(statement, values);
      } finally {
        ended.set(name, (ended.get(name) ?? 0) + 1);
      }
    },
  };
  return seen;
}

async function until(holds: () => boolean, what: string): Promise<void> {
  const end = performance.now() + 20_000;
  while (!holds()) {
    assert.ok(performance.now() < end, `did not come: ${what}`);
    await systemClock.sleep(1);
  }
}

/** Lets the time of one renewal pass, and waits until it is over. */
async function oneRenewal(clock: ManualClock, on: ReturnType<typeof seenBy>): Promise<void> {
  const name = on.cut ? 'kit_renew_lease' : 'kit_forget_replicas';
  const before = on.ended.get(name) ?? 0;
  await until(() => clock.sleeping > 0, 'the pause between two renewals');
  await clock.advance(RENEW_MS - 1);
  assert.equal(on.ended.get(name) ?? 0, before, 'renewed before it was due');
  await clock.advance(1);
  await until(() => on.ended.get(name) === before + 1, 'a renewal');
}

/** How long the leases in the table still run by the database's clock, in milliseconds. */
async function leases(database: Database): Promise<Map<string, number>> {
  const rows = await database.query<{ replica_id: string; ms: number }>(
    `SELECT replica_id, (extract(epoch FROM lease_until - clock_timestamp()) * 1000)::float8 AS ms FROM duebridge_partner.replica`,
  );
  return new Map(rows.map(({ replica_id, ms }) => [replica_id, ms]));
}

const lineOf = (): { lines: string[]; log: typeof silentLog } => {
  const lines: string[] = [];
  return { lines, log: { ...silentLog, warn: (_fields, text) => void lines.push(text) } };
};

test('no call starts 20 s after the last renewal, while the lease still runs in the table [LV1 KT13]', async (t) => {
  const clock = manualClock();
  const on = seenBy(await kitDatabase(t));
  const { lines, log } = lineOf();
  const lease = openLease({ database: on, log, clock });
  assert.equal(lease.lives(), false, 'it is not held yet');
  assert.equal(lease.isRenewed(), true, 'it is not needed yet');

  on.cut = true;
  await assert.rejects(lease.hold(), DatabaseUnavailable);
  assert.equal(lease.lives(), false);
  on.cut = false;
  await lease.hold();
  await lease.hold();
  assert.equal(on.ended.get('kit_renew_lease'), 2, 'asked again, it writes nothing');
  const held = clock.monotonic();
  assert.equal(lease.lives(held - 1), false, 'a claim of before nobody knows');
  assert.deepEqual([lease.lives(), lease.isRenewed()], [true, true]);
  // Whoever believes in a lease longer than the others do calls beside another replica.
  const ms = (await leases(on)).get(lease.replica_id) ?? 0;
  assert.ok(ms > TRUST_MS + RENEW_MS && ms <= 30_000, `${ms} ms`);

  // Renewed in time, it lives on.
  for (let count = 0; count < 5; count += 1) await oneRenewal(clock, on);
  assert.deepEqual([lease.lives(), lease.isRenewed()], [true, true]);

  on.cut = true;
  for (let count = 0; count < 3; count += 1) await oneRenewal(clock, on);
  await until(() => clock.sleeping > 0, 'the next pause');
  await clock.advance(RENEW_MS - 1);
  assert.deepEqual([lease.lives(), lease.isRenewed()], [true, true]);
  await clock.advance(1);
  assert.deepEqual([lease.lives(), lease.isRenewed()], [false, false]);
  await until(() => on.ended.get('kit_renew_lease') === 2 + 5 + 4, 'the fourth attempt');
  assert.deepEqual(lines, ['could not renew the lease'], 'an outage is told once');

  on.cut = false;
  await oneRenewal(clock, on);
  assert.deepEqual([lease.lives(), lease.isRenewed()], [true, true]);
  assert.equal(lease.lives(held), true, 'it did not run out: 25 s are less than 30');
  on.cut = true;
  await oneRenewal(clock, on);
  assert.equal(lines.length, 2, 'the next outage is told as well');

  on.cut = false;
  const renewals = on.ended.get('kit_renew_lease');
  await lease.stop(true);
  assert.equal(on.ended.get('kit_renew_lease'), renewals, 'a stop renews nothing');
});

test('a claim is not trusted any more once the lease has run out, however soon it is renewed [KT2 LV1]', async (t) => {
  const clock = manualClock();
  const on = seenBy(await kitDatabase(t));
  const lease = openLease({ database: on, log: silentLog, clock });
  await lease.hold();
  const claimed = clock.monotonic();
  on.cut = true;
  for (let count = 0; count < 5; count += 1) await oneRenewal(clock, on);
  on.cut = false;
  await oneRenewal(clock, on);
  // 30 s after the last renewal: in between another replica may have taken over what this one had.
  assert.deepEqual([lease.lives(), lease.lives(claimed)], [true, false]);
  assert.equal(lease.lives(clock.monotonic()), true, 'a claim of now holds');
  await lease.stop(true);
});

test('a stop gives back the own lease alone; without release it runs out by itself [KT13 KT2]', async (t) => {
  const database = await kitDatabase(t);
  const open = (): Lease => openLease({ database, log: silentLog, clock: manualClock() });
  const [released, kept, never] = [open(), open(), open()];
  await released.hold();
  await kept.hold();
  await released.stop(true);
  assert.deepEqual([...(await leases(database)).keys()], [kept.replica_id]);
  await kept.stop(false);
  assert.deepEqual([...(await leases(database)).keys()], [kept.replica_id]);
  await never.stop(true);

  const cut = seenBy(database);
  const { lines, log } = lineOf();
  const last = openLease({ database: cut, log, clock: manualClock() });
  await last.hold();
  cut.cut = true;
  await last.stop(true);
  assert.deepEqual(lines, ['could not release the lease; it will expire']);
});

test('a renewal that is under way at the stop does not bring the lease back [KT13]', async (t) => {
  const database = await kitDatabase(t);
  const clock = manualClock();
  const held = Promise.withResolvers<void>();
  let [renewals, ended] = [0, 0];
  const slow: Database = {
    ...database,
    async query<Row>(...[statement, values]: Parameters<Database['query']>): Promise<Row[]> {
      const name = typeof statement === 'string' ? statement : statement.name;
      if (name === 'kit_renew_lease') {
        renewals += 1;
        if (renewals === 2) await held.promise;
      }
      const rows = await database.query<Row>(statement, values);
      if (name === 'kit_renew_lease') ended += 1;
      return rows;
    },
  };
  const lease = openLease({ database: slow, log: silentLog, clock });
  await lease.hold();
  await until(() => clock.sleeping > 0, 'the pause before the second renewal');
  await clock.advance(RENEW_MS);
  await until(() => renewals === 2, 'the second renewal');
  const stopped = lease.stop(true);
  await Promise.race([stopped, systemClock.sleep(50)]);
  held.resolve();
  await stopped;
  await until(() => ended === 2, 'the end of the second renewal');
  // Another replica would wait out a lease that nobody holds.
  assert.equal((await leases(database)).size, 0);
});

test('the first outage of a lease is told [LV7]', async (t) => {
  const clock = manualClock();
  const on = seenBy(await kitDatabase(t));
  const { lines, log } = lineOf();
  const lease = openLease({ database: on, log, clock });
  await lease.hold();
  on.cut = true;
  await oneRenewal(clock, on);
  assert.deepEqual(lines, ['could not renew the lease']);
  await lease.stop(false);
});

test('a renewal forgets replicas that died a day ago, and no other [KT13 KT2]', async (t) => {
  const clock = manualClock();
  const database = seenBy(await kitDatabase(t));
  await database.query(`INSERT INTO duebridge_partner.replica (replica_id, lease_until) VALUES
    ('${LONG_DEAD}', clock_timestamp() - interval '25 hours'), ('${DEAD}', clock_timestamp() - interval '23 hours'),
    ('${ALIVE}', clock_timestamp() + interval '20 seconds')`);
  const lease = openLease({ database, log: silentLog, clock });
  await lease.hold();
  await oneRenewal(clock, database);
  assert.deepEqual(
    [...(await leases(database)).keys()].toSorted(),
    [ALIVE, DEAD, lease.replica_id].toSorted(),
  );
  await lease.stop(true);
});

/** Payments p0, p1, … in processing. */
async function processing(database: Database, count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, index) => `p${index}`);
  await accepted(database, ids);
  return ids;
}

const claim = (database: TestDatabase, ids: readonly string[], by: string) =>
  database.transaction((tx) => claimPayments(tx, ids, by));

test('a payment claimed by a replica that lives is claimed by no other; a dead one’s is, as unknown [KT2 KT13]', async (t) => {
  const database = await kitDatabase(t);
  await database.query(`INSERT INTO duebridge_partner.replica (replica_id, lease_until) VALUES
    ('${ALIVE}', clock_timestamp() + interval '20 seconds'), ('${OTHER}', clock_timestamp() + interval '20 seconds'),
    ('${DEAD}', clock_timestamp() - interval '1 second')`);
  const [free = '', own = '', foreign = '', left = '', gone = '', notAsked = ''] = await processing(
    database,
    6,
  );
  const asked = [free, own, foreign, left, gone];
  assert.deepEqual(await claim(database, [own], ALIVE), new Map([[own, false]]));
  await claim(database, [foreign], OTHER);
  await claim(database, [left], DEAD);
  await claim(database, [gone], WITHOUT_ROW);
  await database.query(
    `UPDATE duebridge_partner.payment_processing SET cancel_actor = 'ada', cancel_reason = 'asked', claimed_at = '2026-01-01T00:00:00Z'
      WHERE platform_payment_id = ANY($1)`,
    [[left, foreign]],
  );

  const claimed = await claim(database, asked, ALIVE);
  assert.deepEqual(
    claimed,
    // What another replica had claimed may have been posted by it.
    new Map([
      [free, false],
      [own, true],
      [left, true],
      [gone, true],
    ]),
  );
  const rows = await database.query<{
    id: string;
    by: string | null;
    actor: string | null;
    at: string | null;
  }>(
    `SELECT platform_payment_id AS id, claimed_by AS by, cancel_actor AS actor, claimed_at AS at
       FROM duebridge_partner.payment_processing ORDER BY 1`,
  );
  const byId = new Map(rows.map((row) => [row.id, row]));
  assert.deepEqual(
    rows.map(({ by }) => by),
    [ALIVE, ALIVE, OTHER, ALIVE, ALIVE, null],
  );
  assert.equal(byId.get(notAsked)?.at, null);
  // A cancel that was asked of the dead replica is asked anew; the time of the first claim tells how long the outcome is unknown.
  assert.equal(byId.get(left)?.actor, null);
  assert.equal(byId.get(foreign)?.actor, 'ada');
  assert.equal(Date.parse(byId.get(left)?.at ?? ''), Date.UTC(2026, 0, 1));
  assert.ok(Math.abs(Date.parse(byId.get(free)?.at ?? '') - Date.now()) < 60_000);
});

test('two replicas that claim a payment at the same moment: one gets it [KT2]', async (t) => {
  const database = await kitDatabase(t);
  await database.query(`INSERT INTO duebridge_partner.replica (replica_id, lease_until) VALUES
    ('${ALIVE}', clock_timestamp() + interval '1 minute'), ('${OTHER}', clock_timestamp() + interval '1 minute')`);
  const [id = ''] = await processing(database, 1);
  const committed = Promise.withResolvers<void>();
  const claimed = Promise.withResolvers<void>();
  const first = database.transaction(async (tx) => {
    const got = await claimPayments(tx, [id], ALIVE);
    claimed.resolve();
    await committed.promise;
    return got;
  });
  await claimed.promise;
  const second = claim(database, [id], OTHER);
  const end = performance.now() + 20_000;
  for (let isWaiting = false; !isWaiting;) {
    assert.ok(performance.now() < end, 'the second does not wait for the first');
    const [row] = await database.query<{ waiting: number }>(
      `SELECT count(*) AS waiting FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    isWaiting = (row?.waiting ?? 0) > 0;
  }
  committed.resolve();
  // Both would hand it to the biller's system otherwise.
  assert.deepEqual([await first, await second], [new Map([[id, false]]), new Map()]);
});
