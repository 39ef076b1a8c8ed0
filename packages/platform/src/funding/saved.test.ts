/** What is to be forgotten at a processor: what fails stays, and keeps nothing else from being forgotten. */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { createLogger } from '@duebridge/runtime';
import { testDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import type { FundingAdapter } from './adapter.ts';
import { forgetSaved } from './saved.ts';

test('saved methods that cannot be forgotten stay and are logged, and delay no others', async () => {
  const database = await testDatabase({ after }, { migrations, name: 'saved' });
  // More than one sweep deletes: of an adapter that is not configured, of one that fails, and last one that can be deleted.
  await database.query(
    `INSERT INTO duebridge_platform.saved_customers (flow_id, adapter, reference, forgotten_at)
     SELECT decode(lpad(n::text, 64, '0'), 'hex'), CASE WHEN n <= 30 THEN 'gone' ELSE 'cards' END,
            CASE WHEN n = 61 THEN 'good' ELSE 'bad' END, now() - interval '1 day' + n * interval '1 second'
       FROM generate_series(1, 61) AS n`,
  );
  const forgotten: string[] = [];
  const saved = {
    forget: (reference: string) => {
      if (reference === 'bad') return Promise.reject(new Error('no answer'));
      forgotten.push(reference);
      return Promise.resolve();
    },
  };
  const adapters = new Map([['cards', { name: 'cards', saved } as unknown as FundingAdapter]]);
  const logged: string[] = [];
  const log = createLogger({
    name: 'test',
    level: 'warn',
    destination: { write: (line: string) => void logged.push(line) },
  });
  for (let sweep = 0; sweep < 2; sweep += 1) await forgetSaved(database, adapters, log);
  assert.deepEqual(forgotten, ['good']);
  const rows = await database.query<{ adapter: string; rows: number }>(
    `SELECT adapter, count(*)::int AS rows FROM duebridge_platform.saved_customers GROUP BY 1 ORDER BY 1`,
  );
  assert.deepEqual(rows, [
    { adapter: 'cards', rows: 30 },
    { adapter: 'gone', rows: 30 },
  ]);
  assert.match(logged.join(''), /"adapter":"gone".*not configured/);
});
