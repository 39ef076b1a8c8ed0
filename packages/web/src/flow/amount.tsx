/** Another amount than the bill's own: the field, what is wrong with what was typed, and the question about an amount far above the bill. */
import type { VNode } from 'preact';
import { useRef } from 'preact/hooks';
import type { Word } from './i18n.ts';
import { amountText } from './money.ts';
import { Press, Title, type Props } from './screens.tsx';

export function Amount({ flow, words, screen }: Props<'amount'>): VNode {
  const { say, money, locale } = words;
  const { bill, problem, asks } = screen;
  const { rules, typed, session } = bill;
  const { full } = rules;
  const field = useRef<HTMLInputElement>(null);
  const min = rules.min > 1 ? money(rules.min) : undefined;
  const max = session.account.payment_rules.max_amount_in_cents ? money(rules.max) : undefined;
  const limits =
    (min ?? max)
      ? say(min ? (max ? 'amount_between' : 'amount_at_least') : 'amount_at_most', {
          min: min ?? '',
          max: max ?? '',
        })
      : undefined;
  const wrong =
    problem &&
    say(problem, {
      min: money(rules.min),
      max: money(rules.max),
      example: amountText(4250, locale),
    });
  const offer = (cents: number, main: boolean, word: Word): VNode => (
    <button
      class={main ? 'main' : ''}
      type="button"
      key={word}
      onClick={() => flow.apply({ type: 'chose', amount: cents })}
    >
      {say(word, { amount: money(cents) })}
    </button>
  );
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
          aria-describedby={wrong || limits ? 'amount-help' : undefined}
          onInput={(event) => flow.apply({ type: 'typed', text: event.currentTarget.value })}
        />
      </div>
      {(wrong || limits) && (
        <p class={wrong ? 'wrong' : 'small'} id="amount-help">
          {wrong || limits}
        </p>
      )}
      {asks ? (
        <>
          <p class="note" role="alert">
            {say('far_above', {
              amount: money(asks.amount),
              due: money(session.account.balance?.amount_due_in_cents ?? 0),
            })}
          </p>
          <div class="actions">
            {asks.meant !== undefined
              ? offer(asks.meant, true, 'far_above_meant')
              : full !== undefined && offer(full, true, 'amount_full')}
            {offer(asks.amount, false, 'far_above_yes')}
          </div>
        </>
      ) : (
        <div class="actions">
          <button class="main" type="submit">
            {say('continue')}
          </button>
          {full !== undefined ? (
            offer(full, false, 'amount_full')
          ) : (
            <Press onClick={() => flow.apply({ type: 'back' })}>{say('back')}</Press>
          )}
        </div>
      )}
    </form>
  );
}
