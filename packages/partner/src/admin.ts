/**
 * The operator's side of the kit (decision 30): import accounts, list payments, cancel one. On a listener of its own, behind a key
 * of its own; the command line uses only this.
 */
import {
  partnerAdminRoutes,
  Refusal,
  type KitPaymentPage,
  type KitPaymentQuery,
} from '@duebridge/contract';
import { adminGuard, mount, openAuditChain, type Database } from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import { parseAccountsCsv } from './accounts-csv.ts';
import type { BillerRules } from './account-system.ts';
import type { PartnerKit } from './kit.ts';
import { importAccounts } from './ledger.ts';
import { auditTables, listPayments, toRecord, type Place } from './store.ts';

/** Payments in one page when the operator names no number, and at most (the query's pattern). */
const defaultPageRows = 100;

/** What the admin operations need. */
export interface PartnerAdminOptions {
  readonly database: Database;
  /** The running kit: a cancel wakes its waiting reads. */
  readonly kit: PartnerKit;
  /** Bearer key, at least 16 visible characters. */
  readonly adminKey: string;
  /** As given to the kit: accounts of other billers are not imported, and a file for one biller need not name it. */
  readonly billers?: readonly BillerRules[] | undefined;
}

/** Mounts the operator's operations on a server of `createServer`. Throws ConfigurationError for a weak key. */
export function mountPartnerAdmin(app: FastifyInstance, options: PartnerAdminOptions): void {
  const { database, kit, billers } = options;
  const auditChain = openAuditChain({ database, tables: auditTables });
  const guard = { onRequest: adminGuard(options.adminKey) };

  mount(
    app,
    partnerAdminRoutes.import_accounts,
    ({ body }) => {
      const parsed = parseAccountsCsv(
        body.csv,
        billers?.length === 1 ? billers[0]?.biller_id : undefined,
      );
      if (!parsed.ok) throw new Refusal('INVALID_REQUEST', { details: parsed.problems });
      const strangers = parsed.accounts.filter(
        ({ biller_id }) => billers?.every((biller) => biller.biller_id !== biller_id) ?? false,
      );
      if (strangers.length > 0) {
        const problem = 'is of a biller that is not served here';
        throw new Refusal('INVALID_REQUEST', {
          details: strangers.map(({ account_id }) => ({ path: `account ${account_id}`, problem })),
        });
      }
      return importAccounts(database, parsed.accounts, body.as_of ?? null);
    },
    guard,
  );
  mount(
    app,
    partnerAdminRoutes.list_kit_payments,
    ({ query }) => paymentPage(database, query),
    guard,
  );
  mount(
    app,
    partnerAdminRoutes.cancel_payment,
    async ({ params, body }) => {
      const result = await kit.cancel(params.platform_payment_id, 'operator', body.reason);
      switch (result.outcome) {
        case 'canceled':
        case 'was_canceled':
          return toRecord(result.payment);
        case 'not_found':
          throw new Refusal('PAYMENT_NOT_FOUND');
        case 'too_late': {
          const { status } = result.payment;
          throw new Refusal('CONFLICT', {
            message:
              status === 'processing'
                ? 'The payment is being posted and can no longer be canceled'
                : `The payment has ${status} and can no longer be canceled`,
          });
        }
      }
    },
    guard,
  );
  mount(
    app,
    partnerAdminRoutes.verify_kit_audit,
    ({ query }) => auditChain.verify(Number(query.after ?? 0), Number(query.limit ?? 50)),
    guard,
  );
}

async function paymentPage(database: Database, query: KitPaymentQuery): Promise<KitPaymentPage> {
  const { limit, cursor, ...filter } = query;
  const rows = limit === undefined ? defaultPageRows : Number(limit);
  const found = await listPayments(
    database,
    filter,
    cursor === undefined ? undefined : placeOf(cursor),
    rows,
  );
  const last = found.at(-1);
  return {
    payments: found.map(toRecord),
    // A full page may be the last one; the next is then empty, which costs one call and no count.
    next_cursor: found.length < rows || last === undefined ? null : cursorOf(last),
  };
}

function cursorOf({ initiated_at, platform_payment_id }: Place): string {
  return `${initiated_at}_${platform_payment_id}`;
}

function placeOf(cursor: string): Place {
  const match = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)_([A-Za-z0-9._-]{1,64})$/.exec(cursor);
  const [, initiated_at, platform_payment_id] = match ?? [];
  if (
    initiated_at === undefined ||
    platform_payment_id === undefined ||
    Number.isNaN(Date.parse(initiated_at))
  ) {
    const problem = 'is not one that was given out';
    throw new Refusal('INVALID_REQUEST', { details: [{ path: 'query.cursor', problem }] });
  }
  return { initiated_at, platform_payment_id };
}
