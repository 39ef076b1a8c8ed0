/**
 * `duebridge doctor`: does this machine have what duebridge needs, and is the database one that keeps
 * what it acknowledges? Looks, changes nothing that was there, and says how to fix what is wrong.
 */
import { access, constants, mkdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import {
  asynchronousStandbys,
  checkDurability,
  ConfigurationError,
  dataDirectory as dataDirectoryOf,
  describeDatabaseTrouble,
  messageOf,
  openDatabase,
  secretText,
  startEmbeddedPostgres,
  takesWrites,
} from '@duebridge/runtime';
import { Command } from 'commander';

interface Finding {
  readonly check: string;
  readonly ok: boolean;
  readonly says: string;
}

/** Ports of decision 27: what `npm start` listens on. */
const PORTS = [4000, 4001, 4100, 4101, 4200] as const;

/** A clock further from the database's than this makes times on the wire look wrong to a partner (decision 12). */
const MAX_CLOCK_OFFSET_MS = 10_000;

const CHECKS: readonly (() => Promise<Finding>)[] = [dataDirectory, webPages, database, ports];

/** The command; exit code 0 when every check is green, 1 otherwise. */
export function doctorCommand(): Command {
  return new Command('doctor')
    .description('Check that this machine has what duebridge needs.')
    .option('--json', 'print one JSON value')
    .action(async (options: { json?: true }) => {
      // A Node that is too old has been refused before anything was loaded.
      const running = { check: 'node', ok: true, says: process.version };
      const findings: Finding[] = [running];
      for (const check of CHECKS) findings.push(await check());
      if (options.json === true) {
        process.stdout.write(`${JSON.stringify({ findings })}\n`);
      } else {
        for (const { check, ok, says } of findings) {
          process.stdout.write(`${ok ? 'ok ' : 'NO '} ${check.padEnd(15)} ${says}\n`);
        }
      }
      process.exitCode = findings.every(({ ok }) => ok) ? 0 : 1;
    });
}

async function dataDirectory(): Promise<Finding> {
  const folder = dataDirectoryOf();
  try {
    await mkdir(folder, { recursive: true });
    await access(folder, constants.W_OK);
    return { check: 'data directory', ok: true, says: folder };
  } catch (error) {
    const says = `${folder} cannot be written (${messageOf(error)}); set DUEBRIDGE_DATA_DIR`;
    return { check: 'data directory', ok: false, says };
  }
}

async function webPages(): Promise<Finding> {
  const web = import.meta.resolve('@duebridge/web/package.json');
  const manifest = new URL('./dist/manifest.json', web);
  try {
    await access(manifest);
    return { check: 'payment pages', ok: true, says: 'built' };
  } catch {
    return { check: 'payment pages', ok: false, says: 'not built; run npm run build' };
  }
}

async function database(): Promise<Finding> {
  const given = secretText(process.env, 'DATABASE_URL');
  const embedded = given === undefined ? await startEmbedded() : undefined;
  if (embedded instanceof ConfigurationError) {
    return { check: 'database', ok: false, says: embedded.message };
  }
  const url = given ?? embedded?.url ?? '';
  const opened = openDatabase({ url, applicationName: 'duebridge doctor', maxConnections: 1 });
  try {
    await checkDurability(opened);
    if (!(await takesWrites(opened))) {
      const says = 'is read-only, as a standby is; give the address of the primary in DATABASE_URL';
      return { check: 'database', ok: false, says };
    }
    const [row] = await opened.query<{ version: string; milliseconds: string }>(
      `select current_setting('server_version') as version,
              (extract(epoch from clock_timestamp()) * 1000)::text as milliseconds`,
    );
    const offset = Math.abs(Number(row?.milliseconds) - Date.now());
    const where = given === undefined ? 'embedded' : 'DATABASE_URL';
    if (offset > MAX_CLOCK_OFFSET_MS) {
      const says = `its clock is ${Math.round(offset / 1000)} s from this machine's; synchronise both`;
      return { check: 'database', ok: false, says };
    }
    const lossy = await asynchronousStandbys(opened);
    const keeps = lossy === undefined ? 'keeps what it commits' : `but ${lossy}`;
    const says = `PostgreSQL ${row?.version ?? '?'} (${where}), ${keeps}`;
    return { check: 'database', ok: true, says };
  } catch (error) {
    const trouble = describeDatabaseTrouble(error, url, 'platform') ?? messageOf(error);
    return { check: 'database', ok: false, says: trouble };
  } finally {
    await opened.close();
    await embedded?.stop();
  }
}

async function startEmbedded() {
  try {
    return await startEmbeddedPostgres();
  } catch (error) {
    if (error instanceof ConfigurationError) return error;
    throw error;
  }
}

async function ports(): Promise<Finding> {
  const taken: number[] = [];
  for (const port of PORTS) if (!(await isFree(port))) taken.push(port);
  if (taken.length === 0) return { check: 'ports', ok: true, says: `${PORTS.join(', ')} are free` };
  const says = `${taken.join(', ')} taken; stop what listens there, or set PORT and ADMIN_PORT`;
  return { check: 'ports', ok: false, says };
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}
