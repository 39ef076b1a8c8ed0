/**
 * The screens up to the press of Pay, and those of problems; outcome.tsx has the others. Each is a function of its state and the
 * language; a button calls a method of Flow.
 */
import type { FlowFundingMethod } from '@duebridge/contract';
import type { ComponentChildren, VNode } from 'preact';
import { useRef } from 'preact/hooks';
import type { Flow } from './flow.ts';
import type { Language, Word } from './i18n.ts';
import { amountText } from './money.ts';
import { usePart } from './part.ts';
import { methodFor, methodsFor, type Again, type Bill, type Screen } from './state.ts';

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
  const { session, rules } = screen.bill;
  const { balance, masked_account_id } = session.account;
  const biller = session.biller.name;
  const due = balance?.amount_due_in_cents;
  const title: Word =
    due === undefined
      ? 'review_unknown_title'
      : due > 0
        ? 'review_title'
        : due < 0
          ? 'review_credit_title'
          : 'review_nothing_title';
  const today = calendarDay(flow.now());
  const notes = reviewNotes(screen.bill, words, today);
  const offer = rules?.full;
  return (
    <>
      <Title>{say(title, { biller })}</Title>
      <div class="bill">
        {due !== undefined && (
          <p class="due">
            <span>{say(due < 0 ? 'credit' : 'amount_due')}</span>
            <strong class="money">{money(Math.abs(due))}</strong>
            {due > 0 && balance?.due_date !== undefined && (
              <span class={balance.due_date < today ? 'chip late' : 'chip'}>
                {dueText(balance.due_date, today, words)}
              </span>
            )}
          </p>
        )}
        <Facts
          rows={[
            [say('pay_to'), biller],
            [say('account'), masked_account_id],
          ]}
        />
        {balance?.last_updated_at !== undefined && (
          <p class="small">
            {say('balance_as_of', { when: words.instant(balance.last_updated_at) })}
          </p>
        )}
      </div>
      {notes.map((note) => (
        <p class="note" key={note}>
          {note}
        </p>
      ))}
      <div class="actions">
        {offer !== undefined && (
          <button class="main" type="button" onClick={() => flow.choose(offer)}>
            {say('continue')}
          </button>
        )}
        {rules?.fixed === undefined && (
          <button
            class={offer === undefined ? 'main' : ''}
            type="button"
            onClick={() => flow.editAmount()}
          >
            {say(offer === undefined ? 'choose_amount' : 'other_amount')}
          </button>
        )}
      </div>
    </>
  );
}

/** What the customer should know before paying, the most important first. */
function reviewNotes({ session, rules }: Bill, words: Language, today: string): string[] {
  const { say, money } = words;
  const biller = session.biller.name;
  const due = session.account.balance?.amount_due_in_cents;
  const notes: string[] = [];
  const { last_paid: paid, other_payment: other } = session;
  if (other) notes.push(say('other_payment', { amount: money(other.amount_in_cents) }));
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

export function Amount({ flow, words, screen }: Props<'amount'>): VNode {
  const { say, money, locale } = words;
  const { bill, problem, asks } = screen;
  const { rules, typed, session } = bill;
  const field = useRef<HTMLInputElement>(null);
  const min = rules.min > 1 ? money(rules.min) : undefined;
  const max = session.account.payment_rules.max_amount_in_cents && money(rules.max);
  const limits =
    min !== undefined && max
      ? say('amount_between', { min, max })
      : min !== undefined
        ? say('amount_at_least', { min })
        : max
          ? say('amount_at_most', { max })
          : undefined;
  const { full } = rules;
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        flow.submitAmount();
        const { screen: now } = flow.state;
        if (now.name === 'amount' && now.problem !== undefined) field.current?.focus();
      }}
    >
      <Title>{say('amount_title')}</Title>
      <label for="amount">{say('amount_label')}</label>
      <div class="field">
        <span aria-hidden="true">$</span>
        <input
          id="amount"
          ref={field}
          inputMode="decimal"
          autoComplete="transaction-amount"
          enterKeyHint="next"
          value={typed}
          aria-invalid={problem !== undefined}
          aria-describedby={
            [problem && 'amount-problem', limits && 'amount-limits'].filter(Boolean).join(' ') ||
            undefined
          }
          onInput={(event) => flow.typeAmount(event.currentTarget.value)}
        />
      </div>
      {problem !== undefined && (
        <p class="wrong" id="amount-problem">
          {say(problem, {
            min: money(rules.min),
            max: money(rules.max),
            example: amountText(4250, locale),
          })}
        </p>
      )}
      {limits !== undefined && (
        <p class="small" id="amount-limits">
          {limits}
        </p>
      )}
      {full !== undefined && (
        <button
          type="button"
          class="quiet"
          onClick={() => flow.typeAmount(amountText(full, locale))}
        >
          {say('amount_full', { amount: money(full) })}
        </button>
      )}
      {asks !== undefined && (
        <div class="note" role="alert">
          <p>
            {say('far_above', {
              amount: money(asks.amount),
              due: money(session.account.balance?.amount_due_in_cents ?? 0),
            })}
          </p>
          <div class="row">
            {asks.meant !== undefined && (
              <button type="button" onClick={() => flow.choose(asks.meant ?? 0)}>
                {say('far_above_meant', { amount: money(asks.meant) })}
              </button>
            )}
            <button type="button" onClick={() => flow.choose(asks.amount)}>
              {say('far_above_yes', { amount: money(asks.amount) })}
            </button>
          </div>
        </div>
      )}
      <div class="actions">
        <button class="main" type="submit">
          {say('continue')}
        </button>
        <button type="button" onClick={() => flow.back()}>
          {say('back')}
        </button>
      </div>
    </form>
  );
}

