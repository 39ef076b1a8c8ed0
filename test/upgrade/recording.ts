/** A recording of an earlier version's tables, and how it becomes a database again. */
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { migrate, type Database } from '@duebridge/runtime';

export const PARTNER_KEY = 'the-key-that-the-biller-chose';

/** The secrets under which the platform's rows were sealed. */
export const SECRETS = {
  sealKey: Buffer.alloc(32, 1).toString('base64'),
  keyPepper: Buffer.alloc(32, 2).toString('base64'),
  adminKey: 'an-admin-key-of-the-test',
} as const;

/**
 * The rows of one side by table, and the migrations that made the tables. `slots` is left out, because one worker owned them all, and
 * so are the seals of the audit, which do not hold over moments that are moved.
 */
export interface Side {
  readonly migrations: readonly string[];
  readonly rows: Readonly<Record<string, readonly unknown[]>>;
}

/** What record.ts writes. */
export interface Recording {
  readonly recorded_at: string;
  /** Ids of payments by what had become of them. */
  readonly payments: {
    readonly succeeded: string;
    readonly failed: string;
    readonly processing: readonly string[];
    readonly unknown: string;
    readonly review: string;
  };
  readonly client: { readonly client_id: string; readonly api_key: string };
  /** A token that nobody has used, and a session that was opened and has not paid. */
  readonly token: string;
  readonly session: string;
  readonly platform: Side;
  readonly gas: Side;
  readonly water: Side;
}

/** How long ago a restored recording was made: longer than a lease, so that the worker in it counts as dead. */
const AGE_MS = 60_000;

/** A recording whose moments are moved: it was made a minute ago, whenever that was. */
export function movedToNow(recording: string): Recording {
  const { recorded_at } = JSON.parse(recording) as Recording;
  const byMs = Date.now() - AGE_MS - Date.parse(recorded_at);
  const moment = /"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?\+00:00"/g;
  return JSON.parse(
    recording.replace(moment, (_, seconds: string, fraction = '') => {
      const moved = new Date(Date.parse(`${seconds}Z`) + Math.floor(byMs / 1_000) * 1_000);
      return `"${moved.toISOString().slice(0, 19)}${fraction}+00:00"`;
    }),
  ) as Recording;
}

/** Makes the tables of a recording in an empty database, as its version had them, and fills them. */
export async function restore(
  database: Database,
  schema: 'duebridge_platform' | 'duebridge_partner',
  { migrations, rows }: Side,
): Promise<void> {
  const side = schema === 'duebridge_platform' ? 'platform' : 'partner';
  const ours = join(import.meta.dirname, `../../packages/${side}/src/migrations`);
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-upgrade-'));
  for (const name of migrations) cpSync(join(ours, name), join(folder, name));
  await migrate(database, { schema, directory: pathToFileURL(`${folder}/`) });
  rmSync(folder, { recursive: true });
  await database.transaction(async (tx) => {
    // Rows come as they were, whatever a trigger would say about their order.
    await tx.query('SET LOCAL session_replication_role = replica');
    for (const [table, all] of Object.entries(rows)) {
      await tx.query(`DELETE FROM ${schema}.${table}`);
      const found = await tx.query<{ name: string; counted: boolean }>(
        `SELECT quote_ident(attname) AS name, attidentity <> '' AS counted FROM pg_attribute
          WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`,
        [`${schema}.${table}`],
      );
      const columns = found.map(({ name }) => name).join(', ');
      await tx.query(
        `INSERT INTO ${schema}.${table} (${columns}) OVERRIDING SYSTEM VALUE
         SELECT ${columns} FROM json_populate_recordset(NULL::${schema}.${table}, $1::json)`,
        [JSON.stringify(all)],
      );
      for (const { name } of found.filter(({ counted }) => counted)) {
        await tx.query(
          `SELECT setval(pg_get_serial_sequence($1, $2), max(${name})) FROM ${schema}.${table}`,
          [`${schema}.${table}`, name],
        );
      }
    }
    if (schema === 'duebridge_platform') {
      await tx.query(
        `UPDATE ${schema}.slots SET worker_id = (SELECT worker_id FROM ${schema}.workers LIMIT 1)`,
      );
    }
  });
}
