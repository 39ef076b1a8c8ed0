import type { ClauseId } from '@duebridge/contract';
import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { recordOf, type Behaviour } from '../../sandbox/partner.ts';
import { goesOn, noDouble, notEnded, notTooFast, sameBytes, returnedTheEnd } from './calls.ts';

/** Calls after which a platform with a retry limit would have given up; polls are cheaper, and limits on them higher. */
const CALLS = { PUT: 5, GET: 12 } as const;

/** Maximum number of PUTs per second for one payment that a partner should have to handle. */
const MOST_A_SECOND = 5;

export const c13: CallerCase = {
  id: 'C13',
  title: 'The platform neither floods a failing partner nor gives up on a slow one',
  clauses: ['RU4', 'RU5', 'ST3', 'B5'],
  decisions: [21, 23, 25],
  severity: 'must',
  profile: 'contract',
  sends:
    'the scripted partner answers all PUTs of one payment with 500 and keeps another payment processing, each for a while; then it responds correctly',
  expects: `at most ${MOST_A_SECOND} PUTs per second meanwhile; both payments still processing; polls with GET; and calls until each is terminal; in the strict profile, other payments meanwhile`,
  likely_cause:
    'The platform retries immediately and without a limit, or ends the payment after a number of attempts or polls.',
  async run(t: CallerContext) {
    await t.each([staysProcessing, failsAWhile], (judged) => judged(t));
  },
};

/** A payment that is processing for many polls. */
async function staysProcessing(t: CallerContext): Promise<void> {
  const slow = new Spell(t, 'GET');
  const polled = await slow.pay(13_001, stays(slow));
  await t.accepted(polled);
  await slow.last();
  await notEnded(t, polled, `${slow.calls()} polls that say processing`, 'RU4');
  pollsByGet(t, polled);
  await othersGoOn(t);
  slow.end();
  await asked(t, polled, `after ${slow.calls()} polls that say processing`, 'RU4');
}

/** A payment whose PUT fails many times. */
async function failsAWhile(t: CallerContext): Promise<void> {
  const broken = new Spell(t, 'PUT');
  const failing = await broken.pay(13_002, fails(broken));
  await t.arrived(failing);
  await broken.last();
  await notEnded(t, failing, `${broken.calls()} PUTs answered with 500`, 'ST3');
  broken.end();
  notTooFast(t, failing, 'PUT', MOST_A_SECOND);
  await asked(t, failing, `after ${broken.calls()} PUTs answered with 500`, 'RU5');
}

/** A period in which the partner is slow or failing: it lasts a number of calls, or as long as the judge is willing to wait. */
class Spell {
  readonly #t: CallerContext;
  readonly #method: 'GET' | 'PUT';
  #payment: CallerPayment | undefined;
  #over = false;

  constructor(t: CallerContext, method: 'GET' | 'PUT') {
    this.#t = t;
    this.#method = method;
  }

  get over(): boolean {
    return this.#over;
  }

  async pay(cents: number, behaviour: Behaviour): Promise<CallerPayment> {
    this.#payment = await this.#t.pay(cents, behaviour);
    return this.#payment;
  }

  calls(): number {
    return this.#t.calls(this.#payment).filter(({ method }) => method === this.#method).length;
  }

  /** Waits for enough calls that a platform with a retry limit would have given up. */
  async last(): Promise<void> {
    const { quiet_ms } = this.#t.run.tokens.pace;
    await this.#t.run.tokens.sleep(quiet_ms);
    await this.#t.until(() => this.calls() > CALLS[this.#method]);
  }

  end(): void {
    this.#over = true;
  }
}

async function asked(
  t: CallerContext,
  payment: CallerPayment,
  what: string,
  clause: ClauseId,
): Promise<void> {
  const ended = await t.until(() => t.calls(payment).some(returnedTheEnd));
  await goesOn(t, payment, ended, {
    expected: `${what}: calls until a terminal status, within ${t.run.caller.patience_seconds} s`,
    got: `${t.calls(payment).length} calls, and then none`,
    clause,
  });
  sameBytes(t, payment);
  noDouble(t, payment);
}

function fails(spell: Spell): Behaviour {
  return {
    receive: (call) =>
      call.method === 'PUT' && !spell.over
        ? { status: 500, body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' } }
        : undefined,
  };
}

/** Reports processing immediately, like a partner without waiting reads. */
function stays(spell: Spell): Behaviour {
  return {
    answer(_call, answer) {
      const record = recordOf(answer);
      return record === undefined || spell.over
        ? undefined
        : { status: 200, body: { ...record, status: 'processing', posted_at: null } };
    },
  };
}

/** Maximum number of PUTs of an accepted payment without a poll: some may be retries after a lost response. */
const MOST_PUTS = 3;

/** The status is asked with Get Account Payment; a repeated PUT is a payment instruction. */
function pollsByGet(t: CallerContext, payment: CallerPayment): void {
  const calls = t.calls(payment);
  const accepted = calls.findIndex(({ answer }) => answer?.status === 200);
  const later = calls.slice(accepted + 1);
  const puts = later.filter(({ method }) => method === 'PUT');
  const [put] = puts;
  t.must(puts.length <= MOST_PUTS || puts.length < later.length, {
    expected: 'polls with Get Account Payment once the PUT is accepted',
    got: `${puts.length} more PUTs and no GET`,
    clause: 'B5',
    cause: 'The client repeats the PUT to learn the status.',
    ...(put === undefined ? {} : { at: t.cite(put) }),
  });
}

/** A payment that takes long must not hold up the next one. */
async function othersGoOn(t: CallerContext): Promise<void> {
  if (t.profile !== 'strict' || t.run.driver.at_once === 1) return;
  const other = await t.pay(13_003);
  const wait_ms = Math.max(t.patience_ms, t.run.driver.arrival_ms ?? 0);
  t.strict(await t.until(() => t.puts(other).length > 0, wait_ms), {
    expected: `a PUT of another payment within ${t.run.caller.patience_seconds} s, while one is processing`,
    got: 'none',
    clause: 'S4',
    cause: 'The platform makes one payment at a time and waits for its end.',
  });
}
