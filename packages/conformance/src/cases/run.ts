/**
 * Checks that look at everything a run has seen (P59 to P62): errors, all records of all payments, every payment after its end, and
 * the balances.
 */
import { Skipped, type FindingMore } from '../check/findings.ts';
import { type Json } from '@duebridge/contract';
import type { Draft, PartnerCase } from '../check/check.ts';
import { type Exchange, isRefusal, type Reply, show } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import type { Asked, Seen } from '../check/partner-run.ts';
import {
  differences,
  type Intent,
  type PaymentFields,
  recordOf,
  tellDifferences,
} from '../check/payment-fields.ts';
import { uses } from '../check/planned-payments.ts';
import { CONTROLS, fellByWhatFailed, followsAtOnce, measureBalances, rose } from './balance.ts';
import {
  ACCEPTED_FIELDS,
  ENDED_FIELDS,
  isAnswer,
  isInstant,
  isReadableReason,
  looksInternal,
  parsed,
  statusOf,
  unchanged,
} from './shared.ts';

/** Maximum p95 of a read and of a PUT. */
const MOST_READ_MS = 2_000;
const MOST_PUT_MS = 10_000;

/** The codes of decision 5 that a partner uses, by status. */
const CODES: Readonly<Record<number, readonly string[]>> = {
  400: ['INVALID_REQUEST'],
  401: ['UNAUTHORIZED'],
  403: ['INSUFFICIENT_SCOPE'],
  404: ['NOT_FOUND', 'ACCOUNT_NOT_FOUND', 'PAYMENT_NOT_FOUND'],
  415: ['UNSUPPORTED_MEDIA_TYPE'],
};

