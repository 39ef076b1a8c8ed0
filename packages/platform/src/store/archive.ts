/**
 * `duebridge platform archive`: months that are over go to files.
 *
 * enters: a month; a folder.  leaves: the month's payments in full and its lines of the audit in files, each with a digest in the audit; the
 *         partition of the lines is dropped, and that of the payments holds short rows: what idempotency, refunds, returned debits and
 *         reconciliation read, without what only a reader of the story wants. No other code knows the difference.
 * holds:  the oldest month first, never one in which a payment has not ended or money is under way. Nothing is removed before its file was read
 *         back. A month that is copied may not change; one transaction exchanges the partitions, and payments wait for it for milliseconds. A run
 *         that is cut off leaves the month as it was, and the next one begins it again.
 *
 * It runs as the owner of the tables, as `migrate` does: the serving role may not remove anything, and its grants, which are read off the
 * statements that name the schema, are not made from these.
 */
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Refusal } from '@duebridge/contract';
import { makeFolder, sqlState, type Database, type Transaction } from '@duebridge/runtime';
import { giveWay, writeArchive, type KeyedLine, type Written } from './archive-file.ts';
import { FILES } from './archived.ts';
import { note } from './audit.ts';
import { makeMonths } from './months.ts';
import { ARRIVALS } from './payments.ts';

const SCHEMA = 'duebridge_platform';
/** So long after its end a month can go: mails, sums, lost payments and the figures look back for less. */
const REST_DAYS = 31;
/** Rows that are read, and rows that are made, at a time, each about as much work, before payments have the processors for a while. */
const [READ, MADE] = [100, 250];
/** How long an exchange waits for a lock, behind which payments wait as well; how often it is tried, and the pause between. */
const [LOCK_MS, TRIES, PAUSE_MS] = [300, 100, 500];

/** A month that was archived. */
export interface ArchivedMonth {
  readonly month: string;
  readonly folder: string;
  readonly payments: Written;
  readonly audit: Written;
}

interface Month {
  /** `2027_01`, as its partitions are named, and `2027-01`. */
  readonly name: string;
  readonly label: string;
  readonly until: string;
  readonly until_id: string;
  /** Of the partition of payments: its bounds as SQL, and the condition that they mean. */
  readonly bounds: string;
  readonly condition: string;
}

interface Given {
  readonly database: Database;
  readonly before: string;
  readonly folder: string;
  readonly clock: { readonly now: () => number };
  readonly actor: string;
  readonly archived: (month: ArchivedMonth) => void;
  /** Gets a line after each portion: how far the month is. */
  readonly progress?: (line: string) => void;
}

/**
 * Archives every month before `before` (`2027-01`), the oldest first, to `folder`/MONTH; `archived` gets each one. Throws Refusal CONFLICT at the
 * first month that may not go yet, with the reason; those before it stay archived.
 */
export async function archiveMonths(given: Given): Promise<void> {
  const { database, before, clock } = given;
  // What came before its month was made moves into it, and each month is there in both tables.
  await makeMonths(database);
  for (const month of await monthsBefore(database, before)) {
    await refuseOpen(database, month, clock.now());
    given.archived(await archiveMonth(given, month, join(resolve(given.folder), month.label)));
  }
}

/** Months that are not archived yet and end by the beginning of `before`, the oldest first. */
async function monthsBefore(database: Database, before: string): Promise<Month[]> {
  return database.query<Month>(
    `SELECT m.name, replace(m.name, '_', '-') AS label, to_json(m.until) #>> '{}' AS until, ${SCHEMA}.first_id(m.until) AS until_id,
            pg_get_expr(c.relpartbound, c.oid) AS bounds, pg_get_partition_constraintdef(c.oid) AS condition
       FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
            LATERAL (SELECT substr(c.relname, 10) AS name,
                            (to_date(substr(c.relname, 10), 'YYYY_MM') + interval '1 month') AT TIME ZONE 'UTC' AS until) m
      WHERE i.inhparent = '${SCHEMA}.payments'::regclass AND c.relname ~ '^payments_\\d{4}_\\d\\d$'
        AND m.until <= (to_date($1, 'YYYY-MM')::timestamp AT TIME ZONE 'UTC')
        AND NOT EXISTS (SELECT 1 FROM ${SCHEMA}.archives a WHERE a.month = replace(m.name, '_', '-'))
      ORDER BY c.relname`,
    [before],
  );
}

