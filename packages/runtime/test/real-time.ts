/**
 * Limits of real time in tests. They are chosen for a machine that is quiet and about as fast as the one they were chosen on: where one is
 * missed on a machine that was measured to be much slower, the test is skipped and says how slow the machine was. Any other failure of
 * the test is a failure on every machine.
 */
import { test, type TestContext } from 'node:test';

/** Work that takes 60 ms on the machine on which the limits were chosen, and longer where other programs want the same cores. */
const WORK = { steps: 60_000_000, ms: 60 };
/** Limits leave room for a machine that is half as fast. */
const TOO_SLOW = 2;

class TooLate extends Error {}

/** Fails a test of `testInRealTime` whose limit of real time was missed. Only this failure is forgiven to a slow machine. */
export function assertInTime(wasInTime: boolean, what: string): void {
  if (!wasInTime) throw new TooLate(what);
}

/** How many times slower than the reference this machine is now. */
function slowness(): number {
  const from = performance.now();
  let mixed = 1;
  for (let step = 0; step < WORK.steps; step += 1) mixed = Math.imul(mixed ^ step, 0x9e_37_79_b1);
  // Read, so that the loop is not optimised away.
  return mixed === 0 ? 1 : (performance.now() - from) / WORK.ms;
}

/** Runs the body of a test, and skips the test where a limit of real time was missed on a machine that is too slow to judge. */
export async function unlessTooSlow(
  t: Pick<TestContext, 'skip'>,
  body: () => void | Promise<void>,
  measure: () => number = slowness,
): Promise<void> {
  try {
    await body();
  } catch (error) {
    const times = error instanceof TooLate ? measure() : 0;
    if (times < TOO_SLOW) throw error;
    t.skip(`this machine is ${times.toFixed(1)} times too slow`);
  }
}

/** `test` of node:test for a test that measures real time. */
export function testInRealTime(
  title: string,
  body: (t: TestContext) => void | Promise<void>,
): void {
  void test(title, (t) => unlessTooSlow(t, () => body(t)));
}
