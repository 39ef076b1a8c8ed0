/**
 * One payment's story: a partner's backend asks for a token, a customer's page opens a session and confirms, the platform puts the
 * payment and polls, the partner posts it, and its money reaches the biller. Every step is a real HTTP call; the times are this machine's.
 */
import {
  formatCents,
  type FlowPayment,
  type FlowSession,
  type FlowSessionGrant,
  type PaymentDetail,
  type TokenReply,
} from '@duebridge/contract';
import { bearer, call, repeated } from './admin.ts';
import { remitBatch } from './money.ts';
import { customerOf, type Demo } from './servers.ts';

/** Takes a line of the story: time in milliseconds since its start, event and result. */
export type Tell = (at: number, what: string, says: string) => void;

/** Amount that the story pays, or the whole bill when it is smaller. */
const AMOUNT_IN_CENTS = 2_500;
/** Bills smaller than this are skipped, so that the payment changes the balance visibly. */
const SMALLEST_BILL_IN_CENTS = 500;

/** Runs the story step by step. Throws when a call is refused or the payment does not end in time. */
export async function tellStory(demo: Demo, tell: Tell) {
  const begin = performance.now();
  const now = (): number => performance.now() - begin;
  const { biller } = demo;
  const flow = `${demo.platform.url}/v1/flow`;
  const { client_id, api_key } = biller.client;
  for (const account of biller.accounts.filter(({ status }) => status === 'active')) {
    const { biller_id, account_id } = account;
    const { token } = await call<TokenReply>(
      'POST',
      `${demo.platform.url}/v1/sbi/token`,
      { 'x-client-id': client_id, 'x-api-key': api_key },
      { ...customerOf(account), external_identifiers: { biller_id, account_id } },
    );
    const tokenAt = now();
    const grant = await call<FlowSessionGrant>('POST', `${flow}/session`, bearer(token), {});
    const sessionAt = now();
    const session = bearer(grant.session);
    const read = (): Promise<FlowSession> => call('GET', `${flow}/session`, session);
    const bill = await read();
    const before = bill.account.balance?.amount_due_in_cents ?? 0;
    if (before < SMALLEST_BILL_IN_CENTS || bill.payment !== null) continue;

    tell(tokenAt, 'token', `${biller.name} asks: POST /v1/sbi/token → ${token.slice(0, 8)}…`);
    tell(sessionAt, 'session', 'the payment page exchanges it: POST /v1/flow/session');
    const { masked_account_id, payment_rules: rules } = bill.account;
    tell(now(), 'bill', `${biller_id}, account ${masked_account_id}, owes ${formatCents(before)}`);
    const wanted = Math.min(AMOUNT_IN_CENTS, before, rules.max_amount_in_cents ?? before);
    const amount_in_cents = Math.max(wanted, rules.min_amount_in_cents ?? wanted);
    // The customer's click: the PUT can leave before its answer arrives.
    const confirmedAt = now();
    const platform_payment_id = bill.next_payment_id;
    const confirm = { amount_in_cents, funding_method: 'sandbox_bank', platform_payment_id };
    const confirmed = await call<FlowPayment>('POST', `${flow}/payments`, session, confirm);
    const { platform_payment_id: id } = confirmed;
    tell(confirmedAt, 'confirm', `${formatCents(amount_in_cents)} → payment ${id}`);
    const payment = await repeated(`the end of payment ${id}`, async () => {
      const found = await call<FlowPayment>('GET', `${flow}/payments/${id}`, session);
      return found.progress === 'ended' ? found : undefined;
    });
    const ended = now();
    await tellSteps(demo, id, (at, what, says) => {
      tell(Math.min(Math.max(0, at - performance.timeOrigin - begin), ended), what, says);
    });
    tell(ended, payment.status, endOf(payment));
    const after = (await read()).account.balance?.amount_due_in_cents ?? 0;
    tell(now(), 'balance', `${formatCents(before)} → ${formatCents(after)}`);
    await remitBatch(demo, id, (what, says) => tell(now(), what, says));
    return { payment, account, balance_before_in_cents: before, balance_after_in_cents: after };
  }
  throw new Error('every account of the demo is paid; remove its data directory to start over');
}

/** The steps in between, as the platform recorded them, with their wall times. */
async function tellSteps({ platform }: Demo, id: string, tell: Tell): Promise<void> {
  const url = `${platform.adminUrl}/admin/v1/payments/${id}`;
  const { attempts, audit } = await call<PaymentDetail>('GET', url, bearer(platform.adminKey));
  const put = attempts.find(({ kind }) => kind === 'put');
  if (put) tell(Date.parse(put.at), 'PUT', 'the intent is committed and the PUT leaves');
  const accepted = audit.find(({ event }) => event === 'payment_accepted');
  const says = 'the partner has it: 200, processing; polling begins';
  if (accepted) tell(Date.parse(accepted.at), 'accepted', says);
}

function endOf({ status, posted_at, payment_id, failure_reason }: FlowPayment): string {
  return status === 'succeeded'
    ? `posted at ${posted_at ?? '?'} as ${payment_id ?? '?'}`
    : (failure_reason ?? 'without a reason');
}
