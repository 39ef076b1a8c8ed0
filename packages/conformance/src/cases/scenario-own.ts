/** Judges the scenarios that need more than a faulty payment call or a faulty token response. */
import { Refusal } from '@duebridge/contract';
import type { CallerContext, CallerPayment } from '../check/caller-context.ts';
import { makeBadCertificate } from '../sandbox/certificate.ts';
import type { Behaviour } from '../sandbox/partner.ts';
import { holdsToken } from './scenario-tokens.ts';
import { goesOn, hasEnded, noDouble, notEnded, sameBytes, untilEnd } from './caller-rules.ts';

/** Payments that wait when an access token expires. */
const HERD = 19;

/** Lifetime of a token in this check. */
const LIFE_SECONDS = 2;

/** Judges one scenario. `cents` is the first of the amounts that belong to this check. */
export type OwnJudge = (t: CallerContext, cents: number) => Promise<void>;

/** Keyed by the scenario's full name. */
export const OWN_JUDGES: Readonly<Record<string, OwnJudge>> = {
  'F03-connection-refused': (t, cents) =>
    broken(t, cents, 'connections refused', () => t.run.partner.refuseConnections()),
  'F47-bad-certificate': async (t: CallerContext, cents: number) => {
    const { partner, caller } = t.run;
    t.given(caller.tls !== undefined, 'the scripted partner uses plain http: declare caller.tls');
    let [calls, refused] = [0, 0];
    const came = (): number => t.calls().length - calls;
    const breakIt = async () => {
      const restore = partner.replaceCertificate(makeBadCertificate());
      [calls, refused] = [t.calls().length, partner.refusedHandshakes()];
      return async () => restore();
    };
    await broken(t, cents, 'a bad certificate', breakIt, async () => {
      await t.until(() => came() > 0 || partner.refusedHandshakes() > refused);
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
  t.given(
    t.run.caller.authentication.method === 'oauth',
    'the platform calls this partner with a static key',
  );
  await holdsToken(t, cents + 10 * HERD);
  let [under_way, most, fetched, done] = [0, 0, false, false];
  const refused = new Set<string>();
  t.script({
    receive(call) {
      if (call.operation !== 'access_token') delete call.headers['prefer'];
      else {
        fetched = true;
        under_way += 1;
        most = Math.max(most, under_way);
      }
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
  const number = Math.min(HERD, t.run.driver.at_once);
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
