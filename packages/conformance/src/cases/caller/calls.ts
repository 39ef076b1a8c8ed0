/** Shared by several checks of the caller. */
import type { ClauseId, Json } from '@duebridge/contract';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import type { Answer, Reply, ScriptedExchange } from '../../sandbox/partner.ts';
import { parsed } from '../shared.ts';

/** Faults injected at the same time: fewer than open a circuit breaker. */
const AT_ONCE = 3;

/** An answer that says nothing about the payment. */
export interface UnclearAnswer {
  readonly name: string;
  readonly reply: Reply;
}

/** A 2xx answer with this body, labelled as JSON. */
const said = (body: string, type = 'application/json'): Answer => ({
  status: 200,
  headers: { 'Content-Type': type },
  body,
});

const PAGE = '<html><body>Service error: payment failed</body></html>';

const code = (status: number, headers: Record<string, string> = {}): Answer => ({
  status,
  headers,
  body: { code: 'INJECTED', message: 'Injected by the judge' },
});

/** Answers that leave the outcome of the request unknown; a gateway between the two sides may send any of them. */
export const UNCLEAR: readonly UnclearAnswer[] = [
  { name: '500', reply: code(500) },
  { name: '503', reply: { status: 503, body: '' } },
  { name: '404', reply: code(404) },
  { name: '409', reply: code(409) },
  { name: '429', reply: code(429) },
  { name: '408', reply: code(408) },
  { name: '502 with a web page', reply: { ...said(PAGE, 'text/html'), status: 502 } },
  { name: '200 with a web page', reply: said(PAGE, 'text/html') },
  { name: '200 with nothing', reply: { status: 200, body: '' } },
  { name: '200 with a list', reply: said('[]') },
  { name: '200 with half a record', reply: said('{"payment_id":"p-1","status":"fai') },
  {
    name: 'half a body',
    reply: (wire) => {
      const bytes = wire.bytes(wire.answer);
      wire.socket.end(bytes.subarray(0, bytes.length - 20));
    },
  },
  { name: 'a cut connection', reply: (wire) => void wire.socket.destroy() },
];

/**
 * No answer at all, for a PUT. Not used for polls: a platform may rightly wait long for a poll that is held until something
 * changes.
 */
export const SILENCE: UnclearAnswer = { name: 'no answer at all', reply: () => undefined };

/**
 * Injects faults a few at a time. A platform that meets many failures in a row rightly calls the partner less and less, and would
 * then seem to have given up.
 */
export function inGroups<T>(faults: readonly T[]): readonly (readonly T[])[] {
  const groups: T[][] = [];
  for (let from = 0; from < faults.length; from += AT_ONCE) {
    groups.push(faults.slice(from, from + AT_ONCE));
  }
  return groups;
}

/** The body of a call as an object; undefined when it is not an object. */
export function bodyOf(call: ScriptedExchange): Readonly<Record<string, Json>> | undefined {
  return parsed(call.body);
}

/** The status word in the answer that a call was given; undefined when there is none. */
export function statusGiven(call: ScriptedExchange): string | undefined {
  const status = call.answer?.status === 200 ? parsed(call.answer.body)?.['status'] : undefined;
  return typeof status === 'string' ? status : undefined;
}

/** True when the answer to a call reported to the platform that the payment has ended. */
export function toldTheEnd(call: ScriptedExchange): boolean {
  return ['succeeded', 'failed', 'canceled'].includes(statusGiven(call) ?? '');
}

/** How many times longer than its longest pause so far a platform must be silent before it counts as having given up. */
const GIVEN_UP = 2.5;

/**
 * Raises a must-finding when the platform has given up on a payment. A platform that may only be slower than the judge waits is
 * not reported; the target file must then declare the longest wait between two tries.
 */
export function goesOn(
  t: CallerContext,
  payment: CallerPayment,
  holds: boolean,
  finding: {
    readonly expected: string;
    readonly got: string;
    readonly clause: ClauseId;
    readonly cause?: string;
  },
): void {
  const calls = t.calls(payment);
  const last = calls.at(-1);
  const times = calls.map(({ at_ms }) => at_ms);
  const pauses = times.slice(1).map((time, place) => time - (times[place] ?? time));
  const silence = t.run.partner.now() - (times.at(-1) ?? 0);
  const declared = t.run.caller.patience_declared;
  if (!holds && (!declared || silence < GIVEN_UP * Math.max(0, ...pauses))) {
    t.wanting.push(
      `no call for ${Math.round(silence / 1_000)} s (${finding.expected}): name in caller.patience_seconds the longest that the platform waits between two tries`,
    );
    return;
  }
  t.must(holds, { ...finding, ...(last === undefined ? {} : { at: t.cite(last) }) });
}

/** Raises a must-finding when PUTs of one payment differ in path or bytes (RU5). */
export function sameBytes(t: CallerContext, payment: CallerPayment): void {
  const [first, ...rest] = t.puts(payment);
  const other = rest.find((put) => put.body !== first?.body || put.path !== first.path);
  t.must(other === undefined, {
    expected: `the path and bytes of the first PUT: ${first?.body.slice(0, 200) ?? ''}`,
    got: other === undefined ? '' : `${other.path} ${other.body.slice(0, 200)}`,
    clause: 'RU5',
    cause: 'A retry builds the body anew, with another time or batch in it.',
    ...(other === undefined ? {} : { at: t.cite(other) }),
  });
}

/** Raises a must-finding when the platform also put this amount under another id (RU5). */
export function noDouble(t: CallerContext, payment: CallerPayment): void {
  const [double] = t.doubles(payment);
  t.must(double === undefined, {
    expected: 'no PUT of this amount with another id',
    got: double?.path ?? '',
    clause: 'RU5',
    cause: 'A retry makes a new id: the customer pays twice.',
    ...(double === undefined ? {} : { at: t.cite(double) }),
  });
}

/** Raises a must-finding when the platform reports a payment as ended although no clear answer ended it. */
export async function notEnded(
  t: CallerContext,
  payment: CallerPayment,
  after: string,
  clause: ClauseId,
): Promise<void> {
  const status = await payment.status();
  // Check this last: the partner may have reported the end while the judge was asking the platform.
  if (t.calls(payment).some(toldTheEnd)) return;
  const last = t.calls(payment).at(-1);
  t.must(status === undefined || status === 'processing', {
    expected: `after ${after}: still processing`,
    got: `status ${status ?? ''}`,
    clause,
    ...(last === undefined ? {} : { at: t.cite(last) }),
  });
}
