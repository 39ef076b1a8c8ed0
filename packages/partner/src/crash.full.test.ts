import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { Agent } from 'node:http';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { seededRandom, until, type TestDatabase } from '@duebridge/runtime/testing';
import { startPartner } from './server.ts';
import {
  callOver,
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  TEST_KEY,
  withKey,
} from '../test/kit.ts';

const self = fileURLToPath(import.meta.url);

// Run as a child process, this file is the partner server that gets killed.
if (process.send !== undefined && process.env['KIT_CRASH_DATABASE'] !== undefined) {
  const partner = await startPartner({
    auth: { method: 'key', header: 'x-api-key', keys: [TEST_KEY] },
    databaseUrl: process.env['KIT_CRASH_DATABASE'],
    adminKey: 'admin-key-of-the-tests',
    port: 0,
    adminPort: 0,
  });
  process.send(partner.url);
} else {
  test('acknowledged payments survive SIGKILL, end, and are posted once, round after round [RU3 RU5 PF2 ST1 ST2 KT3 KT13]', async (t) => {
    const seed = Number(process.env['SEED'] ?? 1);
    t.diagnostic(`seed ${seed}`);
    const random = seededRandom(seed);
    const database = await kitDatabase(t, 'crash');
    await haveAccounts(database, {}, { account_id: 'A-2' });
    const acknowledged = new Map<string, unknown>();
    let asked = 0;
    for (let round = 0; round < 4; round += 1) {
      const { child, url } = await startChild(database);
      const agent = new Agent({ keepAlive: true, maxSockets: 40 });
      // Killed after a number of answers drawn from the seed, with other requests still in flight.
      const killAfter = 20 + Math.floor(random() * 200);
      let answered = 0;
      await Promise.all(
        Array.from({ length: 400 }, async () => {
          // Some ids are repeated, including those whose answer was lost by a kill in an earlier round.
          const id = `p-${Math.floor(random() * (200 + round * 200))}`;
          asked += 1;
          const path = paymentPath(id, Number(id.slice(2)) % 2 === 0 ? 'A-1' : 'A-2');
          try {
            const { status, body } = await callOver(
              agent,
              `${url}${path}`,
              'PUT',
              withKey,
              instruction(100),
            );
            if (status !== 200) return;
            const { payment_id } = body;
            assert.equal(
              acknowledged.get(id) ?? payment_id,
              payment_id,
              'an id changed its payment',
            );
            acknowledged.set(id, payment_id);
            answered += 1;
            if (answered === killAfter) child.kill('SIGKILL');
          } catch (error) {
            // Cut off by the kill: it may or may not have been executed.
            assert.ok(error instanceof Error && 'code' in error, String(error));
          }
        }),
      );
      agent.destroy();
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGKILL');
        await once(child, 'exit');
      }
    }
    const { child } = await startChild(database);
    const processing = 'SELECT 1 FROM duebridge_partner.payment_processing LIMIT 1';
    await until('no payment is processing', async () => {
      return (await database.query(processing)).length === 0;
    });
    child.kill('SIGKILL');
    await once(child, 'exit');
    const rows = await database.query<{ id: string; payment_id: string; status: string }>(
      'SELECT platform_payment_id AS id, payment_id, status FROM duebridge_partner.payment',
    );
    const stored = new Map(rows.map((row) => [row.id, row]));
    for (const [id, payment_id] of acknowledged)
      assert.equal(stored.get(id)?.payment_id, payment_id, id);
    assert.deepEqual(new Set(rows.map((row) => row.status)), new Set(['succeeded']));
    const [totals] = await database.query(
      `SELECT (SELECT sum(100000 - amount_due_in_cents)::int FROM duebridge_partner.account) AS paid,
              (SELECT count(*)::int * 100 FROM duebridge_partner.payment WHERE in_ledger) AS posted`,
    );
    assert.deepEqual(totals, { paid: rows.length * 100, posted: rows.length * 100 });
    assert.ok(
      acknowledged.size >= 10 && asked === 1_600,
      'too little was acknowledged to prove anything',
    );
  });
}

async function startChild(database: TestDatabase): Promise<{ child: ChildProcess; url: string }> {
  const child = fork(self, [], {
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      KIT_CRASH_DATABASE: database.url,
    },
    execArgv: [],
  });
  const url = await new Promise<string>((resolve, reject) => {
    child.once('message', (message) => resolve(message as string));
    child.once('exit', (code) => reject(new Error(`the server ended with ${code} at its start`)));
  });
  return { child, url };
}
