/** Who made a payment: the customer of the visit that confirmed it, while their data is kept. */
import { sql, type Database } from '@duebridge/runtime';
import type { Sealer } from '../partners/seal.ts';

const payerStatement = sql(`
   SELECT customer_id FROM duebridge_platform.flow_payments WHERE platform_payment_id = $1`);
const customerStatement = sql(`
   SELECT customer_id, sealed FROM duebridge_platform.customers WHERE customer_id = $1 AND partner_id = $2`);

/** The payer of a partner's payment; undefined for one that nobody confirmed, and for a person who was erased. */
export async function payerOf(
  database: Database,
  sealer: Sealer,
  { platform_payment_id, partner_id }: { platform_payment_id: string; partner_id: string },
): Promise<{ readonly email: string } | undefined> {
  const [payer] = await database.query<{ customer_id: string }>(payerStatement, [
    platform_payment_id,
  ]);
  if (payer === undefined) return undefined;
  const [row] = await database.query<{ customer_id: string; sealed: string | null }>(
    customerStatement,
    [payer.customer_id, partner_id],
  );
  if (row === undefined || row.sealed === null) return undefined;
  return JSON.parse(sealer.open(row.sealed, `customers/${row.customer_id}`));
}
