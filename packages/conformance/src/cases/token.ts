/** Checks of the request for a token (T01 to T03, T08 to T10, T13, T18, T19): which bodies must get one, which must not, and what it is. */
import { isDateTime, parseInstant } from '@duebridge/contract';
import type { Draft, TokenCase } from '../check/check.ts';
import type { Level, More } from '../check/findings.ts';
import { asObject, isJson, isSuccess, show, type Reply } from '../check/http.ts';
import type { PlatformTarget } from '../check/target.ts';
import {
  credentials,
  fullBody,
  leastBody,
  tokenOf,
  type TokenBody,
  type TokenContext,
} from '../check/token-context.ts';

const t01: Draft<TokenCase> = {
  id: 'T01',
  title: 'A token request with every field is accepted',
  clauses: ['A2', 'TK1', 'A1', 'S1'],
  sends: 'POST create token with every field of the interface',
  likely_cause:
    'The response has additional fields, such as the expiry, or a status other than 200; or an optional field is refused, such as a biller_id that is not this client’s.',
  async run(t) {
    const reply = await t.create();
    const { headers } = reply;
    const isIssued = reply.status === 200 && isJson(reply) && tokenOf(reply) !== undefined;
    t.must(isIssued, '200 with {"token": "…"}', reply);
    const named = 'the header X-Request-Id, which identifies the response in a log';
    t.strict(headers['x-request-id'] !== undefined, named, reply, { got: 'none', clause: 'ER3' });
    if (tokenOf(reply) === undefined) return;
    const expires = headers['token-expires-at'];
    const instant =
      expires !== undefined && isDateTime(expires) ? (parseInstant(expires) ?? 0) : undefined;
    const got = show(expires);
    const dated = 'the header Token-Expires-At, an ISO 8601 time';
    t.strict(instant !== undefined, dated, reply, { got });
    const sent = new Date(reply.sent).toISOString();
    const later = `a Token-Expires-At after the request, which was sent at ${sent}`;
    t.strict(instant === undefined || instant > reply.sent, later, reply, {
      got,
      cause: 'The header holds the time of issue, or local time without its offset.',
    });
    const fields = Object.keys(asObject(reply.json) ?? {});
    t.must(fields.length === 1, 'the single field token', reply, {
      got: `the fields ${fields.join(', ')}`,
    });
  },
};

const t02: Draft<TokenCase> = {
  id: 'T02',
  title: 'A token request with only the required fields is accepted',
  clauses: ['TR1'],
  sends: 'POST create token without address_line_2, balance and external_identifiers',
  likely_cause:
    'The schema requires an optional field, or the code reads it without checking that it is present.',
  async run(t) {
    t.issued(await t.create(leastBody()), '');
  },
};

const t03: Draft<TokenCase> = {
  id: 'T03',
  title: 'A token request without a required field is refused',
  clauses: ['TR1', 'TR2', 'TR4', 'ER3'],
  sends:
    'POST create token with each required field omitted in turn, from the smallest body and from one with every field; or (strict) empty',
  likely_cause:
    'The body is stored without validation, or a missing field becomes an empty string.',
  async run(t) {
    // Other fields must not make up for a missing one, such as a first name of two words for the last name.
    const full = { ...fullBody(t.target), first_name: 'Ada Mary' };
    const lacking = [...without(leastBody(), ''), ...without(full, ', with every other field')];
    for (const [name, body] of lacking) {
      const reply = await t.create(body);
      if (!t.refused(reply, `a body without ${name}`)) continue;
      const { code, message } = asObject(reply.json) ?? {};
      const isFormed = typeof code === 'string' && typeof message === 'string';
      t.must(isFormed, 'a JSON error with code and message', reply);
      const isInvalid = reply.status === 400 && code === 'INVALID_REQUEST';
      t.strict(isInvalid, '400 INVALID_REQUEST', reply);
    }
    if (t.profile !== 'strict') return;
    const least = leastBody();
    // Not the last name: some people have only one name.
    const empty: [string, TokenBody][] = [
      ...['first_name', 'email', 'phone_number'].map((name): [string, TokenBody] => [
        name,
        { ...least, [name]: '' },
      ]),
      ...['address_line_1', 'city', 'zip'].map((name): [string, TokenBody] => [
        `address.${name}`,
        inAddress({ [name]: '' }),
      ]),
    ];
    for (const [name, body] of empty) {
      t.refused(await t.create(body), `an empty ${name}`, 'should');
    }
  },
};

