/**
 * The faults F01 to F68 that a partner can show by itself: how partners, their token endpoints and the network between fail in production.
 *
 * Each scenario is faulty for its first answers, or until it is healed, and correct from then on: a correct
 * caller then brings every payment to its end. `caller` says what a correct caller does meanwhile. The
 * variants of one fault come in a fixed order, so that the same faults can be reproduced.
 *
 * A table: one entry per scenario, read by id.
 */
import { gzipSync } from 'node:zlib';
import { Refusal } from '@duebridge/contract';
import { pause, type Clock } from '../clock.ts';
import {
  recordOf,
  type Answer,
  type Behaviour,
  type Call,
  type Insides,
  type Operation,
  type Reply,
  type StoredPayment,
  type TakeOver,
  type Wire,
} from './behaviour.ts';

/** What a scenario may use of the partner it runs in. */
export interface FaultTools {
  readonly clock: Clock;
  /** Takes one faulty answer: returns its number, starting at 0, or undefined when no more are due. */
  next(): number | undefined;
  /** True once healed, or once all faulty answers are given. */
  healed(): boolean;
  /** Origin of a second listener that is not this partner: no request may ever reach it. */
  readonly stray: string;
}

/** One named fault. */
export interface Scenario {
  /** Such as F02-timeout-after-commit. */
  readonly name: string;
  /** What goes wrong. */
  readonly title: string;
  /** What a correct caller does. */
  readonly caller: string;
  /** Only an OAuth partner can fail like this. */
  readonly needs?: 'oauth';
  /** Number of faulty answers before it is correct again; else until `heal`. */
  readonly faults: number | 'until_healed';
  /** How it can be reached: nothing listens until it heals, or TLS with a certificate that no caller may accept. */
  readonly entry?: 'closed' | 'bad_certificate';
  readonly begin: Begin;
}

/** Builds a fault for one partner; its state lives in the closure. */
type Begin = (tools: FaultTools) => Behaviour & { healed?(partner: Insides): void };

// ---------------------------------------------------------------------------------------------
// Ways to fail on the wire
// ---------------------------------------------------------------------------------------------

/** What a faulty answer may be made from. */
interface Moment {
  readonly call: Call;
  readonly tools: FaultTools;
  readonly partner: Insides;
}

/** The partner has done its work: `answer` is what it would have sent. */
interface Answered extends Moment {
  readonly answer: Answer;
}

/** One of the answers that a fault gives in turn. */
type Variant<M extends Moment> = Answer | ((moment: M) => Reply | Promise<Reply>);

/** Answers with the connection itself. */
const takes =
  (takeOver: TakeOver): Variant<Moment> =>
  () =>
    takeOver;

/** Sends nothing and keeps the connection open; the caller's deadline ends the call. */
const quiet: TakeOver = () => undefined;
const silence = takes(quiet);

/** RST, as after a crash or from a firewall. */
const reset: TakeOver = ({ socket }) => {
  socket.resetAndDestroy();
};

/** FIN without a byte: an idle connection closed while the request was in transit. */
const hangUp: TakeOver = ({ socket }) => {
  socket.destroy();
};

/** Sends raw bytes, then FIN; they need not be valid HTTP. */
const sends = (make: (wire: Wire) => string | Buffer): Variant<Moment> =>
  takes((wire) => {
    wire.socket.end(make(wire));
  });

/** The head of an HTTP/1.1 response as text. */
const head = (...lines: string[]): string => `HTTP/1.1 ${lines.join('\r\n')}\r\n\r\n`;
const JSON_TYPE = 'Content-Type: application/json';

/** Writes chunk after chunk until the caller disconnects. */
const drip =
  (pieces: (wire: Wire) => Iterable<string | Buffer>, everyMs: number): Variant<Moment> =>
  ({ tools }) =>
  async (wire) => {
    for (const piece of pieces(wire)) {
      if (wire.released.aborted || wire.socket.destroyed) return;
      const taken = wire.socket.write(piece);
      if (everyMs > 0) await pause(tools.clock, everyMs, wire.released);
      else if (!taken) await drained(wire);
    }
  };

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

function drained({ socket, released }: Wire): Promise<void> {
  return new Promise((resolve) => {
    if (released.aborted || socket.destroyed) return resolve();
    // Called hundreds of times for one huge body, so no listener may stay behind.
    const end = (): void => {
      socket.off('drain', end).off('close', end);
      released.removeEventListener('abort', end);
      resolve();
    };
    socket.on('drain', end).on('close', end);
    released.addEventListener('abort', end);
  });
}

/** The answer's body as text. */
function textOf(answer: Answer): string {
  const { body } = answer;
  if (typeof body === 'string') return body;
  return body instanceof Uint8Array ? Buffer.from(body).toString() : JSON.stringify(body ?? null);
}

const json = { 'Content-Type': 'application/json' };

