/**
 * Which payments share a call to the biller's own system, which are looked up first, and which may be canceled, step by step: the
 * system answers when the test says so, timers fire when the test says so, and the rows are in memory. What is at stake: two calls
 * that hold one payment, a canceled payment that was posted, an answer that came late and is lost, a system that hangs and takes
 * every place. account-system.test.ts, neighbours.full.test.ts and apply.test.ts have the same poster on a real server.
 */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import {
  DatabaseUnavailable,
  silentLog,
  type Database,
  type Transaction,
} from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { WrongAnswer, type CallOptions, type PostOutcome } from './account-system.ts';
import { readRules } from './business-rules.ts';
import { kitMetrics } from './metrics.ts';
import { openOwnSystemPoster } from './post-in-own-system.ts';
import { describeAccountSystemError, TooLate, type Tried } from './poster.ts';
import type { PaymentRow, UnfinishedPayment } from './store.ts';
import { processing, settle } from './testing.ts';

const [ME, OTHER] = ['replica-me', 'replica-other'];

function payment(id: string, claimed_by: string | null = null): UnfinishedPayment {
  return { ...processing(id), claimed_by };
}

/** A call of the biller's system that has not returned. */
interface Open {
  readonly ids: string;
  readonly signal: AbortSignal;
  /** Answers: each is posted unless told otherwise. */
  answer(outcomes?: Readonly<Record<string, PostOutcome | undefined>>): Promise<void>;
  fail(error: unknown): Promise<void>;
}

/** A payment as it is in the tables. */
interface Kept {
  row: PaymentRow;
  claimed_by: string | null;
  cancel: { actor: unknown; reason: unknown } | null;
}

