/**
 * How big the house is: lines of TypeScript by folder, source and tests apart, decisions, and lines of Markdown in docs.
 *
 * `npm run size` counts the files of the last commit; `npm run size -- v0.1.0` prints that commit's figures beside them.
 */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const TESTS = /\.test\.tsx?$|(?:^|\/)tests?\/|^bench\/|testing\.ts$/;

interface Lines {
  source: number;
  tests: number;
}

const git = (...args: readonly string[]): string =>
  execFileSync('git', args, { cwd: root, encoding: 'utf8', maxBuffer: 256 * 1024 * 1024 });

/** Lines of the files of a commit whose path matches, by path. */
function linesOf(commit: string, pattern: RegExp): ReadonlyMap<string, number> {
  // An empty pattern matches every line, so this counts them.
  const counted = git('grep', '-I', '-c', '', commit, '--');
  return new Map(
    counted
      .trim()
      .split('\n')
      .map((line) => /^[^:]+:(.*):(\d+)$/.exec(line))
      .filter((match) => match !== null && pattern.test(match[1] ?? ''))
      .map((match) => [match?.[1] ?? '', Number(match?.[2])]),
  );
}

function byFolder(commit: string): ReadonlyMap<string, Lines> {
  const folders = new Map<string, Lines>();
  for (const [path, lines] of linesOf(commit, /\.(?:ts|tsx|mts)$/)) {
    const folder = /^packages\/[^/]+/.exec(path)?.[0] ?? path.split('/')[0] ?? '';
    for (const name of [folder, 'all']) {
      const sum = folders.get(name) ?? { source: 0, tests: 0 };
      sum[TESTS.test(path) ? 'tests' : 'source'] += lines;
      folders.set(name, sum);
    }
  }
  return folders;
}

function documents(commit: string): string {
  const decisions = linesOf(commit, /^decisions\/[0-9].*\.md$/).size;
  const docs = linesOf(commit, /^docs\/.*\.md$/);
  const lines = [...docs.values()].reduce((sum, one) => sum + one, 0);
  return `${decisions} decisions, ${lines} lines of Markdown in docs`;
}

const before = process.argv[2];
const now = byFolder('HEAD');
const then = before === undefined ? undefined : byFolder(before);
const names = [...new Set([...now.keys(), ...(then?.keys() ?? [])])].sort(
  (one, other) => Number(one === 'all') - Number(other === 'all') || one.localeCompare(other),
);
const row = (cells: readonly string[]): string =>
  cells.map((cell, index) => (index === 0 ? cell.padEnd(24) : cell.padStart(16))).join('');
console.log(row(['lines of TypeScript', 'source', 'tests']));
for (const name of names) {
  const cell = (kind: keyof Lines): string => {
    const after = String(now.get(name)?.[kind] ?? 0);
    return then === undefined ? after : `${then.get(name)?.[kind] ?? 0} → ${after}`;
  };
  console.log(row([name, cell('source'), cell('tests')]));
}
console.log(before === undefined ? '' : `${before}: ${documents(before)}`);
console.log(`HEAD: ${documents('HEAD')}`);
