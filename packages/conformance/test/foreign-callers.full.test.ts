/**
 * Third-party callers, judged end to end: small platforms in plain Node and in Python, written
 * only from the interface, made to pay by a request, by a command, and by a person at the terminal.
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, describe } from 'node:test';
import { freePort } from '@duebridge/runtime/testing';
import { platformTarget, type Draft } from '../src/check/target.ts';
import { judgePlatform, type RunReport } from '../src/run.ts';
import { makeCertificate } from './tls-proxy.ts';
import { openPlatformProxy } from './peers/platform-proxy.ts';

const folder = mkdtempSync(join(tmpdir(), 'duebridge-callers-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const KEY = 'a-key-of-the-foreign-callers';
const CLIENT = { client_id: 'platform', client_secret: 'a secret of the foreign callers' };

const python = ['python3', 'python'].find(
  (name) =>
    spawnSync(name, ['-c', 'import sys; sys.exit(sys.version_info < (3, 10))']).status === 0,
);

const CLIENTS = [
  { file: 'caller.mjs', command: process.execPath },
  ...(python === undefined ? [] : [{ file: 'caller.py', command: python }]),
];

function findings(report: RunReport): string {
  return report.results
    .filter((one) => one.findings.length > 0)
    .map((one) => `${one.id} ${one.verdict} ${JSON.stringify(one.findings[0])}`)
    .concat(report.judge_failed, report.config?.sentence ?? [])
    .join('\n');
}

function skipped(report: RunReport): string[] {
  return report.results.filter(({ verdict }) => verdict === 'SKIP').map(({ id }) => id);
}

/** Starts a client that pays at this partner; resolves to its URL once the client prints it. */
async function start(
  { file, command }: { file: string; command: string },
  partner_url: string,
  method: 'key' | 'oauth',
): Promise<{ url: string; child: ChildProcess }> {
  const child = spawn(command, [join(import.meta.dirname, 'clients', file)], {
    env: {
      PATH: process.env['PATH'],
      PARTNER_URL: partner_url,
      ...(method === 'key'
        ? { PARTNER_KEY: KEY }
        : { CLIENT_ID: CLIENT.client_id, CLIENT_SECRET: CLIENT.client_secret }),
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const url = await new Promise<string>((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (piece: Buffer) => {
      text += piece.toString();
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(text);
      if (found !== null) resolve(found[0]);
    });
    child.once('exit', (code) => reject(new Error(`${file} ended with ${code}: ${text}`)));
  });
  return { url, child };
}

function draft(port: number, method: 'key' | 'oauth', caller: Draft): Draft {
  return {
    caller: {
      port,
      authentication:
        method === 'key'
          ? { method, header: 'x-api-key', key: KEY }
          : { method, ...CLIENT, token_url: `http://127.0.0.1:${port}/oauth/token` },
      biller_id: 'a-biller',
      account_id: 'A-1',
      patience_seconds: 30,
      ...caller,
    },
  };
}

const PACE = { quiet_ms: 800 };

describe('a third-party caller', { concurrency: 8 }, () => {
  for (const client of CLIENTS) {
    for (const method of ['key', 'oauth'] as const) {
      test(`${client.file} conforms to the interface, with ${method}, driven by requests`, async () => {
        const port = await freePort();
        const { url, child } = await start(client, `http://127.0.0.1:${port}`, method);
        try {
          const target = platformTarget(
            draft(port, method, {
              pay_url: `${url}/pay`,
              status_url: `${url}/payments/{platform_payment_id}`,
            }),
            {},
          );
          const report = await judgePlatform(target, { pace: PACE });
          assert.equal(findings(report), '');
          assert.equal(report.exit_code, 0);
          assert.deepEqual(
            skipped(report).filter((id) => id.startsWith('C')),
            method === 'key' ? ['C05', 'C14'] : ['C14'],
          );
        } finally {
          child.kill('SIGKILL');
        }
      });
    }
  }

  test('a command makes it pay, at a partner with https and another registered address', async () => {
    const port = await freePort();
    const { cert, key } = makeCertificate();
    const [cert_file, key_file] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
    writeFileSync(cert_file, cert);
    writeFileSync(key_file, key);
    const script = join(folder, 'pay.mjs');
    writeFileSync(
      script,
      `const [base, account, cents] = process.argv.slice(2);
const path = \`/biller/b/account/\${account}/payment/by-command-\${crypto.randomUUID()}\`;
const headers = { 'x-api-key': '${KEY}', 'content-type': 'application/json' };
const body = JSON.stringify({ amount_in_cents: Number(cents), platform_batch_id: 'b-1' });
await fetch(base + path, { method: 'PUT', headers, body });
for (;;) {
  const { status } = await (await fetch(base + path, { headers })).json();
  if (status !== 'processing') break;
  await new Promise((resolve) => setTimeout(resolve, 100));
}
`,
    );
    const target = platformTarget(
      draft(port, 'key', {
        public_url: `https://127.0.0.1:${port}`,
        tls: { cert_file, key_file },
        biller_id: 'b',
        pay_command: `NODE_EXTRA_CA_CERTS=${cert_file} '${process.execPath}' '${script}' "$DUEBRIDGE_PARTNER_URL" {account_id} {amount_in_cents}`,
      }),
      {},
    );
    const report = await judgePlatform(target, { pace: PACE, only: ['C01', 'C03', 'C09'] });
    assert.equal(findings(report), '');
    assert.equal(report.counts.PASS, 3);
  });

  test('payments by hand, on the page or at the terminal, pass every check', async () => {
    const port = await freePort();
    const client = CLIENTS[0]!;
    const { url, child } = await start(client, `http://127.0.0.1:${port}`, 'key');
    const told: string[] = [];
    const asked: string[] = [];
    /** The payments made, keyed by the amount as the judge prints it, because the judge names them by amount. */
    const made = new Map<string, Promise<string>>();
    const pay = async (amount_in_cents: number): Promise<string> => {
      const body = { biller_id: 'a-biller', account_id: 'A-1', amount_in_cents };
      const answer = await fetch(`${url}/pay`, { method: 'POST', body: JSON.stringify(body) });
      return ((await answer.json()) as { platform_payment_id: string }).platform_payment_id;
    };
    const status = async (question: string): Promise<string> => {
      const [amount = ''] = /\$[\d,.]+\d/.exec(question) ?? [];
      const answer = await fetch(`${url}/payments/${await made.get(amount)}`);
      return ((await answer.json()) as { status: string }).status;
    };
    try {
      const target = platformTarget(draft(port, 'key', {}), {});
      const report = await judgePlatform(target, {
        pace: PACE,
        onPrompt(sentence) {
          told.push(sentence);
          const amount = /^Now pay (\$[\d,]+\.\d\d) for account A-1 of a-biller, within/.exec(
            sentence,
          )?.[1];
          if (amount !== undefined) made.set(amount, pay(Number(amount.replaceAll(/\D/g, ''))));
        },
        async onQuestion(question) {
          asked.push(question);
          return status(question);
        },
      });
      assert.equal(findings(report), '');
      assert.equal(report.exit_code, 0);
      assert.deepEqual(
        skipped(report).filter((id) => id.startsWith('C')),
        ['C05', 'C14'],
      );
      const scenario = report.results.find(({ id }) => id === 'F01');
      assert.match(scenario?.skipped ?? '', /made by hand.*--only F01,F14,F22/);
      assert.match(told[0] ?? '', new RegExp(`127.0.0.1:${port}: register it`));
      assert.match(asked[0] ?? '', /Which status does the platform show its customer/);
    } finally {
      child.kill('SIGKILL');
    }
  });

  test('a person can try the scenarios that are named', async () => {
    const port = await freePort();
    const { url, child } = await start(CLIENTS[0]!, `http://127.0.0.1:${port}`, 'key');
    let paid = 0;
    try {
      const target = platformTarget(draft(port, 'key', {}), {});
      const report = await judgePlatform(target, {
        pace: PACE,
        only: ['F07', 'F20'],
        onPrompt(sentence) {
          const [, dollars] = /^Now pay \$([\d,]+\.\d\d) for/.exec(sentence) ?? [];
          if (dollars === undefined) return;
          paid += 1;
          const amount_in_cents = Number(dollars.replaceAll(/\D/g, ''));
          const body = { biller_id: 'a-biller', account_id: 'A-1', amount_in_cents };
          void fetch(`${url}/pay`, { method: 'POST', body: JSON.stringify(body) });
        },
        onQuestion: async () => 'processing',
      });
      assert.equal(findings(report), '');
      assert.equal(report.counts.PASS, 2);
      assert.equal(paid, 5, 'four variants of F07 and one of F20');
    } finally {
      child.kill('SIGKILL');
    }
  });

  test('the page shows what to pay, accepts the answer, and imitates a biller’s site', async () => {
    const port = await freePort();
    const client = CLIENTS[0]!;
    const { url, child } = await start(client, `http://127.0.0.1:${port}`, 'key');
    const tokens = await openPlatformProxy('biller');
    const seen: string[] = [];
    const done = new AbortController();
    /** A person with a browser: opens the page, follows the link, pays the requested amount, and presses a button. */
    const person = async (page: string): Promise<void> => {
      let last = '';
      while (!done.signal.aborted) {
        const shown = await (await fetch(page)).text();
        const amount = /Now pay <b>\$([\d,]+)\.(\d\d)<\/b> for account <b>A-1<\/b>/.exec(shown);
        const number = /Payment (\d+)\./.exec(shown)?.[1] ?? '';
        if (amount !== null && number !== last) {
          last = number;
          seen.push(await (await fetch(new URL('/site', page))).text());
          const amount_in_cents = Number(`${amount[1]}${amount[2]}`);
          const body = { biller_id: 'a-biller', account_id: 'A-1', amount_in_cents };
          await fetch(`${url}/pay`, { method: 'POST', body: JSON.stringify(body) });
        }
        if (shown.includes('action="/status"')) {
          const form = new URLSearchParams({ status: 'processing' });
          const headers = { origin: 'https://elsewhere.example' };
          const foreign = await fetch(new URL('/status', page), {
            method: 'POST',
            body: form,
            headers,
          });
          assert.equal(foreign.status, 403);
          await fetch(new URL('/status', page), { method: 'POST', body: form });
        }
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    };
    let walked: Promise<void> | undefined;
    try {
      const target = platformTarget(
        {
          base_url: tokens.url,
          client_id: tokens.client_id,
          api_key: tokens.api_key,
          ...draft(port, 'key', {
            site_snippet: '<script>theirSdk.open("{token}")</script>',
          }),
        },
        {},
      );
      const report = await judgePlatform(target, {
        pace: PACE,
        only: ['C01', 'C08'],
        onPrompt(sentence) {
          const page = /the page (\S+), show/.exec(sentence)?.[1];
          if (page !== undefined) walked = person(page);
        },
      });
      assert.equal(findings(report), '');
      assert.equal(report.counts.PASS, 2);
      assert.match(seen[0] ?? '', /Amount due: \$10\.10/);
      assert.match(seen[0] ?? '', /theirSdk\.open\("dbt_[\w-]{43}"\)/);
      assert.equal(new Set(seen).size, seen.length, 'a token for each visit');
    } finally {
      done.abort();
      await walked?.catch(() => undefined);
      child.kill('SIGKILL');
      await tokens.stop();
    }
  });
});
