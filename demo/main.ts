/**
 * `duebridge demo`, what `npm start` runs: it starts everything on an embedded PostgreSQL, shows one real payment from token to
 * posted, and prints the addresses to try. With --once it stops after that: exit code 0 when the payment succeeded, 1 when it did
 * not.
 */
import { exitCodes } from '@duebridge/runtime/cli';
import { Command } from 'commander';
import type { Story } from './story.ts';
import { pageOf, screen } from './screen.ts';

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
    .action(async (options: { once?: true; json?: true }) => {
      const started = performance.now();
      const out = screen(options.json === true ? process.stderr : process.stdout);
      out.line(
        'duebridge demo: starts PostgreSQL, a platform, two partners and the site of a biller,',
      );
      out.line(
        'then pays one bill. The first start takes about ten seconds, later ones about four.',
      );
      out.line();
      const stop = stopSignal(() => out.line('Stopping …'));
      // Loaded after the first lines are printed, so that they appear at once.
      const [{ bringUp }, { tellStory }] = await Promise.all([
        import('./servers.ts'),
        import('./story.ts'),
      ]);
      const demo = await bringUp((text) => out.progress(text), stop.signal).catch(
        (error: unknown) => {
          if (error !== stop.signal.reason) throw error;
        },
      );
      if (demo === undefined) {
        process.exitCode = exitCodes.failed;
        return;
      }
      try {
        out.block(pageOf(demo));
        const story = await Promise.race([tellStory(demo, (step) => out.step(step)), stop.promise]);
        if (story === undefined) {
          process.exitCode = exitCodes.failed;
          return;
        }
        const ms = Math.round(performance.now() - started);
        out.end(story, ms);
        if (options.json === true) process.stdout.write(`${JSON.stringify(toJson(story, ms))}\n`);
        if (story.payment.status !== 'succeeded') process.exitCode = exitCodes.failed;
        if (options.once === true) return;
        out.line('Everything keeps running. Ctrl-C stops it.');
        await stop.promise;
      } finally {
        await demo.stop();
      }
    });
}

function toJson(story: Story, ms: number): object {
  const { payment, account, balance_before_in_cents, balance_after_in_cents } = story;
  const { biller_id, account_id } = account;
  return {
    payment,
    account: { biller_id, account_id },
    balance_before_in_cents,
    balance_after_in_cents,
    elapsed_ms: ms,
  };
}

/**
 * The first Ctrl-C requests a stop, also during startup. Each server has a time limit for its own stop, and PostgreSQL goes last: ended
 * before that, the demo would leave it running. The second Ctrl-C ends the process at once. Every acknowledged payment is on disk.
 */
function stopSignal(onAsked: () => void): { signal: AbortSignal; promise: Promise<undefined> } {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const asked = new AbortController();
  const ask = (): void => {
    if (asked.signal.aborted) process.exit(exitCodes.failed);
    onAsked();
    asked.abort();
    resolve(undefined);
  };
  process.on('SIGINT', ask).on('SIGTERM', ask);
  return { signal: asked.signal, promise };
}
