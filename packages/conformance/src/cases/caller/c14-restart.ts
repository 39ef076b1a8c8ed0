import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { recordOf, type Behaviour } from '../../sandbox/partner.ts';
import { parsed } from '../shared.ts';
import { goesOn, noDouble, notEnded, returnedTheEnd, sameBytes } from './calls.ts';

export const c14: CallerCase = {
  id: 'C14',
  title: 'Open payments survive a restart of the platform',
  clauses: ['RU5', 'S4', 'ST3'],
  severity: 'must',
  profile: 'contract',
  stage: 'last',
  sends:
    'the scripted partner keeps one payment processing and leaves the PUT of another without a response; then the platform is restarted, and makes one more payment',
  expects:
    'the same PUT again for the unanswered payment, polls for the other, no second payment, and a new id for the next one',
  likely_cause:
    'The id is stored only after the response, or open payments exist only in memory and are forgotten or made anew.',
  async run(t: CallerContext) {
    const { restart } = t.run;
    t.given(
      restart !== undefined,
      'the target declares no caller.restart_command, and --restart was not given',
    );
    let restarted = false;
    const polled = await t.pay(
      14_001,
      staysOpen(() => restarted),
    );
    await t.accepted(polled);
    const unanswered = await t.pay(
      14_002,
      loses(() => restarted),
    );
    await t.arrived(unanswered);
    await restart();
    restarted = true;
    await goesOnFor(t, polled, 'a payment that was processing');
    await goesOnFor(t, unanswered, 'a payment whose PUT had no response');
    await newIds(t);
  },
};

/** A payment made after the restart must not get an id that another payment has (PF2). */
async function newIds(t: CallerContext): Promise<void> {
  const known = new Set(t.run.partner.exchanges().map(({ path }) => lastSegment(path)));
  await t.pay(14_003);
  const put = () => t.puts().find(({ body }) => parsed(body)?.['amount_in_cents'] === 14_003);
  await t.until(() => put() !== undefined, Math.max(t.patience_ms, t.run.driver.arrival_ms ?? 0));
  const first = put();
  if (first === undefined) return;
  t.must(!known.has(lastSegment(first.path)), {
    expected: 'a new platform_payment_id for a payment made after the restart',
    got: first.path,
    clause: 'PF2',
    cause: 'Ids are numbered by a counter in memory.',
    at: t.cite(first),
  });
}

function lastSegment(path: string): string | undefined {
  return path.split('?')[0]?.split('/').at(-1);
}

async function goesOnFor(t: CallerContext, payment: CallerPayment, what: string): Promise<void> {
  const ended = await t.until(() => t.calls(payment).some(returnedTheEnd));
  noDouble(t, payment);
  sameBytes(t, payment);
  if (ended || t.all.length > 0) return;
  await notEnded(t, payment, 'a restart', 'ST3');
  await goesOn(t, payment, ended, {
    expected: `${what}: calls until a terminal status, within ${t.run.caller.patience_seconds} s of the restart`,
    got: `${t.calls(payment).length} calls in all`,
    clause: 'S4',
  });
}

/** Reports processing until the restart. */
function staysOpen(isOver: () => boolean): Behaviour {
  return {
    answer(_call, answer) {
      const record = recordOf(answer);
      return record === undefined || isOver()
        ? undefined
        : { status: 200, body: { ...record, status: 'processing', posted_at: null } };
    },
  };
}

/** Accepts the payment, but sends no response to a PUT before the restart. */
function loses(isOver: () => boolean): Behaviour {
  return {
    answer: (call) => (call.method === 'PUT' && !isOver() ? () => undefined : undefined),
  };
}
