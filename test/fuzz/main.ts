/** `npm run fuzz`: the long form of fuzz.test.ts. Ends with 1 when something was found. */
import { parseArgs } from 'node:util';
import { fuzz } from './fuzz.ts';
import { newSeed } from './generate.ts';

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '600' }, seed: { type: 'string' } },
});
const seed = values.seed === undefined ? newSeed() : Number(values.seed);
console.log(`seed ${seed}; npm run fuzz -- --seed ${seed} runs it again`);
const report = await fuzz({
  seed,
  rounds: Infinity,
  untilMs: performance.now() + Number(values.seconds) * 1_000,
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
