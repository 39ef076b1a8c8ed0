/**
 * A release, step by step. The packages move together: one version in every manifest, one section in CHANGELOG.md.
 *
 *   node scripts/release.ts set 0.2.0     write the version everywhere, give the unreleased notes its name, and keep what later
 *                                         versions are tested with: the browser files of this release, which stay served
 *                                         (decision 87), and its tables with payments in flight (test/upgrade)
 *   node scripts/release.ts notes 0.2.0   check that everything says 0.2.0, and print its notes
 *   node scripts/release.ts folders       the built folders, in the order in which they are published
 *
 * A person runs `set`, commits and pushes the tag v0.2.0; .github/workflows/publish.yml does the rest.
 */
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A version as semver.org defines it, without build metadata, which npm ignores. */
const VERSION = /^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/;

/** In the order in which they depend on each other, so that a package never appears before what it needs. */
export const PUBLISHED = [
  '@duebridge/contract',
  '@duebridge/runtime',
  '@duebridge/web',
  '@duebridge/conformance',
  '@duebridge/partner',
  '@duebridge/platform',
  'duebridge',
] as const;

/** Files that name our version: manifests and the lock file as JSON, where each is the version of one of ours, or of one that it needs. */
const MANIFESTS = ['package.json', 'packages/*/package.json'];
const OWN_VERSION = /^( {2}"version": ")[^"]+(",?)$/m;
const NEEDED_VERSION = /^( +"@duebridge\/\w+": ")\d[^"]*(",?)$/gm;
const LOCKED_VERSION =
  /^( {4}"(?:|packages\/\w+)": \{\n(?: {6}"name": .*\n)? {6}"version": ")[^"]+/gm;

/**
 * Sets the version of every package and moves the unreleased notes of CHANGELOG.md into a section of that name. Throws when there
 * is nothing to release.
 */
export function setVersion(root: string, version: string, day: string): void {
  if (!VERSION.test(version)) throw new Error(`"${version}" is no version; write it as 1.2.3`);
  const changelog = readFileSync(join(root, 'CHANGELOG.md'), 'utf8');
  if (section(changelog, 'Unreleased') === '') {
    throw new Error(
      'CHANGELOG.md has nothing under [Unreleased]; write what changes, then release',
    );
  }
  if (section(changelog, version) !== undefined) {
    throw new Error(`CHANGELOG.md has a section ${version} already`);
  }
  const rewrite = (file: string, ...changes: (readonly [RegExp | string, string])[]): void => {
    const path = join(root, file);
    const before = readFileSync(path, 'utf8');
    writeFileSync(
      path,
      changes.reduce((text, [what, by]) => text.replace(what, by), before),
    );
  };
  const own = [OWN_VERSION, `$1${version}$2`] as const;
  const needed = [NEEDED_VERSION, `$1${version}$2`] as const;
  for (const file of globSync(MANIFESTS, { cwd: root })) rewrite(file, own, needed);
  rewrite('package-lock.json', own, needed, [LOCKED_VERSION, `$1${version}`]);
  rewrite('deploy/kubernetes/kustomization.yaml', [/^( +newTag: ).*$/m, `$1${version}`]);
  const heading = `## [Unreleased]\n\n## [${version}] - ${day}\n`;
  rewrite('CHANGELOG.md', ['## [Unreleased]\n', heading]);
}

/** The notes of a version. Throws when a package has another version or CHANGELOG.md has no section for it. */
export function notes(root: string, version: string): string {
  for (const file of globSync(MANIFESTS, { cwd: root })) {
    const text = readFileSync(join(root, file), 'utf8');
    const found = [OWN_VERSION.exec(text), ...text.matchAll(NEEDED_VERSION)];
    if (found.some((match) => !match?.[0].includes(`"${version}"`))) {
      throw new Error(
        `${file} does not say ${version} everywhere; node scripts/release.ts set writes it`,
      );
    }
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
    else if (action === 'folders')
      for (const name of PUBLISHED) console.log(`dist/packages/${name}`);
    else throw new Error('say what to do: set VERSION, notes VERSION or folders');
  } catch (error) {
    console.error(`release: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  }
}
