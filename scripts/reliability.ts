/**
 * Drives the simulator through many seeds on all cores and prints a summary of the runs, the injected faults and the findings.
 *
 *   npm run reliability                           1,000 seeds
 *   npm run reliability -- --seeds 20000          more of them
 *   npm run reliability -- --replay 4711          one seed, with its events as a page (simulation-4711.html)
 *
 * Exit code 0 when every guarantee held, 1 when one was broken, 3 for wrong arguments.
 */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

const simulator = join(import.meta.dirname, '../test/simulation/seeds.ts');
/** Seeds per process. It is then replaced, because the memory of killed simulated processes is never freed. */
const SEEDS_PER_PROCESS = 50;

interface Sheet {
  readonly seeds: number;
  readonly payments: number;
  readonly virtual_hours: number;
  readonly converged_p99_ms: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly answers: Readonly<Record<string, number>>;
  readonly violations: readonly { seed: number; rule: string; what: string }[];
}

const options = readOptions();
if (options.replay !== undefined) {
  const page = `simulation-${options.replay}.html`;
  const sheet = await simulate(options.replay, 1, ['--chart', page]);
  console.log(
    `Seed ${options.replay}: ${sheet.violations.length} violations; its events are in ${page}.`,
  );
  report(sheet.violations);
  process.exitCode = sheet.violations.length === 0 ? 0 : 1;
} else {
  process.exitCode = await many(options.from, options.seeds, options.json);
}

async function many(from: number, seeds: number, json: boolean): Promise<number> {
  const started = performance.now();
  const chunks: [number, number][] = [];
  for (let at = from; at < from + seeds; at += SEEDS_PER_PROCESS) {
    chunks.push([at, Math.min(SEEDS_PER_PROCESS, from + seeds - at)]);
  }
  const sheets: Sheet[] = [];
  console.error(
    `Simulating ${seeds} seeds from ${from}; about ${Math.ceil(seeds / 4)} s on two cores.`,
  );
  await Promise.all(
    Array.from({ length: availableParallelism() }, async () => {
      for (let next = chunks.shift(); next !== undefined; next = chunks.shift()) {
        sheets.push(await simulate(...next, []));
        const done = sheets.reduce((sum, sheet) => sum + sheet.seeds, 0);
        console.error(`${done} of ${seeds} seeds`);
      }
    }),
  );
  const sum = (pick: (sheet: Sheet) => number): number =>
    sheets.reduce((total, sheet) => total + pick(sheet), 0);
  const merged = (
    pick: (sheet: Sheet) => Readonly<Record<string, number>>,
  ): Record<string, number> => {
    const all: Record<string, number> = {};
    for (const sheet of sheets) {
      for (const [name, count] of Object.entries(pick(sheet))) all[name] = (all[name] ?? 0) + count;
    }
    return all;
  };
  const violations = sheets.flatMap((sheet) => sheet.violations);
  const sheet = {
    seeds: sum((one) => one.seeds),
    first_seed: from,
    payments_driven: sum((one) => one.payments),
    simulated_hours: Math.round(sum((one) => one.virtual_hours) * 10) / 10,
    seconds: Math.round((performance.now() - started) / 1_000),
    faults: merged((one) => one.faults),
    answers: merged((one) => one.answers),
    converged_p99_ms_worst: Math.max(...sheets.map((one) => one.converged_p99_ms)),
    violations: violations.length,
    not_tested: [
      'lock waits, deadlocks and serialization failures: the simulated database has one session',
      'HTTP parsing at the platform: answers are handed over as the client would parse them',
      'power loss, and a database that lies about its disk',
    ],
  };
  if (json) console.log(JSON.stringify({ ...sheet, violations }, undefined, 2));
  else {
    for (const [name, value] of Object.entries(sheet)) {
      console.log(
        `${name.replaceAll('_', ' ').padEnd(24)} ${typeof value === 'object' ? JSON.stringify(value) : value}`,
      );
    }
  }
  report(violations);
  return violations.length === 0 ? 0 : 1;
}

function report(violations: Sheet['violations']): void {
  for (const { seed, rule, what } of violations.slice(0, 50)) {
    console.error(`seed ${seed}: ${rule} ${what}`);
  }
}

function simulate(from: number, count: number, more: readonly string[]): Promise<Sheet> {
  return new Promise((resolve, reject) => {
    const child = spawn(
      process.execPath,
      [simulator, '--from', String(from), '--count', String(count), ...more],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    let printed = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text));
    child.on('error', reject);
    child.on('close', (code) => {
      if (printed === '') reject(new Error(`the simulator ended with ${code ?? 'a signal'}`));
      else resolve(JSON.parse(printed) as Sheet);
    });
  });
}

function readOptions(): { seeds: number; from: number; replay: number | undefined; json: boolean } {
  try {
    const { values } = parseArgs({
      options: {
        seeds: { type: 'string', default: '1000' },
        from: { type: 'string', default: '1' },
        replay: { type: 'string' },
        json: { type: 'boolean', default: false },
      },
    });
    const whole = (name: string, text: string): number => {
      if (!/^\d{1,9}$/.test(text)) throw new Error(`--${name} takes a whole number`);
      return Number(text);
    };
    return {
      seeds: whole('seeds', values.seeds),
      from: whole('from', values.from),
      replay: values.replay === undefined ? undefined : whole('replay', values.replay),
      json: values.json,
    };
  } catch (error) {
    console.error(`reliability: ${error instanceof Error ? error.message : String(error)}`);
    process.exit(3);
  }
}
