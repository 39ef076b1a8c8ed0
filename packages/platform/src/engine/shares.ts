/**
 * How the workers share out a partner's budget without a lock between them (decisions 25 and 62).
 *
 * Each worker claims a part in a row of its own, and uses its claim only as far as all claims together stay within the budget. It
 * writes its claim first and then reads the others, so of two workers that claim at once at least one sees the other. A worker that
 * sees the budget exceeded uses that much less than it claimed, and corrects its claim the next time. The workers never exceed the
 * budget, never wait for each other, and a worker that freezes in the middle holds only what it had.
 *
 * A new worker waits until the others have reduced their claims, at most one round. Claims of dead workers are not counted. Each
 * need is rounded up to a power of two, so that a steady load causes no writes.
 */
import { sql } from '@duebridge/runtime';
import type { Queryable } from '../store/payments.ts';

/** What a worker wants of one budget of a partner, and what it still uses. */
export interface Want {
  /** What the partner allows all workers together. */
  readonly cap: number;
  /** What this worker can use now; 0 when it has nothing for this partner. */
  readonly need: number;
  /** What is in use and cannot be given back yet: a share never falls below it. */
  readonly inUse: number;
}

/** Both budgets of a partner: calls at once, and calls per second. */
export interface Demand {
  readonly calls: Want;
  readonly rate: Want;
}

/** What a worker may use of both. */
export interface Share {
  readonly calls: number;
  readonly rate: number;
}

/** What one worker claims of a partner's budget, and what it could use. */
interface Claim {
  readonly calls: number;
  readonly calls_need: number;
  readonly rate: number;
  readonly rate_need: number;
}

interface ClaimRow extends Claim {
  readonly partner_id: string;
  readonly worker_id: string;
}

/** How long the indivisible remainder of a small budget stays with one worker before it moves to the next, in milliseconds. */
const TURN_MS = 5_000;

const readStatement = sql(
  'share_read',
  `SELECT s.partner_id, s.worker_id, s.calls, s.calls_need, s.rate, s.rate_need
     FROM duebridge_platform.shares s, duebridge_platform.workers w
    WHERE s.partner_id = ANY($1) AND s.worker_id <> $2 AND w.worker_id = s.worker_id
      AND w.heartbeat_at > now() - $3 * interval '1 millisecond'
      AND w.heartbeat_at <= now() + $3 * interval '1 millisecond'`,
);

const claimStatement = sql(
  'share_claim',
  `INSERT INTO duebridge_platform.shares (partner_id, worker_id, calls, calls_need, rate, rate_need)
   SELECT u.partner_id, $1, u.calls, u.calls_need, u.rate, u.rate_need
     FROM unnest($2::text[], $3::int[], $4::int[], $5::int[], $6::int[]) AS u (partner_id, calls, calls_need, rate, rate_need)
   ON CONFLICT (partner_id, worker_id)
   DO UPDATE SET calls = excluded.calls, calls_need = excluded.calls_need, rate = excluded.rate, rate_need = excluded.rate_need`,
);

const dropStatement = sql(
  'share_drop',
  `DELETE FROM duebridge_platform.shares WHERE worker_id = $1 AND partner_id = ANY($2)`,
);

const forgetStatement = sql(
  'share_forget',
  `DELETE FROM duebridge_platform.shares s
    WHERE NOT EXISTS (SELECT 1 FROM duebridge_platform.workers w WHERE w.worker_id = s.worker_id)`,
);

/** Removes the claims of workers that are no longer on the list. */
export async function forgetShares(on: Queryable): Promise<void> {
  await on.query(forgetStatement);
}

/** The claims of one worker. One exchange at a time. */
export class Shares {
  readonly #on: Queryable;
  readonly #worker_id: string;
  readonly #leaseMs: number;
  /** What our rows hold, as far as known: none where the last write was not answered. */
  readonly #claimed = new Map<string, Claim | undefined>();

  constructor(on: Queryable, worker_id: string, leaseMs: number) {
    this.#on = on;
    this.#worker_id = worker_id;
    this.#leaseMs = leaseMs;
  }

  /** True when this worker has a claim on this partner's budget, so that it must publish when it gives it up. */
  has(partner_id: string): boolean {
    return this.#claimed.has(partner_id);
  }

