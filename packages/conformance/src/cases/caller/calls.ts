/** What several checks of the caller have in common. */
import { JsonProblem, parseJson, type Json } from '@duebridge/contract';
import type { CallerContext, DrivenPayment } from '../../check/caller-context.ts';
import { asObject } from '../../check/http.ts';
import type { ScriptedExchange } from '../../sandbox/partner.ts';

/** The body of a call as an object; undefined when it is none. */
export function bodyOf(call: ScriptedExchange): Readonly<Record<string, Json>> | undefined {
  return read(call.body);
}

/** The status word in the answer that a call was given; undefined when there is none. */
function statusGiven(call: ScriptedExchange): string | undefined {
  const status = call.answer?.status === 200 ? read(call.answer.body)?.['status'] : undefined;
  return typeof status === 'string' ? status : undefined;
}

/** True when the answer to a call told the platform that the payment has ended. */
export function toldTheEnd(call: ScriptedExchange): boolean {
  return ['succeeded', 'failed', 'canceled'].includes(statusGiven(call) ?? '');
}

/** Raises a must-finding when PUTs of one payment differ in path or bytes (RU5). */
export function sameBytes(t: CallerContext, payment: DrivenPayment): void {
  const [first, ...rest] = t.puts(payment);
  const other = rest.find((put) => put.body !== first?.body || put.path !== first.path);
  t.must(other === undefined, {
    expected: `the path and bytes of the first PUT: ${first?.body.slice(0, 200) ?? ''}`,
    got: other === undefined ? '' : `${other.path} ${other.body.slice(0, 200)}`,
    ...(other === undefined ? {} : { at: t.cite(other) }),
  });
}

function read(text: string): Readonly<Record<string, Json>> | undefined {
  try {
    return asObject(parseJson(text));
  } catch (error) {
    if (error instanceof JsonProblem) return undefined;
    throw error;
  }
}
