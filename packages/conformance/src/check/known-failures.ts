/** Known failures with an owner and a deadline. A run that has only these failures passes until the deadline. */
import { readFileSync } from 'node:fs';
import { isDate } from '@duebridge/contract';
import { TargetProblem } from './target.ts';

/** One line of the expected-failures file. */
export interface KnownFailure {
  readonly check: string;
  /** Who fixes it. */
  readonly owner: string;
  /** The last day on which it may fail, YYYY-MM-DD. */
  readonly until: string;
  readonly reason: string;
}

/** Reads the file: a JSON list of {check, owner, until, reason}. Throws TargetProblem naming the invalid entry. */
export function readKnownFailures(file: string): readonly KnownFailure[] {
  let list: unknown;
  try {
    list = JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    throw new TargetProblem(`The file ${file} is not readable JSON: fix --expected.`);
  }
  if (!Array.isArray(list)) throw new TargetProblem(`The file ${file} must contain a JSON array.`);
  return list.map((line: Partial<Record<string, unknown>> | null, index) => {
    const text = (name: string): string => {
      const value = line?.[name];
      if (typeof value === 'string' && value.trim() !== '') return value;
      throw new TargetProblem(`Entry ${index + 1} of ${file} lacks "${name}".`);
    };
    const [check, owner, until, reason] = [
      text('check').toUpperCase(),
      text('owner'),
      text('until'),
      text('reason'),
    ];
    if (!isDate(until)) {
      throw new TargetProblem(
        `Entry ${index + 1} of ${file}: "until" is not a date such as 2026-12-31.`,
      );
    }
    return { check, owner, until, reason };
  });
}

/** The entry that excuses a check on this day; undefined when none does. */
export function excuse(
  expected: readonly KnownFailure[],
  check: string,
  now: number,
): KnownFailure | undefined {
  const today = new Date(now).toISOString().slice(0, 10);
  return expected.find((line) => line.check === check && line.until >= today);
}
