/**
 * Wrong partners: each is the scripted partner with a few lines of difference, and is caught by the check that it names. Together they
 * reach every branch of the checks in which a partner can be accused; a second peer for the same branch is not kept.
 *
 * A table: one entry per wrong partner, in the order of the checks.
 */
import { createHash, randomUUID } from 'node:crypto';
import type { Refusal } from '@duebridge/contract';
import { pause } from '../../src/clock.ts';
import {
  onRecords,
  type Answer,
  type Behaviour,
  type Call,
  type Book,
  type Operation,
  type ScriptedAccount,
  type StoredPayment,
} from '../../src/scripted/partner.ts';
import { VIRTUAL_CLOCK as CLOCK } from '../virtual-clock.ts';
import { wrongPeers, type Wrong } from './wrong.ts';

/** The key of the scripted partner. */
export const KEY = 'a-key-of-the-kill-matrix';
/** Its OAuth client. */
export const CLIENT = { client_id: 'judge', client_secret: 'a-secret-of-the-kill-matrix' };

const account = (account_id: string, more: Partial<ScriptedAccount> = {}): ScriptedAccount => ({
  biller_id: 'sandbox-utility',
  account_id,
  status: 'active',
  balance: { amount_due_in_cents: 12_500, due_date: '2030-01-31' },
  ...more,
});

/** The accounts of the scripted partner in these tests. */
export const ACCOUNTS: readonly ScriptedAccount[] = [
  account('active'),
  account('active-2', { balance: { amount_due_in_cents: 9_900, due_date: '2030-02-15' } }),
  account('inactive', { status: 'inactive' }),
  account('maximum', {
    payment_rules: { min_amount_in_cents: 100, max_amount_in_cents: 50_000 },
  }),
  account('canceled', { ending: { status: 'canceled' } }),
  // An id that a path must encode.
  account('unit 4/B'),
  { biller_id: 'sandbox-utility', account_id: 'bare', status: 'active' },
];

/** The limit of a partner with a maximum, and the amount that most checks pay. */
export const MAXIMUM = { min_amount_in_cents: 100, max_amount_in_cents: 50_000 };
const SUBJECT_CENTS = 120;

export const DAY_MS = 24 * 60 * 60 * 1_000;

/** How a partner is run; a static key, at its usual times, unless given. */
export interface PartnerSetting {
  readonly auth?: 'oauth' | 'short-lived-oauth';
  readonly how?: 'with-a-maximum' | 'with-an-unusual-id' | 'the-day-after';
}

/** Made for each run, because some keep state. */
export type MakeBehaviour = () => Behaviour;

export type WrongPartner = Wrong<MakeBehaviour> & PartnerSetting;

type Fields = Record<string, unknown>;

const { fails, warns } = wrongPeers<MakeBehaviour, PartnerSetting>();

const error = (status: number, code: string, message = 'An unexpected error occurred'): Answer => ({
  status,
  body: { code, message },
});
const PAYMENT_NOT_FOUND = error(404, 'PAYMENT_NOT_FOUND', 'Payment not found');
const BROKEN = error(500, 'INTERNAL_ERROR');
const REFUSED = error(401, 'UNAUTHORIZED', 'The credential is not known');
const asText = (type: string, body: string): Answer => ({
  status: 200,
  headers: { 'Content-Type': type },
  body,
});
const ACTIVE: Answer = { status: 200, body: { account_id: 'active', status: 'active' } };
const CONFLICT = error(409, 'CONFLICT', 'It exists already');

/** Where a record that changes at the end shows as well. */
const RECORD_CHANGED = { also: ['P24', 'P25', 'P27', 'P28', 'P30', 'P33'] };

const MANY = { also: 'many' } as const;
const OAUTH = { auth: 'oauth' } as const;
const STRICT = { profile: 'strict' } as const;

/** The id of the payment that a call is about. */
const idOf = (call: Call): string => call.params['platform_payment_id'] ?? '';
const isPut = (call: Call): boolean => call.operation === 'put_account_payment';
const hasKey = (call: Call): boolean => call.headers['x-api-key'] !== undefined;
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const field = (value: unknown, name: string): unknown => (value as Fields | undefined)?.[name];

/** An instant moved by so many milliseconds; any other value unchanged. */
const shift = (instant: unknown, ms: number): unknown =>
  typeof instant === 'string' ? new Date(Date.parse(instant) + ms).toISOString() : instant;

/** Counts how often something was seen, the present time included. */
function counter(): (what: string) => number {
  const seen = new Map<string, number>();
  return (what) => {
    seen.set(what, (seen.get(what) ?? 0) + 1);
    return seen.get(what) ?? 0;
  };
}

type When = (call: Call, answer: Answer, partner: Book) => boolean;

/** Sends another answer where this is true. */
const swaps = (when: When, then: Answer | ((answer: Answer, call: Call) => Answer)): Behaviour => ({
  answer(call, answer, partner) {
    if (!when(call, answer, partner)) return undefined;
    return typeof then === 'function' ? then(answer, call) : then;
  },
});