const p59: Draft<PartnerCase> = {
  id: 'P59',
  title: 'Errors are JSON without secrets, and responses are fast enough',
  clauses: ['ER3'],
  decisions: [5],
  severity: 'should',
  stage: 'last',
  sends: 'nothing new: all requests and responses of this run are examined',
  likely_cause: 'The error page of a framework or a gateway reaches the caller.',
  async run(t: PartnerContext) {
    const all = t.run.wire.exchanges.filter(
      ({ check }) => check !== 'preflight' && check !== 'P53',
    );
    t.given(all.length > 0, 'nothing was sent in this run');
    const errors = all.filter(
      ({ status }) => status !== undefined && (status < 200 || status > 299),
    );
    const first = (
      finding: { expected: string; cause?: string; got: (one: Exchange) => string },
      bad: (one: Exchange) => boolean,
    ): void => {
      const found = errors.filter(bad);
      const one = found[0];
      t.should(one === undefined, finding.expected, one, {
        got:
          one === undefined
            ? ''
            : `${finding.got(one)} (${found.length} of ${errors.length} errors)`,
        cause: finding.cause ?? p59.likely_cause,
      });
    };
    first(
      {
        expected: 'errors with content type application/json',
        got: (one) =>
          `${one.status} with ${one.answer_headers['content-type'] ?? 'no content type'}`,
      },
      (one) => !/json/i.test(one.answer_headers['content-type'] ?? ''),
    );
    first(
      {
        expected: 'errors without a stack trace',
        cause: 'Debug mode is on, or the exception is sent to the caller.',
        got: (one) => `${one.status} with one`,
      },
      (one) => looksInternal(one.answer_body),
    );
    // The token endpoint uses the error form of RFC 6749 instead.
    const coded = errors.filter(({ method }) => method !== 'POST');
    const uncoded = coded.find((one) => codeProblem(one) !== undefined);
    t.strict(uncoded === undefined, 'errors with the code of decision 5, and a message', uncoded, {
      got: uncoded === undefined ? '' : `${uncoded.status} with ${codeProblem(uncoded) ?? ''}`,
      cause: 'Errors have the form of the framework, or codes of their own.',
    });
    const leak = all.find(({ leaked }) => leaked);
    t.should(leak === undefined, 'no credential in any response', leak, {
      got: 'a response repeats the credential that was sent',
      cause: 'The error names the credential that it refuses.',
    });
    slow(all, 'GET', MOST_READ_MS);
    slow(all, 'PUT', MOST_PUT_MS);

    function slow(exchanges: readonly Exchange[], method: string, most: number): void {
      const times = exchanges.filter((one) => one.method === method && one.status !== undefined);
      times.sort((one, other) => one.duration_ms - other.duration_ms);
      const p95 = times[Math.max(0, Math.ceil(times.length * 0.95) - 1)];
      t.should(
        p95 === undefined || p95.duration_ms <= most,
        `a p95 of at most ${most / 1_000} s for ${method}`,
        p95,
        {
          got: `${p95?.duration_ms ?? 0} ms`,
          cause: 'The server, its database or the network between is too slow.',
        },
      );
    }
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

const p60: Draft<PartnerCase> = {
  id: 'P60',
  title: 'All responses for a payment are consistent',
  clauses: ['PF6', 'PF1', 'PF2', 'PF3', 'PF7', 'PF8', 'PF5', 'RU2', 'RU5', 'FR1'],
  stage: 'final',
  sends:
    'GET of every payment of this run, and the identical PUT of the oldest one that was not repeated yet; they are compared with the first response, and every response of the run is examined',
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
        t.must(
          came === wanted || absent,
          `${name} ${show(wanted)} in the first response`,
          first.reply,
          {
            got: `${name} is ${show(came)}`,
            clause: CLAUSE_OF[name] ?? 'PF6',
            cause: 'The response describes another payment, or an earlier request.',
          },
        );
      }
      const payment_id = show(first.record['payment_id']);
      const twin = ids.get(payment_id);
      const known = first.record['payment_id'] !== undefined;
      t.must(
        !known || twin === undefined || twin === intent.platform_payment_id,
        'a distinct payment_id for each payment',
        first.reply,
        {
          got: `payment_id ${payment_id} for ${twin ?? ''} and for ${intent.platform_payment_id}`,
          clause: 'PF1',
          cause:
            'payment_id is derived from the time, from the account, or from a counter that restarts.',
        },
      );
      ids.set(payment_id, intent.platform_payment_id);
      if (!isAnswer(t, last)) return;
      const record = recordOf(last);
      t.must(record !== undefined, 'the payment still exists', last, { clause: 'PF2' });
      if (record === undefined) continue;
      const [changed] = differences(first.record, record, ACCEPTED_FIELDS);
      t.must(changed === undefined, 'the fields of the first response', last, {
        got: tellDifferences(first.record, last, ACCEPTED_FIELDS),
        clause: CLAUSE_OF[changed ?? ''] ?? 'PF6',
      });
      const end = ends.get(intent.platform_payment_id);
      if (end === undefined || changed !== undefined) continue;
      asItEnded(t, end, last, {
        clause: 'RU2',
        cause: 'A later job or a restart of the server rewrites terminal payments.',
      });
    }
    t.given(ids.size > 0, 'no payment was accepted (see P20)');
    for (const one of t.run.seen) if (!keepsRules(t, one)) break;
    await stillKnown(t);
    succeedsRepeated(
      t,
      new Map(known.map(({ intent }, place) => [intent.platform_payment_id, lasts[place]])),
    );
  },
};

/** The oldest payment that was put only once: a store of ids that forgets after seconds has forgotten it first. */
function oldest({ run }: PartnerContext): Promise<Asked | undefined> {
  return run.once('the oldest payment', async () =>
    run.intents.find(({ intent, first }) => {
      const puts = run.seen.filter(
        ({ intent: { platform_payment_id: id }, reply }) =>
          id === intent.platform_payment_id && reply.exchange.method === 'PUT',
      );
      return (
        first !== undefined &&
        puts.length === 1 &&
        intent.account_id === run.target.accounts.payable
      );
    }),
  );
}

