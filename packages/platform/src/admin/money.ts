/** The admin operations on money: the book, how billers are paid, and their remittances. */
import { Readable } from 'node:stream';
import { platformAdminRoutes as routes, Refusal } from '@duebridge/contract';
import { v7 as uuidv7 } from 'uuid';
import { readBalances } from '../money/balances.ts';
import { CHECK_TIMEOUT_MS, checkMoney, HOURLY_DAYS } from '../money/check.ts';
import type { Payer } from '../money/bank-file.ts';
import { endTransfer, makeBankFile, readBankFile } from '../money/desk.ts';
import { endCase, listCases, openCase } from '../store/cases.ts';
import { listPayouts, setPayout } from '../money/payouts.ts';
import { payOut, type Waiting } from '../money/remittance.ts';
import { listRefunds, requestRefund, type Refunding } from '../money/refunds.ts';
import { getRemittance, listRemittances, readStatementOf } from '../money/statement.ts';
import type { Services } from '../services.ts';
import type { Serve } from './partner-scope.ts';
import { pageOf } from './payment-list.ts';

/** What they need. */
export interface MoneyDependencies extends Pick<
  Services,
  'database' | 'registry' | 'sealer' | 'clock'
> {
  /** The account that pays billers; undefined while it is not configured. */
  readonly payer: Payer | undefined;
  readonly remit: () => Promise<readonly Waiting[]>;
  readonly refunding: Refunding;
}

/** A check of more days would read payments that nobody can be asked about. */
const MAX_DAYS = 36_500;

/** Mounts them. */
export function mountMoney(serve: Serve, dependencies: MoneyDependencies): void {
  const { database, registry, clock, remit, refunding } = dependencies;
  serve(routes.get_money, async ({ query }) => ({
    // The whole book is added up.
    balances: await database.transaction((tx) => readBalances(tx, query.day), {
      statementTimeoutMs: CHECK_TIMEOUT_MS,
    }),
  }));
  serve(routes.check_money, ({ query }) =>
    checkMoney(database, clock.now(), Math.min(MAX_DAYS, Number(query.days ?? HOURLY_DAYS))),
  );
  serve(routes.set_payout, async ({ params, body, actor }) =>
    setPayout(dependencies, await registry.known(params.partner_id), body, actor),
  );
  serve(routes.list_payouts, async ({ params }) => ({
    payouts: await listPayouts(dependencies, params.partner_id),
  }));
  serve(routes.list_remittances, async ({ query }) => {
    const { page, next_cursor } = await pageOf(
      query.limit,
      (limit) => listRemittances(database, { ...query, limit }),
      (row) => row.remittance_id,
    );
    return { remittances: page, next_cursor };
  });
  serve(routes.remit_now, async () => ({ waiting: [...(await remit())] }));
  serve(routes.pay_out, async ({ params, body, actor }) => {
    const partner = await registry.known(params.partner_id);
    const said = { reason: body.reason, actor, now: clock.now() };
    const id = await payOut(database, partner, body.biller_id ?? partner.biller_id ?? '', said);
    return getRemittance(database, id);
  });
  serve(routes.get_remittance_statement, async ({ params, query, reply }) => {
    const format = query.format ?? 'csv';
    const pieces = await readStatementOf(database, params.remittance_id, format);
    reply.type(format === 'csv' ? 'text/csv; charset=utf-8' : 'application/xml; charset=utf-8');
    // Fastify streams it; the table's response type describes the whole text.
    return Readable.from(pieces) as unknown as string;
  });
  serve(routes.end_transfer, ({ params, body, actor }) =>
    endTransfer(refunding, params.remittance_id, body, actor),
  );
  serve(routes.make_bank_file, ({ body, actor }) => makeBankFile(dependencies, body, actor));
  serve(routes.get_bank_file, ({ params, actor }) =>
    readBankFile(dependencies, params.file_id, actor),
  );
  serve(routes.refund_payment, ({ params, body, actor }) =>
    requestRefund(refunding, params.platform_payment_id, body, actor),
  );
  serve(routes.list_refunds, async ({ query }) => ({
    refunds: await listRefunds(database, query),
  }));
  const now = (): string => new Date(clock.now()).toISOString();
  serve(routes.list_cases, async ({ query }) => ({ cases: await listCases(database, query) }));
  serve(routes.open_case, async ({ params, body, actor }) => {
    const { reason_code = 'other', reason } = body;
    const case_id = uuidv7({ msecs: clock.now() });
    const said = { case_id, ...params, reason_code, reason, actor, at: now() };
    if (!(await openCase(database, 'complained', said))) throw new Refusal('PAYMENT_NOT_FOUND');
    const opened = (await listCases(database, params)).find((one) => one.case_id === case_id);
    if (opened === undefined) throw new Error('a case was not kept');
    return opened;
  });
  serve(routes.end_case, ({ params, body, actor }) =>
    endCase(refunding, params.case_id, body, { actor, at: now() }),
  );
}
