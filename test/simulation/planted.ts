/**
 * Bugs that are planted on purpose, each one a change that somebody could make: the simulator has to catch every one of them, or it
 * proves nothing. A bug is a text of the source and what stands there instead; a text that is not there exactly once fails the test,
 * so that no bug goes stale unseen.
 */

/** One planted bug. */
export interface Planted {
  readonly name: string;
  /** The file below packages/, the text in it, and what replaces it. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

export const PLANTED: readonly Planted[] = [
  {
    name: 'a payment that its partner forgot ends as failed',
    file: 'platform/src/engine/payment-steps.ts',
    find: "      ? { write: { kind: 'advance', to: 'dispatching', detail: { reason } } }",
    replace: "      ? { write: { kind: 'end', by: 'refusal', ending: failedEnding(reason) } }",
  },
  {
    name: 'a settlement is not written down',
    file: 'platform/src/engine/payment-steps.ts',
    find: "write: { kind: 'settle' }, next: 'forget'",
    replace: "next: 'forget'",
  },
  {
    name: 'funds are taken without an authorization',
    file: 'platform/src/engine/payment-steps.ts',
    find: "  if (payment.stage === 'created' && !payment.funded) return 'authorize';",
    replace: "  if (payment.stage === 'created' && payment.tries > 9) return 'authorize';",
  },
  {
    name: 'Retry-After is taken for a thousand times as long',
    file: 'platform/src/engine/payment-steps.ts',
    find: 'facts.retryAfterMs * (1 + random() * 0.1)',
    replace: 'facts.retryAfterMs * 10_000 * (1 + random() * 0.1)',
  },
  {
    name: 'the amount in an answer is not compared',
    file: 'platform/src/partners/payment-record.ts',
    find: "  if (fields.amount_in_cents !== intent.amount_in_cents) return 'amount_in_cents';\n",
    replace: '',
  },
  {
    name: 'funds of a failed payment are captured',
    file: 'platform/src/engine/calls.ts',
    find: 'succeeded ? funding.capture',
    replace: 'order ? funding.capture',
  },
  {
    name: 'a lost lease is never asked for again',
    file: 'platform/src/engine/lease.ts',
    find: "  return state.leaving ? { kind: 'ended' } : { kind: 'none', retryAt: now };",
    replace: "  return { kind: 'ended' };",
  },
  {
    name: 'a registration that failed is never repeated',
    file: 'platform/src/engine/lease.ts',
    find: "        return { kind: 'none', retryAt };",
    replace: "        return { kind: 'none', retryAt: Number.POSITIVE_INFINITY };",
  },
  {
    name: 'every retry has an id of its own',
    file: 'platform/src/engine/dispatcher.ts',
    find: 'function orderOf(payment: ActivePayment): CallOrder {\n',
    replace:
      'function orderOf(payment: ActivePayment): CallOrder {\n  if (payment.tries > 0) return { ...payment, platform_payment_id: `${payment.platform_payment_id.slice(0, 50)}-${payment.tries}` };\n',
  },
  {
    name: 'a retry asks for another amount',
    file: 'platform/src/engine/dispatcher.ts',
    find: 'function orderOf(payment: ActivePayment): CallOrder {\n',
    replace:
      'function orderOf(payment: ActivePayment): CallOrder {\n  if (payment.tries > 0) return { ...payment, amount_in_cents: payment.amount_in_cents + payment.tries };\n',
  },
  {
    name: 'what a crash left processing is not looked for',
    file: 'partner/src/apply.ts',
    find: 'Promise.all([sweepForEver(), countForEver()])',
    replace: 'Promise.all([countForEver()])',
  },
  {
    name: 'a payment that arrives without a worker is never placed',
    file: 'platform/src/engine/slots.ts',
    find: '  if (arrived.length === 0 || slots.length === 0) return [];',
    replace: '  if (arrived.length >= 0) return [];',
  },
  {
    name: 'no worker takes over from a dead one',
    file: 'platform/src/engine/slots.ts',
    find: '  if (slots.length === 0) return [];\n',
    replace: '  if (slots.length < 1_024) return [];\n',
  },
  {
    name: 'what the partner calls processing is taken for the end',
    file: 'platform/src/engine/payment-steps.ts',
    find: "        write: { kind: 'end', by: 'partner', ending: outcome.ending },",
    replace:
      "        write: { kind: 'end', by: 'partner', ending: { ...outcome.ending, status: 'canceled', posted_at: null, failure_reason: null } },",
  },
  {
    name: 'an end is forgotten before its funds are settled',
    file: 'platform/src/engine/payment-steps.ts',
    find: "        write: { kind: 'end', by: 'partner', ending: outcome.ending },\n        next: 0,",
    replace:
      "        write: { kind: 'end', by: 'partner', ending: outcome.ending },\n        next: 'forget',",
  },
  {
    name: 'an unknown outcome ends the payment as failed',
    file: 'platform/src/engine/payment-steps.ts',
    find: '  const tries = payment.tries + 1;\n  const ownFaults',
    replace:
      "  if (reason !== 'stopped') {\n    return { breaches: [], memory: {}, write: { kind: 'end', by: 'refusal', ending: failedEnding(reason) }, next: 0 };\n  }\n  const tries = payment.tries + 1;\n  const ownFaults",
  },
  {
    name: 'polls that bring no news follow each other without a pause',
    file: 'platform/src/engine/payment-steps.ts',
    find: '(facts.waited || payment.polls === 0)) return 0;',
    replace: '(facts.waited || payment.polls >= 0)) return 0;',
  },
  {
    name: 'the first poll of an unknown partner comes in hours',
    file: 'platform/src/engine/payment-steps.ts',
    find: '    firstMs: around.times.pollMs,',
    replace: '    firstMs: around.times.pollMs * 10_000,',
  },
  {
    name: 'a retry comes in hours',
    file: 'platform/src/engine/payment-steps.ts',
    find: '  return retryMs(tries, random(), times.retryMs, times.maxRetryMs);',
    replace: '  return 10_000 * retryMs(tries, random(), times.retryMs, times.maxRetryMs);',
  },
  {
    name: 'a call that has ended keeps its place in the queue',
    file: 'platform/src/engine/partner-queue.ts',
    find: '    this.inFlight -= 1;\n    this.#underWay[lane] -= 1;',
    replace: '    this.#underWay[lane] -= 1;',
  },
  {
    name: 'the breaker never lets anybody try again',
    file: 'platform/src/engine/partner-queue.ts',
    find: '    this.#brokenUntil = now + ms * (0.5 + random / 2);',
    replace:
      '    this.#brokenUntil = this.#restsUntil = Number.MAX_SAFE_INTEGER - ms * (0.5 + random / 2);',
  },
  {
    name: 'the slots of a dead worker stay with it',
    file: 'platform/src/engine/slots.ts',
    find: '    if (owner === null || !alive.has(owner)) free.push(slot);',
    replace: '    if (owner === null) free.push(slot);',
  },
  {
    name: 'a partner that only claims to have waited is believed',
    file: 'platform/src/engine/calls.ts',
    find: '    facts.waited &&\n',
    replace: '    facts.waited ||\n',
  },
  {
    name: 'funds of a payment that succeeded are released',
    file: 'platform/src/engine/dispatcher.ts',
    find: "order, payment.status === 'succeeded', signal",
    replace: "order, payment.status !== 'succeeded', signal",
  },
  {
    name: 'the kit does not look up what its insert met',
    file: 'partner/src/accept.ts',
    find: 'missing.length === 0 ? made : new Map([...made, ...(await findPayments(database, missing))])',
    replace:
      'missing.length >= 0 ? made : new Map([...made, ...(await findPayments(database, missing))])',
  },
  {
    name: 'the kit posts a cent more than was asked for',
    file: 'partner/src/ledger.ts',
    find: '-amount_in_cents FROM movement',
    replace: '-amount_in_cents - 1 FROM movement',
  },
  {
    name: 'an outage of the database is never over',
    file: 'platform/src/engine/records.ts',
    find: '        await outage.over(signal, error);',
    replace: '        await new Promise(() => outage.over(signal, error));',
  },
  {
    name: 'a payment just confirmed is left to whoever finds it',
    file: 'platform/src/engine/worker.ts',
    find: '    if (!isOver && row.slot !== null && this.#slots.has(row.slot)) this.#dispatcher.add(row);',
    replace:
      '    if (isOver && row.slot !== null && this.#slots.has(row.slot)) this.#dispatcher.add(row);',
  },
  {
    name: 'a worker does not read the slots that it takes over',
    file: 'platform/src/engine/worker.ts',
    find: '    for (const slot of fresh) {\n      this.#slots.add(slot);\n      this.#unread.add(slot);\n    }',
    replace: '    for (const slot of fresh) {\n      this.#slots.add(slot);\n    }',
  },
];
