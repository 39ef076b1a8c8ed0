/**
 * Judges a peer of the tables (peers/) as a user would, at the usual pace, in virtual time: a partner, a platform at its token endpoint, and
 * a platform that calls. And says whether a wrong one was caught.
 */
import assert from 'node:assert/strict';
import { CALLER_CASES, TOKEN_CASES } from '../src/cases/index.ts';
import { memoryHistory } from '../src/check/history.ts';
import {
  overlay,
  partnerTarget,
  platformTarget,
  type Authentication,
  type Draft,
} from '../src/check/target.ts';
import { judgePartner, judgePlatform, type RunReport } from '../src/run.ts';
import { startScriptedPartner, type ScriptedAuth } from '../src/scripted/partner.ts';
import { smallPlatform } from './peers/caller.ts';
import { openGateway, type Gateway } from './peers/gateway.ts';
import { ACCOUNTS, CLIENT, DAY_MS, KEY, MAXIMUM, type WrongPartner } from './peers/partners.ts';
import { openPlatformProxy, platformDraft, type ProxyBehaviour } from './peers/platform-proxy.ts';
import type { Wrong } from './peers/wrong.ts';
import { VIRTUAL_CLOCK as CLOCK } from './virtual-clock.ts';

const PARTNER_AUTHS: Readonly<Record<'key' | 'oauth' | 'short-lived-oauth', ScriptedAuth>> = {
  key: { method: 'key', header: 'x-api-key', key: KEY },
  oauth: { method: 'oauth', ...CLIENT },
  'short-lived-oauth': { method: 'oauth', ...CLIENT, expires_in: 2 },
};

/** What a judged partner may differ in; all of it has a usual value. */
export interface PartnerPeer extends Partial<Pick<WrongPartner, 'behaviour' | 'how' | 'profile'>> {
  readonly auth?: keyof typeof PARTNER_AUTHS | ScriptedAuth;
  /** What stands between it and the judge. */
  readonly gateway?: Gateway;
  /** What its target file says otherwise. */
  readonly target?: Draft;
}

/** Judges a partner by all checks, or by those named. For `the-day-after` a short run comes before, a day earlier. */
export async function judgePartnerPeer(
  peer: PartnerPeer,
  only?: readonly string[],
): Promise<RunReport> {
  const auth = typeof peer.auth === 'object' ? peer.auth : PARTNER_AUTHS[peer.auth ?? 'key'];
  let days_ms = 0;
  const clock = { ...CLOCK, now: () => CLOCK.now() + days_ms };
  const partner = await startScriptedPartner({
    auth,
    accounts: ACCOUNTS,
    clock,
    processing_ms: 40,
    behaviour: peer.behaviour?.() ?? {},
  });
  const gateway =
    peer.gateway === undefined ? undefined : await openGateway(partner.url, peer.gateway);
  try {
    const usual: Draft = {
      base_url: gateway?.url ?? partner.url,
      authentication:
        auth.method === 'key'
          ? auth
          : {
              method: auth.method,
              client_id: auth.client_id,
              client_secret: auth.client_secret,
              token_url: partner.token_url,
            },
      biller_id: 'sandbox-utility',
      accounts: {
        payable: peer.how === 'with-a-maximum' ? 'maximum' : 'active',
        other: peer.how === 'with-an-unusual-id' ? 'unit 4/B' : 'active-2',
        unknown: 'nobody',
        inactive: 'inactive',
        canceled: 'canceled',
      },
      limits: peer.how === 'with-a-maximum' ? MAXIMUM : {},
      terminal_window_seconds: 20,
      spending_cap_in_cents: 20_000_000_000,
    };
    const target = partnerTarget(overlay(usual, peer.target ?? {}), {});
    const options = {
      clock,
      profile: peer.profile ?? 'contract',
      history: memoryHistory(),
    } as const;
    if (peer.how === 'the-day-after') {
      await judgePartner(target, { ...options, only: ['P20', 'P50'] });
      days_ms = DAY_MS + 60_000;
    }
    return await judgePartner(target, { ...options, ...(only && { only }) });
  } finally {
    await gateway?.stop();
    await partner.stop();
  }
}

const TOKEN_CHECKS = TOKEN_CASES.map(({ id }) => id);

/** What a judged token endpoint may differ in. */
export interface TokenPeer {
  readonly behaviour?: () => ProxyBehaviour;
  readonly kind?: 'aggregator';
  readonly profile?: 'strict';
  readonly other_client?: { readonly client_id: string; readonly api_key: string };
  readonly delay_ms?: number;
}

