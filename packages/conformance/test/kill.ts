/** Shared by the parts of the kill matrix: the pace, and what counts as caught. */
import assert from 'node:assert/strict';
import type { Pace } from '../src/check/pace.ts';
import type { RunReport } from '../src/run.ts';
import type { PartnerMutant } from './mutants.ts';

/** Faster than a real run, otherwise equal. */
export const QUICK: Partial<Pace> = {
  poll_first_ms: 10,
  poll_longest_ms: 50,
  burst_per_second: 100,
  burst_seconds: 0.4,
  after_end_ms: 40,
  balance_lag_ms: 20,
  // Both ends of up to ten runs share one process: on a busy machine an answer may take seconds.
  request_timeout_ms: 15_000,
  quiet_ms: 600,
};

/** Wrong peers judged concurrently: most of the time is spent waiting, even on two cores. */
export const AT_ONCE = 10;

/** Callers judged concurrently. Nearly all of their time is spent waiting for calls that a wrong one never makes. */
export const CALLERS_AT_ONCE = 12;

export const DAY_MS = 24 * 60 * 60 * 1_000;

/** Checks that examine every payment of a run again, and therefore find the same defects as many others. */
const WHOLE_RUN = ['P60', 'P61', 'P62', 'P63', 'P64', 'P65', 'P66'];

export function tell(report: RunReport): string {
  return report.results
    .filter(({ verdict }) => verdict === 'FAIL' || verdict === 'WARN')
    .map(({ id, verdict, findings }) => `${id} ${verdict} ${JSON.stringify(findings[0])}`)
    .concat(report.config === undefined ? [] : [`CONFIG ${report.config.sentence}`])
    .concat(report.judge_failed)
    .join('\n');
}

/** Asserts that a peer is caught by its checks and fails no others than those it lists. */
export function isCaught(
  mutant: Pick<PartnerMutant, 'breaks' | 'also' | 'verdict'>,
  report: RunReport,
): void {
  assert.deepEqual(report.judge_failed, []);
  assert.equal(report.config, undefined, tell(report));
  for (const id of mutant.breaks) {
    const result = report.results.find((one) => one.id === id);
    assert.equal(result?.verdict, mutant.verdict, `${id}\n${tell(report)}`);
  }
  const failed = report.results.filter(({ verdict }) => verdict === 'FAIL').map(({ id }) => id);
  // On a busy machine a check may come to no verdict in time: the run is then judged in part.
  const unfailed = report.verdict === 'partial' ? 2 : 0;
  assert.equal(report.exit_code, failed.length === 0 ? unfailed : 1, tell(report));
  const { also = [] } = mutant;
  if (also === 'many') return;
  const meant = new Set([...mutant.breaks, ...also, ...WHOLE_RUN]);
  assert.deepEqual(
    failed.filter((id) => !meant.has(id)),
    [],
    tell(report),
  );
}
