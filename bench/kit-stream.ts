/** Payments that arrive at a partner kit at a steady rate, and how long each waited until it ended. Shared by the benches of the kit. */
import assert from 'node:assert/strict';
import { systemClock, type Database } from '@duebridge/runtime';
import type { PartnerKitOptions } from '../packages/partner/src/kit.ts';
import { importAccounts } from '../packages/partner/src/ledger.ts';
import { kitDatabase, startKit, type TestPartner } from '../packages/partner/test/kit.ts';

const ACCOUNTS = 200;

/** A running kit on a fresh database with 200 accounts `A-…` and those named. */
export interface StreamedKit {
  readonly url: string;
  /** The database itself, whatever lies between it and the kit. */
  readonly database: Database;
  readonly partner: TestPartner;
  readonly put: (biller: string, account: string, id: string) => Promise<void>;
  /** Sends `rate` payments a second to accounts of `acme` by turns, for so many seconds; `beside` is called before each. */
  readonly stream: (
    rate: number,
    seconds: number,
    beside?: (n: number) => Promise<void>,
  ) => Promise<void>;
  /** Waits until those of the stream have ended; returns the sorted times from acceptance to end, in milliseconds. */
  readonly waits: () => Promise<number[]>;
}

/** Starts the kit, runs `work` and stops it. `through` is the database as the kit sees it, if it is another one. */
export async function withKit<T>(
  options: {
    readonly accounts?: readonly string[];
    readonly through?: (url: string) => Promise<{ database: Database; close(): Promise<void> }>;
    readonly kit?: (database: Database) => Promise<Partial<PartnerKitOptions>>;
  },
  work: (kit: StreamedKit) => Promise<T>,
): Promise<T> {
  const hooks: (() => Promise<void> | void)[] = [];
  try {
    const database = await kitDatabase({ after: (hook) => hooks.push(hook) }, 'bench');
    const names = [
      ...(options.accounts ?? []),
      ...Array.from({ length: ACCOUNTS }, (_, index) => `A-${index}`),
    ];
    await importAccounts(
      database,
      names.map((account_id) => ({
        biller_id: 'acme',
        account_id,
        amount_due_in_cents: 1_000_000,
      })),
    );
    const seen = (await options.through?.(database.url)) ?? { database, close: () => undefined };
    hooks.unshift(() => seen.close());
    const partner = await startKit(seen.database, {
      connections: 2_000,
      ...(await options.kit?.(database)),
    });
    hooks.unshift(() => partner.close());
    const put: StreamedKit['put'] = async (biller, account, id) => {
      const path = `/biller/${biller}/account/${account}/payment/${id}`;
      const body = '{"amount_in_cents":100,"platform_batch_id":"b"}';
      const { status, text } = await partner.call('PUT', path, { body });
      assert.equal(status, 200, text);
    };
    return await work({
      url: database.url,
      database,
      partner,
      put,
      async stream(rate, seconds, beside) {
        const puts: Promise<void>[] = [];
        const from = performance.now();
        for (let n = 0; n < rate * seconds; n += 1) {
          const wait = from + (n * 1_000) / rate - performance.now();
          if (wait > 0) await systemClock.sleep(wait);
          await beside?.(n);
          puts.push(put('acme', `A-${n % ACCOUNTS}`, `p-${n}`));
        }
        await Promise.all(puts);
      },
      async waits() {
        for (;;) {
          const rows = await database.query<{ ms: number | null }>(
            `SELECT (extract(epoch FROM ended_at - initiated_at) * 1000)::float8 AS ms
               FROM duebridge_partner.payment WHERE platform_payment_id LIKE 'p-%'`,
          );
          const times = rows.flatMap(({ ms }) => (ms === null ? [] : [ms]));
          if (times.length === rows.length) return times.toSorted((a, b) => a - b);
          await systemClock.sleep(100);
        }
      },
    });
  } finally {
    for (const hook of hooks) await hook();
  }
}
