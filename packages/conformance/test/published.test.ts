/** The results in docs/results are reports of this kit without a finding, and docs/conformance.md lists them. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { PARTNER_CASES } from '../src/cases/index.ts';
import { badge } from '../src/report/badge.ts';
import { pageReport } from '../src/report/page.ts';
import type { RunReport } from '../src/run.ts';

const docs = join(import.meta.dirname, '../../../docs');
const files = readdirSync(join(docs, 'results')).filter(
  (name) => name.endsWith('.json') && name !== 'zoo.json', // zoo.test.ts reads that one
);
const read = (name: string): string => readFileSync(join(docs, 'results', name), 'utf8');
const guide = readFileSync(join(docs, 'conformance.md'), 'utf8');

test('results of both examples and of our own kit are published', () => {
  assert.deepEqual(files, ['partner-kit.json', 'partner.mjs.json', 'partner.py.json']);
});

for (const name of files) {
  test(`${name} is a complete run in the strict profile without a finding`, () => {
    const report = JSON.parse(read(name)) as RunReport;
    assert.equal(report.verdict, 'passed');
    assert.equal(report.profile, 'strict');
    assert.equal(report.version, 2);
    assert.deepEqual(
      report.results.map(({ id }) => id),
      PARTNER_CASES.map(({ id }) => id),
      'run the kit again: the checks have changed',
    );
    assert.deepEqual(
      report.results.flatMap(({ findings }) => findings),
      [],
    );
    const page = pageReport(report);
    for (const { id } of report.results) assert.ok(page.includes(id), id);
    assert.equal(read(name.replace(/json$/, 'svg')), badge(report));
    const line = guide.split('\n').find((one) => one.includes(`(results/${name})`));
    assert.match(
      line ?? '',
      new RegExp(`\\| +${report.counts.PASS} +\\| +${report.counts.SKIP} +\\|`),
    );
  });
}
