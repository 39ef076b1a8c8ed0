/** Judges how a platform handles a fault of a partner, of its token endpoint, or of the network between. */
import { Refusal } from '@duebridge/contract';
import type { CallerContext, CallerPayment } from '../check/caller-context.ts';
import type { Behaviour, Call, Scenario } from '../scripted/partner.ts';
import {
  goesOn,
  hasEnded,
  held,
  noDouble,
  notEnded,
  notTooFast,
  pollsByGet,
  sameBytes,
  showsTheEnd,
  stopsAtTheEnd,
  untilEnd,
} from './caller-rules.ts';

/** Maximum number of calls per second that a partner should have to handle: of one method for one payment, or for tokens. */
const MOST_A_SECOND = 10;

/** After this many polls without the fault, none will get it. */
const MOST_POLLS = 20;

/** Interval at which the judge reads the status of a payment from the platform. */
const ASK_EVERY_MS = 500;

/** Tolerance for an early call, because timers and clocks are not exact. */
const TOLERANCE_MS = 100;

/**
 * Judges every variant of a scenario, each with a payment of its own. `first_cents` is the first of the amounts that belong to this
 * check.
 */
export async function judgeScenario(
  t: CallerContext,
  scenario: Scenario,
  first_cents: number,
): Promise<void> {
  const { ofTokens, variants } = scenario;
  let met = 0;
  const job = async (variant: number): Promise<void> => {
    const fault = new Fault(t, scenario, variant);
    const payment = await t.pay(first_cents + 10 * variant, fault.behaviour);
    if (await isMet(t, payment, fault)) {
      met += 1;
      await judgeFault(t, payment, fault);
    }
    sameBytes(t, payment);
    noDouble(t, payment);
  };
  if (ofTokens === true) {
    await holdsToken(t, first_cents + 10 * variants);
    // Every payment meets the fault, so those of one variant come after those of the other.
    for (let variant = 0; variant < variants && t.all.length === 0; variant += 1) {
      await job(variant);
    }
  } else await t.each(variants, job);
  const strays = t.strays();
  t.must(strays === 0, 'no request to the redirect’s target host', undefined, {
    got: `${strays} requests, with the credential of the partner`,
    clause: 'S3',
    cause: 'The HTTP library follows redirects by default.',
  });
  t.given(met > 0, 'the platform sent no call to which this fault applies');
}

/** Makes a payment unless one was accepted before, so that the platform holds a token when the fault starts. */
async function holdsToken(t: CallerContext, cents: number): Promise<void> {
  t.given(t.caller.target.authentication.method === 'oauth', 'the platform uses a static key');
  const { exchanges } = t.caller.partner;
  const isHeld = exchanges.some(({ method, answer }) => method === 'PUT' && answer?.status === 200);
  if (!isHeld) await t.accepted(await t.pay(cents));
}

/** Waits until the platform has met the fault. Returns whether it has, at least in part. */
async function isMet(t: CallerContext, payment: CallerPayment, fault: Fault): Promise<boolean> {
  const { ofTokens, on, after } = fault.rule;
  if (ofTokens === true) {
    await t.untilSilent(payment, () => fault.isMet() || isTaken(t, payment));
    if (fault.calls.length > 0) return true;
    await t.arrived(payment);
    await notEnded(t, payment, 'a 401 for a valid access token', 'ST3');
    return false;
  }
  await t.arrived(payment);
  if (after === 'stops') return untilEnd(t, payment);
  const polls = (): number => t.calls(payment).filter(({ method }) => method === 'GET').length;
  await t.until(() => fault.isMet() || polls() > MOST_POLLS);
  if (on === 'GET') pollsByGet(t, payment);
  return fault.calls.length > 0;
}

/** True when the partner has accepted the payment. */
const isTaken = (t: CallerContext, payment: CallerPayment): boolean =>
  t.puts(payment).some(({ answer }) => answer?.status === 200);

