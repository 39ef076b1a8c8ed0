/**
 * Put Account Payment, up to the durable row (B4, ST1, RU5).
 *
 * enters:  a checked request of an authenticated client.
 * leaves:  the payment of its id, new or as it was, after the commit that holds it (KT3).
 * holds:   one row per platform_payment_id forever (KT1, PF2); the first request's content never changes.
 * next:    a new row goes to apply.ts in memory; after a crash that finds it in the table, by its status.
 *
 * Requests that arrive while a commit is in flight share the next one: INSERT … ON CONFLICT DO NOTHING, then a separate SELECT for
 * those that existed. Each is its own READ COMMITTED transaction, so that the SELECT sees the rows that the insert conflicted with.
 * One statement that does both returned nothing in 40 of 100 races; checking before inserting makes duplicates or errors.
 *
 * Account and amount are not validated here: a payment for an unknown account is accepted and then fails, so that it leaves a trace
 * and every retry gets the same answer (decision 10).
 */
import assert from 'node:assert/strict';
import { invalidField, type PaymentInstruction } from '@duebridge/contract';
import { groupCommit } from '@duebridge/runtime';
import type { KitContext } from './metrics.ts';
import {
  findPayments,
  insertPayments,
  writeAudit,
  type AccountPath,
  type AuditLine,
  type NewPayment,
  type PaymentRow,
} from './store.ts';

/** Payments in one insert: beyond a few hundred the statement costs more than the commit it saves. */
const MAX_BATCH = 512;
/** Requests waiting for their insert: two seconds of work at 5,000 a second. Beyond that a caller should retry later (F73). */
const MAX_QUEUED = 10_000;

/** Opens the accepting end of the kit. */
export function openAcceptance(
  options: Pick<KitContext, 'database' | 'metrics'> & {
    /** Takes the payments that were new, right after their commit. */
    readonly handOver: (payments: readonly PaymentRow[]) => void;
    /** The caller's name, stored with each payment. */
    readonly client_id: string;
  },
) {
  const { database, handOver, client_id, metrics } = options;

  const flush = async (requests: NewPayment[]): Promise<PaymentRow[]> => {
    // Of concurrent requests with the same id the first is inserted; the others are repeats of it.
    const firsts = new Map<string, NewPayment>();
    for (const request of requests) {
      if (!firsts.has(request.platform_payment_id)) {
        firsts.set(request.platform_payment_id, request);
      }
    }
    const made = await insertPayments(database, [...firsts.values()]);
    if (made.size > 0) handOver([...made.values()]);
    metrics.count('accepted', made.size);
    metrics.count('repeated', requests.length - made.size);
    if (made.size === requests.length) return requests.map((request) => rowOf(made, request));

    const missing = [...firsts.keys()].filter((id) => !made.has(id));
    const rows =
      missing.length === 0 ? made : new Map([...made, ...(await findPayments(database, missing))]);
    const lines = requests.flatMap((request) => auditOf(request, rowOf(rows, request)));
    if (lines.length > 0) await writeAudit(database, lines);
    metrics.count('mismatched', lines.length);
    return requests.map((request) => rowOf(rows, request));
  };

  const group = groupCommit<NewPayment, PaymentRow>({
    flush,
    maxBatch: MAX_BATCH,
    maxQueued: MAX_QUEUED,
  });

  return {
    /** Returns the payment of this id (RU5). Refuses with INVALID_REQUEST when the body names another id than the path (decision 2). */
    async put(
      path: AccountPath & { readonly platform_payment_id: string },
      body: PaymentInstruction,
    ): Promise<PaymentRow> {
      const { biller_id, account_id, platform_payment_id } = path;
      if ((body.platform_payment_id ?? platform_payment_id) !== platform_payment_id) {
        throw invalidField('body.platform_payment_id', 'differs from the one in the path');
      }
      const { amount_in_cents, platform_batch_id } = body;
      return group.add({
        platform_payment_id,
        platform_batch_id,
        biller_id,
        account_id,
        client_id,
        amount_in_cents,
      });
    },
    /** Resolves when every payment put so far is on disk or has failed. */
    drain: (): Promise<void> => group.drain(),
  };
}

function rowOf(rows: ReadonlyMap<string, PaymentRow>, request: NewPayment): PaymentRow {
  const row = rows.get(request.platform_payment_id);
  // The conflicting rows are committed, and no payment is ever deleted.
  assert(row, 'an id was neither inserted nor found');
  return row;
}

/** The fields in which a repeat differs from the first request (decision 9); empty for an identical repeat. */
function auditOf(request: NewPayment, row: PaymentRow): AuditLine[] {
  const { platform_payment_id } = request;
  const actor = `client ${request.client_id}`;
  const detail: Record<string, string | number> = {};
  for (const field of [
    'amount_in_cents',
    'platform_batch_id',
    'biller_id',
    'account_id',
  ] as const) {
    if (request[field] !== row[field]) detail[field] = request[field];
  }
  if (Object.keys(detail).length === 0) return [];
  return [{ platform_payment_id, actor, event: 'mismatch', detail }];
}
