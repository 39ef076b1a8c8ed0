/**
 * `duebridge demo`, what `npm start` runs: everything up on an embedded PostgreSQL, one real payment told from token to posted, and
 * the addresses to try. With --once it stops after the story: exit code 0 when the payment succeeded, 1 when it did not.
 */
import { Command } from 'commander';
import { bringUp } from './servers.ts';
import { tellStory, type Story } from './story.ts';
import { pageOf, screen } from './screen.ts';

/** The command. `--json` prints one JSON value on standard output, everything for people on standard error. */
export function demoCommand(): Command {
  return new Command('demo')
    .description('Bring everything up and drive a real payment to its end.')
    .option('--once', 'stop after the story; exit code 0 or 1')
    .option('--json', 'print the story as one JSON value')
    .action(async (options: { once?: true; json?: true }) => {
      const started = performance.now();
      const out = screen(options.json === true ? process.stderr : process.stdout);
      out.line('duebridge demo');
      out.line();
      const stopRequested = stopSignal();
      const demo = await bringUp((text) => out.progress(text));
      try {
        out.block(pageOf(demo));
        const story = await tellStory(demo, (step) => out.step(step));
        const ms = Math.round(performance.now() - started);
        out.end(story, ms);
        if (options.json === true) process.stdout.write(`${JSON.stringify(toJson(story, ms))}\n`);
        if (story.payment.status !== 'succeeded') process.exitCode = 1;
        if (options.once === true) return;
        out.line('Everything stays up. Ctrl-C stops it.');
        await stopRequested;
        out.line('Stopping …');
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

function stopSignal(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.once(signal, () => {
        resolve();
        // A second one ends at once; every acknowledged payment is on disk.
        process.once(signal, () => process.exit(1));
      });
    }
  });
}
