/** Checks of the request for a token (T01, T03, T08, T10, T13, T18, T19): which bodies must get one, which must not, and what it is. */
import { isDateTime, parseInstant } from '@duebridge/contract';
import type { TokenCase } from '../check/check.ts';
import type { Level, More } from '../check/findings.ts';
import { asObject, isJson, isSuccess, type Reply } from '../check/http.ts';
import type { PlatformTarget } from '../check/target.ts';
import {
  fullBody,
  leastBody,
  tokenOf,
  type TokenBody,
  type TokenContext,
} from '../check/token-context.ts';

const t01: TokenCase = {
  id: 'T01',
  title: 'A token request with every field is accepted',
  clauses: ['A2', 'TK1', 'A1', 'S1'],
  likely_cause: 'The response has more fields or another status, or an optional field is refused.',
  async run(t) {
    const reply = await t.create();
    const { headers } = reply;
    const isIssued = reply.status === 200 && isJson(reply) && tokenOf(reply) !== undefined;
    t.must(isIssued, '200 with {"token": "…"}', reply);
    const named = 'the header X-Request-Id, which identifies the response in a log';
    t.strict(headers['x-request-id'] !== undefined, named, reply, { got: 'none', clause: 'ER3' });
    if (tokenOf(reply) === undefined) return;
    const { 'token-expires-at': expires = '' } = headers;
    const instant = isDateTime(expires) ? (parseInstant(expires) ?? 0) : undefined;
    const got = expires || 'none';
    const dated = 'the header Token-Expires-At, an ISO 8601 time';
    t.strict(instant !== undefined, dated, reply, { got });
    const sent = new Date(reply.sent).toISOString();
    const later = `a Token-Expires-At after the request, which was sent at ${sent}`;
    t.strict(instant === undefined || instant > reply.sent, later, reply, {
      got,
      cause: 'The header holds the time of issue, or local time without its offset.',
    });
    const fields = Object.keys(asObject(reply.json) ?? {});
    t.must(fields.length === 1, 'the single field token', reply, { got: fields.join(', ') });
  },
};

/** The smallest body with an address that is changed, or with a balance. */
const inAddress = (change: TokenBody): TokenBody => ({
  ...leastBody(),
  address: { ...leastBody().address, ...change },
});
const withBalance = (balance: TokenBody): TokenBody => ({ ...leastBody(), balance });

/** A body that must not get a token: what it is, itself, and how it counts when it gets one. */
type Refused = readonly [what: string, body: TokenBody | string, level?: Level];

/** A check of bodies that must be refused, as errors of the caller. */
const refusing = (
  info: Omit<TokenCase, 'run'>,
  bodies: (target: PlatformTarget) => readonly Refused[],
): TokenCase => ({
  ...info,
  async run(t) {
    for (const [what, body, level] of bodies(t.target)) {
      if (level === 'strict' && t.profile !== 'strict') continue;
      const reply = await t.create(body);
      if (!t.refused(reply, what, level)) continue;
      t.should((reply.status ?? 500) < 500, `a refusal (4xx) of ${what}`, reply, { clause: 'ER3' });
      const isInvalid =
        reply.status === 400 && asObject(reply.json)?.['code'] === 'INVALID_REQUEST';
      t.strict(isInvalid, `400 INVALID_REQUEST for ${what}`, reply, { clause: 'ER3' });
    }
  },
});

const t03 = refusing(
  {
    id: 'T03',
    title: 'A token request without a required field is refused',
    clauses: ['TR1', 'TR2', 'TR4', 'ER3'],
    likely_cause: 'The body is stored without validation, or a missing field becomes empty.',
  },
  (target) => [
    ...without(leastBody(), ''),
    // Other fields must not make up for a missing one, such as a first name of two words for the last name.
    ...without({ ...fullBody(target), first_name: 'Ada Mary' }, ', with every other field'),
    [
      'external_identifiers without account_id',
      { ...leastBody(), external_identifiers: { biller_id: target.biller_id ?? 'a-biller' } },
    ],
    // Not the last name: some people have only one name.
    ...['first_name', 'email', 'phone_number'].map((name): Refused => [
      `an empty ${name}`,
      { ...leastBody(), [name]: '' },
      'strict',
    ]),
    ...['address_line_1', 'city', 'zip'].map((name): Refused => [
      `an empty address.${name}`,
      inAddress({ [name]: '' }),
      'strict',
    ]),
  ],
);

