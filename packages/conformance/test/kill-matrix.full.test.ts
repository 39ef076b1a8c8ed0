/**
 * The kill matrix: every wrong peer is caught by its check and fails no unrelated must-check;
 * a correct peer passes all checks; every check has a file and at least one wrong peer.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { describe } from 'node:test';
import { CLAUSES } from '@duebridge/contract';
import type { CaseInfo } from '../src/check/check.ts';
import { CALLER_CASES, PARTNER_CASES, TOKEN_CASES } from '../src/cases/index.ts';
import { memoryHistory } from '../src/check/history.ts';
import { AT_ONCE, DAY_MS, isCaught, QUICK, tell } from './kill.ts';
import { CALLER_MUTANTS, PARTNER_MUTANTS, TOKEN_MUTANTS, type PartnerMutant } from './mutants.ts';
import { judgePartner, type RunReport } from '../src/run.ts';
import { MACHINE_CLOCK } from '../src/clock.ts';
import { startScriptedPartner, type ScriptedAuth } from '../src/sandbox/partner.ts';
import { partnerTarget, type Draft } from '../src/check/target.ts';
import { WRONG_PARTNERS } from './wrong-partners.ts';
import { openTlsProxy } from './tls-proxy.ts';

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

/** The first checks that a target with a static key skips; P67 is the last one. */
const OAUTH_ONLY = ['P03', 'P04', 'P05', 'P06', 'P07'];

const CASES: readonly CaseInfo[] = [...PARTNER_CASES, ...TOKEN_CASES, ...CALLER_CASES];
const PARTNERS = [...PARTNER_MUTANTS, ...WRONG_PARTNERS];
const MUTANTS = [...PARTNERS, ...TOKEN_MUTANTS, ...CALLER_MUTANTS];

type Peer = Pick<PartnerMutant, 'auth' | 'how' | 'profile' | 'behaviour' | 'restarted'>;

/** Judges one partner, wrong or correct, and returns the report of its last run. */
async function judge(peer: Peer): Promise<RunReport> {
  const auth = AUTHS[peer.auth ?? 'key'];
  const partner = await startScriptedPartner({
    auth,
    processing_ms: 40,
    behaviour: peer.behaviour(),
  });
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-kill-'));
  const proxy =
    peer.how === 'old-tls'
      ? await openTlsProxy(partner.url, { minVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' })
      : undefined;
  try {
    const ca_file = join(folder, 'ca.pem');
    if (proxy !== undefined) writeFileSync(ca_file, proxy.certificate);
    const draft: Draft = {
      base_url: proxy?.url ?? partner.url,
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
      spending_cap_in_cents: 20_000_000_000,
      ...(proxy === undefined ? {} : { ca_file }),
    };
    const history = memoryHistory();
    const options = {
      profile: peer.profile ?? 'contract',
      pace: QUICK,
      history,
      restart: async () => peer.restarted?.(),
    } as const;
    if (peer.how === 'the-day-after') {
      await judgePartner(partnerTarget(draft), { ...options, only: ['P20', 'P31', 'P50'] });
      partner.advance(DAY_MS + 60_000);
      return await judgePartner(partnerTarget(draft), {
        ...options,
        clock: { ...MACHINE_CLOCK, now: () => Date.now() + DAY_MS + 60_000 },
      });
    }
    return await judgePartner(partnerTarget(draft), options);
  } finally {
    await proxy?.stop();
    await partner.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

describe('a correct partner passes every applicable check', { concurrency: AT_ONCE }, () => {
  const peers: readonly [string, Peer, readonly string[]][] = [
    ['static key, contract', {}, [...OAUTH_ONLY, 'P35', 'P67']],
    ['static key, strict', { profile: 'strict' }, [...OAUTH_ONLY, 'P09', 'P35', 'P67']],
    ['OAuth, contract', { auth: 'oauth' }, ['P07', 'P08', 'P35']],
    ['OAuth, strict', { auth: 'oauth', profile: 'strict' }, ['P07', 'P08', 'P09', 'P35']],
    ['OAuth with short-lived tokens', { auth: 'short-lived-oauth' }, ['P08', 'P35']],
    ['the day after', { how: 'the-day-after' }, [...OAUTH_ONLY, 'P67']],
    ['with a maximum', { how: 'with-a-maximum' }, [...OAUTH_ONLY, 'P35', 'P67']],
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
  for (const mutant of PARTNERS) {
    test(`${mutant.breaks.join(' ')}: it ${mutant.wrong}`, async () => {
      const report = await judge(mutant);
      isCaught(mutant, report);
      for (const id of mutant.how === 'old-tls' ? [] : mutant.breaks) {
        const result = report.results.find((one) => one.id === id);
        assert.ok(
          result?.findings.some(({ curl }) => curl !== undefined),
          `${id} shows no curl`,
        );
      }
    });
  }
});

test('every check has an id of its own', () => {
  const checks = CASES.map(({ id }) => id);
  assert.equal(new Set(checks).size, checks.length);
});

test('every check names existing rules, and describes what it sends, expects and suspects', () => {
  for (const one of CASES) {
    assert.ok(one.clauses.length > 0, one.id);
    for (const clause of one.clauses) assert.ok(clause in CLAUSES, `${one.id} ${clause}`);
    for (const text of [one.title, one.sends, one.expects, one.likely_cause]) {
      assert.ok(text.length > 10, one.id);
    }
  }
});

test('every check has a wrong peer that it catches', () => {
  const killed = new Set(MUTANTS.flatMap(({ breaks }) => breaks));
  const alive = CASES.map(({ id }) => id).filter((id) => !killed.has(id));
  assert.deepEqual(alive, []);
  const names = MUTANTS.map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
});

test('docs/kill-matrix.md is up to date', () => {
  const file = new URL('../../../docs/kill-matrix.md', import.meta.url);
  const table = killMatrix();
  if (process.env['DUEBRIDGE_UPDATE_DOCS'] === '1') writeFileSync(file, table);
  assert.equal(
    readFileSync(file, 'utf8'),
    table,
    'stale: run this file once with DUEBRIDGE_UPDATE_DOCS=1',
  );
});

/** docs/kill-matrix.md: one line per check, with the wrong peers that it catches. */
function killMatrix(): string {
  const part = (title: string, cases: readonly CaseInfo[]): string => {
    const lines = cases.map((one) => {
      const killers = MUTANTS.filter(({ breaks }) => breaks.includes(one.id));
      const strict = one.profile === 'strict' ? ', strict' : '';
      return `| ${one.id} | ${one.title} | ${one.clauses.join(' ')} | ${one.severity}${strict} | ${killers.map(({ wrong }) => `it ${wrong}`).join('; ')} |`;
    });
    return `## ${title}\n\n<!-- prettier-ignore -->\n| check | what it verifies | rules | severity | wrong peers that it catches |\n| --- | --- | --- | --- | --- |\n${lines.join('\n')}\n`;
  };
  return `# What each check catches

A check that never fails proves nothing. Each check therefore has at least one peer that is wrong on
purpose; the tests assert that the check catches it and that no unrelated
must-check fails. A correct peer passes all checks. These tests generate this page
(\`packages/conformance/test/kill-matrix*.test.ts\`): ${CASES.length} checks, ${MUTANTS.length} wrong peers. The rules are
explained in [prove your server](prove-your-server.md).

${part("A partner's server", PARTNER_CASES)}
${part('A token endpoint', TOKEN_CASES)}
${part('A platform that calls', CALLER_CASES)}`;
}
