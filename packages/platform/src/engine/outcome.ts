/**
 * Stages 6 and 7, submit and poll: what the answer to a PUT or to a GET means (decisions 21 and 22). Pure; the client sends.
 *
 * enters: the intent, and what came back.  leaves: an outcome for payment-steps.ts.
 * holds:  only a validated record of this very payment accepts or ends it, and ends it only by one of the three terminal words.
 *         Any other answer leaves the outcome unknown, and an unknown outcome is resolved by the same PUT with the same bytes (RU5,
 *         PL2, PL5).
 */
import type { Exchange } from '../partners/http-call.ts';
import type { NotSent } from '../partners/oauth-client.ts';
import {
  judgeRecord,
  reasonText,
  type Intent,
  type RecordJudgement,
} from '../partners/payment-record.ts';

/** Why an outcome is unknown; a closed list, so that it can label a metric. */
export type UnknownReason =
  | 'timeout'
  | 'stopped'
  | 'connection'
  | 'name'
  | 'protocol'
  | 'too_large'
  | 'redirect' // F19: not followed
  | 'not_found' // F14, F16: no proof of absence, the PUT may still be under way
  | 'conflict' // 409, 423, 425
  | 'too_many_requests'
  | 'misconfigured' // 405, 406, 415, 501, 505 and other 4xx: an operator must fix something (F07)
  | 'server_error'
  | 'not_json' // F22-F24
  | 'not_a_record' // F24
  | 'other_status' // 1xx, 201-206 (F44)
  | 'no_token'; // the token endpoint does not answer

/** Why the partner refuses every call until an operator acts (F12, F13, F47, F60, F62). */
export type HoldReason = 'credentials' | 'scope' | 'certificate' | 'address';

/** Outcomes that any answer about a payment can have, whichever call it answers: what its record says, or why it says nothing. */
export type AnswerOutcome =
  | Exclude<RecordJudgement, { readonly kind: 'invalid' }>
  | { readonly kind: 'unknown'; readonly reason: UnknownReason }
  | { readonly kind: 'held'; readonly reason: HoldReason };

/** Outcomes of a PUT. `rejected`: the partner says that the request itself is wrong (400, 422), with its code and message, if any. */
export type SubmitOutcome =
  | AnswerOutcome
  | {
      readonly kind: 'rejected';
      readonly status: number;
      readonly code: string | undefined;
      /** What the partner said, as text for people; at most 500 characters. */
      readonly message: string | undefined;
    };

/** Judges the answer to a PUT. Pure. */
export function judgeSubmit(intent: Intent, answer: Exchange | NotSent): SubmitOutcome {
  if (answer.kind === 'reply' && (answer.status === 400 || answer.status === 422)) {
    const { status, json } = answer;
    return { kind: 'rejected', status, code: errorCode(json), message: errorMessage(json) };
  }
  return judgeAnswer(intent, answer);
}

/**
 * Outcomes of a GET. `not_found` is `believed` when the partner itself says so, in a JSON body with a code. A 404 of a proxy or of
 * a missing route says nothing about the payment.
 */
export type PollOutcome =
  | AnswerOutcome
  | { readonly kind: 'not_found'; readonly believed: boolean };

/** Judges the answer to a GET. Pure. */
export function judgePoll(intent: Intent, answer: Exchange | NotSent): PollOutcome {
  const outcome = judgeAnswer(intent, answer);
  return outcome.kind === 'unknown' && outcome.reason === 'not_found'
    ? {
        kind: 'not_found',
        believed: answer.kind === 'reply' && errorCode(answer.json) !== undefined,
      }
    : outcome;
}

/** Judges what PUT and GET have in common. Pure. */
function judgeAnswer(intent: Intent, answer: Exchange | NotSent): AnswerOutcome {
  switch (answer.kind) {
    case 'not_sent':
      return judgeNotSent(answer.reason);
    case 'no_reply':
      return answer.reason === 'certificate' || answer.reason === 'address'
        ? { kind: 'held', reason: answer.reason }
        : { kind: 'unknown', reason: answer.reason };
    case 'reply': {
      if (answer.status !== 200) return judgeStatus(answer.status);
      if (answer.problem !== undefined) return { kind: 'unknown', reason: 'not_json' };
      const judged = judgeRecord(intent, answer.json);
      return judged.kind === 'invalid' ? { kind: 'unknown', reason: 'not_a_record' } : judged;
    }
  }
}

/** The call never left: there was no access token to send it with. */
function judgeNotSent(reason: NotSent['reason']): AnswerOutcome {
  switch (reason) {
    case 'refused':
    case 'invalid_answer':
      return { kind: 'held', reason: 'credentials' };
    case 'scope':
      return { kind: 'held', reason: 'scope' };
    case 'unreachable':
      return { kind: 'unknown', reason: 'no_token' };
  }
}

function judgeStatus(status: number): AnswerOutcome {
  if (status === 401) return { kind: 'held', reason: 'credentials' };
  if (status === 403) return { kind: 'held', reason: 'scope' };
  return { kind: 'unknown', reason: unknownStatus(status) };
}

function unknownStatus(status: number): UnknownReason {
  if (status >= 300 && status < 400) return 'redirect';
  if (status === 404 || status === 410) return 'not_found';
  if (status === 408) return 'timeout';
  if (status === 409 || status === 423 || status === 425) return 'conflict';
  if (status === 429) return 'too_many_requests';
  if (status === 501 || status === 505) return 'misconfigured';
  if (status >= 500) return 'server_error';
  return status >= 400 ? 'misconfigured' : 'other_status';
}

/** The code of an error body, if it is a short plain word: unchecked partner text never enters a record. */
function errorCode(json: unknown): string | undefined {
  const { code } = Object(json) as { readonly code?: unknown };
  return typeof code === 'string' && /^[A-Za-z0-9_.-]{1,64}$/.test(code) ? code : undefined;
}

/** The message of an error body as text for people. */
function errorMessage(json: unknown): string | undefined {
  return reasonText((Object(json) as { readonly message?: unknown }).message);
}
