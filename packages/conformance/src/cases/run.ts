/**
 * Checks that look at everything a run has seen (P59 to P62): errors, all records of all payments, every payment after its end, and
 * the balances.
 */
import type { More } from '../check/findings.ts';
import type { Json } from '@duebridge/contract';
import type { PartnerCase } from '../check/check.ts';
import { isRefusal, show, type Exchange, type Reply, parsed } from '../check/http.ts';
import type { PartnerContext, Seen } from '../check/partner-context.ts';
import { differences, type Intent, type PaymentFields, recordOf } from '../check/payment-fields.ts';
import { P62 } from './balance.ts';
import {
  ACCEPTED_FIELDS,
  ENDED_FIELDS,
  isAnswer,
  revealsNothing,
  statusOf,
  unchanged,
} from './shared.ts';

/** The codes of decision 5 that a partner uses, by status. */
const CODES: Readonly<Record<number, readonly string[]>> = {
  400: ['INVALID_REQUEST'],
  401: ['UNAUTHORIZED'],
  403: ['INSUFFICIENT_SCOPE'],
  404: ['NOT_FOUND', 'ACCOUNT_NOT_FOUND', 'PAYMENT_NOT_FOUND'],
  415: ['UNSUPPORTED_MEDIA_TYPE'],
};

const p59: PartnerCase = {
  id: 'P59',
  title: 'Errors are JSON without secrets',
  clauses: ['ER3'],
  severity: 'should',
  stage: 'last',
  likely_cause: 'The error page of a framework or a gateway reaches the caller.',
  async run(t: PartnerContext) {
    const all = t.run.wire.exchanges.filter(
      ({ check }) => check !== 'preflight' && check !== 'P53',
    );
    t.given(all.length > 0, 'nothing was sent in this run');
    const errors = all.filter(({ status = 200 }) => status < 200 || status > 299);
    const level = 'should';
    const of = (count: number): string => `(${count} of ${errors.length} errors)`;
    const typeOf = ({ answer_headers: headers }: Exchange): string =>
      headers['content-type'] ?? 'no content type';
    t.none(
      errors.filter((one) => !/json/i.test(typeOf(one))),
      'errors with content type application/json',
      (one, count) => `${one.status} with ${typeOf(one)} ${of(count)}`,
      { level, cause: p59.likely_cause },
    );
    t.none(
      // The token endpoint uses the error form of RFC 6749 instead.
      errors.filter((one) => one.method !== 'POST' && codeProblem(one) !== undefined),
      'errors with the code of decision 5, and a message',
      (one) => `${one.status} with ${codeProblem(one)}`,
      { level: 'strict' },
    );
    revealsNothing(t, errors, all);
  },
};

/** How the code and message of an error violate decision 5; undefined when they do not. */
function codeProblem({ status, answer_body }: Exchange): string | undefined {
  const { code, message } = parsed(answer_body) ?? {};
  if (typeof message !== 'string' || message === '') return `message ${show(message)}`;
  const codes = CODES[status ?? 0];
  const right =
    typeof code === 'string' && /^[A-Z][A-Z0-9_]*$/.test(code) && codes?.includes(code) !== false;
  return right ? undefined : `code ${show(code)}`;
}

const p60: PartnerCase = {
  id: 'P60',
  title: 'All responses for a payment are consistent',
  clauses: ['PF6', 'PF1', 'PF2', 'PF3', 'PF7', 'RU2', 'RU5', 'ID1'],
  stage: 'final',
  likely_cause: 'Posting copies the payment and rounds, defaults or renumbers its fields.',
  async run(t: PartnerContext) {
    const ids = new Map<string, string>();
    const known = t.run.accepted();
    const ends = new Map((await t.run.ended()).map(({ intent, end }) => [intent, end]));
    const read = known.map(async (one) => ({ ...one, last: await t.read(one.intent) }));
    for (const { intent, first, last } of await Promise.all(read)) {
      repeatsTheRequest(t, intent, first);
      const { payment_id } = first.record;
      const twin = ids.get(show(payment_id)) ?? intent.platform_payment_id;
      const isDistinct = payment_id === undefined || twin === intent.platform_payment_id;
      t.must(isDistinct, 'a distinct payment_id for each payment', first.reply, {
        got: `payment_id ${show(payment_id)} for ${twin} and for ${intent.platform_payment_id}`,
        clause: 'PF1',
      });
      ids.set(show(payment_id), intent.platform_payment_id);
      if (!isAnswer(t, last)) return;
      const record = recordOf(last);
      t.must(record !== undefined, 'the payment still exists', last, { clause: 'PF2' });
      if (record === undefined) continue;
      const [changed = ''] = differences(first.record, record, ACCEPTED_FIELDS);
      const clause = CLAUSE_OF[changed] ?? 'PF6';
      const expected = 'the fields of the first response';
      const isSame = unchanged(t, first.record, last, ACCEPTED_FIELDS, expected, { clause });
      const end = ends.get(intent);
      if (end === undefined || !isSame) continue;
      asItEnded(t, end, last, {
        clause: 'RU2',
        cause: 'A later job or a restart of the server rewrites terminal payments.',
      });
    }
    t.given(ids.size > 0, 'no payment was accepted (see P20)');
    await stillKnown(t);
  },
};

