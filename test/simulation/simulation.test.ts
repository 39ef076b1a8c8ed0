/**
 * Both sides in one thread and in virtual time, from a seed: every guarantee holds through the trouble, and after healing every
 * payment comes to its end. seeds.ts runs more seeds, and replays one.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { worldsApart } from './apart.ts';
import { Sheet, storyOf } from './seeds.ts';

/** The same worlds in every run, so that a change is judged by what the last one was judged by; seeds.ts looks for new ones. */
const FROM = 1;
const SEEDS = 30;
/** One of them that is soon over. */
const STORY = 14;

const runWorld = worldsApart();
let story = '';

test('whatever goes wrong, nothing is lost, duplicated or called failed, and after healing everything ends [EE1 EE2 EE3 EE4 EE5 EE7 LV1 LV3 LV6 S4 RU2 RU5 F49 F86]', async (t) => {
  const sheet = new Sheet();
  // Each by itself, so that a slow machine shows progress.
  for (let seed = FROM; seed < FROM + SEEDS; seed += 1) {
    await t.test(`seed ${seed}`, async () => {
      const outcome = await runWorld({ seed });
      sheet.add(outcome);
      if (seed === STORY) story = storyOf(outcome);
      assert.deepEqual(outcome.violations, []);
    });
  }
  t.diagnostic(`${sheet.payments} payments, ${JSON.stringify(sheet.faults)}`);
  // A run in which nothing succeeded, or nothing went wrong, would prove nothing.
  assert.ok((sheet.answers['200'] ?? 0) > sheet.payments, 'most calls have to be answered');
  assert.ok((sheet.began['dispatching'] ?? 0) > sheet.payments / 10, 'many PUTs leave at once');
  assert.ok((sheet.began['created'] ?? 0) > sheet.payments / 10, 'many payments wait first');
  assert.ok((sheet.answers['connection'] ?? 0) > 0, 'some calls have to be lost');
  assert.ok(Object.keys(sheet.faults).length >= 8, 'most kinds of fault have to happen');
});

test('a seed tells the same story in a process of its own and after other worlds', async () => {
  const program = [join(import.meta.dirname, 'seeds.ts'), '--from', `${STORY}`, '--count', '1'];
  const { stdout } = await promisify(execFile)(process.execPath, program);
  const alone = JSON.parse(stdout) as { readonly story: string };
  assert.equal(story, alone.story);
});

test('a count of worlds that is no number, or none, is refused: no world breaks no guarantee', async () => {
  for (const count of ['x', '0']) {
    const program = [join(import.meta.dirname, 'seeds.ts'), '--count', count];
    await assert.rejects(promisify(execFile)(process.execPath, program), { code: 3 });
  }
});
