/**
 * The results of the full runs over all subjects (results.json), and the page about them
 * (docs/mutation.md).
 *
 *   node summary.ts FOLDER [SEED]   reads the files that --results wrote to FOLDER (SUBJECT.jsonl, core.jsonl) and writes both; SEED
 *                                   is that of the core's samples. Results that FOLDER does not have stay as they are.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CORE, mutantsOf } from './core.ts';
import { CORE_RESULTS, coreScore, coreSection, keptCore, type CoreScore } from './core-scores.ts';
import { fatesOf } from './fate.ts';
import { SUBJECTS } from './subjects.ts';
import { explanationOf, SURVIVORS } from './survivors.ts';

/** The outcome of one subject. */
export interface Score {
  readonly mutants: number;
  /** Number of all mutants; set if `mutants` counts a sample by `seed`. */
  readonly of?: number;
  readonly seed?: number;
  readonly caught: number;
  /** Names of the mutants that pass. */
  readonly survivors: readonly string[];
  /** Names of the mutants in code that no request of the judge reaches. */
  readonly unreached: readonly string[];
}

const RESULTS = join(import.meta.dirname, 'results.json');
export const PAGE = join(import.meta.dirname, '../../../../docs/mutation.md');

/** The stored outcomes, by subject. */
export function kept(): Readonly<Record<string, Score>> {
  return JSON.parse(readFileSync(RESULTS, 'utf8')) as Record<string, Score>;
}

const ABOUT: Readonly<Record<string, string>> = {
  'partner.mjs': 'the example server in plain Node',
  'partner.py': 'the example server in plain Python',
  'sandbox-partner': 'the scripted partner of the sandbox, by key and by OAuth',
  'sandbox-platform': "the scripted platform's token endpoint, for a biller and for an aggregator",
  'caller.mjs': 'a small platform that pays, in plain Node, by key and by OAuth',
  'caller.py': 'the same in plain Python',
};

/** docs/mutation.md. */
export function page(
  scores: Readonly<Record<string, Score>>,
  core: Readonly<Record<string, CoreScore>>,
): string {
  const rows = Object.entries(scores).map(([name, score]) => {
    const { mutants, caught, survivors, unreached, of, seed } = score;
    const tried = of === undefined ? `${mutants}` : `${mutants} of ${of}, seed ${seed}`;
    const judged = mutants - unreached.length;
    const open = survivors.filter((one) => explanationOf(name, one) === undefined).length;
    const visible = caught + open;
    return `| ${ABOUT[name] ?? name} | ${tried} | ${unreached.length} | ${judged} | ${caught} | ${survivors.length} | ${Math.floor((100 * caught) / Math.max(1, judged))} % | ${Math.floor((100 * caught) / Math.max(1, visible))} % |`;
  });
  const parts = Object.entries(scores).map(([name, { survivors }]) => {
    const lines = (SURVIVORS[name] ?? []).flatMap(({ why, places }) => {
      const own = survivors.filter((one) => places.some((place) => place.test(one)));
      return own.length === 0 ? [] : `- ${own.length}: ${why}`;
    });
    return `### ${name}\n\n${lines.join('\n')}\n`;
  });
  return `# Mutants of right peers, and of the core

The kill matrix was made by people who know the checks. This page was made the other way round:
right peers are mutated mechanically, one operator, constant, condition, statement, word, field name
or clause of SQL at a time, and each mutant is started and judged in the strict profile. A mutant
that survives either breaks nothing that a peer can see, which is explained below, or shows a hole in
the judge, which is then closed by a check.

\`npm run mutation -- partner.mjs\` judges all mutants of one peer again (\`--count 40 --seed 7\` takes
forty of them). \`npm test\` judges a few of the servers' mutants, and fails when one survives that is
not explained.

<!-- prettier-ignore -->
| the right peer | mutants | not reached | judged | caught | survive | caught of judged | caught of what can be seen |
| --- | --: | --: | --: | --: | --: | --: | --: |
${rows.join('\n')}

Where not all mutants were judged, they are a sample by the seed, and nothing is said of the rest.

"Not reached" are mutants at places that no request of a whole run leads to, as Node's own coverage
tells: mostly what the sandbox does only when it is told to be wrong, its inspection page, and errors
that never happened. "What can be seen" leaves out the survivors that are explained here.

## What survives, and why

${parts.join('\n')}
${coreSection(core)}`;
}

if (import.meta.main) {
  const [folder = '.', seed = '1'] = process.argv.slice(2);
  const scores: Record<string, Score> = { ...kept() };
  for (const name of Object.keys(SUBJECTS)) {
    const file = join(folder, `${name}.jsonl`);
    if (!existsSync(file)) continue;
    const fates = fatesOf(readFileSync(file, 'utf8'));
    const names = (chosen: (fate: (typeof fates)[number]) => boolean): string[] =>
      fates.filter(chosen).map(({ file, name }) => `${file} ${name}`);
    scores[name] = {
      mutants: fates.length,
      caught: fates.filter(({ caught }) => caught.length > 0).length,
      survivors: names(({ caught, reached }) => reached && caught.length === 0),
      unreached: names(({ reached }) => !reached),
    };
  }
  writeFileSync(RESULTS, `${JSON.stringify(scores, undefined, 2)}\n`);
  const core: Record<string, CoreScore> = { ...keptCore() };
  const tried = join(folder, 'core.jsonl');
  const fates = existsSync(tried) ? fatesOf(readFileSync(tried, 'utf8')) : [];
  for (const file of Object.keys(CORE)) {
    const own = fates.filter((fate) => fate.file === file);
    if (own.length > 0) core[file] = coreScore(own, mutantsOf(file).length, Number(seed));
  }
  writeFileSync(CORE_RESULTS, `${JSON.stringify(core, undefined, 2)}\n`);
  writeFileSync(PAGE, page(scores, core));
}
