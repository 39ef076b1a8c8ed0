import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import type { PlatformTarget } from '../../check/target.ts';
import {
  credentials,
  fullBody,
  leastBody,
  tokenOf,
  type TokenBody,
} from '../../check/token-context.ts';

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

export const t19: TokenCase = {
  id: 'T19',
  title: 'Unusual but valid values are accepted',
  clauses: ['TR1', 'TR2', 'TR3', 'A1'],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with a phone number that is not in E.164, names and cities with characters outside ASCII and outside 16 bits, long names, the last name Null, ZIP codes of nine digits and with a leading zero, states outside the fifty, a balance of zero or below, due dates in the past and on a leap day, times with offsets and fractions, header names in capitals, a content type with a charset, an unknown field at each level, a body in chunks, and Accept-Encoding: identity',
  expects:
    '200 with a token each time: E.164 is recommended but not required, and the other values are valid',
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
      t.must(reply.status === 200 && tokenOf(reply) !== undefined, {
        expected: `200 with a token for ${what}`,
        got: tell(reply),
        at: reply,
      });
    }
    for (const [state, zip] of [
      ['PR', '00901'],
      ['GU', '96910'],
      ['AE', '09012'],
    ]) {
      const reply = await t.create({ ...least, address: { ...address, state, zip } });
      // A platform may serve only some of them.
      t.should(reply.status === 200, {
        expected: `200 with a token for state "${state}", the two-letter code of a territory or of military mail`,
        got: tell(reply),
        clause: 'TR2',
        cause: 'The list of states has fifty entries.',
        at: reply,
      });
    }
    const loud = await t.send({
      method: 'POST',
      url: t.run.url,
      headers: upperCase(credentials(t.target, {})),
      body: JSON.stringify(least),
    });
    t.must(loud.status === 200 || loud.status === 429, {
      expected: '200 with a token for header names in capitals: HTTP ignores their case',
      got: tell(loud),
      clause: 'A1',
      cause: 'A header is looked up in one spelling of its name.',
      at: loud,
    });
    for (const type of ['application/json; charset=utf-8', 'Application/JSON']) {
      const typed = await t.create(least, { 'content-type': type });
      t.should(typed.status === 200, {
        expected: `200 with a token for the content type "${type}", which many clients send`,
        got: tell(typed),
        clause: 'A1',
        cause: 'The header is compared as a string instead of being parsed as a media type.',
        at: typed,
      });
    }
    const long = await t.create({
      ...least,
      last_name: 'N'.repeat(LONG),
      email: `${'a'.repeat(60)}@${'example.'.repeat(20)}com`,
    });
    t.should(long.status !== undefined && long.status < 500, {
      expected: `a token, or a refusal (4xx), for a last name of ${LONG} letters`,
      got: tell(long),
      clause: 'ER3',
      cause: 'The length is not validated; the database rejects the value.',
      at: long,
    });
    for (const [place, body] of unknownFields(t.target)) {
      const reply = await t.create(body);
      t.strict(reply.status === 200, {
        expected: `200: an unknown field ${place} is ignored, so that the interface can grow`,
        got: tell(reply),
        clause: 'VE1',
        at: reply,
      });
    }
    const chunked = await t.create(least, {}, { chunked: true });
    // HTTP lets a server demand Content-Length.
    t.should(chunked.status === 200 || chunked.status === 411, {
      expected: '200 with a token for a body in chunks, without Content-Length; or 411',
      got: tell(chunked),
      clause: 'A1',
      cause: 'The body is read only as far as Content-Length says.',
      at: chunked,
    });
    const plain = await t.create(least, { 'accept-encoding': 'identity' });
    const encoding = plain.headers['content-encoding'] ?? 'identity';
    t.should(encoding === 'identity', {
      expected: 'a response without compression for a client that accepts none',
      got: `content-encoding ${encoding}`,
      clause: 'A2',
      cause: 'The response is compressed without reading Accept-Encoding.',
      at: plain,
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
