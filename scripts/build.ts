/**
 * Builds the packages to publish: each gets a folder below `dist/packages`, with JavaScript, declarations, maps and the files
 * that the code reads, and with the manifest that an installed package needs (decision 27).
 *
 *   npm run build                      writes dist/packages
 *   npm run build -- --pack FOLDER     also packs each into a tarball in FOLDER
 *   npm run pack                       the same into dist/tarballs: npm install dist/tarballs/*.tgz, until the packages are published
 *
 * The workspace itself runs from source: its `exports` name `.ts` files, which Node runs directly in a workspace but refuses
 * below node_modules. A published package has the same folders with JavaScript in them, so its manifest is ours with .js for .ts, and nobody
 * needs a custom condition.
 */
import { execFile } from 'node:child_process';
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';
import { buildTypes, buildWeb } from '../packages/web/build.ts';
import { testPrograms } from './tool.ts';
import { readWords } from './words.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');

/** The oldest supported Node: the minimum that undici 8 requires. Its tests run there too (test/consumers). */
const TARGET = 'es2023';

/** An entry that exists for our own tests only. */
const INTERNAL_EXPORT = './testing';

/** Files that the code reads at run time, as globs; those of the browser were built by the web's own build. */
const ASSETS = [
  'src/migrations/*.sql',
  'bin/package.json',
  'demo/accounts.csv',
  'demo/site/*.{js,css,html}',
];
const WEB = 'packages/web';

/** Fields of a package.json that a published one has too. */
const KEPT = [
  'name',
  'version',
  'description',
  'keywords',
  'license',
  'type',
  'bin',
  'peerDependencies',
  'peerDependenciesMeta',
] as const;

/** The fields of a package.json that this script reads itself. */
interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly engines?: Readonly<Record<string, string>>;
  readonly bin?: Readonly<Record<string, string>>;
  readonly exports: Readonly<Record<string, unknown>>;
  readonly dependencies?: Readonly<Record<string, string>>;
}

/** One folder that becomes a package. */
interface Package {
  readonly manifest: Manifest;
  /** The folder in the repository, relative to its root. */
  readonly folder: string;
}

/** Every package in the order in which they depend on each other, in which they are published; the command comes last. */
export function packages(): Package[] {
  const names = ['contract', 'runtime', 'web', 'conformance', 'partner', 'platform'];
  return [...names.map((name) => `packages/${name}`), '.'].map((folder) => {
    const manifest = JSON.parse(
      readFileSync(join(root, folder, 'package.json'), 'utf8'),
    ) as Manifest;
    const exports = Object.entries(manifest.exports).filter(([name]) => name !== INTERNAL_EXPORT);
    return { manifest: { ...manifest, exports: Object.fromEntries(exports) }, folder };
  });
}

/**
 * Builds every package into `folder`, which it replaces, and returns the folder of each. `web: false` uses the browser files of
 * the last web build. Throws when types do not check.
 */
export async function buildPackages(
  folder = join(root, 'dist/packages'),
  { web = true }: { web?: boolean } = {},
): Promise<string[]> {
  const all = packages();
  rmSync(folder, { recursive: true, force: true });
  const emitted = `${folder}.emitted`;
  try {
    if (web) await buildWeb();
    await compile(all, emitted);
    const staged = all.map((one) => stage(one, emitted, join(folder, one.manifest.name)));
    await buildTypes(join(folder, '@duebridge/web/dist/npm/types'));
    for (const file of globSync('**/*.d.ts', { cwd: folder })) importJavaScript(join(folder, file));
    return staged;
  } finally {
    rmSync(emitted, { recursive: true, force: true });
  }
}

/** The source files that a manifest names, by the import that finds them. Only files that they reach are built, so no test is. */
function entries({ manifest, folder }: Package): [string, string][] {
  const named = [...Object.entries(manifest.exports), ...Object.entries(manifest.bin ?? {})];
  return named.flatMap(([name, target]) =>
    typeof target === 'string' && target.endsWith('.ts')
      ? [[join(manifest.name, name), join(root, folder, target)]]
      : [],
  );
}

