/**
 * Years of payments in the tables of a platform or of a kit: the rows of some payments that it has made are copied by SQL over the months before
 * this one, each with its own id, account, amount, batch and time. The indexes of a month are made when it is full. What leaves by itself
 * (docs/operations.md) is not copied.
 */
import assert from 'node:assert/strict';
import { openDatabase, type Database, type Transaction } from '@duebridge/runtime';

/** Payments of an account: a monthly bill for three years. */
const PAYMENTS_OF_AN_ACCOUNT = 36;

/** The tables of a side, that of the payments first: the column with the payment's id, and how a moment becomes a bound of a month's partition. */
interface Filled {
  readonly table: string;
  readonly id: string;
  readonly bound?: (moment: string) => string;
}
const SIDES = {
  duebridge_platform: [
    {
      table: 'payments',
      id: 'platform_payment_id',
      bound: (moment) => `duebridge_platform.first_id(${moment})`,
    },
    { table: 'audit', id: 'platform_payment_id', bound: (moment) => moment },
    { table: 'funds', id: 'platform_payment_id' },
    { table: 'transfers', id: 'id' },
  ],
  duebridge_partner: [{ table: 'payment', id: 'platform_payment_id' }],
} satisfies Record<string, readonly Filled[]>;

/** What a column of a copy holds; a moment is moved, and everything else is as in the payment that was made. */
const COLUMNS: Readonly<Record<string, string>> = {
  platform_payment_id: 'm.id',
  id: 'm.id',
  reference: 'm.id',
  account_id: 'm.account',
  platform_batch_id: `to_char(m.at, 'YYYY-MM-DD-') || s.biller_id`,
  amount_in_cents: 'm.cents',
  payment_id: 'm.payment_id',
  detail: `s.detail || jsonb_build_object('payment_id', m.payment_id, 'amount_in_cents', m.cents)`,
  day: `(m.at AT TIME ZONE 'UTC')::date`,
  audit_id: 'gen_random_uuid()',
};

/** Fills the tables of a schema, which hold some settled payments, with so many copies over so many months. */
export async function fillYears(
  url: string,
  schema: keyof typeof SIDES,
  payments: number,
  months: number,
): Promise<void> {
  const database = openDatabase({ url, applicationName: 'years', maxConnections: 1 });
  await database.withConnection(async (on) => {
    await on.query(`SET statement_timeout = 0; SET session_replication_role = replica;
      SET synchronous_commit = off; SET maintenance_work_mem = '256MB'; SET TimeZone = 'UTC'`);
    if (schema === 'duebridge_platform') await beginThisMonth(on);
    const tables: readonly Filled[] = SIDES[schema];
    for (const { table, id } of tables) {
      await on.query(
        `CREATE TEMP TABLE made_${table} AS SELECT * FROM ${schema}.${table} WHERE ${id} IS NOT NULL`,
      );
    }
    const at = schema === 'duebridge_platform' ? 'created_at' : 'initiated_at';
    await on.query(
      `CREATE TEMP TABLE pattern AS SELECT row_number() OVER () - 1 AS k, platform_payment_id AS id, ${at} AS at FROM made_${tables[0]?.table}`,
    );
    for (let month = 0; month < months; month += 1) {
      const from = performance.now();
      const [first, to] = [month, month + 1].map((n) => Math.floor((payments * n) / months));
      assert(first !== undefined && to !== undefined);
      await fillMonth(on, schema, tables, { ago: months - month, first, to, payments });
      const perSecond = ((to - first) * 1_000) / (performance.now() - from);
      console.error(`${schema}: ${to} of ${payments}, ${perSecond.toFixed(0)}/s`);
    }
    for (const { table, bound } of tables) {
      if (bound === undefined) await on.query(`VACUUM ANALYZE ${schema}.${table}`);
    }
    if (schema === 'duebridge_platform') await closeThePast(on, months);
    else {
      await on.query(
        `INSERT INTO duebridge_partner.account (biller_id, account_id, status)
         SELECT 'acme', 'account-' || n, 'active' FROM generate_series(0, ${Math.ceil(payments / PAYMENTS_OF_AN_ACCOUNT) - 1}) n;
         ANALYZE duebridge_partner.account`,
      );
    }
  });
  await database.close();
}

interface Month {
  readonly ago: number;
  /** Numbers of its payments, of all. */
  readonly first: number;
  readonly to: number;
  readonly payments: number;
}

