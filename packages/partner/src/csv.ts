/**
 * CSV files as billing systems export them (RFC 4180, UTF-8).
 *
 * enters: the text of a file, chunk by chunk, whose first line names its columns. It is read twice: once for what is wrong in it, because
 *         one bad line refuses the file, and once page by page.
 * leaves: what its lines hold, in pages, and its digest.
 * holds:  memory does not grow with the file, except for 8 bytes a line by which lines of one identity are found.
 */
import crypto from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import { Refusal, type Detail } from '@duebridge/contract';
import { CsvError, parse } from 'csv-parse';

/** The text of a file: whole, or in chunks. */
export type CsvText = Iterable<string> | AsyncIterable<string>;

/** A line as it was read. */
interface Line<T> {
  /** Its number in the file; that of its last line when a cell has line breaks. */
  readonly line: number;
  readonly value: T;
  /** What is wrong in it; empty when it is right. */
  readonly problems: readonly string[];
}

/** The refusal of a file; the details name its lines as `line 7`. */
function refused(details: readonly Detail[]): Refusal {
  const message = details.map(({ path, problem }) => `${path}: ${problem}`).join('\n');
  return new Refusal('INVALID_REQUEST', { message, details });
}

/** How the lines of one kind of file are read. */
export interface CsvKind<T> {
  /** What one line holds: `payment`. */
  readonly what: string;
  /** What is wrong with the names of the columns. */
  readonly header: (names: readonly string[]) => readonly string[];
  /** Reads one line. `cell` is as written; undefined when the file has no such column. */
  readonly read: (cell: (name: string) => string | undefined, problems: string[]) => T;
  /** What only one line of a file may have; undefined for a line that any number may repeat. */
  readonly identity: (value: T) => string | undefined;
}

/** Gets how many lines of a file are stored, and how many it has. */
export type Progress = (stored: number, total: number) => void;

/** The import of a file. */
export interface CsvImport<T> {
  readonly kind: CsvKind<T>;
  /** Its text from the beginning. */
  readonly open: () => CsvText;
  /** Stores a thousand lines, or the rest. */
  readonly store: (page: T[]) => Promise<void>;
  /** Notes the import of the file with this digest: once, also when it broke off, because what was stored before that stays. */
  readonly note: (file_sha256: string) => Promise<void>;
  readonly progress?: Progress | undefined;
}

/** Lines of one page: a transaction each. */
const PAGE_ROWS = 1_000;

/** Checks a file, then stores it page by page. Throws Refusal INVALID_REQUEST that names the bad lines, and what `store` throws. */
export async function importCsv<T>(file: CsvImport<T>): Promise<void> {
  const { kind, open, store, note, progress } = file;
  const { count, file_sha256 } = await checkCsv(kind, open);
  let [page, stored]: [T[], number] = [[], 0];
  const storePage = async (): Promise<void> => {
    if (page.length === 0) return;
    await store(page);
    stored += page.length;
    progress?.(stored, count);
    page = [];
  };
  try {
    for await (const { line, value, problems } of linesOf(kind, open())) {
      // The file was written to meanwhile.
      if (problems.length > 0)
        throw refused([{ path: `line ${line}`, problem: problems.join('; ') }]);
      page.push(value);
      if (page.length === PAGE_ROWS) await storePage();
    }
    await storePage();
  } finally {
    await note(file_sha256);
  }
}

