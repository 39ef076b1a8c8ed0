/**
 * The kill matrix: every wrong peer is caught by its check, and by no must-check that has no business
 * with it; a right peer passes all; every check has a file, and every file a killer.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { describe } from 'node:test';
import { CLAUSES } from '@duebridge/contract';
import { CALLER_CASES, PARTNER_CASES, TOKEN_CASES } from './cases/index.ts';
import { memoryLedger } from './ledger.ts';
import { PARTNER_MUTANTS, type PartnerMutant } from './mutants.ts';
import type { Pace } from './partner-bench.ts';
import { judgePartner, type RunReport } from './run.ts';
import { startScriptedPartner, type ScriptedAuth } from './scripted-partner.ts';
import { partnerTarget, type Draft } from './target.ts';
import { openTlsDoor } from './testing-tls.ts';

/** Faster than a real run, and otherwise the same. */
const QUICK: Pace = {
  poll_first_ms: 10,
  poll_longest_ms: 50,
  burst_per_second: 100,
  burst_seconds: 0.4,
  after_end_ms: 40,
  balance_lag_ms: 20,
  request_timeout_ms: 5_000,
};

/** How many wrong peers are judged at once: two cores, and most of the time is waiting. */
const AT_ONCE = 10;

const DAY_MS = 24 * 60 * 60 * 1_000;

const AUTHS: Readonly<Record<'key' | 'oauth' | 'short-lived-oauth', ScriptedAuth>> = {
  key: { method: 'key', header: 'x-api-key', key: 'a-key-of-the-kill-matrix' },
  oauth: { method: 'oauth', client_id: 'judge', client_secret: 'a-secret-of-the-kill-matrix' },
  'short-lived-oauth': {
    method: 'oauth',
    client_id: 'judge',
    client_secret: 'a-secret-of-the-kill-matrix',
    expires_in: 2,
  },
};

type Peer = Pick<PartnerMutant, 'auth' | 'how' | 'profile' | 'behaviour'>;

