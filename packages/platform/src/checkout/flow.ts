/**
 * A flow: one customer paying at one account of one partner, over any number of tokens, sessions, tabs and reloads. Imports no stage.
 *
 * A session stands on the payment that its page must show instead of a pay button (PL3, decision 50):
 *   1. the flow's latest payment, while it is processing: whatever the outcome, the customer has paid until the partner says no;
 *   2. the flow's latest payment, if it was made after this session was opened: its page was drawn without it;
 *   3. when the session's own token made a payment: its latest, if that succeeded, for a token makes one successful payment
 *      (decision 8), else the flow's latest, which may be that one or one that was made since;
 *   4. none: the page asks what to pay.
 * A session that stands on a failed or canceled payment makes another only by naming it in `replaces`.
 */
import type { Balance } from '@duebridge/contract';
import { sql, type Transaction } from '@duebridge/runtime';
import { PAYMENT_COLUMNS, type PaymentRow, type Queryable } from '../store/payments.ts';

/** An open session, as its row says. */
export interface Session {
  readonly session_id: string;
  readonly token_hash: Buffer;
  readonly partner_id: string;
  readonly customer_id: string;
  /** Null, with account_id and flow_id, when the partner named no account. */
  readonly biller_id: string | null;
  readonly account_id: string | null;
  readonly flow_id: Buffer | null;
  /** The balance that the partner sent with the token (TR3). */
  readonly balance: Balance | null;
  /** The flow's latest payment when the session was opened. */
  readonly opened_after: string | null;
  /** ISO 8601, UTC. */
  readonly expires_at: string;
}

/** A session whose account is known. */
export interface PayableSession extends Session {
  readonly biller_id: string;
  readonly account_id: string;
  readonly flow_id: Buffer;
}

/** True when the session has an account to pay. */
export function isPayable(session: Session): session is PayableSession {
  return session.flow_id !== null;
}

interface Candidate extends PaymentRow {
  readonly is_latest: boolean;
  readonly of_token: boolean;
}

/**
 * The flow's latest payment, and the latest of the token: one row when they are the same. Here and below a payment is read by the
 * flow and by the session's partner and account as well: either would do, and neither has to be trusted alone (decision 136).
 */
const selectCandidates = sql(
  'flow_candidates',
  `SELECT ${PAYMENT_COLUMNS}, c.is_latest, c.of_token
     FROM (SELECT fp.platform_payment_id, fp.platform_payment_id = f.latest_payment_id AS is_latest,
                  fp.token_hash = $2 AS of_token
             FROM duebridge_platform.flows f JOIN duebridge_platform.flow_payments fp ON fp.platform_payment_id = f.latest_payment_id
            WHERE f.flow_id = $1
           UNION
           (SELECT fp.platform_payment_id, fp.platform_payment_id IS NOT DISTINCT FROM f.latest_payment_id, true
             FROM duebridge_platform.flow_payments fp JOIN duebridge_platform.flows f USING (flow_id)
            WHERE fp.token_hash = $2 AND fp.flow_id = $1
            ORDER BY fp.created_at DESC LIMIT 1)) AS c
     JOIN duebridge_platform.payments p USING (platform_payment_id)
    WHERE p.partner_id = $3 AND p.account_id = $4`,
);

/** The payment that the session stands on, or undefined; see above. */
export async function standingPayment(
  on: Queryable,
  session: Session,
): Promise<PaymentRow | undefined> {
  return (await flowAsItStands(on, session)).standing;
}

/** The payment that the session stands on, and the latest of the flow, which may be another or the same. */
export async function flowAsItStands(
  on: Queryable,
  session: Session,
): Promise<{ readonly standing?: PaymentRow; readonly latest?: PaymentRow }> {
  if (!isPayable(session)) return {};
  const found = await on.query<Candidate>(selectCandidates, [
    session.flow_id,
    session.token_hash,
    session.partner_id,
    session.account_id,
  ]);
  const latest = found.find((candidate) => candidate.is_latest);
  const unseen =
    latest !== undefined && latest.platform_payment_id !== session.opened_after
      ? latest
      : undefined;
  const ofToken = found.find((candidate) => candidate.of_token);
  // A failed or canceled payment is shown only until a later one exists, from any token: the bill may be paid by now.
  const own = ofToken === undefined || ofToken.status === 'succeeded' ? ofToken : latest;
  const standing = latest?.status === 'processing' ? latest : (unseen ?? own);
  return {
    ...(standing === undefined ? {} : { standing: paymentOf(standing) }),
    ...(latest === undefined ? {} : { latest: paymentOf(latest) }),
  };
}

