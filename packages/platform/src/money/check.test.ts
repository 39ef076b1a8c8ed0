/**
 * The book of money: each way in which a payment's money moves is booked once, in the statement that moves it, and the check names every
 * payment whose money is not where it should be. What is at stake: a biller paid twice or never, a refund that nobody sees.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { force } from '@duebridge/runtime/testing';
import { writer } from '../../test/engine-rig.ts';
import type { SettledFunds } from '../funding.ts';
import { entryByWord } from '../store/money-book.ts';
import { listCases } from '../store/cases.ts';
import { ground, ME, settlePayments, type Ground } from '../../test/standing.ts';
import { settleByWord } from '../store/operators-acts.ts';
import { outOfBalance, readBalances, sumBook } from './balances.ts';

/** A payment of $7.00 that ended. */
async function ended(
  { standing, ends }: Ground,
  status: 'succeeded' | 'failed' = 'succeeded',
  settles = false,
): Promise<string> {
  const id = await standing('accepted');
  await ends(id, status, settles);
  return id;
}

/** The rows of a payment, as `act debit credit cents`. */
async function rowsOf({ database }: Ground, id: string): Promise<string[]> {
  const rows = await database.query<Record<string, string | number>>(
    'SELECT act, debit, credit, amount_in_cents FROM duebridge_platform.transfers WHERE id = $1 ORDER BY act',
    [id],
  );
  return rows.map((row) => Object.values(row).join(' '));
}

test('each end of a payment books what it moves, once, and the check holds at every step [PL17]', async (t) => {
  const rig = await ground(t);
  const cases: readonly [string, string[]][] = [
    [await captured(), ['settled taken owed 700']],
    [await ended(rig, 'succeeded', true), ['settled elsewhere owed 700']],
    [await settledAs({ kind: 'uncollected', reason: 'lost' }), ['settled uncollected owed 700']],
    [await settledAs({ kind: 'captured', source: 'elsewhere' }), ['settled elsewhere owed 700']],
    [await settledAs({ kind: 'refunded' }, 'failed'), ['settled taken refunded 700']],
    [await settledAs(undefined, 'failed'), []],
  ];
  async function captured(): Promise<string> {
    const id = await ended(rig);
    // Not taken yet: nothing is owed, and nothing is missing.
    assert.ok((await rig.check()).holds);
    assert.ok(await rig.settles(id));
    assert.ok(!(await rig.settles(id)), 'a second settlement changes nothing');
    return id;
  }
  async function settledAs(settled?: SettledFunds, status?: 'failed'): Promise<string> {
    const id = await ended(rig, status);
    assert.ok(await rig.settles(id, settled));
    return id;
  }
  for (const [id, rows] of cases) assert.deepEqual(await rowsOf(rig, id), rows);
  const check = await rig.check();
  assert.deepEqual(check.faults, []);
  const [acme] = check.balances;
  assert.ok(acme);
  const { taken, elsewhere, uncollected, owed, refunded } = acme;
  assert.deepEqual(
    [taken, elsewhere, uncollected, owed, refunded],
    [1_400, 1_400, 700, 2_800, 700],
  );
  assert.equal(outOfBalance(acme), 0);
  // By day: all of it today, and nothing on another.
  const [{ day } = { day: '' }] = await rig.database.query<{ day: string }>(
    'SELECT day::text AS day FROM duebridge_platform.transfers LIMIT 1',
  );
  assert.equal((await readBalances(rig.database, day))[0]?.owed, 2_800);
  assert.deepEqual(await readBalances(rig.database, '2020-01-01'), []);
});

/** What an operator states about the funds of a payment. */
const wordOn =
  (database: Ground['database']) =>
  (id: string, outcome: 'captured' | 'borne' | 'refunded' | 'released') =>
    settleByWord(database, id, { outcome, evidence: 'e' }, { reason: 'r', actor: 'ada' });

test('an operator’s word moves what was left open', async (t) => {
  const rig = await ground(t);
  const { database } = rig;
  const word = wordOn(database);
  const never = await ended(rig);
  await word(never, 'captured');
  const failed = await ended(rig, 'failed');
  await word(failed, 'refunded');
  assert.deepEqual(await rowsOf(rig, never), ['word taken owed 700']);
  assert.deepEqual(await rowsOf(rig, failed), ['word taken refunded 700']);
  assert.deepEqual((await rig.check()).faults, []);
  // Taken early, for a payment that failed: it is with the customer again, whatever the processor calls it.
  for (const outcome of ['refunded', 'released'] as const) {
    assert.deepEqual(entryByWord(outcome, true), { debit: 'under_way', credit: 'refunded' });
  }
  assert.equal(entryByWord('released', false), undefined);
});

