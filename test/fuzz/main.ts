/** `npm run fuzz`: the long form of fuzz.test.ts. Ends with 1 when something was found. */
import { parseArgs } from 'node:util';
import { fuzz } from './fuzz.ts';
import { newSeed } from './generate.ts';

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
  try {
    const { values } = parseArgs({
      options: {
        seconds: { type: 'string', default: '600' },
        seed: { type: 'string' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (values.help) {
      console.log(
        'Usage: npm run fuzz -- [--seconds N] [--seed N]\n\n' +
          'Sends requests made from our own schemas, and raw bytes, to every listener; 600 seconds by default.\n' +
          'Exit code 0 when nothing was found, 1 when something was, 3 for wrong arguments.',
      );
      process.exit(0);
    }
    const whole = (name: string, text: string): number => {
      if (!/^\d{1,10}$/.test(text)) throw new Error(`--${name} takes a whole number`);
      return Number(text);
    };
    return {
      seconds: whole('seconds', values.seconds),
      seed: values.seed === undefined ? newSeed() : whole('seed', values.seed),
    };
  } catch (error) {
    console.error(`fuzz: ${error instanceof Error ? error.message : String(error)}`);
    process.exit(3);
  }
}
