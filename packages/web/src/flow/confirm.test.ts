import assert from 'node:assert/strict';
import test from 'node:test';
import type { FlowPayment, FlowSession } from '@duebridge/contract';
import { CallError } from './api.ts';
import { confirmPayment, type Confirmed, type Confirming } from './confirm.ts';
import { followPayment } from './follow.ts';
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
const session = (made: FlowPayment | null): FlowSession => ({ payment: made }) as FlowSession;
const refusal = (wire: CallError['wire'], status: number): CallError =>
  new CallError(wire, new Response(null, { status }));
const network = (): CallError => new CallError('network');

/** Confirms against the given answers in order; the last one repeats forever. */
async function confirm(
  answers: readonly (FlowPayment | CallError)[],
  change: Partial<Confirming> = {},
): Promise<{
  sent: number;
  lost: boolean[];
  repeated: (true | undefined)[];
  confirmed: Confirmed;
}> {
  let sent = 0;
  const repeated: (true | undefined)[] = [];
  const lost: boolean[] = [];
  const confirmed = await confirmPayment(
    {
      amount_in_cents: 100,
      funding_method: 'bank',
      platform_payment_id: 'next',
    },
    {
      api: {
        async pay(request) {
          repeated.push(request.repeated);
          const answer = answers[Math.min(sent, answers.length - 1)];
          sent += 1;
          if (answer instanceof CallError) throw answer;
          return answer!;
        },
        session: async () => session(null),
      },
      waiting: { pause: async () => {}, attempt: (act) => act() },
      renew: async () => true,
      read: async () => session(null),
      connection: (is) => lost.push(is),
      ended: undefined,
      ...change,
    },
  );
  return { sent, lost, repeated, confirmed };
}

test('a confirm is sent until it is answered, however often the network goes', async () => {
  const { sent, lost, confirmed, repeated } = await confirm([network(), network(), payment()]);
  assert.deepEqual([confirmed.kind, sent], ['payment', 3]);
  assert.deepEqual(lost, [true, true, false]);
  // The platform may have lost what it had made of the first.
  assert.deepEqual(repeated, [undefined, true, true]);
});

test('a confirm that was refused was not sent before', async () => {
  const { repeated } = await confirm([refusal('SESSION_EXPIRED', 401), payment()]);
  assert.deepEqual(repeated, [undefined, undefined]);
});

test('after three server errors the outcome of a confirm is reported as unknown', async () => {
  const { sent, confirmed } = await confirm([refusal('INTERNAL_ERROR', 500)]);
  assert.deepEqual([confirmed.kind, sent], ['unclear', 3]);
});

test('when the session expires during a confirm, the page shows the payment whose answer was lost', async () => {
  const made = payment();
  const found = await confirm([network(), refusal('SESSION_EXPIRED', 401)], {
    read: async () => session(made),
  });
  assert.deepEqual(found.confirmed, { kind: 'payment', payment: made });
  assert.equal(found.sent, 2);
  const none = await confirm([refusal('SESSION_EXPIRED', 401)], { renew: async () => false });
  assert.equal(none.confirmed.kind, 'ended');
  // The session was renewed and no payment was made: the confirm is sent again.
  const again = await confirm([refusal('SESSION_EXPIRED', 401), payment()]);
  assert.deepEqual([again.confirmed.kind, again.sent], ['payment', 2]);
});

test('the replaced payment is not mistaken for the new one', async () => {
  const old = payment({ status: 'failed', progress: 'ended' });
  const { confirmed } = await confirm([refusal('CONFLICT', 409)], {
    ended: 'one',
    read: async () => session(old),
  });
  assert.equal(confirmed.kind, 'unclear');
});

test('an amount that is no longer allowed is reported with the current bill', async () => {
  const { confirmed } = await confirm([refusal('AMOUNT_OUT_OF_RANGE', 422)]);
  assert.equal(confirmed.kind, 'amount_refused');
});

test('a read that fails after a refusal is retried with the confirm and does not end the flow', async () => {
  let reads = 0;
  const { confirmed, sent } = await confirm([refusal('CONFLICT', 409)], {
    read: async () => {
      reads += 1;
      if (reads < 3) throw network();
      return session(payment());
    },
  });
  assert.deepEqual([confirmed.kind, sent], ['payment', 3]);
});

test('a payment is followed by polls, through any trouble, until it has a terminal status', async () => {
  const heard: string[] = [];
  const polls = [network(), refusal('PAYMENT_NOT_FOUND', 404), refusal('INTERNAL_ERROR', 500)];
  let waits = 0;
  const end = await followPayment('one', {
    api: {
      async payment() {
        const trouble = polls.shift();
        if (trouble) throw trouble;
        waits += 1;
        return waits < 3 ? payment() : payment({ status: 'succeeded', progress: 'ended' });
      },
    },
    waiting: { pause: async () => {}, attempt: (act) => act() },
    renewed: (act) => act(),
    heard: ({ status }) => heard.push(status),
    connection: () => {},
    signal: new AbortController().signal,
  });
  assert.equal(end, 'done');
  assert.deepEqual(heard, ['processing', 'processing', 'succeeded']);
});

test('a session that expires while a payment is followed stops the following, not the payment', async () => {
  const heard: FlowPayment[] = [];
  const end = await followPayment('one', {
    api: {
      payment: () => Promise.reject(refusal('SESSION_EXPIRED', 401)),
    },
    waiting: { pause: async () => {}, attempt: (act) => act() },
    renewed: (act) => act(),
    heard: (news) => heard.push(news),
    connection: () => {},
    signal: new AbortController().signal,
  });
  assert.equal(end, 'ended');
  assert.deepEqual(heard, []);
});

test('a request that hangs is asked again as soon as the network or the customer is back', async () => {
  const silence = new Promise<never>(() => {});
  const waiting = createWaiting();
  /** The first request of a kind hangs until the page wakes, which is a turn later. */
  const hangsOnce = <T>(answer: T): (() => Promise<T>) => {
    let asked = 0;
    return () => {
      asked += 1;
      if (asked > 1) return Promise.resolve(answer);
      setImmediate(() => waiting.wake());
      return silence;
    };
  };
  const { confirmed, lost } = await confirm([], {
    api: { pay: hangsOnce(payment()), session: async () => session(null) },
    waiting,
  });
  assert.deepEqual([confirmed.kind, lost], ['payment', [false]]);

  const heard: string[] = [];
  const end = await followPayment('one', {
    api: {
      payment: hangsOnce(payment({ status: 'succeeded', progress: 'ended' })),
    },
    waiting,
    renewed: (act) => act(),
    heard: ({ status }) => heard.push(status),
    connection: () => assert.fail('nothing was lost'),
    signal: new AbortController().signal,
  });
  assert.deepEqual([end, heard], ['done', ['succeeded']]);
});

test('delays that run at the same time all end when the page wakes', async () => {
  const waiting = createWaiting();
  const long = [waiting.pause(3_600_000), waiting.pause(3_600_000)];
  waiting.wake();
  await Promise.all(long);
});
