/**
 * The page's state and its transitions, as a pure function of the previous state and an event. It uses no network, clock or
 * document; `flow.ts` performs the actions and dispatches their results here.
 *
 *   loading -> review -> status -> receipt; review <-> amount; and `problem` from anywhere
 *
 * A screen only shows what the platform answered: a payment is `processing` until the platform returns another status, whatever
 * happens to this page, its network or its session.
 */
import type { FlowFundingMethod, FlowPayment, FlowSession } from '@duebridge/contract';
import type { DuebridgeErrorCode, ScreenName } from '../embed/types.ts';
import { MAX_CENTS } from './money.ts';

/** A typed amount over this multiple of the bill prompts a question: a forgotten decimal point multiplies it by a hundred. */
const FAR_ABOVE = 2;

export type AmountProblem =
  | 'amount_empty'
  | 'amount_unclear'
  | 'amount_too_small'
  | 'amount_too_large';

/** What an amount may be: the account's rules within the interface's (decisions 4 and 11). */
export interface AmountRules {
  readonly min: number;
  readonly max: number;
  /** The amount due, if it is known and can be paid as it is. */
  readonly full: number | undefined;
  /** The account accepts only this amount, so there is no choice. */
  readonly fixed: number | undefined;
}

/** What is paid, and what the customer has chosen so far. */
export interface Bill {
  readonly session: FlowSession;
  readonly rules: AmountRules;
  readonly method: string | undefined;
  /** Another amount than the bill's own, if the customer chose one. */
  readonly chosen: number | undefined;
  /** As typed; kept while the customer goes back and forth. */
  readonly typed: string;
  /** The payment that failed or was canceled, after which the customer tries again. */
  readonly ended: string | undefined;
}

/** How "Try again" starts: with the bill under the current session, or with a new session. */
export type Again = 'bill' | 'session';

export type Screen =
  /** With a bill when it is read again; what the customer typed and chose is kept. */
  | { readonly name: 'loading'; readonly bill: Bill | undefined }
  /** The bill and the button that pays it; without an amount to pay (`amountOf`), the way to choose one. */
  | { readonly name: 'review'; readonly bill: Bill; readonly sending: boolean }
  | {
      readonly name: 'amount';
      readonly bill: Bill;
      readonly problem?: AmountProblem | undefined;
      /** A valid amount far above the bill, and what was probably meant: the customer chooses. */
      readonly asks?: { readonly amount: number; readonly meant: number | undefined } | undefined;
    }
  | {
      readonly name: 'status';
      readonly bill: Bill;
      readonly payment: FlowPayment;
      readonly slow: boolean;
    }
  | { readonly name: 'receipt'; readonly bill: Bill; readonly payment: FlowPayment }
  | {
      readonly name: 'problem';
      readonly code: DuebridgeErrorCode;
      readonly requestId: string | undefined;
      readonly again: Again | undefined;
      readonly bill: Bill | undefined;
    };

/** Everything the screens show. */
export interface State {
  readonly screen: Screen;
  readonly offline: boolean;
  /** Ms on the customer's clock at which the session ends, once that is near. */
  readonly endsAt: number | undefined;
  /** The customer asked to close while a payment was being sent. */
  readonly asksToClose: boolean;
  /** The customer has left a page that stays in place: it has no button for that any more. */
  readonly left: boolean;
}

export type FlowEvent =
  | { readonly type: 'loads' }
  | { readonly type: 'read'; readonly session: FlowSession }
  | { readonly type: 'chose'; readonly amount: number }
  | { readonly type: 'edits_amount' }
  | { readonly type: 'typed'; readonly text: string }
  /** `cents` is the parsed text in the customer's language; undefined when it is not an amount. */
  | { readonly type: 'submitted'; readonly cents: number | undefined }
  | { readonly type: 'method'; readonly method: string }
  | { readonly type: 'back' }
  /** The press of Pay; `on: false`: the details of the funding method are incomplete, and nothing was sent. */
  | { readonly type: 'sends'; readonly on: boolean }
  /** The rules changed after the page was drawn; `session` is the current bill. */
  | { readonly type: 'amount_refused'; readonly session: FlowSession }
  | { readonly type: 'heard'; readonly payment: FlowPayment }
  /** What the session says after the payment succeeded: who paid, and where the receipt is sent. */
  | { readonly type: 'receipted'; readonly receipt: Pick<FlowSession, 'receipt'> }
  | { readonly type: 'slow' }
  | {
      readonly type: 'stopped';
      readonly code: DuebridgeErrorCode;
      readonly requestId?: string | undefined;
      readonly again?: Again | undefined;
    }
  | { readonly type: 'tries_again' }
  | { readonly type: 'connection'; readonly lost: boolean }
  | { readonly type: 'session_ends'; readonly at: number | undefined }
  | { readonly type: 'asks_to_close'; readonly asks: boolean }
  | { readonly type: 'left'; readonly left: boolean };

