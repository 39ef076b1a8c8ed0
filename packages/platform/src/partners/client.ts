/**
 * Sends every operation of a partner: paths, credentials, limits (S2, S3). The calling stage interprets the answer.
 *
 * holds: a call goes to the partner's registered origin and to no other (PL14); concurrent callers share one fetch of an access
 *        token, and a 401 leads to one new token and one retry (PL13); contents sent and received are never logged, only their kind
 *        is (PL15).
 *
 * One file because the operations share one way to authenticate, retry after a 401 and read an answer.
 */
import { randomUUID } from 'node:crypto';
import {
  AmountInCents,
  Balance,
  compileCheck,
  fillPath,
  type Json,
  type PaymentRules,
} from '@duebridge/contract';
import {
  failSpan,
  paymentTrace,
  rateLimiter,
  SpanKind,
  traceparentOf,
  tracer,
  type Clock,
  type Log,
  type Metrics,
  type Span,
} from '@duebridge/runtime';
import { callsWithToken, type NotSent } from './oauth-client.ts';
import { openPeer, type Exchange, type Peer } from './http-call.ts';
import { judgeRecord, type Intent } from './payment-record.ts';
import type { Partner, PartnerRegistry } from './registry.ts';

/** What identifies an account to its partner. */
export type AccountKey = Pick<Intent, 'biller_id' | 'account_id'>;

/** The readable part of an account as its partner returned it (decision 4). */
export interface AccountView {
  readonly status: 'active' | 'inactive' | 'unknown';
  readonly balance?: Balance;
  readonly payment_rules?: PaymentRules;
}

/** Nothing was read. Only a definite 404 is `not_found` (decision 7). */
type Unread =
  | { readonly kind: 'not_found' }
  | { readonly kind: 'unreachable'; readonly reason: string };
export type AccountOutcome = { readonly kind: 'found'; readonly account: AccountView } | Unread;
export type BalanceOutcome = { readonly kind: 'found'; readonly balance: Balance } | Unread;

/** A PUT or a status GET with its answer, for store/attempts.ts, which keeps the evidence. */
export interface AnsweredCall {
  readonly kind: 'put' | 'get';
  readonly partner_id: string;
  readonly platform_payment_id: string;
  readonly account_id: string;
  /** A record of this very payment, as the interface has it: what it says is in the payment's row. */
  readonly isExpected: boolean;
  /** Milliseconds since 1970. */
  readonly sent_at: number;
  readonly took_ms: number;
  readonly request_id: string;
  readonly answer: Exchange | NotSent;
  /** What the call carried as credentials: evidence must not hold it, in case the partner echoes it. */
  readonly secrets: readonly string[];
}

/** The time limit of a call, and what ends it early. */
export interface CallOptions {
  readonly deadlineMs?: number;
  readonly signal?: AbortSignal;
}

/** What the client depends on. */
export interface PartnerClientOptions {
  readonly registry: PartnerRegistry;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics;
  readonly allowPrivateAddresses: boolean;
  /** Called with every answer to `submit` and `poll`, before it is returned; must not throw. */
  readonly answered?: (call: AnsweredCall) => void;
}

/** A customer waits for these reads. */
const INTERACTIVE_DEADLINE_MS = 5_000;
/** Connections for reads that a customer waits for, separate from those of the engine, so that polls never block them. */
const INTERACTIVE_CONNECTIONS = 8;
/**
 * The bytes of a PUT. The order of the fields is part of what never changes (PL2): a retry after an upgrade must not differ.
 */
function instructionBytes(payment: Intent): string {
  const { amount_in_cents, platform_batch_id, platform_payment_id } = payment;
  return JSON.stringify({ amount_in_cents, platform_batch_id, platform_payment_id });
}

/** The client of all partners. No method throws for anything a partner or the network does. */
export type PartnerClient = ReturnType<typeof createPartnerClient>;

