/**
 * The admin API: what an operator's command line and console ask (decision 32). Every act on a payment says why, and is in the audit.
 *
 * enters: a request that carried the admin key.  leaves: rows as an operator may see them: no secret, no customer, the account masked.
 * holds:  whether an act is allowed is decided inside the statement that does it, never by what was read before it.
 */
import {
  compileCheck,
  platformAdminRoutes as routes,
  PlatformPaymentId,
  Refusal,
  type PaymentView,
} from '@duebridge/contract';
import { mount, type Database } from '@duebridge/runtime';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { auditOfPayment, latestAudit } from './store/audit.ts';
import { getBatch, listBatches } from './reconciliation/batch.ts';
import type { ClientKeys } from './checkout/keys.ts';
import { maskAccountId } from './mask.ts';
import type { PartnerClient } from './partners/client.ts';
import type { PartnerRegistry } from './partners/registry.ts';
import { reconcileBatch } from './reconciliation/reconcile.ts';
import { findPayment, listPayments, type PaymentRow } from './store/payments.ts';
import { OVERDUE_AFTER_MS } from './engine/poll-schedule.ts';
import { resumePayment, withdrawPayment } from './store/terminal.ts';

/** The one who holds the admin key, in the audit. */
const actor = 'operator';
/** Payments on a page when nobody says how many: a screenful. */
const defaultLimit = 50;

const paymentId = compileCheck(PlatformPaymentId);

/** Mounts every admin operation. `authenticate` throws for a request without the admin key. */
export function mountAdmin(
  app: FastifyInstance,
  options: {
    database: Database;
    registry: PartnerRegistry;
    client: PartnerClient;
    keys: ClientKeys;
    authenticate: (request: FastifyRequest) => void;
  },
): void {
  const { database, registry, client, keys, authenticate } = options;
  const guarded = { onRequest: authenticate };

  /** Throws Refusal NOT_FOUND for a partner that is not registered. */
  const assertPartner = async (partner_id: string): Promise<void> => {
    if ((await registry.get(partner_id)) === undefined) throw new Refusal('NOT_FOUND');
  };

  mount(app, routes.add_partner, ({ body }) => registry.add(body, actor), guarded);
  mount(app, routes.list_partners, async () => ({ partners: await registry.list() }), guarded);
  mount(
    app,
    routes.get_partner,
    async ({ params }) => {
      const view = (await registry.list()).find((one) => one.partner_id === params.partner_id);
      if (view === undefined) throw new Refusal('NOT_FOUND');
      return view;
    },
    guarded,
  );
  mount(
    app,
    routes.change_partner,
    ({ params, body }) => registry.change(params.partner_id, body, actor),
    guarded,
  );

  mount(
    app,
    routes.issue_key,
    ({ params, body }) => keys.issue(params.partner_id, body.client_id, actor),
    guarded,
  );
  mount(
    app,
    routes.list_keys,
    async ({ params }) => {
      await assertPartner(params.partner_id);
      return { keys: await keys.list(params.partner_id) };
    },
    guarded,
  );
  mount(
    app,
    routes.revoke_key,
    ({ params }) => keys.revoke(params.partner_id, params.key_id, actor),
    guarded,
  );

  mount(
    app,
    routes.list_payments,
    async ({ query }) => {
      const { cursor, limit: limitText, overdue, ...filter } = query;
      if (cursor !== undefined && !paymentId.holds(cursor)) {
        throw new Refusal('INVALID_REQUEST', {
          details: [{ path: 'query.cursor', problem: 'is not the next_cursor of a page' }],
        });
      }
      const limit = limitText === undefined ? defaultLimit : Number(limitText);
      // One more than asked for tells whether there is another page.
      const rows = await listPayments(database, {
        ...filter,
        cursor,
        limit: limit + 1,
        openForMs: overdue === undefined ? undefined : OVERDUE_AFTER_MS,
      });
      const page = rows.slice(0, limit);
      const last = page.at(-1);
      return {
        payments: page.map(toPaymentView),
        next_cursor: rows.length > limit && last !== undefined ? last.platform_payment_id : null,
      };
    },
    guarded,
  );
  mount(
    app,
    routes.get_admin_payment,
    async ({ params }) => {
      const payment = await findPayment(database, params.platform_payment_id);
      if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
      return {
        payment: toPaymentView(payment),
        audit: await auditOfPayment(database, payment.platform_payment_id),
      };
    },
    guarded,
  );
  mount(
    app,
    routes.resume_payment,
    async ({ params, body }) =>
      toPaymentView(await resumePayment(database, params.platform_payment_id, body.reason, actor)),
    guarded,
  );
  mount(
    app,
    routes.withdraw_payment,
    async ({ params, body }) =>
      toPaymentView(
        await withdrawPayment(database, params.platform_payment_id, body.reason, actor),
      ),
    guarded,
  );

  mount(
    app,
    routes.list_batches,
    async ({ query }) => ({ batches: await listBatches(database, query.partner_id) }),
    guarded,
  );
  mount(
    app,
    routes.get_batch,
    ({ params }) => getBatch(database, params.platform_batch_id),
    guarded,
  );
  mount(
    app,
    routes.reconcile_batch,
    ({ params, body }) =>
      reconcileBatch({ database, registry, client }, params.platform_batch_id, body, actor),
    guarded,
  );

  mount(app, routes.list_audit, async () => ({ entries: await latestAudit(database) }), guarded);
}

/** A payment as an operator sees it. */
function toPaymentView(payment: PaymentRow): PaymentView {
  return {
    platform_payment_id: payment.platform_payment_id,
    payment_id: payment.payment_id,
    platform_batch_id: payment.platform_batch_id,
    partner_id: payment.partner_id,
    biller_id: payment.biller_id,
    masked_account_id: maskAccountId(payment.account_id),
    status: payment.status,
    stage: payment.stage,
    review_reason: payment.review_reason,
    failure_reason: payment.failure_reason,
    amount_in_cents: payment.amount_in_cents,
    created_at: payment.created_at,
    initiated_at: payment.initiated_at,
    posted_at: payment.posted_at,
    ended_at: payment.ended_at,
    owner: payment.owner,
  };
}
