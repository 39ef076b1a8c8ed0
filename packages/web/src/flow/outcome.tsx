/**
 * The screens after the press of Pay: the payment on its way, its end, and the receipt. A part of its own, requested as soon as the
 * bill is shown: the bill comes sooner, and this is there before the customer has pressed Pay. Until it is, main.tsx shows how the
 * payment stands in one sentence.
 */
import type { FlowPayment } from '@duebridge/contract';
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { usePart } from './part.ts';
import { receiptNote, receiptRows, shortReference } from './receipt.ts';
import { receiptHtml, receiptText, saveFile } from './receipt-files.ts';
import {
  Facts,
  isMore,
  leaveLabel,
  loadFunding,
  Sign,
  Title,
  type Props,
  type Row,
} from './screens.tsx';
import type { Flow } from './flow.ts';
import type { Language, Word } from './i18n.ts';
import { methodOf, paymentOf, type Bill, type Screen, type State } from './state.ts';

export function OutcomeScreen(props: {
  readonly flow: Flow;
  readonly words: Language;
  readonly state: State;
}): VNode | null {
  const { flow, words, state } = props;
  const { screen } = state;
  if (state.left) return <Left {...{ flow, words, screen }} />;
  if (screen.name === 'status') return <Status {...{ flow, words, screen }} />;
  return screen.name === 'receipt' ? <Receipt {...{ flow, words, screen }} /> : null;
}

function Status(props: Props<'status'>): VNode {
  switch (props.screen.payment.status) {
    case 'failed':
      return <Failed {...props} />;
    case 'canceled':
      return <Canceled {...props} />;
    case 'processing':
    case 'succeeded':
      return <OnItsWay {...props} />;
  }
}

function OnItsWay({ flow, words, screen }: Props<'status'>): VNode {
  const { say } = words;
  const { payment, bill, slow } = screen;
  const { session } = bill;
  const biller = session.biller.name;
  const usual = session.usual_seconds;
  const { action } = payment;
  const method = methodOf(bill, payment);
  const { part: funding, missing } = usePart(
    loadFunding,
    action !== undefined || (method !== undefined && isMore(method)),
  );
  if (action && method) {
    return (
      <>
        <Title>{say('act_title')}</Title>
        <p class="total money">{words.money(payment.amount_in_cents)}</p>
        <p>{say('act_note', { biller })}</p>
        {funding && (
          <funding.Act {...{ flow, words, method, action, amount: payment.amount_in_cents }} />
        )}
        {missing && <p class="note">{say('method_slow')}</p>}
      </>
    );
  }
  const steps: readonly (readonly [Word, 'done' | 'now' | 'next'])[] =
    payment.progress === 'sending'
      ? [
          ['step_sent_now', 'now'],
          ['step_accepted_next', 'next'],
          ['step_posted_next', 'next'],
        ]
      : [
          ['step_sent_done', 'done'],
          ['step_accepted_done', 'done'],
          ['step_posted_now', 'now'],
        ];
  return (
    <>
      <Title>{say('status_title')}</Title>
      <p class="total money">{words.money(payment.amount_in_cents)}</p>
      <ol class="steps">
        {steps.map(([word, step]) => (
          <li class={step} key={word}>
            <span>{say(word, { biller })}</span>
            <span class="sr"> ({say(`step_${step}`)})</span>
          </li>
        ))}
      </ol>
      <Elapsed since={Date.parse(payment.created_at)} now={() => flow.now()} words={words} />
      {slow ? (
        <p class="note">{say('slow_note', { biller })}</p>
      ) : (
        usual !== undefined && <p class="small">{usualText(usual, words)}</p>
      )}
      <p class="small">{say('leave_note')}</p>
      <Facts rows={[[say('reference'), shortReference(payment)]]} />
      <div class="actions">
        <button type="button" onClick={() => flow.close()}>
          {leaveLabel(flow, words, 'close')}
        </button>
      </div>
    </>
  );
}

function usualText(seconds: number, { say, duration }: Language): string {
  if (seconds <= 60) return say('usual_minute');
  return say('usual', { time: duration(Math.ceil(seconds / 60) * 60) });
}

/** Visible but not announced: a number that changes each second would drown out everything else. */
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
  // A second that has begun counts: nobody should read that they have waited for 0 seconds.
  const seconds = Math.max(1, Math.ceil((props.now() - props.since) / 1_000));
  const time = props.words.duration(seconds);
  return <p class="small">{props.words.say('waiting_for', { time })}</p>;
}

