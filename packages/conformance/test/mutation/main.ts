/**
 * Mutates the sources of correct peers mechanically, one operator, constant, condition, statement or
 * field name at a time, to get wrong peers that nobody thought of. Each mutant is started and judged
 * until a check finds fault with it. Survivors are printed: each must be explained (survivors.ts) or
 * get a check.
 *
 *   npm run mutation -- SUBJECT [--count N] [--seed N] [--at-once N] [--for SECONDS] [--results FILE]
 *   npm run mutation -- core [--file NAME] [--count N] [--seed N] [--at-once N] [--for SECONDS] [--tests-only] [--results FILE]
 *
 * The second form mutates our own core (core.ts). With --results, mutants already in FILE are skipped, so that a long run can be split.
 */
import { appendFileSync, existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { readWords, refuse, whole } from '../../../../scripts/words.ts';
import type { RunReport } from '../../src/run.ts';
import { mutateCore } from './core.ts';
import { coverage, fatesOf, sample, type Fate } from './fate.ts';
import { mutated, mutations, type Mutation } from './mutations.ts';
import { SUBJECTS, type Round } from './subjects.ts';

const HELP = `Usage: npm run mutation -- SUBJECT [--count N] [--seed N] [--at-once N] [--for SECONDS] [--results FILE]
       npm run mutation -- core [--file NAME] [--count N] [--seed N] [--at-once N] [--for SECONDS] [--tests-only] [--results FILE]

SUBJECT is a right peer: ${Object.keys(SUBJECTS).join(', ')}. core is the engine and the kit.
With --results, mutants that were judged before are not judged again. With --tests-only, the core's mutants meet no simulated worlds.`;

/** Time limit of one run of the judge: far more than any correct peer takes. */
const ROUND_MS = 240_000;

/** Mutants of the core tested concurrently: their tests wait more than they compute. */
const CORE_LANES = 2;

interface Candidate {
  readonly file: string;
  readonly source: string;
  readonly mutation: Mutation;
}

/** Judges mutants of a subject: all that are not known, or `count` of them chosen by `seed`. */
export async function mutate(
  name: string,
  options: {
    readonly count?: number;
    readonly seed?: number;
    readonly at_once?: number;
    /** Starts no further mutant after this time. */
    readonly for_ms?: number;
    /** Names (Fate) of mutants to skip. */
    readonly known?: ReadonlySet<string>;
    readonly told?: (fate: Fate) => void;
  },
): Promise<readonly Fate[]> {
  const subject = SUBJECTS[name];
  if (subject === undefined) {
    throw new Error(`${name} is no subject: they are ${Object.keys(SUBJECTS).join(', ')}`);
  }
  const candidates = subject.files.flatMap((file): Candidate[] => {
    const source = readFileSync(file, 'utf8');
    return mutations(file, source).map((mutation) => ({
      file,
      source,
      mutation,
    }));
  });
  const wanted = candidates.filter(
    ({ file, mutation }) => options.known?.has(`${basename(file)} ${mutation.name}`) !== true,
  );
  const chosen = sample(wanted, options.count, options.seed ?? 1);
  if (chosen.length === 0) return [];
  // The strict profile may warn about the unchanged subject; only additional findings count.
  const rounds = await Promise.all(
    Object.values(subject.rounds).map(async (round) => ({
      round,
      ...(await untouched(round)),
    })),
  );
  const fates: Fate[] = [];
  const queue = [...chosen];
  const started = performance.now();
  const take = (): Candidate | undefined =>
    performance.now() - started < (options.for_ms ?? Infinity) ? queue.shift() : undefined;
  const worker = async (): Promise<void> => {
    for (let next = take(); next !== undefined; next = take()) {
      const { file, source, mutation } = next;
      const inside = rounds.filter(({ reaches }) => reaches(file, mutation.start));
      let caught: readonly string[] = [];
      for (const { round, before } of inside) {
        if (caught.length === 0) {
          caught = await judged(round, before, {
            file,
            text: mutated(source, mutation),
          });
        }
      }
      const fate: Fate = {
        file: basename(file),
        line: mutation.line,
        name: mutation.name,
        caught,
        reached: inside.length > 0,
      };
      fates.push(fate);
      options.told?.(fate);
    }
  };
  await Promise.all(Array.from({ length: options.at_once ?? 3 }, worker));
  return fates;
}

/** Judges the unchanged subject: returns its findings and the places of its source that the run reaches. */
async function untouched(round: Round): Promise<{
  before: ReadonlySet<string>;
  reaches: (file: string, offset: number) => boolean;
}> {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-coverage-'));
  try {
    const env = { NODE_V8_COVERAGE: folder };
    const report = await inFolder((place) =>
      round({
        folder: place,
        env,
        judging: {
          signal: AbortSignal.timeout(ROUND_MS),
          onProgress: () => undefined,
        },
      }),
    );
    if (report === undefined) throw new Error('the subject itself does not start');
    if (report.exit_code !== 0) {
      const found = report.results.flatMap(({ id, findings }) =>
        findings.map((one) => ({ id, one })),
      );
      throw new Error(`the subject itself does not pass: ${JSON.stringify(found, undefined, 1)}`);
    }
    return { before: new Set(against(report)), reaches: coverage(folder) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Judges a mutant: returns the findings that the unchanged source does not have. */
async function judged(
  round: Round,
  before: ReadonlySet<string>,
  { file, text }: { file: string; text: string },
): Promise<readonly string[]> {
  return inFolder(async (folder) => {
    const source = join(folder, basename(file));
    writeFileSync(source, text);
    const enough = new AbortController();
    const report = await round({
      folder,
      env: { MUTANT_FILE: file, MUTANT_SOURCE: source },
      judging: {
        signal: AbortSignal.any([enough.signal, AbortSignal.timeout(ROUND_MS)]),
        onProgress({ check, verdict }) {
          if ((verdict === 'FAIL' || verdict === 'WARN') && !before.has(check)) enough.abort();
        },
      },
    });
    if (report === undefined) return ['does not start'];
    return against(report).filter((one) => !before.has(one));
  });
}

async function inFolder<T>(run: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-mutant-'));
  try {
    return await run(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The checks that failed or warned; if none did, the verdict that kept the run from passing. */
function against(report: RunReport): readonly string[] {
  const found = report.results
    .filter(({ verdict }) => verdict === 'FAIL' || verdict === 'WARN')
    .map(({ id }) => id);
  return found.length === 0 && report.verdict !== 'passed' ? [report.verdict] : found;
}

/** Parses the command line. */
function asked() {
  const { positionals, values } = readWords('mutation', HELP, {
    allowPositionals: true,
    options: {
      count: { type: 'string' },
      seed: { type: 'string' },
      'at-once': { type: 'string' },
      file: { type: 'string' },
      for: { type: 'string' },
      results: { type: 'string' },
      'tests-only': { type: 'boolean' },
    },
  });
  const [name = ''] = positionals;
  const subjects = [...Object.keys(SUBJECTS), 'core'];
  if (!subjects.includes(name)) {
    refuse('mutation', `there is no subject "${name}"; there are ${subjects.join(', ')}`);
  }
  const number = (option: 'count' | 'seed' | 'at-once' | 'for'): number | undefined => {
    const text = values[option];
    return text === undefined ? undefined : whole('mutation', option, text);
  };
  return {
    name,
    file: values.file,
    results: values.results,
    testsOnly: values['tests-only'] === true,
    count: number('count'),
    seed: number('seed'),
    at_once: number('at-once'),
    seconds: number('for'),
  };
}

async function main(): Promise<void> {
  const { name, file, results, testsOnly, count, seed, at_once, seconds } = asked();
  const earlier =
    results !== undefined && existsSync(results) ? fatesOf(readFileSync(results, 'utf8')) : [];
  const known = new Set(earlier.map((fate) => `${fate.file} ${fate.name}`));
  const options = {
    ...(count === undefined ? {} : { count }),
    ...(seed === undefined ? {} : { seed }),
    ...(at_once === undefined ? {} : { at_once }),
    ...(seconds === undefined ? {} : { for_ms: seconds * 1_000 }),
    known,
    told(fate: Fate): void {
      if (results !== undefined) appendFileSync(results, `${JSON.stringify(fate)}\n`);
      const word = fate.caught.length > 0 ? 'caught  ' : fate.reached ? 'SURVIVES' : 'unseen  ';
      console.log(`${word} ${fate.file}:${fate.line} ${fate.name}  ${fate.caught.join(', ')}`);
    },
  };
  const fresh = await (name === 'core'
    ? mutateCore({
        at_once: CORE_LANES,
        signal: stopped.signal,
        testsOnly,
        ...options,
        ...(file === undefined ? {} : { file }),
        wanted: (path, mutant) => !known.has(`${path} ${mutant}`),
      })
    : mutate(name, options));
  const all = [...earlier, ...fresh];
  for (const one of name === 'core' ? [...new Set(all.map(({ file: path }) => path))] : []) {
    const own = all.filter(({ file: path }) => path === one);
    console.log(
      `${one}: ${own.filter((fate) => fate.caught.length > 0).length} of ${own.length} caught`,
    );
  }
  const caught = all.filter((fate) => fate.caught.length > 0).length;
  const unseen = all.filter(({ reached }) => !reached).length;
  const who = name === 'core' ? 'test' : 'request of the judge';
  console.log(`${caught} of ${all.length} mutants caught; ${unseen} stand where no ${who} leads`);
}

/** Aborted by Ctrl-C during a run over the core, whose servers must be stopped. */
const stopped = new AbortController();

if (import.meta.main) {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      if (process.argv[2] === 'core') stopped.abort();
      else process.exit(1);
    });
  }
  try {
    await main();
  } catch (error) {
    console.error(`mutation: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  }
}
