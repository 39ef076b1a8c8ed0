/**
 * One payment's story: a partner's backend asks for a token, a customer's page opens a session and confirms, the platform puts the
 * payment and polls, the partner posts it, and its money reaches the biller. Every step is a real HTTP call; the times are this machine's.
 */
import { setTimeout as delay } from 'node:timers/promises';
import {
  formatCents,
  type FlowPayment,
  type FlowSession,
  type FlowSessionGrant,
  type PaymentDetail,
  type TokenReply,
} from '@duebridge/contract';
import { bearer, call } from './admin.ts';
import { remitBatch } from './money.ts';
import type { Demo, DemoAccount } from './servers.ts';

/** A line of the story: time in milliseconds since its start, event and result. */
export interface Step {
  readonly at: number;
  readonly what: string;
  readonly says: string;
}

/** Result of the story. */
export interface Story {
  readonly payment: FlowPayment;
  readonly account: DemoAccount;
  readonly balance_before_in_cents: number;
  readonly balance_after_in_cents: number;
}

/** Amount that the story pays, or the whole bill when it is smaller. */
const AMOUNT_IN_CENTS = 2_500;

/** Bills smaller than this are skipped, so that the payment changes the balance visibly. */
const SMALLEST_BILL_IN_CENTS = 500;

/** Time limit for the payment, which takes a fraction of a second. */
const PATIENCE_MS = 30_000;

/** The fictitious customer whose details the partner posts. */
const CUSTOMER = {
  first_name: 'Ada',
  last_name: 'Lovelace',
  email: 'ada@example.com',
  phone_number: '+15125550100',
  address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
} as const;

/** Runs the story step by step. Throws when a call is refused or the payment does not end in time. */
export async function tellStory(demo: Demo, tell: (step: Step) => void): Promise<Story> {
  const begin = performance.now();
  const now = (): number => performance.now() - begin;
  const { platform } = demo;
  const [partner] = demo.partners;

  for (const account of partner.accounts.filter(({ status }) => status === 'active')) {
    const { biller_id, account_id } = account;
    const token = await call<TokenReply>(
      'POST',
      `${platform.url}/v1/sbi/token`,
      { 'x-client-id': partner.client.client_id, 'x-api-key': partner.client.api_key },
      { ...CUSTOMER, external_identifiers: { biller_id, account_id } },
    );
    const tokenAt = now();
    const grant = await call<FlowSessionGrant>(
      'POST',
      `${platform.url}/v1/flow/session`,
      bearer(token.token),
      {},
    );
    const sessionAt = now();
    const session = bearer(grant.session);
    const bill = await call<FlowSession>('GET', `${platform.url}/v1/flow/session`, session);
    const before = bill.account.balance?.amount_due_in_cents ?? 0;
    if (before < SMALLEST_BILL_IN_CENTS || bill.payment !== null) continue;

    const say = (at: number, what: string, says: string): void => tell({ at, what, says });
    say(tokenAt, 'token', `${partner.name} asks: POST /v1/sbi/token → ${mask(token.token)}`);
    say(sessionAt, 'session', 'the payment page exchanges it: POST /v1/flow/session');
    say(
      now(),
      'bill',
      `${biller_id}, account ${bill.account.masked_account_id}, owes ${formatCents(before)}`,
    );
    const amount_in_cents = wantedAmount(before, bill.account.payment_rules);
    // The customer's click: the PUT can leave before its answer arrives.
    const confirmedAt = now();
    const confirmed = await call<FlowPayment>('POST', `${platform.url}/v1/flow/payments`, session, {
      amount_in_cents,
      funding_method: 'sandbox_bank',
    });
    say(
      confirmedAt,
      'confirm',
      `${formatCents(amount_in_cents)} → payment ${confirmed.platform_payment_id}`,
    );
    const payment = await follow(platform.url, session, confirmed.platform_payment_id);
    const ended = performance.now() - begin;
    await tellAudit(demo, payment, begin, ended, tell);
    const after = await balanceOf(platform.url, session);
    say(now(), 'balance', `${formatCents(before)} → ${formatCents(after)}`);
    await remitBatch(demo, payment.platform_payment_id, (what, says) => say(now(), what, says));
    return {
      payment,
      account,
      balance_before_in_cents: before,
      balance_after_in_cents: after,
    };
  }
  throw new Error('every account of the demo is paid; remove its data directory to start over');
}

function wantedAmount(due: number, rules: FlowSession['account']['payment_rules']): number {
  const wanted = Math.min(AMOUNT_IN_CENTS, due, rules.max_amount_in_cents ?? due);
  return Math.max(wanted, rules.min_amount_in_cents ?? wanted);
}

async function follow(
  platformUrl: string,
  session: Record<string, string>,
  platform_payment_id: string,
): Promise<FlowPayment> {
  const url = `${platformUrl}/v1/flow/payments/${platform_payment_id}`;
  for (const until = performance.now() + PATIENCE_MS; performance.now() < until;) {
    const payment = await call<FlowPayment>('GET', url, session);
    if (payment.progress === 'ended') return payment;
    await delay(10);
  }
  throw new Error(`payment ${platform_payment_id} did not end within ${PATIENCE_MS / 1000} s`);
}

/** The events in between, from the platform's own audit trail. */
async function tellAudit(
  demo: Demo,
  payment: FlowPayment,
  begin: number,
  ended: number,
  tell: (step: Step) => void,
): Promise<void> {
  const { audit } = await call<PaymentDetail>(
    'GET',
    `${demo.platform.adminUrl}/admin/v1/payments/${payment.platform_payment_id}`,
    bearer(demo.platform.adminKey),
  );
  const origin = performance.timeOrigin + begin;
  for (const { at, event } of audit) {
    const words = AUDIT_WORDS[event];
    if (words === undefined) continue;
    tell({
      at: Math.min(Math.max(0, Date.parse(at) - origin), ended),
      what: words.what,
      says: words.says,
    });
  }
  tell({
    at: ended,
    what: payment.status,
    says:
      payment.status === 'succeeded'
        ? `posted at ${payment.posted_at ?? '?'} as ${payment.payment_id ?? '?'}`
        : (payment.failure_reason ?? 'without a reason'),
  });
}

/** The audit events of a payment that the story shows. */
const AUDIT_WORDS: Readonly<Record<string, { what: string; says: string }>> = {
  payment_dispatching: { what: 'PUT', says: 'the intent is committed and the PUT leaves' },
  payment_accepted: {
    what: 'accepted',
    says: 'the partner has it: 200, processing; polling begins',
  },
};

async function balanceOf(platformUrl: string, session: Record<string, string>): Promise<number> {
  const bill = await call<FlowSession>('GET', `${platformUrl}/v1/flow/session`, session);
  return bill.account.balance?.amount_due_in_cents ?? 0;
}

/** The first characters of a secret, enough to recognise it. */
function mask(secret: string): string {
  return `${secret.slice(0, 8)}…`;
}
