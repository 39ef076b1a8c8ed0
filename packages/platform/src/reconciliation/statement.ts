/** Statements of batches (decision 26): counts and cents per status, and a SHA-256 over the lines in the order of their ids. */
import { createHash } from 'node:crypto';
import { PAYMENT_STATUSES, type BatchStatement, type PaymentStatus } from '@duebridge/contract';

/** One payment as a statement counts it. */
export interface StatementLine {
  readonly platform_payment_id: string;
  readonly status: PaymentStatus;
  readonly amount_in_cents: number;
}

/** A statement under construction. Holds sums and a hash, not the lines, so a batch of millions needs no memory. */
interface StatementBuilder {
  /** Adds a line; lines must come in the order of their ids, by byte. */
  add(line: StatementLine): void;
  end(): BatchStatement;
}

export function statementBuilder(platform_batch_id: string): StatementBuilder {
  const hash = createHash('sha256');
  const totals = new Map<PaymentStatus, { count: number; amount_in_cents: number }>();
  let count = 0;
  return {
    add({ platform_payment_id, status, amount_in_cents }) {
      hash.update(`${platform_payment_id},${status},${amount_in_cents}\n`);
      count += 1;
      const total = totals.get(status) ?? { count: 0, amount_in_cents: 0 };
      total.count += 1;
      total.amount_in_cents += amount_in_cents;
      totals.set(status, total);
    },
    end: () => ({
      platform_batch_id,
      count,
      totals: PAYMENT_STATUSES.flatMap((status) => {
        const total = totals.get(status);
        return total === undefined ? [] : [{ status, ...total }];
      }),
      sha256: hash.digest('hex'),
    }),
  };
}

/** Lines handled before the event loop gets a turn: a few milliseconds. */
export const LINES_AT_ONCE = 5_000;

/** Lets everything else that is due run. */
export function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

/** Sorts by id, by code unit, which for the ASCII of ids is by byte: runs of LINES_AT_ONCE, merged in turns. */
export async function sortById<Line extends { readonly platform_payment_id: string }>(
  lines: readonly Line[],
): Promise<Line[]> {
  let runs: Line[][] = [];
  for (let from = 0; from < lines.length; from += LINES_AT_ONCE) {
    const run = lines.slice(from, from + LINES_AT_ONCE);
    runs.push(run.sort((a, b) => (a.platform_payment_id < b.platform_payment_id ? -1 : 1)));
    await turn();
  }
  while (runs.length > 1) {
    const merged: Line[][] = [];
    for (let pair = 0; pair < runs.length; pair += 2) {
      merged.push(await merge(runs[pair] ?? [], runs[pair + 1] ?? []));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

async function merge<Line extends { readonly platform_payment_id: string }>(
  left: readonly Line[],
  right: readonly Line[],
): Promise<Line[]> {
  const all: Line[] = [];
  let [l, r] = [0, 0];
  for (;;) {
    const a = left[l];
    const b = right[r];
    const next =
      b === undefined || (a !== undefined && a.platform_payment_id <= b.platform_payment_id)
        ? a
        : b;
    if (next === undefined) return all;
    all.push(next);
    if (next === a) l += 1;
    else r += 1;
    if (all.length % LINES_AT_ONCE === 0) await turn();
  }
}

/** The statement of these lines (decision 26), whatever their order, made in turns. */
export async function statementOf(
  platform_batch_id: string,
  lines: readonly StatementLine[],
): Promise<BatchStatement> {
  const builder = statementBuilder(platform_batch_id);
  const sorted = await sortById(lines);
  for (let from = 0; from < sorted.length; from += LINES_AT_ONCE) {
    for (const line of sorted.slice(from, from + LINES_AT_ONCE)) builder.add(line);
    await turn();
  }
  return builder.end();
}
