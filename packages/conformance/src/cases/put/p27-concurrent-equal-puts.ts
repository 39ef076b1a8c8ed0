import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { own, sharedAll } from '../../check/planned-payments.ts';
import { CONTROLS, oneEffect } from '../balance-effect.ts';

/** Concurrent PUTs. */
const PARALLEL = 100;

export const p27: PartnerCase = {
  id: 'P27',
  title: 'A hundred equal PUTs at the same moment',
  clauses: ['RU5', 'PF2'],
  severity: 'must',
  profile: 'contract',
  sends: `PUT payment with one new id, ${PARALLEL} times at once, each over a connection of its own`,
  expects: 'every 2xx carries the same payment_id; no 5xx; one effect on the balance',
  likely_cause:
    'The server looks for the id and then inserts, with no unique key between the two: a race that retries will find.',
  creates: (target) => [...sharedAll(target, CONTROLS), own(target, 27)],
  async run(t) {
    const intent = t.run.own(t.check, () => t.intend(own(t.target, 27)));
    t.run.spend(intent);
    const replies = await t.burst(
      Array.from({ length: PARALLEL }, () => () => t.put(intent, { burst: true })),
    );
    const silent = replies.filter((reply) => reply.status === undefined);
    t.should(silent[0] === undefined, {
      expected: 'an answer to each',
      got: `${silent.length} of ${PARALLEL} had none, such as ${silent[0] === undefined ? '' : tell(silent[0])}`,
      cause: 'The server, or what stands before it, takes fewer connections than that at once.',
      ...(silent[0] === undefined ? {} : { at: silent[0] }),
    });
    const broken = replies.filter(({ status }) => status !== undefined && status >= 500);
    t.must(broken[0] === undefined, {
      expected: 'no 5xx',
      got: `${broken.length} of ${PARALLEL}, such as ${broken[0] === undefined ? '' : tell(broken[0])}`,
      cause: 'The losers of the race meet the unique key, and its error is not caught.',
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
      expected: `one payment_id in all answers`,
      got: `${ids.size} payment_ids in ${taken.length} answers`,
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
