/** What is shipped is on permissive terms, is listed with its hashes, and is audited where the registry can be asked. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { isAllowed, judgeAudit, licenceProblems, sbom, type Lock } from './supply-chain.ts';

const root = join(import.meta.dirname, '..');
const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as Lock;

test('every dependency is on permissive terms; what only builds and tests may be on a few more', () => {
  assert.deepEqual(licenceProblems(lock), []);
});

test('a licence that is missing, unknown, or not permissive fails the gate', () => {
  const problems = (license: string | undefined, dev = false): number =>
    licenceProblems({
      name: 'x',
      version: '1.0.0',
      packages: {
        '': {},
        'node_modules/a': { version: '1.0.0', dev, ...(license === undefined ? {} : { license }) },
      },
    }).length;
  for (const license of [
    undefined,
    '',
    'UNLICENSED',
    'SEE LICENSE IN x',
    'GPL-3.0',
    'AGPL-3.0-only',
    'SSPL-1.0',
    'BUSL-1.1',
    'MPL-2.0',
    'Custom: MIT',
    'MIT AND GPL-3.0',
    '(MIT OR (GPL-2.0 AND X))',
  ]) {
    assert.equal(problems(license), 1, String(license));
  }
  for (const license of ['MIT', '(MIT OR GPL-3.0)', 'MIT AND ISC', 'MPL-2.0 OR Apache-2.0']) {
    assert.equal(problems(license), 0, license);
  }
  assert.equal(problems('MPL-2.0', true), 0, 'a tool');
  assert.equal(problems('GPL-3.0', true), 1, 'nor a tool');
  assert.equal(isAllowed('MIT', new Set()), false);
});

interface Bom {
  readonly bomFormat: string;
  readonly specVersion: string;
  readonly serialNumber: string;
  readonly components: readonly {
    readonly 'bom-ref': string;
    readonly purl: string;
    readonly name: string;
    readonly version: string;
    readonly hashes?: readonly { readonly content: string }[];
    readonly licenses: readonly { readonly expression: string }[];
  }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

test('the bill of materials lists all that is shipped and no tool, with hashes, and nothing refers to nowhere', () => {
  const bom = sbom(lock) as Bom;
  assert.deepEqual([bom.bomFormat, bom.specVersion], ['CycloneDX', '1.6']);
  assert.match(
    bom.serialNumber,
    /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  const names = new Set(bom.components.map(({ name }) => name));
  // Each dependency that a published package names is in it, whatever the lock file calls it.
  for (const folder of [
    '.',
    'packages/contract',
    'packages/runtime',
    'packages/partner',
    'packages/platform',
    'packages/web',
    'packages/conformance',
  ]) {
    const { dependencies = {} } = JSON.parse(
      readFileSync(join(root, folder, 'package.json'), 'utf8'),
    ) as { dependencies?: Record<string, string> };
    for (const name of Object.keys(dependencies))
      assert.ok(names.has(name), `${name} of ${folder}`);
  }
  for (const tool of ['typescript', 'prettier', 'playwright-core', 'axe-core'])
    assert.ok(!names.has(tool), tool);
  for (const { name, purl, version, hashes, licenses } of bom.components) {
    assert.match(purl, /^pkg:npm\/(%40[\w.-]+\/)?[\w.-]+@\d/, name);
    assert.ok(version && licenses[0]?.expression);
    if (!name.startsWith('@duebridge/'))
      assert.match(hashes?.[0]?.content ?? '', /^[0-9a-f]{128}$/, name);
  }
  const refs = new Set([...bom.components.map((one) => one['bom-ref']), bom.dependencies[0]?.ref]);
  assert.equal(refs.size, bom.components.length + 1, 'each reference once');
  for (const { ref, dependsOn } of bom.dependencies) {
    for (const one of [ref, ...dependsOn]) assert.ok(refs.has(one), `${ref} needs ${one}`);
  }
  const pg = bom.dependencies.find(({ ref }) => ref.startsWith('pkg:npm/pg@'));
  assert.ok(pg?.dependsOn.some((one) => one.startsWith('pkg:npm/pg-pool@')));
  assert.deepEqual(sbom(lock), bom, 'the same lock file gives the same document');
});

test('an audit that could not be made does not count as clean', () => {
  assert.equal(judgeAudit('{"auditReportVersion":2,"vulnerabilities":{}}').code, 0);
  const found = judgeAudit(
    '{"auditReportVersion":2,"vulnerabilities":{"pg":{"severity":"high","range":"<8.23.2"}}}',
  );
  assert.deepEqual([found.code, /pg <8\.23\.2 .*high/.test(found.said)], [1, true]);
  for (const said of [
    '{"message":"405 Method Not Allowed"}',
    '',
    'npm error network',
    '{"error":{}}',
  ]) {
    const judged = judgeAudit(said);
    assert.equal(judged.code, 2);
    assert.match(judged.said, /nothing was audited/);
  }
});

test('a release runs the gate and the audit, and carries its bill of materials', () => {
  const workflow = readFileSync(join(root, '.github/workflows/publish.yml'), 'utf8');
  const at = (text: string): number => workflow.indexOf(text);
  for (const step of [
    'supply-chain.ts licences',
    'supply-chain.ts audit',
    'supply-chain.ts sbom',
  ]) {
    assert.ok(at(step) > 0 && at(step) < at('gh release create'), step);
  }
  assert.match(workflow, /gh release create [^\n]* "\$RUNNER_TEMP\/duebridge\.cdx\.json"/);
});
