/**
 * Takes processing payments to their end: asks the AccountSystem to post them and writes what became of it (ST2, ST3, RU3).
 *
 * enters:  payments just accepted, from accept.ts in memory; those that a crash, an error or "later" left, from the table.
 * leaves:  terminal rows, told to the waiting reads (status.ts) after their commit.
 * holds:   a payment is posted at most once (Q2) and its status says so from the same commit (Q6); nothing stays processing
 *          because a process died (Q13); one payment that cannot be posted delays no other (F90).
 *
 * Who applies what is decided by row locks, not by owners and heartbeats as at the platform: there a call to a partner lies
 * between claim and result, here both lie in one short transaction. Each replica applies what it accepted, at once; `sweep` looks
 * for what has been processing for too long and applies it too. Two replicas at the same payment cost a moment's wait: the
 * second finds it ended. So there is no lease to run out, no clock to agree on, and no state to repair.
 *
 * Books in another system (`in_own_system`) do put a call between: the payment is first marked `posting_since`, committed, which
 * refuses a cancel from then on and keeps other replicas off it for a while; then the call; then the end. If the process dies in
 * between, the mark runs out and the same id is posted again, which the other system must take as the same payment.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { FAILURE_REASONS, MAX_FAILURE_REASON_LENGTH } from '@duebridge/contract';
import {
  DatabaseUnavailable,
  groupCommit,
  messageOf,
  sql,
  type Clock,
  type Database,
  type Log,
  type Transaction,
} from '@duebridge/runtime';
import type {
  AccountsInOwnSystem,
  AccountsInTransaction,
  AccountSystem,
  BillerRules,
  Posting,
  PostOutcome,
} from './account-system.ts';
import type { KitMetrics } from './metrics.ts';
import {
  endPayments,
  findUnfinished,
  holdPayments,
  markPosting,
  type HeldPayment,
  type PaymentEnd,
  type PaymentRow,
} from './store.ts';

/** Payments in one transaction: what performance gains beyond is lost in how long the first of them waits. */
const maxBatch = 512;
/** Payments in hand at most; more are left to the sweep, which finds them in the table (memory stays bounded). */
const maxInHand = 100_000;
/** How long one call to a biller's own system may take; below the 15 s after which a platform gives up on an answer. */
const ownSystemDeadlineMs = 10_000;
/** Calls to a biller's own system at once: one slow call must not hold up all others. */
const ownSystemCalls = 4;
/** How long a mark keeps other replicas off: longer than a call can take, so that only a dead holder loses it. */
const ownSystemLeaseMs = 30_000;
/** A payment that has been processing for so long was left by someone; those in hand here are skipped whatever their age. */
const sweepAgeMs = 2_000;
/** Pause between two looks at the table: with the age above, what a crash left is ended within seconds (Q13). */
const sweepPauseMs = 1_000;
/** The pause is at least so many times as long as the looks took: a hundred thousand nightly payments cost a tenth of a connection. */
const sweepPauseFactor = 10;
/** Rows of one look; the next goes on from there, so that thousands of nightly payments hide no new one. */
const sweepRows = 1_000;
/** After an error or a "later": first pause and longest. */
const firstRetryMs = 1_000;
const longestRetryMs = 60_000;

/** The applying end of the kit. */
export interface Applier {
  /** Takes payments that were just committed. Never waits, never throws: the table holds them. */
  take(payments: readonly PaymentRow[]): void;
  /** One look at the table for payments that were left; resolves when those it found have been tried. Gives how many. */
  sweep(ageMs?: number): Promise<number>;
  /** Begins to sweep: everything at once, then as time goes by. */
  start(): void;
  /** Ends sweeping and resolves when what is in hand has been tried. */
  stop(): Promise<void>;
}

/** How payments are applied. */
export interface ApplierOptions {
  readonly database: Database;
  readonly accounts: AccountSystem;
  /** Undefined: any biller that has accounts. Else a payment for another biller fails. */
  readonly billers: readonly BillerRules[] | undefined;
  /** Time between acceptance and posting in which an operator can cancel, in milliseconds (ST4). */
  readonly holdMs: number;
  /** Called with the new rows after their commit. */
  readonly announce: (ended: readonly PaymentRow[]) => void;
  readonly metrics: KitMetrics;
  readonly log: Log;
  readonly clock: Clock;
}