function paymentOf({ is_latest: _latest, of_token: _own, ...payment }: Candidate): PaymentRow {
  return payment;
}

const selectOther = sql(
  'flow_other_payment',
  `SELECT p.amount_in_cents, p.created_at
     FROM duebridge_platform.flows f JOIN duebridge_platform.payments p ON p.platform_payment_id = f.latest_payment_id
    WHERE f.account_id = $3 AND f.biller_id = $2 AND f.partner_id = $1 AND f.flow_id <> $4 AND p.status = 'processing'
    ORDER BY p.created_at DESC LIMIT 1`,
);

/** The newest payment that another customer has under way for the session's account, or undefined. */
export async function otherPayment(
  on: Queryable,
  session: PayableSession,
): Promise<Pick<PaymentRow, 'amount_in_cents' | 'created_at'> | undefined> {
  const { partner_id, biller_id, account_id, flow_id } = session;
  const [other] = await on.query<Pick<PaymentRow, 'amount_in_cents' | 'created_at'>>(selectOther, [
    partner_id,
    biller_id,
    account_id,
    flow_id,
  ]);
  return other;
}

const insertFlow = sql(
  'flow_insert',
  `INSERT INTO duebridge_platform.flows (flow_id, partner_id, biller_id, account_id) VALUES ($1, $2, $3, $4)
   ON CONFLICT (flow_id) DO NOTHING`,
);
const lock = sql(
  'flow_lock',
  'SELECT 1 FROM duebridge_platform.flows WHERE flow_id = $1 FOR UPDATE',
);

/** Locks the flow until the transaction ends, which serializes the confirms of one flow. */
export async function lockFlow(tx: Transaction, session: PayableSession): Promise<void> {
  const { flow_id, partner_id, biller_id, account_id } = session;
  await tx.query(insertFlow, [flow_id, partner_id, biller_id, account_id]);
  await tx.query(lock, [flow_id]);
}

const insertFlowPayment = sql(
  'flow_payment_insert',
  `WITH made AS (
     INSERT INTO duebridge_platform.flow_payments (platform_payment_id, flow_id, token_hash, session_id, customer_id, replaces, created_at)
     VALUES ($2, $1, $3, $4, $5, $6, clock_timestamp())
   )
   UPDATE duebridge_platform.flows SET latest_payment_id = $2 WHERE flow_id = $1`,
);

/** Makes a payment just inserted the flow's latest. The caller holds the flow's lock. */
export async function noteFlowPayment(
  tx: Transaction,
  session: PayableSession,
  platform_payment_id: string,
  replaces: string | null,
): Promise<void> {
  await tx.query(insertFlowPayment, [
    session.flow_id,
    platform_payment_id,
    session.token_hash,
    session.session_id,
    session.customer_id,
    replaces,
  ]);
}

const selectReplacement = sql(
  'flow_replacement',
  `SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.flow_payments fp JOIN duebridge_platform.payments p USING (platform_payment_id)
    WHERE fp.replaces = $2 AND fp.flow_id = $1 AND p.partner_id = $3 AND p.account_id = $4`,
);

/** The payment of this flow that was made in place of another, or undefined. */
export async function replacementOf(
  on: Queryable,
  session: PayableSession,
  platform_payment_id: string,
): Promise<PaymentRow | undefined> {
  const [row] = await on.query<PaymentRow>(selectReplacement, [
    session.flow_id,
    platform_payment_id,
    session.partner_id,
    session.account_id,
  ]);
  return row;
}

const selectFlowPayment = sql(
  'flow_payment',
  `SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.flow_payments fp JOIN duebridge_platform.payments p USING (platform_payment_id)
    WHERE fp.platform_payment_id = $2 AND fp.flow_id = $1 AND p.partner_id = $3 AND p.account_id = $4`,
);

/** A payment of the session's flow, or undefined, both for another flow's payment and for an unknown id. */
export async function flowPayment(
  on: Queryable,
  session: Session,
  platform_payment_id: string,
): Promise<PaymentRow | undefined> {
  if (!isPayable(session)) return undefined;
  const [row] = await on.query<PaymentRow>(selectFlowPayment, [
    session.flow_id,
    platform_payment_id,
    session.partner_id,
    session.account_id,
  ]);
  return row;
}
