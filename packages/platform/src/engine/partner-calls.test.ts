/** What a worker notes about a partner that fails: one write at a time, and in the end the last of them stands. */
import assert from 'node:assert/strict';
import { setImmediate as immediate } from 'node:timers/promises';
import test from 'node:test';
import { silentLog } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import type { Partner } from '../partners/registry.ts';
import type { WorkerGround } from './options.ts';
import { PartnerCalls } from './partner-calls.ts';

test('however many answers ask for it, one note of a hold is under way, and in the end the last of them stands [LV3 LV6]', async () => {
  const writes: { readonly reason: string | null; readonly end: (error?: Error) => void }[] = [];
  const registry = {
    hold: (_partner_id: string, reason: string | null) =>
      new Promise<void>((resolve, reject) => {
        writes.push({ reason, end: (error) => (error ? reject(error) : resolve()) });
      }),
  };
  const [clock, times] = [manualClock(), { trialMs: 2_000 }];
  const metrics = { broken: () => undefined };
  const ground = { clock, log: silentLog, workerId: 'me', times, registry, metrics };
  const calls = new PartnerCalls(ground as unknown as WorkerGround, 'acme', { of: 1, rank: 0 });
  const acme = { partner_id: 'acme', pause_reason: null } as Partner;
  const refused = {
    kind: 'fails',
    reason: 'credentials',
    isAnswer: false,
    hold: 'credentials',
  } as const;
  const noted = (): (string | null | undefined)[] =>
    writes.map(({ reason }) => reason?.slice(0, 31));
  for (let answer = 0; answer < 20; answer += 1) calls.heed(acme, 'acme', refused);
  assert.deepEqual(noted(), ['The partner refuses the credent']);
  // The partner answers again while its row is locked.
  for (let answer = 0; answer < 20; answer += 1) calls.heed(acme, 'acme', { kind: 'works' });
  await immediate();
  assert.equal(writes.length, 1, 'a second write was begun beside the first');
  writes[0]?.end();
  await immediate();
  assert.deepEqual(noted().slice(1), [undefined], 'the last of them stands');
  assert.equal(writes[1]?.reason, null);
  // One that fails is repeated by the next answer, not by itself.
  writes[1].end(new Error('no connection'));
  await immediate();
  assert.equal(writes.length, 2);
  calls.heed({ ...acme, pause_reason: 'held' }, 'acme', { kind: 'works' });
  assert.equal(writes[2]?.reason, null);
  writes[2].end();
});
