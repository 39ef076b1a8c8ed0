/**
 * Runs worlds by their seeds and prints one JSON value: the payments driven, the faults that happened, the guarantees that were broken.
 *
 *   node test/simulation/seeds.ts --from 1 --count 100 [--events FILE.jsonl]
 *
 * Exit code 1 when one was broken, 3 for wrong arguments.
 */
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { readWords, whole } from '../../scripts/words.ts';
import { SimulatedPostgres } from './database.ts';
import { linesOf } from './history.ts';
import { runWorld, type Outcome } from './world.ts';

const HELP = `Usage: node test/simulation/seeds.ts [--from SEED] [--count WORLDS] [--events FILE.jsonl]

--events writes what happened in the last world.`;

/** What happened in several worlds, counted. */
export class Sheet {
  payments = 0;
  /** Payments by the stage in which they began. */
  readonly began: Record<string, number> = {};
  readonly faults: Record<string, number> = {};
  readonly answers: Record<string, number> = {};
  readonly violations: { readonly seed: number; readonly rule: string; readonly what: string }[] =
    [];
  readonly converged: number[] = [];

  add({ seed, payments, faults, history, violations, convergedMs }: Outcome): void {
    this.payments += payments;
    this.converged.push(convergedMs);
    for (const [what, times] of faults) count(this.faults, what, times);
    for (const event of history.events) {
      if (event.kind === 'arrived') count(this.answers, event.answer);
      if (event.kind === 'confirmed' && event.stage !== undefined) count(this.began, event.stage);
    }
    this.violations.push(...violations.map((violation) => ({ seed, ...violation })));
  }
}

function count(counts: Record<string, number>, name: string, times = 1): void {
  counts[name] = (counts[name] ?? 0) + times;
}

/** All that happened in a world, as one value to compare. */
export function storyOf({ history }: Outcome): string {
  return createHash('sha256').update(linesOf(history)).digest('hex');
}

if (import.meta.main) {
  const { values: options } = readWords('seeds', HELP, {
    options: {
      from: { type: 'string', default: '1' },
      count: { type: 'string', default: '100' },
      events: { type: 'string' },
    },
  });
  const from = whole('seeds', 'from', options.from);
  const seeds = whole('seeds', 'count', options.count, 1);
  const postgres = await SimulatedPostgres.open();
  const sheet = new Sheet();
  let story = '';
  for (let seed = from; seed < from + seeds; seed += 1) {
    const outcome = await runWorld(postgres, seed);
    sheet.add(outcome);
    story = storyOf(outcome);
    if (options.events !== undefined) writeFileSync(options.events, linesOf(outcome.history));
  }
  const { converged, ...counted } = sheet;
  converged.sort((a, b) => a - b);
  const converged_p99_ms = converged[Math.floor(converged.length * 0.99)] ?? 0;
  // The story is that of the last world.
  console.log(JSON.stringify({ from, seeds, ...counted, converged_p99_ms, story }));
  // Processes of the world that were killed still wait for what never comes.
  process.exit(sheet.violations.length > 0 ? 1 : 0);
}
