/**
 * Judges how a platform handles a fault of calls about a payment. Each variant of the fault has its own payment, which is
 * processing until the judge has seen what the platform does, so that no faulty response contains the real end.
 */
import type { CallerContext, CallerPayment } from '../check/caller-context.ts';
import type { Behaviour, Call, Scenario } from '../scripted/partner.ts';
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
export function begin(
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
