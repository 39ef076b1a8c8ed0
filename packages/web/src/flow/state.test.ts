import assert from 'node:assert/strict';
import test from 'node:test';
import type { FlowPayment, FlowSession } from '@duebridge/contract';
import fc from 'fast-check';
import { MAX_CENTS } from './money.ts';
import {
  amountOf,
  amountRules,
  chooses,
  choosesMethod,
  editsAmount,
  goesBack,
  hears,
  initialState,
  isSlow,
  judgeAmount,
  leftDue,
  loads,
  methodFor,
  methodsFor,
  nameOf,
  paymentOf,
  reads,
  refusesAmount,
  sends,
  stops,
  submits,
  types,
  type Move,
  type State,
} from './state.ts';

const session = (change: Partial<FlowSession> = {}): FlowSession => ({
  session_id: 's',
  mode: 'test',
  expires_at: '2026-03-01T19:00:00.000Z',
  partner: { partner_id: 'p', name: 'Acme' },
  biller: { biller_id: 'b', name: 'Acme' },
  account: {
    masked_account_id: '••••1',
    balance: { amount_due_in_cents: 17_084 },
    balance_source: 'partner',
    payment_rules: {},
  },
  funding_methods: [
    { funding_method: 'bank', label: 'Bank', sandbox: true },
    { funding_method: 'card', label: 'Card', sandbox: true },
  ],
  payment: null,
  ...change,
});
const payment = (change: Partial<FlowPayment> = {}): FlowPayment => ({
  platform_payment_id: 'one',
  payment_id: null,
  status: 'processing',
  progress: 'sending',
  amount_in_cents: 17_084,
  funding_method: 'bank',
  created_at: '2026-03-01T18:00:00.000Z',
  initiated_at: null,
  posted_at: null,
  ...change,
});
const after = (...moves: readonly Move[]): State =>
  moves.reduce((state, move) => move(state), initialState(false));
const read = (change: Partial<FlowSession> = {}): Move => reads(session(change));
const screenOf = (state: State): string => state.screen.name;
/** What a press of Pay would pay; undefined on another screen. */
const payable = ({ screen }: State): number | undefined =>
  screen.name === 'review' ? amountOf(screen.bill) : undefined;

test('a late answer does not change a payment that has ended [RU2]', () => {
  for (const status of ['succeeded', 'failed', 'canceled'] as const) {
    const ended = after(read(), hears(payment({ status, progress: 'ended' })));
    assert.equal(hears(payment())(ended), ended, status);
  }
});

test('a session with a payment opens on it, unless that payment is to be replaced', () => {
  const failed = payment({ status: 'failed', progress: 'ended' });
  assert.equal(screenOf(after(read({ payment: payment() }))), 'status');
  const again = after(read({ payment: failed }), loads, read({ payment: failed }));
  assert.equal(screenOf(again), 'review');
  assert.equal(again.screen.bill?.ended, 'one');
  const other = payment({ platform_payment_id: 'two' });
  assert.equal(paymentOf(hears(other)(again).screen), other);
});

test('an amount far above the bill is questioned, with a suggestion of what may have been meant', () => {
  const typed = (text: string, cents: number, due = 17_084): State =>
    after(
      read({
        account: { ...session().account, balance: { amount_due_in_cents: due } },
      }),
      editsAmount,
      types(text),
      submits(cents),
    );
  const asked = typed('17084', 1_708_400);
  assert.deepEqual(asked.screen.name === 'amount' && asked.screen.asks, {
    amount: 1_708_400,
    meant: 17_084,
  });
  const sure = chooses(1_708_400)(asked);
  assert.deepEqual(payable(sure), 1_708_400);
  // Another month ahead is nothing to ask about; three times the bill is, and nobody guesses what was meant.
  assert.deepEqual(payable(typed('341.68', 34_168)), 34_168);
  const thrice = typed('512.53', 51_253);
  assert.deepEqual(thrice.screen.name === 'amount' && thrice.screen.asks, {
    amount: 51_253,
    meant: undefined,
  });
  // A credit or an unknown balance is nothing to compare with.
  assert.deepEqual(payable(typed('500', 50_000, -100)), 50_000);
  assert.deepEqual(payable(typed('500', 50_000, 0)), 50_000);
});

test('the typed amount and the choices survive going back, a new read and a refused amount', () => {
  const state = after(
    read(),
    editsAmount,
    types('42'),
    submits(4_200),
    choosesMethod('card'),
    editsAmount,
    goesBack,
  );
  assert.deepEqual(payable(state), 4_200);
  assert.equal(state.screen.bill?.typed, '42');
  const reread = read()(loads(state));
  assert.deepEqual([payable(reread), reread.screen.bill?.method], [4_200, 'card']);
  // The bill's own amount is chosen by its name: a bill that was raised meanwhile is paid as it is then.
  const full = chooses(17_084)(state);
  const raised = { ...session().account, balance: { amount_due_in_cents: 20_000 } };
  assert.deepEqual(payable(read({ account: raised })(full)), 20_000);
  const account = { ...session().account, payment_rules: { max_amount_in_cents: 10_000 } };
  const refused = after(read(), sends('sends'), refusesAmount(session({ account })));
  assert.ok(refused.screen.name === 'amount');
  assert.deepEqual(
    [refused.screen.problem, refused.screen.bill.typed],
    ['amount_too_large', '170.84'],
  );
});

