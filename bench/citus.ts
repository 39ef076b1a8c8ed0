/**
 * The platform on a sharded PostgreSQL: sets up a coordinator and two workers of Citus on this machine, distributes the tables as
 * `duebridge platform migrate --distribute` does, and drives payments there and on one plain server of the same PostgreSQL, in
 * alternating rounds. Citus is no Debian package; where it is not installed, this says so and ends. docs/scale.md has how to build it.
 *
 *     npm run bench -- citus [--rounds 3] [--payments 2000]
 */
import { execFile } from 'node:child_process';
import { appendFileSync, chownSync, existsSync, globSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { migrate, openDatabase } from '@duebridge/runtime';
import { freePort } from '@duebridge/runtime/testing';
import pg from 'pg';
import { migrations } from '../packages/platform/src/migrations.ts';
import { distributeTables } from '../packages/platform/src/store/distribution.ts';
import { driveIn, startStub } from './drive.ts';
import { ratios, report } from './report.ts';

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    payments: { type: 'string', default: '2000' },
  },
  strict: false,
});

/**
 * Payments of one transaction, as at a confirm: the insert locks its batch on every node, and a transaction that does so on two
 * nodes deadlocks with itself.
 */
const PER_TRANSACTION = 1;

/** The user that runs PostgreSQL, which refuses root. */
const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
const version = globSync('/usr/share/postgresql/*/extension/citus.control')[0]?.split('/')[4];
if (version === undefined) {
  console.log(
    'Citus is not installed here, so nothing was measured; docs/scale.md has how to build it.',
  );
  process.exit(0);
}
const bin = `/usr/lib/postgresql/${version}/bin`;
const folder = mkdtempSync(join(tmpdir(), 'duebridge-citus-'));
if (isRoot) chownSync(folder, NOBODY, NOBODY);

async function run(program: string, words: readonly string[]): Promise<void> {
  await promisify(execFile)(join(bin, program), [...words], {
    cwd: folder,
    ...(isRoot ? { uid: NOBODY, gid: NOBODY } : {}),
  });
}

const running: string[] = [];
async function startServer(name: string, settings: readonly string[]): Promise<number> {
  const data = join(folder, name);
  const port = await freePort();
  await run('initdb', ['-D', data, '-U', 'postgres', '--auth', 'trust', '--no-sync']);
  appendFileSync(
    join(data, 'postgresql.conf'),
    [
      `port = ${port}`,
      "listen_addresses = '127.0.0.1'",
      `unix_socket_directories = '${folder}'`,
      'max_connections = 200',
      'max_prepared_transactions = 200',
      ...settings,
      '',
    ].join('\n'),
  );
  await run('pg_ctl', ['-D', data, '-l', join(folder, `${name}.log`), '-w', 'start']);
  running.push(data);
  return port;
}

async function query(port: number, database: string, text: string): Promise<void> {
  const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database });
  await client.connect();
  await client.query(text);
  await client.end();
}

const urlOf = (port: number): string => `postgres://postgres@127.0.0.1:${port}/bench`;

async function newTables(port: number): Promise<void> {
  const database = openDatabase({
    url: urlOf(port),
    applicationName: 'bench',
    statementTimeoutMs: 0,
  });
  await migrate(database, migrations);
  await database.close();
}

const stub = await startStub();
try {
  const citus = [
    "shared_preload_libraries = 'citus'",
    "citus.node_conninfo = 'sslmode=disable'",
    'citus.enable_unsafe_triggers = on',
  ];
  const [plain, coordinator, ...workers] = [
    await startServer('plain', []),
    await startServer('coordinator', citus),
    await startServer('worker-1', citus),
    await startServer('worker-2', citus),
  ] as const;
  for (const port of [plain, coordinator, ...workers])
    await query(port, 'postgres', 'CREATE DATABASE bench');
  for (const port of [coordinator, ...workers])
    await query(port, 'bench', 'CREATE EXTENSION citus');
  await query(
    coordinator,
    'bench',
    `SELECT citus_set_coordinator_host('127.0.0.1', ${coordinator})`,
  );
  for (const port of workers)
    await query(coordinator, 'bench', `SELECT citus_add_node('127.0.0.1', ${port})`);
  await newTables(plain);
  await newTables(coordinator);
  const database = openDatabase({
    url: urlOf(coordinator),
    applicationName: 'bench',
    statementTimeoutMs: 0,
  });
  for (const line of await distributeTables(database)) console.log(`distributed ${line}`);
  await database.close();

  const rates = { plain: [] as number[], citus: [] as number[] };
  const payments = Number(flags.payments);
  for (let round = 1; round <= Number(flags.rounds); round += 1) {
    rates.plain.push(
      (await driveIn(urlOf(plain), stub.url, payments, 64, PER_TRANSACTION)).perSecond,
    );
    rates.citus.push(
      (await driveIn(urlOf(coordinator), stub.url, payments, 64, PER_TRANSACTION)).perSecond,
    );
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
  for (const data of running)
    await run('pg_ctl', ['-D', data, '-m', 'immediate', 'stop']).catch(() => undefined);
  if (existsSync(folder)) rmSync(folder, { recursive: true, force: true });
}
process.exit(0);
