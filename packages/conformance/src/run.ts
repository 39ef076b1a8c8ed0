/**
 * Runs the checks of a target: pre-flight, then each check in its own context, stage by stage; check/result-book.ts makes the report.
 * A run ends whatever the server does: each request has a deadline, a server that stops answering ends the run, and the run as a
 * whole has a deadline.
 */
import {
  CALLER_CASES,
  PARTNER_CASES,
  PLATFORM_CASES,
  SCENARIO_CASES,
  TOKEN_CASES,
} from './cases/index.ts';
import { BALANCE_CHECK, balancesBefore } from './cases/balance.ts';
import { CallerContext, CallerRun } from './check/caller-context.ts';
import {
  type CallerCase,
  type CallerStage,
  type CaseInfo,
  type PartnerCase,
  type Stage,
  addUp,
  choose,
} from './check/check.ts';
import { Run, type Means, USUAL_PACE, type Pace } from './check/context.ts';
import type { MakeDriver } from './check/drivers.ts';
import { Findings, Skipped, type Profile } from './check/findings.ts';
import { memoryHistory, type History } from './check/history.ts';
import { Wire } from './check/http.ts';
import { PartnerContext, PartnerRun } from './check/partner-context.ts';
import { partnerPreflight, type ConfigProblem } from './check/preflight.ts';
import {
  ResultBook,
  Stopped,
  type About,
  type ResultOptions,
  type RunReport,
} from './check/result-book.ts';
import {
  secretsOf,
  TargetProblem,
  type PartnerTarget,
  type PlatformTarget,
  type Secret,
} from './check/target.ts';
import { platformPreflight, TokenContext } from './check/token-context.ts';
import { MACHINE_CLOCK, type Clock } from './clock.ts';

export type { CheckResult, RunReport } from './check/result-book.ts';

/** Maximum duration of a whole run in addition to the declared window; a typical run takes well under a minute. */
const RUN_DEADLINE_MS = 300_000;

/**
 * How many times the declared window can delay a run: once for all payments together, and once for each of the two that confirm
 * an excess (P62).
 */
const WINDOWS_IN_A_ROW = 3;

/** Options of a run, besides its target. */
export interface RunOptions extends ResultOptions {
  readonly profile?: Profile;
  /** Ids of the checks to run; all of the profile unless given. */
  readonly only?: readonly string[];
  readonly history?: History;
  readonly pace?: Partial<Pace>;
  /** The machine's clock unless given. */
  readonly clock?: Clock;
  /** Ends the run early; the report covers what was judged until then. */
  readonly signal?: AbortSignal;
  /** Restarts the server under test (P66, C14). */
  readonly restart?: () => Promise<void>;
  /** Of a partner: only reads the payments of earlier runs again. */
  readonly recheck?: boolean;
  /** Makes a platform pay; by default the driver that the target file selects. */
  readonly driver?: MakeDriver;
}

/** The checks that look at payments of earlier runs. */
export const RECHECKS: readonly string[] = ['P35', 'P50', 'P54'];

/** Judges a partner's server. Never throws because of the server; throws UsageProblem for an unknown check. */
export async function judgePartner(
  target: PartnerTarget,
  options: RunOptions = {},
): Promise<RunReport> {
  const { profile = 'contract', recheck = false } = options;
  const cases = choose(PARTNER_CASES, profile, recheck ? RECHECKS : options.only);
  const longest_ms = options.pace?.longest_wait_ms ?? USUAL_PACE.longest_wait_ms;
  const window_ms = Math.min((target.terminal_window_seconds ?? 60) * 1_000, longest_ms);
  const cancel = Object.entries(target.cancel?.headers ?? {})
    .filter(([name]) => /auth|key|token|secret|cookie/i.test(name))
    .map(([, value]) => ({ value, name: 'CANCEL_CREDENTIAL' }));
  return judge(target, options, {
    cases,
    longest_ms: RUN_DEADLINE_MS + WINDOWS_IN_A_ROW * window_ms,
    secrets: [...secretsOf(target.authentication), ...cancel],
    async run(means, book, history) {
      const run = new PartnerRun(target, means, history, recheck);
      run.restart = options.restart;
      await book.preflight(() => partnerPreflight(run));
      if (book.problem === undefined) await runPartnerCases(run, cases, book);
      const { base_url, biller_id, authentication, accounts, spending_cap_in_cents: cap } = target;
      history.add(
        run.intents.flatMap(({ intent, at }) => {
          const record = run.latest(intent);
          const made_at = new Date(at).toISOString();
          return record === undefined ? [] : { base_url, biller_id, intent, made_at, record };
        }),
      );
      return {
        subject: 'partner',
        target: {
          base_url,
          authentication:
            authentication.method === 'key'
              ? `static key in the header ${authentication.header}`
              : 'OAuth 2.0 client credentials',
          biller_id,
          account_id: accounts.payable,
        },
        money: {
          ...addUp(cases, target),
          ...(cap !== undefined && { cap_in_cents: cap }),
          asked_in_cents: run.asked_in_cents,
        },
      };
    },
  });
}

