/**
 * Drives one payment against a partner under development, as the platform would, and shows every exchange: read the account, PUT,
 * the same PUT repeated (ID1), poll until a terminal status (RU4).
 */
import { randomUUID } from 'node:crypto';
import {
  AccountReply,
  compileCheck,
  fillPath,
  isPaymentStatus,
  isTerminal,
  JsonProblem,
  parseJson,
  partnerRoutes,
  PaymentReply,
  SCOPES,
  type Json,
  type PaymentStatus,
} from '@duebridge/contract';
import { request } from 'undici';
import { deadline, pause, type Clock } from '../clock.ts';

/** The partner under development. */
export interface DriveTarget {
  readonly base_url: string;
  readonly auth:
    | { readonly method: 'key'; readonly header: string; readonly key: string }
    | {
        readonly method: 'oauth';
        readonly token_url: string;
        readonly client_id: string;
        readonly client_secret: string;
        readonly scope?: string;
      };
}

/** What is to be paid. */
export interface DriveOrder {
  readonly biller_id: string;
  readonly account_id: string;
  readonly amount_in_cents: number;
}

/** One exchange as shown: credentials masked, bodies unchanged but truncated when long. */
export interface DriveExchange {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
  readonly status: number | undefined;
  readonly reply: string;
  readonly milliseconds: number;
  /** How a platform interprets it. */
  readonly says: string;
}

/** The result. */
export interface DriveResult {
  readonly platform_payment_id: string;
  /** The terminal status; undefined when none was reached in time, or when the partner violated the interface. */
  readonly status: PaymentStatus | undefined;
  readonly problem: string | undefined;
}

/** Deadline of one call: the platform's default for a partner. */
const CALL_TIMEOUT_MS = 15_000;

/** Maximum answer size (decision 16). */
const MAX_REPLY_BYTES = 256 * 1024;

/** Maximum length of a body shown. */
const MAX_SHOWN = 2_000;

/** First delay between polls, and its growth: short, because a developer is watching. */
const FIRST_POLL_MS = 250;
const POLL_GROWTH = 1.4;
const MAX_POLL_MS = 5_000;

/** Attempts of one PUT whose outcome stays unknown, before a person has to look. */
const MAX_TRIES = 5;

const reply = compileCheck(PaymentReply);
const account = compileCheck(AccountReply);

/**
 * Drives one payment. Calls `shown` with each exchange; `withinMs` limits the polling. Never throws because of the partner; the
 * result says what went wrong.
 */
export async function drivePayment(
  target: DriveTarget,
  order: DriveOrder,
  options: {
    readonly shown: (exchange: DriveExchange) => void;
    readonly withinMs: number;
    readonly clock: Clock;
    readonly signal?: AbortSignal;
  },
): Promise<DriveResult> {
  const { clock } = options;
  const caller = openCaller(target, clock, options.shown);
  const platform_payment_id = randomUUID();
  const ids = { biller_id: order.biller_id, account_id: order.account_id, platform_payment_id };
  const result = (status: PaymentStatus | undefined, problem?: string): DriveResult => ({
    platform_payment_id,
    status,
    problem,
  });

  await caller.call('GET', fillPath(partnerRoutes.get_account.path, ids), undefined, judgeAccount);
  const path = fillPath(partnerRoutes.put_account_payment.path, ids);
  const bytes = JSON.stringify({
    platform_payment_id,
    platform_batch_id: `sandbox-${new Date(clock.now()).toISOString().slice(0, 10)}`,
    amount_in_cents: order.amount_in_cents,
  });
  const judge = (status: number | undefined, text: string) =>
    judgePayment(status, text, platform_payment_id, order.amount_in_cents);

  let first = await caller.call('PUT', path, bytes, judge);
  for (let tries = 1; first.status === undefined && tries < MAX_TRIES; tries += 1) {
    await pause(clock, FIRST_POLL_MS * 2 ** tries, options.signal);
    first = await caller.call('PUT', path, bytes, judge);
  }
  if (first.status === undefined) return result(undefined, `PUT: ${first.says}`);
  const again = await caller.call('PUT', path, bytes, judge);
  if (again.payment_id !== first.payment_id) {
    return result(
      undefined,
      'the identical PUT returned another payment: the id must be kept (RU5, ID1)',
    );
  }

  const until = clock.elapsed() + options.withinMs;
  let delayMs = FIRST_POLL_MS;
  while (clock.elapsed() < until && options.signal?.aborted !== true) {
    const seen = await caller.call('GET', path, undefined, judge);
    if (seen.status !== undefined && isTerminal(seen.status)) return result(seen.status);
    await pause(clock, delayMs, options.signal);
    delayMs = Math.min(MAX_POLL_MS, delayMs * POLL_GROWTH);
  }
  return result(
    undefined,
    'no terminal status in time; a platform would keep polling, less and less often',
  );
}

/** Interprets an answer about a payment: a status if the record is valid. */
interface Judged {
  readonly says: string;
  readonly status?: PaymentStatus;
  readonly payment_id?: string;
}

