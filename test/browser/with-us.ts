/** Programs that end with the test that started them, also when that is killed (with-us.sh). */
import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';

/** Runs the program that the variable PROGRAM names; for a library that starts a browser by itself, detached and with a pipe to it. */
export const WITH_US = join(import.meta.dirname, 'with-us.sh');

/** Starts a program in a process group of its own; what it starts belongs to that group too. Its fourth stream is a pipe to us. */
export function spawnWithUs(
  program: string,
  arguments_: readonly string[],
  environment: NodeJS.ProcessEnv,
): ChildProcess {
  return spawn(WITH_US, arguments_, {
    stdio: ['pipe', 'ignore', 'ignore', 'pipe'],
    detached: true,
    env: { ...environment, PROGRAM: program },
  });
}