/** Makes the applying end; nothing runs before `start` or `take`. */
export function openApplier(options: ApplierOptions): Applier {
  const { database, accounts, holdMs, announce, metrics, log, clock } = options;
  const rules = options.billers && new Map(options.billers.map((rule) => [rule.biller_id, rule]));
  const me = randomUUID();
  const inHand = new Set<string>();
  const retries = new Map<string, { notBefore: number; pauseMs: number }>();
  const stopped = new AbortController();
  let sweeping: Promise<void> = Promise.resolve();
  let place = '';
  let lookMs = 0;
  metrics.watch('apply_queue', () => inHand.size);

  const flush = async (payments: PaymentRow[]): Promise<undefined[]> => {
    const ids = payments.map((payment) => payment.platform_payment_id);
    const { held, ended } =
      accounts.posts === 'in_transaction'
        ? await applyInTransaction(database, accounts, rules, ids)
        : await applyInOwnSystem(database, accounts, rules, ids, me);
    const over = new Set(ended.map((row) => row.platform_payment_id));
    const left = new Set(held.filter((id) => !over.has(id)));
    for (const id of ids) {
      if (left.has(id)) remember(id);
      else retries.delete(id);
    }
    announce(ended);
    count(metrics, ended);
    return payments.map(() => undefined);
  };

  const remember = (id: string): void => {
    const before = retries.get(id)?.pauseMs;
    const pauseMs = before === undefined ? firstRetryMs : Math.min(longestRetryMs, before * 2);
    retries.delete(id);
    retries.set(id, { notBefore: clock.monotonic() + pauseMs, pauseMs });
    if (retries.size > maxInHand) retries.delete(retries.keys().next().value ?? id);
  };

  const group = groupCommit<PaymentRow, undefined>({
    flush,
    maxBatch,
    maxQueued: maxInHand,
    // One transaction after the other gathers more in each; two would meet at the same accounts.
    concurrency: accounts.posts === 'in_transaction' ? 1 : ownSystemCalls,
    clock,
  });

  const apply = async (payment: PaymentRow): Promise<void> => {
    const id = payment.platform_payment_id;
    if (inHand.has(id)) return;
    inHand.add(id);
    try {
      await group.add(payment);
    } catch (error) {
      // It stays processing, which is the truth, and the sweep tries again.
      remember(id);
      metrics.postErrors.inc();
      const line = { platform_payment_id: id, error: messageOf(error) };
      // A database that is away fails hundreds at once, and the sweep says so once; anything else is this payment's own.
      if (error instanceof DatabaseUnavailable) log.debug(line, 'not applied; tried again');
      else log.error(line, 'not applied; tried again');
    } finally {
      inHand.delete(id);
    }
  };

  const sweep = async (ageMs = sweepAgeMs): Promise<number> => {
    const began = clock.monotonic();
    const least = Math.max(ageMs, holdMs);
    // With a time to cancel in, one of unknown age rather waits too long than not at all.
    const ahead = holdMs > 0 ? null : least;
    const found = await findUnfinished(database, least, ahead, place, sweepRows);
    lookMs += clock.monotonic() - began;
    const last = found.at(-1);
    place = found.length < sweepRows || last === undefined ? '' : last.platform_payment_id;
    const now = clock.monotonic();
    const due = found.filter(({ platform_payment_id: id }) => {
      return !inHand.has(id) && (retries.get(id)?.notBefore ?? 0) <= now;
    });
    await Promise.all(due.map(apply));
    return due.length;
  };

  const sweepForEver = async (): Promise<void> => {
    // The first look takes everything: whatever was processing when this replica last ended.
    let ageMs = 0;
    while (!stopped.signal.aborted) {
      try {
        await sweep(ageMs);
        // More pages follow at once.
        if (place !== '') continue;
        ageMs = sweepAgeMs;
      } catch (error) {
        log.warn({ error: messageOf(error) }, 'the look for unfinished payments failed');
      }
      const pauseMs = Math.max(sweepPauseMs, lookMs * sweepPauseFactor);
      lookMs = 0;
      await clock.sleep(pauseMs, stopped.signal);
    }
  };

  return {
    take(payments) {
      // With a time to cancel in, the sweep applies them when it has passed.
      if (holdMs > 0 || stopped.signal.aborted) return;
      for (const payment of payments) if (inHand.size < maxInHand) void apply(payment);
    },
    sweep,
    start() {
      sweeping = sweepForEver();
    },
    async stop() {
      stopped.abort();
      await sweeping;
      await group.drain();
    },
  };
}

