/**
 * Builds what browsers get into `dist` (README.md describes the layout) and fails when a file exceeds its size limit. Needs only
 * the npm install. It runs on every install, so it is quick and quiet.
 *
 *   node packages/web/build.ts [folder]
 *   node packages/web/build.ts --release     keeps the built files for as long as partners may pin them (decision 87)
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { TEST_AMOUNTS } from '@duebridge/contract';
import { build, type InlineConfig, type Plugin, type Rolldown } from 'vite';
import { testPrograms } from '../../scripts/tool.ts';
import { errorsPage } from './errors-page.ts';
import { en } from './src/flow/words/en.ts';
import { es } from './src/flow/words/es.ts';
import { fr } from './src/flow/words/fr.ts';
import { pt } from './src/flow/words/pt.ts';

/** Limits in bytes, gzip level 9: the most that a phone on a slow connection should download. */
export const SIZE_LIMITS = {
  sdk: 3100,
  /** The redirect alone: who uses it needs nothing else. */
  redirect: 1200,
  react: 800,
  /** What comes before the bill: the page's script and the inline one before it, compressed each by itself. */
  flow_js: 20_000,
  flow_css: 3000,
  /** Each part that is loaded later: the last screens in every visit, the others in few (decision 194). */
  flow_part: 3150,
  /** The words of each language, loaded on demand. */
  words: 4000,
  /** The frame of a funding method, without what it loads from the processor. */
  fund: 2000,
  /** The page itself, with its style and the script of its first bytes: all comes with the first answer. */
  flow_html: 5000,
  /** All of the operator console's first load: page, script and style. */
  console: 60_000,
} as const;

/** The parts of the page that are loaded after the bill or never, by name. */
const FLOW_PARTS = ['developer', 'funding', 'outcome'];

/** `dist/manifest.json`: what the platform serves. */
export interface Manifest {
  readonly version: string;
  readonly sdk: {
    file: string;
    sri: string;
    bytes: number;
    gzip_bytes: number;
    redirect: { file: string; sri: string; gzip_bytes: number };
  };
  readonly flow: {
    html: string;
    assets: readonly string[];
    /** What the page's policy has to name, so that its style and the script of its first bytes may run. */
    first_style: string;
    first_script: string;
  };
  readonly console: { html: string; assets: readonly string[]; gzip_bytes: number };
  /** What each error of the SDK means, with what the page's policy has to name. */
  readonly errors: { html: string; style: string };
  /** Every release so far, oldest first: what a partner may have pinned, and what such an SDK may meet. */
  readonly releases: readonly Release[];
}

