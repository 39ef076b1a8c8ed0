/**
 * Right peers that look unlike ours, by side: none may fail a check. A warning is allowed where the peer breaks a should, and is listed
 * with it.
 *
 * A table: one entry per right peer.
 */
import { pause } from '../../src/clock.ts';
import { onRecords, together, type Behaviour, type Call } from '../../src/scripted/partner.ts';
import type { PartnerPeer, TokenPeer } from '../judged.ts';
import { VIRTUAL_CLOCK as CLOCK } from '../virtual-clock.ts';
import { CLIENT, KEY } from './partners.ts';
import { OTHER } from './platforms.ts';
import type { ProxyBehaviour } from './platform-proxy.ts';

export interface RightPartner extends PartnerPeer {
  readonly name: string;
  /** Checks that correctly warn. */
  readonly warns?: readonly string[];
  /** How long a whole run may take. */
  readonly within_ms?: number;
}

/** Rewrites posted_at. */
const posted = (write: (instant: string) => string): Behaviour =>
  onRecords(({ posted_at, ...record }) => ({
    ...record,
    posted_at: typeof posted_at === 'string' ? write(posted_at) : posted_at,
  }));

/** Rewrites every time in a record. */
const times = (write: (instant: string) => string): Behaviour => {
  const initiated = onRecords((r) => ({ ...r, initiated_at: write(String(r['initiated_at'])) }));
  const both = [initiated, posted(write)];
  return together(() => both);
};

const moved = (instant: string, ms: number): string =>
  new Date(Date.parse(instant) + ms).toISOString();

/** Shows the amount due as it was at the last refresh. */
function refreshed(every_ms: number): Behaviour {
  const shown = new Map<string, { at: number; due: unknown }>();
  return {
    answer(call, answer, partner) {
      const body = answer.body as Record<string, unknown> | undefined;
      if (answer.status !== 200 || !/^get_(account|balance)$/.test(call.operation))
        return undefined;
      const balance = (body?.['balance'] ?? body) as Record<string, unknown> | undefined;
      const key = call.params['account_id'] ?? '';
      const known = shown.get(key);
      if (known === undefined || partner.now() - known.at >= every_ms) {
        shown.set(key, { at: partner.now(), due: balance?.['amount_due_in_cents'] });
      }
      const old = { ...balance, amount_due_in_cents: shown.get(key)?.due };
      return { ...answer, body: body?.['balance'] === undefined ? old : { ...body, balance: old } };
    },
  };
}

/** Answers Get Payment from a copy to which the end of a payment comes later. */
function lateByPayment(late_ms: number): Behaviour {
  const ended = new Map<unknown, number>();
  return onRecords((record, call, partner) => {
    if (record['status'] === 'processing') return record;
    const { platform_payment_id: id } = record;
    const since = ended.get(id) ?? partner.now();
    ended.set(id, since);
    if (call.operation !== 'get_payment' || partner.now() - since >= late_ms) return record;
    const { failure_reason: _unknown, ...rest } = record;
    return { ...rest, status: 'processing', posted_at: null };
  });
}

/** Takes a while to answer one PUT of so many. Each answer shows what has become of the payment by then. */
function slowToAnswer(each: number): Behaviour {
  let puts = 0;
  return {
    async answer(call, answer, partner) {
      const payment = partner.find(call.params['platform_payment_id'] ?? '');
      if (call.method !== 'PUT' || answer.status !== 200 || payment === undefined) return;
      if ((puts += 1) % each === 0) await pause(CLOCK, 60);
      return { ...answer, body: partner.record(payment) };
    },
  };
}

/** Takes so many calls in a stretch of time, of all or of each kind that is named, and refuses the others until it is over. */
const limited =
  (most: number, every_ms: number, kindOf: (call: Call) => string | undefined = () => 'all') =>
  (): Behaviour => {
    const taken = new Map<string, number>();
    return {
      receive(call, partner) {
        const kind = kindOf(call);
        const left_ms = every_ms - (partner.now() % every_ms);
        const key = `${kind} ${partner.now() + left_ms}`;
        taken.set(key, (taken.get(key) ?? 0) + 1);
        if (kind === undefined || (taken.get(key) ?? 0) <= most) return undefined;
        const headers = { 'Retry-After': String(Math.ceil(left_ms / 1_000)) };
        return { status: 429, headers, body: { code: 'TOO_MANY_REQUESTS', message: 'Too many' } };
      },
    };
  };

