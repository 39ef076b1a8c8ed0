/**
 * A command's input and output, and how it reads files. Everything below cli/ is light: asking a command for help loads neither a
 * server nor a database driver.
 */
import { mkdtemp, open, readFile, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { TextDecoder } from 'node:util';
import { secretText } from '../config.ts';
import { CommandError, exitCodes } from '../errors.ts';

/** A command's input and output; the process's own unless a test passes another. */
export interface Terminal {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: AsyncIterable<Uint8Array | string>;
  /** Writes to standard output. When the reader has gone (`| head`) the text is dropped. */
  write(text: string): void;
}

/** The terminal of this process. */
export const processTerminal: Terminal = {
  env: process.env,
  get stdin() {
    return process.stdin;
  },
  write: (text) => void process.stdout.write(text),
};

/**
 * Ends the process quietly with 0 when the reader of its output has gone: in `duebridge platform payments | head` nothing went
 * wrong. Any other output error ends it with 1. What stops in order when it is asked to, such as a server with its PostgreSQL, is asked.
 */
export function endWithItsReader(): void {
  let isAsked = false;
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (isAsked) return;
      isAsked = process.listenerCount('SIGTERM') > 0 && process.kill(process.pid, 'SIGTERM');
      if (isAsked) return;
      process.exit(error.code === 'EPIPE' ? exitCodes.done : exitCodes.failed);
    });
  }
}

/** How often long work says how far it is. */
const REPORT_EVERY_MS = 2_000;

/** Tells on standard error how far long work is: one line, and then none for two seconds. */
export function progressReport(): (line: string) => void {
  let reportedAt = -Infinity;
  return (line) => {
    if (performance.now() - reportedAt <= REPORT_EVERY_MS) return;
    reportedAt = performance.now();
    process.stderr.write(`${line}\n`);
  };
}

/**
 * A secret from its flag, from standard input when the flag is `-`, or from the environment (a variable, or a file that NAME_FILE
 * names); the last two leave no trace in a shell's history. Undefined when it was not given.
 */
export async function secretOption(
  terminal: Terminal,
  given: string | undefined,
  variable: string,
): Promise<string | undefined> {
  if (given !== '-') return given ?? secretText(terminal.env, variable);
  return (await text(terminal.stdin)).trimEnd() || undefined;
}

/** A file named by the user; `-` is standard input. Throws CommandError with a sentence for one that is missing, unreadable or a folder. */
export async function readBytes(terminal: Terminal, file: string): Promise<Buffer> {
  return (file === '-' ? buffer(terminal.stdin) : readFile(file)).catch((error: unknown) => {
    throw fileTrouble(file, error);
  });
}

/**
 * Opens a text file named by the user, which can be read more than once and is never held in memory; `-` is standard input, which is copied
 * to a temporary file because it can be read only once. Throws CommandError with a sentence for a file that is missing, unreadable or a folder.
 */
export async function openTextFile(terminal: Terminal, file: string) {
  const handle = await openAgain(terminal, file).catch((error: unknown) => {
    throw fileTrouble(file, error);
  });
  return {
    /** Its text from the beginning, with a byte order mark if it has one. Throws CommandError when it is not UTF-8. */
    async *text(): AsyncGenerator<string> {
      // It must be UTF-8: text in another encoding would be stored as garbage.
      const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
      try {
        for await (const bytes of handle.createReadStream({ start: 0, autoClose: false })) {
          yield utf8.decode(bytes as Uint8Array, { stream: true });
        }
        yield utf8.decode();
      } catch (error) {
        throw fileTrouble(file, error);
      }
    },
    close: (): Promise<void> => handle.close(),
  };
}

/** A handle that can be read at any position: of the file itself, or of a copy of what can be read only once. */
async function openAgain(terminal: Terminal, file: string): Promise<FileHandle> {
  const given = file === '-' ? undefined : await open(file);
  if (given !== undefined) {
    const stat = await given.stat();
    if (stat.isFile() || stat.isDirectory()) return given;
  }
  const folder = await mkdtemp(path.join(tmpdir(), 'duebridge-'));
  try {
    const copy = path.join(folder, 'copy');
    const source = given === undefined ? terminal.stdin : given.createReadStream();
    await writeFile(copy, source, { mode: 0o600 });
    return await open(copy);
  } finally {
    // It stays readable through its handle, and nothing is left behind however the process ends.
    await rm(folder, { recursive: true, force: true });
  }
}

/** The whole of a text file, as `openTextFile` reads it, without a byte order mark. */
export async function readTextFile(terminal: Terminal, file: string): Promise<string> {
  const opened = await openTextFile(terminal, file);
  try {
    return (await text(opened.text())).replace(/^\uFEFF/, '');
  } finally {
    await opened.close();
  }
}

function fileTrouble(file: string, error: unknown): CommandError {
  return new CommandError(whatIsWrong(file, error), exitCodes.failed);
}

function whatIsWrong(file: string, error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  switch (code) {
    case 'ENOENT':
      return `there is no file ${file}: check its name and the folder you are in`;
    case 'EISDIR':
      return `${file} is a folder: name a file in it`;
    case 'EACCES':
    case 'EPERM':
      return `${file} may not be read by this user: change its permissions, or run as its owner`;
    case 'ERR_ENCODING_INVALID_ENCODED_DATA':
      // UTF-16 is what a spreadsheet saves as "Unicode text".
      return `${file === '-' ? 'standard input' : file} is not UTF-8: save it as UTF-8, or convert it (iconv -f ISO-8859-1 -t UTF-8, or -f UTF-16) and try again`;
    default:
      return `${file} cannot be read (${typeof code === 'string' ? code : String(error)})`;
  }
}
