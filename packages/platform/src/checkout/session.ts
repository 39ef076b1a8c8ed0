/**
 * Stage 3: a token becomes a flow session, and the session shows the bill, read live (S1, decisions 8 and 31).
 *
 * enters: the token that the partner's page passed on, and the origin that the frame saw above it.  leaves: a session secret, known
 *         to that page alone; then the bill, or the session's current payment.
 * holds:  a token opens any number of sessions until it expires, and they all belong to one flow (decision 50): a reload, a second
 *         tab or a lost answer uses up no token and causes no second payment; a session stays bound to the partner, the account and
 *         the customer of its token (PL12).
 * next:   confirm.ts, when the customer confirms.
 */
import {
  Refusal,
  type FlowSession,
  type FlowSessionGrant,
  type FlowSessionRequest,
} from '@duebridge/contract';
import { digestLookUp, sql, type Database, type Statement } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import {
  flowAsItStands,
  isPayable,
  nextPaymentId,
  type PayableSession,
  type Session,
} from './flow.ts';
import { refundedCents } from '../money/refunds.ts';
import { maskAccountId } from '../mask.ts';
import { billerLogo, billerName, type Partner } from '../partners/registry.ts';
import type { Services } from '../services.ts';
import { payableAccount, withAction } from './confirm.ts';
import { hashSecret, isSecret, newSecret } from './secrets.ts';

/** Life of a session: enough to read a bill and see most payments end, and no longer than a person stays at the page. */
const SESSION_MINUTES = 60;
/** Sessions that one token opens: a page and its reloads need a few; a token in wrong hands gets no more. */
export const MAX_SESSIONS_PER_TOKEN = 20;
/** How long the partner may take for account and balance together while the page shows that it loads. */
const BILL_DEADLINE_MS = 5_000;
/** The same when a payment exists already: the page then shows the bill only beside the payment. */
const MARGIN_DEADLINE_MS = 1_500;
/** Retry-After when a token has opened too many sessions. */
const TOKEN_RETRY_SECONDS = '60';
/** RFC 6750: what every 401 of a Bearer operation carries. */
const bearerChallenge = { 'WWW-Authenticate': 'Bearer' };

/** A token as `open` needs it; `open` is false after its end. */
interface TokenFound {
  readonly partner_id: string;
  readonly flow_id: Buffer | null;
  readonly open: boolean;
}

type Bill = Pick<FlowSession['account'], 'balance' | 'balance_source' | 'payment_rules'>;

const selectToken = sql(`
   SELECT token_hash, partner_id, flow_id, expires_at > now() AS open FROM duebridge_platform.tokens WHERE token_hash = ANY($1::bytea[])`);
const insertSession = sql(`
   WITH t AS (
     UPDATE duebridge_platform.tokens SET sessions = sessions + 1
      WHERE token_hash = $3 AND expires_at > now() AND sessions < ${MAX_SESSIONS_PER_TOKEN}
      RETURNING *
   )
   INSERT INTO duebridge_platform.sessions (session_hash, session_id, token_hash, partner_id, customer_id, biller_id, account_id, flow_id,
                         balance, expires_at)
   SELECT $1, $2, t.token_hash, t.partner_id, t.customer_id, t.biller_id, t.account_id, t.flow_id, t.balance,
          now() + interval '${SESSION_MINUTES} minutes'
     FROM t
   RETURNING session_id, token_hash, partner_id, customer_id, biller_id, account_id, flow_id, balance, expires_at`);
const selectSession = sql(`
   SELECT session_hash, session_id, token_hash, partner_id, customer_id, biller_id, account_id, flow_id, balance, expires_at
     FROM duebridge_platform.sessions WHERE session_hash = ANY($1::bytea[]) AND expires_at > now()`);

/** Stage 3. */
export type Sessions = ReturnType<typeof openSessions>;