/** What is open up to the end of a month, in words; `$1` is the first id after it, or its end. */
const OPEN: readonly (readonly [words: string, by: 'until_id' | 'until', from: string])[] = [
  [
    'payments have not ended, or their funds are not settled',
    'until_id',
    'payments p WHERE p.platform_payment_id < $1 AND p.settled_at IS NULL',
  ],
  [
    'cases have not ended',
    'until_id',
    `cases c WHERE c.platform_payment_id < $1 AND c.state <> 'ended'`,
  ],
  [
    'refunds are under way',
    'until_id',
    `refunds r WHERE r.platform_payment_id < $1 AND r.state = 'sending'`,
  ],
  [
    'amounts have not been taken off a remittance yet',
    'until_id',
    'deductions d WHERE d.platform_payment_id < $1 AND d.remittance_id IS NULL',
  ],
  ['batches are open', 'until', 'batches b WHERE b.opened_at < $1 AND b.closed_at IS NULL'],
  [
    'remittances have not been paid',
    'until',
    `remittances r JOIN ${SCHEMA}.batches b USING (platform_batch_id)
      WHERE b.opened_at < $1 AND r.state IN ('due', 'sending', 'sent')`,
  ],
  [
    'differences are not resolved',
    'until_id',
    'differences d WHERE d.platform_payment_id < $1 AND d.resolved_at IS NULL',
  ],
];
/** At most so many are counted. */
const COUNTED = 1_000;

/** Throws Refusal CONFLICT for a month that may not go yet, with the reason. */
async function refuseOpen(database: Database, month: Month, now: number): Promise<void> {
  const refusal = (why: string) => new Refusal('CONFLICT', { message: `${month.label}: ${why}` });
  if (Date.parse(month.until) + REST_DAYS * 86_400_000 > now) {
    throw refusal(`it has not been over for ${REST_DAYS} days`);
  }
  for (const [words, by, from] of OPEN) {
    const found = `SELECT 1 FROM ${SCHEMA}.${from} LIMIT ${COUNTED}`;
    const rows = await unlimited(database, (tx) => tx.query(found, [month[by]]));
    if (rows.length > 0) throw refusal(`${words} (${rows.length})`);
  }
}

async function archiveMonth(
  { database, actor, progress }: Given,
  month: Month,
  folder: string,
): Promise<ArchivedMonth> {
  const after = (what: string): AfterPortion => {
    let all = 0;
    return (rows) => {
      all += rows;
      progress?.(`${month.label}: ${all} ${what} …`);
      return giveWay();
    };
  };
  const write = (file: string, table: string, what: string): Promise<Written> =>
    writeArchive(join(folder, file), (take) => readRows(database, table, take, after(what)));
  const [payments, audit] = [`payments_${month.name}`, `audit_${month.name}`];
  await makeFolder(folder);
  const guards = [payments, audit].map(
    (table) =>
      `CREATE OR REPLACE TRIGGER being_archived BEFORE INSERT OR UPDATE ON ${SCHEMA}.${table}
         FOR EACH ROW EXECUTE FUNCTION ${SCHEMA}.being_archived()`,
  );
  await inTurns(database, (tx) => tx.query(guards.join(';')));
  try {
    const written = {
      payments: await write(FILES.payments, payments, 'payments written'),
      audit: await write(FILES.audit, audit, 'lines of the audit written'),
    };
    const made = await shorten(database, month, payments, after('short rows made'));
    if (made !== written.payments.rows)
      throw new Error(`${payments} has changed while it was archived`);
    await exchange(database, month, folder, written, actor);
    return { month: month.label, folder, ...written };
  } catch (error) {
    const undone = `DROP TRIGGER IF EXISTS being_archived ON ${SCHEMA}.${payments};
                    DROP TRIGGER IF EXISTS being_archived ON ${SCHEMA}.${audit};
                    DROP TABLE IF EXISTS ${SCHEMA}.${payments}_short`;
    await inTurns(database, (tx) => tx.query(undone));
    throw error;
  }
}

