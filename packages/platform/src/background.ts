/**
 * What a platform does beside answering: lost payments, retention, mails, seals of the audit, funds, the closing of batches, the book of money, sums and gauges. Each loop stands on
 * rows, so that any number of replicas may run it, and ends when it is told to stop.
 */
import { createSecretKey, hkdfSync } from 'node:crypto';
import {
  keepSealing,
  repeatedly,
  AuditChain,
  type Database,
  type Metrics,
} from '@duebridge/runtime';
import { sumUp } from './admin/figures.ts';
import { openGauges } from './admin/overview.ts';
import type { LostPayments } from './checkout/lost-payments.ts';
import { keepMailing } from './checkout/mail.ts';
import { forget, REST_MS } from './checkout/retention.ts';
import type { PlatformConfig } from './config.ts';
import { openBookkeeping } from './money/check.ts';
import type { Waiting } from './money/remittance.ts';
import { closeBatches } from './reconciliation/batch.ts';
import type { Services } from './services.ts';
import { auditTables } from './store/audit.ts';
import { makeMonths } from './store/months.ts';

/** Pauses of what is repeated. An hour: data is kept up to this much longer than promised. */
const HOUR_MS = 60 * 60_000;
const FUNDS_EVERY_MS = 60_000;
/** How long after its cut-off a batch may close. */
const BATCHES_EVERY_MS = 30_000;
/** When there is nothing more to add. */
const SUMS_EVERY_MS = 15_000;
/** Scrapes by several Prometheus servers must not add load. */
const GAUGES_EVERY_MS = 10_000;

/** The connections of each pool, for /metrics. */
export function measurePools(metrics: Metrics, pools: Readonly<Record<string, Database>>): void {
  for (const [pool, opened] of Object.entries(pools)) {
    for (const state of ['open', 'idle', 'waiting'] as const) {
      const what =
        state === 'waiting' ? 'Callers waiting for a connection' : `Connections ${state}`;
      metrics.gauge(
        `duebridge_pool_${pool}_${state}`,
        `${what}, ${pool}`,
        [],
        () => opened.stats()[state],
      );
    }
  }
}

/** What goes on beside the answers, until `signal` aborts; `ended` resolves then. */
export function keepWorking(
  given: Omit<Services, 'client' | 'engine' | 'attempts'> & {
    readonly config: PlatformConfig;
    readonly lost: LostPayments;
    readonly signal: AbortSignal;
    readonly remit: () => Promise<readonly Waiting[]>;
  },
): { readonly auditChain: AuditChain; readonly ended: Promise<unknown> } {
  const { config, database, registry, sealer, funding, lost, metrics, clock, log, signal } = given;
  // Keyed with what is outside the database, so that whoever can write to it cannot make seals of their own.
  const sealing = hkdfSync('sha256', given.pepper, '', 'duebridge audit seals', 32);
  const auditChain = new AuditChain({
    database,
    tables: auditTables,
    key: createSecretKey(Buffer.from(sealing)),
  });
  metrics.gauge(
    'duebridge_audit_seal_age_seconds',
    'Time since when the audit has not been sealed',
    [],
    () => auditChain.ageMs / 1_000,
  );
  const on = { clock, log, signal };
  const readGauges = openGauges(database, metrics, clock);
  const keepBook = openBookkeeping(given, given.remit);
  const ended = Promise.all([
    lost.watch(signal),
    config.mail && keepMailing({ ...on, database, registry, sealer, mail: config.mail }),
    keepSealing({ ...on, chain: auditChain }),
    repeatedly(on, FUNDS_EVERY_MS, 'the funding sweep failed', () => funding.sweep()),
    repeatedly(on, BATCHES_EVERY_MS, 'could not close batches', async () => {
      for (const platform_batch_id of await closeBatches(database, 'platform', signal))
        log.info({ platform_batch_id }, 'batch closed');
    }),
    repeatedly(on, SUMS_EVERY_MS, 'could not add up the ends of payments', () => sumUp(database)),
    repeatedly(on, GAUGES_EVERY_MS, 'could not read the gauges of waiting payments', readGauges),
    repeatedly(on, HOUR_MS, 'could not make the partitions of the next months', async () => {
      const partitions = await makeMonths(database);
      if (partitions.length > 0)
        log.info({ partitions }, 'the partitions of the next months are made');
    }),
    repeatedly(on, HOUR_MS, 'retention sweep failed', async () => {
      const removed = await forget(database, () => clock.sleep(REST_MS, signal));
      log.debug(removed, 'retention sweep done');
    }),
    repeatedly(on, HOUR_MS, 'the hourly check of the book failed', keepBook),
  ]);
  return { auditChain, ended };
}
