/** The sandbox partner as a platform's engineer uses it: by its command, on a port. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import test, { type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { PATIENCE_MS } from '@duebridge/runtime/testing';

const program = fileURLToPath(new URL('../../../bin/duebridge.ts', import.meta.url));
const ID = '0199aa00-0000-7000-8000-000000000001';

/** Runs `duebridge sandbox …` until it ends: its exit code and output. */
async function run(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const child = spawn(process.execPath, [program, 'sandbox', ...args]);
  const said = { out: '', err: '' };
  child.stdout.on('data', (data: Buffer) => (said.out += data.toString()));
  child.stderr.on('data', (data: Buffer) => (said.err += data.toString()));
  const [code] = (await once(child, 'close')) as [number];
  return { code, ...said };
}

/** Starts a sandbox partner with the key `k`; returns its address and a call on payment ID. */
async function start(t: TestContext, ...args: string[]) {
  const given = [
    'sandbox',
    'partner',
    '--port',
    '0',
    '--key',
    'k',
    '--processing-ms',
    '0',
    ...args,
  ];
  const child = spawn(process.execPath, [program, ...given], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(async () => {
    child.kill();
    if (child.exitCode === null) await once(child, 'exit');
  });
  const [first] = (await once(createInterface(child.stdout), 'line')) as [string];
  const url = /http:\S+\d/.exec(first)?.[0] ?? assert.fail(first);
  return async (method: 'PUT' | 'GET', amount_in_cents = 100): Promise<Record<string, unknown>> => {
    const body = JSON.stringify({ amount_in_cents, platform_batch_id: 'b-1' });
    const response = await fetch(`${url}/biller/sandbox-utility/account/active/payment/${ID}`, {
      method,
      headers: { 'x-api-key': 'k', 'content-type': 'application/json' },
      ...(method === 'PUT' && { body }),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    return (await response.json()) as Record<string, unknown>;
  };
}

test('a payment ends as its amount says, and a repeated PUT gets the same payment', async (t) => {
  const call = await start(t);
  const first = await call('PUT', 66_604);
  assert.equal((await call('PUT', 66_604))['payment_id'], first['payment_id']);
  assert.equal((await call('GET'))['status'], 'canceled');
});

test('what cannot be run is one sentence: exit code 2 for a port, 3 for a wrong word', async () => {
  const cases: readonly [readonly string[], number, RegExp][] = [
    [['partner', '--host', '192.0.2.1'], 2, /cannot listen/],
    [['partner', '--host', 'nobody.invalid'], 2, /cannot listen/],
    [['partner', '--port', 'many'], 3, /integer/],
  ];
  await Promise.all(
    cases.map(async ([args, code, words]) => {
      const seen = await run(...args);
      assert.equal(seen.code, code, `${args.join(' ')}: ${seen.err}`);
      assert.match(seen.err, words);
      assert.doesNotMatch(seen.err, /\n\s+at /, 'no stack trace');
    }),
  );
});

test('the help lists the accounts, and the amounts as the guide does', async () => {
  const { out } = await run('partner', '--help');
  assert.match(out, /unit 4\/B/);
  const guide = await readFile(new URL('../../../docs/embed.md', import.meta.url), 'utf8');
  const listed = [...guide.matchAll(/^\| \$(\d+)\.(\d\d) +\| (.*?) +\|/gm)];
  assert.equal(listed.length, 7);
  for (const [, dollars, cents, note] of listed)
    assert.ok(out.includes(`${dollars}${cents}     ${note}`), note);
});