/** Gets how many rows a portion had; the next may begin when it is done. */
type AfterPortion = (rows: number) => Promise<void>;

/** Gives all rows of a partition to `take`, as JSON in UTC, those of a payment together and in the order of their time. */
function readRows(
  database: Database,
  table: string,
  take: (rows: readonly KeyedLine[]) => Promise<void>,
  after: AfterPortion,
): Promise<void> {
  // As an index has them: sorting a month keeps a processor for seconds.
  const orders = table.startsWith('audit')
    ? [
        'WHERE platform_payment_id IS NULL ORDER BY partner_id, at',
        'WHERE platform_payment_id IS NOT NULL ORDER BY left(platform_payment_id, 10), platform_payment_id, at, audit_id',
      ]
    : ['ORDER BY platform_payment_id'];
  return unlimited(database, async (tx) => {
    // The lock fails where another run has archived the month: its file is not written anew from the short rows that are left.
    await tx.query(
      `SET LOCAL TimeZone = 'UTC'; SET LOCAL enable_sort = off; SET LOCAL enable_incremental_sort = on;
       LOCK TABLE ${SCHEMA}.${table.replace('payments', 'audit')} IN ACCESS SHARE MODE`,
    );
    for (const order of orders) {
      await tx.query(
        `DECLARE archived NO SCROLL CURSOR FOR SELECT coalesce(t.platform_payment_id, '') AS key, row_to_json(t)::text AS line
           FROM (SELECT * FROM ${SCHEMA}.${table} ${order}) t`,
      );
      for (;;) {
        const rows = await tx.query<KeyedLine>(`FETCH ${READ} FROM archived`);
        if (rows.length === 0) break;
        await take(rows);
        await after(rows.length);
      }
      await tx.query('CLOSE archived');
    }
  });
}

/** The columns in which each payment has a value of its own. Those of eight bytes come first, so that no room is left between columns. */
const OWN = (
  'amount_in_cents created_at posted_at ended_at platform_payment_id partner_id biller_id account_id ' +
  'platform_batch_id payment_id'
).split(' ');
/** What a short row has in place of a value that is in its file; `LAST` is when the last payment of the month was settled. */
const SHORT: Readonly<Record<string, string>> = {
  session_id: 'NULL',
  rejection_message: 'NULL',
  former_payment_ids: 'NULL',
  initiated_at: 'NULL',
  slot: `${ARRIVALS}`,
  accepted_at: 'CASE WHEN accepted_at IS NOT NULL THEN LAST END',
  settled_at: 'LAST',
};
/** What most payments have in a column that is not in OWN; null, unless it is said here. `METHOD` is the commonest of the month. */
const USUAL: Readonly<Record<string, string>> = {
  funding_method: 'METHOD',
  status: `'succeeded'`,
  stage: `'ended'`,
  slot: `${ARRIVALS}`,
  ended_by: `'partner'`,
  accepted_at: 'LAST',
  settled_at: 'LAST',
};

interface Column {
  readonly name: string;
  readonly type: string;
  readonly is_required: boolean;
  readonly initial: string | null;
}

/** Makes the table of short rows beside the partition. Gives how many they are. */
function shorten(
  database: Database,
  month: Month,
  table: string,
  after: AfterPortion,
): Promise<number> {
  const [full, short] = [`${SCHEMA}.${table}`, `${SCHEMA}.${table}_short`];
  return unlimited(database, async (tx) => {
    const columns = await tx.query<Column & Record<string, unknown>>(
      `SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS is_required, pg_get_expr(d.adbin, d.adrelid) AS initial
         FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = '${SCHEMA}.payments'::regclass AND a.attnum > 0 AND NOT a.attisdropped`,
    );
    await tx.query(
      `SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL max_parallel_maintenance_workers = 0; DROP TABLE IF EXISTS ${short}`,
    );
    const made = await fillShort(tx, full, short, columns, after);
    await makeAlike(tx, short, columns, `CONSTRAINT of_month CHECK (${month.condition})`);
    return made;
  });
}

