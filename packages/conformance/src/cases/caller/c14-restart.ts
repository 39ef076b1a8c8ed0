import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { recordOf, type Behaviour } from '../../sandbox/partner.ts';
import { goesOn, noDouble, notEnded, returnedTheEnd, sameBytes } from './calls.ts';

export const c14: CallerCase = {
  id: 'C14',
  title: 'Open payments survive a restart of the platform',
  clauses: ['RU5', 'S4', 'ST3'],
  severity: 'must',
  profile: 'contract',
  stage: 'last',
  sends:
    'the scripted partner keeps one payment processing and leaves the PUT of another without a response; then the platform is restarted',
  expects:
    'the same PUT again for the unanswered payment, polls for the other, and no second payment',
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
  },
};

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
