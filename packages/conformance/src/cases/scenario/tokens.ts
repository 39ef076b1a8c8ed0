/**
 * Judges how a platform takes a fault of the token endpoint. The platform's PUT is refused with 401 until it has fetched a new access
 * token, and that fetch meets the fault. Nothing may run beside such a check, because a token serves every call.
 */
import { Refusal } from '@duebridge/contract';
import type { CallerContext } from '../../check/caller-context.ts';
import type { Answer, Behaviour, Call, Scenario } from '../../sandbox/partner.ts';
import { goesOn, noDouble, notEnded, notTooFast, sameBytes, toldTheEnd } from '../caller/calls.ts';
import type { TokenRule } from './rules.ts';

/** Most token requests in a second that a partner has to handle. */
const MOST_A_SECOND = 10;

/** Most token requests that a token of long life can cause. */
const FEW_FETCHES = 3;

/** Time between two token requests that a platform may choose after a refusal. */
const TOKEN_PAUSE_SECONDS = 60;

/** Judges every variant. `first_cents` is the first of the amounts that belong to this check. */
export async function judgeTokens(
  t: CallerContext,
  scenario: Scenario,
  rule: TokenRule,
  first_cents: number,
): Promise<void> {
  t.given(
    t.run.caller.authentication.method === 'oauth',
    'the platform calls this partner with a static key',
  );
  await holdsToken(t, first_cents + rule.variants);
  const strays = t.run.partner.strayRequests();
  // A usable token ends the fault for its payment, so each variant needs its own; the others come one after another.
  const rounds = rule.usable === true ? rule.variants : 1;
  for (let round = 0; round < rounds; round += 1) {
    await judgeRound(t, scenario, rule, { variant: round, cents: first_cents + round });
    if (t.all.length > 0) break;
  }
  const followed = t.run.partner.strayRequests() - strays;
  t.must(followed === 0, {
    expected: 'no request at the host that a redirect leads to: it would be handed the secret',
    got: `${followed} came`,
    clause: 'S3',
    cause: 'The HTTP library follows redirects unless it is told not to.',
  });
}

/** Makes a payment, unless one was taken before: the fault is to meet a platform that has a token to lose. */
export async function holdsToken(t: CallerContext, cents: number): Promise<void> {
  if (
    t.run.partner
      .exchanges()
      .some(({ method, answer }) => method === 'PUT' && answer?.status === 200)
  )
    return;
  await t.accepted(await t.pay(cents));
}

async function judgeRound(
  t: CallerContext,
  scenario: Scenario,
  rule: TokenRule,
  { variant, cents }: { variant: number; cents: number },
): Promise<void> {
  const fault = new TokenFault(t, scenario, rule, variant);
  t.script(fault.behaviour);
  const payment = await t.pay(cents, fault.ofPayment);
  const taken = (): boolean => t.puts(payment).some(({ answer }) => answer?.status === 200);
  const met = await t.untilSilent(payment, () => fault.isMet() || taken());
  if (fault.given === 0) {
    await t.arrived(payment);
    if (!(await notEnded(t, payment, 'a 401 to an access token that was good', 'ST3'))) return;
  }
  t.given(fault.given > 0, 'the platform fetched no access token after a 401');
  const what = `${scenario.title}${rule.usable === true ? ` (variant ${variant + 1})` : ''}`;
  if (rule.until_healed === true) await t.quiet();
  else if (met) await t.untilSilent(payment, taken);
  if (rule.watched === true) await t.quiet();
  const open = await notEnded(t, payment, what, 'ST3');
  fault.release();
  if (open && rule.until_healed !== true) {
    const told = taken() && (await t.until(() => t.calls(payment).some(toldTheEnd)));
    await goesOnAfterToken(t, payment, told, {
      expected: `after ${what}: calls until the end is told, within ${t.run.caller.patience_seconds} s`,
      got: `${t.calls(payment).length} calls, and then none`,
      clause: 'RU4',
      cause:
        'An access token that cannot be used, or none, ends the payment or the loop that repeats the call.',
    });
  }
  notTooFast(t, payment, 'PUT', MOST_A_SECOND);
  sameBytes(t, payment);
  noDouble(t, payment);
  const fetches = t.calls().filter(({ operation }) => operation === 'access_token');
  const times = fetches.map(({ at_ms }) => at_ms);
  const [first] = fetches;
  const crowded = times.some((time, n) => (times[n + MOST_A_SECOND] ?? Infinity) - time < 1_000);
  t.should(!crowded, {
    expected: `at most ${MOST_A_SECOND} token requests in a second`,
    got: `${fetches.length} in ${(times.at(-1) ?? 0) - (times[0] ?? 0)} ms`,
    clause: 'LI1',
    cause:
      'A timer is set by expires_in, and one beyond 2^31 ms fires at once; or a refusal is repeated without a delay.',
    ...(first === undefined ? {} : { at: t.cite(first) }),
  });
  // The life of these tokens is long by any reading: one fetch after the 401 would do.
  t.should(rule.watched !== true || fetches.length <= FEW_FETCHES, {
    expected: `at most ${FEW_FETCHES} token requests for a token of long life`,
    got: `${fetches.length}`,
    clause: 'OA3',
    cause: 'A timer is set by expires_in, and one beyond 2^31 ms fires at once.',
    ...(first === undefined ? {} : { at: t.cite(first) }),
  });
  const injected = t.run.raw.find(({ headers }) => 'x-injected' in headers);
  t.must(injected === undefined, {
    expected: 'no header that came out of an access token',
    got: `X-Injected in ${injected?.method ?? ''} ${injected?.path ?? ''}`,
    clause: 'OA4',
    cause: 'The token is written into the header as it came, line feed included.',
  });
}

