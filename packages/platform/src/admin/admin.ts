/**
 * The admin API: what an operator's command line and console ask (decision 32). Every act on a payment says why, and is in the audit.
 *
 * enters: a request with an operator's key, or with the cookie of a console session (decision 38).  leaves: rows as an operator may
 *         see them: no secret, no customer, the account masked.
 * holds:  the role is checked for each operation by the route table, before the body is read; whether an act is allowed is decided
 *         inside the statement that does it, never by what was read before it.
 */
import {
  compileCheck,
  isOwnInstant,
  platformAdminRoutes as routes,
  Refusal,
  Uuid,
} from '@duebridge/contract';
import { mount, type AuditChain, type Handler } from '@duebridge/runtime';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { listAnswers } from '../checkout/answers.ts';
import type { ClientKeys } from '../checkout/keys.ts';
import { callers } from '../checkout/public-routes.ts';
import { closeBatchNow, getBatch, listBatches } from '../reconciliation/batch.ts';
import { listDifferences, resolveDifference } from '../reconciliation/differences.ts';
import { reconcileFile, type Reconciliations } from '../reconciliation/reconcile.ts';
import { listAsks } from '../store/asks.ts';
import { readArchived } from '../store/archived.ts';
import { auditOfPayment, listAudit, note } from '../store/audit.ts';
import type { FundingAdapter } from '../funding/adapter.ts';
import { registerDomains } from '../funding/domains.ts';
import { knownPayment } from '../store/payments.ts';
import { pausePayment, resumePayment, withdrawPayment } from '../store/operators-acts.ts';
import { closeReview, settleFundsByWord, type Closed } from './close-review.ts';
import { keepReport, readReport } from './conformance.ts';
import { exportPayments } from './export.ts';
import { pollNow } from './poll-now.ts';
import { assertRole, type Operator, type Operators } from './operators.ts';
import { readFigures } from './figures.ts';
import { assertScope, withoutOurWords, type Serve } from './partner-scope.ts';
import { overview } from './overview.ts';
import { partnerHealth } from './partner-health.ts';
import { testPartner } from './partner-test.ts';
import { badCursor, openPaymentList, pageOf, type PaymentList } from './payment-list.ts';
import { erasePerson, showPerson } from './people.ts';
import { mountMoney, type MoneyDependencies } from './money.ts';
import type { Services } from '../services.ts';

/** The dependencies of the admin API. */
export interface AdminDependencies extends Services, MoneyDependencies {
  readonly reconciliations: Reconciliations;
  readonly adapters: readonly FundingAdapter[];
  readonly publicUrl: string | undefined;
  readonly keys: ClientKeys;
  readonly operators: Operators;
  readonly auditChain: AuditChain;
  /** Closing a review above this needs a second person. */
  readonly secondPersonAboveCents: number;
  /** Identifies the sender of a request. Throws Refusal UNAUTHORIZED, or CSRF_TOKEN_REQUIRED. */
  readonly authenticate: (request: FastifyRequest) => Promise<Operator>;
}

/** Mounts every admin operation. */
export function mountAdmin(app: FastifyInstance, dependencies: AdminDependencies): void {
  const known = callers<Operator>();
  const serve: Serve = (route, handler) => {
    const withOperator: Handler<typeof route> = async (call) => {
      const operator = known.get(call.request);
      // What hangs on a partner is refused for one that is not registered.
      const { partner_id } = call.params as { readonly partner_id?: string };
      if (partner_id !== undefined) await dependencies.registry.known(partner_id);
      const answer = await handler({ ...call, operator, actor: operator.actor });
      const isJson = route.replyType === undefined;
      return isJson && operator.partner_id !== null ? withoutOurWords(answer) : answer;
    };
    mount(app, route, withOperator, {
      async onRequest(request) {
        const operator = await dependencies.authenticate(request);
        await assertScope(dependencies.database, route, operator, request);
        known.set(request, operator);
      },
    });
  };
  const list = openPaymentList(dependencies);
  mountOperators(serve, dependencies);
  mountPartners(serve, dependencies);
  mountPayments(serve, dependencies, list);
  mountActs(serve, dependencies, list);
  mountBatches(serve, dependencies);
  mountMoney(serve, dependencies);
  mountPeople(serve, dependencies, list);
  serve(routes.verify_audit, ({ query }) =>
    dependencies.auditChain.verify(Number(query.after ?? 0), Number(query.limit ?? 50)),
  );
  serve(routes.get_overview, () => overview(dependencies.database));
  serve(routes.get_figures, ({ query }) =>
    readFigures(dependencies.database, query, dependencies.clock.now()),
  );
}

