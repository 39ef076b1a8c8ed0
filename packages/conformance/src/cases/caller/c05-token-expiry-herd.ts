import { Refusal } from '@duebridge/contract';
import type { CallerCase } from '../../check/check.ts';
import type { CallerContext } from '../../check/caller-context.ts';
import { recordOf } from '../../sandbox/partner.ts';
import { returnedTheEnd } from './calls.ts';

/** Payments made in parallel. */
const PARALLEL = 50;

export const c05: CallerCase = {
  id: 'C05',
  title: 'An access token expires while fifty payments are sent',
  clauses: ['OA4', 'OA3', 'OA2'],
  decisions: [14],
  severity: 'should',
  profile: 'contract',
  stage: 'alone',
  sends:
    'the scripted partner answers 401 to the access token that was valid until then; then it does so while one payment is polled',
  expects: 'one new token for all payments, and every call retried once with it',
  likely_cause: 'Each call that gets a 401 fetches its own token.',
  async run(t: CallerContext) {
    t.given(
      t.run.caller.authentication.method === 'oauth',
      'the platform calls this partner with a static key',
    );
    const before = await t.pay(5_001);
    await t.accepted(before);
    t.given(t.run.driver.at_once > 1, 'the platform can only be made to pay one payment at a time');
    const number = Math.min(PARALLEL, t.run.driver.at_once);
    const refused = new Set<string>();
    let fetched = false;
    t.script({
      receive(call) {
        if (call.operation === 'access_token') fetched = true;
        return undefined;
      },
      authorize(call, refusal) {
        const credential = call.headers.authorization ?? '';
        // All tokens that the platform holds are refused until it fetches a new one.
        if (!fetched) refused.add(credential);
        return refused.has(credential) ? new Refusal('UNAUTHORIZED') : refusal;
      },
    });
    const payments = await t.payAll(
      Array.from({ length: number }, (_, place) => ({ cents: 5_100 + place })),
    );
    const all = await t.until(() =>
      payments.every((payment) => t.puts(payment).some((put) => put.answer?.status === 200)),
    );
    t.should(all, {
      expected: `${number} payments accepted with the new token`,
      got: `${payments.filter((payment) => t.puts(payment).some((put) => put.answer?.status === 200)).length}`,
    });
    const fetches = t.calls().filter(({ operation }) => operation === 'access_token');
    // The first request may be the one with which the platform fetched a token for the previous payment.
    const after = fetches.filter(({ number }) => number > (t.puts(before)[0]?.number ?? 0));
    // A platform may hold one token for reads and another for writes.
    const repeated = after.find(({ body }, place) =>
      after.slice(0, place).some((earlier) => earlier.body === body),
    );
    t.should(after.length > 0 && repeated === undefined, {
      expected: 'one token request for each scope',
      got: `${after.length}`,
      ...(repeated === undefined ? {} : { at: t.cite(repeated) }),
    });
    await refusedPolls(t);
  },
};

/** Polls with a refused token after which the platform is not going to fetch another one. */
const MOST_REFUSED = 8;

/** A token may also be refused while a payment is polled. */
async function refusedPolls(t: CallerContext): Promise<void> {
  let refusing = false;
  const held = new Set<string>();
  const payment = await t.pay(5_002, {
    authorize(call, refusal) {
      const credential = call.headers.authorization ?? '';
      if (!refusing) held.add(credential);
      return refusing && held.has(credential) ? new Refusal('UNAUTHORIZED') : refusal;
    },
    answer(_call, answer) {
      const record = recordOf(answer);
      return record === undefined || refusing
        ? undefined
        : { status: 200, body: { ...record, status: 'processing', posted_at: null } };
    },
  });
  t.script({});
  await t.accepted(payment);
  const polls = (status: number) =>
    t.calls(payment).filter(({ method, answer }) => method === 'GET' && answer?.status === status);
  await t.until(() => polls(200).length > 0);
  refusing = true;
  await t.until(() => t.calls(payment).some(returnedTheEnd) || polls(401).length > MOST_REFUSED);
  const [refused] = polls(401);
  t.should(polls(401).length <= MOST_REFUSED || t.calls(payment).some(returnedTheEnd), {
    expected: 'a new token for polls that are answered 401',
    got: `${polls(401).length} polls with a refused token`,
    cause: 'Polls keep the token of the PUT.',
    ...(refused === undefined ? {} : { at: t.cite(refused) }),
  });
}
