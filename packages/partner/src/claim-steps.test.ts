import assert from 'node:assert/strict';
import test from 'node:test';
import { step, type ClaimEvent, type ClaimState } from './claim-steps.ts';

const states: Readonly<Record<string, ClaimState | undefined>> = {
  nothing: undefined,
  fresh: { kind: 'fresh' },
  asked: { kind: 'asked' },
  unknown: { kind: 'unknown' },
  resting: { kind: 'resting', cancelable: true },
  fixed: { kind: 'resting', cancelable: false },
  canceling: { kind: 'canceling' },
};
const events: Readonly<Record<string, ClaimEvent>> = {
  'claimed first': { kind: 'claimed', isFirst: true },
  'claimed again': { kind: 'claimed', isFirst: false },
  held: { kind: 'held' },
  call: { kind: 'call', isAbsent: false },
  'call, absent': { kind: 'call', isAbsent: true },
  lost: { kind: 'lost' },
  later: { kind: 'later', cancelable: true },
  cancel: { kind: 'cancel' },
  kept: { kind: 'kept' },
};

// What becomes of each state; "-": the event must not happen.
const table = `
                nothing  fresh     asked    unknown  resting    fixed    canceling
claimed first   fresh    fresh     -        fresh    fresh      fresh    -
claimed again   unknown  unknown   -        unknown  unknown    unknown  -
held            unknown  fresh     -        unknown  resting    fixed    -
call            -        asked     -        -        asked      asked    -
call, absent    -        asked     -        asked    asked      asked    -
lost            unknown  unknown   unknown  unknown  unknown    unknown  unknown
later           resting  resting   resting  resting  resting    resting  resting
cancel          -        canceling -        -        canceling  -        -
kept            unknown  unknown   unknown  unknown  unknown    unknown  unknown
`;

test('a payment is posted only when its outcome is known or was just asked for, and canceled only when no call holds it [KT2 ST4 PF2]', () => {
  const [header = '', ...lines] = table.trim().split('\n');
  for (const line of lines) {
    const [name = '', ...nexts] = line.split(/ {2,}/);
    const event = events[name];
    assert(event, name);
    header
      .trim()
      .split(/ +/)
      .forEach((from, index) => {
        const next = nexts.join(' ').split(/ +/)[index] ?? '';
        const expected = next === '-' ? undefined : states[next];
        assert.deepEqual(step(states[from], event), expected, `${from}, ${name}`);
      });
  }
});