function mountOperators(serve: Serve, { operators }: AdminDependencies): void {
  serve(routes.get_self, ({ operator: { actor, name, role, partner_id, csrf } }) => ({
    operator_id: actor,
    name,
    role,
    ...(partner_id && { partner_id }),
    ...(csrf && { csrf }),
  }));
  serve(routes.list_operators, async () => ({ operators: await operators.list() }));
  serve(routes.add_operator, ({ body, actor }) => operators.add(body, actor));
  serve(routes.change_operator, ({ params, body, actor }) =>
    operators.change(params.operator_id, body, actor),
  );
  serve(routes.issue_operator_key, ({ params, body, actor }) =>
    operators.issueKey(params.operator_id, actor, body.valid_for_days),
  );
  serve(routes.revoke_operator_key, ({ params, actor }) =>
    operators.revokeKey(params.operator_id, params.key_id, actor),
  );
}

function mountPartners(serve: Serve, dependencies: AdminDependencies): void {
  const { database, registry, keys } = dependencies;
  serve(routes.add_partner, ({ body, actor }) => registry.add(body, actor));
  serve(routes.list_partners, async () => ({ partners: await registry.list() }));
  serve(routes.get_partner, async ({ params }) => {
    const view = (await registry.list()).find((one) => one.partner_id === params.partner_id);
    if (view === undefined) throw new Refusal('NOT_FOUND');
    return view;
  });
  serve(routes.change_partner, ({ params, body, actor }) =>
    registry.change(params.partner_id, body, actor),
  );
  serve(routes.test_partner, async ({ params }) =>
    testPartner(dependencies, await registry.known(params.partner_id)),
  );
  serve(routes.register_domains, async ({ params }) => {
    const { adapters, publicUrl } = dependencies;
    const partner = await registry.known(params.partner_id);
    return { domains: await registerDomains(adapters, partner, publicUrl) };
  });
  serve(routes.issue_key, ({ params, body, actor }) =>
    keys.issue(params.partner_id, body.client_id, actor, body.valid_for_days),
  );
  serve(routes.list_keys, async ({ params }) => ({ keys: await keys.list(params.partner_id) }));
  serve(routes.revoke_key, ({ params, actor }) =>
    keys.revoke(params.partner_id, params.key_id, actor),
  );
  serve(routes.get_partner_health, ({ params }) => partnerHealth(dependencies, params.partner_id));
  serve(routes.list_answers, async ({ params }) => ({
    answers: await listAnswers(database, params.partner_id),
  }));
  serve(routes.get_conformance_report, async ({ params }) => ({
    report: await readReport(database, params.partner_id),
  }));
  serve(routes.put_conformance_report, ({ params, body, actor }) =>
    keepReport(database, params.partner_id, body, actor),
  );
  serve(routes.revoke_client_access, ({ params, body, actor }) =>
    keys.revokeAccess(params.partner_id, params.client_id, body.reason, actor),
  );
}

function mountPayments(
  serve: Serve,
  { database, registry, attempts }: AdminDependencies,
  { modeOf, showOne, toFilter, paymentPage }: PaymentList,
): void {
  serve(routes.list_payments, ({ query }) => paymentPage(query));
  serve(routes.search_payments, async ({ body, actor }) => {
    // The search term is personal data; the audit records only that a search was made, and by whom.
    if (body.account_id !== undefined || body.email !== undefined) {
      const by = body.email === undefined ? 'account_id' : 'email';
      await note(database, { actor, event: 'payments_searched', detail: { by } });
    }
    return paymentPage(body);
  });
  serve(routes.export_payments, async ({ query, actor, operator, reply }) => {
    const { unmasked, ...filter } = query;
    if (unmasked !== undefined) assertRole(operator, 'admin');
    await note(database, {
      actor,
      event: 'payments_exported',
      detail: { unmasked: unmasked ?? 'false', ...filter },
    });
    const as = { unmasked: unmasked !== undefined, modeOf };
    const stream = exportPayments(database, toFilter(filter), as);
    reply
      .type('text/csv; charset=utf-8')
      .header('Content-Disposition', 'attachment; filename="payments.csv"');
    // Fastify streams it; the table's response type describes the whole text.
    return stream as unknown as string;
  });
  serve(routes.get_admin_payment, async ({ params, operator }) => {
    const row = await knownPayment(database, params.platform_payment_id);
    const { platform_payment_id } = row;
    const archived = await readArchived(database, row);
    const payment = { ...row, ...archived.fields };
    const bodies = operator.role !== 'viewer';
    const [tried, audit, [ask = null], partner] = await Promise.all([
      attempts.of(platform_payment_id, { bodies }),
      auditOfPayment(database, platform_payment_id, archived),
      listAsks(database, `payment/${platform_payment_id}`),
      registry.get(payment.partner_id),
    ]);
    const partner_held = payment.status === 'processing' ? (partner?.pause_reason ?? null) : null;
    return { payment: await showOne(payment), attempts: tried, audit, ask, partner_held };
  });
  serve(routes.unmask_payment, async ({ params, body, actor }) => {
    const payment = await knownPayment(database, params.platform_payment_id);
    const { platform_payment_id, partner_id, biller_id, account_id } = payment;
    const detail = { reason: body.reason };
    await note(database, {
      actor,
      event: 'account_unmasked',
      platform_payment_id,
      partner_id,
      detail,
    });
    return { platform_payment_id, biller_id, account_id };
  });
}

