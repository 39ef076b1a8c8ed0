/**
 * The faults F01 to F68: what partners, their token endpoints and the network between do in the world.
 *
 * Each scenario is faulty for its first answers, or until it is healed, and right from then on: a right
 * caller then brings every payment to its end. `caller` says what a right caller does meanwhile. The
 * variants of one fault come in a fixed turn, and what is left to chance follows the seed, so that the
 * same faults come again.
 *
 * A table: one entry per scenario, read by id.
 */
import { gzipSync } from 'node:zlib';
import { Refusal } from '@duebridge/contract';
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
  /** Takes one faulty answer: returns its number, starting at 0, or undefined when no more are due. */
  next(): number | undefined;
  /** True once healed, or once all faulty answers are given. */
  healed(): boolean;
  /** Origin of a second listener that is not this partner: no request may ever reach it. */
  readonly stray: string;
  /** Resends a call's request to this partner, like a proxy that had kept it. */
  replay(call: Call): void;
}

/** How the partner can be reached at all. */
export type EntryPoint =
  | 'open'
  /** Nothing listens until it heals. */
  | 'closed'
  /** TLS with a certificate that no caller may accept. */
  | 'bad_certificate'
  /** A TLS handshake that never completes. */
  | 'stalled_handshake'
  /** A host name that resolves to a private address. */
  | 'private_name';

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
  /**
   * How a payment is resolved: by itself once the fault is over; by an operator who takes it out of review; or by an operator who
   * fixes the registration.
   */
  readonly ends: 'by_itself' | 'after_review' | 'after_mending';
  readonly entry?: EntryPoint;
  /** A secret that replaces the configured one; F67 has two valid secrets. */
  readonly secrets?: readonly [string, ...string[]];
  /** Builds the fault for one partner; its state lives in the closure. */
  begin(tools: FaultTools): Behaviour & { healed?(partner: Insides): void };
}

// ---------------------------------------------------------------------------------------------
// Ways to fail on the wire
// ---------------------------------------------------------------------------------------------

/** Sends nothing and keeps the connection open; the caller's deadline ends the call. */
const silence: TakeOver = () => undefined;

/** RST, as after a crash or from a firewall. */
const reset: TakeOver = ({ socket }) => {
  socket.resetAndDestroy();
};

/** FIN without a byte: an idle connection closed while the request was in transit. */
const hangUp: TakeOver = ({ socket }) => {
  socket.destroy();
};

/** Sends raw bytes, then FIN; they need not be valid HTTP. */
const raw =
  (make: (wire: Wire) => string | Buffer): TakeOver =>
  (wire) => {
    wire.socket.end(make(wire));
  };

