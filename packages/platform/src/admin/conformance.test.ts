/** A partner's conformance report: what is taken, what is refused, and that the latest one stands. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import test, { after } from 'node:test';
import type { AuditPage, ConformanceReport, KeptConformanceReport } from '@duebridge/contract';
import { bearer, startTestPartner, startTestPlatform } from '../checkout/testing.ts';
import { runCommand } from '../cli/testing.ts';

const platform = await startTestPlatform({ after });
const partner = await startTestPartner({ after });
for (const partner_id of ['water', 'power']) await platform.register(partner, { partner_id });
const at = '/admin/v1/partners/water/conformance-report';
const others: ConformanceReport['others'] = [
  { check: 'P25', verdict: 'failed', title: 'The same PUT again', why: 'PUT is idempotent.' },
];
const report: ConformanceReport = {
  base_url: 'https://pay.water.example',
  profile: 'strict',
  started_at: '2026-03-21T10:00:00.000Z',
  kit_version: '0.1.0',
  verdict: 'failed',
  passed: 34,
  others,
};
const put = (body: unknown, headers?: Record<string, string>) =>
  platform.admin('PUT', at, body, headers);
async function kept(): Promise<KeptConformanceReport | null> {
  const answer = await platform.admin('GET', at);
  return (answer.body as unknown as { report: KeptConformanceReport | null }).report;
}

test('a report has exactly its shape, and so many checks as a request can hold', async () => {
  const [one] = others;
  const full = (length: number) => ({ ...report, others: Array.from({ length }, () => one) });
  for (const wrong of [
    {},
    { ...report, exchanges: [] },
    { ...report, verdict: 'config' },
    { ...report, profile: 'lenient' },
    { ...report, started_at: 'yesterday' },
    { ...report, passed: -1 },
    { ...report, base_url: '' },
    { ...report, others: [{ ...one, why: 'x'.repeat(257) }] },
    { ...report, others: [{ ...one, got: 'what a server answered' }] },
    { ...report, others: [{ ...one, title: 'a\0b' }] },
    full(101),
  ]) {
    const answer = await put(wrong);
    assert.equal(answer.status, 400, JSON.stringify(wrong).slice(0, 200));
  }
  assert.equal((await put({ ...report, base_url: 'x'.repeat(65_536) })).status, 413);
  assert.equal(await kept(), null);
  // The longest that the schema lets through fits into a request.
  const [check, text] = ['x'.repeat(16), 'x'.repeat(256)];
  const longest = { check, verdict: 'not_judged', title: text, why: text };
  const most = { ...report, others: Array.from({ length: 100 }, () => longest) };
  assert.equal((await put(most)).status, 200);
});

test('a later report takes the place of the one before, and the audit has both', async () => {
  for (const one of [report, { ...report, verdict: 'passed', passed: 35, others: [] } as const]) {
    const answer = await put(one);
    assert.equal(answer.status, 200, answer.text);
    const { uploaded_at, ...found } = (await kept()) ?? assert.fail('no report');
    assert.deepEqual(found, one);
    assert.ok(Math.abs(Date.parse(uploaded_at) - Date.now()) < 600_000, uploaded_at);
  }
  const rows = await platform.database.query(
    'SELECT 1 FROM duebridge_platform.conformance_reports',
  );
  assert.equal(rows.length, 1);
  const audit = await platform.admin(
    'GET',
    '/admin/v1/audit?event=conformance_report_kept&limit=2',
  );
  const { entries } = audit.body as unknown as AuditPage;
  assert.deepEqual(
    entries.map(({ detail }) => detail['verdict']),
    ['passed', 'failed'],
  );
});

test('operators and the partner’s own people upload; viewers, others and partners that are none do not', async () => {
  const viewer = await platform.operator('vera', 'viewer');
  assert.equal((await put(report, bearer(viewer.operator_key))).status, 403);
  assert.equal(
    (await platform.admin('GET', at, undefined, bearer(viewer.operator_key))).status,
    200,
  );
  const operator = await platform.operator('olga', 'operator');
  assert.equal((await put(report, bearer(operator.operator_key))).status, 200);
  const power = await platform.operator('paul', 'partner', { partner_id: 'power' });
  assert.equal((await put(report, bearer(power.operator_key))).status, 404);
  const nobody = '/admin/v1/partners/nobody/conformance-report';
  assert.equal((await platform.admin('PUT', nobody, report)).status, 404);
  assert.equal((await platform.admin('GET', nobody)).status, 404);
});

test('one command sends what a run wrote, without what was sent and received', async () => {
  const { operator_key } = await platform.operator('wendy', 'partner', { partner_id: 'water' });
  const run = (...words: string[]) => runCommand(platform, words, operator_key);
  const file = path.join(platform.dataDirectory, 'report.json');
  const upload = ['partner', 'report', 'water', '--file', file];
  const written = {
    tool: 'duebridge conform',
    version: 2,
    kit_version: '0.1.0',
    subject: 'partner',
    target: { base_url: 'http://127.0.0.1:4400', account_id: 'canary-account' },
    profile: 'contract',
    started_at: '2026-03-22T10:00:00.000Z',
    verdict: 'failed',
    counts: { PASS: 33, FAIL: 1, WARN: 0, SKIP: 1, CONFIG: 0 },
    results: [
      { id: 'P20', title: 'A payment starts', verdict: 'PASS', findings: [] },
      {
        id: 'P25',
        title: 'The same PUT again',
        verdict: 'FAIL',
        findings: [
          { rule: 'PUT is idempotent.', got: 'canary-answer' },
          { rule: 'PUT is idempotent.', got: 'canary-answer' },
          { rule: 'y'.repeat(300) },
        ],
      },
      { id: 'P53', title: 'Canceled', verdict: 'SKIP', skipped: 'no cancel', findings: [] },
    ],
    exchanges: [{ answer_body: 'canary-body' }],
  };
  await writeFile(file, JSON.stringify(written));
  assert.match(await run(...upload), /^passed +33$/m);
  const found = (await kept()) ?? assert.fail('no report');
  assert.deepEqual(
    found.others.map(({ check, verdict }) => [check, verdict]),
    [
      ['P25', 'failed'],
      ['P53', 'not_judged'],
    ],
  );
  assert.match(found.others[0]?.why ?? '', /^PUT is idempotent\. y+…$/);
  assert.equal(found.others[1]?.why, 'no cancel');
  assert.doesNotMatch(JSON.stringify(found), /canary/);
  assert.match(await run('partner', 'report', 'water'), /P53 +not_judged/);
  assert.match(await runCommand(platform, ['partner', 'report', 'power']), /No report yet: run/);
  for (const [content, message] of [
    ['no JSON', /is not a report of a partner/],
    [JSON.stringify({ ...written, subject: 'platform' }), /is not a report of a partner/],
    [JSON.stringify({ ...written, verdict: 'config' }), /judged nothing/],
  ] as const) {
    await writeFile(file, content);
    await assert.rejects(run(...upload), { exitCode: 3, message });
  }
  assert.equal((await kept())?.uploaded_at, found.uploaded_at);
});