async function judgeFault(t: CallerContext, payment: CallerPayment, fault: Fault): Promise<void> {
  const { rule } = fault;
  // This fault begins once the platform shows the end.
  if (rule.after === 'stops') return stopsAtTheEnd(t, payment, () => fault.begin());
  const severity = rule.strict === true ? 'should' : 'must';
  const what = rule.variants === 1 ? rule.title : `${rule.title} (variant ${fault.variant + 1})`;
  // The next call shows that the platform has read the faulty answer; where none is required, wait for a fixed time.
  if ((rule.after ?? 'goes_on') === 'goes_on') await reaction(t, payment, fault);
  else await t.quiet();
  if (rule.after === 'frozen') return await frozen(t, payment, what, severity);
  if (rule.watched === true) await t.quiet();
  const clause = rule.clauses.includes('PF4') ? 'PF4' : 'ST3';
  if (!(await notEnded(t, payment, what, clause, severity))) return;
  const gets = t.calls(payment).filter(({ method }) => method === 'GET');
  notTooFast(t, t.puts(payment), rule.most_puts_a_second ?? MOST_A_SECOND, 'PUTs');
  notTooFast(t, gets, MOST_A_SECOND, 'GETs');
  if (rule.retry_after_seconds !== undefined) waited(t, payment, fault, rule.retry_after_seconds);
  // Nothing else runs at the same time, so every token request is of this payment.
  if (rule.last === true || rule.ofTokens === true) tokenRequests(t, fault);
  fault.release(payment);
  if (rule.after === 'may_stop') return;
  const over = (): boolean =>
    rule.ends === true ? hasEnded(t, payment) : fault.nextCall(payment) !== undefined;
  const inVain = (): boolean => rule.ends === true && readsInVain(t.calls(payment));
  const ended = (await t.until(() => over() || inVain())) && over();
  if (inVain()) {
    t.must(false, `after ${what}: the same PUT again`, t.calls(payment).at(-1), {
      got: `${READS_IN_VAIN} reads that were answered with 404, and no PUT`,
      clause: 'RU5',
    });
    return;
  }
  const further = `a further call, within ${t.caller.target.patience_seconds} s`;
  await goesOn(t, payment, ended, {
    expected: `after ${what}: ${rule.ends === true ? t.untilTheEnd : further}`,
    ...(rule.ofTokens === true
      ? { least_seconds: TOKEN_PAUSE_SECONDS, cause: 'Without a usable token nothing is retried.' }
      : { cause: 'The platform treats the response as final, or the error ends the retry loop.' }),
    clause: 'RU4',
  });
  if (ended && rule.ends === true) await showsTheEnd(t, payment);
}

/** Reads in a row that find no payment, after which a platform should have put it again. */
const READS_IN_VAIN = 10;

/** Whether a platform only reads a payment that the partner does not have. */
function readsInVain(calls: readonly Call[]): boolean {
  const last = calls.slice(-READS_IN_VAIN);
  return (
    last.length === READS_IN_VAIN &&
    last.every(({ method, answer }) => method === 'GET' && answer?.status === 404)
  );
}

/** Waits for the next call, or for a terminal status that the partner never reported. */
async function reaction(t: CallerContext, payment: CallerPayment, fault: Fault): Promise<void> {
  let asked = t.run.now();
  await t.until(async () => {
    if (fault.nextCall(payment) !== undefined) return true;
    if (t.run.now() - asked < ASK_EVERY_MS) return false;
    asked = t.run.now();
    const status = await payment.status();
    return status !== undefined && status !== 'processing';
  });
}

/** The payment must still be processing for the customer. */
async function frozen(
  t: CallerContext,
  payment: CallerPayment,
  what: string,
  severity: 'must' | 'should',
): Promise<void> {
  const status = await payment.status();
  t.given(
    status !== undefined,
    'the kit cannot read the status of a payment from the platform: declare caller.status_command',
  );
  const expected = `still processing after ${what}: it needs manual review`;
  t[severity](status === 'processing', expected, t.calls(payment).at(-1), {
    got: `status ${status}`,
  });
}

function waited(t: CallerContext, payment: CallerPayment, fault: Fault, seconds: number): void {
  for (const asked of t.calls(payment).filter(({ number }) => fault.calls.includes(number))) {
    const next = fault.callAfter(payment, asked.number);
    if (next === undefined) continue;
    const ms = next.at_ms - asked.at_ms;
    const expected = `the next call ${seconds} s after ${asked.method} was answered with Retry-After: ${seconds}`;
    t.should(ms >= seconds * 1_000 - TOLERANCE_MS, expected, next, {
      got: `after ${ms} ms`,
      clause: 'LI1',
    });
  }
}

