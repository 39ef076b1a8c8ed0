/**
 * Methods that customers have saved at a payment processor, which shows them to the same person for the same account alone.
 *
 * enters: a session at the choice of its method; the request to erase a person.  leaves: what the processor's page needs to show, keep and
 *         remove methods; the processor's customer object for the payment; and in the end its deletion.
 * holds:  the processor asks for consent, and removes a method at one press. Here is its name of the customer alone, by flow: the keyed
 *         digest of partner, account and e-mail address. An object is deleted at the processor before its name is forgotten here.
 */
import type { FlowSavedMethods } from '@duebridge/contract';
import { messageOf, sql, type Database, type Log, type Transaction } from '@duebridge/runtime';
import type { Queryable } from '../store/payments.ts';
import type { FundingAdapter } from './adapter.ts';

/** A method that nobody has come back to for so long is forgotten: a bill that is paid once a year keeps it. */
const UNUSED_DAYS = 400;
/** Customers that a sweep deletes at the processor; the rest waits for the next. */
const MAX_FORGOTTEN = 50;

const useStatement = sql(`
   UPDATE duebridge_platform.saved_customers SET used_at = now()
    WHERE flow_id = $1 AND adapter = $2 AND forgotten_at IS NULL RETURNING reference`);
/**
 * Of two pages that open at once the first one keeps its own, and the other's is of no use to anybody. A person who was erased meanwhile
 * has no digest, and could not be found again: nothing is kept.
 */
const keepStatement = sql(`
   INSERT INTO duebridge_platform.saved_customers (flow_id, adapter, reference, email_digest)
   SELECT $1, $2, $3, c.email_digest FROM duebridge_platform.customers c WHERE c.customer_id = $4 AND c.email_digest IS NOT NULL
   ON CONFLICT (flow_id, adapter) DO NOTHING`);
const eraseStatement = sql(`
   UPDATE duebridge_platform.saved_customers SET forgotten_at = now()
    WHERE email_digest = ANY($1::bytea[]) AND forgotten_at IS NULL RETURNING 1`);
const countStatement = sql(`
   SELECT count(*)::int AS accounts FROM duebridge_platform.saved_customers
    WHERE email_digest = ANY($1::bytea[]) AND forgotten_at IS NULL`);
const unusedStatement = sql(`
   UPDATE duebridge_platform.saved_customers SET forgotten_at = now()
    WHERE used_at < now() - interval '${UNUSED_DAYS} days' AND forgotten_at IS NULL`);
/** In any order: those that fail again and again keep no other waiting. */
const forgottenStatement = sql(`
   SELECT flow_id, adapter, reference FROM duebridge_platform.saved_customers
    WHERE forgotten_at IS NOT NULL ORDER BY random() LIMIT ${MAX_FORGOTTEN}`);
const dropStatement = sql(`
   DELETE FROM duebridge_platform.saved_customers WHERE flow_id = $1 AND adapter = $2`);

/** Who is at the page: the person and the account, and the record of this visit. */
export interface Saver {
  /** Null when the partner named no account. */
  readonly flow_id: Buffer | null;
  readonly customer_id: string;
}

/** What the page of the adapter needs; the customer's object is made at the first use. Null while it is being forgotten. */
export async function openSaved(
  database: Database,
  adapter: FundingAdapter,
  { flow_id, customer_id }: Saver,
): Promise<FlowSavedMethods> {
  const { saved, name } = adapter;
  if (saved === undefined || flow_id === null) return { data: null };
  let reference = await savedCustomer(database, name, flow_id);
  if (reference === undefined) {
    const made = await saved.create();
    await database.query(keepStatement, [flow_id, name, made, customer_id]);
    reference = await savedCustomer(database, name, flow_id);
    if (reference !== made) await saved.forget(made);
  }
  return { data: reference === undefined ? null : await saved.open(reference) };
}

/** The customer's object, which this use keeps for another time; undefined when there is none. */
export async function savedCustomer(
  on: Queryable,
  adapter: string,
  flow_id: Buffer,
): Promise<string | undefined> {
  const [row] = await on.query<{ reference: string }>(useStatement, [flow_id, adapter]);
  return row?.reference;
}

/** For how many accounts a person has saved something. */
export async function countSaved(on: Queryable, digests: readonly Buffer[]): Promise<number> {
  const [row] = await on.query<{ accounts: number }>(countStatement, [digests]);
  return row?.accounts ?? 0;
}

/** Begins to forget what a person has saved; `forgetSaved` finishes it. Returns for how many accounts. */
export async function eraseSaved(tx: Transaction, digests: readonly Buffer[]): Promise<number> {
  return (await tx.query(eraseStatement, [digests])).length;
}

/**
 * Deletes at the processors what is to be forgotten. What fails is tried again at a later call, and so is what an adapter has saved that
 * is not configured now: without its row nobody could delete it.
 */
export async function forgetSaved(
  database: Database,
  adapters: ReadonlyMap<string, FundingAdapter>,
  log: Log,
): Promise<void> {
  await database.query(unusedStatement);
  const rows = await database.query<{ flow_id: Buffer; adapter: string; reference: string }>(
    forgottenStatement,
  );
  for (const { flow_id, adapter, reference } of rows) {
    try {
      const saved = adapters.get(adapter)?.saved;
      if (saved === undefined) throw new Error('the funding adapter is not configured');
      await saved.forget(reference);
      await database.query(dropStatement, [flow_id, adapter]);
    } catch (error) {
      log.warn({ adapter, error: messageOf(error) }, 'saved methods could not be forgotten yet');
    }
  }
}
