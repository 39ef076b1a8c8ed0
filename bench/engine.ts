/** The platform's engine in a database of a benchmark, as the platform opens it, with payments that are handed over when the clock starts. */
import assert from 'node:assert/strict';
import { migrate, openDatabase, silentLog, systemClock } from '@duebridge/runtime';
import { Engine } from '../packages/platform/src/engine/engine.ts';
import type { FundingAdapter } from '../packages/platform/src/funding/adapter.ts';
import { Funds } from '../packages/platform/src/funding/funds.ts';
import { migrations } from '../packages/platform/src/migrations.ts';
import { createPartnerClient } from '../packages/platform/src/partners/client.ts';
import { openPartnerRegistry } from '../packages/platform/src/partners/registry.ts';
import { openSealer } from '../packages/platform/src/partners/seal.ts';
import { batchFor } from '../packages/platform/src/reconciliation/batch.ts';
import { keepAttempts, openAttempts } from '../packages/platform/src/store/attempts.ts';
import { insertPayment, type PaymentRow } from '../packages/platform/src/store/payments.ts';

/** One partner takes at most 10,000 calls a second, 5,000 payments; with several the engine is the limit, not that budget. Each is a biller. */
const PARTNERS = ['acme-1', 'acme-2', 'acme-3', 'acme-4'];
const AUTH = { method: 'key', header: 'x-api-key', key: 'benchmark-key-0123456789' } as const;
/** The same whenever a database is opened. */
export const SEAL_KEY = Buffer.alloc(32, 7).toString('base64');
/** Payments that one transaction inserts. */
const AT_ONCE = 500;
const HANDED_OVER = {
  pollMs: 1,
  // With rounds every 2 s, as in production, the engine would find many of the payments in its slots meanwhile, drive those before
  // the clock starts, and a second time when they are handed over.
  beatMs: 600_000,
  leaseMs: 3_600_000,
};

/** How the funds of a payment are moved. */
export type Way = 'elsewhere' | 'port' | 'processor';

/** An adapter that answers at once, or after a call to the processor. */
function adapterOf(way: Way, act: (act: string, id: string) => Promise<void>): FundingAdapter {
  const method = { funding_method: way, label: way, sandbox: true } as const;
  const ask = async (name: string, id: string): Promise<void> => {
    if (way === 'processor') await act(name, id);
  };
  return {
    name: 'bench',
    methods: () => [way === 'elsewhere' ? { ...method, collection: 'elsewhere' } : method],
    async authorize({ platform_payment_id }) {
      await ask('authorize', platform_payment_id);
      return { kind: 'authorized', expires_at: Date.now() + 7 * 86_400_000 };
    },
    async capture({ platform_payment_id }) {
      await ask('capture', platform_payment_id);
      return { kind: 'captured' };
    },
    void: () => Promise.resolve('released'),
    refund: () => Promise.resolve(),
  };
}

/** Starts it. `make` inserts payments; `finish` writes the evidence that still waits in memory. */
export async function openEngine(
  url: string,
  partnerUrl: string,
  way: Way,
  concurrency: number,
  act: (act: string, id: string) => Promise<void> = () => Promise.resolve(),
) {
  // As the platform opens the pool of its engine.
  const pool = { maxConnections: 8, plansByKey: true };
  const database = openDatabase({ url, applicationName: 'bench drive', ...pool });
  await migrate(database, migrations);
  const base = { database, clock: systemClock, log: silentLog };
  const registry = openPartnerRegistry({ ...base, sealKey: SEAL_KEY, allowPrivateAddresses: true });
  for (const partner_id of PARTNERS) {
    // Of an earlier time with this database.
    if ((await registry.get(partner_id)) !== undefined) continue;
    const budget = {
      max_concurrent_calls: Math.ceil(concurrency / PARTNERS.length),
      max_calls_per_second: 10_000,
      wait_seconds: 0,
    };
    const biller = { partner_id, name: 'Acme', kind: 'biller', biller_id: partner_id } as const;
    await registry.add(
      { ...biller, base_url: partnerUrl, origins: [], budget, auth: AUTH },
      'bench',
    );
  }
  // As the platform does: evidence of every call, written every few seconds through a pool of its own.
  const front = openDatabase({ url, applicationName: 'bench evidence', maxConnections: 2 });
  const attempts = openAttempts({ ...base, database: front, sealer: openSealer(SEAL_KEY) });
  const recording = new AbortController();
  const recorded = keepAttempts({ attempts, clock: systemClock, signal: recording.signal });
  const client = createPartnerClient({
    ...base,
    registry,
    allowPrivateAddresses: true,
    answered: (call) => attempts.note(call),
  });
  const adapters = [adapterOf(way, act)];
  const funding = new Funds({ ...base, sealer: openSealer(SEAL_KEY), adapters });
  const engine = new Engine({ ...base, registry, client, funding, options: HANDED_OVER });
  await engine.start();

  async function make(count: number): Promise<PaymentRow[]> {
    const places = await Promise.all(
      PARTNERS.map(async (partner_id) => {
        const partner = await registry.get(partner_id);
        assert(partner);
        return { partner, platform_batch_id: await batchFor(database, partner, Date.now()) };
      }),
    );
    const rows: PaymentRow[] = [];
    while (rows.length < count) {
      await database.transaction(async (tx) => {
        for (let left = Math.min(AT_ONCE, count - rows.length); left > 0; left -= 1) {
          const place = places[left % places.length];
          assert(place);
          const row = await insertPayment(tx, {
            partner_id: place.partner.partner_id,
            biller_id: place.partner.partner_id,
            account_id: 'A-1',
            platform_batch_id: place.platform_batch_id,
            amount_in_cents: 12_345,
            funding_method: way,
            ...engine.placeForNew(place.partner, { funding_method: way }),
          });
          await funding.keep(tx, row, undefined);
          rows.push(row);
        }
      });
    }
    return rows;
  }

  return {
    database,
    engine,
    make,
    finish: () => attempts.flush(true),
    async close() {
      await engine.stop();
      await client.close();
      recording.abort();
      await recorded;
      await front.close();
      await database.close();
    },
  };
}