function rig(
  t: TestContext,
  more: {
    calls?: CallOptions;
    looks?: boolean;
    billers?: Parameters<typeof readRules>[0];
  } = {},
) {
  // Deadlines and the end of a stop; the clock below has the rest.
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const clock = manualClock();
  const kept = new Map<string, Kept>();
  const open: Open[] = [];
  const looks: (Pick<Open, 'fail'> & {
    ids: string;
    answer(outcome?: PostOutcome): Promise<void>;
  })[] = [];
  const announced: string[] = [];
  const postponed: unknown[] = [];
  const audit: string[] = [];
  const warned: string[] = [];
  const state = {
    lives: true,
    unbrokenSince: 0,
    isHeld: true,
    errors: 0,
    contradicted: 0,
    claims: 0,
    finds: 0,
    /** Statements of this name wait for the promise. */
    slow: undefined as { name: string; until: Promise<void> } | undefined,
    /** Statements of this name fail. */
    away: undefined as string | undefined,
  };
  const released: boolean[] = [];
  const observed: string[] = [];
  const figures = new Map<string, () => number>();
  /** Replicas that live. */
  const living = new Set([ME, OTHER]);

  const of = (id: unknown): Kept | undefined => kept.get(String(id));
  const ended = (
    id: unknown,
    status: PaymentRow['status'],
    failure_reason: string | null,
  ): PaymentRow[] => {
    const one = of(id);
    if (one?.row.status !== 'processing') return [];
    one.row = { ...one.row, status, failure_reason };
    return [one.row];
  };
  const query = (given: string | { name: string }, values: readonly unknown[]): unknown[] => {
    const name = typeof given === 'string' ? given.replaceAll(/\s+/g, ' ').trim() : given.name;
    const [first] = values;
    const ids = Array.isArray(first) ? (first as string[]) : [];
    const rows = ids.flatMap((id) => of(id)?.row ?? []);
    if (name === 'kit_find_payments') {
      state.finds += 1;
      return rows;
    }
    if (name === 'kit_lock_payments') return rows.filter((row) => row.status === 'processing');
    if (name === 'kit_claim_payments') {
      state.claims += ids.length;
      return ids.flatMap((id) => {
        const one = of(id);
        const by = one?.claimed_by ?? null;
        if (!one || (by !== null && by !== values[1] && living.has(by))) return [];
        one.claimed_by = String(values[1]);
        return [{ platform_payment_id: id, was_claimed: by !== null }];
      });
    }
    if (name === 'kit_find_held') {
      return rows.filter(({ status, platform_payment_id: id }) => {
        return status === 'processing' && of(id)?.claimed_by === values[1];
      });
    }
    if (name === 'kit_end_payments') {
      const [, statuses, reasons] = values as [unknown, PaymentRow['status'][], (string | null)[]];
      return ids.flatMap((id, at) => ended(id, statuses[at] ?? 'processing', reasons[at] ?? null));
    }
    if (name === 'kit_postpone_payments') postponed.push(...values);
    else if (name === 'kit_audit') audit.push(values.slice(0, 4).flat().join(' '));
    else if (name === 'kit_lock_payment')
      return [of(first)?.row].filter((row) => row !== undefined);
    else if (name === 'kit_lock_claim') return [{ claimed_by: of(first)?.claimed_by ?? null }];
    else if (name === 'kit_cancel_payment') return ended(first, 'canceled', null);
    else if (name === 'kit_cancel_requests') {
      return [...kept].flatMap(([id, one]) =>
        one.claimed_by === first && one.cancel ? [{ platform_payment_id: id, ...one.cancel }] : [],
      );
    } else if (/SET cancel_actor = \$3/.test(name)) {
      const one = of(first);
      if (one && one.claimed_by === values[1]) one.cancel = { actor: values[2], reason: values[3] };
    } else if (/SET cancel_actor = NULL/.test(name)) {
      const one = of(first);
      if (one) one.cancel = null;
    } else if (name.endsWith('cancel_actor IS NOT NULL')) {
      const one = of(first);
      return one?.cancel && one.row.status === 'processing' ? [1] : [];
    } else assert.fail(`an unexpected statement: ${name}`);
    return [];
  };
  const on = {
    async query(given: string | { name: string }, values: readonly unknown[]) {
      if (typeof given !== 'string' && given.name === state.slow?.name) await state.slow.until;
      if (typeof given !== 'string' && given.name === state.away) throw new Error('no database');
      return query(given, values);
    },
  };
  const database = {
    ...on,
    transaction: <T>(work: (tx: Transaction) => Promise<T>) => work(on as unknown as Transaction),
  } as unknown as Database;
  const poster = openOwnSystemPoster({
    database,
    accounts: {
      posts: 'in_own_system',
      ...(more.calls ? { calls: more.calls } : {}),
      findAccount: () => Promise.resolve(undefined),
      post: (postings, signal) => {
        const answered = Promise.withResolvers<PostOutcome[]>();
        open.push({
          ids: postings.map((one) => one.platform_payment_id).join(' '),
          signal,
          async answer(outcomes = {}) {
            open.splice(open.indexOf(this), 1);
            answered.resolve(
              postings.map((one) => outcomes[one.platform_payment_id] ?? { outcome: 'posted' }),
            );
            await settle();
          },
          async fail(error) {
            open.splice(open.indexOf(this), 1);
            answered.reject(error);
            await settle();
          },
        });
        return answered.promise;
      },
      ...(more.looks === true
        ? {
            lookup: (id: string) => {
              const answered = Promise.withResolvers<PostOutcome | undefined>();
              looks.push({
                ids: id,
                async answer(outcome) {
                  looks.shift();
                  answered.resolve(outcome);
                  await settle();
                },
                async fail(error) {
                  looks.shift();
                  answered.reject(error);
                  await settle();
                },
              });
              return answered.promise;
            },
          }
        : {}),
    },
    rules: readRules(more.billers),
    lease: {
      replica_id: ME,
      hold: () => (state.isHeld ? Promise.resolve() : Promise.reject(new Error('no lease'))),
      lives: (since = clock.monotonic()) => state.lives && since >= state.unbrokenSince,
      isRenewed: () => true,
      stop: (release) => {
        released.push(release);
        return Promise.resolve();
      },
    },
    announce: (rows) =>
      announced.push(...rows.map((row) => `${row.platform_payment_id} ${row.status}`)),
    metrics: {
      ...kitMetrics(undefined),
      postErrors: { inc: () => (state.errors += 1) },
      contradicted: { inc: () => (state.contradicted += 1) },
      observeCore: (operation, seconds) => void observed.push(`${operation} ${seconds} s`),
      watch: (name, value) => void figures.set(name, value),
    },
    log: {
      ...silentLog,
      warn: (fields, text) => void warned.push(`${text} ${JSON.stringify(fields)}`),
      error: (fields, text) => void warned.push(`${text} ${JSON.stringify(fields)}`),
    },
    clock,
  });
  // What a test leaves open would wait for ever.
  t.after(async () => {
    for (let one = open[0]; one !== undefined; one = open[0]) await one.answer();
  });
  return {
    clock,
    kept,
    open,
    looks,
    announced,
    postponed,
    audit,
    warned,
    state,
    released,
    observed,
    figures,
    living,
    poster,
    idsOf: () => open.map(({ ids }) => ids),
    /** The payment with what the tables say of it now. */
    again: (id: string): UnfinishedPayment => {
      const one = kept.get(id);
      assert(one);
      return { ...one.row, claimed_by: one.claimed_by };
    },
    /** Posts, and keeps the result for the test to look at. */
    post: (one: UnfinishedPayment, isRepeat = false): { result?: Tried } => {
      const { claimed_by, ...row } = one;
      const id = row.platform_payment_id;
      kept.set(id, { cancel: null, ...kept.get(id), row: kept.get(id)?.row ?? row, claimed_by });
      const tried: { result?: Tried } = {};
      void poster.post(one, isRepeat).then((result) => (tried.result = result));
      return tried;
    },
    /** Lets the deadlines within `ms` pass. */
    timers: async (ms: number): Promise<void> => {
      t.mock.timers.tick(ms);
      await settle();
    },
    cancel: (id: string, by = ME) => {
      const one = kept.get(id);
      assert(one);
      const claimed = { outcome: 'claimed', by, payment: one.row } as const;
      return poster.cancelClaimed(claimed, 'ann', 'asked');
    },
  };
}

/** The call that is open, or the one of several. */
function only<T>(open: readonly T[], at = 0): T {
  const one = open[at];
  assert(one, 'no call is open');
  return one;
}

