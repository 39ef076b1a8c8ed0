/** Checks of a payment's way to its end (P50 to P58), as a platform that polls sees it. */
import { isPaymentStatus, isTerminal } from '@duebridge/contract';
import type { PartnerCase } from '../check/check.ts';
import { Skipped } from '../check/findings.ts';
import { asksToWait, isSuccess, show, tell, type Reply } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import {
  instantOf,
  recordOf,
  tellDifferences,
  type PaymentFields,
  plainAmount,
  type Planned,
  uses,
} from '../check/payment-fields.ts';
import type { PartnerTarget } from '../check/target.ts';
import { NAMES } from './put.ts';
import { asItEnded, oldest } from './run.ts';
import {
  ENDED_FIELDS,
  everyRecord,
  isAnswer,
  isInstant,
  isReadableReason,
  SKEW_MS,
  statusOf,
  unchanged,
} from './shared.ts';

/** How many payments of earlier runs are checked. */
const MOST = 50;

const p50: PartnerCase = {
  id: 'P50',
  title: 'A payment reaches one terminal status within the declared time',
  clauses: ['ST2', 'ST3', 'ST4', 'RU2', 'S4', 'EV1'],
  likely_cause: 'Nothing completes some payments, a status has another name, or a replica lags.',
  creates: uses('first', 'other'),
  atEnd: allEnd,
  async run(t) {
    if (t.run.options.recheck === true) return recheck(t);
    await t.sharedPayment('other');
    const { intent } = await t.accepted();
    const { reads, end } = await t.end(intent);
    const { terminal_window_seconds: declared } = t.target;
    const isWord = t.none(
      reads.filter(({ record }) => !isPaymentStatus(record['status'])).map(({ reply }) => reply),
      'status processing, succeeded, failed or canceled in every read',
      (reply) => `status is ${statusOf(recordOf(reply) ?? {})}`,
    );
    if (!isWord) return;
    // Where a window is declared, every payment is judged by it at the end.
    if (end === undefined && (t.run.endsLater || declared === undefined)) throw t.notEnded();
    if (end === undefined) return;
    t.equals(await t.read(intent), 'status', end.record['status'], { note: ', unchanged' });
  },
};

/** The window holds for large payments and other accounts too. */
async function allEnd(t: PartnerContext): Promise<void> {
  const { terminal_window_seconds: declared } = t.target;
  if (
    t.all.length > 0 ||
    t.run.options.recheck === true ||
    t.run.endsLater ||
    declared === undefined
  )
    return;
  const payments = t.run.accepted();
  const lives = await Promise.all(
    payments.map(async ({ intent }) => ({ intent, ...(await t.end(intent)) })),
  );
  // Other checks report payments that are not found, and words that are not a status.
  const open = lives.filter(
    ({ end, reads }) => end === undefined && reads.at(-1)?.record['status'] === 'processing',
  );
  t.none(
    open.map(({ last }) => last),
    `a terminal status of every payment within ${declared} s`,
    (_last, count) =>
      `${count} of ${lives.length} payments had not ended, such as that of ${open[0]?.intent.amount_in_cents} cents to ${open[0]?.intent.account_id}`,
  );
}

/** Payments of earlier runs that had not ended then, but must have ended by now. */
async function recheck(t: PartnerContext): Promise<void> {
  const window_ms = (t.target.terminal_window_seconds ?? 0) * 1_000;
  const open = t.oldEntries(
    MOST,
    ({ record, made_at }) =>
      !isTerminal(record['status']) && t.run.now() - Date.parse(made_at) >= window_ms,
  );
  t.given(open.length > 0, 'no payment of an earlier run was left processing');
  for (const { intent, made_at } of open) {
    const reply = await t.read(intent);
    const { status } = recordOf(reply) ?? {};
    t.must(isTerminal(status), `a terminal status of the payment created at ${made_at}`, reply);
    if (status === 'succeeded') {
      const expected = 'posted_at such as 2026-03-01T09:30:04.000Z, because it succeeded';
      t.field(reply, 'posted_at', expected, isInstant, { clause: 'PF8' });
    }
    if (status === 'failed') {
      const expected = 'failure_reason such as "The account is closed.", because it failed';
      t.field(reply, 'failure_reason', expected, isReadableReason, { clause: 'PF5' });
    }
  }
}

