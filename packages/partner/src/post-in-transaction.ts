/**
 * Posts payments to accounts in the kit's own database: decided, posted and ended in one transaction.
 *
 * enters:  payments, one or several; posting.ts says which share a transaction.
 * leaves:  what became of each; ended rows to `announce` after their commit.
 * holds:   status and posting change together (KT6); what the ledger has posted ends as an entry of it.
 */
import assert from 'node:assert/strict';
import {
  DatabaseUnavailable,
  sqlState,
  type Clock,
  type Database,
  type Transaction,
} from '@duebridge/runtime';
import {
  checkedOutcomes,
  TooLate,
  toPosting,
  WrongAnswer,
  type AccountsInTransaction,
  type CheckedOutcome,
} from './account-system.ts';
import { refusals } from './business-rules.ts';
import { postedByLedger } from './ledger.ts';
import type { Tried, Way, WayOptions } from './posting.ts';
import {
  endPayments,
  lockPayments,
  postponePayments,
  type PaymentEnd,
  type PaymentRow,
  type Postponed,
} from './store.ts';

/** Connections that payments which are tried alone leave to all else: a group, acceptance, reads. And how many tries may be repeats. */
const [LEFT_FREE, REPEATS] = [3, 1];
/** The longest posting of one transaction in milliseconds, however many statements it runs. */
const POST_MS = 10_000;

/**
 * The longest statement of one transaction in milliseconds, by PostgreSQL; and the longest time in which the account system runs none. All
 * payments of a group wait for the slowest: with the time alone it has to stay below the two seconds that a neighbour may wait. A payment
 * that failed before has time enough for a slow account system. No limit counts the way to the database, however far it is.
 */
const stepMs = { group: 800, first: 500, repeat: 10_000 };
/**
 * The longest wait for one lock, by PostgreSQL. Hundreds of locked accounts may be tried alone one after the other. After a second
 * PostgreSQL would look for deadlocks, and might end the biller's transaction.
 */
const LOCK_MS = 100;

type InTransactionOptions = Omit<WayOptions<AccountsInTransaction>, 'log'>;

/** Posting in the kit's transaction. */
export function inTransaction(on: InTransactionOptions): Way {
  const tryAll = (payments: readonly PaymentRow[], limitMs: number): Promise<Tried[]> =>
    postAndEnd(on, payments, limitMs).catch(async (error: unknown) => {
      on.metrics.count('post_errors');
      const tried = await resultOf(on.database, error);
      return payments.map(() => tried);
    });
  return {
    places: Math.max(2, on.database.connections - LEFT_FREE),
    repeats: REPEATS,
    together: (payments) => tryAll(payments, stepMs.group),
    async alone({ payment, isRepeat }) {
      const [tried] = await tryAll([payment], isRepeat ? stepMs.repeat : stepMs.first);
      return tried ?? { result: 'busy' };
    },
  };
}

/** What an error says of the payments of its transaction. The database may have ended that one alone, and be there. */
async function resultOf(database: Database, error: unknown): Promise<Tried> {
  if (sqlState(error) === '55P03') return { result: 'locked' };
  if (!(error instanceof DatabaseUnavailable)) return { result: 'failed', error };
  return database.query('SELECT 1').then(
    () => ({ result: 'failed', error }),
    () => ({ result: 'outage', error }),
  );
}

/** One transaction over payments; what became of each. Throws when it changed nothing. */
async function postAndEnd(
  on: InTransactionOptions,
  payments: readonly PaymentRow[],
  limitMs: number,
): Promise<Tried[]> {
  const tried = new Map<string, Tried>();
  const work = async (tx: Transaction): Promise<PaymentRow[]> => {
    const ids = payments.map((payment) => payment.platform_payment_id);
    const { rows, held } = await lockPayments(tx, ids);
    for (const id of held) tried.set(id, { result: 'busy' });
    const refused = await refusals(tx, on.rules, rows);
    const postings = rows.filter((payment) => !refused.has(payment.platform_payment_id));
    const { outcomes, entries } = await post(on, postings, tx, limitMs);
    const ends: PaymentEnd[] = [...refused.values()];
    const laters: Postponed[] = [];
    postings.forEach(({ platform_payment_id: id }, index) => {
      const outcome = outcomes[index];
      assert(outcome);
      const in_ledger = entries.has(id);
      if ('status' in outcome) {
        ends.push({ platform_payment_id: id, ...outcome, in_ledger });
        return;
      }
      // It would be posted again.
      if (in_ledger) {
        throw new WrongAnswer(
          'post gave a payment to the ledger, and did not answer that it is posted',
        );
      }
      if (outcome.outcome === 'locked') tried.set(id, { result: 'locked' });
      else {
        const { until } = outcome;
        tried.set(id, { result: 'later', until });
        laters.push({ platform_payment_id: id, until, frees: null });
      }
    });
    if (laters.length > 0) await postponePayments(tx, laters);
    const ended = ends.length === 0 ? [] : await endPayments(tx, ends);
    // The rows are locked, so nobody else can have ended one in between.
    assert.equal(ended.length, ends.length, 'a payment was posted but not ended');
    return ended;
  };
  const ended = await on.database.transaction(work, {
    statementTimeoutMs: limitMs,
    lockTimeoutMs: LOCK_MS,
  });
  on.announce(ended);
  return payments.map((payment) => tried.get(payment.platform_payment_id) ?? { result: 'done' });
}

/** Has the account system post; its outcomes, checked, and which of the payments the ledger has posted. */
async function post(
  { accounts, metrics, clock }: InTransactionOptions,
  postings: readonly PaymentRow[],
  tx: Transaction,
  limitMs: number,
): Promise<{ outcomes: CheckedOutcome[]; entries: ReadonlySet<string> }> {
  let entries: ReadonlySet<string> = new Set();
  if (postings.length === 0) return { outcomes: [], entries };
  const began = clock.monotonic();
  const answer = await watched(clock, limitMs, tx, async (on) => {
    const answered = await accounts.post(postings.map(toPosting), on);
    entries = postedByLedger(on);
    return answered;
  });
  metrics.observeCore('post', (clock.monotonic() - began) / 1000);
  return { outcomes: checkedOutcomes(answer, postings.length), entries };
}

/**
 * Runs `post` in the transaction; throws TooLate when it leaves the transaction without a statement for `limitMs`, or takes longer than
 * `POST_MS`. The time that a statement takes is PostgreSQL's to limit, and the way there may be long.
 */
async function watched<T>(
  clock: Clock,
  limitMs: number,
  tx: Transaction,
  post: (tx: Transaction) => Promise<T>,
): Promise<T> {
  let running = 0;
  const began = clock.monotonic();
  let idleSince = began;
  const over = new AbortController();
  const watch = async (): Promise<T> => {
    for (;;) {
      const now = clock.monotonic();
      const until = Math.min(began + POST_MS, (running > 0 ? now : idleSince) + limitMs);
      if (now >= until) throw new TooLate(`posting took longer than ${now - began} ms`);
      await clock.sleep(until - now, over.signal);
      if (over.signal.aborted) return new Promise(() => undefined);
    }
  };
  const posting = Promise.resolve().then(() =>
    post({
      async query(statement, values) {
        running += 1;
        try {
          return await tx.query(statement, values);
        } finally {
          running -= 1;
          idleSince = clock.monotonic();
        }
      },
    }),
  );
  posting.catch(() => undefined);
  try {
    return await Promise.race([posting, watch()]);
  } finally {
    over.abort();
  }
}