/** The body without each required field in turn, with its name. */
function without(
  body: TokenBody & { readonly address: TokenBody },
  among: string,
): [string, TokenBody][] {
  const omit = (from: TokenBody, name: string): TokenBody =>
    Object.fromEntries(Object.entries(from).filter(([key]) => key !== name));
  const { address } = leastBody();
  return [
    ...Object.keys(leastBody()).map((name): [string, TokenBody] => [name, omit(body, name)]),
    ...Object.keys(address).map((name): [string, TokenBody] => [
      `address.${name}`,
      { ...body, address: omit(body.address, name) },
    ]),
  ].map(([name, lacking]) => [`${name}${among}`, lacking]);
}

/** The smallest body with an address that is changed, or with a balance. */
const inAddress = (change: TokenBody): TokenBody => ({
  ...leastBody(),
  address: { ...leastBody().address, ...change },
});
const withBalance = (balance: TokenBody): TokenBody => ({ ...leastBody(), balance });

const t08: Draft<TokenCase> = {
  id: 'T08',
  title: 'biller_id is required from an aggregator and optional for a biller',
  clauses: ['TR4'],
  sends: 'POST create token with only account_id in external_identifiers',
  likely_cause: 'biller_id is required from every client, or from none.',
  async run(t: TokenContext) {
    const { account_id, kind } = t.target;
    t.given(account_id !== undefined, 'the target declares no account_id');
    const external_identifiers = { account_id };
    const reply = await t.create({ ...fullBody(t.target), external_identifiers });
    if (kind === 'aggregator') t.refused(reply, 'an aggregator’s request without biller_id');
    else t.issued(reply, ': a biller has one biller_id');
  },
};

const t09: Draft<TokenCase> = {
  id: 'T09',
  title: 'external_identifiers without account_id is refused',
  clauses: ['TR4'],
  sends: 'POST create token with only biller_id in external_identifiers',
  likely_cause: 'The object is optional, so its fields are treated as optional too.',
  async run(t) {
    const external_identifiers = { biller_id: t.target.biller_id ?? 'a-biller' };
    const reply = await t.create({ ...leastBody(), external_identifiers });
    t.refused(reply, 'external_identifiers without account_id');
  },
};

/** Values that no field may have, each in a body, with how it counts that one gets a token. */
const INVALID: readonly (readonly [what: string, body: TokenBody, level?: Level])[] = [
  ...['Texas', 'T1', 'T', 'TX\n', 'TX ', ' TX'].map(
    (state) => [`state ${JSON.stringify(state)}`, inAddress({ state })] as const,
  ),
  ...[12.5, '1250', true].map(
    (cents) =>
      [
        `amount_due_in_cents ${JSON.stringify(cents)}`,
        withBalance({ amount_due_in_cents: cents }),
      ] as const,
  ),
  ...['2026-13-01', '2026-02-30', '03/01/2026', '2026-03-01T00:00:00Z', 20_260_301].map(
    (due_date) => [`due_date ${due_date}`, withBalance({ due_date })] as const,
  ),
  ...['yesterday', 1_772_357_400, '2026-03-01T25:00:00Z'].map(
    (last_updated_at) =>
      [`last_updated_at ${last_updated_at}`, withBalance({ last_updated_at })] as const,
  ),
  // `$` in many regular expressions lets a newline at the end through; a lenient platform may trim it.
  ['due_date followed by a newline', withBalance({ due_date: '2030-01-31\n' }), 'should'],
  [
    'last_updated_at as a date without a time',
    withBalance({ last_updated_at: '2026-03-01' }),
    'should',
  ],
];

const t10: Draft<TokenCase> = {
  id: 'T10',
  title: 'Invalid field values are refused',
  clauses: ['TR2', 'TR3', 'S5', 'LI1'],
  sends:
    'POST create token with state "Texas", "T1" or "T", a state with white space around it, a due_date followed by a newline, amount_due_in_cents 12.5, "1250" or true, a due_date that does not exist or has another format, and a last_updated_at that is a number, a word or a date without a time',
  likely_cause:
    'The framework converts strings to numbers, or checks a date’s format but not that the date exists.',
  async run(t) {
    for (const [what, body, level] of INVALID) t.refused(await t.create(body), what, level);
  },
};

/** Bodies that are no token request. */
function noRequests(target: PlatformTarget): [what: string, body: string][] {
  const least = JSON.stringify(leastBody());
  const full = fullBody(target);
  const { external_identifiers: ids = {} } = full;
  const types: [string, unknown][] = [
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
    ...types.map(([name, value]): [string, string] => [
      `${name} as ${JSON.stringify(value)}`,
      JSON.stringify({ ...full, [name]: value }),
    ]),
  ];
}