/** One released version: the SDK that pages may pin, and the files of the page that was released with it. */
export interface Release {
  readonly version: string;
  readonly released_at: string;
  readonly sdk: {
    readonly file: string;
    readonly sri: string;
    /** Absent from versions before there was one. */
    readonly redirect?: { readonly file: string; readonly sri: string };
  };
  readonly flow: { readonly assets: readonly string[] };
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
): Promise<Manifest> {
  // In the target's parent folder, so that the last step is a rename and nobody sees a partial build.
  const draft = `${folder}.${process.pid}`;
  const words = Object.entries({ en, es, fr, pt }).map(([tag, catalogue]) => {
    const text = JSON.stringify(catalogue);
    return { tag, name: `words-${tag}-${hash(text)}.json`, text };
  });
  const wordFiles = Object.fromEntries(words.map(({ tag, name }) => [tag, name]));
  try {
    const [script, redirectScript, page, operators, modules, react, smallReact, firstJs, stripe] =
      await Promise.all([
        bundle(as, { script: 'src/embed/script.ts' }, 'iife', true),
        bundle(as, { redirect: 'src/embed/redirect-script.ts' }, 'iife', true),
        bundle(as, { flow: 'src/flow/main.tsx' }, 'es', true, { hashed: true }),
        bundle(as, { console: 'src/console/main.tsx' }, 'es', true),
        bundle(
          as,
          {
            embed: 'src/embed/index.ts',
            redirect: 'src/embed/redirect.ts',
            testing: 'src/embed/testing.ts',
          },
          'es',
          false,
        ),
        bundle(as, { react: 'src/embed/react.tsx' }, 'es', false),
        bundle(as, { react: 'src/embed/react.tsx' }, 'es', true),
        bundle(as, { first: 'src/flow/first.ts' }, 'iife', true, { words: wordFiles }),
        bundle(as, { stripe: 'src/fund/stripe.ts' }, 'iife', true),
      ]);
    const sdk = only(script);
    const redirect = only(redirectScript);
    const flow = page.map((item) => ({
      name: item.fileName,
      text: item.type === 'chunk' ? item.code : String(item.source),
      entry: item.type === 'chunk' && item.isEntry,
    }));
    const entry = flow.find((file) => file.entry);
    const style = flow.find(({ name }) => name.endsWith('.css'));
    if (!entry || !style) throw new Error('vite gave no entry or no style of the page');
    checkParts(page);
    const first = { style: style.text.trim(), script: only(firstJs).trim() };
    const html = pageHtml(first, entry.name);
    for (const { name, text } of words) checkSizes({ words: text }, name);
    checkSizes({ fund: only(stripe) }, 'fund/stripe.js');
    const assets = [...flow.filter((file) => file !== style), ...words];
    const forOperators = consoleFiles(operators);
    const gzipped = checkSizes({
      console: forOperators.map(({ text }) => text).join(''),
      sdk,
      redirect,
      react: only(smallReact),
      flow_js: [first.script, entry.text],
      flow_css: style.text,
      flow_html: html,
    });

    const errors = errorsPage(readFileSync(join(here, '../../docs/sdk-errors.md'), 'utf8'));
    const before = readReleases(released);
    const sdkFile = `duebridge-${as}-${hash(sdk)}.js`;
    const redirectFile = `duebridge-redirect-${as}-${hash(redirect)}.js`;
    const manifest: Manifest = {
      version: as,
      sdk: {
        file: sdkFile,
        sri: integrity(sdk),
        bytes: Buffer.byteLength(sdk),
        gzip_bytes: gzipped.sdk,
        redirect: {
          file: redirectFile,
          sri: integrity(redirect),
          gzip_bytes: gzipped.redirect,
        },
      },
      flow: {
        html: 'flow.html',
        assets: assets.map(({ name }) => name).sort(),
        first_style: sha256(first.style),
        first_script: sha256(first.script),
      },
      console: {
        html: 'console.html',
        assets: forOperators.slice(1).map(({ name }) => name),
        gzip_bytes: gzipped.console,
      },
      errors: { html: 'errors.html', style: sha256(errors.style) },
      releases: before.releases,
    };
    const write = (path: string, text: string): void => {
      mkdirSync(join(draft, path, '..'), { recursive: true });
      writeFileSync(join(draft, path), text);
    };
    write(`sdk/${sdkFile}`, sdk);
    write(`sdk/${redirectFile}`, redirect);
    write('flow/flow.html', html);
    for (const { name, text } of assets) write(`flow/${name}`, text);
    write('flow/errors.html', errors.html);
    write('fund/stripe.js', only(stripe));
    for (const { name, text } of forOperators) write(`console/${name}`, text);
    // Released files stay under the same names; a build with the same bytes changes nothing.
    for (const [path, text] of before.files) write(path, text);
    // What the two share is a file of its own, so everything goes along.
    for (const item of modules) write(`npm/${item.fileName}`, textOf(item));
    write('npm/react.js', only(react));
    write('manifest.json', `${JSON.stringify(manifest, undefined, 2)}\n`);
    rmSync(folder, { recursive: true, force: true });
    renameSync(draft, folder);
    return manifest;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}

/** The parts of the page are those that we know, each within its limit: cut in other pieces they would be measured as others. */
function checkParts(page: Output): void {
  const parts = page.flatMap((item) => (item.type === 'chunk' && !item.isEntry ? [item] : []));
  const names = parts.map(({ name }) => name).sort();
  if (names.join() !== FLOW_PARTS.join()) throw new Error(`the page got ${names.join(', ')}`);
  for (const { name, code } of parts) checkSizes({ flow_part: code }, `flow/${name}`);
}

/** The page with its style and the script of its first bytes inline. */
function pageHtml(first: { readonly style: string; readonly script: string }, js: string): string {
  return readFileSync(join(here, 'src/flow/flow.html'), 'utf8')
    .replaceAll(/\n\s*/g, '\n')
    .replace(/\n__CSS__;?\n/, () => first.style)
    .replace(/\n__FIRST_JS__;?\n/, () => first.script)
    .replace('__JS__', () => js);
}

/** The console's page, script and style, in this order. */
function consoleFiles(output: Output): { readonly name: string; readonly text: string }[] {
  const [js, css] = ['.js', '.css'].map((suffix) => {
    const item = output.find(({ fileName }) => fileName.endsWith(suffix));
    if (item === undefined || output.length !== 2)
      throw new Error(`the console got ${output.map((o) => o.fileName).join(', ')}`);
    const text = textOf(item);
    return { name: `console-${hash(text)}${suffix}`, text };
  });
  if (js === undefined || css === undefined) throw new Error('the console has no script or style');
  const html = readFileSync(join(here, 'src/console/console.html'), 'utf8')
    .replace('__CSS__', css.name)
    .replace('__JS__', js.name);
  return [{ name: 'console.html', text: html }, js, css];
}

/** The React wrapper imports the SDK next to it instead of bundling a copy. */
const sdkStaysOutside: Plugin = {
  name: 'sdk-stays-outside',
  enforce: 'pre',
  resolveId: (id, from) =>
    id === './index.ts' && from?.endsWith('react.tsx') === true
      ? { id: './embed.js', external: true }
      : undefined,
};

/**
 * Vite wraps each `import()` in code that preloads what a part needs: 1.3 kB for parts that need nothing. And a browser may keep the
 * failure of an import: Chromium never asks for the same address again. So `() => import('./part.tsx')` becomes a plain import with a
 * parameter, text for the end of the address, by which part.ts makes each attempt a different one.
 */
const partsCanBeRetried: Plugin = {
  name: 'parts-can-be-retried',
  enforce: 'pre',
  load: (id) =>
    id.endsWith('vite/preload-helper.js')
      ? 'export const __vitePreload = (load) => load();'
      : undefined,
  renderChunk: (code) =>
    code.replaceAll(
      /\(\) => __vitePreload\(\(\) => import\(("\.\/[^"]+")\)[^)]*\)/g,
      (_, file: string) => `(end = "") => import(${file} + end)`,
    ),
};

/** Features.LightDark of lightningcss, which writes variables for light-dark() wherever there is a color-scheme: the page has none. */
const LIGHT_DARK = 1 << 20;

type Output = Rolldown.RolldownOutput['output'];

/**
 * The JSX of the page by preact's own function, which the page has in any case, instead of a second one for JSX alone: it does the same
 * for what our components write, in 0.2 kB less.
 */
const elementsAreCreatedByPreact: Plugin = {
  name: 'duebridge-jsx',
  enforce: 'pre',
  resolveId: (id) => (id === 'preact/jsx-runtime' ? '\0jsx' : undefined),
  load: (id) =>
    id === '\0jsx'
      ? `import { h, Fragment } from 'preact';
const jsx = (type, props, key) => h(type, key === undefined ? props : { ...props, key });
export { jsx, jsx as jsxs, Fragment };`
      : undefined,
};

async function bundle(
  as: string,
  input: Readonly<Record<string, string>>,
  format: 'iife' | 'es',
  minify: boolean,
  page: {
    /** File names contain a hash of the content, so the content of a URL never changes. */
    readonly hashed?: boolean;
    readonly words?: Readonly<Record<string, string>>;
  } = {},
): Promise<Output> {
  const config: InlineConfig = {
    configFile: false,
    envDir: false,
    root: here,
    base: './',
    logLevel: 'error',
    publicDir: false,
    plugins: [sdkStaysOutside, partsCanBeRetried, elementsAreCreatedByPreact],
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    define: {
      DUEBRIDGE_VERSION: JSON.stringify(as),
      PAGE_WORDS: JSON.stringify(page.words ?? {}),
      DUEBRIDGE_TEST_AMOUNTS: JSON.stringify(
        TEST_AMOUNTS.map(({ amount_in_cents, note }) => ({ amount_in_cents, note })),
      ),
    },
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
          Object.entries(input).map(([name, path]) => [name, join(here, path)]),
        ),
        external: [/^react(\/|$)/],
        preserveEntrySignatures: 'exports-only',
        output: {
          format,
          entryFileNames: page.hashed ? '[name]-[hash].js' : '[name].js',
          chunkFileNames: page.hashed ? '[name]-[hash].js' : '[name].js',
          assetFileNames: 'flow-[hash][extname]',
        },
      },
    },
  };
  const result = (await build(config)) as Rolldown.RolldownOutput | Rolldown.RolldownOutput[];
  const [first] = Array.isArray(result) ? result : [result];
  if (first === undefined) throw new Error('vite gave nothing');
  return first.output;
}