/** Answers at once, without looking at anything, where this is true. */
const meets = (when: (call: Call) => boolean, then: Answer): Behaviour => ({
  receive: (call) => (when(call) ? then : undefined),
});

/** Changes what a successful call of this operation is answered. */
export const changeBody = (operation: Operation, change: (body: Fields) => Fields): Behaviour =>
  swaps(
    (call, { status }) => call.operation === operation && status === 200,
    (answer) => ({ ...answer, body: change({ ...(answer.body as Fields) }) }),
  );
const changeToken = (change: Fields): Behaviour =>
  changeBody('access_token', (token) => ({ ...token, ...change }));

/** Changes the records of this status, or all. */
const records = (status: string | undefined, change: (record: Fields) => Fields): Behaviour =>
  onRecords((record) =>
    status === undefined || record['status'] === status ? { ...record, ...change(record) } : record,
  );

/** Answers a successful read of a payment as if there were none where this is true. */
const hides = (
  when: (payment: StoredPayment, partner: Book, call: Call) => boolean,
  then = PAYMENT_NOT_FOUND,
): Behaviour =>
  swaps((call, { status }, partner) => {
    const payment = partner.find(idOf(call));
    const isRead = call.method === 'GET' && status === 200 && payment !== undefined;
    return isRead && when(payment, partner, call);
  }, then);

/** Accepts every credential for which this is true. */
const admits = (
  passes: (call: Call, refusal: Refusal | undefined, partner: Book) => boolean,
): Behaviour => ({
  authorize: (call, refusal, partner) => (passes(call, refusal, partner) ? undefined : refusal),
});
const admitsKey = (passes: (key: string) => boolean): Behaviour =>
  admits((call) => passes(text(call.headers['x-api-key'])));
const ignoresScope = (when: (call: Call, partner: Book) => boolean): Behaviour =>
  admits((call, refusal, partner) => refusal?.code === 'INSUFFICIENT_SCOPE' && when(call, partner));

/** Remembers the access tokens that it issued, and accepts those that `decide` takes for one of them. */
function withTokens(
  decide: (bearer: string, granted: readonly string[]) => string | undefined,
): Behaviour {
  const granted: string[] = [];
  return {
    answer(call, { status, body }) {
      if (call.operation !== 'access_token' || status !== 200) return undefined;
      return void granted.push(text(field(body, 'access_token')));
    },
    authorize(call, refusal) {
      const bearer = /^Bearer (.+)$/.exec(call.headers.authorization ?? '')?.[1];
      if (refusal?.code !== 'UNAUTHORIZED' || bearer === undefined) return refusal;
      return decide(bearer, granted) === undefined ? refusal : undefined;
    },
  };
}

/** A token endpoint that issues a token of this scope where it should answer with an error. */
const grantsDespite = (when: (error: string, form: URLSearchParams) => boolean, scope: string) =>
  swaps(
    (call, { status, body }) =>
      call.operation === 'access_token' &&
      status >= 400 &&
      when(JSON.stringify(body), new URLSearchParams(call.text)),
    () => ({
      status: 200,
      body: { access_token: randomUUID(), token_type: 'Bearer', expires_in: 60, scope },
    }),
  );

/** Deduplicates by another key than the platform's id. */
const keyed = (key: (id: string, call: Call, partner: Book) => string): Behaviour => ({
  key: (call, _instruction, partner) => key(idOf(call), call, partner),
});

/** Lets a payment for which this is true end otherwise. */
const ends = (
  when: (payment: StoredPayment, partner: Book) => boolean,
  ending: Partial<StoredPayment['ending']> = { status: 'succeeded' },
): Behaviour => ({
  born(payment, _call, partner) {
    if (!when(payment, partner)) return;
    const { status, after_ms } = payment.ending;
    payment.ending = { status, after_ms, ...ending };
  },
});
const NEVER = { after_ms: undefined };

/** Does more when a payment of this status ends. */
export const atEnd = (
  status: string,
  act: (payment: StoredPayment, partner: Book) => void,
): Behaviour => ({
  ended: (payment, partner) => {
    if (payment.status === status) act(payment, partner);
  },
});
const post = (partner: Book, payment: StoredPayment, times = 1): void =>
  partner.post({ ...payment, amount_in_cents: times * payment.amount_in_cents });

/** Posts at once, within the request, where this is true. */
const postsAtOnce = (when: (payment: StoredPayment, partner: Book) => boolean): Behaviour => ({
  born(payment, _call, partner) {
    if (payment.ending.status !== 'succeeded' || !when(payment, partner)) return;
    payment.status = 'succeeded';
    payment.posted_at = payment.initiated_at;
    partner.post(payment);
  },
});

