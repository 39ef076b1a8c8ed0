/**
 * Wrong partners that nobody thought of: the example server in plain Node, mutated mechanically, one
 * operator, constant, statement or field name at a time. Each mutant is started and judged; what the
 * judge calls right is printed with its place, to be explained or to become a check.
 *
 *   npm run mutation -- [how many] [seed]      all mutants unless told how many
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseSync } from 'oxc-parser';
import { memoryHistory } from '../src/check/history.ts';
import { partnerTarget } from '../src/check/target.ts';
import { judgePartner, type RunReport } from '../src/run.ts';
import { QUICK } from './kill.ts';

const EXAMPLE = join(import.meta.dirname, '../../../docs/examples/partner.mjs');
const KEY = 'a-key-of-the-mutation';

/** Longest wait for a mutant to listen; one that does not is no server that anybody would run. */
const START_MS = 15_000;

/** One change of the source. */
export interface Mutation {
  readonly start: number;
  readonly end: number;
  readonly text: string;
  /** What was changed into what, and in which line. */
  readonly told: string;
}

/** How a mutant fared. */
export interface Fate {
  readonly mutation: Mutation;
  /** The checks that failed or warned; `does not start` and `judged in part` count as caught too. */
  readonly caught: readonly string[];
}

const OPERATORS: Readonly<Record<string, string>> = {
  '===': '!==',
  '!==': '===',
  '<': '<=',
  '>': '>=',
  '<=': '<',
  '>=': '>',
  '&&': '||',
  '||': '&&',
  '??': '&&',
  '+': '-',
  '-': '+',
};

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

/** Every mutation of a source, in the order of its text. */
export function mutations(source: string): readonly Mutation[] {
  const found: Mutation[] = [];
  const add = (node: { start: number; end: number }, text: string): void => {
    const line = source.slice(0, node.start).split('\n').length;
    const was = source.slice(node.start, node.end).replaceAll(/\s+/g, ' ').slice(0, 60);
    found.push({
      start: node.start,
      end: node.end,
      text,
      told: `line ${line}: ${was} -> ${text === '' ? 'nothing' : text}`,
    });
  };
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) {
      for (const one of value) visit(one);
      return;
    }
    if (!isNode(value)) return;
    const { left, right, operator } = value;
    if (
      (value.type === 'BinaryExpression' || value.type === 'LogicalExpression') &&
      isNode(left) &&
      isNode(right)
    ) {
      const other = OPERATORS[String(operator)];
      const between = source.slice(left.end, right.start);
      const at = between.indexOf(String(operator));
      if (other !== undefined && at >= 0) {
        add({ start: left.end + at, end: left.end + at + String(operator).length }, other);
      }
    }
    if (value.type === 'Literal' && typeof value['value'] === 'number')
      add(value, String(value['value'] + 1));
    if (value.type === 'Literal' && typeof value['value'] === 'boolean')
      add(value, String(!value['value']));
    if (value.type === 'UnaryExpression' && operator === '!' && isNode(value['argument'])) {
      add({ start: value.start, end: value['argument'].start }, '');
    }
    if (value.type === 'ExpressionStatement' || value.type === 'ThrowStatement') add(value, ';');
    if (value.type === 'IfStatement' && isNode(value['test'])) {
      add(value['test'], 'true');
      add(value['test'], 'false');
    }
    for (const [name, inside] of Object.entries(value)) if (name !== 'parent') visit(inside);
  };
  visit(parseSync('partner.mjs', source).program);
  // The statements inside the SQL are as much the server as its code.
  for (const [from, to] of [
    ['ON CONFLICT DO NOTHING', ''],
    [" AND status = 'processing'", ''],
    ['amount_due_in_cents - ?', 'amount_due_in_cents + ?'],
    ['TEXT PRIMARY KEY', 'TEXT'],
    [
      'ON CONFLICT DO NOTHING',
      'ON CONFLICT DO UPDATE SET amount_in_cents = excluded.amount_in_cents',
    ],
    [
      'ON CONFLICT DO NOTHING',
      'ON CONFLICT DO UPDATE SET platform_batch_id = excluded.platform_batch_id',
    ],
    ['ON CONFLICT DO NOTHING', 'ON CONFLICT DO UPDATE SET initiated_at = excluded.initiated_at'],
    ['ON CONFLICT DO NOTHING', "ON CONFLICT DO UPDATE SET status = 'processing'"],
    ['platform_payment_id TEXT PRIMARY KEY', 'platform_payment_id TEXT COLLATE NOCASE PRIMARY KEY'],
  ] as const) {
    const start = source.indexOf(from);
    if (start >= 0) add({ start, end: start + from.length }, to);
  }
  return found.sort((one, other) => one.start - other.start);
}

