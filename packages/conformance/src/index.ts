/** The judge: checks of partners and platforms, and what they report. */
import '@duebridge/contract/supported-node';
import type { ClauseId } from '@duebridge/contract';
import { PARTNER_CASES, PLATFORM_CASES } from './cases/index.ts';

export { MACHINE_CLOCK, type Clock } from './clock.ts';
export type { CaseInfo, Profile, Severity, Verdict } from './check/findings.ts';
export type { Driven, Driver, MakeDriver } from './check/drivers.ts';
export { fileHistory, memoryHistory, type History, type HistoryEntry } from './check/history.ts';
export type { Pace } from './check/run.ts';
export { jsonReport, junitReport, terminalReport } from './report/text.ts';
export { pageReport } from './report/page.ts';
export {
  judgePartner,
  judgePlatform,
  type CheckResult,
  type RunOptions,
  type RunReport,
} from './run.ts';
export {
  partnerTarget,
  platformTarget,
  TargetProblem,
  type Draft,
  type PartnerTarget,
  type PlatformTarget,
} from './check/target.ts';

/** Every check with the clauses that it judges: the coverage that the project claims. */
export const CONFORMANCE_CASES: readonly {
  readonly id: string;
  readonly clauses: readonly ClauseId[];
}[] = [...PARTNER_CASES, ...PLATFORM_CASES].map(({ id, clauses }) => ({ id, clauses }));
