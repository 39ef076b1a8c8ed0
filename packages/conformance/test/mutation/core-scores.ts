/** The results for the mutants of the core (core-results.json), why some survive, and the section of docs/mutation.md about them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CORE } from './core.ts';
import type { Fate } from './fate.ts';

/** The outcome of one file of the core. */
export interface CoreScore {
  /** All mutants of the file at the time of the run. */
  readonly mutants: number;
  /** Seed of the sample; absent when all were tried. */
  readonly seed?: number;
  readonly killed: number;
  /** How many each killer was the first to kill. */
  readonly by: Readonly<Record<string, number>>;
  /** Mutation.name of those that no test killed. */
  readonly survivors: readonly string[];
  /** Mutation.name of those in code that no test runs. */
  readonly unreached: readonly string[];
}

export const CORE_RESULTS = join(import.meta.dirname, 'core-results.json');

/** The stored outcomes, by file path. */
export function keptCore(): Readonly<Record<string, CoreScore>> {
  return JSON.parse(readFileSync(CORE_RESULTS, 'utf8')) as Record<string, CoreScore>;
}

/** Sums up the fates of one file. `mutants` is the number of all its mutants, `seed` that of the sample. */
export function coreScore(fates: readonly Fate[], mutants: number, seed: number): CoreScore {
  const names = (chosen: (fate: Fate) => boolean): string[] =>
    fates.filter(chosen).map(({ name }) => name);
  const by: Record<string, number> = {};
  for (const { caught } of fates) for (const one of caught) by[one] = (by[one] ?? 0) + 1;
  return {
    mutants,
    ...(fates.length < mutants ? { seed } : {}),
    killed: fates.filter(({ caught }) => caught.length > 0).length,
    by,
    survivors: names(({ caught, reached }) => reached && caught.length === 0),
    unreached: names(({ reached }) => !reached),
  };
}

/** Why some mutants of a file survive. */
interface Explanation {
  readonly why: string;
  readonly places: readonly RegExp[];
}

/** Occurs in several statements. */
const HAS_NOT_ENDED: Explanation = {
  why: 'That it has not ended is said twice: by its stage too, and the table admits no other pair (payments_ended).',
  places: [/^WHERE p\.platform_payment_id = .* \| AND p\.status = 'processing' -> nothing$/],
};

