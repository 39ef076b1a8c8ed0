import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { own, sharedAll } from '../../check/planned-payments.ts';
import { CONTROLS, oneEffect } from '../balance-effect.ts';

/** Concurrent PUTs, and those of a second payment. */
const PARALLEL = 100;
const FEW = 3;

export const p27: PartnerCase = {
  id: 'P27',
  title: 'A hundred concurrent identical PUTs create one payment',
  clauses: ['RU5', 'PF2'],
  severity: 'must',
  profile: 'contract',
  sends: `${PARALLEL} concurrent identical PUTs with one new id, each over its own connection`,
  expects: 'every 2xx has the same payment_id; no 5xx; one effect on the balance',
  likely_cause:
    'The server looks up the id and then inserts without a unique constraint: concurrent retries race between the two steps.',
  creates: (target) => [...sharedAll(target, CONTROLS), own(target, 27), own(target, 270)],
  async run(t) {
    const intent = t.run.own(t.check, () => t.intend(own(t.target, 27)));
    t.run.spend(intent);
    // P60 compares how repeated payments end with the others: one alone might have failed for another reason.
    const second = t.intend(own(t.target, 270));
    t.run.spend(second);
    // In one burst, because nothing else is sent meanwhile: at a slow server each one costs the run seconds.
    const all = await t.burst(
      Array.from(
        { length: PARALLEL + FEW },
        (_, place) => () => t.put(place < PARALLEL ? intent : second, { burst: true }),
      ),
    );
    const replies = all.slice(0, PARALLEL);
    const silent = replies.filter((reply) => reply.status === undefined);
    t.should(silent[0] === undefined, {
      expected: 'a response to each request',
      got: `${silent.length} of ${PARALLEL} got none, such as ${silent[0] === undefined ? '' : tell(silent[0])}`,
      cause: 'The server, or a proxy in front of it, accepts fewer concurrent connections.',
      ...(silent[0] === undefined ? {} : { at: silent[0] }),
    });
    const broken = replies.filter(({ status }) => status !== undefined && status >= 500);
    t.must(broken[0] === undefined, {
      expected: 'no 5xx',
      got: `${broken.length} of ${PARALLEL}, such as ${broken[0] === undefined ? '' : tell(broken[0])}`,
      cause:
        'The requests that lose the race violate the unique constraint, and the server does not handle that error.',
      ...(broken[0] === undefined ? {} : { at: broken[0] }),
    });
    const taken = replies.filter(isSuccess);
    const first = taken[0];
    t.must(first !== undefined, {
      expected: 'at least one 200',
      got: replies.map((reply) => reply.status ?? 'none').join(', '),
      ...(replies[0] === undefined ? {} : { at: replies[0] }),
    });
    const ids = new Set(taken.map((reply) => show(recordOf(reply)?.['payment_id'])));
    const other = taken.find(
      (reply) =>
        show(recordOf(reply)?.['payment_id']) !== show(first && recordOf(first)?.['payment_id']),
    );
    t.must(ids.size <= 1, {
      expected: `one payment_id in all responses`,
      got: `${ids.size} payment_ids in ${taken.length} responses`,
      ...(other === undefined ? {} : { at: other }),
    });
    t.tried = `${taken.length}`;
  },
  atEnd: (t) =>
    oneEffect(
      t,
      t.run.own(t.check, () => t.intend(own(t.target, 27))),
    ),
};