/** The first response must describe the payment that was asked for. */
function repeatsTheRequest(t: PartnerContext, intent: Intent, { reply, record }: Seen): void {
  for (const name of ['platform_payment_id', 'platform_batch_id', 'amount_in_cents'] as const) {
    const wanted = sentAs(t, intent, name) ?? intent[name];
    if ((record[name] ?? null) === null) continue;
    t.equals(reply, name, wanted, { note: ' at first', clause: CLAUSE_OF[name] ?? 'PF6' });
  }
}

/** The oldest payment that was put only once: a store of ids that forgets after seconds has forgotten it first. */
function oldest({ run }: PartnerContext) {
  const { payable } = run.target.accounts;
  return run.once('the oldest payment', async () =>
    run
      .accepted()
      .find(({ intent }) => intent.account_id === payable && run.putsOf(intent).length === 1),
  );
}

/** Asks for the oldest id last. */
async function stillKnown(t: PartnerContext): Promise<void> {
  const known = await oldest(t);
  if (known === undefined) return;
  const again = await t.put(known.intent);
  if (!isAnswer(t, again)) return;
  const expected = 'the oldest payment of the run when it is put again at its end';
  unchanged(t, known.first.record, again, ACCEPTED_FIELDS, expected, {
    clause: 'PF2',
    cause: 'Ids are kept for seconds, or only the latest of them: they must be stored permanently.',
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
function sentAs(t: PartnerContext, intent: Intent, name: string): Json | undefined {
  const id = encodeURIComponent(intent.platform_payment_id);
  const put = t.run.wire.exchanges.find(({ method, url }) => method === 'PUT' && url.endsWith(id));
  // P36 sends invalid amounts and P39 sends two ids; this check does not judge what an acceptance of those contains.
  return ['P36', 'P39'].includes(put?.check ?? '') ? t.run.latest(intent)?.[name] : undefined;
}

/** How long Get Payment may show an end later than Get Account Payment did: it may read from a replica. */
const READ_LAG_MS = 2_000;

const p61: PartnerCase = {
  id: 'P61',
  title: 'Reads and repeats leave every terminal payment unchanged',
  clauses: ['RU2', 'RU5', 'B3'],
  stage: 'last',
  likely_cause: 'A repeat or a later job works on a payment that has ended, or a copy is old.',
  async run(t: PartnerContext) {
    t.given((await t.run.ended()).length > 0, 'no payment of this run has ended');
  },
  // As late as the run allows: P57 polls for seconds, and a later job is a common cause of a change.
  async atEnd(t) {
    const last = await oldest(t);
    // That one is left alone until P60 puts it again at the very end.
    const ended = (await t.run.ended()).filter(({ intent }) => intent !== last?.intent);
    // Those that are asked for more come first, so that nothing is left to wait for when the others are done.
    const ofEach = new Map(ended.map((one) => [statusOf(one.end), one]));
    const changed = [...ofEach.values()];
    await Promise.all([
      ...changed.map(async (one) => {
        await equalRepeats(t, one);
        await changedRepeats(t, one);
      }),
      ...ended.filter((one) => !changed.includes(one)).map((one) => equalRepeats(t, one)),
    ]);
  },
};

type Ended = Awaited<ReturnType<PartnerContext['run']['ended']>>[number];

/** Reads and repeats a terminal payment; stops when it changed. */
async function equalRepeats(t: PartnerContext, { intent, end }: Ended): Promise<void> {
  // Three calls, not four: at a server that takes seconds a call, this is what a run waits for at its end.
  const after = t.offers('get_payment') ? 'readById' : 'read';
  for (const again of ['read', 'put', after] as const) {
    let reply = await t[again](intent);
    if (again === 'readById' && recordOf(reply)?.['status'] === 'processing') {
      await t.run.sleep(READ_LAG_MS);
      reply = await t[again](intent);
    }
    if (!isAnswer(t, reply)) return;
    const clause = ({ put: 'RU5', readById: 'B3', read: 'RU2' } as const)[again];
    if (!asItEnded(t, end, reply, { clause })) return;
  }
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
      if (!asItEnded(t, end, reply, { clause })) return;
    }
  }
}

function asItEnded(t: PartnerContext, end: PaymentFields, reply: Reply, more: More): boolean {
  const expected = `the payment as it ended, status ${show(end['status'])}`;
  return unchanged(t, end, reply, ENDED_FIELDS, expected, more);
}

export const WHOLE_RUN = [p59, p60, p61, P62];