/** The body without each required field in turn. */
function without(
  body: TokenBody & { readonly address: TokenBody },
  among: string,
): readonly Refused[] {
  const omit = (from: TokenBody, name: string): TokenBody => ({ ...from, [name]: undefined });
  const { address, ...least } = leastBody();
  return [
    ...Object.keys({ ...least, address }).map((name): Refused => [
      `a body without ${name}${among}`,
      omit(body, name),
    ]),
    ...Object.keys(address).map((name): Refused => [
      `a body without address.${name}${among}`,
      { ...body, address: omit(body.address, name) },
    ]),
  ];
}

const t08: TokenCase = {
  id: 'T08',
  title: 'biller_id is required from an aggregator and optional for a biller',
  clauses: ['TR4'],
  likely_cause: 'biller_id is required from every client, or from none.',
  async run(t: TokenContext) {
    const { account_id, kind } = t.target;
    t.given(account_id !== undefined, 'the target declares no account_id');
    const external_identifiers = { account_id };
    const reply = await t.create({ ...fullBody(t.target), external_identifiers });
    const isIssued = reply.status === 200 && tokenOf(reply) !== undefined;
    if (kind === 'aggregator') t.refused(reply, 'an aggregator’s request without biller_id');
    else t.must(isIssued, '200 with a token: a biller has one biller_id', reply);
  },
};

/** Values that a field of the balance must not have. */
const balances = (
  name: string,
  values: readonly unknown[],
  level: Level = 'must',
): readonly Refused[] =>
  values.map((value) => [
    `${name} ${JSON.stringify(value)}`,
    withBalance({ [name]: value }),
    level,
  ]);

const t10 = refusing(
  {
    id: 'T10',
    title: 'Invalid field values are refused',
    clauses: ['TR2', 'TR3', 'S5', 'LI1'],
    likely_cause: 'Strings become numbers, or a date is checked for its format but not to exist.',
  },
  () => [
    ...['Texas', 'T1', 'T', 'TX\n', 'TX ', ' TX'].map((state): Refused => [
      `state ${JSON.stringify(state)}`,
      inAddress({ state }),
    ]),
    ...balances('amount_due_in_cents', [12.5, '1250', true]),
    ...balances('due_date', ['2026-13-01', '2026-02-30', '03/01/2026', '2026-03-01T00:00:00Z']),
    ...balances('due_date', [20_260_301]),
    ...balances('last_updated_at', ['yesterday', 1_772_357_400, '2026-03-01T25:00:00Z']),
    // `$` in many regular expressions lets a newline at the end through; a lenient platform may trim it.
    ...balances('due_date', ['2030-01-31\n'], 'should'),
    ...balances('last_updated_at', ['2026-03-01'], 'should'),
  ],
);

const t18 = refusing(
  {
    id: 'T18',
    title: 'A body that is not a token request is refused',
    clauses: ['TR1', 'A1', 'ER3'],
    likely_cause: 'The parser’s exception is not caught, or fields are read without a type check.',
  },
  (target) => {
    const least = JSON.stringify(leastBody());
    const full = fullBody(target);
    const { external_identifiers: ids = {} } = full;
    const types: readonly (readonly [string, unknown])[] = [
      ['first_name', 7],
      ['last_name', {}],
      ['email', null],
      ['address', { ...full.address, zip: 78_701 }],
      ['address', { ...full.address, city: 78_701 }],
      ['phone_number', 15_125_550_100],
      ['address', '1 Main Street'],
      ['address', []],
      ['balance', 'nothing'],
      ['balance', []],
      ['external_identifiers', 'A-1'],
      ['external_identifiers', { ...ids, account_id: 17 }],
    ];
    return [
      ['a truncated body', least.slice(0, least.length / 2)],
      ['an empty body', ''],
      ['an array', `[${least}]`],
      ['a string', JSON.stringify(least)],
      ['a number', '7'],
      ['null', 'null'],
      ['deeply nested brackets', '['.repeat(5_000)],
      ['an object without fields', '{}'],
      ...types.map(([name, value]): Refused => [
        `${name} as ${JSON.stringify(value)}`,
        { ...full, [name]: value },
      ]),
    ];
  },
);

/** A request that must get a token: what is unusual about it, and how it counts when it gets none. */
interface Accepted extends More {
  readonly what: string;
  readonly body?: TokenBody;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  readonly chunked?: true;
  readonly level?: Level;
  /** A status other than 200 that is right as well. */
  readonly also?: number;
}

