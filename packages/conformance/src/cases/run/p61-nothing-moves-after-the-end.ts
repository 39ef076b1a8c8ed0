import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, show, type Reply } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import {
  differences,
  recordOf,
  tellDifferences,
  type Intent,
  type PaymentFields,
} from '../../check/payment-fields.ts';
import { ENDED_FIELDS, isAnswer, statusOf } from '../shared.ts';

/** How long Get Payment may show an end later than Get Account Payment did: it may read from a replica. */
const READ_LAG_MS = 2_000;

export const p61: PartnerCase = {
  id: 'P61',
  title: 'Reads and repeats leave every terminal payment unchanged',
  clauses: ['RU2', 'RU5', 'B3'],
  severity: 'must',
  profile: 'contract',
  stage: 'last',
  sends:
    'GET, the identical PUT and Get Payment for every terminal payment of this run; for one payment of each terminal status also a PUT with another amount and one with another batch, each followed by GET',
  expects: 'the same terminal record each time',
  likely_cause:
    'A repeat sets a terminal payment back to processing, the server retries a failed payment by itself, the id of a failed payment can be reused, or one of the two reads shows an old copy.',
  async run(t: PartnerContext) {
    t.given((await endedPayments(t)).length > 0, 'no payment of this run has ended');
  },
  // As late as the run allows: P57 polls for seconds, and a later job is a common cause of a change.
  async atEnd(t: PartnerContext) {
    const ended = await endedPayments(t);
    // Those that are asked for more come first, so that nothing is left to wait for when the others are done.
    const changed = oneOfEachStatus(ended);
    const others = ended.filter((one) => !changed.includes(one));
    await Promise.all([
      ...changed.map(async (one) => {
        await equalRepeats(t, one);
        await changedRepeats(t, one);
      }),
      ...others.map((one) => equalRepeats(t, one)),
    ]);
    t.tried = `${ended.length}`;
  },
};

async function endedPayments(
  t: PartnerContext,
): Promise<{ readonly intent: Intent; readonly end: PaymentFields }[]> {
  return (await t.run.lives()).flatMap(({ intent, life }) =>
    life.end === undefined ? [] : { intent, end: life.end.record },
  );
}

type Ended = Awaited<ReturnType<typeof endedPayments>>[number];

function oneOfEachStatus(ended: readonly Ended[]): readonly Ended[] {
  return [...new Map(ended.map((one) => [statusOf(one.end), one])).values()];
}

/** Reads and repeats a terminal payment; stops when it changed. */
async function equalRepeats(t: PartnerContext, { intent, end }: Ended): Promise<void> {
  // Three calls, not four: at a server that takes seconds a call, this is what a run waits for at its end.
  const after = t.target.paths.get_payment === null ? 'read' : 'readById';
  for (const again of ['read', 'put', after] as const) {
    let reply = await t[again](intent);
    if (again === 'readById' && isBehind(reply)) {
      await t.run.sleep(READ_LAG_MS);
      reply = await t[again](intent);
    }
    if (!isAnswer(t, reply)) return;
    const clause = again === 'put' ? 'RU5' : again === 'readById' ? 'B3' : 'RU2';
    if (!unchanged(t, end, reply, clause)) return;
  }
}

/** True for a record that does not show the end yet. */
function isBehind(reply: Reply): boolean {
  return recordOf(reply)?.['status'] === 'processing';
}

/** Repeats a terminal payment with another amount, and with another batch; stops when it changed. */
async function changedRepeats(t: PartnerContext, { intent, end }: Ended): Promise<void> {
  const changes = [
    { amount_in_cents: intent.amount_in_cents + 1 },
    { platform_batch_id: `${intent.platform_batch_id.slice(0, -1)}x` },
  ];
  for (const fields of changes) {
    const put = await t.put(intent, { fields });
    if (!isAnswer(t, put)) return;
    // P28 reports a refusal of a changed repeat; here it must only leave the payment as it is.
    const replies = isRefusal(put) ? [await t.read(intent)] : [put, await t.read(intent)];
    for (const reply of replies) {
      const clause = reply.exchange.method === 'PUT' ? 'RU5' : 'RU2';
      if (!unchanged(t, end, reply, clause)) return;
    }
  }
}

function unchanged(
  t: PartnerContext,
  end: PaymentFields,
  reply: Reply,
  clause: 'RU2' | 'RU5' | 'B3',
): boolean {
  const record = recordOf(reply);
  return t.must(record !== undefined && differences(end, record, ENDED_FIELDS).length === 0, {
    expected: `the payment as it ended, status ${show(end['status'])}`,
    got: tellDifferences(end, reply, ENDED_FIELDS),
    clause,
    at: reply,
  });
}
