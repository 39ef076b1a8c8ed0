/** The command line of the sandbox: lists, exit codes for errors, and validation of scripts. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { readScript, ScriptProblem, SCENARIOS } from './partner.ts';
import { sandboxCommand } from './command.ts';

const program = fileURLToPath(new URL('../../../../bin/duebridge.ts', import.meta.url));

/** Runs the command line; returns its output and exit code. */
function run(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise((resolve) => {
    const given = { timeout: 120_000 };
    const child = execFile(
      process.execPath,
      [program, 'sandbox', ...args],
      given,
      (_e, out, err) => {
        resolve({ code: child.exitCode ?? -1, out, err });
      },
    );
  });
}

test('the list describes every scenario and what a correct caller does, as text and JSON', async () => {
  const [text, json] = await Promise.all([
    run('partner', '--list'),
    run('partner', '--list', '--json'),
  ]);
  assert.deepEqual([text.code, json.code], [0, 0]);
  const listed = JSON.parse(json.out) as { name: string; caller: string }[];
  assert.deepEqual(
    listed.map(({ name, caller }) => ({ name, caller })),
    SCENARIOS.map(({ name, caller }) => ({ name, caller })),
  );
  for (const { name, caller } of listed) {
    assert.ok(text.out.includes(name));
    assert.ok(text.out.includes(caller));
  }
});

test('a configuration error is one sentence and exit code 2; wrong usage is 3', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'duebridge-sandbox-'));
  t.after(() => rm(folder, { recursive: true }));
  const bad = path.join(folder, 'bad.json');
  await writeFile(bad, '[{"fault":"F99"}]');
  const cases: readonly [readonly string[], number][] = [
    [['partner', '--port', '0', '--scenario', 'F99'], 2],
    [['partner', '--port', '0', '--script', path.join(folder, 'none.json')], 2],
    [['partner', '--port', '0', '--script', bad], 2],
    [['partner', '--port', 'many'], 3],
    [['partner', '--no-such-flag'], 3],
    [
      ['platform', 'drive', '--base-url', 'http://127.0.0.1:1', '--biller', 'b', '--account', 'a'],
      2,
    ],
  ];
  await Promise.all(
    cases.map(async ([args, code]) => {
      const seen = await run(...args);
      assert.equal(seen.code, code, `${args.join(' ')}: ${seen.err}`);
      assert.doesNotMatch(seen.err, /\n\s+at /, 'no stack trace');
    }),
  );
});

test('a script is a list of steps with a known fault or an answer', () => {
  const steps = [
    { fault: 'F02', times: 3 },
    { fault: 'F28-wrong-amount', times: 'until_healed' },
    { match: { operation: 'put_account_payment' }, fault: { status: 503 } },
  ];
  assert.deepEqual(readScript(steps), steps);
  const wrong: unknown[] = [
    {},
    ['F02'],
    [{}],
    [{ fault: 'F99' }],
    [{ fault: { body: 1 } }],
    [{ fault: 'F02', times: 0 }],
    [{ fault: 'F02', times: 1.5 }],
    [{ fault: 'F02', match: 'put' }],
  ];
  for (const script of wrong) assert.throws(() => readScript(script), ScriptProblem);
});

test('the help lists the magic accounts and amounts', () => {
  const partner = sandboxCommand().commands.find((command) => command.name() === 'partner');
  assert.ok(partner);
  let help = '';
  partner.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
  assert.match(help, /sandbox-utility \/ inactive/);
  assert.match(help, /66601/);
});
