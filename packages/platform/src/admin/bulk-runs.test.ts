/** Bulk runs between processes: what is found in the audit, what is done again, and who may write. */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { Refusal, type BulkAct, type BulkRunDetail } from '@duebridge/contract';
import { silentLog, systemClock, type Clock } from '@duebridge/runtime';
import { eventually, keptLog } from '../engine/testing.ts';
import { note } from '../store/audit.ts';
import { ground, type Ground } from '../store/standing.ts';
import { closePayment, resumePayment, withdrawPayment } from '../store/terminal.ts';
import { closeReview } from './close-review.ts';
import { openBulkRuns, type BulkActs, type BulkRuns } from './bulk-runs.ts';

const ACTOR = 'ada';
const REASON = 'ticket 20';

/** Waits a hundredth of the time. */
const quick: Clock = { ...systemClock, sleep: (ms, signal) => systemClock.sleep(ms / 100, signal) };

/** One process that drives runs, whose acts are given. `end` returns when it has ended what it had begun. */
function runsOf(
  t: TestContext,
  rig: Ground,
  act: BulkActs['act'],
  mayAct: BulkActs['mayAct'] = () => Promise.resolve(true),
): BulkRuns & { end: () => Promise<void> } {
  const preview: BulkActs['preview'] = (_act, ids) =>
    Promise.resolve(
      ids.map((platform_payment_id) => ({
        platform_payment_id,
        payment: null,
        refused: false,
        would: 'be acted on',
      })),
    );
  const acts = { preview, act, mayAct };
  const runs = openBulkRuns({ database: rig.database, acts, clock: quick, log: silentLog });
  const stopping = new AbortController();
  const driving = runs.drive(stopping.signal);
  const end = async (): Promise<void> => {
    stopping.abort();
    await driving;
  };
  t.after(end);
  return { ...runs, end };
}

async function ended(runs: BulkRuns, act: BulkAct, ids: readonly string[]): Promise<BulkRunDetail> {
  const { run } = await runs.plan(act, ids, ACTOR);
  await runs.start(run.run_id, REASON, ACTOR);
  let detail: BulkRunDetail | undefined;
  await eventually('the run ends', async () => {
    detail = await runs.get(run.run_id, 0, 100);
    return detail.run.state === 'done';
  });
  assert.ok(detail);
  return detail;
}

test('what was done before its process could record it is found in the audit, whatever the act, and not done again', async (t) => {
  const rig = await ground(t);
  const { database, standing } = rig;
  const closing = {
    status: 'failed',
    failure_reason: 'no',
    review_reason: 'amount',
    evidence: 'not_found',
    reason: REASON,
  } as const;
  const dependencies = { ...rig, secondPersonAboveCents: 0 };
  const cases: readonly [BulkAct, string, (id: string) => Promise<unknown>][] = [
    ['withdraw', await standing('created'), (id) => withdrawPayment(database, id, REASON, ACTOR)],
    ['resume', await standing('review'), (id) => resumePayment(database, id, REASON, ACTOR)],
    [
      'close',
      await standing('review'),
      (id) =>
        closePayment(database, {
          ...closing,
          platform_payment_id: id,
          actor: ACTOR,
          approved_by: null,
        }),
    ],
    [
      'close',
      await standing('review'),
      (id) =>
        closePayment(database, {
          ...closing,
          platform_payment_id: id,
          actor: 'another',
          approved_by: ACTOR,
        }),
    ],
    ['close', await refused(rig), (id) => closeReview(dependencies, id, REASON, ACTOR)],
  ];
  const calls: string[] = [];
  const runs = runsOf(t, rig, async (_act, id) => {
    calls.push(id);
    await cases.find(([, of]) => of === id)?.[2](id);
    throw new Error('the database is gone');
  });
  for (const [act, id] of cases) {
    const { run, items } = await ended(runs, act, [id]);
    assert.deepEqual([run.done, items[0]?.state], [1, 'done'], act);
    assert.match(String(items[0]?.note), /^Done earlier/);
  }
  assert.deepEqual(
    calls,
    cases.map(([, id]) => id),
    'each once',
  );
});

