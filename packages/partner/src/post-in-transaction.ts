/**
 * Posts payments to accounts in the kit's own database: decided, posted and ended in one transaction.
 *
 * enters:  payments from apply.ts, one by one; posting-lanes.ts says which share a transaction.
 * leaves:  what became of each; ended rows to `announce` after their commit.
 * holds:   status and posting change together (KT6); what the ledger has posted ends as an entry of it.
 */
import assert from 'node:assert/strict';
import type { Clock, Database, Transaction } from '@duebridge/runtime';
import {
  checkedOutcomes,
  isLocked,
  WrongAnswer,
  type AccountsInTransaction,
} from './account-system.ts';
import { refusals, type Rules } from './business-rules.ts';
import { postedByLedger } from './ledger.ts';
import type { KitMetrics } from './metrics.ts';
import { endOf, TooLate, toPosting, type Poster } from './poster.ts';
import { PostingLanes, type Attempt } from './posting-lanes.ts';
import {
  endPayments,
  lockFreePayments,
  postponePayments,
  type PaymentEnd,
  type PaymentRow,
  type Postponed,
} from './store.ts';

/** The longest posting of one transaction in milliseconds, however many statements it runs. */
const POST_MS = 10_000;

/** Creates the poster. */
export function openTransactionPoster(options: {
  database: Database;
  accounts: AccountsInTransaction;
  rules: Rules;
  announce: (ended: readonly PaymentRow[]) => void;
  metrics: KitMetrics;
  clock: Clock;
}): Poster {
  const { database, accounts, rules, announce, metrics, clock } = options;

  const attempt: Attempt = async (items, { stepMs, lockMs }) => {
    const ids = items.map(({ payment }) => payment.platform_payment_id);
    const work = async (tx: Transaction) => {
      const rows = await lockFreePayments(tx, ids);
      const refused = await refusals(tx, rules, rows);
      const postings = rows.filter((payment) => !refused.has(payment.platform_payment_id));
      const began = clock.monotonic();
      let entries: ReadonlySet<string> = new Set();
      const post = async (on: Transaction): Promise<unknown> => {
        const answered = await accounts.post(postings.map(toPosting), on);
        entries = postedByLedger(on);
        return answered;
      };
      const answer = postings.length === 0 ? [] : await watched(clock, stepMs, tx, post);
      if (postings.length > 0) metrics.observeCore('post', (clock.monotonic() - began) / 1000);
      const locked = new Set<string>();
      const decided = postings.filter(({ platform_payment_id: id }, index) => {
        const isOne = Array.isArray(answer) && isLocked(answer[index]);
        if (isOne) locked.add(id);
        return !isOne;
      });
      const outcomes = checkedOutcomes(
        Array.isArray(answer) ? answer.filter((one) => !isLocked(one)) : answer,
        decided.length,
      );
      const ends: PaymentEnd[] = [...refused.values()];
      const laters = new Map<string, Postponed>();
      decided.forEach(({ platform_payment_id: id }, index) => {
        const outcome = outcomes[index];
        assert(outcome);
        if (outcome.outcome !== 'later') ends.push(endOf(id, outcome));
        else laters.set(id, { platform_payment_id: id, until: outcome.until, frees: null });
      });
      if ([...entries].some((id) => laters.has(id) || locked.has(id))) {
        // It would be posted again.
        throw new WrongAnswer(
          'post gave a payment to the ledger, and did not answer that it is posted',
        );
      }
      if (laters.size > 0) await postponePayments(tx, [...laters.values()]);
      const ended =
        ends.length === 0
          ? []
          : await endPayments(
              tx,
              ends.map((end) => ({ ...end, in_ledger: entries.has(end.platform_payment_id) })),
            );
      // The rows are locked, so nobody else can have ended one in between.
      assert.equal(ended.length, ends.length, 'a payment was posted but not ended');
      return { ended, laters, locked };
    };
    const { ended, laters, locked } = await database.transaction(work, {
      statementTimeoutMs: stepMs,
      lockTimeoutMs: lockMs,
    });
    announce(ended);
    return items.filter(({ payment: { platform_payment_id: id }, resolve }) => {
      if (locked.has(id)) return true;
      const later = laters.get(id);
      // What was not found has ended, or somebody has it at this moment; if it remains the sweep finds it.
      resolve(later === undefined ? { result: 'done' } : { result: 'later', until: later.until });
      return false;
    });
  };

  const noteError = (): void => metrics.count('post_errors');
  const lanes = new PostingLanes({ attempt, database, clock, noteError });
  metrics.watch('locked_accounts', () => lanes.troubles);
  return lanes;
}

/**
 * Runs `post` in the transaction; throws TooLate when it leaves the transaction without a statement for `stepMs`, or takes longer than
 * `POST_MS`. The time that a statement takes is PostgreSQL's to limit, and the way there may be long.
 */
async function watched<T>(
  clock: Clock,
  stepMs: number,
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
      const until = Math.min(began + POST_MS, (running > 0 ? now : idleSince) + stepMs);
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