/** Opens stage 3. */
export function openSessions(
  services: Pick<Services, 'database' | 'registry' | 'client' | 'funding' | 'clock'>,
) {
  const { database, registry, funding, clock } = services;
  const tokens = secretLookUp<TokenFound>(database, 'dbt_', selectToken, 'token_hash');
  const open = secretLookUp<Session>(database, 'dbs_', selectSession, 'session_hash');
  const read = async (session: Session): Promise<FlowSession> => {
    const partner = await registry.get(session.partner_id);
    if (partner === undefined || !isPayable(session)) throw new Refusal('ACCOUNT_NOT_FOUND');
    // Before the payments are read: an id whose place is taken in between makes no payment, and gives the one that is there.
    const next = await nextPaymentId(database, session, clock.now());
    const { standing, latest } = await flowAsItStands(database, session);
    const [bill, payment, refunded_in_cents] = await Promise.all([
      standing === undefined
        ? readBill(services, partner, session, BILL_DEADLINE_MS)
        : readBill(services, partner, session, MARGIN_DEADLINE_MS).catch((error: unknown) => {
            if (error instanceof Refusal) return fromToken(session);
            throw error;
          }),
      standing === undefined ? null : withAction(standing, funding),
      standing?.status === 'succeeded' ? refundedCents(database, standing.platform_payment_id) : 0,
    ]);
    const logo = billerLogo(partner, session.biller_id);
    return {
      session_id: session.session_id,
      expires_at: session.expires_at,
      mode: partner.mode,
      partner: {
        partner_id: partner.partner_id,
        name: partner.name,
        ...(partner.support_contact === null ? {} : { support_contact: partner.support_contact }),
      },
      biller: {
        biller_id: session.biller_id,
        name: billerName(partner, session.biller_id),
        ...(logo === null ? {} : { logo }),
      },
      account: { masked_account_id: maskAccountId(session.account_id), ...bill },
      funding_methods: [...funding.methods(partner)],
      payment,
      ...(refunded_in_cents > 0 && { refunded_in_cents }),
      ...(standing?.status === 'processing' ? {} : { next_payment_id: next }),
      ...(latest?.status === 'succeeded' && latest.posted_at !== null
        ? {
            last_paid: {
              platform_payment_id: latest.platform_payment_id,
              amount_in_cents: latest.amount_in_cents,
              posted_at: latest.posted_at,
            },
          }
        : {}),
    };
  };
  return {
    /**
     * Exchanges a token, and reads the bill in the same call if the partner answers, which saves the page a round trip. Throws
     * Refusal TOKEN_INVALID (never issued, or long gone), TOKEN_EXPIRED, ORIGIN_NOT_ALLOWED (the page around the frame is not one of
     * the partner's), MODE_MISMATCH (a test token on a live page, or the other way round), TOO_MANY_REQUESTS (the token has opened too
     * many sessions).
     */
    async open(token: string | undefined, request: FlowSessionRequest): Promise<FlowSessionGrant> {
      const token_hash = hashSecret(token ?? '');
      const found = await tokens(token);
      const partner = found && (await registry.get(found.partner_id));
      if (found === undefined || partner === undefined) {
        throw new Refusal('TOKEN_INVALID', { headers: bearerChallenge });
      }
      await assertPage(registry, partner, request);
      const session = newSecret('dbs_');
      const [opened] = await database.query<Session>(insertSession, [
        hashSecret(session),
        uuidv7(),
        token_hash,
      ]);
      if (opened === undefined) {
        if (!found.open) throw new Refusal('TOKEN_EXPIRED', { headers: bearerChallenge });
        throw new Refusal('TOO_MANY_REQUESTS', { headers: { 'Retry-After': TOKEN_RETRY_SECONDS } });
      }
      const { session_id, expires_at } = opened;
      // The session is open even if the bill cannot be read, and counts towards the token's few: the page reads the bill again, and
      // is told why there is none.
      const bill = await read(opened).catch(() => undefined);
      return { session, session_id, expires_at, ...(bill === undefined ? {} : { bill }) };
    },

    /** The session of a secret. Throws Refusal SESSION_EXPIRED for one that has ended or never existed. */
    async authenticate(secret: string | undefined): Promise<Session> {
      const session = await open(secret);
      if (session === undefined) throw new Refusal('SESSION_EXPIRED', { headers: bearerChallenge });
      return session;
    },

    /**
     * What the page shows. Throws Refusal ACCOUNT_NOT_FOUND (not found, inactive, or never named) and PARTNER_UNREACHABLE, both only
     * while there is no payment: an existing payment is shown whatever the partner says.
     */
    read,
  };
}

/** Throws Refusal ORIGIN_NOT_ALLOWED and MODE_MISMATCH for a page on which the token of this partner is not to be used. */
async function assertPage(
  registry: Services['registry'],
  partner: Partner,
  request: FlowSessionRequest,
): Promise<void> {
  // Without an origin it is a page of the partner's own making; in a frame the browser has asked frame-ancestors already.
  if (request.origin !== undefined && !partner.origins.includes(request.origin)) {
    throw new Refusal('ORIGIN_NOT_ALLOWED');
  }
  if (request.partner_id === undefined || request.partner_id === partner.partner_id) return;
  const shown = await registry.get(request.partner_id);
  if (shown === undefined || shown.mode === partner.mode) return;
  throw new Refusal('MODE_MISMATCH', {
    message: `The page is that of ${shown.partner_id}, which is ${shown.mode}; the token is of ${partner.partner_id}, which is ${partner.mode}`,
  });
}

/** Looks up the row of a secret; a text that is no secret is not looked up. */
function secretLookUp<Row>(
  database: Database,
  prefix: Parameters<typeof newSecret>[0],
  statement: Statement,
  column: string,
): (secret: string | undefined) => Promise<Row | undefined> {
  const lookUp = digestLookUp<Row>(database, statement, column);
  return async (secret = '') => (isSecret(prefix, secret) ? lookUp(hashSecret(secret)) : undefined);
}

/**
 * Account and balance as the partner has them now, read within `deadlineMs` together; missing fields come from the token, or are shown as
 * unknown (decision 4).
 */
async function readBill(
  { client, clock }: Pick<Services, 'client' | 'clock'>,
  partner: Partner,
  session: PayableSession,
  deadlineMs: number,
): Promise<Bill> {
  const until = clock.monotonic() + deadlineMs;
  const leftMs = (): number => Math.max(1, until - clock.monotonic());
  const { balance, payment_rules = {} } = await payableAccount(client, partner, session, leftMs());
  if (balance !== undefined) return { balance, balance_source: 'partner', payment_rules };
  const read = await client.getBalance(partner, session, { deadlineMs: leftMs() });
  if (read.kind !== 'found') return { ...fromToken(session), payment_rules };
  return { balance: read.balance, balance_source: 'partner', payment_rules };
}

/** The bill as it was when the token was made. */
function fromToken(session: Session): Bill {
  return {
    balance: session.balance,
    balance_source: session.balance === null ? 'none' : 'token',
    payment_rules: {},
  };
}
