/**
 * Third-party callers, judged end to end: small platforms in plain Node and in Python, written
 * only from the interface, made to pay by a request and by a command.
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, describe } from 'node:test';
import { freePort } from '@duebridge/runtime/testing';
import type { Driver } from '../src/check/drivers.ts';
import { platformTarget, type Draft } from '../src/check/target.ts';
import { judgePlatform } from '../src/run.ts';
import { idsOf, tell } from './judged.ts';
import { CERTIFICATE } from './certificate.ts';

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

/** Has a client pay by its own small API. */
function driver(url: string): Driver {
  const ask = async (path: string, body?: object) => {
    const init = body && { method: 'POST', body: JSON.stringify(body) };
    return (await (await fetch(url + path, init)).json()) as Record<string, string>;
  };
  return {
    at_once: 50,
    async pay(amount_in_cents, account_id = 'A-1') {
      const order = { biller_id: 'a-biller', account_id, amount_in_cents };
      const { platform_payment_id } = await ask('/pay', order);
      const status = async (id: string) => (await ask(`/payments/${id}`))['status'];
      return { platform_payment_id, status };
    },
  };
}

describe('a third-party caller', { concurrency: 8 }, () => {
  for (const client of CLIENTS) {
    for (const method of ['key', 'oauth'] as const) {
      test(`${client.file} conforms to the interface, with ${method}, driven by requests`, async () => {
        const port = await freePort();
        const { url, child } = await start(client, `http://127.0.0.1:${port}`, method);
        try {
          const target = platformTarget(draft(port, method, {}), {});
          const report = await judgePlatform(target, { pace: PACE, driver: () => driver(url) });
          assert.equal(tell(report), '');
          assert.equal(report.exit_code, 0);
          assert.deepEqual(
            idsOf(report, 'SKIP').filter((id) => id.startsWith('C')),
            [],
          );
        } finally {
          child.kill('SIGKILL');
        }
      });
    }
  }

  test('a command makes it pay, at a partner with https and another registered address', async () => {
    const port = await freePort();
    const { cert, key } = CERTIFICATE;
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
    assert.equal(tell(report), '');
    assert.equal(report.counts.PASS, 3);
  });
});
