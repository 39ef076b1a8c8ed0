/** Workers that share out a budget without a lock: in whatever order their statements run, never more than the budget is used. */
import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import type { Queryable } from '../store/payments.ts';
import { evenParts, Shares } from './shares.ts';
import { idleWorker, engineRig } from './testing.ts';

test('shares of a budget never exceed it or the demand, and the remainder rotates', () => {
  fc.assert(
    fc.property(
      fc.nat({ max: 200 }),
      fc.array(fc.nat({ max: 100 }), { minLength: 1, maxLength: 8 }),
      fc.nat(),
      (cap, needs, turn) => {
        const parts = evenParts(cap, needs, turn);
        const sum = parts.reduce((total, part) => total + part, 0);
        assert.ok(parts.every((part, index) => part >= 0 && part <= (needs[index] ?? 0)));
        const wanted = needs.reduce((total, need) => total + need, 0);
        assert.equal(sum, Math.min(cap, wanted));
        const hungry = parts.filter((part, index) => part < (needs[index] ?? 0));
        if (hungry.length > 1) assert.ok(Math.max(...hungry) - Math.min(...hungry) <= 1);
      },
    ),
  );
  assert.deepEqual(
    [0, 1, 2, 3].map((turn) => evenParts(1, [5, 5, 5], turn).indexOf(1)),
    [0, 1, 2, 0],
  );
});

/** The table of claims in memory; each statement runs at once, at the moment that `turn` lets it. */
function claimsTable(turn: () => Promise<void>): { on: Queryable; lost: () => boolean } & {
  lose: (next: () => boolean) => void;
} {
  const rows = new Map<string, Record<string, unknown>>();
  let isLost = (): boolean => false;
  const on: Queryable = {
    async query<Row>(
      statement: Parameters<Queryable['query']>[0],
      values: readonly unknown[] = [],
    ) {
      await turn();
      assert(typeof statement === 'object');
      const done = (): Row[] => {
        switch (statement.name) {
          case 'share_read': {
            const [partners, me] = values as [string[], string];
            return [...rows.values()].filter(
              (row) => partners.includes(String(row['partner_id'])) && row['worker_id'] !== me,
            ) as Row[];
          }
          case 'share_claim': {
            const [worker_id, partners, ...numbers] = values as [string, string[], ...number[][]];
            for (const [index, partner_id] of partners.entries()) {
              const [calls, calls_need, rate, rate_need] = numbers.map((column) => column[index]);
              const row = { partner_id, worker_id, calls, calls_need, rate, rate_need };
              rows.set(`${partner_id} ${worker_id}`, row);
            }
            return [];
          }
          case 'share_drop': {
            const [worker_id, partners] = values as [string, string[]];
            for (const partner_id of partners) rows.delete(`${partner_id} ${worker_id}`);
            return [];
          }
          default:
            return assert.fail(statement.name);
        }
      };
      const before = isLost();
      if (before) throw new Error('not executed');
      const result = done();
      if (isLost()) throw new Error('executed, and the answer lost');
      return result;
    },
  };
  return { on, lost: () => isLost(), lose: (next) => void (isLost = next) };
}

test('whatever the order of four workers’ statements, and whichever answers are lost, the budget is kept', async () => {
  const step = fc.record({
    need: fc.nat({ max: 12 }),
    finish: fc.nat({ max: 12 }),
    lost: fc.nat({ max: 9 }),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.integer({ min: 1, max: 10 }),
      fc.array(fc.array(step, { maxLength: 8 }), { minLength: 2, maxLength: 4 }),
      async (scheduler, cap, workers) => {
        const used = workers.map(() => 0);
        const check = (): void => {
          const sum = used.reduce((total, one) => total + one, 0);
          assert.ok(sum <= cap, `${sum} calls of ${cap} at once`);
        };
        const table = claimsTable(() => scheduler.schedule(Promise.resolve()));
        const live = async (
          index: number,
          steps: readonly { need: number; finish: number; lost: number }[],
        ) => {
          const shares = new Shares(table.on, `w${index}`, 10_000);
          let share = 0;
          for (const [turn, { need, finish, lost }] of steps.entries()) {
            // Calls start up to the share and end whenever they like.
            used[index] = Math.max(used[index] ?? 0, Math.min(share, need));
            check();
            used[index] = Math.max(0, (used[index] ?? 0) - finish);
            const want = { cap, need, inUse: used[index] };
            let left = lost;
            table.lose(() => left-- === 1);
            try {
              const granted = await shares.exchange(
                new Map([['acme', { calls: want, rate: { cap, need: 0, inUse: 0 } }]]),
                turn * 5_000,
                (_, restricted) => {
                  // Up to this moment more may have started.
                  used[index] = Math.max(used[index] ?? 0, Math.min(share, need));
                  share = Math.min(share, Math.max(restricted.calls, used[index]));
                  return used[index];
                },
              );
              share = granted.get('acme')?.calls ?? 0;
            } catch {
              // What was restricted stays so.
            }
          }
        };
        const lives = Promise.all(workers.map((steps, index) => live(index, steps)));
        await scheduler.waitFor(lives);
      },
    ),
    { numRuns: 300 },
  );
});

test('two workers get even shares, a newcomer gets its own, and claims of dead workers are freed', async (t) => {
  const { database } = await engineRig(t);
  for (const worker of ['w1', 'w2', 'w3']) await idleWorker(database, worker, []);
  const demand = { cap: 12, need: 12, inUse: 0 };
  const ask = async (shares: Shares): Promise<number | undefined> => {
    const granted = await shares.exchange(
      new Map([['acme', { calls: demand, rate: demand }]]),
      0,
      () => 0,
    );
    return granted.get('acme')?.calls;
  };
  const [one, two, three] = ['w1', 'w2', 'w3'].map((id) => new Shares(database, id, 10_000));
  assert(one && two && three);
  assert.equal(await ask(one), 12);
  assert.equal(await ask(two), 0, 'what the first has claimed is not used twice');
  assert.equal(await ask(one), 6);
  assert.equal(await ask(two), 6);
  assert.equal(await ask(three), 0);
  for (const shares of [one, two, three]) await ask(shares);
  for (const shares of [one, two, three]) assert.equal(await ask(shares), 4);
  await database.query(
    `UPDATE duebridge_platform.workers SET heartbeat_at = now() - interval '1 hour' WHERE worker_id = 'w1'`,
  );
  for (const shares of [two, three]) await ask(shares);
  for (const shares of [two, three]) assert.equal(await ask(shares), 6);
});
