/**
 * The faults F01 to F68 that a partner can show by itself: how partners, their token endpoints and the network between fail in production. And
 * one that lasts (C13).
 *
 * A payment meets its scenario's fault a few times, and the partner is correct from then on: a correct caller then brings the payment
 * to its end. `caller` says what a correct caller does meanwhile.
 *
 * A table: one entry per scenario, read by id.
 */
import { Refusal, type ClauseId } from '@duebridge/contract';
import { pause } from '../clock.ts';
import { recordOf, type Call } from './behaviour.ts';
import {
  aborted,
  after,
  amountAs,
  atOffset,
  before,
  BOMB_MEBIBYTES,
  busy,
  CHUNK,
  drip,
  fields,
  hangUp,
  head,
  html,
  HUGE_BODY_BYTES,
  json,
  JSON_TYPE,
  otherAmount,
  PAGE,
  PAYMENTS,
  quiet,
  READS,
  redirect,
  refuse,
  reset,
  said,
  sends,
  silence,
  stale,
  stillProcessing,
  takes,
  TOKENS,
  tooMany,
  WRITES,
  zippedMebibyte,
  type Fault,
} from './faults.ts';
import { textOf } from './requests.ts';

/** One named fault, how the judge applies it to a platform, and what the platform must do. */
export interface Scenario extends Required<Fault> {
  /** Such as F02-timeout-after-commit. */
  readonly name: string;
  /** What goes wrong. */
  readonly title: string;
  /** What a correct caller does. */
  readonly caller: string;
  /** The fault is one of the token endpoint, so that only an OAuth partner can have it. */
  readonly ofTokens?: true;
  readonly clauses: readonly [ClauseId, ...ClauseId[]];
  /** Faulty answers for each payment and method; 1 unless given. */
  readonly times?: number;
  /** How many of them must be delivered before the platform is judged: by default all, or one if `times` is infinite. */
  readonly enough?: number;
  /** Each faulty answer is the next variant. */
  readonly inTurn?: true;
  /**
   * `processing`, unless given: the payment ends only after the judge has seen how the platform handles the fault. `ended`: it ends as
   * usual, so that responses can contradict its end.
   */
  readonly payment?: 'processing' | 'ended';
  /**
   * What must follow. `goes_on`, unless given: further calls. `may_stop`: the platform may leave the payment to an operator. `frozen`: the
   * responses are contradictory, so they must not end the payment. `stops`: no call after the end.
   */
  readonly after?: 'goes_on' | 'may_stop' | 'frozen' | 'stops';
  /** The platform must learn the end and show it to the customer; without this, the next call shows that the platform continues. */
  readonly ends?: true;
  /** More PUTs of the payment in a second are a flood; 10 unless given. A PUT that renews its token counts twice. */
  readonly most_puts_a_second?: number;
  /** Seconds of the Retry-After that the faulty answer carries. */
  readonly retry_after_seconds?: number;
  /** Only a decision requires it, not the interface. */
  readonly strict?: true;
  /** The platform may pause the partner afterwards. */
  readonly last?: true;
  /** Of a token: a call with it is correct. Then each variant has its own payment; otherwise one payment meets them in turn. */
  readonly usable?: true;
  /** Of a token: a timer must not fetch it again, so the platform is observed for a while. */
  readonly watched?: true;
}

const SAME_PUT = 'Retries the same PUT, byte for byte and with backoff; the payment is pending.';
const NOT_FAILED = 'Treats it as an unknown outcome, never as failed; retries with backoff.';
const REVIEW = 'Does not trust the record: freezes the payment for manual review and alerts.';
const MISCONFIGURED = 'Alerts, keeps the payment pending, retries slowly.';

/** The clauses of a token that must not be used. */
const REFUSED = ['OA3', 'ST3'] as const;
const MAY_STOP = { after: 'may_stop' } as const;
const CONTRADICTED = {
  on: 'GET',
  times: Infinity,
  payment: 'ended',
  after: 'frozen',
  clauses: ['PF6', 'PF2'],
} as const;
/** The end has to be learned though one answer hides it. */
const AT_END = { enough: 1, payment: 'ended', ends: true } as const;
const EXPIRY = { usable: true, clauses: ['OA3', 'OA4'] } as const;

