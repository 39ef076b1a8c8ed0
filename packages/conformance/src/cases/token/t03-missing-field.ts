import type { TokenCase } from '../../check/check.ts';
import { asObject, isSuccess, tell } from '../../check/http.ts';
import type { PlatformTarget } from '../../check/target.ts';
import { fullBody, leastBody, type TokenBody } from '../../check/token-context.ts';

export const t03: TokenCase = {
  id: 'T03',
  title: 'A token request without a required field is refused',
  clauses: ['TR1', 'TR2', 'TR4', 'ER3'],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with each required field omitted in turn, from the smallest body and from one with every field; or (strict) empty',
  expects: 'a refusal with code and message, and no token',
  likely_cause:
    'The body is stored without validation, or a missing field becomes an empty string.',
  async run(t) {
    for (const [name, body] of lacking(t.target)) {
      const reply = await t.create(body);
      const refused = t.refused(reply, `a body without ${name}`);
      if (!refused || isSuccess(reply)) continue;
      const error = asObject(reply.json);
      t.must(typeof error?.['code'] === 'string' && typeof error['message'] === 'string', {
        expected: 'a JSON error with code and message',
        got: tell(reply),
        at: reply,
      });
      t.strict(reply.status === 400 && error?.['code'] === 'INVALID_REQUEST', {
        expected: '400 INVALID_REQUEST',
        got: tell(reply),
        at: reply,
      });
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
