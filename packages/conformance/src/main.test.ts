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
import test, { after, before, type TestContext } from 'node:test';
import { compileCheck, ConformanceFile } from '@duebridge/contract';
import { CommanderError } from 'commander';
import { conformCommand, terminal } from './main.ts';
import type { RunReport } from './run.ts';
import { listen } from './scripted/listeners.ts';
import {
  startScriptedPartner,
  type ScriptedPartner,
  type ScriptedPartnerOptions,
} from './scripted/partner.ts';
import { CERTIFICATE } from '../test/certificate.ts';
import { ACCOUNTS } from '../test/peers/partners.ts';
import { openPlatformProxy, type PlatformProxy } from '../test/peers/platform-proxy.ts';

const bin = join(import.meta.dirname, '../../../bin/duebridge.ts');
const folder = mkdtempSync(join(tmpdir(), 'duebridge-cli-'));
const KEY = 'a-key-for-the-command-line';

function startPartner(options: Partial<ScriptedPartnerOptions> = {}): Promise<ScriptedPartner> {
  const auth = { method: 'key', header: 'x-api-key', key: KEY } as const;
  return startScriptedPartner({ auth, accounts: ACCOUNTS, ...options });
}

let partner: ScriptedPartner;
let platform: PlatformProxy;

before(async () => {
  process.chdir(folder);
  partner = await startPartner();
  platform = await openPlatformProxy('biller');
});
after(async () => {
  await partner.stop();
  await platform.stop();
  process.chdir(tmpdir());
  rmSync(folder, { recursive: true, force: true });
});

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Runs the command in this process, with these variables. */
async function conform(line: string | readonly string[], env: Record<string, string> = {}) {
  const ran = { code: 0, out: '', err: '' };
  const usual = { ...terminal };
  Object.assign(terminal, {
    out: (text: string) => void (ran.out += text),
    err: (text: string) => void (ran.err += text),
  });
  Object.assign(process.env, env);
  try {
    const args = typeof line === 'string' ? line.split(' ') : [...line];
    await conformCommand().parseAsync(args, { from: 'user' });
    ran.code = Number(process.exitCode ?? 0);
  } finally {
    process.exitCode = 0;
    Object.assign(terminal, usual);
    for (const name of Object.keys(env)) delete process.env[name];
  }
  return ran;
}

/** Runs it in a process of its own. */
function spawned(args: readonly string[], told: (child: ChildProcess) => void): Promise<Ran> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [bin, 'conform', ...args], { cwd: folder });
    let [out, err] = ['', ''];
    child.stdout.on('data', (piece: Buffer) => (out += piece.toString()));
    child.stderr.on('data', (piece: Buffer) => (err += piece.toString()));
    told(child);
    child.once('close', (code) => resolve({ code, out, err }));
  });
}

/** The flags of the partner, with more of them. */
const at = (more: string, url = partner.url, key: string | undefined = KEY): string =>
  `partner --base-url ${url} --biller sandbox-utility --account active --auth key --header x-api-key ${key === undefined ? '' : `--key ${key} `}${more}`;

/** The flags of the platform, with more of them. */
const atPlatform = (more: string): string =>
  `platform --base-url ${platform.url} --client-id ${platform.client_id} --only T01,T05,T07,C01${more}`;