const textOf = (item: Output[number]): string =>
  item.type === 'chunk' ? item.code : String(item.source);

/** The only file of a bundle. Throws when there is another, which would be missing where the first is loaded. */
function only(output: Output): string {
  const [first, ...others] = output;
  if (others.length > 0)
    throw new Error(`a bundle of one file got ${others.map((o) => o.fileName).join(', ')} too`);
  return textOf(first);
}

const integrity = (text: string): string =>
  `sha384-${createHash('sha384').update(text).digest('base64')}`;
const sha256 = (text: string): string =>
  `sha256-${createHash('sha256').update(text).digest('base64')}`;

/** The scripts of a version that pages may pin. */
const scriptsOf = ({ file, sri, redirect }: Release['sdk']): { file: string; sri: string }[] => [
  { file, sri },
  ...(redirect === undefined ? [] : [redirect]),
];

/** What was released before, from `released/`: one folder a version with `sdk/` and `flow/`, and `releases.json` over them. */
function readReleases(released: string): { releases: Release[]; files: Map<string, string> } {
  const table = join(released, 'releases.json');
  const releases = existsSync(table) ? (JSON.parse(readFileSync(table, 'utf8')) as Release[]) : [];
  const files = new Map<string, string>();
  for (const { version: of, sdk, flow } of releases) {
    const read = (path: string): string => readFileSync(join(released, of, path), 'utf8');
    for (const { file, sri } of scriptsOf(sdk)) {
      const text = read(`sdk/${file}`);
      if (integrity(text) !== sri)
        throw new Error(`released/${of}/sdk/${file} is not what was released: restore it`);
      files.set(`sdk/${file}`, text);
    }
    for (const name of flow.assets) files.set(`flow/${name}`, read(`flow/${name}`));
  }
  return { releases, files };
}

