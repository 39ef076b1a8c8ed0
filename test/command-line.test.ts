/** The command as a shell sees it: its exit codes, its two outputs, and its suggestions. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import test from 'node:test';

function duebridge(...words: string[]) {
  const program = join(import.meta.dirname, '../bin/duebridge.ts');
  const env = { ...process.env, DUEBRIDGE_ADMIN_KEY: 'some-key', ADMIN_PORT: '1' };
  return spawnSync(process.execPath, [program, ...words], { encoding: 'utf8', env });
}

test('with --json every failure is one JSON value on standard error, with the exit code of its kind', () => {
  const failures: [words: string[], status: number, code: string, message: RegExp][] = [
    [['platform', 'payments', '--statu', 'x'], 3, 'USAGE', /Did you mean --status/],
    [['platform', 'partner', 'add'], 3, 'USAGE', /^give --id, --name, /],
    [['platform', 'partner', 'list'], 1, 'NO_ANSWER', /does not answer/],
  ];
  for (const [words, status, code, message] of failures) {
    const done = duebridge(...words, '--json');
    assert.equal(done.status, status, done.stderr);
    assert.equal(done.stdout, '');
    const { error } = JSON.parse(done.stderr) as { error: { code: string; message: string } };
    assert.equal(error.code, code);
    assert.match(error.message, message);
  }
});

test('a misspelt command gets a suggestion, and a shell the words that fit', () => {
  const misspelt = duebridge('platfrm');
  assert.equal(misspelt.status, 3);
  assert.match(misspelt.stderr, /Did you mean platform/);
  assert.match(duebridge('complete', '--', 'platform', 'pay').stdout, /^payment\t/m);
  const choices = duebridge('complete', '--', 'platform', 'payments', '--status', 'n').stdout;
  assert.match(choices, /^needs_human/);
  for (const shell of ['bash', 'zsh', 'fish']) {
    assert.match(duebridge('complete', shell).stdout, /duebridge/);
  }
  const unknown = duebridge('complete', 'csh');
  assert.equal(unknown.status, 3);
  assert.match(unknown.stderr, /Allowed choices are zsh, bash, fish/);
});