const UNUSUAL: readonly Accepted[] = [
  ...(
    [
      ['only the required fields', {}],
      ['phone_number "(512) 555-0100"', { phone_number: '(512) 555-0100' }],
      ['phone_number "512.555.0100"', { phone_number: '512.555.0100' }],
      ['first_name "Zoë"', { first_name: 'Zoë', last_name: 'O’Connor-Núñez' }],
      ['first_name "𠮷野", four bytes per letter', { first_name: '𠮷野' }],
      ['names of 60 letters', { first_name: 'A'.repeat(60), last_name: 'b'.repeat(60) }],
      ['last_name "Null"', { last_name: 'Null' }],
      ['first_name "None"', { first_name: 'None', last_name: 'Undefined' }],
      ['email with a plus', { email: 'ada+bills@example.co.uk' }],
    ] as const
  ).map(([what, fields]) => ({ what, body: { ...leastBody(), ...fields } })),
  ...(
    [
      ['zip "78701-1234"', { zip: '78701-1234' }],
      ['zip "02134", with a leading zero', { city: 'Boston', state: 'MA', zip: '02134' }],
      ['state "DC"', { city: 'Washington', state: 'DC', zip: '20001' }],
      ['a city outside ASCII', { city: 'Cañon City' }],
    ] as const
  ).map(([what, address]) => ({ what, body: inAddress(address) })),
  ...(
    [
      ['a balance of zero', { amount_due_in_cents: 0 }],
      ['a credit', { amount_due_in_cents: -2_000 }],
      ['an empty balance', {}],
      ['a balance of zero with a due date', { amount_due_in_cents: 0, due_date: '2030-01-31' }],
      ['a due date in the past', { due_date: '2020-01-31' }],
      ['a due date on February 29', { due_date: '2028-02-29' }],
      ['a time with an offset', { last_updated_at: '2026-03-01T09:30:00-06:00' }],
      ['an offset of five and a half hours', { last_updated_at: '2026-03-01T09:30:00+05:30' }],
      ['a time with microseconds', { last_updated_at: '2026-03-01T09:30:00.123456Z' }],
    ] as const
  ).map(([what, balance]) => ({ what, body: withBalance(balance) })),
  // Territories and military mail, with a ZIP code of each. A platform may serve only some of them.
  ...Object.entries({ PR: '00901', GU: '96910', AE: '09012' }).map(([state, zip]): Accepted => ({
    what: `state "${state}", the two-letter code of a territory or of military mail`,
    body: inAddress({ state, zip }),
    level: 'should',
    clause: 'TR2',
    cause: 'The list of states has fifty entries.',
  })),
  ...['application/json; charset=utf-8', 'Application/JSON'].map((type): Accepted => ({
    what: `the content type "${type}", which many clients send`,
    headers: { 'content-type': type },
    level: 'should',
    clause: 'A1',
    cause: 'The header is compared as a string instead of being parsed as a media type.',
  })),
  {
    what: 'a body in chunks, without Content-Length; or 411',
    chunked: true,
    level: 'should',
    // HTTP lets a server demand Content-Length.
    also: 411,
    clause: 'A1',
    cause: 'The body is read only as far as Content-Length says.',
  },
];

/** The requests that depend on the target: header names in capitals, and an unknown field at each level. */
function accepted(target: PlatformTarget): readonly Accepted[] {
  const full: TokenBody = fullBody(target);
  const more = { a_field_of_tomorrow: 'duebridge' };
  const small = { 'x-client-id': undefined, 'x-api-key': undefined, 'content-type': undefined };
  return [
    ...UNUSUAL,
    {
      what: 'header names in capitals: HTTP ignores their case',
      headers: {
        ...small,
        'X-CLIENT-ID': target.client_id,
        'X-API-KEY': target.api_key,
        'CONTENT-TYPE': 'application/json',
      },
      also: 429,
      clause: 'A1',
      cause: 'A header is looked up in one spelling of its name.',
    },
    ...['', 'address', 'balance', 'external_identifiers']
      .filter((part) => part === '' || part in full)
      .map((part): Accepted => ({
        what: `an unknown field ${part === '' ? 'beside the others' : `in ${part}`}, so that the interface can grow`,
        body: {
          ...full,
          ...(part === '' ? more : { [part]: { ...(full[part] as TokenBody), ...more } }),
        },
        level: 'strict',
        clause: 'VE1',
      })),
  ];
}

/** The longest string that decision 16 allows. */
const LONG = 256;