/** Opens the client. Connections, tokens and keys are kept per partner and recreated when its registration changes. */
export function createPartnerClient(options: PartnerClientOptions) {
  const lines = new Map<string, Line>();
  const fetches = options.metrics?.counter(
    'duebridge_token_fetches_total',
    'Requests to partners’ token endpoints, by what came of them',
    ['partner_id', 'outcome'],
  );
  const drop = async (partner_id: string): Promise<void> => {
    const line = lines.get(partner_id);
    lines.delete(partner_id);
    await line?.close();
  };
  const lineOf = (partner: Partner): Line => {
    const { partner_id } = partner;
    const known = lines.get(partner_id);
    if (known?.serves(partner) === true) return known;
    void drop(partner_id);
    const line = openLine(options, partner, (outcome) => {
      fetches?.inc({ partner_id, outcome });
      if (outcome !== 'granted') options.log.warn({ partner_id, outcome }, 'no access token');
    });
    lines.set(partner_id, line);
    return line;
  };
  return {
    /**
     * B1: for a customer who waits; `deadlineMs` defaults to 5 s. The reads of a partner, in each process and beside the calls of the
     * engine, stay within its calls a second: what exceeds them is `unreachable` at once.
     */
    getAccount: async (
      partner: Partner,
      account: AccountKey,
      given?: CallOptions,
    ): Promise<AccountOutcome> =>
      judgeAccount(account, await lineOf(partner).read('get_account', account, given)),
    /** B2. */
    getBalance: async (
      partner: Partner,
      account: AccountKey,
      given?: CallOptions,
    ): Promise<BalanceOutcome> =>
      judgeBalance(await lineOf(partner).read('get_balance', account, given)),
    /** B4: the PUT; the same bytes for the same payment, always (PL2). */
    submit: (partner: Partner, payment: Intent, given?: CallOptions): Promise<Exchange | NotSent> =>
      sendFor(options, lineOf(partner), partner, payment, {
        ...given,
        operation: 'put_account_payment',
        body: instructionBytes(payment),
      }),
    /** B5: the read that is polled; `waitSeconds` asks the partner to hold the answer until there is news (decision 24). */
    poll: (
      partner: Partner,
      payment: Intent,
      { waitSeconds = 0, ...given }: CallOptions & { readonly waitSeconds?: number } = {},
    ): Promise<Exchange | NotSent> =>
      sendFor(options, lineOf(partner), partner, payment, {
        ...given,
        deadlineMs: (given.deadlineMs ?? partner.budget.call_timeout_ms) + waitSeconds * 1_000,
        operation: 'get_account_payment',
        ...(waitSeconds > 0 ? { headers: { prefer: `wait=${waitSeconds}` } } : {}),
      }),
    /** The statement of a batch (decision 26, an extension). */
    getStatement: (partner: Partner, platform_batch_id: string): Promise<Exchange | NotSent> =>
      lineOf(partner).send({ operation: 'get_batch_statement', values: { platform_batch_id } }),
    /** Drops the connections to a partner: answers were crossed on one of them (F27). */
    reset: ({ partner_id }: Partner): void => void drop(partner_id),
    close: async (): Promise<void> => void (await Promise.all([...lines.keys()].map(drop))),
  };
}

/** One operation, before credentials are added. */
interface Request extends CallOptions {
  readonly operation: keyof Partner['paths'];
  /** What fills the fields of its path. */
  readonly values: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Where the caller names the request: its id, and its span. */
  readonly named?: { readonly id: string; readonly span: Span };
}

const methodOf = ({ body }: Pick<Request, 'body'>): 'GET' | 'PUT' =>
  body === undefined ? 'GET' : 'PUT';

type Line = ReturnType<typeof openLine>;

