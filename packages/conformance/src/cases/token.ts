/** Checks of the request for a token (T01 to T03, T08 to T10, T13, T18, T19): which bodies must get one, which must not, and what it is. */
import { isDateTime, parseInstant } from '@duebridge/contract';
import type { Draft, TokenCase } from '../check/check.ts';
import { asObject, isJson, isSuccess, type Reply, show } from '../check/http.ts';
import type { PlatformTarget } from '../check/target.ts';
import {
  credentials,
  fullBody,
  leastBody,
  type TokenBody,
  type TokenContext,
  tokenOf,
} from '../check/token-context.ts';

const t01: Draft<TokenCase> = {
  id: 'T01',
  title: 'A token request with every field is accepted',
  clauses: ['A2', 'TK1', 'A1', 'S1'],
  decisions: [5, 8],
  sends: 'POST create token with every field of the interface',
  likely_cause:
    'The response has additional fields, such as the expiry, or a status other than 200; or an optional field is refused, such as a biller_id that is not this client’s.',
  async run(t) {
    const reply = await t.create();
    t.must(
      reply.status === 200 && isJson(reply) && tokenOf(reply) !== undefined,
      '200 with {"token": "…"}',
      reply,
    );
    t.strict(
      reply.headers['x-request-id'] !== undefined,
      'the header X-Request-Id, which identifies the response in a log',
      reply,
      { got: 'none', clause: 'ER3' },
    );
    const expires = reply.headers['token-expires-at'];
    const dated =
      expires !== undefined && isDateTime(expires) ? (parseInstant(expires) ?? 0) : undefined;
    t.strict(
      tokenOf(reply) === undefined || dated !== undefined,
      'the header Token-Expires-At, an ISO 8601 time',
      reply,
      { got: show(expires) },
    );
    t.strict(
      tokenOf(reply) === undefined || dated === undefined || dated > reply.sent,
      `a Token-Expires-At after the request, which was sent at ${new Date(reply.sent).toISOString()}`,
      reply,
      {
        got: show(expires),
        cause: 'The header holds the time of issue, or local time without its offset.',
      },
    );
    const fields = Object.keys(asObject(reply.json) ?? {});
    t.must(tokenOf(reply) === undefined || fields.length === 1, 'the single field token', reply, {
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
    const reply = await t.create(leastBody());
    t.must(reply.status === 200 && tokenOf(reply) !== undefined, '200 with a token', reply);
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
    for (const [name, body] of lacking(t.target)) {
      const reply = await t.create(body);
      const refused = t.refused(reply, `a body without ${name}`);
      if (!refused || isSuccess(reply)) continue;
      const error = asObject(reply.json);
      t.must(
        typeof error?.['code'] === 'string' && typeof error['message'] === 'string',
        'a JSON error with code and message',
        reply,
      );
      t.strict(
        reply.status === 400 && error?.['code'] === 'INVALID_REQUEST',
        '400 INVALID_REQUEST',
        reply,
      );
    }
    if (t.profile !== 'strict') return;
    for (const [name, body] of empty(t.target)) {
      t.refused(await t.create(body), `an empty ${name}`, 'should');
    }
  },
};

/** Required fields as empty strings, except the last name: some people have only one name. */
function empty(target: PlatformTarget): [string, TokenBody][] {
  const least = leastBody();
  const address = fullBody(target)['address'] as TokenBody;
  return [
    ...['first_name', 'email', 'phone_number'].map((name): [string, TokenBody] => [
      name,
      { ...least, [name]: '' },
    ]),
    ...['address_line_1', 'city', 'zip'].map((name): [string, TokenBody] => [
      `address.${name}`,
      { ...least, address: { ...address, [name]: '' } },
    ]),
  ];
}

function lacking(target: PlatformTarget): [string, TokenBody][] {
  const full = { ...fullBody(target), first_name: 'Ada Mary' };
  return [
    ...without(leastBody(), target, ''),
    // Other fields must not make up for a missing one, such as a first name of two words for the last name.
    ...without(full, target, ', with every other field'),
  ];
}

function without(body: TokenBody, target: PlatformTarget, among: string): [string, TokenBody][] {
  const address = fullBody(target)['address'] as TokenBody;
  const omit = (from: TokenBody, name: string): TokenBody =>
    Object.fromEntries(Object.entries(from).filter(([key]) => key !== name));
  return [
    ...Object.keys(leastBody()).map((name): [string, TokenBody] => [
      `${name}${among}`,
      omit(body, name),
    ]),
    ...['address_line_1', 'city', 'state', 'zip'].map((name): [string, TokenBody] => [
      `address.${name}${among}`,
      { ...body, address: omit(address, name) },
    ]),
  ];
}

const t08: Draft<TokenCase> = {
  id: 'T08',
  title: 'biller_id is required from an aggregator and optional for a biller',
  clauses: ['TR4'],
  decisions: [20],
  sends: 'POST create token with only account_id in external_identifiers',
  likely_cause: 'biller_id is required from every client, or from none.',
  async run(t: TokenContext) {
    const { account_id, kind } = t.target;
    t.given(account_id !== undefined, 'the target declares no account_id');
    const reply = await t.create({
      ...fullBody(t.target),
      external_identifiers: { account_id },
    });
    if (kind === 'aggregator') {
      t.refused(reply, 'an aggregator’s request without biller_id');
      return;
    }
    t.must(
      reply.status === 200 && tokenOf(reply) !== undefined,
      '200 with a token: a biller has one biller_id',
      reply,
    );
  },
};

const t09: Draft<TokenCase> = {
  id: 'T09',
  title: 'external_identifiers without account_id is refused',
  clauses: ['TR4'],
  sends: 'POST create token with only biller_id in external_identifiers',
  likely_cause: 'The object is optional, so its fields are treated as optional too.',
  async run(t) {
    const reply = await t.create({
      ...leastBody(),
      external_identifiers: { biller_id: t.target.biller_id ?? 'a-biller' },
    });
    t.refused(reply, 'external_identifiers without account_id');
  },
};

const t10: Draft<TokenCase> = {
  id: 'T10',
  title: 'Invalid field values are refused',
  clauses: ['TR2', 'TR3', 'S5', 'LI1'],
  decisions: [11],
  sends:
    'POST create token with state "Texas", "T1" or "T", a state with white space around it, a due_date followed by a newline, amount_due_in_cents 12.5, "1250" or true, a due_date that does not exist or has another format, and a last_updated_at that is a number, a word or a date without a time',
  likely_cause:
    'The framework converts strings to numbers, or checks a date’s format but not that the date exists.',
  async run(t) {
    const least = leastBody();
    const address = fullBody(t.target)['address'] as TokenBody;
    const tries: [string, TokenBody][] = [
      ['state "Texas"', { ...least, address: { ...address, state: 'Texas' } }],
      ['state "T1"', { ...least, address: { ...address, state: 'T1' } }],
      ['state "T"', { ...least, address: { ...address, state: 'T' } }],
      ['amount_due_in_cents 12.5', { ...least, balance: { amount_due_in_cents: 12.5 } }],
      ['amount_due_in_cents "1250"', { ...least, balance: { amount_due_in_cents: '1250' } }],
      ['amount_due_in_cents true', { ...least, balance: { amount_due_in_cents: true } }],
      ['due_date 2026-13-01', { ...least, balance: { due_date: '2026-13-01' } }],
      ['due_date 2026-02-30', { ...least, balance: { due_date: '2026-02-30' } }],
      ['due_date 03/01/2026', { ...least, balance: { due_date: '03/01/2026' } }],
      ['due_date with a time', { ...least, balance: { due_date: '2026-03-01T00:00:00Z' } }],
      ['due_date as a number', { ...least, balance: { due_date: 20_260_301 } }],
      ['last_updated_at "yesterday"', { ...least, balance: { last_updated_at: 'yesterday' } }],
      ['last_updated_at as a number', { ...least, balance: { last_updated_at: 1_772_357_400 } }],
      [
        'last_updated_at with hour 25',
        { ...least, balance: { last_updated_at: '2026-03-01T25:00:00Z' } },
      ],
    ];
    for (const [what, body] of tries) t.refused(await t.create(body), what);
    for (const state of ['TX\n', 'TX ', ' TX']) {
      const reply = await t.create({ ...least, address: { ...address, state } });
      t.refused(reply, `state ${JSON.stringify(state)}, which is not a two-letter code`);
    }
    // `$` in many regular expressions lets a newline at the end through; a lenient platform may trim it.
    const ended = await t.create({ ...least, balance: { due_date: '2030-01-31\n' } });
    t.refused(ended, 'due_date followed by a newline', 'should');
    const date = await t.create({ ...least, balance: { last_updated_at: '2026-03-01' } });
    t.refused(date, 'last_updated_at as a date without a time', 'should');
  },
};

const t18: Draft<TokenCase> = {
  id: 'T18',
  title: 'A body that is not a token request is refused',
  clauses: ['TR1', 'A1', 'ER3'],
  sends:
    'POST create token with a truncated body, an empty one, an array, a string, a number, null, deeply nested brackets, and each field with a wrong type',
  likely_cause: 'The parser’s exception is not caught, or fields are read without a type check.',
  async run(t) {
    const least = JSON.stringify(leastBody());
    const full = fullBody(t.target);
    const tries: [string, string][] = [
      ['a truncated body', least.slice(0, least.length / 2)],
      ['an empty body', ''],
      ['an array', `[${least}]`],
      ['a string', JSON.stringify(least)],
      ['a number', '7'],
      ['null', 'null'],
      ['deeply nested brackets', '['.repeat(5_000)],
      ['an object without fields', '{}'],
    ];
    const types: [string, unknown][] = [
      ['first_name', 7],
      ['last_name', {}],
      ['email', null],
      ['address', { ...(full['address'] as object), zip: 78_701 }],
      ['address', { ...(full['address'] as object), city: 78_701 }],
      ['phone_number', 15_125_550_100],
      ['address', '1 Main Street'],
      ['address', []],
      ['balance', 'nothing'],
      ['balance', []],
      ['external_identifiers', 'A-1'],
      [
        'external_identifiers',
        { ...(full['external_identifiers'] as object | undefined), account_id: 17 },
      ],
    ];
    for (const [name, value] of types) {
      tries.push([
        `${name} as ${JSON.stringify(value)}`,
        JSON.stringify({ ...full, [name]: value }),
      ]);
    }
    for (const [what, body] of tries) {
      const reply = await t.create(body);
      if (!t.refused(reply, what)) continue;
      t.should(
        reply.status !== undefined && reply.status < 500,
        `a refusal (4xx) of ${what}`,
        reply,
        { got: `${reply.status ?? 'no answer'}`, clause: 'ER3' },
      );
    }
  },
};

/** Fields of a balance that is due, each with its name in a finding. */
const BALANCES: readonly (readonly [string, TokenBody])[] = [
  ['a balance of zero with a due date', { amount_due_in_cents: 0, due_date: '2030-01-31' }],
  ['a due date in the past', { due_date: '2020-01-31' }],
  ['a due date on February 29', { due_date: '2028-02-29' }],
  ['a time with an offset', { last_updated_at: '2026-03-01T09:30:00-06:00' }],
  ['an offset of five and a half hours', { last_updated_at: '2026-03-01T09:30:00+05:30' }],
  ['a time with microseconds', { last_updated_at: '2026-03-01T09:30:00.123456Z' }],
];

/** The longest string that decision 16 allows. */
const LONG = 256;

const t19: Draft<TokenCase> = {
  id: 'T19',
  title: 'Unusual but valid values are accepted',
  clauses: ['TR1', 'TR2', 'TR3', 'A1'],
  sends:
    'POST create token with a phone number that is not in E.164, names and cities with characters outside ASCII and outside 16 bits, long names, the last name Null, ZIP codes of nine digits and with a leading zero, states outside the fifty, a balance of zero or below, due dates in the past and on a leap day, times with offsets and fractions, header names in capitals, a content type with a charset, an unknown field at each level, a body in chunks, and Accept-Encoding: identity',
  likely_cause: 'A pattern accepts only values like the example in the documentation.',
  async run(t) {
    const least = leastBody();
    const address = fullBody(t.target)['address'] as TokenBody;
    const tries: [string, TokenBody][] = [
      ['phone_number "(512) 555-0100"', { ...least, phone_number: '(512) 555-0100' }],
      ['phone_number "512.555.0100"', { ...least, phone_number: '512.555.0100' }],
      ['first_name "Zoë"', { ...least, first_name: 'Zoë', last_name: 'O’Connor-Núñez' }],
      ['first_name "𠮷野", four bytes per letter', { ...least, first_name: '𠮷野' }],
      ['names of 60 letters', { ...least, first_name: 'A'.repeat(60), last_name: 'b'.repeat(60) }],
      ['last_name "Null"', { ...least, last_name: 'Null' }],
      ['first_name "None"', { ...least, first_name: 'None', last_name: 'Undefined' }],
      ['zip "78701-1234"', { ...least, address: { ...address, zip: '78701-1234' } }],
      [
        'zip "02134", with a leading zero',
        { ...least, address: { ...address, city: 'Boston', state: 'MA', zip: '02134' } },
      ],
      [
        'state "DC"',
        { ...least, address: { ...address, city: 'Washington', state: 'DC', zip: '20001' } },
      ],
      ['a city outside ASCII', { ...least, address: { ...address, city: 'Cañon City' } }],
      ['email with a plus', { ...least, email: 'ada+bills@example.co.uk' }],
      ['a balance of zero', { ...least, balance: { amount_due_in_cents: 0 } }],
      ['a credit', { ...least, balance: { amount_due_in_cents: -2_000 } }],
      ['an empty balance', { ...least, balance: {} }],
      ...BALANCES.map(([what, balance]): [string, TokenBody] => [
        what,
        { ...least, balance: { amount_due_in_cents: 12_500, ...balance } },
      ]),
    ];
    for (const [what, body] of tries) {
      const reply = await t.create(body);
      t.must(
        reply.status === 200 && tokenOf(reply) !== undefined,
        `200 with a token for ${what}`,
        reply,
      );
    }
    for (const [state, zip] of [
      ['PR', '00901'],
      ['GU', '96910'],
      ['AE', '09012'],
    ]) {
      const reply = await t.create({ ...least, address: { ...address, state, zip } });
      // A platform may serve only some of them.
      t.should(
        reply.status === 200,
        `200 with a token for state "${state}", the two-letter code of a territory or of military mail`,
        reply,
        { clause: 'TR2', cause: 'The list of states has fifty entries.' },
      );
    }
    const loud = await t.send({
      method: 'POST',
      url: t.run.url,
      headers: upperCase(credentials(t.target, {})),
      body: JSON.stringify(least),
    });
    t.must(
      loud.status === 200 || loud.status === 429,
      '200 with a token for header names in capitals: HTTP ignores their case',
      loud,
      { clause: 'A1', cause: 'A header is looked up in one spelling of its name.' },
    );
    for (const type of ['application/json; charset=utf-8', 'Application/JSON']) {
      const typed = await t.create(least, { 'content-type': type });
      t.should(
        typed.status === 200,
        `200 with a token for the content type "${type}", which many clients send`,
        typed,
        {
          clause: 'A1',
          cause: 'The header is compared as a string instead of being parsed as a media type.',
        },
      );
    }
    const long = await t.create({
      ...least,
      last_name: 'N'.repeat(LONG),
      email: `${'a'.repeat(60)}@${'example.'.repeat(20)}com`,
    });
    t.should(
      long.status !== undefined && long.status < 500,
      `a token, or a refusal (4xx), for a last name of ${LONG} letters`,
      long,
      { clause: 'ER3', cause: 'The length is not validated; the database rejects the value.' },
    );
    for (const [place, body] of unknownFields(t.target)) {
      const reply = await t.create(body);
      t.strict(
        reply.status === 200,
        `200: an unknown field ${place} is ignored, so that the interface can grow`,
        reply,
        { clause: 'VE1' },
      );
    }
    const chunked = await t.create(least, {}, { chunked: true });
    // HTTP lets a server demand Content-Length.
    t.should(
      chunked.status === 200 || chunked.status === 411,
      '200 with a token for a body in chunks, without Content-Length; or 411',
      chunked,
      { clause: 'A1', cause: 'The body is read only as far as Content-Length says.' },
    );
    const plain = await t.create(least, { 'accept-encoding': 'identity' });
    const encoding = plain.headers['content-encoding'] ?? 'identity';
    t.should(
      encoding === 'identity',
      'a response without compression for a client that accepts none',
      plain,
      {
        got: `content-encoding ${encoding}`,
        clause: 'A2',
        cause: 'The response is compressed without reading Accept-Encoding.',
      },
    );
  },
};

function upperCase(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value]),
  );
}