/** Asks for the oldest id last. */
async function stillKnown(t: PartnerContext): Promise<void> {
  const asked = await oldest(t);
  if (asked?.first === undefined) return;
  const again = await t.put(asked.intent);
  if (!isAnswer(t, again)) return;
  const expected = 'the oldest payment of the run when it is put again at its end';
  unchanged(t, asked.first.record, again, ACCEPTED_FIELDS, expected, {
    clause: 'PF2',
    cause: 'Ids are kept for seconds, or only the latest of them: they must be stored permanently.',
  });
}

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
  return t.must(broken === undefined, broken?.expected ?? '', reply, {
    got: `${broken?.field ?? ''} is ${show(record[broken?.field ?? ''])}`,
    clause: broken?.clause ?? 'PF8',
    cause:
      'Only some payments take this way through the code: large ones, those posted together, or repeats.',
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
  t.must(!allFail, 'payments that were repeated while processing succeed as others do', one?.last, {
    got: `all ${repeated.length} of them failed; ${succeeded.length} that were not repeated succeeded`,
    clause: 'FR1',
    cause: 'The retry of a payment is taken for a duplicate of it.',
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

/** How long Get Payment may show an end later than Get Account Payment did: it may read from a replica. */
const READ_LAG_MS = 2_000;

const p61: Draft<PartnerCase> = {
  id: 'P61',
  title: 'Reads and repeats leave every terminal payment unchanged',
  clauses: ['RU2', 'RU5', 'B3'],
  stage: 'last',
  sends:
    'GET, the identical PUT and Get Payment for every terminal payment of this run; for one payment of each terminal status also a PUT with another amount and one with another batch, each followed by GET',
  likely_cause:
    'A repeat sets a terminal payment back to processing, the server retries a failed payment by itself, the id of a failed payment can be reused, or one of the two reads shows an old copy.',
  async run(t: PartnerContext) {
    t.given((await endedPayments(t)).length > 0, 'no payment of this run has ended');
  },
  // As late as the run allows: P57 polls for seconds, and a later job is a common cause of a change.
  async atEnd(t: PartnerContext) {
    const last = await oldest(t);
    // That one is left alone until P60 puts it again at the very end.
    const ended = (await endedPayments(t)).filter(({ intent }) => intent !== last?.intent);
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
    if (!asItEnded(t, end, reply, { clause })) return;
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
      if (!asItEnded(t, end, reply, { clause })) return;
    }
  }
}

function asItEnded(
  t: PartnerContext,
  end: PaymentFields,
  reply: Reply,
  more: FindingMore,
): boolean {
  const expected = `the payment as it ended, status ${show(end['status'])}`;
  return unchanged(t, end, reply, ENDED_FIELDS, expected, more);
}

const p62: Draft<PartnerCase> = {
  id: 'P62',
  title: 'The amount due falls by exactly the succeeded payments',
  clauses: ['ST2', 'RU5', 'ST3', 'ST4'],
  stage: 'final',
  sends: 'GET balance of every account before the first payment and after the last one has ended',
  likely_cause:
    'The server posts to the ledger at acceptance without reversing it when the payment fails, or posts once per request.',
  creates: uses(...CONTROLS),
  async run(t: PartnerContext) {
    const verdict = await measureBalances(t);
    if (verdict.unmeasured !== undefined) {
      const kind = t.profile === 'strict' ? 'wanting' : 'nothing to judge';
      throw new Skipped(`not measured: ${verdict.unmeasured}`, kind);
    }
    for (const effect of verdict.effects) {
      const { account_id, fell, expected, reply } = effect;
      if (rose(effect)) {
        t.must(
          false,
          `the amount due of ${account_id} falls by ${expected} cents, the sum of its payments that succeeded`,
          reply,
          {
            got: `it rose by ${expected} cents`,
            cause: 'The payment is added to the amount due instead of subtracted from it.',
          },
        );
        continue;
      }
      if (fellByWhatFailed(effect)) {
        t.must(
          false,
          `the amount due of ${account_id} falls by ${expected} cents, the sum of its payments that succeeded`,
          reply,
          {
            got: `it fell by ${fell} cents, the sum of its payments that failed or were canceled`,
            clause: 'ST3',
          },
        );
        continue;
      }
      t.must(
        fell <= expected,
        `the amount due of ${account_id} falls by ${expected} cents, the sum of its payments that succeeded`,
        reply,
        { got: `it fell by ${fell} cents` },
      );
      if (fell < expected) {
        const lost = fell > 0 && (await followsAtOnce(t));
        t.should(
          !lost,
          `the amount due of ${account_id} falls by ${expected} cents, the sum of its payments that succeeded`,
          reply,
          {
            got: `it fell by ${fell} cents, although a single payment changes it immediately`,
            cause:
              'Concurrent postings overwrite each other’s balance, because the server reads, subtracts and writes it without a lock.',
          },
        );
        t.notes.push(
          `The amount due of ${account_id} fell by ${fell} cents, not yet by ${expected}.`,
        );
      }
    }
  },
};

export const WHOLE_RUN = [p59, p60, p61, p62];
