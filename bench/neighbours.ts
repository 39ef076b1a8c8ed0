/**
 * F9 and F12: the time from confirm to succeeded of healthy payments while their neighbours are in trouble, against the same
 * without the trouble, in alternating rounds. A steady stream of `--rate` payments a second over ten partners; each trouble is
 * there before the stream begins and until it has ended.
 *
 *     node bench/neighbours.ts [--rounds 3] [--rate 40] [--seconds 6] [--only hanging]
 */
import { systemClock } from '@duebridge/runtime';
import { holdLock } from '@duebridge/runtime/testing';
import {
  scriptedPartner,
  engineRig,
  type Seen,
  type EngineRig,
} from '../packages/platform/test/engine-rig.ts';
import type { Engine } from '../packages/platform/src/engine/engine.ts';
import { end } from './database.ts';
import { benchOptions } from './options.ts';
import { compareTroubles, steadily, type Trouble } from './report.ts';

const flags = benchOptions({ rounds: '3', rate: '40', seconds: '6', only: 'all' });
const PARTNERS = 10;
/** Intervals as in production. */
const TIMES = {
  leaseMs: 10_000,
  beatMs: 2_000,
  pollMs: 100,
  retryMs: 250,
  maxRetryMs: 60_000,
  trialMs: 2_000,
  pausedMs: 5_000,
};

interface Place {
  readonly rig: EngineRig;
  readonly engine: Engine;
  readonly funding: { hangs: boolean };
}

interface PartnerTrouble extends Trouble {
  /** Starts the trouble; returns a function that ends it. */
  readonly begin: (ground: Place) => Promise<() => Promise<void>>;
  /** The partner in trouble has no healthy payments (F9). */
  readonly isWhole?: true;
}

/** Payments of partner 0, whose account id selects the partner's behaviour. */
async function sick({ rig, engine }: Place, account_id: string, count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) await rig.pay(engine, 'partner-0', { account_id });
}

/** How many of the payments that never end the partner has not accepted yet. */
async function waitingPuts({ rig }: Place): Promise<number> {
  const rows = await rig.database.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM duebridge_platform.payments
     WHERE account_id = 'slow' AND stage <> 'accepted'`,
  );
  return rows[0]?.count ?? 0;
}

const nothing = (): Promise<void> => Promise.resolve();

const TROUBLES: Readonly<Record<string, PartnerTrouble>> = {
  hanging: {
    isWhole: true,
    what: 'one of ten partners hangs every call',
    target: 'at most 1.2',
    begin: async (ground) => (await sick(ground, 'hangs', 100), nothing),
  },
  refused: {
    what: 'one payment is answered 403',
    target: 'at most 1.5',
    begin: async (ground) => (await sick(ground, 'refused', 1), nothing),
  },
  failing: {
    what: '40 payments are answered 500',
    target: 'at most 1.5',
    begin: async (ground) => (await sick(ground, 'broken', 40), nothing),
  },
  polls: {
    what: '3,000 accepted payments are polled',
    target: 'at most 1.5',
    async begin(ground) {
      await sick(ground, 'slow', 3_000);
      // What is measured is the wait behind polls; behind PUTs that are not sent yet, a new PUT takes its turn.
      while ((await waitingPuts(ground)) > 0) await systemClock.sleep(100);
      return nothing;
    },
  },
  funding: {
    what: '256 funding calls of one method hang',
    target: 'at most 1.5',
    async begin({ rig, engine, funding }) {
      funding.hangs = true;
      for (let n = 0; n < 256; n += 1)
        await rig.pay(engine, 'partner-0', { funding_method: 'hanging' });
      return () => Promise.resolve(void (funding.hangs = false));
    },
  },
  locked: {
    what: 'the row of one payment is locked',
    target: 'at most 1.5',
    async begin({ rig, engine }) {
      const { platform_payment_id } = await rig.pay(engine, 'partner-0', { account_id: 'slow' });
      return holdLock(
        rig.database.url,
        'SELECT 1 FROM duebridge_platform.payments WHERE platform_payment_id = $1 FOR UPDATE',
        [platform_payment_id],
      );
    },
  },
};

/** One stream; returns the sorted times to the end in milliseconds. */
async function stream(trouble: PartnerTrouble, isThere: boolean): Promise<readonly number[]> {
  const hooks: (() => Promise<void>)[] = [];
  try {
    const rig = await engineRig({ after: (hook) => hooks.push(hook) });
    const partner = await scriptedPartner({ after: (hook) => hooks.unshift(hook) });
    partner.pollsToEnd = 0;
    partner.script = (seen: Seen) => {
      if (seen.path.includes('/account/hangs/')) return new Promise(() => undefined);
      if (seen.path.includes('/account/refused/')) return { status: 403, json: {} };
      if (seen.path.includes('/account/broken/')) return { status: 500, json: {} };
      if (seen.path.includes('/account/slow/')) {
        if (seen.method === 'PUT') return undefined;
        const id = seen.path.split('/').at(-1)?.split('?')[0] ?? '';
        return { json: partner.payments.get(id) };
      }
      return undefined;
    };
    for (let n = 0; n < PARTNERS; n += 1) {
      await rig.register(`partner-${n}`, partner.url, {
        budget: {
          call_timeout_ms: 10_000,
          wait_seconds: 0,
          max_concurrent_calls: 32,
          max_calls_per_second: 200,
        },
      });
    }
    const funding = { hangs: false };
    const engine = rig.engine({
      options: TIMES,
      funding: {
        collection: (method) => rig.funding.collection(method),
        capture: (order, call) => rig.funding.capture(order, call),
        release: (order, call) => rig.funding.release(order, call),
        authorize: (order, call) =>
          order.funding_method === 'hanging' && funding.hangs
            ? new Promise((_resolve, reject) => {
                call?.signal.addEventListener('abort', () => reject(new Error('aborted')));
              })
            : rig.funding.authorize(order, call),
      },
    });
    await engine.start();
    // Warm up connections, plans, and the shares of every partner.
    for (let n = 0; n < PARTNERS * 3; n += 1) {
      const row = await rig.pay(engine, `partner-${n % PARTNERS}`);
      await rig.until(row.platform_payment_id, (now) => now.stage === 'ended');
    }
    const heal = isThere ? await trouble.begin({ rig, engine, funding }) : undefined;
    if (isThere) await systemClock.sleep(1_000);
    const times: number[] = [];
    const first = trouble.isWhole === true ? 1 : 0;
    await steadily(flags, async (n) => {
      const began = performance.now();
      const row = await rig.pay(engine, `partner-${first + (n % (PARTNERS - first))}`);
      await rig.until(row.platform_payment_id, (now) => now.stage === 'ended');
      times.push(performance.now() - began);
    });
    await heal?.();
    return times.toSorted((a, b) => a - b);
  } finally {
    for (const hook of hooks) await hook();
  }
}

await compareTroubles('F12', flags, TROUBLES, stream);
await end();