function Failed({ flow, words, screen }: Props<'status'>): VNode {
  const { say } = words;
  const { payment, bill } = screen;
  const biller = bill.session.biller.name;
  const { failure_reason: reason } = payment;
  // A platform of an earlier version marks a duplicate only in this way.
  const failure = payment.duplicate === true ? 'duplicate' : payment.failure;
  const method = methodLabel(bill, payment);
  const [title, note]: readonly [Word, Word] =
    failure === 'declined'
      ? ['declined_title', 'declined_note']
      : failure === 'duplicate'
        ? ['duplicate_title', 'duplicate_note']
        : ['failed_title', 'failed_note'];
  const final = failure === 'duplicate';
  const doubt = failure === 'possible_duplicate';
  const again = (
    <button class={doubt ? '' : 'main'} type="button" key="again" onClick={() => flow.tryAgain()}>
      {say(failure === 'declined' ? 'try_other' : doubt ? 'try_anyway' : 'try_again')}
    </button>
  );
  const close = (
    <button
      class={final || doubt ? 'main' : ''}
      type="button"
      key="close"
      onClick={() => flow.close()}
    >
      {leaveLabel(flow, words, 'close')}
    </button>
  );
  return (
    <>
      <Sign kind="wrong" />
      <Title>{say(title, { biller })}</Title>
      <p>{say(note, { biller, method })}</p>
      {failure === 'declined' ? undefined : reason ? (
        <figure>
          <figcaption>{say('reason_from', { biller })}</figcaption>
          <blockquote dir="auto">{reason}</blockquote>
        </figure>
      ) : (
        <p>{say('no_reason', { biller })}</p>
      )}
      {doubt && <p class="note">{say('maybe_duplicate_note', { biller })}</p>}
      <Facts rows={endedRows(words, payment)} />
      <div class="actions">{final ? close : doubt ? [close, again] : [again, close]}</div>
    </>
  );
}

function Canceled({ flow, words, screen }: Props<'status'>): VNode {
  const { say } = words;
  return (
    <>
      <Sign kind="neutral" />
      <Title>{say('canceled_title')}</Title>
      <p>{say('canceled_note', { biller: screen.bill.session.biller.name })}</p>
      <Facts rows={endedRows(words, screen.payment)} />
      <div class="actions">
        <button class="main" type="button" onClick={() => flow.close()}>
          {leaveLabel(flow, words, 'close')}
        </button>
        <button type="button" onClick={() => flow.tryAgain()}>
          {say('try_again')}
        </button>
      </div>
    </>
  );
}

const methodLabel = (bill: Bill, payment: FlowPayment): string =>
  methodOf(bill, payment)?.label ?? payment.funding_method;

const endedRows = (words: Language, payment: FlowPayment): Row[] => [
  [words.say('amount'), words.money(payment.amount_in_cents)],
  [words.say('reference'), shortReference(payment)],
];

function Receipt({ flow, words, screen }: Props<'receipt'>): VNode {
  const { say } = words;
  const { payment, bill } = screen;
  const { session } = bill;
  const biller = session.biller.name;
  const rows = receiptRows(session, payment, words);
  const title = `${say('receipt')}: ${biller}`;
  const support = receiptNote(session, words);
  const name = `receipt-${shortReference(payment)}`;
  return (
    <>
      <Sign kind="right" />
      <Title>{say('receipt_title')}</Title>
      <p class="total money">{words.money(payment.amount_in_cents)}</p>
      <Facts rows={rows} />
      <p class="small">{support}</p>
      <div class="actions">
        <button class="main" type="button" onClick={() => flow.close()}>
          {leaveLabel(flow, words, 'done')}
        </button>
        <div class="row">
          {/* Web views of apps have none. */}
          {typeof print === 'function' && (
            <button type="button" onClick={() => print()}>
              {say('print')}
            </button>
          )}
          <button
            type="button"
            onClick={() =>
              saveFile(`${name}.html`, 'text/html', receiptHtml(title, rows, support, words.tag))
            }
          >
            {say('save')}
          </button>
          <button
            type="button"
            onClick={() => saveFile(`${name}.txt`, 'text/plain', receiptText(title, rows, support))}
          >
            {say('save_text')}
          </button>
        </div>
      </div>
    </>
  );
}

/** After Done, Close or Escape in a frame that stays: the result, and the way back. */
function Left({
  flow,
  words,
  screen,
}: {
  readonly flow: Flow;
  readonly words: Language;
  readonly screen: Screen;
}): VNode {
  const { say } = words;
  const payment = paymentOf(screen);
  const biller = screen.bill?.session.biller.name ?? say('the_biller');
  const which =
    payment?.status === 'succeeded'
      ? 'left_paid'
      : payment?.status === 'processing'
        ? 'left_open'
        : 'left_nothing';
  const amount = payment ? words.money(payment.amount_in_cents) : '';
  return (
    <>
      <Sign kind={which === 'left_paid' ? 'right' : 'neutral'} />
      <Title>{say(which)}</Title>
      <p>{say(`${which}_text`, { amount, biller })}</p>
      <div class="actions">
        <button type="button" onClick={() => flow.comeBack()}>
          {say('show_again')}
        </button>
      </div>
    </>
  );
}
