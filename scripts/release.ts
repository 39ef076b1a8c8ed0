/**
 * A release, step by step. The packages move together: one version in every manifest, one section in CHANGELOG.md.
 *
 *   node scripts/release.ts set 0.2.0     write the version everywhere, give the unreleased notes its name, and keep what later
 *                                         versions are tested with: the browser files of this release, which stay served
 *                                         (decision 87), and its tables with payments in flight (test/upgrade)
 *   node scripts/release.ts notes 0.2.0   check that every package says 0.2.0, and print its notes
 *
 * A person runs `set`, commits and pushes the tag v0.2.0; .github/workflows/publish.yml does the rest.
 */
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A version as semver.org defines it, without build metadata, which npm ignores. */
const VERSION = /^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/;

/** Files that name our version, as that of one of our packages or of one that it needs; and the places in them. */
const FILES = [
  'package.json',
  'packages/*/package.json',
  'package-lock.json',
  'deploy/kubernetes/kustomization.yaml',
];
const PLACES = [
  /^( {2}"version": ")([^"]+)/gm,
  /^( +"@duebridge\/\w+": ")(\d[^"]*)/gm,
  /^( {4}"(?:|packages\/\w+)": \{\n(?: {6}"name": .*\n)? {6}"version": ")([^"]+)/gm,
  /^( +newTag: )(.*)$/gm,
];

/**
 * Sets the version of every package and moves the unreleased notes of CHANGELOG.md into a section of that name. Throws when there
 * is nothing to release.
 */
export function setVersion(root: string, version: string, day: string): void {
  if (!VERSION.test(version)) throw new Error(`"${version}" is no version; write it as 1.2.3`);
  const changelog = join(root, 'CHANGELOG.md');
  const text = readFileSync(changelog, 'utf8');
  if (section(text, 'Unreleased') === '') {
    throw new Error(
      'CHANGELOG.md has nothing under [Unreleased]; write what changes, then release',
    );
  }
  const heading = `## [Unreleased]\n\n## [${version}] - ${day}\n`;
  writeFileSync(changelog, text.replace('## [Unreleased]\n', heading));
  for (const file of globSync(FILES, { cwd: root })) {
    const before = readFileSync(join(root, file), 'utf8');
    const after = PLACES.reduce((said, place) => said.replace(place, `$1${version}`), before);
    writeFileSync(join(root, file), after);
  }
}

/** The notes of a version. Throws when a file names another version or CHANGELOG.md has no section for it. */
export function notes(root: string, version: string): string {
  for (const file of globSync(FILES, { cwd: root })) {
    const text = readFileSync(join(root, file), 'utf8');
    const found = PLACES.flatMap((place) => [...text.matchAll(place)]);
    if (found.every((match) => match[2] === version)) continue;
    throw new Error(
      `${file} does not say ${version} everywhere; node scripts/release.ts set writes it`,
    );
  }
  const found = section(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'), version);
  if (!found) throw new Error(`CHANGELOG.md has no notes for ${version}`);
  return found;
}

/** The text below a version's heading; undefined when there is no such heading. */
function section(changelog: string, version: string): string | undefined {
  const part = changelog.split(/^## /m).find((text) => text.startsWith(`[${version}]`));
  return part?.slice(part.indexOf('\n')).trim();
}

if (import.meta.main) {
  const root = join(import.meta.dirname, '..');
  const [, , action, version = ''] = process.argv;
  try {
    if (action === 'set') {
      setVersion(root, version, new Date().toISOString().slice(0, 10));
      // Loaded now: it reads the version that was just written. Its files go into the same commit (decision 87).
      const { release } = await import('../packages/web/build.ts');
      await release();
      const recording = [join(root, 'test/upgrade/record.ts'), `test/upgrade/${version}.json`];
      execFileSync(process.execPath, recording, { cwd: root });
    } else if (action === 'notes') console.log(notes(root, version));
    else throw new Error('say what to do: set VERSION or notes VERSION');
  } catch (error) {
    console.error(`release: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  }
}
