/**
 * Builds the packages to publish: each gets a folder below `dist/packages`, with JavaScript, declarations, maps, migrations and
 * assets, and with the manifest that an installed package needs (decision 27).
 *
 *   npm run build                      writes dist/packages
 *   npm run build -- --pack FOLDER     also packs each into a tarball in FOLDER
 *   npm run pack                       the same into dist/tarballs: npm install dist/tarballs/*.tgz, until the packages are published
 *
 * The workspace itself runs from source: its `exports` name `.ts` files, which Node runs directly in a workspace but refuses
 * below node_modules. The manifests written here name the built files instead, so nobody needs a custom condition.
 */
import { execFile } from 'node:child_process';
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { promisify } from 'node:util';
import { buildTypes, buildWeb } from '../packages/web/build.ts';
import { testPrograms } from './tool.ts';
import { readWords } from './words.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');

/** The oldest supported Node: the minimum that undici 8 requires. Its tests run there too (test/consumers). */
const TARGET = 'es2023';

/** Entries that exist for our own tests only. */
const INTERNAL_EXPORTS = new Set(['./testing']);

type Target = string | { readonly [condition: string]: Target };

/** The fields of a package.json that this script reads. */
interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly engines?: Readonly<Record<string, string>>;
  readonly keywords?: readonly string[];
  readonly license: string;
  readonly bin?: Readonly<Record<string, string>>;
  readonly exports?: Readonly<Record<string, Target>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional: boolean }>>;
}

/** One folder that becomes a package. */
interface Package {
  readonly manifest: Manifest;
  /** The folder in the repository, relative to its root. */
  readonly folder: string;
  /** Its source folders; each is built into `dist` without their common prefix. */
  readonly sources: readonly string[];
  /** Files that the code reads at run time, as globs. */
  readonly assets: readonly string[];
  /** What the JavaScript folder of a source file is called: `src/a.ts` becomes `dist/a.js`. */
  readonly strip: string;
}

const readManifest = (folder: string): Manifest =>
  JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8')) as Manifest;

/** Every package in the order in which they depend on each other; the command comes last. */
function packages(): Package[] {
  const names = ['contract', 'runtime', 'web', 'conformance', 'partner', 'platform'];
  const libraries = names.map((name): Package => {
    const folder = `packages/${name}`;
    const assets = name === 'web' ? ['dist/**/*'] : ['src/migrations/*.sql'];
    return { manifest: readManifest(folder), folder, sources: ['src'], assets, strip: 'src/' };
  });
  const command: Package = {
    manifest: readManifest('.'),
    folder: '.',
    sources: ['bin', 'cli', 'demo'],
    assets: [
      'bin/package.json',
      'demo/accounts.csv',
      'demo/site/*.{js,css,html}',
      'cli/templates/**/*',
    ],
    strip: '',
  };
  return [...libraries, command];
}

/**
 * Builds every package into `folder`, which it replaces, and returns the folder of each. `web: false` uses the browser files of
 * the last web build. Throws when types do not check, when an entry was not emitted, or when the versions differ.
 */
export async function buildPackages(
  folder = join(root, 'dist/packages'),
  { web = true }: { web?: boolean } = {},
): Promise<string[]> {
  const all = packages();
  const versions = new Set(all.map(({ manifest }) => manifest.version));
  if (versions.size !== 1) {
    throw new Error(`The packages move together, but have versions ${[...versions].join(', ')}.`);
  }
  rmSync(folder, { recursive: true, force: true });
  const emitted = `${folder}.emitted`;
  try {
    if (web) await buildWeb();
    await compile(all, emitted);
    const types = join(folder, '@duebridge/web/dist/npm/types');
    await buildTypes(types);
    for (const file of globSync('**/*.d.ts', { cwd: types })) {
      const text = readFileSync(join(types, file), 'utf8');
      writeFileSync(join(types, file), imported(text, file));
    }
    return all.map((one) => stage(one, emitted, join(folder, one.manifest.name)));
  } finally {
    rmSync(emitted, { recursive: true, force: true });
  }
}

/**
 * The source files that a package's manifest names, relative to the root. Only files that they reach are built, so no test is.
 */
