/** The fate of a mutant, the sampling of mutants, and the coverage that says which code a run reaches. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** The outcome of one mutant. */
export interface Fate {
  readonly file: string;
  readonly line: number;
  /** Mutation.name. */
  readonly name: string;
  /** The first checks that failed or warned, or whatever else kept the run from passing; empty if the mutant survived. */
  readonly caught: readonly string[];
  /** False if no request of a full run reaches the mutated code; such mutants are not judged. */
  readonly reached: boolean;
}

/** Parses the lines written by `--results`. */
export function fatesOf(text: string): readonly Fate[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Fate);
}

/** Picks `count` elements by seed, in their original order. */
export function sample<T>(
  all: readonly T[],
  count: number | undefined,
  seed: number,
): readonly T[] {
  if (count === undefined || count >= all.length) return all;
  let state = seed >>> 0;
  const ranked = all.map((one, place) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return { one, place, rank: state };
  });
  ranked.sort((one, other) => one.rank - other.rank);
  return ranked
    .slice(0, count)
    .sort((one, other) => one.place - other.place)
    .map(({ one }) => one);
}

/** A function in V8's coverage: the innermost range around a place holds its count. */
interface Counted {
  readonly ranges: readonly {
    readonly startOffset: number;
    readonly endOffset: number;
    readonly count: number;
  }[];
}
interface Covered {
  readonly result: readonly { readonly url: string; readonly functions: readonly Counted[] }[];
}

/** Reads Node's coverage: whether the code at an offset of a file ran. Python writes none, so all of its code counts as run. */
export function coverage(folder: string): (file: string, offset: number) => boolean {
  const scripts = readdirSync(folder).flatMap((name) => {
    const { result } = JSON.parse(readFileSync(join(folder, name), 'utf8')) as Covered;
    return result;
  });
  return (file, offset) => {
    const url = pathToFileURL(file).href;
    const own = scripts.filter((script) => script.url === url);
    if (own.length === 0) return file.endsWith('.py');
    return own.some(({ functions }) => covers(functions, offset));
  };
}

/** Whether the code at an offset ran, by V8's counts. */
export function covers(functions: readonly Counted[], offset: number): boolean {
  const around = functions
    .flatMap(({ ranges }) => ranges)
    .filter(({ startOffset, endOffset }) => startOffset <= offset && offset < endOffset);
  around.sort((one, other) => length(one) - length(other));
  return (around[0]?.count ?? 0) > 0;
}

function length({ startOffset, endOffset }: { startOffset: number; endOffset: number }): number {
  return endOffset - startOffset;
}