const DONE = { result: 'done' } as const;
const BUSY = { result: 'busy' } as const;

test('each payment has a call of its own, eight at a time, unless the biller says otherwise [ST2 KT2]', async (t) => {
  const { post, open, poster, observed, clock, figures, announced } = rig(t);
  await clock.advance(10_000);
  const all = Array.from({ length: 9 }, (_, index) => post(payment(`p${index}`)));
  assert.equal(poster.isCalling(), false);
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => ids),
    ['p0', 'p1', 'p2', 'p3', 'p4', 'p5', 'p6', 'p7'],
  );
  assert.equal(poster.isCalling(), true);
  assert.deepEqual([figures.get('calls_open')?.(), figures.get('calls_late')?.()], [8, 0]);
  // Asked again meanwhile, it is not called for again.
  const same = post(payment('p0', ME));
  await settle();
  assert.deepEqual([same.result, open.length], [BUSY, 8]);
  await clock.advance(1_500);
  await only(open).answer();
  assert.deepEqual([all[0]?.result, only(open, 7).ids], [DONE, 'p8']);
  assert.deepEqual(observed, ['post 1.5 s']);
  for (let left = 8; left > 0; left -= 1) await only(open).answer();
  assert.deepEqual(
    all.map(({ result }) => result),
    all.map(() => DONE),
  );
  assert.equal(announced.length, 9);
  assert.equal(poster.isCalling(), false);
  const twice = [post(payment('twice')), post(payment('twice'))];
  await settle();
  assert.deepEqual([open.length, twice[1]?.result], [1, BUSY]);
});

test('the outcome of a call ends its payment, or leaves it until the time that it names [ST2 ST3 ST4 PF5 PF8]', async (t) => {
  const { post, open, kept, announced, postponed, state } = rig(t, { calls: { batch: 5 } });
  const until = '2026-01-02T00:00:00.000Z';
  const all = ['ok', 'no', 'off', 'later', 'dated'].map((id) => post(payment(id)));
  await settle();
  await only(open).answer({
    no: { outcome: 'failed', reason: 'Closed.' },
    off: { outcome: 'canceled' },
    later: { outcome: 'later' },
    dated: { outcome: 'later', until },
  });
  assert.deepEqual(
    all.map(({ result }) => result),
    [DONE, DONE, DONE, { result: 'later', until: null }, { result: 'later', until }],
  );
  assert.deepEqual(announced, ['ok succeeded', 'no failed', 'off canceled']);
  assert.equal(kept.get('no')?.row.failure_reason, 'Closed.');
  assert.deepEqual(postponed, [['dated'], [until]]);
  assert.equal(state.finds, 0, 'what was ended here is not read again');
});

test('without a look-up a payment whose call failed is posted again [PF2]', async (t) => {
  const { post, open, again, observed, figures } = rig(t);
  post(payment('p'));
  await settle();
  await only(open).fail(new Error('lost'));
  assert.equal(figures.get('calls_late')?.(), 0);
  const repeat = post(again('p'), true);
  await settle();
  await only(open).answer();
  assert.deepEqual(repeat.result, DONE);
  assert.deepEqual(observed, ['post 0 s', 'post 0 s']);
});

test('a payment whose call failed is looked up before it is posted again [PF2 KT2]', async (t) => {
  const { post, open, looks, again, state, announced, observed, clock } = rig(t, { looks: true });
  const lost = new Error('the connection was lost');
  await clock.advance(10_000);
  const first = post(payment('known'));
  const second = post(payment('unheard'));
  await settle();
  assert.equal(looks.length, 0, 'a first call needs no look-up');
  for (let count = 0; count < 2; count += 1) await only(open).fail(lost);
  assert.deepEqual(
    [first.result, second.result],
    [
      { result: 'failed', error: lost },
      { result: 'failed', error: lost },
    ],
  );
  assert.deepEqual([state.errors, state.claims], [2, 2]);
  const known = post(again('known'), true);
  await settle();
  await clock.advance(250);
  await only(looks).answer({ outcome: 'posted' });
  assert.deepEqual([known.result, open.length], [DONE, 0]);
  assert.deepEqual(announced, ['known succeeded']);
  assert.deepEqual(observed.slice(2), ['lookup 0.25 s']);
  // A look-up that fails tells nothing: the payment waits.
  const failed = post(again('unheard'), true);
  await settle();
  await only(looks).fail(lost);
  assert.deepEqual([failed.result, open.length], [{ result: 'failed', error: lost }, 0]);
  const posted = post(again('unheard'), true);
  await settle();
  await only(looks).answer();
  await only(open).answer({ unheard: { outcome: 'later' } });
  assert.deepEqual(posted.result, { result: 'later', until: null });
  assert.equal(state.claims, 2, 'what is claimed is not claimed again');
  // It has answered since, so nothing is unknown.
  post(again('unheard'));
  await settle();
  assert.deepEqual([looks.length, open.length], [0, 1]);
});

test('a look-up that hangs holds its payment for five seconds [LV3]', async (t) => {
  const { post, looks, open, timers } = rig(t, { looks: true });
  const one = post(payment('p', 'replica-dead'));
  await settle();
  assert.equal(looks.length, 1, 'a replica that died may have posted it');
  await timers(4_999);
  assert.deepEqual(one, {});
  await timers(1);
  assert.equal(one.result?.result, 'failed');
  assert.equal(open.length, 0);
});

