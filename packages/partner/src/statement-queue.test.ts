/** How many statements are read at once, and how much of a batch is held in memory. The database is the test's. */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Database } from '@duebridge/runtime';
import { batchLines, openStatements } from './statement.ts';
import { settle } from '../test/kit.ts';

/** Transactions that wait for the test, over batches whose lines it gives. */
function reading(pages: readonly string[] = []) {
  const begun: { options: unknown; end: () => void; fail: () => void }[] = [];
  let left = [...pages];
  const tx = {
    query(text: string) {
      if (text.startsWith('SELECT')) {
        return Promise.resolve([{ status: 'succeeded', count: 1, amount_in_cents: 1 }]);
      }
      if (!text.startsWith('FETCH')) return Promise.resolve([]);
      const [lines, ...rest] = left;
      left = rest;
      return Promise.resolve(lines === undefined ? [] : [{ lines }]);
    },
  };
  const state = { isHeld: true };
  const database = {
    async transaction(work: (on: typeof tx) => Promise<unknown>, options: unknown) {
      const held = Promise.withResolvers<void>();
      begun.push({ options, end: held.resolve, fail: () => held.reject(new Error('cut off')) });
      if (state.isHeld) await held.promise;
      return work(tx);
    },
  } as unknown as Database;
  return { database, begun, state };
}

test('two statements are read at once, fifty wait, and the next caller is told to retry [LI1]', async () => {
  const { database, begun } = reading();
  const statementOf = openStatements(database);
  const ask = (batch: number) => statementOf(`b-${batch}`);
  const asked = [ask(0), ask(1)];
  await settle();
  for (let batch = 2; batch < 52; batch += 1) asked.push(ask(batch));
  await settle();
  assert.equal(begun.length, 2);
  await assert.rejects(statementOf('one too many'), { code: 'SERVICE_UNAVAILABLE' });
  // One that fails frees its place like any other.
  begun[0]?.fail();
  await assert.rejects(asked[0] ?? Promise.resolve(), /cut off/);
  await settle();
  assert.equal(begun.length, 3);
  for (let one = 1; one < 52; one += 1) {
    begun[one]?.end();
    await asked[one];
    await settle();
  }
  assert.equal(begun.length, 52);
});

test('the lines of a batch are a file of 64 MiB at most [PF3 LI1]', async () => {
  const half = 'x'.repeat(32 * 1024 * 1024);
  const whole = reading([half, half]);
  whole.state.isHeld = false;
  assert.deepEqual(
    (await batchLines(whole.database, 'b')).map(({ length }) => length),
    ['platform_payment_id,status,amount_in_cents\n'.length, half.length, half.length],
  );
  assert.deepEqual(whole.begun[0]?.options, {
    isolation: 'repeatable read',
    statementTimeoutMs: 60_000,
  });
  const larger = reading([half, half, '\n']);
  larger.state.isHeld = false;
  await assert.rejects(batchLines(larger.database, 'b'), { code: 'PAYLOAD_TOO_LARGE' });
  const least = reading(['\n']);
  least.state.isHeld = false;
  assert.equal((await batchLines(least.database, 'b')).length, 2);
});
