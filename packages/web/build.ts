/**
 * Builds what browsers get into `dist` (README.md describes the layout) and fails when a file exceeds its size limit. Needs only
 * the npm install. It runs on every install, so it is quick and quiet.
 *
 *   node packages/web/build.ts [folder]
 *   node packages/web/build.ts --release     keeps the built files for as long as partners may pin them (decision 87)
 */
import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { build, type Rolldown } from 'vite';
import { testPrograms } from '../../scripts/tool.ts';
import { WORDS } from './src/flow/words.ts';

/** Limits in bytes, gzip level 9: the most that a phone on a slow connection should download. */
export const SIZE_LIMITS = {
  sdk: 3400,
  /** As it is installed, not minified: a partner's own build does that. */
  react: 1200,
  /** What comes before the bill: the page's script and the inline one before it, compressed each by itself. */
  flow_js: 20_000,
  flow_css: 3000,
  /** The words of each language, loaded on demand. */
  words: 4000,
  /** The frame of a funding method, without what it loads from the processor. */
  fund: 2000,
  /** The page itself, with its style and the script of its first bytes: all comes with the first answer. */
  flow_html: 5400,
  /** The operator console's script and style. */
  console: 30_000,
} as const;

/** One released version: the SDK that pages may pin, and the files of the page that was released with it. */
export interface Release {
  readonly version: string;
  readonly released_at: string;
  /** The SDK's file, which a page may load from elsewhere, with its integrity. */
  readonly sdk: { readonly file: string; readonly sri: string };
  readonly flow: { readonly assets: readonly string[] };
}

/** `dist/manifest.json`: what the platform serves. */
export type Manifest = Awaited<ReturnType<typeof buildWeb>>;

/** A built file. */
interface Built {
  readonly name: string;
  readonly text: string;
}

const here = import.meta.dirname;
const { version } = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8')) as {
  version: string;
};

/**
 * Builds into a folder, which it replaces as a whole. `as`: the version that the files are named by, for a test that needs an earlier
 * one. Throws RangeError when a file is too large.
 */