/** Connections and credentials of one registration. `fetched` is told what came of each request for an access token. */
function openLine(
  { registry, clock, allowPrivateAddresses }: PartnerClientOptions,
  madeFor: Partner,
  fetched: (outcome: string) => void,
) {
  const { auth, connection } = registry.credentials(madeFor);
  const base = new URL(madeFor.base_url);
  const basePath = base.pathname.replace(/\/+$/, '');
  const { max_calls_per_second: perSecond, max_concurrent_calls: calls } = madeFor.budget;
  const reads = rateLimiter({ perSecond, burst: perSecond, maxKeys: 1, clock });
  const peers: Peer[] = [];
  const peer = ({ origin }: URL, connections: number): Peer => {
    const opened = openPeer(origin, { connections, allowPrivateAddresses, connection });
    peers.push(opened);
    return opened;
  };
  const drive = peer(base, calls);
  const interactive = peer(base, INTERACTIVE_CONNECTIONS);
  // Verbatim, both forms: a header of its own, and Authorization without a scheme word (KY2, decision 15).
  const keyHeaders = auth.method === 'key' ? { [auth.header.toLowerCase()]: auth.key } : {};
  const withToken =
    auth.method === 'oauth'
      ? callsWithToken({
          credentials: auth,
          endpoint: peer(new URL(auth.token_url), 1),
          clock,
          fetched,
        })
      : undefined;
  const fingerprint = (of: Partner): string =>
    JSON.stringify([of.base_url, of.budget, registry.credentials(of)]);
  let partner = madeFor;
  const send = (request: Request, through = drive): Promise<Exchange | NotSent> => {
    const { operation, values, body, headers, signal, named } = request;
    const { deadlineMs = partner.budget.call_timeout_ms } = request;
    const id = named?.id ?? nextRequestId();
    const once = (authorization: Readonly<Record<string, string>>): Promise<Exchange> =>
      through.exchange({
        method: methodOf(request),
        path: basePath + fillPath(partner.paths[operation], values),
        headers: {
          ...(body === undefined ? undefined : { 'content-type': 'application/json' }),
          ...headers,
          'x-request-id': id,
          traceparent:
            named === undefined ? `00-${id}-${id.slice(16)}-01` : traceparentOf(named.span),
          ...authorization,
        },
        ...(body === undefined ? undefined : { body }),
        deadlineMs,
        signal,
      });
    return withToken?.(body === undefined ? 'read' : 'write', once) ?? once(keyHeaders);
  };
  return {
    /** What the calls carry as credentials. */
    secrets: auth.method === 'key' ? [auth.key] : [],
    /** Each read of a registration gives a new object; connections and tokens stay valid unless the fields that they depend on changed. */
    serves(fresh: Partner): boolean {
      if (fresh !== partner && fingerprint(fresh) !== fingerprint(partner)) return false;
      partner = fresh;
      return true;
    },
    /** A read that a customer waits for; undefined beyond the partner's calls a second. */
    read: async (
      operation: 'get_account' | 'get_balance',
      { biller_id, account_id }: AccountKey,
      given?: CallOptions,
    ): Promise<Exchange | NotSent | undefined> => {
      if (reads.take('')) return undefined;
      const ours = { operation, values: { biller_id, account_id } };
      return send({ deadlineMs: INTERACTIVE_DEADLINE_MS, ...given, ...ours }, interactive);
    },
    send,
    close: () => Promise.all(peers.map((one) => one.close())),
  };
}

/** Sends a call about a payment, and tells its answer to `answered`. */
async function sendFor(
  { clock, log, answered }: PartnerClientOptions,
  line: Line,
  partner: Partner,
  payment: Intent,
  given: Omit<Request, 'values' | 'named'>,
): Promise<Exchange | NotSent> {
  const { partner_id } = partner;
  const { platform_payment_id, biller_id, account_id } = payment;
  const method = methodOf(given);
  const call = `${method} payment`;
  const request_id = nextRequestId();
  const sent_at = clock.now();
  const startedAt = clock.monotonic();
  const attributes = {
    'duebridge.payment_id': platform_payment_id,
    'duebridge.partner_id': partner_id,
    'duebridge.request_id': request_id,
    'http.request.method': method,
    'http.route': partner.paths[given.operation],
  };
  const of = paymentTrace(platform_payment_id);
  const span = tracer.startSpan(call, { kind: SpanKind.CLIENT, attributes }, of);
  const answer = await line.send({
    ...given,
    values: { platform_payment_id, biller_id, account_id },
    named: { id: request_id, span },
  });
  endSpan(span, answer);
  // A call that our own stop aborted is not evidence about the partner.
  if (answer.kind === 'no_reply' && answer.reason === 'stopped') return answer;
  const took_ms = clock.monotonic() - startedAt;
  const named = { partner_id, platform_payment_id, request_id };
  // At debug when the partner answered as expected; nothing of the body.
  const result = answer.kind === 'reply' ? { status: answer.status } : { reason: answer.reason };
  const level = answer.kind === 'reply' && answer.status === 200 ? 'debug' : 'info';
  log[level]({ call, ...named, ms: Math.round(took_ms), ...result }, 'a partner was called');
  answered?.({
    kind: method === 'PUT' ? 'put' : 'get',
    ...named,
    account_id,
    isExpected: isRecordOf(payment, answer),
    sent_at,
    took_ms,
    answer,
    secrets: line.secrets,
  });
  return answer;
}