export const CORE_SURVIVORS: Readonly<Record<string, readonly Explanation[]>> = {
  'packages/partner/src/accept.ts': [
    {
      why: 'How many requests one statement takes at most: more are accepted just as well, a little later.',
      places: [/^const MAX_BATCH = /],
    },
    {
      why: 'Without lines, the statement is sent and writes none.',
      places: [/^if \(lines\.length > 0\) await writeAudit/],
    },
    {
      why: 'Without this error the next line throws one: the PUT is answered with 500, accepts nothing, and quotes nobody.',
      places: [/^throw new WrongAnswer\(`newPaymentIds failed/],
    },
  ],
  'packages/partner/src/claims.ts': [
    {
      why: 'The very microsecond at which a lease ends, or has ended for a day.',
      places: [/clock_timestamp\(\).* \| (?:< -> <=|> -> >=)$/],
    },
    {
      why: 'The order in which claims lock payments: without it two may deadlock, and one is tried again.',
      places: [/^ORDER BY platform_payment_id FOR UPDATE \| ORDER BY /],
    },
  ],
  'packages/partner/src/ledger.ts': [
    {
      why: 'The order in which an import locks accounts: without it two imports at once may deadlock, and one is tried again.',
      places: [/^if \(one\.account_id !== other\.account_id\) return/],
    },
  ],
  'packages/partner/src/post-in-transaction.ts': [
    {
      why: 'A word in the message of an error.',
      places: [/ 'posting' -> 'postingx'$/],
    },
    {
      why: 'The answer has been checked to hold one outcome for each payment.',
      places: [/^assert\(outcome\);/],
    },
    {
      why: 'Without payments, the statement is sent and changes none.',
      places: [/^if \(until\.length > 0\)/, /^const ended = ends\.length === 0/],
    },
    {
      why: 'A look at a side lane that is empty changes nothing.',
      places: [/^if \(side\.length > 0\) startSide/],
    },
    {
      why: 'When accounts that were locked long ago are forgotten: sooner changes nothing, because they are no longer skipped.',
      places: [
        /^if \(blocked\.size > MAX_BATCH\)/,
        /blocked\) if \(until < longAgo\).* \| < -> <=$/,
      ],
    },
  ],
  'packages/platform/src/engine/lease.ts': [
    {
      why: 'A bound that keeps memory small: one more or one less changes nothing.',
      places: [/^const MAX_LEFTOVERS = /],
    },
    {
      why: 'The alarm of a lease that has ended: it is off already, and no other is ever set.',
      places: [/^alarm = undefined; \| alarm = undefined; -> ;$/],
    },
  ],
  'packages/platform/src/engine/ownership.ts': [
    {
      why: 'The very microsecond at which a heartbeat is too old, or too far ahead.',
      places: [/heartbeat_at .* \| (?:> -> >=|<= -> <|< -> <=|>= -> >)$/],
    },
  ],
  'packages/platform/src/engine/payment-steps.ts': [
    {
      why: 'Own faults of zero stay zero either way.',
      places: [/^const isSuspected = ownFaults > 0 .* > -> >=$/],
    },
  ],
  'packages/platform/src/store/payments.ts': [
    HAS_NOT_ENDED,
    {
      why: 'An insert that neither fails nor returns its row: PostgreSQL has no such answer.',
      places: [/^if \(row === undefined\) throw new Error\('an insert gave no row'\)/],
    },
    {
      why: 'A detail that is absent is written as null either way.',
      places: [/ \| step\.detail === undefined -> false$/],
    },
  ],
  'packages/platform/src/store/terminal.ts': [
    HAS_NOT_ENDED,
    {
      why: 'A reason for a review stands only in a row that is in review (payments_review).',
      places: [/ AND p\.review_reason = \$4 \| AND p\.stage = 'review' -> nothing$/],
    },
  ],
};

/** Returns why a mutant of a core file may survive; undefined if nothing explains it. */
export function coreExplanationOf(file: string, mutant: string): string | undefined {
  return CORE_SURVIVORS[file]?.find(({ places }) => places.some((place) => place.test(mutant)))
    ?.why;
}

/** The section of docs/mutation.md. */
export function coreSection(scores: Readonly<Record<string, CoreScore>>): string {
  const rows = Object.entries(scores).map(([file, score]) => {
    const { mutants, seed, killed, by, survivors, unreached } = score;
    const tried = killed + survivors.length + unreached.length;
    const open = survivors.filter((one) => coreExplanationOf(file, one) === undefined).length;
    const killers = Object.entries(by).map(([who, count]) => `${count} ${who}`);
    return `| \`${file}\` | ${mutants} | ${seed === undefined ? 'all' : `${tried}, seed ${seed}`} | ${killed} | ${survivors.length} | ${open} | ${unreached.length} | ${killers.join(', ')} |`;
  });
  const reasons = Object.entries(scores).flatMap(([file, { survivors, unreached }]) => {
    const explained = (CORE_SURVIVORS[file] ?? []).flatMap(({ why, places }) => {
      const own = survivors.filter((one) => places.some((place) => place.test(one)));
      return own.length === 0 ? [] : [`- ${own.length}: ${why}`];
    });
    const open = survivors.filter((one) => coreExplanationOf(file, one) === undefined);
    const lines = [
      ...explained,
      ...open.map((one) => `- not yet killed: \`${one}\``),
      ...unreached.map((one) => `- no test leads there: \`${one}\``),
    ];
    return lines.length === 0 ? [] : [`### ${file}\n\n${lines.join('\n')}\n`];
  });
  const untried = Object.keys(CORE).filter((file) => scores[file] === undefined);
  return `## The core

The same operators change our own core: engine, store and partner kit. Each mutant has to be killed by a test, by a world of the
simulator or by the database; what survives is a hole in the tests, or is explained here. \`npm run mutation -- core --file lease\`
tries all mutants of one file again, \`--count 40 --seed 7\` forty of them; \`core.ts\` beside the operators says which tests are run
over which file. The tree is not touched: the changed text is put in the place of the file while it is loaded. Of a test file only the
tests that run the changed place are tried, two mutants at a time, and the first that fails ends them; so does one that twice takes
eight times as long as over the right code and at least fifteen seconds. Numbers above 100 are limits and times: they are made ten times as
large. With \`--results FILE\` a long run can be split into several.

Where not all mutants of a file were tried, they are a sample by the seed, or the beginning of one in the order of the file: what is said
of them is not said of the rest.

<!-- prettier-ignore -->
| file | mutants | tried | killed | survive | of these unexplained | not reached | killed first by |
| --- | --: | --: | --: | --: | --: | --: | --- |
${rows.join('\n')}

${untried.length === 0 ? '' : `Not tried yet, so that nothing is said of them: ${untried.map((file) => `\`${file}\``).join(', ')}.\n\n`}${reasons.join('\n')}`;
}
