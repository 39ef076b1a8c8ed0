/** What the parts of a platform are opened with. Each takes of it what it needs, as a `Pick` of these names. */
import type { KeyObject } from 'node:crypto';
import type { Clock, Database, Log, Metrics } from '@duebridge/runtime';
import type { Engine } from './engine/engine.ts';
import type { Funds } from './funding/funds.ts';
import type { PartnerClient } from './partners/client.ts';
import type { PartnerRegistry } from './partners/registry.ts';
import type { Sealer } from './partners/seal.ts';
import type { Attempts } from './store/attempts.ts';

/** One of each in a process. */
export interface Services {
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly client: PartnerClient;
  readonly funding: Funds;
  readonly engine: Engine;
  readonly attempts: Attempts;
  readonly sealer: Sealer;
  /** The server's secret under which keys and customers are digested, so that nobody who reads the database alone can try one. */
  readonly pepper: KeyObject;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}