/** The platform gets no usable token until the check ends. */
const NEVER = { times: Infinity, after: 'may_stop', last: true } as const;

/** A row that leaves out what is usual. */
type Row = Pick<Scenario, 'title'> & Partial<Omit<Scenario, 'name'>>;

const PAYMENT_ROWS: Readonly<Record<string, Row>> = {
  'F01-timeout-before-commit': {
    title: 'PUT gets no response, and the payment was not stored',
    caller: SAME_PUT,
    ...before(WRITES, silence),
  },
  'F02-timeout-after-commit': {
    title: 'PUT gets no response, but the payment was stored',
    caller: `${SAME_PUT} The retry returns the existing payment.`,
    ...after(WRITES, silence),
  },
  'F03-connection-refused': {
    title: 'Connection refused: nothing listens at the address',
    caller: 'Retries with backoff and opens its circuit breaker; other partners are not delayed.',
  },
  'F04-reset-before-answer': {
    title: 'Connection reset after the request, before any response; every other payment is stored',
    caller: SAME_PUT,
    variants: 2,
    begin(tools) {
      const spoilt = new WeakSet<Call>();
      return {
        receive(call) {
          const turn = WRITES.includes(call.operation) ? tools.next(call) : undefined;
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
    ...after(
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
    on: 'GET',
    begin: (tools) => ({
      receive(call) {
        if (call.earlier === 0 || !PAYMENTS.includes(call.operation)) return undefined;
        return tools.next(call) === undefined ? undefined : hangUp;
      },
    }),
  },
  'F07-server-error-before-commit': {
    title: 'PUT gets 500, 502, 503, 504, 405, 501 and 505; the payment was not stored',
    caller: SAME_PUT,
    ...before(
      WRITES,
      refuse(500, 'INTERNAL_ERROR'),
      html(502, '<h1>Bad Gateway</h1>'),
      refuse(503, 'SERVICE_UNAVAILABLE'),
      html(504, '<h1>Gateway Timeout</h1>'),
      refuse(405, 'METHOD_NOT_ALLOWED', { Allow: 'GET' }),
      refuse(501, 'INTERNAL_ERROR'),
      refuse(505, 'INTERNAL_ERROR'),
    ),
  },
  'F08-server-error-after-commit': {
    title: 'PUT or GET gets 500, 502, 503 and 504; the payment was stored',
    caller: `${SAME_PUT} The retry returns the existing payment.`,
    ...after(
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
    ...before(PAYMENTS, busy('1'), tooMany('1'), ({ partner }) =>
      // A date has whole seconds, so it may be one more.
      tooMany(new Date(Math.ceil(partner.now() / 1_000 + 1) * 1_000).toUTCString()),
    ),
    retry_after_seconds: 1,
    clauses: ['LI1', 'RU5', 'RU4'],
  },
  'F10-odd-retry-after': {
    title: 'Unusual Retry-After: a date, a past date, 0, negative, garbage, and two values',
    caller: 'Clamps the value or uses its own backoff; never waits forever.',
    ...before(
      WRITES,
      ({ partner }) => busy(new Date(partner.now() + 1_000).toUTCString()),
      busy('Thu, 01 Jan 1970 00:00:00 GMT'),
      busy('0'),
      busy('-5'),
      busy('soon'),
      busy(['1', '2']),
    ),
  },
  'F11-rejected': {
    title: 'PUT gets 400 and 422; the payment was not stored',
    caller: 'Sends one GET; if that finds nothing, holds the payment for review.',
    ...before(WRITES, refuse(422, 'INVALID_REQUEST'), refuse(400, 'INVALID_REQUEST')),
    times: Infinity,
    after: 'may_stop',
    strict: true,
  },
  'F12-unauthorized': {
    title: 'Every operation gets 401, with any credential',
    caller: 'Renews its token and retries once, then pauses the partner and alerts.',
    ...before(PAYMENTS, refuse(401, 'UNAUTHORIZED', { 'WWW-Authenticate': 'Bearer' })),
    on: 'PUT',
    times: Infinity,
    after: 'may_stop',
    clauses: ['ST3', 'OA4'],
    last: true,
  },
  'F13-forbidden': {
    title: 'PUT gets 403',
    caller: 'Pauses writes to the partner and alerts; payments stay pending.',
    ...before(WRITES, refuse(403, 'INSUFFICIENT_SCOPE')),
    after: 'may_stop',
    clauses: ['ST3', 'SC1'],
    last: true,
  },
  'F14-put-not-found': {
    title: 'PUT gets 404: the route is gone or the base path is wrong',
    caller: MISCONFIGURED,
    ...before(WRITES, refuse(404, 'NOT_FOUND')),
    ends: true,
  },
  'F15-accepted-then-not-found': {
    title: 'GET of an acknowledged payment gets 404',
    caller: 'Alerts and sends the same PUT again; never refunds.',
    ...before(READS, refuse(404, 'PAYMENT_NOT_FOUND')),
  },
  'F16-timed-out-then-not-found': {
    title: 'PUT is delayed in transit and gets no response; meanwhile GET finds nothing',
    caller: 'Does not treat the 404 as proof; sends the same PUT again.',
    begin(tools) {
      const delayed = new WeakSet<Call>();
      return {
        async receive(call) {
          if (!WRITES.includes(call.operation) || tools.next(call) === undefined) return undefined;
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
    ...before(PAYMENTS, refuse(409, 'CONFLICT'), refuse(423, 'CONFLICT'), refuse(425, 'CONFLICT')),
    ends: true,
  },
  'F19-redirect': {
    title: 'Redirect to another host by 307, 308, 301, 302 and 303, and to localhost by 302',
    caller: 'Sends nothing to the other host, alerts; the payment stays pending.',
    ...before(
      PAYMENTS,
      ...[307, 308, 301, 302, 303].map((status) => redirect(status)),
      redirect(
        302,
        ({ call, tools }) => `http://localhost:${new URL(tools.stray).port}${call.path}`,
      ),
    ),
    ...MAY_STOP,
    clauses: ['S3', 'ST3', 'RU5'],
  },
  'F22-html': {
    title: '200 with an HTML page, as from a login portal or a firewall, or with a truncated body',
    ...after(
      PAYMENTS,
      { status: 200, headers: { 'Content-Type': 'text/html; charset=utf-8' }, body: PAGE },
      said(PAGE),
      // Without a Content-Length it looks complete.
      sends(
        ({ answer }) =>
          `${head('200 OK', JSON_TYPE, 'Connection: close')}${textOf(answer).slice(0, -20)}`,
      ),
    ),
  },
  'F24-no-record': {
    title:
      '200 with malformed JSON, no object, a wrong type of content or amount, or a field missing',
    ...after(
      PAYMENTS,
      ({ answer }) => said(textOf(answer).replace(',', ',,')),
      said(''),
      said('null'),
      ({ answer }) => said(`[${textOf(answer)}]`),
      ({ answer }) => said(`\uFEFF${textOf(answer)}`),
      amountAs(() => 'NaN'),
      amountAs((amount) => `"${amount}"`),
      amountAs((amount) => `${amount}.0`),
      amountAs((amount) => amount.toExponential()),
      ({ answer }) => ({
        status: 200,
        headers: { 'Content-Type': 'text/plain' },
        body: textOf(answer),
      }),
      ({ answer }) => ({ status: 200, body: textOf(answer) }),
      fields({ status: undefined }),
      fields({ amount_in_cents: undefined }),
      fields({ initiated_at: undefined }),
    ),
    // Success, and yet no record: whoever asks again may get it forever.
    ...MAY_STOP,
    clauses: ['ST3', 'S5', 'RU5', 'RU4'],
  },
  'F26-dangerous-keys': {
    title: 'Duplicate keys and a __proto__ that claims success',
    caller: 'Reads only own properties and rejects such bodies; neither key decides the outcome.',
    ...after(
      PAYMENTS,
      ({ answer }) =>
        said(`${textOf(answer).slice(0, -1)},"status":"failed","failure_reason":"Injected"}`),
      ({ answer }) => said(`{"__proto__":{"status":"failed"},${textOf(answer).slice(1)}`),
    ),
    ...MAY_STOP,
    strict: true,
  },
  'F27-wrong-payment': {
    title: 'Another id or amount in the response, or the whole response to another payment',
    caller: `${REVIEW} Closes the connection.`,
    ...after(
      PAYMENTS,
      fields((record) => ({
        platform_payment_id: `${String(record['platform_payment_id']).slice(0, 60)}-x`,
      })),
      fields((record, call) => ({
        payment_id: `pay_of_another_${call.number}`,
        platform_payment_id: `another-${call.number}`,
        amount_in_cents: Number(record['amount_in_cents']) + 700,
        status: 'succeeded',
        posted_at: record['initiated_at'],
      })),
      otherAmount((cents) => cents + 1),
      otherAmount((cents) => cents - 1),
      otherAmount((cents) => cents * 2),
    ),
    ...CONTRADICTED,
  },
  'F30-wrong-account-batch-or-id': {
    title: 'Another account or batch id in the response, or a payment_id that changes',
    caller: REVIEW,
    ...after(
      PAYMENTS,
      fields({ account_id: 'somebody-else' }),
      fields({ platform_batch_id: 'another-batch' }),
      fields((record, call) => ({
        payment_id: `${String(record['payment_id'])}-${call.number}`,
      })),
    ),
    ...CONTRADICTED,
    clauses: ['PF3', 'PF9', 'PF1'],
    strict: true,
  },
  'F32-unknown-status': {
    title: 'A status in capitals, with a trailing space, misspelled, or with an unknown word',
    caller: 'Treats it as processing, alerts, and keeps polling: only the four exact words count.',
    ...after(
      PAYMENTS,
      fields({ status: 'FAILED', failure_reason: 'Injected', posted_at: null }),
      fields({ status: 'canceled ', posted_at: null }),
      fields({ status: 'completed', posted_at: null }),
      fields({ status: 'success', posted_at: null }),
      fields({ status: 'cancelled', posted_at: null }),
    ),
    ...MAY_STOP,
    times: 2,
    clauses: ['PF4', 'RU4'],
  },
  'F34-unusual-record': {
    title: 'Unknown fields in the response, a long payment_id, or times at an offset',
    caller: 'Ignores what it does not know, and reads any string for an id and any zone.',
    ...after(
      PAYMENTS,
      fields({ settled: false, error: 'none', state: 'FAILED', nested: { status: 'failed' } }),
      // The status of another object comes first.
      ({ answer }) => ({
        ...answer,
        body: { account: { status: 'failed' }, ...recordOf(answer), fee: { status: 'failed' } },
      }),
      fields(({ payment_id }) => ({
        payment_id: `urn:ledger:${String(payment_id)}`.padEnd(80, '0'),
      })),
      fields(({ initiated_at, posted_at }) => ({
        initiated_at: atOffset(initiated_at, 330),
        posted_at: atOffset(posted_at, -210),
      })),
    ),
    times: Infinity,
    ends: true,
    clauses: ['PF9', 'PF1', 'PF7', 'PF8', 'RU4'],
  },
  'F35-fields-against-status': {
    title: 'processing with posted_at',
    caller: 'Notes the breach, and polls on: the status alone says how a payment is.',
    ...after(
      READS,
      fields((record) => ({ posted_at: record['initiated_at'] })),
    ),
    ends: true,
    clauses: ['PF8', 'RU4'],
  },
  'F36-status-goes-back': {
    title: 'After a terminal status, later responses say processing or another terminal status',
    caller: 'Has stopped polling; ignores late or extra responses, and logs the breach.',
    on: 'both',
    begin(tools) {
      const ended = new Set<unknown>();
      return {
        answer(call, answer) {
          const record = recordOf(answer);
          if (record === undefined) return undefined;
          const id = record['platform_payment_id'];
          if (!ended.has(id)) {
            if (record['status'] !== 'processing') ended.add(id);
            return undefined;
          }
          const turn = tools.next(call);
          if (turn === undefined) return undefined;
          const back = stillProcessing(record);
          const failed = { ...back, status: 'failed', failure_reason: 'Injected' };
          return { ...answer, body: turn % 2 === 0 ? back : failed };
        },
      };
    },
    times: Infinity,
    inTurn: true,
    payment: 'ended',
    after: 'stops',
    clauses: ['RU2', 'RU4'],
  },
  'F37-stale-read': {
    title:
      'GET is answered with an old record by a cache, or with an end that lacks posted_at or its reason',
    caller:
      'Never reverts a status that it has seen, and keeps polling until a whole record comes.',
    ...after(
      READS,
      stale({ Age: '60', 'Cache-Control': 'public, max-age=120' }),
      fields({ posted_at: null, failure_reason: undefined }),
    ),
    ...AT_END,
    times: 2,
    clauses: ['RU4', 'B5'],
  },
  'F38-two-nodes': {
    title: 'Two partner nodes answer in turn, one lagging: not found, processing, not found …',
    caller: 'Never reverts a status and never refunds; sends the same PUT again on not found.',
    ...after(READS, refuse(404, 'PAYMENT_NOT_FOUND'), stale()),
    // In turn, for one payment.
    variants: 1,
    ...AT_END,
    times: 3,
    inTurn: true,
    clauses: ['RU4', 'ST3'],
  },
  'F39-forever-processing': {
    title: 'The payment stays processing',
    caller: 'Polls less and less often, lists it for an operator, never fails it by itself.',
    ...before(READS),
    // More than the limit of a platform that gives up after a number of polls.
    times: 12,
    ends: true,
    clauses: ['RU4', 'RU1'],
  },
  'F40-endless': {
    title: `A body of 100 MB, of ${BOMB_MEBIBYTES} MB once unpacked, or without end, or such headers`,
    caller: 'Stops reading at its limit and closes the connection; the outcome is unknown.',
    ...after(
      PAYMENTS,
      drip(function* () {
        yield head('200 OK', JSON_TYPE, `Content-Length: ${HUGE_BODY_BYTES}`);
        for (let sent = 0; sent < HUGE_BODY_BYTES; sent += CHUNK.length) yield CHUNK;
      }, 0),
      () => ({
        status: 200,
        headers: { ...json, 'Content-Encoding': 'gzip' },
        body: Buffer.concat(Array.from({ length: BOMB_MEBIBYTES }, () => zippedMebibyte)),
      }),
      drip(function* () {
        yield head('200 OK', JSON_TYPE, 'Content-Length: 60000');
        for (let sent = 0; sent < 60_000; sent += 1) yield ' ';
      }, 100),
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
    on: 'PUT',
  },
  'F44-broken-framing': {
    title: 'Broken framing, a status that has no body, HTTP/1.0 that closes too early, or HTTP/2',
    caller: 'Its HTTP parser rejects the response; closes the connection; the outcome is unknown.',
    ...after(
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
      sends(() => head('103 Early Hints', 'Link: </x>').repeat(1_000)),
      sends(() => head('204 No Content', 'Connection: close')),
      sends(() => head('205 Reset Content', 'Content-Length: 0', 'Connection: close')),
      ({ answer }) => ({ ...answer, status: 206 }),
      said(''),
      sends(({ answer }) => {
        const text = textOf(answer);
        return `HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n${text.slice(0, 25)}`;
      }),
      // SETTINGS, then GOAWAY with NO_ERROR: what an HTTP/2 node sends when it shuts down.
      sends(() => Buffer.from('0000000400000000000000080700000000000000000000000000', 'hex')),
    ),
    on: 'PUT',
  },
  'C13-fails-for-long': {
    title: 'The platform neither floods a failing partner nor gives up on it',
    caller: 'Retries with backoff, and without a limit.',
    ...before(WRITES, refuse(500, 'INTERNAL_ERROR')),
    // More than a platform with a limit of retries allows, and than a partner has to handle in a second.
    times: 6,
    most_puts_a_second: 5,
    ends: true,
    clauses: ['RU4', 'RU5', 'ST3', 'S4'],
  },
};

const REFUSE_TOKEN = 'Sends no call with it, retries with backoff; payments stay pending.';

const TOKEN_ROWS: Readonly<Record<string, Row>> = {
  'F51-odd-expiry': {
    title: 'expires_in missing, null, text, 0, negative, a fraction, an object, or not a number',
    caller: 'Reads an integer in a string, uses a token that is over once, and else assumes 300 s.',
    ...after(
      TOKENS,
      ...[undefined, null, '3600', 0, -3600, '1h', { seconds: 3600 }, 1.5, 'NaN', 'Infinity'].map(
        (expires_in) => fields({ expires_in }),
      ),
    ),
    ...EXPIRY,
  },
  'F54-expiry-too-long': {
    title: 'expires_in 3,600,000, 10^12, or over 2^31 milliseconds',
    caller: 'Caps it at one hour; sets no timer from it, which would fire at once.',
    ...after(TOKENS, ...[3_600_000, 1e12, 2_147_484].map((expires_in) => fields({ expires_in }))),
    ...EXPIRY,
    times: Infinity,
    watched: true,
  },
  'F57-early-revocation': {
    title: 'Tokens are revoked before they expire: calls get 401',
    caller: 'Renews the token once and retries the call once.',
    ...before(TOKENS),
    ...EXPIRY,
  },
  'F59-token-type': {
    title: 'token_type "mac", missing or "BEARER"',
    caller: 'Accepts bearer in any case; rejects any other type or none.',
    ...after(
      TOKENS,
      fields({ token_type: 'mac' }),
      fields({ token_type: undefined }),
      fields({ token_type: 'BEARER' }),
    ),
  },
  'F60-scope-shrunk': {
    title: 'Tokens are issued with only scope read',
    caller: 'Sends no PUT with it and alerts; payments stay pending.',
    begin: (tools) => ({
      ...after(TOKENS, fields({ scope: 'read' })).begin(tools),
      authorize: ({ method }, refusal) =>
        refusal ?? (method === 'PUT' ? new Refusal('INSUFFICIENT_SCOPE') : undefined),
    }),
    ...NEVER,
    clauses: ['SC1', 'ST3'],
  },
  'F61-unusable-token': {
    title: 'access_token empty, with CR LF, with spaces, or of 1 MB',
    caller: REFUSE_TOKEN,
    ...after(
      TOKENS,
      fields({ access_token: '' }),
      fields({ access_token: 'abc\r\nX-Injected: yes' }),
      fields({ access_token: 'two words' }),
      fields({ access_token: 'x'.repeat(1024 * 1024) }),
    ),
  },
  'F62-client-refused': {
    title: 'The token endpoint answers 400 invalid_client or invalid_scope',
    caller: 'Pauses the partner, alerts, and requests a token at most once a minute.',
    ...before(
      TOKENS,
      { status: 400, body: { error: 'invalid_client' } },
      { status: 400, body: { error: 'invalid_scope' } },
    ),
    ...NEVER,
  },
  'F63-token-endpoint-down': {
    title: 'The token endpoint answers 503, not at all, or slowly',
    caller: 'Backs off, and uses the old token until it actually expires.',
    ...before(
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
    ...after(TOKENS, html(200, PAGE), {
      status: 200,
      body: { error: 'server_error', error_description: 'try later' },
    }),
  },
  'F65-herd-on-expiry': {
    title: 'Short-lived tokens from a slow endpoint while many payments wait',
    caller: 'Fetches one token at a time; all calls share it.',
    clauses: ['OA4', 'OA3'],
  },
  'F68-token-redirect': {
    title: 'The token endpoint redirects to another host',
    caller: 'Does not follow the redirect, which would expose the secret; retries with backoff.',
    ...before(TOKENS, redirect(307), redirect(302)),
    clauses: ['S3', 'ST3'],
  },
};

/** Every scenario, in the order of its number. */
export const SCENARIOS: readonly Scenario[] = [
  ...Object.entries(PAYMENT_ROWS),
  ...Object.entries(TOKEN_ROWS).map(([name, row]): readonly [string, Row] => {
    const { variants = 1, times = variants, usable } = row;
    const turns = usable === true ? {} : ({ variants: 1, times, inTurn: true } as const);
    return [name, { ofTokens: true, ends: true, ...row, ...turns }];
  }),
].map(([name, row]: readonly [string, Row]) => {
  const usual = row.on === 'GET' || row.on === 'both' ? ['ST3', 'RU5', 'RU4'] : ['RU5', 'ST3'];
  const clauses = (row.ofTokens === true ? REFUSED : usual) as Scenario['clauses'];
  return { name, caller: NOT_FAILED, begin: () => ({}), variants: 1, on: 'PUT', clauses, ...row };
});
