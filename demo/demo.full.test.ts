/**
 * What can go wrong with `npm start`: ports in use, two demos at once, an early Ctrl-C, a data directory removed while it runs.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { type TestContext } from 'node:test';
import { processesOf } from '../test/support/left-processes.ts';
import { assertPortsFree } from './servers.ts';

const entryPoint = path.join(import.meta.dirname, '..', 'bin', 'duebridge.ts');

function demo(t: TestContext, dataDirectory: string, port: number, ...args: string[]) {
  return start(t, dataDirectory, port, [process.execPath, entryPoint, 'demo', ...args]);
}

function start(t: TestContext, dataDirectory: string, port: number, command: string[]) {
  const [program = '', ...args] = command;
  const child = spawn(program, args, {
    cwd: path.join(import.meta.dirname, '..'),
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      PORT: String(port),
      DUEBRIDGE_DATA_DIR: dataDirectory,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.after(() => child.kill('SIGKILL'));
  let [out, err] = ['', ''];
  const heard = new Set<() => void>();
  const hear = (): void => heard.forEach((listener) => listener());
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    out += part;
    hear();
  });
  child.stderr.setEncoding('utf8').on('data', (part: string) => (err += part));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, out, err }));
  return {
    child,
    ended,
    /** The output so far, once it holds `words`; rejects when the process ends first. */
    said: (words: string) =>
      new Promise<string>((resolve, reject) => {
        const listener = (): void => {
          if (!out.includes(words)) return;
          heard.delete(listener);
          resolve(out);
        };
        heard.add(listener);
        listener();
        void ended.then(() => reject(new Error(`it ended without "${words}": ${out}${err}`)));
      }),
  };
}

async function folder(t: TestContext): Promise<string> {
  const made = await mkdtemp(path.join(tmpdir(), 'duebridge-demo-'));
  // When root starts it, the server's user id must be able to enter, or the cluster is stored elsewhere.
  await chmod(made, 0o711);
  t.after(() => rm(made, { recursive: true, force: true }));
  return made;
}

/** A first port from which all ports of a demo are free. */
async function freeBase(): Promise<number> {
  for (;;) {
    // Below the system's ephemeral ports.
    const base = 10_000 + Math.floor(Math.random() * 20_000);
    const isFree = await assertPortsFree(base).then(
      () => true,
      () => false,
    );
    if (isFree) return base;
  }
}

/** Processes that name the folder of the embedded server: that one, and what it started. */
const processesIn = (directory: string): object[] => processesOf([`${directory}/postgres`]);

test('the link to the console signs in once, on this machine alone', async (t) => {
  const run = demo(t, await folder(t), await freeBase());
  const said = await run.said('Everything keeps running');
  const link = /console +(http:\/\/127\.0\.0\.1:\d+\/[0-9a-f]{32}) /.exec(said)?.[1];
  assert.ok(link, said);
  assert.equal((await fetch(`${link}0`)).status, 404);
  const opened = await fetch(link, { redirect: 'manual' });
  assert.equal(opened.status, 303);
  const console = new URL(String(opened.headers.get('location')));
  const cookie = String(opened.headers.getSetCookie()[0]?.split(';')[0]);
  const me = await fetch(new URL('/admin/v1/me', console), { headers: { cookie } });
  assert.equal(((await me.json()) as { role: string }).role, 'admin');
  assert.equal((await fetch(link, { redirect: 'manual' })).status, 404, 'it was used');
  run.child.kill('SIGINT');
  await run.ended;
});

test('PORT moves every port, and a later start on other ports in the same folder pays again', async (t) => {
  const directory = await folder(t);
  for (let start = 0; start < 2; start += 1) {
    const base = await freeBase();
    const { code, out, err } = await demo(t, directory, base, '--once', '--json').ended;
    assert.equal(code, 0, err);
    const story = JSON.parse(out) as { payment: { status: string } };
    assert.equal(story.payment.status, 'succeeded');
    assert.match(
      err,
      /statement +Both sides agree: 1 payment, .*\n.* paid to .*; every cent is somewhere/,
    );
    assert.match(err, new RegExp(`http://localhost:${base + 200} `));
    assert.match(err, new RegExp(`platform +http://127\\.0\\.0\\.1:${base} `));
  }
});

test('of two demos one runs; the other exits with a sentence that says what to do, and neither hangs', async (t) => {
  const [directory, base] = [await folder(t), await freeBase()];
  const both = [demo(t, directory, base), demo(t, directory, base)] as const;
  const first = await Promise.race(
    both.map(async (run, index) => {
      const { code, err } = await run.ended;
      return { index, code, err };
    }),
  );
  assert.equal(first.code, 2, first.err);
  assert.match(first.err, /^duebridge: another demo runs in .*: stop it, or give this one .*\n$/);
  const running = both[1 - first.index];
  assert.ok(running);
  await running.said('Everything keeps running');

  const elsewhere = await demo(t, await folder(t), base).ended;
  assert.equal(elsewhere.code, 2, elsewhere.err);
  assert.match(elsewhere.err, /^duebridge: port \d+ \(platform\) is taken, .* set PORT .*\n$/);

  // Its data directory is removed while it runs: it still stops and leaves no server behind.
  assert.notDeepEqual(processesIn(directory), []);
  // Again when the server writes a file meanwhile.
  await rm(directory, { recursive: true, force: true, maxRetries: 9 });
  running.child.kill('SIGINT');
  const { code, err } = await running.ended;
  // Its last writes may fail; any errors it prints must be sentences.
  assert.ok(code === 0 || code === 1, err);
  assert.doesNotMatch(err, /^ +at /m);
  assert.deepEqual(processesIn(directory), []);
});

for (const [what, signal, command] of [
  ['Ctrl-C', 'SIGINT', [process.execPath, entryPoint, 'demo']],
  ['a closed terminal', 'SIGHUP', [process.execPath, entryPoint, 'demo']],
  ['SIGTERM to npm start', 'SIGTERM', ['npm', 'start']],
] as const) {
  test(`${what} during startup stops the demo and leaves no server behind`, async (t) => {
    const directory = await folder(t);
    const run = start(t, directory, await freeBase(), [...command]);
    await run.said('starting platform');
    run.child.kill(signal);
    const { code, out, err } = await run.ended;
    assert.notEqual(code, 0, err);
    assert.match(out, /Stopping/);
    assert.doesNotMatch(out, /from token to the biller/);
    assert.deepEqual(processesIn(directory), []);
  });
}

test('whoever reads only the first lines of the demo leaves no server behind', async (t) => {
  const directory = await folder(t);
  const run = start(t, directory, await freeBase(), [
    process.execPath,
    entryPoint,
    'demo',
    '--once',
  ]);
  await run.said('starting platform');
  run.child.stdout?.destroy();
  await run.ended;
  assert.deepEqual(processesIn(directory), []);
});