test('a payment is claimed before its call: not another’s, not one that ended, not one that a rule refuses [FR1 KT2 KT6]', async (t) => {
  const { post, kept, idsOf, open, announced, living } = rig(t, {
    billers: [{ biller_id: 'acme', max_amount_in_cents: 100 }],
  });
  living.add('replica-busy');
  const busy = post(payment('busy', 'replica-busy'));
  const gone = post(payment('gone'));
  const stored = kept.get('gone');
  assert(stored);
  stored.row = { ...stored.row, status: 'canceled' };
  const dear = post({ ...payment('dear'), amount_in_cents: 101 });
  // Handed over before the rule: it may be posted there already.
  const taken = post({ ...payment('taken', 'replica-dead'), amount_in_cents: 101 });
  const fresh = post(payment('fresh'));
  await settle();
  assert.deepEqual([busy.result, gone.result, dear.result], [BUSY, DONE, DONE]);
  assert.deepEqual(announced, ['dear failed']);
  assert.deepEqual(idsOf().toSorted(), ['fresh', 'taken']);
  for (let count = 0; count < 2; count += 1) await only(open).answer();
  assert.deepEqual([taken.result, fresh.result], [DONE, DONE]);
  assert.equal(kept.get('fresh')?.claimed_by, ME);
});

test('without a lease no call starts [KT13 LV1]', async (t) => {
  const { post, open, state } = rig(t);
  state.lives = false;
  const expired = post(payment('a'));
  await settle();
  assert.deepEqual([expired.result, open.length], [BUSY, 0]);
  state.lives = true;
  state.isHeld = false;
  const away = post(payment('b'));
  await settle();
  assert.deepEqual([away.result?.result, open.length], ['outage', 0]);
  state.isHeld = true;
  const works = post(payment('c'));
  await settle();
  await only(open).answer();
  assert.deepEqual(works.result, DONE, 'its place was given back');
});

test('payments that failed together are tried alone, in half of the places, and groups grow again [LV3 ST2]', async (t) => {
  const { post, open, idsOf, looks, state } = rig(t, {
    calls: { batch: 4, concurrency: 2 },
    looks: true,
  });
  const group = ['a', 'b', 'c', 'd'].map((id) => post(payment(id)));
  await settle();
  assert.deepEqual(idsOf(), ['a b c d']);
  await only(open).fail(new Error('a bad record'));
  assert.deepEqual(
    group.map(({ result }) => result),
    [undefined, undefined, undefined, undefined],
  );
  // One of the two places is left to first tries, in groups of two.
  const next = ['e', 'f', 'g', 'h', 'i', 'j', 'k', 'l'].map((id) => post(payment(id)));
  await settle();
  assert.deepEqual([looks.map(({ ids }) => ids), idsOf()], [['a'], ['e f']]);
  await only(looks).answer();
  assert.deepEqual(idsOf(), ['e f', 'a']);
  const bug = new Error('a bad record');
  await only(open, 1).fail(bug);
  assert.deepEqual(group[0]?.result, { result: 'failed', error: bug });
  assert.deepEqual(
    looks.map(({ ids }) => ids),
    ['b'],
  );
  // Full and answered: twice as many.
  await only(open).answer();
  assert.deepEqual(idsOf(), ['g h i j']);
  await only(open).answer();
  assert.deepEqual(idsOf(), ['k l']);
  await only(open).answer();
  for (let count = 0; count < 3; count += 1) await only(looks).answer({ outcome: 'posted' });
  assert.deepEqual(
    [...group.slice(1), ...next].map(({ result }) => result),
    Array.from({ length: 11 }, () => DONE),
  );
  assert.equal(state.errors, 2);
  const repeat = post(payment('m'), true);
  const other = post(payment('n'), true);
  await settle();
  assert.deepEqual(idsOf(), ['m'], 'one that failed before is tried beside no other of its kind');
  await only(open).answer();
  await only(open).answer();
  assert.deepEqual([repeat.result, other.result], [DONE, DONE]);
  // A group of three goes down to one, and one stays one.
  const three = ['o', 'p', 'q'].map((id) => post(payment(id)));
  await settle();
  await only(open).fail(bug);
  for (let count = 0; count < 3; count += 1) await only(looks).answer({ outcome: 'posted' });
  assert.ok(three.every(({ result }) => result?.result === 'done'));
  for (const id of ['r', 's']) post(payment(id));
  await settle();
  assert.deepEqual(idsOf(), ['r', 's']);
});

