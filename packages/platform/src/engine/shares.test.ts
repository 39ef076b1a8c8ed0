/** Workers that share out a budget without a lock: in whatever order their statements run, never more than the budget is used. */
import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import type { Queryable } from '../store/payments.ts';
import { evenParts, Shares, type Share, type Want } from './shares.ts';

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

/** The claims of one worker beside those of others, which stand still. */
function claimsBeside(others: readonly Record<string, unknown>[]) {
  const statements: { name: string; values: readonly unknown[] }[] = [];
  const world = { others, fails: 'none', onRead: () => undefined as unknown };
  const on: Queryable = {
    query<Row>(statement: Parameters<Queryable['query']>[0], values: readonly unknown[] = []) {
      assert(typeof statement === 'object');
      statements.push({ name: statement.name, values });
      if (world.fails === statement.name) return Promise.reject(new Error('away'));
      const found = statement.name === 'share_read' ? [...world.others] : [];
      if (statement.name === 'share_read') world.onRead();
      const partners = values[0] as readonly unknown[];
      return Promise.resolve(found.filter((row) => partners.includes(row['partner_id'])) as Row[]);
    },
  };
  const names = (): string[] => statements.splice(0).map(({ name }) => name);
  return { shares: new Shares(on, 'me', 10_000), world, statements, names };
}

const want = (cap: number, need: number, inUse = 0): Want => ({ cap, need, inUse });
const nothing = { calls: want(10, 0), rate: want(100, 0) };

test('calls at once and calls a second are two budgets, of which other workers leave different parts', async () => {
  const row = { partner_id: 'acme', worker_id: 'other', calls_need: 1, rate_need: 90 };
  const { shares, statements } = claimsBeside([{ ...row, calls: 1, rate: 70 }]);
  const told: Share[] = [];
  const granted = await shares.exchange(
    new Map([['acme', { calls: want(10, 8), rate: want(100, 40) }]]),
    0,
    (_, share) => {
      told.push(share);
      return 3;
    },
  );
  // Eight of ten calls, since the other needs one; of the rate what the other has left, which is less than its even part.
  assert.deepEqual(told, [{ calls: 8, rate: 30 }]);
  assert.deepEqual(granted, new Map([['acme', { calls: 8, rate: 30 }]]));
  assert.deepEqual(statements.find(({ name }) => name === 'share_claim')?.values, [
    'me',
    ['acme'],
    [8],
    [8],
    [30],
    [40],
  ]);
});

test('a worker never claims less than it has under way, and uses no more than its share all the same', async () => {
  const { shares, statements } = claimsBeside([
    { partner_id: 'acme', worker_id: 'other', calls: 8, calls_need: 8, rate: 0, rate_need: 0 },
  ]);
  const granted = await shares.exchange(
    new Map([['acme', { calls: want(10, 9, 1), rate: want(100, 0, 2) }]]),
    0,
    // Four more have started since the demand was counted.
    () => 5,
  );
  assert.deepEqual(statements.find(({ name }) => name === 'share_claim')?.values.slice(2), [
    [5],
    [9],
    [2],
    [0],
  ]);
  assert.deepEqual(granted.get('acme'), { calls: 2, rate: 2 });
});

test('a claim that another worker made at the same time is seen when ours has been written', async () => {
  const { shares, world } = claimsBeside([]);
  let reads = 0;
  world.onRead = () => {
    reads += 1;
    const other = { partner_id: 'acme', worker_id: 'other', calls_need: 9, rate_need: 90 };
    world.others = [{ ...other, calls: 7, rate: 60 }];
  };
  const demand = { calls: want(10, 9), rate: want(100, 90) };
  const granted = await shares.exchange(new Map([['acme', demand]]), 0, () => 0);
  assert.equal(reads, 2);
  assert.deepEqual(granted.get('acme'), { calls: 3, rate: 40 });
});

test('a steady load writes nothing and reads once; a need that ends removes the claim', async () => {
  const { shares, world, names } = claimsBeside([]);
  const exchange = async (calls: number, rate: number): Promise<string[]> => {
    await shares.exchange(
      new Map([['acme', { calls: want(10, calls), rate: want(100, rate) }]]),
      0,
      () => 0,
    );
    return names();
  };
  assert.equal(shares.has('acme'), false);
  assert.deepEqual(await exchange(4, 8), ['share_read', 'share_claim', 'share_read']);
  assert.equal(shares.has('acme'), true);
  assert.deepEqual(await exchange(4, 8), ['share_read']);
  assert.deepEqual(await exchange(2, 8), ['share_read', 'share_claim'], 'nobody has to be asked');
  assert.deepEqual(await exchange(2, 16), ['share_read', 'share_claim', 'share_read']);
  assert.deepEqual(await exchange(0, 16), ['share_read', 'share_claim']);
  // A write without an answer may have been executed: the claim is written again, even with the old numbers.
  world.fails = 'share_claim';
  await assert.rejects(exchange(0, 32));
  assert.equal(shares.has('acme'), true);
  world.fails = 'none';
  names();
  assert.deepEqual(await exchange(0, 16), ['share_read', 'share_claim', 'share_read']);
  world.fails = 'share_drop';
  await assert.rejects(exchange(0, 0));
  assert.equal(shares.has('acme'), true);
  world.fails = 'none';
  names();
  assert.deepEqual(await exchange(0, 16), ['share_read', 'share_claim', 'share_read']);
  assert.deepEqual(await exchange(0, 0), ['share_read', 'share_drop']);
  assert.equal(shares.has('acme'), false);
  await shares.exchange(new Map([['acme', nothing]]), 0, () => 0);
  assert.deepEqual(names(), ['share_read', 'share_read'], 'what is not claimed is not removed');
  await shares.exchange(new Map(), 0, () => 0);
  assert.deepEqual(names(), []);
});

test('the one call of a small budget moves to the next worker every five seconds, in the same order for all', async () => {
  const at = async (now: number): Promise<number | undefined> => {
    const row = { partner_id: 'acme', calls: 0, calls_need: 1, rate: 0, rate_need: 0 };
    const { shares } = claimsBeside([
      { ...row, worker_id: 'z' },
      { ...row, worker_id: 'a' },
    ]);
    const demand = { calls: want(1, 1), rate: want(0, 0) };
    return (await shares.exchange(new Map([['acme', demand]]), now, () => 0)).get('acme')?.calls;
  };
  // The order is a, me, z.
  assert.deepEqual(
    await Promise.all([0, 4_999, 5_000, 9_999, 10_000, 20_000].map(at)),
    [0, 0, 1, 1, 0, 1],
  );
});
