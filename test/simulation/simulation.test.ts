/**
 * Both sides in one thread and in virtual time, from a seed: every guarantee holds through the trouble, and after healing every
 * payment comes to its end. `npm run reliability` runs more seeds, and replays one.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';

/** Another range of seeds each day, so that a year of builds is a year of worlds; printed, so that it can be run again. */
const FROM = Number(process.env['DUEBRIDGE_SEED'] ?? Math.floor(Date.now() / 86_400_000) * 1_000);
const SEEDS = 24;
const PART = 4;

interface Sheet {
  readonly payments: number;
  /** Payments by the stage in which they began. */
  readonly began: Readonly<Record<string, number>>;
  readonly answers: Readonly<Record<string, number>>;
  readonly faults: Readonly<Record<string, number>>;
  readonly story: string;
  readonly violations: readonly { seed: number; rule: string; what: string }[];
}

async function run(from: number, count: number): Promise<Sheet> {
  const program = join(import.meta.dirname, 'seeds.ts');
  const args = [program, '--from', String(from), '--count', String(count)];
  const { stdout } = await promisify(execFile)(process.execPath, args, {
    maxBuffer: 2 ** 26,
  }).catch((error: { stdout: string }) => {
    // It ends with 1 when a guarantee was broken.
    if (error.stdout === '') throw error;
    return error;
  });
  return JSON.parse(stdout) as Sheet;
}

function summed(counts: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const sum: Record<string, number> = {};
  for (const count of counts) {
    for (const [name, value] of Object.entries(count)) sum[name] = (sum[name] ?? 0) + value;
  }
  return sum;
}

test('whatever goes wrong, nothing is lost, duplicated or called failed, and after healing everything ends [EE1 EE2 EE3 EE4 EE5 EE7 LV1 LV3 LV6 S4 RU2 RU5 F49 F86]', async (t) => {
  t.diagnostic(`seeds ${FROM} to ${FROM + SEEDS - 1}; DUEBRIDGE_SEED=${FROM} runs them again`);
  const sheets: Sheet[] = [];
  // In parts, so that a slow machine shows progress.
  for (let from = FROM; from < FROM + SEEDS; from += PART) {
    await t.test(`seeds from ${from}`, async () => {
      const sheet = await run(from, PART);
      sheets.push(sheet);
      assert.deepEqual(sheet.violations, []);
    });
  }
  const sheet = {
    payments: sheets.reduce((sum, { payments }) => sum + payments, 0),
    began: summed(sheets.map(({ began }) => began)),
    answers: summed(sheets.map(({ answers }) => answers)),
    faults: summed(sheets.map(({ faults }) => faults)),
  };
  t.diagnostic(`${sheet.payments} payments, ${JSON.stringify(sheet.faults)}`);
  // A run in which nothing succeeded, or nothing went wrong, would prove nothing.
  assert.ok((sheet.answers['200'] ?? 0) > sheet.payments, 'most calls have to be answered');
  assert.ok((sheet.began['dispatching'] ?? 0) > sheet.payments / 10, 'many PUTs leave at once');
  assert.ok((sheet.began['created'] ?? 0) > sheet.payments / 10, 'many payments wait first');
  assert.ok((sheet.answers['connection'] ?? 0) > 0, 'some calls have to be lost');
  assert.ok(Object.keys(sheet.faults).length >= 8, 'most kinds of fault have to happen');
});

test('a seed tells the same story each time', async () => {
  const [first, second] = await Promise.all([run(42, 1), run(42, 1)]);
  assert.equal(first.story, second.story);
});
