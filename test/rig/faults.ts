/**
 * The faults that the crash rig injects, one per round. Each runs while customers pay, and returns once it has happened; the rig
 * heals it.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execFileSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { migrate } from '@duebridge/runtime';
import { migrations as kitMigrations } from '../../packages/partner/src/migrations.ts';
import { migrations as platformMigrations } from '../../packages/platform/src/migrations.ts';
import { BEHAVIOURS } from './gateway.ts';
import type { Server } from '../support/processes.ts';
import type { PostgresProxy } from './postgres-proxy.ts';
import type { BreakableDisk } from './disk.ts';
import { hasFaketime, pause, type Judged, type Rig } from './rig.ts';
import { STEPS, type Step } from './steps.ts';

/** A fault. */
export interface Fault {
  readonly name: string;
  /** The name under which the result sheet counts it. */
  readonly kind: string;
  /** Resolves with whether it happened; processes that it killed or stopped may still be down. */
  run(rig: Rig): Promise<boolean>;
}

/** How long a payment may take to bring a process to a step; after that the step counts as not reached. */
const REACH_MS = 5_000;

/** Every fault that can be injected on this machine. */
export function faultsOf(mode: Rig['mode'], disk: BreakableDisk | undefined): Fault[] {
  const steps = STEPS.filter(({ side }) => side !== (mode === 'own' ? 'kit books' : 'kit own'));
  return [
    ...steps.map((step) => killAt(step)),
    ...steps.filter(({ locked }) => locked === true).map((step) => pauseAt(step)),
    ...OTHERS.filter(({ name }) => mode === 'own' || !name.includes('own system')),
    ...(hasFaketime ? [clock('+3600'), clock('-3600'), clock('+300')] : []),
    ...(disk === undefined
      ? []
      : [fullDisk(disk.folder, 'a table'), fullDisk(disk.folder, 'the log')]),
    ...(disk?.hasPower === true ? [powerLoss(disk)] : []),
  ];
}

/** Customers of a round: the minimum, the interval in milliseconds, and more while the fault lasts. */
const CUSTOMERS = { least: 10, everyMs: 170, most: 60 } as const;

/** One round: customers pay, the fault happens, everything heals, and all of it is judged. */
export async function oneRound(rig: Rig, fault: Fault): Promise<Judged & { reached: boolean }> {
  // A process that reached its step too late for the previous round may be dead.
  await rig.heal();
  rig.begin();
  const load = rig.load(CUSTOMERS.least, CUSTOMERS.everyMs, CUSTOMERS.most);
  const reached = await fault.run(rig).finally(() => load.stop());
  await rig.heal();
  return { reached, ...(await rig.judge(load)) };
}

/** What this machine does not allow, in words. */
export function notHere(disk: BreakableDisk | undefined): string[] {
  return [
    ...(hasFaketime ? [] : ['stepped wall clocks: libfaketime is not installed']),
    ...(disk === undefined ? ['a full disk: this user may not mount one'] : []),
    ...(disk?.hasPower === true ? [] : ['power loss: this user may not mount a loop device']),
  ];
}

function numberOf(step: Step): number {
  return STEPS.indexOf(step) + 1;
}

function victims(rig: Rig, { side }: Step): readonly Server[] {
  return side === 'platform' ? rig.workers : rig.kits;
}

/** Kills a process at the step; the seed decides which of the two, and at which passing. */
function killAt(step: Step): Fault {
  return {
    name: `killed at step ${numberOf(step)}, ${step.side}: ${step.at}`,
    kind: 'SIGKILL at a step',
    async run(rig) {
      const [one, other] = pick(rig, victims(rig, step));
      if (step.takesOver === true) await other.kill();
      // A beat comes every few seconds only; everything else passes with each payment.
      const nth = step.takesOver === true || step.at.includes('renew') ? 1 : 1 + dice(rig, 3);
      const wait = step.takesOver === true ? 30_000 : REACH_MS;
      // A worker that has just begun may own no payments yet; then the other one reaches the step.
      return (
        (await rig.strike(one, step.at, 'SIGKILL', nth, wait)) ||
        rig.strike(other, step.at, 'SIGKILL', 1, wait)
      );
    },
  };
}

