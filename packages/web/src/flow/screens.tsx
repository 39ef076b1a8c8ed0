/**
 * The screens up to the press of Pay, and those of problems; outcome.tsx has the others. Each is a function of its state and the
 * language; a button calls a method of Flow.
 */
import type { FlowFundingMethod } from '@duebridge/contract';
import { Fragment, type ComponentChildren, type VNode } from 'preact';
import type { Flow } from './flow.ts';
import type { Language, Word } from './i18n.ts';
import { usePart } from './part.ts';
import { amountOf, methodFor, methodsFor, type Again, type Bill, type Screen } from './state.ts';
import { plainText } from './text.ts';

export const loadFunding = (): Promise<typeof import('./funding.tsx')> => import('./funding.tsx');

/** A label and its value. */
export type Row = readonly [label: string, value: string];

/** The props of every screen: its own part of the state. */
export interface Props<N extends Screen['name']> {
  readonly flow: Flow;
  readonly words: Language;
  readonly screen: Extract<Screen, { name: N }>;
}

/** The label of the button that leaves the page: a general word in a frame; the destination when the page has the whole tab. */
export function leaveLabel(flow: Flow, { say }: Language, word: 'close' | 'done'): string {
  if (!flow.hasTab) return say(word);
  const site = flow.state.screen.bill?.session.partner.name ?? say('the_site');
  return say('back_to', { site });
}

/** The shape of the bill before it is loaded, the same as the skeleton in flow.html. */
export function Loading({ words }: { readonly words: Language }): VNode {
  return (
    <div class="loading" aria-busy="true">
      <p>{words.say('loading')}</p>
      <div class="bone title" />
      <div class="bone box" />
      <div class="bone button" />
    </div>
  );
}

export function Review({ flow, words, screen }: Props<'review'>): VNode {
  const { say, money } = words;
  const { bill, sending } = screen;
  const { session, rules, chosen } = bill;
  const { balance, masked_account_id } = session.account;
  const biller = session.biller.name;
  const due = balance?.amount_due_in_cents;
  const amount = amountOf(bill);
  const title: Word =
    due === undefined
      ? 'review_unknown_title'
      : due > 0
        ? 'review_title'
        : due < 0
          ? 'review_credit_title'
          : 'review_nothing_title';
  const today = calendarDay(flow.now());
  const shown = chosen ?? due;
  const [only, ...others] = amount === undefined ? [] : methodsFor(bill, amount);
  const isOwed = due === undefined || due > 0;
  const choose = (className: string, word: Word): VNode => (
    <button
      class={className}
      type="button"
      key="choose"
      onClick={() => flow.apply({ type: 'edits_amount' })}
    >
      {say(word)}
    </button>
  );
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void flow.pay();
      }}
    >
      <Title>{say(title, { biller })}</Title>
      <div class="bill">
        {shown !== undefined && (
          <div class="due">
            <span>
              {say(chosen !== undefined ? 'you_pay' : shown < 0 ? 'credit' : 'amount_due')}
            </span>
            <Sum cents={Math.abs(shown)} words={words} />
            {amount !== undefined &&
              rules.fixed === undefined &&
              !sending &&
              choose('quiet', 'change')}
            {isOwed && balance?.due_date !== undefined && (
              <p>
                <span class={balance.due_date < today ? 'chip late' : 'chip'}>
                  {dueText(balance.due_date, today, words)}
                </span>
              </p>
            )}
          </div>
        )}
        <Facts
          rows={[
            ...(chosen !== undefined && due !== undefined && due > 0
              ? ([[say('amount_due'), money(due)]] as const)
              : []),
            [say('account'), masked_account_id],
            ...(only && others.length === 0 ? ([[say('pay_with'), only.label]] as const) : []),
          ]}
        />
        {balance?.last_updated_at !== undefined && (
          <p class="small">
            {say('balance_as_of', { when: words.instant(balance.last_updated_at) })}
          </p>
        )}
      </div>
      {reviewNotes(bill, words, today).map((note) => (
        <p class="note" key={note}>
          {note}
        </p>
      ))}
      {amount !== undefined && <Methods {...{ flow, words, screen, amount }} />}
      <div class="actions">
        {amount !== undefined ? (
          // Not `disabled`: that would throw the keyboard's place away while sending.
          <button class="main" type="submit" aria-disabled={sending}>
            {sending && <span class="spinner" />}
            {sending ? say('sending') : say('pay_now', { amount: money(amount) })}
          </button>
        ) : isOwed ? (
          choose('main', 'choose_amount')
        ) : (
          <>
            <Press main onClick={() => flow.close()}>
              {leaveLabel(flow, words, 'close')}
            </Press>
            {choose('', 'pay_ahead')}
          </>
        )}
      </div>
    </form>
  );
}