export function initialState(offline: boolean): State {
  const screen: Screen = { name: 'loading', bill: undefined };
  return { screen, offline, endsAt: undefined, asksToClose: false, left: false };
}

/** The state after an event. An event that does not apply to the current screen changes nothing. */
export function reduce(state: State, event: FlowEvent): State {
  const { screen } = state;
  const { bill } = screen;
  const show = (next: Screen, change: Partial<State> = {}): State => ({
    ...state,
    ...change,
    screen: next,
  });
  switch (event.type) {
    case 'loads':
      return show({ name: 'loading', bill });
    case 'read': {
      const read = billFrom(event.session, bill);
      const { payment } = event.session;
      if (payment && payment.platform_payment_id !== read.ended) return paid(state, read, payment);
      return show(review(read));
    }
    case 'chose':
      return isChoosing(screen) ? show(review(choose(screen.bill, event.amount))) : state;
    case 'edits_amount':
      return isChoosing(screen) ? show({ name: 'amount', bill: screen.bill }) : state;
    case 'typed':
      if (screen.name !== 'amount') return state;
      return show({ ...screen, bill: { ...screen.bill, typed: event.text }, asks: undefined });
    case 'submitted':
      return screen.name === 'amount' ? submitted(state, screen.bill, event.cents) : state;
    case 'method':
      if (screen.name !== 'review' || screen.sending) return state;
      return show({ ...screen, bill: { ...screen.bill, method: event.method } });
    case 'back':
      return screen.name === 'amount' ? show(review(screen.bill)) : state;
    case 'sends':
      return screen.name === 'review'
        ? show({ ...screen, sending: event.on }, { left: false })
        : state;
    case 'amount_refused':
      return screen.name === 'review' ? show(refusedAmount(screen.bill, event.session)) : state;
    case 'heard':
      return bill ? paid(state, bill, event.payment) : state;
    case 'receipted':
      if (screen.name !== 'receipt') return state;
      // Its balance is another one now: what the payment leaves due follows from the one that was paid.
      return show({
        ...screen,
        bill: { ...screen.bill, session: { ...screen.bill.session, ...event.receipt } },
      });
    case 'slow':
      return screen.name === 'status' ? show({ ...screen, slow: true }) : state;
    case 'stopped': {
      const { code, requestId, again } = event;
      return show({ name: 'problem', code, requestId, again, bill });
    }
    case 'tries_again': {
      const last = paymentOf(screen)?.platform_payment_id;
      return show({ name: 'loading', bill: bill && { ...bill, ended: last ?? bill.ended } });
    }
    case 'connection':
      return { ...state, offline: event.lost };
    case 'session_ends':
      return { ...state, endsAt: event.at };
    case 'asks_to_close':
      return { ...state, asksToClose: event.asks };
    case 'left':
      return { ...state, left: event.left, asksToClose: false };
  }
}

/** The amount that is paid: the chosen one, or the bill's own; undefined while there is neither. */
export const amountOf = ({ chosen, rules }: Bill): number | undefined => chosen ?? rules.full;

/** What a payment leaves due, where the bill was read before it; undefined when nothing is, or nobody knows. */
export function leftDue({ session }: Bill, payment: FlowPayment): number | undefined {
  const due = session.account.balance?.amount_due_in_cents ?? 0;
  const isBefore = session.payment?.platform_payment_id !== payment.platform_payment_id;
  return isBefore && due > payment.amount_in_cents ? due - payment.amount_in_cents : undefined;
}

/** The funding methods that accept this amount: those to choose from, or those with a button of their own. */
export function methodsFor(
  { session }: Bill,
  amount: number,
  isExpress = false,
): FlowFundingMethod[] {
  return session.funding_methods.filter(
    ({ express = false, min_amount_in_cents: min = 0, max_amount_in_cents: max = amount }) =>
      express === isExpress && amount >= min && amount <= max,
  );
}

/** The chosen one of them, or the first. */
export function methodFor(bill: Bill, amount: number): FlowFundingMethod | undefined {
  const methods = methodsFor(bill, amount);
  return methods.find((method) => method.funding_method === bill.method) ?? methods[0];
}