/** Judges one partner, wrong or right, and gives the report of its last run. */
async function judge(peer: Peer): Promise<RunReport> {
  const auth = AUTHS[peer.auth ?? 'key'];
  const partner = await startScriptedPartner({
    auth,
    processing_ms: 40,
    behaviour: peer.behaviour(),
  });
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-kill-'));
  const door =
    peer.how === 'old-tls'
      ? await openTlsDoor(partner.url, { minVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' })
      : undefined;
  try {
    const ca_file = join(folder, 'ca.pem');
    if (door !== undefined) writeFileSync(ca_file, door.certificate);
    const draft: Draft = {
      base_url: door?.url ?? partner.url,
      authentication: auth.method === 'key' ? auth : { ...auth, token_url: partner.token_url },
      biller_id: 'sandbox-utility',
      accounts: {
        payable: peer.how === 'with-a-maximum' ? 'maximum' : 'active',
        other: 'active-2',
        unknown: 'nobody',
        inactive: 'inactive',
        canceled: 'canceled',
      },
      limits:
        peer.how === 'with-a-maximum'
          ? { min_amount_in_cents: 100, max_amount_in_cents: 50_000 }
          : {},
      terminal_window_seconds: 2,
      ...(door === undefined ? {} : { ca_file }),
    };
    const ledger = memoryLedger();
    const options = { profile: peer.profile ?? 'contract', pace: QUICK, ledger } as const;
    if (peer.how === 'the-day-after') {
      await judgePartner(partnerTarget(draft), { ...options, only: ['P20', 'P31', 'P50'] });
      partner.advance(DAY_MS + 60_000);
      return await judgePartner(partnerTarget(draft), {
        ...options,
        now: () => Date.now() + DAY_MS + 60_000,
      });
    }
    return await judgePartner(partnerTarget(draft), options);
  } finally {
    await door?.stop();
    await partner.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function tell(report: RunReport): string {
  return report.results
    .filter(({ verdict }) => verdict === 'FAIL' || verdict === 'WARN')
    .map(({ id, verdict, findings }) => `${id} ${verdict} ${JSON.stringify(findings[0])}`)
    .concat(report.config === undefined ? [] : [`CONFIG ${report.config.sentence}`])
    .concat(report.judge_failed)
    .join('\n');
}

describe('a right partner passes every check that can judge it', { concurrency: AT_ONCE }, () => {
  const peers: readonly [string, Peer, readonly string[]][] = [
    ['static key, contract', {}, ['P03', 'P04', 'P05', 'P06', 'P07', 'P35']],
    [
      'static key, strict',
      { profile: 'strict' },
      ['P03', 'P04', 'P05', 'P06', 'P07', 'P09', 'P35'],
    ],
    ['OAuth, contract', { auth: 'oauth' }, ['P07', 'P08', 'P35']],
    ['OAuth, strict', { auth: 'oauth', profile: 'strict' }, ['P07', 'P08', 'P09', 'P35']],
    ['OAuth with short-lived tokens', { auth: 'short-lived-oauth' }, ['P08', 'P35']],
    ['the day after', { how: 'the-day-after' }, ['P03', 'P04', 'P05', 'P06', 'P07']],
    ['with a maximum', { how: 'with-a-maximum' }, ['P03', 'P04', 'P05', 'P06', 'P07', 'P35']],
  ].map(([name, peer, skipped]) => [
    name as string,
    { behaviour: () => ({}), ...(peer as object) },
    skipped as string[],
  ]);
  for (const [name, peer, skipped] of peers) {
    test(name, async () => {
      const report = await judge(peer);
      assert.equal(tell(report), '');
      assert.equal(report.exit_code, 0);
      const unjudged = report.results.filter(({ verdict }) => verdict !== 'PASS');
      assert.deepEqual(
        unjudged.map(({ id }) => id),
        skipped,
      );
    });
  }
});

describe('a wrong partner is caught by its check', { concurrency: AT_ONCE }, () => {
  for (const mutant of PARTNER_MUTANTS) {
    test(`${mutant.breaks.join(' ')}: it ${mutant.wrong}`, async () => {
      const report = await judge(mutant);
      assert.deepEqual(report.judge_failed, []);
      assert.equal(report.config, undefined, tell(report));
      for (const id of mutant.breaks) {
        const result = report.results.find((one) => one.id === id);
        assert.equal(result?.verdict, mutant.verdict, `${id}\n${tell(report)}`);
        assert.ok(
          mutant.how === 'old-tls' || result.findings.some(({ curl }) => curl !== undefined),
          `${id} shows no curl`,
        );
      }
      const failed = report.results.filter(({ verdict }) => verdict === 'FAIL').map(({ id }) => id);
      const meant = new Set([...mutant.breaks, ...(mutant.also ?? [])]);
      assert.deepEqual(
        failed.filter((id) => !meant.has(id)),
        [],
        tell(report),
      );
      assert.equal(report.exit_code, failed.length === 0 ? 0 : 1);
    });
  }
});

test('a check without a file, or a file without a check, does not build', () => {
  const files = readdirSync(new URL('cases/', import.meta.url))
    .filter((name) => /^[ptc]\d\d\.ts$/.test(name))
    .map((name) => name.slice(0, 3).toUpperCase());
  const checks = [...PARTNER_CASES, ...TOKEN_CASES, ...CALLER_CASES].map(({ id }) => id);
  assert.deepEqual(files.sort(), [...checks].sort());
  assert.equal(new Set(checks).size, checks.length);
});

test('a check names rules that exist, and says what it sends, expects and suspects', () => {
  for (const one of [...PARTNER_CASES, ...TOKEN_CASES, ...CALLER_CASES]) {
    assert.ok(one.clauses.length > 0, one.id);
    for (const clause of one.clauses) assert.ok(clause in CLAUSES, `${one.id} ${clause}`);
    for (const text of [one.title, one.sends, one.expects, one.likely_cause]) {
      assert.ok(text.length > 10, one.id);
    }
  }
});

test('a check without a wrong peer that it catches does not build', () => {
  const killed = new Set(PARTNER_MUTANTS.flatMap(({ breaks }) => breaks));
  const alive = PARTNER_CASES.map(({ id }) => id).filter((id) => !killed.has(id));
  assert.deepEqual(alive, []);
});
