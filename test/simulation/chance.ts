/**
 * Chance and the wall clock of this process belong to the world that runs: ids and secrets that the code under test draws, and times that
 * it reads past its clock, follow from the seed. So a seed tells the same story in every process and after every other world.
 */
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { seededRandom } from '@duebridge/runtime/testing';

const real = {
  randomFillSync: crypto.randomFillSync,
  randomBytes: crypto.randomBytes,
  randomUUID: crypto.randomUUID,
};
const realValues = globalThis.crypto.getRandomValues.bind(globalThis.crypto);
const realNow = Date.now;

/** Lets this process draw from the seed and read the world's wall clock. Returns what ends that. */
export function belongTo(seed: number, now: () => number): () => void {
  const fill = fillerOf(seed);
  const seeded = {
    // Fills the stores from which the database and `uuid` draw, and which worlds share: when one is empty is no part of the story of a world.
    randomFillSync: fillerOf(seed),
    randomBytes: (size: number) => fill(Buffer.alloc(size)),
    randomUUID: () => {
      const hex = fill(Buffer.alloc(16)).toString('hex');
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
    },
  };
  take(seeded, fill, now);
  return () => take(real, realValues, realNow);
}

/** Fills buffers with the chance of a seed. */
function fillerOf(seed: number) {
  const random = seededRandom(seed);
  return <T extends NodeJS.ArrayBufferView>(buffer: T): T => {
    const bytes = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = Math.floor(random() * 256);
    return buffer;
  };
}

function take(functions: object, getRandomValues: unknown, now: () => number): void {
  Object.assign(crypto, functions);
  Object.defineProperty(globalThis.crypto, 'getRandomValues', {
    value: getRandomValues,
    configurable: true,
  });
  Date.now = now;
  // Modules that have imported them get these.
  syncBuiltinESMExports();
}
