/**
 * Runs worlds over code with a planted bug until one is caught, for each bug named: one line of JSON a bug.
 *
 *   node test/simulation/catch.ts --bugs 0,2,4 --seeds 60
 */
import { parseArgs } from 'node:util';
import { SimulatedPostgres } from './database.ts';
import { withBug } from './plant.ts';
import { PLANTED } from './planted.ts';

const { values: options } = parseArgs({
  options: { bugs: { type: 'string', default: '' }, seeds: { type: 'string', default: '60' } },
});

const postgres = await SimulatedPostgres.open();
for (const bug of options.bugs.split(',').map(Number)) {
  const runWorld = await withBug(bug);
  const started = performance.now();
  let caught: { seed: number; rule: string; what: string } | undefined;
  const worlds = Array.from({ length: Number(options.seeds) }, (_, index) => index + 1);
  const first = PLANTED[bug]?.seed;
  for (const seed of first === undefined ? worlds : [first, ...worlds]) {
    if (caught !== undefined) break;
    const [violation] = (await runWorld(postgres, seed)).violations;
    if (violation !== undefined) caught = { seed, ...violation };
  }
  const seconds = Math.round((performance.now() - started) / 100) / 10;
  console.log(JSON.stringify({ bug, name: PLANTED[bug]?.name, seconds, caught: caught ?? null }));
}
// Processes of the worlds that were killed still wait for what never comes.
process.exit(0);