const p51: PartnerCase = {
  id: 'P51',
  title: 'A succeeded payment has posted_at',
  clauses: ['PF8', 'ST2'],
  stage: 'final',
  likely_cause: 'posted_at has no time or no offset, is an effective date, or is set too late.',
  creates: uses('first'),
  async run(t) {
    const { intent, put } = await t.accepted();
    const { reply, record } = await t.ended(intent);
    const { status, failure_reason, posted_at, initiated_at } = record;
    if (status !== 'succeeded') {
      // Allowed by the interface, but then the check has seen no payment that succeeds.
      throw new Skipped(
        `a payment of ${intent.amount_in_cents} cents to accounts.payable ended as ${statusOf(record)}: declare an account that can be paid`,
        'wanting',
      );
    }
    const none = 'no failure_reason, because the payment did not fail';
    t.strict(failure_reason === undefined, none, reply, {
      got: `failure_reason is ${show(failure_reason)}`,
      clause: 'PF5',
    });
    const [posted, start] = [instantOf(posted_at), instantOf(initiated_at)];
    if (posted === undefined || start === undefined) return;
    const got = `posted_at is ${show(posted_at)}`;
    const early = start - posted;
    const notBefore = `posted_at not before initiated_at ${show(initiated_at)}`;
    t.must(early <= SKEW_MS, notBefore, reply, { got });
    // P22 reports a server whose clock is ahead. Here the check takes the server's clock as given.
    const ahead = posted - reply.came - Math.max(0, start - put.came);
    const notAfter = `posted_at not after ${at(reply.came)}, when it was read`;
    t.must(ahead <= SKEW_MS, notAfter, reply, { got });
  },
  async atEnd(t) {
    const expected = 'posted_at such as 2026-03-01T09:30:04.000Z with status succeeded';
    const holds = ({ status, posted_at }: PaymentFields): boolean =>
      status !== 'succeeded' || isInstant(posted_at);
    everyRecord(t, 'posted_at', expected, holds);
  },
};

/** A time as a reader of logs looks for it. */
const at = (ms: number): string => new Date(ms).toISOString();

const p52: PartnerCase = {
  id: 'P52',
  title: 'A failed payment has a readable failure_reason',
  clauses: ['PF5', 'ST3'],
  stage: 'final',
  likely_cause: 'The server returns an exception message or an internal code as the reason.',
  creates: uses(...NAMES),
  async run(t: PartnerContext) {
    for (const name of NAMES) {
      const made = await t.sharedPayment(name);
      if (made !== undefined && recordOf(made.put) !== undefined) await t.end(made.intent);
    }
  },
  async atEnd(t: PartnerContext) {
    const hasFailed = ({ status }: PaymentFields): boolean => status === 'failed';
    t.given(
      t.run.seen.some(({ record }) => hasFailed(record)),
      'no payment of this run failed',
    );
    const expected = 'failure_reason such as "The account is closed." with status failed';
    everyRecord(t, 'failure_reason', expected, (record) => {
      return !hasFailed(record) || isReadableReason(record['failure_reason']);
    });
  },
};

const p53: PartnerCase = {
  id: 'P53',
  title: 'A canceled payment has status canceled',
  clauses: ['ST4'],
  severity: 'should',
  likely_cause: 'The status has another name, such as cancelled.',
  unfit: (target) =>
    target.accounts.canceled === undefined
      ? 'the target declares no account whose payments are canceled'
      : undefined,
  creates: (target) => [toCanceled(target)],
  async run(t: PartnerContext) {
    const intent = t.intend(toCanceled(t.target));
    t.acceptedBy(await t.put(intent));
    const { end, last } = await t.end(intent);
    t.equals(end?.reply ?? last, 'status', 'canceled', { level: 'should' });
  },
};

const toCanceled = (target: PartnerTarget): Planned => {
  const { canceled = '' } = target.accounts;
  return { amount_in_cents: plainAmount(target, 53), account_id: canceled };
};

/** Number of polls after the end, and of payments of earlier runs that are read again. */
const POLLS = 10;