/**
 * Judges a platform: its token endpoint (T) and, when the target has a `caller`, how it calls a partner (C). `driver` makes it
 * pay; the command of the target file unless given.
 */
export async function judgePlatform(
  target: PlatformTarget,
  options: RunOptions = {},
): Promise<RunReport> {
  const cases = choose(PLATFORM_CASES, options.profile ?? 'contract', options.only);
  const { base_url, client_id, api_key, biller_id, account_id, other_client } = target;
  return judge(target, options, {
    cases,
    longest_ms: RUN_DEADLINE_MS * 2,
    secrets: [
      { value: api_key, name: 'API_KEY' },
      ...(other_client === undefined
        ? []
        : [{ value: other_client.api_key, name: 'OTHER_API_KEY' }]),
    ],
    async run(means, book) {
      const run = new Run(target, means);
      if (target.has_token_endpoint) await book.preflight(() => platformPreflight(run));
      if (book.problem === undefined) {
        for (const one of TOKEN_CASES.filter((one) => cases.includes(one))) {
          const context = new TokenContext(run, one.id);
          await book.judge(one, context, async () => {
            if (target.has_token_endpoint) return one.run(context);
            throw new Skipped('the target declares no token endpoint (base_url, client_id)');
          });
        }
        const calls = [...CALLER_CASES, ...SCENARIO_CASES].filter((one) => cases.includes(one));
        await judgeCalls(target, means, calls, book, options);
      }
      return {
        subject: 'platform',
        target: {
          base_url,
          authentication: `client ${client_id}`,
          ...(biller_id !== undefined && { biller_id }),
          ...(account_id !== undefined && { account_id }),
        },
      };
    },
  });
}

/** What the two kinds of run do by themselves. */
interface Judging {
  readonly cases: readonly CaseInfo[];
  /** The deadline of the whole run. */
  readonly longest_ms: number;
  /** What no report may show. */
  readonly secrets: readonly Secret[];
  /** Judges. Returns what the report says of the target. */
  readonly run: (means: Means, book: ResultBook, history: History) => Promise<About>;
}

/** A run with its deadline and its transport, and the report of it. */
async function judge(
  target: PartnerTarget | PlatformTarget,
  options: RunOptions,
  { cases, longest_ms, secrets, run }: Judging,
): Promise<RunReport> {
  const { profile = 'contract', clock = MACHINE_CLOCK, history = memoryHistory() } = options;
  const { ca_file } = target;
  const stop = new AbortController();
  const late = 'the run reached its deadline: the server answers too slowly';
  const cancel = clock.after(longest_ms, () => stop.abort(new Stopped(late)));
  const interrupt = (): void => stop.abort(new Stopped('the run was interrupted'));
  if (options.signal?.aborted === true) interrupt();
  options.signal?.addEventListener('abort', interrupt, { once: true });
  let wire: Wire | undefined;
  try {
    wire = new Wire({ ...(ca_file !== undefined && { ca_file }), clock, stop: stop.signal });
    for (const secret of secrets) wire.hide(secret);
    const pace = { ...USUAL_PACE, ...options.pace };
    const book = new ResultBook(options, wire, cases, clock);
    const about = await run({ profile, wire, pace, clock, stop: stop.signal }, book, history);
    return book.report(about, profile);
  } finally {
    cancel();
    options.signal?.removeEventListener('abort', interrupt);
    await wire?.close();
  }
}

