/**
 * Acts on several payments, one after the other, driven by the platform (decision 200): what was planned, how far it is, and what
 * became of each payment stay readable, and closing a tab or a terminal stops nothing.
 *
 * enters: a plan over ids or a filter, and its operator's reason.  leaves: one act for each payment, and its result in its row.
 * holds:  every act is the single one, in the name of its operator, with its own guard and audit line. A payment is marked before it is
 *         acted on; a process that finds such a mark after a crash first looks into the payment's audit, so that nothing is done twice.
 *         One process drives a run, by a lease; each of its writes requires that the lease is still its own.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import {
  MAX_BULK,
  MAX_RUN,
  Refusal,
  type BulkAct,
  type BulkItem,
  type BulkPreview,
  type BulkRun,
  type BulkRunDetail,
} from '@duebridge/contract';
import { messageOf, sql, type Clock, type Database, type Log } from '@duebridge/runtime';
import { note as noteInAudit } from '../store/audit.ts';
import { listPayments, type PaymentFilter } from '../store/payment-search.ts';

/** What a run does; given by the admin API, so that a run does what a single call does. */
export interface BulkActs {
  /** What the act would do to each payment, at most MAX_BULK of them. */
  preview(act: BulkAct, ids: readonly string[], actor: string): Promise<BulkPreview['payments']>;
  /** Acts on one payment; returns what came of it, in a sentence. Throws Refusal. */
  act(act: BulkAct, platform_payment_id: string, reason: string, actor: string): Promise<string>;
  /** Whether this operator may act now. */
  mayAct(actor: string): Promise<boolean>;
}

/** The runs of a deployment. */
export interface BulkRuns {
  /** Throws Refusal INVALID_REQUEST when nothing, or too much, is chosen. */
  plan(
    act: BulkAct,
    chosen: readonly string[] | Omit<PaymentFilter, 'limit' | 'cursor'>,
    actor: string,
  ): Promise<BulkRunDetail>;
  list(): Promise<BulkRun[]>;
  /** Throws Refusal NOT_FOUND. `from`: the place of the first item. */
  get(run_id: string, from: number, limit: number): Promise<BulkRunDetail>;
  /** Throws Refusal NOT_FOUND, or CONFLICT when it was started already, or planned by another operator. */
  start(run_id: string, reason: string, actor: string): Promise<BulkRun>;
  /** Throws Refusal NOT_FOUND, or CONFLICT when it does not run. */
  stop(run_id: string, actor: string): Promise<BulkRun>;
  /** Throws Refusal NOT_FOUND, or CONFLICT when it was not stopped, or planned by another operator. */
  continue(run_id: string, actor: string): Promise<BulkRun>;
  /** Drives runs until `signal` aborts, and then a few seconds for the payments under way. Never rejects. */
  drive(signal: AbortSignal): Promise<void>;
}

/** How long a run waits for a process that no longer writes: longer than any act, which waits for a partner for 15 seconds. */
const LEASE_SECONDS = 60;
/** How often a process looks for runs that nobody drives; one that was started here begins at once. */
const LOOK_EVERY_MS = 2_000;
/** Runs that one process drives side by side: a slow partner's run holds up no other. */
const MAX_DRIVEN = 8;
/** How often, and in what distance, an act is tried whose partner or database does not answer. */
const MAX_TRIES = 3;
const AGAIN_MS = 2_000;
/** How long a stopping process waits for an act; another process looks it up in the audit. */
const STOP_MS = 5_000;
/** Runs that are listed, and how long they are kept; the audit keeps every act. */
const MAX_LISTED = 100;
const KEPT_DAYS = 180;

const RUN_COLUMNS = `run_id, act, actor, reason, state, note, planned_at, started_at, ended_at, payments, amount_in_cents, done, refused`;

