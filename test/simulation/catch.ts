/**
 * Runs worlds over code with a planted bug until one is caught, for each bug named: one line of JSON a bug. Exit code 1 when one was not.
 *
 *   node test/simulation/catch.ts --bugs 0,2,4
 *
 * The world in which a bug was caught before is tried first.
 */
import { parseArgs } from 'node:util';
import { SimulatedPostgres } from './database.ts';
import { withBug } from './plant.ts';
import { MAX_WORLDS, PLANTED } from './planted.ts';

const { values } = parseArgs({ options: { bugs: { type: 'string', default: '' } } });

const postgres = await SimulatedPostgres.open();
let code = 0;
for (const bug of values.bugs.split(',').map(Number)) {
  const runWorld = await withBug(bug);
  let caught: { seed: number; rule: string; what: string } | undefined;
  const first = PLANTED[bug]?.seed ?? 1;
  for (let seed = first, tried = 0; caught === undefined && tried <= MAX_WORLDS; tried += 1) {
    const [violation] = (await runWorld(postgres, seed)).violations;
    if (violation !== undefined) caught = { seed, ...violation };
    seed = tried + 1;
  }
  if (caught === undefined) code = 1;
  console.log(JSON.stringify({ bug, name: PLANTED[bug]?.name, caught: caught ?? null }));
}
// Processes of the worlds that were killed still wait for what never comes.
process.exit(code);