async function fillMonth(
  on: Transaction,
  schema: string,
  tables: readonly Filled[],
  { ago, first, to, payments }: Month,
): Promise<void> {
  const accounts = Math.ceil(payments / PAYMENTS_OF_AN_ACCOUNT);
  const start = (months: number): string =>
    `(date_trunc('month', now()) - make_interval(months => ${months}))`;
  await on.query(
    `DROP TABLE IF EXISTS copy;
     CREATE TEMP TABLE copy AS
     SELECT n % (SELECT count(*) FROM pattern) AS k, at, 'account-' || n % ${accounts} AS account, 100 + (n * 7919) % 100000 AS cents,
            substr(prefix, 1, 15) || lpad(to_hex(n % 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0') AS id,
            md5(n::text)::uuid::text AS payment_id
       FROM generate_series(${first}::bigint, ${to - 1}) n,
            LATERAL (SELECT ${start(ago)} + (${start(ago - 1)} - ${start(ago)}) * ((n - ${first})::float8 / ${to - first}) AS at) t,
            LATERAL (SELECT substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7' AS prefix
                       FROM lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS h) u;
     ANALYZE copy`,
  );
  const [named] = await on.query<{ name: string }>(
    `SELECT to_char(${start(ago)}, '_YYYY_MM') AS name`,
  );
  for (const { table, id, bound } of tables) {
    const parent = `${schema}.${table}`;
    const target = bound === undefined ? parent : parent + named?.name;
    if (bound !== undefined) {
      const fill = table === 'payments' ? 90 : 100;
      await on.query(
        `CREATE TABLE ${target} (LIKE ${parent} INCLUDING ALL EXCLUDING INDEXES) WITH (fillfactor = ${fill})`,
      );
    }
    const columns = await on.query<{ name: string; isMoment: boolean }>(
      `SELECT attname AS name, atttypid = 'timestamptz'::regtype AS "isMoment" FROM pg_attribute
        WHERE attrelid = '${target}'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attidentity = ''`,
    );
    const values = columns.map(({ name, isMoment }) =>
      isMoment ? `s.${name} + (m.at - t.at)` : (COLUMNS[name] ?? `s.${name}`),
    );
    await on.query(
      `INSERT INTO ${target} (${columns.map(({ name }) => name).join(', ')})
       SELECT ${values.join(', ')} FROM copy m JOIN pattern t USING (k) JOIN made_${table} s ON s.${id} = t.id`,
    );
    if (bound === undefined) continue;
    await on.query(
      `DO $do$ BEGIN
         EXECUTE format('ALTER TABLE ${parent} ATTACH PARTITION ${target} FOR VALUES FROM (%L) TO (%L)', ${bound(start(ago))}, ${bound(start(ago - 1))});
         PERFORM ${schema}.guard_month('${table}', '${table}${named?.name}');
       END $do$`,
    );
    await on.query(`VACUUM ANALYZE ${target}`);
  }
}

/** The first partition of a new database holds everything up to the end of its month; here it is this month's alone. */
async function beginThisMonth(on: Transaction): Promise<void> {
  await on.query(
    `DO $do$ DECLARE parent text; first text; month text; bounds timestamptz[]; shown text[]; BEGIN
       bounds := ARRAY[date_trunc('month', now()), date_trunc('month', now()) + interval '1 month'];
       FOREACH parent IN ARRAY ARRAY['payments', 'audit'] LOOP
         SELECT c.relname INTO STRICT first FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
          WHERE i.inhparent = ('duebridge_platform.' || parent)::regclass AND pg_get_expr(c.relpartbound, c.oid) LIKE '%MINVALUE%';
         month := parent || to_char(now(), '_YYYY_MM');
         shown := CASE parent WHEN 'audit' THEN bounds::text[]
                  ELSE ARRAY[duebridge_platform.first_id(bounds[1]), duebridge_platform.first_id(bounds[2])] END;
         EXECUTE format('ALTER TABLE duebridge_platform.%I DETACH PARTITION duebridge_platform.%I', parent, first);
         IF first <> month THEN EXECUTE format('ALTER TABLE duebridge_platform.%I RENAME TO %I', first, month); END IF;
         EXECUTE format('ALTER TABLE duebridge_platform.%I ATTACH PARTITION duebridge_platform.%I FOR VALUES FROM (%L) TO (%L)',
                        parent, month, shown[1], shown[2]);
       END LOOP;
       PERFORM duebridge_platform.make_months();
     END $do$`,
  );
}

/** What the loops of a platform have done with it long ago: batches are closed and remitted, money is summed, the audit is sealed. */
async function closeThePast(on: Transaction, months: number): Promise<void> {
  await on.query(
    `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, opened_at, cutoff_at, closed_at, statement)
     SELECT id, partner_id, day, day + interval '1 day', day + interval '1 day',
            jsonb_build_object('platform_batch_id', id, 'count', 0, 'totals', '[]'::jsonb, 'sha256', repeat('0', 64))
       FROM duebridge_platform.partners,
            generate_series(date_trunc('month', now()) - make_interval(months => ${months}), date_trunc('month', now()) - interval '1 day', '1 day') day,
            LATERAL (SELECT to_char(day, 'YYYY-MM-DD-') || partner_id AS id) named;
     INSERT INTO duebridge_platform.remitted_batches (platform_batch_id)
     SELECT platform_batch_id FROM duebridge_platform.batches WHERE closed_at IS NOT NULL;
     UPDATE duebridge_platform.book_progress SET summed_to = now()::date - 4;
     INSERT INTO duebridge_platform.audit_seals (seal_no, from_at, to_at, sealed_at, lines, digests, previous, seal)
     VALUES (1, '-infinity', date_trunc('month', now()), now(), 0, '', decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'));
     ANALYZE duebridge_platform.batches, duebridge_platform.remitted_batches`,
  );
}

/** A table with its partitions, in bytes. */
export interface Size {
  readonly table: string;
  readonly rows: number;
  readonly heap: number;
  readonly indexes: number;
}

/** Sizes of all tables of a schema, the largest first; rows as of the last ANALYZE. */
export function sizesOf(database: Database, schema: string): Promise<Size[]> {
  return database.query<Size & Record<string, unknown>>(
    `SELECT coalesce(p.relname, c.relname) AS table, sum(greatest(c.reltuples, 0))::float8 AS rows,
            sum(pg_table_size(c.oid))::float8 AS heap, sum(pg_indexes_size(c.oid))::float8 AS indexes
       FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
      WHERE c.relkind = 'r' AND c.relnamespace = $1::regnamespace GROUP BY 1 ORDER BY sum(pg_total_relation_size(c.oid)) DESC`,
    [schema],
  );
}