function count(metrics: KitMetrics, ended: readonly PaymentRow[]): void {
  const byStatus = Map.groupBy(ended, (row) => row.status);
  for (const status of ['succeeded', 'failed', 'canceled'] as const) {
    const rows = byStatus.get(status);
    if (rows) metrics.ended(status, rows.length);
  }
  for (const row of byStatus.get('succeeded') ?? []) {
    const seconds =
      (Date.parse(row.posted_at ?? row.initiated_at) - Date.parse(row.initiated_at)) / 1000;
    metrics.observePosting(seconds);
  }
}

type Rules = ReadonlyMap<string, BillerRules> | undefined;

/** What one group came to: the ids that were still processing, and the rows of those that now have ended. */
interface Applied {
  readonly held: readonly string[];
  readonly ended: readonly PaymentRow[];
}

const idOf = (payment: PaymentRow): string => payment.platform_payment_id;

/** Books in the kit's database: judged, posted and ended in one transaction. */
function applyInTransaction(
  database: Database,
  accounts: AccountsInTransaction,
  rules: Rules,
  ids: readonly string[],
): Promise<Applied> {
  return database.transaction(async (tx) => {
    const held = await holdPayments(tx, ids);
    const refused = await refusals(tx, rules, held);
    const postings = held.filter((payment) => !refused.has(payment.platform_payment_id));
    const outcomes = postings.length === 0 ? [] : await accounts.post(postings.map(toPosting), tx);
    const ends = [...refused.values(), ...endsOf(postings, outcomes)];
    if (ends.length === 0) return { held: held.map(idOf), ended: [] };
    const ended = await endPayments(tx, ends);
    // They are locked: nobody else can have ended one between.
    assert.equal(ended.length, ends.length, 'a payment was posted but not ended');
    return { held: held.map(idOf), ended };
  });
}

/** Books elsewhere: marked and committed, posted by a call outside any transaction, then ended. */
async function applyInOwnSystem(
  database: Database,
  accounts: AccountsInOwnSystem,
  rules: Rules,
  ids: readonly string[],
  me: string,
): Promise<Applied> {
  const { held, failed, postings } = await database.transaction(async (tx) => {
    const held = await holdPayments(tx, ids);
    // One that was handed over before may be posted there already: no rule may fail it now.
    const fresh = held.filter((payment) => payment.posting_since === null);
    const refused = await refusals(tx, rules, fresh);
    const rest = held.filter((payment) => !refused.has(payment.platform_payment_id));
    const mine = await markPosting(tx, rest.map(idOf), me, ownSystemLeaseMs);
    return {
      held: held.map(idOf),
      failed: refused.size === 0 ? [] : await endPayments(tx, [...refused.values()]),
      postings: rest.filter((payment) => mine.has(payment.platform_payment_id)),
    };
  });
  if (postings.length === 0) return { held, ended: failed };
  const outcomes = await askOwnSystem(accounts, postings.map(toPosting));
  const ends = endsOf(postings, outcomes);
  const ended = ends.length === 0 ? [] : await endPayments(database, ends);
  return { held, ended: [...failed, ...ended] };
}

/**
 * Calls the biller's system under a deadline. When that has passed all payments of the call are left for later together; an error
 * that it throws may be one payment's fault, and the group tries each alone.
 */
async function askOwnSystem(
  accounts: AccountsInOwnSystem,
  postings: readonly Posting[],
): Promise<readonly PostOutcome[]> {
  const deadline = AbortSignal.timeout(ownSystemDeadlineMs);
  const late = Promise.withResolvers<never>();
  const onLate = (): void => {
    late.reject(new DatabaseUnavailable("the biller's system did not answer in time", 'unknown'));
  };
  deadline.addEventListener('abort', onLate);
  try {
    return await Promise.race([accounts.post(postings, deadline), late.promise]);
  } finally {
    deadline.removeEventListener('abort', onLate);
  }
}

function toPosting(payment: PaymentRow): Posting {
  const { platform_payment_id, payment_id, platform_batch_id, biller_id, account_id } = payment;
  const { amount_in_cents, initiated_at } = payment;
  return {
    platform_payment_id,
    payment_id,
    platform_batch_id,
    biller_id,
    account_id,
    amount_in_cents,
    initiated_at,
  };
}