const p54: PartnerCase = {
  id: 'P54',
  title: 'A terminal payment never changes, whatever is read and repeated',
  clauses: ['RU2', 'RU5', 'B3'],
  stage: 'last',
  likely_cause: 'A repeat or a later job works on a payment that has ended, or a copy is old.',
  creates: uses(54),
  async run(t: PartnerContext) {
    const same = (before: PaymentFields, reply: Reply, of: string, ended: string): boolean =>
      unchanged(t, before, reply, ENDED_FIELDS, `the ${of}, unchanged`, {
        got: `${tellDifferences(before, reply, ENDED_FIELDS)} (${ended}read at ${at(reply.sent)})`,
      });
    if (t.run.options.recheck !== true) {
      // Each read over its own connection, before the end too: behind a balancer, one replica of three may lag, or keep what it read.
      const { intent } = await t.accept(54);
      const { end } = await t.end(intent, { fresh: true });
      if (end === undefined) throw t.notEnded();
      const replies = await t.paced(POLLS, t.run.pace.after_end_ms, () =>
        t.read(intent, { fresh: true }),
      );
      for (const reply of replies) {
        if (!isAnswer(t, reply)) return;
        if (!same(end.record, reply, 'terminal payment', `ended at ${at(end.reply.came)}, `))
          return;
      }
    }
    const old = t.oldEntries(POLLS, ({ record }) => isTerminal(record['status']));
    const isAny = t.run.options.recheck !== true || old.length > 0;
    t.given(isAny, 'no payment of an earlier run had ended');
    for (const { intent, record, made_at } of old) {
      if (!same(record, await t.read(intent), `payment of ${made_at}`, '')) return;
    }
  },
  // As late as the run allows: P57 polls for seconds, and a later job is a common cause of a change.
  async atEnd(t) {
    if (t.run.options.recheck === true) return;
    const last = await oldest(t);
    // That one is left alone until P60 puts it again at the very end.
    const ended = (await t.run.ended()).filter(({ intent }) => intent !== last?.intent);
    await Promise.all(ended.map((one) => equalRepeats(t, one)));
  },
};

/** How long Get Payment may show an end later than Get Account Payment did: it may read from a replica. */
const READ_LAG_MS = 2_000;

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

const p56: PartnerCase = {
  id: 'P56',
  title: 'A payment can be read as soon as its PUT is acknowledged',
  clauses: ['ST1', 'B5', 'B3'],
  // Runs when little else is sent, because a late read would prove nothing.
  stage: 'last',
  likely_cause: 'The response precedes the commit, or reads go to a lagging replica.',
  creates: uses('first', 56),
  async run(t) {
    const { intent: first, read: firstRead } = await t.accepted();
    t.equals(firstRead, 'platform_payment_id', first.platform_payment_id);
    const intent = t.intend(56);
    const put = await t.put(intent, { burst: true });
    if (!isSuccess(put)) return;
    const immediate = await Promise.all([
      t.read(intent, { burst: true }),
      ...(t.offers('get_payment') ? [t.readById(intent, { burst: true })] : []),
    ]);
    for (const [place, read] of immediate.entries()) {
      // Sent ahead of all others, such a read may meet a rate limit.
      if (read.status === 429 || !isAnswer(t, read)) continue;
      const clause = place === 0 ? 'B5' : 'B3';
      t.equals(read, 'platform_payment_id', intent.platform_payment_id, { clause });
    }
  },
};

const p57: PartnerCase = {
  id: 'P57',
  title: 'Ten polls per second do not overload the server',
  clauses: ['RU4'],
  severity: 'should',
  stage: 'last',
  likely_cause: 'A gateway answers 503 or closes connections instead of answering 429.',
  creates: uses('first'),
  async run(t) {
    const { intent } = await t.accepted();
    const { burst_per_second, burst_seconds } = t.run.pace;
    const replies = await t.paced(burst_per_second * burst_seconds, 1_000 / burst_per_second, () =>
      t.read(intent, { burst: true }),
    );
    const bad = replies.filter(
      (reply) => reply.status !== 200 && !(reply.status === 429 && asksToWait(reply)),
    );
    t.none(bad, '200, or 429 with Retry-After', tell, { level: 'should' });
  },
};

/** Maximum time between the posting and the first read that shows it. */
const MOST_LATE_MS = 60_000;

const p58: PartnerCase = {
  id: 'P58',
  title: 'Reads show a new status within a minute',
  clauses: ['RU3'],
  severity: 'should',
  likely_cause: 'A nightly or hourly job copies the statuses to the API.',
  creates: uses('first'),
  async run(t: PartnerContext) {
    const { intent, put } = await t.accepted();
    const { status, posted_at, initiated_at } = (await t.ended(intent)).record;
    const posted = instantOf(posted_at);
    t.given(status === 'succeeded' && posted !== undefined, 'no payment has a readable posted_at');
    // Its ledger may use another clock; initiated_at shows how far that clock is behind.
    const behind = Math.max(0, put.sent - (instantOf(initiated_at) ?? put.sent));
    // By when a read was sent that does not show it, not by when one was sent that does: the judge may be slow.
    const { seen } = t.run.spend(intent);
    t.none(
      seen
        .filter(({ record }) => record['status'] === 'processing')
        .map(({ reply }) => reply)
        .filter(({ sent }) => sent - behind - posted > MOST_LATE_MS),
      `succeeded in every read more than ${MOST_LATE_MS / 1_000} s after posted_at`,
      (reply) => `posted_at ${show(posted_at)}, and processing in a read of ${at(reply.sent)}`,
      { level: 'should' },
    );
  },
};

export const POLLING = [p50, p51, p52, p53, p54, p56, p57, p58];
