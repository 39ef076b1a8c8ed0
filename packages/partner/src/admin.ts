/**
 * The operator's side of the kit (decision 30): payments, batches and the audit of them. On a
 * listener of its own, behind a key of its own; the command line uses only this.
 */
import { Readable } from 'node:stream';
import {
  partnerAdminRoutes as routes,
  PlatformPaymentId,
  compileCheck,
  conflict,
  invalidField,
  Refusal,
  type KitAuditPage,
  type KitAuditQuery,
  type KitPaymentPage,
  type KitPaymentQuery,
  type KitSettle,
  type PaymentRecord,
  type Route,
} from '@duebridge/contract';
import { adminGuard, mount, AuditChain, type Database } from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import type { FinalOutcome } from './account-system.ts';
import type { EndedByHand } from './end-by-hand.ts';
import type { PartnerKit } from './kit.ts';
import { batchLines, openStatements } from './statement.ts';
import { auditTables, findPayments, listPayments, readAudit, recordOf, toRecord } from './store.ts';

/** Default page size; the query's pattern sets the maximum. */
const DEFAULT_PAGE_ROWS = 100;
/** Maximum audit lines shown with one payment. */
const MAX_AUDIT_LINES = 200;
/** The actor recorded for the admin key. */
const ADMIN_KEY_ACTOR = 'operator';

/** The dependencies of the admin operations. */
export interface PartnerAdminOptions {
  readonly database: Database;
  /** The running kit: a cancel wakes its waiting reads. */
  readonly kit: PartnerKit;
  /** Bearer key, at least 16 visible characters. */
  readonly adminKey: string;
}

/** Mounts the operator's operations on a server of `createServer`. Throws ConfigurationError for a weak key. */
export function mountPartnerAdmin(app: FastifyInstance, options: PartnerAdminOptions): void {
  const { database, kit } = options;
  const auditChain = new AuditChain({ database, tables: auditTables });
  const statementOf = openStatements(database);
  const guard = { onRequest: adminGuard(options.adminKey) };
  const on = <const R extends Route>(route: R, handler: Parameters<typeof mount<R>>[2]): void =>
    mount(app, route, handler, guard);

  on(routes.list_kit_payments, ({ query }) => paymentPage(database, query));
  on(routes.cancel_payment, async ({ params, body }) =>
    endOf(await kit.cancel(params.platform_payment_id, ADMIN_KEY_ACTOR, body.reason)),
  );
  on(routes.verify_kit_audit, ({ query }) =>
    auditChain.verify(Number(query.after ?? 0), Number(query.limit ?? 50)),
  );
  on(routes.get_kit_payment, async ({ params: { platform_payment_id } }) => ({
    payment: recordOf(
      (await findPayments(database, [platform_payment_id])).get(platform_payment_id),
    ),
    audit: await readAudit(database, { platform_payment_id }, undefined, MAX_AUDIT_LINES),
  }));
  on(routes.settle_payment, async ({ params: { platform_payment_id }, body }) =>
    endOf(await kit.settle(platform_payment_id, outcomeOf(body), ADMIN_KEY_ACTOR, body.reason)),
  );
  // Decision 26: the operator here can also see what the platform asks about a batch.
  on(routes.get_kit_batch, ({ params }) => statementOf(params.platform_batch_id));
  on(routes.export_kit_batch, async ({ params: { platform_batch_id }, reply }) => {
    const lines = await batchLines(database, platform_batch_id);
    reply
      .type('text/csv; charset=utf-8')
      .header('Content-Disposition', `attachment; filename="${platform_batch_id}.csv"`);
    // Fastify streams it; the table's response type describes the whole text.
    return Readable.from(lines) as unknown as string;
  });
  on(routes.list_kit_audit, ({ query }) => auditPage(database, query));
}

/** The payment as an end by hand left it. Throws Refusal for one that is not as the operator wants it. */
function endOf(done: EndedByHand): PaymentRecord {
  if (done.outcome === 'not_found') throw new Refusal('PAYMENT_NOT_FOUND');
  if (done.outcome === 'is_claimed') {
    throw conflict('The payment is being posted and can no longer be canceled');
  }
  if (done.outcome === 'was_ended' && !done.agrees) {
    throw conflict(`The payment has ${done.payment.status}, which never changes`);
  }
  return toRecord(done.payment);
}

/** The outcome that the operator knows from the biller's own system. */
function outcomeOf({ outcome, posted_at, failure_reason: reason }: KitSettle): FinalOutcome {
  if (posted_at !== undefined && outcome !== 'posted') {
    throw invalidField('body.posted_at', 'is valid only with the outcome posted');
  }
  if (outcome === 'failed') {
    if (reason === undefined) throw invalidField('body.failure_reason', 'is required');
    return { outcome, reason };
  }
  if (reason !== undefined) {
    throw invalidField('body.failure_reason', 'is valid only with the outcome failed');
  }
  return outcome === 'posted' && posted_at !== undefined ? { outcome, posted_at } : { outcome };
}

const paymentIdCheck = compileCheck(PlatformPaymentId);
const WRONG_CURSOR = ['query.cursor', 'was not issued here'] as const;

async function auditPage(database: Database, query: KitAuditQuery): Promise<KitAuditPage> {
  const { limit = DEFAULT_PAGE_ROWS, cursor, ...filter } = query;
  if (cursor !== undefined && !/^[1-9]\d{0,14}$/.test(cursor)) throw invalidField(...WRONG_CURSOR);
  const before = cursor === undefined ? undefined : Number(cursor);
  const entries = await readAudit(database, filter, before, Number(limit));
  return { entries, next_cursor: nextOf(entries, Number(limit), (last) => String(last.audit_id)) };
}

async function paymentPage(database: Database, query: KitPaymentQuery): Promise<KitPaymentPage> {
  const { limit = DEFAULT_PAGE_ROWS, cursor, ...filter } = query;
  const isId = cursor !== undefined && paymentIdCheck.holds(cursor);
  const place = isId ? (await findPayments(database, [cursor])).get(cursor) : undefined;
  if (cursor !== undefined && place === undefined) throw invalidField(...WRONG_CURSOR);
  const found = await listPayments(database, filter, place, Number(limit));
  const next_cursor = nextOf(found, Number(limit), (last) => last.platform_payment_id);
  return { payments: found.map(toRecord), next_cursor };
}

/** A full page may be the last one; the next is then empty, which costs one call instead of a count. */
function nextOf<T>(rows: readonly T[], limit: number, cursor: (last: T) => string): string | null {
  const last = rows.at(-1);
  return rows.length < limit || last === undefined ? null : cursor(last);
}