export async function buildWeb(
  folder = join(here, 'dist'),
  released = join(here, 'released'),
  as = version,
) {
  const words = Object.entries(WORDS).map(([tag, catalogue]) => {
    const text = JSON.stringify(catalogue);
    return { tag, name: `words-${tag}-${hash('sha256', text, 'hex').slice(0, 8)}.json`, text };
  });
  const define = {
    DUEBRIDGE_VERSION: JSON.stringify(as),
    PAGE_WORDS: JSON.stringify(Object.fromEntries(words.map(({ tag, name }) => [tag, name]))),
  };
  /** Bundles one entry into one script, and a style sheet where it has one. */
  const one = async (path: string, name: string, format: 'iife' | 'es' = 'iife') => {
    const built = await bundle({ path }, { define, format, name });
    const [js, ...more] = built.filter((file) => file.name.endsWith('.js'));
    // Another would be missing where the first is loaded.
    if (js === undefined || more.length > 0)
      throw new Error(`${path} became ${built.map((file) => file.name).join(', ')}`);
    return { js, css: built.find((file) => file !== js) ?? { name: '', text: '' } };
  };
  const [sdk, first, fund, page, operators, modules] = await Promise.all([
    one('src/embed/script.ts', `duebridge-${as}-[hash].js`),
    one('src/flow/first.ts', 'first.js'),
    one('src/fund/stripe.ts', 'stripe.js'),
    one('src/flow/main.tsx', 'flow-[hash].js', 'es'),
    one('src/console/main.tsx', 'console-[hash].js', 'es'),
    bundle(
      {
        embed: 'src/embed/index.ts',
        react: 'src/embed/react.tsx',
        testing: 'src/embed/testing.ts',
      },
      { define, format: 'es', name: '[name].js', minify: false },
    ),
  ]);
  const style = page.css.text;
  const html = fill('src/flow/flow.html', {
    CSS: style,
    FIRST_JS: first.js.text,
    JS: page.js.name,
  });
  checkSize('sdk', sdk.js.text);
  checkSize('react', ...modules.filter(({ name }) => name === 'react.js').map(({ text }) => text));
  checkSize('flow_js', first.js.text, page.js.text);
  checkSize('flow_css', style);
  checkSize('flow_html', html);
  checkSize('fund', fund.js.text);
  checkSize('console', operators.js.text, operators.css.text);
  for (const { text } of words) checkSize('words', text);

  const before = readReleases(released);
  const manifest = {
    version: as,
    sdk: { file: sdk.js.name, sri: integrity(sdk.js.text) },
    flow: {
      html: 'flow.html',
      assets: [page.js, ...words].map(({ name }) => name),
      /** What the page's policy has to name, so that its style and the script of its first bytes may run. */
      first_style: policyHash(style),
      first_script: policyHash(first.js.text),
    },
    console: { html: 'console.html', assets: [operators.js.name, operators.css.name] },
    /** Every release so far, oldest first: what a partner may have pinned, and what such an SDK may meet. */
    releases: before.releases,
  };
  const inFolder = (name: string, files: readonly Built[]): [string, string][] =>
    files.map((file) => [`${name}/${file.name}`, file.text]);
  const files = new Map([
    ...inFolder('sdk', [sdk.js]),
    ...inFolder('flow', [{ name: 'flow.html', text: html }, page.js, ...words]),
    ...inFolder('fund', [fund.js]),
    ...inFolder('console', [operators.js, operators.css]),
    [
      'console/console.html',
      fill('src/console/console.html', { CSS: operators.css.name, JS: operators.js.name }),
    ],
    // What the modules share is a file of its own, so everything goes along.
    ...inFolder('npm', modules),
    ['manifest.json', `${JSON.stringify(manifest, undefined, 2)}\n`],
    // Released files stay under the same names; a build with the same bytes changes nothing.
    ...before.files,
  ]);
  // In the target's parent folder, so that the last step is a rename and nobody sees a partial build.
  const draft = `${folder}.${process.pid}`;
  try {
    for (const [path, text] of files) {
      mkdirSync(dirname(join(draft, path)), { recursive: true });
      writeFileSync(join(draft, path), text);
    }
    rmSync(folder, { recursive: true, force: true });
    renameSync(draft, folder);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return manifest;
}

/** A page with its placeholders filled in. */
function fill(path: string, values: Readonly<Record<string, string>>): string {
  const html = readFileSync(join(here, path), 'utf8').replaceAll(/\n\s*/g, '\n');
  return Object.entries(values).reduce(
    // What is inlined stands on a line of its own, in the form that the formatter gives it.
    (text, [name, value]) => text.replace(new RegExp(`\n__${name}__;?\n|__${name}__`), () => value),
    html,
  );
}

/** Features.LightDark of lightningcss, which writes variables for light-dark() wherever there is a color-scheme: the page has none. */
const LIGHT_DARK = 1 << 20;

/** Bundles entries. `name`: of their files; one with a hash of the content never changes at its URL. */
async function bundle(
  input: Readonly<Record<string, string>>,
  how: {
    readonly define: Readonly<Record<string, string>>;
    readonly name: string;
    readonly format: 'iife' | 'es';
    readonly minify?: false;
  },
): Promise<Built[]> {
  const { define, name, format, minify = true } = how;
  const { output } = (await build({
    configFile: false,
    envDir: false,
    root: here,
    base: './',
    logLevel: 'error',
    publicDir: false,
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    define,
    css: { lightningcss: { exclude: LIGHT_DARK } },
    build: {
      write: false,
      // Supported by every browser of the last three years, and smaller than code for older ones.
      target: 'es2022',
      minify,
      modulePreload: false,
      cssCodeSplit: false,
      reportCompressedSize: false,
      rolldownOptions: {
        input: Object.fromEntries(
          Object.entries(input).map(([entry, path]) => [entry, join(here, path)]),
        ),
        external: [/^react(\/|$)/],
        preserveEntrySignatures: 'exports-only',
        output: {
          format,
          entryFileNames: name,
          chunkFileNames: name,
          assetFileNames: '[name]-[hash][extname]',
        },
      },
    },
  })) as Rolldown.RolldownOutput;
  return output.map((item) => ({
    name: item.fileName,
    text: item.type === 'chunk' ? item.code.trim() : String(item.source).trim(),
  }));
}

const integrity = (text: string): string => `sha384-${hash('sha384', text, 'base64')}`;
const policyHash = (text: string): string => `sha256-${hash('sha256', text, 'base64')}`;

/**
 * The gzip size of files that are each downloaded by itself. Throws RangeError where it is over the limit.
 */
export function checkSize(name: keyof typeof SIZE_LIMITS, ...texts: readonly string[]): number {
  const size = texts.reduce((sum, text) => sum + gzipSync(text, { level: 9 }).length, 0);
  if (size > SIZE_LIMITS[name])
    throw new RangeError(`${name} has ${size} bytes of gzip, may have ${SIZE_LIMITS[name]}`);
  return size;
}

/** What was released before, from `released/`: one folder a version with `sdk/` and `flow/`, and `releases.json` over them. */
function readReleases(released: string): { releases: Release[]; files: [string, string][] } {
  const table = join(released, 'releases.json');
  const releases = existsSync(table) ? (JSON.parse(readFileSync(table, 'utf8')) as Release[]) : [];
  const files = releases.flatMap((release) => {
    const read = (path: string): [string, string] => [
      path,
      readFileSync(join(released, release.version, path), 'utf8'),
    ];
    const { file, sri } = release.sdk;
    if (integrity(read(`sdk/${file}`)[1]) !== sri)
      throw new Error(
        `released/${release.version}/sdk/${file} is not what was released: restore it`,
      );
    return pathsOf(release).map(read);
  });
  return { releases, files };
}

/** The files of a version that must stay as they are. */
const pathsOf = ({ sdk, flow }: Pick<Release, 'sdk' | 'flow'>): string[] => [
  `sdk/${sdk.file}`,
  ...flow.assets.map((name) => `flow/${name}`),
];

/**
 * Keeps the current build as a release: copies the files that pages may pin into `released/<version>/` and adds them to the
 * table. Throws when the version was already released with other bytes, because it then needs a new number.
 */
export async function release({
  dist = join(here, 'dist'),
  released = join(here, 'released'),
  as = version,
  now = new Date(),
} = {}): Promise<Release> {
  const { sdk, flow, releases } = await buildWeb(dist, released, as);
  const paths = pathsOf({ sdk, flow });
  const known = releases.find((one) => one.version === as);
  if (known !== undefined) {
    // Names contain a hash of the content.
    if (paths.join() === pathsOf(known).join()) return known;
    throw new Error(`version ${as} is released with other bytes: raise the version first`);
  }
  for (const path of paths) {
    mkdirSync(dirname(join(released, as, path)), { recursive: true });
    copyFileSync(join(dist, path), join(released, as, path));
  }
  const made = { version: as, released_at: now.toISOString(), sdk, flow: { assets: flow.assets } };
  const table = `${JSON.stringify([...releases, made], undefined, 2)}\n`;
  writeFileSync(join(released, 'releases.json'), table);
  return made;
}

/** Writes the declarations of what partners import (`dist/npm`) into a folder. Rejects when they do not compile. */
export async function buildTypes(folder: string): Promise<void> {
  const project = ['-p', join(here, 'tsconfig.types.json'), '--outDir', folder];
  await promisify(execFile)('tsc', project, { env: await testPrograms('build') });
}

if (import.meta.main) {
  const [, , folder] = process.argv;
  if (folder === '--release') {
    const { version: of, sdk } = await release();
    console.log(`released ${of}: ${sdk.file} ${sdk.sri}`);
  } else await buildWeb(folder);
}
