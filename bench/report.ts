/**
 * The output of a benchmark: one line per figure for people, and one JSON value where `npm run bench -- --json` collects them.
 */
import { appendFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { chosenOf } from './options.ts';

/** A figure: a ratio, a time or a count, with what it is compared to. */
export interface Figure {
  /** As in bench/README.md: F1 to F12, or a name. */
  readonly figure: string;
  readonly what: string;
  /** The median of the rounds, or the one value measured. */
  readonly value: number;
  /** Lowest and highest of the rounds. */
  readonly min?: number;
  readonly max?: number;
  /** Unit of `value`; none for a ratio. */
  readonly unit?: string;
  /** Such as `at least 0.6`. */
  readonly target?: string | undefined;
}

/** Median and spread of ours divided by theirs, round by round. */
export function ratios(
  ours: readonly number[],
  theirs: readonly number[],
): Pick<Figure, 'value' | 'min' | 'max'> {
  return spread(ours.map((value, index) => value / (theirs[index] ?? Number.NaN)));
}

/** Median and spread of some values; the values need not be sorted. */
export function spread(values: readonly number[]): Pick<Figure, 'value' | 'min' | 'max'> {
  const sorted = values.toSorted((a, b) => a - b);
  return {
    value: quantile(sorted, 0.5),
    min: sorted[0] ?? Number.NaN,
    max: sorted.at(-1) ?? Number.NaN,
  };
}

/** A quantile of sorted values; the lower middle one of an even number. */
export function quantile(sorted: readonly number[], part: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] ?? Number.NaN;
}

/** Prints a figure, and adds it to the file that BENCH_RESULTS names. */
export function report(figure: Figure): void {
  const { figure: name, what, value, min, max, unit, target } = figure;
  const show = (number: number): string =>
    Math.abs(number) >= 100 ? Math.round(number).toString() : number.toFixed(2);
  const unitText = unit === undefined ? '' : ` ${unit}`;
  const spreadText =
    min === undefined || max === undefined ? '' : ` (${show(min)} to ${show(max)})`;
  const targetText = target === undefined ? '' : `; target ${target}`;
  console.log(`${name} ${what}: ${show(value)}${unitText}${spreadText}${targetText}`);
  const file = process.env['BENCH_RESULTS'];
  if (file !== undefined) appendFileSync(file, `${JSON.stringify(figure)}\n`);
}

/** Something in trouble beside healthy payments. */
export interface Trouble {
  readonly what: string;
  /** What the p99 beside it may be, divided by the p99 without it. */
  readonly target: string;
}

/**
 * Compares healthy payments beside each chosen trouble with the same without it, in alternating rounds. `stream` gives the sorted
 * milliseconds that they took.
 */
export async function compareTroubles<T extends Trouble>(
  figure: string,
  { only, rounds }: { readonly only: string; readonly rounds: number },
  troubles: Readonly<Record<string, T>>,
  stream: (trouble: T, isThere: boolean) => Promise<readonly number[]>,
): Promise<void> {
  for (const [name, trouble] of chosenOf(only, troubles)) {
    const pairs: (readonly [calm: readonly number[], beside: readonly number[]])[] = [];
    for (let round = 1; round <= rounds; round += 1) {
      const [calm, beside] = [await stream(trouble, false), await stream(trouble, true)];
      pairs.push([calm, beside]);
      const show = (part: number): string =>
        `${quantile(calm, part).toFixed(0)} -> ${quantile(beside, part).toFixed(0)} ms`;
      console.log(`${name}, round ${round}: p50 ${show(0.5)}, p99 ${show(0.99)}, all ${show(1)}`);
    }
    const { what, target } = trouble;
    for (const part of [0.5, 0.99]) {
      const compared = pairs.map(([calm, beside]) => quantile(beside, part) / quantile(calm, part));
      report({
        figure,
        what: `p${part * 100} while ${what} / without`,
        ...spread(compared),
        target,
      });
    }
    const slowest = spread(pairs.map(([, beside]) => quantile(beside, 1)));
    report({ figure, what: `slowest while ${what}`, ...slowest, unit: 'ms' });
  }
}

/** Calls `send` so often a second, for so many seconds; resolves when all that it started is done. */
export async function steadily(
  { rate, seconds }: { readonly rate: number; readonly seconds: number },
  send: (n: number) => Promise<void>,
): Promise<void> {
  const sent: Promise<void>[] = [];
  const from = performance.now();
  for (let n = 0; n < rate * seconds; n += 1) {
    const wait = from + (n * 1_000) / rate - performance.now();
    if (wait > 0) await delay(wait);
    sent.push(send(n));
  }
  await Promise.all(sent);
}
