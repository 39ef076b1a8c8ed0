/** Shared by several checks of the caller. */
import { parsed } from '../check/http.ts';
import { isTerminal, type ClauseId } from '@duebridge/contract';
import { type CallerContext, type CallerPayment } from '../check/caller-context.ts';
import type { Behaviour, Call } from '../scripted/partner.ts';
import type { More } from '../check/findings.ts';

/** Leaves a payment processing, unless it is over by then, until it is settled by hand. */
export const held = (isOver: () => boolean): Behaviour => ({
  born(payment) {
    if (!isOver()) payment.ending = { ...payment.ending, after_ms: undefined };
  },
});

/** The status word in the answer that a call was given; undefined when there is none. */
function statusGiven(call: Call): string | undefined {
  const status = call.answer?.status === 200 ? parsed(call.answer.body)?.['status'] : undefined;
  return typeof status === 'string' ? status : undefined;
}

/** True when the answer to a call reported to the platform that the payment has ended. */
export function returnedTheEnd(call: Call): boolean {
  return isTerminal(statusGiven(call));
}

/** True when the platform was told that the payment has ended. */
export const hasEnded = (t: CallerContext, payment: CallerPayment): boolean =>
  t.calls(payment).some(returnedTheEnd);

/** Waits until it is. */
export const untilEnd = (t: CallerContext, payment: CallerPayment): Promise<boolean> =>
  t.until(() => hasEnded(t, payment));

/** How many times longer than its longest pause so far a platform must be silent before it counts as having given up. */
const GIVEN_UP = 2.5;

/**
 * Raises a must-finding when the platform has given up on a payment. A platform that may only be slower than the judge waits is
 * not reported; the target file must then declare the longest wait between two attempts, and more than `least_seconds`. Nor is one that
 * pauses the whole partner.
 */
export async function goesOn(
  t: CallerContext,
  payment: CallerPayment,
  holds: boolean,
  {
    expected,
    least_seconds = 0,
    ...more
  }: More & { readonly expected: string; readonly least_seconds?: number },
): Promise<void> {
  if (holds) return;
  const calls = t.calls(payment);
  const silence = t.caller.partner.now() - (calls.at(-1)?.at_ms ?? 0);
  const { patience_declared, patience_seconds } = t.caller.target;
  const isPatient = patience_declared && patience_seconds > least_seconds;
  const isSilent = silence >= GIVEN_UP * longestPause(calls);
  if (!isPatient || !isSilent || !(await t.isAwake())) {
    t.wanting.push(
      `no call for ${Math.round(silence / 1_000)} s (${expected}): set caller.patience_seconds to the longest time that the platform waits between two attempts${least_seconds === 0 ? '' : `, and to more than ${least_seconds}`}`,
    );
    return;
  }
  // The call may have come while the judge requested another payment.
  if (t.calls(payment).length > calls.length) return;
  t.must(false, expected, calls.at(-1), { got: `${calls.length} calls, and then none`, ...more });
}

/** The longest time between two calls, in milliseconds. */
function longestPause(calls: readonly Call[]): number {
  const times = calls.map(({ at_ms }) => at_ms);
  return Math.max(0, ...times.slice(1).map((time, place) => time - (times[place] ?? time)));
}

/**
 * Raises a must-finding when the customer is not shown the terminal status that the partner reported first. Returns the call that
 * reported it and the status shown, which is undefined when the judge cannot read it; undefined when there was no end or it is not shown.
 */
export async function showsTheEnd(
  t: CallerContext,
  payment: CallerPayment,
): Promise<{ readonly end: Call; readonly status: string | undefined } | undefined> {
  const end = t.calls(payment).find(returnedTheEnd);
  if (end === undefined) return undefined;
  const word = statusGiven(end);
  let status: string | undefined;
  const shown = await t.untilSilent(payment, async () => {
    status = await payment.status();
    return status === undefined || status === word;
  });
  t.must(shown, `status ${word ?? ''} for the customer, as the partner reported`, end, {
    got: `status ${status ?? ''}`,
    clause: word === 'succeeded' ? 'ST2' : word === 'failed' ? 'ST3' : 'ST4',
    cause: 'The platform reads the terminal status but loses it before storing it.',
  });
  return shown ? { end, status } : undefined;
}

/** How long a call that was in progress may take to arrive. */
const IN_PROGRESS_MS = 1_000;

/**
 * Raises a must-finding when the customer is not shown the terminal status that the partner reported, or when a call follows although
 * the platform knows that end. A single call after the response proves nothing, because the response may have been lost; a platform
 * that shows the end has read it. `known` is called as soon as it does.
 */
