/**
 * Builds what browsers get into `dist` (README.md says what lies where) and fails when a file is over
 * its limit. Needs the npm install and nothing else; runs on every install, so it is quick and quiet.
 *
 *   node packages/web/build.ts [folder]
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { build, type InlineConfig, type Plugin, type Rolldown } from 'vite';

/** Bytes, gzip level 9. What a phone on a poor line should wait for at most. */
export const SIZE_LIMITS = {
  sdk: 3000,
  react: 800,
  flow_js: 20_000,
  flow_css: 3000,
  /** All of the operator console's first load: page, script and style. */
  console: 60_000,
} as const;

/** `dist/manifest.json`: what the platform serves. */
export interface Manifest {
  readonly version: string;
  readonly sdk: { file: string; sri: string; bytes: number; gzip_bytes: number };
  readonly flow: { html: string; assets: readonly string[] };
  readonly console: { html: string; assets: readonly string[]; gzip_bytes: number };
}

const here = import.meta.dirname;
const { version } = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8')) as {
  version: string;
};

/** Builds into a folder, which it replaces as a whole. Throws RangeError when a file is too large. */
export async function buildWeb(folder = join(here, 'dist')): Promise<Manifest> {
  // Beside the target, so that the last step is a rename: nobody meets half a build.
  const draft = `${folder}.${process.pid}`;
  const types = typesTo(join(draft, 'npm/types'));
  try {
    const [script, page, operators, modules, react, smallReact] = await Promise.all([
      bundle({ script: 'src/embed/script.ts' }, 'iife', true),
      bundle({ flow: 'src/flow/main.tsx' }, 'es', true),
      bundle({ console: 'src/console/main.tsx' }, 'es', true),
      bundle({ embed: 'src/embed/index.ts', testing: 'src/embed/testing.ts' }, 'es', false),
      bundle({ react: 'src/embed/react.tsx' }, 'es', false),
      bundle({ react: 'src/embed/react.tsx' }, 'es', true),
    ]);
    const sdk = code(script, '.js');
    const flowJs = code(page, '.js');
    const flowCss = code(page, '.css');
    const consoleJs = code(operators, '.js');
    const consoleCss = code(operators, '.css');
    const consoleHtml = readFileSync(join(here, 'src/console/console.html'), 'utf8');
    const gzipped = checkSizes({
      console: consoleHtml + consoleCss + consoleJs,
      sdk,
      react: code(smallReact, '.js'),
      flow_js: flowJs,
      flow_css: flowCss,
    });

    const names = {
      sdk: `duebridge-${version}-${hash(sdk)}.js`,
      js: `flow-${hash(flowJs)}.js`,
      css: `flow-${hash(flowCss)}.css`,
    };
    const html = readFileSync(join(here, 'src/flow/flow.html'), 'utf8')
      .replace('__CSS__', names.css)
      .replace('__JS__', names.js);
    const consoleNames = {
      js: `console-${hash(consoleJs)}.js`,
      css: `console-${hash(consoleCss)}.css`,
    };
    const manifest: Manifest = {
      version,
      sdk: {
        file: names.sdk,
        sri: `sha384-${createHash('sha384').update(sdk).digest('base64')}`,
        bytes: Buffer.byteLength(sdk),
        gzip_bytes: gzipped.sdk,
      },
      flow: { html: 'flow.html', assets: [names.js, names.css] },
      console: {
        html: 'console.html',
        assets: [consoleNames.js, consoleNames.css],
        gzip_bytes: gzipped.console,
      },
    };
    const write = (path: string, text: string): void => {
      mkdirSync(join(draft, path, '..'), { recursive: true });
      writeFileSync(join(draft, path), text);
    };
    write(`sdk/${names.sdk}`, sdk);
    write('flow/flow.html', html);
    write(`flow/${names.js}`, flowJs);
    write(`flow/${names.css}`, flowCss);
    write(
      'console/console.html',
      consoleHtml.replace('__CSS__', consoleNames.css).replace('__JS__', consoleNames.js),
    );
    write(`console/${consoleNames.js}`, consoleJs);
    write(`console/${consoleNames.css}`, consoleCss);
    for (const name of ['embed.js', 'testing.js']) write(`npm/${name}`, code(modules, name));
    write('npm/react.js', code(react, '.js'));
    write('manifest.json', `${JSON.stringify(manifest, undefined, 2)}\n`);
    await types;
    rmSync(folder, { recursive: true, force: true });
    renameSync(draft, folder);
    return manifest;
  } finally {
    await types.catch(() => {});
    rmSync(draft, { recursive: true, force: true });
  }
}

/** The React wrapper uses the SDK beside it instead of bringing another. */
const sdkStaysOutside: Plugin = {
  name: 'sdk-stays-outside',
  enforce: 'pre',
  resolveId: (id, from) =>
    id === './index.ts' && from?.endsWith('react.tsx') === true
      ? { id: './embed.js', external: true }
      : undefined,
};

type Output = Rolldown.RolldownOutput['output'];

async function bundle(
  input: Readonly<Record<string, string>>,
  format: 'iife' | 'es',
  minify: boolean,
): Promise<Output> {
  const config: InlineConfig = {
    configFile: false,
    envDir: false,
    root: here,
    logLevel: 'error',
    publicDir: false,
    plugins: [sdkStaysOutside],
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    define: { DUEBRIDGE_VERSION: JSON.stringify(version) },
    build: {
      write: false,
      // What every browser of the last three years runs; smaller than code for older ones.
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
          entryFileNames: '[name].js',
          chunkFileNames: '[name].js',
        },
      },
    },
  };
  const result = (await build(config)) as Rolldown.RolldownOutput | Rolldown.RolldownOutput[];
  const [first] = Array.isArray(result) ? result : [result];
  if (first === undefined) throw new Error('vite gave nothing');
  return first.output;
}

function code(output: Output, suffix: string): string {
  const file = output.find((item) => item.fileName.endsWith(suffix));
  if (file === undefined) throw new Error(`vite gave no ${suffix} file`);
  return file.type === 'chunk' ? file.code : String(file.source);
}

/** Gives the gzip size of each file; throws RangeError, naming those that are over their limits. */
export function checkSizes<K extends keyof typeof SIZE_LIMITS>(
  files: Readonly<Record<K, string>>,
): Record<K, number> {
  const names = Object.keys(files) as K[];
  const sizes = names.map((name) => [name, gzipSync(files[name], { level: 9 }).length] as const);
  const over = sizes.filter(([name, size]) => size > SIZE_LIMITS[name]);
  if (over.length > 0) {
    const list = over.map(([name, size]) => `${name} has ${size}, may have ${SIZE_LIMITS[name]}`);
    throw new RangeError(`too large, in bytes of gzip: ${list.join('; ')}`);
  }
  return Object.fromEntries(sizes) as Record<K, number>;
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}

async function typesTo(folder: string): Promise<void> {
  const tsc = join(here, '../../node_modules/.bin/tsc');
  await promisify(execFile)(tsc, ['-p', join(here, 'tsconfig.types.json'), '--outDir', folder]);
}

if (import.meta.main) {
  const [, , folder] = process.argv;
  const manifest = await buildWeb(folder);
  if (process.env['npm_lifecycle_event'] === undefined) {
    console.log(`${basename(relative('.', here))}: ${JSON.stringify(manifest)}`);
  }
}
