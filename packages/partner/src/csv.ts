/**
 * CSV files as billing systems export them (RFC 4180, UTF-8).
 *
 * enters: the text of a file, chunk by chunk, whose first line names its columns. It is read twice: once for what is wrong in it, because
 *         one bad line refuses the file, and once page by page.
 * leaves: what its lines hold, in pages, and its digest.
 * holds:  memory does not grow with the file, except for about 60 bytes a line by which lines of one identity are found.
 */
import crypto from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import type { Detail } from '@duebridge/contract';
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

/** A file cannot be used; `problems` names lines as `line 7`. */
export class CsvRefused extends Error {
  override readonly name = 'CsvRefused';
  readonly problems: readonly Detail[];
  constructor(problems: readonly Detail[]) {
    super(problems.map(({ path, problem }) => `${path}: ${problem}`).join('\n'));
    this.problems = problems;
  }
}

/** A file that was checked is not the same any more when it is read for the import. */
export class CsvChanged extends Error {
  override readonly name = 'CsvChanged';
  constructor() {
    super('the file changed while it was imported');
  }
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

/** A file that was checked: how many lines it has, and its SHA-256. */
interface CheckedCsv {
  readonly count: number;
  readonly file_sha256: string;
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

/** Checks a file, then stores it page by page. Throws what `checkCsv` and `csvPages` throw, and what `store` throws. */
export async function importCsv<T>(file: CsvImport<T>): Promise<void> {
  const { kind, open, store, note, progress } = file;
  const checked = await checkCsv(kind, open());
  let stored = 0;
  try {
    for await (const page of csvPages(kind, open(), checked)) {
      await store(page);
      stored += page.length;
      progress?.(stored, checked.count);
    }
  } finally {
    await note(checked.file_sha256);
  }
}

/** Reads the lines of a file. Throws CsvRefused for a bad header and for what is not CSV; a bad line is among its results. */
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
    throw new CsvRefused([{ path: `line ${line}`, problem }]);
  }
  if (header === undefined) refuseHeader(['is missing: the file is empty']);
}

function refuseHeader(problems: readonly string[]): void {
  if (problems.length === 0) return;
  throw new CsvRefused(problems.map((problem) => ({ path: 'line 1', problem })));
}

/** Bad lines that are named; a file may have millions. */
const MOST_NAMED = 100;

/** Reads a whole file. Throws CsvRefused that names the bad lines, and those whose identity an earlier line has. */
async function checkCsv<T>(kind: CsvKind<T>, text: CsvText): Promise<CheckedCsv> {
  const digest = crypto.createHash('sha256');
  const seen = new Identities();
  const problems: Detail[] = [];
  let [count, bad] = [0, 0];
  for await (const { line, value, problems: wrong } of linesOf(kind, digested(text, digest))) {
    count += 1;
    const id = kind.identity(value);
    const before = id === undefined ? undefined : seen.add(id, line);
    const all =
      before === undefined ? wrong : [...wrong, `is the same ${kind.what} as line ${before}`];
    if (all.length === 0) continue;
    bad += 1;
    if (bad <= MOST_NAMED) problems.push({ path: `line ${line}`, problem: all.join('; ') });
  }
  if (bad > MOST_NAMED) {
    problems.push({ path: 'the file', problem: `has ${bad - MOST_NAMED} more bad lines` });
  }
  if (problems.length > 0) throw new CsvRefused(problems);
  return { count, file_sha256: digest.digest('hex') };
}

/** Lines of one page: a transaction each. */
const PAGE_ROWS = 1_000;

/** Reads a file that was checked, page by page. Throws CsvChanged when it is not the one that was checked. */
async function* csvPages<T>(
  kind: CsvKind<T>,
  text: CsvText,
  { file_sha256 }: CheckedCsv,
): AsyncGenerator<T[]> {
  const digest = crypto.createHash('sha256');
  let page: T[] = [];
  try {
    for await (const { value, problems } of linesOf(kind, digested(text, digest))) {
      if (problems.length > 0) throw new CsvChanged();
      page.push(value);
      if (page.length < PAGE_ROWS) continue;
      yield page;
      page = [];
    }
  } catch (error) {
    throw error instanceof CsvRefused ? new CsvChanged() : error;
  }
  if (digest.digest('hex') !== file_sha256) throw new CsvChanged();
  if (page.length > 0) yield page;
}

async function* digested(text: CsvText, digest: crypto.Hash): AsyncGenerator<string> {
  for await (const chunk of text) {
    digest.update(chunk);
    yield chunk;
  }
}

/**
 * Which line had a text first, by 64 bits of its digest: among ten million texts, two differing ones are taken for one with a
 * chance of one in 400,000. In many small tables, because a large one is in memory twice while it grows, and in plain numbers: a Map of
 * a million takes 25 MB more.
 */
class Identities {
  readonly #tables = Array.from({ length: 4_096 }, () => new Lines());

  /** The line that has this text already; undefined when it is new. */
  add(text: string, line: number): number | undefined {
    const digest = crypto.hash('sha256', text, 'hex');
    const table = this.#tables[Number.parseInt(digest.slice(13, 16), 16)];
    return table?.add(1 + Number.parseInt(digest.slice(0, 13), 16), line);
  }
}

/** Lines by keys from 1 on: each key at its place or, when another is there, at the next that is free. */
class Lines {
  #keys = new Float64Array(16);
  #lines = new Uint32Array(16);
  #size = 0;

  /** The line of a key that is there; undefined for a new one, which it keeps with `line`. */
  add(key: number, line: number): number | undefined {
    const at = this.#placeOf(key);
    if (this.#keys[at] === key) return this.#lines[at];
    this.#keys[at] = key;
    this.#lines[at] = line;
    this.#size += 1;
    if (this.#size > this.#keys.length * 0.75) this.#grow();
    return undefined;
  }

  /** Where a key is, or belongs. */
  #placeOf(key: number): number {
    let at = key % this.#keys.length;
    while (this.#keys[at] !== 0 && this.#keys[at] !== key) at = (at + 1) % this.#keys.length;
    return at;
  }

  #grow(): void {
    const [keys, lines] = [this.#keys, this.#lines];
    this.#keys = new Float64Array(Math.ceil(keys.length * 1.5));
    this.#lines = new Uint32Array(this.#keys.length);
    for (const [from, key] of keys.entries()) {
      if (key === 0) continue;
      const at = this.#placeOf(key);
      this.#keys[at] = key;
      this.#lines[at] = lines[from] ?? 0;
    }
  }
}