/** What each command line ends with, and prints on standard output and beside it. */
const LINES: readonly (readonly [
  what: string,
  line: () => string,
  code: number,
  out: RegExp,
  err?: RegExp,
])[] = [
  [
    'a broken must exits with 1, and the report says how to run it again',
    () => at('--only P20,P22', wrong.url),
    1,
    /PF7 .*initiated_at[^]*--only P22\n/,
  ],
  [
    'an incomplete target',
    () => 'partner --json',
    2,
    /base_url is missing/,
    /^CONFIG {2}base_url is missing: .* method is missing: .* biller_id is missing: .*payable/,
  ],
  ['a wrong key', () => at('--json', partner.url, 'another'), 2, /"verdict": "config"/],
  ['an unknown check', () => at('--only P99'), 3, /^$/, /There is no check P99/],
  ['nothing judged', () => at('--only P03'), 3, /no check could be judged/],
  ['no maximum declared', () => at('--only P20,P24'), 2, /max_amount_in_cents/],
  ['a partial run is allowed', () => at('--only P20,P24 --allow-partial'), 0, /judged in part/],
  ['a plan needs no server', () => at('--plan', 'http://127.0.0.1:1'), 0, /^P01 {2}/, /may create/],
  [
    'large payments need a word',
    () => at('--only P20,P24 --max-amount-cents 500000'),
    3,
    /^$/,
    /worth \$5,001\.21 need a word: .*--yes/,
  ],
  [
    'the word',
    () => at('--only P20,P24 --max-amount-cents 500000 --yes'),
    0,
    /2 of 2 checks passed/,
  ],
  ['a check of the platform is listed', () => 'platform --list --only F02', 0, /^F02 .*\n$/],
  [
    'no such authority',
    () => at('--ca no.pem'),
    2,
    /^$/,
    /no\.pem holds no certificate .*ENOENT.*fix --ca/,
  ],
  [
    'an expected failure without an owner',
    () => at('--expected known.json'),
    2,
    /^$/,
    /Entry 2 of known\.json lacks "owner"/,
  ],
  [
    'a report that cannot be written costs neither the result nor the other report',
    () => at('--only P20 --junit /dev/full --html beside.html'),
    2,
    /1 of 1 checks passed/,
    /could not be written to \/dev\/full/,
  ],
  [
    'a history that cannot be written costs no report',
    () => at('--only P20 --history broken.pem'),
    0,
    /1 of 1 checks passed/,
    /ids of this run could not be kept .*--history/,
  ],
  [
    'a platform with a wrong key',
    () => atPlatform(' --api-key wrong-key'),
    2,
    /refuses \(401\) the credentials: fix --client-id and --api-key/,
  ],
];

let wrong: ScriptedPartner;

test('every command line has its exit code and says no more than was asked', async (t) => {
  wrong = await startPartner({
    behaviour: { born: (payment) => void (payment.initiated_at = '2026-01-01T00:00:00') },
  });
  t.after(() => wrong.stop());
  writeFileSync('broken.pem', 'not a certificate');
  const known = { check: 'P22', owner: 'ada', until: '2030-01-01', reason: 'the old clock' };
  writeFileSync('known.json', JSON.stringify([known, { ...known, owner: undefined }]));
  for (const [what, line, code, out, err = /^/] of LINES) {
    const ran = await conform(line());
    assert.equal(ran.code, code, `${what}: ${ran.out}${ran.err}`);
    assert.match(ran.out, out, what);
    assert.match(ran.err, err, what);
    assert.ok(!(ran.out + ran.err).includes(KEY), what);
  }
  assert.ok(existsSync('beside.html'));
  assert.equal((await conform('platform --list')).out.trim().split('\n').length, 63);
  const programs = await conform('partner --list --json');
  assert.equal((JSON.parse(programs.out) as unknown[]).length, 39);
  await assert.rejects(async () => {
    const command = conformCommand();
    for (const one of command.commands) one.exitOverride().configureOutput({ writeErr() {} });
    await command.parseAsync(['partner', '--no-such-flag'], { from: 'user' });
  }, CommanderError);
});

test('a secret may come from the environment, and a report is one value', async () => {
  const ran = await conform(at('--only P20,P25 --json', partner.url, undefined), {
    DUEBRIDGE_CONFORM_KEY: KEY,
  });
  assert.equal(ran.code, 0, ran.err);
  assert.equal((JSON.parse(ran.out) as RunReport).counts.PASS, 2);
  // So that the platform can show it.
  assert.ok(compileCheck(ConformanceFile).holds(JSON.parse(ran.out)));
  assert.match(ran.err, /may create 1 payment, \$1\.20 \(120 cents\)/);
  assert.ok(existsSync(join(folder, '.duebridge-conform', 'payments.json')));
  const judged = await conform(atPlatform(''), { DUEBRIDGE_CONFORM_API_KEY: platform.api_key });
  assert.equal(judged.code, 0, judged.out + judged.err);
  assert.match(judged.out, /C01: not judged, because the target declares no "caller"/);
});