function entries({ manifest, folder }: Package): string[] {
  const exported = Object.entries(manifest.exports ?? {})
    .filter(([name]) => !INTERNAL_EXPORTS.has(name))
    .map(([, target]) => target);
  return [...exported, ...Object.values(manifest.bin ?? {})]
    .filter(isSource)
    .map((target) => join(folder, target));
}

/** Where TypeScript finds the imports between packages: `@duebridge/partner/main` is its source file. */
function sourcePaths(all: readonly Package[]): Record<string, string[]> {
  return Object.fromEntries(
    all.flatMap(({ manifest, folder }) =>
      Object.entries(manifest.exports ?? {})
        .filter((entry): entry is [string, string] => isSource(entry[1]))
        .map(([name, target]) => [join(manifest.name, name), [join(root, folder, target)]]),
    ),
  );
}

function isSource(target: Target): target is string {
  return typeof target === 'string' && target.endsWith('.ts');
}

async function compile(all: readonly Package[], outDir: string): Promise<void> {
  mkdirSync(outDir, { recursive: true });
  const project = join(outDir, 'tsconfig.json');
  const compilerOptions = {
    noEmit: false,
    declaration: true,
    sourceMap: true,
    // A trace and an editor show the source, which no package carries beside.
    inlineSources: true,
    rewriteRelativeImportExtensions: true,
    target: TARGET,
    rootDir: root,
    outDir,
    typeRoots: [join(root, 'node_modules/@types')],
    // TypeScript treats files found through node_modules as external and would not emit them.
    paths: sourcePaths(all),
  };
  writeFileSync(
    project,
    JSON.stringify({
      extends: join(root, 'tsconfig.json'),
      compilerOptions,
      files: all.flatMap(entries).map((file) => join(root, file)),
      include: [],
    }),
  );
  try {
    await run('tsc', ['-p', project], { cwd: root, env: await testPrograms('build') });
  } catch (error) {
    const output =
      error instanceof Error && 'stdout' in error ? String(error.stdout) : String(error);
    throw new Error(`The packages do not compile:\n${output}`, { cause: error });
  }
}

/** Writes one package's folder: built files, assets, manifest, licence, notes. */
function stage(one: Package, emitted: string, target: string): string {
  const { manifest, folder, sources, assets, strip } = one;
  for (const source of sources) {
    for (const file of globSync(join(folder, source, '**/*'), { cwd: emitted })) {
      if (!/\.(js|ts|map)$/.test(file)) continue;
      const inside = relative(folder, file).slice(strip.length);
      const to = join(target, 'dist', inside);
      mkdirSync(dirname(to), { recursive: true });
      const text = readFileSync(join(emitted, file), 'utf8');
      writeFileSync(to, imported(text, file));
    }
  }
  for (const file of globSync([...assets], { cwd: join(root, folder) })) {
    const inside = file.split(sep).join('/');
    const to = inside.startsWith('dist/') ? inside : join('dist', inside.slice(strip.length));
    if (!statSync(join(root, folder, file)).isFile()) continue;
    copy(join(root, folder, file), join(target, to));
    if (to.endsWith('.d.ts'))
      writeFileSync(join(target, to), imported(readFileSync(join(target, to), 'utf8'), to));
  }
  for (const file of ['LICENSE', 'CHANGELOG.md']) copy(join(root, file), join(target, file));
  copy(join(root, folder, 'README.md'), join(target, 'README.md'));
  writeFileSync(
    join(target, 'package.json'),
    `${JSON.stringify(published(manifest, strip), undefined, 2)}\n`,
  );
  for (const path of named(published(manifest, strip))) {
    if (!existsSync(join(target, path))) {
      throw new Error(`${manifest.name} names ${path}, which the build did not write.`);
    }
  }
  return target;
}

