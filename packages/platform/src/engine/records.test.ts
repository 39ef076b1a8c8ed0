/**
 * The writes of a worker: combined, retried until the database answers, and given up with the lease. The database is the test's, and
 * time moves only with it; the statements themselves are tested in store/.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { DatabaseUnavailable, silentLog, type Database } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import pg from 'pg';
import { Outage } from './outage.ts';
import type { StepWrite } from '../store/steps.ts';
import { PaymentRecords, type Recorded } from './records.ts';
import { posted, POSTED_AT } from '../../test/standing.ts';

const ADVANCE: StepWrite = { kind: 'advance', to: 'dispatching' };
const END: StepWrite = { kind: 'end', by: 'partner', ending: posted(POSTED_AT) };
const SETTLE: StepWrite = { kind: 'settle' };
const away = (): Error => new DatabaseUnavailable('away', 'unknown');
const locked = (): Error =>
  new DatabaseUnavailable('locked', 'not_executed', {
    cause: Object.assign(new pg.DatabaseError('locked', 6, 'error'), { code: '55P03' }),
  });
const violated = (constraint: string): Error =>
  Object.assign(new pg.DatabaseError('violates it', 11, 'error'), { code: '23505', constraint });

/** A statement as it reached the database: its name, the ids, and all its values. */
interface Statement {
  readonly name: string;
  readonly ids: readonly string[];
  readonly values: readonly unknown[];
}

function worker() {
  const clock = manualClock();
  const stop = new AbortController();
  const world = {
    isOurs: true,
    statements: [] as Statement[],
    /** What comes of a statement that writes; default: it changes all rows. */
    answer: undefined as
      | ((statement: Statement) => Promise<readonly string[]> | undefined)
      | undefined,
  };
  const database = {
    async query(statement: string | { name: string }, values: readonly unknown[] = []) {
      const name = typeof statement === 'string' ? statement : statement.name;
      if (name === 'payment_find')
        return [{ platform_payment_id: String(values[0]), stage: 'review' }];
      if (name === 'SELECT 1') return [];
      const ids = (JSON.parse(String(values[2])) as { id: string }[]).map(({ id }) => id);
      const reached: Statement = { name, ids, values };
      world.statements.push(reached);
      const changed = (await world.answer?.(reached)) ?? ids;
      return changed.map((platform_payment_id) => ({ platform_payment_id }));
    },
  } as unknown as Database;
  const records = new PaymentRecords({
    database,
    clock,
    workerId: 'me',
    databaseNow: () => 'then',
    holdsLease: () => world.isOurs,
    outage: new Outage({ database, clock, log: silentLog, signal: stop.signal }),
    signals: { calls: stop.signal, waits: stop.signal },
  });
  return {
    clock,
    stop,
    world,
    write: (platform_payment_id: string, step: StepWrite): Promise<Recorded> =>
      records.write({ platform_payment_id, from: 'created', ...step }),
  };
}

/** Lets everything happen that needs no time. */
async function settled(): Promise<void> {
  for (let one = 0; one < 20; one += 1) await turn();
}

test('a step that changes no row is refused with the row as it is, and holds up no other [PL10 RU2]', async () => {
  const { world, write } = worker();
  world.answer = ({ ids }) => Promise.resolve(ids.filter((id) => id !== 'theirs'));
  for (const step of [ADVANCE, END, SETTLE]) {
    const [mine, theirs] = await Promise.all(['mine', 'theirs'].map((id) => write(id, step)));
    assert.deepEqual(mine, { kind: 'changed' });
    assert.deepEqual(theirs, {
      kind: 'refused',
      row: { platform_payment_id: 'theirs', stage: 'review' },
    });
  }
  assert.equal(world.statements.length, 3, 'what came together was written together');
});

test('a statement has 500 rows at most, and two are under way at once, whatever the steps are [LV8]', async () => {
  const { clock, world, write } = worker();
  const held = Promise.withResolvers<undefined>();
  world.answer = ({ ids }) => held.promise.then(() => ids);
  const steps = [ADVANCE, END, SETTLE] as const;
  const all = Array.from({ length: 1_001 }, (_, index) =>
    write(`p${index}`, steps[index % 3] ?? ADVANCE),
  );
  await settled();
  assert.deepEqual(
    world.statements.map(({ ids }) => ids.length),
    [500, 500],
  );
  await clock.advance(60_000);
  assert.equal(world.statements.length, 2, 'a third one waits for its turn');
  held.resolve(undefined);
  assert.ok((await Promise.all(all)).every(({ kind }) => kind === 'changed'));
  assert.deepEqual(world.statements.at(-1)?.ids, ['p1000']);
  assert.equal(world.statements.length, 3);
});

test('while the database is away a step waits, and is written when it answers [PL1 LV8]', async () => {
  const { clock, world, write } = worker();
  let failures = 2;
  world.answer = () => ((failures -= 1) >= 0 ? Promise.reject(away()) : undefined);
  let recorded: Recorded | undefined;
  void write('p', ADVANCE).then((it) => (recorded = it));
  await settled();
  assert.equal(world.statements.length, 1, 'it is not asked again at once');
  await clock.advance(10_000);
  assert.deepEqual(recorded, { kind: 'changed' });
  assert.equal(world.statements.length, 3);
});

test('a stop ends the waiting for a database that is away, and waits for no new outage [LV5]', async () => {
  const { stop, world, write } = worker();
  world.answer = () => Promise.reject(away());
  const waiting = write('p', ADVANCE);
  await settled();
  stop.abort();
  assert.deepEqual(await waiting, { kind: 'given_up' });
  assert.deepEqual(await write('p', ADVANCE), { kind: 'given_up' });
  assert.equal(world.statements.length, 1);
});

test('a bug in one step fails that step alone, and is not retried [LV7]', async () => {
  const { world, write } = worker();
  world.answer = ({ ids }) =>
    ids.includes('bad') ? Promise.reject(violated('payments_slot')) : undefined;
  const [good, bad] = await Promise.allSettled(
    ['good', 'bad'].map((id) => write(id, { ...END, settles: true })),
  );
  assert.deepEqual([good?.status, bad?.status], ['fulfilled', 'rejected']);
  assert.deepEqual(
    world.statements.map(({ ids }) => ids),
    [['good', 'bad'], ['good'], ['bad']],
  );
});

test('rows that a person has locked hold up no other: the rest is written at once, and they when they are free [LV3]', async () => {
  const { clock, world, write } = worker();
  const held = new Set(['held-1', 'held-2', 'held-3']);
  world.answer = ({ ids }) =>
    ids.some((id) => held.has(id)) ? Promise.reject(locked()) : undefined;
  const others = Array.from({ length: 40 }, (_, index) => `free-${index}`);
  const all = [...held, ...others].map((id) => [id, write(id, ADVANCE)] as const);
  const done: string[] = [];
  for (const [id, writing] of all) void writing.then(() => done.push(id));
  await settled();
  assert.deepEqual(new Set(done), new Set(others), 'before any time has passed');
  // Each is tried by itself from now on, and what comes later meets none of them.
  await clock.advance(5_000);
  assert.ok(world.statements.slice(-6).every(({ ids }) => ids.length === 1));
  assert.deepEqual(await write('later', ADVANCE), { kind: 'changed' });
  held.clear();
  await clock.advance(1_000);
  await Promise.all(all.map(([, writing]) => writing));
  assert.equal(done.length, all.length);
});
