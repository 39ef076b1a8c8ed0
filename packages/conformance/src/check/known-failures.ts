/** Known failures with an owner and a date: until that day they stay in the report, and fail no run. */
import { readFileSync } from 'node:fs';
import { isDate } from '@duebridge/contract';
import { TargetProblem } from './target.ts';

const FIELDS = ['check', 'owner', 'until', 'reason'] as const;

/** `check` may fail up to the day `until`, YYYY-MM-DD; `owner` mends it. */
export type KnownFailure = Readonly<Record<(typeof FIELDS)[number], string>>;

/** Reads a JSON list of known failures. Throws TargetProblem naming the entry that is wrong. */
export function readKnownFailures(file: string): readonly KnownFailure[] {
  let list: unknown;
  try {
    list = JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    throw new TargetProblem(`${file} is not readable JSON: fix --expected.`);
  }
  if (!Array.isArray(list)) throw new TargetProblem(`${file} must contain a JSON array.`);
  for (const [index, line] of (list as (Partial<KnownFailure> | null)[]).entries()) {
    const lacking = FIELDS.find((name) => typeof line?.[name] !== 'string' || line[name] === '');
    const entry = `Entry ${index + 1} of ${file}`;
    if (lacking !== undefined) throw new TargetProblem(`${entry} lacks "${lacking}".`);
    if (isDate(line?.until ?? '')) continue;
    throw new TargetProblem(`${entry}: "until" is not a date such as 2026-12-31.`);
  }
  return list as KnownFailure[];
}