/**
 * Keeps the current build as a release: copies the files that pages may pin into `released/<version>/` and adds them to the
 * table. Throws when the version was already released with other bytes, because it then needs a new number.
 */
export async function release(
  options: { dist?: string; released?: string; now?: Date; as?: string } = {},
): Promise<Release> {
  const {
    dist = join(here, 'dist'),
    released = join(here, 'released'),
    now = new Date(),
    as = version,
  } = options;
  const { sdk, flow, releases } = await buildWeb(dist, released, as);
  const { file, sri } = sdk;
  const known = releases.find((one) => one.version === as);
  if (known !== undefined) {
    const same = known.sdk.sri === sri && known.sdk.redirect?.sri === sdk.redirect.sri;
    if (same && flow.assets.every((name) => known.flow.assets.includes(name))) return known;
    throw new Error(`version ${as} is released with other bytes: raise the version first`);
  }
  const folder = join(released, as);
  const scripts = scriptsOf(sdk).map((script) => `sdk/${script.file}`);
  for (const name of [...scripts, ...flow.assets.map((asset) => `flow/${asset}`)]) {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    copyFileSync(join(dist, name), join(folder, name));
  }
  const made: Release = {
    version: as,
    released_at: now.toISOString(),
    sdk: { file, sri, redirect: { file: sdk.redirect.file, sri: sdk.redirect.sri } },
    flow: { assets: flow.assets },
  };
  writeFileSync(
    join(released, 'releases.json'),
    `${JSON.stringify([...releases, made], undefined, 2)}\n`,
  );
  return made;
}

/** Returns the gzip size of each file, or of several together; throws RangeError, naming those that are over their limits. */
export function checkSizes<K extends keyof typeof SIZE_LIMITS>(
  files: Readonly<Record<K, string | readonly string[]>>,
  called?: string,
): Record<K, number> {
  const names = Object.keys(files) as K[];
  const sizes = names.map((name) => {
    const sum = [files[name]]
      .flat()
      .reduce((all, text) => all + gzipSync(text, { level: 9 }).length, 0);
    return [name, sum] as const;
  });
  const over = sizes.filter(([name, size]) => size > SIZE_LIMITS[name]);
  if (over.length > 0) {
    const list = over.map(
      ([name, size]) => `${called ?? name} has ${size}, may have ${SIZE_LIMITS[name]}`,
    );
    throw new RangeError(`too large, in bytes of gzip: ${list.join('; ')}`);
  }
  return Object.fromEntries(sizes) as Record<K, number>;
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}

/** Writes the declarations of what partners import (`dist/npm`) into a folder. Rejects when they do not compile. */
export async function buildTypes(folder: string): Promise<void> {
  const project = ['-p', join(here, 'tsconfig.types.json'), '--outDir', folder];
  await promisify(execFile)('tsc', project, { env: await testPrograms('build') });
}

if (import.meta.main) {
  const [, , folder] = process.argv;
  if (folder === '--release') {
    const { version: released, sdk } = await release();
    console.log(`released ${released}: ${sdk.file} ${sdk.sri}`);
    process.exit(0);
  }
  const manifest = await buildWeb(folder);
  if (process.env['npm_lifecycle_event'] === undefined) {
    console.log(`${basename(relative('.', here))}: ${JSON.stringify(manifest)}`);
  }
}
