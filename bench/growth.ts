/**
 * F6: what millions of stored payments cost: accepting (F1) and driving (F3) with `--payments` (10,000,000) in the tables, against
 * `--small` (10,000), in alternating rounds.
 *
 *     node bench/growth.ts [--payments 10000000] [--small 10000] [--rounds 3] [--seconds 20] [--drive 10000] [--keep FOLDER]
 *
 * `--keep` leaves the filled databases in FOLDER, about 35 GB for 10,000,000, where a later run finds them and starts with the rounds;
 * `--rounds 0` only fills. Without it they are in a temporary folder. stored-payments.ts says what is filled: both sides as after a year,
 * a million accounts on either side of the comparison, and each payment to a random one of them.
 *
 * Each round of the small side runs in a fresh copy; on the large side the payments that a round put are removed after it. Both start
 * after a checkpoint, with an unmeasured round before the first. So the pages that a round changes are written to PostgreSQL's log whole
 * once, as in production after each checkpoint: the shorter a measurement, the more that counts against the large side.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { driveKit } from './accept.ts';
import { driveIn, startStub } from './drive.ts';
import { benchOptions } from './options.ts';
import { ratios, report } from './report.ts';
import { ACCOUNTS, nameOf, openStored, urlOf, withClient, type Side } from './stored-payments.ts';

const flags = benchOptions(import.meta.main, {
  payments: '10000000',
  small: '10000',
  rounds: '3',
  seconds: '20',
  drive: '10000',
  keep: undefined,
});
const sizes = { small: Number(flags.small), large: Number(flags.payments) };
const seconds = Number(flags.seconds);
const rounds = Number(flags.rounds);

/** Runs a measurement in the database of a side and a size, which is as filled before and after it. */
async function inStored(
  serverUrl: string,
  side: Side,
  size: keyof typeof sizes,
  measure: (url: string) => Promise<number>,
): Promise<number> {
  const filled = nameOf(side, sizes[size]);
  if (size === 'small') {
    await withClient(serverUrl, async (client) => {
      await client.query('DROP DATABASE IF EXISTS growth_round WITH (FORCE)');
      await client.query(`CREATE DATABASE growth_round TEMPLATE ${filled}`);
      await client.query('CHECKPOINT');
    });
    return measure(urlOf(serverUrl, 'growth_round'));
  }
  const url = urlOf(serverUrl, filled);
  await withClient(url, async (client) => {
    if (side === 'platform') {
      // What a run that was broken off left in kept databases: a worker whose lease is an hour, and payments that it did not end.
      await client.query("SET session_replication_role = 'replica'");
      await client.query('UPDATE duebridge_platform.slots SET worker_id = NULL');
      await client.query('DELETE FROM duebridge_platform.workers');
      await client.query("DELETE FROM duebridge_platform.payments WHERE status = 'processing'");
    }
    await client.query('CHECKPOINT');
  });
  const result = await measure(url);
  // Payments that wait to be posted must not add up. Those that the platform drove have ended, and are few.
  if (side === 'kit') {
    await withClient(url, async (client) => {
      await client.query("SET session_replication_role = 'replica'");
      await client.query('DELETE FROM duebridge_partner.payment_processing');
      await client.query(
        "DELETE FROM duebridge_partner.payment WHERE platform_batch_id = 'batch-kit'",
      );
      await client.query('VACUUM duebridge_partner.payment_processing');
    });
  }
  return result;
}

async function runRounds(serverUrl: string): Promise<void> {
  const accepted = { small: [] as number[], large: [] as number[] };
  const driven = { small: [] as number[], large: [] as number[] };
  for (let round = 0; round <= rounds; round += 1) {
    for (const size of ['small', 'large'] as const) {
      const accept = await inStored(serverUrl, 'kit', size, (url) =>
        driveKit('kit-accept', url, 256, seconds, ACCOUNTS),
      );
      const drive = await inStored(
        serverUrl,
        'platform',
        size,
        async (url) => (await driveIn(url, stub.url, Number(flags.drive), 64)).perSecond,
      );
      const name = round === 0 ? 'round not counted' : `round ${round}`;
      console.log(
        `${name}, ${sizes[size]} stored: accept ${Math.round(accept)}/s, drive ${Math.round(drive)}/s`,
      );
      if (round === 0) continue;
      accepted[size].push(accept);
      driven[size].push(drive);
    }
  }
  const target = 'at least 0.85';
  const what = `with ${sizes.large} payments stored / with ${sizes.small}`;
  report({
    figure: 'F6',
    what: `accept ${what}`,
    ...ratios(accepted.large, accepted.small),
    target,
  });
  report({ figure: 'F6', what: `drive ${what}`, ...ratios(driven.large, driven.small), target });
}

const folder =
  flags.keep === undefined
    ? await mkdtemp(join(tmpdir(), 'duebridge-growth-'))
    : resolve(flags.keep);
const stub = await startStub();
try {
  const from = performance.now();
  const server = await openStored(folder, [sizes.small, sizes.large]);
  console.log(`databases ready after ${((performance.now() - from) / 1_000).toFixed(0)} s`);
  try {
    if (rounds > 0) await runRounds(server.url);
  } finally {
    await server.stop();
  }
} finally {
  stub.process.kill();
  if (flags.keep === undefined) await rm(folder, { recursive: true, force: true });
}