/** Judges how the platform calls a scripted partner. */
async function judgeCalls(
  target: PlatformTarget,
  means: Means,
  cases: readonly CallerCase[],
  book: ResultBook,
  { driver, restart }: RunOptions,
): Promise<void> {
  if (cases.length === 0) return;
  let caller: CallerRun | undefined;
  if (target.caller !== undefined) {
    try {
      caller = await CallerRun.open(target, means, target.caller, driver);
      caller.restart = restart;
    } catch (error) {
      book.problem = callerProblem(error, target.caller);
    }
  }
  try {
    if (caller !== undefined) return await runCallerCases(caller, cases, book);
    for (const one of cases) {
      await book.judge(one, new Findings(means.profile), async () => {
        throw new Skipped(
          'the target declares no "caller", which describes how the scripted partner is registered with the platform',
        );
      });
    }
  } finally {
    await caller?.close();
  }
}

function callerProblem(
  error: unknown,
  { host, port }: NonNullable<PlatformTarget['caller']>,
): ConfigProblem {
  const why = error instanceof Error ? error.message : String(error);
  if (error instanceof TargetProblem) return { sentence: why };
  return {
    sentence: `The scripted partner cannot listen on ${host}:${port} (${why}): free the port, or fix caller.host, caller.port or caller.tls.`,
  };
}

/** Checks whose faults affect only their own payments run in parallel. */
async function runCallerCases(
  run: CallerRun,
  cases: readonly CallerCase[],
  book: ResultBook,
): Promise<void> {
  const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
  const verdicts: Promise<void>[] = [];
  /** Resolves when the check has made its payments; one with `atEnd` gets its verdict after all others. */
  const judge = (one: CallerCase): Promise<void> => {
    const context = new CallerContext(run, one.id);
    return new Promise((resolve, reject) => {
      const verdict = book.judge(one, context, async () => {
        await one.run(context);
        if (one.atEnd === undefined) return;
        resolve();
        await finished;
        await one.atEnd(context);
      });
      verdicts.push(verdict);
      verdict.then(resolve, reject);
    });
  };
  for (const stage of ['first', 'main', 'alone', 'last'] satisfies CallerStage[]) {
    const some = cases.filter((one) => (one.stage ?? 'main') === stage);
    run.begin();
    if (stage === 'main') {
      await Promise.all(some.map(judge));
      continue;
    }
    for (const one of some) {
      run.begin();
      await judge(one);
    }
  }
  finish();
  await Promise.all(verdicts);
}

async function runPartnerCases(
  run: PartnerRun,
  cases: readonly PartnerCase[],
  book: ResultBook,
): Promise<void> {
  const side = async (stage: Stage): Promise<void> => {
    const checks = cases.filter((one) => (one.stage ?? 'main') === stage);
    let open = checks.length;
    const { promise: allSent, resolve } = Promise.withResolvers<void>();
    await Promise.all(
      checks.map(async (check) => {
        const context = new PartnerContext(run, check.id);
        let isSent = false;
        const sent = (): void => {
          if (!isSent && (open -= 1) === 0) resolve();
          isSent = true;
        };
        await book.judge(check, context, async () => {
          const unfit = check.unfit?.(run.target);
          if (unfit !== undefined) throw new Skipped(unfit);
          if (run.recheck && !RECHECKS.includes(check.id)) throw new Skipped('nothing is paid');
          await check.run(context);
          sent();
          if (check.atEnd === undefined) return;
          await allSent;
          await check.atEnd(context);
        });
        sent();
      }),
    );
  };
  await side('first');
  const isMeasured = cases.some(({ id }) => id === BALANCE_CHECK);
  if (isMeasured && book.problem === undefined) {
    await book.preflight(async () => {
      await balancesBefore(new PartnerContext(run, BALANCE_CHECK));
      return undefined;
    });
  }
  for (const stage of ['main', 'last', 'restart', 'final'] satisfies Stage[]) await side(stage);
}
