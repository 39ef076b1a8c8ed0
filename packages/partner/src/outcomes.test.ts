/** What an account system may answer to a posting, and what of it is kept. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { checkedOutcome, checkedOutcomes } from './account-system.ts';

const posted = { status: 'succeeded', failure_reason: null, posted_at: null };
const canceled = { ...posted, status: 'canceled' };

test('each outcome is kept with what belongs to it, times in UTC, and nothing else [ST2 ST3 ST4]', () => {
  const more = { posted_at: null, reason: null, until: null, note: 'x' };
  for (const [answer, kept] of [
    [{ outcome: 'posted' }, posted],
    [{ ...more, outcome: 'posted' }, posted],
    [
      { outcome: 'posted', posted_at: '2026-03-01T10:30:00.5+01:00' },
      { ...posted, posted_at: '2026-03-01T09:30:00.500Z' },
    ],
    [
      { ...more, outcome: 'failed', reason: ' closed ' },
      { ...canceled, status: 'failed', failure_reason: ' closed ' },
    ],
    [{ ...more, outcome: 'canceled' }, canceled],
    [{ outcome: 'later' }, { outcome: 'later', until: null, cancelable: true }],
    [
      { ...more, outcome: 'later', until: '2026-03-01T09:30:00Z', cancelable: false },
      { outcome: 'later', until: '2026-03-01T09:30:00.000Z', cancelable: false },
    ],
    // Only a plain no keeps an operator from canceling.
    [
      { outcome: 'later', cancelable: 'false' },
      { outcome: 'later', until: null, cancelable: true },
    ],
  ] as const) {
    assert.deepEqual(checkedOutcome(answer), kept);
  }
});

test('a reason is cut to what the wire and the tables take: 500 characters, no NUL, no half of a pair [PF5 ST3]', () => {
  const reasonOf = (reason: string): unknown => {
    const kept = checkedOutcome({ outcome: 'failed', reason });
    return 'status' in kept ? kept.failure_reason : kept;
  };
  assert.equal(reasonOf('x'.repeat(500)), 'x'.repeat(500));
  assert.equal(reasonOf('x'.repeat(501)), 'x'.repeat(500));
  assert.equal(reasonOf('a\0b\0'), 'a b ');
  assert.equal(reasonOf(`${'x'.repeat(499)}😀`), `${'x'.repeat(499)}\uFFFD`);
});

test('what is no outcome leaves the payment open: it is neither posted nor failed by mistake [PF2 ST3]', () => {
  for (const [answer, problem] of [
    [undefined, /an outcome must be posted, failed, canceled or later/],
    [null, /an outcome must be/],
    ['posted', /an outcome must be/],
    [{}, /an outcome must be/],
    [{ outcome: 'Posted' }, /an outcome must be/],
    [{ outcome: 'failed' }, /needs a reason/],
    [{ outcome: 'failed', reason: '' }, /needs a reason/],
    [{ outcome: 'failed', reason: ' \n' }, /needs a reason/],
    [{ outcome: 'failed', reason: 7 }, /needs a reason/],
    // Nothing but spaces would be left of these, which the tables refuse: the payment could never end.
    [{ outcome: 'failed', reason: '\0' }, /needs a reason/],
    [{ outcome: 'failed', reason: `${' '.repeat(500)}x` }, /needs a reason/],
    [{ outcome: 'posted', posted_at: 'today' }, /posted_at must be a time such as/],
    [{ outcome: 'posted', posted_at: 1_767_225_600_000 }, /posted_at must be a time/],
    [{ outcome: 'posted', posted_at: ['2026-03-01T09:30:00Z'] }, /posted_at must be a time/],
    [{ outcome: 'posted', posted_at: '2026-03-01T09:30:00' }, /posted_at must be a time/],
    [{ outcome: 'later', until: 'soon' }, /until must be a time/],
  ] as const) {
    assert.throws(() => checkedOutcome(answer), { name: 'WrongAnswer', message: problem });
  }
});

test('a posting of several has an outcome for each, and one that is invalid makes all of them unknown [PF2]', () => {
  const one = { outcome: 'posted' };
  const two = checkedOutcomes([one, { outcome: 'canceled' }], 2);
  assert.deepEqual(two, [posted, canceled]);
  assert.deepEqual(checkedOutcomes([], 0), []);
  for (const answer of [[one], [one, one, one], one, undefined, { length: 2 }]) {
    assert.throws(() => checkedOutcomes(answer, 2), {
      name: 'WrongAnswer',
      message: 'post must return one outcome for each of 2 payments',
    });
  }
  assert.throws(() => checkedOutcomes([one, 'posted'], 2), { name: 'WrongAnswer' });
});
