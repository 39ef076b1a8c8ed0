/**
 * The judge against servers that are unreachable, wrong or malicious: one sentence instead of a
 * wall of failures, no crash, no hang; and reports with the same content in every format.
 */
import assert from 'node:assert/strict';
import http from 'node:http';
import net, { type Socket } from 'node:net';
import test, { after, describe } from 'node:test';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { curl } from '../src/check/http.ts';
import { fileHistory, memoryHistory } from '../src/check/history.ts';
import { MACHINE_CLOCK } from '../src/clock.ts';
import type { Pace } from '../src/check/run.ts';
import { jsonReport, junitReport, terminalReport } from '../src/report/text.ts';
import { pageReport } from '../src/report/page.ts';
import { judgePartner, judgePlatform, type RunOptions, type RunReport } from '../src/run.ts';
import { listen } from '../src/scripted/listeners.ts';
import { startScriptedPartner, type ScriptedPartnerOptions } from '../src/scripted/partner.ts';
import {
  overlay,
  partnerTarget,
  platformTarget,
  readDraft,
  type Draft,
} from '../src/check/target.ts';
import { CERTIFICATE } from './certificate.ts';
import { ACCOUNTS } from './peers/partners.ts';
import { VIRTUAL_CLOCK } from './virtual-clock.ts';

const KEY = 'a-key-that-must-not-be-shown';

const QUICK: Partial<Pace> = {
  poll_first_ms: 10,
  poll_longest_ms: 50,
  burst_per_second: 50,
  burst_seconds: 0.2,
  after_end_ms: 5,
  balance_lag_ms: 20,
  request_timeout_ms: 1_500,
  quiet_ms: 300,
};

const folder = mkdtempSync(join(tmpdir(), 'duebridge-judge-'));
after(() => rmSync(folder, { recursive: true, force: true }));

function draft(base_url: string, change: Draft = {}): Draft {
  return overlay(
    {
      base_url,
      authentication: { method: 'key', header: 'x-api-key', key: KEY },
      biller_id: 'sandbox-utility',
      accounts: { payable: 'active', other: 'active-2', unknown: 'nobody', inactive: 'inactive' },
      terminal_window_seconds: 1,
      spending_cap_in_cents: 20_000_000_000,
    },
    change,
  );
}

function judge(base_url: string, options: RunOptions = {}, change: Draft = {}): Promise<RunReport> {
  return judgePartner(partnerTarget(draft(base_url, change), {}), { pace: QUICK, ...options });
}

/** Judges the scripted partner, in virtual time. */
function judgeScripted(
  base_url: string,
  options: RunOptions = {},
  change: Draft = {},
): Promise<RunReport> {
  return judge(base_url, { clock: VIRTUAL_CLOCK, ...options }, change);
}

async function withPartner<T>(
  options: Partial<ScriptedPartnerOptions>,
  use: (url: string) => Promise<T>,
): Promise<T> {
  const partner = await startScriptedPartner({
    auth: { method: 'key', header: 'x-api-key', key: KEY },
    accounts: ACCOUNTS,
    clock: VIRTUAL_CLOCK,
    processing_ms: 30,
    ...options,
  });
  try {
    return await use(partner.url);
  } finally {
    await partner.stop();
  }
}

/** A server whose handling of each connection or request is given by the test. */
async function withServer<T>(
  server: net.Server | http.Server,
  use: (url: string) => Promise<T>,
): Promise<T> {
  const open = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => open.delete(socket));
  });
  const port = await listen(server);
  try {
    return await use(`http://127.0.0.1:${port}`);
  } finally {
    for (const socket of open) socket.destroy();
    await new Promise((resolve) => {
      server.close(resolve);
    });
  }
}

function isConfig(report: RunReport, sentence: RegExp): void {
  assert.equal(report.verdict, 'config');
  assert.equal(report.exit_code, 2);
  assert.match(report.config?.sentence ?? '', sentence);
  assert.equal(report.results.length, 0, 'nothing may be judged after a failed pre-flight');
}