const t18: Draft<TokenCase> = {
  id: 'T18',
  title: 'A body that is not a token request is refused',
  clauses: ['TR1', 'A1', 'ER3'],
  sends:
    'POST create token with a truncated body, an empty one, an array, a string, a number, null, deeply nested brackets, and each field with a wrong type',
  likely_cause: 'The parser’s exception is not caught, or fields are read without a type check.',
  async run(t) {
    for (const [what, body] of noRequests(t.target)) {
      const reply = await t.create(body);
      if (!t.refused(reply, what)) continue;
      t.should((reply.status ?? 500) < 500, `a refusal (4xx) of ${what}`, reply, {
        got: `${reply.status ?? 'no answer'}`,
        clause: 'ER3',
      });
    }
  },
};

/** The longest string that decision 16 allows. */
const LONG = 256;

/** Valid values unlike those of an example, each in a body. */
const UNUSUAL: readonly (readonly [what: string, body: TokenBody])[] = [
  ...(
    [
      ['phone_number "(512) 555-0100"', { phone_number: '(512) 555-0100' }],
      ['phone_number "512.555.0100"', { phone_number: '512.555.0100' }],
      ['first_name "Zoë"', { first_name: 'Zoë', last_name: 'O’Connor-Núñez' }],
      ['first_name "𠮷野", four bytes per letter', { first_name: '𠮷野' }],
      ['names of 60 letters', { first_name: 'A'.repeat(60), last_name: 'b'.repeat(60) }],
      ['last_name "Null"', { last_name: 'Null' }],
      ['first_name "None"', { first_name: 'None', last_name: 'Undefined' }],
      ['email with a plus', { email: 'ada+bills@example.co.uk' }],
    ] as const
  ).map(([what, fields]) => [what, { ...leastBody(), ...fields }] as const),
  ['zip "78701-1234"', inAddress({ zip: '78701-1234' })],
  ['zip "02134", with a leading zero', inAddress({ city: 'Boston', state: 'MA', zip: '02134' })],
  ['state "DC"', inAddress({ city: 'Washington', state: 'DC', zip: '20001' })],
  ['a city outside ASCII', inAddress({ city: 'Cañon City' })],
  ['a balance of zero', withBalance({ amount_due_in_cents: 0 })],
  ['a credit', withBalance({ amount_due_in_cents: -2_000 })],
  ['an empty balance', withBalance({})],
  ...(
    [
      ['a balance of zero with a due date', { amount_due_in_cents: 0, due_date: '2030-01-31' }],
      ['a due date in the past', { due_date: '2020-01-31' }],
      ['a due date on February 29', { due_date: '2028-02-29' }],
      ['a time with an offset', { last_updated_at: '2026-03-01T09:30:00-06:00' }],
      ['an offset of five and a half hours', { last_updated_at: '2026-03-01T09:30:00+05:30' }],
      ['a time with microseconds', { last_updated_at: '2026-03-01T09:30:00.123456Z' }],
    ] as const
  ).map(([what, balance]) => {
    return [what, withBalance({ amount_due_in_cents: 12_500, ...balance })] as const;
  }),
];

/** Two-letter codes of territories and of military mail, with a ZIP code of each. */
const TERRITORIES = { PR: '00901', GU: '96910', AE: '09012' };