  /**
   * Claims what is wanted and gives what may be used, per partner. `restrict` is called before a claim is written: from then on no
   * more may be started than it names, until `exchange` resolves; it gives the calls that are under way. Throws when the database
   * does not answer; what was restricted then stays so. `now` is the wall time in milliseconds.
   */
  async exchange(
    demands: ReadonlyMap<string, Demand>,
    now: number,
    restrict: (partner_id: string, share: Share) => number,
  ): Promise<Map<string, Share>> {
    const before = await this.#read([...demands.keys()]);
    const turn = Math.floor(now / TURN_MS);
    const claims = new Map<string, Claim>();
    const raised: string[] = [];
    for (const [partner_id, demand] of demands) {
      const others = before.get(partner_id) ?? [];
      const calls = shareOf(this.#worker_id, 'calls', demand.calls, others, turn);
      const rate = shareOf(this.#worker_id, 'rate', demand.rate, others, turn);
      // More calls may be in flight now than when the demand was counted.
      const underWay = restrict(partner_id, { calls, rate });
      const claim = {
        calls: Math.max(calls, underWay),
        calls_need: demand.calls.need,
        rate,
        rate_need: demand.rate.need,
      };
      claims.set(partner_id, claim);
      const had = this.#claimed.get(partner_id);
      if (had === undefined || claim.calls > had.calls || claim.rate > had.rate) {
        raised.push(partner_id);
      }
    }
    await this.#write(claims);
    // We see every concurrent claim now, or its worker has seen ours.
    const after = await this.#read(raised);
    const granted = new Map<string, Share>();
    for (const [partner_id, { calls, rate }] of claims) {
      const others = after.get(partner_id) ?? before.get(partner_id) ?? [];
      const demand = demands.get(partner_id);
      if (demand === undefined) continue;
      granted.set(partner_id, {
        calls: Math.max(
          demand.calls.inUse,
          Math.min(calls, demand.calls.cap - sum(others, 'calls')),
        ),
        rate: Math.max(demand.rate.inUse, Math.min(rate, demand.rate.cap - sum(others, 'rate'))),
      });
    }
    return granted;
  }

  async #read(partners: readonly string[]): Promise<Map<string, ClaimRow[]>> {
    const byPartner = new Map<string, ClaimRow[]>();
    if (partners.length === 0) return byPartner;
    const rows = await this.#on.query<ClaimRow>(readStatement, [
      partners,
      this.#worker_id,
      this.#leaseMs,
    ]);
    for (const partner_id of partners) byPartner.set(partner_id, []);
    for (const row of rows) byPartner.get(row.partner_id)?.push(row);
    return byPartner;
  }

  async #write(claims: ReadonlyMap<string, Claim>): Promise<void> {
    const changed: [string, Claim][] = [];
    const gone: string[] = [];
    for (const [partner_id, claim] of claims) {
      const had = this.#claimed.get(partner_id);
      if (
        claim.calls === 0 &&
        claim.calls_need === 0 &&
        claim.rate === 0 &&
        claim.rate_need === 0
      ) {
        if (this.#claimed.has(partner_id)) gone.push(partner_id);
      } else if (had === undefined || KEYS.some((key) => had[key] !== claim[key])) {
        changed.push([partner_id, claim]);
      }
    }
    // Until the answer arrives, the state of these rows is unknown.
    for (const partner_id of gone) this.#claimed.set(partner_id, undefined);
    for (const [partner_id] of changed) this.#claimed.set(partner_id, undefined);
    if (gone.length > 0) {
      await this.#on.query(dropStatement, [this.#worker_id, gone]);
      for (const partner_id of gone) this.#claimed.delete(partner_id);
    }
    if (changed.length === 0) return;
    await this.#on.query(claimStatement, [
      this.#worker_id,
      changed.map(([partner_id]) => partner_id),
      ...KEYS.map((key) => changed.map(([, claim]) => claim[key])),
    ]);
    for (const [partner_id, claim] of changed) this.#claimed.set(partner_id, claim);
  }
}

const KEYS = ['calls', 'calls_need', 'rate', 'rate_need'] as const;

function sum(rows: readonly Claim[], budget: keyof Share): number {
  return rows.reduce((total, row) => total + row[budget], 0);
}

/** This worker's part of one budget of one partner: its even part, but never more than the others have left free. Pure. */
function shareOf(
  worker_id: string,
  budget: keyof Share,
  want: Want,
  others: readonly ClaimRow[],
  turn: number,
): number {
  const needs = others.map((row) => ({ id: row.worker_id, need: row[`${budget}_need`] }));
  needs.push({ id: worker_id, need: want.need });
  needs.sort((a, b) => (a.id < b.id ? -1 : 1));
  const even = evenParts(
    want.cap,
    needs.map((one) => one.need),
    turn,
  );
  const mine = even[needs.findIndex((one) => one.id === worker_id)] ?? 0;
  return Math.max(want.inUse, 0, Math.min(mine, want.cap - sum(others, budget)));
}

/**
 * Parts of `cap` for these needs: no worker gets more than it needs, unused parts go to the others, and an indivisible remainder
 * rotates by `turn`. Pure.
 */
export function evenParts(cap: number, needs: readonly number[], turn: number): number[] {
  const parts = needs.map(() => 0);
  let left = cap;
  for (;;) {
    const hungry = needs.flatMap((need, index) => (need > (parts[index] ?? 0) ? [index] : []));
    if (left === 0 || hungry.length === 0) return parts;
    if (left < hungry.length) {
      for (let taken = 0; taken < left; taken += 1) {
        const index = hungry[(turn + taken) % hungry.length] ?? 0;
        parts[index] = (parts[index] ?? 0) + 1;
      }
      return parts;
    }
    const each = Math.floor(left / hungry.length);
    for (const index of hungry) {
      const more = Math.min(each, (needs[index] ?? 0) - (parts[index] ?? 0));
      parts[index] = (parts[index] ?? 0) + more;
      left -= more;
    }
  }
}