test('an act of another person, for another reason or before the run is not taken for that of the run', async (t) => {
  const rig = await ground(t);
  const id = await rig.standing('accepted');
  const polled = (actor: string, reason: string): Promise<void> =>
    note(rig.database, {
      actor,
      event: 'payment_polled',
      platform_payment_id: id,
      partner_id: 'acme',
      detail: { reason },
    });
  await polled(ACTOR, REASON);
  let calls = 0;
  const runs = runsOf(t, rig, async () => {
    calls += 1;
    if (calls > 1) return 'polled';
    await polled('another', REASON);
    await polled(ACTOR, 'ticket 21');
    throw new Error('the database is gone');
  });
  const { items } = await ended(runs, 'poll', [id]);
  assert.deepEqual([calls, items[0]?.note], [2, 'polled']);
});

test('a payment that this run ended meanwhile is done, although the act is refused then', async (t) => {
  const rig = await ground(t);
  const id = await rig.standing('created');
  // As when the lease ran out during the act: the other process is through first.
  const runs = runsOf(t, rig, async () => {
    await withdrawPayment(rig.database, id, REASON, ACTOR);
    throw new Refusal('CONFLICT', { message: 'too late' });
  });
  const { run } = await ended(runs, 'withdraw', [id]);
  assert.deepEqual([run.done, run.refused], [1, 0]);
});

test('a process that lost a run, or found it stopped, before it marked a payment does not act on it', async (t) => {
  const rig = await ground(t);
  const { database } = rig;
  const id = await rig.standing('accepted');
  for (const loses of [
    `UPDATE duebridge_platform.bulk_runs SET driver = 'other', driven_until = now() + interval '1 hour'`,
    `UPDATE duebridge_platform.bulk_runs SET state = 'stopped'`,
  ]) {
    let asked = 0;
    let acted = 0;
    // Asked between the lease and the mark: there a process may stand still for as long as it likes.
    const runs = runsOf(
      t,
      rig,
      () => Promise.resolve(`done ${(acted += 1)}`),
      async () => {
        asked += 1;
        await database.query(loses);
        return true;
      },
    );
    const { run } = await runs.plan('poll', [id], ACTOR);
    await runs.start(run.run_id, REASON, ACTOR);
    await eventually('it is about to act', () => Promise.resolve(asked > 0));
    await runs.end();
    const { items } = await runs.get(run.run_id, 0, 1);
    assert.deepEqual([acted, items[0]?.state], [0, 'waiting'], loses);
  }
});

test('a payment whose act fails again and again holds up no other, and is done when it can be', async (t) => {
  const rig = await ground(t);
  const ids = [await rig.standing('accepted'), await rig.standing('accepted')];
  let fails = true;
  const runs = runsOf(t, rig, (_act, id) =>
    id === ids[0] && fails ? Promise.reject(new Error('a row is locked')) : Promise.resolve('done'),
  );
  const { run } = await runs.plan('poll', ids, ACTOR);
  await runs.start(run.run_id, REASON, ACTOR);
  const states = async (): Promise<readonly string[]> =>
    (await runs.get(run.run_id, 0, 2)).items.map(({ state }) => state);
  await eventually('the other is done', async () => (await states())[1] === 'done');
  assert.deepEqual(await states(), ['acting', 'done']);
  fails = false;
  await eventually('it is done', async () => (await states())[0] === 'done');
});

/** A payment in review that its partner refused for good. */
async function refused({ database, standing }: Ground): Promise<string> {
  const id = await standing('review');
  await database.query(
    `UPDATE duebridge_platform.payments SET review_reason = 'rejected_422' WHERE platform_payment_id = $1`,
    [id],
  );
  return id;
}

test('a database that is away is told once, and again only after it was back [LV8]', async (t) => {
  const { database } = await ground(t);
  const log = keptLog();
  let looks = 0;
  const states = ['away', 'away', 'away', 'back', 'away', 'away'];
  const runs = openBulkRuns({
    database: {
      ...database,
      query: (...asked) => {
        const state = states[looks];
        looks += 1;
        return state === 'away' ? Promise.reject(new Error('away')) : database.query(...asked);
      },
    },
    acts: { preview: assert.fail, act: assert.fail, mayAct: assert.fail },
    clock: quick,
    log,
  });
  const stopping = new AbortController();
  const driving = runs.drive(stopping.signal);
  await eventually('it has looked often enough', () => looks > states.length);
  stopping.abort();
  await driving;
  assert.equal(log.lines.length, 2, JSON.stringify(log.lines));
});
