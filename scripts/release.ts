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
import { execFile } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';

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

interface Versioned {
  version: string;
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
}

interface Manifest extends Versioned {
  name: string;
}

/** Writes the version of one of our packages, and of those of ours that it needs. */
function stamp(manifest: Versioned, version: string): void {
  manifest.version = version;
  for (const group of [manifest.dependencies, manifest.devDependencies]) {
    for (const name of Object.keys(group ?? {})) {
      if (group !== undefined && name.startsWith('@duebridge/')) group[name] = version;
    }
  }
}

function manifests(root: string): [file: string, manifest: Manifest][] {
  return globSync(['package.json', 'packages/*/package.json'], { cwd: root }).map((file) => [
    join(root, file),
    JSON.parse(readFileSync(join(root, file), 'utf8')) as Manifest,
  ]);
}

/**
 * Sets the version of every package and moves the unreleased notes of CHANGELOG.md into a section of that name. Throws when there
 * is nothing to release.
 */
export function setVersion(root: string, version: string, day: string): void {
  if (!VERSION.test(version)) throw new Error(`"${version}" is no version; write it as 1.2.3`);
  const file = join(root, 'CHANGELOG.md');
  const changelog = readFileSync(file, 'utf8');
  if (section(changelog, 'Unreleased') === '') {
    throw new Error(
      'CHANGELOG.md has nothing under [Unreleased]; write what changes, then release',
    );
  }
  if (section(changelog, version) !== undefined) {
    throw new Error(`CHANGELOG.md has a section ${version} already`);
  }
  const folders = manifests(root).map(([path, manifest]) => {
    stamp(manifest, version);
    writeFileSync(path, `${JSON.stringify(manifest, undefined, 2)}\n`);
    return relative(root, dirname(path));
  });
  const lockFile = join(root, 'package-lock.json');
  const lock = JSON.parse(readFileSync(lockFile, 'utf8')) as Manifest & {
    packages: Record<string, Versioned>;
  };
  lock.version = version;
  for (const folder of folders) {
    const locked = lock.packages[folder];
    if (locked === undefined) throw new Error(`package-lock.json lacks ${folder}; run npm install`);
    stamp(locked, version);
  }
  writeFileSync(lockFile, `${JSON.stringify(lock, undefined, 2)}\n`);
  const images = join(root, 'deploy/kubernetes/kustomization.yaml');
  const tags = readFileSync(images, 'utf8').replace(/^( +newTag: ).*$/m, `$1${version}`);
  writeFileSync(images, tags);
  const heading = `## [Unreleased]\n\n## [${version}] - ${day}\n`;
  writeFileSync(file, changelog.replace('## [Unreleased]\n', heading));
}

/** The notes of a version. Throws when a package has another version or CHANGELOG.md has no section for it. */
export function notes(root: string, version: string): string {
  for (const [path, manifest] of manifests(root)) {
    const used = Object.entries({ ...manifest.dependencies, ...manifest.devDependencies })
      .filter(([name]) => name.startsWith('@duebridge/'))
      .map(([, wanted]) => wanted);
    if ([manifest.version, ...used].some((one) => one !== version)) {
      throw new Error(
        `${path} does not say ${version} everywhere; node scripts/release.ts set writes it`,
      );
    }
  }
  const found = section(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'), version);
  if (found === undefined || found === '') {
    throw new Error(`CHANGELOG.md has no notes for ${version}`);
  }
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
      await promisify(execFile)(process.execPath, recording, { cwd: root });
    } else if (action === 'notes') console.log(notes(root, version));
    else if (action === 'folders')
      for (const name of PUBLISHED) console.log(`dist/packages/${name}`);
    else throw new Error('say what to do: set VERSION, notes VERSION or folders');
  } catch (error) {
    console.error(`release: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  }
}
