/**
 * A command's input and output, and how it reads files. Everything below cli/ is light: asking a command for help loads neither a
 * server nor a database driver.
 */
import { readFile } from 'node:fs/promises';
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
 * wrong. Any other output error ends it with 1.
 */
export function endWithItsReader(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
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

/** All of standard input. */
export async function readStdin(terminal: Terminal): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of terminal.stdin) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
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
  return (
    Buffer.from(await readStdin(terminal))
      .toString('utf8')
      .trimEnd() || undefined
  );
}

/** A file named by the user; `-` is standard input. Throws CommandError with a sentence for one that is missing, unreadable or a folder. */
export async function readBytes(terminal: Terminal, file: string): Promise<Buffer> {
  try {
    return file === '-' ? Buffer.from(await readStdin(terminal)) : await readFile(file);
  } catch (error) {
    throw new CommandError(fileTrouble(file, error), exitCodes.failed);
  }
}

/** The same for a text, which must be UTF-8: text in another encoding would be stored as garbage. */
export async function readTextFile(terminal: Terminal, file: string): Promise<string> {
  const bytes = await readBytes(terminal, file);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const name = file === '-' ? 'standard input' : file;
    // A spreadsheet's "Unicode text" begins with one of these two marks.
    const isUtf16 = ['fffe', 'feff'].includes(Buffer.from(bytes.subarray(0, 2)).toString('hex'));
    const from = isUtf16 ? 'UTF-16' : 'ISO-8859-1';
    throw new CommandError(
      `${name} is not UTF-8: save it as UTF-8, or convert it (iconv -f ${from} -t UTF-8), and try again`,
      exitCodes.failed,
    );
  }
}

function fileTrouble(file: string, error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  switch (code) {
    case 'ENOENT':
      return `there is no file ${file}: check its name and the folder you are in`;
    case 'EISDIR':
      return `${file} is a folder: name a file in it`;
    case 'EACCES':
    case 'EPERM':
      return `${file} may not be read by this user: change its permissions, or run as its owner`;
    default:
      return `${file} cannot be read (${typeof code === 'string' ? code : String(error)})`;
  }
}