/** A 200 with this body, labelled as JSON. */
const said = (body: string): Answer => ({ status: 200, headers: json, body });

const PAGE =
  '<!doctype html><title>Just a moment</title><p>Checking your browser before you go on.</p>';

// ---------------------------------------------------------------------------------------------
// Where to fail
// ---------------------------------------------------------------------------------------------

const WRITES: readonly Operation[] = ['put_account_payment'];
const READS: readonly Operation[] = ['get_account_payment', 'get_payment'];
const PAYMENTS: readonly Operation[] = [...WRITES, ...READS];
const TOKENS: readonly Operation[] = ['access_token'];

/** The variant whose turn it is; undefined for another operation, or when no faulty answer is due. */
function take<M extends Moment>(
  operations: readonly Operation[],
  variants: readonly Variant<M>[],
  moment: M,
): Reply | Promise<Reply> | undefined {
  if (!operations.includes(moment.call.operation)) return undefined;
  const turn = moment.tools.next();
  const variant = turn === undefined ? undefined : variants[turn % variants.length];
  return typeof variant === 'function' ? variant(moment) : variant;
}

/** The request never reaches the partner's records. Without variants, calls are only counted. */
const before =
  (operations: readonly Operation[], ...variants: Variant<Moment>[]): Begin =>
  (tools) => ({ receive: (call, partner) => take(operations, variants, { call, tools, partner }) });

/** The partner does its work, and only its answer is corrupted. Refusals pass unchanged. */
const after =
  (operations: readonly Operation[], ...variants: Variant<Answered>[]): Begin =>
  (tools) => ({
    answer: (call, answer, partner) =>
      answer.status === 200
        ? take(operations, variants, { call, tools, partner, answer })
        : undefined,
  });

/** Two faults at once; they share no hook. */
const both =
  (one: Begin, other: Begin): Begin =>
  (tools) => ({ ...one(tools), ...other(tools) });

type Fields = Record<string, unknown>;

/** Changes fields of the record; undefined removes a field. */
const fields =
  (change: Fields | ((record: Fields, call: Call) => Fields)): Variant<Answered> =>
  ({ answer, call }) => {
    const record = recordOf(answer) ?? {};
    const changed = typeof change === 'function' ? change(record, call) : change;
    return { ...answer, body: { ...record, ...changed } };
  };

const otherAmount = (change: (cents: number) => number): Variant<Answered> =>
  fields((record) => ({ amount_in_cents: change(Number(record['amount_in_cents'])) }));

/** The record as it was before the payment ended. */
function stillProcessing(record: Fields): Fields {
  const { failure_reason: _reason, ...rest } = record;
  return { ...rest, status: 'processing', posted_at: null };
}

/** The token answer with fields changed. */
const regrant = (answer: Answer, change: Fields): Answer => ({
  ...answer,
  body: { ...(answer.body as object), ...change },
});

/** Changes fields of the token answer. */
const grant =
  (change: Fields): Variant<Answered> =>
  ({ answer }) =>
    regrant(answer, change);

/** The record's text with the amount in another notation. */
const amountAs =
  (write: (amount: number) => string): Variant<Answered> =>
  ({ answer }) =>
    said(
      textOf(answer).replace(
        /"amount_in_cents":(\d+)/,
        (_, digits) => `"amount_in_cents":${write(Number(digits))}`,
      ),
    );

const refuse = (status: number, code: string, headers: Answer['headers'] = {}): Answer => ({
  status,
  headers,
  body: { code, message: 'Injected by the scenario' },
});

/** A 503 with this Retry-After. */
const busy = (retryAfter: string | string[]): Answer =>
  refuse(503, 'SERVICE_UNAVAILABLE', { 'Retry-After': retryAfter });

const tooMany = (retryAfter: string): Answer =>
  refuse(429, 'TOO_MANY_REQUESTS', { 'Retry-After': retryAfter });

const html = (status: number, body: string): Answer => ({
  status,
  headers: { 'Content-Type': 'text/html' },
  body,
});

const redirect =
  (status: number, to: string | ((moment: Moment) => string) = away): Variant<Moment> =>
  (moment) => ({
    status,
    headers: { Location: typeof to === 'string' ? to : to(moment) },
    body: '',
  });

/** The same path on a host that is not this partner. */
function away({ call, tools }: Moment): string {
  return `${tools.stray}${call.path}`;
}

/** Every payment stays processing until the fault is over. */
const heldOpen: Begin = (tools) => {
  const held: StoredPayment[] = [];
  return {
    born(payment) {
      if (tools.healed()) return;
      held.push(payment);
      payment.ending = { ...payment.ending, after_ms: undefined };
    },
    healed(partner) {
      for (const payment of held) partner.end(payment, { ...payment.ending, after_ms: 0 });
    },
  };
};

