import type { Json } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import { show, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { ENDED_FIELDS, isAnswer } from '../shared.ts';
import { differences, recordOf, tellDifferences } from '../../check/payment-fields.ts';

/** Fields set at acceptance that never change afterwards. */
const FIELDS = [
  'payment_id',
  'platform_payment_id',
  'platform_batch_id',
  'biller_id',
  'account_id',
  'amount_in_cents',
  'initiated_at',
] as const;

export const p60: PartnerCase = {
  id: 'P60',
  title: 'The first and the last response for a payment agree',
  clauses: ['PF6', 'PF1', 'PF2', 'PF3', 'PF7', 'RU2'],
  severity: 'must',
  profile: 'contract',
  stage: 'final',
  sends: 'nothing new: the first and last responses for every payment of this run are compared',
  expects:
    'both with the id, batch and amount that were sent; the same payment_id and initiated_at in both; no payment_id shared by two payments; terminal payments unchanged',
  likely_cause:
    'Posting copies the payment to another table and rounds, defaults or renumbers its fields.',
  async run(t: PartnerContext) {
    const ids = new Map<string, string>();
    const known = t.run.intents.filter(({ first }) => first !== undefined);
    const ends = new Map(
      (await t.run.lives()).map(({ intent, life }) => [
        intent.platform_payment_id,
        life.end?.record,
      ]),
    );
    const lasts = await Promise.all(known.map(({ intent }) => t.read(intent)));
    for (const [place, { intent, first }] of known.entries()) {
      const last = lasts[place];
      if (first === undefined || last === undefined) continue;
      for (const name of ['platform_payment_id', 'platform_batch_id', 'amount_in_cents'] as const) {
        const came = first.record[name];
        const absent = came === undefined || came === null;
        const wanted = sentAs(t, intent.platform_payment_id, name) ?? intent[name];
        t.must(came === wanted || absent, {
          expected: `${name} ${show(wanted)} in the first response`,
          got: `${name} is ${show(came)}`,
          clause: CLAUSE_OF[name] ?? 'PF6',
          cause: 'The response describes another payment, or an earlier request.',
          at: first.reply,
        });
      }
      const payment_id = show(first.record['payment_id']);
      const twin = ids.get(payment_id);
      const known = first.record['payment_id'] !== undefined;
      t.must(!known || twin === undefined || twin === intent.platform_payment_id, {
        expected: 'a distinct payment_id for each payment',
        got: `payment_id ${payment_id} for ${twin ?? ''} and for ${intent.platform_payment_id}`,
        clause: 'PF1',
        cause:
          'payment_id is derived from the time, from the account, or from a counter that restarts.',
        at: first.reply,
      });
      ids.set(payment_id, intent.platform_payment_id);
      if (!isAnswer(t, last)) return;
      const record = recordOf(last);
      t.must(record !== undefined, {
        expected: 'the payment still exists',
        got: tell(last),
        clause: 'PF2',
        at: last,
      });
      if (record === undefined) continue;
      const [changed] = differences(first.record, record, FIELDS);
      t.must(changed === undefined, {
        expected: 'the fields of the first response',
        got: tellDifferences(first.record, last, FIELDS),
        clause: CLAUSE_OF[changed ?? ''] ?? 'PF6',
        at: last,
      });
      const end = ends.get(intent.platform_payment_id);
      if (end === undefined || changed !== undefined) continue;
      t.must(differences(end, record, ENDED_FIELDS).length === 0, {
        expected: `the payment as it ended, status ${show(end['status'])}`,
        got: tellDifferences(end, last, ENDED_FIELDS),
        clause: 'RU2',
        cause: 'A later job or a restart of the server rewrites terminal payments.',
        at: last,
      });
    }
    t.given(ids.size > 0, 'no payment was accepted (see P20)');
  },
};

const CLAUSE_OF: Readonly<Record<string, 'PF1' | 'PF2' | 'PF3' | 'PF6' | 'PF7'>> = {
  payment_id: 'PF1',
  platform_payment_id: 'PF2',
  platform_batch_id: 'PF3',
  amount_in_cents: 'PF6',
  initiated_at: 'PF7',
};

/** A field that a check deliberately sent in another form than its intent, such as an amount written as a string. */
function sentAs(t: PartnerContext, id: string, name: string): Json | undefined {
  const put = t.run.wire.exchanges.find(
    ({ method, url }) => method === 'PUT' && url.endsWith(encodeURIComponent(id)),
  );
  // P36 sends invalid amounts and P37 sends two ids; this check does not judge what an acceptance of those contains.
  return put?.check === 'P36' || put?.check === 'P37' ? t.run.records.get(id)?.[name] : undefined;
}
