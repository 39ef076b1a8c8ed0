/**
 * Preloaded into a mutant: substitutes a changed source for one file, and exits cleanly on a signal so
 * that Node writes its coverage.
 *
 *   MUTANT_FILE=/path/of/the/file.ts  MUTANT_SOURCE=/path/of/its/new/text
 */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';

const { MUTANT_FILE = '', MUTANT_SOURCE = '' } = process.env;
const url = pathToFileURL(MUTANT_FILE).href;

registerHooks({
  load(at, context, next) {
    const loaded = next(at, context);
    return at === url ? { ...loaded, source: readFileSync(MUTANT_SOURCE, 'utf8') } : loaded;
  },
});
process.once('SIGTERM', () => process.exit(0));
