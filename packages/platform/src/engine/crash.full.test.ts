/**
 * A worker process killed at every numbered step of a payment, and another that takes over (F81): nothing lost, nothing doubled.
 *
 * This file is its own victim: with CRASH_AT set it is the worker that takes the payments over and kills itself at that step.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import test, { describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openDatabase, silentLog, systemClock } from '@duebridge/runtime';
import { createEngine, type EngineStep } from './engine.ts';
import {
  SEAL_KEY,
  scriptedPartner,
  SHORT_TIMES,
  STEPS,
  engineRig,
  sandboxFunds,
} from '../../test/engine-rig.ts';
import { auditOfPayment } from '../store/audit.ts';
import { ARRIVALS } from '../store/payments.ts';
import { createPartnerClient } from '../partners/client.ts';
import { openPartnerRegistry } from '../partners/registry.ts';

/** Short, so that the survivor need not wait long; a worker that loses such a lease on a busy machine does no harm either. */
const TIMES = { ...SHORT_TIMES, leaseMs: 700, beatMs: 100 };

/** Payments of one round; the victim dies at the first, or (every other step) at the last, that comes to the step. */
const PAYMENTS = 6;

const crashAt = process.env['CRASH_AT'];
if (crashAt === undefined) {
  // A round mostly waits for a lease to run out, so several share the machine.
  describe('a worker is killed and another takes over', { concurrency: 3 }, () => {
    for (const [index, step] of STEPS.entries()) {
      const nth = index % 2 === 0 ? 1 : PAYMENTS;
      test(`killed ${step.replaceAll('_', ' ')}, nothing is lost or doubled [S4 PF2 RU2 F81 F86]`, (t) =>
        round(t, step, nth));
    }
  });
} else {
  await victim(process.env['CRASH_DATABASE'] ?? '', crashAt, Number(process.env['CRASH_NTH']));
}

async function round(
  t: Parameters<typeof engineRig>[0],
  step: EngineStep,
  nth: number,
): Promise<void> {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const survivor = rig.engine({ options: TIMES });
  const rows = await Promise.all(
    Array.from({ length: PAYMENTS }, () => rig.pay(survivor, 'acme', { slot: ARRIVALS })),
  );
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url)], {
    env: {
      ...process.env,
      CRASH_AT: step,
      CRASH_NTH: String(nth),
      CRASH_DATABASE: rig.database.url,
      NODE_TEST_CONTEXT: '',
    },
    stdio: 'ignore',
  });
  t.after(() => Promise.resolve(void child.kill('SIGKILL')));
  const [, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
  assert.equal(signal, 'SIGKILL', 'the worker did not come to the step');
  await survivor.start();
  for (const row of rows) {
    const done = await rig.until(row.platform_payment_id, (now) => now.settled_at !== null);
    assert.equal(done.status, 'succeeded');
  }
  // The partner has each once, and was sent only equal PUTs.
  assert.deepEqual(
    partner.created.toSorted(),
    rows.map((row) => row.platform_payment_id).toSorted(),
  );
  const puts = partner.seen
    .filter((seen) => seen.method === 'PUT')
    .map((seen) => `${seen.path} ${seen.body}`);
  assert.equal(new Set(puts).size, PAYMENTS);
  // The customer was charged once, and the audit holds one acceptance and one end.
  const acts = await rig.database.query(
    'SELECT act, count(*)::int AS count FROM duebridge_platform.sandbox_funds GROUP BY act ORDER BY act',
  );
  assert.deepEqual(acts, [
    { act: 'authorize', count: PAYMENTS },
    { act: 'capture', count: PAYMENTS },
  ]);
  for (const row of rows) {
    const trail = await auditOfPayment(rig.database, row.platform_payment_id);
    assert.deepEqual(
      trail
        .map((line) => line.event)
        .filter((event) => ['payment_accepted', 'payment_ended', 'funds_captured'].includes(event)),
      ['payment_accepted', 'payment_ended', 'funds_captured'],
    );
  }
}

async function victim(url: string, step: string, nth: number): Promise<void> {
  const database = openDatabase({ url, applicationName: 'crash victim' });
  const base = { database, clock: systemClock, log: silentLog };
  const registry = openPartnerRegistry({ ...base, sealKey: SEAL_KEY, allowPrivateAddresses: true });
  const client = createPartnerClient({ ...base, registry, allowPrivateAddresses: true });
  let hits = 0;
  const engine = createEngine({
    ...base,
    registry,
    client,
    // The steps of the funds are told apart only where the port is asked; the survivor writes them in its own statements.
    funding: sandboxFunds(database),
    options: {
      ...TIMES,
      reached(reached) {
        if (reached !== step) return;
        hits += 1;
        if (hits === nth) process.kill(process.pid, 'SIGKILL');
      },
    },
  });
  await engine.start();
  // Long enough for any step; a victim that never comes to it ends by itself and fails the test.
  await systemClock.sleep(15_000);
  process.exit(0);
}
