/**
 * The screens up to the press of Pay, and those of problems. Each is a function of its state and the language; a button calls a method of
 * Flow.
 */
import type { FlowFundingMethod } from '@duebridge/contract';
import { Fragment, type VNode } from 'preact';
import { billerName, Facts, Leave, Press, Sign, Sum, Title, type Props } from './elements.tsx';
import { Express, FundingFrame } from './funding.tsx';
import { filled, type Language } from './i18n.ts';
import { amountOf, choosesMethod, editsAmount, methodFor, methodsFor, type Bill } from './state.ts';
import type { Word } from './words.ts';

/** The shape of the bill before it is loaded, the same as the skeleton in flow.html. */
export function Loading({ words }: Props<'loading'>): VNode {
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
  const today = calendarDay(flow.api.now());
  const shown = chosen ?? due;
  const methods = amount === undefined ? [] : methodsFor(bill, amount);
  const isOwed = due === undefined || due > 0;
  const choose = (kind: 'main' | 'quiet' | undefined, word: Word): VNode => (
    <Press kind={kind} key="choose" onClick={() => flow.apply(editsAmount)}>
      {say(word)}
    </Press>
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
            [say('amount_due'), chosen !== undefined && due && due > 0 ? money(due) : undefined],
            [say('account'), masked_account_id],
            [say('pay_with'), methods.length === 1 ? methods[0]?.label : undefined],
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
      {amount !== undefined && <Methods {...{ flow, words, screen, methods, amount }} />}
      <div class="actions">
        {amount !== undefined ? (
          // Not `disabled`: that would throw the keyboard's place away while sending.
          <button class="main" type="submit" aria-disabled={sending !== false}>
            {sending && <span class="spinner" />}
            {sending ? say('sending') : say('pay_now', { amount: money(amount) })}
          </button>
        ) : isOwed ? (
          choose('main', 'choose_amount')
        ) : (
          <>
            <Leave {...{ flow, words }} kind="main" />
            {choose(undefined, 'pay_ahead')}
          </>
        )}
      </div>
    </form>
  );
}

/** The ways to pay this amount: a choice where there are several, and what the chosen one asks for, under it. */
function Methods(
  props: Props<'review'> & {
    readonly methods: readonly FlowFundingMethod[];
    readonly amount: number;
  },
): VNode {
  const { flow, words, screen, methods, amount } = props;
  const { say, money } = words;
  const { bill, sending } = screen;
  const method = methodFor(bill, amount);
  if (method === undefined)
    return <p class="note">{say('no_method', { amount: money(amount) })}</p>;
  const asks = (
    <>
      {method.frame !== undefined && (
        <FundingFrame key={method.funding_method} {...{ flow, words, method, amount }} />
      )}
      <Agreement {...{ words, method, amount: money(amount), biller: bill.session.biller.name }} />
    </>
  );
  const buttons = <Express {...{ flow, words, bill, amount }} />;
  if (methods.length === 1)
    return (
      <>
        {asks}
        {buttons}
      </>
    );
  return (
    <fieldset disabled={sending !== false}>
      <legend>{say('pay_with')}</legend>
      {methods.map((one) => (
        <Fragment key={one.funding_method}>
          <label class="choice">
            <input
              type="radio"
              name="funding"
              checked={one === method}
              onChange={() => flow.apply(choosesMethod(one.funding_method))}
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
    const word = day === today ? 'last_paid_today' : 'last_paid_on';
    notes.push(say(word, { amount, date: words.date(day) }));
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
  return text === undefined ? null : <p class="small">{filled(text, { biller, amount })}</p>;
}

/** The title and the text of a problem; those without their own are `internal`. */
export function problemWords(code: string, { has }: Language): readonly [Word, Word] {
  // A wrong mode is for the site's engineer; a customer cannot do anything about it.
  const own = `problem_${code === 'mode_mismatch' ? 'origin_not_allowed' : code}`;
  const title = has(own) ? own : 'problem_internal';
  return [title, `${title}_text` as Word];
}

export function ProblemScreen({ flow, words, screen }: Props<'problem'>): VNode {
  const { code, requestId, again } = screen;
  const { say } = words;
  const [title, text] = problemWords(code, words);
  const biller = billerName(words, screen);
  // The page repeats these by itself; the customer may be faster.
  const repeats = code === 'network_lost';
  const tries = again ?? repeats;
  return (
    <>
      {repeats ? <span class="spinner sign" aria-hidden="true" /> : <Sign kind="wrong" isMuted />}
      <Title>{say(title, { biller })}</Title>
      <p>{say(text, { biller })}</p>
      {requestId !== undefined && (
        <p class="small">{say('problem_reference', { id: requestId })}</p>
      )}
      <div class="actions">
        {tries && (
          <Press kind="main" onClick={() => (again ? flow.again(again) : flow.waiting.wake())}>
            {say('try_again')}
          </Press>
        )}
        {flow.site.display !== 'inline' && (
          <Leave {...{ flow, words }} kind={tries ? undefined : 'main'} />
        )}
      </div>
    </>
  );
}