test('a group grows only when a full one was answered, and two that failed together are tried alone [LV3]', async (t) => {
  const { post, open, idsOf, looks, again } = rig(t, {
    calls: { batch: 9, concurrency: 1 },
    looks: true,
  });
  const sizes = async (count: number): Promise<number[]> => {
    const all = Array.from({ length: count }, (_, index) => post(payment(`${count}-${index}`)));
    const found: number[] = [];
    await settle();
    while (open.length > 0) {
      found.push(only(open).ids.split(' ').length);
      await only(open).answer();
    }
    assert.ok(all.every(({ result }) => result?.result === 'done'));
    return found;
  };
  // Both were asked for before, and would rest.
  const pair = ['a', 'b'];
  for (const id of pair) post(payment(id));
  await settle();
  await only(open).answer({ a: { outcome: 'later' }, b: { outcome: 'later' } });
  const tried = pair.map((id) => post(again(id)));
  await settle();
  assert.deepEqual(idsOf(), ['a b']);
  await only(open).fail(new Error('a bad record'));
  assert.deepEqual(tried, [{}, {}]);
  for (const id of pair) {
    assert.deepEqual(
      looks.map(({ ids }) => ids),
      [id],
      'its outcome is unknown',
    );
    await only(looks).answer({ outcome: 'posted' });
  }
  assert.deepEqual(
    tried.map(({ result }) => result),
    [DONE, DONE],
  );
  // One by one now; one that is full doubles, and the last of these is not full.
  assert.deepEqual(await sizes(8), [1, 2, 4, 1]);
  assert.deepEqual(await sizes(20), [8, 9, 3]);
});

test('payments that failed before take half of the places and no more [LV3]', async (t) => {
  const { post, open, idsOf } = rig(t, { calls: { concurrency: 4 } });
  for (const id of ['a', 'b', 'c']) post(payment(id), true);
  for (const id of ['x', 'y', 'z']) post(payment(id));
  await settle();
  assert.deepEqual(idsOf().toSorted(), ['a', 'b', 'x', 'y']);
  await only(open).answer();
  assert.deepEqual(idsOf().at(-1), 'c');
});

test('a call beyond its deadline gives its place to others, and its answer counts when it comes [LV3 KT6]', async (t) => {
  const { post, open, idsOf, timers, figures, announced, state, again, poster } = rig(t, {
    calls: { concurrency: 1, deadlineMs: 1_000, giveUpMs: 3_000 },
  });
  const slow = post(payment('slow'));
  const next = post(payment('next'));
  await settle();
  await timers(999);
  assert.deepEqual([slow.result, idsOf()], [undefined, ['slow']]);
  await timers(1);
  assert.deepEqual([slow.result, idsOf()], [BUSY, ['slow', 'next']]);
  assert.deepEqual([figures.get('calls_open')?.(), figures.get('calls_late')?.()], [2, 1]);
  assert.equal(state.errors, 1);
  const same = post(again('slow'));
  await settle();
  assert.deepEqual(same.result, BUSY, 'the call still holds it');
  await only(open, 1).answer();
  assert.deepEqual(next.result, DONE);
  assert.equal(poster.isCalling(), true);
  const { signal } = only(open);
  await only(open).answer();
  assert.deepEqual(announced, ['next succeeded', 'slow succeeded']);
  assert.deepEqual([figures.get('calls_late')?.(), poster.isCalling()], [0, false]);
  await timers(60_000);
  assert.equal(signal.aborted, false, 'what has answered is not given up');
});

test('a call that answers at its very deadline is not counted as hanging, and its payment is looked up [KT6]', async (t) => {
  const { post, open, timers, figures, again, looks } = rig(t, { looks: true });
  const slow = post(payment('slow'));
  await settle();
  await timers(9_999);
  assert.deepEqual(slow, {});
  const answered = only(open).answer();
  await timers(1);
  await answered;
  assert.equal(figures.get('calls_late')?.(), 0);
  assert.deepEqual(slow.result, BUSY);
  post(again('slow'));
  await settle();
  assert.deepEqual(
    looks.map(({ ids }) => ids),
    ['slow'],
  );
});

