/**
 * The faults that the crash rig injects, one per round. Each runs while customers pay, and returns once it has happened; the rig
 * heals it.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { migrate } from '@duebridge/runtime';
import { migrations as kitMigrations } from '../../packages/partner/src/migrations.ts';
import { migrations as platformMigrations } from '../../packages/platform/src/migrations.ts';
import { withBooks } from '../support/paying-load.ts';
import type { Server } from '../support/processes.ts';
import { startStandby } from '../support/standby.ts';
import type { Disk } from './disk.ts';
import { hasFaketime, type Rig } from './rig.ts';
import { STEPS, type Step } from './steps.ts';

/** A fault. */
export interface Fault {
  readonly name: string;
  /** The name under which docs/faults.md has it. */
  readonly kind: string;
  /** Resolves with whether it happened; processes that it killed or stopped may still be down. */
  readonly run: (rig: Rig) => Promise<boolean>;
}

/** How long one process is waited for before the other is tried: it may own no payments. */
const TRY_MS = 5_000;
/** How long payments may take to bring a process to what is waited for, on a busy machine; after that it counts as not reached. */
const REACH_MS = 60_000;

/** Every fault that can be injected on this machine. */
export function faultsOf(disk: Disk | undefined): Fault[] {
  return [
    ...STEPS.map(killAt),
    ...STEPS.filter(({ locked }) => locked === true).map(pauseAt),
    ...(['platform', 'kit'] as const).flatMap(databaseFaults),
    ...OTHERS,
    ...(hasFaketime ? ['+3600', '-3600', '+300'].map(clock) : []),
    ...(disk === undefined
      ? []
      : [fullDisk(disk, 'a table'), fullDisk(disk, 'the log'), powerLoss(disk)]),
  ];
}

/** What this machine does not allow, in words. */
export function notHere(disk: Disk | undefined): string[] {
  return [
    ...(hasFaketime ? [] : ['stepped wall clocks: libfaketime is not installed']),
    ...(disk === undefined ? ['a full disk, power loss: this user may not mount one'] : []),
  ];
}

/** Kills a process at the step; the seed decides which of the two, and at which passing. */
function killAt(step: Step): Fault {
  const { side, at, takesOver = false } = step;
  return {
    name: `killed at step ${STEPS.indexOf(step) + 1}, ${side}: ${at}`,
    kind: 'SIGKILL at a step',
    async run(rig) {
      const [one, other] = pick(rig, side);
      if (takesOver) await other.kill();
      // A beat comes every few seconds only; everything else passes with each payment.
      const nth = takesOver || at.includes('renew') ? 1 : 1 + Math.floor(rig.random() * 3);
      const ms = takesOver ? REACH_MS : TRY_MS;
      // A worker that has just begun may own no payments yet; then the other one reaches the step.
      return (
        (await rig.strike(one, at, 'SIGKILL', nth, ms)) ||
        rig.strike(other, at, 'SIGKILL', 1, REACH_MS)
      );
    },
  };
}

/** Stops a process while it holds a lock, for longer than others are willing to wait. */
function pauseAt(step: Step): Fault {
  const { side, at } = step;
  return {
    name: `paused at step ${STEPS.indexOf(step) + 1}, ${side}: ${at}`,
    kind: 'SIGSTOP in a lock',
    async run(rig) {
      const [one, other] = pick(rig, side);
      const reached =
        (await rig.strike(one, at, 'SIGSTOP', 1, TRY_MS)) ||
        (await rig.strike(other, at, 'SIGSTOP', 1, REACH_MS));
      // Shorter and longer than a lease.
      if (reached) await pause(2_000 + rig.random() * 12_000);
      return reached;
    },
  };
}

function databaseFaults(side: 'platform' | 'kit'): Fault[] {
  return [
    {
      name: `database of the ${side} flaps`,
      kind: 'database flaps',
      run: (rig) => flap(rig, side, 6),
    },
    {
      name: `database of the ${side} is slow`,
      kind: 'database slow',
      async run(rig) {
        rig.proxies[side].faults.latencyMs = 60 + rig.random() * 240;
        await pause(4_000);
        return true;
      },
    },
    {
      name: `database of the ${side} says nothing`,
      kind: 'database silent',
      async run(rig) {
        rig.proxies[side].faults.silent = true;
        await pause(2_000 + rig.random() * 6_000);
        return true;
      },
    },
    {
      name: `commits of the ${side} lose their answers`,
      kind: 'cut at COMMIT',
      async run(rig) {
        const proxy = rig.proxies[side];
        const before = proxy.lostCommits;
        proxy.faults.lostCommit = 0.2 + rig.random() * 0.3;
        await pause(3_000);
        for (const until = performance.now() + REACH_MS; proxy.lostCommits === before;) {
          if (performance.now() > until) return false;
          await pause(15);
        }
        return true;
      },
    },
  ];
}

/** Cuts connections again and again, in the middle of whatever they carry. */
async function flap(rig: Rig, name: keyof Rig['proxies'], times: number): Promise<boolean> {
  const proxy = rig.proxies[name];
  for (let time = 0; time < times; time += 1) {
    proxy.faults.cut = true;
    proxy.drop();
    await pause(50 + rig.random() * 500);
    proxy.faults.cut = false;
    proxy.faults.latencyMs = rig.random() * 200;
    await pause(50 + rig.random() * 500);
  }
  return true;
}

