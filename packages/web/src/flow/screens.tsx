/**
 * The screens. Each is a function of the view and the words; what a button does is a method of Flow.
 */
import type { FlowPayment, FlowSession } from '@duebridge/contract';
import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Flow, View } from './flow.ts';
import type { Language, Word } from './i18n.ts';
import { amountText } from './money.ts';
import { receiptHtml, receiptRows, receiptText, saveFile, type Row } from './receipt.ts';

/** What every screen gets. */
export interface ScreenProps {
  readonly flow: Flow;
  readonly view: View;
  readonly words: Language;
}
type WithSession = ScreenProps & { readonly session: FlowSession };

export function Loading({ words }: { readonly words: Language }): VNode {
  return (
    <div class="loading" aria-busy="true">
      <div class="spinner" />
      <p>{words.say('loading')}</p>
    </div>
  );
}

export function Review({ flow, view, words, session }: WithSession): VNode {
  const { say, money } = words;
  const { balance, masked_account_id } = session.account;
  const { rules } = view;
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
  const note = reviewNote(due, view, words, biller);
  const offer = rules?.full;
  return (
    <>
      <Title>{say(title, { biller })}</Title>
      <div class="bill">
        {due !== undefined && (
          <p class="due">
            <span>{say(due < 0 ? 'credit' : 'amount_due')}</span>
            <strong>{money(Math.abs(due))}</strong>
            {due > 0 && balance?.due_date !== undefined && (
              <span class={isPast(balance.due_date) ? 'chip late' : 'chip'}>
                {dueText(balance.due_date, words)}
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
      {note !== undefined && <p class="note">{note}</p>}
      <div class="actions">
        {offer !== undefined && (
          <button class="main" type="button" onClick={() => flow.choose(offer)}>
            {say('pay_amount', { amount: money(offer) })}
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

function reviewNote(
  due: number | undefined,
  { rules }: View,
  { say, money }: Language,
  biller: string,
): string | undefined {
  if (rules?.fixed !== undefined && rules.fixed !== due)
    return say('fixed_amount', { biller, amount: money(rules.fixed) });
  if (due === undefined) return say('unknown_balance', { biller });
  if (due === 0) return say('nothing_due');
  if (due < 0) return say('credit_text', { biller });
  if (rules && due > rules.max) return say('above_maximum', { biller, max: money(rules.max) });
  if (rules && due < rules.min) return say('below_minimum', { biller, min: money(rules.min) });
  return undefined;
}

/** A calendar date against the customer's calendar. */
const today = (): string => {
  const now = new Date();
  const two = (part: number): string => String(part).padStart(2, '0');
  return `${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`;
};
const isPast = (day: string): boolean => day < today();
function dueText(day: string, { say, date }: Language): string {
  if (day === today()) return say('due_today');
  return say(isPast(day) ? 'was_due_on' : 'due_on', { date: date(day) });
}

export function Amount({ flow, view, words }: ScreenProps): VNode {
  const { say, money, locale } = words;
  const { rules, amountProblem, amountText: typed } = view;
  const field = useRef<HTMLInputElement>(null);
  const min = rules && rules.min > 1 ? money(rules.min) : undefined;
  const max = rules && view.session?.account.payment_rules.max_amount_in_cents && money(rules.max);
  const limits =
    min !== undefined && max
      ? say('amount_between', { min, max })
      : min !== undefined
        ? say('amount_at_least', { min })
        : max
          ? say('amount_at_most', { max })
          : undefined;
  const full = rules?.full;
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        flow.submitAmount();
        if (flow.view.amountProblem !== undefined) field.current?.focus();
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
          aria-invalid={amountProblem !== undefined}
          aria-describedby={
            [amountProblem && 'amount-problem', limits && 'amount-limits']
              .filter(Boolean)
              .join(' ') || undefined
          }
          onInput={(event) => flow.typeAmount(event.currentTarget.value)}
        />
      </div>
      {amountProblem !== undefined && (
        <p class="wrong" id="amount-problem">
          {say(amountProblem, {
            min: money(rules?.min ?? 1),
            max: money(rules?.max ?? 0),
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

export function Confirm({ flow, view, words, session }: WithSession): VNode {
  const { say, money } = words;
  const amount = money(view.amount ?? 0);
  const methods = session.funding_methods;
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
        <fieldset disabled={view.sending}>
          <legend>{say('pay_with')}</legend>
          {methods.map(({ funding_method: method, label }) => (
            <label class="choice" key={method}>
              <input
                type="radio"
                name="funding"
                checked={view.fundingMethod === method}
                onChange={() => flow.chooseFunding(method)}
              />
              {label}
            </label>
          ))}
        </fieldset>
      )}
      <p class="small">{say('confirm_note')}</p>
      <div class="actions">
        {/* Not `disabled`: that would throw the keyboard's place away while sending. */}
        <button class="main" type="submit" aria-disabled={view.sending}>
          {view.sending && <span class="spinner" />}
          {view.sending ? say('sending') : say('pay_now', { amount })}
        </button>
        {!view.sending && (
          <button type="button" onClick={() => flow.back()}>
            {say('back')}
          </button>
        )}
      </div>
    </form>
  );
}

type WithPayment = WithSession & { readonly payment: FlowPayment };

export function Status(props: WithPayment): VNode {
  switch (props.payment.status) {
    case 'failed':
      return <Failed {...props} />;
    case 'canceled':
      return <Canceled {...props} />;
    case 'processing':
    case 'succeeded':
      return <OnItsWay {...props} />;
  }
}

function OnItsWay({ flow, view, words, session, payment }: WithPayment): VNode {
  const { say } = words;
  const biller = session.biller.name;
  const accepted = payment.progress !== 'sending';
  const steps: readonly (readonly [Word, 'done' | 'now' | 'next'])[] = [
    ['step_sent', accepted ? 'done' : 'now'],
    ['step_accepted', accepted ? 'done' : 'next'],
    ['step_posted', accepted ? 'now' : 'next'],
  ];
  return (
    <>
      <Title>{say('status_title')}</Title>
      <p class="total">{words.money(payment.amount_in_cents)}</p>
      <ol class="steps">
        {steps.map(([word, state]) => (
          <li class={state} key={word}>
            <span>{say(word, { biller })}</span>
            <span class="sr"> ({say(`step_${state}`)})</span>
          </li>
        ))}
      </ol>
      <Elapsed since={Date.parse(payment.created_at)} now={() => flow.now()} words={words} />
      {view.slow && <p class="note">{say('slow_note', { biller })}</p>}
      <p class="small">{say('leave_note')}</p>
      <Facts rows={[[say('reference'), payment.platform_payment_id]]} />
      <div class="actions">
        <button type="button" onClick={() => flow.close()}>
          {say('close')}
        </button>
      </div>
    </>
  );
}

/** Seen, not announced: a number that changes each second would drown everything else. */
function Elapsed(props: {
  readonly since: number;
  readonly now: () => number;
  readonly words: Language;
}): VNode {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1_000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.max(0, Math.floor((props.now() - props.since) / 1_000));
  const time = props.words.duration(seconds);
  return <p class="small">{props.words.say('waiting_for', { time })}</p>;
}

function Failed({ flow, words, session, payment }: WithPayment): VNode {
  const { say } = words;
  const biller = session.biller.name;
  const duplicate = payment.duplicate === true;
  const reason = payment.failure_reason;
  return (
    <>
      <Sign kind="wrong" />
      <Title>{say(duplicate ? 'duplicate_title' : 'failed_title')}</Title>
      <p>{say(duplicate ? 'duplicate_note' : 'failed_note', { biller })}</p>
      {reason ? (
        <figure>
          <figcaption>{say('reason_from', { biller })}</figcaption>
          <blockquote>{reason}</blockquote>
        </figure>
      ) : (
        <p>{say('no_reason', { biller })}</p>
      )}
      <Facts rows={endedRows(words, payment)} />
      <div class="actions">
        {!duplicate && (
          <button class="main" type="button" onClick={() => flow.tryAgain()}>
            {say('try_again')}
          </button>
        )}
        <button class={duplicate ? 'main' : ''} type="button" onClick={() => flow.close()}>
          {say('close')}
        </button>
      </div>
    </>
  );
}

function Canceled({ flow, words, session, payment }: WithPayment): VNode {
  const { say } = words;
  return (
    <>
      <Sign kind="neutral" />
      <Title>{say('canceled_title')}</Title>
      <p>{say('canceled_note', { biller: session.biller.name })}</p>
      <Facts rows={endedRows(words, payment)} />
      <div class="actions">
        <button class="main" type="button" onClick={() => flow.close()}>
          {say('close')}
        </button>
        <button type="button" onClick={() => flow.tryAgain()}>
          {say('try_again')}
        </button>
      </div>
    </>
  );
}

const endedRows = (words: Language, payment: FlowPayment): Row[] => [
  [words.say('amount'), words.money(payment.amount_in_cents)],
  [words.say('reference'), payment.platform_payment_id],
];

export function Receipt({ flow, words, session, payment }: WithPayment): VNode {
  const { say } = words;
  const rows = receiptRows(session, payment, words);
  const title = `${say('receipt')}: ${session.biller.name}`;
  const name = `receipt-${payment.platform_payment_id}`;
  return (
    <>
      <Sign kind="right" />
      <Title>{say('receipt_title')}</Title>
      <p class="total">{words.money(payment.amount_in_cents)}</p>
      <Facts rows={rows} />
      <div class="actions">
        <button class="main" type="button" onClick={() => flow.close()}>
          {say('done')}
        </button>
        <div class="row">
          <button type="button" onClick={() => print()}>
            {say('print')}
          </button>
          <button
            type="button"
            onClick={() =>
              saveFile(`${name}.html`, 'text/html', receiptHtml(title, rows, words.tag))
            }
          >
            {say('save')}
          </button>
          <button
            type="button"
            onClick={() => saveFile(`${name}.txt`, 'text/plain', receiptText(title, rows))}
          >
            {say('save_text')}
          </button>
        </div>
      </div>
    </>
  );
}

/** The problems that have words of their own. */
const PROBLEM_WORDS = {
  origin_not_allowed: ['problem_origin_not_allowed', 'problem_origin_not_allowed_text'],
  token_invalid: ['problem_token_invalid', 'problem_token_invalid_text'],
  token_expired: ['problem_token_expired', 'problem_token_expired_text'],
  account_not_found: ['problem_account_not_found', 'problem_account_not_found_text'],
  partner_unreachable: ['problem_partner_unreachable', 'problem_partner_unreachable_text'],
  network_lost: ['problem_network_lost', 'problem_network_lost_text'],
  internal: ['problem_internal', 'problem_internal_text'],
  alone: ['problem_alone', 'problem_alone_text'],
} as const satisfies Record<string, readonly [Word, Word]>;

/** The title and the text of a problem; those without words of their own are `internal`. */
export function problemWords(code: string): readonly [Word, Word] {
  return code in PROBLEM_WORDS
    ? PROBLEM_WORDS[code as keyof typeof PROBLEM_WORDS]
    : PROBLEM_WORDS.internal;
}

export function ProblemScreen(props: {
  readonly code: string;
  readonly biller: string | undefined;
  readonly requestId?: string | undefined;
  readonly again?: (() => void) | undefined;
  readonly close?: (() => void) | undefined;
  readonly words: Language;
}): VNode {
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
        {props.again && (
          <button class="main" type="button" onClick={props.again}>
            {say('try_again')}
          </button>
        )}
        {props.close && (
          <button class={props.again ? '' : 'main'} type="button" onClick={props.close}>
            {say('close')}
          </button>
        )}
      </div>
    </>
  );
}

function Title({ children }: { readonly children: ComponentChildren }): VNode {
  return (
    <h1 id="title" tabIndex={-1}>
      {children}
    </h1>
  );
}

function Facts({ rows }: { readonly rows: readonly Row[] }): VNode {
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

/** Says by shape, not by colour alone, how it went; the words beside it say it as well. */
function Sign({ kind, shape = kind }: { readonly kind: Kind; readonly shape?: Kind }): VNode {
  return (
    <svg class={`sign ${kind}`} viewBox="0 0 24 24" aria-hidden="true">
      <circle cx="12" cy="12" r="11" />
      <path d={SHAPES[shape]} />
    </svg>
  );
}
