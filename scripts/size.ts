/**
 * How big the house is: lines of TypeScript by folder, source and tests apart, decisions, and lines of Markdown in docs.
 *
 * `npm run size` counts the files of the last commit; `npm run size -- v0.1.0` those of another.
 */
import { execFileSync } from 'node:child_process';

const TESTS = /\.test\.tsx?$|(?:^|\/)tests?\/|^bench\/|testing\.ts$/;

const commit = process.argv[2] ?? 'HEAD';
let counted = '';
try {
  // An empty pattern matches every line, so this counts them.
  counted = execFileSync('git', ['grep', '-I', '-c', '', commit, '--'], {
    cwd: `${import.meta.dirname}/..`,
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
} catch {
  console.error(`size: git finds no commit ${commit} here`);
  process.exit(3);
}
const folders: Record<string, { source: number; tests: number }> = {};
let [decisions, documents] = [0, 0];
for (const [, path = '', lines] of counted.matchAll(/^[^:]+:(.*):(\d+)$/gm)) {
  if (/^decisions\/[0-9].*\.md$/.test(path)) decisions += 1;
  if (/^docs\/.*\.md$/.test(path)) documents += Number(lines);
  if (!/\.(?:ts|tsx|mts)$/.test(path)) continue;
  const folder = /^packages\/[^/]+/.exec(path)?.[0] ?? path.split('/')[0] ?? '';
  for (const name of [folder, 'all']) {
    folders[name] ??= { source: 0, tests: 0 };
    folders[name][TESTS.test(path) ? 'tests' : 'source'] += Number(lines);
  }
}
console.table(folders);
console.log(`${decisions} decisions, ${documents} lines of Markdown in docs`);
