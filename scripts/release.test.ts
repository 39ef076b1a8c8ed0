/** A release uses one version everywhere, takes its notes from the changelog, and is refused when the two disagree. */
import assert from 'node:assert/strict';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { packages } from './build.ts';
import { notes, setVersion } from './release.ts';

const root = join(import.meta.dirname, '..');

const COPIED = [
  'package.json',
  'package-lock.json',
  'packages/*/package.json',
  'CHANGELOG.md',
  'deploy/kubernetes/kustomization.yaml',
];

/** Copies of the repository's manifests and changelog, in a folder of the test. */
function copy(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-release-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  for (const file of globSync(COPIED, { cwd: root })) {
    cpSync(join(root, file), join(folder, file));
  }
  // Right after a release there is nothing to release.
  const changelog = join(folder, 'CHANGELOG.md');
  const text = readFileSync(changelog, 'utf8');
  const note = '## [Unreleased]\n\n### Added\n\n- Something for users.\n\n## [';
  writeFileSync(changelog, text.replace(/## \[Unreleased\]\s+## \[/, note));
  return folder;
}

test('a release gives every package its version and the unreleased notes its name', (t) => {
  const folder = copy(t);
  const unreleased = readFileSync(join(folder, 'CHANGELOG.md'), 'utf8').split('## [Unreleased]')[1];
  setVersion(folder, '7.8.9', '2027-01-02');
  assert.ok(unreleased?.trim().startsWith(notes(folder, '7.8.9').slice(0, 200)));
  assert.match(
    readFileSync(join(folder, 'CHANGELOG.md'), 'utf8'),
    /^## \[7\.8\.9\] - 2027-01-02$/m,
  );
  const partner = readFileSync(join(folder, 'packages/partner/package.json'), 'utf8');
  assert.match(partner, /"@duebridge\/runtime": "7\.8\.9"/);
  const lock = readFileSync(join(folder, 'package-lock.json'), 'utf8');
  const { packages } = JSON.parse(lock) as { packages: Record<string, { version?: string }> };
  assert.equal(packages['']?.version, '7.8.9');
  assert.equal(packages['packages/partner']?.version, '7.8.9');
  assert.doesNotMatch(lock, /"@duebridge\/\w+": "(?!7\.8\.9")/);
  const kustomization = readFileSync(join(folder, 'deploy/kubernetes/kustomization.yaml'), 'utf8');
  assert.match(kustomization, /newTag: 7\.8\.9$/m);
  assert.throws(() => setVersion(folder, '7.9.0', '2027-01-03'), /nothing under \[Unreleased\]/);
});

test('a tag whose version is missing from the packages or the changelog publishes nothing', (t) => {
  const folder = copy(t);
  assert.throws(() => notes(folder, '7.8.9'), /does not say 7\.8\.9/);
  setVersion(folder, '7.8.9', '2027-01-02');
  assert.throws(() => notes(folder, '7.9.0'), /does not say 7\.9\.0/);
  assert.throws(() => setVersion(folder, 'v8', '2027-01-02'), /no version/);
});

test('every package is published after the packages that it depends on', () => {
  const order = packages().map(({ manifest }) => manifest);
  const names = order.map(({ name }) => name);
  assert.equal(
    names.length,
    globSync(['package.json', 'packages/*/package.json'], { cwd: root }).length,
  );
  for (const { name, dependencies = {} } of order) {
    for (const needed of Object.keys(dependencies).filter((one) => names.includes(one))) {
      assert.ok(names.indexOf(needed) < names.indexOf(name), `${needed} before ${name}`);
    }
  }
});