/** Writes chunk after chunk until the caller disconnects. */
function drip(pieces: (wire: Wire) => Iterable<string | Buffer>, everyMs: number): TakeOver {
  return async (wire) => {
    for (const piece of pieces(wire)) {
      if (wire.released.aborted || wire.socket.destroyed) return;
      const taken = wire.socket.write(piece);
      if (everyMs > 0) await sleep(everyMs, wire.released);
      else if (!taken) await drained(wire);
    }
  };
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function drained({ socket, released }: Wire): Promise<void> {
  return new Promise((resolve) => {
    if (released.aborted || socket.destroyed) return resolve();
    socket.once('drain', resolve);
    socket.once('close', resolve);
    released.addEventListener('abort', () => resolve());
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

/** The request never reaches the partner's records. */
function before(
  operations: readonly Operation[],
  tools: FaultTools,
  variants: readonly [Reply, ...Reply[]],
): Behaviour {
  return {
    receive(call) {
      if (!operations.includes(call.operation)) return undefined;
      const turn = tools.next();
      return turn === undefined ? undefined : pick(variants, turn);
    },
  };
}

/** The partner does its work, and only its answer is corrupted. Refusals pass unchanged. */
function after(
  operations: readonly Operation[],
  tools: FaultTools,
  variants: readonly [Spoil, ...Spoil[]],
): Behaviour {
  return {
    answer(call, answer) {
      if (!operations.includes(call.operation) || answer.status !== 200) return undefined;
      const turn = tools.next();
      if (turn === undefined) return undefined;
      const spoil = pick(variants, turn);
      return typeof spoil === 'function' ? spoil(answer, call) : spoil;
    },
  };
}

type Spoil = Answer | ((answer: Answer, call: Call) => Reply);

/** Sends the bytes of the correct answer in another way. */
const instead =
  (takeOver: TakeOver): Spoil =>
  () =>
    takeOver;

/** Changes fields of the record; undefined removes a field. */
const fields =
  (change: (record: Record<string, unknown>, call: Call) => Record<string, unknown>): Spoil =>
  (answer, call) => {
    const record = recordOf(answer) ?? {};
    return { ...answer, body: { ...record, ...change(record, call) } };
  };

/** Changes fields of the token answer. */
const grant = (change: Record<string, unknown>): Spoil => {
  return (answer) => ({ ...answer, body: { ...(answer.body as object), ...change } });
};

/** The record's text with the amount in another notation. */
const amountAs =
  (write: (amount: number) => string): Spoil =>
  (answer) =>
    said(
      textOf(answer).replace(
        /"amount_in_cents":(\d+)/,
        (_, digits) => `"amount_in_cents":${write(Number(digits))}`,
      ),
    );

function pick<T>(variants: readonly [T, ...T[]], turn: number): T {
  return variants[turn % variants.length] ?? variants[0];
}

const refuse = (status: number, code: string, headers: Record<string, string> = {}): Answer => ({
  status,
  headers,
  body: { code, message: 'Injected by the scenario' },
});

const redirect = (status: number, to: (call: Call) => string): ((call: Call) => Answer) => {
  return (call) => ({ status, headers: { Location: to(call) }, body: '' });
};

/** Redirects of payment calls, one variant after another. */
function redirects(
  operations: readonly Operation[],
  tools: FaultTools,
  variants: readonly [(call: Call) => Answer, ...((call: Call) => Answer)[]],
): Behaviour {
  return {
    receive(call) {
      if (!operations.includes(call.operation)) return undefined;
      const turn = tools.next();
      return turn === undefined ? undefined : pick(variants, turn)(call);
    },
  };
}

/** Every payment stays processing until the fault is over. */
function heldOpen(tools: FaultTools): Behaviour & { healed(partner: Insides): void } {
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
}

/** 1 MiB of spaces, compressed to 1 KiB. gzip members can be concatenated, which makes the bomb. */
const zippedMebibyte = gzipSync(Buffer.alloc(1024 * 1024, ' '));
const BOMB_MEBIBYTES = 200;

/** More than any caller may read. */
const HUGE_BODY_BYTES = 100 * 1024 * 1024;
const CHUNK = Buffer.alloc(64 * 1024, ' ');

/** How late a duplicate request arrives (F49): three days on the sandbox's clock. */
const LATE_MS = 3 * 24 * 60 * 60 * 1000;

// ---------------------------------------------------------------------------------------------
// The scenarios
// ---------------------------------------------------------------------------------------------

const SAME_PUT =
  'Sends the same PUT again, same id and same bytes, with backoff; shows the payment as pending.';
const NOT_FAILED =
  'Takes it for an unknown outcome, never for failed: the same request again, with backoff.';
const REVIEW = 'Believes nothing of it: freezes the payment for an operator and alerts.';
const MISCONFIGURED =
  'Takes it for a misconfiguration: alerts, keeps the payment pending, tries on slowly.';
const NO_REDIRECT =
  'Does not follow, sends neither key nor body elsewhere, alerts; the payment stays pending.';

const paymentScenarios: readonly Scenario[] = [
  {
    name: 'F01-timeout-before-commit',
    title: 'PUT is never answered and was never stored',
    caller: SAME_PUT,
    faults: 2,
    ends: 'by_itself',
    begin: (tools) => before(WRITES, tools, [silence]),
  },
  {
    name: 'F02-timeout-after-commit',
    title: 'PUT is stored, its answer never comes',
    caller: `${SAME_PUT} The repeat finds the existing payment.`,
    faults: 2,
    ends: 'by_itself',
    begin: (tools) => after(WRITES, tools, [instead(silence)]),
  },
  {
    name: 'F03-connection-refused',
    title: 'Nothing listens at the address',
    caller: 'Tries on with backoff, opens its circuit breaker, delays no other partner.',
    faults: 'until_healed',
    ends: 'by_itself',
    entry: 'closed',
    begin: () => ({}),
  },
  {
    name: 'F04-reset-before-answer',
    title: 'Connection reset after the request, before any answer; stored or not is left to chance',
    caller: SAME_PUT,
    faults: 4,
    ends: 'by_itself',
    begin(tools) {
      const spoilt = new WeakSet<Call>();
      return {
        receive(call, partner) {
          if (!WRITES.includes(call.operation) || tools.next() === undefined) return undefined;
          if (partner.chance() < 0.5) return reset;
          spoilt.add(call);
          return undefined;
        },
        answer: (call) => (spoilt.has(call) ? reset : undefined),
      };
    },
  },
  {
    name: 'F05-reset-in-body',
    title: 'Connection reset in the middle of the answer',
    caller: NOT_FAILED,
    faults: 4,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        instead(async ({ socket, bytes, answer }) => {
          const whole = bytes(answer);
          await new Promise<void>((sent) => {
            socket.write(whole.subarray(0, whole.length - 40), () => sent());
          });
          socket.resetAndDestroy();
        }),
      ]),
  },
  {
    name: 'F06-keep-alive-closed',
    title: 'A reused connection is closed just as the next request is sent on it',
    caller: 'May send at once on a fresh connection, once; then as after any unknown outcome.',
    faults: 4,
    ends: 'by_itself',
    begin: (tools) => ({
      receive(call) {
        if (call.earlier === 0 || !PAYMENTS.includes(call.operation)) return undefined;
        return tools.next() === undefined ? undefined : hangUp;
      },
    }),
  },
  {
    name: 'F07-server-error-before-commit',
    title: '500, 502, 503 and 504 to PUT; nothing was stored',
    caller: SAME_PUT,
    faults: 4,
    ends: 'by_itself',
    begin: (tools) =>
      before(WRITES, tools, [
        refuse(500, 'INTERNAL_ERROR'),
        { status: 502, headers: { 'Content-Type': 'text/html' }, body: '<h1>Bad Gateway</h1>' },
        refuse(503, 'SERVICE_UNAVAILABLE'),
        { status: 504, headers: { 'Content-Type': 'text/html' }, body: '<h1>Gateway Timeout</h1>' },
      ]),
  },
  {
    name: 'F08-server-error-after-commit',
    title: '500, 502, 503 and 504 to PUT; the payment was stored',
    caller: `${SAME_PUT} The repeat finds the existing payment.`,
    faults: 4,
    ends: 'by_itself',
    begin: (tools) =>
      after(WRITES, tools, [
        refuse(500, 'INTERNAL_ERROR'),
        refuse(502, 'INTERNAL_ERROR'),
        refuse(503, 'SERVICE_UNAVAILABLE'),
        refuse(504, 'INTERNAL_ERROR'),
      ]),
  },
  {
    name: 'F09-retry-after-seconds',
    title: '503 and 429 with Retry-After: 1',
    caller: 'Waits as long as told, with jitter and a cap of 15 minutes, then repeats.',
    faults: 4,
    ends: 'by_itself',
    begin: (tools) =>
      before(PAYMENTS, tools, [
        refuse(503, 'SERVICE_UNAVAILABLE', { 'Retry-After': '1' }),
        refuse(429, 'TOO_MANY_REQUESTS', { 'Retry-After': '1' }),
      ]),
  },
  {
    name: 'F10-odd-retry-after',
    title: 'Retry-After as date, past date, 0, negative, garbage, twice, and 10^12',
    caller: 'Clamps it or uses its own backoff; never waits forever, never storms.',
    faults: 7,
    ends: 'by_itself',
    begin: (tools) => ({
      receive(call, partner) {
        if (!WRITES.includes(call.operation)) return undefined;
        const turn = tools.next();
        if (turn === undefined) return undefined;
        const soon = new Date(partner.now() + 1_000).toUTCString();
        const values: readonly [string | string[], ...(string | string[])[]] = [
          soon,
          'Thu, 01 Jan 1970 00:00:00 GMT',
          '0',
          '-5',
          'soon',
          ['1', '2'],
          '1000000000000',
        ];
        return {
          status: 503,
          headers: { 'Retry-After': pick(values, turn) },
          body: { code: 'SERVICE_UNAVAILABLE', message: 'Injected by the scenario' },
        };
      },
    }),
  },
  {
    name: 'F11-rejected',
    title: '400 and 422 to PUT; nothing was stored',
    caller:
      'Asks once by GET; unknown there, it holds the payment for review with the reason. No blind loop, no failed.',
    faults: 'until_healed',
    ends: 'after_review',
    begin: (tools) =>
      before(WRITES, tools, [refuse(422, 'INVALID_REQUEST'), refuse(400, 'INVALID_REQUEST')]),
  },
  {
    name: 'F12-unauthorized',
    title: '401 to every operation, whatever the credential',
    caller:
      'Renews its token once and repeats once, then pauses the partner and alerts; payments stay pending.',
    faults: 'until_healed',
    ends: 'by_itself',
    begin: (tools) =>
      before(PAYMENTS, tools, [refuse(401, 'UNAUTHORIZED', { 'WWW-Authenticate': 'Bearer' })]),
  },
  {
    name: 'F13-forbidden',
    title: '403 to PUT',
    caller: 'Pauses writes to the partner and alerts; payments stay pending.',
    faults: 'until_healed',
    ends: 'by_itself',
    begin: (tools) => before(WRITES, tools, [refuse(403, 'INSUFFICIENT_SCOPE')]),
  },
  {
    name: 'F14-put-not-found',
    title: '404 to PUT: the route is gone or the base path is wrong',
    caller: MISCONFIGURED,
    faults: 3,
    ends: 'by_itself',
    begin: (tools) => before(WRITES, tools, [refuse(404, 'NOT_FOUND')]),
  },
  {
    name: 'F15-accepted-then-not-found',
    title: '404 to GET of a payment whose PUT was acknowledged',
    caller: 'Alerts a breach and sends the same PUT again; never a refund.',
    faults: 2,
    ends: 'by_itself',
    begin: (tools) => before(READS, tools, [refuse(404, 'PAYMENT_NOT_FOUND')]),
  },
  {
    name: 'F16-timed-out-then-not-found',
    title: 'PUT is held up on its way and not answered; meanwhile GET finds nothing',
    caller: 'Does not take 404 for proof, because the PUT may still arrive: the same PUT again.',
    faults: 2,
    ends: 'by_itself',
    begin(tools) {
      const delayed = new WeakSet<Call>();
      return {
        async receive(call) {
          if (!WRITES.includes(call.operation) || tools.next() === undefined) return undefined;
          delayed.add(call);
          // Continues after the caller gives up, because the request must still arrive.
          await new Promise((resolve) => setTimeout(resolve, 700));
          return undefined;
        },
        answer: (call) => (delayed.has(call) ? silence : undefined),
      };
    },
  },
  {
    name: 'F17-conflict',
    title: '409, 423 and 425 to PUT',
    caller: 'Repeats with backoff, then asks by GET.',
    faults: 3,
    ends: 'by_itself',
    begin: (tools) =>
      before(WRITES, tools, [
        refuse(409, 'CONFLICT'),
        refuse(423, 'CONFLICT'),
        refuse(425, 'CONFLICT'),
      ]),
  },
  {
    name: 'F18-not-implemented',
    title: '405, 501 and 505 to PUT',
    caller: MISCONFIGURED,
    faults: 3,
    ends: 'by_itself',
    begin: (tools) =>
      before(WRITES, tools, [
        refuse(405, 'METHOD_NOT_ALLOWED', { Allow: 'GET' }),
        refuse(501, 'INTERNAL_ERROR'),
        refuse(505, 'INTERNAL_ERROR'),
      ]),
  },
  {
    name: 'F19-redirect-to-other-host',
    title: '301, 302, 307 and 308 to another host',
    caller: NO_REDIRECT,
    faults: 4,
    ends: 'by_itself',
    begin(tools) {
      const away = (call: Call) => `${tools.stray}${call.path}`;
      return redirects(PAYMENTS, tools, [
        redirect(307, away),
        redirect(308, away),
        redirect(301, away),
        redirect(302, away),
      ]);
    },
  },
  {
    name: 'F20-see-other',
    title: '303 to another host, which asks for a GET there',
    caller: NO_REDIRECT,
    faults: 2,
    ends: 'by_itself',
    begin: (tools) =>
      redirects(PAYMENTS, tools, [redirect(303, (call) => `${tools.stray}${call.path}`)]),
  },
  {
    name: 'F21-redirect-inside',
    title: 'Redirects to the metadata addresses and to localhost',
    caller: `${NO_REDIRECT} It is a security event.`,
    faults: 3,
    ends: 'by_itself',
    begin(tools) {
      return redirects(PAYMENTS, tools, [
        redirect(302, (call) => `http://localhost:${new URL(tools.stray).port}${call.path}`),
        redirect(307, () => 'http://169.254.169.254/latest/meta-data/'),
        redirect(308, () => 'http://[fd00:ec2::254]/latest/meta-data/'),
      ]);
    },
  },
  {
    name: 'F22-html',
    title: '200 with an HTML page, as from a login portal or a firewall; the payment was stored',
    caller: NOT_FAILED,
    faults: 4,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        { status: 200, headers: { 'Content-Type': 'text/html; charset=utf-8' }, body: PAGE },
        said(PAGE),
      ]),
  },
  {
    name: 'F23-wrong-content-type',
    title: '200 with the right JSON under a wrong content type, and under none',
    caller: 'Refuses and counts it: whoever sends that is not the partner’s application.',
    faults: 4,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        (answer) => ({
          status: 200,
          headers: { 'Content-Type': 'text/plain' },
          body: textOf(answer),
        }),
        (answer) => ({ status: 200, body: textOf(answer) }),
      ]),
  },
  {
    name: 'F24-malformed-json',
    title: 'Malformed, empty, null, array, byte order mark, NaN',
    caller: NOT_FAILED,
    faults: 6,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        (answer) => said(textOf(answer).replace(',', ',,')),
        said(''),
        said('null'),
        (answer) => said(`[${textOf(answer)}]`),
        (answer) => said(`\uFEFF${textOf(answer)}`),
        amountAs(() => 'NaN'),
      ]),
  },
  {
    name: 'F25-truncated-body',
    title: 'Body without a length, cut in the middle: it arrives as a complete 200',
    caller: `Lets its JSON parser be the gate. ${NOT_FAILED}`,
    faults: 4,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        instead(
          raw(({ answer }) => {
            const text = textOf(answer);
            const head =
              'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n';
            return `${head}\r\n${text.slice(0, text.length - 20)}`;
          }),
        ),
      ]),
  },
  {
    name: 'F26-dangerous-keys',
    title: 'Duplicate keys and a __proto__ that claims success',
    caller: 'Reads its own fields only and refuses such bodies; neither key decides anything.',
    faults: 4,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        (answer) =>
          said(`${textOf(answer).slice(0, -1)},"status":"failed","failure_reason":"Injected"}`),
        (answer) => said(`{"__proto__":{"status":"failed"},${textOf(answer).slice(1)}`),
      ]),
  },
  {
    name: 'F27-wrong-payment',
    title: 'Another platform_payment_id in the answer',
    caller: REVIEW,
    faults: 'until_healed',
    ends: 'after_review',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        fields((record) => ({
          platform_payment_id: `${String(record['platform_payment_id']).slice(0, 60)}-x`,
        })),
      ]),
  },
  {
    name: 'F28-wrong-amount',
    title: 'Another amount_in_cents in the answer',
    caller: REVIEW,
    faults: 'until_healed',
    ends: 'after_review',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        fields((record) => ({ amount_in_cents: Number(record['amount_in_cents']) + 1 })),
      ]),
  },
  {
    name: 'F29-amount-as-text',
    title: 'The right amount as text, as 1250.0 and as 1.25e3',
    caller: 'Refuses the answer: an amount is a plain integer or nothing.',
    faults: 6,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        amountAs((amount) => `"${amount}"`),
        amountAs((amount) => `${amount}.0`),
        amountAs((amount) => amount.toExponential()),
      ]),
  },
  {
    name: 'F30-wrong-account-or-batch',
    title: 'Another account or batch echoed',
    caller: REVIEW,
    faults: 'until_healed',
    ends: 'after_review',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        fields(() => ({ account_id: 'somebody-else' })),
        fields(() => ({ platform_batch_id: 'another-batch' })),
      ]),
  },
  {
    name: 'F31-payment-id-changes',
    title: 'payment_id differs from answer to answer',
    caller: REVIEW,
    faults: 'until_healed',
    ends: 'after_review',
    begin(tools) {
      // Only a poll can contradict the answer to the PUT, so the payment stays processing until there is one.
      const open = heldOpen(tools);
      return {
        ...open,
        ...after(READS, tools, [
          fields((record, call) => ({
            payment_id: `${String(record['payment_id'])}-${call.number}`,
          })),
        ]),
      };
    },
  },
  {
    name: 'F32-unknown-status',
    title: 'A status in capitals, with a space behind, or of another word',
    caller: 'Takes it for processing, alerts, and asks on: only the four words exactly.',
    faults: 6,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        fields(() => ({ status: 'FAILED', failure_reason: 'Injected', posted_at: null })),
        fields(() => ({ status: 'canceled ', posted_at: null })),
        fields(() => ({ status: 'completed', posted_at: null })),
      ]),
  },
  {
    name: 'F33-missing-fields',
    title: 'status, amount_in_cents or initiated_at is missing',
    caller: NOT_FAILED,
    faults: 6,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        fields(() => ({ status: undefined })),
        fields(() => ({ amount_in_cents: undefined })),
        fields(() => ({ initiated_at: undefined })),
      ]),
  },
  {
    name: 'F34-extra-fields',
    title: 'Fields that nobody knows',
    caller: 'Ignores them.',
    faults: 'until_healed',
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        fields(() => ({
          settled: false,
          error: 'none',
          state: 'FAILED',
          nested: { status: 'failed' },
        })),
      ]),
  },
  {
    name: 'F35-fields-against-status',
    title: 'processing with posted_at, succeeded without it, failed without a reason',
    caller:
      'Accepts failed with a flag; asks a few times more about a succeeded without posted_at, then reviews; ignores posted_at while processing.',
    faults: 3,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        fields((record) => {
          if (record['status'] === 'processing') return { posted_at: record['initiated_at'] };
          return { posted_at: null, failure_reason: undefined };
        }),
      ]),
  },
  {
    name: 'F36-status-goes-back',
    title: 'After a terminal answer, later answers say processing or another terminal word',
    caller: 'Has stopped asking; ignores any late or extra answer, and logs the breach.',
    faults: 'until_healed',
    ends: 'by_itself',
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
          const { failure_reason: _reason, ...rest } = record;
          const back =
            turn % 2 === 0
              ? { ...rest, status: 'processing', posted_at: null }
              : { ...rest, status: 'failed', posted_at: null, failure_reason: 'Injected' };
          return { ...answer, body: back };
        },
      };
    },
  },
  {
    name: 'F37-stale-read',
    title: 'A cache between answers GET with an old record',
    caller:
      'Asks with Cache-Control: no-store, never goes back from what it has seen, and asks on.',
    faults: 3,
    ends: 'by_itself',
    begin(tools) {
      return after(READS, tools, [
        (answer) => {
          const { failure_reason: _reason, ...record } = recordOf(answer) ?? {};
          return {
            status: 200,
            headers: { Age: '60', 'Cache-Control': 'public, max-age=120' },
            body: { ...record, status: 'processing', posted_at: null },
          };
        },
      ]);
    },
  },
  {
    name: 'F38-two-nodes',
    title: 'Two partner nodes in turn, one behind the other: not found, processing, not found …',
    caller: 'Never goes back, never refunds; the same PUT again where it is not found.',
    faults: 6,
    ends: 'by_itself',
    begin: (tools) => ({
      answer(call, answer) {
        if (!READS.includes(call.operation)) return undefined;
        const turn = tools.next();
        if (turn === undefined) return undefined;
        if (turn % 2 === 0) return refuse(404, 'PAYMENT_NOT_FOUND');
        const { failure_reason: _reason, ...record } = recordOf(answer) ?? {};
        return 'payment_id' in record
          ? { ...answer, body: { ...record, status: 'processing', posted_at: null } }
          : undefined;
      },
    }),
  },
  {
    name: 'F39-forever-processing',
    title: 'The payment stays processing',
    caller:
      'Asks ever more slowly, lists it for an operator after 24 hours, never fails it by itself.',
    faults: 'until_healed',
    ends: 'by_itself',
    begin(tools) {
      return {
        ...heldOpen(tools),
        answer(call) {
          if (READS.includes(call.operation)) tools.next();
          return undefined;
        },
      };
    },
  },
  {
    name: 'F40-huge-body',
    title: 'A body of 100 MB',
    caller: 'Stops reading at its limit and drops the connection. The outcome is unknown.',
    faults: 2,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        instead(
          drip(function* () {
            yield `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${HUGE_BODY_BYTES}\r\n\r\n`;
            for (let sent = 0; sent < HUGE_BODY_BYTES; sent += CHUNK.length) yield CHUNK;
          }, 0),
        ),
      ]),
  },
  {
    name: 'F41-zip-bomb',
    title: `Content-Encoding: gzip nobody asked for: 200 KB that become ${BOMB_MEBIBYTES} MB`,
    caller: 'Asks for identity and refuses encodings, or bounds what it unpacks.',
    faults: 2,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        () => ({
          status: 200,
          headers: { ...json, 'Content-Encoding': 'gzip' },
          body: Buffer.concat(Array.from({ length: BOMB_MEBIBYTES }, () => zippedMebibyte)),
        }),
      ]),
  },
  {
    name: 'F42-slow-drip',
    title: 'A byte of the body every tenth of a second, forever',
    caller: 'Has one deadline for the whole call, not one between two bytes.',
    faults: 2,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        instead(
          drip(function* () {
            yield 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n';
            for (let sent = 0; sent < 60_000; sent += 1) yield ' ';
          }, 100),
        ),
      ]),
  },
  {
    name: 'F43-huge-headers',
    title: 'Headers of 1 MB, 10,000 headers, headers byte by byte',
    caller: 'Has limits and one deadline; the outcome is unknown.',
    faults: 3,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        instead(
          raw(({ bytes, answer }) =>
            bytes({ ...answer, headers: { 'X-Padding': 'x'.repeat(1024 * 1024) } }),
          ),
        ),
        instead(
          raw(({ bytes, answer }) =>
            bytes({
              ...answer,
              headers: { 'X-Padding': Array.from({ length: 10_000 }, () => 'x') },
            }),
          ),
        ),
        instead(
          drip(function* ({ bytes, answer }) {
            yield 'HTTP/1.1 200 OK\r\n';
            for (let line = 0; line < 60_000; line += 1) yield `X-${line}: x\r\n`;
            yield bytes(answer);
          }, 100),
        ),
      ]),
  },
  {
    name: 'F44-broken-framing',
    title: 'Bad chunk size, two lengths, bytes behind the end',
    caller: 'Lets its parser refuse; the outcome is unknown, the connection is dropped.',
    faults: 3,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        instead(
          raw(
            ({ answer }) =>
              `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n${textOf(answer)}\r\n0\r\n\r\n`,
          ),
        ),
        instead(
          raw(({ answer }) => {
            const text = textOf(answer);
            return `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\nContent-Length: ${text.length - 30}\r\n\r\n${text}`;
          }),
        ),
        instead(
          raw(({ bytes, answer }) => Buffer.concat([bytes(answer), Buffer.from('{"more":true}')])),
        ),
      ]),
  },
  {
    name: 'F45-odd-statuses',
    title: 'A flood of 1xx, 204 and 205, 206, 200 without a byte',
    caller: 'Takes nothing but a 200 with a valid record for an answer.',
    faults: 5,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        instead(raw(() => 'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n'.repeat(1_000))),
        instead(raw(() => 'HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n')),
        instead(
          raw(() => 'HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'),
        ),
        (answer) => ({ ...answer, status: 206 }),
        said(''),
      ]),
  },
  {
    name: 'F46-other-protocol',
    title: 'HTTP/1.0 that closes too early, and the frames of HTTP/2 going away',
    caller: NOT_FAILED,
    faults: 2,
    ends: 'by_itself',
    begin: (tools) =>
      after(PAYMENTS, tools, [
        instead(
          raw(({ answer }) => {
            const text = textOf(answer);
            return `HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n${text.slice(0, 25)}`;
          }),
        ),
        // SETTINGS, then GOAWAY with NO_ERROR: what an HTTP/2 node sends when it shuts down.
        instead(
          raw(() => Buffer.from('0000000400000000000000080700000000000000000000000000', 'hex')),
        ),
      ]),
  },
  {
    name: 'F47-bad-certificate',
    title: 'TLS with a certificate that is self-signed, expired and of another host',
    caller:
      'Refuses, sends nothing, pauses the partner and alerts; there is no flag to get past it.',
    faults: 'until_healed',
    ends: 'after_mending',
    entry: 'bad_certificate',
    begin: () => ({}),
  },
  {
    name: 'F47-stalled-handshake',
    title: 'The TLS handshake never ends',
    caller: 'Gives up at its connect deadline; the payment stays pending.',
    faults: 'until_healed',
    ends: 'after_mending',
    entry: 'stalled_handshake',
    begin: () => ({}),
  },
  {
    name: 'F48-private-name',
    title: 'A name that leads to a private address, as after DNS rebinding',
    caller: 'Checks the address it connects to, not the one it looked up before; sends nothing.',
    faults: 'until_healed',
    ends: 'after_mending',
    entry: 'private_name',
    begin: () => ({}),
  },
  {
    name: 'F49-late-duplicate',
    title: 'A proxy delivers our PUT once more, three days after the payment has ended',
    caller: 'Need do nothing: the partner answers the existing payment.',
    faults: 1,
    ends: 'by_itself',
    begin(tools) {
      let kept: Call | undefined;
      return {
        stored(_payment, call) {
          kept ??= call;
        },
        ended(_payment, partner) {
          if (kept === undefined || tools.next() === undefined) return;
          partner.advance(LATE_MS);
          tools.replay(kept);
        },
      };
    },
  },
  {
    name: 'F50-crossed-answers',
    title: 'The answer to another payment comes on our connection',
    caller: `${REVIEW} Drops the connection.`,
    faults: 'until_healed',
    ends: 'after_review',
    begin(tools) {
      return after(PAYMENTS, tools, [
        fields((record, call) => ({
          payment_id: `pay_of_another_${call.number}`,
          platform_payment_id: `another-${call.number}`,
          amount_in_cents: Number(record['amount_in_cents']) + 700,
          status: 'succeeded',
          posted_at: record['initiated_at'],
        })),
      ]);
    },
  },
];