/** Judges so many mutants, all unless told; the same seed takes the same ones. */
export async function mutate(options: {
  readonly count?: number;
  readonly seed?: number;
  readonly told?: (fate: Fate) => void;
}): Promise<readonly Fate[]> {
  const source = readFileSync(EXAMPLE, 'utf8');
  const chosen = sample(mutations(source), options.count, options.seed ?? 1);
  // The strict profile may warn of the example itself: only what is new counts.
  const before = new Set(await judged(source));
  const fates: Fate[] = [];
  for (const mutation of chosen) {
    const found = await judged(apply(source, mutation));
    const fresh = found.filter((one) => !before.has(one)).map((one) => one.split(' ')[0] ?? '');
    const fate = { mutation, caught: [...new Set(fresh)] };
    fates.push(fate);
    options.told?.(fate);
  }
  return fates;
}

function apply(source: string, { start, end, text }: Mutation): string {
  return source.slice(0, start) + text + source.slice(end);
}

/** What the judge has against a server of this source; empty when nothing. */
async function judged(source: string): Promise<readonly string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-mutant-'));
  const file = join(folder, 'partner.mjs');
  writeFileSync(file, source);
  let server: { url: string; child: ChildProcess } | undefined;
  const start = async (port = '0'): Promise<void> => {
    server = await listen(file, join(folder, 'books.db'), port);
  };
  try {
    await start();
    if (server === undefined) return ['no-start'];
    const { url } = server;
    const report = await judgePartner(
      partnerTarget(
        {
          base_url: url,
          authentication: { method: 'key', header: 'x-api-key', key: KEY },
          biller_id: 'my-biller',
          accounts: { payable: 'A-1', other: 'A-2', inactive: 'A-3' },
          limits: { max_amount_in_cents: 10_000_000 },
          terminal_window_seconds: 8,
        },
        {},
      ),
      {
        profile: 'strict',
        pace: { ...QUICK, poll_first_ms: 50, poll_longest_ms: 200, balance_lag_ms: 1_000 },
        history: memoryHistory(),
        async restart() {
          await stop(server?.child);
          await start(new URL(url).port);
        },
      },
    );
    return against(report);
  } finally {
    await stop(server?.child);
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Each finding as its check and what was expected. */
function against(report: RunReport): string[] {
  const found = report.results.flatMap(({ id, findings }) =>
    findings.map(({ expected }) => `${id} ${expected}`),
  );
  return found.length === 0 && report.verdict !== 'passed' ? [report.verdict] : found;
}

async function listen(
  file: string,
  books: string,
  port: string,
): Promise<{ url: string; child: ChildProcess } | undefined> {
  const child = spawn(process.execPath, [file], {
    env: { PATH: process.env['PATH'], PARTNER_KEY: KEY, PARTNER_DB: books, PORT: port },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const url = await new Promise<string | undefined>((resolve) => {
    let text = '';
    const timer = setTimeout(() => resolve(undefined), START_MS);
    const end = (found: string | undefined): void => {
      clearTimeout(timer);
      resolve(found);
    };
    child.stdout.on('data', (piece: Buffer) => {
      text += piece.toString();
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(text);
      if (found !== null) end(found[0]);
    });
    child.once('exit', () => end(undefined));
  });
  if (url === undefined) await stop(child);
  return url === undefined ? undefined : { url, child };
}

async function stop(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => {
    child.once('exit', resolve);
  });
  child.kill('SIGKILL');
  await ended;
}

/** So many of a list, spread over it by a seed, in their order. */
function sample<T>(all: readonly T[], count: number | undefined, seed: number): readonly T[] {
  if (count === undefined || count >= all.length) return all;
  let state = seed >>> 0;
  const ranked = all.map((one, place) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return { one, place, rank: state };
  });
  ranked.sort((one, other) => one.rank - other.rank);
  return ranked
    .slice(0, count)
    .sort((one, other) => one.place - other.place)
    .map(({ one }) => one);
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

if (import.meta.main) {
  const [count, seed] = process.argv.slice(2).map(Number);
  const fates = await mutate({
    ...(count === undefined || Number.isNaN(count) ? {} : { count }),
    ...(seed === undefined ? {} : { seed }),
    told: ({ mutation, caught }) =>
      console.log(
        `${caught.length > 0 ? 'caught  ' : 'SURVIVES'} ${mutation.told}  ${caught.slice(0, 6).join(' ')}`,
      ),
  });
  const caught = fates.filter((fate) => fate.caught.length > 0).length;
  console.log(`${caught} of ${fates.length} mutants caught`);
}