/** Does something before each call. */
const always = (act: (partner: Book, call: Call) => void): Behaviour => ({
  receive(call, partner) {
    act(partner, call);
    return undefined;
  },
});

/** Stores amounts as converted by `keep`. */
const keeps = (keep: (cents: number) => number): Behaviour => ({
  born: (payment) => void (payment.amount_in_cents = keep(payment.amount_in_cents)),
});

/** Gives this reason for every failed payment. */
const reason = (failure_reason: string | undefined): Behaviour =>
  records('failed', () => ({ failure_reason }));

/** Shows another amount due. */
const changeDue = (change: (due: number) => unknown): Behaviour =>
  changeBody('get_balance', (body) => ({
    ...body,
    amount_due_in_cents: change(Number(body['amount_due_in_cents'])),
  }));

export const WRONG_PARTNERS: readonly WrongPartner[] = [
  fails('P01', 'accepts requests without a credential', () => admits((call) => !hasKey(call))),
  ...(
    [
      ['the account', { balance: {} }],
      ['the amount due, as text,', { amount_due_in_cents: '100' }],
    ] as const
  ).map(([what, more]) =>
    fails('P01', `refuses a request but returns ${what} in the body`, () =>
      swaps(
        (call, { status }) => status === 401 && !hasKey(call),
        (answer) => ({ ...answer, body: { code: 'UNAUTHORIZED', message: 'no', ...more } }),
      ),
    ),
  ),
  fails('P01', 'accepts any key that is present', () => admits(hasKey)),
  fails(
    'P01',
    'accepts any bearer token',
    () => withTokens((_bearer, granted) => granted[0]),
    OAUTH,
  ),
  ...(
    [
      ['issues an access token without scope in the response', { scope: undefined }],
      ['returns expires_in as a string with a unit', { expires_in: '1h' }],
      ['returns token_type as a list', { token_type: ['Bearer'] }],
    ] as const
  ).map(([wrong, change]) => fails('P03', wrong, () => changeToken(change), OAUTH)),
  fails(
    'P04',
    'issues access tokens for a wrong secret',
    () => grantsDespite((error) => error.includes('invalid_client'), ''),
    OAUTH,
  ),
  warns(
    'P04',
    'issues access tokens for any grant_type',
    () => grantsDespite((error) => error.includes('unsupported_grant'), 'read write'),
    OAUTH,
  ),
  warns(
    'P04',
    'returns the requested scope, even one that does not exist',
    () => grantsDespite((error) => error.includes('invalid_scope'), 'no-such-scope-duebridge'),
    OAUTH,
  ),
  fails('P05', 'accepts a payment with a token of scope read', () => ignoresScope(isPut), OAUTH),
  warns(
    'P05',
    'accepts a read with a token of scope write',
    () => ignoresScope((call) => call.operation === 'get_account'),
    OAUTH,
  ),
  warns(
    'P07',
    'accepts access tokens long after they expire',
    () => withTokens((bearer, granted) => granted.find((token) => token === bearer)),
    { also: ['P05'], auth: 'short-lived-oauth' },
  ),
  fails('P08', 'compares the name of its key header case-sensitively', () => ({
    answer: (call, answer) =>
      hasKey(call)
        ? (wire) => {
            const exact = wire.response.req.rawHeaders.includes('x-api-key');
            wire.send(exact ? answer : REFUSED);
          }
        : undefined,
  })),
  warns('P08', 'accepts the key in any header', () =>
    admits((call) => call.headers.authorization !== undefined),
  ),
  fails('P10', 'returns accounts as text/plain', () =>
    swaps(
      (call, { status }) => call.operation === 'get_account' && status === 200,
      ({ body }) => asText('text/plain', JSON.stringify(body)),
    ),
  ),
  warns('P10', 'returns its internal id as account_id', () =>
    changeBody('get_account', (body) => ({ ...body, account_id: '000017' })),
  ),
  warns('P11', 'answers an unknown account with an empty 200', () =>
    swaps((call, { status }) => call.operation === 'get_account' && status === 404, {
      status: 200,
      body: {},
    }),
  ),
  warns('P11', 'does not look at the biller in the path of a read', () =>
    always((_partner, call) => {
      if (call.method === 'GET') Object.assign(call.params, { biller_id: 'sandbox-utility' });
    }),
  ),
  warns('P12', 'decodes an encoded slash and resolves the path', () =>
    meets((call) => /\/\.\.\//.test(call.params['account_id'] ?? ''), ACTIVE),
  ),
  warns(
    'P12',
    'splits the path of a declared account after it has decoded it',
    () => meets(({ path }) => /account\/[^/]*%2F/.test(path), error(404, 'NOT_FOUND', 'Not found')),
    { how: 'with-an-unusual-id', ...MANY },
  ),
  warns(
    'P12',
    'writes the id of a declared account with a plus for its space',
    () =>
      changeBody('get_account', (body) => ({
        ...body,
        account_id: text(body['account_id']).replace(' ', '+'),
      })),
    { how: 'with-an-unusual-id' },
  ),
  warns('P12', 'answers a long account id with 500', () =>
    meets((call) => (call.params['account_id'] ?? '').length > 100, BROKEN),
  ),
  warns('P12', 'answers a path with an invalid percent-encoding with 500', () =>
    meets(({ path }) => path.includes('%zz'), BROKEN),
  ),
  warns(
    'P12',
    'folds the case of account ids',
    () =>
      meets(({ operation, params: { account_id = '' } }) => {
        const isOther = account_id !== 'active' && account_id.toLowerCase() === 'active';
        return operation === 'get_account' && isOther;
      }, ACTIVE),
    STRICT,
  ),
  fails('P13', 'returns the amount due as a string', () => changeDue(String)),
  warns('P13', 'returns a due date that does not exist', () =>
    changeBody('get_balance', (body) => ({ ...body, due_date: '2026-02-30' })),
  ),
  fails('P14', 'adds a cent to the amount due at each read', () => {
    let reads = 0;
    return changeDue((due) => due + (reads += 1));
  }),
  warns('P11', 'answers a payment that does not exist with 500', () =>
    swaps((call, { status }) => call.operation === 'get_payment' && status === 404, BROKEN),
  ),
  warns(
    'P11',
    'answers a payment that does not exist with 200 and null',
    () =>
      swaps(
        (call, { status }) => call.operation.endsWith('payment') && status === 404,
        asText('application/json', 'null'),
      ),
    MANY,
  ),
  fails('P20', 'answers a new payment with 201', () => {
    const known = counter();
    return swaps(
      (call, { status }) => isPut(call) && status === 200 && known(call.path) === 1,
      (answer) => ({ ...answer, status: 201 }),
    );
  }),
  fails(
    'P20',
    'returns no payment_id',
    () => records(undefined, () => ({ payment_id: undefined })),
    { also: ['P32', 'P33'] },
  ),
  fails(
    'P20',
    'does not echo the batch id of a new payment',
    () =>
      onRecords((record, call) => (isPut(call) ? { ...record, platform_batch_id: null } : record)),
    { also: ['P33'] },
  ),
  fails('P20', 'returns the status pending for a new payment', () =>
    onRecords((record, call) =>
      isPut(call) && record['status'] === 'processing' ? { ...record, status: 'pending' } : record,
    ),
  ),
  warns(
    'P20',
    'returns the account id as the biller_id of a payment',
    () => records(undefined, (record) => ({ biller_id: record['account_id'] ?? '' })),
    STRICT,
  ),
  warns('P21', 'never returns the status processing', () => postsAtOnce(() => true)),
  warns('P21', 'returns succeeded at once for all but the first payment of an account', () =>
    postsAtOnce(({ account_id }, partner) =>
      partner.payments().some((other) => other.account_id === account_id),
    ),
  ),
  fails('P22', 'returns initiated_at without a time zone', () =>
    records(undefined, (r) => ({ initiated_at: text(r['initiated_at']).replace('Z', '') })),
  ),
  warns('P22', 'has a clock that is an hour ahead', () =>
    records(undefined, ({ initiated_at, posted_at }) => ({
      initiated_at: shift(initiated_at, 3_600_000),
      posted_at: shift(posted_at, 3_600_000),
    })),
  ),
  fails('P22', 'returns posted_at while the payment is processing', () =>
    records('processing', ({ initiated_at }) => ({ posted_at: initiated_at })),
  ),
  fails(
    'P25',
    'answers a known id with 409',
    () => {
      const known = counter();
      return swaps(
        (call, { status }) => isPut(call) && status === 200 && known(idOf(call)) > 1,
        CONFLICT,
      );
    },
    { also: ['P34'] },
  ),
  ...(
    [
      ['is too busy for every repeat', { 'Retry-After': '1' }],
      ['is too busy for every repeat, and asks for the next at once', { 'Retry-After': '0' }],
      ['leaves every repeat without an answer', undefined],
    ] as const
  ).map(([wrong, headers]) =>
    fails(
      'P25',
      wrong,
      () => ({
        receive(call, partner) {
          if (!isPut(call) || partner.find(idOf(call)) === undefined) return undefined;
          return headers === undefined ? () => undefined : { ...BROKEN, status: 503, headers };
        },
      }),
      MANY,
    ),
  ),
  fails(
    'P25',
    'makes a payment for each hash of the body',
    () =>
      keyed((id, { text }) =>
        text.includes('"platform_batch_id":')
          ? id
          : `${id} ${createHash('sha256').update(text).digest('hex')}`,
      ),
    MANY,
  ),
  fails(
    'P25',
    'resets initiated_at on each repeat',
    () => ({
      repeat(payment, _call, partner) {
        payment.initiated_at = new Date(partner.now() + 1).toISOString();
      },
    }),
    { also: ['P51', 'P54'] },
  ),
  fails(
    'P25',
    'forgets an id after ten requests',
    () => {
      const seen = counter();
      return keyed((id) => {
        const times = seen(id);
        return times > 10 ? `${id}#${times}` : id;
      });
    },
    { also: ['P27'] },
  ),
  fails(
    'P27',
    'looks up the id and then inserts, with a race between the two',
    () => ({ beforeStore: () => pause(CLOCK, 15) }),
    { also: ['P30', 'P34'] },
  ),
  fails('P28', 'overwrites the amount with that of the repeat', () => ({
    repeat(payment, { body }) {
      const amount = field(body, 'amount_in_cents');
      if (typeof amount === 'number') payment.amount_in_cents = amount;
    },
  })),
  fails('P28', 'adds the amount of a repeat with another one', () => ({
    repeat(payment, { body }) {
      const amount = field(body, 'amount_in_cents');
      if (typeof amount === 'number' && amount !== payment.amount_in_cents)
        payment.amount_in_cents += amount;
    },
  })),
  warns('P28', 'answers a repeat with another amount with 409', () =>
    swaps((call, { status }, partner) => {
      const stored = partner.find(idOf(call));
      const isOther = field(call.body, 'amount_in_cents') !== stored?.amount_in_cents;
      return isPut(call) && stored !== undefined && isOther && status === 200;
    }, CONFLICT),
  ),
  fails('P28', 'overwrites the batch id with that of the repeat', () => ({
    repeat(payment, { body }) {
      const batch = field(body, 'platform_batch_id');
      if (typeof batch === 'string') payment.platform_batch_id = batch;
    },
  })),
  fails('P30', 'keeps ids unique per account only', () =>
    keyed((id, call) => `${call.params['account_id']}/${id}`),
  ),
  fails('P30', 'keeps ids unique per biller only', () =>
    keyed((id, call) => `${call.params['biller_id']} ${id}`),
  ),
  fails('P30', 'returns the account of the path for a payment of another account', () =>
    onRecords((record, call) => ({
      ...record,
      account_id: call.params['account_id'] ?? record['account_id'],
    })),
  ),
  fails('P54', 'processes a terminal payment again when its PUT is repeated', () => ({
    repeat(payment, _call, partner) {
      if (payment.status === 'succeeded') {
        payment.posted_at = new Date(partner.now() + 1).toISOString();
      }
    },
  })),
  ...(
    [
      [
        'P32',
        'treats a payment with the same account and amount as a repeat',
        'amount_in_cents',
        'account_id',
      ],
      ['P33', 'uses the batch id as the idempotency key', 'platform_batch_id', 'biller_id'],
    ] as const
  ).map(([check, wrong, name, place]) =>
    fails(check, wrong, () => ({
      key: (call, instruction, partner) =>
        partner
          .payments()
          .find((one) => one[place] === call.params[place] && one[name] === instruction[name])
          ?.key ?? idOf(call),
    })),
  ),
  fails(
    'P34',
    'stores an id only after the response was delivered',
    () => {
      const answered = new Map<string, string>();
      return {
        key: (call) => answered.get(idOf(call)) ?? `${idOf(call)}#${call.number}`,
        answer(call, answer, partner) {
          const id = idOf(call);
          if (call.method !== 'PUT' || answer.status !== 200 || answered.has(id)) return undefined;
          return async (wire) => {
            // Much longer than the judge waits before it closes the connection, even on a slow machine.
            await pause(CLOCK, 250);
            if (wire.released.aborted) return;
            const stored = partner.payments().findLast((one) => one.platform_payment_id === id);
            answered.set(id, stored?.key ?? id);
            wire.send(answer);
          };
        },
      };
    },
    { also: ['P27', 'P30'] },
  ),
  fails(
    'P35',
    'forgets ids after a day',
    () =>
      keyed((id, _call, partner) =>
        partner.now() - (partner.find(id)?.accepted_ms ?? Infinity) > DAY_MS ? `${id}#2` : id,
      ),
    { how: 'the-day-after' },
  ),
  ...(
    [
      [fails, 'takes an amount written as a text', /"amount_in_cents":"/],
      [fails, 'rounds an amount with a fraction', /"amount_in_cents":10\.5/],
      [fails, 'takes a payment without an amount', /^(?!.*"amount_in_cents")/],
      [warns, 'takes a payment of nothing', /"amount_in_cents":0,/],
    ] as const
  ).map(([kind, wrong, pattern]) =>
    kind(
      'P36',
      wrong,
      () => ({ validate: (call, problems) => (pattern.test(call.text) ? [] : problems) }),
      // A fraction that is taken stays in the balance.
      wrong.includes('fraction') ? { also: ['P13'] } : {},
    ),
  ),
  warns(
    'P36',
    'takes the right request for a repeat of one that it refused',
    () => {
      const refused = new Set<string>();
      return {
        receive: (call) => (isPut(call) && refused.has(idOf(call)) ? CONFLICT : undefined),
        answer: (call, { status }) =>
          isPut(call) && status === 400 ? void refused.add(idOf(call)) : undefined,
      };
    },
    STRICT,
  ),
  ...(
    [
      [
        'P39',
        'does not compare the id in the body with the one in the path',
        'platform_payment_id',
      ],
      ['P39', 'accepts a payment without a batch id', 'platform_batch_id'],
    ] as const
  ).map(([check, wrong, name]) =>
    warns(
      check,
      wrong,
      () => ({
        validate: (_call, problems) => problems.filter(({ path }) => path !== `body.${name}`),
      }),
      STRICT,
    ),
  ),
  warns(
    'P38',
    'refuses unknown fields',
    () => ({
      validate: (call, problems) =>
        call.text.includes('a_field_of_tomorrow')
          ? [{ path: 'body', problem: 'holds a field that is not known' }]
          : problems,
    }),
    STRICT,
  ),
  warns('P39', 'answers a body that is an array with 500', () =>
    meets((call) => isPut(call) && call.text === '[]', BROKEN),
  ),
  fails('P41', 'posts payments to accounts that do not exist', () =>
    ends((one, partner) => partner.account(one.biller_id, one.account_id) === undefined),
  ),
  fails('P41', 'posts payments to inactive accounts', () =>
    ends((one, partner) => partner.account(one.biller_id, one.account_id)?.status === 'inactive'),
  ),
  fails(
    'P41',
    'posts payments above its maximum',
    () => ends(({ amount_in_cents }) => amount_in_cents > 50_000),
    { how: 'with-a-maximum' },
  ),
  ...(
    [
      ['a payment', ({ amount_in_cents }) => amount_in_cents === SUBJECT_CENTS],
      ['payments above 32 bits', ({ amount_in_cents }) => amount_in_cents > 2 ** 32],
      ['payments of the second account', ({ account_id }) => account_id === 'active-2'],
    ] satisfies [string, (payment: StoredPayment) => boolean][]
  ).map(([what, when]) =>
    fails('P50', `leaves ${what} processing forever`, () => ends(when, NEVER), MANY),
  ),
  fails('P50', 'returns the status completed instead of succeeded', () =>
    records('succeeded', (record) =>
      record['amount_in_cents'] === SUBJECT_CENTS ? { status: 'completed' } : {},
    ),
  ),
  fails(
    'P50',
    'returns a terminal payment as processing in every other read',
    () => {
      let reads = 0;
      return onRecords((record, call) => {
        if (call.method !== 'GET' || record['status'] !== 'succeeded') return record;
        if (record['amount_in_cents'] !== SUBJECT_CENTS) return record;
        reads += 1;
        return reads === 1 ? record : { ...record, status: 'processing', posted_at: null };
      });
    },
    { also: ['P54'] },
  ),
  fails('P51', 'returns posted_at as a date without a time', () =>
    records('succeeded', ({ posted_at }) => ({ posted_at: text(posted_at).slice(0, 10) })),
  ),
  fails('P51', 'returns a posted_at before initiated_at', () =>
    records(undefined, ({ posted_at }) => ({ posted_at: shift(posted_at, -3_600_000) })),
  ),
  fails(
    'P51',
    'returns the end of the day as posted_at',
    () =>
      records('succeeded', () => ({
        posted_at: new Date(CLOCK.now() + 12 * 3_600_000).toISOString(),
      })),
    { also: ['P54'] },
  ),
  fails('P52', 'gives no reason for a failed payment', () => reason(undefined)),
  fails('P52', 'gives a code for a reason', () => reason('E_ACCT_0017')),
  warns('P53', 'spells canceled with two l', () =>
    records('canceled', () => ({ status: 'cancelled' })),
  ),
  fails('P54', 'changes posted_at a few reads after the end', () => {
    let reads = 0;
    return onRecords((record, call) => {
      if (call.method !== 'GET' || record['status'] !== 'succeeded') return record;
      if (record['amount_in_cents'] !== 154) return record;
      reads += 1;
      return reads < 8 ? record : { ...record, posted_at: shift(record['posted_at'], 1_000) };
    });
  }),
  fails(
    'P54',
    'no longer finds payments of the previous day',
    () => hides(({ accepted_ms }, partner) => partner.now() - accepted_ms > DAY_MS),
    { how: 'the-day-after' },
  ),
  fails('P54', 'returns another payment_id from Get Payment than from Get Account Payment', () =>
    onRecords((record, call) =>
      call.operation === 'get_payment'
        ? { ...record, payment_id: `${text(record['payment_id'])}-2` }
        : record,
    ),
  ),
  fails('P56', 'does not find a payment immediately after accepting it', () => {
    let reads = 0;
    return hides(
      ({ amount_in_cents }, _partner, { operation }) =>
        operation === 'get_account_payment' &&
        amount_in_cents === SUBJECT_CENTS &&
        (reads += 1) === 1,
    );
  }),
  fails('P56', 'does not find a payment by Get Payment for the first half second', () =>
    hides(
      ({ accepted_ms }, partner, { operation }) =>
        operation === 'get_payment' && partner.now() - accepted_ms <= 500,
    ),
  ),
  fails(
    'P56',
    'fails reads of a payment for a tenth of a second after its PUT',
    () => hides(({ accepted_ms }, partner) => partner.now() - accepted_ms < 120, BROKEN),
    MANY,
  ),
  warns('P57', 'answers 500 after thirty polls of a payment', () => {
    const polls = counter();
    return meets(
      (call) => call.operation === 'get_account_payment' && polls(call.path) > 30,
      BROKEN,
    );
  }),
  warns('P58', 'shows a terminal status two minutes after posting', () =>
    records(undefined, ({ posted_at }) => ({ posted_at: shift(posted_at, -120_000) })),
  ),
  ...(
    [
      ['returns the error page of its framework', () => asText('text/html', '<h1>Not Found</h1>')],
      [
        'returns a stack trace in its errors',
        () => ({
          body: { code: 'NOT_FOUND', message: 'x', stack: 'Error: x\n    at get (/srv/a.js:4:2)' },
        }),
      ],
      [
        'repeats the key in its errors',
        (call) => ({
          body: { code: 'NOT_FOUND', message: `not for ${text(call.headers['x-api-key'])}` },
        }),
      ],
    ] satisfies [string, (call: Call) => Partial<Answer>][]
  ).map(([wrong, answered]) =>
    warns('P59', wrong, () =>
      swaps(
        (_call, { status }) => status === 404,
        (_answer, call) => ({ ...answered(call), status: 404 }),
      ),
    ),
  ),
  warns(
    'P59',
    'returns errors without a code',
    () =>
      swaps(
        (_call, { status, body }) => status >= 400 && typeof body === 'object',
        (answer) => ({ ...answer, body: { error: 'Something is wrong' } }),
      ),
    STRICT,
  ),
  // Authentication: every operation, and before the work is done.
  ...(['get_balance', 'put_account_payment', 'get_account_payment', 'get_payment'] as const).map(
    (operation) =>
      fails('P01', `requires no credential for ${operation}`, () =>
        admits((call) => !hasKey(call) && call.operation === operation),
      ),
  ),
  fails('P01', 'creates the payment and then answers 401', () => ({
    ...admits(isPut),
    ...swaps((call) => isPut(call) && call.headers['x-api-key'] !== KEY, REFUSED),
  })),
  fails(
    'P01',
    'answers a repeat of a known id before it looks at the credential',
    () =>
      admits((call, _refusal, partner) => isPut(call) && partner.find(idOf(call)) !== undefined),
    MANY,
  ),
  // Credentials that are almost right.
  ...(
    [
      ['compares its key case-insensitively', (key) => key.toLowerCase() === KEY.toLowerCase()],
      ['compares only the length of the key', (key) => key.length === KEY.length],
      ['accepts the first character of its key', (key) => key === KEY[0]],
      ['accepts its key with a suffix', (key) => key.startsWith(KEY)],
    ] satisfies [string, (key: string) => boolean][]
  ).map(([wrong, passes]) => fails('P01', wrong, () => admitsKey(passes))),
  fails(
    'P01',
    'does not verify the second half of an access token',
    () =>
      withTokens((bearer, granted) =>
        granted.find(
          (token) => token.length === bearer.length && token.slice(0, 24) === bearer.slice(0, 24),
        ),
      ),
    OAUTH,
  ),
  fails(
    'P05',
    'checks scopes only for the exact content type application/json',
    () => ignoresScope((call) => call.headers['content-type'] !== 'application/json'),
    OAUTH,
  ),
  fails(
    'P05',
    'checks scopes only for new payments',
    () => ignoresScope((call, partner) => isPut(call) && partner.find(idOf(call)) !== undefined),
    OAUTH,
  ),
  // The last response agrees with the first.
  fails(
    'P60',
    'subtracts a fee of one cent from the amount when it posts',
    () => atEnd('succeeded', (p) => void (p.amount_in_cents -= 1)),
    RECORD_CHANGED,
  ),
  fails(
    'P60',
    'derives payment_id from account and amount',
    () =>
      records(undefined, ({ account_id, amount_in_cents }) => ({
        payment_id: `${String(account_id)}-${String(amount_in_cents)}`,
      })),
    { also: ['P32'] },
  ),
  fails(
    'P60',
    'takes a payment back four seconds after it was posted',
    () =>
      always((partner) => {
        for (const payment of partner.payments()) {
          const isOld = partner.now() - payment.accepted_ms >= 4_000;
          if (payment.status !== 'succeeded' || !isOld) continue;
          const failure_reason = 'The bank returned the payment.';
          partner.end(payment, { status: 'failed', after_ms: 0, failure_reason }, true);
        }
      }),
    MANY,
  ),
  fails(
    'P60',
    'forgets an id after forty newer ones',
    () => {
      const seen: string[] = [];
      return keyed((id) => {
        if (!seen.includes(id)) seen.push(id);
        return seen.length - seen.indexOf(id) > 40 ? `${id}#2` : id;
      });
    },
    MANY,
  ),
  fails(
    'P60',
    'forgets an id a second after the last request for it',
    () => {
      const last = new Map<string, number>();
      return keyed((id, _call, partner) => {
        const idle = partner.now() - (last.get(id) ?? partner.now());
        last.set(id, partner.now());
        return idle > 1_000 ? `${id}#2` : id;
      });
    },
    MANY,
  ),
  // Amounts beyond what some number types can hold.
  fails('P24', 'stores amounts as 32-bit floating-point numbers', () => keeps(Math.fround)),
  fails('P24', 'stores amounts as unsigned 32-bit integers', () =>
    keeps((cents) => cents % 2 ** 32),
  ),
  // Terminal payments never change.
  fails('P54', 'answers Get Payment from a copy that is never updated', () =>
    onRecords((record, call) =>
      call.operation === 'get_payment'
        ? { ...record, status: 'processing', posted_at: null, failure_reason: undefined }
        : record,
    ),
  ),
  // Balances change only with succeeded payments.
  fails('P62', 'returns one payment but posts it again on every tenth repeat', () => {
    const repeats = counter();
    return {
      repeat(payment, _call, partner) {
        if (repeats(payment.key) % 10 === 0) partner.post(payment);
      },
    };
  }),
  fails('P62', 'posts failed payments to the balance', () =>
    atEnd('failed', (payment, partner) => partner.post(payment)),
  ),
  fails('P62', 'adds payments to the amount due instead of subtracting them', () =>
    atEnd('succeeded', (payment, partner) => post(partner, payment, -2)),
  ),
  warns('P62', 'loses one of two postings of the same moment', () => {
    let last: string | null = null;
    return atEnd('succeeded', (payment, partner) => {
      const isLost = payment.posted_at === last;
      last = payment.posted_at;
      if (isLost) post(partner, payment, -1);
    });
  }),
  // Concurrent requests.
  fails(
    'P60',
    'returns the payment of the latest concurrent request',
    () => {
      let current: StoredPayment | undefined;
      return {
        born: (payment) => void (current = payment),
        async answer(call, answer, partner) {
          if (call.method !== 'PUT' || answer.status !== 200) return undefined;
          await pause(CLOCK, 3);
          return current === undefined ? undefined : { ...answer, body: partner.record(current) };
        },
      };
    },
    MANY,
  ),
  fails(
    'P27',
    'keeps ids separately in the memory of two replicas',
    () => keyed((id, call) => `${id}#${call.connection % 2}`),
    MANY,
  ),
  fails(
    'P54',
    'reads from three replicas, one of which lags by half a minute',
    () =>
      hides(
        ({ accepted_ms }, partner, { connection }) =>
          connection % 3 === 0 && partner.now() - accepted_ms < 30_000,
      ),
    MANY,
  ),
  fails(
    'P54',
    'shows an ended payment as processing on every third connection, for a second',
    () =>
      onRecords((record, { connection }, partner) =>
        connection % 3 === 0 && partner.now() - Date.parse(text(record['posted_at'])) < 1_000
          ? { ...record, status: 'processing', posted_at: null }
          : record,
      ),
    MANY,
  ),
  // Equality of ids.
  ...(
    [
      ['compares ids case-insensitively', (id) => id.toLowerCase()],
      ['truncates ids to 50 characters', (id) => id.slice(0, 50)],
      ['trims trailing dots from ids', (id) => id.replace(/\.+$/, '')],
      ['cuts a numbered suffix off ids', (id) => id.replace(/[-.]\d$/, '')],
      ['folds UUIDs in upper case', (id) => (/^[0-9a-f-]{36}$/i.test(id) ? id.toLowerCase() : id)],
      ['converts numeric ids to numbers', (id) => (/^\d+$/.test(id) ? String(Number(id)) : id)],
    ] satisfies [string, (id: string) => string][]
  ).map(([wrong, fold]) => fails('P65', wrong, () => keyed(fold))),
  fails('P65', 'trims white space off ids', () => ({
    ...always((_partner, call) => {
      const platform_payment_id = idOf(call).trim();
      if (platform_payment_id !== '') Object.assign(call.params, { platform_payment_id });
    }),
    // The id in the body is that in the path once it is trimmed too.
    validate: (call, problems) => (call.text.includes(' "}') ? [] : problems),
  })),
  warns(
    'P04',
    'grants every scope of the client, whatever was asked for',
    () => changeToken({ scope: 'read write' }),
    OAUTH,
  ),
];
