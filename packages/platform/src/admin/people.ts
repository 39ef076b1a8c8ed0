/**
 * People: what is held about whoever has an e-mail address, and its erasure on request (decision 52).
 *
 * holds: a person is found by a keyed digest of the address, never by opening every record; whoever looks is in the audit with the
 *        reason, and the address is not. The facts of payments stay: they name nobody.
 */
import { Refusal, type Person, type PersonErasure } from '@duebridge/contract';
import { sql, type Transaction } from '@duebridge/runtime';
import { emailDigests } from '../checkout/secrets.ts';
import type { Services } from '../services.ts';
import { countSaved, eraseSaved } from '../funding/saved.ts';
import { eraseAttempts } from '../store/attempts.ts';
import { note } from '../store/audit.ts';
import { paymentsOfPerson } from '../store/payment-search.ts';
import { findPayments, type PaymentRow } from '../store/payments.ts';

/** Maximum number of one person's records that are read. */
const MAX_RECORDS = 1_000;

interface CustomerRow {
  readonly customer_id: string;
  readonly partner_id: string;
  readonly sealed: string;
  readonly created_at: string;
  readonly erase_after: string;
}

const customersStatement = sql(`
   SELECT customer_id, partner_id, sealed, created_at, erase_after FROM duebridge_platform.customers
    WHERE email_digest = ANY($1::bytea[]) AND sealed IS NOT NULL ORDER BY customer_id DESC LIMIT ${MAX_RECORDS}`);

/** The data held about a person. Throws Refusal NOT_FOUND. */
export async function showPerson(
  { database, sealer, pepper }: Pick<Services, 'database' | 'sealer' | 'pepper'>,
  email: string,
  reason: string,
  actor: string,
): Promise<Omit<Person, 'payments'> & { payments: PaymentRow[] }> {
  const digests = emailDigests(pepper, email);
  const rows = await database.query<CustomerRow>(customersStatement, [digests]);
  const saved_methods = await countSaved(database, digests);
  if (rows.length === 0 && saved_methods === 0) throw new Refusal('NOT_FOUND');
  const ids = await paymentsOfPerson(database, digests);
  await note(database, {
    actor,
    event: 'person_shown',
    detail: { reason, records: rows.length, payments: ids.length, saved_methods },
  });
  return {
    records: rows.map(({ customer_id, sealed, ...row }) => ({
      ...(JSON.parse(sealer.open(sealed, `customers/${customer_id}`)) as PersonalData),
      ...row,
    })),
    saved_methods,
    payments: (await findPayments(database, ids)).sort((a, b) =>
      a.platform_payment_id < b.platform_payment_id ? 1 : -1,
    ),
  };
}

type PersonalData = Omit<Person['records'][number], 'partner_id' | 'created_at' | 'erase_after'>;

const heldStatement = sql(`
   SELECT customer_id FROM duebridge_platform.customers WHERE email_digest = ANY($1::bytea[]) AND sealed IS NOT NULL`);
const paymentsStatement = sql(`
   SELECT customer_id, platform_payment_id FROM duebridge_platform.flow_payments WHERE customer_id = ANY($1::uuid[])`);
const openStatement = sql(`
   SELECT platform_payment_id FROM duebridge_platform.payments WHERE platform_payment_id = ANY($1::text[]) AND settled_at IS NULL`);
const eraseStatement = sql(`
   UPDATE duebridge_platform.customers SET sealed = NULL, email_digest = NULL, erased_at = now()
    WHERE customer_id = ANY($1::uuid[]) AND sealed IS NOT NULL
   RETURNING 1`);

/** Erases a person. Throws Refusal NOT_FOUND when nothing is held about them. */
export function erasePerson(
  { database, pepper }: Pick<Services, 'database' | 'pepper'>,
  email: string,
  reason: string,
  actor: string,
): Promise<PersonErasure> {
  const digests = emailDigests(pepper, email);
  return database.transaction(async (tx) => {
    const held = (await tx.query<{ customer_id: string }>(heldStatement, [digests])).map(
      (row) => row.customer_id,
    );
    const made = await tx.query<MadePayment>(paymentsStatement, [held]);
    await eraseAttempts(
      tx,
      made.map((row) => row.platform_payment_id),
    );
    const needed = await stillNeeded(tx, made);
    const erased = held.filter((customer_id) => !needed.has(customer_id));
    const customers = (await tx.query(eraseStatement, [erased])).length;
    // A payment in progress may still be held by what was saved.
    const saved_methods = needed.size === 0 ? await eraseSaved(tx, digests) : 0;
    // What was saved stays for longer than the records, and is found without them.
    if (held.length === 0 && saved_methods === 0) throw new Refusal('NOT_FOUND');
    const kept_for_payments = held.length - customers;
    await note(tx, {
      actor,
      event: 'person_erased',
      detail: { reason, customers, kept_for_payments, saved_methods },
    });
    return { customers, kept_for_payments, saved_methods };
  });
}

interface MadePayment {
  readonly customer_id: string;
  readonly platform_payment_id: string;
}

/** Those of the customers with a payment in progress, which may still need the address for its receipt; a later request erases them. */
async function stillNeeded(tx: Transaction, made: readonly MadePayment[]): Promise<Set<string>> {
  const rows = await tx.query<{ platform_payment_id: string }>(openStatement, [
    made.map((row) => row.platform_payment_id),
  ]);
  const open = new Set(rows.map((row) => row.platform_payment_id));
  return new Set(
    made.filter((row) => open.has(row.platform_payment_id)).map((row) => row.customer_id),
  );
}