/** Maximum number of token requests for one long-lived token. */
const FEW_FETCHES = 3;

/** Time between two token requests that a platform may choose after a refusal. */
const TOKEN_PAUSE_SECONDS = 60;

/** What a token that cannot be used, or lives long, must lead to at the token endpoint, and in the calls. */
function tokenRequests(t: CallerContext, { rule: { watched }, fetchedBefore }: Fault): void {
  const fetches = t.fetches();
  // Every variant takes a token: ten of them in a second are the judge's own pace.
  const cause = 'A token is fetched for each 401, by a timer of over 2^31 ms, or at once.';
  notTooFast(t, fetches.slice(fetchedBefore), MOST_A_SECOND, 'token requests', cause);
  // These tokens are long-lived by any reading of expires_in: one fetch after the 401 is enough.
  const isCalm = watched !== true || fetches.length <= FEW_FETCHES;
  const few = `at most ${FEW_FETCHES} token requests for a long-lived token`;
  t.should(isCalm, few, fetches[0], {
    got: `${fetches.length}`,
    clause: 'OA3',
    cause: 'A timer is set from expires_in, and a delay beyond 2^31 ms fires immediately.',
  });
  t.none(
    t.calls().filter(({ headers }) => 'x-injected' in headers),
    'no header injected through an access token',
    ({ method, path }) => `X-Injected in ${method} ${path}`,
    { clause: 'OA4', cause: 'The token is written to the header with its line feed.' },
  );
}

/**
 * One variant of a scenario, for the calls of one payment, or for the token requests that follow when the platform's tokens are refused for
 * it.
 */
class Fault {
  readonly variant: number;
  readonly rule: Scenario;
  /** For the calls of the payment. */
  readonly behaviour: Behaviour;
  /** Numbers of the calls that were answered wrongly. */
  readonly calls: number[] = [];
  /** Token requests of this check before this variant. */
  readonly fetchedBefore: number;
  readonly #t: CallerContext;
  readonly #given: Record<string, number> = { PUT: 0, GET: 0, POST: 0 };
  #released = false;
  #begun: boolean;