describe('a server that does not match its target file gets one sentence, not forty failures', () => {
  const oauth = { method: 'oauth', client_id: 'judge', client_secret: 'right-secret' } as const;
  const byOauth = (change: Draft, path = '/oauth/token') =>
    withPartner({ auth: oauth }, (url) =>
      judge(url, {}, { authentication: { ...oauth, token_url: url + path, ...change } }),
    );
  const site = (): http.Server =>
    http.createServer((_request, response) => {
      response.setHeader('content-type', 'text/html').end('<!doctype html><p>Welcome');
    });
  const cases: readonly (readonly [string, () => Promise<RunReport>, RegExp])[] = [
    [
      'nothing listens',
      async () => judge(await withServer(net.createServer(), async (url) => url)),
      /^Nothing listens on 127\.0\.0\.1:\d+: start the server, or fix/,
    ],
    [
      'the host name does not resolve',
      () => judge('https://no-such-host.invalid'),
      /no-such-host\.invalid/,
    ],
    [
      'it accepts connections and sends nothing',
      () =>
        withServer(
          http.createServer(() => undefined),
          judgeScripted,
        ),
      /gets no response/,
    ],
    [
      'it uses plain http although https was declared',
      () => withPartner({}, (url) => judge(url.replace('http:', 'https:'))),
      /write http:\/\/ in base_url/,
    ],
    [
      'it uses https although plain http was declared',
      () => withPartner({ tls: CERTIFICATE }, (url) => judge(url.replace('https:', 'http:'))),
      /https/,
    ],
    [
      'the key is wrong',
      () => withPartner({}, (url) => judge(url, {}, { authentication: { key: 'another-key' } })),
      /refuses \(401\) the key in the header x-api-key/,
    ],
    [
      'the secret is wrong',
      () => byOauth({ client_secret: 'wrong-secret' }),
      /refuses \(401\) the client: .* --client-secret/,
    ],
    ['the token endpoint is elsewhere', () => byOauth({}, '/token'), /404 .*: fix --token-url/],
    [
      'the paths are wrong',
      () => withPartner({}, (url) => judge(`${url}/v2`)),
      /answers 404 .*: fix base_url or paths\.get_account/,
    ],
    ['it is a website', () => withServer(site(), judge), /points to a website, not to the API/],
  ];
  for (const [what, judged, sentence] of cases) {
    test(what, async () => {
      const report = await judged();
      isConfig(report, sentence);
      assert.doesNotMatch(JSON.stringify(report), /another-key|wrong-secret/);
    });
  }

  test('its certificate is not trusted; with --ca it is judged', async () => {
    const ca_file = join(folder, 'ca.pem');
    writeFileSync(ca_file, CERTIFICATE.cert);
    await withPartner({ tls: CERTIFICATE, clock: MACHINE_CLOCK }, async (url) => {
      isConfig(await judge(url), /certificate .* --ca FILE/);
      // On a busy machine an answer may take longer than a test that waits for none has to.
      const pace = { ...QUICK, request_timeout_ms: 30_000 };
      // P34 cuts connections, and P54 makes a new one for each read.
      const only = ['P20', 'P34', 'P54'];
      const change = { ca_file, terminal_window_seconds: 20 };
      const report = await judge(url, { profile: 'strict', only, pace }, change);
      assert.deepEqual(report.broken, []);
      assert.equal(report.counts.PASS, 3);
    });
  });

  test('it redirects callers, and no credential follows', async () => {
    let followed = false;
    const report = await withServer(
      http.createServer(() => {
        followed = true;
      }),
      (elsewhere) =>
        withServer(
          http.createServer((_request, response) => {
            response.writeHead(302, { location: elsewhere }).end();
          }),
          (url) => judge(url),
        ),
    );
    isConfig(report, /redirects to .*, and redirects are never followed/);
    assert.equal(followed, false);
  });
});

