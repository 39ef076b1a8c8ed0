/**
 * A sharded PostgreSQL on this machine: a coordinator and two workers of Citus, each of which can be killed or cut off, with the
 * platform's tables distributed over them as `duebridge platform migrate --distribute` does it. Citus is no Debian package;
 * docs/scale.md has how to build it.
 */
import { execFile } from 'node:child_process';
import { appendFileSync, chownSync, globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { migrate, openDatabase } from '@duebridge/runtime';
import { freePort } from '@duebridge/runtime/testing';
import pg from 'pg';
import { migrations } from '../../packages/platform/src/migrations.ts';
import { distributeTables } from '../../packages/platform/src/store/distribution.ts';
import { PostgresProxy } from '../rig/postgres-proxy.ts';
import { childrenOf, signal } from './processes.ts';

/** The user that runs PostgreSQL, which refuses root. */
const NOBODY = 65_534;
/** The database that every server has. */
const DATABASE = 'shared';

const CITUS = [
  "shared_preload_libraries = 'citus'",
  "citus.node_conninfo = 'sslmode=disable'",
  'citus.enable_unsafe_triggers = on',
  // How soon the coordinator ends the transactions that a node had prepared when it died (docs/scale.md); Citus waits a minute.
  'citus.recover_2pc_interval = 2s',
];

/** Servers of the PostgreSQL that has Citus; undefined where that is not installed. */
export function citusServers() {
  const version = globSync('/usr/share/postgresql/*/extension/citus.control')[0]?.split('/')[4];
  if (version === undefined) return undefined;
  const bin = `/usr/lib/postgresql/${version}/bin`;
  const isRoot = process.getuid?.() === 0;
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-citus-'));
  if (isRoot) chownSync(folder, NOBODY, NOBODY);
  const running: string[] = [];
  const proxies: PostgresProxy[] = [];

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
    /** Starts one server without Citus; returns the address of an empty database on it. */
    plain: async (): Promise<string> => urlOf(await start('plain', [])),

    /** Starts a coordinator and two workers with the platform's tables on them. */
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
      const nodes = [];
      for (const [index, port] of workers.entries()) {
        // Other nodes reach a worker through a proxy, which can cut it off.
        const proxy = new PostgresProxy({ host: '127.0.0.1', port });
        proxies.push(proxy);
        const address = `'127.0.0.1', ${await proxy.listen()}`;
        await query(coordinator, DATABASE, `SELECT citus_add_node(${address})`);
        const data = join(folder, `worker-${index + 1}`);
        nodes.push({
          /** Kills PostgreSQL and all its processes with SIGKILL, as a crash of the machine does. */
          kill: (): void => {
            const main = mainProcess(data);
            for (const pid of [...childrenOf(main), main]) signal(pid, 'SIGKILL');
          },
          /** Starts it again and waits until it answers. */
          start: () => run('pg_ctl', ['-D', data, '-l', `${data}.log`, '-w', 'start']),
          /** Cuts the node off from the coordinator and the other node, or connects it again. */
          cut(isCut: boolean): void {
            proxy.faults.cut = isCut;
            if (isCut) proxy.drop();
          },
        });
      }
      const url = urlOf(coordinator);
      const database = openDatabase({
        url,
        applicationName: 'duebridge set-up',
        statementTimeoutMs: 0,
      });
      try {
        await migrate(database, migrations);
        return {
          /** The platform's database, on the coordinator. */
          url,
          /** The tables, as `distributeTables` names them. */
          tables: await distributeTables(database),
          nodes,
          /** What the coordinator refused because a sharded database cannot do it, or gave up as a deadlock: statement and reason. */
          refused: () => refusals(readFileSync(join(folder, 'coordinator.log'), 'utf8')),
        };
      } finally {
        await database.close();
      }
    },

    /** Stops all of them without mercy and deletes their files. */
    async stop(): Promise<void> {
      for (const data of running.splice(0))
        await run('pg_ctl', ['-D', data, '-m', 'immediate', 'stop']).catch(() => undefined);
      for (const proxy of proxies.splice(0)) await proxy.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Errors of statements that only a sharded database refuses, in the words of Citus, and deadlocks; each with its statement. */
function refusals(log: string): string[] {
  const refused =
    /ERROR: {2}(?:.*(?:not supported|must not be VOLATILE|distributed deadlock|could not run distributed query|not allowed in an INSERT).*)\n(?:.*(?:DETAIL|HINT|CONTEXT).*\n)*(?:.*STATEMENT.*\n(?:\t.*\n)*)?/g;
  return [...log.matchAll(refused)].map(([text]) => text);
}

/** The process id of the server whose data is in this folder. */
function mainProcess(data: string): number {
  return Number(readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n')[0]);
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
