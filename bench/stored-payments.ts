/**
 * Fills databases as a platform and a biller have them after a year: for growth.ts, in minutes instead of days.
 *
 * The rows have the final state that the product leaves, and satisfy every CHECK; triggers are off, because they would require each
 * step on the way. A table is loaded without indexes and its indexes are made afterwards, as a restore does, and the definitions of
 * both are compared before and after. COPY … FREEZE leaves nothing for a vacuum to do.
 *
 * The server of the fill writes no log of the rows (wal_level minimal) and is restarted with its usual settings for the rounds.
 */
import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { migratePartner } from '@duebridge/partner';
import { ensureDatabase, migrate, openDatabase } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import pg from 'pg';
import { migrations } from '../packages/platform/src/migrations.ts';

/** Accounts of the biller, however many payments are stored: each payment is to a random one. */
export const ACCOUNTS = 1_000_000;
/** Change it with any change of what is filled: a kept folder is then filled anew. */
const VERSION = 1;
/** Rows, or blocks of a table to read, between two COPYs: a few hundred megabytes. */
const ROWS_AT_ONCE = 500_000;
const BLOCKS_AT_ONCE = 40_000;

/** One side's database. */
export type Side = 'kit' | 'platform';
type Server = Awaited<ReturnType<typeof testServer>>;

/** Settings while filling; the log would be as large as the tables. */
const FILLING = {
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_wal_size: '8GB',
  checkpoint_timeout: '1h',
  autovacuum: 'off',
  maintenance_work_mem: '512MB',
};

/**
 * Opens the server in a folder whose databases hold these numbers of payments on both sides, and fills those that do not yet.
 */
