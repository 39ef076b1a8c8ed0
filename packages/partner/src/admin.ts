/**
 * The operator's side of the kit (decisions 30 and 146): accounts, payments, batches, credentials and the audit of them. On a
 * listener of its own, behind a key of its own; the command line uses only this.
 */
import { Readable } from 'node:stream';
import {
  partnerAdminRoutes,
  PlatformBatchId,
  compileCheck,
  parseInstant,
  Refusal,
  type KitAuditPage,
  type KitAuditQuery,
  type KitBatchPage,
  type KitBatchQuery,
  type KitPaymentPage,
  type KitPaymentQuery,
  type KitSettle,
} from '@duebridge/contract';
import {
  adminGuard,
  ConfigurationError,
  mount,
  AuditChain,
  type Database,
} from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import { accountsKind, importAccountsFile } from './accounts-csv.ts';
import { checkCsv, CsvRefused } from './csv.ts';
import type { BillerRules, FinalOutcome } from './account-system.ts';
import type { PartnerKit } from './kit.ts';
import { batchLines, listBatches, openStatements } from './statement.ts';
import {
  auditTables,
  findPayments,
  listPayments,
  readAudit,
  toRecord,
  writeAudit,
  type PaymentRow,
  type Place,
} from './store.ts';

/** Default page size of payments; the query's pattern sets the maximum. */
const DEFAULT_PAGE_ROWS = 100;
/** Default page size of batches, each of which has to be counted. */
const DEFAULT_PAGE_BATCHES = 10;
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
  /** As passed to the kit: accounts of other billers are not imported, and with a single biller a file need not name it. */
  readonly billers?: readonly BillerRules[] | undefined;
}

