/** How a process is asked to stop. */

/** How often to check whether npm is still running. */
const PARENT_CHECK_MS = 200;

/**
 * Calls `ask` for each signal that asks this process to stop: SIGTERM, SIGINT and SIGHUP (a closed terminal). The end of the npm that
 * started it counts as one SIGTERM.
 */
export function onStopRequest(ask: (signal: NodeJS.Signals) => void): void {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, ask);
  if (process.env['npm_command'] === undefined) return;
  // npm and npx start programs through a shell: a SIGTERM to npm ends that shell, which passes nothing on.
  const parent = process.ppid;
  const check = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(check);
    ask('SIGTERM');
  }, PARENT_CHECK_MS).unref();
}