const OTHERS: readonly Fault[] = [
  {
    name: 'PostgreSQL killed',
    kind: 'PostgreSQL SIGKILL',
    async run(rig) {
      await rig.killPostgres();
      return true;
    },
  },
  {
    name: 'every process killed at once, PostgreSQL too',
    kind: 'SIGKILL of everything',
    async run(rig) {
      await pause(rig.random() * 900);
      const { platform, kit } = rig.servers;
      await Promise.all([
        rig.killPostgres(),
        ...[...platform, ...kit].map((server) => server.kill()),
      ]);
      return true;
    },
  },
  {
    name: 'the network between platform and partner is cut, and slow',
    kind: 'network cut',
    run: (rig) => flap(rig, 'network', 8),
  },
  {
    name: 'rolling restart under load: SIGTERM',
    kind: 'SIGTERM under load',
    async run({ servers }) {
      for (const server of [...servers.platform, ...servers.kit]) {
        assert.ok(server.isAlive, `before it was stopped, ${server.ending}`);
        assert.equal(await server.stop(), 0, `stopped, ${server.ending}`);
        await server.start();
      }
      return true;
    },
  },
  {
    name: 'SIGTERM, and SIGKILL a moment later',
    kind: 'SIGTERM, then SIGKILL',
    async run(rig) {
      const both = [pick(rig, 'platform')[0], pick(rig, 'kit')[0]];
      for (const server of both) server.signal('SIGTERM');
      await pause(rig.random() * 400);
      await Promise.all(both.map((server) => server.kill()));
      return true;
    },
  },
  {
    name: 'the next version migrates both databases, and runs beside this one',
    kind: 'version N beside N+1',
    async run(rig) {
      await addColumn(rig, 'platform', platformMigrations, 'payments');
      await addColumn(rig, 'kit', kitMigrations, 'payment');
      // This version has to start on the newer tables as well: a rollback does that.
      for (const server of [pick(rig, 'platform')[0], pick(rig, 'kit')[0]]) {
        await server.kill();
        await server.start();
      }
      return true;
    },
  },
];

/** A failover of both databases to a synchronous standby. It is the last round of its rig, because the old primary is not used again. */
export function failover(standby: Awaited<ReturnType<typeof startStandby>>): Fault {
  return {
    name: 'failover to a synchronous standby under load',
    kind: 'failover',
    async run(rig) {
      const both = [rig.proxies.platform, rig.proxies.kit];
      for (const proxy of both) proxy.faults.cut = true;
      await standby.takeOver();
      for (const proxy of both) {
        proxy.drop();
        proxy.upstream = { host: '127.0.0.1', port: standby.port };
      }
      rig.databasePort = standby.port;
      return true;
    },
  };
}

function clock(seconds: string): Fault {
  return {
    name: `the wall clock of one host of each side steps by ${seconds} s`,
    kind: 'clock steps',
    async run(rig) {
      writeFileSync(rig.clockFile, seconds);
      // The library reads the time again after a second.
      await pause(3_500);
      return true;
    },
  };
}

/** A fault of the disk proves nothing about a database that is elsewhere. */
function assertOn(disk: Disk, rig: Rig): void {
  const { clusterDirectory } = rig.postgres;
  assert.ok(clusterDirectory.startsWith(`${disk.folder}/`), `it is in ${clusterDirectory}`);
}

/**
 * Fills the disk until PostgreSQL has refused something for want of room, and for some seconds more, now and then for a good half minute.
 * A table that cannot grow fails a statement; a log that cannot grow ends the server, which cannot start again before there is room.
 */
function fullDisk(disk: Disk, what: 'a table' | 'the log'): Fault {
  return {
    name: `the disk of PostgreSQL is full, and ${what} cannot grow`,
    kind: 'disk full',
    async run(rig) {
      assertOn(disk, rig);
      const log = join(rig.postgres.clusterDirectory, 'postgres.log');
      const refusals = (): number => readFileSync(log, 'utf8').split('No space left').length - 1;
      const before = refusals();
      const filler = join(disk.folder, 'filler');
      try {
        execFileSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=1M'], { stdio: 'ignore' });
      } catch {
        // dd fails when the disk is full, which is the purpose.
      }
      try {
        // Fails when the server ends under it, which is the purpose.
        if (what === 'the log')
          await withBooks(rig.url('platform'), (books) =>
            books.query('SELECT pg_switch_wal()'),
          ).catch(() => undefined);
        const until = performance.now() + REACH_MS;
        while (refusals() === before && performance.now() < until) await pause(50);
        await pause(rig.random() < 0.15 ? 40_000 : 3_000);
        return refusals() > before;
      } finally {
        rmSync(filler);
        // Otherwise a power loss in a later round brings it back.
        execFileSync('sync', ['--file-system', disk.folder]);
        await rig.untilPostgresAnswers();
      }
    },
  };
}

function powerLoss(disk: Disk): Fault {
  return {
    name: "the power of PostgreSQL's host fails",
    kind: 'power loss',
    async run(rig) {
      assertOn(disk, rig);
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
  side: 'platform' | 'kit',
  { schema, directory }: typeof platformMigrations,
  table: string,
): Promise<void> {
  versions += 1;
  const folder = mkdtempSync(join(rig.folder, 'next-'));
  cpSync(directory, folder, { recursive: true });
  writeFileSync(
    join(folder, `${900 + (versions % 100)}-next-${versions}.sql`),
    `-- additive\nALTER TABLE ${schema}.${table} ADD COLUMN next_${versions} text NOT NULL DEFAULT 'new';\n`,
  );
  await withBooks(rig.url(side), (books) =>
    migrate(books, { schema, directory: pathToFileURL(`${folder}/`) }),
  );
}

/** One of the two servers of a side, and the other. */
function pick(rig: Rig, side: 'platform' | 'kit'): [Server, Server] {
  const [one, other] = rig.servers[side];
  assert.ok(one && other);
  return rig.random() < 0.5 ? [one, other] : [other, one];
}
