/** `npm run fuzz`: the long form of fuzz.test.ts. Ends with 1 when something was found. */
import { readWords, whole } from '../../scripts/words.ts';
import { fuzz } from './fuzz.ts';
import { newSeed } from './generate.ts';

const HELP = `Usage: npm run fuzz -- [--seconds N] [--seed N]

Sends requests made from our own schemas, and raw bytes, to every listener; 600 seconds by default.
Exit code 0 when nothing was found, 1 when something was, 3 for wrong arguments.`;

const { seconds, seed } = readOptions();
console.log(`seed ${seed}; npm run fuzz -- --seed ${seed} runs it again`);
const report = await fuzz({
  seed,
  rounds: Infinity,
  untilMs: performance.now() + seconds * 1_000,
});
console.log(
  `${report.requests} requests to ${report.operations.size} operations, ${report.raw} raw ones`,
);
console.log(
  [...report.statuses]
    .toSorted(([a], [b]) => a - b)
    .map(([status, times]) => `${status}: ${times}`)
    .join(', '),
);
for (const finding of report.findings) console.log(finding);
process.exitCode = report.findings.length > 0 ? 1 : 0;

function readOptions(): { seconds: number; seed: number } {
  const { values } = readWords('fuzz', HELP, {
    options: { seconds: { type: 'string', default: '600' }, seed: { type: 'string' } },
  });
  return {
    seconds: whole('fuzz', 'seconds', values.seconds),
    seed: values.seed === undefined ? newSeed() : whole('fuzz', 'seed', values.seed),
  };
}
