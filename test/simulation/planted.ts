/**
 * Bugs that are planted on purpose, each one a change that somebody could make: the simulator has to catch every one of them, or it
 * proves nothing. A bug is a text of the source and its replacement; a text that does not occur exactly once fails the test,
 * so that no bug becomes stale unnoticed.
 */

/** Worlds in which a bug has to be caught; they are always the same ones. */
export const MAX_WORLDS = 120;

/** One planted bug. */
export interface Planted {
  readonly name: string;
  /** The file below packages/, the text in it, and what replaces it. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** A world in which it was caught before, and which is soon over: tried first, so that the test is quick. */
  readonly seed?: number;
}

export const PLANTED: readonly Planted[] = [
  {
    name: 'a payment that its partner forgot ends as failed',
    file: 'platform/src/engine/payment-steps.ts',
    find: "      ? { kind: 'advance', to: 'dispatching', detail: { reason } }",
    replace: "      ? { kind: 'end', by: 'refusal', ending: failedEnding(reason) }",
    seed: 3,
  },
  {
    name: 'a settlement is not written down',
    file: 'platform/src/engine/payment-steps.ts',
    find: " write: { kind: 'settle', settled: event.settled },",
    replace: '',
    seed: 15,
  },
  {
    name: 'funds are taken without an authorization',
    file: 'platform/src/engine/payment-steps.ts',
    find: "  if (isUnsent(payment) && collection === 'reserved' && payment.hold === undefined) {",
    replace: "  if (isUnsent(payment) && collection === 'reserved' && payment.tries > 9) {",
  },
  {
    name: 'the amount in an answer is not compared',
    file: 'platform/src/partners/payment-record.ts',
    find: "  if (fields.amount_in_cents !== intent.amount_in_cents) return 'amount_in_cents';\n",
    replace: '',
    seed: 10,
  },
  {
    name: 'funds of a failed payment are captured',
    file: 'platform/src/engine/calls.ts',
    find: "payment.status === 'succeeded' ? 'capture'",
    replace: "order ? 'capture'",
    seed: 2,
  },
  {
    name: 'a lost lease is never asked for again',
    file: 'platform/src/engine/lease.ts',
    find: "  return state.leaving ? { kind: 'ended' } : { kind: 'none', retryAt: now };",
    replace: "  return { kind: 'ended' };",
    seed: 3,
  },
  {
    name: 'a registration that failed is never repeated',
    file: 'platform/src/engine/lease.ts',
    find: "event.kind === 'failed' ? { kind: 'none', retryAt } : state",
    replace:
      "event.kind === 'failed' ? { kind: 'none', retryAt: Number.POSITIVE_INFINITY } : state",
    seed: 11,
  },
  {
    name: 'every retry has an id of its own',
    file: 'platform/src/engine/active-payment.ts',
    find: '  return {\n    platform_payment_id,\n',
    replace:
      '  return {\n    platform_payment_id: payment.tries > 0 ? `${platform_payment_id.slice(0, 50)}-${payment.tries}` : platform_payment_id,\n',
  },
  {
    name: 'a retry asks for another amount',
    file: 'platform/src/engine/active-payment.ts',
    find: '    amount_in_cents,\n    funding_method: group',
    replace: '    amount_in_cents: amount_in_cents + payment.tries,\n    funding_method: group',
  },
  {
    name: 'what a crash left processing is not looked for',
    file: 'partner/src/apply.ts',
    find: 'Promise.all([this.#sweepForEver(), this.#countForEver()])',
    replace: 'Promise.all([this.#countForEver()])',
    seed: 4,
  },
  {
    name: 'a payment that arrives without a worker is never placed',
    file: 'platform/src/engine/slots.ts',
    find: '  if (arrived.length === 0 || slots.length === 0) return [];',
    replace: '  if (arrived.length >= 0) return [];',
    seed: 4,
  },
  {
    name: 'no worker takes over from a dead one',
    file: 'platform/src/engine/slots.ts',
    find: '  if (slots.length === 0) return [];\n',
    replace: '  if (slots.length < 1_024) return [];\n',
    seed: 3,
  },
  {
    name: 'an unknown outcome ends the payment as failed',
    file: 'platform/src/engine/payment-steps.ts',
    find: '  const tries = payment.tries + 1;\n  const { status, retryAfterMs } = facts;',
    replace:
      "  if (!hold) {\n    return { memory: {}, write: { kind: 'end', by: 'refusal', ending: failedEnding(reason) }, next: 0 };\n  }\n  const tries = payment.tries + 1;\n  const { status, retryAfterMs } = facts;",
  },
  {
    name: 'the first poll of an unknown partner comes in hours',
    file: 'platform/src/engine/payment-steps.ts',
    find: 'payment.polls, random(), times.pollMs)',
    replace: 'payment.polls, random(), times.pollMs * 10_000)',
    seed: 39,
  },
  {
    name: 'a retry comes in hours',
    file: 'platform/src/engine/payment-steps.ts',
    find: '  return retryMs(tries, random(), times.retryMs, times.maxRetryMs);',
    replace: '  return 10_000 * retryMs(tries, random(), times.retryMs, times.maxRetryMs);',
    seed: 1,
  },
  {
    name: 'a call that has ended keeps its place in the queue',
    file: 'platform/src/engine/call-queue.ts',
    find: '    this.inFlight -= 1;\n',
    replace: '',
  },
  {
    name: 'the breaker never lets anybody try again',
    file: 'platform/src/engine/call-queue.ts',
    find: '    this.#trialAt = now + this.#trialMs * (0.75 + random / 4);',
    replace: '    this.#trialAt = Number.MAX_SAFE_INTEGER - now - random;',
    seed: 1,
  },
  {
    name: 'the slots of a dead worker stay with it',
    file: 'platform/src/engine/slots.ts',
    find: '    if (owner === null || !alive.has(owner)) free.push(slot);',
    replace: '    if (owner === null) free.push(slot);',
    seed: 22,
  },
  {
    name: 'a partner that only claims to have waited is believed',
    file: 'platform/src/engine/calls.ts',
    find: '    facts.waited &&\n',
    replace: '    facts.waited ||\n',
    seed: 74,
  },
  {
    name: 'funds of a payment that succeeded are released',
    file: 'platform/src/engine/calls.ts',
    find: "payment.status === 'succeeded' ? 'capture'",
    replace: "payment.status !== 'succeeded' ? 'capture'",
  },
  {
    name: 'the kit does not look up what its insert met',
    file: 'partner/src/accept.ts',
    find: 'missing.length === 0 ? made : new Map([...made, ...(await findPayments(database, missing))])',
    replace:
      'missing.length >= 0 ? made : new Map([...made, ...(await findPayments(database, missing))])',
    seed: 1,
  },
  {
    name: 'the kit posts a cent more than was asked for',
    file: 'partner/src/ledger.ts',
    find: 'account.amount_due_in_cents - paid.amount_in_cents,',
    replace: 'account.amount_due_in_cents - paid.amount_in_cents - 1,',
  },
  {
    name: 'an outage of the database is never over',
    file: 'platform/src/engine/records.ts',
    find: '        await outage.over(error);',
    replace: '        await new Promise(() => outage.over(error));',
    seed: 3,
  },
  {
    name: 'a payment just confirmed is left to whoever finds it',
    file: 'platform/src/engine/worker.ts',
    find: '    return this.dispatcher.add(row, delayMs);',
    replace: '    return delayMs > 0 && this.dispatcher.add(row, delayMs);',
    seed: 8,
  },
  {
    name: 'a payment that ended is recorded as canceled',
    file: 'platform/src/engine/payment-steps.ts',
    find: "          ending: outcome.ending,\n          settles: around.collection === 'elsewhere',",
    replace:
      "          ending: { ...outcome.ending, status: 'canceled', posted_at: null, failure_reason: null },\n          settles: around.collection === 'elsewhere',",
  },
  {
    name: 'an end says that its funds are settled before they are',
    file: 'platform/src/engine/payment-steps.ts',
    find: "          ending: outcome.ending,\n          settles: around.collection === 'elsewhere',",
    replace: '          ending: outcome.ending,\n          settles: true,',
  },
  {
    name: 'a reply to a poll is taken from the wrong account',
    file: 'platform/src/partners/payment-record.ts',
    find: '  if (fields.platform_payment_id !== intent.platform_payment_id) return',
    replace: '  if (fields.platform_payment_id === intent.platform_payment_id) return',
  },
  {
    name: 'a poll that brings no news is followed by the next at once',
    file: 'platform/src/engine/payment-steps.ts',
    find: '  return nextPollMs(settlements,',
    replace: '  return 0 * nextPollMs(settlements,',
    seed: 2,
  },
  {
    name: 'a cent too much is captured',
    file: 'platform/src/engine/calls.ts',
    find: 'funding[act](order',
    replace: 'funding[act]({ ...order, amount_in_cents: order.amount_in_cents + 1 }',
  },
  {
    name: 'a repeated PUT of the kit shows a payment_id of its own',
    file: 'partner/src/accept.ts',
    find: '    return requests.map((request) => rowOf(rows, request));',
    replace:
      '    return requests.map((request) => ({ ...rowOf(rows, request), payment_id: `again-${clock.monotonic()}` }));',
  },
  {
    name: 'funds that were taken are not booked',
    file: 'platform/src/store/steps.ts',
    find: 'where: "p.funds <> \'released\'"',
    replace: "where: \"(p.funds = 'refunded' OR p.source = 'elsewhere')\"",
  },
  {
    name: 'what is collected elsewhere is not booked',
    file: 'platform/src/store/steps.ts',
    find: 'where: "p.funds <> \'released\'"',
    replace: "where: \"p.funds <> 'released' AND p.source IS DISTINCT FROM 'elsewhere'\"",
  },
  {
    name: 'a cent too few is booked',
    file: 'platform/src/store/money-book.ts',
    find: '${one.credit}, p.amount_in_cents,',
    replace: '${one.credit}, p.amount_in_cents - 1,',
  },
  {
    name: 'a call to the own system that threw is taken for one that was never made',
    file: 'partner/src/claims.ts',
    find: 'held.claimed_by IS NULL AS is_known',
    replace: '(held.claimed_by IS NULL OR held.claimed_by = $2) AS is_known',
    seed: 18,
  },
  {
    name: 'a payment that a dead replica had claimed is taken for a new one',
    file: 'partner/src/claims.ts',
    find: 'held.claimed_by IS NULL AS is_known',
    replace: '(held.claimed_by IS DISTINCT FROM $2) AS is_known',
    seed: 104,
  },
  {
    name: 'a look-up that failed is taken for one that found nothing',
    file: 'partner/src/post-in-own-system.ts',
    find: 'const known = await this.#lookUp(id);',
    replace: 'const known = await this.#lookUp(id).catch(() => undefined);',
    seed: 69,
  },
  {
    name: 'a living replica is taken for dead',
    file: 'partner/src/claims.ts',
    find: 'one.unchangedMs >= LEASE_MS',
    replace: 'one.unchangedMs >= 0',
    seed: 39,
  },
  {
    name: 'the delay of a payment that is accepted and then denied never grows',
    file: 'platform/src/engine/payment-steps.ts',
    find: '  const losses = payment.losses + 1;',
    replace: '  const losses = 1;',
    seed: 9,
  },
  {
    name: 'one failed payment closes its whole partner',
    file: 'platform/src/engine/partner-calls.ts',
    find: '    const { reason, hold } = signal;',
    replace: '    const { reason, hold } = signal;\n    queue.closeUntil(now + 900_000);',
  },
  {
    name: 'a call to a processor that hangs is never given up',
    file: 'platform/src/engine/calls.ts',
    find: '.then(() => over.abort(LATE));',
    replace: '.then(() => undefined);',
    seed: 1,
  },
  {
    name: 'a hold that has expired is sent anyway',
    file: 'platform/src/engine/dispatcher.ts',
    find: '      if (payment.hold && !lasts(payment.hold, steady.now())) payment.hold = undefined;\n',
    replace: '',
    seed: 2,
  },
  {
    name: 'a payment that a failover lost is put back under another id',
    file: 'platform/src/checkout/lost-payments.ts',
    find: '    const { platform_payment_id, partner_id, created_at } = before;',
    replace:
      "    const platform_payment_id = before.platform_payment_id.replace(/.$/, (digit) => (digit === '0' ? '1' : '0'));\n    const { partner_id, created_at } = before;",
    seed: 21,
  },
  {
    name: 'names are looked up one after the other, and a silent server is waited for',
    file: 'runtime/src/name-lookup.ts',
    find: '    callbackify(() => resolve(name, options))((error, found) => {',
    replace:
      "    const turn = (Reflect.get(globalThis, 'turn') as Promise<LookupAddress[]>) ?? Promise.resolve();\n    const one = turn.catch(() => undefined).then(() => resolve(name, { ...options, deadlineMs: 3_600_000 }));\n    Reflect.set(globalThis, 'turn', one);\n    callbackify(() => one)((error, found) => {",
    seed: 25,
  },
  {
    name: 'a replica that was suspended calls for a claim that another has',
    file: 'partner/src/claims.ts',
    find: 'covers: (id: string): boolean => id === replica_id && isFresh(),',
    replace: 'covers: (id: string): boolean => id === replica_id,',
    seed: 62,
  },
  {
    name: 'a return is booked twice',
    file: 'platform/src/store/cases.ts',
    find: '$4, $5, c.amount_in_cents, c.partner_id',
    replace: '$4, $5, 2 * c.amount_in_cents, c.partner_id',
    seed: 5,
  },
  {
    name: 'a refunded payment is refunded again',
    file: 'platform/src/money/refunds.ts',
    find: 'left: payment.amount_in_cents - cents - disputed',
    replace: 'left: payment.amount_in_cents',
    seed: 5,
  },
  {
    name: 'a remittance includes a payment twice',
    file: 'platform/src/money/remittance.ts',
    find: 'sum(s.gross)::bigint AS gross, sum(s.booked)::bigint AS booked',
    replace:
      '(sum(s.gross) + max(s.gross))::bigint AS gross, (sum(s.booked) + max(s.gross))::bigint AS booked',
    seed: 5,
  },
  {
    name: 'a remittance leaves a payment out',
    file: 'platform/src/money/remittance.ts',
    find: 'sum(s.gross)::bigint AS gross, sum(s.booked)::bigint AS booked',
    replace:
      '(sum(s.gross) - max(s.gross))::bigint AS gross, (sum(s.booked) - max(s.gross))::bigint AS booked',
    seed: 5,
  },
  {
    name: 'a transfer leaves without its row of the book',
    file: 'platform/src/money/remittance.ts',
    find: "'due sending': ['sent', 'owed', 'remitting']",
    replace: "'due sending': [null, null, null]",
    seed: 5,
  },
];