/** The ways to pay this amount: a choice where there are several, and what the chosen one asks for, under it. */
function Methods(props: Props<'review'> & { readonly amount: number }): VNode {
  const { flow, words, screen, amount } = props;
  const { say } = words;
  const { bill, sending } = screen;
  const methods = methodsFor(bill, amount);
  const method = methodFor(bill, amount);
  // Also when another method is chosen: its file is there before the customer changes to it.
  const { part: funding, missing } = usePart(
    loadFunding,
    bill.session.funding_methods.some(isMore),
  );
  const buttons = funding && <funding.Express {...{ flow, words, bill, amount }} />;
  const asks = method && (
    <>
      {method.frame !== undefined &&
        (funding ? (
          <funding.FundingFrame key={method.funding_method} {...{ flow, words, method, amount }} />
        ) : missing ? (
          <p class="note">{say('method_slow')}</p>
        ) : (
          <div class="fund loading" />
        ))}
      <Agreement
        {...{ words, method, amount: words.money(amount), biller: bill.session.biller.name }}
      />
    </>
  );
  if (method === undefined)
    return <p class="note">{say('no_method', { amount: words.money(amount) })}</p>;
  if (methods.length === 1)
    return (
      <>
        {asks}
        {buttons}
      </>
    );
  return (
    <fieldset disabled={sending}>
      <legend>{say('pay_with')}</legend>
      {methods.map((one) => (
        <Fragment key={one.funding_method}>
          <label class="choice">
            <input
              type="radio"
              name="funding"
              checked={one === method}
              onChange={() => flow.apply({ type: 'method', method: one.funding_method })}
            />
            {one.label}
          </label>
          {one === method && asks}
        </Fragment>
      ))}
      {buttons}
    </fieldset>
  );
}

/** What the customer should know before paying, the most important first. */
function reviewNotes({ session, rules }: Bill, words: Language, today: string): string[] {
  const { say, money } = words;
  const biller = session.biller.name;
  const due = session.account.balance?.amount_due_in_cents;
  const notes: string[] = [];
  const { last_paid: paid } = session;
  if (paid) {
    const day = calendarDay(Date.parse(paid.posted_at));
    const amount = money(paid.amount_in_cents);
    notes.push(
      day === today
        ? say('last_paid_today', { amount })
        : say('last_paid_on', { amount, date: words.date(day) }),
    );
  }
  if (rules.fixed !== undefined && rules.fixed !== due)
    notes.push(say('fixed_amount', { biller, amount: money(rules.fixed) }));
  else if (due === undefined) notes.push(say('unknown_balance', { biller }));
  else if (due === 0) notes.push(say('nothing_due'));
  else if (due < 0) notes.push(say('credit_text', { biller }));
  else if (due > rules.max) notes.push(say('above_maximum', { biller, max: money(rules.max) }));
  else if (due < rules.min) notes.push(say('below_minimum', { biller, min: money(rules.min) }));
  return notes;
}

/** The calendar date of a moment where the customer is. Today's is of the platform's clock: a device's may be wrong by days. */
const calendarDay = (ms: number): string => {
  const at = new Date(ms);
  const two = (part: number): string => String(part).padStart(2, '0');
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
};
function dueText(day: string, today: string, { say, date }: Language): string {
  if (day === today) return say('due_today');
  return say(day < today ? 'was_due_on' : 'due_on', { date: date(day) });
}

/** What the customer agrees to by paying with this method. */
function Agreement(props: {
  readonly words: Language;
  readonly method: FlowFundingMethod;
  readonly biller: string;
  readonly amount: string;
}): VNode | null {
  const { words, method, biller, amount } = props;
  const texts = method.authorization_text;
  const text = texts?.[words.tag] ?? texts?.['en'];
  if (text === undefined) return null;
  const values: Readonly<Record<string, string>> = { biller, amount };
  return (
    <p class="small">{text.replaceAll(/\{(\w+)\}/g, (_, name: string) => values[name] ?? '')}</p>
  );
}

