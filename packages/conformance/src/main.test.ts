/**
 * The command line of the judge: meaningful exit codes, standard output that holds only what was requested, and no need to put a
 * secret into the shell's history.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before, describe } from 'node:test';
import type { RunReport } from './run.ts';
import { startScriptedPartner, type ScriptedPartner } from './sandbox/partner.ts';
import { listen } from '../test/listen.ts';
import { openTlsProxy } from '../test/tls-proxy.ts';
import { openPlatformProxy, type PlatformProxy } from '../test/peers/platform-proxy.ts';

const bin = join(import.meta.dirname, '../../../bin/duebridge.ts');
const folder = mkdtempSync(join(tmpdir(), 'duebridge-cli-'));
const KEY = 'a-key-for-the-command-line';

let partner: ScriptedPartner;
let platform: PlatformProxy;

before(async () => {
  partner = await startScriptedPartner({ auth: { method: 'key', header: 'x-api-key', key: KEY } });
  platform = await openPlatformProxy('biller');
});
after(async () => {
  await partner.stop();
  await platform.stop();
  rmSync(folder, { recursive: true, force: true });
});

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function conform(
  args: readonly string[],
  env: Record<string, string> = {},
  told: (child: ChildProcess, err: string) => void = () => undefined,
): Promise<Ran> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [bin, 'conform', ...args], {
      cwd: folder,
      env: {
        PATH: process.env['PATH'],
        NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
        ...env,
      },
    });
    let [out, err] = ['', ''];
    child.stdout.on('data', (piece: Buffer) => (out += piece.toString()));
    child.stderr.on('data', (piece: Buffer) => {
      err += piece.toString();
      told(child, err);
    });
    child.once('close', (code) => resolve({ code, out, err }));
  });
}

const where = (): string[] => [
  'partner',
  '--base-url',
  partner.url,
  '--biller',
  'sandbox-utility',
  '--account',
  'active',
  '--auth',
  'key',
  '--header',
  'x-api-key',
];

describe('conform', { concurrency: 4 }, () => {
  test('a passed run exits with 0, and the key may come from the environment', async () => {
    const ran = await conform([...where(), '--only', 'P20,P25'], { DUEBRIDGE_CONFORM_KEY: KEY });
    assert.equal(ran.code, 0, ran.err);
    assert.match(ran.out, /2 of 2 checks passed/);
    assert.match(ran.err, /may create 1 payment, \$1\.20 \(120 cents\)/);
    assert.ok(existsSync(join(folder, '.duebridge-conform', 'payments.json')));
  });

  test('--json prints one JSON value and nothing else on the standard output', async () => {
    const ran = await conform([...where(), '--key', KEY, '--only', 'P20', '--json']);
    const report = JSON.parse(ran.out) as RunReport;
    assert.equal(report.exit_code, 0);
    assert.ok(!(ran.out + ran.err).includes(KEY));
  });

  test('a broken must exits with 1', async () => {
    const wrong = await startScriptedPartner({
      auth: { method: 'key', header: 'x-api-key', key: KEY },
      behaviour: { authorize: () => undefined },
    });
    try {
      const ran = await conform([
        ...where(),
        '--base-url',
        wrong.url,
        '--key',
        KEY,
        '--only',
        'P01',
      ]);
      assert.equal(ran.code, 1, ran.err);
      assert.match(ran.out, /S3 .*protects/);
    } finally {
      await wrong.stop();
    }
  });

  test('a server that does not match its target, and an incomplete target, exit with 2', async () => {
    const wrong = await conform([...where(), '--key', 'another-key', '--json']);
    assert.equal(wrong.code, 2);
    assert.equal((JSON.parse(wrong.out) as RunReport).verdict, 'config');
    const bare = await conform(['partner', '--json']);
    assert.equal(bare.code, 2);
    assert.match((JSON.parse(bare.out) as RunReport).config?.sentence ?? '', /base_url is missing/);
    const unknown = await conform([...where(), '--key', KEY, '--only', 'P99']);
    assert.equal(unknown.code, 3);
    assert.match(unknown.err, /There is no check P99/);
  });

  test('an unknown flag, and a run without a judged check, exit with 3', async () => {
    assert.equal((await conform(['partner', '--no-such-flag'])).code, 3);
    const none = await conform([...where(), '--key', KEY, '--only', 'P03']);
    assert.equal(none.code, 3, none.err);
    assert.match(none.out, /no check could be judged/);
    const failed = await conform([...where(), '--key', KEY, '--failed', '--history', 'empty']);
    assert.equal(failed.code, 3);
    assert.match(failed.err, /No check failed in the last run/);
  });

  test('a flag overrides the file, and an existing file is not overwritten', async () => {
    const file = join(folder, 'target.json');
    assert.equal((await conform(['partner', 'init', file])).code, 0);
    const written = readFileSync(file, 'utf8');
    assert.equal((await conform(['partner', 'init', file])).code, 2);
    assert.equal(readFileSync(file, 'utf8'), written);
    const ran = await conform([
      'partner',
      file,
      '--base-url',
      partner.url,
      '--biller',
      'sandbox-utility',
      '--account',
      'active',
      '--key',
      KEY,
      '--only',
      'P10',
      '--html',
      'page.html',
    ]);
    assert.equal(ran.code, 0, ran.out + ran.err);
    assert.match(readFileSync(join(folder, 'page.html'), 'utf8'), /^<!doctype html>/);
  });

  test('Ctrl-C ends a run: the report is written, the ids are kept, and the exit code is 2', async () => {
    // Never ends a payment, so that the run is still waiting when the test ends it.
    const slow = await startScriptedPartner({
      auth: { method: 'key', header: 'x-api-key', key: KEY },
      processing_ms: 10 * 60_000,
    });
    try {
      let pressed = false;
      const flags = ['--base-url', slow.url, '--key', KEY, '--window-seconds', '200'];
      const files = ['--history', 'ended', '--html', 'ended.html', '--json'];
      const ran = await conform([...where(), ...flags, ...files], {}, (child) => {
        // The first lines announce the payments; the payments themselves follow.
        if (pressed) return;
        pressed = true;
        const wait = setInterval(() => {
          if (slow.payments().length < 5) return;
          clearInterval(wait);
          child.kill('SIGINT');
        }, 20);
        child.once('exit', () => clearInterval(wait));
      });
      const report = JSON.parse(ran.out) as RunReport;
      assert.equal(report.stopped, 'the run was interrupted');
      assert.equal(report.verdict, 'partial');
      assert.equal(ran.code, 2, ran.err);
      assert.match(ran.err, /Stopping the run; the report of the completed checks follows/);
      assert.match(readFileSync(join(folder, 'ended.html'), 'utf8'), /^<!doctype html>/);
      const ids = readFileSync(join(folder, 'ended', 'payments.json'), 'utf8');
      assert.ok(slow.payments().some(({ platform_payment_id: id }) => ids.includes(id)));
    } finally {
      await slow.stop();
    }
  });

  test('an OAuth target file contains the OAuth fields', async () => {
    const ran = await conform(['partner', 'init', 'oauth.json', '--auth', 'oauth']);
    assert.equal(ran.code, 0, ran.err);
    assert.match(ran.out, /set DUEBRIDGE_CONFORM_CLIENT_SECRET/);
    const written = JSON.parse(readFileSync(join(folder, 'oauth.json'), 'utf8')) as {
      authentication: Record<string, string>;
    };
    assert.deepEqual(Object.keys(written.authentication).sort(), [
      'client_id',
      'client_secret_env',
      'method',
      'scope',
      'token_url',
    ]);
    const unset = await conform(['partner', 'oauth.json']);
    assert.equal(unset.code, 2);
    assert.match(unset.err, /DUEBRIDGE_CONFORM_CLIENT_SECRET, which is not set/);
  });

  test('a run without a declared maximum is partial, unless that is allowed', async () => {
    const part = [...where(), '--key', KEY, '--only', 'P20,P24'];
    const ran = await conform(part);
    assert.equal(ran.code, 2, ran.out);
    assert.match(ran.out, /spending_cap_in_cents|max_amount_in_cents/);
    const allowed = await conform([...part, '--allow-partial']);
    assert.equal(allowed.code, 0, allowed.out);
  });

  test('a plan is printed without a server', async () => {
    const ran = await conform([
      ...where().map((one) => (one === partner.url ? 'http://127.0.0.1:1' : one)),
      '--key',
      KEY,
      '--plan',
    ]);
    assert.equal(ran.code, 0, ran.err);
    assert.match(ran.out, /^P01 {2}/);
  });

  test('payments above the cap need a word, and a plan does not', async () => {
    const large = [...where(), '--key', KEY, '--only', 'P20,P24', '--max-amount-cents', '500000'];
    const refused = await conform(large);
    assert.equal(refused.code, 3);
    assert.match(refused.err, /worth \$5,001\.21 need a word: .*--yes/);
    assert.equal((await conform([...large, '--plan'])).code, 0);
    const meant = await conform([...large, '--yes']);
    assert.equal(meant.code, 0, meant.out + meant.err);
    const capped = await conform([...large, '--max-spend-cents', '1000000']);
    assert.equal(capped.code, 0, capped.out + capped.err);
  });

  test('an expected failure without an owner is rejected', async () => {
    const file = join(folder, 'known.json');
    writeFileSync(file, '[{"check":"P01","until":"2030-01-01","reason":"x"}]');
    const ran = await conform([...where(), '--key', KEY, '--expected', file]);
    assert.equal(ran.code, 2);
    assert.match(ran.err, /lacks "owner"/);
  });

  test('the checks can be listed as text and as JSON', async () => {
    const people = await conform(['platform', '--list']);
    assert.equal(people.out.trim().split('\n').length, 91);
    const programs = await conform(['partner', '--list', '--json']);
    assert.equal((JSON.parse(programs.out) as unknown[]).length, 56);
    const one = await conform(['platform', '--list', '--only', 'F02']);
    assert.match(one.out, /^F02 .*\n$/);
    const unknown = await conform(['platform', '--list', '--only', 'F99']);
    assert.equal(unknown.code, 3);
    assert.equal(unknown.out, '');
  });

  test('a platform can be judged with flags only; a wrong key gives one sentence', async () => {
    const flags = [
      'platform',
      '--base-url',
      platform.url,
      '--client-id',
      platform.client_id,
      '--only',
      'T01,T05,T07,C01',
    ];
    const ran = await conform(flags, { DUEBRIDGE_CONFORM_API_KEY: platform.api_key });
    assert.equal(ran.code, 0, ran.out + ran.err);
    assert.match(ran.out, /C01: not judged, because the target declares no "caller"/);
    const wrong = await conform([...flags, '--api-key', 'wrong-key']);
    assert.equal(wrong.code, 2);
    assert.match(wrong.out, /refuses \(401\) the credentials: fix --client-id and --api-key/);
    const elsewhere = await conform([
      ...flags,
      '--api-key',
      'x-key',
      '--base-url',
      'http://127.0.0.1:9',
    ]);
    assert.equal(elsewhere.code, 2);
  });

  test('https goes through HTTPS_PROXY by CONNECT, and NO_PROXY and this machine do not', async (t) => {
    const secure = await openTlsProxy(partner.url);
    t.after(() => secure.stop());
    const asked: string[] = [];
    const proxy = http.createServer().on('connect', (request, socket: Socket) => {
      asked.push(`${request.url ?? ''} ${request.headers['proxy-authorization'] ?? ''}`);
      if (!asked.at(-1)?.endsWith(btoa('ada:secret word'))) {
        socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n');
        return;
      }
      const inner = connect(Number(new URL(secure.url).port), '127.0.0.1');
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      socket.pipe(inner).pipe(socket);
      for (const one of [socket, inner])
        one.on('error', () => void [socket.destroy(), inner.destroy()]);
    });
    const place = `127.0.0.1:${await listen(proxy)}`;
    t.after(() => proxy.close());
    const ca = join(folder, 'proxied-ca.pem');
    writeFileSync(ca, secure.certificate);
    const target = [...where(), '--base-url', 'https://partner.example', '--key', KEY];
    // Requests, a connection cut in the middle, and many connections at once; an old handshake is not looked at through a proxy.
    const flags = [...target, '--ca', ca, '--profile', 'strict', '--only', 'P09,P20,P34,P63'];
    const [ran, refused, exempt, here, none] = await Promise.all([
      conform(flags, { HTTPS_PROXY: `http://ada:secret%20word@${place}` }),
      conform(flags, { https_proxy: place }),
      conform(flags, { HTTPS_PROXY: `http://${place}`, NO_PROXY: 'other.example, .example:443' }),
      conform([...where(), '--key', KEY, '--only', 'P20'], { HTTPS_PROXY: 'socks5://nobody' }),
      conform(flags, { HTTPS_PROXY: 'socks5://nobody' }),
    ]);
    assert.match(ran.out, /3 of 3 checks passed/, ran.err);
    assert.match(ran.err, new RegExp(`through the proxy ${place} of HTTPS_PROXY`));
    assert.doesNotMatch(ran.out + ran.err, /secret/);
    assert.ok(asked.length > 8 && asked.every((one) => one.startsWith('partner.example:443 ')));
    assert.equal(refused.code, 2);
    assert.match(
      refused.out,
      /The proxy \S+ opens no connection to partner.example:443 \(PROXY_407\)/,
    );
    assert.match(exempt.out, /The name partner.example does not resolve/);
    assert.equal(here.code, 0, here.out + here.err);
    assert.equal(none.code, 2);
    assert.match(none.err, /HTTPS_PROXY is not the http or https URL of a proxy/);
  });

  test('a file of authorities that cannot be used is named before anything is sent', async () => {
    const [missing, broken] = [join(folder, 'no.pem'), join(folder, 'broken.pem')];
    writeFileSync(broken, 'not a certificate');
    const flags = [...where(), '--key', KEY, '--only', 'P20'];
    for (const [file, sentence] of [
      [missing, /no\.pem cannot be read \(ENOENT.*: fix --ca/],
      [broken, /broken\.pem holds no certificate in PEM form: fix --ca/],
    ] as const) {
      const ran = await conform([...flags, '--ca', file]);
      assert.equal(ran.code, 2);
      assert.match(ran.err, sentence);
    }
  });

  test('a report file that cannot be written costs no result', async () => {
    const flags = [...where(), '--key', KEY, '--only', 'P20'];
    const full = await conform([...flags, '--html', '/dev/full']);
    assert.equal(full.code, 2);
    assert.match(full.out, /1 of 1 checks passed/);
    assert.match(full.err, /could not be written to \/dev\/full/);
  });

  test('a history that cannot be written costs no report', async () => {
    const place = join(folder, 'a-file');
    writeFileSync(place, '');
    // Below /proc a folder is missing for ever.
    for (const history of [place, '/proc/duebridge/history']) {
      const ran = await conform([...where(), '--key', KEY, '--only', 'P20', '--history', history]);
      assert.equal(ran.code, 0, ran.err);
      assert.match(ran.out, /1 of 1 checks passed/);
      assert.match(ran.err, /ids of this run could not be kept .*--history/);
    }
  });
});
