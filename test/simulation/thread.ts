/** The thread of apart.ts: a message is a world to run, and the answer is what became of it. */
import { parentPort } from 'node:worker_threads';
import type { Asked } from './apart.ts';
import { SimulatedPostgres } from './database.ts';
import { withBug } from './plant.ts';

// Loaded now, when plant.ts sees who imports what.
const { runWorld } = await import('./world.ts');
const postgres = await SimulatedPostgres.open();

parentPort?.on('message', ({ seed, bug }: Asked) => {
  void (async () => {
    const run = bug === undefined ? runWorld : await withBug(bug);
    const { history, ...outcome } = await run(postgres, seed);
    parentPort?.postMessage({ ...outcome, history: { events: history.events } }, []);
  })();
});
