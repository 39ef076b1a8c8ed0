/** Another amount than the bill's own: the field, what is wrong with what was typed, and the question about an amount far above the bill. */
import type { VNode } from 'preact';
import { useRef } from 'preact/hooks';
import { Press, Title, type Props } from './elements.tsx';
import { parseAmount } from './money.ts';
import { chooses, goesBack, submits, types } from './state.ts';
import type { Word } from './words.ts';

export function Amount({ flow, words, screen }: Props<'amount'>): VNode {
  const { say, money, locale } = words;
  const { bill, problem, asks } = screen;
  const { rules, typed, session } = bill;
  const { full } = rules;
  const field = useRef<HTMLInputElement>(null);
  const [min, max] = [money(rules.min), money(rules.max)];
  const hasMax = session.account.payment_rules.max_amount_in_cents !== undefined;
  const limits =
    rules.min > 1
      ? say(hasMax ? 'amount_between' : 'amount_at_least', { min, max })
      : hasMax && say('amount_at_most', { max });
  const help = problem === undefined ? limits : say(problem, { min, max, example: money(4250) });
  const offer = (cents: number, kind: 'main' | undefined, word: Word): VNode => (
    <Press kind={kind} key={word} onClick={() => flow.apply(chooses(cents))}>
      {say(word, { amount: money(cents) })}
    </Press>
  );
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        flow.apply(submits(parseAmount(typed, locale)));
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
          aria-describedby={help ? 'amount-help' : undefined}
          onInput={(event) => flow.apply(types(event.currentTarget.value))}
        />
      </div>
      {help && (
        <p class={problem ? 'wrong' : 'small'} id="amount-help">
          {help}
        </p>
      )}
      {asks && (
        <p class="note" role="alert">
          {say('far_above', {
            amount: money(asks.amount),
            due: money(session.account.balance?.amount_due_in_cents ?? 0),
          })}
        </p>
      )}
      {asks ? (
        <div class="actions">
          {asks.meant !== undefined
            ? offer(asks.meant, 'main', 'far_above_meant')
            : full !== undefined && offer(full, 'main', 'amount_full')}
          {offer(asks.amount, undefined, 'far_above_yes')}
        </div>
      ) : (
        <div class="actions">
          <button class="main" type="submit">
            {say('continue')}
          </button>
          {full !== undefined ? (
            offer(full, undefined, 'amount_full')
          ) : (
            <Press onClick={() => flow.apply(goesBack)}>{say('back')}</Press>
          )}
        </div>
      )}
    </form>
  );
}