/** A field that the interface does not have, at each level of the request. */
function unknownFields(target: PlatformTarget): [string, TokenBody][] {
  const full = fullBody(target);
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
  decisions: [8],
  severity: 'should',
  sends: 'the same token request many times (token_sample, a thousand by default)',
  likely_cause: 'The token is a counter, a timestamp, or an encoded copy of the customer’s data.',
  async run(t: TokenContext) {
    const replies: Reply[] = [];
    const wanted = t.target.token_sample;
    while (replies.length < wanted) {
      const some = Array.from({ length: Math.min(AT_ONCE, wanted - replies.length) }, () =>
        t.create(leastBody()),
      );
      replies.push(...(await Promise.all(some)));
      if (replies.slice(-AT_ONCE).every((reply) => tokenOf(reply) === undefined)) break;
    }
    const tokens = replies.flatMap((reply) => tokenOf(reply) ?? []);
    const last = replies.at(-1);
    t.given(tokens.length > 1, 'fewer than two tokens were issued');
    t.should(new Set(tokens).size === tokens.length, `${tokens.length} different tokens`, last, {
      got: `${new Set(tokens).size} different ones`,
    });
    t.should(
      !tokens.some((token) => hasPersonalData(token)),
      'no personal data inside a token',
      last,
      {
        got: 'a token contains the customer’s name, email address or phone number, in plain text or encoded',
      },
    );
    const varying = positionsThatVary(tokens);
    t.should(
      varying >= LEAST_CHARACTERS,
      `at least ${LEAST_CHARACTERS} characters that differ from token to token`,
      last,
      { got: `${varying} do` },
    );
  },
};

/** True when the token, or any part of it decoded as base64 or hexadecimal, reveals something about the customer. */
function hasPersonalData(token: string): boolean {
  const readings = [
    token,
    ...token
      .split(/[._~-]/)
      .flatMap((part) => [
        Buffer.from(part, 'base64url').toString('latin1'),
        Buffer.from(part, 'hex').toString('latin1'),
      ]),
  ];
  return readings.some((text) => /ada@example|ada.{0,3}example|5125550100/i.test(text));
}

/** Number of positions at which more than one third of the tokens differ from the most common character. */
function positionsThatVary(tokens: readonly string[]): number {
  const longest = Math.max(...tokens.map((token) => token.length));
  let varying = 0;
  for (let place = 0; place < longest; place += 1) {
    const counts = new Map<string, number>();
    for (const token of tokens) {
      const character = token[place] ?? '';
      counts.set(character, (counts.get(character) ?? 0) + 1);
    }
    if (Math.max(...counts.values()) <= (tokens.length * 2) / 3) varying += 1;
  }
  return varying;
}

export const TOKEN_REQUESTS = [t01, t02, t03, t08, t09, t10, t13, t18, t19];
