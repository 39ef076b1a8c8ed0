/**
 * Which replica may hand a payment to the biller's own system. What is at stake: two replicas that both believe in their claim call
 * the biller's system at once for one payment, and a claim that nobody gives back leaves it processing.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { DatabaseUnavailable, silentLog, type Database } from '@duebridge/runtime';
import { manualClock, type ManualClock, until } from '@duebridge/runtime/testing';
import { claimPayments, openLease, type Claim, type Lease } from './claims.ts';
import { postponePayments } from './store.ts';
import { accepted, kitDatabase } from '../test/kit.ts';

/** A replica on this database, which can be cut off, and whose rounds of renewal the test makes one by one. */
function replica(database: Database, clock: ManualClock = manualClock()) {
  let rounds = 0;
  let isCut = false;
  const lines: string[] = [];
  const lease = openLease({
    database: {
      ...database,
      async query<Row>(...[statement, values]: Parameters<Database['query']>): Promise<Row[]> {
        const name = typeof statement === 'string' ? statement : statement.name;
        if (isCut) rounds += 1;
        if (isCut) throw new DatabaseUnavailable('cut off', 'not_executed');
        const rows = await database.query<Row>(statement, values);
        if (name === 'kit_other_leases') rounds += 1;
        return rows;
      },
    },
    log: { ...silentLog, warn: (_fields, text) => void lines.push(text) },
    clock,
  });
  return {
    lease,
    clock,
    lines,
    cut: (isNow: boolean): void => {
      isCut = isNow;
    },
    /** Five seconds each. */
    renewals: async (count: number): Promise<void> => {
      for (let done = 0; done < count; done += 1) {
        const before = rounds;
        await until('the pause', () => clock.sleeping > 0);
        await clock.advance(5_000);
        await until('a renewal', () => rounds > before);
        await until('the next pause', () => clock.sleeping > 0);
      }
    },
  };
}

const rowsOf = async (database: Database): Promise<string[]> => {
  const rows = await database.query<{ id: string }>(
    'SELECT replica_id AS id FROM duebridge_partner.replica ORDER BY 1',
  );
  return rows.map(({ id }) => id);
};

test('no call starts 20 s after the last renewal, or when the machine slept; an outage is logged once [LV1 LV7 KT13]', async (t) => {
  const database = await kitDatabase(t);
  const { lease, clock, lines, cut, renewals } = replica(database);
  assert.deepEqual([lease.covers(lease.replica_id), lease.isRenewed()], [false, true]);
  cut(true);
  await assert.rejects(lease.hold(), DatabaseUnavailable);
  cut(false);
  const id = await lease.hold();
  await renewals(2);
  assert.equal(lease.covers(id), true);
  assert.equal(lease.covers('another'), false);
  cut(true);
  await renewals(3);
  await clock.advance(4_999);
  assert.deepEqual([lease.covers(id), lease.isRenewed()], [true, true]);
  await clock.advance(1);
  assert.deepEqual([lease.covers(id), lease.isRenewed()], [false, false]);
  assert.deepEqual(lines, ['could not renew the lease']);
  cut(false);
  await renewals(1);
  assert.equal(lease.covers(id), true, 'nobody had taken it for dead');
  clock.stepWallClock(20_000);
  assert.equal(lease.covers(id), false);
  await renewals(1);
  assert.equal(lease.covers(id), true);
  await lease.stop();
  assert.deepEqual(await rowsOf(database), []);
});

test('a replica that has not renewed for 30 s is dead, and goes on under a new id; an outage kills nobody [KT2 LV1]', async (t) => {
  const database = await kitDatabase(t);
  const [still, other] = [replica(database), replica(database)];
  const before = await still.lease.hold();
  await other.lease.hold();
  await other.renewals(1);
  // The watcher saw nothing for an hour: that counts as ten seconds.
  other.cut(true);
  await other.renewals(1);
  await other.clock.advance(3_600_000);
  other.cut(false);
  await other.renewals(4);
  assert.ok((await rowsOf(database)).includes(before));
  // A change counts, whatever the time is.
  await database.query(
    `UPDATE duebridge_partner.replica SET lease_until = lease_until - interval '1 day' WHERE replica_id = $1`,
    [before],
  );
  await other.renewals(6);
  assert.ok((await rowsOf(database)).includes(before));
  await other.renewals(1);
  assert.deepEqual(await rowsOf(database), [other.lease.replica_id]);

  await still.renewals(1);
  assert.equal(still.lease.covers(before), false);
  const after = await still.lease.hold();
  assert.notEqual(after, before);
  assert.equal(still.lease.covers(after), true);
  await accepted(database, ['asked']);
  await database.transaction((tx) => claimPayments(tx, ['asked'], other.lease.replica_id));
  await other.lease.stop();
  await still.lease.stop();
  assert.deepEqual(await rowsOf(database), [other.lease.replica_id], 'it may still be calling');
});

test('a payment of a replica that lives is claimed by no other; a dead one’s is, and its outcome is unknown [KT2 KT13]', async (t) => {
  const database = await kitDatabase(t);
  const [alive, other]: [Lease, Lease] = [replica(database).lease, replica(database).lease];
  const [me, foreign] = [await alive.hold(), await other.hold()];
  const dead = '00000000-0000-4000-8000-000000000001';
  const claim = (ids: readonly string[], by: string): Promise<Map<string, Claim>> =>
    database.transaction((tx) => claimPayments(tx, ids, by));
  await accepted(database, ['free', 'own', 'foreign', 'left', 'later']);
  await claim(['own'], me);
  await claim(['foreign'], foreign);
  await claim(['left'], dead);
  await claim(['later'], me);
  const later = { platform_payment_id: 'later', until: null };
  await postponePayments(database, [{ ...later, frees: foreign }]);
  assert.deepEqual(
    await claim(['later'], me),
    new Map([['later', { is_known: false, is_first: false }]]),
  );
  await postponePayments(database, [{ ...later, frees: me }]);
  assert.deepEqual(
    await claim(['free', 'own', 'foreign', 'left', 'later'], me),
    new Map([
      ['free', { is_known: true, is_first: true }],
      ['own', { is_known: false, is_first: false }],
      ['left', { is_known: false, is_first: false }],
      ['later', { is_known: true, is_first: false }],
    ]),
  );
  await Promise.all([alive.stop(), other.stop()]);
});

test('two replicas that claim a payment at the same moment: one gets it [KT2]', async (t) => {
  const database = await kitDatabase(t);
  const leases = [replica(database).lease, replica(database).lease];
  await accepted(database, ['p']);
  const got = await Promise.all(
    leases.map(async (lease) => {
      const by = await lease.hold();
      return database.transaction((tx) => claimPayments(tx, ['p'], by));
    }),
  );
  assert.equal(got.filter((one) => one.size === 1).length, 1);
  await Promise.all(leases.map((lease) => lease.stop()));
});