test('a target file is written once, names the variable of its secret, and flags override it', async () => {
  assert.equal((await conform('partner init target.json')).code, 0);
  const written = readFileSync('target.json', 'utf8');
  assert.equal((await conform('partner init target.json')).code, 2);
  assert.equal(readFileSync('target.json', 'utf8'), written);
  const flags = `--base-url ${partner.url} --biller sandbox-utility --account active`;
  const line = `partner target.json ${flags} --only P10 --html page.html`;
  const ran = await conform(line, { DUEBRIDGE_CONFORM_KEY: KEY });
  assert.equal(ran.code, 0, ran.out + ran.err);
  assert.match(readFileSync('page.html', 'utf8'), /^<!doctype html>/);
  const oauth = await conform('partner init oauth.json --auth oauth');
  assert.match(oauth.out, /set DUEBRIDGE_CONFORM_CLIENT_SECRET/);
  const unset = await conform('partner oauth.json');
  assert.equal(unset.code, 2);
  assert.match(unset.err, /DUEBRIDGE_CONFORM_CLIENT_SECRET, which is not set/);
});

test('Ctrl-C ends a run: the report is written, the ids are kept, and the exit code is 2', async (t) => {
  // Never ends a payment, so that the run is still waiting when the test ends it.
  const slow = await startPartner({ processing_ms: 10 * 60_000 });
  t.after(() => slow.stop());
  const line = at('--window-seconds 200 --history ended --html ended.html --json --yes', slow.url);
  const ran = await spawned(line.split(' '), (child) => {
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
  assert.match(readFileSync('ended.html', 'utf8'), /^<!doctype html>/);
  const ids = readFileSync(join('ended', 'payments.json'), 'utf8');
  assert.ok(slow.payments().some(({ platform_payment_id: id }) => ids.includes(id)));
});

/** A proxy that opens tunnels to one server, for who knows its password. */
async function openProxy(t: TestContext, port: number) {
  const asked: string[] = [];
  const proxy = http.createServer().on('connect', (request, socket: Socket) => {
    asked.push(`${request.url ?? ''} ${request.headers['proxy-authorization'] ?? ''}`);
    if (!asked.at(-1)?.endsWith(btoa('ada:secret word'))) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n');
      return;
    }
    const inner = connect(port, '127.0.0.1');
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
    socket.pipe(inner).pipe(socket);
    for (const one of [socket, inner]) {
      one.on('error', () => void [socket.destroy(), inner.destroy()]);
    }
  });
  t.after(() => proxy.close());
  return { asked, place: `127.0.0.1:${await listen(proxy)}` };
}

test('https goes through HTTPS_PROXY by CONNECT, and NO_PROXY and this machine do not', async (t) => {
  const secure = await startPartner({ tls: CERTIFICATE });
  t.after(() => secure.stop());
  const { asked, place } = await openProxy(t, Number(new URL(secure.url).port));
  writeFileSync('proxied-ca.pem', CERTIFICATE.cert);
  // Requests, a connection cut in the middle, and a new connection for each read.
  const away = at('--ca proxied-ca.pem --only P20,P34,P54', 'https://partner.example');
  const ran = await conform(away, { HTTPS_PROXY: `http://ada:secret%20word@${place}` });
  assert.match(ran.out, /3 of 3 checks passed/, ran.err);
  assert.doesNotMatch(ran.out + ran.err, /secret/);
  assert.ok(asked.length > 8 && asked.every((one) => one.startsWith('partner.example:443 ')));
  const refused = await conform(away, { https_proxy: `http://${place}` });
  assert.equal(refused.code, 2);
  const unopened = /The proxy opens no connection to partner.example:443 \(PROXY_407\)/;
  assert.match(refused.out, unopened);
  const others = { HTTPS_PROXY: `http://${place}`, NO_PROXY: 'other.example, .example:443' };
  assert.match((await conform(away, others)).out, /The name partner.example does not resolve/);
  const none = await conform(away, { HTTPS_PROXY: 'no proxy' });
  assert.equal(none.code, 2);
  assert.match(none.err, /HTTPS_PROXY is not the URL of a proxy/);
});
