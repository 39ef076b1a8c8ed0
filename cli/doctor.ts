/**
 * `duebridge doctor`: does this machine have what duebridge needs, and is the database one that keeps what it acknowledges? Makes the
 * checks that a start makes, and changes nothing that was there.
 */
import { access } from 'node:fs/promises';
import { messageOf, openServerDatabase, secretText } from '@duebridge/runtime';
import { Command } from 'commander';
import { assertPortsFree } from '../demo/servers.ts';

/** A clock further from the database's than this makes times on the wire look wrong to a partner (decision 12). */
const MAX_CLOCK_OFFSET_MS = 10_000;

/** Each says what it found, or throws what is wrong and how to fix it. */
const CHECKS: Readonly<Record<string, () => Promise<string>>> = {
  // A Node that is too old has been refused before anything was loaded.
  node: () => Promise.resolve(process.version),
  'payment pages': webPages,
  database,
  ports: () => assertPortsFree(4000).then(() => 'those of npm start are free'),
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

async function webPages(): Promise<string> {
  const web = import.meta.resolve('@duebridge/web/package.json');
  await access(new URL('./dist/manifest.json', web)).catch(() => {
    throw new Error('not built; run npm run build');
  });
  return 'built';
}

async function database(): Promise<string> {
  const databaseUrl = secretText(process.env, 'DATABASE_URL');
  const opened = await openServerDatabase({ server: 'platform', databaseUrl, connections: 1 });
  try {
    const [row] = await opened.database.query<{ version: string; milliseconds: string }>(
      `SELECT current_setting('server_version') AS version,
              (extract(epoch FROM clock_timestamp()) * 1000)::text AS milliseconds`,
    );
    const offset = Math.abs(Number(row?.milliseconds) - Date.now());
    if (offset > MAX_CLOCK_OFFSET_MS) {
      const seconds = Math.round(offset / 1000);
      throw new Error(`its clock is ${seconds} s from this machine's; synchronise both`);
    }
    const where = databaseUrl === undefined ? 'embedded' : 'DATABASE_URL';
    const { warning } = opened;
    const keeps = warning === undefined ? 'keeps what it commits' : `but ${warning}`;
    return `PostgreSQL ${row?.version ?? '?'} (${where}), ${keeps}`;
  } finally {
    await opened.close();
  }
}
