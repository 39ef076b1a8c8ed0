/**
 * How billers are paid: the way, the account, and what holds a transfer back.
 *
 * holds: bank accounts are sealed in the database; operators see the last four digits.
 */
import { invalidField, type Payout, type PayoutView } from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import type { Sealer } from '../partners/seal.ts';
import type { Partner } from '../partners/registry.ts';
import type { Services } from '../services.ts';
import { note } from '../store/audit.ts';
import { isRoutingNumber, type BankAccount } from './bank-file.ts';

/** A biller's account: at a bank, or a connected one at Stripe. */
export type Creditor =
  | BankAccount
  | { readonly holder_name: string; readonly stripe_account: string };

type StoredPayout = Omit<PayoutView, 'holder_name' | 'account'> & { readonly sealed: string };

const COLUMNS = 'partner_id, biller_id, way, sealed, minimum_in_cents, held, bears_refunds';
const setStatement = sql(`
   INSERT INTO duebridge_platform.payouts (partner_id, biller_id, way, sealed, minimum_in_cents, held, bears_refunds)
   VALUES ($1, $2, $3, $4, coalesce($5::bigint, 1), coalesce($6::boolean, false), coalesce($7::boolean, true))
   ON CONFLICT (partner_id, biller_id) DO UPDATE SET way = excluded.way, sealed = excluded.sealed,
     minimum_in_cents = coalesce($5::bigint, payouts.minimum_in_cents), held = coalesce($6::boolean, payouts.held),
     bears_refunds = coalesce($7::boolean, payouts.bears_refunds), updated_at = now()
   RETURNING ${COLUMNS}`);
const listStatement = sql(`
   SELECT ${COLUMNS} FROM duebridge_platform.payouts WHERE partner_id = $1 ORDER BY biller_id`);

const placeOf = (partner_id: string, biller_id: string): string =>
  `payouts/${partner_id}/${biller_id}`;

/**
 * Sets how a biller is paid. What is not given stays as it is: a new account ends no hold. Throws Refusal
 * INVALID_REQUEST for a biller of another partner, or an account that cannot be one.
 */
export async function setPayout(
  { database, sealer }: Pick<Services, 'database' | 'sealer'>,
  partner: Partner,
  payout: Payout,
  actor: string,
): Promise<PayoutView> {
  const biller_id = payout.biller_id ?? partner.biller_id;
  const path = 'body.biller_id';
  if (biller_id === null) throw invalidField(path, 'is required for an aggregator');
  if (partner.biller_id !== null && biller_id !== partner.biller_id) {
    throw invalidField(path, `is not ${partner.biller_id}, the biller of this partner`);
  }
  const { partner_id } = partner;
  const { way } = payout;
  const creditor = creditorIn(payout);
  const sealed = sealer.seal(JSON.stringify(creditor), placeOf(partner_id, biller_id));
  const { minimum_in_cents = null, held = null, bears_refunds = null } = payout;
  const set = [partner_id, biller_id, way, sealed, minimum_in_cents, held, bears_refunds];
  return database.transaction(async (tx) => {
    const [stored] = await tx.query<StoredPayout>(setStatement, set);
    if (stored === undefined) throw new Error('a payout was not kept');
    const detail = {
      biller_id,
      way,
      minimum_in_cents: stored.minimum_in_cents,
      held: String(stored.held),
      bears_refunds: String(stored.bears_refunds),
      account: lastOf(creditor),
    };
    await note(tx, { actor, event: 'payout_set', partner_id, detail });
    return viewOf(stored, creditor);
  });
}

/** How the billers of a partner are paid. */
export async function listPayouts(
  { database, sealer }: Pick<Services, 'database' | 'sealer'>,
  partner_id: string,
): Promise<PayoutView[]> {
  const rows = await database.query<StoredPayout>(listStatement, [partner_id]);
  return rows.map((row) => viewOf(row, openCreditor(sealer, row)));
}

/** The account of a biller, opened. */
export function openCreditor(
  sealer: Sealer,
  { partner_id, biller_id, sealed }: Pick<StoredPayout, 'partner_id' | 'biller_id' | 'sealed'>,
): Creditor {
  return JSON.parse(sealer.open(sealed, placeOf(partner_id, biller_id))) as Creditor;
}

function viewOf({ sealed: _sealed, ...stored }: StoredPayout, creditor: Creditor): PayoutView {
  return { ...stored, holder_name: creditor.holder_name, account: `…${lastOf(creditor)}` };
}

const lastOf = (creditor: Creditor): string =>
  ('stripe_account' in creditor ? creditor.stripe_account : creditor.account_number).slice(-4);

/** The account that a payout names, of the kind that its way needs. Throws Refusal INVALID_REQUEST. */
function creditorIn({ way, holder_name, ...given }: Payout): Creditor {
  const needed = (name: 'stripe_account' | 'routing_number' | 'account_number'): string => {
    const value = given[name];
    if (value === undefined) throw invalidField(`body.${name}`, `is required for ${way}`);
    return value;
  };
  if (way === 'stripe') return { holder_name, stripe_account: needed('stripe_account') };
  const routing_number = needed('routing_number');
  const account_number = needed('account_number');
  if (isRoutingNumber(routing_number)) return { holder_name, routing_number, account_number };
  const problem = 'is no routing number: its last digit does not fit the others';
  throw invalidField('body.routing_number', problem);
}
