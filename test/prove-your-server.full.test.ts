/**
 * The guide "prove your server" is carried out, command by command, and its two example servers are
 * judged, where their runtime exists.
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { judgePartner, memoryHistory, partnerTarget } from '@duebridge/conformance';
import { freePort } from '@duebridge/runtime/testing';
import { PACE } from './support/judged.ts';
import { PageShell, runPage } from './support/page.ts';

const root = join(import.meta.dirname, '..');
const folder = mkdtempSync(join(tmpdir(), 'duebridge-prove-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const KEY = 'a-key-that-only-we-two-know';

/** Python of a version that the example says it needs; undefined where there is none. */
const python = ['python3', 'python'].find(
  (name) =>
    spawnSync(name, ['-c', 'import sys; sys.exit(sys.version_info < (3, 10))']).status === 0,
);

/** PHP with the SQLite that the example keeps its books in. */
const php = spawnSync('php', ['-r', 'exit(extension_loaded("pdo_sqlite") ? 0 : 1);']).status === 0;

interface Example {
  readonly file: string;
  readonly command: string | undefined;
  /** Words before the file. */
  readonly words?: (port: string) => readonly string[];
}
const EXAMPLES: readonly Example[] = [
  { file: 'partner.mjs', command: process.execPath },
  { file: 'partner.py', command: python },
  {
    file: 'partner.php',
    command: php ? 'php' : undefined,
    words: (port) => ['-S', `127.0.0.1:${port}`],
  },
];

for (const example of EXAMPLES) {
  const { file, command } = example;
  test(`${file}: a server without a framework passes the contract profile, also when it is started again`, async (t) => {
    if (command === undefined) return t.skip(`what runs ${file} is not installed`);
    const books = join(folder, `${file}.db`);
    const first = await start(example, books);
    const draft = {
      authentication: { method: 'key', header: 'x-api-key', key: KEY },
      biller_id: 'my-biller',
      accounts: { payable: 'A-1', other: 'A-2', inactive: 'A-3' },
      limits: { max_amount_in_cents: 10_000_000 },
      terminal_window_seconds: 20,
    };
    const pace = { ...PACE, quiet_ms: 0 };
    const history = memoryHistory();
    try {
      const target = partnerTarget({ ...draft, base_url: first.url }, {});
      const report = await judgePartner(target, { pace, history });
      assert.deepEqual(
        report.results.flatMap(({ id, findings }) => findings.map(({ got }) => `${id} ${got}`)),
        [],
      );
      assert.equal(report.exit_code, 0);
      assert.equal(report.counts.PASS, 32);
    } finally {
      await stop(first.child);
    }
    // Killed and started again on its database.
    const second = await start(example, books);
    try {
      const report = await judgePartner(partnerTarget({ ...draft, base_url: second.url }, {}), {
        pace,
        history: memoryHistory(
          history.entries().map((entry) => ({ ...entry, base_url: second.url })),
        ),
        recheck: true,
      });
      assert.deepEqual(
        report.results.map(({ id, verdict }) => `${id} ${verdict}`),
        ['P35 PASS', 'P50 SKIP', 'P54 PASS'],
      );
    } finally {
      await stop(second.child);
    }
  });
}

test('an example server answers a hostile body with a refusal, and never reads a request out of it', async () => {
  for (const example of EXAMPLES) {
    const { file, command } = example;
    // PHP's own server for development is not what reads the bytes in earnest.
    if (command === undefined || example.words !== undefined) continue;
    const server = await start(example, join(folder, `hostile-${file}.db`));
    const { port } = new URL(server.url);
    const lines = [
      'PUT /biller/my-biller/account/A-1/payment/hostile HTTP/1.1',
      'Host: x',
      `X-Api-Key: ${KEY}`,
      'Content-Type: application/json',
    ];
    const inner = `GET /biller/my-biller/account/A-1 HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${KEY}\r\n\r\n`;
    const closing = [...lines, 'Connection: close'];
    const sized = (body: string): string =>
      [...closing, `Content-Length: ${body.length}`, '', body].join('\r\n');
    try {
      for (const request of [
        [...lines, 'Transfer-Encoding: chunked', '', inner].join('\r\n'),
        [...lines, `Content-Length: ${'9'.repeat(5_000)}`, '', inner].join('\r\n'),
        sized('['.repeat(60_000)),
        sized('null'),
      ]) {
        const answer = await raw(Number(port), request);
        assert.match(answer, /^HTTP\/1.1 4/, file);
        assert.equal(answer.split('HTTP/1.1 ').length, 2, `${file}: ${answer}`);
      }
    } finally {
      await stop(server.child);
    }
  }
});

/** Sends bytes and gives everything that came back until the connection ended, or stood open in silence. */
function raw(port: number, bytes: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let answer = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (answer += chunk));
    socket.on('error', () => undefined).on('close', () => resolve(answer));
    socket.setTimeout(5_000, () => socket.destroy());
    socket.write(bytes);
  });
}

test('every command of the guide does what the guide says', async (t) => {
  const shell = await PageShell.open(t);
  await runPage('docs/prove-your-server.md', shell);
  const written = (file: string): string => readFileSync(join(shell.consumer.folder, file), 'utf8');
  assert.match(written('report.html'), /conforms to the interface/);
  assert.match(written('conformance.xml'), /<testcase /);
  assert.ok('verdict' in (JSON.parse(written('conformance.json')) as object));
});

/** Starts an example server on a free port; gives its address once it says it. */
async function start(
  { command = '', file, words }: Example,
  books: string,
): Promise<{ url: string; child: ChildProcess }> {
  const at = words === undefined ? '0' : String(await freePort());
  const child = spawn(command, [...(words?.(at) ?? []), join(root, 'docs', 'examples', file)], {
    env: { ...process.env, PARTNER_KEY: KEY, PARTNER_DB: books, PORT: at },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const url = await new Promise<string>((resolve, reject) => {
    let text = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (piece: Buffer) => {
        text += piece.toString();
        const found = /http:\/\/127\.0\.0\.1:\d+/.exec(text);
        if (found !== null) resolve(found[0]);
      });
    }
    child.once('exit', (code) => reject(new Error(`${file} ended with ${code}: ${text}`)));
  });
  return { url, child };
}

function stop(child: ChildProcess): Promise<unknown> {
  const ended = new Promise((resolve) => {
    child.once('exit', resolve);
  });
  child.kill('SIGKILL');
  return ended;
}
