/**
 * Keys that a server issues to programs and people: random, shown once, stored as digests under a pepper that is kept outside the
 * database.
 *
 * holds: what was read is remembered for five seconds, which bounds how late a revocation takes effect elsewhere. Unknown keys that arrive
 *        together are looked up in one statement, so that guessing takes one connection and not the pool.
 */
import { createHmac, randomBytes, timingSafeEqual, type KeyObject } from 'node:crypto';
import zlib from 'node:zlib';
import type { Clock } from './clock.ts';
import { groupCommit } from './group-commit.ts';
import type { Database, Statement } from './postgres.ts';

/** How long what was read of a key is remembered. */
const REMEMBER_MS = 5_000;
/** Digests of one statement, and at most waiting. */
const [DIGESTS_AT_ONCE, MAX_DIGESTS] = [500, 10_000];

/**
 * A key of 256 random bits. `checksum` adds one by which secret scanners recognise it with certainty; it is never verified, because
 * refusing by it would be faster than refusing by the digest.
 */
export function newKey(prefix: string, options: { readonly checksum?: boolean } = {}): string {
  const secret = randomBytes(32);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32BE(zlib.crc32(secret));
  const bytes = options.checksum === true ? Buffer.concat([secret, checksum]) : secret;
  return `${prefix}${bytes.toString('base64url')}`;
}

/** What is stored of a key; `purpose` keeps the digests of one kind from being those of another. */
export function keyDigest(pepper: KeyObject, key: string, purpose = ''): Buffer {
  return createHmac('sha256', pepper).update(purpose).update(key).digest();
}

const nobody = randomBytes(32);

/**
 * The one of at most two stored keys that `digest` is, or undefined. Always two comparisons, so that timing tells neither how many keys
 * there are nor which one it was.
 */
export function matchingKey<Key extends { readonly digest: Buffer | null }>(
  digest: Buffer,
  keys: readonly Key[],
): Key | undefined {
  let match: Key | undefined;
  for (const key of [keys[0], keys[1]]) {
    const stored = key?.digest ?? null;
    if (timingSafeEqual(digest, stored ?? nobody) && stored !== null) match = key;
  }
  return match;
}

/** Answers that are remembered for a short time, by name. Failures are not. */
export type Remembered<T> = ReturnType<typeof remember<T>>;

/** `keep`: whether an answer is worth remembering; strangers could fill the memory with absences. */
export function remember<T>(options: {
  readonly clock: Clock;
  readonly max: number;
  readonly keep?: (answer: T) => boolean;
  /** Default: five seconds. */
  readonly forMs?: number;
}) {
  const { clock, max, keep = () => true, forMs = REMEMBER_MS } = options;
  const known = new Map<string, { readonly at: number; readonly answer: Promise<T> }>();
  return {
    get(name: string, read: () => Promise<T>): Promise<T> {
      // Counted from before the read, so that nothing older than the limit is believed.
      const at = clock.monotonic();
      const before = known.get(name);
      if (before !== undefined && at - before.at < forMs) return before.answer;
      if (known.size >= max) known.clear();
      const entry = { at, answer: read() };
      known.set(name, entry);
      const forget = (): void => {
        if (known.get(name) === entry) known.delete(name);
      };
      entry.answer.then((answer) => (keep(answer) ? undefined : forget()), forget);
      return entry.answer;
    },
    forget(name?: string): void {
      if (name === undefined) known.clear();
      else known.delete(name);
    },
  };
}

/**
 * Looks up the rows of digests. What is asked for at the same time is looked up in one statement, one after the other. The statement
 * takes an array of digests and returns `column` with each row.
 */
export function digestLookUp<Row>(
  database: Database,
  statement: Statement,
  column: string,
): (digest: Buffer) => Promise<Row | undefined> {
  const lookUps = groupCommit<Buffer, Row | undefined>({
    maxBatch: DIGESTS_AT_ONCE,
    maxQueued: MAX_DIGESTS,
    async flush(digests) {
      const rows = await database.query<Row & Readonly<Record<string, Buffer>>>(statement, [
        digests,
      ]);
      const found = new Map(rows.map((row) => [row[column]?.toString('hex'), row]));
      return digests.map((digest) => found.get(digest.toString('hex')));
    },
  });
  return (digest) => lookUps.add(digest);
}