/**
 * Like goesOn. A platform may ask for tokens as rarely as once a minute, and a payment that waits for one looks given up meanwhile,
 * so it is not reported unless the target file declares a patience of more.
 */
async function goesOnAfterToken(...given: Parameters<typeof goesOn>): Promise<void> {
  const [t, , holds] = given;
  if (holds || t.run.caller.patience_seconds > TOKEN_PAUSE_SECONDS) return await goesOn(...given);
  t.wanting.push(
    `no call for ${t.run.caller.patience_seconds} s (${given[3].expected}): set caller.patience_seconds to more than ${TOKEN_PAUSE_SECONDS}, as token requests may be a minute apart`,
  );
}

/** One variant of a scenario, or all of them in turn, for the token requests that follow a 401. */
class TokenFault {
  /** For every call. */
  readonly behaviour: Behaviour;
  /** For the calls of the payment alone. */
  readonly ofPayment: Behaviour;
  /** Token requests that met the fault. */
  given = 0;
  readonly #rule: TokenRule;
  readonly #refused = new Set<string>();
  readonly #shrunk = new Set<string>();
  #payment: { readonly id: string } | undefined;
  #fetched = false;
  #released = false;
  readonly #t: CallerContext;

  constructor(t: CallerContext, scenario: Scenario, rule: TokenRule, variant: number) {
    this.#t = t;
    this.#rule = rule;
    const inner = scenario.begin({
      next: () => this.#next(variant),
      healed: () => this.#released,
      stray: t.run.partner.stray_url,
      replay: () => undefined,
    });
    this.behaviour = {
      receive: (call, partner) => {
        if (call.operation !== 'access_token') return undefined;
        this.#fetched = true;
        // F57 has no fault at the token endpoint: the refusal is the fault.
        if (inner.receive === undefined && inner.answer === undefined) this.given += 1;
        return inner.receive?.(call, partner);
      },
      answer: async (call, answer, partner) => {
        if (call.operation !== 'access_token') return undefined;
        const reply = await inner.answer?.(call, answer, partner);
        if (typeof reply === 'object') this.#note(reply);
        return reply;
      },
    };
    this.ofPayment = {
      authorize: (call, refusal) => this.#authorize(call, refusal),
      born: (payment) => {
        this.#payment = { id: payment.platform_payment_id };
        if (!this.#released) payment.ending = { ...payment.ending, after_ms: undefined };
      },
      receive: (call) => {
        delete call.headers['prefer'];
        return undefined;
      },
    };
  }

  #next(variant: number): number | undefined {
    const { usable, watched, until_healed, variants } = this.#rule;
    if (this.#released || !this.#fetched) return undefined;
    if (usable === true && watched !== true && this.given > 0) return undefined;
    if (usable !== true && until_healed !== true && this.given >= variants) return undefined;
    this.given += 1;
    return usable === true ? variant : this.given - 1;
  }

  isMet(): boolean {
    const { usable, until_healed, variants } = this.#rule;
    return this.given >= (usable === true || until_healed === true ? 1 : variants);
  }

  /** Refuses what the platform holds until it has fetched, and PUTs with a token that lost its scope. */
  #authorize(call: Call, refusal: Refusal | undefined): Refusal | undefined {
    const credential = call.headers.authorization ?? '';
    if (call.method === 'PUT' && !this.#fetched) this.#refused.add(credential);
    if (this.#refused.has(credential)) return new Refusal('UNAUTHORIZED');
    if (call.method === 'PUT' && this.#shrunk.has(credential)) {
      return new Refusal('INSUFFICIENT_SCOPE');
    }
    return refusal;
  }

  #note({ body }: Answer): void {
    if (typeof body !== 'object' || body === null || !('scope' in body)) return;
    if (body['scope'] === 'read' && 'access_token' in body) {
      this.#shrunk.add(`Bearer ${String(body['access_token'])}`);
    }
  }

  /** The token endpoint works again, and the payment may end. */
  release(): void {
    this.#released = true;
    const id = this.#payment?.id;
    if (id !== undefined) this.#t.run.partner.end(id, 'succeeded');
  }
}