/** Mounts the operator's operations on a server of `createServer`. Throws ConfigurationError for a weak key. */
export function mountPartnerAdmin(app: FastifyInstance, options: PartnerAdminOptions): void {
  const { database, kit, billers } = options;
  const auditChain = new AuditChain({ database, tables: auditTables });
  const guard = { onRequest: adminGuard(options.adminKey) };

  mount(
    app,
    partnerAdminRoutes.import_accounts,
    async ({ body: { csv, as_of } }) => {
      // All or nothing: a request is one transaction.
      const file = { billers, as_of, actor: ADMIN_KEY_ACTOR, pageRows: Infinity };
      const checked = await checkCsv(accountsKind(file), [csv]).catch((error: unknown): never => {
        if (!(error instanceof CsvRefused)) throw error;
        throw new Refusal('INVALID_REQUEST', { details: error.problems });
      });
      return importAccountsFile(database, () => [csv], checked, file);
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
      const result = await kit.cancel(params.platform_payment_id, ADMIN_KEY_ACTOR, body.reason);
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
  mount(
    app,
    partnerAdminRoutes.get_kit_payment,
    async ({ params: { platform_payment_id } }) => ({
      payment: toRecord(await paymentOf(database, platform_payment_id)),
      audit: await readAudit(database, { platform_payment_id }, undefined, MAX_AUDIT_LINES),
    }),
    guard,
  );
  mount(
    app,
    partnerAdminRoutes.settle_payment,
    async ({ params, body }) => toRecord(await settle(kit, params.platform_payment_id, body)),
    guard,
  );
  mountBatches(app, database, guard);
  mountCredentials(app, options, guard);
  mount(app, partnerAdminRoutes.list_kit_audit, ({ query }) => auditPage(database, query), guard);
}

type Guard = { readonly onRequest: ReturnType<typeof adminGuard> };

/** Decision 26: the operator here can also see what the platform asks about a batch. */
function mountBatches(app: FastifyInstance, database: Database, guard: Guard): void {
  const statements = openStatements(database);
  mount(app, partnerAdminRoutes.list_kit_batches, ({ query }) => batchPage(database, query), guard);
  mount(
    app,
    partnerAdminRoutes.get_kit_batch,
    async ({ params }) => {
      const statement = await statements.read(null, params.platform_batch_id);
      if (statement === undefined) throw new Refusal('BATCH_NOT_FOUND');
      return statement;
    },
    guard,
  );
  mount(
    app,
    partnerAdminRoutes.export_kit_batch,
    async ({ params: { platform_batch_id }, reply }) => {
      const lines = await batchLines(database, platform_batch_id);
      if (lines === undefined) throw new Refusal('BATCH_NOT_FOUND');
      reply
        .type('text/csv; charset=utf-8')
        .header('Content-Disposition', `attachment; filename="${platform_batch_id}.csv"`);
      // Fastify streams it; the table's response type describes the whole text.
      return Readable.from(lines) as unknown as string;
    },
    guard,
  );
}

/** Decision 38: credentials change while the servers run. */
function mountCredentials(
  app: FastifyInstance,
  { database, kit }: PartnerAdminOptions,
  guard: Guard,
): void {
  const { credentials } = kit;
  mount(
    app,
    partnerAdminRoutes.list_kit_credentials,
    async () => ({ credentials: await credentials.list() }),
    guard,
  );
  mount(
    app,
    partnerAdminRoutes.issue_kit_credential,
    ({ params, body }) =>
      credentials.issue(params.client_id, ADMIN_KEY_ACTOR, body.reason, body.valid_for_days),
    guard,
  );
  mount(
    app,
    partnerAdminRoutes.revoke_kit_credential,
    ({ params, body }) => credentials.revoke(params.credential_id, ADMIN_KEY_ACTOR, body.reason),
    guard,
  );
  mount(
    app,
    partnerAdminRoutes.revoke_kit_tokens,
    async ({ params: { client_id }, body: { reason } }) => {
      const known = await credentials.list();
      if (!known.some((one) => one.client_id === client_id)) throw new Refusal('NOT_FOUND');
      const tokens_revoked = await kit.revokeTokens(client_id);
      await writeAudit(database, [
        {
          platform_payment_id: null,
          actor: ADMIN_KEY_ACTOR,
          event: 'tokens_revoked',
          detail: { client_id, tokens_revoked, reason },
        },
      ]);
      return { client_id, tokens_revoked };
    },
    guard,
  );
}

async function paymentOf(database: Database, platform_payment_id: string): Promise<PaymentRow> {
  const payment = (await findPayments(database, [platform_payment_id])).get(platform_payment_id);
  if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  return payment;
}

/** Ends a payment with the outcome that the operator knows from the biller's own system. A repeat is answered like the first. */
async function settle(kit: PartnerKit, id: string, body: KitSettle): Promise<PaymentRow> {
  const settled = await kit
    .settle(id, outcomeOf(body), ADMIN_KEY_ACTOR, body.reason)
    .catch((error: unknown) => {
      if (error instanceof ConfigurationError) {
        throw new Refusal('CONFLICT', {
          message:
            'The accounts are in the database of the kit, which posts and ends payments by itself',
        });
      }
      throw error;
    });
  if (settled.outcome === 'not_found') throw new Refusal('PAYMENT_NOT_FOUND');
  if (settled.outcome === 'was_ended' && !settled.agrees) {
    throw new Refusal('CONFLICT', {
      message: `The payment has ${settled.payment.status}, which never changes; the report is kept in the audit`,
    });
  }
  return settled.payment;
}

function outcomeOf({ outcome, posted_at, failure_reason }: KitSettle): FinalOutcome {
  const problem = (path: string, text: string): Refusal =>
    new Refusal('INVALID_REQUEST', { details: [{ path, problem: text }] });
  if (posted_at !== undefined && outcome !== 'posted') {
    throw problem('body.posted_at', 'is valid only with the outcome posted');
  }
  if (outcome !== 'failed') {
    if (failure_reason !== undefined) {
      throw problem('body.failure_reason', 'is valid only with the outcome failed');
    }
    return outcome === 'canceled'
      ? { outcome }
      : { outcome, ...(posted_at === undefined ? {} : { posted_at }) };
  }
  if (failure_reason === undefined) throw problem('body.failure_reason', 'is required');
  return { outcome, reason: failure_reason };
}

const batchIdCheck = compileCheck(PlatformBatchId);

async function batchPage(database: Database, query: KitBatchQuery): Promise<KitBatchPage> {
  const { cursor } = query;
  const limit =
    query.limit === undefined ? DEFAULT_PAGE_BATCHES : Math.min(100, Number(query.limit));
  if (cursor !== undefined && !batchIdCheck.holds(cursor)) throw wrongCursor();
  const batches = await listBatches(database, cursor, limit);
  const last = batches.at(-1)?.platform_batch_id;
  return { batches, next_cursor: batches.length < limit ? null : (last ?? null) };
}

async function auditPage(database: Database, query: KitAuditQuery): Promise<KitAuditPage> {
  const { limit, cursor, ...filter } = query;
  const rows = limit === undefined ? DEFAULT_PAGE_ROWS : Number(limit);
  if (cursor !== undefined && !/^[1-9]\d{0,14}$/.test(cursor)) throw wrongCursor();
  const before = cursor === undefined ? undefined : Number(cursor);
  const entries = await readAudit(database, filter, before, rows);
  const last = entries.at(-1);
  const next_cursor = entries.length < rows || last === undefined ? null : String(last.audit_id);
  return { entries, next_cursor };
}

function wrongCursor(): Refusal {
  const problem = 'was not issued here';
  return new Refusal('INVALID_REQUEST', { details: [{ path: 'query.cursor', problem }] });
}

async function paymentPage(database: Database, query: KitPaymentQuery): Promise<KitPaymentPage> {
  const { limit, cursor, ...filter } = query;
  const rows = limit === undefined ? DEFAULT_PAGE_ROWS : Number(limit);
  const found = await listPayments(
    database,
    filter,
    cursor === undefined ? undefined : placeOf(cursor),
    rows,
  );
  const last = found.at(-1);
  return {
    payments: found.map(toRecord),
    // A full page may be the last one; the next is then empty, which costs one call instead of a count.
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
    parseInstant(initiated_at) === undefined
  ) {
    throw wrongCursor();
  }
  return { initiated_at, platform_payment_id };
}
