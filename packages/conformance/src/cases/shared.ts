/** Shared by several checks. */
import type { Json } from '@duebridge/contract';
import type { Context } from '../check/context.ts';
import type { More, MoreAt } from '../check/findings.ts';
import { show, type Exchange, type Reply } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import {
  differences,
  instantOf,
  type PaymentFields,
  recordOf,
  tellDifferences,
} from '../check/payment-fields.ts';
import type { PartnerTarget } from '../check/target.ts';

/** The check does not apply to a target that uses a static key. */
export function oauthOnly(target: PartnerTarget): string | undefined {
  return target.authentication.method === 'oauth'
    ? undefined
    : 'the target uses a static key, not OAuth';
}

/** A secret or an id as careless code takes it for the same: how it is misspelt, and the wrong value. */
export function misspellings(right: string): (readonly [how: string, value: string])[] {
  const middle = Math.floor(right.length / 2);
  const wrong: [string, string][] = [
    ['with one character appended', `${right}x`],
    ['without its last character', right.slice(0, -1)],
    ['with one character changed', changed(right, middle)],
    ['in another case', otherCase(right)],
  ];
  return wrong.filter(([, value]) => value !== right && value !== '');
}

/** The text with one character replaced. */
export function changed(text: string, place: number): string {
  const at = Math.max(0, place);
  return `${text.slice(0, at)}${text[at] === 'A' ? 'B' : 'A'}${text.slice(at + 1)}`;
}

/** The text in capitals, or in small letters if it is in capitals. */
export function otherCase(text: string): string {
  const upper = text.toUpperCase();
  return upper === text ? text.toLowerCase() : upper;
}

/** True for an ISO 8601 time with its zone. */
export const isInstant = (value: Json | undefined): boolean => instantOf(value) !== undefined;

/** True for a string that is not empty. */
export const isText = (value: unknown): boolean => typeof value === 'string' && value !== '';

/** Allowed difference between two clocks (decision 12). */
export const SKEW_MS = 5 * 60_000;

/** The fields of a payment that never change once set (RU5, PF2, PF6, PF7). */
export const LASTING_FIELDS = [
  'payment_id',
  'platform_payment_id',
  'amount_in_cents',
  'initiated_at',
] as const;

/** The same, with its batch and whose it is. */
export const ACCEPTED_FIELDS = [...LASTING_FIELDS, 'platform_batch_id', 'biller_id', 'account_id'];

/** The fields of a payment that never change once it has ended (RU2). */
export const ENDED_FIELDS = [...LASTING_FIELDS, 'status', 'posted_at', 'failure_reason'] as const;

/**
 * True for a failure reason that a person can read, in any language: prose or a single word, but neither a code nor text that
 * belongs in a log (PF5).
 */
export function isReadableReason(reason: Json | undefined): boolean {
  return (
    typeof reason === 'string' &&
    /\p{L}{2,}/u.test(reason) &&
    !looksLikeCode(reason.trim()) &&
    !looksInternal(reason)
  );
}

/** True for a single ASCII token such as ERR_17, acct.closed or insufficient-funds:3. */
function looksLikeCode(text: string): boolean {
  return /^[\x21-\x7e]+$/.test(text) && /[0-9_:/]|[a-z]\.[a-z]|[a-z][A-Z]/.test(text);
}

/** True for text that belongs in a log: a stack trace or the name of an exception. */
function looksInternal(text: string): boolean {
  return /\n\s*at \S|^\s*at .+:\d+|Traceback \(most recent|\b\w+(?:Exception|Error)\b\s*[:(]|\.(?:js|ts|py|java|rb|go|php):\d+/m.test(
    text,
  );
}

/** Should hold: errors that show a stranger nothing of the program, and no response at all that repeats a credential. */
export function revealsNothing(
  t: Context,
  errors: readonly Exchange[],
  all: readonly Exchange[] = errors,
): void {
  const level = 'should';
  t.none(
    errors.filter((one) => looksInternal(one.answer_body)),
    'errors without a stack trace',
    ({ status }, count) => `${status} with one (${count} of ${errors.length} errors)`,
    { level },
  );
  t.none(
    all.filter(({ leaked }) => leaked),
    'no credential in any response',
    () => 'a response repeats the credential that was sent',
    { level, cause: 'The error names the credential that it refuses.' },
  );
}

/**
 * True when the reply says something about the payment. Any other reply (429, 5xx, no response) is inconclusive: it raises
 * a warning, and never counts as a payment that changed or was lost.
 */
export function isAnswer(t: Context, reply: Reply): boolean {
  const { status } = reply;
  const none = status === undefined || status === 429 || status >= 500;
  return t.should(!none, 'a response other than 429 or 5xx', reply, {
    clause: 'ER3',
    cause: 'The server is overloaded or has an internal error.',
  });
}

/** Must hold: the reply has a payment whose fields are as before. A finding says which fields differ and how. */
export function unchanged(
  t: Context,
  before: PaymentFields,
  reply: Reply,
  fields: readonly string[],
  expected: string,
  more?: More,
): boolean {
  const now = recordOf(reply);
  const same = now !== undefined && differences(before, now, fields).length === 0;
  return t.must(same, expected, reply, { got: tellDifferences(before, reply, fields), ...more });
}

/** Must hold, unless `more` says otherwise, in every response of this run that has the record of a payment: a rule of one field. */
export function everyRecord(
  t: PartnerContext,
  field: string,
  expected: string,
  holds: (record: PaymentFields) => boolean,
  more?: MoreAt,
): boolean {
  return t.none(
    t.run.seen.filter(({ record }) => !holds(record)).map(({ reply }) => reply),
    `${expected}, in every response`,
    (reply, count) => `${field} is ${show(recordOf(reply)?.[field])} in ${count}`,
    more,
  );
}

/** Should hold in the strict profile: the refusal is one that the platform takes as final. */
export function finallyRefused(t: Context, put: Reply): void {
  const expected = '400 or 422: the request is invalid, not the credential or the URL';
  t.strict(put.status === 400 || put.status === 422, expected, put, {
    cause: 'The platform takes no other refusal as final, so it retries forever.',
  });
}

/** The status of a record in words. */
export function statusOf(record: PaymentFields): string {
  const status = record['status'];
  return typeof status === 'string' ? status : JSON.stringify(status ?? null);
}