test('an operator’s word and a worker’s settlement, or two words, at the same moment book one of them', async (t) => {
  const rig = await ground(t);
  const { database } = rig;
  const word = wordOn(database);
  /** A payment that succeeded, whose funds were lost before its end. */
  const lost = async (): Promise<string> => {
    const id = await ended(rig);
    await database.query(
      `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, reference, state) VALUES ($1, 'a', 'r', 'uncollected')`,
      [id],
    );
    return id;
  };
  const waiting = async (count: number): Promise<void> => {
    for (;;) {
      const waits = await database.query(
        `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      if (waits.length === count) return;
    }
  };
  const id = await lost();
  let said: Promise<unknown> | undefined;
  await database.transaction(async (tx) => {
    const settled = { kind: 'uncollected', reason: 'gone' } as const;
    assert.deepEqual(await settlePayments(tx, writer(ME), [{ platform_payment_id: id, settled }]), [
      true,
    ]);
    // Awaited from the beginning: it may be refused before the transaction has returned.
    said = assert.rejects(word(id, 'captured'), { code: 'CONFLICT' });
    await waiting(1);
  });
  await said;
  assert.deepEqual(await rowsOf(rig, id), ['settled uncollected owed 700']);
  // What could not be collected is a case from now on.
  const [one] = await listCases(database, { platform_payment_id: id });
  assert.deepEqual(
    [one?.reason_code, one?.state, one?.amount_in_cents],
    ['uncollected', 'lost', 700],
  );

  const other = await ended(rig);
  let both: Promise<PromiseSettledResult<unknown>[]> | undefined;
  await database.transaction(async (tx) => {
    await tx.query(
      'SELECT 1 FROM duebridge_platform.payments WHERE platform_payment_id = $1 FOR UPDATE',
      [other],
    );
    both = Promise.allSettled([word(other, 'captured'), word(other, 'borne')]);
    await waiting(2);
  });
  assert.deepEqual((await both)?.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
  assert.deepEqual((await rig.check()).faults, []);
});

test('a cent that is missing, too much, or back at the customer twice is named, however the database sorts text', async (t) => {
  const rig = await ground(t, { icuLocale: 'en-US' });
  const { database } = rig;
  const settled = async (): Promise<string> => {
    const id = await ended(rig);
    await rig.settles(id);
    return id;
  };
  /** Past the trigger that keeps the book: as a bug, or a hand in the database, would. */
  const tamper = (text: string, values: unknown[]): Promise<void> => force(database, text, values);
  const [missing, other, twice, fine] = [
    await settled(),
    await settled(),
    await settled(),
    await settled(),
  ];
  const ofBook = 'duebridge_platform.transfers';
  await assert.rejects(
    database.query(`UPDATE ${ofBook} SET amount_in_cents = 1`),
    /kept as they are/,
  );
  await assert.rejects(database.query(`DELETE FROM ${ofBook}`), /kept as they are/);
  await tamper(`DELETE FROM ${ofBook} WHERE id = $1`, [missing]);
  await tamper(`UPDATE ${ofBook} SET amount_in_cents = 701 WHERE id = $1`, [other]);
  for (const act of ['returned', 'refunded_late']) {
    await database.query(
      `INSERT INTO ${ofBook} SELECT amount_in_cents, day, id, $2, 'uncollected', 'returned', partner_id, biller_id FROM ${ofBook} WHERE id = $1 AND act = 'settled'`,
      [twice, act],
    );
  }
  const { faults, holds } = await rig.check();
  assert.ok(!holds);
  assert.deepEqual(faults.toSorted(), [
    `payment ${missing} of acme: its biller is owed $7.00, and the book has nothing`,
    `payment ${other} of acme: its biller is owed $7.00, and the book has $7.01`,
    `payment ${twice} of acme: $14.00 went back to the customer, and only $7.00 were taken`,
  ]);
  assert.ok(!faults.join().includes(fine));
});

test('days that are over are added up once, whatever the clock of a replica', async (t) => {
  const rig = await ground(t);
  const { database } = rig;
  await rig.settles(await ended(rig));
  /** The same payment again, `days` from today, as the book has it. */
  const booked = (id: string, days: number): Promise<void> =>
    force(
      database,
      `INSERT INTO duebridge_platform.transfers SELECT amount_in_cents, now()::date + $2::int, $1, act, debit, credit, partner_id, biller_id
           FROM duebridge_platform.transfers WHERE id NOT IN ('early', 'late')`,
      [id, days],
    );
  const owed = async (): Promise<number | undefined> => (await readBalances(database))[0]?.owed;
  const summed = `SELECT cents FROM duebridge_platform.book_sums WHERE account = 'owed'`;
  const kept = async (): Promise<unknown> =>
    (await database.query<{ cents: number }>(summed))[0]?.cents;
  const sum = (days: number): Promise<void> =>
    sumBook(database, Date.now() + days * 24 * 3_600_000);
  await booked('early', -5);
  // A clock that is slow or fast by days, and two replicas at once.
  await sum(-9);
  assert.deepEqual([await kept(), await owed()], [undefined, 1_400]);
  await Promise.all([sum(9), sum(9)]);
  assert.deepEqual([await kept(), await owed()], [-700, 1_400]);
  await booked('late', 0);
  assert.equal(await owed(), 2_100);
});
