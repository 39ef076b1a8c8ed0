import type { PartnerCase } from '../../check/check.ts';
import { show, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import {
  differences,
  isTerminalWord,
  recordOf,
  tellDifferences,
  type PaymentFields,
} from '../../check/payment-fields.ts';
import { own } from '../../check/planned-payments.ts';
import { ENDED_FIELDS, isAnswer } from '../shared.ts';

/** Connections over which the payment is put and read again. */
const CONNECTIONS = 8;

/** Payments that are followed to their end, each read over a new connection. */
const FOLLOWED = 6;

/** Reads in a row once a followed payment has ended: a lagging replica may answer every second or third. */
const IN_A_ROW = 3;

/** Longest wait for the end of a followed payment. */
const LONGEST_MS = 15_000;

/** How long a payment is read on after its end, in first gaps between two polls (Pace). */
const GAPS_AFTER_THE_END = 10;

/** The gap between two reads grows to this many first gaps. */
const WIDEST_GAP = 3;

export const p63: PartnerCase = {
  id: 'P63',
  title: 'A payment is known on every connection once one has accepted it',
  clauses: ['RU5', 'PF2', 'B5', 'RU2'],
  severity: 'must',
  profile: 'contract',
  // When little else is sent: a replica that lags by a second would catch up while reads wait for their turn.
  stage: 'last',
  sends: `PUT payment; then GET and the identical PUT, each over ${CONNECTIONS} new connections; ${FOLLOWED} more payments are read until after they end, each time over a new connection`,
  expects:
    'the same payment_id on each connection, and no terminal status that changes back: replicas behind a load balancer share their state',
  likely_cause:
    'Each process keeps ids or responses in its own memory, or reads go to a lagging replica.',
  creates: (target) => [
    own(target, 64),
    ...Array.from({ length: FOLLOWED }, (_, place) => own(target, 340 + place)),
  ],
  async run(t: PartnerContext) {
    await Promise.all([
      sameEverywhere(t),
      ...Array.from({ length: FOLLOWED }, (_, place) => follow(t, place)),
    ]);
  },
};

async function sameEverywhere(t: PartnerContext): Promise<void> {
  const intent = t.intend(own(t.target, 64));
  const payment_id = recordOf(await t.put(intent, { fresh: true }))?.['payment_id'];
  t.given(payment_id !== undefined, 'no new payment was accepted (see P20)');
  const several = (send: () => ReturnType<typeof t.read>) =>
    Promise.all(Array.from({ length: CONNECTIONS }, send));
  for (const reply of [
    ...(await several(() => t.read(intent, { fresh: true }))),
    ...(await several(() => t.put(intent, { fresh: true }))),
    ...(await several(() => t.read(intent, { fresh: true }))),
  ]) {
    if (!isAnswer(t, reply)) return;
    const same = t.must(recordOf(reply)?.['payment_id'] === payment_id, {
      expected: `200 with payment_id ${show(payment_id)}`,
      got: tell(reply),
      clause: reply.exchange.method === 'PUT' ? 'RU5' : 'B5',
      at: reply,
    });
    if (!same) return;
  }
}

/** Reads one payment over a new connection each time, until some time after its end: a terminal status must not be withdrawn. */
async function follow(t: PartnerContext, place: number): Promise<void> {
  const { run } = t;
  // One after another: a copy that is refreshed now and then must catch one of them while it is processing.
  await run.sleep(place * run.pace.poll_first_ms);
  const intent = t.intend(own(t.target, 340 + place));
  const put = await t.put(intent, { fresh: true });
  if (recordOf(put) === undefined || run.endsLater) return;
  const first_ms = run.pace.poll_first_ms;
  let gap_ms = first_ms;
  let until = run.now() + Math.min(run.window_ms, LONGEST_MS);
  let end: PaymentFields | undefined;
  let in_a_row = 0;
  while (run.now() < until) {
    const read = await t.read(intent, { fresh: true });
    if (!isAnswer(t, read)) return;
    const record = recordOf(read);
    if (end !== undefined) {
      const same = t.must(
        record !== undefined && differences(end, record, ENDED_FIELDS).length === 0,
        {
          expected: `the payment as it ended, status ${show(end['status'])}, on every connection`,
          got: tellDifferences(end, read, ENDED_FIELDS),
          clause: 'RU2',
          cause: 'Each replica has its own response cache, or reads from a lagging copy.',
          at: read,
        },
      );
      if (!same) return;
    } else if (record !== undefined && isTerminalWord(record['status'])) {
      end = record;
      until = run.now() + GAPS_AFTER_THE_END * first_ms;
      gap_ms = first_ms;
      in_a_row = IN_A_ROW;
    }
    if (in_a_row > 0) {
      in_a_row -= 1;
      continue;
    }
    // Payments at different phases: replicas that cache for a fixed time do not all forget at once.
    await run.sleep(gap_ms * (1 + place / FOLLOWED));
    gap_ms = Math.min(gap_ms * 1.2, first_ms * WIDEST_GAP);
  }
}
