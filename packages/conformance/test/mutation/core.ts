/**
 * Mutants of the core: the files of engine, store and partner kit that keep the promises, changed by the same operators as the right
 * peers (mutations.ts). Each mutant has to be killed by a test, a world of the simulator or the database.
 *
 *   npm run mutation -- core [--file NAME] [--count N] [--seed N] [--for SECONDS] [--results FILE]
 *
 * The changed text is put in the place of the file while it is loaded (replace.ts), so that the tree itself never changes. A test
 * is run over a mutant only where it leads to the changed place; the first that fails, or that does not end in its time, kills it.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { coverage, sample, type Fate } from './fate.ts';
import { mutated, mutations } from './mutations.ts';

/** A test file, or so much of it as its titles tell; or worlds of the simulator. */
type Killer = { readonly test: string; readonly only?: string } | { readonly worlds: number };

const ROOT = join(import.meta.dirname, '../../../..');
const ENGINE = 'packages/platform/src/engine';
const STORE = 'packages/platform/src/store';
const PARTNER = 'packages/partner/src';

const WORLDS: Killer = { worlds: 6 };
const QUEUE_TEST: Killer = { test: `${ENGINE}/poll-schedule.test.ts` };
const ENGINE_TEST: Killer = { test: `${ENGINE}/engine.test.ts` };
const ACCEPT_TEST: Killer = { test: `${PARTNER}/accept.test.ts` };
const APPLY_TEST: Killer = { test: `${PARTNER}/apply.test.ts` };
const LEDGER_TEST: Killer = { test: `${PARTNER}/ledger.test.ts` };

/** What is run over the mutants of each file, the fastest first. */
export const CORE: Readonly<Record<string, readonly Killer[]>> = {
  [`${ENGINE}/lease.ts`]: [
    { test: `${ENGINE}/lease.test.ts`, only: 'of ten seconds|is given up|asks for no other' },
    { test: `${ENGINE}/lease.test.ts` },
    WORLDS,
  ],
  [`${ENGINE}/poll-schedule.ts`]: [QUEUE_TEST, WORLDS],
  [`${ENGINE}/partner-queue.ts`]: [QUEUE_TEST, WORLDS],
  [`${ENGINE}/payment-steps.ts`]: [{ test: `${ENGINE}/payment-steps.test.ts` }, WORLDS],
  [`${ENGINE}/outcome.ts`]: [{ test: 'packages/platform/src/partners/payment-record.test.ts' }],
  [`${ENGINE}/slots.ts`]: [
    { test: `${ENGINE}/slots.test.ts`, only: 'whoever joins' },
    { test: `${ENGINE}/slots.test.ts` },
    WORLDS,
  ],
  [`${ENGINE}/ownership.ts`]: [
    { test: `${ENGINE}/orphans.test.ts` },
    { test: `${ENGINE}/slots.test.ts` },
    WORLDS,
  ],
  [`${STORE}/payments.ts`]: [{ test: `${STORE}/payments.test.ts` }, WORLDS, ENGINE_TEST],
  [`${STORE}/terminal.ts`]: [{ test: `${ENGINE}/review.test.ts` }, WORLDS, ENGINE_TEST],
  [`${PARTNER}/accept.ts`]: [
    ACCEPT_TEST,
    { test: `${PARTNER}/auth.test.ts`, only: 'an id of one client' },
    { test: `${PARTNER}/account-system.test.ts` },
    WORLDS,
    APPLY_TEST,
  ],
  [`${PARTNER}/store.ts`]: [ACCEPT_TEST, APPLY_TEST, WORLDS],
  [`${PARTNER}/apply.ts`]: [APPLY_TEST, WORLDS],
  [`${PARTNER}/ledger.ts`]: [{ test: `${PARTNER}/account-reads.test.ts` }, LEDGER_TEST, APPLY_TEST],
  [`${PARTNER}/claims.ts`]: [{ test: `${PARTNER}/account-system.test.ts` }, APPLY_TEST],
  [`${PARTNER}/post-in-transaction.ts`]: [APPLY_TEST, ACCEPT_TEST, LEDGER_TEST],
};

/** The first world: the seeds are the same for every mutant. */
const FIRST_WORLD = 1;
/** A test over a mutant has this many times what it takes over the right code, and not less than LEAST_MS; a loop never ends. */
const PATIENCE = 8;
const LEAST_MS = 10_000;
/** What a test may take over the right code. */
const RIGHT_MS = 240_000;

