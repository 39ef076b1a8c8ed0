/**
 * The page's state, and its moves as pure functions of a state. It uses no network, clock or document; `flow.ts` performs the actions
 * and applies their results here.
 *
 *   loading -> review -> status -> receipt; review <-> amount; and `problem` from anywhere
 *
 * A screen only shows what the platform answered: a payment is `processing` until the platform returns another status, whatever
 * happens to this page, its network or its session.
 */
import type { FlowFundingMethod, FlowPayment, FlowSession } from '@duebridge/contract';
import type { ScreenName } from '../embed/types.ts';
import { MAX_CENTS } from './money.ts';

/** A typed amount over this multiple of the bill prompts a question: a forgotten decimal point multiplies it by a hundred. */
const FAR_ABOVE = 2;

export type AmountProblem =
  | 'amount_empty'
  | 'amount_unclear'
  | 'amount_too_small'
  | 'amount_too_large';

/** What an amount may be: the account's rules within the interface's (decisions 4 and 11). */
type AmountRules = ReturnType<typeof amountRules>;

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
  | {
      readonly name: 'review';
      readonly bill: Bill;
      /** Whether the confirm is being sent; `asks`: and the customer, who wants to close meanwhile, is asked. */
      readonly sending: false | 'sends' | 'asks';
    }
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
  | (Problem & { readonly name: 'problem'; readonly bill: Bill | undefined });

/** One screen by its name. */
export type ScreenOf<N extends Screen['name']> = Extract<Screen, { name: N }>;

/** Why the page cannot go on, and whether "Try again" can. */
export interface Problem {
  /** A DuebridgeErrorCode; `alone` for a page that stands in no site. */
  readonly code: string;
  readonly requestId?: string | undefined;
  readonly again?: Again | undefined;
}

/** Everything the screens show. */
export interface State {
  readonly screen: Screen;
  readonly offline: boolean;
  /** Ms on the customer's clock at which the session ends, once that is near. */
  readonly endsAt: number | undefined;
  /** The customer has left a page that stays in place: it has no button for that any more. */
  readonly left: boolean;
}

/** The first state; `problem`: why there will be no payment in this visit. */
export function initialState(offline: boolean, problem?: Problem): State {
  const screen: Screen = problem
    ? { name: 'problem', ...problem, bill: undefined }
    : { name: 'loading', bill: undefined };
  return { screen, offline, endsAt: undefined, left: false };
}

// Moves -----------------------------------------------------------------------------------------------------------------------

/** The state after something has happened. What does not apply to the current screen changes nothing. */
export type Move = (state: State) => State;

/** A move between screens; `next` gives undefined where it does not apply. */
const move =
  (next: (screen: Screen) => Screen | undefined): Move =>
  (state) => {
    const screen = next(state.screen);
    return screen ? { ...state, screen } : state;
  };

/** A move from one screen. */
const from = <N extends Screen['name']>(
  name: N,
  next: (screen: ScreenOf<N>) => Screen | undefined,
): Move => move((screen) => (screen.name === name ? next(screen as ScreenOf<N>) : undefined));

/** Reads again; after a payment that failed or was canceled, for another one in its place. */
export const loads: Move = move((screen) => {
  const { bill } = screen;
  const ended = paymentOf(screen)?.platform_payment_id ?? bill?.ended;
  return { name: 'loading', bill: bill && { ...bill, ended } };
});

/** The bill as it is now: of a session that has a payment already, that payment. */
export const reads =
  (session: FlowSession): Move =>
  (state) => {
    const bill = billFrom(session, state.screen.bill);
    const { payment } = session;
    return payment && payment.platform_payment_id !== bill.ended
      ? paid(state, bill, payment)
      : { ...state, screen: review(bill) };
  };

export const chooses = (amount: number): Move =>
  move((screen) => (isChoosing(screen) ? review(choose(screen.bill, amount)) : undefined));

export const editsAmount: Move = move((screen) =>
  isChoosing(screen) ? { name: 'amount', bill: screen.bill } : undefined,
);

export const types = (typed: string): Move =>
  from('amount', (screen) => ({ ...screen, bill: { ...screen.bill, typed }, asks: undefined }));

/** `cents` is the typed text as an amount in the customer's language; undefined when it is none. */
export const submits = (cents: number | undefined): Move =>
  from('amount', ({ bill }) => {
    const problem = judgeAmount(bill.typed, cents, bill.rules);
    if (problem !== undefined || cents === undefined) return { name: 'amount', bill, problem };
    const asks = farAbove(cents, bill);
    return asks ? { name: 'amount', bill, asks } : review(choose(bill, cents));
  });

export const choosesMethod = (method: string): Move =>
  from('review', (screen) =>
    screen.sending ? undefined : { ...screen, bill: { ...screen.bill, method } },
  );

export const goesBack: Move = from('amount', ({ bill }) => review(bill));

/** The press of Pay; false: the details of the funding method are incomplete, and nothing was sent. */
export const sends = (sending: false | 'sends' | 'asks'): Move =>
  from('review', (screen) => ({ ...screen, sending }));

/** The rules changed after the page was drawn; `session` is the current bill. */
export const refusesAmount = (session: FlowSession): Move =>
  from('review', ({ bill: before }) => {
    const bill = billFrom(session, before);
    const amount = amountOf(before) ?? 0;
    const { rules } = bill;
    if (rules.fixed !== undefined) return review(bill);
    const typed = bill.typed || (amount / 100).toFixed(2);
    const problem = amount > rules.max ? 'amount_too_large' : 'amount_too_small';
    return { name: 'amount', bill: { ...bill, typed }, problem };
  });

/** News of a payment. */
export const hears =
  (payment: FlowPayment): Move =>
  (state) =>
    state.screen.bill ? paid(state, state.screen.bill, payment) : state;

export const isSlow: Move = from('status', (screen) => ({ ...screen, slow: true }));

export const stops = (problem: Problem): Move =>
  move(({ bill }) => ({ name: 'problem', ...problem, bill }));

// What follows from a state ---------------------------------------------------------------------------------------------------

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
const isChoosing = (screen: Screen): screen is ScreenOf<'review' | 'amount'> =>
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
    screen:
      payment.status === 'succeeded'
        ? { name: 'receipt', bill, payment }
        : { name: 'status', bill, payment, slow },
  };
}

/** Whether to ask about an amount, and what was probably meant. */
function farAbove(amount: number, { session, rules }: Bill) {
  const due = session.account.balance?.amount_due_in_cents;
  if (due === undefined || due <= 0 || amount <= due * FAR_ABOVE) return undefined;
  // Without its decimal point an amount is a hundred times larger.
  const shifted = amount / 100;
  const meant = Number.isInteger(shifted) && shifted <= due * FAR_ABOVE && shifted >= rules.min;
  return { amount, meant: meant ? shifted : undefined };
}

/** What may be paid, from the account's rules and its balance. */
export function amountRules({ account }: Pick<FlowSession, 'account'>) {
  const { min_amount_in_cents: low = 1, max_amount_in_cents: high = MAX_CENTS } =
    account.payment_rules;
  const due = account.balance?.amount_due_in_cents;
  /** The account accepts only this amount, so there is no choice. */
  const fixed = low === high ? low : undefined;
  /** The amount due, if it is known and can be paid as it is. */
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