async function compile(all: readonly Package[], outDir: string): Promise<void> {
  mkdirSync(outDir, { recursive: true });
  const project = join(outDir, 'tsconfig.json');
  const sources = all.flatMap(entries);
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
    paths: Object.fromEntries(sources.map(([name, file]) => [name, [file]])),
  };
  const files = sources.map(([, file]) => file);
  const config = { extends: join(root, 'tsconfig.json'), compilerOptions, files, include: [] };
  writeFileSync(project, JSON.stringify(config));
  try {
    await run('tsc', ['-p', project], { cwd: root, env: await testPrograms('build') });
  } catch (error) {
    const output =
      error instanceof Error && 'stdout' in error ? String(error.stdout) : String(error);
    throw new Error(`The packages do not compile:\n${output}`, { cause: error });
  }
}

/** Writes one package's folder: built files, assets, manifest, licence, notes. */
function stage({ manifest, folder }: Package, emitted: string, target: string): string {
  for (const source of folder === '.' ? ['bin', 'cli', 'demo'] : ['src']) {
    const from = join(emitted, folder, source);
    if (existsSync(from)) cpSync(from, join(target, source), { recursive: true });
  }
  const cwd = join(root, folder);
  for (const file of globSync(folder === WEB ? ['dist/*'] : ASSETS, { cwd })) {
    cpSync(join(cwd, file), join(target, file), { recursive: true });
  }
  cpSync(join(cwd, 'README.md'), join(target, 'README.md'));
  for (const file of ['LICENSE', 'CHANGELOG.md']) cpSync(join(root, file), join(target, file));
  // Declarations keep their names.
  const text = JSON.stringify(published(manifest), undefined, 2).replaceAll(
    /(?<!\.d)\.ts"/g,
    '.js"',
  );
  writeFileSync(join(target, 'package.json'), `${text}\n`);
  return target;
}

/** TypeScript leaves `.ts` in the imports of declarations, but consumers do not have those files. */
function importJavaScript(file: string): void {
  const imported = /((?:from|import)\s*\(?\s*["']\.{1,2}\/[^"']+)\.ts(["'])/g;
  writeFileSync(file, readFileSync(file, 'utf8').replaceAll(imported, '$1.js$2'));
}

/** The manifest of the installed package, still with the names of our source files. */
function published(manifest: Manifest): object {
  const { name, version, exports, dependencies = {} } = manifest;
  // All that was staged.
  const files = { [name]: ['src'], '@duebridge/web': ['dist'], duebridge: ['bin', 'cli', 'demo'] };
  const repository = process.env['GITHUB_REPOSITORY'];
  const own = manifest as unknown as Readonly<Record<string, unknown>>;
  // Our packages require each other's exact version; other dependencies get ranges, so that a fix does not wait for our release.
  const ranges = Object.entries(dependencies).map(([needed, exact]) => {
    return [needed, needed.startsWith('@duebridge/') ? version : `^${exact}`];
  });
  return {
    ...Object.fromEntries(KEPT.map((field) => [field, own[field]])),
    // Provenance names the repository that built a package; the workflow that publishes knows it.
    ...(repository === undefined
      ? {}
      : { repository: { type: 'git', url: `git+https://github.com/${repository}.git` } }),
    engines: name === 'duebridge' ? packages()[0]?.manifest.engines : manifest.engines,
    // TypeScript with `"module": "commonjs"` and no `moduleResolution` reads `main` and not `exports`.
    ...('.' in exports ? { main: exports['.'] } : {}),
    exports,
    // A bundler keeps the refusal of an older Node, which is imported for what it does.
    sideEffects: name === '@duebridge/contract' ? ['./src/supported-node.js'] : false,
    dependencies: Object.fromEntries(ranges) as object,
    files: [...(files[name] ?? []), 'CHANGELOG.md'],
    publishConfig: { access: 'public', provenance: true },
  };
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