/** 1 MiB of spaces, compressed to 1 KiB. gzip members can be concatenated, which makes the bomb. */
const zippedMebibyte = gzipSync(Buffer.alloc(1024 * 1024, ' '));
const BOMB_MEBIBYTES = 200;

/** More than any caller may read. */
const HUGE_BODY_BYTES = 100 * 1024 * 1024;
const CHUNK = Buffer.alloc(64 * 1024, ' ');

// ---------------------------------------------------------------------------------------------
// The scenarios
// ---------------------------------------------------------------------------------------------

const SAME_PUT = 'Retries the same PUT, byte for byte and with backoff; the payment is pending.';
const NOT_FAILED = 'Treats it as an unknown outcome, never as failed; retries with backoff.';
const REVIEW = 'Does not trust the record: freezes the payment for manual review and alerts.';
const MISCONFIGURED = 'Alerts, keeps the payment pending, retries slowly.';
const NO_REDIRECT = 'Sends nothing to the other host, alerts; the payment stays pending.';

/** A row that leaves out what is usual: an outcome that is unknown, `until_healed`, and no fault beyond its entry point. */
type Row = Pick<Scenario, 'title'> & Partial<Omit<Scenario, 'name'>>;

const PAYMENT_ROWS: Readonly<Record<string, Row>> = {
  'F01-timeout-before-commit': {
    title: 'PUT gets no response, and the payment was not stored',
    caller: SAME_PUT,
    faults: 2,
    begin: before(WRITES, silence),
  },
  'F02-timeout-after-commit': {
    title: 'PUT gets no response, but the payment was stored',
    caller: `${SAME_PUT} The retry returns the existing payment.`,
    faults: 2,
    begin: after(WRITES, silence),
  },
  'F03-connection-refused': {
    title: 'Connection refused: nothing listens at the address',
    caller: 'Retries with backoff and opens its circuit breaker; other partners are not delayed.',
    entry: 'closed',
  },
  'F04-reset-before-answer': {
    title: 'Connection reset after the request, before any response; every other payment is stored',
    caller: SAME_PUT,
    faults: 4,
    begin(tools) {
      const spoilt = new WeakSet<Call>();
      return {
        receive(call) {
          const turn = WRITES.includes(call.operation) ? tools.next() : undefined;
          if (turn === undefined) return undefined;
          if (turn % 2 === 0) return reset;
          spoilt.add(call);
          return undefined;
        },
        answer: (call) => (spoilt.has(call) ? reset : undefined),
      };
    },
  },
  'F05-reset-in-body': {
    title: 'Connection reset in the middle of the response',
    faults: 4,
    begin: after(
      PAYMENTS,
      takes(async ({ socket, bytes, answer }) => {
        const whole = bytes(answer);
        await new Promise<void>((sent) => {
          socket.write(whole.subarray(0, whole.length - 40), () => sent());
        });
        socket.resetAndDestroy();
      }),
    ),
  },
  'F06-keep-alive-closed': {
    title: 'A reused connection is closed just as the next request is sent on it',
    caller: 'May retry once immediately on a new connection; then treats it as an unknown outcome.',
    faults: 4,
    begin: (tools) => ({
      receive(call) {
        if (call.earlier === 0 || !PAYMENTS.includes(call.operation)) return undefined;
        return tools.next() === undefined ? undefined : hangUp;
      },
    }),
  },
  'F07-server-error-before-commit': {
    title: 'PUT gets 500, 502, 503 and 504; the payment was not stored',
    caller: SAME_PUT,
    faults: 4,
    begin: before(
      WRITES,
      refuse(500, 'INTERNAL_ERROR'),
      html(502, '<h1>Bad Gateway</h1>'),
      refuse(503, 'SERVICE_UNAVAILABLE'),
      html(504, '<h1>Gateway Timeout</h1>'),
    ),
  },
  'F08-server-error-after-commit': {
    title: 'PUT or GET gets 500, 502, 503 and 504; the payment was stored',
    caller: `${SAME_PUT} The retry returns the existing payment.`,
    faults: 4,
    begin: after(
      PAYMENTS,
      refuse(500, 'INTERNAL_ERROR'),
      refuse(502, 'INTERNAL_ERROR'),
      refuse(503, 'SERVICE_UNAVAILABLE'),
      refuse(504, 'INTERNAL_ERROR'),
    ),
  },
  'F09-retry-after-seconds': {
    title: '503 and 429 with Retry-After: 1, and 429 with the same as a date',
    caller: 'Waits as long as requested, with jitter and at most 15 minutes, then retries.',
    faults: 4,
    begin: before(PAYMENTS, busy('1'), tooMany('1'), ({ partner }) =>
      // A date has whole seconds, so it may be one more.
      tooMany(new Date(Math.ceil(partner.now() / 1_000 + 1) * 1_000).toUTCString()),
    ),
  },
  'F10-odd-retry-after': {
    title: 'Unusual Retry-After: a date, a past date, 0, negative, garbage, two values, and 10^12',
    caller: 'Clamps the value or uses its own backoff; never waits forever.',
    faults: 7,
    begin: before(
      WRITES,
      ({ partner }) => busy(new Date(partner.now() + 1_000).toUTCString()),
      busy('Thu, 01 Jan 1970 00:00:00 GMT'),
      busy('0'),
      busy('-5'),
      busy('soon'),
      busy(['1', '2']),
      busy('1000000000000'),
    ),
  },
  'F11-rejected': {
    title: 'PUT gets 400 and 422; the payment was not stored',
    caller: 'Sends one GET; if that finds nothing, holds the payment for review.',
    begin: before(WRITES, refuse(422, 'INVALID_REQUEST'), refuse(400, 'INVALID_REQUEST')),
  },
  'F12-unauthorized': {
    title: 'Every operation gets 401, with any credential',
    caller: 'Renews its token and retries once, then pauses the partner and alerts.',
    begin: before(PAYMENTS, refuse(401, 'UNAUTHORIZED', { 'WWW-Authenticate': 'Bearer' })),
  },
  'F13-forbidden': {
    title: 'PUT gets 403',
    caller: 'Pauses writes to the partner and alerts; payments stay pending.',
    begin: before(WRITES, refuse(403, 'INSUFFICIENT_SCOPE')),
  },
  'F14-put-not-found': {
    title: 'PUT gets 404: the route is gone or the base path is wrong',
    caller: MISCONFIGURED,
    faults: 3,
    begin: before(WRITES, refuse(404, 'NOT_FOUND')),
  },
  'F15-accepted-then-not-found': {
    title: 'GET of an acknowledged payment gets 404',
    caller: 'Alerts and sends the same PUT again; never refunds.',
    faults: 2,
    begin: before(READS, refuse(404, 'PAYMENT_NOT_FOUND')),
  },
  'F16-timed-out-then-not-found': {
    title: 'PUT is delayed in transit and gets no response; meanwhile GET finds nothing',
    caller: 'Does not treat the 404 as proof; sends the same PUT again.',
    faults: 2,
    begin(tools) {
      const delayed = new WeakSet<Call>();
      return {
        async receive(call) {
          if (!WRITES.includes(call.operation) || tools.next() === undefined) return undefined;
          delayed.add(call);
          // However long the caller waits, the request arrives after it has given up and had time to ask.
          await aborted(call.released);
          await pause(tools.clock, 700);
          return undefined;
        },
        answer: (call) => (delayed.has(call) ? quiet : undefined),
      };
    },
  },
  'F17-conflict': {
    title: 'PUT or GET gets 409, 423 and 425',
    caller: 'Retries with backoff, then sends a GET.',
    faults: 3,
    begin: before(
      PAYMENTS,
      refuse(409, 'CONFLICT'),
      refuse(423, 'CONFLICT'),
      refuse(425, 'CONFLICT'),
    ),
  },
  'F18-not-implemented': {
    title: 'PUT gets 405, 501 and 505',
    caller: MISCONFIGURED,
    faults: 3,
    begin: before(
      WRITES,
      refuse(405, 'METHOD_NOT_ALLOWED', { Allow: 'GET' }),
      refuse(501, 'INTERNAL_ERROR'),
      refuse(505, 'INTERNAL_ERROR'),
    ),
  },
  'F19-redirect-to-other-host': {
    title: 'Redirect to another host by 301, 302, 307 and 308',
    caller: NO_REDIRECT,
    faults: 4,
    begin: before(PAYMENTS, redirect(307), redirect(308), redirect(301), redirect(302)),
  },
  'F20-see-other': {
    title: 'Redirect to another host by 303, which asks for a GET',
    caller: NO_REDIRECT,
    faults: 2,
    begin: before(PAYMENTS, redirect(303)),
  },
  'F21-redirect-inside': {
    title: 'Redirects to cloud metadata addresses and to localhost',
    caller: `${NO_REDIRECT} Records a security event.`,
    faults: 3,
    begin: before(
      PAYMENTS,
      redirect(
        302,
        ({ call, tools }) => `http://localhost:${new URL(tools.stray).port}${call.path}`,
      ),
      redirect(307, 'http://169.254.169.254/latest/meta-data/'),
      redirect(308, 'http://[fd00:ec2::254]/latest/meta-data/'),
    ),
  },
  'F22-html': {
    title: '200 with an HTML page, as from a login portal or a firewall; the payment was stored',
    faults: 4,
    begin: after(
      PAYMENTS,
      { status: 200, headers: { 'Content-Type': 'text/html; charset=utf-8' }, body: PAGE },
      said(PAGE),
    ),
  },
  'F23-wrong-content-type': {
    title: '200 with the right JSON but a wrong content type, or none',
    caller: 'Rejects the response and counts it: the sender may not be the partner’s application.',
    faults: 4,
    begin: after(
      PAYMENTS,
      ({ answer }) => ({
        status: 200,
        headers: { 'Content-Type': 'text/plain' },
        body: textOf(answer),
      }),
      ({ answer }) => ({ status: 200, body: textOf(answer) }),
    ),
  },
  'F24-malformed-json': {
    title: '200 with malformed JSON, an empty body, null, an array, a byte order mark, or NaN',
    faults: 6,
    begin: after(
      PAYMENTS,
      ({ answer }) => said(textOf(answer).replace(',', ',,')),
      said(''),
      said('null'),
      ({ answer }) => said(`[${textOf(answer)}]`),
      ({ answer }) => said(`\uFEFF${textOf(answer)}`),
      amountAs(() => 'NaN'),
    ),
  },
  'F25-truncated-body': {
    title: 'Truncated body without a Content-Length, which looks like a complete 200',
    caller: `Relies on its JSON parser to detect it. ${NOT_FAILED}`,
    faults: 4,
    begin: after(
      PAYMENTS,
      sends(
        ({ answer }) =>
          `${head('200 OK', JSON_TYPE, 'Connection: close')}${textOf(answer).slice(0, -20)}`,
      ),
    ),
  },
  'F26-dangerous-keys': {
    title: 'Duplicate keys and a __proto__ that claims success',
    caller: 'Reads only own properties and rejects such bodies; neither key decides the outcome.',
    faults: 4,
    begin: after(
      PAYMENTS,
      ({ answer }) =>
        said(`${textOf(answer).slice(0, -1)},"status":"failed","failure_reason":"Injected"}`),
      ({ answer }) => said(`{"__proto__":{"status":"failed"},${textOf(answer).slice(1)}`),
    ),
  },
  'F27-wrong-payment': {
    title: 'Another platform_payment_id in the response',
    caller: REVIEW,
    begin: after(
      PAYMENTS,
      fields((record) => ({
        platform_payment_id: `${String(record['platform_payment_id']).slice(0, 60)}-x`,
      })),
    ),
  },
  'F28-wrong-amount': {
    title: 'Another amount_in_cents in the response: a cent more, a cent less, and twice as much',
    caller: REVIEW,
    begin: after(
      PAYMENTS,
      otherAmount((cents) => cents + 1),
      otherAmount((cents) => cents - 1),
      otherAmount((cents) => cents * 2),
    ),
  },
  'F29-amount-as-text': {
    title: 'The right amount as a string, as 1250.0 and as 1.25e3',
    caller: 'Rejects the response: an amount must be a plain integer.',
    faults: 6,
    begin: after(
      PAYMENTS,
      amountAs((amount) => `"${amount}"`),
      amountAs((amount) => `${amount}.0`),
      amountAs((amount) => amount.toExponential()),
    ),
  },
  'F30-wrong-account-or-batch': {
    title: 'Another account or batch id in the response',
    caller: REVIEW,
    begin: after(
      PAYMENTS,
      fields({ account_id: 'somebody-else' }),
      fields({ platform_batch_id: 'another-batch' }),
    ),
  },
  'F31-payment-id-changes': {
    title: 'payment_id differs between responses',
    caller: REVIEW,
    begin: both(
      // Only a poll can contradict the answer to the PUT, so the payment stays processing until there is one.
      heldOpen,
      after(
        READS,
        fields((record, call) => ({
          payment_id: `${String(record['payment_id'])}-${call.number}`,
        })),
      ),
    ),
  },
  'F32-unknown-status': {
    title: 'A status in capitals, with a trailing space, misspelled, or with an unknown word',
    caller: 'Treats it as processing, alerts, and keeps polling: only the four exact words count.',
    faults: 6,
    begin: after(
      PAYMENTS,
      fields({ status: 'FAILED', failure_reason: 'Injected', posted_at: null }),
      fields({ status: 'canceled ', posted_at: null }),
      fields({ status: 'completed', posted_at: null }),
      fields({ status: 'success', posted_at: null }),
      fields({ status: 'cancelled', posted_at: null }),
    ),
  },
  'F33-missing-fields': {
    title: 'status, amount_in_cents or initiated_at is missing',
    faults: 6,
    begin: after(
      PAYMENTS,
      fields({ status: undefined }),
      fields({ amount_in_cents: undefined }),
      fields({ initiated_at: undefined }),
    ),
  },
  'F34-extra-fields': {
    title: 'Unknown fields in the response',
    caller: 'Ignores them.',
    begin: after(
      PAYMENTS,
      fields({ settled: false, error: 'none', state: 'FAILED', nested: { status: 'failed' } }),
    ),
  },
  'F35-fields-against-status': {
    title: 'processing with posted_at, succeeded without it, failed without a reason',
    caller: 'Accepts failed without a reason; polls on, then holds the payment for review.',
    faults: 3,
    begin(tools) {
      let wasProcessing = false;
      const spoilt = after(
        PAYMENTS,
        fields((record) => {
          if (record['status'] === 'processing') return { posted_at: record['initiated_at'] };
          return { posted_at: null, failure_reason: undefined };
        }),
      )(tools);
      return {
        answer(call, answer, partner) {
          const isProcessing = recordOf(answer)?.['status'] === 'processing';
          // One is enough: the rest are for the end, which many polls may come before.
          if (isProcessing && wasProcessing) return undefined;
          const reply = spoilt.answer?.(call, answer, partner);
          wasProcessing ||= isProcessing && reply !== undefined;
          return reply;
        },
      };
    },
  },
  'F36-status-goes-back': {
    title: 'After a terminal status, later responses say processing or another terminal status',
    caller: 'Has stopped polling; ignores late or extra responses, and logs the breach.',
    begin(tools) {
      const ended = new Set<unknown>();
      return {
        answer(_call, answer) {
          const record = recordOf(answer);
          if (record === undefined || tools.healed()) return undefined;
          const id = record['platform_payment_id'];
          if (!ended.has(id)) {
            if (record['status'] !== 'processing') ended.add(id);
            return undefined;
          }
          const turn = tools.next() ?? 0;
          const back = stillProcessing(record);
          const failed = { ...back, status: 'failed', failure_reason: 'Injected' };
          return { ...answer, body: turn % 2 === 0 ? back : failed };
        },
      };
    },
  },
  'F37-stale-read': {
    title: 'An intermediate cache answers GET with an old record',
    caller: 'Sends no-store, never reverts a status that it has seen, and keeps polling.',
    faults: 3,
    begin: after(READS, ({ answer }) => ({
      status: 200,
      headers: { Age: '60', 'Cache-Control': 'public, max-age=120' },
      body: stillProcessing(recordOf(answer) ?? {}),
    })),
  },
  'F38-two-nodes': {
    title: 'Two partner nodes answer in turn, one lagging: not found, processing, not found …',
    caller: 'Never reverts a status and never refunds; sends the same PUT again on not found.',
    faults: 6,
    begin: (tools) => ({
      answer(call, answer) {
        if (!READS.includes(call.operation)) return undefined;
        const turn = tools.next();
        if (turn === undefined) return undefined;
        if (turn % 2 === 0) return refuse(404, 'PAYMENT_NOT_FOUND');
        const record = recordOf(answer);
        return record && { ...answer, body: stillProcessing(record) };
      },
    }),
  },
  'F39-forever-processing': {
    title: 'The payment stays processing',
    caller: 'Polls less and less often, lists it for an operator, never fails it by itself.',
    begin: both(heldOpen, before(READS)),
  },
  'F40-huge-body': {
    title: 'A body of 100 MB',
    caller: 'Stops reading at its limit and closes the connection; the outcome is unknown.',
    faults: 2,
    begin: after(
      PAYMENTS,
      drip(function* () {
        yield head('200 OK', JSON_TYPE, `Content-Length: ${HUGE_BODY_BYTES}`);
        for (let sent = 0; sent < HUGE_BODY_BYTES; sent += CHUNK.length) yield CHUNK;
      }, 0),
    ),
  },
  'F41-zip-bomb': {
    title: `Unrequested Content-Encoding: gzip: 200 KB that decompress to ${BOMB_MEBIBYTES} MB`,
    caller: 'Requests identity and rejects encodings, or limits the decompressed size.',
    faults: 2,
    begin: after(PAYMENTS, () => ({
      status: 200,
      headers: { ...json, 'Content-Encoding': 'gzip' },
      body: Buffer.concat(Array.from({ length: BOMB_MEBIBYTES }, () => zippedMebibyte)),
    })),
  },
  'F42-slow-drip': {
    title: 'One byte of the body every tenth of a second, endlessly',
    caller: 'Has a deadline for the whole call, not only between bytes.',
    faults: 2,
    begin: after(
      PAYMENTS,
      drip(function* () {
        yield head('200 OK', JSON_TYPE, 'Content-Length: 60000');
        for (let sent = 0; sent < 60_000; sent += 1) yield ' ';
      }, 100),
    ),
  },
  'F43-huge-headers': {
    title: 'Headers of 1 MB, 10,000 headers, or endless slow headers',
    caller: 'Limits headers and has a deadline for the whole call; the outcome is unknown.',
    faults: 3,
    begin: after(
      PAYMENTS,
      sends(({ bytes, answer }) =>
        bytes({ ...answer, headers: { 'X-Padding': 'x'.repeat(1024 * 1024) } }),
      ),
      sends(({ bytes, answer }) =>
        bytes({ ...answer, headers: { 'X-Padding': Array.from({ length: 10_000 }, () => 'x') } }),
      ),
      drip(function* ({ bytes, answer }) {
        yield 'HTTP/1.1 200 OK\r\n';
        for (let line = 0; line < 60_000; line += 1) yield `X-${line}: x\r\n`;
        yield bytes(answer);
      }, 100),
    ),
  },
  'F44-broken-framing': {
    title: 'Invalid chunk size, two Content-Length headers, or bytes after the end',
    caller: 'Its HTTP parser rejects the response; closes the connection; the outcome is unknown.',
    faults: 3,
    begin: after(
      PAYMENTS,
      sends(
        ({ answer }) =>
          `${head('200 OK', JSON_TYPE, 'Transfer-Encoding: chunked')}zz\r\n${textOf(answer)}\r\n0\r\n\r\n`,
      ),
      sends(({ answer }) => {
        const text = textOf(answer);
        const lengths = [text.length, text.length - 30].map(
          (length) => `Content-Length: ${length}`,
        );
        return `${head('200 OK', JSON_TYPE, ...lengths)}${text}`;
      }),
      sends(({ bytes, answer }) => Buffer.concat([bytes(answer), Buffer.from('{"more":true}')])),
    ),
  },
  'F45-odd-statuses': {
    title: 'A flood of 1xx, 204, 205, 206, or 200 with an empty body',
    caller: 'Accepts only a 200 with a valid record.',
    faults: 5,
    begin: after(
      PAYMENTS,
      sends(() => head('103 Early Hints', 'Link: </x>').repeat(1_000)),
      sends(() => head('204 No Content', 'Connection: close')),
      sends(() => head('205 Reset Content', 'Content-Length: 0', 'Connection: close')),
      ({ answer }) => ({ ...answer, status: 206 }),
      said(''),
    ),
  },
  'F46-other-protocol': {
    title: 'HTTP/1.0 that closes too early, and an HTTP/2 GOAWAY frame',
    faults: 2,
    begin: after(
      PAYMENTS,
      sends(({ answer }) => {
        const text = textOf(answer);
        return `HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n${text.slice(0, 25)}`;
      }),
      // SETTINGS, then GOAWAY with NO_ERROR: what an HTTP/2 node sends when it shuts down.
      sends(() => Buffer.from('0000000400000000000000080700000000000000000000000000', 'hex')),
    ),
  },
  'F47-bad-certificate': {
    title: 'TLS certificate that is self-signed, expired and for another host',
    caller: 'Rejects it, sends nothing, pauses the partner and alerts; no flag disables the check.',
    entry: 'bad_certificate',
  },
  'F50-crossed-answers': {
    title: 'The response to another payment arrives on this connection',
    caller: `${REVIEW} Closes the connection.`,
    begin: after(
      PAYMENTS,
      fields((record, call) => ({
        payment_id: `pay_of_another_${call.number}`,
        platform_payment_id: `another-${call.number}`,
        amount_in_cents: Number(record['amount_in_cents']) + 700,
        status: 'succeeded',
        posted_at: record['initiated_at'],
      })),
    ),
  },
};

