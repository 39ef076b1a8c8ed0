/**
 * `duebridge demo`, what `npm start` runs: it starts everything on an embedded PostgreSQL, shows one real payment from token to
 * posted, and prints the addresses to try. With --once it stops after that: exit code 0 when the payment succeeded, 1 when it did
 * not.
 */
import { once } from 'node:events';
import { styleText } from 'node:util';
import { exitCodes, onStopRequest } from '@duebridge/runtime/cli';
import { Command } from 'commander';
import type { Demo } from './servers.ts';
import type { Tell } from './story.ts';

/** The command. `--json` prints one JSON value on standard output, everything for people on standard error. */
export function demoCommand(): Command {
  return new Command('demo')
    .description('Start everything and drive a real payment to its end.')
    .option('--once', 'stop after the story; exit code 0 or 1')
    .option('--json', 'print the story as one JSON value')
    .addHelpText(
      'after',
      `
Environment:
  PORT                port of the platform, the others follow it at fixed distances; 4000
  DUEBRIDGE_DATA_DIR  folder of the embedded database and of what the demo made; .duebridge`,
    )
    .action(run);
}

async function run(options: { once?: true; json?: true }): Promise<void> {
  const started = performance.now();
  const stream = options.json === true ? process.stderr : process.stdout;
  const line = (text = ''): void => void stream.write(`${text}\n`);
  const paint = (style: 'bold' | 'dim' | 'green' | 'red', text: string): string =>
    styleText(style, text, { stream });
  line('duebridge demo: starts PostgreSQL, a platform, a biller’s server and the biller’s site,');
  line('then pays one bill. The first start takes about ten seconds, later ones about four.\n');
  const stop = stopSignal(() => line('Stopping …'));
  const stopped = once(stop, 'abort').then(() => undefined);
  process.exitCode = exitCodes.failed;
  // Loaded after the first lines are printed, so that they appear at once.
  const [{ bringUp }, { tellStory }] = await Promise.all([
    import('./servers.ts'),
    import('./story.ts'),
  ]);
  // On a terminal each step replaces the one before.
  const over = stream.isTTY ? '\u001b[2K\r' : '';
  const progress = (text: string): void =>
    void stream.write(`${over}  starting ${text} …${over === '' ? '\n' : ''}`);
  const demo = await bringUp(progress, stop).catch((error: unknown) => {
    if (error !== stop.reason) throw error;
  });
  if (demo === undefined) return;
  try {
    stream.write(`${over}${addresses(demo).join('\n')}\n`);
    line('\nOne payment, from token to the biller’s bank account');
    const step: Tell = (at, what, says) => {
      const when = `${(at / 1000).toFixed(2)} s`.padStart(8);
      line(`${paint('dim', when)}  ${paint('bold', what.padEnd(10))} ${says}`);
    };
    const story = await Promise.race([tellStory(demo, step), stopped]);
    if (story === undefined) return;
    const elapsed_ms = Math.round(performance.now() - started);
    const { payment, account, ...balances } = story;
    const { biller_id, account_id } = account;
    const hasSucceeded = payment.status === 'succeeded';
    const verdict = paint(hasSucceeded ? 'green' : 'red', payment.status);
    line(`\nThe payment has ${verdict}; ${(elapsed_ms / 1000).toFixed(1)} s after the start.\n`);
    if (options.json === true) {
      const told = { payment, account: { biller_id, account_id }, ...balances, elapsed_ms };
      process.stdout.write(`${JSON.stringify(told)}\n`);
    }
    if (hasSucceeded) process.exitCode = exitCodes.done;
    if (options.once === true) return;
    line('Everything keeps running. Ctrl-C stops it.');
    await stopped;
  } finally {
    await demo.stop();
  }
}

/** The addresses to try. */
function addresses({ siteUrl, consoleUrl, platform, biller }: Demo): string[] {
  return [
    ['pay a bill', siteUrl, "Northwind Gas's own site, with the payment page in it"],
    ['console', consoleUrl, 'signs you in, once'],
    ['platform', platform.url, `/docs, /openapi.json; admin ${platform.adminUrl}`],
    [biller.name, biller.server.url, `a static key; ${biller.accounts.length} accounts`],
  ].map(([name = '', url = '', about]) => `  ${name.padEnd(14)} ${url.padEnd(24)} ${about}`);
}

/**
 * The first Ctrl-C, or another signal, requests a stop, also during startup. Each server has a time limit for its own stop, and PostgreSQL
 * goes last: ended before that, the demo would leave it running. The second one ends the process at once. Every acknowledged payment is on disk.
 */
function stopSignal(onAsked: () => void): AbortSignal {
  const asked = new AbortController();
  onStopRequest(() => {
    if (asked.signal.aborted) process.exit(exitCodes.failed);
    onAsked();
    asked.abort();
  });
  return asked.signal;
}