const removeStatement = sql(
  'bulk_remove',
  `DELETE FROM duebridge_platform.bulk_runs WHERE planned_at < now() - interval '${KEPT_DAYS} days' AND state <> 'running'`,
);
const planStatement = sql(
  'bulk_plan',
  `INSERT INTO duebridge_platform.bulk_runs (run_id, act, actor, state, planned_at, payments, amount_in_cents, refused)
   VALUES ($1, $2, $3, 'planned', now(), $4, $5, $6)`,
);
const planItemsStatement = sql(
  'bulk_plan_items',
  `INSERT INTO duebridge_platform.bulk_items (run_id, place, platform_payment_id, partner_id, amount_in_cents, state, note)
   SELECT $1, u.place, u.id, u.partner_id, u.cents, u.state, u.note
     FROM unnest($2::int[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[]) AS u (place, id, partner_id, cents, state, note)`,
);
const listStatement = sql(
  'bulk_list',
  `SELECT ${RUN_COLUMNS} FROM duebridge_platform.bulk_runs ORDER BY planned_at DESC, run_id LIMIT ${MAX_LISTED}`,
);
const oneStatement = sql(
  'bulk_one',
  `SELECT ${RUN_COLUMNS} FROM duebridge_platform.bulk_runs WHERE run_id = $1`,
);
const itemsStatement = sql(
  'bulk_items',
  `SELECT place, platform_payment_id, partner_id, amount_in_cents, state, note FROM duebridge_platform.bulk_items
    WHERE run_id = $1 AND place >= $2 ORDER BY place LIMIT $3`,
);
const startStatement = sql(
  'bulk_start',
  `UPDATE duebridge_platform.bulk_runs SET state = 'running', reason = $3, started_at = now()
    WHERE run_id = $1 AND actor = $2 AND state = 'planned' RETURNING ${RUN_COLUMNS}`,
);
const stopStatement = sql(
  'bulk_stop',
  `UPDATE duebridge_platform.bulk_runs SET state = 'stopped', note = $2 WHERE run_id = $1 AND state = 'running' RETURNING ${RUN_COLUMNS}`,
);
const continueStatement = sql(
  'bulk_continue',
  `UPDATE duebridge_platform.bulk_runs SET state = 'running', note = ''
    WHERE run_id = $1 AND actor = $2 AND state = 'stopped' RETURNING ${RUN_COLUMNS}`,
);
const waitingStatement = sql(
  'bulk_waiting',
  `SELECT run_id FROM duebridge_platform.bulk_runs
    WHERE state = 'running' AND (driver IS NULL OR driver = $1 OR driven_until < now()) ORDER BY started_at LIMIT ${MAX_DRIVEN}`,
);
/** Takes the lease, or renews it: whoever gets a row may act on one payment. */
const holdStatement = sql(
  'bulk_hold',
  `UPDATE duebridge_platform.bulk_runs SET driver = $2, driven_until = now() + interval '${LEASE_SECONDS} seconds'
    WHERE run_id = $1 AND state = 'running' AND (driver IS NULL OR driver = $2 OR driven_until < now()) RETURNING ${RUN_COLUMNS}`,
);
const releaseStatement = sql(
  'bulk_release',
  `UPDATE duebridge_platform.bulk_runs SET driver = NULL, driven_until = NULL WHERE run_id = $1 AND driver = $2`,
);
/** A payment that is marked comes last: its process ended, or its act failed, and that must not hold up the others. */
const nextStatement = sql(
  'bulk_next',
  `SELECT place, platform_payment_id, state, marked_at FROM duebridge_platform.bulk_items
    WHERE run_id = $1 AND state IN ('acting', 'waiting') ORDER BY state DESC, place LIMIT 1`,
);
/** Marks a payment before it is acted on. No row: the run was stopped, or another process drives it by now. */
const markStatement = sql(
  'bulk_mark',
  `UPDATE duebridge_platform.bulk_items SET state = 'acting', marked_at = now()
    WHERE run_id = $1 AND place = $2 AND state = 'waiting'
      AND EXISTS (SELECT 1 FROM duebridge_platform.bulk_runs WHERE run_id = $1 AND state = 'running' AND driver = $3)
   RETURNING marked_at`,
);
/** Whether the audit of a payment holds an act of this run since the payment was marked. */
const actedStatement = sql(
  'bulk_acted',
  // The line of a payment that two persons closed names the first as its actor.
  `SELECT 1 FROM duebridge_platform.audit
    WHERE platform_payment_id = $1 AND at >= $2 AND event = ANY ($3) AND detail->>'reason' = $4
      AND $5::text IN (actor, detail->>'approved_by') LIMIT 1`,
);
const countStatement = sql(
  'bulk_count',
  `UPDATE duebridge_platform.bulk_runs SET done = done + $3, refused = refused + $4 WHERE run_id = $1 AND driver = $2 RETURNING 1`,
);
const resultStatement = sql(
  'bulk_result',
  `UPDATE duebridge_platform.bulk_items SET state = $3, note = $4 WHERE run_id = $1 AND place = $2 AND state = 'acting'`,
);
const endStatement = sql(
  'bulk_end',
  `UPDATE duebridge_platform.bulk_runs SET state = 'done', ended_at = now(), driver = NULL, driven_until = NULL
    WHERE run_id = $1 AND driver = $2 AND state = 'running' RETURNING ${RUN_COLUMNS}`,
);

/** The audit's events of each act. */
const EVENTS: Readonly<Record<BulkAct, readonly string[]>> = {
  resume: ['payment_resumed'],
  withdraw: ['payment_ended'],
  poll: ['payment_polled'],
  close: ['payment_ended', 'review_close_requested'],
};

