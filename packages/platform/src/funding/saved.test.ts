/** What is to be forgotten at a processor: what fails stays, and keeps nothing else from being forgotten. */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { silentLog } from '@duebridge/runtime';
import { testDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import type { FundingAdapter } from './adapter.ts';
import { forgetSaved } from './saved.ts';

test('saved methods that cannot be forgotten stay, and delay no others', async () => {
  const database = await testDatabase({ after }, { migrations, name: 'saved' });
  // More than one sweep deletes: of an adapter that is not configured, of one that fails, and one that can be deleted.
  await database.query(
    `INSERT INTO duebridge_platform.saved_customers (flow_id, adapter, reference, forgotten_at)
     SELECT decode(lpad(n::text, 64, '0'), 'hex'), CASE WHEN n <= 30 THEN 'gone' ELSE 'cards' END,
            CASE WHEN n = 61 THEN 'good' ELSE 'bad' END, now() - interval '1 day' + n * interval '1 second'
       FROM generate_series(1, 61) AS n`,
  );
  const forgotten: string[] = [];
  const forget = (reference: string): Promise<void> => {
    if (reference === 'bad') return Promise.reject(new Error('no answer'));
    forgotten.push(reference);
    return Promise.resolve();
  };
  const cards = { name: 'cards', saved: { forget } } as unknown as FundingAdapter;
  // In any order: a hundred sweeps without it would be one chance in 10^70.
  for (let sweep = 0; sweep < 100 && forgotten.length === 0; sweep += 1) {
    await forgetSaved(database, new Map([['cards', cards]]), silentLog);
  }
  assert.deepEqual(forgotten, ['good']);
  const rows = await database.query<{ adapter: string; rows: number }>(
    `SELECT adapter, count(*)::int AS rows FROM duebridge_platform.saved_customers GROUP BY 1 ORDER BY 1`,
  );
  assert.deepEqual(rows, [
    { adapter: 'cards', rows: 30 },
    { adapter: 'gone', rows: 30 },
  ]);
});
