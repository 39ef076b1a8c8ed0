/**
 * The output of a benchmark: one line per figure for people, and one JSON value where `npm run bench -- --json` collects them.
 */
import { appendFileSync } from 'node:fs';

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
  readonly target?: string;
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