/** What operators do to payments. */
function mountActs(serve: Serve, dependencies: AdminDependencies, { showOne }: PaymentList): void {
  for (const [route, act] of [
    [routes.resume_payment, resumePayment],
    [routes.pause_payment, pausePayment],
    [routes.withdraw_payment, withdrawPayment],
  ] as const) {
    serve(route, async ({ params, body, actor }) =>
      showOne(await act(dependencies.database, params.platform_payment_id, body.reason, actor)),
    );
  }
  serve(routes.poll_payment, ({ params, body, actor }) =>
    pollNow(dependencies, params.platform_payment_id, body.reason, actor),
  );
  const shown = async ({ outcome, payment }: Closed) => ({
    outcome,
    payment: await showOne(payment),
  });
  serve(routes.close_review, async ({ params: { platform_payment_id: id }, body, actor }) =>
    shown(await closeReview(dependencies, id, body.reason, actor, body.word)),
  );
  serve(routes.list_asks, async () => ({
    asks: await listAsks(dependencies.database),
  }));
  serve(routes.settle_funds, async ({ params: { platform_payment_id: id }, body, actor }) =>
    shown(await settleFundsByWord(dependencies, id, body, actor)),
  );
}

function mountBatches(serve: Serve, { database, reconciliations }: AdminDependencies): void {
  serve(routes.list_batches, async ({ query }) => ({
    batches: await listBatches(database, query.partner_id),
  }));
  serve(routes.get_batch, ({ params }) => getBatch(database, params.platform_batch_id));
  serve(routes.close_batch, ({ params, body, actor }) =>
    closeBatchNow(database, params.platform_batch_id, body.reason, actor),
  );
  serve(routes.reconcile_batch, ({ params, actor }) =>
    reconciliations.compare(params.platform_batch_id, actor),
  );
  serve(routes.reconcile_batch_file, ({ params, actor, request }) =>
    reconcileFile(
      database,
      params.platform_batch_id,
      request.body as AsyncIterable<Uint8Array>,
      actor,
    ),
  );
  serve(routes.list_differences, async ({ query }) => {
    if (query.cursor !== undefined && !uuid.holds(query.cursor)) throw badCursor();
    const { page, next_cursor } = await pageOf(
      query.limit,
      (limit) => listDifferences(database, { ...query, limit }),
      (row) => row.difference_id,
    );
    return { differences: page, next_cursor };
  });
  serve(routes.resolve_difference, ({ params, body, actor }) =>
    resolveDifference(database, params.difference_id, body.reason, actor),
  );
}

function mountPeople(serve: Serve, dependencies: AdminDependencies, { shown }: PaymentList): void {
  const { database } = dependencies;
  serve(routes.show_person, async ({ body, actor }) => {
    const person = await showPerson(dependencies, body.email, body.reason, actor);
    return { ...person, payments: await shown(person.payments) };
  });
  serve(routes.erase_person, ({ body, actor }) =>
    erasePerson(dependencies, body.email, body.reason, actor),
  );
  serve(routes.list_audit, async ({ query }) => {
    const cursor = query.cursor === undefined ? undefined : auditCursor(query.cursor);
    const { page, next_cursor } = await pageOf(
      query.limit,
      (limit) => listAudit(database, { ...query, cursor, limit }),
      (row) => `${row.exact_at}~${row.audit_id}`,
    );
    const entries = page.map(({ at, actor, event, detail }) => ({ at, actor, event, detail }));
    return { entries, next_cursor };
  });
}

const uuid = compileCheck(Uuid);

function auditCursor(text: string): { at: string; audit_id: string } {
  const [at = '', audit_id = ''] = text.split('~');
  if (!uuid.holds(audit_id) || !isOwnInstant(at)) throw badCursor();
  return { at, audit_id };
}
