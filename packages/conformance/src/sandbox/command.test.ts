/** The command line of the sandbox: its help, and exit codes for errors. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
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

test('a configuration error is one sentence and exit code 2; wrong usage is 3', async () => {
  const cases: readonly [readonly string[], number][] = [
    [['partner', '--host', '192.0.2.1'], 2],
    [['partner', '--port', 'many'], 3],
    [['partner', '--no-such-flag'], 3],
  ];
  await Promise.all(
    cases.map(async ([args, code]) => {
      const seen = await run(...args);
      assert.equal(seen.code, code, `${args.join(' ')}: ${seen.err}`);
      assert.doesNotMatch(seen.err, /\n\s+at /, 'no stack trace');
    }),
  );
});

test('the help lists the magic accounts and amounts', () => {
  const partner = sandboxCommand().commands.find((command) => command.name() === 'partner');
  assert.ok(partner);
  let help = '';
  partner.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
  assert.match(help, /sandbox-utility \/ inactive/);
  assert.match(help, /66601/);
});
