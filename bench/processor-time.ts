/**
 * CPU usage: the seconds of CPU that this process and PostgreSQL's processes use, and a CPU profile of this process. A rate alone
 * cannot show whether a change saved work or the machine happened to be quiet; CPU per payment can.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import type { Database } from '@duebridge/runtime';

/** Seconds of CPU. */
export interface ProcessorTime {
  readonly node: number;
  /** All processes of the server, including the background ones; Linux only, in steps of 10 ms per process. */
  readonly postgres: number;
}

/** Starts measuring; the returned function returns the usage since then. */
export async function measureProcessorTime(database: Database): Promise<() => ProcessorTime> {
  const [backend] = await database.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const postmaster = Number(statOf(String(backend?.pid))?.[1]);
  const nodeAt = process.cpuUsage();
  const postgresAt = postgresSeconds(postmaster);
  return () => {
    const { user, system } = process.cpuUsage(nodeAt);
    return { node: (user + system) / 1e6, postgres: postgresSeconds(postmaster) - postgresAt };
  };
}

/** Starts a CPU profile of this process; the returned function writes it to `file`, for Chrome's developer tools. */
export async function startProfile(file: string): Promise<() => Promise<void>> {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.setSamplingInterval', { interval: 250 });
  await session.post('Profiler.start');
  return async () => {
    const { profile } = await session.post('Profiler.stop');
    session.disconnect();
    writeFileSync(file, JSON.stringify(profile));
  };
}

/** The fields of /proc/PID/stat after the command: state, parent, … */
function statOf(pid: string): string[] | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined; // The process has ended.
  }
}

/** CPU time of the server's processes, including ended ones, whose time is added to the postmaster's. */
function postgresSeconds(postmaster: number): number {
  let ticks = 0;
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    const stat = statOf(pid);
    if (stat === undefined) continue;
    if (Number(stat[1]) === postmaster) ticks += Number(stat[11]) + Number(stat[12]);
    if (pid === String(postmaster)) ticks += Number(stat[13]) + Number(stat[14]);
  }
  return ticks / 100;
}
