/**
 * A biller's logo: the PNG that an operator registers enters, the picture that customers get leaves.
 *
 * holds: what leaves is one still picture of a checked size and nothing else. Chunks that do not draw it (texts, profiles, animations) and
 *        bytes after its end are dropped, so that the file is no second document of another kind.
 */
import { createHash } from 'node:crypto';
import zlib, { inflateSync } from 'node:zlib';
import { sql, type Database, type Transaction } from '@duebridge/runtime';

/** Enough for a mark at twice the size of the page's head; with its base64 it fits the admin API's limit of a body. */
const MAX_BYTES = 32_768;
const [MIN_PIXELS, MAX_PIXELS] = [32, 512];

const SIGNATURE = Buffer.from('89504e470d0a1a0a', 'hex');
/** The chunks that draw a still picture. */
const DRAWING = new Set(['IHDR', 'PLTE', 'tRNS', 'IDAT', 'IEND']);
/** Samples of a pixel, by colour type. */
const SAMPLES: Readonly<Record<number, number>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };

/** A logo as it is stored: `name` is made from its content. */
export interface Logo {
  readonly name: string;
  readonly image: Buffer;
}

/** Reads the base64 of a PNG; a text says what is wrong with it. */
export function readLogo(base64: string): Logo | string {
  const file = Buffer.from(base64, 'base64');
  if (file.length > MAX_BYTES) return `must be at most ${MAX_BYTES / 1024} KiB`;
  if (!file.subarray(0, 8).equals(SIGNATURE)) return 'must be a PNG';
  const chunks = chunksOf(file);
  if (chunks === undefined) return 'is a damaged PNG';
  const [header] = chunks;
  if (header?.type !== 'IHDR' || header.data.length !== 13) return 'is a damaged PNG';
  const [width, height] = [header.data.readUInt32BE(0), header.data.readUInt32BE(4)];
  const [depth = 0, colour = 0, , , interlaced] = header.data.subarray(8);
  if (Math.min(width, height) < MIN_PIXELS || Math.max(width, height) > MAX_PIXELS)
    return `must be ${MIN_PIXELS} to ${MAX_PIXELS} pixels wide and high, and is ${width} by ${height}`;
  if (interlaced !== 0) return 'must not be interlaced';
  const rowBytes = 1 + Math.ceil((width * depth * (SAMPLES[colour] ?? 0)) / 8);
  const packed = chunks.filter(({ type }) => type === 'IDAT').map(({ data }) => data);
  if (inflatedBytes(Buffer.concat(packed), rowBytes * height) !== rowBytes * height)
    return 'is a damaged PNG';
  const image = Buffer.concat([SIGNATURE, ...chunks.map(({ whole }) => whole)]);
  const name = createHash('sha256').update(image).digest('hex').slice(0, 32);
  return { name: `${name}.png`, image };
}

const keepStatement = sql(
  'logo_keep',
  'INSERT INTO duebridge_platform.logos (logo, image) VALUES ($1, $2) ON CONFLICT (logo) DO NOTHING',
);
const getStatement = sql('logo_get', 'SELECT image FROM duebridge_platform.logos WHERE logo = $1');

/** Stores a logo that `readLogo` accepts; returns its name. */
export async function keepLogo(tx: Transaction, base64: string): Promise<string> {
  const logo = readLogo(base64);
  if (typeof logo === 'string') throw new Error(`a logo that was not checked ${logo}`);
  await tx.query(keepStatement, [logo.name, logo.image]);
  return logo.name;
}

/** The form of a name that `readLogo` makes: for any other no query is made. */
const NAME = /^[0-9a-f]{32}\.png$/;

/** A stored logo; undefined when no partner ever had it. */
export async function storedLogo(database: Database, name: string): Promise<Buffer | undefined> {
  if (!NAME.test(name)) return undefined;
  const [row] = await database.query<{ image: Buffer }>(getStatement, [name]);
  return row?.image;
}

interface Chunk {
  readonly type: string;
  readonly data: Buffer;
  readonly whole: Buffer;
}

/** The chunks that draw, up to the end of the picture; undefined for a file that is cut off or damaged. */
function chunksOf(file: Buffer): Chunk[] | undefined {
  const chunks: Chunk[] = [];
  for (let at = SIGNATURE.length; at + 12 <= file.length;) {
    const end = at + 12 + file.readUInt32BE(at);
    if (end > file.length) return undefined;
    const whole = file.subarray(at, end);
    if (zlib.crc32(whole.subarray(4, -4)) !== whole.readUInt32BE(whole.length - 4))
      return undefined;
    const type = whole.toString('latin1', 4, 8);
    if (DRAWING.has(type)) chunks.push({ type, data: whole.subarray(8, -4), whole });
    if (type === 'IEND') return chunks;
    at = end;
  }
  return undefined;
}

/** How much it inflates to; undefined for what cannot be inflated, or only to more than `most`. */
function inflatedBytes(packed: Buffer, most: number): number | undefined {
  try {
    return inflateSync(packed, { maxOutputLength: most }).length;
  } catch {
    return undefined;
  }
}