/** JSON in which every character of every text, names too, is an escape. */
function escaped(body: unknown): string {
  return JSON.stringify(body).replace(/"(?:[^"\\]|\\.)*"/g, (text) => {
    const units = (JSON.parse(text) as string).split('');
    const hex = units.map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
    return `"${hex.join('')}"`;
  });
}

export const RIGHT_PARTNERS: readonly RightPartner[] = [
  { name: 'under a prefix', gateway: { prefix: '/api/v3' } },
  {
    name: 'with fields in another order',
    behaviour: () => onRecords((r) => Object.fromEntries(Object.entries(r).toReversed())),
  },
  {
    name: 'with times in microseconds at an offset',
    behaviour: () => times((t) => moved(t, 19_800_000).replace('Z', '123+05:30')),
  },
  {
    name: 'that rounds posted_at alone to a second',
    behaviour: () => posted((t) => t.replace(/\.\d+Z/, 'Z')),
  },
  {
    name: 'whose clock is three minutes behind',
    behaviour: () => times((t) => moved(t, -180_000)),
  },
  {
    name: 'whose ledger has a clock two minutes ahead',
    behaviour: () => posted((t) => moved(t, 120_000)),
  },
  { name: 'that takes fifty milliseconds', gateway: { latency_ms: 50 }, within_ms: 20_000 },
  { name: 'that takes two seconds', gateway: { latency_ms: 2_000 }, within_ms: 150_000 },
  {
    name: 'behind a gateway whose errors are web pages',
    gateway: {
      answer: (a) =>
        a.status < 400
          ? a
          : {
              status: a.status,
              headers: { 'content-type': 'text/html' },
              body: Buffer.from('<h1>Error</h1>'),
            },
    },
    warns: ['P11', 'P59'],
  },
  { name: 'that takes a hundred requests a second', behaviour: limited(100, 1_000) },
  { name: 'that takes three hundred requests a minute', behaviour: limited(300, 60_000) },
  {
    name: 'whose token endpoint takes three requests a second',
    auth: 'oauth',
    behaviour: limited(3, 1_000, ({ operation: o }) => (o === 'access_token' ? o : undefined)),
  },
  {
    name: 'that posts while it answers',
    behaviour: () => ({
      born(payment, _call, partner) {
        if (payment.ending.status === 'succeeded') {
          payment.status = 'succeeded';
          payment.posted_at = payment.initiated_at;
          partner.post(payment);
        }
      },
    }),
    warns: ['P21'],
  },
  {
    // Between the commit and the answer its posting loop had the payment (ST1): the answer says how it is by then.
    name: 'that is slow to answer, and then shows what it has posted meanwhile',
    behaviour: () => slowToAnswer(1),
  },
  {
    name: 'that posts now and then before it answers, with times in whole seconds',
    behaviour: () => {
      const both = [slowToAnswer(5), times((t) => t.replace(/\.\d+Z/, 'Z'))];
      return together(() => both);
    },
  },
  {
    name: 'that needs all of the time that it declares',
    behaviour: () => ({
      born: (payment) => void (payment.ending = { ...payment.ending, after_ms: 19_900 }),
    }),
  },
  {
    name: 'that posts at night',
    behaviour: () => ({
      born: (payment) => {
        if (payment.ending.status !== 'succeeded') return;
        payment.ending = { ...payment.ending, after_ms: undefined };
      },
    }),
    target: { terminal_window_seconds: 86_400 },
  },
  { name: 'that shows balances as of last night', behaviour: () => refreshed(1e9) },
  { name: 'that refreshes balances every two seconds', behaviour: () => refreshed(2_000) },
  {
    name: 'that shows no balance',
    target: { paths: { get_balance: null }, accounts: { payable: 'bare', inactive: 'inactive' } },
  },
  { name: 'without Get Payment', target: { paths: { get_payment: null } } },
  { name: 'whose Get Payment shows an end a second late', behaviour: () => lateByPayment(1_000) },
  {
    name: 'that accepts only UUIDs as ids',
    behaviour: () => ({
      receive: (call) =>
        call.method === 'PUT' &&
        !/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(call.params['platform_payment_id'] ?? '')
          ? { status: 400, body: { code: 'INVALID_REQUEST', message: 'The id is no UUID' } }
          : undefined,
    }),
  },
  {
    name: 'that refuses payments to inactive accounts',
    behaviour: () => ({
      receive: (call) =>
        call.method === 'PUT' &&
        call.params['account_id'] === 'inactive' &&
        call.headers['x-api-key'] === KEY
          ? { status: 422, body: { code: 'ACCOUNT_INACTIVE', message: 'The account is closed' } }
          : undefined,
    }),
    warns: ['P41'],
  },
  {
    name: 'with an OAuth secret that has a space',
    auth: { method: 'oauth', client_id: 'judge', client_secret: 'two words of a secret' },
  },
  {
    name: 'with access tokens of two seconds',
    auth: {
      method: 'oauth',
      client_id: 'judge',
      client_secret: CLIENT.client_secret,
      expires_in: 2,
    },
  },
  {
    name: 'with OAuth, in the strict profile',
    auth: 'oauth',
    how: 'with-an-unusual-id',
    profile: 'strict',
  },
  { name: 'that is judged again the day after', how: 'the-day-after' },
  { name: 'with a maximum', how: 'with-a-maximum' },
  {
    name: 'with a static key and an id that has a space and a slash, in the strict profile',
    how: 'with-an-unusual-id',
    profile: 'strict',
  },
  {
    name: 'that escapes every character of its JSON',
    gateway: {
      answer: (a) => ({ ...a, body: Buffer.from(escaped(JSON.parse(a.body.toString()))) }),
    },
  },
  {
    name: 'with nested namesakes of the fields',
    behaviour: () =>
      onRecords((r) => ({
        account: { status: 'active', balance: { amount_in_cents: 1 } },
        history: [{ status: 'processing', at: r['initiated_at'] }],
        ...r,
        fee: { amount_in_cents: 0, status: 'failed' },
      })),
  },
  {
    name: 'whose records name neither biller nor account',
    behaviour: () => onRecords(({ biller_id: _biller, account_id: _account, ...r }) => r),
  },
  {
    name: 'that names biller and account only when a payment is read',
    behaviour: () =>
      onRecords(({ biller_id, account_id, ...r }, { method }) =>
        method === 'PUT' ? r : { ...r, biller_id, account_id },
      ),
  },
  {
    name: 'that writes times at an offset in nanoseconds, and in UTC once they are stored',
    behaviour: () => {
      const put = times((t) => moved(t, 19_800_000).replace('Z', '456789+05:30'));
      return together((call) => (call?.method === 'PUT' ? [put] : []));
    },
  },
  {
    name: 'whose failed payments have no posted_at',
    behaviour: () =>
      onRecords(({ posted_at, ...r }) =>
        r['status'] === 'failed' || r['status'] === 'canceled' ? r : { ...r, posted_at },
      ),
  },
  {
    name: 'with payment ids in any script',
    behaviour: () =>
      onRecords((r) => ({
        ...r,
        payment_id: `№ 7/2026 "Ñandú" \\ 日本 😀 <a&b> ${String(r['payment_id'])}`,
      })),
  },
  {
    name: 'with times in nanoseconds, and an offset in hours only',
    behaviour: () => times((t) => t.replace('Z', '456789+00')),
  },
  {
    name: 'whose first answer takes a second',
    behaviour: () => {
      let isWarm = false;
      return {
        async receive() {
          if (!isWarm) await pause(CLOCK, 1_300);
          isWarm = true;
          return undefined;
        },
      };
    },
  },
  {
    name: 'that answers one request at a time',
    behaviour: () => {
      let last = Promise.resolve();
      return {
        async receive() {
          last = last.then(() => pause(CLOCK, 10));
          await last;
          return undefined;
        },
      };
    },
  },
  {
    name: 'that takes five reads of a payment a second',
    behaviour: limited(5, 1_000, ({ method, path }) => (method === 'GET' ? path : undefined)),
  },
  {
    name: 'that is too busy for every twentieth read',
    behaviour: () => {
      let reads = 0;
      return {
        receive(call) {
          if (call.method !== 'GET' || (reads += 1) % 20 > 0) return undefined;
          const body = { code: 'SERVICE_UNAVAILABLE', message: 'Ask again in a second' };
          return { status: 503, headers: { 'Retry-After': '1' }, body };
        },
      };
    },
    warns: ['P56', 'P57'],
  },
  {
    name: 'that answers a read of an unknown payment with null',
    behaviour: () => ({
      answer: ({ operation }, { status }) =>
        operation === 'get_account_payment' && status === 404
          ? { status: 200, headers: { 'Content-Type': 'application/json' }, body: 'null' }
          : undefined,
    }),
    warns: ['P11'],
  },
  {
    name: 'that writes times in the basic format of ISO 8601, with a comma before the fraction',
    behaviour: () => times((t) => t.replaceAll(/[-:]/g, '').replace('.', ',')),
  },
  {
    // As at the end of a keep-alive, which the judge cannot see coming (RFC 9112, 9.5).
    name: 'that resets a connection just as it is used again',
    auth: 'oauth',
    behaviour: () => ({
      receive: ({ earlier }) =>
        earlier % 3 === 0 ? undefined : (wire) => void wire.socket.resetAndDestroy(),
    }),
  },
];

