/** A second PostgreSQL server that follows an embedded one, and can take its place. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { openDatabase } from '@duebridge/runtime';
import { freePort, PATIENCE_MS, until } from '@duebridge/runtime/testing';

/**
 * Starts it on a copy of the server at `url`, with the same program, user and settings. A synchronous one makes every commit of the
 * primary wait until it has it on disk.
 */
export async function startStandby(url: string, synchronous: boolean) {
  const primary = openDatabase({
    url,
    applicationName: 'standby',
    statementTimeoutMs: PATIENCE_MS,
  });
  const [place] = await primary.query<{ data_directory: string }>('SHOW data_directory');
  const from = place?.data_directory ?? '';
  const folder = `${from}-standby-${Date.now()}`;
  await primary.withConnection(async (connection) => {
    await connection.query(`SELECT pg_backup_start('standby', true)`);
    execFileSync('cp', ['-a', from, folder]);
    const [label] = await connection.query<{ labelfile: string }>(
      'SELECT labelfile FROM pg_backup_stop(false)',
    );
    writeFileSync(`${folder}/backup_label`, label?.labelfile ?? '');
  });
  const pid = Number(readFileSync(`${folder}/postmaster.pid`, 'utf8').split('\n')[0]);
  rmSync(`${folder}/postmaster.pid`);
  writeFileSync(`${folder}/standby.signal`, '');
  const { hostname, port: primaryPort, username, password } = new URL(url);
  appendFileSync(
    `${folder}/postgresql.auto.conf`,
    `primary_conninfo = 'host=${hostname} port=${primaryPort} user=${username} password=${password} application_name=standby'\n` +
      `synchronous_standby_names = ''\n`,
  );
  const port = await freePort();
  const { uid, gid } = statSync(from);
  execFileSync('chown', ['-R', `${uid}:${gid}`, folder]);
  const started = (file: string): string[] =>
    readFileSync(`/proc/${pid}/${file}`, 'utf8').split('\0').slice(0, -1);
  const environment = started('environ').filter((line) => line.includes('='));
  const server: ChildProcess = spawn(
    readlinkSync(`/proc/${pid}/exe`),
    // With fewer connections than the first it would refuse to start. The last setting wins.
    [...started('cmdline').slice(1), '-D', folder, '-p', String(port)],
    {
      env: Object.fromEntries(environment.map((line) => line.split(/=(.*)/s).slice(0, 2))),
      cwd: '/',
      stdio: 'ignore',
      ...(process.getuid?.() === 0 ? { uid, gid } : {}),
    },
  );
  const address = new URL(url);
  address.port = String(port);
  const standby = openDatabase({ url: address.href, applicationName: 'standby' });
  const wait = (what: string, holds: () => Promise<boolean>): Promise<boolean> =>
    until(`the standby: ${what}`, () => holds().catch(() => false));
  if (synchronous) {
    await primary.query(`ALTER SYSTEM SET synchronous_standby_names = '*'`);
    await primary.query('SELECT pg_reload_conf()');
  }
  await wait('replication', async () => {
    const [row] = await primary.query<{ sync_state: string }>(
      `SELECT sync_state FROM pg_stat_replication WHERE application_name = 'standby' AND state = 'streaming'`,
    );
    return row?.sync_state === (synchronous ? 'sync' : 'async');
  });
  await primary.close();
  return {
    port,
    /** From now on it gets nothing: what the primary acknowledges is lost when this one takes over. */
    async cutOff(): Promise<void> {
      await standby.query(`ALTER SYSTEM SET primary_conninfo = ''`);
      await standby.query('SELECT pg_reload_conf()');
      await wait('the cut', async () => {
        return (await standby.query('SELECT 1 FROM pg_stat_wal_receiver')).length === 0;
      });
    },
    /** Kills the primary as a lost machine would, and takes its place. */
    async takeOver(): Promise<void> {
      process.kill(pid, 'SIGKILL');
      await standby.query('SELECT pg_promote(true, 60)');
      await wait('promotion', async () => {
        const [row] = await standby.query<{ standby: boolean }>(
          'SELECT pg_is_in_recovery() AS standby',
        );
        return row?.standby === false;
      });
    },
    async stop(): Promise<void> {
      await standby.close();
      if (server.exitCode === null && server.signalCode === null) {
        const exit = once(server, 'exit');
        server.kill('SIGQUIT');
        await exit;
      }
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
