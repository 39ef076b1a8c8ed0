/**
 * Each scenario of the sandbox partner yields a verdict on a platform, or a reason why it cannot: correct callers pass, and
 * each is failed by a caller that handles the fault wrongly.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { describe } from 'node:test';
import { SCENARIO_CASES } from '../src/cases/index.ts';
import { SCENARIO_RULES } from '../src/cases/scenario-rules.ts';
import type { MakeDriver } from '../src/check/driver.ts';
import { platformTarget, type Authentication } from '../src/check/target.ts';
import { judgePlatform, type RunReport } from '../src/run.ts';
import { SCENARIOS } from '../src/sandbox/partner.ts';
import { CALLERS_AT_ONCE, QUICK, tell } from './kill.ts';
import { makeCertificate } from './tls-proxy.ts';
import { smallPlatform, type CallerFault } from './wrong-platform.ts';

const AUTHS: Readonly<Record<'key' | 'oauth', Authentication>> = {
  key: { method: 'key', header: 'x-api-key', key: 'a-key-of-the-scenarios' },
  oauth: {
    method: 'oauth',
    client_id: 'judge',
    client_secret: 'a+secret & more: 100 % é=',
    scope: 'read write',
    token_url: 'http://127.0.0.1:1/',
  },
};

const IDS = SCENARIO_CASES.map(({ id }) => id);
const ruleOf = (id: string) =>
  SCENARIO_RULES[SCENARIOS[IDS.indexOf(id)]?.name ?? ''] ?? assert.fail(`${id} has no rule`);
const UNJUDGED = IDS.filter((id) => ruleOf(id).by === 'nobody');
/** The checks in this list that need OAuth. */
const BY_OAUTH = IDS.filter((id) => SCENARIOS[IDS.indexOf(id)]?.needs === 'oauth');

/** Judges a small platform, wrong or correct, with these scenarios. */
async function judge(
  fault: CallerFault | undefined,
  method: 'key' | 'oauth',
  only: readonly string[],
  tls?: { readonly cert: string; readonly key: string },
  around: (make: MakeDriver) => MakeDriver = (make) => make,
): Promise<RunReport> {
  const stop = new AbortController();
  const authentication = AUTHS[method];
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-scenarios-'));
  const [cert_file, key_file] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  try {
    if (tls !== undefined) {
      writeFileSync(cert_file, tls.cert);
      writeFileSync(key_file, tls.key);
    }
    const target = platformTarget(
      {
        caller: {
          port: 0,
          authentication,
          biller_id: 'judge',
          account_id: 'A-1',
          // A correct platform never makes the judge wait that long.
          patience_seconds: fault === undefined ? 40 : 3,
          ...(tls === undefined ? {} : { tls: { cert_file, key_file } }),
        },
      },
      {},
    );
    return await judgePlatform(target, {
      profile: 'strict',
      pace: QUICK,
      only,
      driver: around(smallPlatform(authentication, fault, stop.signal, tls?.cert)),
    });
  } finally {
    stop.abort();
    rmSync(folder, { recursive: true, force: true });
  }
}

const skipped = (report: RunReport): string[] =>
  report.results.filter(({ verdict }) => verdict === 'SKIP').map(({ id }) => id);

test('each scenario has a check or a reason why it cannot be checked from outside', () => {
  assert.deepEqual(Object.keys(SCENARIO_RULES).sort(), SCENARIOS.map(({ name }) => name).sort());
  for (const id of UNJUDGED) {
    const rule = ruleOf(id);
    assert.ok(rule.by === 'nobody' && rule.reason.length > 40, id);
  }
  assert.deepEqual(UNJUDGED, ['F47B', 'F48', 'F49', 'F67']);
});

