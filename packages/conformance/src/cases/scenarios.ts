/** Judges how a platform handles a fault of a partner, of its token endpoint, or of the network between. */
import { Refusal } from '@duebridge/contract';
import type { CallerContext, CallerPayment } from '../check/caller-context.ts';
import { BAD_CERTIFICATE } from '../scripted/certificate.ts';
import type { Answer, Behaviour, Call, Scenario } from '../scripted/partner.ts';
import {
  fewFetches,
  goesOn,
  hasEnded,
  noDouble,
  notEnded,
  notTooFast,
  pollsByGet,
  sameBytes,
  showsTheEnd,
  stopsAtTheEnd,
  untilEnd,
} from './caller-rules.ts';

/** Maximum number of calls per second of one method for one payment that a partner should have to handle. */
const MOST_A_SECOND = 10;

/** After this many polls without the fault, none will get it. */
const MOST_POLLS = 20;

/** Interval at which the judge reads the status of a payment from the platform. */
const ASK_EVERY_MS = 500;

/** Tolerance for an early call, because timers and clocks are not exact. */
const TOLERANCE_MS = 100;

/** Judges every variant. `first_cents` is the first of the amounts that belong to this check. */
export async function judgePayments(
  t: CallerContext,
  scenario: Scenario,
  first_cents: number,
): Promise<void> {
  const rule = scenario;
  const variants = Array.from({ length: rule.variants }, (_, variant) => variant);
  let met = 0;
  await t.each(variants, async (variant) => {
    const fault = new PaymentFault(t, scenario, variant);
    const payment = await t.pay(first_cents + 10 * variant, fault.behaviour);
    await t.arrived(payment);
    if (rule.after === 'stops') met += await judgeStop(t, payment, fault);
    else {
      const polls = (): number => t.calls(payment).filter(({ method }) => method === 'GET').length;
      await t.until(() => fault.isMet() || polls() > MOST_POLLS);
      if (rule.on === 'GET') pollsByGet(t, payment);
      if (fault.calls.length > 0) {
        met += 1;
        await judgeFault(t, payment, fault);
      }
    }
    sameBytes(t, payment);
    noDouble(t, payment);
  });
  const strays = t.strays();
  t.must(strays === 0, 'no request to the redirect’s target host', undefined, {
    got: `${strays} requests`,
    clause: 'S3',
    cause: 'The HTTP library follows redirects by default.',
  });
  t.given(met > 0, 'the platform sent no call to which this fault applies');
}

