/**
 * Loaded before a mutant: puts a changed source in the place of one file, and ends in an orderly way
 * when told to, so that Node writes down which lines were run.
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
