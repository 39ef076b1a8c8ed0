/**
 * `duebridge doctor`: does this machine have what duebridge needs, and is the database one that keeps
 * what it acknowledges? Looks, changes nothing that was there, and says how to fix what is wrong.
 */
import { access, constants, mkdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import {
  asynchronousStandbys,
  checkDurability,
  dataDirectory as dataDirectoryOf,
  describeDatabaseTrouble,
  messageOf,
  openDatabase,
  secretText,
  startEmbeddedPostgres,
  takesWrites,
} from '@duebridge/runtime';
import { Command } from 'commander';

/** Ports of decision 27: what `npm start` listens on. */
const PORTS = [4000, 4001, 4100, 4101, 4200] as const;

/** A clock further from the database's than this makes times on the wire look wrong to a partner (decision 12). */
const MAX_CLOCK_OFFSET_MS = 10_000;

/** Each says what it found, or throws what is wrong and how to fix it. */
const CHECKS: Readonly<Record<string, () => Promise<string>>> = {
  // A Node that is too old has been refused before anything was loaded.
  node: () => Promise.resolve(process.version),
  'data directory': dataDirectory,
  'payment pages': webPages,
  database,
  ports,
};

/** The command; exit code 0 when every check is green, 1 otherwise. */
export function doctorCommand(): Command {
  return new Command('doctor')
    .description('Check that this machine has what duebridge needs.')
    .option('--json', 'print one JSON value')
    .action(async (options: { json?: true }) => {
      const findings: { check: string; ok: boolean; says: string }[] = [];
      for (const [check, look] of Object.entries(CHECKS)) {
        const finding = await look().then(
          (says) => ({ check, ok: true, says }),
          (error: unknown) => ({ check, ok: false, says: messageOf(error) }),
        );
        findings.push(finding);
      }
      const lines = findings.map(
        ({ check, ok, says }) => `${ok ? 'ok ' : 'NO '} ${check.padEnd(15)} ${says}`,
      );
      process.stdout.write(`${options.json ? JSON.stringify({ findings }) : lines.join('\n')}\n`);
      process.exitCode = findings.every(({ ok }) => ok) ? 0 : 1;
    });
}

async function dataDirectory(): Promise<string> {
  const folder = dataDirectoryOf();
  try {
    await mkdir(folder, { recursive: true });
    await access(folder, constants.W_OK);
    return folder;
  } catch (error) {
    throw new Error(`${folder} cannot be written (${messageOf(error)}); set DUEBRIDGE_DATA_DIR`, {
      cause: error,
    });
  }
}

async function webPages(): Promise<string> {
  const web = import.meta.resolve('@duebridge/web/package.json');
  await access(new URL('./dist/manifest.json', web)).catch(() => {
    throw new Error('not built; run npm run build');
  });
  return 'built';
}

async function database(): Promise<string> {
  const given = secretText(process.env, 'DATABASE_URL');
  const embedded = given === undefined ? await startEmbeddedPostgres() : undefined;
  const url = given ?? embedded?.url ?? '';
  const opened = openDatabase({ url, applicationName: 'duebridge doctor', maxConnections: 1 });
  try {
    await checkDurability(opened);
    if (!(await takesWrites(opened))) {
      throw new Error(
        'is read-only, as a standby is; give the address of the primary in DATABASE_URL',
      );
    }
    const [row] = await opened.query<{ version: string; milliseconds: string }>(
      `select current_setting('server_version') as version,
              (extract(epoch from clock_timestamp()) * 1000)::text as milliseconds`,
    );
    const offset = Math.abs(Number(row?.milliseconds) - Date.now());
    if (offset > MAX_CLOCK_OFFSET_MS) {
      const seconds = Math.round(offset / 1000);
      throw new Error(`its clock is ${seconds} s from this machine's; synchronise both`);
    }
    const where = given === undefined ? 'embedded' : 'DATABASE_URL';
    const lossy = await asynchronousStandbys(opened);
    const keeps = lossy === undefined ? 'keeps what it commits' : `but ${lossy}`;
    return `PostgreSQL ${row?.version ?? '?'} (${where}), ${keeps}`;
  } catch (error) {
    const sentence = describeDatabaseTrouble(error, url, 'platform') ?? messageOf(error);
    throw new Error(sentence, { cause: error });
  } finally {
    await opened.close();
    await embedded?.stop();
  }
}

async function ports(): Promise<string> {
  const taken: number[] = [];
  for (const port of PORTS) if (!(await isFree(port))) taken.push(port);
  if (taken.length === 0) return `${PORTS.join(', ')} are free`;
  throw new Error(`${taken.join(', ')} taken; stop what listens there, or set PORT and ADMIN_PORT`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}