async function judgeFault(
  t: CallerContext,
  payment: CallerPayment,
  fault: PaymentFault,
): Promise<void> {
  const { rule } = fault;
  const severity = rule.strict === true ? 'should' : 'must';
  const what = `${rule.title} (variant ${fault.variant + 1})`;
  // The next call shows that the platform has read the faulty answer; where none is required, wait for a fixed time.
  if ((rule.after ?? 'goes_on') === 'goes_on') await reaction(t, payment, fault);
  else await t.quiet();
  if (rule.after === 'frozen') return await frozen(t, payment, what, severity);
  const clause = rule.clauses.includes('PF4') ? 'PF4' : 'ST3';
  if (!(await notEnded(t, payment, what, clause, severity))) return;
  notTooFast(t, payment, 'PUT', MOST_A_SECOND);
  notTooFast(t, payment, 'GET', MOST_A_SECOND);
  if (rule.retry_after_seconds !== undefined) waited(t, fault, rule.retry_after_seconds);
  // Nothing else runs at the same time, so every token request is of this payment.
  if (rule.last === true) fewFetches(t);
  fault.release(payment);
  if (rule.after === 'may_stop') return;
  const over = (): boolean =>
    rule.ends === true ? hasEnded(t, payment) : fault.nextCall() !== undefined;
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
    clause: 'RU4',
    cause: 'The platform treats the response as final, or the error ends the retry loop.',
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
async function reaction(
  t: CallerContext,
  payment: CallerPayment,
  fault: PaymentFault,
): Promise<void> {
  let asked = t.run.now();
  await t.until(async () => {
    if (fault.nextCall() !== undefined) return true;
    if (t.run.now() - asked < ASK_EVERY_MS) return false;
    asked = t.run.now();
    const status = await payment.status();
    return status !== undefined && status !== 'processing';
  });
}

/** The fault begins once the platform shows the end. Returns 1 if the end was reported, else 0. */
async function judgeStop(
  t: CallerContext,
  payment: CallerPayment,
  fault: PaymentFault,
): Promise<0 | 1> {
  if (!(await untilEnd(t, payment))) return 0;
  await stopsAtTheEnd(t, payment, () => fault.begin());
  return 1;
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

function waited(t: CallerContext, fault: PaymentFault, seconds: number): void {
  for (const number of fault.calls) {
    const [asked, next] = fault.around(number);
    if (asked === undefined || next === undefined) continue;
    const ms = next.at_ms - asked.at_ms;
    const expected = `the next call ${seconds} s after ${asked.method} was answered with Retry-After: ${seconds}`;
    t.should(ms >= seconds * 1_000 - TOLERANCE_MS, expected, next, {
      got: `after ${ms} ms`,
      clause: 'LI1',
    });
  }
}

/** Begins a scenario for calls of the scripted partner. `next`: the variant with which a call is answered. */
function begin(
  t: CallerContext,
  scenario: Scenario,
  next: (call: Call) => number | undefined,
): Behaviour {
  const { partner } = t.caller;
  const { clock } = t.run;
  return scenario.begin({ clock, next, stray: partner.stray_url });
}

/** One variant of a scenario, for the calls of one payment. */
class PaymentFault {
  readonly variant: number;
  readonly rule: Scenario;
  readonly behaviour: Behaviour;
  /** Numbers of the calls that were answered wrongly. */
  readonly calls: number[] = [];
  readonly #t: CallerContext;
  readonly #given = { PUT: 0, GET: 0 };
  #id: string | undefined;
  #released = false;
  #begun: boolean;

  constructor(t: CallerContext, scenario: Scenario, variant: number) {
    const rule = scenario;
    this.#t = t;
    this.rule = rule;
    this.#begun = rule.after !== 'stops';
    this.variant = variant;
    const inner = begin(t, scenario, (call) => this.#next(call));
    this.behaviour = {
      receive: (call, partner) => {
        this.#id = call.params['platform_payment_id'];
        return inner.receive?.(call, partner);
      },
      born: (payment, call, partner) => {
        if (rule.payment === 'ended') return;
        inner.born?.(payment, call, partner);
        if (!this.#released) payment.ending = { ...payment.ending, after_ms: undefined };
      },
      answer: async (call, answer, partner) => {
        const faulty = await inner.answer?.(call, answer, partner);
        return this.#begun ? faulty : undefined;
      },
    };
  }

  /** The variant with which a call is answered; undefined when it is answered correctly. */
  #next(call: Call): number | undefined {
    const { on, times = 1, inTurn } = this.rule;
    if (call.method !== 'PUT' && call.method !== 'GET') return undefined;
    if (on !== 'both' && on !== call.method) return undefined;
    const given = this.#given[call.method];
    if (given >= times) return undefined;
    this.#given[call.method] = given + 1;
    this.calls.push(call.number);
    return inTurn === true ? given : this.variant;
  }

  /** Makes all further responses faulty. */
  begin(): void {
    this.#begun = true;
  }

  /** True when as many calls as the rule names were answered wrongly. */
  isMet(): boolean {
    const { on, times = 1, enough = Number.isFinite(times) ? times : 1 } = this.rule;
    const { PUT, GET } = this.#given;
    return (on === 'GET' || PUT > 0) && (on === 'PUT' || GET >= enough);
  }

  /** The first call for the payment after the last faulty answer; after the first one, where all are faulty. */
  nextCall() {
    const isEndless = this.rule.times === Infinity;
    return this.around((isEndless ? this.calls[0] : this.calls.at(-1)) ?? 0)[1];
  }

  /** The call with this number, and the next one for the same payment. */
  around(number: number) {
    const all = this.#t.caller.exchangesOf(this.#id);
    const place = all.findIndex((call) => call.number === number);
    return place < 0 ? [] : ([all[place], all[place + 1]] as const);
  }

  /** Lets the payment end. */
  release(payment: CallerPayment): void {
    this.#released = true;
    this.#t.settle(payment);
  }
}

/** Maximum number of token requests for one long-lived token. */
const FEW_FETCHES = 3;

/** Time between two token requests that a platform may choose after a refusal. */
const TOKEN_PAUSE_SECONDS = 60;

/** Judges every variant. `first_cents` is the first of the amounts that belong to this check. */
export async function judgeTokens(
  t: CallerContext,
  scenario: Scenario,
  first_cents: number,
): Promise<void> {
  const { variants, usable } = scenario;
  t.given(t.caller.target.authentication.method === 'oauth', 'the platform uses a static key');
  await holdsToken(t, first_cents + 10 * variants);
  const strays = t.caller.partner.strayPaths().length;
  // A usable token ends the fault for its payment, so each variant needs its own; the others come one after another.
  const rounds = usable === true ? variants : 1;
  for (let round = 0; round < rounds; round += 1) {
    await judgeRound(t, scenario, { variant: round, cents: first_cents + 10 * round });
    if (t.all.length > 0) break;
  }
  const followed = t.caller.partner.strayPaths().length - strays;
  const expected = 'no request to the redirect’s target host, which would receive the secret';
  t.must(followed === 0, expected, undefined, {
    got: `${followed} requests`,
    clause: 'S3',
    cause: 'The HTTP library follows redirects by default.',
  });
}

/** Makes a payment unless one was accepted before, so that the platform holds a token when the fault starts. */
async function holdsToken(t: CallerContext, cents: number): Promise<void> {
  const exchanges = t.caller.partner.exchanges;
  const isHeld = exchanges.some(({ method, answer }) => method === 'PUT' && answer?.status === 200);
  if (!isHeld) await t.accepted(await t.pay(cents));
}

async function judgeRound(
  t: CallerContext,
  scenario: Scenario,
  { variant, cents }: { variant: number; cents: number },
): Promise<void> {
  const rule = scenario;
  const fault = new TokenFault(t, scenario, variant);
  t.script(fault.behaviour);
  const payment = await t.pay(cents, fault.ofPayment);
  const taken = (): boolean => t.puts(payment).some(({ answer }) => answer?.status === 200);
  const met = await t.untilSilent(payment, () => fault.isMet() || taken());
  if (fault.given === 0) {
    await t.arrived(payment);
    if (!(await notEnded(t, payment, 'a 401 for a valid access token', 'ST3'))) return;
  }
  t.given(fault.given > 0, 'the platform fetched no access token after a 401');
  const what = `${scenario.title}${rule.usable === true ? ` (variant ${variant + 1})` : ''}`;
  if (rule.until_healed === true) await t.quiet();
  else if (met) await t.untilSilent(payment, taken);
  if (rule.watched === true) await t.quiet();
  const open = await notEnded(t, payment, what, 'ST3');
  fault.release(payment);
  if (open && rule.until_healed !== true) {
    await goesOnAfterToken(t, payment, taken() && (await untilEnd(t, payment)), {
      expected: `after ${what}: ${t.untilTheEnd}`,
      clause: 'RU4',
      cause: 'An unusable or missing access token ends the payment or the retry loop.',
    });
  }
  notTooFast(t, payment, 'PUT', MOST_A_SECOND);
  sameBytes(t, payment);
  noDouble(t, payment);
  const fetches = fewFetches(t);
  // These tokens are long-lived by any reading of expires_in: one fetch after the 401 is enough.
  const isCalm = rule.watched !== true || fetches.length <= FEW_FETCHES;
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
 * Like goesOn. A platform may request tokens as rarely as once a minute, and a payment that waits for one looks abandoned meanwhile,
 * so it is not reported unless the target file declares a patience of more.
 */
async function goesOnAfterToken(...given: Parameters<typeof goesOn>): Promise<void> {
  const [t, , holds] = given;
  if (holds || t.caller.target.patience_seconds > TOKEN_PAUSE_SECONDS)
    return await goesOn(...given);
  t.wanting.push(
    `no call for ${t.caller.target.patience_seconds} s (${given[3].expected}): set caller.patience_seconds to more than ${TOKEN_PAUSE_SECONDS}, because token requests may be a minute apart`,
  );
}

/** One variant of a scenario, or all of them in turn, for the token requests that follow a 401. */
class TokenFault {
  /** For every call. */
  readonly behaviour: Behaviour;
  /** Only for the calls of the payment. */
  readonly ofPayment: Behaviour;
  /** Token requests that met the fault. */
  given = 0;
  readonly #rule: Scenario;
  readonly #refused = new Set<string>();
  readonly #shrunk = new Set<string>();
  #fetched = false;
  #released = false;
  readonly #t: CallerContext;

  constructor(t: CallerContext, scenario: Scenario, variant: number) {
    this.#t = t;
    this.#rule = scenario;
    const inner = begin(t, scenario, () => this.#next(variant));
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
        if (!this.#released) payment.ending = { ...payment.ending, after_ms: undefined };
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

  /** Refuses the platform's tokens until it has fetched a new one, and PUTs with a token that lost its scope. */
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
  release(payment: CallerPayment): void {
    this.#released = true;
    this.#t.settle(payment);
  }
}

/** Payments that wait when an access token expires. */
const HERD = 19;

/** Lifetime of a token in this check. */
const LIFE_SECONDS = 2;

/** Judges one scenario. `cents` is the first of the amounts that belong to this check. */
export type OwnJudge = (t: CallerContext, cents: number) => Promise<void>;

/** Keyed by the scenario's full name. */
export const OWN_JUDGES: Readonly<Record<string, OwnJudge>> = {
  'F03-connection-refused': (t, cents) =>
    broken(t, cents, 'connections refused', () => t.caller.partner.refuseConnections()),
  'F47-bad-certificate': async (t: CallerContext, cents: number) => {
    const { partner, target: caller } = t.caller;
    t.given(caller.tls !== undefined, 'the scripted partner uses plain http: declare caller.tls');
    let [calls, refused] = [0, 0];
    const came = (): number => t.calls().length - calls;
    const breakIt = async () => {
      const restore = partner.replaceCertificate(BAD_CERTIFICATE);
      [calls, refused] = [t.calls().length, partner.refusedHandshakes];
      return async () => restore();
    };
    await broken(t, cents, 'a bad certificate', breakIt, async () => {
      await t.until(() => came() > 0 || partner.refusedHandshakes > refused);
      const expected = 'no request over a connection with an untrusted certificate';
      t.must(came() === 0, expected, undefined, {
        got: `${came()} requests`,
        clause: 'S3',
        cause: 'Certificate verification is disabled.',
      });
    });
  },
  'F65-herd-on-expiry': herd,
};

/** The connection breaks at the first PUT, and stays broken for a while. */
async function broken(
  t: CallerContext,
  cents: number,
  what: string,
  breakIt: () => Promise<() => Promise<void>>,
  meanwhile: () => Promise<void> = () => Promise.resolve(),
): Promise<void> {
  let restore: Promise<() => Promise<void>> | undefined;
  const breaks: Behaviour = {
    receive(call) {
      if (call.method !== 'PUT' || restore !== undefined) return undefined;
      restore = breakIt();
      return (wire) => void wire.socket.destroy();
    },
  };
  const payment = await t.pay(cents, breaks);
  try {
    await t.arrived(payment);
    await t.until(() => restore !== undefined);
    await meanwhile();
    await t.quiet();
    await notEnded(t, payment, what, 'ST3');
  } finally {
    await (
      await restore
    )?.();
  }
  await goesOn(t, payment, await untilEnd(t, payment), {
    expected: `after ${what}: ${t.untilTheEnd}`,
    clause: 'S4',
    cause: 'The platform treats an unreachable partner as a refusal, or never retries.',
  });
  sameBytes(t, payment);
  noDouble(t, payment);
}

/** Many payments wait while a slow token endpoint issues short-lived tokens. */
async function herd(t: CallerContext, cents: number): Promise<void> {
  t.given(t.caller.target.authentication.method === 'oauth', 'the platform uses a static key');
  await holdsToken(t, cents + 10 * HERD);
  let [under_way, most, fetched, done] = [0, 0, false, false];
  const refused = new Set<string>();
  t.script({
    receive(call) {
      if (call.operation !== 'access_token') return undefined;
      fetched = true;
      under_way += 1;
      most = Math.max(most, under_way);
      return undefined;
    },
    authorize(call, refusal) {
      const credential = call.headers.authorization ?? '';
      if (call.method === 'PUT' && !fetched) refused.add(credential);
      return refused.has(credential) ? new Refusal('UNAUTHORIZED') : refusal;
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
    born(payment) {
      if (!done) payment.ending = { ...payment.ending, after_ms: undefined };
    },
  });
  const number = Math.min(HERD, t.caller.driver.at_once);
  const payments = await t.payAll(
    Array.from({ length: number }, (_, place) => ({ cents: cents + 10 * place })),
  );
  const isTaken = (payment: CallerPayment): boolean =>
    t.puts(payment).some(({ answer }) => answer?.status === 200);
  const allTaken = await t.until(() => payments.every(isTaken));
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
    got: `${payments.filter(isTaken).length}`,
  });
  t.should(most === 1, 'one token request at a time, shared by all calls', fetches[1], {
    got: `${most} at the same time`,
  });
  await t.until(() => payments.every((payment) => hasEnded(t, payment)));
}