export async function stopsAtTheEnd(
  t: CallerContext,
  payment: CallerPayment,
  known: () => void = () => undefined,
): Promise<void> {
  const seen = await showsTheEnd(t, payment);
  if (seen === undefined) return;
  const { end, status } = seen;
  const word = statusGiven(end) ?? '';
  known();
  const before = t.calls(payment).length;
  const shown_ms = t.caller.partner.now();
  // A platform that polls slowly is watched for longer than it usually pauses.
  const usual_ms = 2 * longestPause(t.calls(payment));
  const isInTime = await t.quiet(Math.min(t.patience_ms, usual_ms));
  const calls = t.calls(payment);
  // One call may have been in progress; if the judge cannot read the status, the call may be due to a lost response.
  const most = (status === undefined ? calls.indexOf(end) + 1 : before) + 1;
  // What was in progress has arrived by then; a later call was sent although the platform knew the end.
  const late = calls.filter(
    ({ at_ms }) => isInTime && status !== undefined && at_ms > shown_ms + IN_PROGRESS_MS,
  );
  const last_ms = (calls.at(-1)?.at_ms ?? 0) - shown_ms;
  t.none(
    [...late, ...calls.slice(most)],
    `no call after the terminal status ${word}`,
    () => `${calls.length - before} more, the last ${last_ms} ms after the platform showed it`,
    { clause: 'RU4', cause: 'The next poll is scheduled before the response is examined.' },
  );
  const later = await payment.status();
  // A status that cannot be read at the moment says nothing.
  t.must(later === undefined || later === word, `status ${word} permanently`, end, {
    got: `status ${later ?? ''}`,
    clause: 'RU2',
    cause: 'A later response overwrites the terminal status.',
  });
}

/** Raises a must-finding when attempts at one payment differ in method, path or bytes (RU5). */
export function sameBytes(t: CallerContext, payment: CallerPayment): void {
  t.none(t.others(payment), 'every attempt as a PUT', ({ method, path }) => `${method} ${path}`, {
    clause: 'B4',
    cause: 'A retry takes another way through the client than the first attempt.',
  });
  const [first, ...rest] = t.puts(payment);
  t.none(
    rest.filter((put) => put.text !== first?.text || put.path !== first.path),
    `the path and bytes of the first PUT: ${first?.text.slice(0, 200) ?? ''}`,
    (other) => `${other.path} ${other.text.slice(0, 200)}`,
    { clause: 'RU5', cause: 'A retry rebuilds the body with another time or batch id.' },
  );
}

/** Maximum number of PUTs of an accepted payment without a poll: some may be retries after a lost response. */
const MOST_PUTS = 3;

/** Raises a must-finding when the status is not asked with Get Account Payment: a repeated PUT is a payment instruction (B5). */
export function pollsByGet(t: CallerContext, payment: CallerPayment): void {
  const calls = t.calls(payment);
  const accepted = calls.findIndex(({ answer }) => answer?.status === 200);
  const later = calls.slice(accepted + 1);
  const puts = later.filter(({ method }) => method === 'PUT');
  const isPolled = puts.length <= MOST_PUTS || puts.length < later.length;
  t.must(isPolled, 'polls with Get Account Payment once the PUT is accepted', puts[0], {
    got: `${puts.length} more PUTs and no GET`,
    clause: 'B5',
    cause: 'The client repeats the PUT to learn the status.',
  });
}

/** Raises a should-finding when more of these calls came in a second than a partner has to handle (LI1). `what` names them. */
export function notTooFast(
  t: CallerContext,
  calls: readonly Call[],
  most: number,
  what: string,
  cause = 'The call is retried immediately, without backoff.',
): void {
  const isTooFast = calls.some(
    ({ at_ms }, place) => (calls[place + most]?.at_ms ?? Infinity) - at_ms < 1_000,
  );
  const span_ms = (calls.at(-1)?.at_ms ?? 0) - (calls[0]?.at_ms ?? 0);
  t.should(!isTooFast, `at most ${most} ${what} per second`, calls[0], {
    got: `${calls.length} ${what} in ${span_ms} ms`,
    clause: 'LI1',
    cause,
  });
}

/** Raises a must-finding when the platform also put this amount under another id (RU5). */
export function noDouble(t: CallerContext, payment: CallerPayment): void {
  t.none(t.doubles(payment), 'no PUT of this amount with another id', ({ path }) => path, {
    clause: 'RU5',
    cause: 'A retry generates a new id, so the customer pays twice.',
  });
}

/** Raises a finding of this severity when the platform reports a payment as ended although no clear response ended it. Returns true when it did not. */
export async function notEnded(
  t: CallerContext,
  payment: CallerPayment,
  after: string,
  clause: ClauseId,
  severity: 'must' | 'should' = 'must',
): Promise<boolean> {
  const status = await payment.status();
  // Check this last: the partner may have reported the end while the judge was asking the platform.
  if (hasEnded(t, payment)) return true;
  const last = t.calls(payment).at(-1);
  const isOpen = status === undefined || status === 'processing';
  const got = `status ${status ?? ''}`;
  return t[severity](isOpen, `after ${after}: still processing`, last, { got, clause });
}
