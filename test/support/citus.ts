/**
 * A sharded PostgreSQL on this machine: a coordinator and two workers of Citus with the platform's tables distributed over them, as
 * `duebridge platform migrate --distribute` does it. Citus is no Debian package; docs/scale.md has how to build it.
 */
import { execFile } from 'node:child_process';
import { appendFileSync, chownSync, globSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { migrate, openDatabase } from '@duebridge/runtime';
import { freePort } from '@duebridge/runtime/testing';
import pg from 'pg';
import { migrations } from '../../packages/platform/src/migrations.ts';
import { distributeTables } from '../../packages/platform/src/store/distribution.ts';

/** The user that runs PostgreSQL, which refuses root. */
const NOBODY = 65_534;
/** The database that every server has. */
const DATABASE = 'shared';

const CITUS = [
  "shared_preload_libraries = 'citus'",
  "citus.node_conninfo = 'sslmode=disable'",
  'citus.enable_unsafe_triggers = on',
];

/** Servers of the PostgreSQL that has Citus. */
export interface CitusServers {
  /** Starts one server without Citus; returns the address of an empty database on it. */
  plain(): Promise<string>;
  /** Starts a coordinator and two workers; returns the address of the platform's database and the names of its tables. */
  cluster(): Promise<{ readonly url: string; readonly tables: readonly string[] }>;
  /** Stops all of them without mercy and deletes their files. */
  stop(): Promise<void>;
}

/** Undefined where Citus is not installed. */
export function citusServers(): CitusServers | undefined {
  const version = globSync('/usr/share/postgresql/*/extension/citus.control')[0]?.split('/')[4];
  if (version === undefined) return undefined;
  const bin = `/usr/lib/postgresql/${version}/bin`;
  const isRoot = process.getuid?.() === 0;
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-citus-'));
  if (isRoot) chownSync(folder, NOBODY, NOBODY);
  const running: string[] = [];

  const run = async (program: string, words: readonly string[]): Promise<void> => {
    await promisify(execFile)(join(bin, program), [...words], {
      cwd: folder,
      ...(isRoot ? { uid: NOBODY, gid: NOBODY } : {}),
    });
  };
  const start = async (name: string, settings: readonly string[]): Promise<number> => {
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
    running.push(data);
    await run('pg_ctl', ['-D', data, '-l', join(folder, `${name}.log`), '-w', 'start']);
    await query(port, 'postgres', `CREATE DATABASE ${DATABASE}`);
    return port;
  };

  return {
    plain: async () => urlOf(await start('plain', [])),

    async cluster() {
      const [coordinator, ...workers] = await Promise.all(
        ['coordinator', 'worker-1', 'worker-2'].map((name) => start(name, CITUS)),
      );
      if (coordinator === undefined) throw new Error('no coordinator was started');
      for (const port of [coordinator, ...workers])
        await query(port, DATABASE, 'CREATE EXTENSION citus');
      await query(
        coordinator,
        DATABASE,
        `SELECT citus_set_coordinator_host('127.0.0.1', ${coordinator})`,
      );
      for (const port of workers)
        await query(coordinator, DATABASE, `SELECT citus_add_node('127.0.0.1', ${port})`);
      const url = urlOf(coordinator);
      const database = openDatabase({
        url,
        applicationName: 'duebridge set-up',
        statementTimeoutMs: 0,
      });
      try {
        await migrate(database, migrations);
        return { url, tables: await distributeTables(database) };
      } finally {
        await database.close();
      }
    },

    async stop() {
      for (const data of running.splice(0))
        await run('pg_ctl', ['-D', data, '-m', 'immediate', 'stop']).catch(() => undefined);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function urlOf(port: number): string {
  return `postgres://postgres@127.0.0.1:${port}/${DATABASE}`;
}

async function query(port: number, database: string, text: string): Promise<void> {
  const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database });
  await client.connect();
  await client.query(text);
  await client.end();
}
