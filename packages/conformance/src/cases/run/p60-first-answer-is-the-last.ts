import { parseInstant, type Json } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import { show, tell, type Reply } from '../../check/http.ts';
import type { PartnerContext, Seen } from '../../check/partner-context.ts';
import { ENDED_FIELDS, isAnswer, isReadableReason } from '../shared.ts';
import {
  differences,
  recordOf,
  tellDifferences,
  type PaymentFields,
} from '../../check/payment-fields.ts';

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
  title: 'All responses for a payment are consistent',
  clauses: ['PF6', 'PF1', 'PF2', 'PF3', 'PF7', 'PF8', 'PF5', 'RU2', 'RU5', 'FR1'],
  severity: 'must',
  profile: 'contract',
  stage: 'final',
  sends:
    'GET of every payment of this run; it is compared with the first response, and every response of the run is examined',
  expects:
    'both with the id, batch and amount that were sent; the same payment_id and initiated_at in both; no payment_id shared by two payments; terminal payments unchanged; in every response the times and the reason that its status requires; and repeated payments succeed as others do',
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
    for (const one of t.run.seen) if (!keepsRules(t, one)) break;
    succeedsRepeated(
      t,
      new Map(known.map(({ intent }, place) => [intent.platform_payment_id, lasts[place]])),
    );
  },
};

const isInstant = (value: Json | undefined): boolean =>
  typeof value === 'string' && parseInstant(value) !== undefined;

/** The rules of a status, by the record that breaks them; P22, P23, P51 and P52 look at a few payments only. */
const RULES: readonly {
  readonly clause: 'PF5' | 'PF7' | 'PF8';
  readonly field: string;
  readonly expected: string;
  readonly holds: (record: PaymentFields) => boolean;
}[] = [
  {
    clause: 'PF7',
    field: 'initiated_at',
    expected: 'initiated_at such as 2026-03-01T09:30:00.000Z in every response',
    holds: (record) => isInstant(record['initiated_at']),
  },
  {
    clause: 'PF8',
    field: 'posted_at',
    expected: 'posted_at null in every response with status processing',
    holds: ({ status, posted_at }) => status !== 'processing' || (posted_at ?? null) === null,
  },
  {
    clause: 'PF8',
    field: 'posted_at',
    expected: 'posted_at such as 2026-03-01T09:30:04.000Z in every response with status succeeded',
    holds: ({ status, posted_at }) => status !== 'succeeded' || isInstant(posted_at),
  },
  {
    clause: 'PF5',
    field: 'failure_reason',
    expected: 'a failure_reason in words in every response with status failed',
    holds: ({ status, failure_reason }) => status !== 'failed' || isReadableReason(failure_reason),
  },
];

/** Judges one response by the rules of its status. */
function keepsRules(t: PartnerContext, { reply, record }: Seen): boolean {
  const broken = RULES.find(({ holds }) => !holds(record));
  return t.must(broken === undefined, {
    expected: broken?.expected ?? '',
    got: `${broken?.field ?? ''} is ${show(record[broken?.field ?? ''])}`,
    clause: broken?.clause ?? 'PF8',
    cause:
      'Only some payments take this way through the code: large ones, those posted together, or repeats.',
    at: reply,
  });
}

/** Fewer payments of a kind than this may have failed or succeeded by chance. */
const FEWEST_ALIKE = 2;

/** A retry must not make its own payment fail as a duplicate (FR1). `lasts`: the last read of each payment. */
function succeedsRepeated(t: PartnerContext, lasts: ReadonlyMap<string, Reply | undefined>): void {
  const puts = new Map<string, number>();
  for (const { intent, reply, record } of t.run.seen) {
    const id = intent.platform_payment_id;
    if (intent.account_id !== t.target.accounts.payable) continue;
    if (reply.exchange.method !== 'PUT' || record['status'] !== 'processing') continue;
    puts.set(id, (puts.get(id) ?? 0) + 1);
  }
  const ends = (wanted: (count: number) => boolean) =>
    [...puts].flatMap(([id, count]) => {
      const last = lasts.get(id);
      const status = last === undefined ? undefined : recordOf(last)?.['status'];
      return wanted(count) && last !== undefined ? [{ status, last }] : [];
    });
  const repeated = ends((count) => count > 1);
  const succeeded = ends((count) => count === 1).filter(({ status }) => status === 'succeeded');
  const [one] = repeated;
  const allFail =
    repeated.length >= FEWEST_ALIKE &&
    repeated.every(({ status }) => status === 'failed') &&
    succeeded.length >= FEWEST_ALIKE;
  t.must(!allFail, {
    expected: 'payments that were repeated while processing succeed as others do',
    got: `all ${repeated.length} of them failed; ${succeeded.length} that were not repeated succeeded`,
    clause: 'FR1',
    cause: 'The retry of a payment is taken for a duplicate of it.',
    ...(one === undefined ? {} : { at: one.last }),
  });
}

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