/**
 * Makes and fills a table of short rows. A column that is added with a value takes no room in the rows that are there, because PostgreSQL keeps
 * the value once for all of them. So the usual rows are written before the columns in which they are alike are added; then those that differ in the
 * funding method alone; then the rest. Gives how many they are.
 */
async function fillShort(
  tx: Transaction,
  full: string,
  short: string,
  columns: readonly Column[],
  after: AfterPortion,
): Promise<number> {
  const [common] = await tx.query<{ method: string; last: string }>(
    `SELECT quote_literal(funding_method) AS method, quote_literal(max(max(settled_at)) OVER ()) || '::timestamptz' AS last
       FROM ${full} GROUP BY funding_method ORDER BY count(*) DESC LIMIT 1`,
  );
  const filled = (value: string): string =>
    value.replace('LAST', common?.last ?? 'now()').replace('METHOD', common?.method ?? `''`);
  const shortOf = (name: string): string => filled(SHORT[name] ?? name);
  const usualOf = (name: string): string => filled(USUAL[name] ?? 'NULL');
  const areUsual = (names: readonly Column[]): string =>
    [
      'true',
      ...names.map(({ name }) => `${shortOf(name)} IS NOT DISTINCT FROM ${usualOf(name)}`),
    ].join(' AND ');
  await tx.query(`CREATE TABLE ${short} AS SELECT ${OWN.join(', ')} FROM ${full} WITH NO DATA`);
  let made = 0;
  let there = OWN;
  let left = columns.filter(({ name }) => !OWN.includes(name));
  const methods = left.filter(({ name }) => name === 'funding_method');
  for (const added of [[], methods, left.filter((column) => !methods.includes(column))]) {
    let which = '';
    if (added.length > 0) {
      which = ` AND NOT (${areUsual(left)})`;
      const list = added.map(({ name, type }) => `ADD ${name} ${type} DEFAULT ${usualOf(name)}`);
      await tx.query(`ALTER TABLE ${short} ${list.join(', ')}`);
    }
    there = [...there, ...added.map(({ name }) => name)];
    left = left.filter((column) => !added.includes(column));
    const insert = `INSERT INTO ${short} (${there.join(', ')})
                    SELECT ${there.map(shortOf).join(', ')} FROM portion WHERE ${areUsual(left)}${which} RETURNING 1`;
    for (let last: string | null | undefined = ''; typeof last === 'string';) {
      const [portion]: { last: string | null; made: number }[] = await tx.query(
        `WITH portion AS MATERIALIZED (SELECT * FROM ${full} WHERE platform_payment_id > $1 ORDER BY platform_payment_id LIMIT ${MADE}),
              made AS (${insert})
         SELECT (SELECT max(platform_payment_id) FROM portion) AS last, count(*)::int AS made FROM made`,
        [last],
      );
      last = portion?.last;
      made += portion?.made ?? 0;
      await after(portion?.made ?? 0);
    }
  }
  return made;
}

/**
 * Gives a table the indexes, constraints and initial values of its future parent, so that it can be attached without reading it: payments wait for
 * that. Its pages are full, because almost nothing will be written to them.
 */