test('a call that is given up is told so, and what it throws then leaves its payment unknown [KT2]', async (t) => {
  const { post, open, timers, warned, looks, again, figures } = rig(t, {
    calls: { deadlineMs: 1_000 },
    looks: true,
  });
  const slow = post(payment('slow'));
  await settle();
  await timers(5_999);
  assert.equal(only(open).signal.aborted, false);
  await timers(1);
  assert.equal(only(open).signal.aborted, true, 'six deadlines, unless the biller says otherwise');
  assert.deepEqual(slow.result, BUSY);
  await only(open).fail(new TypeError('Ada Lovelace has moved'));
  assert.equal(figures.get('calls_late')?.(), 0);
  const [line = ''] = warned;
  assert.match(line, /^a late call failed \{"payments":1,"error":"TypeError/);
  assert.doesNotMatch(line, /Lovelace/);
  post(again('slow'));
  await settle();
  assert.deepEqual(
    looks.map(({ ids }) => ids),
    ['slow'],
    'nobody knows what became of it',
  );
});

test('a late answer that cannot be stored is asked for again, not posted again [KT2 KT6]', async (t) => {
  const { post, open, timers, looks, again, state } = rig(t, { looks: true });
  post(payment('slow'));
  await settle();
  await timers(10_000);
  const away = Promise.reject(new Error('the database is away'));
  away.catch(() => undefined);
  state.slow = { name: 'kit_end_payments', until: away };
  await only(open).answer();
  state.slow = undefined;
  post(again('slow'));
  await settle();
  assert.deepEqual(
    looks.map(({ ids }) => ids),
    ['slow'],
  );
});

test('a system that hangs gets eight times its places, and no call more [LV3]', async (t) => {
  const { post, open, timers, figures } = rig(t, { calls: { concurrency: 2, deadlineMs: 100 } });
  for (let index = 0; index < 40; index += 1) post(payment(`p${index}`));
  await settle();
  for (let round = 0; round < 12; round += 1) await timers(100);
  assert.deepEqual([open.length, figures.get('calls_late')?.()], [16, 16]);
  await only(open).answer();
  assert.equal(open.length, 17, 'as one returns, its place is free again');
});

test('a cancel is told to the account system’s last word: never during a call, nor while the outcome is unknown [ST4 KT5]', async (t) => {
  const { post, open, cancel, again, kept, audit, poster } = rig(t);
  for (const id of ['p', 'fixed', 'lost']) post(payment(id));
  await settle();
  const during = await cancel('p');
  assert.deepEqual([during.outcome, kept.get('p')?.row.status], ['too_late', 'processing']);
  await only(open).answer({ p: { outcome: 'later' } });
  await only(open).answer({ fixed: { outcome: 'later', cancelable: false } });
  await only(open).fail(new Error('lost'));
  assert.equal((await cancel('fixed')).outcome, 'too_late');
  assert.equal((await cancel('lost')).outcome, 'too_late');
  // Called for again, it may be posted at this moment.
  post(again('p'));
  await settle();
  assert.equal((await cancel('p')).outcome, 'too_late');
  await only(open).answer({ p: { outcome: 'later' } });
  const both = await Promise.all([cancel('p'), cancel('p')]);
  assert.deepEqual(
    both.map(({ outcome }) => outcome).toSorted(),
    ['canceled', 'too_late'],
    'one of two cancels at once',
  );
  assert.equal(kept.get('p')?.row.status, 'canceled');
  assert.deepEqual(audit, ['p ann canceled {"reason":"asked"}']);
  assert.equal(poster.isCalling(), false);
});

test('a payment canceled while it waits for a place is never called for [ST4 KT5]', async (t) => {
  const { post, open, cancel, again, kept, idsOf } = rig(t, { calls: { concurrency: 1 } });
  for (const id of ['p', 'settled', 'taken']) {
    post(payment(id));
    await settle();
    await only(open).answer({ [id]: { outcome: 'later' } });
  }
  // The sweep has found all of them, and the system takes its time over another.
  const slow = post(payment('slow'));
  await settle();
  const waiting = ['p', 'settled', 'taken'].map((id) => post(again(id)));
  await settle();
  assert.equal((await cancel('p')).outcome, 'canceled');
  const [settled, taken] = [kept.get('settled'), kept.get('taken')];
  assert(settled && taken);
  settled.row = { ...settled.row, status: 'succeeded' };
  // By another replica, while this one stood still for longer than its lease.
  taken.claimed_by = OTHER;
  await only(open).answer();
  assert.deepEqual(
    [slow, ...waiting].map(({ result }) => result),
    [DONE, DONE, DONE, DONE],
  );
  assert.deepEqual(idsOf(), []);
  assert.equal(kept.get('p')?.row.status, 'canceled');
});

test('a cancel and a call that begin in one moment do not both succeed [ST4 KT5]', async (t) => {
  const { post, open, cancel, again, kept, state } = rig(t);
  const later = async (id: string): Promise<void> => {
    post(payment(id));
    await settle();
    await only(open).answer({ [id]: { outcome: 'later' } });
  };
  const slowly = (name: string): (() => Promise<void>) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    state.slow = { name, until: promise };
    return async () => {
      resolve();
      await settle();
    };
  };
  // The cancel is first, and takes its time: the payment is left alone.
  await later('p');
  const goOn = slowly('kit_lock_payment');
  const canceled = cancel('p');
  const beside = post(again('p'));
  await settle();
  assert.deepEqual([beside.result, open.length], [BUSY, 0]);
  await goOn();
  assert.equal((await canceled).outcome, 'canceled');
  assert.equal(kept.get('p')?.row.status, 'canceled');
  // The call is first, and its payment is still being checked.
  await later('q');
  const check = slowly('kit_find_held');
  post(again('q'));
  await settle();
  assert.equal((await cancel('q')).outcome, 'too_late');
  await check();
  assert.equal(only(open).ids, 'q');
});

test('a payment whose check fails before its call can still be canceled, if it could before [ST4 KT5]', async (t) => {
  const { post, open, cancel, again, kept, state, figures } = rig(t);
  for (const [id, cancelable] of [
    ['p', true],
    ['fixed', false],
  ] as const) {
    post(payment(id));
    await settle();
    await only(open).answer({ [id]: { outcome: 'later', cancelable } });
  }
  state.away = 'kit_find_held';
  // Of the last the account system has said nothing yet.
  const unheard = { ...payment('unheard'), claimed_by: ME };
  const tried = [again('p'), again('fixed'), unheard].map((one) => post(one));
  await settle();
  assert.deepEqual(
    tried.map(({ result }) => result?.result),
    ['failed', 'failed', 'failed'],
  );
  assert.equal(figures.get('calls_undecided')?.(), 2);
  state.away = undefined;
  assert.equal((await cancel('fixed')).outcome, 'too_late');
  assert.equal((await cancel('p')).outcome, 'canceled');
  assert.equal(kept.get('p')?.row.status, 'canceled');
});

test('a payment claimed before this replica lost its lease is not called for after it [KT2 LV1]', async (t) => {
  const { post, open, looks, clock, state } = rig(t, { looks: true });
  const stale = post(payment('p', 'replica-dead'));
  await settle();
  // It stood still while it looked the payment up: another replica may have taken it over.
  await clock.advance(40_000);
  state.unbrokenSince = clock.monotonic();
  await only(looks).answer();
  assert.deepEqual([stale.result, open.length], [BUSY, 0]);
});

test('the replica that has a payment answers the cancel that another asks for [ST4]', async (t) => {
  const { post, open, kept, poster, audit, clock, cancel } = rig(t);
  for (const id of ['free', 'fixed', 'theirs', 'silent']) post(payment(id));
  await settle();
  await only(open).answer({ free: { outcome: 'later' } });
  await only(open).answer({ fixed: { outcome: 'later', cancelable: false } });
  await only(open).answer({ theirs: { outcome: 'later' } });
  await only(open).answer({ silent: { outcome: 'later' } });
  for (const id of ['free', 'fixed']) {
    const one = kept.get(id);
    if (one) one.cancel = { actor: 'bob', reason: 'by mail' };
  }
  const canceled = await poster.answerCancels();
  assert.deepEqual(canceled, [kept.get('free')?.row]);
  assert.deepEqual(kept.get('fixed')?.cancel, null, 'the answer is no');
  assert.deepEqual(audit, ['free bob canceled {"reason":"by mail"}']);

  // Asked of another replica: this one waits until that one has answered.
  const asked = async (id: string): Promise<() => string | undefined> => {
    const one = kept.get(id);
    assert(one);
    one.claimed_by = OTHER;
    let outcome: string | undefined;
    void cancel(id, OTHER).then((answer) => (outcome = answer.outcome));
    await clock.advance(4_900);
    assert.deepEqual([outcome, one.cancel], [undefined, { actor: 'ann', reason: 'asked' }]);
    return () => outcome;
  };
  const theirs = await asked('theirs');
  const one = kept.get('theirs');
  if (one) one.row = { ...one.row, status: 'canceled' };
  await clock.advance(99);
  assert.equal(theirs(), undefined, 'ten looks a second');
  await clock.advance(1);
  await settle();
  assert.equal(theirs(), 'canceled');
  // Nobody answers: after five seconds nobody waits, and nobody may cancel it any more.
  const silent = await asked('silent');
  await clock.advance(200);
  await settle();
  assert.equal(silent(), 'too_late');
  assert.equal(kept.get('silent')?.cancel, null);
});

test('an answer that contradicts what settle recorded changes nothing and is written down [RU2]', async (t) => {
  const { post, open, kept, warned, audit, state, announced } = rig(t);
  for (const id of ['other', 'same']) {
    post(payment(id));
    const one = kept.get(id);
    assert(one);
    await settle();
    one.row = { ...one.row, status: 'succeeded' };
  }
  await only(open).answer({ other: { outcome: 'failed', reason: 'Closed.' } });
  await only(open).answer();
  assert.equal(kept.get('other')?.row.status, 'succeeded');
  assert.deepEqual([state.contradicted, announced], [1, []]);
  assert.deepEqual(audit, ['other account system contradicted {"status":"failed"}']);
  assert.deepEqual(warned, [
    'the account system reports a different result than the one recorded {"platform_payment_id":"other","here":"succeeded","there":"failed"}',
  ]);
});

test('a stop waits for open calls, then tells them, and frees their payments only when all are known [KT13]', async (t) => {
  const { post, open, poster, timers, released } = rig(t);
  const one = post(payment('p'));
  await settle();
  let isOver = false;
  void poster.stop().then(() => (isOver = true));
  await timers(3_999);
  assert.equal(only(open).signal.aborted, false);
  await timers(1);
  assert.equal(only(open).signal.aborted, true);
  const late = post(payment('late'));
  await settle();
  assert.deepEqual([late.result, open.length], [BUSY, 1]);
  await timers(999);
  assert.deepEqual([isOver, released], [false, []]);
  await timers(1);
  assert.equal(isOver, true);
  assert.deepEqual(released, [false], 'other replicas wait for the lease');
  assert.equal(one.result, undefined);
});

test('a stop gives back what waits, and waits for what is being looked up [KT13 LV5]', async (t) => {
  const { post, open, looks, poster, timers, released } = rig(t, {
    calls: { concurrency: 1 },
    looks: true,
  });
  const asked = post(payment('asked', 'replica-dead'));
  await settle();
  let isOver = false;
  void poster.stop().then(() => (isOver = true));
  await settle();
  assert.deepEqual([isOver, released], [false, []]);
  const waiting = [post(payment('first')), post(payment('repeat'), true)];
  await settle();
  assert.deepEqual(waiting, [{}, {}]);
  await timers(4_000);
  assert.deepEqual(
    waiting.map(({ result }) => result),
    [BUSY, BUSY],
  );
  await only(looks).answer();
  assert.deepEqual([asked.result, open.length], [BUSY, 0], 'no call begins in a stop');
  assert.deepEqual([isOver, released], [true, [true]]);
});

test('a stop with nothing open frees the lease at once; one with an unknown outcome does not [KT13]', async (t) => {
  const quiet = rig(t);
  const done = quiet.post(payment('p'));
  await settle();
  const stopped = quiet.poster.stop();
  await settle();
  assert.deepEqual(quiet.released, []);
  await only(quiet.open).answer();
  await stopped;
  assert.deepEqual([done.result, quiet.released], [DONE, [true]]);
  t.mock.timers.reset();
  const unknown = rig(t);
  unknown.post(payment('p'));
  await settle();
  await only(unknown.open).fail(new Error('lost'));
  await unknown.poster.stop();
  assert.deepEqual(unknown.released, [false]);
});

test('what settle ended is forgotten: it takes no memory, and a stop frees the lease [KT13]', async (t) => {
  const { post, open, kept, poster, figures, cancel, released } = rig(t);
  const ids = Array.from({ length: 3 }, (_, index) => `p${index}`);
  for (const id of [...ids, 'rests', 'lost']) post(payment(id));
  await settle();
  for (const id of ids) await only(open).answer({ [id]: { outcome: 'later' } });
  await only(open).answer({ rests: { outcome: 'later', cancelable: false } });
  await only(open).fail(new Error('lost'));
  const undecided = figures.get('calls_undecided');
  assert(undecided);
  assert.equal(undecided(), 5);
  await poster.forgetEnded();
  assert.equal(undecided(), 5, 'none has ended');
  const end = (id: string): void => {
    const one = kept.get(id);
    assert(one);
    one.row = { ...one.row, status: 'succeeded' };
  };
  end('p0');
  // Claimed by another replica since.
  const moved = kept.get('p1');
  assert(moved);
  moved.claimed_by = OTHER;
  await poster.forgetEnded();
  assert.equal(undecided(), 3);
  // What the rest may do has not changed.
  assert.equal((await cancel('p2')).outcome, 'canceled');
  assert.equal(undecided(), 2);
  assert.equal((await cancel('rests')).outcome, 'too_late');
  assert.equal((await cancel('lost')).outcome, 'too_late');
  end('lost');
  await poster.stop();
  assert.deepEqual([undecided(), released], [1, [true]]);
  end('rests');
  await poster.forgetEnded();
  assert.equal(undecided(), 0);
});

test('a stop waits a second at most to learn what has ended, and keeps the lease when it does not [KT13 LV5]', async (t) => {
  const { post, open, poster, state, timers, released } = rig(t);
  post(payment('lost'));
  await settle();
  await only(open).fail(new Error('lost'));
  state.slow = { name: 'kit_find_held', until: new Promise(() => undefined) };
  void poster.stop();
  await settle();
  await timers(999);
  assert.deepEqual(released, []);
  await timers(1);
  assert.deepEqual(released, [false]);
});

test('thousands of payments that rest are looked at in turn [LV3]', async (t) => {
  const { post, open, kept, poster, figures } = rig(t, { calls: { batch: 1_500, concurrency: 1 } });
  const ids = Array.from({ length: 1_500 }, (_, index) => `p${index}`);
  const later = Object.fromEntries(ids.map((id) => [id, { outcome: 'later' } as const]));
  for (const id of ids) post(payment(id));
  await settle();
  await only(open).answer(later);
  const last = kept.get('p1499');
  assert(last);
  last.row = { ...last.row, status: 'succeeded' };
  await poster.forgetEnded();
  assert.equal(figures.get('calls_undecided')?.(), 1_500);
  await poster.forgetEnded();
  assert.equal(figures.get('calls_undecided')?.(), 1_499);
});

test('once a second account is known, one has half of the places [LV3]', async (t) => {
  const { post, idsOf } = rig(t, { calls: { concurrency: 4 } });
  for (const id of ['a1', 'a2', 'a3']) post(payment(id));
  post({ ...payment('b'), account_id: 'another' });
  await settle();
  assert.deepEqual(idsOf(), ['a1', 'b', 'a2']);
});

test('settings of no place, no payment or no time are refused at the start', (t) => {
  for (const calls of [{ batch: 0 }, { concurrency: 0 }, { deadlineMs: 0 }]) {
    assert.throws(() => rig(t, { calls }), /at least one/);
    t.mock.timers.reset();
  }
  rig(t, { calls: { batch: 1, concurrency: 1, deadlineMs: 1 } });
});

test('our own errors reach the log in full, those of an account system without their text [PL15]', () => {
  for (const error of [
    new WrongAnswer('an outcome must be posted, failed, canceled or later'),
    new TooLate('posting took longer than 1500 ms'),
    new DatabaseUnavailable('cut off', 'unknown'),
  ]) {
    assert.equal(describeAccountSystemError(error), error.message);
  }
  const theirs = describeAccountSystemError(new TypeError('Ada Lovelace has moved'));
  assert.match(theirs, /^TypeError/);
  assert.doesNotMatch(theirs, /Lovelace/);
});