/** Wrong callers, with the scenarios that they handle wrongly. */
const WRONG: readonly (readonly [CallerFault, 'key' | 'oauth', string])[] = [
  [
    'error_is_failure',
    'key',
    'F01 F02 F03 F04 F07 F08 F10 F11 F12 F13 F14 F16 F17 F18 F19 F20 F21 F22 F24 F25 F40 F41 F42 F43 F44 F45 F46',
  ],
  ['poll_error_is_failure', 'key', 'F05 F06 F15 F24 F38'],
  ['waits_forever', 'key', 'F01 F02 F16 F42 F43'],
  ['follows_redirects', 'key', 'F19 F20 F21'],
  ['ignores_retry_after_on_put', 'key', 'F09'],
  ['type_is_failure', 'key', 'F22 F23'],
  ['last_key_wins', 'key', 'F26'],
  ['believes_status_alone', 'key', 'F27 F28 F50'],
  ['ignores_echoes', 'key', 'F30 F31'],
  ['amount_text_is_failure', 'key', 'F29'],
  ['words_without_case', 'key', 'F32'],
  ['missing_field_is_failure', 'key', 'F33'],
  ['unknown_field_is_no_record', 'key', 'F34'],
  ['posted_is_success', 'key', 'F35'],
  ['polls_on', 'key', 'F36'],
  ['polls_once', 'key', 'F37 F38 F39'],
  ['wants_an_expiry', 'oauth', 'F51 F52 F53 F55 F56'],
  ['timer_by_expiry', 'oauth', 'F54 F58'],
  ['refusal_is_failure', 'oauth', 'F57'],
  ['forbidden_is_failure', 'oauth', 'F60'],
  ['token_error_is_failure', 'oauth', 'F59 F61 F62 F63 F64 F68'],
  ['own_token_for_each_call', 'oauth', 'F65'],
  ['form_by_hand', 'oauth', 'F66'],
  ['follows_redirects', 'oauth', 'F68'],
];

describe('a correct platform passes every scenario', { concurrency: CALLERS_AT_ONCE }, () => {
  for (const method of ['key', 'oauth'] as const) {
    test(`by ${method === 'key' ? 'a static key' : 'OAuth'}`, async () => {
      const report = await judge(undefined, method, IDS);
      assert.equal(tell(report), '');
      assert.equal(report.exit_code, 0);
      assert.deepEqual(
        skipped(report),
        IDS.filter(
          (id) =>
            UNJUDGED.includes(id) || id === 'F47' || (method === 'key' && BY_OAUTH.includes(id)),
        ),
      );
    });
  }

  test('over https, with its certificate replaced by a bad one', async () => {
    const report = await judge(undefined, 'key', ['F47'], makeCertificate());
    assert.equal(tell(report), '');
    assert.equal(report.counts.PASS, 1);
  });
});

describe(
  'a platform that takes a fault wrongly is caught',
  { concurrency: CALLERS_AT_ONCE },
  () => {
    for (const [fault, method, ids] of WRONG) {
      test(`${fault}, ${method}: ${ids}`, async () => {
        const report = await judge(fault, method, ids.split(' '));
        const missed = report.results.filter(
          ({ verdict }) => verdict !== 'FAIL' && verdict !== 'WARN',
        );
        assert.deepEqual(
          missed.map(({ id, skipped: reason }) => `${id} ${reason ?? 'passed'}`),
          [],
        );
      });
    }

    test('injects_headers: F61, and no check that runs after it', async () => {
      const report = await judge('injects_headers', 'oauth', ['F61', 'F62']);
      assert.deepEqual(
        report.results.map(({ id, verdict }) => `${id} ${verdict}`),
        ['F61 FAIL', 'F62 PASS'],
        tell(report),
      );
    });

    test('trusts_any_certificate: F47', async () => {
      const report = await judge('trusts_any_certificate', 'key', ['F47'], makeCertificate());
      assert.equal(report.counts.FAIL, 1, tell(report));
    });
  },
);

test('a platform that calls on after the end is caught, although the judge’s own process stands still meanwhile', async () => {
  let stood = false;
  const standStill = (): void => {
    stood = true;
    for (const end = performance.now() + 700; performance.now() < end;);
  };
  const report = await judge('polls_on', 'key', ['F36'], undefined, (make) => (url) => {
    const driver = make(url);
    return {
      at_once: driver.at_once,
      async pay(...given) {
        const driven = await driver.pay(...given);
        return {
          ...driven,
          async status(id) {
            const status = await driven.status(id);
            // The judge has just been shown the end: from now on it listens for calls.
            if (status === 'succeeded' && !stood) setTimeout(standStill, 20);
            return status;
          },
        };
      },
    };
  });
  assert.equal(stood, true);
  assert.equal(report.counts.FAIL, 1, tell(report));
});

test('every scenario is failed by a wrong platform', () => {
  const caught = new Set([...WRONG.flatMap(([, , ids]) => ids.split(' ')), 'F47', ...UNJUDGED]);
  assert.deepEqual(
    IDS.filter((id) => !caught.has(id)),
    [],
  );
});
