/**
 * Runs worlds by their seeds and prints one JSON value: the payments driven, the faults that happened, the guarantees that were broken.
 *
 *   node test/simulation/seeds.ts --from 1 --count 100 [--events FILE.jsonl]
 *
 * Exit code 1 when one was broken. Random bytes of this process are the world's, so that a seed always tells the same story; only the part of an id that is real time
 * differs from run to run.
 */
import crypto, { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { parseArgs } from 'node:util';
import { seededRandom } from '@duebridge/runtime/testing';

const { values: options } = parseArgs({
  options: {
    from: { type: 'string', default: '1' },
    count: { type: 'string', default: '100' },
    events: { type: 'string' },
  },
});

let random = seededRandom(1);
ownRandomBytes();
// After the random bytes are the world's: modules keep what they import.
const { SimulatedPostgres } = await import('./database.ts');
const { linesOf } = await import('./history.ts');
const { runWorld } = await import('./world.ts');

const postgres = await SimulatedPostgres.open();
const faults: Record<string, number> = {};
const answers: Record<string, number> = {};
const began: Record<string, number> = {};
const violations: { seed: number; rule: string; what: string }[] = [];
let payments = 0;
const converged: number[] = [];
const story = createHash('sha256');
const from = Number(options.from);
for (let seed = from; seed < from + Number(options.count); seed += 1) {
  random = seededRandom(seed);
  const outcome = await runWorld(postgres, seed);
  payments += outcome.payments;
  converged.push(outcome.convergedMs);
  for (const [what, times] of outcome.faults) faults[what] = (faults[what] ?? 0) + times;
  for (const event of outcome.history.events) {
    if (event.kind === 'arrived') answers[event.answer] = (answers[event.answer] ?? 0) + 1;
    if (event.kind === 'confirmed' && event.stage !== undefined)
      began[event.stage] = (began[event.stage] ?? 0) + 1;
  }
  story.update(withoutIds(JSON.stringify(outcome.history.events)));
  violations.push(...outcome.violations.map((violation) => ({ seed, ...violation })));
  if (options.events !== undefined) writeFileSync(options.events, linesOf(outcome.history));
}
await postgres.close();
converged.sort((a, b) => a - b);
console.log(
  JSON.stringify({
    from,
    seeds: Number(options.count),
    payments,
    began,
    converged_p99_ms: converged[Math.floor(converged.length * 0.99)] ?? 0,
    faults,
    answers,
    story: story.digest('hex'),
    violations,
  }),
);
// Processes of the world that were killed still wait for what never comes.
process.exit(violations.length > 0 ? 1 : 0);

/** Ids by the order in which they appear: half of a UUIDv7 is the real time. */
function withoutIds(text: string): string {
  const known = new Map<string, number>();
  return text.replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/g, (id) => {
    const number = known.get(id) ?? known.size;
    known.set(id, number);
    return `id-${number}`;
  });
}

/** Ids and secrets that the code under test draws come from the seed. */
function ownRandomBytes(): void {
  const fill = <T extends NodeJS.ArrayBufferView>(buffer: T): T => {
    const bytes = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = Math.floor(random() * 256);
    return buffer;
  };
  Object.assign(crypto, {
    randomFillSync: fill,
    randomBytes: (size: number) => fill(Buffer.alloc(size)),
    randomUUID: () => {
      const hex = fill(Buffer.alloc(16)).toString('hex');
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
    },
  });
  Object.defineProperty(globalThis.crypto, 'getRandomValues', { value: fill });
  syncBuiltinESMExports();
}