/** What is noted at a payment whose act is found in its audit. */
const DONE_EARLIER = {
  state: 'done',
  note: 'Done earlier in this run; its audit says how',
} as const;

interface NextItem {
  readonly place: number;
  readonly platform_payment_id: string;
  readonly state: 'acting' | 'waiting';
  readonly marked_at: string | null;
}

/** Opens the runs. Call `drive` once. */
export function openBulkRuns(options: {
  readonly database: Database;
  readonly acts: BulkActs;
  readonly clock: Clock;
  readonly log: Log;
}): BulkRuns {
  const { database, acts, clock, log } = options;
  const driver = randomUUID();
  let wake = new AbortController();

  const read = async (run_id: string): Promise<BulkRun> => {
    const [run] = await database.query<BulkRun>(oneStatement, [run_id]);
    if (run === undefined) throw new Refusal('NOT_FOUND');
    return run;
  };

  const get: BulkRuns['get'] = async (run_id, from, limit) => {
    const run = await read(run_id);
    const rows = await database.query<BulkItem>(itemsStatement, [run_id, from, limit + 1]);
    const items = rows.slice(0, limit);
    const next = rows[limit]?.place;
    return { run, items, next_cursor: next === undefined ? null : String(next) };
  };

  /** Changes the state of a run, and says so in the audit. Throws Refusal NOT_FOUND, or CONFLICT with `conflict`. */
  const change = async (
    run_id: string,
    actor: string,
    event: string,
    statement: typeof startStatement,
    values: readonly unknown[],
    conflict: (run: BulkRun) => string,
  ): Promise<BulkRun> => {
    const changed = await database.transaction(async (tx) => {
      const [run] = await tx.query<BulkRun>(statement, [run_id, ...values]);
      if (run === undefined) return undefined;
      const { act, payments, reason, done, refused, note } = run;
      const detail = { run_id, act, payments, done, refused, reason, ...(note && { note }) };
      await noteInAudit(tx, { actor, event, detail });
      return run;
    });
    if (changed === undefined) {
      throw new Refusal('CONFLICT', { message: conflict(await read(run_id)) });
    }
    wake.abort();
    return changed;
  };
  const notYours = (run: BulkRun, actor: string, otherwise: string): string =>
    run.actor === actor ? otherwise : `Only ${run.actor}, who planned it, can continue it`;

  const wasActedOn = async (run: BulkRun, item: NextItem): Promise<boolean> => {
    const { platform_payment_id, marked_at } = item;
    const values = [platform_payment_id, marked_at, EVENTS[run.act], run.reason, run.actor];
    return (await database.query(actedStatement, values)).length > 0;
  };

  /** Acts on one marked payment, and returns what came of it. Throws what is no refusal: the payment stays marked then. */
  const actOn = async (run: BulkRun, item: NextItem): Promise<Pick<BulkItem, 'state' | 'note'>> => {
    const { act, actor } = run;
    const { platform_payment_id: id } = item;
    const reason = run.reason ?? '';
    if (item.state === 'acting' && (await wasActedOn(run, item))) return DONE_EARLIER;
    for (let tries = 1; ; tries += 1) {
      try {
        return { state: 'done', note: await acts.act(act, id, reason, actor) };
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        // A partner that does not answer now may do so in a moment; nothing was changed.
        if (error.code === 'PARTNER_UNREACHABLE' && tries < MAX_TRIES) {
          await clock.sleep(AGAIN_MS);
          continue;
        }
        // Another process may have held the lease and acted meanwhile: then the audit holds the act of this run.
        if (await wasActedOn(run, item)) return DONE_EARLIER;
        return { state: 'refused', note: error.message };
      }
    }
  };

  /** Acts on the next payment of a run. False when this process has no more to do for it. */
  const step = async (run_id: string): Promise<boolean> => {
    const [run] = await database.query<BulkRun>(holdStatement, [run_id, driver]);
    if (run === undefined) return false;
    if (!(await acts.mayAct(run.actor))) {
      const why = `${run.actor} may not act any more`;
      await change(run_id, run.actor, 'bulk_run_stopped', stopStatement, [why], () => why);
      return false;
    }
    let [item] = await database.query<NextItem>(nextStatement, [run_id]);
    if (item === undefined) {
      const gone = (): string => 'it was stopped';
      await change(run_id, run.actor, 'bulk_run_ended', endStatement, [driver], gone);
      return false;
    }
    if (item.state === 'waiting') {
      const values = [run_id, item.place, driver];
      const [mark] = await database.query<Pick<NextItem, 'marked_at'>>(markStatement, values);
      // The next step tells whether the run is still ours.
      if (mark === undefined) return true;
      item = { ...item, ...mark };
    }
    const { state, note } = await actOn(run, item);
    return database.transaction(async (tx) => {
      const counts = state === 'done' ? [1, 0] : [0, 1];
      const held = await tx.query(countStatement, [run_id, driver, ...counts]);
      // Another process has the run now; it finds in the audit what was done here.
      if (held.length === 0) return false;
      await tx.query(resultStatement, [run_id, item.place, state, note]);
      return true;
    });
  };

  const driven = new Map<string, Promise<void>>();
  const driveOne = async (run_id: string, signal: AbortSignal): Promise<void> => {
    try {
      while (!signal.aborted && (await step(run_id))) continue;
      await database.query(releaseStatement, [run_id, driver]);
    } catch (error) {
      // It stays ours, and is looked at again in two seconds.
      if (!(error instanceof Refusal)) {
        log.warn({ error: messageOf(error), run_id }, 'a step of a bulk run failed; retrying');
      }
    }
  };

  return {
    async plan(act, chosen, actor) {
      const ids = isIds(chosen)
        ? [...new Set(chosen)]
        : (await listPayments(database, { ...chosen, limit: MAX_RUN + 1 })).map(
            (row) => row.platform_payment_id,
          );
      if (ids.length === 0) throw choose('finds no payment');
      if (ids.length > MAX_RUN) throw choose(`finds more than ${MAX_RUN} payments: choose fewer`);
      const planned: BulkPreview['payments'] = [];
      for (let from = 0; from < ids.length; from += MAX_BULK) {
        planned.push(...(await acts.preview(act, ids.slice(from, from + MAX_BULK), actor)));
      }
      const run_id = `run_${randomBytes(8).toString('hex')}`;
      const cents = planned.map(({ payment }) => payment?.amount_in_cents ?? null);
      await database.transaction(async (tx) => {
        await tx.query(removeStatement);
        await tx.query(planStatement, [
          run_id,
          act,
          actor,
          planned.length,
          cents.reduce<number>((sum, one) => sum + (one ?? 0), 0),
          planned.filter(({ refused }) => refused).length,
        ]);
        await tx.query(planItemsStatement, [
          run_id,
          planned.map((_, place) => place),
          planned.map((one) => one.platform_payment_id),
          planned.map(({ payment }) => payment?.partner_id ?? null),
          cents,
          planned.map(({ refused }) => (refused ? 'refused' : 'waiting')),
          planned.map(({ would }) => would),
        ]);
      });
      return get(run_id, 0, MAX_BULK);
    },
    list: () => database.query<BulkRun>(listStatement),
    get,
    start: (run_id, reason, actor) =>
      change(run_id, actor, 'bulk_run_started', startStatement, [actor, reason], (run) =>
        notYours(run, actor, 'The run was started already'),
      ),
    stop: (run_id, actor) =>
      change(
        run_id,
        actor,
        'bulk_run_stopped',
        stopStatement,
        [''],
        () => 'The run is not running',
      ),
    continue: (run_id, actor) =>
      change(run_id, actor, 'bulk_run_continued', continueStatement, [actor], (run) =>
        notYours(run, actor, 'The run was not stopped'),
      ),
    async drive(signal) {
      // An outage of the database is told once, not at each look.
      let isAway = false;
      while (!signal.aborted) {
        wake = new AbortController();
        try {
          const found = await database.query<{ run_id: string }>(waitingStatement, [driver]);
          for (const { run_id } of found) {
            if (driven.has(run_id) || driven.size >= MAX_DRIVEN) continue;
            const driving = driveOne(run_id, signal).finally(() => driven.delete(run_id));
            driven.set(run_id, driving);
          }
          isAway = false;
        } catch (error) {
          if (!isAway) {
            log.warn({ error: messageOf(error) }, 'could not look for bulk runs; retrying');
          }
          isAway = true;
        }
        await clock.sleep(LOOK_EVERY_MS, AbortSignal.any([signal, wake.signal]));
      }
      // Ended as soon as the acts have, because a timer that is left would keep the process alive.
      const limit = new AbortController();
      await Promise.race([Promise.all(driven.values()), clock.sleep(STOP_MS, limit.signal)]);
      limit.abort();
    },
  };
}

function isIds(
  chosen: readonly string[] | Omit<PaymentFilter, 'limit' | 'cursor'>,
): chosen is readonly string[] {
  return Array.isArray(chosen);
}

function choose(problem: string): Refusal {
  return new Refusal('INVALID_REQUEST', { details: [{ path: 'body.filter', problem }] });
}
