/**
 * A flow: one customer paying at one account of one partner, over any number of tokens, sessions, tabs and reloads. Imports no stage.
 *
 * A session stands on the payment that its page must show instead of a pay button (PL3, decision 50):
 *   1. the flow's latest payment, while it is processing: whatever the outcome, the customer has paid until the partner says no;
 *   2. when the session's own token made a payment: its latest, if that succeeded, for a token makes one successful payment
 *      (decision 8), else the flow's latest, which may be that one or one that was made since;
 *   3. none: the page asks what to pay.
 */
import assert from 'node:assert/strict';
import { Refusal, type Balance } from '@duebridge/contract';
import { sql, type Transaction } from '@duebridge/runtime';
import { flowPaymentId } from '../payment-id.ts';
import type { Funds } from '../funding/funds.ts';
import {
  insertPayment,
  PAYMENT_COLUMNS,
  type PaymentRow,
  type Queryable,
} from '../store/payments.ts';

/** Retry-After while a payment that the flow names cannot be read yet. */
const RETRY_AFTER_SECONDS = '1';

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

interface Candidate {
  readonly platform_payment_id: string;
  readonly is_latest: boolean;
  readonly of_token: boolean;
}

/** The ids of the flow's latest payment and of the token's latest: one row when they are the same. */
const selectCandidates = sql(`
   SELECT fp.platform_payment_id, true AS is_latest, fp.token_hash = $2 AS of_token
     FROM duebridge_platform.flows f
     JOIN duebridge_platform.flow_payments fp ON fp.flow_id = f.flow_id AND fp.platform_payment_id = f.latest_payment_id
    WHERE f.flow_id = $1
   UNION
   (SELECT fp.platform_payment_id, fp.platform_payment_id IS NOT DISTINCT FROM f.latest_payment_id, true
      FROM duebridge_platform.flow_payments fp JOIN duebridge_platform.flows f ON f.flow_id = fp.flow_id
     WHERE fp.token_hash = $2 AND fp.flow_id = $1
     ORDER BY fp.created_at DESC LIMIT 1)`);

/**
 * The flow tells the ids, and the payments are read by id: a sharded database keeps the two in different places and joins them slowly
 * or not at all. A payment is read by the session's partner and account as well: either would do, and neither has to be trusted alone
 * (decision 136).
 */
const selectPayments = sql(`
   SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.payments p
    WHERE p.platform_payment_id = ANY($1::text[]) AND p.partner_id = $2 AND p.account_id = $3`);

const countStored = sql(`
   SELECT count(*)::int AS stored FROM duebridge_platform.payments WHERE platform_payment_id = ANY($1::text[])`);

/**
 * The session's own among the payments that its flow names. Throws Refusal SERVICE_UNAVAILABLE when one of them cannot be read yet: a
 * sharded database commits on one server after the other, so for a moment the flow may name a payment that no other statement sees. To
 * take it for absent would let the customer pay twice.
 */
async function paymentsNamed(
  on: Queryable,
  { partner_id, account_id }: PayableSession,
  ids: readonly string[],
): Promise<PaymentRow[]> {
  if (ids.length === 0) return [];
  const read = (): Promise<PaymentRow[]> =>
    on.query<PaymentRow>(selectPayments, [ids, partner_id, account_id]);
  const rows = await read();
  if (rows.length === ids.length) return rows;
  const [count] = await on.query<{ stored: number }>(countStored, [ids]);
  if ((count?.stored ?? 0) < ids.length) {
    throw new Refusal('SERVICE_UNAVAILABLE', { headers: { 'Retry-After': RETRY_AFTER_SECONDS } });
  }
  // All are stored: either they were committed since the first read, or they belong to somebody else.
  return read();
}

/** The payment that the session stands on, and the latest of the flow, which may be another or the same. */
export async function flowAsItStands(
  on: Queryable,
  session: Session,
): Promise<{
  readonly standing?: PaymentRow | undefined;
  readonly latest?: PaymentRow | undefined;
}> {
  if (!isPayable(session)) return {};
  const found = await on.query<Candidate>(selectCandidates, [session.flow_id, session.token_hash]);
  const payments = await paymentsNamed(
    on,
    session,
    found.map(({ platform_payment_id }) => platform_payment_id),
  );
  const paymentOf = (candidate: Candidate | undefined): PaymentRow | undefined =>
    payments.find((row) => row.platform_payment_id === candidate?.platform_payment_id);
  const latest = paymentOf(found.find((candidate) => candidate.is_latest));
  if (latest?.status === 'processing') return { standing: latest, latest };
  const ofToken = paymentOf(found.find((candidate) => candidate.of_token));
  // A failed or canceled payment is shown only until a later one exists, from any token: the bill may be paid by now.
  return { standing: ofToken && (ofToken.status === 'succeeded' ? ofToken : latest), latest };
}

/**
 * A minted id is kept for this long, over sessions and reloads: a page that had to be opened again after its confirm was lost gets the
 * same id. After that, a customer who returns gets an id of the day of the return.
 */
const KEEP_MINTED_MS = 30 * 60_000;

/** A flow's place in its sequence of ids (payment-id.ts). */
export interface Sequence {
  /** Payments that the flow has made: the place of the next one. */
  readonly made: number;
  /** When the next id was minted, in ISO 8601; null before the first. */
  readonly minted_at: string | null;
}

