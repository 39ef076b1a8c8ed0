/**
 * A biller's logo: the PNG that an operator registers enters, and leaves for customers as it is.
 *
 * holds: it begins as a PNG, has a checked size and is not animated. Whatever else is in the file, browsers take it for a picture alone:
 *        it is served with its type, `nosniff` and a policy that runs nothing (checkout/pages.ts).
 */
import { createHash } from 'node:crypto';
import { sql, type Database, type Transaction } from '@duebridge/runtime';

/** Enough for a mark at twice the size of the page's head; with its base64 it fits the admin API's limit of a body. */
const MAX_BYTES = 32_768;
const [MIN_PIXELS, MAX_PIXELS] = [32, 512];

/** The first 16 bytes of every PNG: its signature, and the length and the name of its header. */
const BEGINNING = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');
/** The name of the chunk that makes an animation of it. */
const ANIMATION = 'acTL';

/** Reads the base64 of a PNG; its name is made from its content. A text says what is wrong with it. */
export function readLogo(base64: string): { name: string; image: Buffer } | string {
  const file = Buffer.from(base64, 'base64');
  if (file.length > MAX_BYTES) return `must be at most ${MAX_BYTES / 1024} KiB`;
  if (file.length < 33 || !file.subarray(0, 16).equals(BEGINNING)) return 'must be a PNG';
  const [width, height] = [file.readUInt32BE(16), file.readUInt32BE(20)];
  if (Math.min(width, height) < MIN_PIXELS || Math.max(width, height) > MAX_PIXELS)
    return `must be ${MIN_PIXELS} to ${MAX_PIXELS} pixels wide and high, and is ${width} by ${height}`;
  if (file.includes(ANIMATION)) return 'must not be animated';
  const name = createHash('sha256').update(file).digest('hex').slice(0, 32);
  return { name: `${name}.png`, image: file };
}

const keepStatement = sql(`
   INSERT INTO duebridge_platform.logos (logo, image) VALUES ($1, $2) ON CONFLICT (logo) DO NOTHING`);
const getStatement = sql(`SELECT image FROM duebridge_platform.logos WHERE logo = $1`);

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