/** TypeScript leaves `.ts` in the imports of declarations, but consumers do not have those files. */
function imported(text: string, file: string): string {
  return file.endsWith('.d.ts')
    ? text.replaceAll(/((?:from|import)\s*\(?\s*["']\.{1,2}\/[^"']+)\.ts(["'])/g, '$1.js$2')
    : text;
}

/** The manifest of the installed package. */
function published(manifest: Manifest, strip: string) {
  const repository = process.env['GITHUB_REPOSITORY'];
  const exports = Object.entries(manifest.exports ?? {})
    .filter(([name]) => !INTERNAL_EXPORTS.has(name))
    .map(([name, target]) => [name, built(target, strip)]);
  const bin = Object.entries(manifest.bin ?? {}).map(([name, target]) => [
    name,
    `dist/${javascript(target, strip)}`,
  ]);
  return {
    name: manifest.name,
    version: manifest.version,
    description: manifest.description,
    keywords: manifest.keywords,
    license: manifest.license,
    // Provenance names the repository that built a package; the workflow that publishes knows it.
    ...(repository === undefined
      ? {}
      : { repository: { type: 'git', url: `git+https://github.com/${repository}.git` } }),
    type: 'module',
    engines:
      manifest.name === 'duebridge' ? readManifest('packages/contract').engines : manifest.engines,
    ...mainEntry(manifest, strip),
    ...(exports.length === 0 ? {} : { exports: Object.fromEntries(exports) as object }),
    ...(bin.length === 0 ? {} : { bin: Object.fromEntries(bin) as object }),
    files: ['dist', 'CHANGELOG.md'],
    // A bundler keeps the refusal of an older Node, which is imported for what it does.
    sideEffects: manifest.name === '@duebridge/contract' ? ['./dist/supported-node.js'] : false,
    dependencies: ranged(manifest.dependencies),
    peerDependencies: manifest.peerDependencies,
    peerDependenciesMeta: manifest.peerDependenciesMeta,
    publishConfig: { access: 'public', provenance: true },
  };
}

/** `main` and `types`: TypeScript with `"module": "commonjs"` and no `moduleResolution` reads these and not `exports`. */
function mainEntry({ exports = {} }: Manifest, strip: string): { main?: string; types?: string } {
  const entry = exports['.'];
  if (entry === undefined || !isSource(entry)) return {};
  const main = `./dist/${javascript(entry, strip)}`;
  return { main, types: main.replace(/\.js$/, '.d.ts') };
}

function built(target: Target, strip: string): Target {
  if (!isSource(target)) return target;
  const file = javascript(target, strip);
  return { types: `./dist/${file.replace(/\.js$/, '.d.ts')}`, default: `./dist/${file}` };
}

function javascript(target: string, strip: string): string {
  return target.replace(/^\.\//, '').slice(strip.length).replace(/\.ts$/, '.js');
}

/**
 * Our own packages require each other's exact version; other dependencies get ranges, so that a fix does not wait for our
 * release.
 */
function ranged(dependencies: Manifest['dependencies']): Record<string, string> | undefined {
  return (
    dependencies &&
    Object.fromEntries(
      Object.entries(dependencies).map(([name, version]) => [
        name,
        name.startsWith('@duebridge/') ? version : `^${version}`,
      ]),
    )
  );
}

/** Every file that a manifest names. */
function named(manifest: ReturnType<typeof published>): string[] {
  const files = (target: unknown): string[] =>
    typeof target === 'string'
      ? [target]
      : typeof target === 'object' && target !== null
        ? Object.values(target).flatMap(files)
        : [];
  return [...files(manifest.exports), ...files(manifest.bin)];
}

function copy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, to);
}

/** Packs staged folders into tarballs in `folder`; returns their paths. */
export async function pack(staged: readonly string[], folder: string): Promise<string[]> {
  mkdirSync(folder, { recursive: true });
  const { stdout } = await run(
    'npm',
    ['pack', '--json', '--ignore-scripts', '--pack-destination', folder, ...staged],
    { cwd: root, maxBuffer: 16 * 1024 * 1024 },
  );
  const packed = JSON.parse(stdout) as { filename: string }[];
  return packed.map(({ filename }) => join(folder, filename));
}

const HELP = `Usage:
  npm run build                    builds the packages to publish into dist/packages
  npm run build -- --pack FOLDER   also packs each into a tarball in FOLDER

Exit codes: 0 done, 1 failed, 3 wrong arguments.`;

if (import.meta.main) {
  const { values } = readWords('build', HELP, { options: { pack: { type: 'string' } } });
  const { pack: folder } = values;
  const staged = await buildPackages();
  const made = folder === undefined ? staged : await pack(staged, folder);
  for (const path of made) console.log(relative('.', path));
}