describe(
  'a run ends without an internal error for every response of a server',
  { concurrency: 10 },
  () => {
    const right = JSON.stringify({ status: 'active', balance: { amount_due_in_cents: 1 } });
    const answer = (body: string | Buffer, head = 'content-type: application/json'): Buffer =>
      Buffer.concat([
        Buffer.from(
          `HTTP/1.1 200 OK\r\n${head}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`,
        ),
        Buffer.from(body),
      ]);
    /** What a server writes instead of an answer; `number` counts its requests. */
    const madness: Readonly<Record<string, (socket: Socket, number: number) => void>> = {
      'random bytes': (socket, number) => void socket.end(randomBytes(number, 300)),
      'a truncated response': (socket) => void socket.end(answer(right).subarray(0, 90)),
      'an endless response, byte by byte': drip,
      'an endless body': flood,
      'ten thousand headers': (socket) => void socket.end(answer(right, manyHeaders())),
      'deeply nested JSON': (socket) => void socket.end(answer('['.repeat(100_000))),
      'numbers out of range': (socket) =>
        void socket.end(answer(`{"amount_in_cents":1e999,"status":${'9'.repeat(5_000)}}`)),
      'invalid UTF-8 and NULs': (socket) =>
        void socket.end(answer(Buffer.from('7b2261223a22ffc080eda080005c75643830302022', 'hex'))),
      'two Content-Length headers': (socket) =>
        void socket.end(`HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef`),
      'a body that is not gzip': (socket) =>
        void socket.end(
          answer('not gzip', 'content-encoding: gzip\r\ncontent-type: application/json'),
        ),
      '429 forever': (socket) =>
        void socket.end('HTTP/1.1 429 Wait\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n'),
      'records that are arrays, strings and nulls': (socket, number) =>
        void socket.end(answer(['[]', '"x"', 'null', 'true', '7'][number % 5] ?? '')),
      'the right shape with every field wrong': (socket) =>
        void socket.end(
          answer(
            JSON.stringify({
              payment_id: {},
              platform_payment_id: [],
              status: 'succeeded\u0000',
              amount_in_cents: null,
              initiated_at: 17,
              posted_at: {},
              failure_reason: [[]],
              access_token: 4,
            }),
          ),
        ),
      silence: () => undefined,
    };
    /** Judges a server whose first answer is right, so that pre-flight passes, and the others are not. */
    async function isNeverGreen(
      first: string,
      act: (socket: Socket, number: number) => void,
      judged: (url: string) => Promise<RunReport>,
    ): Promise<void> {
      let requests = 0;
      const server = net.createServer((socket) => {
        socket.on('data', () => {
          requests += 1;
          if (requests === 1) socket.end(answer(first));
          else act(socket, requests);
        });
      });
      const report = await withServer(server, judged);
      assert.deepEqual(report.judge_failed, []);
      assert.notEqual(report.exit_code, 0, 'such a server must never be green');
      for (const form of [jsonReport, junitReport, pageReport]) {
        assert.ok(!form(report).includes(KEY));
      }
      assert.doesNotThrow(() => terminalReport(report, { colour: true }));
    }
    // After a few answers that never end a run is over, so those are judged alone.
    const alone = ['silence', 'an endless response, byte by byte', '429 forever'];
    const acts = Object.entries(madness).flatMap(([name, act]) =>
      alone.includes(name) ? [] : act,
    );
    /** Each kind by itself would judge forty servers. In turn, every check meets every kind, from another one in each run. */
    const inTurn = (from: number) => (socket: Socket, number: number) =>
      acts[(from + number) % acts.length]?.(socket, number);
    const servers = [
      ...[0, 3, 7].map((from) => [`all of these in turn, from ${from}`, inTurn(from)] as const),
      ...alone.map((name) => [name, madness[name]] as const),
    ];
    const options = { pace: { ...QUICK, request_timeout_ms: 400 } };
    for (const [name, act = () => undefined] of servers) {
      test(`a platform: ${name}`, () =>
        isNeverGreen('{"token":"dbt_the-first-one"}', act, (base_url) => {
          const client = { client_id: 'judge', api_key: KEY, account_id: 'A-1' };
          const draft = { ...client, token_sample: 20, burst: 20, base_url };
          return judgePlatform(platformTarget(draft, {}), options);
        }));
      test(`a partner: ${name}`, () =>
        isNeverGreen(right, act, (url) => judge(url, { ...options, profile: 'strict' })));
    }
  },
);

