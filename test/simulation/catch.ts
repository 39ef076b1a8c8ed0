/**
 * Runs worlds over code with a planted bug until one is caught, for each bug named: one line of JSON a bug.
 *
 *   node test/simulation/catch.ts --bugs 0,2,4 [--seeds 60] [--from-start]
 *
 * The world in which a bug was caught before is tried first, unless `--from-start` is given: then worlds are tried from seed 1, which
 * shows how quickly an unknown bug would be found.
 */
import { parseArgs } from 'node:util';
import { SimulatedPostgres } from './database.ts';
import { withBug } from './plant.ts';
import { MAX_WORLDS, PLANTED } from './planted.ts';

const { values: options } = parseArgs({
  options: {
    bugs: { type: 'string', default: '' },
    seeds: { type: 'string', default: String(MAX_WORLDS) },
    'from-start': { type: 'boolean', default: false },
  },
});

const postgres = await SimulatedPostgres.open();
for (const bug of options.bugs.split(',').map(Number)) {
  const runWorld = await withBug(bug);
  const started = process.cpuUsage();
  let tried = 0;
  let caught: { seed: number; rule: string; what: string } | undefined;
  const worlds = Array.from({ length: Number(options.seeds) }, (_, index) => index + 1);
  const first = options['from-start'] ? undefined : PLANTED[bug]?.seed;
  for (const seed of first === undefined ? worlds : [first, ...worlds]) {
    if (caught !== undefined) break;
    tried += 1;
    const [violation] = (await runWorld(postgres, seed)).violations;
    if (violation !== undefined) caught = { seed, ...violation };
  }
  const { user, system } = process.cpuUsage(started);
  const seconds = Math.round((user + system) / 100_000) / 10;
  console.log(
    JSON.stringify({ bug, name: PLANTED[bug]?.name, seconds, tried, caught: caught ?? null }),
  );
}
// Processes of the worlds that were killed still wait for what never comes.
process.exit(0);