export function Confirm({ flow, words, screen }: Props<'confirm'>): VNode {
  const { say, money } = words;
  const { bill, sending } = screen;
  const { session } = bill;
  const amount = money(screen.amount);
  const methods = methodsFor(bill, screen.amount);
  const method = methodFor(bill, screen.amount);
  // Also when another method is chosen: its file is there before the customer changes to it.
  const { part: funding, missing } = usePart(loadFunding, methods.some(isMore));
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void flow.pay();
      }}
    >
      <Title>{say('confirm_title')}</Title>
      <Facts
        rows={[
          [say('pay_to'), session.biller.name],
          [say('account'), session.account.masked_account_id],
          [say('amount'), amount],
          ...(methods.length === 1 && methods[0]
            ? ([[say('pay_with'), methods[0].label]] as const)
            : []),
        ]}
      />
      {methods.length > 1 && (
        <fieldset disabled={sending}>
          <legend>{say('pay_with')}</legend>
          {methods.map(({ funding_method: one, label }) => (
            <label class="choice" key={one}>
              <input
                type="radio"
                name="funding"
                checked={method?.funding_method === one}
                onChange={() => flow.chooseMethod(one)}
              />
              {label}
            </label>
          ))}
        </fieldset>
      )}
      {method === undefined && <p class="note">{say('no_method', { amount })}</p>}
      {method?.frame !== undefined && funding && (
        <funding.FundingFrame
          key={method.funding_method}
          {...{ flow, words, method, amount: screen.amount }}
        />
      )}
      {method?.frame !== undefined && missing && <p class="note">{say('method_slow')}</p>}
      {method && <Agreement {...{ words, method, amount, biller: session.biller.name }} />}
      <p class="small">{say('confirm_note')}</p>
      <div class="actions">
        {/* Not `disabled`: that would throw the keyboard's place away while sending. */}
        <button class="main" type="submit" aria-disabled={sending}>
          {sending && <span class="spinner" />}
          {sending ? say('sending') : say('pay_now', { amount })}
        </button>
        {!sending && (
          <button type="button" onClick={() => flow.back()}>
            {say('back')}
          </button>
        )}
      </div>
    </form>
  );
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
  const { again } = props;
  const { say } = props.words;
  const biller = props.biller ?? say('the_biller');
  const [title, text] = problemWords(props.code);
  return (
    <>
      <Sign kind="neutral" shape="wrong" />
      <Title>{say(title, { biller })}</Title>
      <p>{say(text, { biller })}</p>
      {props.requestId !== undefined && (
        <p class="small">{say('problem_reference', { id: props.requestId })}</p>
      )}
      <div class="actions">
        {again && (
          <button class="main" type="button" onClick={() => props.flow?.again(again)}>
            {say('try_again')}
          </button>
        )}
        {props.close && (
          <button class={again ? '' : 'main'} type="button" onClick={props.close}>
            {props.flow ? leaveLabel(props.flow, props.words, 'close') : say('close')}
          </button>
        )}
      </div>
    </>
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
