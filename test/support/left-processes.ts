/**
 * Ends the processes that a run of the tests has left: servers and browsers of a test file that was killed, and test files that take no
 * signal, as puppeteer makes them. They are known by the run's folder, which they have in their environment or among their arguments.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

/** How long a process may take to end by itself after SIGTERM; a database server that is killed leaves shared memory behind. */
const END_MS = 5_000;
const LOOK_MS = 50;

/**
 * Ends every process of this user that names one of these folders: with SIGTERM, and with SIGKILL what is still there after
 * `endMs` milliseconds. Gives the first of each program's words, such as `/usr/bin/firefox`. Only Linux tells; elsewhere none are found.
 */
export async function endProcessesOf(
  folders: readonly string[],
  endMs = END_MS,
): Promise<readonly string[]> {
  const left = processesOf(folders);
  const send = (signal: NodeJS.Signals): void => {
    for (const { pid } of processesOf(folders)) {
      try {
        process.kill(pid, signal);
      } catch {
        // It has just ended.
      }
    }
  };
  if (left.length > 0) send('SIGTERM');
  const until = performance.now() + endMs;
  while (processesOf(folders).length > 0) {
    // Again each time: what is being started meanwhile is found later.
    if (performance.now() > until) send('SIGKILL');
    await delay(LOOK_MS);
  }
  return left.map(({ program }) => program);
}

/** The processes of this user that name one of these folders, in their environment or among their arguments. */
export function processesOf(folders: readonly string[]): { pid: number; program: string }[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc').flatMap((name) => {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) return [];
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'utf8');
      // A process that has ended and waits for its parent to ask has no words.
      if (words === '') return [];
      const said = words + readFileSync(`/proc/${name}/environ`, 'utf8');
      const [program = ''] = words.split('\0');
      return folders.some((folder) => said.includes(folder)) ? [{ pid, program }] : [];
    } catch {
      // It has ended, or is another user's.
      return [];
    }
  });
}
