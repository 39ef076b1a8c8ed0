import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { testPrograms } from '../../scripts/tool.ts';
import { buildTypes, buildWeb, checkSize, release } from './build.ts';

test('the build matches its manifest: names with hashes, the integrity, sizes within limits', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-build-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const dist = join(folder, 'dist');
  const manifest = await buildWeb(dist);
  assert.deepEqual(JSON.parse(readFileSync(join(dist, 'manifest.json'), 'utf8')), manifest);
  const sdk = readFileSync(join(dist, 'sdk', manifest.sdk.file));
  assert.equal(manifest.sdk.sri, `sha384-${createHash('sha384').update(sdk).digest('base64')}`);
  const html = readFileSync(join(dist, 'flow', manifest.flow.html), 'utf8');
  for (const asset of manifest.flow.assets) {
    assert.ok(existsSync(join(dist, 'flow', asset)));
    assert.match(asset, /-[\w-]{8}\.(js|css|json)$/);
  }
  // Whatever a file names is there: the page its script, its style and the text of each language.
  const script = manifest.flow.assets.find((asset) => /^flow-.*\.js$/.test(asset)) ?? '';
  const named = html + readFileSync(join(dist, 'flow', script), 'utf8');
  const names = named.match(/(?:flow|words-\w\w)-[\w-]{8}\.(?:json|js|css)/g) ?? [];
  assert.deepEqual([...new Set(names)].sort(), manifest.flow.assets);
  assert.doesNotMatch(html, /__(?:FIRST|CSS|JS)/);
  // The policy names exactly the inline script and style.
  const inline = (tag: string): string[] =>
    [...html.matchAll(new RegExp(`<${tag}>([^]*?)</${tag}>`, 'g'))].map(
      ([, text = '']) => `sha256-${createHash('sha256').update(text).digest('base64')}`,
    );
  assert.deepEqual(inline('script'), [manifest.flow.first_script]);
  assert.deepEqual(inline('style'), [manifest.flow.first_style]);
  // The limit of the page's JavaScript counts the inline script as well.
  const [, first = ''] = /<script>([^]*?)<\/script>/.exec(html) ?? [];
  const page = checkSize('flow_js', first, readFileSync(join(dist, 'flow', script), 'utf8'));
  assert.ok(page > gzipSync(first, { level: 9 }).length + 13_000);
  assert.equal(html.match(/content="__ORIGINS__"/g)?.length, 1);
  assert.equal(html.match(/content="__PARTNER__"/g)?.length, 1);
  assert.deepEqual(readdirSync(folder), ['dist'], 'a draft was left behind');

  // The exports of package.json.
  const { exports } = JSON.parse(
    readFileSync(join(import.meta.dirname, 'package.json'), 'utf8'),
  ) as { exports: Record<string, string | Record<string, string>> };
  await buildTypes(join(dist, 'npm/types'));
  // One that is a plain text is a file of the package itself and not of the build.
  const built = Object.values(exports).filter((entry) => typeof entry !== 'string');
  for (const path of built.flatMap((entry) => Object.values(entry))) {
    assert.ok(existsSync(join(folder, path)), path);
  }
  const console = [manifest.console.html, ...manifest.console.assets];
  for (const file of console) assert.ok(existsSync(join(dist, 'console', file)), file);

  // The same source must produce the same bytes: the content of an immutable URL must never change.
  assert.deepEqual(await buildWeb(dist), manifest);
});

test('the types that a partner gets need no other package, and refuse what the SDK refuses', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-types-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const modules = join(import.meta.dirname, '../../node_modules');
  // React's types are the partner's own.
  symlinkSync(modules, join(folder, 'node_modules'));
  await buildTypes(join(folder, 'dist/npm/types'));
  const program = `
    import { createDuebridge, DuebridgeError, type PaymentUpdate } from './dist/npm/types/embed/index.js';
    import { DuebridgeFrame } from './dist/npm/types/embed/react.js';
    import { createFakeFrame } from './dist/npm/types/embed/testing.js';
    const made = createDuebridge({ partner: 'p', fetchToken: async (why: 'initial' | 'expired') => why });
    made.on('payment', (payment: PaymentUpdate) => payment.status satisfies string);
    made.on('error', (error) => error instanceof DuebridgeError && error.code satisfies string);
    createFakeFrame({ script: ['ready', { payment: 'failed' }] });
    DuebridgeFrame({ partner: 'p', onPayment: (payment) => payment.amountInCents satisfies number });
    // @ts-expect-error: a partner is needed
    createDuebridge({ token: 't' });
    // @ts-expect-error: there is no such event
    made.on('paid', () => {});
  `;
  writeFileSync(join(folder, 'partner.ts'), program);
  const settings = { module: 'nodenext', strict: true, noEmit: true, lib: ['es2024', 'dom'] };
  writeFileSync(
    join(folder, 'tsconfig.json'),
    JSON.stringify({ compilerOptions: { ...settings, types: [] }, include: ['partner.ts'] }),
  );
  const env = await testPrograms('test');
  const { stdout } = await promisify(execFile)('tsc', ['-p', folder], { env }).catch(
    (error: { stdout: string }) => error,
  );
  assert.equal(stdout, '');
});

test('a file over its limit fails the build', () => {
  const noise = Array.from({ length: 4_000 }, (_, index) => Math.sin(index).toString(36)).join('');
  assert.throws(() => checkSize('sdk', noise), /sdk has \d+ bytes of gzip, may have \d+/);
  const sdk = checkSize('sdk', 'small');
  assert.ok(sdk < 100);
  // Several files that a visit downloads each by itself share no compression.
  assert.equal(checkSize('flow_js', 'small', 'small'), 2 * sdk);
});

test('a release is kept once with its exact bytes, and a change to it fails the build', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-release-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const [dist, released] = [join(folder, 'dist'), join(folder, 'released')];
  const made = await release({ dist, released, now: new Date('2026-03-01T00:00:00Z') });
  assert.deepEqual(await release({ dist, released }), made, 'the same bytes are the same release');
  const { releases, sdk } = await buildWeb(dist, released);
  assert.deepEqual(releases, [made]);
  assert.equal(made.sdk.sri, sdk.sri);
  for (const file of [`sdk/${made.sdk.file}`, ...made.flow.assets.map((name) => `flow/${name}`)]) {
    assert.deepEqual(
      readFileSync(join(dist, file)),
      readFileSync(join(released, made.version, file)),
    );
  }
  writeFileSync(join(released, made.version, 'sdk', made.sdk.file), 'changed');
  await assert.rejects(buildWeb(dist, released), /is not what was released: restore it/);
});

test('each error of the SDK is explained in the guide', () => {
  const read = (path: string): string => readFileSync(join(import.meta.dirname, path), 'utf8');
  const [, list = ''] = /DuebridgeErrorCode =([^;]*);/.exec(read('src/embed/types.ts')) ?? [];
  const codes = [...list.matchAll(/'(\w+)'/g)].map(([, code]) => code);
  assert.ok(codes.length > 10);
  const told = read('../../docs/sdk-errors.md').matchAll(/^## `(\w+)`$/gm);
  assert.deepEqual([...told].map(([, code]) => code).sort(), codes.sort());
});