function endsOf(postings: readonly PaymentRow[], outcomes: readonly PostOutcome[]): PaymentEnd[] {
  assert.equal(outcomes.length, postings.length, 'post gives one outcome for each payment');
  return postings.flatMap(({ platform_payment_id }, index): PaymentEnd[] => {
    const outcome = outcomes[index];
    assert(outcome);
    switch (outcome.outcome) {
      case 'posted':
        return [{ platform_payment_id, status: 'succeeded', failure_reason: null }];
      case 'failed':
        return [failure(platform_payment_id, outcome.reason)];
      case 'later':
        return [];
    }
  });
}

function failure(platform_payment_id: string, reason: string): PaymentEnd {
  assert(/\S/.test(reason), 'a failure has a reason (PF5)');
  const failure_reason = reason.slice(0, MAX_FAILURE_REASON_LENGTH).toWellFormed();
  return { platform_payment_id, status: 'failed', failure_reason };
}

/** Those that the rules of their biller refuse before any account is asked (FR1, decision 10), by id. */
async function refusals(
  tx: Transaction,
  rules: Rules,
  held: readonly HeldPayment[],
): Promise<Map<string, PaymentEnd>> {
  const refused = new Map<string, PaymentEnd>();
  if (!rules) return refused;
  const windows: { payment: HeldPayment; seconds: number }[] = [];
  for (const payment of held) {
    const id = payment.platform_payment_id;
    const rule = rules.get(payment.biller_id);
    const seconds = rule?.duplicate_window_seconds ?? 0;
    if (!rule) refused.set(id, failure(id, FAILURE_REASONS.account));
    else if (payment.amount_in_cents > (rule.max_amount_in_cents ?? Number.MAX_SAFE_INTEGER)) {
      refused.set(id, failure(id, FAILURE_REASONS.maximum));
    } else if (seconds > 0) windows.push({ payment, seconds });
  }
  if (windows.length > 0) {
    for (const id of await duplicates(tx, windows)) {
      refused.set(id, failure(id, FAILURE_REASONS.duplicate));
    }
  }
  return refused;
}

// Of two equal payments in flight at two replicas one must see the other: whoever judges a debt holds this lock until it commits.
// The keys are taken in sorted order, so that no two wait for each other in a circle.
const lockDebtsStatement = sql(
  'kit_lock_debts',
  `SELECT pg_advisory_xact_lock(key) FROM (
     SELECT DISTINCT hashtextextended(debt, 0) AS key FROM unnest($1::text[]) AS debt ORDER BY key
   ) AS keys`,
);

// A duplicate is one of which another succeeded within the window, or is being posted, or was there first. A failed or canceled
// one moved no money and hinders nobody.
const duplicatesStatement = sql(
  'kit_duplicates',
  `SELECT asked.id AS platform_payment_id
     FROM unnest($1::text[], $2::float8[]) AS asked(id, seconds)
     JOIN duebridge_partner.payment AS mine ON mine.platform_payment_id = asked.id
    WHERE EXISTS (
      SELECT FROM duebridge_partner.payment AS other
       WHERE other.account_id = mine.account_id AND other.biller_id = mine.biller_id
         AND other.amount_in_cents = mine.amount_in_cents
         AND other.platform_payment_id <> mine.platform_payment_id
         AND other.initiated_at BETWEEN mine.initiated_at - asked.seconds * interval '1 second'
                                    AND mine.initiated_at + asked.seconds * interval '1 second'
         AND (other.status = 'succeeded'
              OR (other.status = 'processing'
                  AND (other.posting_since IS NOT NULL
                       OR (other.initiated_at, other.platform_payment_id) < (mine.initiated_at, mine.platform_payment_id)))))`,
);

async function duplicates(
  tx: Transaction,
  windows: readonly { payment: HeldPayment; seconds: number }[],
): Promise<string[]> {
  const debts = windows.map(({ payment }) =>
    [payment.biller_id, payment.account_id, payment.amount_in_cents].join(':'),
  );
  await tx.query(lockDebtsStatement, [debts]);
  const rows = await tx.query<{ platform_payment_id: string }>(duplicatesStatement, [
    windows.map(({ payment }) => payment.platform_payment_id),
    windows.map(({ seconds }) => seconds),
  ]);
  return rows.map((row) => row.platform_payment_id);
}