async function makeAlike(
  tx: Transaction,
  table: string,
  columns: readonly Column[],
  ofMonth: string,
): Promise<void> {
  const [parent] = await tx.query<{ constraints: string[]; indexes: string[] }>(
    `SELECT ARRAY(SELECT CASE contype WHEN 'p' THEN pg_get_constraintdef(oid) || ' WITH (fillfactor = 100)'
                                      ELSE format('CONSTRAINT %I %s', conname, pg_get_constraintdef(oid)) END
                    FROM pg_constraint WHERE conrelid = '${SCHEMA}.payments'::regclass AND contype IN ('c', 'f', 'p')) AS constraints,
            ARRAY(SELECT pg_get_indexdef(indexrelid) FROM pg_index
                   WHERE indrelid = '${SCHEMA}.payments'::regclass AND NOT indisprimary) AS indexes`,
  );
  // The audit, by which the partner's id finds other payments (payment-search.ts), goes.
  const ofPartnersId = 'CREATE INDEX ON payments USING btree (hashtext(payment_id))';
  for (const index of [...(parent?.indexes ?? []), ofPartnersId]) {
    const [, create, of, where = ''] =
      /^(CREATE .*?INDEX).* ON .*? (USING .*?)(?: WITH \(.*?\))?( WHERE .*)?$/.exec(index) ?? [];
    await tx.query(`${create} ON ${table} ${of} WITH (fillfactor = 100)${where}`);
  }
  const changes = columns.flatMap(({ name, is_required, initial }) => [
    `ALTER ${name} ${initial === null ? 'DROP DEFAULT' : `SET DEFAULT ${initial}`}`,
    ...(is_required ? [`ALTER ${name} SET NOT NULL`] : []),
  ]);
  changes.push(...[...(parent?.constraints ?? []), ofMonth].map((one) => `ADD ${one}`));
  await tx.query(`ALTER TABLE ${table} ${changes.join(', ')}`);
}

/** Puts the short rows in the place of the full ones and drops the lines, with their note, in one transaction. */
function exchange(
  database: Database,
  { name, label, until, until_id, bounds }: Month,
  folder: string,
  { payments, audit }: Pick<ArchivedMonth, 'payments' | 'audit'>,
  actor: string,
): Promise<void> {
  const [table, lines] = [`payments_${name}`, `audit_${name}`];
  return inTurns(database, async (tx) => {
    const detail = {
      month: label,
      folder,
      payments: payments.rows,
      payments_sha256: payments.sha256,
      lines: audit.rows,
      audit_sha256: audit.sha256,
    };
    await tx.query(
      `INSERT INTO ${SCHEMA}.archives (until, until_id, ${Object.keys(detail).join(', ')}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [until, until_id, ...Object.values(detail)],
    );
    // Payments wait from here to the commit. All at once: this process may have to wait for a processor before it sends another statement.
    await tx.query(
      `ALTER TABLE ${SCHEMA}.payments DETACH PARTITION ${SCHEMA}.${table};
       DROP TABLE ${SCHEMA}.${table};
       ALTER TABLE ${SCHEMA}.${table}_short RENAME TO ${table};
       SELECT ${SCHEMA}.guard_month('payments', '${table}');
       ALTER TABLE ${SCHEMA}.payments ATTACH PARTITION ${SCHEMA}.${table} ${bounds};
       ALTER TABLE ${SCHEMA}.${table} DROP CONSTRAINT of_month;
       ALTER TABLE ${SCHEMA}.audit DETACH PARTITION ${SCHEMA}.${lines};
       DROP TABLE ${SCHEMA}.${lines}`,
    );
    await note(tx, { actor, event: 'month_archived', detail });
  });
}

/** A transaction whose statements may take as long as a month takes. */
function unlimited<T>(database: Database, work: (tx: Transaction) => Promise<T>): Promise<T> {
  return database.transaction(work, { isolation: 'repeatable read', statementTimeoutMs: 0 });
}

/** A transaction that changes tables: it waits for a lock only as long as payments may wait behind it, and is tried again. */
async function inTurns(
  database: Database,
  work: (tx: Transaction) => Promise<unknown>,
): Promise<void> {
  for (let tried = 1; ; tried += 1) {
    try {
      await database.transaction(work, { statementTimeoutMs: 0, lockTimeoutMs: LOCK_MS });
      return;
    } catch (error) {
      if (sqlState(error) !== '55P03' || tried >= TRIES) throw error;
      await delay(PAUSE_MS);
    }
  }
}
