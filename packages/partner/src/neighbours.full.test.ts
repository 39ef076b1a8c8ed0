/** No payment waits for another: one that is locked, refused, hung, slow or late delays only itself. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { silentLog, systemClock, type Database } from '@duebridge/runtime';
import type { TestDatabase } from '@duebridge/runtime/testing';
import { until } from '@duebridge/runtime/testing';
import { Applier, type ApplierOptions } from './apply.ts';
import { ledger } from './ledger.ts';
import { kitMetrics } from './metrics.ts';
import { findPayments } from './store.ts';
import { accepted, haveAccounts, kitDatabase } from '../test/kit.ts';

/** An applier on the database, stopped with it: one that a failed test leaves behind would keep the process alive. */
function applierOn(database: TestDatabase, options: Partial<ApplierOptions> = {}): Applier {
  const applier = new Applier({
    database,
    accounts: ledger(database),
    billers: undefined,
    holdMs: 0,
    announce: () => undefined,
    metrics: kitMetrics(undefined),
    log: silentLog,
    clock: systemClock,
    ...options,
  });
  let stopping: Promise<void> | undefined;
  const stop = applier.stop.bind(applier);
  applier.stop = () => (stopping ??= stop());
  database.closing(() => applier.stop());
  return applier;
}

function idsOf(count: number, prefix = 'p'): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
}

async function statusesOf(database: Database, ids: readonly string[]): Promise<string[]> {
  const rows = await findPayments(database, ids);
  return ids.map((id) => rows.get(id)?.status ?? 'absent');
}

function allAre(database: Database, ids: readonly string[], status: string): Promise<unknown> {
  return until(`${status}: ${ids.length} payments`, async () =>
    (await statusesOf(database, ids)).every((one) => one === status),
  );
}

test('an account that a batch job locks again and again gets its turn, and its job meets no deadlock [ST2 LV3 KT13]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'busy-1' }, { account_id: 'busy-2' });
  const applier = applierOn(database);
  applier.start();
  // The job holds each account for longer than a group waits, and takes the two in the other order than a posting does.
  const over = new AbortController();
  let tries = 0;
  let rounds = 0;
  const job = (async () => {
    while (!over.signal.aborted) {
      await database.transaction(async (tx) => {
        tries += 1;
        for (const account_id of ['busy-2', 'busy-1']) {
          await tx.query('SELECT FROM duebridge_partner.account WHERE account_id = $1 FOR UPDATE', [
            account_id,
          ]);
          await pause(60);
        }
      });
      rounds += 1;
    }
  })();
  try {
    for (let wave = 0; wave < 5; wave += 1) {
      const ids = idsOf(3, `busy-${wave}`);
      const rows = [
        ...(await accepted(database, ids, { account_id: 'busy-1' })),
        ...(await accepted(database, [`both-${wave}`], { account_id: 'busy-2' })),
        ...(await accepted(database, idsOf(5, `good-${wave}`))),
      ];
      applier.take(rows);
      // While the job goes on.
      await allAre(database, [...ids, `both-${wave}`, ...idsOf(5, `good-${wave}`)], 'succeeded');
    }
  } finally {
    over.abort();
    await job;
    await applier.stop();
  }
  assert.equal(tries, rounds, 'no transaction of the job was the victim of a deadlock');
});

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