/** The method that a payment was made with. */
export const methodOf = ({ session }: Bill, payment: FlowPayment): FlowFundingMethod | undefined =>
  session.funding_methods.find((method) => method.funding_method === payment.funding_method);

/** The payment of a screen, where it has one. */
export function paymentOf(screen: Screen): FlowPayment | undefined {
  return screen.name === 'status' || screen.name === 'receipt' ? screen.payment : undefined;
}

/** The screen name that is reported to the site; undefined before the first screen. */
export function nameOf(screen: Screen): ScreenName | undefined {
  return screen.name === 'loading' ? undefined : screen.name;
}

/** The customer can still choose what to pay. */
const isChoosing = (screen: Screen): screen is Extract<Screen, { name: 'review' | 'amount' }> =>
  screen.name === 'amount' || (screen.name === 'review' && !screen.sending);

const review = (bill: Bill): Screen => ({ name: 'review', bill, sending: false });

const choose = (bill: Bill, amount: number): Bill => ({
  ...bill,
  chosen: amount === bill.rules.full ? undefined : amount,
});

function billFrom(session: FlowSession, before: Bill | undefined): Bill {
  const rules = amountRules(session);
  const { chosen } = before ?? {};
  const isPayable = chosen !== undefined && chosen >= rules.min && chosen <= rules.max;
  return {
    session,
    rules,
    method: before?.method ?? session.funding_methods[0]?.funding_method,
    chosen: isPayable ? chosen : undefined,
    typed: before?.typed ?? '',
    ended: before?.ended,
  };
}

/** The screen of a payment. Answers may arrive out of order: a payment that has ended does not change (RU2). */
function paid(state: State, bill: Bill, payment: FlowPayment): State {
  const { screen } = state;
  const known = paymentOf(screen);
  const same = known?.platform_payment_id === payment.platform_payment_id;
  if (same && known?.progress === 'ended') return state;
  const slow = same && screen.name === 'status' && screen.slow;
  return {
    ...state,
    offline: false,
    asksToClose: false,
    screen:
      payment.status === 'succeeded'
        ? { name: 'receipt', bill, payment }
        : { name: 'status', bill, payment, slow },
  };
}

function submitted(state: State, bill: Bill, cents: number | undefined): State {
  const problem = judgeAmount(bill.typed, cents, bill.rules);
  if (problem !== undefined || cents === undefined)
    return { ...state, screen: { name: 'amount', bill, problem } };
  const asks = farAbove(cents, bill);
  return asks === undefined
    ? { ...state, screen: review(choose(bill, cents)) }
    : { ...state, screen: { name: 'amount', bill, asks } };
}

/** Whether to ask about an amount, and what was probably meant. */
function farAbove(
  amount: number,
  { session, rules }: Bill,
): { amount: number; meant: number | undefined } | undefined {
  const due = session.account.balance?.amount_due_in_cents;
  if (due === undefined || due <= 0 || amount <= due * FAR_ABOVE) return undefined;
  // Without its decimal point an amount is a hundred times larger.
  const shifted = amount / 100;
  const meant = Number.isInteger(shifted) && shifted <= due * FAR_ABOVE && shifted >= rules.min;
  return { amount, meant: meant ? shifted : undefined };
}

function refusedAmount(before: Bill, session: FlowSession): Screen {
  const bill = billFrom(session, before);
  const amount = amountOf(before) ?? 0;
  const { rules } = bill;
  if (rules.fixed !== undefined) return review(bill);
  const typed = bill.typed || (amount / 100).toFixed(2);
  const problem = amount > rules.max ? 'amount_too_large' : 'amount_too_small';
  return { name: 'amount', bill: { ...bill, typed }, problem };
}

/** What may be paid, from the account's rules and its balance. */
export function amountRules({ account }: Pick<FlowSession, 'account'>): AmountRules {
  const { min_amount_in_cents: low = 1, max_amount_in_cents: high = MAX_CENTS } =
    account.payment_rules;
  const due = account.balance?.amount_due_in_cents;
  const fixed = low === high ? low : undefined;
  const full = due !== undefined && due >= low && due <= high && due > 0 ? due : undefined;
  return { min: low, max: high, full: fixed ?? full, fixed };
}

/** Why an amount cannot be paid; undefined when it can. */
export function judgeAmount(
  typed: string,
  cents: number | undefined,
  rules: AmountRules,
): AmountProblem | undefined {
  if (typed.trim() === '') return 'amount_empty';
  if (cents === undefined) return 'amount_unclear';
  if (cents < rules.min) return 'amount_too_small';
  return cents > rules.max ? 'amount_too_large' : undefined;
}