const t19: Draft<TokenCase> = {
  id: 'T19',
  title: 'Unusual but valid values are accepted',
  clauses: ['TR1', 'TR2', 'TR3', 'A1'],
  sends:
    'POST create token with a phone number that is not in E.164, names and cities with characters outside ASCII and outside 16 bits, long names, the last name Null, ZIP codes of nine digits and with a leading zero, states outside the fifty, a balance of zero or below, due dates in the past and on a leap day, times with offsets and fractions, header names in capitals, a content type with a charset, an unknown field at each level, a body in chunks, and Accept-Encoding: identity',
  likely_cause: 'A pattern accepts only values like the example in the documentation.',
  async run(t) {
    for (const [what, body] of UNUSUAL) t.issued(await t.create(body), ` for ${what}`);
    const good = (reply: Reply, level: Level, what: string, more: More, also = 200): boolean =>
      t[level]([200, also].includes(reply.status ?? 0), `200 ${what}`, reply, more);
    for (const [state, zip] of Object.entries(TERRITORIES)) {
      const reply = await t.create(inAddress({ state, zip }));
      const what = `with a token for state "${state}", the two-letter code of a territory or of military mail`;
      // A platform may serve only some of them.
      good(reply, 'should', what, {
        clause: 'TR2',
        cause: 'The list of states has fifty entries.',
      });
    }
    const least = leastBody();
    const loud = await t.send({
      method: 'POST',
      url: t.url,
      headers: upperCase(credentials(t.target, {})),
      body: JSON.stringify(least),
    });
    const capitals = 'with a token for header names in capitals: HTTP ignores their case';
    const spelling = 'A header is looked up in one spelling of its name.';
    good(loud, 'must', capitals, { clause: 'A1', cause: spelling }, 429);
    for (const type of ['application/json; charset=utf-8', 'Application/JSON']) {
      const typed = await t.create(least, { 'content-type': type });
      good(
        typed,
        'should',
        `with a token for the content type "${type}", which many clients send`,
        {
          clause: 'A1',
          cause: 'The header is compared as a string instead of being parsed as a media type.',
        },
      );
    }
    const email = `${'a'.repeat(60)}@${'example.'.repeat(20)}com`;
    const long = await t.create({ ...least, last_name: 'N'.repeat(LONG), email });
    const either = `a token, or a refusal (4xx), for a last name of ${LONG} letters`;
    t.should((long.status ?? 500) < 500, either, long, {
      clause: 'ER3',
      cause: 'The length is not validated; the database rejects the value.',
    });
    for (const [place, body] of unknownFields(t.target)) {
      const reply = await t.create(body);
      const what = `: an unknown field ${place} is ignored, so that the interface can grow`;
      good(reply, 'strict', what, { clause: 'VE1' });
    }
    const chunked = await t.create(least, {}, { chunked: true });
    const chunks = 'with a token for a body in chunks, without Content-Length; or 411';
    const length = 'The body is read only as far as Content-Length says.';
    // HTTP lets a server demand Content-Length.
    good(chunked, 'should', chunks, { clause: 'A1', cause: length }, 411);
    const plain = await t.create(least, { 'accept-encoding': 'identity' });
    const encoding = plain.headers['content-encoding'] ?? 'identity';
    const none = 'a response without compression for a client that accepts none';
    t.should(encoding === 'identity', none, plain, {
      got: `content-encoding ${encoding}`,
      clause: 'A2',
      cause: 'The response is compressed without reading Accept-Encoding.',
    });
  },
};

function upperCase(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value]),
  );
}

/** A field that the interface does not have, at each level of the request. */
function unknownFields(target: PlatformTarget): [string, TokenBody][] {
  const full: TokenBody = fullBody(target);
  const more = { a_field_of_tomorrow: 'duebridge' };
  const parts = ['address', 'balance', 'external_identifiers'].filter((name) => name in full);
  return [
    ['beside the others', { ...full, ...more }],
    ...parts.map((name): [string, TokenBody] => [
      `in ${name}`,
      { ...full, [name]: { ...(full[name] as TokenBody), ...more } },
    ]),
  ];
}

/** Concurrent requests: fast, yet far below the burst of any rate limit. */
const AT_ONCE = 10;

/** Shortest token that can carry 128 bits, which nobody can guess (decision 8 gives 256). */
const LEAST_CHARACTERS = 22;

const t13: Draft<TokenCase> = {
  id: 'T13',
  title: 'Tokens are unique and unguessable',
  clauses: ['TK1'],
  severity: 'should',
  sends: 'the same token request many times (token_sample, a thousand by default)',
  likely_cause: 'The token is a counter, a timestamp, or an encoded copy of the customer’s data.',
  async run(t: TokenContext) {
    const replies: Reply[] = [];
    const wanted = t.target.token_sample;
    while (replies.length < wanted) {
      const length = Math.min(AT_ONCE, wanted - replies.length);
      const some = await Promise.all(Array.from({ length }, () => t.create(leastBody())));
      replies.push(...some);
      if (!some.some(isSuccess)) break;
    }
    const tokens = replies.flatMap((reply) => tokenOf(reply) ?? []);
    const last = replies.at(-1);
    t.given(tokens.length > 1, 'fewer than two tokens were issued');
    const different = new Set(tokens).size;
    t.should(different === tokens.length, `${tokens.length} different tokens`, last, {
      got: `${different} different ones`,
    });
    t.should(!tokens.some(hasPersonalData), 'no personal data inside a token', last, {
      got: 'a token contains the customer’s name, email address or phone number, in plain text or encoded',
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

export const TOKEN_REQUESTS = [t01, t02, t03, t08, t09, t10, t13, t18, t19];