describe('a run obeys its options', () => {
  for (const after of [30, 150, 400]) {
    test(`a server that dies after ${after} requests breaks no rule by those that nobody answered`, async () => {
      let requests = 0;
      const server: { stop?: () => Promise<void> } = {};
      const partner = await startScriptedPartner({
        auth: { method: 'key', header: 'x-api-key', key: KEY },
        accounts: ACCOUNTS,
        clock: VIRTUAL_CLOCK,
        processing_ms: 30,
        behaviour: {
          receive() {
            requests += 1;
            if (requests >= after) void server.stop?.();
            return undefined;
          },
        },
      });
      server.stop = () => partner.stop();
      // One at a time as well: then few requests are under way when it dies.
      const at_once = after === 30 ? 1 : 24;
      const report = await judgeScripted(partner.url, { pace: { ...QUICK, at_once } });
      assert.match(report.config?.sentence ?? '', /did not answer/);
      const findings = report.results.flatMap((one) => one.findings);
      assert.deepEqual(findings, []);
      assert.equal(report.exit_code, 2);
    });
  }

  test('a payment beyond the spending cap is not requested', async () => {
    await withPartner({}, async (url) => {
      const report = await judgeScripted(url, {}, { spending_cap_in_cents: 500 });
      assert.ok((report.money?.asked_in_cents ?? 501) <= 500);
      assert.ok((report.money?.total_in_cents ?? 0) > 500);
      const large = report.results.find(({ id }) => id === 'P24');
      assert.equal(large?.verdict, 'SKIP');
      assert.match(large.skipped ?? '', /spending cap/);
    });
  });

  test('a run never requests more than its plan announced', async () => {
    await withPartner({}, async (url) => {
      const report = await judgeScripted(url, { profile: 'strict' });
      assert.ok(report.money !== undefined);
      assert.ok(report.money.asked_in_cents <= report.money.total_in_cents);
    });
  });

  test('an expected failure fails no run until its day is over', async () => {
    const expected = [{ check: 'P22', owner: 'ada', until: '2030-01-01', reason: 'the old clock' }];
    const behaviour: ScriptedPartnerOptions['behaviour'] = {
      born: (payment) => void (payment.initiated_at = '2026-01-01T00:00:00'),
    };
    await withPartner({ behaviour }, async (url) => {
      const on = (day: string) =>
        judgeScripted(url, {
          only: ['P22'],
          expected,
          clock: { ...VIRTUAL_CLOCK, now: () => Date.parse(day) },
        });
      const before = await on('2030-01-01T12:00:00Z');
      assert.equal(before.exit_code, 0);
      assert.equal(before.counts.FAIL, 1);
      const words = /expected to fail until 2030-01-01 \(ada\): the old clock/;
      assert.match(junitReport(before), /failures="0"[^]*<skipped message="expected to fail/);
      for (const report of [terminalReport(before, { colour: false }), pageReport(before)]) {
        assert.match(report, words);
        assert.match(report, /as expected, not otherwise/);
      }
      assert.equal((await on('2030-01-02T00:00:00Z')).exit_code, 1);
    });
  });

  test('a server that forgot its payments in a restart fails a recheck, whatever their age', async () => {
    const history = memoryHistory();
    const url = await withPartner({}, async (at) => {
      await judgeScripted(at, { history, only: ['P20', 'P50'] });
      assert.equal((await judgeScripted(at, { history, recheck: true })).verdict, 'passed');
      return at;
    });
    await withPartner({ port: Number(new URL(url).port) }, async () => {
      const { results } = await judgeScripted(url, { history, recheck: true });
      const failed = results.filter(({ verdict }) => verdict === 'FAIL').map(({ id }) => id);
      assert.deepEqual(failed, ['P35', 'P54']);
    });
  });

  test('a damaged history counts as empty instead of stopping the run', () => {
    const place = join(folder, 'damaged');
    mkdirSync(place);
    writeFileSync(join(place, 'payments.json'), '[{"base_url": 7}, "x", null]');
    assert.deepEqual(fileHistory(place).entries(), []);
    writeFileSync(join(place, 'payments.json'), '[');
    assert.deepEqual(fileHistory(place).entries(), []);
    let trouble = '';
    fileHistory('/proc/none', (why) => (trouble = why)).add([{} as never]);
    assert.match(trouble, /mkdir/, 'a folder that cannot be made');
  });

  test('an error in a target file names the field', () => {
    const faults: readonly [Draft, RegExp][] = [
      [{ base_url: 'ftp://x' }, /base_url is not an http or https URL/],
      [{ base_url: 'http://partner.example' }, /plain http/],
      [{ base_url: 'https://u:p@partner.example' }, /must not contain a user/],
      [{ authentication: { method: 'basic' } }, /use key or oauth/],
      [{ authentication: { header: 'x api key' } }, /is not a valid header name/],
      [{ authentication: { key: 'two words' } }, /contains a space/],
      [{ biller_id: 7 }, /biller_id must be a non-empty string/],
      [{ accounts: { payable: null } }, /accounts\.payable is missing.*--help/],
      [{ paths: { get_payment: 'payment' } }, /paths\.get_payment is invalid/],
      [{ paths: { get_account: null } }, /paths\.get_account is invalid/],
      [{ limits: { max_amount_in_cents: 1.5 } }, /must be an integer/],
      [{ spending_cap: 5 }, /spending_cap is not a field .* spending_cap_in_cents/],
      [{ accounts: { payble: 'A' } }, /accounts\.payble is not a field/],
      [
        { limits: { min_amount_in_cents: 9, max_amount_in_cents: 5 } },
        /max_amount_in_cents is below/,
      ],
    ];
    for (const [change, sentence] of faults) {
      assert.throws(() => partnerTarget(draft('https://partner.example', change), {}), sentence);
    }
    const file = join(folder, 'broken.json');
    writeFileSync(file, '{"base_url":');
    assert.throws(() => readDraft(file), /fix its syntax/);
    assert.throws(() => readDraft(join(folder, 'none.json')), /cannot be read/);
  });
});

describe('reports', () => {
  test('each broken rule is listed once, with a command that reproduces it and no secret', async () => {
    const known = new Set<string>();
    const behaviour = {
      answer(call: { method: string; path: string }, answer: { status: number }) {
        if (call.method !== 'PUT' || answer.status !== 200) return undefined;
        if (known.has(call.path)) return { status: 409, body: `<script>alert('${KEY}')</script>` };
        known.add(call.path);
        return undefined;
      },
    } as NonNullable<ScriptedPartnerOptions['behaviour']>;
    const report = await withPartner({ behaviour }, (url) => judgeScripted(url));
    const clauses = report.broken.map(({ clause }) => clause);
    assert.equal(new Set(clauses).size, clauses.length);
    const known_id = report.broken.find(({ clause }) => clause === 'RU5');
    assert.deepEqual(
      known_id?.checks,
      ['P25', 'P34', 'P54', 'P28'].filter((id) => known_id?.checks.includes(id)),
    );
    assert.match(known_id?.curl ?? '', /^curl -i -X PUT .*"\$API_KEY".*\/payment\/[0-9a-f-]{36}'$/);
    const page = pageReport(report);
    assert.ok(page.includes('&lt;script&gt;') && !page.includes('<script'));
    for (const text of [
      page,
      jsonReport(report),
      junitReport(report),
      terminalReport(report, { colour: false }),
    ]) {
      assert.ok(!text.includes(KEY), 'a report shows the key');
    }
    assert.equal(
      [...page.matchAll(/(?:src|href)="(?!#)/g)].length,
      0,
      'the page needs nothing else',
    );
  });

  test('the curl command of an exchange is safe in a shell', () => {
    const exchange = {
      number: 1,
      check: 'P00',
      method: 'PUT',
      url: "http://127.0.0.1/it's?a=$HOME",
      request_headers: { 'x-api-key': '‹API_KEY›', 'content-length': '3' },
      request_body: `{"a":"$(id) 'x'"}`,
      sent_at: '',
      duration_ms: 0,
      answer_headers: {},
      answer_body: '',
      leaked: false,
    };
    assert.equal(
      curl(exchange),
      `curl -i -X PUT -H 'x-api-key: '"$API_KEY" --data-binary '{"a":"$(id) '\\''x'\\''"}' 'http://127.0.0.1/it'\\''s?a=$HOME'`,
    );
  });

  test('JUnit lists each check once, and a failed pre-flight as an error', async () => {
    const good = await withPartner({}, (url) => judgeScripted(url));
    const names = [...junitReport(good).matchAll(/<testcase [^>]*name="([PTC]\d\d) /g)];
    assert.equal(names.length, good.results.length);
    const bad = await judge('http://127.0.0.1:9');
    assert.match(junitReport(bad), /<error message="/);
    assert.match(junitReport(bad), /errors="1"/);
  });
});

/** Returns the same bytes for the same number, so that a fuzzed peer is reproducible. */
function randomBytes(seed: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  let state = seed + 1;
  for (let place = 0; place < length; place += 1) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    bytes[place] = state >>> 16;
  }
  return bytes;
}

function manyHeaders(): string {
  return Array.from({ length: 10_000 }, (_, number) => `x-${number}: ${number}`).join('\r\n');
}

function drip(socket: Socket): void {
  socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n');
  const timer = setInterval(() => socket.write('x'), 20);
  socket.on('close', () => clearInterval(timer));
}

function flood(socket: Socket): void {
  socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n');
  const chunk = Buffer.alloc(65_536, 'x');
  const more = (): void => {
    while (!socket.destroyed && socket.write(`10000\r\n${chunk.toString('latin1')}\r\n`));
  };
  socket.on('drain', more);
  more();
}