function judgePayment(
  status: number | undefined,
  text: string,
  id: string,
  amount_in_cents: number,
): Judged {
  if (status === undefined)
    return { says: 'unknown: no response; the same PUT will be sent again' };
  if (status !== 200) return { says: `unknown: ${status}; never treated as failed` };
  const json = readJson(text);
  if (!reply.holds(json)) {
    const problems = reply.problems(json, 'body').map(({ path, problem }) => `${path} ${problem}`);
    return { says: `not a payment record: ${problems.join('; ') || 'not a JSON object'}` };
  }
  if (json.platform_payment_id !== id)
    return { says: 'the record describes another payment (PF2)' };
  if (json.amount_in_cents !== amount_in_cents) return { says: 'the amount differs (PF6)' };
  if (!isPaymentStatus(json.status)) return { says: `${json.status} is not a status (PF4)` };
  if (json.status === 'succeeded' && typeof json.posted_at !== 'string') {
    return { says: 'succeeded needs posted_at (PF8)' };
  }
  return { says: json.status, status: json.status, payment_id: json.payment_id };
}

function judgeAccount(status: number | undefined, text: string): Judged {
  if (status !== 200) return { says: `no account: ${status ?? 'no answer'}` };
  return { says: account.holds(readJson(text)) ? 'an account' : 'not an account record' };
}

function readJson(text: string): Json | undefined {
  try {
    return parseJson(text);
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    return undefined;
  }
}

/** Sends a call with credentials; fetches an access token when there is none. */
function openCaller(target: DriveTarget, clock: Clock, shown: (exchange: DriveExchange) => void) {
  const base = target.base_url.replace(/\/+$/, '');
  const { auth } = target;
  let token: string | undefined;

  async function fetchToken(): Promise<void> {
    if (auth.method !== 'oauth') return;
    const form = new URLSearchParams({
      grant_type: 'client_credentials',
      client_id: auth.client_id,
      client_secret: auth.client_secret,
      scope: auth.scope ?? SCOPES.join(' '),
    });
    const masked = new URLSearchParams(form);
    masked.set('client_secret', '(masked)');
    const { text } = await exchange(
      clock,
      'POST',
      auth.token_url,
      { 'content-type': 'application/x-www-form-urlencoded' },
      form.toString(),
      { shown, shownBody: masked.toString(), hideReply: true },
      (status) => ({ says: status === 200 ? 'a token' : 'no token' }),
    );
    const json = readJson(text);
    const held = typeof json === 'object' && json !== null && !Array.isArray(json);
    const field = held ? (json as Readonly<Record<string, Json>>)['access_token'] : '';
    // Only characters that are allowed in a header (F61).
    token = typeof field === 'string' && /^[\x21-\x7e]+$/.test(field) ? field : undefined;
  }

  async function call(
    method: 'GET' | 'PUT',
    path: string,
    body: string | undefined,
    judge: (status: number | undefined, text: string) => Judged,
  ): Promise<Judged> {
    for (let tries = 0; ; tries += 1) {
      if (auth.method === 'oauth' && token === undefined) await fetchToken();
      const credential: Record<string, string> =
        auth.method === 'key'
          ? { [auth.header]: auth.key }
          : { authorization: `Bearer ${token ?? ''}` };
      const headers = {
        ...credential,
        accept: 'application/json',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      };
      const seen = await exchange(clock, method, `${base}${path}`, headers, body, { shown }, judge);
      // One renewal and one retry (decision 14); a static key cannot be renewed.
      if (seen.status !== 401 || auth.method === 'key' || tries > 0) return seen.judged;
      token = undefined;
    }
  }

  return { call };
}

async function exchange(
  clock: Clock,
  method: 'GET' | 'PUT' | 'POST',
  url: string,
  headers: Record<string, string>,
  body: string | undefined,
  show: {
    readonly shown: (exchange: DriveExchange) => void;
    readonly shownBody?: string;
    readonly hideReply?: boolean;
  },
  judge: (status: number | undefined, text: string) => Judged,
) {
  const start = clock.elapsed();
  const late = deadline(clock, CALL_TIMEOUT_MS);
  let status: number | undefined;
  let text = '';
  let trouble = '';
  try {
    const answer = await request(url, {
      method,
      headers,
      body: body ?? null,
      signal: late.signal,
    });
    text = await readText(answer.body);
    status = answer.statusCode;
  } catch (error) {
    trouble = error instanceof Error ? error.message || error.name : String(error);
  } finally {
    late.cancel();
  }
  const judged = judge(status, text);
  const plain = new Set(['accept', 'content-type']);
  show.shown({
    method,
    url,
    headers: Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, plain.has(name) ? value : '(masked)']),
    ),
    body: show.shownBody ?? body,
    status,
    reply:
      show.hideReply === true && status === 200
        ? '(masked)'
        : (trouble || text).slice(0, MAX_SHOWN),
    milliseconds: Math.round(clock.elapsed() - start),
    says: judged.says,
  });
  return { status, text, judged };
}

async function readText(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > MAX_REPLY_BYTES)
      throw new Error(`the response is longer than ${MAX_REPLY_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