const t19: TokenCase = {
  id: 'T19',
  title: 'Unusual but valid values are accepted',
  clauses: ['TR1', 'TR2', 'TR3', 'A1'],
  likely_cause: 'A pattern accepts only values like the example in the documentation.',
  async run(t) {
    for (const one of accepted(t.target)) {
      const { what, body = leastBody(), headers, chunked, level = 'must', also, ...more } = one;
      const reply = await t.create(body, headers, chunked && { chunked });
      const isRight = tokenOf(reply) !== undefined && reply.status === 200;
      t[level](isRight || reply.status === also, `200 with a token for ${what}`, reply, more);
    }
    const email = `${'a'.repeat(60)}@${'example.'.repeat(20)}com`;
    const long = await t.create({ ...leastBody(), last_name: 'N'.repeat(LONG), email });
    const either = `a token, or a refusal (4xx), for a last name of ${LONG} letters`;
    t.should((long.status ?? 500) < 500, either, long, {
      clause: 'ER3',
      cause: 'The length is not validated; the database rejects the value.',
    });
  },
};

/** Concurrent requests: fast, yet far below the burst of any rate limit. */
const AT_ONCE = 10;

/** First names and email addresses of customers whom a careless key takes for one. */
const SIMILAR: readonly (readonly [string, string])[] = [
  ['Joan', 'jo.an@example.com'],
  ['Jonathan', 'joan@example.com'],
  ['Joanna', 'joan+home@example.com'],
  ['Jo', 'joan+work@example.com'],
  // Spouses share an address.
  ['John', 'joan@example.com'],
];

/** Shortest token that can carry 128 bits, which nobody can guess (decision 8 gives 256). */
const LEAST_CHARACTERS = 22;

const t13: TokenCase = {
  id: 'T13',
  title: 'Every token is different and unguessable',
  clauses: ['TK1', 'S1'],
  likely_cause: 'The token is a counter, a copy of customer data, or in a variable that is shared.',
  async run(t: TokenContext) {
    const full = fullBody(t.target);
    const customers = [
      full,
      { ...full, first_name: 'Grace', email: 'grace@example.com' },
      { ...leastBody(), first_name: 'Alan', last_name: 'Other', email: 'alan@example.com' },
      ...SIMILAR.map(([first_name, email]) => ({ ...leastBody(), first_name, email })),
    ];
    const replies: Reply[] = [];
    for (const body of customers) replies.push(await t.create(body));
    const crowd = Array.from({ length: AT_ONCE }, (_, place) =>
      t.create({ ...leastBody(), email: `customer-${place}@example.com` }),
    );
    replies.push(...(await Promise.all(crowd)));
    // Then one customer many times, so that a pattern shows.
    const first = replies.length;
    while (replies.length - first < t.target.token_sample) {
      const some = await Promise.all(Array.from({ length: AT_ONCE }, () => t.create(leastBody())));
      replies.push(...some);
      if (!some.some(isSuccess)) break;
    }
    const tokens = replies.flatMap((reply) => tokenOf(reply) ?? []);
    const last = replies.at(-1);
    t.given(tokens.length > 1, 'fewer than two tokens were issued');
    // The interface does not forbid to give a customer who asks again the same token.
    const ofCustomers = replies.slice(0, first).flatMap((reply) => tokenOf(reply) ?? []);
    for (const [level, some, to] of [
      ['must', ofCustomers, 'as many customers'],
      ['should', tokens, 'as many requests'],
    ] as const) {
      const different = new Set(some).size;
      const isEach = different === some.length;
      const expected = `${some.length} different tokens for ${to}`;
      if (!t[level](isEach, expected, last, { got: `${different} different ones` })) break;
    }
    t.should(!tokens.some(hasPersonalData), 'no personal data inside a token', last, {
      got: 'a token contains a name, an email address or a phone number, plain or encoded',
    });
    const varying = positionsThatVary(tokens);
    const expected = `at least ${LEAST_CHARACTERS} characters that differ from token to token`;
    t.should(varying >= LEAST_CHARACTERS, expected, last, { got: `${varying} do` });
  },
};

/** True when the token, or any part of it decoded as base64 or hexadecimal, reveals something about the customer. */
function hasPersonalData(token: string): boolean {
  const decoded = token
    .split(/[._~-]/)
    .flatMap((part) =>
      (['base64url', 'hex'] as const).map((form) => Buffer.from(part, form).toString('latin1')),
    );
  return [token, ...decoded].some((text) => /ada@example|ada.{0,3}example|5125550100/i.test(text));
}

/** Number of positions at which more than one third of the tokens differ from the most common character. */
function positionsThatVary(tokens: readonly string[]): number {
  const longest = Math.max(...tokens.map((token) => token.length));
  const places = Array.from({ length: longest }, (_, place) => place);
  return places.filter((place) => {
    const same = Map.groupBy(tokens, (token) => token[place] ?? '');
    const most = Math.max(...[...same.values()].map(({ length }) => length));
    return most <= (tokens.length * 2) / 3;
  }).length;
}

export const TOKEN_REQUESTS = [t01, t03, t08, t10, t13, t18, t19];