const REFUSE_TOKEN = 'Sends no call with it, retries with backoff; payments stay pending.';

const TOKEN_ROWS: Readonly<Record<string, Row>> = {
  'F51-no-expiry': {
    title: 'expires_in missing or null',
    caller: 'Assumes 300 seconds.',
    faults: 2,
    begin: after(TOKENS, grant({ expires_in: undefined }), grant({ expires_in: null })),
  },
  'F52-expiry-as-text': {
    title: 'expires_in as the string "3600"',
    caller: 'Accepts an integer in a string.',
    faults: 2,
    begin: after(TOKENS, grant({ expires_in: '3600' })),
  },
  'F53-expiry-not-positive': {
    title: 'expires_in 0 or negative',
    caller: 'Uses the token once and does not keep it.',
    faults: 4,
    begin: after(TOKENS, grant({ expires_in: 0 }), grant({ expires_in: -3600 })),
  },
  'F54-expiry-too-long': {
    title: 'expires_in 3,600,000 or 10^12',
    caller: 'Caps it at one hour.',
    faults: 2,
    begin: after(TOKENS, grant({ expires_in: 3_600_000 }), grant({ expires_in: 1e12 })),
  },
  'F55-expiry-unreadable': {
    title: 'expires_in 1.5, "1h" or an object',
    caller: 'Treats it as missing: assumes 300 seconds.',
    faults: 3,
    begin: after(
      TOKENS,
      grant({ expires_in: '1h' }),
      grant({ expires_in: { seconds: 3600 } }),
      grant({ expires_in: 1.5 }),
    ),
  },
  'F56-expiry-not-a-number': {
    title: 'expires_in "NaN" or "Infinity"',
    caller: 'Checks for a finite number: a token with such an expiry would never expire.',
    faults: 2,
    begin: after(TOKENS, grant({ expires_in: 'NaN' }), grant({ expires_in: 'Infinity' })),
  },
  'F57-early-revocation': {
    title: 'Tokens are revoked before they expire: calls get 401',
    caller: 'Renews the token once and retries the call once.',
    faults: 3,
    begin(tools) {
      const revoked = new Set<string>();
      return {
        authorize(call, refusal) {
          if (refusal !== undefined) return refusal;
          const token = call.headers.authorization ?? '';
          if (revoked.has(token) || tools.next() !== undefined) {
            revoked.add(token);
            return new Refusal('UNAUTHORIZED', {
              headers: { 'WWW-Authenticate': 'Bearer error="invalid_token"' },
            });
          }
          return undefined;
        },
      };
    },
  },
  'F58-expiry-beyond-timers': {
    title: 'expires_in over 2^31 milliseconds',
    caller: 'Sets no timer from it, which would fire at once; checks the clock on each use.',
    faults: 2,
    begin: after(TOKENS, grant({ expires_in: 2_147_484 })),
  },
  'F59-token-type': {
    title: 'token_type "mac", missing or "BEARER"',
    caller: 'Accepts bearer in any case; rejects any other type or none.',
    faults: 3,
    begin: after(
      TOKENS,
      grant({ token_type: 'mac' }),
      grant({ token_type: undefined }),
      grant({ token_type: 'BEARER' }),
    ),
  },
  'F60-scope-shrunk': {
    title: 'Tokens are issued with only scope read',
    caller: 'Sends no PUT with it and alerts; payments stay pending.',
    begin: after(TOKENS, grant({ scope: 'read' })),
  },
  'F61-unusable-token': {
    title: 'access_token empty, with CR LF, with spaces, or of 1 MB',
    caller: REFUSE_TOKEN,
    faults: 4,
    begin: after(
      TOKENS,
      grant({ access_token: '' }),
      grant({ access_token: 'abc\r\nX-Injected: yes' }),
      grant({ access_token: 'two words' }),
      grant({ access_token: 'x'.repeat(1024 * 1024) }),
    ),
  },
  'F62-client-refused': {
    title: 'The token endpoint answers 400 invalid_client or invalid_scope',
    caller: 'Pauses the partner, alerts, and requests a token at most once a minute.',
    begin: before(
      TOKENS,
      { status: 400, body: { error: 'invalid_client' } },
      { status: 400, body: { error: 'invalid_scope' } },
    ),
  },
  'F63-token-endpoint-down': {
    title: 'The token endpoint answers 503, not at all, or slowly',
    caller: 'Backs off, and uses the old token until it actually expires.',
    faults: 3,
    begin: before(
      TOKENS,
      { status: 503, body: { error: 'temporarily_unavailable' } },
      silence,
      ({ tools }) =>
        async (wire) => {
          await pause(tools.clock, 500, wire.released);
          wire.send({ status: 503, body: { error: 'temporarily_unavailable' } });
        },
    ),
  },
  'F64-token-html': {
    title: 'The token endpoint answers 200 with HTML or with a JSON error',
    caller: REFUSE_TOKEN,
    faults: 2,
    begin: after(TOKENS, html(200, PAGE), {
      status: 200,
      body: { error: 'server_error', error_description: 'try later' },
    }),
  },
  'F65-herd-on-expiry': {
    title: 'Short-lived tokens from a slow endpoint while many payments wait',
    caller: 'Fetches one token at a time; all calls share it.',
    begin: after(TOKENS, async ({ answer, tools }) => {
      await pause(tools.clock, 150);
      return regrant(answer, { expires_in: 2 });
    }),
  },
  'F68-token-redirect': {
    title: 'The token endpoint redirects to another host',
    caller: 'Does not follow the redirect, which would expose the secret; retries with backoff.',
    faults: 2,
    begin: before(TOKENS, redirect(307), redirect(302)),
  },
};

/** Every scenario, in the order of its number. */
export const SCENARIOS: readonly Scenario[] = [
  ...Object.entries(PAYMENT_ROWS),
  ...Object.entries(TOKEN_ROWS).map(([name, row]) => [name, { needs: 'oauth', ...row }] as const),
].map(([name, row]) => ({
  name,
  faults: 'until_healed',
  caller: NOT_FAILED,
  begin: () => ({}),
  ...row,
}));

/** The scenario with this name, or with only this number (F02); undefined when there is none. */
export function findScenario(name: string): Scenario | undefined {
  const wanted = name.toLowerCase();
  return (
    SCENARIOS.find((scenario) => scenario.name.toLowerCase() === wanted) ??
    SCENARIOS.find((scenario) => scenario.name.toLowerCase().startsWith(`${wanted}-`))
  );
}
