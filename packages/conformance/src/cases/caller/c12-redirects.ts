import type { CallerCase } from '../../check/check.ts';
import type { Behaviour, Call } from '../../sandbox/partner.ts';
import { noDouble, notEnded } from './calls.ts';

const STATUSES = [301, 302, 303, 307, 308];

export const c12: CallerCase = {
  id: 'C12',
  title: 'A redirect is never followed',
  clauses: ['S3', 'RU5'],
  decisions: [21],
  severity: 'must',
  profile: 'contract',
  sends: `the scripted partner redirects a PUT to another host with ${STATUSES.join(', ')}, and a poll with 302`,
  expects:
    'no request to that host, which would receive the credential; and the payment is not failed',
  likely_cause: 'The HTTP library follows redirects by default.',
  async run(t) {
    const stray = t.run.partner.stray_url;
    const statuses = t.run.driver.at_once > 1 ? STATUSES : STATUSES.slice(-2);
    const orders = [
      ...statuses.map((status) => ({
        what: `a PUT answered with ${status}`,
        behaviour: once((call) => call.method === 'PUT', status, stray),
      })),
      { what: 'a poll answered with 302', behaviour: once(isPoll, 302, stray) },
    ];
    await t.each(orders, async ({ what, behaviour }, place) => {
      const payment = await t.pay(12_002 + place, behaviour);
      await t.arrived(payment);
      await t.until(() => t.calls(payment).length > 1 || t.strays() > 0);
      await notEnded(t, payment, what, 'ST3');
      noDouble(t, payment);
    });
    t.must(t.strays() === 0, {
      expected: 'no request to the redirect’s target host',
      got: `${t.strays()} requests`,
    });
  },
};

function isPoll(call: Call): boolean {
  return call.method === 'GET' && call.path.includes('/payment/');
}

/** Answers the first call of this kind with a redirect. */
function once(kind: (call: Call) => boolean, status: number, to: string): Behaviour {
  let met = false;
  return {
    receive(call) {
      if (met || !kind(call)) return undefined;
      met = true;
      return { status, headers: { Location: `${to}${call.path}` }, body: '' };
    },
  };
}
