/**
 * Wrong peers that nobody thought of: the sources of right peers, mutated mechanically, one operator,
 * constant, condition, statement or field name at a time. Each mutant is started and judged until
 * something is found against it; what the judge calls right is printed, to be explained
 * (survivors.ts) or to become a check.
 *
 *   npm run mutation -- SUBJECT [--count N] [--seed N] [--at-once N] [--for SECONDS] [--results FILE]
 *   npm run mutation -- core [--file NAME] [--count N] [--seed N] [--at-once N] [--for SECONDS] [--results FILE]
 *
 * The second form is for our own core (core.ts). With --results, mutants that were judged before are skipped, so that a long run can
 * be split into several.
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
       npm run mutation -- core [--file NAME] [--count N] [--seed N] [--at-once N] [--for SECONDS] [--results FILE]

SUBJECT is a right peer: ${Object.keys(SUBJECTS).join(', ')}. core is the engine and the kit.
With --results, mutants that were judged before are not judged again.`;

/** A right peer that needs so much longer than usual to be judged never ends. */
const ROUND_MS = 240_000;

/** Mutants of the core tried side by side: their tests wait more than they work. */
const CORE_LANES = 2;

interface Candidate {
  readonly file: string;
  readonly source: string;
  readonly mutation: Mutation;
}

/** Judges mutants of a subject: all that are new, or so many of them, chosen by the seed. */
export async function mutate(
  name: string,
  options: {
    readonly count?: number;
    readonly seed?: number;
    readonly at_once?: number;
    /** Begins no more mutants after so long. */
    readonly for_ms?: number;
    /** Names (Fate) of those that need not be judged again. */
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
  // The strict profile may warn of the subject itself: only what is new counts.
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

/** What the judge has against the right peer, and which places of its source a run leads to. */
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

/** What is found against a changed source that is not found against the right one. */
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

/** The checks that found something; else whatever kept the run from passing. */
function against(report: RunReport): readonly string[] {
  const found = report.results
    .filter(({ verdict }) => verdict === 'FAIL' || verdict === 'WARN')
    .map(({ id }) => id);
  return found.length === 0 && report.verdict !== 'passed' ? [report.verdict] : found;
}

/** What the words of the command line ask for. */
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
    count: number('count'),
    seed: number('seed'),
    at_once: number('at-once'),
    seconds: number('for'),
  };
}

async function main(): Promise<void> {
  const { name, file, results, count, seed, at_once, seconds } = asked();
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

/** Set by Ctrl-C while the core is tried: its servers have to be stopped. */
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