  constructor(t: CallerContext, rule: Scenario, variant: number) {
    this.#t = t;
    this.rule = rule;
    this.variant = variant;
    this.fetchedBefore = t.fetches().length;
    this.#begun = rule.after !== 'stops';
    const { clock } = t.run;
    const stray = t.caller.partner.stray_url;
    const inner = rule.begin({ clock, stray, next: (call) => this.#next(call) });
    if (rule.ofTokens === true) t.caller.behaviour = inner;
    this.behaviour = {
      ...(rule.ofTokens === true ? revoked(t) : inner),
      ...held(() => rule.payment === 'ended' || this.#released),
    };
  }

  /** The variant with which a call is answered; undefined when it is answered correctly. */
  #next({ method, number }: Call): number | undefined {
    const { on, times = 1, inTurn, ofTokens } = this.rule;
    const given = this.#given[method];
    if (given === undefined || given >= times || !this.#begun) return undefined;
    // The token endpoint works again, so that the payment can end; what is wrong with a payment stays so to its end.
    if (ofTokens === true ? this.#released : on !== 'both' && on !== method) return undefined;
    this.#given[method] = given + 1;
    this.calls.push(number);
    return inTurn === true ? given : this.variant;
  }

  /** Makes all further responses faulty. */
  begin(): void {
    this.#begun = true;
  }

  /** True when as many calls as the rule names were answered wrongly. */
  isMet(): boolean {
    const { on, ofTokens, times = 1, enough = Number.isFinite(times) ? times : 1 } = this.rule;
    const { PUT = 0, GET = 0, POST = 0 } = this.#given;
    if (ofTokens === true) return POST >= enough;
    return (on === 'GET' || PUT > 0) && (on === 'PUT' || GET >= enough);
  }

  /** The first call for the payment after the last faulty answer; after the first one, where all are faulty. */
  nextCall(payment: CallerPayment): Call | undefined {
    const last = this.rule.times === Infinity ? this.calls[0] : this.calls.at(-1);
    return last === undefined ? undefined : this.callAfter(payment, last);
  }

  /** The first call for the payment after the call with this number. */
  callAfter(payment: CallerPayment, number: number): Call | undefined {
    return this.#t.calls(payment).find((call) => call.number > number);
  }

  /** Lets the payment end. */
  release(payment: CallerPayment): void {
    this.#released = true;
    this.#t.settle(payment);
  }
}

/** Refuses the tokens that the platform has until it has asked for a new one. */
function revoked(t: CallerContext): Behaviour {
  const before = t.fetches().length;
  const refused = new Set<string>();
  return {
    authorize({ method, headers: { authorization = '' } }, refusal) {
      if (method === 'PUT' && t.fetches().length === before) refused.add(authorization);
      return refused.has(authorization) ? new Refusal('UNAUTHORIZED') : refusal;
    },
  };
}

/** Payments that wait when an access token expires. */
const HERD = 19;

/** Lifetime of a token in this check. */
const LIFE_SECONDS = 2;

/** The scenarios that no single call meets, by their full names, each with its judge. `cents` is the first of the amounts of the check. */
export const OWN_JUDGES: Readonly<
  Record<string, (t: CallerContext, cents: number) => Promise<void>>
> = { 'F03-connection-refused': refused, 'F65-herd-on-expiry': herd };

/** Connections are refused from the first PUT on, for a while. */
async function refused(t: CallerContext, cents: number): Promise<void> {
  let restore: Promise<() => Promise<void>> | undefined;
  const payment = await t.pay(cents, {
    receive({ method }) {
      if (method !== 'PUT' || restore !== undefined) return undefined;
      restore = t.caller.partner.refuseConnections();
      return (wire) => void wire.socket.destroy();
    },
  });
  try {
    await t.arrived(payment);
    await t.quiet();
    await notEnded(t, payment, 'refused connections', 'ST3');
  } finally {
    await (
      await restore
    )?.();
  }
  await goesOn(t, payment, await untilEnd(t, payment), {
    expected: `after refused connections: ${t.untilTheEnd}`,
    clause: 'S4',
    cause: 'The platform treats an unreachable partner as a refusal, or never retries.',
  });
  sameBytes(t, payment);
  noDouble(t, payment);
}

/** Many payments wait while a slow token endpoint issues short-lived tokens. */
async function herd(t: CallerContext, cents: number): Promise<void> {
  await holdsToken(t, cents + 10 * HERD);
  let [under_way, most, done] = [0, 0, false];
  t.caller.behaviour = {
    ...revoked(t),
    receive(call) {
      if (call.operation !== 'access_token') return undefined;
      under_way += 1;
      most = Math.max(most, under_way);
      return undefined;
    },
    async answer(call, answer) {
      if (call.operation !== 'access_token') return undefined;
      // Slow enough that calls which do not share a fetch overlap.
      await t.run.sleep(150);
      under_way -= 1;
      return answer.status === 200
        ? { ...answer, body: { ...(answer.body as object), expires_in: LIFE_SECONDS } }
        : undefined;
    },
    ...held(() => done),
  };
  const number = Math.min(HERD, t.caller.driver.at_once);
  const payments = await t.payAll(
    Array.from({ length: number }, (_, place) => ({ cents: cents + 10 * place })),
  );
  const taken = (): number => payments.filter((payment) => isTaken(t, payment)).length;
  const allTaken = await t.until(() => taken() === number);
  // One more expiry, now under polls.
  await t.run.sleep(LIFE_SECONDS * 1_000);
  done = true;
  for (const payment of payments) t.settle(payment);
  const fetches = t.fetches();
  t.should(fetches.length > 0, 'a new access token after a 401', undefined, {
    got: 'no request to the token endpoint',
    cause: 'The platform keeps a token until its expiry, whatever the partner answers.',
  });
  t.should(allTaken, `${number} payments accepted with the new token`, undefined, {
    got: `${taken()}`,
  });
  t.should(most === 1, 'one token request at a time, shared by all calls', fetches[1], {
    got: `${most} at the same time`,
  });
  await t.until(() => payments.every((payment) => hasEnded(t, payment)));
}