/** More than a choice: the method has a page of its own, or the customer may have to act at their bank. */
export const isMore = ({ frame, may_act }: FlowFundingMethod): boolean =>
  frame !== undefined || may_act === true;

/** How to reach the biller: as it registered, or where its customers find it. */
export function helpText(biller: string, contact: string | undefined, { say }: Language): string {
  return contact
    ? say('support_at', { biller, contact: plainText(contact) })
    : say('support', { biller });
}

/** The problems that have a title and a text of their own. */
const PROBLEMS = [
  'origin_not_allowed',
  'token_invalid',
  'token_slow',
  'token_expired',
  'account_not_found',
  'partner_unreachable',
  'network_lost',
  'alone',
] as const;

/** The title and the text of a problem; those without their own are `internal`. */
export function problemWords(code: string): readonly [Word, Word] {
  const known = PROBLEMS.find((one) => one === code) ?? 'internal';
  // For the site's engineer; a customer cannot do anything about it.
  const shown = code === 'mode_mismatch' ? 'origin_not_allowed' : known;
  return [`problem_${shown}`, `problem_${shown}_text`];
}

export function ProblemScreen(props: {
  readonly code: string;
  readonly biller: string | undefined;
  readonly requestId?: string | undefined;
  readonly again?: Again | undefined;
  readonly flow?: Flow | undefined;
  readonly close?: (() => void) | undefined;
  readonly words: Language;
}): VNode {
  const { again, code, flow } = props;
  const { say } = props.words;
  const biller = props.biller ?? say('the_biller');
  const [title, text] = problemWords(code);
  // The page repeats these by itself; the customer may be faster.
  const repeats = flow && code === 'network_lost';
  return (
    <>
      {repeats || code === 'token_slow' ? <Busy /> : <Sign kind="neutral" shape="wrong" />}
      <Title>{say(title, { biller })}</Title>
      <p>{say(text, { biller })}</p>
      {props.requestId !== undefined && (
        <p class="small">{say('problem_reference', { id: props.requestId })}</p>
      )}
      <div class="actions">
        {(again ?? repeats) && (
          <button
            class="main"
            type="button"
            onClick={() => (again ? flow?.again(again) : flow?.tryNow())}
          >
            {say('try_again')}
          </button>
        )}
        {props.close && (
          <Press main={!(again ?? repeats)} onClick={props.close}>
            {flow ? leaveLabel(flow, props.words, 'close') : say('close')}
          </Press>
        )}
      </div>
    </>
  );
}

/** A button that does something at once. */
export function Press(props: {
  readonly main?: boolean;
  readonly onClick: () => void;
  readonly children: ComponentChildren;
}): VNode {
  const { main, onClick, children } = props;
  return (
    <button class={main ? 'main' : ''} type="button" onClick={onClick}>
      {children}
    </button>
  );
}

export function Title({ children }: { readonly children: ComponentChildren }): VNode {
  return (
    <h1 id="title" tabIndex={-1}>
      {children}
    </h1>
  );
}

export function Facts({ rows }: { readonly rows: readonly Row[] }): VNode {
  return (
    <dl>
      {rows.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** An amount of the screen's own, on one line: it grows with the customer's text, as far as the width allows (style.css). */
export function Sum({ cents, words }: { readonly cents: number; readonly words: Language }): VNode {
  const text = words.money(cents);
  return (
    <strong class="money sum" style={{ '--n': text.length }}>
      {text}
    </strong>
  );
}

/** Something is going on. */
const Busy = (): VNode => <span class="spinner sign" aria-hidden="true" />;

const SHAPES = { right: 'M7 13l4 4 7-9', wrong: 'M12 6v7m0 4v.5', neutral: 'M7 12.5h10' };
type Kind = keyof typeof SHAPES;

/** Shows the outcome by shape as well as by colour; the words beside it say the same. */
export function Sign({
  kind,
  shape = kind,
}: {
  readonly kind: Kind;
  readonly shape?: Kind;
}): VNode {
  return (
    <svg class={`sign ${kind}`} viewBox="0 0 24 24" aria-hidden="true">
      <circle cx="12" cy="12" r="11" />
      <path d={SHAPES[shape]} />
    </svg>
  );
}
