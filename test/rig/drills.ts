/**
 * Faults of whole databases: a failover to a synchronous standby, and a restore of an older backup on either side. Each drill
 * runs on a rig of its own and judges itself, because a restore rightly loses everything after the backup. Reconciliation must
 * report exactly what was lost, and nothing may be posted or charged twice.
 */
import { openDatabase, type Database } from '@duebridge/runtime';
import type { Server } from '../support/processes.ts';
import { startStandby } from '../support/standby.ts';
import { pause, type Judged, type Load, type Rig } from './rig.ts';

/** Time limit for a statement of a drill. */
const STANDBY_MS = 60_000;

/** One drill. */
export interface Drill {
  readonly name: string;
  readonly kind: string;
  run(rig: Rig): Promise<Judged>;
}

/**
 * The drills, in an order in which they can run one after another on the same rig; after the failover the old primary is not
 * used.
 */
export const DRILLS: readonly Drill[] = [
  {
    name: 'the kit is restored from an older backup',
    kind: 'restore of a backup',
    run: restoreKit,
  },
  {
    name: 'the platform is restored from an older backup',
    kind: 'restore of a backup',
    run: restorePlatform,
  },
  {
    name: 'failover to a synchronous standby under load',
    kind: 'failover',
    run: failover,
  },
];

// Restores ------------------------------------------------------------------------------------------------------------------

async function restoreKit(rig: Rig): Promise<Judged> {
  rig.begin();
  const before = rig.load(6, 100);
  await before.done;
  await whileStopped(rig, rig.kits, 'theirs', async (maintenance, database) => {
    await maintenance.query(`CREATE DATABASE rig_backup TEMPLATE ${database}`);
  });
  const old = new Set(await idsOf(rig.ours, `status <> 'processing'`));
  const load = rig.load(10, 150);
  // Some have ended, some are in progress.
  for (const until = performance.now() + STANDBY_MS; performance.now() < until; await pause(20)) {
    const ended = await idsOf(rig.ours, `status <> 'processing'`);
    if (ended.filter((id) => !old.has(id)).length >= 3) break;
  }
  let endedHere = new Set<string>();
  await whileStopped(rig, rig.kits, 'theirs', async (maintenance, database) => {
    endedHere = new Set(await idsOf(rig.ours, `status <> 'processing'`));
    await maintenance.query(`DROP DATABASE ${database}`);
    await maintenance.query(`ALTER DATABASE rig_backup RENAME TO ${database}`);
  });
  await rig.heal();
  await load.done;
  const lost = await settled(rig, async () => {
    const there = new Set(await idsOf(rig.theirs));
    return [...endedHere].filter((id) => !there.has(id));
  });
  return named(rig, both(before, load), 'missing_there', lost);
}

async function restorePlatform(rig: Rig): Promise<Judged> {
  rig.begin();
  const before = rig.load(10, 120);
  await pause(900);
  // The backup contains payments in progress; after the restore they are put again.
  await whileStopped(rig, rig.workers, 'ours', async (maintenance, database) => {
    await maintenance.query(`CREATE DATABASE rig_backup TEMPLATE ${database}`);
  });
  await before.done;
  const load = rig.load(8, 100);
  await load.done;
  await settled(rig, () => Promise.resolve([]));
  await whileStopped(rig, rig.workers, 'ours', async (maintenance, database) => {
    await maintenance.query(`DROP DATABASE ${database}`);
    await maintenance.query(`ALTER DATABASE rig_backup RENAME TO ${database}`);
  });
  // Rows go back with the backup, and from there forward again.
  rig.history.events.splice(
    0,
    Infinity,
    ...rig.history.events.filter(({ kind }) => kind !== 'row'),
  );
  await rig.heal();
  const lost = await settled(rig, async () => {
    const here = new Set(await idsOf(rig.ours));
    return (await idsOf(rig.theirs)).filter((id) => !here.has(id));
  });
  return named(rig, both(before, load), 'missing_here', lost);
}

/** Judges the round without what the restore lost, and requires reconciliation to report exactly that. */
async function named(rig: Rig, load: Load, kind: string, lost: readonly string[]): Promise<Judged> {
  const found = await rig.differences();
  for (const id of lost) rig.lost.add(`${kind} ${id}`);
  const judged = await rig.judge(load, { forgiven: new Set(lost) });
  const violations = [
    ...(lost.length === 0
      ? [{ rule: 'rig', what: 'the restore lost nothing, so it showed nothing' }]
      : []),
    ...[...rig.lost.difference(found)].map((what) => ({
      rule: 'EE6',
      what: `reconciliation does not name ${what}`,
    })),
    ...[...found.difference(rig.lost)].map((what) => ({
      rule: 'EE6',
      what: `reconciliation names ${what}, which no restore lost`,
    })),
  ];
  return { ...judged, violations: [...judged.violations, ...violations] };
}

/** Waits until nothing is in progress, then asks. */
async function settled<T>(rig: Rig, ask: () => Promise<T>): Promise<T> {
  const until = performance.now() + 60_000;
  for (;;) {
    const open = await idsOf(rig.ours, 'settled_at IS NULL');
    if (open.length === 0) return ask();
    if (performance.now() > until) throw new Error(`not settled: ${open.join(' ')}`);
    await pause(100);
  }
}

function both(one: Load, other: Load): Load {
  return {
    done: Promise.all([one.done, other.done]).then(() => undefined),
    stop() {
      one.stop();
      other.stop();
    },
    callOff() {
      one.callOff();
      other.callOff();
    },
  };
}

function idsOf(database: Database, where = 'true'): Promise<string[]> {
  const table = `SELECT platform_payment_id AS id FROM`;
  return database
    .query<{ found: boolean }>(
      `SELECT to_regclass('duebridge_platform.payments') IS NOT NULL AS found`,
    )
    .then(([row]) =>
      database.query<{ id: string }>(
        `${table} ${row?.found === true ? 'duebridge_platform.payments' : 'duebridge_partner.payment'} WHERE ${where}`,
      ),
    )
    .then((rows) => rows.map(({ id }) => id));
}

/** Kills the servers of one side and runs `work` on the maintenance database while nobody is connected to theirs. */
async function whileStopped(
  rig: Rig,
  servers: readonly Server[],
  side: 'ours' | 'theirs',
  work: (maintenance: Database, database: string) => Promise<void>,
): Promise<void> {
  await Promise.all(servers.map((server) => server.kill()));
  const database = side === 'ours' ? 'rig_platform' : 'rig_partner';
  const maintenance = openDatabase({ url: rig.postgres.url, applicationName: 'crash rig' });
  // Remaining connections (the rig itself, a server killed a moment ago) would prevent copying the database.
  await rig.withoutUsers(side, maintenance, database, () => work(maintenance, database));
  await maintenance.close();
  await Promise.all(servers.map((server) => server.start()));
}

// Failover ------------------------------------------------------------------------------------------------------------------

async function failover(rig: Rig): Promise<Judged> {
  const standby = await startStandby(rig.postgres.url, true);
  try {
    rig.begin();
    const load = rig.load(14, 140);
    await pause(800 + rig.random() * 800);
    for (const proxy of [rig.platformProxy, rig.kitProxy]) proxy.faults.cut = true;
    await standby.takeOver();
    for (const proxy of [rig.platformProxy, rig.kitProxy]) {
      proxy.drop();
      proxy.upstream = { host: '127.0.0.1', port: standby.port };
    }
    await rig.connectTo(standby.port);
    await rig.heal();
    return await rig.judge(load);
  } finally {
    await standby.stop();
  }
}