/** Stops a process while it holds a lock, for longer than others are willing to wait. */
function pauseAt(step: Step): Fault {
  return {
    name: `paused at step ${numberOf(step)}, ${step.side}: ${step.at}`,
    kind: 'SIGSTOP in a lock',
    async run(rig) {
      const [one, other] = pick(rig, victims(rig, step));
      const reached =
        (await rig.strike(one, step.at, 'SIGSTOP', 1, REACH_MS)) ||
        (await rig.strike(other, step.at, 'SIGSTOP', 1, REACH_MS));
      // Shorter and longer than a lease.
      if (reached) await pause(2_000 + rig.random() * 12_000);
      return reached;
    },
  };
}

const OTHERS: readonly Fault[] = [
  ...(['platform', 'kit'] as const).flatMap((side): Fault[] => [
    {
      name: `database of the ${side} flaps`,
      kind: 'database flaps',
      async run(rig) {
        for (let times = 0; times < 6; times += 1) {
          const { faults } = proxyOf(rig, side);
          faults.cut = true;
          proxyOf(rig, side).drop();
          await pause(50 + rig.random() * 500);
          faults.cut = false;
          await pause(50 + rig.random() * 500);
        }
        return true;
      },
    },
    {
      name: `database of the ${side} is slow`,
      kind: 'database slow',
      async run(rig) {
        proxyOf(rig, side).faults.latencyMs = 60 + rig.random() * 240;
        await pause(4_000);
        return true;
      },
    },
    {
      name: `database of the ${side} says nothing`,
      kind: 'database silent',
      async run(rig) {
        proxyOf(rig, side).faults.silent = true;
        await pause(2_000 + rig.random() * 6_000);
        return true;
      },
    },
    {
      name: `commits of the ${side} lose their answers`,
      kind: 'cut at COMMIT',
      async run(rig) {
        const proxy = proxyOf(rig, side);
        const before = proxy.lostCommits;
        proxy.faults.lostCommit = 0.2 + rig.random() * 0.3;
        await pause(3_000);
        return proxy.lostCommits > before;
      },
    },
  ]),
  {
    name: 'PostgreSQL killed',
    kind: 'PostgreSQL SIGKILL',
    async run(rig) {
      await pause(300 + rig.random() * 900);
      await rig.killPostgres();
      return true;
    },
  },
  {
    name: 'every process killed at once, PostgreSQL too',
    kind: 'SIGKILL of everything',
    async run(rig) {
      await pause(300 + rig.random() * 900);
      await Promise.all([
        rig.killPostgres(),
        ...[...rig.workers, ...rig.kits].map((server) => server.kill()),
      ]);
      return true;
    },
  },
  {
    name: 'a gateway does everything that gateways do',
    kind: 'gateway misbehaves',
    async run(rig) {
      rig.gateway.behave = () => BEHAVIOURS[dice(rig, BEHAVIOURS.length)] ?? 'pass';
      await pause(3_500);
      return true;
    },
  },
  {
    name: 'the network between platform and partner is cut, and slow',
    kind: 'network cut',
    async run(rig) {
      for (let times = 0; times < 3; times += 1) {
        rig.gateway.isCut = true;
        rig.gateway.drop();
        await pause(100 + rig.random() * 900);
        rig.gateway.isCut = false;
        rig.gateway.latencyMs = rig.random() * 600;
        await pause(100 + rig.random() * 900);
      }
      return true;
    },
  },
  {
    name: 'rolling restart under load: SIGTERM',
    kind: 'SIGTERM under load',
    async run(rig) {
      for (const server of [...rig.workers, ...rig.kits]) {
        if (!server.isAlive) throw new Error(`before it was stopped, ${server.ending}`);
        if ((await server.stop()) !== 0) throw new Error(`stopped, ${server.ending}`);
        await server.start();
      }
      return true;
    },
  },
  {
    name: 'SIGTERM, and SIGKILL a moment later',
    kind: 'SIGTERM, then SIGKILL',
    async run(rig) {
      const [worker] = pick(rig, rig.workers);
      const [kit] = pick(rig, rig.kits);
      await pause(500 + rig.random() * 800);
      for (const server of [worker, kit]) server.signal('SIGTERM');
      await pause(rig.random() * 400);
      await Promise.all([worker.kill(), kit.kill()]);
      return true;
    },
  },
  {
    name: 'the next version migrates both databases, and runs beside this one',
    kind: 'version N beside N+1',
    async run(rig) {
      await pause(400);
      await Promise.all([
        addColumn(rig, rig.ours, platformMigrations, 'duebridge_platform.payments'),
        addColumn(rig, rig.theirs, kitMigrations, 'duebridge_partner.payment'),
      ]);
      // This version has to start on the newer tables as well: a rollback does that.
      const [worker] = pick(rig, rig.workers);
      const [kit] = pick(rig, rig.kits);
      await Promise.all([worker.kill(), kit.kill()]);
      await Promise.all([worker.start(), kit.start()]);
      return true;
    },
  },
  {
    name: 'answers of the own system are lost',
    kind: 'own system loses answers',
    async run(rig) {
      rig.own.lostAnswer = 0.4;
      await pause(3_000);
      return true;
    },
  },
];