test('nothing can be changed while a confirm is being sent', () => {
  const sending = after(read(), chooses(100), sends('sends'));
  assert.equal(choosesMethod('card')(sending), sending);
  assert.equal(chooses(200)(sending), sending);
  assert.equal(editsAmount(sending), sending);
});

test('whatever happens in whatever order, there is a screen, and an ended payment stays ended', () => {
  const news = (['processing', 'succeeded', 'failed'] as const).map((status) =>
    hears(payment({ status, progress: status === 'processing' ? 'accepted' : 'ended' })),
  );
  const happening = fc.constantFrom<Move>(
    ...news,
    loads,
    read(),
    read({ payment: payment() }),
    editsAmount,
    types('5'),
    submits(500),
    submits(undefined),
    goesBack,
    sends('sends'),
    sends('asks'),
    isSlow,
    stops({ code: 'network_lost' }),
    chooses(500),
    refusesAmount(session()),
  );
  fc.assert(
    fc.property(fc.array(happening, { maxLength: 30 }), (moves) => {
      let state = initialState(false);
      for (const one of moves) {
        const next = one(state);
        const [before, now] = [paymentOf(state.screen), paymentOf(next.screen)];
        if (before?.progress === 'ended' && news.includes(one)) assert.equal(now, before);
        // Only the two screens that show a payment hold one.
        assert.equal(now !== undefined, ['status', 'receipt'].includes(nameOf(next.screen) ?? ''));
        state = next;
      }
    }),
    { seed: 1 },
  );
});
const rules = (
  due: number | undefined,
  payment_rules: { min_amount_in_cents?: number; max_amount_in_cents?: number } = {},
): ReturnType<typeof amountRules> =>
  amountRules({
    account: {
      masked_account_id: '••••1',
      balance: due === undefined ? null : { amount_due_in_cents: due },
      balance_source: 'partner',
      payment_rules,
    },
  });

test('the payable amounts follow from the rules of the account and from the amount due', () => {
  assert.deepEqual(rules(500), { min: 1, max: MAX_CENTS, full: 500, fixed: undefined });
  assert.deepEqual(rules(undefined).full, undefined);
  assert.deepEqual(rules(0).full, undefined);
  assert.deepEqual(rules(-500).full, undefined);
  assert.deepEqual(rules(500, { min_amount_in_cents: 501 }).full, undefined);
  assert.deepEqual(rules(500, { max_amount_in_cents: 499 }).full, undefined);
  const fixed = rules(500, { min_amount_in_cents: 500, max_amount_in_cents: 500 });
  assert.deepEqual([fixed.full, fixed.fixed], [500, 500]);
});

test('an amount outside the limits is refused, tested at the limits', () => {
  const allowed = rules(500, { min_amount_in_cents: 100, max_amount_in_cents: 1_000 });
  assert.equal(judgeAmount('0.99', 99, allowed), 'amount_too_small');
  assert.equal(judgeAmount('1', 100, allowed), undefined);
  assert.equal(judgeAmount('10', 1_000, allowed), undefined);
  assert.equal(judgeAmount('10.01', 1_001, allowed), 'amount_too_large');
  assert.equal(judgeAmount(' ', undefined, allowed), 'amount_empty');
  assert.equal(judgeAmount('ten', undefined, allowed), 'amount_unclear');
  assert.equal(judgeAmount('0', 0, rules(500)), 'amount_too_small');
});

test('details that are not complete leave the confirm as it was, and the button works again', () => {
  const sending = after(read(), chooses(17_084), sends('sends'));
  const back = sends(false)(sending);
  assert.deepEqual(back, after(read(), chooses(17_084)));
  const followed = after(read(), hears(payment()));
  assert.equal(sends(false)(followed), followed);
});

test('only methods that take the amount are on offer, and a chosen one gives way when it does not', () => {
  const funding_methods = [
    { funding_method: 'bank', label: 'Bank', sandbox: false, max_amount_in_cents: 5_000 },
    { funding_method: 'card', label: 'Card', sandbox: false, min_amount_in_cents: 50 },
  ];
  const { screen } = after(read({ funding_methods }), chooses(5_000), choosesMethod('bank'));
  assert.ok(screen.bill);
  const offered = (amount: number): string[] =>
    methodsFor(screen.bill!, amount).map((method) => method.funding_method);
  assert.deepEqual(
    [offered(5_000), offered(5_001), offered(49)],
    [['bank', 'card'], ['card'], ['bank']],
  );
  assert.equal(methodFor(screen.bill, 5_000)?.funding_method, 'bank');
  assert.equal(methodFor(screen.bill, 5_001)?.funding_method, 'card');
});

test('a receipt says what is still due only where the bill was read before the payment', () => {
  const part = payment({ status: 'succeeded', progress: 'ended', amount_in_cents: 5_000 });
  const left = (...moves: readonly Move[]): number | undefined => {
    const { bill } = after(...moves, hears(part)).screen;
    return bill && leftDue(bill, part);
  };
  assert.equal(left(read(), sends('sends')), 12_084);
  // The balance of a page that is opened after the payment may count it or not.
  assert.equal(left(read({ payment: part })), undefined);
  assert.equal(left(read({ account: { ...session().account, balance: null } })), undefined);
});