/** Judges a token endpoint by all checks of one, or by those named. */
export async function judgeTokenPeer(
  peer: TokenPeer,
  only: readonly string[] = TOKEN_CHECKS,
): Promise<RunReport> {
  const { kind = 'biller', other_client, delay_ms = 0 } = peer;
  const proxy = await openPlatformProxy(kind, peer.behaviour?.(), { delay_ms, clock: CLOCK });
  try {
    const draft = {
      ...platformDraft(proxy, kind),
      ...(other_client === undefined ? {} : { other_client }),
    };
    return await judgePlatform(platformTarget(draft, {}), {
      clock: CLOCK,
      only,
      profile: peer.profile ?? 'contract',
    });
  } finally {
    await proxy.stop();
  }
}

const CALLER_AUTHS: Readonly<Record<'key' | 'oauth', Authentication>> = {
  key: { method: 'key', header: 'x-api-key', key: KEY },
  oauth: {
    method: 'oauth',
    client_id: 'judge',
    client_secret: 'a+secret & more: 100 % é=',
    scope: 'read write',
    token_url: 'http://127.0.0.1:1/',
  },
};

const CALLER_CHECKS = CALLER_CASES.map(({ id }) => id);

/** Judges the calls of a small platform by the checks C, or by those named. */
export async function judgeCallerPeer(
  peer: {
    readonly behaviour?: string;
    readonly auth?: 'key' | 'oauth';
    readonly profile?: 'strict';
  },
  only: readonly string[] = CALLER_CHECKS,
): Promise<RunReport> {
  const authentication = CALLER_AUTHS[peer.auth ?? 'key'];
  const stop = new AbortController();
  try {
    const target = platformTarget(
      {
        caller: {
          port: 0,
          authentication,
          biller_id: 'judge',
          account_id: 'A-1',
          other_account_id: 'A-2',
          patience_seconds: 40,
        },
      },
      {},
    );
    return await judgePlatform(target, {
      clock: CLOCK,
      only,
      profile: peer.profile ?? 'contract',
      driver: smallPlatform(authentication, peer.behaviour, stop.signal),
    });
  } finally {
    stop.abort();
  }
}

/** What a report says of each check that failed or warned, and why the judge could not judge. */
export function tell(report: RunReport): string {
  return report.results
    .filter(({ verdict }) => verdict === 'FAIL' || verdict === 'WARN')
    .map(({ id, verdict, findings }) => `${id} ${verdict} ${JSON.stringify(findings[0])}`)
    .concat(report.config === undefined ? [] : [`CONFIG ${report.config.sentence}`])
    .concat(report.judge_failed)
    .join('\n');
}

/** The checks of a report with this verdict. */
export function idsOf(report: RunReport, wanted: 'FAIL' | 'WARN' | 'SKIP'): string[] {
  return report.results.filter(({ verdict }) => verdict === wanted).map(({ id }) => id);
}

/** Checks that examine every payment of a run again, and therefore find the same defects as many others. */
const WHOLE_RUN = ['P54', 'P60', 'P62', 'P65'];

/** Asserts that a peer is caught by its check and fails no others than those it lists. */
export function isCaught(peer: Wrong<unknown>, report: RunReport): void {
  assert.deepEqual(report.judge_failed, []);
  assert.equal(report.config, undefined, tell(report));
  const caught = report.results.find(({ id }) => id === peer.breaks);
  assert.equal(caught?.verdict, peer.verdict, tell(report));
  const failed = idsOf(report, 'FAIL');
  // A defect may keep other checks from being judged: the run is then judged in part.
  const unfailed = report.verdict === 'partial' ? 2 : 0;
  assert.equal(report.exit_code, failed.length === 0 ? unfailed : 1, tell(report));
  if (peer.also === 'many') return;
  const meant = new Set([peer.breaks, ...(peer.also ?? []), ...WHOLE_RUN]);
  const unrelated = failed.filter((id) => !meant.has(id));
  assert.deepEqual(unrelated, [], tell(report));
}

/** Asserts that a wrong platform that calls fails, or is warned of, in each of these scenarios. */
export async function isFailed(
  behaviour: string,
  auth: 'key' | 'oauth',
  only: readonly string[],
): Promise<void> {
  const report = await judgeCallerPeer({ behaviour, auth, profile: 'strict' }, only);
  const missed = report.results.filter(({ verdict }) => !/^(FAIL|WARN)$/.test(verdict));
  assert.deepEqual(
    missed.map(({ id, skipped }) => `${id} ${skipped ?? 'passed'}`),
    [],
  );
}
