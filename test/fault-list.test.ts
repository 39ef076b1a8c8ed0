/**
 * Every fault of the catalogue is made to happen by a test that is there, and docs/faults.md says by which.
 *
 * DUEBRIDGE_UPDATE_DOCS=1 writes the page anew instead of comparing it.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { SCENARIOS } from '@duebridge/conformance/scripted-partner';
import { format, resolveConfig } from 'prettier';
import { FAULTS_BEYOND_THE_PARTNER, PARTNER_FAULTS_READ, type Proof } from './fault-list.ts';
import { DRILLS } from './rig/drills.ts';
import { faultsOf } from './rig/faults.ts';

const root = join(import.meta.dirname, '..');
const PAGE = 'docs/faults.md';
const read = (file: string): string => readFileSync(join(root, file), 'utf8');

/** Last fault that the sandbox partner shows; the catalogue ends with F104. */
const LAST_OF_THE_PARTNER = 68;
const LAST = 104;

const disk = { folder: '/a-disk', hasPower: true, losePower: () => false };
const rigKinds = new Set(
  [...faultsOf('own', disk), ...faultsOf('books', disk), ...DRILLS].map(({ kind }) => kind),
);

function idOf(number: number): string {
  return `F${String(number).padStart(2, '0')}`;
}

/** The whole title of the test that a proof names, or undefined when there is none. */
function titleOf(file: string, start: string): string | undefined {
  const escaped = start.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
  const found = new RegExp(
    `\\b(?:test|it)\\(\\s*(['"\`])(${escaped}(?:(?!\\1).)*?)(?: \\[[A-Z0-9 ]+\\])?\\1`,
  ).exec(read(file));
  return found?.[2]?.replaceAll(/\$\{[^}]*\}+/g, '…');
}

test('every fault of the catalogue has a test, or says what is not tested', () => {
  const shown = new Set(SCENARIOS.map(({ name }) => name.slice(0, 3)));
  const missing = Array.from({ length: LAST_OF_THE_PARTNER }, (_, index) => idOf(index + 1)).filter(
    (id) => !shown.has(id),
  );
  assert.deepEqual(missing, [], 'no scenario of the sandbox partner shows these');
  assert.deepEqual(
    FAULTS_BEYOND_THE_PARTNER.map(({ id }) => id),
    Array.from({ length: LAST - LAST_OF_THE_PARTNER }, (_, index) =>
      idOf(LAST_OF_THE_PARTNER + index + 1),
    ),
  );
  // All scenarios are driven there, by a list and not by choice.
  assert.ok(
    read('test/faults.test.ts').includes(
      `SCENARIOS.filter((scenario) => scenario.entry !== 'private_name')`,
    ),
    'all but the private name at once, and that one by itself',
  );
  const readings = Object.entries(PARTNER_FAULTS_READ).map(([id, proofs]) => ({ id, proofs }));
  for (const { id, proofs } of [...FAULTS_BEYOND_THE_PARTNER, ...readings]) {
    assert.ok(proofs.length > 0, `${id} has no proof`);
    for (const proof of proofs) {
      if ('rig' in proof)
        assert.ok(rigKinds.has(proof.rig) || proof.rig === 'clock steps', `${id}: ${proof.rig}`);
      else
        assert.ok(
          titleOf(proof.file, proof.title),
          `${id}: ${proof.file} has no test "${proof.title}"`,
        );
    }
  }
});

test('the page of the faults matches the list', async () => {
  const described = (proof: Proof): string =>
    'rig' in proof
      ? `crash rig: ${proof.rig} ([faults.ts](../test/rig/faults.ts), [drills.ts](../test/rig/drills.ts))`
      : `[${titleOf(proof.file, proof.title) ?? ''}](../${proof.file})`;
  const text = `# Faults

What goes wrong in the world, and the test that makes it happen. Written from [fault-list.ts](../test/fault-list.ts), which fails the
build when a test that it names is gone. Figures of long runs are in [reliability.md](reliability.md).

## At the partner and on the way to it

Each is a scenario of \`duebridge sandbox partner\`, so that other platforms can use it, and all of them are driven, each at a partner of
its own, by [faults.test.ts](../test/faults.test.ts): \`${titleOf('test/faults.test.ts', 'the platform lives') ?? ''}\`.

${SCENARIOS.map(({ name, title }) => {
  const id = name.slice(0, 3);
  const readings = (PARTNER_FAULTS_READ[id] ?? []).map((proof) => `\n  - ${described(proof)}`);
  return `- **${id}** \`${name}\`: ${title}${readings.join('')}`;
}).join('\n')}

## Database, processes, time, and callers

${FAULTS_BEYOND_THE_PARTNER.map(
  ({ id, what, proofs, untested }) =>
    `- **${id}** ${what}\n${proofs.map((proof) => `  - ${described(proof)}\n`).join('')}${untested === undefined ? '' : `  - Not tested: ${untested}\n`}`,
).join('')}`;
  const printed = await format(text, {
    ...(await resolveConfig(join(root, PAGE))),
    parser: 'markdown',
  });
  if (process.env['DUEBRIDGE_UPDATE_DOCS'] === '1') writeFileSync(join(root, PAGE), printed);
  else assert.equal(read(PAGE), printed, `DUEBRIDGE_UPDATE_DOCS=1 writes ${PAGE} anew`);
});
