import type { PartnerCase } from '../../check/check.ts';
import { accessToken, type PartnerContext, type Proof } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';
import { refusesAll } from './refusal.ts';

/** Maximum number of wrong credentials tried; the plan reserves one payment for each. */
const MOST = 8;

export const p02: PartnerCase = {
  id: 'P02',
  title: 'Requests with a wrong credential are refused',
  clauses: ['S3', 'OA4', 'KY1'],
  severity: 'must',
  profile: 'contract',
  sends:
    'every operation with a made-up credential, with an empty one, and with the right one truncated, lengthened, in another case, or with one character changed',
  expects: 'a refusal (401) each time, with no data in the response, and no payment',
  likely_cause:
    'The server checks only that the header is present, compares only a prefix, ignores case, or never verifies the token’s signature.',
  creates: (target) => Array.from({ length: MOST }, () => own(target, 2)),
  async run(t) {
    const { authentication } = t.target;
    const wrong =
      authentication.method === 'key'
        ? wrongKeys(authentication.header, authentication.key)
        : wrongTokens(await freshToken(t));
    await refusesAll(t, wrong.slice(0, MOST), 2);
  },
};

async function freshToken(t: PartnerContext): Promise<string> {
  const granted = await t.run.fetchToken(t.check);
  const token = accessToken(granted);
  t.given(token !== undefined, 'the token endpoint issues no token (see P03)');
  return token;
}

function wrongKeys(header: string, key: string): (readonly [string, Proof])[] {
  const tries: [string, string][] = [
    ['a made-up key', 'wrong-key-duebridge'],
    ['an empty key', ''],
    ['the key with one character appended', `${key}x`],
    ['the key without its last character', key.slice(0, -1)],
    ['the first character of the key', key.slice(0, 1)],
    ['the key with one character changed', changed(key, Math.floor(key.length / 2))],
    ['the key in another case', otherCase(key)],
  ];
  return tries
    .filter(([name, value]) => value !== key && (value !== '' || name === 'an empty key'))
    .map(([name, value]) => [name, { [header]: value }] as const);
}

function wrongTokens(token: string): (readonly [string, Proof])[] {
  const parts = token.split('.');
  const tries: [string, string][] = [
    ['a made-up token', 'Bearer not-a-token-duebridge'],
    ['no token after the word Bearer', 'Bearer'],
    ['Basic instead of Bearer', 'Basic ZHVlYnJpZGdlOndyb25n'],
    ['the token without its last four characters', `Bearer ${token.slice(0, -4)}`],
    // Never the last character: the final base64 character may carry bits that decoders ignore.
    [
      'the token with one character near its end changed',
      `Bearer ${changed(token, token.length - 6)}`,
    ],
    [
      'the token with one character in the middle changed',
      `Bearer ${changed(token, Math.floor(token.length / 2))}`,
    ],
    ['the token in another case', `Bearer ${otherCase(token)}`],
  ];
  if (parts.length === 3)
    tries.push(['the token without its signature', `Bearer ${parts[0]}.${parts[1]}.`]);
  return tries
    .filter(([, value]) => value !== `Bearer ${token}`)
    .map(([name, authorization]) => [name, { authorization }] as const);
}

/** The text with one character replaced. */
function changed(text: string, place: number): string {
  const at = Math.max(0, place);
  return `${text.slice(0, at)}${text[at] === 'A' ? 'B' : 'A'}${text.slice(at + 1)}`;
}

function otherCase(text: string): string {
  const upper = text.toUpperCase();
  return upper === text ? text.toLowerCase() : upper;
}
