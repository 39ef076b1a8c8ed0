/**
 * The platform on a sharded PostgreSQL: sets up a coordinator and two workers of Citus on this machine, distributes the tables as
 * `duebridge platform migrate --distribute` does, and drives payments there and on one plain server of the same PostgreSQL, in
 * alternating rounds. Citus is no Debian package; where it is not installed, this says so and ends. docs/scale.md has how to build it.
 *
 *     npm run bench -- citus [--rounds 3] [--payments 2000]
 */
import { migrate, openDatabase } from '@duebridge/runtime';
import { migrations } from '../packages/platform/src/migrations.ts';
import { citusServers } from '../test/support/citus.ts';
import { benchOptions } from './options.ts';
import { driveIn, startStub } from './drive.ts';
import { ratios, report } from './report.ts';

const flags = benchOptions(import.meta.main, { rounds: '3', payments: '2000' });

/**
 * Payments of one transaction, as at a confirm: the insert locks its batch on every node, and a transaction that does so on two
 * nodes deadlocks with itself.
 */
const PER_TRANSACTION = 1;

const servers = citusServers();
if (servers === undefined) {
  console.log(
    'Citus is not installed here, so nothing was measured; docs/scale.md has how to build it.',
  );
  process.exit(0);
}

const stub = await startStub();
try {
  const plain = await servers.plain();
  const database = openDatabase({ url: plain, applicationName: 'bench', statementTimeoutMs: 0 });
  await migrate(database, migrations);
  await database.close();
  const { url: citus, tables } = await servers.cluster();
  for (const line of tables) console.log(`distributed ${line}`);

  const rates = { plain: [] as number[], citus: [] as number[] };
  const payments = Number(flags.payments);
  for (let round = 1; round <= Number(flags.rounds); round += 1) {
    rates.plain.push((await driveIn(plain, stub.url, payments, 64, PER_TRANSACTION)).perSecond);
    rates.citus.push((await driveIn(citus, stub.url, payments, 64, PER_TRANSACTION)).perSecond);
    console.log(
      `round ${round}: one server ${Math.round(rates.plain.at(-1) ?? 0)}/s, Citus with two workers ${Math.round(rates.citus.at(-1) ?? 0)}/s`,
    );
  }
  report({
    figure: 'citus',
    what: 'drive, a coordinator and two workers on this machine / one server',
    ...ratios(rates.citus, rates.plain),
  });
} finally {
  stub.process.kill();
  await servers.stop();
}
process.exit(0);