const insertFlow = sql(`
   INSERT INTO duebridge_platform.flows (flow_id, partner_id, biller_id, account_id) VALUES ($1, $2, $3, $4)
   ON CONFLICT (flow_id) DO NOTHING`);
const lock = sql(
  'flow_lock',
  'SELECT made, minted_at FROM duebridge_platform.flows WHERE flow_id = $1 FOR UPDATE',
);

/** Locks the flow until the transaction ends, which serializes the confirms of one flow. */
export async function lockFlow(tx: Transaction, session: PayableSession): Promise<Sequence> {
  const { flow_id, partner_id, biller_id, account_id } = session;
  await tx.query(insertFlow, [flow_id, partner_id, biller_id, account_id]);
  const [sequence] = await tx.query<Sequence>(lock, [flow_id]);
  assert(sequence);
  return sequence;
}

const selectSequence = sql(`
   SELECT made, minted_at FROM duebridge_platform.flows WHERE flow_id = $1`);
const mint = sql(`
   INSERT INTO duebridge_platform.flows AS f (flow_id, partner_id, biller_id, account_id, minted_at) VALUES ($1, $2, $3, $4, $5)
   ON CONFLICT (flow_id) DO UPDATE SET minted_at =
     CASE WHEN f.minted_at > excluded.minted_at - $6 * interval '1 millisecond' THEN f.minted_at ELSE excluded.minted_at END
   RETURNING made, minted_at`);

/** The id of the flow's next payment at `now` (milliseconds since 1970). Stores when it was minted, so that all pages get the same. */
export async function nextPaymentId(
  on: Queryable,
  session: PayableSession,
  now: number,
): Promise<string> {
  const { flow_id, partner_id, biller_id, account_id } = session;
  const known = await readSequence(on, session);
  const mintedAt = Date.parse(known.minted_at ?? '');
  if (now - mintedAt < KEEP_MINTED_MS) return flowPaymentId(flow_id, known.made, mintedAt);
  const at = new Date(now).toISOString();
  const values = [flow_id, partner_id, biller_id, account_id, at, KEEP_MINTED_MS];
  const [minted] = await on.query<{ made: number; minted_at: string }>(mint, values);
  assert(minted);
  return flowPaymentId(flow_id, minted.made, Date.parse(minted.minted_at));
}

/** Where the flow stands in its sequence; at its beginning when it is not stored. */
export async function readSequence(on: Queryable, { flow_id }: PayableSession): Promise<Sequence> {
  const [sequence] = await on.query<Sequence>(selectSequence, [flow_id]);
  return sequence ?? { made: 0, minted_at: null };
}

const insertFlowPayment = sql(`
   WITH made AS (
     INSERT INTO duebridge_platform.flow_payments (platform_payment_id, flow_id, token_hash, customer_id, created_at)
     VALUES ($2, $1, $3, $4, clock_timestamp())
   )
   UPDATE duebridge_platform.flows SET latest_payment_id = $2, made = greatest(made, $5::integer + 1), minted_at = $6 WHERE flow_id = $1`);

/** Makes a payment just inserted the flow's latest. The caller holds the flow's lock. `place`: in the flow's sequence. */
export async function noteFlowPayment(
  tx: Transaction,
  session: Pick<PayableSession, 'flow_id' | 'token_hash' | 'customer_id'>,
  made: { readonly platform_payment_id: string; readonly place: number; readonly now: number },
): Promise<void> {
  const { flow_id, token_hash, customer_id } = session;
  await tx.query(insertFlowPayment, [
    flow_id,
    made.platform_payment_id,
    token_hash,
    customer_id,
    made.place,
    new Date(made.now).toISOString(),
  ]);
}

/** A payment to write, beside what its session says. */
type ToWrite = Omit<Parameters<typeof insertPayment>[1], keyof PaymentOwner> & {
  readonly session: PayableSession;
  readonly place: number;
  readonly now: number;
  readonly instrument: string | undefined;
};
type PaymentOwner = Pick<PayableSession, 'partner_id' | 'biller_id' | 'account_id'>;

/** Writes a payment of a session with its funds, as the flow's latest. The caller holds the flow's lock. */
export async function writePayment(
  tx: Transaction,
  funding: Pick<Funds, 'keep'>,
  { session, place, now, instrument, ...payment }: ToWrite,
): Promise<PaymentRow> {
  const { partner_id, biller_id, account_id, flow_id } = session;
  const whose = { partner_id, biller_id, account_id };
  const row = await insertPayment(tx, { ...payment, ...whose });
  await funding.keep(tx, row, instrument, flow_id);
  const { platform_payment_id } = row;
  await noteFlowPayment(tx, session, { platform_payment_id, place, now });
  return row;
}

const selectFlowPayment = sql(`
   SELECT 1 FROM duebridge_platform.flow_payments WHERE platform_payment_id = $2 AND flow_id = $1`);

/** A payment of the session's flow, or undefined, both for another flow's payment and for an unknown id. */
export async function flowPayment(
  on: Queryable,
  session: Session,
  platform_payment_id: string,
): Promise<PaymentRow | undefined> {
  if (!isPayable(session)) return undefined;
  const named = await on.query(selectFlowPayment, [session.flow_id, platform_payment_id]);
  const [row] = await paymentsNamed(on, session, named.length === 0 ? [] : [platform_payment_id]);
  return row;
}
