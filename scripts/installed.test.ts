/**
 * What a newcomer gets wrong first: an install without scripts (`ignore-scripts=true`, as many companies set it) or without development
 * packages (`npm ci --omit=dev`), and a misspelt word.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  globSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';

/** A folder with one of these scripts, as an install has it before anything is built. */
function installed(t: TestContext, name: string): { folder: string; script: string } {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-installed-'));
  t.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'scripts'));
  mkdirSync(join(folder, 'packages/web/dist'), { recursive: true });
  const script = join(folder, 'scripts', name);
  copyFileSync(new URL(name, import.meta.url), script);
  return { folder, script };
}

test('an install without development packages succeeds, and says that the pages are not built', (t) => {
  const { folder, script } = installed(t, 'prepare.mjs');
  writeFileSync(join(folder, 'packages/web/package.json'), '{}');
  const run = (): { status: number | null; stdout: string } =>
    spawnSync(process.execPath, [script], { encoding: 'utf8', timeout: 180_000 });
  const bare = run();
  assert.equal(bare.status, 0);
  assert.match(bare.stdout, /^The payment pages are not built, .*npm run build once/);
  // With pages that were built elsewhere there is nothing to say.
  writeFileSync(join(folder, 'packages/web/dist/manifest.json'), '{}');
  const { status, stdout } = run();
  assert.deepEqual([status, stdout], [0, '']);
});

test('the two commands say in one sentence what an install without scripts lacks', (t) => {
  const { folder, script: check } = installed(t, 'installed.mjs');
  writeFileSync(join(folder, 'main.mjs'), "console.log('it runs')");
  const older = `data:text/javascript,${encodeURIComponent(
    "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '20.20.2' } })",
  )}`;
  const run = (...first: string[]): { status: number | null; out: string; err: string } => {
    const imports = [...first, check].flatMap((url) => ['--import', url]);
    const { status, stdout, stderr } = spawnSync(process.execPath, [...imports, 'main.mjs'], {
      cwd: folder,
      encoding: 'utf8',
      timeout: 180_000,
    });
    return { status, out: stdout, err: stderr };
  };
  const bare = run(older);
  assert.equal(bare.status, 2);
  assert.equal(bare.out, '');
  assert.match(
    bare.err,
    /^duebridge: the installation lacks the Node that duebridge pins \(this is 20\.20\.2\) and the built payment pages: .* Run: npm ci .*npm rebuild node .*npm run prepare\n$/,
  );
  assert.match(run().err, /^duebridge: the installation lacks the built payment pages: /);
  writeFileSync(join(folder, 'packages/web/dist/manifest.json'), '{}');
  assert.match(run(older).err, /^duebridge: the installation lacks the Node [^\n]+20\.20\.2\): /);
  assert.deepEqual(run(), { status: 0, out: 'it runs\n', err: '' });
});

test('the two commands make that check before anything else', () => {
  const { scripts } = JSON.parse(
    readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
  ) as { scripts: Record<string, string> };
  for (const name of ['start', 'test']) {
    assert.match(scripts[name] ?? '', /^node --import \.\/scripts\/installed\.mjs /);
  }
});

test('a word that npm test does not know is refused in one sentence', () => {
  const run = (word: string): { status: number | null; stdout: string; stderr: string } => {
    const check = join(import.meta.dirname, 'check.ts');
    const { status, stdout, stderr } = spawnSync(process.execPath, [check, word], {
      encoding: 'utf8',
      timeout: 180_000,
    });
    return { status, stdout, stderr };
  };
  assert.deepEqual(run('--wrong'), {
    status: 3,
    stdout: '',
    stderr: "test: Unknown option '--wrong'; --help lists what it takes\n",
  });
  const help = run('--help');
  assert.equal(help.status, 0);
  assert.match(help.stdout, /^Usage:\n {2}npm test /);
});

test('a Node that reads no TypeScript says what to do in one sentence', () => {
  // As the loader of Node 20 fails at the first .ts file that is imported.
  const older = `data:text/javascript,${encodeURIComponent(`
    import { registerHooks } from 'node:module';
    registerHooks({
      load(url, context, next) {
        if (!url.endsWith('/supported-node.ts')) return next(url, context);
        throw Object.assign(new TypeError('Unknown file extension ".ts"'), { code: 'ERR_UNKNOWN_FILE_EXTENSION' });
      },
    });`)}`;
  const program = join(import.meta.dirname, '../bin/duebridge.ts');
  const { status, stderr } = spawnSync(process.execPath, ['--import', older, program, 'demo'], {
    encoding: 'utf8',
    timeout: 180_000,
  });
  assert.equal(status, 2);
  assert.match(stderr, /^duebridge: this is Node [\d.]+, which reads no TypeScript: [^\n]+\n$/);
});

test('npm ci installs at most 350 MB', (t) => {
  const folder = join(import.meta.dirname, '../node_modules');
  const blocks = globSync('**', { cwd: folder }).map(
    (file) => lstatSync(join(folder, file)).blocks,
  );
  // As `du -sm` counts.
  const megabytes = Math.round((blocks.reduce((sum, some) => sum + some, 0) * 512) / 2 ** 20);
  t.diagnostic(`node_modules has ${megabytes} MB in ${blocks.length} files and folders`);
  assert.ok(megabytes <= 350);
});