export async function openStored(folder: string, counts: readonly number[]): Promise<Server> {
  let server = await testServer(folder);
  try {
    const missing: { readonly side: Side; readonly count: number }[] = [];
    for (const count of counts) {
      for (const side of ['kit', 'platform'] as const) {
        if (!(await isFilled(server.url, side, count))) missing.push({ side, count });
      }
    }
    if (missing.length > 0) {
      server = await restarted(server, folder, FILLING);
      const { url } = server;
      // The two sides at once: the fill of one keeps one process of PostgreSQL busy.
      const fills = (['kit', 'platform'] as const).map(async (side) => {
        for (const one of missing) if (one.side === side) await fill(url, side, one.count);
      });
      await Promise.all(fills);
    }
    // Also when an earlier fill was interrupted: rounds run with the settings of every other benchmark.
    server = await restarted(server, folder, {});
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}

/** The database of a side with so many payments. */
export function nameOf(side: Side, count: number): string {
  return `growth_${side}_${count}`;
}

/** The address of a database on a server. */
export function urlOf(serverUrl: string, name: string): string {
  return Object.assign(new URL(serverUrl), { pathname: `/${name}` }).href;
}

/** Runs statements on a connection of their own. */
export async function withClient<T>(
  url: string,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

async function restarted(
  server: Server,
  folder: string,
  settings: Readonly<Record<string, string>>,
): Promise<Server> {
  await withClient(server.url, async (client) => {
    await client.query('ALTER SYSTEM RESET ALL');
    for (const [name, value] of Object.entries(settings)) {
      await client.query(`ALTER SYSTEM SET ${name} = '${value}'`);
    }
  });
  await server.stop();
  return testServer(folder);
}

/** The comment on a filled database. */
function markOf(count: number): string {
  return `filled: ${count} payments, ${ACCOUNTS} accounts, version ${VERSION}`;
}

function isFilled(serverUrl: string, side: Side, count: number): Promise<boolean> {
  return withClient(serverUrl, async (client) => {
    const { rows } = await client.query<{ mark: string | null }>(
      `SELECT shobj_description(oid, 'pg_database') AS mark FROM pg_database WHERE datname = $1`,
      [nameOf(side, count)],
    );
    return rows[0]?.mark === markOf(count);
  });
}

async function fill(serverUrl: string, side: Side, count: number): Promise<void> {
  const name = nameOf(side, count);
  await withClient(serverUrl, (client) =>
    client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`),
  );
  const url = await ensureDatabase(serverUrl, name);
  const database = openDatabase({ url, applicationName: 'bench', statementTimeoutMs: 0 });
  await (side === 'kit' ? migratePartner(database) : migrate(database, migrations));
  await database.close();
  await withClient(url, async (client) => {
    await client.query("SET session_replication_role = 'replica'");
    const before = await schemaOf(client);
    for (const statement of side === 'kit' ? [] : PARTNERS_AND_BATCHES)
      await client.query(statement);
    for (const table of side === 'kit' ? kitTables(count) : platformTables(count)) {
      const from = performance.now();
      const rows = await load(client, table);
      const seconds = ((performance.now() - from) / 1_000).toFixed(0);
      console.log(`  ${name}: ${rows} rows of ${table.name} in ${seconds} s`);
    }
    assert.deepEqual(await schemaOf(client), before, 'filling changed the schema');
    await client.query('VACUUM (ANALYZE)');
    await client.query('CHECKPOINT');
    const { rows } = await client.query<{ size: string }>(
      'SELECT pg_size_pretty(pg_database_size(current_database())) AS size',
    );
    console.log(`  ${name}: ${rows[0]?.size ?? ''}`);
    await client.query(`COMMENT ON DATABASE ${name} IS '${markOf(count)}'`);
  });
}

/** Definitions of all indexes, constraints and triggers. */
async function schemaOf(client: pg.Client): Promise<unknown[]> {
  const { rows } = await client.query<{ what: string }>(
    `SELECT pg_get_indexdef(indexrelid) || indisvalid AS what FROM pg_index WHERE indrelid::regclass::text LIKE 'duebridge%'
     UNION ALL SELECT conrelid::regclass || conname || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid::regclass::text LIKE 'duebridge%'
     UNION ALL SELECT pg_get_triggerdef(oid) || tgenabled::text FROM pg_trigger WHERE tgrelid::regclass::text LIKE 'duebridge%' AND NOT tgisinternal
     ORDER BY what`,
  );
  return rows;
}

interface Table {
  readonly name: string;
  readonly columns: string;
  /** Where its rows come from: numbers from 1 to `numbers` as `s(n)`, or the rows `s` of a table that is filled already. */
  readonly from: { readonly numbers: number } | { readonly table: string };
  /** A SELECT of the columns in exactly their types; `{source}` stands for the source's part. */
  readonly select: string;
}

/** Loads a table. Returns how many rows. */
async function load(client: pg.Client, table: Table): Promise<number> {
  const { rows: places } = await client.query<{ folder: string }>(
    `SELECT current_setting('data_directory') AS folder`,
  );
  const file = join(places[0]?.folder ?? '', `growth-${table.name}.part`);
  let rows = 0;
  await client.query('BEGIN');
  const remake = await dropIndexes(client, table.name);
  // FREEZE needs a table that was emptied in the same transaction.
  await client.query(`TRUNCATE ${table.name}`);
  for (const part of await partsOf(client, table.from)) {
    await client.query(
      `COPY (${table.select.replace('{source}', part)}) TO '${file}' (FORMAT binary)`,
    );
    const copied = await client.query(
      `COPY ${table.name} (${table.columns}) FROM '${file}' (FORMAT binary, FREEZE)`,
    );
    rows += copied.rowCount ?? 0;
  }
  for (const statement of remake) await client.query(statement);
  await client.query('COMMIT');
  await rm(file, { force: true });
  return rows;
}

/** Drops the keys and indexes of a table. Returns the statements that make them again. */
async function dropIndexes(client: pg.Client, table: string): Promise<string[]> {
  const { rows } = await client.query<{ drop: string; make: string }>(
    `SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) AS drop,
            format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) AS make
       FROM pg_constraint WHERE conrelid = $1::regclass AND contype IN ('p', 'u')
     UNION ALL
     SELECT format('DROP INDEX %s', indexrelid::regclass), pg_get_indexdef(indexrelid)
       FROM pg_index i WHERE indrelid = $1::regclass AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid)`,
    [table],
  );
  for (const { drop } of rows) await client.query(drop);
  return rows.map((row) => row.make);
}

async function partsOf(client: pg.Client, from: Table['from']): Promise<string[]> {
  if ('numbers' in from) {
    return Array.from({ length: Math.ceil(from.numbers / ROWS_AT_ONCE) }, (_, index) => {
      const first = index * ROWS_AT_ONCE + 1;
      return `generate_series(${first}, ${Math.min(from.numbers, first + ROWS_AT_ONCE - 1)}) AS s(n)`;
    });
  }
  const { rows } = await client.query<{ blocks: number }>(
    `SELECT (pg_relation_size($1) / current_setting('block_size')::int)::int AS blocks`,
    [from.table],
  );
  return Array.from({ length: Math.ceil((rows[0]?.blocks ?? 0) / BLOCKS_AT_ONCE) }, (_, index) => {
    const [first, next] = [index * BLOCKS_AT_ONCE, (index + 1) * BLOCKS_AT_ONCE];
    return `(SELECT * FROM ${from.table} WHERE ctid >= '(${first},0)' AND ctid < '(${next},0)') AS s`;
  });
}

/** Payment n of `count` was made so long before now: evenly over a year, in order, so that ids are too. */
function ageOf(count: number): string {
  return `make_interval(secs => (${count} - n) * (365 * 86400.0 / ${count}))`;
}

/** The biller: its payments, the transfers and entries that posted them, and the accounts whose balance is their sum. */
function kitTables(count: number): Table[] {
  const schema = 'duebridge_partner';
  const payments = `${schema}.payment`;
  return [
    {
      name: payments,
      columns:
        'platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents, status, initiated_at, posted_at, ended_at, failure_reason',
      from: { numbers: count },
      // Two of a hundred have failed.
      select: `
        SELECT uuidv7(-age)::text, gen_random_uuid()::text, to_char(at, 'YYYY-MM-DD-') || substr(md5(at::date::text), 1, 20), 'acme'::text,
               account_id, 'static-key'::text, cents, CASE WHEN paid THEN 'succeeded' ELSE 'failed' END, at,
               CASE WHEN paid THEN at + interval '80 ms' END, at + interval '80 ms', CASE WHEN NOT paid THEN 'The account is closed' END
          FROM (SELECT age, date_trunc('milliseconds', clock_timestamp() - age) AS at, random() > 0.02 AS paid,
                       'A-' || floor(random() * ${ACCOUNTS})::int AS account_id, 500 + floor(random() * 50000)::bigint AS cents
                  FROM (SELECT ${ageOf(count)} AS age FROM {source} OFFSET 0) AS aged OFFSET 0) AS made`,
    },
    {
      name: `${schema}.transfer`,
      columns: 'transfer_id, kind, created_at',
      from: { table: payments },
      select: `SELECT platform_payment_id, 'payment'::text, posted_at FROM {source} WHERE status = 'succeeded'`,
    },
    {
      name: `${schema}.entry`,
      columns: 'transfer_id, line, biller_id, account_id, amount_in_cents',
      from: { table: payments },
      select: `
        SELECT platform_payment_id, line::smallint, biller_id, CASE line WHEN 1 THEN account_id ELSE ':received' END, (2 * line - 3) * amount_in_cents
          FROM {source}, (VALUES (1), (2)) AS lines(line) WHERE status = 'succeeded'`,
    },
    {
      name: `${schema}.account`,
      columns: 'biller_id, account_id, status, amount_due_in_cents',
      from: { numbers: ACCOUNTS },
      select: `
        SELECT 'acme'::text, 'A-' || s.n - 1, 'active'::text, coalesce(paid.cents, 0)::bigint
          FROM {source} LEFT JOIN
               (SELECT account_id, sum(amount_in_cents) AS cents FROM ${schema}.entry WHERE line = 1 GROUP BY account_id) AS paid
               ON paid.account_id = 'A-' || s.n - 1`,
    },
  ];
}

const PARTNER_COUNT = 100;

/** A hundred partners, with a closed batch for each day of the last year and the day before. */
const PARTNERS_AND_BATCHES = [
  `INSERT INTO duebridge_platform.partners (partner_id, name, kind, biller_id, base_url, auth_method, auth_public, auth_sealed, paused)
   SELECT 'partner-' || n, 'Biller ' || n, 'biller', 'biller-' || n, 'http://127.0.0.1:9', 'key', '{"header": "x-api-key"}', 'none', true
     FROM generate_series(0, ${PARTNER_COUNT - 1}) AS n`,
  `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, opened_at, cutoff_at, closed_at, statement)
   SELECT to_char(day, 'YYYY-MM-DD-') || substr(md5(partner_id), 1, 20), partner_id, day, day + interval '1 day', day + interval '1 day', '{}'
     FROM duebridge_platform.partners, generate_series(current_date - 366, current_date - 1, interval '1 day') AS day`,
];

/** The platform: payments, the funds and audit of each, the customer it came from, and the evidence that 90 days of retention keep. */
function platformTables(count: number): Table[] {
  const schema = 'duebridge_platform';
  const payments = `${schema}.payments`;
  return [
    {
      name: payments,
      columns:
        'platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, session_id, funding_method, status, stage, slot, payment_id, failure_reason, ended_by, initiated_at, posted_at, created_at, accepted_at, ended_at, settled_at',
      from: { numbers: count },
      // Two of a hundred have failed. The newest are a day old: their batches are closed.
      select: `
        SELECT uuidv7(-age)::text, 'partner-' || partner, 'biller-' || partner, 'A-' || floor(random() * ${ACCOUNTS})::int,
               to_char(at, 'YYYY-MM-DD-') || substr(md5('partner-' || partner), 1, 20), 500 + floor(random() * 50000)::bigint, gen_random_uuid()::text,
               'sandbox_bank'::text, CASE WHEN paid THEN 'succeeded' ELSE 'failed' END, 'ended'::text, floor(random() * 1024)::smallint,
               gen_random_uuid()::text, CASE WHEN NOT paid THEN 'The account is closed' END, 'partner'::text, at + interval '20 ms',
               CASE WHEN paid THEN at + interval '100 ms' END, at, at + interval '30 ms', at + interval '1 s', at + interval '1 s'
          FROM (SELECT age, date_trunc('milliseconds', clock_timestamp() - age) AS at, random() > 0.02 AS paid,
                       floor(random() * ${PARTNER_COUNT})::int AS partner
                  FROM (SELECT ${ageOf(count)} + interval '1 day' AS age FROM {source} OFFSET 0) AS aged OFFSET 0) AS made`,
    },
    {
      name: `${schema}.sandbox_funds`,
      columns: 'platform_payment_id, act, funding_method, amount_in_cents, at',
      from: { table: payments },
      select: `
        SELECT platform_payment_id, CASE line WHEN 1 THEN 'authorize' ELSE CASE status WHEN 'succeeded' THEN 'capture' ELSE 'void' END END,
               funding_method, amount_in_cents, CASE line WHEN 1 THEN created_at ELSE settled_at END
          FROM {source}, (VALUES (1), (2)) AS lines(line)`,
    },
    {
      name: `${schema}.audit`,
      columns: 'audit_id, at, actor, event, platform_payment_id, partner_id, detail',
      from: { table: payments },
      select: `
        SELECT gen_random_uuid(), CASE line WHEN 1 THEN created_at ELSE ended_at END, CASE line WHEN 1 THEN 'customer' ELSE 'worker-of-yesterday' END,
               CASE line WHEN 1 THEN 'payment_created' ELSE 'payment_ended' END, platform_payment_id, partner_id,
               CASE line WHEN 1 THEN jsonb_build_object('amount_in_cents', amount_in_cents, 'dispatching', 'now')
                         ELSE jsonb_build_object('status', status, 'by', 'partner', 'payment_id', payment_id,
                                                 'funds', CASE status WHEN 'succeeded' THEN 'captured' ELSE 'released' END) END
          FROM {source}, (VALUES (1), (2)) AS lines(line)`,
    },
    {
      name: `${schema}.flow_payments`,
      columns:
        'platform_payment_id, flow_id, token_hash, session_id, customer_id, replaces, created_at',
      from: { table: payments },
      select: `
        SELECT platform_payment_id, sha256((partner_id || account_id)::bytea), sha256(session_id::bytea), session_id::uuid,
               md5(partner_id || account_id)::uuid, NULL::text, created_at
          FROM {source}`,
    },
    {
      name: `${schema}.attempts`,
      columns: 'platform_payment_id, at, entries',
      from: { table: payments },
      select: `
        SELECT platform_payment_id, created_at,
               jsonb_build_array(
                 jsonb_build_object('at', 1795375330057, 'kind', 'put', 'count', 1, 'result', 'processing', 'last_at', 1795375330057,
                                    'took_ms', 13, 'request_id', md5(payment_id), 'http_status', 200),
                 jsonb_build_object('at', 1795375330979, 'kind', 'get', 'count', 1, 'result', status, 'last_at', 1795375330979,
                                    'took_ms', 11, 'request_id', md5(session_id), 'http_status', 200))
          FROM {source} WHERE created_at > now() - interval '90 days'`,
    },
  ];
}
