import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { FlowPayment, FlowSession } from '@duebridge/contract';
import { CallError } from './api.ts';
import { confirmPayment, followPayment, type Confirmed } from './confirm.ts';
import { createWaiting } from './waiting.ts';

const payment = (change: Partial<FlowPayment> = {}): FlowPayment => ({
  platform_payment_id: 'one',
  payment_id: null,
  status: 'processing',
  progress: 'sending',
  amount_in_cents: 100,
  funding_method: 'bank',
  created_at: '2026-03-01T18:00:00.000Z',
  initiated_at: null,
  posted_at: null,
  ...change,
});
const posted = payment({ status: 'succeeded', progress: 'ended' });
const session = (made: FlowPayment | null): FlowSession => ({ payment: made }) as FlowSession;
const refusal = (wire: CallError['wire'], status: number): CallError =>
  new CallError(wire, new Response(null, { status }));
const network = (): CallError => new CallError('network');

const lost: boolean[] = [];
const waiting = createWaiting((is) => lost.push(is));
// The customer comes back all the time: no delay takes long.
const timer = setInterval(() => waiting.wake(), 5);
after(() => clearInterval(timer));

/** Answers in order; the last one repeats forever. `asked` counts. */
function answers<T>(...given: readonly (T | CallError)[]) {
  const ask = async (): Promise<T> => {
    const answer = given[Math.min(ask.asked, given.length - 1)];
    ask.asked += 1;
    if (answer instanceof CallError) throw answer;
    return answer as T;
  };
  ask.asked = 0;
  return ask;
}

const confirm = (
  pay: (repeated: boolean) => Promise<FlowPayment>,
  read: () => Promise<FlowSession> = answers(session(null)),
  ended?: string,
): Promise<Confirmed> => confirmPayment(waiting, pay, read, false, ended);

test('a confirm is sent until it is answered, however often the network goes, and says that it was sent before', async () => {
  const pay = answers(network(), refusal('TOO_MANY_REQUESTS', 429), network(), payment());
  const repeated: boolean[] = [];
  lost.length = 0;
  const confirmed = await confirm((again) => {
    repeated.push(again);
    return pay();
  });
  assert.deepEqual(confirmed, { payment: payment() });
  assert.deepEqual(lost, [true, true, false]);
  assert.deepEqual(repeated, [false, true, true, true]);
});

test('a confirm that was refused was not sent before; one of an earlier press that was not answered was', async () => {
  const repeated: boolean[] = [];
  for (const wasUnanswered of [false, true]) {
    const pay = answers(
      refusal('TOO_MANY_REQUESTS', 429),
      refusal('PARTNER_UNREACHABLE', 502),
      payment(),
    );
    const send = (again: boolean): Promise<FlowPayment> => {
      repeated.push(again);
      return pay();
    };
    await confirmPayment(waiting, send, answers(session(null)), wasUnanswered, undefined);
  }
  assert.deepEqual(repeated, [false, false, false, true, true, true]);
});

test('whether a confirm may have arrived is known after it has failed', async () => {
  const unreachable = await confirm(answers<FlowPayment>(refusal('PARTNER_UNREACHABLE', 502)));
  assert.equal(unreachable.unanswered, false);
  const refused = await confirm(answers<FlowPayment>(refusal('ACCOUNT_NOT_FOUND', 404)));
  assert.equal(refused.unanswered, false);
  const failed = await confirm(answers<FlowPayment>(refusal('INTERNAL_ERROR', 500)));
  assert.equal(failed.unanswered, true);
});

test('after three server errors it is read what the platform has', async () => {
  const failing = answers<FlowPayment>(refusal('INTERNAL_ERROR', 500));
  const { failed } = (await confirm(failing)) as { failed: CallError };
  assert.deepEqual([failed.code, failing.asked], ['internal', 3]);
  // A refusal that stays is final at once.
  const refused = answers<FlowPayment>(refusal('CONFLICT', 409));
  assert.deepEqual(await confirm(refused, answers(session(posted))), { payment: posted });
  assert.equal(refused.asked, 1);
});

test('a session that ended and cannot be replaced ends a confirm', async () => {
  const read = answers(session(posted));
  const refused = refusal('SESSION_EXPIRED', 401);
  const confirmed = await confirm(answers<FlowPayment>(refused), read);
  assert.deepEqual(confirmed, { failed: refused, session: undefined, unanswered: false });
  assert.equal(read.asked, 0);
});

test('the replaced payment is not mistaken for the new one', async () => {
  const old = session(payment({ status: 'failed', progress: 'ended' }));
  const refused = refusal('AMOUNT_OUT_OF_RANGE', 422);
  const confirmed = await confirm(answers<FlowPayment>(refused), answers(old), 'one');
  assert.deepEqual(confirmed, { failed: refused, session: old, unanswered: false });
});

test('the read after a refusal is repeated like the confirm, and may fail', async () => {
  const refused = refusal('CONFLICT', 409);
  const read = answers(network(), refusal('PARTNER_UNREACHABLE', 502), session(payment()));
  assert.deepEqual(await confirm(answers<FlowPayment>(refused), read), { payment: payment() });
  const failing = answers<FlowSession>(refusal('INTERNAL_ERROR', 500));
  const confirmed = await confirm(answers<FlowPayment>(refused), failing);
  assert.deepEqual(confirmed, { failed: refused, session: undefined, unanswered: false });
});

test('a payment is followed by polls, through any trouble, until it has a terminal status', async () => {
  const heard: string[] = [];
  const trouble = refusal('INTERNAL_ERROR', 500);
  const missing = refusal('PAYMENT_NOT_FOUND', 404);
  const poll = answers(network(), missing, trouble, trouble, trouble, payment(), payment(), posted);
  const { signal } = new AbortController();
  await followPayment(waiting, poll, ({ status }) => heard.push(status), signal);
  assert.deepEqual(heard, ['processing', 'processing', 'succeeded']);
  const ended = answers<FlowPayment>(refusal('SESSION_EXPIRED', 401));
  await assert.rejects(
    followPayment(waiting, ended, () => assert.fail(), signal),
    /SESSION_EXPIRED/,
  );
});

test('a request that hangs is asked again as soon as the network or the customer is back', async () => {
  let asked = 0;
  const hangsOnce = (): Promise<FlowPayment> => {
    asked += 1;
    return asked > 1 ? Promise.resolve(posted) : new Promise(() => {});
  };
  assert.deepEqual(await confirm(hangsOnce), { payment: posted });
});

test('delays that run at the same time all end when the page wakes', async () => {
  await Promise.all([waiting.pause(3_600_000), waiting.pause(3_600_000)]);
});
