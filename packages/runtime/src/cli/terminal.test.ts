/** The message for a file that cannot be read, and the behaviour when nobody reads a command's output. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { CommandError, exitCodes } from '../errors.ts';
import { readTextFile, type Terminal } from './terminal.ts';

const entryPoint = fileURLToPath(new URL('../../../../bin/duebridge.ts', import.meta.url));

function terminal(...input: Uint8Array[]): Terminal {
  async function* stdin(): AsyncGenerator<Uint8Array> {
    yield* input;
    await Promise.resolve();
  }
  return { env: {}, stdin: stdin(), write: () => undefined };
}

async function folder(t: TestContext): Promise<string> {
  const made = await mkdtemp(path.join(tmpdir(), 'terminal-'));
  t.after(() => rm(made, { recursive: true, force: true }));
  return made;
}

/** One sentence that says what is wrong and how to fix it, without the operating system's error text. */
async function refused(file: string, sentence: RegExp, from = terminal()): Promise<void> {
  await assert.rejects(readTextFile(from, file), (error: unknown) => {
    assert(error instanceof CommandError);
    assert.equal(error.exitCode, exitCodes.failed);
    assert.match(error.message, sentence);
    assert.doesNotMatch(error.message, /ENOENT|EISDIR|EACCES|EPERM|\n/);
    return true;
  });
}

test('a file that is missing, a folder, or another user’s is reported in a sentence', async (t) => {
  const place = await folder(t);
  await refused(path.join(place, 'none.csv'), /there is no file .*none\.csv: check its name/);
  await refused(place, /is a folder: name a file in it/);
  const locked = path.join(place, 'locked.csv');
  await writeFile(locked, 'a,b\n');
  await chmod(locked, 0o000);
  if (process.getuid?.() === 0) t.diagnostic('root may read every file: its refusal is not tried');
  else await refused(locked, /may not be read by this user/);
});

test('a name in Latin-1 is refused, in a file and on standard input, and in UTF-8 it is kept', async (t) => {
  const place = await folder(t);
  const file = path.join(place, 'names.csv');
  await writeFile(file, Buffer.from('account_id,last_name\nA-1,M\u00fcller\n', 'latin1'));
  await refused(file, /names\.csv is not UTF-8: save it as UTF-8.*iconv -f ISO-8859-1/);
  // As a spreadsheet saves "Unicode text".
  await writeFile(file, Buffer.from('\ufeffaccount_id\nA-1\n', 'utf16le'));
  await refused(file, /or -f UTF-16/);
  const piped = terminal(Buffer.from('M\u00fcller', 'latin1'));
  await refused('-', /standard input is not UTF-8/, piped);
  await writeFile(file, 'A-1,M\u00fcller\n');
  assert.equal(await readTextFile(terminal(), file), 'A-1,M\u00fcller\n');
});

test('a command whose reader has gone ends quietly with 0, as in `| head`', async (t) => {
  const child = spawn(process.execPath, [entryPoint, 'partner', 'accounts-openapi'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.after(() => child.kill('SIGKILL'));
  // The pipe breaks before the command has printed anything.
  child.stdout.destroy();
  let told = '';
  child.stderr.on('data', (part: Buffer) => (told += part.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  assert.deepEqual([code, told], [0, '']);
});
