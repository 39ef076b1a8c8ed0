/**
 * Runs the checks of a target: pre-flight, then each check in its own context, stage by stage; check/result.ts makes the report of it.
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
import { BALANCE_CHECK, balancesBefore } from './cases/run.ts';
import { Caller, CallerContext } from './check/caller-context.ts';
import { addUp, choose, type CallerCase, type Case, type Stage } from './check/check.ts';
import { Context } from './check/context.ts';
import { Skipped } from './check/findings.ts';
import { PartnerContext, PartnerRun } from './check/partner-context.ts';
import { partnerPreflight } from './check/preflight.ts';
import { reportOf, type RunReport } from './check/result.ts';
import { Run, type RunOptions } from './check/run.ts';
import { TargetProblem, type PartnerTarget, type PlatformTarget } from './check/target.ts';
import { platformPreflight, TokenContext } from './check/token-context.ts';

export type { CheckResult, RunReport } from './check/result.ts';
export type { RunOptions } from './check/run.ts';

/** The checks that look at payments of earlier runs. */
export const RECHECKS: readonly string[] = ['P35', 'P50', 'P54'];

/** Judges a partner's server. Never throws because of the server; throws UsageProblem for an unknown check. */
export async function judgePartner(
  target: PartnerTarget,
  options: RunOptions = {},
): Promise<RunReport> {
  const { base_url, biller_id, authentication, accounts } = target;
  const only = options.recheck === true ? RECHECKS : options.only;
  const cases = choose(PARTNER_CASES, options.profile, only);
  const run = new PartnerRun(target, cases, options);
  const contextOf = ({ id }: { readonly id: string }) => new PartnerContext(run, id);
  try {
    await run.preflight(() => partnerPreflight(run));
    if (run.problem === undefined) {
      const judged = cases.map((one) => skippedIf(one, one.unfit?.(target)));
      for (const stage of ['first', 'alone', 'main', 'last', 'final'] satisfies Stage[]) {
        await judgeAll(run, [inStage(judged, stage)], contextOf);
        if (stage !== 'first' || !cases.some(({ id }) => id === BALANCE_CHECK)) continue;
        if (run.problem !== undefined) continue;
        await run.preflight(
          async () => void (await balancesBefore(contextOf({ id: BALANCE_CHECK }))),
        );
      }
    }
    run.remember();
    return reportOf(run, {
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
        asked_in_cents: run.asked_in_cents,
      },
    });
  } finally {
    await run.close();
  }
}

/** How long the payments of a platform may delay a run. */
const PLATFORM_MS = 300_000;

/**
 * Judges a platform: its token endpoint (T) and, when the target has a `caller`, how it calls a partner (C). `driver` makes it
 * pay; the command of the target file unless given.
 */
export async function judgePlatform(
  target: PlatformTarget,
  options: RunOptions = {},
): Promise<RunReport> {
  const { base_url, client_id, api_key, biller_id, account_id, other_client } = target;
  const cases = choose(PLATFORM_CASES, options.profile, options.only);
  const others = other_client && { value: other_client.api_key, name: 'OTHER_API_KEY' };
  const run = new Run(target, cases, options, {
    payments_ms: PLATFORM_MS,
    secrets: [{ value: api_key, name: 'API_KEY' }, ...(others === undefined ? [] : [others])],
  });
  try {
    if (target.has_token_endpoint) await run.preflight(() => platformPreflight(run));
    if (run.problem === undefined) {
      const ofTokens = TOKEN_CASES.filter((one) => cases.includes(one)).map((one) =>
        skippedIf(one, target.has_token_endpoint ? undefined : NO_TOKENS),
      );
      await judgeAll(run, inTurn(ofTokens), ({ id }) => new TokenContext(run, id));
      await judgeCalls(
        run,
        [...CALLER_CASES, ...SCENARIO_CASES].filter((one) => cases.includes(one)),
      );
    }
    return reportOf(run, {
      subject: 'platform',
      target: {
        base_url,
        authentication: `client ${client_id}`,
        ...(biller_id !== undefined && { biller_id }),
        ...(account_id !== undefined && { account_id }),
      },
    });
  } finally {
    await run.close();
  }
}

const NO_TOKENS = 'the target declares no token endpoint (base_url, client_id)';
const NO_CALLER =
  'the target declares no "caller", which describes how the scripted partner is registered with the platform';

/** Judges how the platform calls a scripted partner. Checks whose faults affect only their own payments run in parallel. */
async function judgeCalls(run: Run<PlatformTarget>, cases: readonly CallerCase[]): Promise<void> {
  if (cases.length === 0) return;
  let caller: Caller | undefined;
  try {
    if (run.target.caller !== undefined) caller = await Caller.open(run, run.target.caller);
  } catch (error) {
    const { host, port } = run.target.caller ?? {};
    const why = error instanceof Error ? error.message : String(error);
    const sentence = `The scripted partner cannot listen on ${host}:${port} (${why}): free the port, or fix caller.host, caller.port or caller.tls.`;
    run.problem = { sentence: error instanceof TargetProblem ? why : sentence };
  }
  if (caller === undefined) {
    const unjudged = cases.map(({ run: _run, atEnd: _atEnd, ...info }) => ({
      ...info,
      run: () => Promise.reject(new Skipped(NO_CALLER)),
    }));
    return judgeAll(run, [unjudged], ({ id }) => new Context(run, id));
  }
  try {
    const groups = [
      ...inTurn(inStage(cases, 'first')),
      inStage(cases, 'main'),
      ...inTurn(inStage(cases, 'alone')),
      ...inTurn(inStage(cases, 'last')),
    ];
    const partner = caller;
    await judgeAll(run, groups, ({ id }) => {
      partner.begin();
      return new CallerContext(run, id, partner);
    });
  } finally {
    await caller.close();
  }
}

const inStage = <C extends { readonly stage?: Stage }>(cases: readonly C[], stage: Stage): C[] =>
  cases.filter((one) => (one.stage ?? 'main') === stage);

const inTurn = <C>(cases: readonly C[]): C[][] => cases.map((one) => [one]);

/** The check; not judged if there is a reason. */
const skippedIf = <C>(one: Case<C>, reason: string | undefined): Case<C> =>
  reason === undefined ? one : { ...one, run: () => Promise.reject(new Skipped(reason)) };

/**
 * Judges groups of checks one after another, those of a group side by side. What a check does at its end waits until every check has
 * done the rest.
 */
async function judgeAll<C extends Context>(
  run: Run,
  groups: readonly (readonly Case<C>[])[],
  contextOf: (one: Case<C>) => C,
): Promise<void> {
  const { promise: allSent, resolve: sentAll } = Promise.withResolvers<void>();
  const verdicts: Promise<void>[] = [];
  for (const group of groups) {
    // All contexts first: a check may send as soon as it is judged.
    const contexts = group.map((one) => ({ one, context: contextOf(one) }));
    await Promise.all(
      contexts.map(({ one, context }) => {
        const { promise: sent, resolve } = Promise.withResolvers<void>();
        const verdict = run.judge(one, context, async () => {
          await one.run(context);
          if (one.atEnd === undefined) return;
          resolve();
          await allSent;
          await one.atEnd(context);
        });
        verdicts.push(verdict);
        return Promise.race([sent, verdict]);
      }),
    );
  }
  sentAll();
  await Promise.all(verdicts);
}
