/** What people run by holds: the alerts, the dashboard and the runbook speak of figures and commands that are there. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { inspect, promisify } from 'node:util';
import { until } from '@duebridge/runtime/testing';
import { outcomeOf } from '../packages/platform/src/cli/testing.ts';
import { openCase } from '../packages/platform/src/store/cases.ts';
import { startWorkingDay } from './browser/console-rig.ts';

const root = join(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(join(root, file), 'utf8');
const rules = read('deploy/prometheus/duebridge.rules.yml');
const dashboard = read('deploy/grafana/duebridge.json');
const runbook = read('docs/runbook.md');

const work = await startWorkingDay({ after }, new URL('../packages/web/dist/', import.meta.url));

test('every metric that an alert or the dashboard reads is one that a server exports', async () => {
  const given = new Set<string>();
  await until('the gauges of what waits are there', async () => {
    const text = await (await fetch(new URL('/metrics', work.platform.adminUrl))).text();
    for (const [, name = ''] of text.matchAll(/^# TYPE (\S+)/gm)) given.add(name);
    return given.has('duebridge_reviews');
  });
  // Those of the partner server: test/operations.test.ts compares the guide with what it exports.
  for (const [name] of read('docs/operations.md').matchAll(/\bduebridge_kit_[a-z_]+/g))
    given.add(name);
  const recorded = new Set([...rules.matchAll(/record: (\S+)/g)].map(([, name]) => name));
  const asked = [
    ...`${rules}\n${dashboard}`.matchAll(/\bduebridge(?::[a-z0-9_]+)+|\bduebridge_[a-z_]+/g),
  ]
    .map(([name]) => name)
    .filter((name) => !name.endsWith('_total_'));
  assert.ok(asked.length > 20);
  const missing = asked.filter(
    (name) =>
      !recorded.has(name) &&
      !given.has(name) &&
      !given.has(name.replace(/_(bucket|count|sum)$/, '')),
  );
  assert.deepEqual([...new Set(missing)], []);
});

test('every alert has its section in the runbook, and every section an alert or a question', () => {
  const alerts = [...rules.matchAll(/alert: (\w+)/g)].map(([, name = '']) => name);
  const sections = [...runbook.matchAll(/^## (Duebridge\w+)$/gm)].map(([, name = '']) => name);
  assert.deepEqual(sections, alerts);
  for (const name of alerts) {
    assert.ok(rules.includes(`runbook: docs/runbook.md#${name.toLowerCase()}`), name);
    const section = runbook.split(`## ${name}\n`)[1]?.split('\n## ')[0] ?? '';
    assert.match(section, /\*\*Means\*\*/, name);
  }
});

test('promtool finds nothing wrong with the rules, and they fire when they should', async (t) => {
  const promtool = (...words: string[]) =>
    promisify(execFile)('promtool', words, { cwd: join(root, 'deploy/prometheus') });
  try {
    await promtool('--version');
  } catch {
    t.diagnostic('promtool is not installed: apt-get install prometheus');
    return;
  }
  await promtool('check', 'rules', 'duebridge.rules.yml');
  const { stdout } = await promtool('test', 'rules', 'duebridge.rules.test.yml');
  assert.match(stdout, /SUCCESS/);
});

/** Runs a line of the runbook with the variables filled in. Gives its exit code. */
async function run(
  line: string,
  variables: Readonly<Record<string, string>>,
): Promise<{ code: number; said: string }> {
  const words = [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) =>
    (quoted ?? plain ?? '').replaceAll(/\$([A-Z]+)/g, (_, name: string) => {
      const value = variables[name];
      assert.ok(value !== undefined, `${name} is not set for: ${line}`);
      return value;
    }),
  );
  assert.equal(words[0], 'duebridge');
  assert.equal(words[1], 'platform');
  const env = { DUEBRIDGE_ADMIN_URL: work.platform.adminUrl, DUEBRIDGE_ADMIN_KEY: work.keys.ada };
  const { out, said, error } = await outcomeOf(env, words.slice(2));
  if (error === undefined) return { code: 0, said: out + said };
  assert.ok(error instanceof Error && 'exitCode' in error, inspect(error));
  return { code: Number(error.exitCode), said: out + said + error.message };
}

test('every command of the runbook does what its section says', async () => {
  const paid = await work.pay('pays-1', 2_500, 'asks@example.com');
  const waits = await work.pay('waits-1', 2_600, 'waits@example.com');
  const detail = await work.platform.admin('GET', `/admin/v1/payments/${paid}`);
  const BATCH = (detail.body['payment'] as { platform_batch_id: string }).platform_batch_id;
  const FILE = join(work.platform.dataDirectory, 'export.csv');
  await writeFile(FILE, `${paid},succeeded,2500\n${waits},processing,1\n`);
  const keys = await work.platform.admin('GET', '/admin/v1/partners/springfield-water/keys');
  const [{ client_id: CLIENT } = { client_id: '' }] = keys.body['keys'] as { client_id: string }[];
  const lines = [...runbook.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].flatMap(([, block = '']) =>
    block.trim().split('\n'),
  );
  assert.ok(lines.length > 25);
  for (const line of lines) {
    // Each act gets a payment that is as its section says.
    let PAYMENT = paid;
    if (/payment resume|review close/.test(line)) {
      PAYMENT = await work.pay('refuses-1', 3_100, `refused-${Math.random()}@example.com`);
    }
    if (line.includes('payment pause')) PAYMENT = waits;
    if (line.includes('payment withdraw')) {
      await run('duebridge platform partner pause $PARTNER --reason "test"', {
        PARTNER: 'springfield-water',
      });
      PAYMENT = await unsent();
    }
    const found = await work.platform.admin('GET', '/admin/v1/differences?state=open');
    const [difference] = found.body['differences'] as { difference_id: string }[];
    const { code, said } = await run(line, {
      PAYMENT,
      CASE: line.includes('case end') ? await caseOf(paid, line.includes('written_off')) : '',
      BATCH,
      FILE,
      CLIENT,
      PARTNER: 'springfield-water',
      OPERATOR: 'vic',
      EMAIL: 'asks@example.com',
      DIFFERENCE: difference?.difference_id ?? 'there is none',
    });
    // Comparing says by its exit code that the two sides differ.
    const differs = line.includes(' reconcile ');
    assert.equal(code, differs ? 1 : 0, `${line}\n${said}`);
    if (line.includes('payment withdraw')) {
      await run('duebridge platform partner resume $PARTNER --reason "test"', {
        PARTNER: 'springfield-water',
      });
    }
  }
});

/** A case of the payment, about a debit that came back or a complaint. Gives its id. */
async function caseOf(platform_payment_id: string, isMoney: boolean): Promise<string> {
  const case_id = `test-${randomUUID()}`;
  const said = { actor: 'test', reason: 'test', at: new Date().toISOString() };
  const opened = await openCase(work.platform.database, isMoney ? 'debit_returned' : 'complained', {
    case_id,
    platform_payment_id,
    ...said,
    reason_code: isMoney ? 'debit_returned' : 'still_due',
    amount_in_cents: isMoney ? 2_500 : 0,
  });
  assert.ok(opened);
  return case_id;
}

/** A payment that waits for its paused partner. */
async function unsent(): Promise<string> {
  const credentials = await work.platform.credentials('springfield-water');
  const { session } = await work.platform.session(credentials, 'waits-1', 'unsent@example.com');
  const made = await work.platform.confirm(session, { amount_in_cents: 900 });
  return String(made.body['platform_payment_id']);
}
