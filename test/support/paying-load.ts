/**
 * Customers who pay while something breaks, and the check of both sides afterwards: every payment has ended, and none was lost, doubled,
 * or captured twice.
 */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { openDatabase, type Database } from '@duebridge/runtime';
import { PATIENCE_MS, until } from '@duebridge/runtime/testing';
import { Browser, call, createToken, type Client } from './customer.ts';

/** Customers who pay at once. */
const CUSTOMERS = 4;
/** Accounts `acc-0`, `acc-1`, … that the biller must have. */
export const ACCOUNTS = 5_000;

/** Loads of one test follow each other; none pays an account that another has paid. */
let nextAccount = 0;

/**
 * Starts four customers, who pay at these platforms in turn, one payment for each account, until they are told to stop, and rest between two
 * payments.
 */
export function startLoad(urls: readonly string[], client: Client, restMs = 0) {
  /** Payments that got a 200, and their account. */
  const acknowledged = new Map<string, string>();
  const closing = new AbortController();
  let retries = 0;
  /** Repeats a step, at another platform each time, until it gets its 200. */
  const insist = async <T>(
    first: number,
    step: (url: string) => Promise<{ status: number; body: T }>,
  ): Promise<T> => {
    const end = performance.now() + PATIENCE_MS;
    for (let tried = first; ; tried += 1) {
      const answer = await step(urls[tried % urls.length] ?? '').catch(() => undefined);
      if (answer?.status === 200) return answer.body;
      if (answer !== undefined && ![429, 500, 503].includes(answer.status))
        throw new Error(`refused: ${answer.status} ${JSON.stringify(answer.body)}`);
      assert.ok(performance.now() < end, `no 200 in four minutes: ${answer?.status}`);
      retries += 1;
      await delay(200);
    }
  };
  const customer = async (): Promise<void> => {
    while (!closing.signal.aborted && nextAccount < ACCOUNTS) {
      const at = nextAccount++;
      const account_id = `acc-${at}`;
      // A token opens a few sessions only, and one whose answer was lost counts: the partner's page asks for a new token.
      const { session } = await insist(at, async (platformUrl) => {
        const token = await createToken({ ...client, platformUrl }, { account_id });
        if (token.status !== 200) return { ...token, body: { session: '' } };
        return call<{ session: string }>(
          'POST',
          `${platformUrl}/v1/flow/session`,
          { authorization: `Bearer ${token.body.token}` },
          {},
        );
      });
      const bill = await insist(at, (url) => new Browser(url, session).bill());
      // A customer who gets no answer presses again: at another process, and it is the same payment.
      const press = (url: string) =>
        new Browser(url, session, bill.next_payment_id).confirm(100 + at);
      const made = await insist(at, press);
      acknowledged.set(made.platform_payment_id, account_id);
      const again = await insist(at + 1, press);
      assert.equal(again.platform_payment_id, made.platform_payment_id);
      await delay(restMs);
    }
  };
  const load = Promise.all(Array.from({ length: CUSTOMERS }, customer));
  load.catch(() => undefined);
  return {
    acknowledged,
    /** Resolves when so many more payments are acknowledged. */
    async payments(more: number): Promise<void> {
      const target = acknowledged.size + more;
      await until(`${target} payments`, () => acknowledged.size >= target);
    },
    /** Lets every customer finish. Throws what went wrong for one. */
    async stop() {
      closing.abort();
      await load;
      return { acknowledged, retries };
    },
  };
}

/** Reads a database directly. */
export async function withBooks<T>(url: string, work: (books: Database) => Promise<T>): Promise<T> {
  const books = openDatabase({ url, applicationName: 'duebridge test' });
  try {
    return await work(books);
  } finally {
    await books.close();
  }
}

/**
 * Waits until every payment has ended, and compares the two sides: none is missing, none was posted or captured twice. A payment that is
 * merely slow, because other programs have the processors, is waited for as long as others end.
 */
export async function judge(
  urls: { readonly platform: string; readonly partner: string },
  acknowledged: ReadonlyMap<string, string>,
): Promise<void> {
  await withBooks(urls.platform, async (books) => {
    const open = `SELECT platform_payment_id, stage, review_reason FROM duebridge_platform.payments WHERE settled_at IS NULL`;
    let [fewest, end] = [Infinity, 0];
    for (let left = await books.query(open); left.length > 0; left = await books.query(open)) {
      if (left.length < fewest) end = performance.now() + PATIENCE_MS;
      fewest = Math.min(fewest, left.length);
      assert.ok(performance.now() < end, `not ended: ${JSON.stringify(left.slice(0, 5))}`);
      await delay(100);
    }
    const payments = (side: string) =>
      `SELECT platform_payment_id AS id, account_id, status, amount_in_cents FROM ${side} WHERE account_id LIKE 'acc-%' ORDER BY 1`;
    const ours = await books.query<{ id: string; account_id: string; status: string }>(
      payments('duebridge_platform.payments'),
    );
    const [theirs, postings] = await withBooks(urls.partner, async (there) => [
      await there.query(payments('duebridge_partner.payment')),
      await there.query<{ id: string }>(
        `SELECT platform_payment_id AS id FROM duebridge_partner.movement WHERE account_id LIKE 'acc-%' AND platform_payment_id IS NOT NULL ORDER BY 1`,
      ),
    ]);
    assert.deepEqual(ours, theirs, 'the two sides differ');
    assert.deepEqual([...new Set(ours.map((row) => row.status))], ['succeeded']);
    assert.equal(new Set(ours.map((row) => row.account_id)).size, ours.length, 'paid twice');
    const stored = new Map(ours.map((row) => [row.id, row.account_id]));
    for (const [id, account_id] of acknowledged) assert.equal(stored.get(id), account_id);
    const ids = ours.map(({ id }) => ({ id }));
    const captures = await books.query<{ id: string }>(
      `SELECT platform_payment_id AS id FROM duebridge_platform.funds JOIN duebridge_platform.payments USING (platform_payment_id)
        WHERE state = 'captured' AND account_id LIKE 'acc-%' ORDER BY 1`,
    );
    assert.deepEqual(captures, ids, 'not each was captured');
    assert.deepEqual(postings, ids, 'not each was posted once');
  });
}
