/** A database for one measurement, and the processor time that it and this process take. */
import { readdirSync, readFileSync } from 'node:fs';
import { openDatabase } from '@duebridge/runtime';
import { emptyDatabase, testServer } from '@duebridge/runtime/testing';

/** One server for all measurements of a benchmark; the process ends it. */
const server = await testServer();

/** Runs `work` with the address of an empty database, and drops it. */
export async function withDatabase<T>(work: (url: string) => Promise<T>): Promise<T> {
  const { url, drop } = await emptyDatabase(server.url, 'bench');
  try {
    return await work(url);
  } finally {
    await drop();
  }
}

/** Ends a benchmark: the server is stopped, and whatever still runs in this process does not matter any more. */
export async function end(code = 0): Promise<never> {
  await server.stop();
  process.exit(code);
}

/** Seconds of CPU. A rate alone cannot show whether a change saved work or the machine happened to be quiet. */
export interface ProcessorTime {
  readonly node: number;
  /** All processes of the server, including the background ones; Linux only, in steps of 10 ms per process. */
  readonly postgres: number;
}

/** Starts measuring; the returned function returns the usage since then. */
export async function measureProcessorTime(): Promise<() => ProcessorTime> {
  const admin = openDatabase({ url: server.url, applicationName: 'bench', maxConnections: 1 });
  const [backend] = await admin.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const postmaster = Number(statOf(String(backend?.pid))?.[1]);
  await admin.close();
  const nodeAt = process.cpuUsage();
  const postgresAt = postgresSeconds(postmaster);
  return () => {
    const { user, system } = process.cpuUsage(nodeAt);
    return { node: (user + system) / 1e6, postgres: postgresSeconds(postmaster) - postgresAt };
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
    const stat = /^\d+$/.test(pid) ? statOf(pid) : undefined;
    if (Number(stat?.[1]) === postmaster) ticks += Number(stat?.[11]) + Number(stat?.[12]);
    if (pid === String(postmaster)) ticks += Number(stat?.[13]) + Number(stat?.[14]);
  }
  return ticks / 100;
}