/** Whether an answer is a record of this payment without a breach of the interface. */
function isRecordOf(payment: Intent, answer: Exchange | NotSent): boolean {
  if (answer.kind !== 'reply' || answer.status !== 200) return false;
  const judged = judgeRecord(payment, answer.json);
  return (judged.kind === 'processing' || judged.kind === 'ended') && judged.anomaly === undefined;
}

function endSpan(span: Span, answer: Exchange | NotSent): void {
  if (answer.kind === 'reply') {
    span.setAttribute('http.response.status_code', answer.status);
    if (answer.status >= 400) failSpan(span, `status ${answer.status}`);
  } else {
    span.setAttribute('error.type', `${answer.kind}_${answer.reason}`);
    // A call that our own stop aborted says nothing about the partner.
    if (answer.reason !== 'stopped') failSpan(span, answer.reason);
  }
  span.end();
}

/** A new request id: 32 hexadecimal digits. */
const nextRequestId = (): string => randomUUID().replaceAll('-', '');

const balanceCheck = compileCheck(Balance);
const amountCheck = compileCheck(AmountInCents);

type Fields = { readonly [key: string]: Json };

function fieldsOf(json: Json | undefined): Fields | undefined {
  return typeof json === 'object' &&
    json !== null &&
    Object.getPrototypeOf(json) === Object.prototype
    ? (json as Fields)
    : undefined;
}

const unreachable = (reason: string): Unread => ({ kind: 'unreachable', reason });

/** The record of an answer, or why it is none; `undefined` is a read that was not made. */
function recordOf(
  answer: Exchange | NotSent | undefined,
): { readonly kind: 'record'; readonly fields: Fields } | Unread {
  if (answer === undefined) return unreachable('over_budget');
  if (answer.kind !== 'reply') return unreachable(answer.reason);
  // Only the partner's own answer is definite: a proxy's HTML page says nothing about the account.
  if (answer.status === 404 && answer.json !== undefined) return { kind: 'not_found' };
  const fields = answer.status === 200 ? fieldsOf(answer.json) : undefined;
  return fields ? { kind: 'record', fields } : unreachable(`status_${answer.status}`);
}

/** What an answer to Get Account means (AC1, decisions 4 and 7). Pure; a field that cannot be read is left out. */
export function judgeAccount(
  asked: AccountKey,
  answer: Exchange | NotSent | undefined,
): AccountOutcome {
  const read = recordOf(answer);
  if (read.kind !== 'record') return read;
  const { account_id, biller_id, status, balance, payment_rules } = read.fields;
  // Somebody else's account (crossed answers, F27) must not be shown.
  const isOther = (echo: Json | undefined, ours: string): boolean =>
    echo !== undefined && echo !== ours;
  if (isOther(account_id, asked.account_id) || isOther(biller_id, asked.biller_id))
    return unreachable('other_account');
  const { min_amount_in_cents: min, max_amount_in_cents: max } = fieldsOf(payment_rules) ?? {};
  const rules = {
    ...(amountCheck.holds(min) && { min_amount_in_cents: min }),
    ...(amountCheck.holds(max) && { max_amount_in_cents: max }),
  };
  return {
    kind: 'found',
    account: {
      status: status === 'active' || status === 'inactive' ? status : 'unknown',
      ...(balanceCheck.holds(balance) && { balance: pickBalance(balance) }),
      ...(Object.keys(rules).length > 0 && { payment_rules: rules }),
    },
  };
}

/** What an answer to Get Balance means (B2, TR3). Pure. */
export function judgeBalance(answer: Exchange | NotSent | undefined): BalanceOutcome {
  const read = recordOf(answer);
  if (read.kind !== 'record') return read;
  return balanceCheck.holds(read.fields)
    ? { kind: 'found', balance: pickBalance(read.fields) }
    : unreachable('status_200');
}

/** The known fields of a balance. */
export function pickBalance({ amount_due_in_cents, due_date, last_updated_at }: Balance): Balance {
  return {
    ...(amount_due_in_cents === undefined ? {} : { amount_due_in_cents }),
    ...(due_date === undefined ? {} : { due_date }),
    ...(last_updated_at === undefined ? {} : { last_updated_at }),
  };
}