function clock(seconds: string): Fault {
  return {
    name: `the wall clock of one host of each side steps by ${seconds} s`,
    kind: 'clock steps',
    async run(rig) {
      if (rig.clockFile === undefined) return false;
      await pause(300);
      writeFileSync(rig.clockFile, seconds);
      // The library reads the time again after a second.
      await pause(3_500);
      return true;
    },
  };
}

/** A fault of the disk proves nothing about a database that is elsewhere. */
function assertOn(disk: string, rig: Rig): void {
  const { clusterDirectory } = rig.postgres;
  assert.ok(clusterDirectory.startsWith(`${disk}/`), `the database is in ${clusterDirectory}`);
}

/** How long the rig waits for PostgreSQL to meet the full disk: customers pay meanwhile, and what they write needs room sooner or later. */
const FULL_MS = 20_000;

/**
 * Fills the disk until PostgreSQL has refused something for want of room, and for some seconds more, now and then for a good half minute. A table that cannot grow fails a
 * statement; a log that cannot grow ends the server, which cannot start again before there is room.
 */
function fullDisk(disk: string, what: 'a table' | 'the log'): Fault {
  return {
    name: `the disk of PostgreSQL is full, and ${what} cannot grow`,
    kind: 'disk full',
    async run(rig) {
      assertOn(disk, rig);
      const log = join(rig.postgres.clusterDirectory, 'postgres.log');
      const refusals = (): number => readFileSync(log, 'utf8').split('No space left').length - 1;
      await pause(300);
      const before = refusals();
      const filler = join(disk, 'filler');
      try {
        execFileSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=1M'], { stdio: 'ignore' });
      } catch {
        // dd fails when the disk is full, which is the purpose.
      }
      try {
        // Fails when the server ends under it, which is the purpose.
        if (what === 'the log')
          await rig.ours.query('SELECT pg_switch_wal()').catch(() => undefined);
        const until = performance.now() + FULL_MS;
        while (refusals() === before && performance.now() < until) await pause(50);
        await pause(rig.random() < 0.15 ? 40_000 : 3_000);
        return refusals() > before;
      } finally {
        rmSync(filler);
        // Otherwise a power loss in a later round brings it back.
        execFileSync('sync', ['--file-system', disk]);
        await rig.untilPostgresAnswers();
      }
    },
  };
}

function powerLoss(disk: BreakableDisk): Fault {
  return {
    name: "the power of PostgreSQL's host fails",
    kind: 'power loss',
    async run(rig) {
      assertOn(disk.folder, rig);
      await pause(300 + rig.random() * 900);
      let lost = false;
      await rig.killPostgres((pid) => {
        lost = disk.losePower(pid);
      });
      return lost;
    },
  };
}

let versions = 0;

/** Applies one more migration, as the next version would when it starts: a column unknown to this version. */
async function addColumn(
  rig: Rig,
  database: Rig['ours'],
  { schema, directory }: typeof platformMigrations,
  table: string,
): Promise<void> {
  versions += 1;
  const folder = mkdtempSync(join(rig.folder, 'next-'));
  const name = `next_${versions}_${Date.now()}`;
  cpSync(directory, folder, { recursive: true });
  writeFileSync(
    join(folder, `${900 + (versions % 100)}-${name.replaceAll('_', '-')}.sql`),
    `-- additive\nALTER TABLE ${table} ADD COLUMN ${name} text NOT NULL DEFAULT 'new';\n`,
  );
  await migrate(database, { schema, directory: pathToFileURL(`${folder}/`) });
}

function proxyOf(rig: Rig, side: 'platform' | 'kit'): PostgresProxy {
  return side === 'platform' ? rig.platformProxy : rig.kitProxy;
}

/** One of two, and the other. */
function pick(rig: Rig, [one, other]: readonly Server[]): [Server, Server] {
  if (one === undefined || other === undefined) throw new Error('a side has two servers');
  return rig.random() < 0.5 ? [one, other] : [other, one];
}

function dice(rig: Rig, sides: number): number {
  return Math.floor(rig.random() * sides);
}