/** A right platform, at its token endpoint. */
interface RightPlatform extends TokenPeer {
  readonly name: string;
}

/** Writes each token in another way. */
const tokens = (write: (token: string) => string) => (): ProxyBehaviour => ({
  answer(answer, asked) {
    if (!asked.path.endsWith('/token') || answer.status !== 200) return;
    const { token } = JSON.parse(answer.body) as { token: string };
    answer.body = JSON.stringify({ token: write(token) });
  },
});

export const RIGHT_PLATFORMS: readonly RightPlatform[] = [
  { name: 'for a biller' },
  { name: 'for a biller, in the strict profile', profile: 'strict', other_client: OTHER },
  { name: 'for an aggregator', kind: 'aggregator' },
  { name: 'that takes two seconds a call', delay_ms: 2_000 },
  {
    name: 'that escapes every character of its JSON',
    behaviour: () => ({
      answer(answer) {
        if (answer.body !== '') answer.body = `\r\n ${escaped(JSON.parse(answer.body))}\r\n`;
      },
    }),
  },
  {
    name: 'with cookies, and header names in capitals',
    behaviour: () => ({
      answer(answer) {
        for (const [name, value] of Object.entries(answer.headers)) {
          delete answer.headers[name];
          answer.headers[name.toUpperCase()] = value;
        }
        answer.headers['SET-COOKIE'] = 'lb=node-2; Path=/; HttpOnly';
      },
    }),
  },
  {
    name: 'that answers 422 to invalid requests, with more fields',
    behaviour: () => ({
      answer(answer) {
        if (answer.status !== 400) return;
        answer.status = 422;
        answer.body = JSON.stringify({ ...(JSON.parse(answer.body) as object), trace_id: 'a-1' });
      },
    }),
  },
  {
    name: 'with tokens of 1,500 characters',
    behaviour: tokens((t) => `${t}.${t.repeat(24)}.${t}`),
  },
  { name: 'with tokens of any character', behaviour: tokens((t) => `"${t}" \\ + / =`) },
  {
    name: 'that takes state codes in lower case',
    behaviour: () => ({
      request: (asked) =>
        void (asked.body = asked.body.replace(
          /"state":"([a-z]{2})"/,
          (_all, state: string) => `"state":"${state.toUpperCase()}"`,
        )),
    }),
  },
];

/** Right platforms that call a partner, by what they do otherwise. */
export const RIGHT_CALLERS: readonly (readonly [
  auth: 'key' | 'oauth',
  habit: string | undefined,
])[] = [
  ['key', undefined],
  ['oauth', undefined],
  ['key', 'ids_in_capitals'],
  ['oauth', 'long_ids'],
  ['key', 'more_fields'],
  ['key', 'escapes_its_json'],
  ['oauth', 'looks_first'],
  ['key', 'encodes_everything'],
  ['key', 'freezes_an_array'],
];