/** Tries mutants of the core: all that are new, or so many of them, chosen by the seed. Throws when a test fails over the right code. */
export async function mutateCore(options: {
  /** Part of the path of one file or several. */
  readonly file?: string;
  readonly count?: number;
  readonly seed?: number;
  /** Begins no more mutants after so long. */
  readonly for_ms?: number;
  /** Those that are to be tried, by the path of the file and Mutation.name; else all. */
  readonly wanted?: (file: string, name: string) => boolean;
  readonly told?: (fate: Fate) => void;
}): Promise<readonly Fate[]> {
  const files = Object.keys(CORE).filter((file) => file.includes(options.file ?? ''));
  if (files.length === 0) {
    throw new Error(
      `${options.file} is no file of the core: they are ${Object.keys(CORE).join(', ')}`,
    );
  }
  const chosen = sample(
    files
      .flatMap((file) => mutantsOf(file).map((mutation) => ({ file, mutation })))
      .filter(({ file, mutation }) => options.wanted?.(file, mutation.name) ?? true),
    options.count,
    options.seed ?? 1,
  );
  const started = performance.now();
  const fates: Fate[] = [];
  for (const file of files) {
    const own = chosen.filter((one) => one.file === file);
    if (own.length === 0) continue;
    const source = readFileSync(join(ROOT, file), 'utf8');
    const known = new Map<Killer, Known>();
    for (const { mutation } of own) {
      if (performance.now() - started >= (options.for_ms ?? Infinity)) return fates;
      let caught: string | undefined;
      let reached = false;
      for (const killer of CORE[file] ?? []) {
        if (caught !== undefined) break;
        const one = known.get(killer) ?? (await right(file, killer));
        known.set(killer, one);
        if (!one.reaches(mutation.start)) continue;
        reached = true;
        caught = await killed(one, file, mutated(source, mutation));
      }
      const fate: Fate = {
        file,
        line: mutation.line,
        name: mutation.name,
        caught: caught === undefined ? [] : [caught],
        reached,
      };
      fates.push(fate);
      options.told?.(fate);
    }
  }
  return fates;
}

/** Every mutant of a file of the core, whose path begins at the root of the repository. */
export function mutantsOf(file: string): ReturnType<typeof mutations> {
  return mutations(file, readFileSync(join(ROOT, file), 'utf8'), true);
}

interface Known {
  readonly killer: Killer;
  readonly limitMs: number;
  readonly reaches: (offset: number) => boolean;
}

/** Runs a test over the right code: it has to pass, and tells which places it leads to. */
async function right(file: string, killer: Killer): Promise<Known> {
  return inFolder(async (folder) => {
    const started = performance.now();
    const failed = await failure(killer, { NODE_V8_COVERAGE: folder }, RIGHT_MS);
    if (failed !== undefined) throw new Error(`over the right code ${failed}`);
    const limitMs = Math.max(LEAST_MS, PATIENCE * (performance.now() - started));
    const covers = coverage(folder);
    const path = join(ROOT, file);
    return { killer, limitMs, reaches: (offset) => covers(path, offset) };
  });
}

async function killed(
  { killer, limitMs }: Known,
  file: string,
  text: string,
): Promise<string | undefined> {
  return inFolder((folder) => {
    const source = join(folder, basename(file));
    writeFileSync(source, text);
    return failure(killer, { MUTANT_FILE: join(ROOT, file), MUTANT_SOURCE: source }, limitMs);
  });
}

/** Runs a test in a process of its own. What failed; undefined when it passed. */
function failure(
  killer: Killer,
  env: Readonly<Record<string, string>>,
  limitMs: number,
): Promise<string | undefined> {
  const args =
    'test' in killer
      ? [
          ...(killer.only === undefined ? [] : [`--test-name-pattern=${killer.only}`]),
          join(ROOT, killer.test),
        ]
      : [
          join(ROOT, 'test/simulation/seeds.ts'),
          `--from=${FIRST_WORLD}`,
          `--count=${killer.worlds}`,
          '--until-violation',
        ];
  const name = 'test' in killer ? basename(killer.test) : 'simulator';
  // A test that believes itself below another one reports in another form.
  const { NODE_TEST_CONTEXT: _, ...own } = process.env;
  const hooks = pathToFileURL(join(import.meta.dirname, 'replace.ts')).href;
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, {
      cwd: ROOT,
      // A group of its own: whatever a test has started ends with it.
      detached: true,
      env: { ...own, ...env, NODE_OPTIONS: `--import=${hooks}` },
      stdio: 'ignore',
    });
    const end = (): void => {
      if (child.pid === undefined) return;
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It has ended by itself.
      }
    };
    process.once('exit', end);
    let isLate = false;
    const late = setTimeout(() => {
      isLate = true;
      end();
    }, limitMs);
    child.once('error', reject);
    child.once('close', (code) => {
      clearTimeout(late);
      process.off('exit', end);
      end();
      if (isLate) resolve(`${name} does not end`);
      else if (code !== 0) resolve(`${name} fails`);
      else resolve(undefined);
    });
  });
}

async function inFolder<T>(run: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-core-'));
  try {
    return await run(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
