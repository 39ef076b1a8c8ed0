/**
 * A file of an archive: rows as JSON, one a line, compressed with Zstandard (`zstd -dc` reads it). It is made of blocks, each a frame of its own;
 * beside it, `FILE.blocks` lists between which keys each is and where it begins, so that one row is read without the others. Rows may come in any
 * order, because databases sort text differently; the nearer equal keys are, the fewer blocks are read.
 */
import { createHash } from 'node:crypto';
import { open, readFile, rename, writeFile, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
// As a whole: a name that an older Node lacks would hide the sentence that refuses that Node.
import zlib from 'node:zlib';
import { spanOf } from '../payment-id.ts';

const compress = promisify(zlib.zstdCompress);
const decompress = promisify(zlib.zstdDecompress);

/** Rows of a block: 200 kilobytes, a millisecond to compress or to read. */
const ROWS_PER_BLOCK = 400;
/** Portions of a month's work take a processor for a millisecond or two each; this pause between them leaves it to payments. */
export const giveWay = (): Promise<void> => delay(20);

/** A row, and what it is found by. */
export interface KeyedLine {
  readonly key: string;
  readonly line: string;
}

/** What a file holds. */
export interface Written {
  readonly rows: number;
  /** Of the file's bytes, in hexadecimal. */
  readonly sha256: string;
}

/** The least and the greatest key of each block, and its place; the last entry is the end of the file. */
type Blocks = readonly (readonly [least: string, greatest: string, offset: number])[];

/**
 * Writes a file and its list of blocks, reads it back whole, and compares. `read` gives the rows. The file has its name
 * only once it is proved. Throws when what is read back differs.
 */
export async function writeArchive(
  path: string,
  read: (take: (rows: readonly KeyedLine[]) => Promise<void>) => Promise<void>,
): Promise<Written> {
  const blocks: [string, string, number][] = [];
  const content = createHash('sha256');
  let [rows, offset] = [0, 0];
  const file = await open(`${path}.part`, 'w+');
  try {
    let waiting: KeyedLine[] = [];
    const flush = async (): Promise<void> => {
      if (waiting.length === 0) return;
      const keys = waiting.map(({ key }) => key).toSorted();
      const text = waiting.map(({ line }) => `${line}\n`).join('');
      const frame = await compress(text);
      content.update(text);
      await file.write(frame, 0, frame.length, offset);
      blocks.push([keys[0] ?? '', keys.at(-1) ?? '', offset]);
      offset += frame.length;
      rows += waiting.length;
      waiting = [];
    };
    await read(async (portion) => {
      waiting.push(...portion);
      if (waiting.length >= ROWS_PER_BLOCK) await flush();
    });
    await flush();
    blocks.push(['', '', offset]);
    await file.sync();
    const back = await readBack(file, blocks);
    if (back.content !== content.digest('hex')) {
      throw new Error(`${path} does not hold what was written to it`);
    }
    await writeFile(`${path}.blocks`, JSON.stringify(blocks), { flush: true });
    await rename(`${path}.part`, path);
    // The partitions are dropped after this: a power failure must not take the names of the files either.
    const folder = await open(dirname(path));
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
    return { rows, sha256: back.sha256 };
  } finally {
    await file.close();
  }
}

async function readBack(file: FileHandle, blocks: Blocks) {
  const [bytes, content] = [createHash('sha256'), createHash('sha256')];
  for (let index = 0; index + 1 < blocks.length; index += 1) {
    const { frame, text } = await readBlock(file, blocks, index);
    bytes.update(frame);
    content.update(text);
    await giveWay();
  }
  return { sha256: bytes.digest('hex'), content: content.digest('hex') };
}

async function readBlock(file: FileHandle, blocks: Blocks, index: number) {
  const [from, to] = [blocks[index]?.[2] ?? 0, blocks[index + 1]?.[2] ?? 0];
  const frame = Buffer.alloc(to - from);
  await file.read(frame, 0, frame.length, from);
  return { frame, text: await decompress(frame) };
}

/** The rows of these payments. Throws when the file cannot be read. */
export async function readArchive<Row>(path: string, ids: readonly string[]): Promise<Row[]> {
  const [wanted, [first, last]] = [new Set(ids), spanOf(ids)];
  const blocks = JSON.parse(await readFile(`${path}.blocks`, 'utf8')) as Blocks;
  const file = await open(path);
  try {
    const found: Row[] = [];
    for (const [index, [least, greatest]] of blocks.entries()) {
      if (last < least || first > greatest) continue;
      const { text } = await readBlock(file, blocks, index);
      for (const line of text.toString('utf8').split('\n')) {
        const row = JSON.parse(line || '{}') as { readonly platform_payment_id?: string };
        if (wanted.has(row.platform_payment_id ?? '')) found.push(row as Row);
      }
    }
    return found;
  } finally {
    await file.close();
  }
}
