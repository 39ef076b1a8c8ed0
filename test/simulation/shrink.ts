/**
 * Finds the fewest payments and faults with which a seed still breaks the same guarantee, so that whoever looks for the cause has
 * a short story to read.
 *
 *   node test/simulation/shrink.ts --seed 4711 [--bug 12] [--events FILE.jsonl]
 *
 * `--bug` plants a bug of planted.ts first. Exit code 0 when the seed breaks nothing, 1 when it does.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import type { Violation } from './checkers.ts';
import { linesOf } from './history.ts';
import type { Outcome } from './world.ts';

/** Worlds that one shrinking may take: a second each at most. */
const MAX_WORLDS = 400;

/** What is left of a world. */
export interface Shrunk {
  /** What broke first in the whole world, and what breaks in the short one. */
  readonly rule: string;
  readonly violation: Violation;
  /** Payments and faults that it takes. */
  readonly parts: readonly string[];
  /** Of so many. */
  readonly of: number;
  readonly worlds: number;
  readonly outcome: Outcome;
}

/**
 * Leaves out halves, quarters, and finally single parts, as long as the first rule that was broken is still broken; undefined when
 * the whole world breaks none.
 */
export async function shrink(
  run: (without: ReadonlySet<string>) => Promise<Outcome>,
): Promise<Shrunk | undefined> {
  const whole = await run(new Set());
  const rule = whole.violations[0]?.rule;
  if (rule === undefined) return undefined;
  let best = whole;
  let kept = [...whole.parts];
  let worlds = 1;
  let size = Math.ceil(kept.length / 2);
  while (size >= 1 && worlds < MAX_WORLDS) {
    let found = false;
    for (let from = 0; from < kept.length && worlds < MAX_WORLDS;) {
      const fewer = kept.filter((_part, index) => index < from || index >= from + size);
      const outcome = await run(new Set(whole.parts.filter((part) => !fewer.includes(part))));
      worlds += 1;
      if (outcome.violations.some((violation) => violation.rule === rule)) {
        kept = fewer;
        best = outcome;
        found = true;
      } else from += size;
    }
    // A part that was needed while others were there may not be needed without them: single parts are tried until none goes.
    if (size > 1) size = Math.ceil(size / 2);
    else if (!found) break;
  }
  const violation = best.violations.find((one) => one.rule === rule);
  return (
    violation && { rule, violation, parts: kept, of: whole.parts.length, worlds, outcome: best }
  );
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      bug: { type: 'string' },
      events: { type: 'string' },
    },
  });
  const { SimulatedPostgres } = await import('./database.ts');
  const runWorld =
    values.bug === undefined
      ? (await import('./world.ts')).runWorld
      : await (await import('./plant.ts')).withBug(Number(values.bug));
  const postgres = await SimulatedPostgres.open();
  const found = await shrink((without) => runWorld(postgres, Number(values.seed), without));
  if (found === undefined) console.log(`Seed ${values.seed} breaks nothing.`);
  else {
    const { parts, of, violation, worlds, outcome } = found;
    const file = values.events ?? `simulation-${values.seed}-short.jsonl`;
    console.log(
      `Seed ${values.seed} breaks ${violation.rule} with ${parts.length} of its ${of} parts:`,
    );
    for (const part of parts) console.log(`  ${part}`);
    console.log(violation.what);
    console.log(`${worlds} worlds were tried; the events are in ${file}.`);
    writeFileSync(file, linesOf(outcome.history));
  }
  // Processes of the worlds that were killed still wait for what never comes.
  process.exit(found === undefined ? 0 : 1);
}