const oauth = { needs: 'oauth', ends: 'by_itself' } as const;

const REFUSE_TOKEN =
  'Refuses the token answer, sends no call with it, asks again with backoff; payments stay pending.';

const tokenScenarios: readonly Scenario[] = [
  {
    ...oauth,
    name: 'F51-no-expiry',
    title: 'expires_in absent or null',
    caller: 'Assumes 300 seconds.',
    faults: 2,
    begin: (tools) =>
      after(TOKENS, tools, [grant({ expires_in: undefined }), grant({ expires_in: null })]),
  },
  {
    ...oauth,
    name: 'F52-expiry-as-text',
    title: 'expires_in as "3600"',
    caller: 'Accepts an integer written as text.',
    faults: 2,
    begin: (tools) => after(TOKENS, tools, [grant({ expires_in: '3600' })]),
  },
  {
    ...oauth,
    name: 'F53-expiry-not-positive',
    title: 'expires_in 0, and negative',
    caller: 'Uses the token once and does not keep it.',
    faults: 4,
    begin: (tools) =>
      after(TOKENS, tools, [grant({ expires_in: 0 }), grant({ expires_in: -3600 })]),
  },
  {
    ...oauth,
    name: 'F54-expiry-too-long',
    title: 'expires_in 3,600,000 and 10^12',
    caller: 'Caps it at one hour.',
    faults: 2,
    begin: (tools) =>
      after(TOKENS, tools, [grant({ expires_in: 3_600_000 }), grant({ expires_in: 1e12 })]),
  },
  {
    ...oauth,
    name: 'F55-expiry-unreadable',
    title: 'expires_in 1.5, "1h", an object',
    caller: 'Takes it as absent: 300 seconds.',
    faults: 3,
    begin: (tools) =>
      after(TOKENS, tools, [
        grant({ expires_in: '1h' }),
        grant({ expires_in: { seconds: 3600 } }),
        grant({ expires_in: 1.5 }),
      ]),
  },
  {
    ...oauth,
    name: 'F56-expiry-not-a-number',
    title: 'expires_in "NaN" and "Infinity"',
    caller: 'Checks for a finite number: a token with such an expiry would never expire.',
    faults: 2,
    begin: (tools) =>
      after(TOKENS, tools, [grant({ expires_in: 'NaN' }), grant({ expires_in: 'Infinity' })]),
  },
  {
    ...oauth,
    name: 'F57-early-revocation',
    title: 'Tokens are revoked before their time: 401',
    caller: 'Renews once and repeats the call once.',
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
  {
    ...oauth,
    name: 'F58-expiry-beyond-timers',
    title: 'expires_in over 2^31 milliseconds',
    caller: 'Sets no timer by it: such a timer fires at once. It looks at the clock on use.',
    faults: 2,
    begin: (tools) => after(TOKENS, tools, [grant({ expires_in: 2_147_484 })]),
  },
  {
    ...oauth,
    name: 'F59-token-type',
    title: 'token_type "mac", missing, "bearer", "BEARER"',
    caller: 'Takes bearer in any case; refuses another or none.',
    faults: 3,
    begin: (tools) =>
      after(TOKENS, tools, [
        grant({ token_type: 'mac' }),
        grant({ token_type: undefined }),
        grant({ token_type: 'BEARER' }),
      ]),
  },
  {
    ...oauth,
    name: 'F60-scope-shrunk',
    title: 'Tokens come with scope read alone',
    caller: 'Sends no PUT with it and alerts; payments stay pending.',
    faults: 'until_healed',
    begin: (tools) => after(TOKENS, tools, [grant({ scope: 'read' })]),
  },
  {
    ...oauth,
    name: 'F61-unusable-token',
    title: 'access_token empty, with CR LF, with spaces, of 1 MB',
    caller: REFUSE_TOKEN,
    faults: 4,
    begin: (tools) =>
      after(TOKENS, tools, [
        grant({ access_token: '' }),
        grant({ access_token: 'abc\r\nX-Injected: yes' }),
        grant({ access_token: 'two words' }),
        grant({ access_token: 'x'.repeat(1024 * 1024) }),
      ]),
  },
  {
    ...oauth,
    name: 'F62-client-refused',
    title: '400 invalid_client and invalid_scope',
    caller: 'Pauses the partner, alerts, and asks at most once a minute.',
    faults: 'until_healed',
    begin: (tools) =>
      before(TOKENS, tools, [
        { status: 400, body: { error: 'invalid_client' } },
        { status: 400, body: { error: 'invalid_scope' } },
      ]),
  },
  {
    ...oauth,
    name: 'F63-token-endpoint-down',
    title: 'The token endpoint answers 503, nothing, or slowly',
    caller: 'Backs off, and uses the old token until it has truly expired.',
    faults: 3,
    begin: (tools) =>
      before(TOKENS, tools, [
        { status: 503, body: { error: 'temporarily_unavailable' } },
        silence,
        async (wire) => {
          await sleep(500, wire.released);
          wire.send({ status: 503, body: { error: 'temporarily_unavailable' } });
        },
      ]),
  },
  {
    ...oauth,
    name: 'F64-token-html',
    title: 'The token endpoint answers 200 with HTML, and with an error as JSON',
    caller: REFUSE_TOKEN,
    faults: 2,
    begin: (tools) =>
      after(TOKENS, tools, [
        { status: 200, headers: { 'Content-Type': 'text/html' }, body: PAGE },
        { status: 200, body: { error: 'server_error', error_description: 'try later' } },
      ]),
  },
  {
    ...oauth,
    name: 'F65-herd-on-expiry',
    title: 'Short-lived tokens from a slow endpoint while many payments wait',
    caller: 'Has one fetch in flight; all calls share it.',
    faults: 'until_healed',
    begin(tools) {
      return {
        async answer(call, answer) {
          if (call.operation !== 'access_token' || answer.status !== 200) return undefined;
          if (tools.next() === undefined) return undefined;
          await new Promise((resolve) => setTimeout(resolve, 150));
          return { ...answer, body: { ...(answer.body as object), expires_in: 2 } };
        },
      };
    },
  },
  {
    ...oauth,
    name: 'F66-awkward-secret',
    title: 'A client secret with + % & : = é and spaces',
    caller: 'Form-encodes it exactly.',
    faults: 'until_healed',
    secrets: ['p+l%us&am:p=é ½ %2B'],
    begin: (tools) => ({
      answer(call) {
        if (call.operation === 'access_token') tools.next();
        return undefined;
      },
    }),
  },
  {
    ...oauth,
    name: 'F67-secret-rotation',
    title: 'Old and new client secret are both valid; healed, only the new one is',
    caller:
      'Goes on without a failed payment; its operator enters the new secret within the overlap.',
    faults: 'until_healed',
    ends: 'after_mending',
    secrets: ['the-old-secret', 'the-new-secret'],
    begin: (tools) => ({
      answer(call) {
        if (call.operation === 'access_token') tools.next();
        return undefined;
      },
    }),
  },
  {
    ...oauth,
    name: 'F68-token-redirect',
    title: 'The token endpoint redirects to another host',
    caller: 'Does not follow: the secret would go there. Refuses, asks again with backoff.',
    faults: 2,
    begin: (tools) =>
      redirects(TOKENS, tools, [
        redirect(307, (call) => `${tools.stray}${call.path}`),
        redirect(302, (call) => `${tools.stray}${call.path}`),
      ]),
  },
];

/** Every scenario, in the order of its number. */
export const SCENARIOS: readonly Scenario[] = [...paymentScenarios, ...tokenScenarios];

/** The scenario with this name, or with this number alone (F02); undefined when there is none. */
export function findScenario(name: string): Scenario | undefined {
  const wanted = name.toLowerCase();
  return (
    SCENARIOS.find((scenario) => scenario.name.toLowerCase() === wanted) ??
    SCENARIOS.find((scenario) => scenario.name.toLowerCase().startsWith(`${wanted}-`))
  );
}
