/**
 * `schema.sql`: the database as all migrations leave it, for reading only; nothing is generated from it. A test of each package compares
 * it with the migrations; WRITE_SCHEMA=1 writes it anew.
 */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import type { Database } from '../src/postgres.ts';

const HEADER =
  '-- The database as all migrations leave it. Read it; it is compared with them by a test.\n';

/** Fails when the file does not show what `schema` of the database is. Takes a database that the migrations made. */
export async function assertSchemaSnapshot(
  database: Database,
  schema: string,
  file: URL,
): Promise<void> {
  const made = await describe(database, schema);
  if (process.env['WRITE_SCHEMA'] === '1') await writeFile(file, made);
  assert.equal(await readFile(file, 'utf8'), made);
}

/**
 * The tables with columns, constraints, indexes and triggers, and the functions: each as PostgreSQL itself writes them. Partitions follow from
 * their tables and from the date.
 */
async function describe(database: Database, schema: string): Promise<string> {
  const rows = await database.query<{ text: string }>(
    `
    WITH tables AS (
      SELECT c.oid, c.relname, c.reloptions FROM pg_class c
       WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> 'migrations'
    ), lines AS (
      SELECT t.oid, 1 AS part, a.attnum::int AS place,
             format('  %I %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                    CASE WHEN l.collname = 'C' THEN ' COLLATE "C"' ELSE '' END,
                    CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END,
                    CASE WHEN a.attidentity = 'a' THEN ' GENERATED ALWAYS AS IDENTITY'
                         WHEN d.adbin IS NULL THEN ''
                         WHEN a.attgenerated = 's' THEN format(' GENERATED ALWAYS AS (%s) STORED', pg_get_expr(d.adbin, d.adrelid))
                         ELSE ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid) END) AS line
        FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        LEFT JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum
      UNION ALL
      SELECT t.oid, 2, row_number() OVER (PARTITION BY t.oid ORDER BY c.contype DESC, c.conname)::int,
             format('  CONSTRAINT %I %s', c.conname, pg_get_constraintdef(c.oid))
        FROM tables t JOIN pg_constraint c ON c.conrelid = t.oid AND c.contype IN ('p', 'u', 'c', 'f', 'x')
    ), bodies AS (
      SELECT oid, string_agg(line, E',\\n' ORDER BY part, place) AS body FROM lines GROUP BY oid
    )
    SELECT text FROM (
      SELECT 1 AS part, t.relname AS name, 0 AS step, '' AS inner_name,
             format(E'CREATE TABLE %I.%I (\\n%s\\n)%s%s;', $1::text, t.relname, b.body, ' PARTITION BY ' || pg_get_partkeydef(t.oid),
                    coalesce(' WITH (' || array_to_string(t.reloptions, ', ') || ')', '')) AS text
        FROM tables t JOIN bodies b USING (oid)
      UNION ALL
      SELECT 1, t.relname, 1, i.relname, pg_get_indexdef(x.indexrelid) || ';'
        FROM tables t JOIN pg_index x ON x.indrelid = t.oid JOIN pg_class i ON i.oid = x.indexrelid
       WHERE NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = x.indexrelid AND c.conrelid = t.oid)
      UNION ALL
      SELECT 1, t.relname, 2, g.tgname, pg_get_triggerdef(g.oid) || ';'
        FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal
      UNION ALL
      SELECT 2, p.proname, 0, '', pg_get_functiondef(p.oid) || ';'
        FROM pg_proc p WHERE p.pronamespace = $1::regnamespace
    ) AS parts ORDER BY part, name COLLATE "C", step, inner_name COLLATE "C"`,
    [schema],
  );
  return `${HEADER}\n${rows.map((row) => row.text.trimEnd()).join('\n\n')}\n`;
}
