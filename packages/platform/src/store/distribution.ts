/**
 * How the platform's tables are distributed on a sharded PostgreSQL (Citus). Tables that grow with payments or customers are
 * distributed by the column that their statements name; every other table is a registry, copied to each node. `duebridge platform
 * migrate --distribute` applies it; sharded.test.ts checks that keys and statements fit it.
 */
import { ConfigurationError, type Database } from '@duebridge/runtime';

const SCHEMA = 'duebridge_platform';

/** The distribution column of each growing table. Every unique key of the table contains it. */
export const DISTRIBUTED: Readonly<Record<string, string>> = {
  attempts: 'platform_payment_id',
  audit: 'audit_id',
  cases: 'platform_payment_id',
  customers: 'customer_id',
  // With its flow, so that a confirm touches one shard, and the key "at most one replacement per payment" is checked on one
  // shard.
  flow_payments: 'flow_id',
  flows: 'flow_id',
  funds: 'platform_payment_id',
  payments: 'platform_payment_id',
  sandbox_funds: 'platform_payment_id',
  saved_customers: 'flow_id',
  sessions: 'session_hash',
  tokens: 'token_hash',
  // Each with its payment, in the statement that moves it.
  transfers: 'id',
};

/** Tables that only the coordinator needs. */
const LOCAL = new Set(['migrations', 'deployment']);

/**
 * Distributes every table that is not distributed yet; returns their names, as `payments by platform_payment_id`. Existing rows
 * move to their nodes, and writes wait meanwhile. A second run after an upgrade distributes the new tables. Throws
 * ConfigurationError when Citus is missing or has no node to distribute to.
 */
export async function distributeTables(database: Database): Promise<string[]> {
  const installed = await database.query(
    `SELECT 1 FROM pg_catalog.pg_proc WHERE proname = 'create_distributed_table' AND pronamespace = 'pg_catalog'::regnamespace`,
  );
  if (installed.length === 0) {
    throw new ConfigurationError(
      'this database has no Citus: install it on every node, run CREATE EXTENSION citus in this database, add the workers with citus_add_node, then distribute again (docs/scale.md)',
    );
  }
  const done: string[] = [];
  for (const table of await tablesInOrder(database)) {
    const column = DISTRIBUTED[table];
    const name = `${SCHEMA}.${table}`;
    // No timeout: moving the rows of a large table can take very long.
    await database.transaction(
      async (tx) => {
        await (column === undefined
          ? tx.query(`SELECT pg_catalog.create_reference_table($1::regclass)`, [name])
          : tx.query(`SELECT pg_catalog.create_distributed_table($1::regclass, $2::text)`, [
              name,
              column,
            ]));
      },
      { statementTimeoutMs: 0 },
    );
    done.push(column === undefined ? `${table} on every node` : `${table} by ${column}`);
  }
  return done;
}

/** Tables that are still on one node: registries first, and each after those that it references. Partitions go with their tables. */
async function tablesInOrder(database: Database): Promise<string[]> {
  const rows = await database.query<{ table: string; references: string[] }>(
    `SELECT c.relname AS table,
            ARRAY(SELECT r.relname::text FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class r ON r.oid = f.confrelid
                   WHERE f.contype = 'f' AND f.conrelid = c.oid AND r.oid <> c.oid) AS references
       FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_dist_partition d WHERE d.logicalrelid = c.oid)
      ORDER BY c.relname`,
    [SCHEMA],
  );
  const left = new Map(
    rows
      .filter(({ table }) => !LOCAL.has(table))
      .map(({ table, references }) => [table, references]),
  );
  const order: string[] = [];
  while (left.size > 0) {
    const ready = [...left].filter(([, references]) => references.every((one) => !left.has(one)));
    if (ready.length === 0) throw new Error('tables reference each other in a circle');
    for (const [table] of ready) left.delete(table);
    order.push(...ready.map(([table]) => table));
  }
  const isDistributed = (table: string): number => (table in DISTRIBUTED ? 1 : 0);
  return order.sort((a, b) => isDistributed(a) - isDistributed(b));
}