/** Reads the lines of a file. Throws Refusal for a bad header and for what is not CSV; a bad line is among its results. */
async function* linesOf<T>(kind: CsvKind<T>, text: CsvText): AsyncGenerator<Line<T>> {
  const options = { bom: true, info: true, relax_column_count: true, skip_empty_lines: true };
  const parser = parse(options);
  // Errors of the source reach the loop through the parser.
  pipeline(Readable.from(text), parser, () => undefined);
  let header: readonly string[] | undefined;
  const places = new Map<string, number>();
  try {
    for await (const each of parser) {
      const { record, info } = each as { record: string[]; info: { lines: number } };
      if (header === undefined) {
        header = record.map((name) => name.trim());
        refuseHeader(kind.header(header));
        header.forEach((name, index) => places.set(name, index));
        continue;
      }
      const problems: string[] = [];
      if (record.length !== header.length) {
        problems.push(`has ${record.length} cells where the first line has ${header.length}`);
      }
      const cell = (name: string): string | undefined => {
        const index = places.get(name);
        return index === undefined ? undefined : (record[index] ?? '');
      };
      yield { line: info.lines, value: kind.read(cell, problems), problems };
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    const line = typeof error['lines'] === 'number' ? error['lines'] : 1;
    const problem =
      'is not CSV: a quotation mark opens a cell and does not close it, or stands inside one without being doubled';
    throw refused([{ path: `line ${line}`, problem }]);
  }
  if (header === undefined) refuseHeader(['is missing: the file is empty']);
}

function refuseHeader(problems: readonly string[]): void {
  if (problems.length === 0) return;
  throw refused(problems.map((problem) => ({ path: 'line 1', problem })));
}

/** Bad lines that are named; a file may have millions. */
const MOST_NAMED = 100;

/**
 * Reads a whole file. Throws Refusal that names the bad lines, and those whose identity an earlier line has. Of the identities 8 bytes a
 * line are kept; where two are equal, the file is read again, and those lines are compared by their texts.
 */
async function checkCsv<T>(kind: CsvKind<T>, open: () => CsvText) {
  const digests = new Digests();
  let checked = await problemsIn(kind, open(), (id) => digests.add(id));
  const repeated = digests.repeated();
  if (repeated.size > 0) {
    const first = new Map<string, number>();
    checked = await problemsIn(kind, open(), (id, line) => {
      if (!repeated.has(digestOf(id))) return undefined;
      const before = first.get(id);
      if (before === undefined) first.set(id, line);
      return before;
    });
  }
  if (checked.problems.length > 0) throw refused(checked.problems);
  return checked;
}

/** How many lines a file has, its SHA-256, and what is wrong in it. `before` gives the line that had an identity before. */
async function problemsIn<T>(
  kind: CsvKind<T>,
  text: CsvText,
  before: (id: string, line: number) => number | undefined,
) {
  const digest = crypto.createHash('sha256');
  const problems: Detail[] = [];
  let [count, bad] = [0, 0];
  for await (const { line, value, problems: wrong } of linesOf(kind, digested(text, digest))) {
    count += 1;
    const id = kind.identity(value);
    const same = id === undefined ? undefined : before(id, line);
    const all = same === undefined ? wrong : [...wrong, `is the same ${kind.what} as line ${same}`];
    if (all.length === 0) continue;
    bad += 1;
    if (bad <= MOST_NAMED) problems.push({ path: `line ${line}`, problem: all.join('; ') });
  }
  if (bad > MOST_NAMED) {
    problems.push({ path: 'the file', problem: `has ${bad - MOST_NAMED} more bad lines` });
  }
  return { count, file_sha256: digest.digest('hex'), problems };
}

async function* digested(text: CsvText, digest: crypto.Hash): AsyncGenerator<string> {
  for await (const chunk of text) {
    digest.update(chunk);
    yield chunk;
  }
}

/** 52 bits of a text's digest. */
function digestOf(text: string): number {
  return Number.parseInt(crypto.hash('sha256', text, 'hex').slice(0, 13), 16);
}

/** Digests of a file's identities, in plain numbers: a Set of a million takes ten times as much memory. */
class Digests {
  #all = new Float64Array(1_024);
  #size = 0;

  add(text: string): undefined {
    if (this.#size === this.#all.length) {
      const grown = new Float64Array(Math.ceil(this.#size * 1.5));
      grown.set(this.#all);
      this.#all = grown;
    }
    this.#all[this.#size] = digestOf(text);
    this.#size += 1;
  }

  /** Those that were added more than once. */
  repeated(): Set<number> {
    const sorted = this.#all.subarray(0, this.#size).sort();
    return new Set(sorted.filter((digest, at) => digest === sorted[at - 1]));
  }
}
