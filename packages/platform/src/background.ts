/**
 * What a platform does beside answering: lost payments, retention, mails, seals of the audit, funds, the book of money, sums and gauges. Each loop stands on
 * rows, so that any number of replicas may run it, and ends when it is told to stop.
 */
import { createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';
import {
  keepSealing,
  AuditChain,
  type Clock,
  type Database,
  type Log,
  type Metrics,
} from '@duebridge/runtime';
import { keepSums } from './admin/figures.ts';
import { keepGauges } from './admin/overview.ts';
import type { LostPayments } from './checkout/lost-payments.ts';
import { keepMailing } from './checkout/mail.ts';
import { keepForgetting } from './checkout/retention.ts';
import type { PlatformConfig } from './config.ts';
import type { Funds } from './funding/funds.ts';
import { keepSweeping } from './funding/sweep.ts';
import { openBookkeeping } from './money/check.ts';
import type { Waiting } from './money/remittance.ts';
import type { PartnerRegistry } from './partners/registry.ts';
import type { Sealer } from './partners/seal.ts';
import { auditTables } from './store/audit.ts';

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
export function keepWorking(given: {
  readonly config: PlatformConfig;
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly sealer: Sealer;
  readonly funding: Funds;
  readonly lost: LostPayments;
  readonly keyPepper: KeyObject;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
  readonly remit: () => Promise<readonly Waiting[]>;
}): { readonly auditChain: AuditChain; readonly ended: Promise<unknown> } {
  const { config, database, registry, sealer, funding, lost, metrics, clock, log, signal } = given;
  const { smtpUrl, mailFrom } = config;
  // Keyed with what is outside the database, so that whoever can write to it cannot make seals of their own.
  const sealing = hkdfSync('sha256', given.keyPepper, '', 'duebridge audit seals', 32);
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
  const mailing =
    smtpUrl === undefined || mailFrom === undefined
      ? Promise.resolve()
      : keepMailing({
          database,
          registry,
          sealer,
          transport: { url: smtpUrl, from: mailFrom },
          clock,
          log,
          signal,
        });
  const keepBook = openBookkeeping({ database, metrics, clock, log, remit: given.remit });
  const ended = Promise.all([
    lost.watch(signal),
    keepForgetting({ database, clock, log, signal, alsoHourly: keepBook }),
    mailing,
    keepSealing({ chain: auditChain, clock, log, signal }),
    keepSweeping({ funds: funding, clock, log, signal }),
    keepSums({ database, clock, log, signal }),
    keepGauges({ database, metrics, clock, log, signal }),
  ]);
  return { auditChain, ended };
}
