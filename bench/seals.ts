/**
 * What the seals of the audit cost (decision 135): payments driven with the audit sealed as it is written, and without seals. Rounds
 * alternate. Sealing looks every second here and takes lines of any age, so that a round seals all that it wrote; production looks every ten
 * seconds, which costs less. The processor time includes sealing what the end of a round had left.
 *
 *     node bench/seals.ts [--rounds 3] [--payments 10000] [--concurrency 64]
 */
import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { openAuditChain, systemClock, type Database } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { auditTables } from '../packages/platform/src/store/audit.ts';
import { drive, startStub } from './drive.ts';
import { benchOptions } from './options.ts';
import { ratios, report, spread } from './report.ts';

const flags = benchOptions(import.meta.main, {
  rounds: '3',
  payments: '10000',
  concurrency: '64',
});
const LOOK_MS = 1_000;

/** Seals until it is ended, and then what is left. */
function sealing(database: Database): () => Promise<void> {
  const key = createSecretKey(randomBytes(32));
  const chain = openAuditChain({ database, tables: auditTables, key, marginMs: 0 });
  const over = new AbortController();
  const done = (async () => {
    while (!over.signal.aborted) {
      await chain.seal();
      await systemClock.sleep(LOOK_MS, over.signal);
    }
    let unsealed = 1;
    for (let tries = 0; unsealed > 0 && tries < 1_000; tries += 1) {
      await chain.seal();
      const [row] = await database.query<{ lines: number }>(
        `SELECT count(*)::int AS lines FROM duebridge_platform.audit
          WHERE at > (SELECT max(to_at) FROM duebridge_platform.audit_seals)`,
      );
      unsealed = row?.lines ?? 1;
    }
    assert.equal(unsealed, 0, 'every line of the round is sealed');
  })();
  return async () => {
    over.abort();
    await done;
  };
}

async function main(): Promise<void> {
  const [rounds, payments, concurrency] = [flags.rounds, flags.payments, flags.concurrency].map(
    Number,
  ) as [number, number, number];
  const server = await testServer();
  const stub = await startStub();
  const rates: Record<'on' | 'off', number[]> = { on: [], off: [] };
  const micros: Record<'on' | 'off', number[]> = { on: [], off: [] };
  try {
    // Not counted: what Node compiles at first.
    await drive(server.url, stub.url, Math.ceil(payments / 4), concurrency, sealing);
    for (let round = 1; round <= rounds; round += 1) {
      // The first of a round is slower or faster than the second for reasons of its own, so they change places.
      for (const how of round % 2 === 0 ? (['off', 'on'] as const) : (['on', 'off'] as const)) {
        const beside = how === 'on' ? sealing : undefined;
        const { perSecond, cpu } = await drive(server.url, stub.url, payments, concurrency, beside);
        rates[how].push(perSecond);
        micros[how].push((cpu.node + cpu.postgres) * 1e6);
        console.log(`round ${round}: seals ${how}, ${Math.round(perSecond)}/s`);
      }
    }
    console.log(`${payments} payments, ${concurrency} calls at once, fsync on, ${rounds} rounds`);
    report({
      figure: 'seals',
      what: 'driven with seals / without',
      ...ratios(rates.on, rates.off),
    });
    report({
      figure: 'seals',
      what: 'processor time of a payment with seals / without',
      ...ratios(micros.on, micros.off),
    });
    for (const how of ['on', 'off'] as const) {
      const what = `processor time of a payment, Node and PostgreSQL, seals ${how}`;
      report({ figure: 'seals', what, ...spread(micros[how]), unit: 'us' });
    }
  } finally {
    stub.process.kill();
    await server.stop();
  }
}

if (import.meta.main) await main();
