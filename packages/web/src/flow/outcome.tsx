/**
 * The screens after the press of Pay: the payment on its way, its end, and the receipt; and that of another amount. A part of its own,
 * requested as soon as the bill is shown: the bill comes sooner, and this is there before the customer has pressed a button. Until it is,
 * main.tsx shows how the payment stands in one sentence.
 */
import type { FlowPayment } from '@duebridge/contract';
import type { VNode } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { usePart } from './part.ts';
import { methodLabel, receiptRows, shortReference } from './receipt.ts';
import {
  Facts,
  isMore,
  leaveLabel,
  loadFunding,
  Press,
  Sign,
  Sum,
  Title,
  type Props,
} from './screens.tsx';
import type { Flow } from './flow.ts';
import type { Language } from './i18n.ts';
import { leftDue, methodOf, paymentOf, type Bill, type Screen, type State } from './state.ts';
import { plainText } from './text.ts';

export { Amount } from './amount.tsx';

export function OutcomeScreen(props: {
  readonly flow: Flow;
  readonly words: Language;
  readonly state: State;
}): VNode | null {
  const { flow, words, state } = props;
  const { screen } = state;
  if (state.left) return <Left {...{ flow, words, screen }} />;
  if (screen.name === 'status') {
    const isOpen = screen.payment.status === 'processing';
    return isOpen ? (
      <OnItsWay {...{ flow, words, screen }} />
    ) : (
      <Ended {...{ flow, words, screen }} />
    );
  }
  return screen.name === 'receipt' ? <Receipt {...{ flow, words, screen }} /> : null;
}

function OnItsWay({ flow, words, screen }: Props<'status'>): VNode {
  const { say } = words;
  const { payment, bill, slow } = screen;
  const biller = bill.session.biller.name;
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
        <Paid {...{ words, payment, bill }} />
        <p>{say('act_note', { biller })}</p>
        {funding && (
          <funding.Act {...{ flow, words, method, action, amount: payment.amount_in_cents }} />
        )}
        {missing && <p class="note">{say('method_slow')}</p>}
      </>
    );
  }
  const accepted = payment.progress !== 'sending';
  return (
    <>
      <Title>{say('status_title')}</Title>
      <Paid {...{ words, payment, bill }} />
      <div class={accepted ? 'track second' : 'track'} />
      <p>{say(slow ? 'slow_note' : accepted ? 'accepted_note' : 'sending_note', { biller })}</p>
      <div class="actions">
        <Press onClick={() => flow.close()}>{leaveLabel(flow, words, 'close')}</Press>
      </div>
    </>
  );
}

/** What is paid to whom. */
function Paid(props: {
  readonly words: Language;
  readonly payment: FlowPayment;
  readonly bill: Bill;
}): VNode {
  const { words, payment, bill } = props;
  const { biller, account } = bill.session;
  return (
    <>
      <p>
        <Sum cents={payment.amount_in_cents} words={words} />
      </p>
      <p>{words.say('paid_to', { biller: biller.name, account: account.masked_account_id })}</p>
    </>
  );
}

/** A payment that took no money: why, and what the customer may do. */
function Ended({ flow, words, screen }: Props<'status'>): VNode {
  const { say } = words;
  const { payment, bill } = screen;
  const biller = bill.session.biller.name;
  const { failure_reason: reason, status } = payment;
  // A platform of an earlier version marks a duplicate only in this way.
  const why = payment.duplicate === true ? 'duplicate' : payment.failure;
  const doubt = why === 'possible_duplicate';
  const kind =
    status === 'canceled' ? status : why === 'declined' || why === 'duplicate' ? why : 'failed';
  // Nobody is led to pay again what may be paid already, or what the biller has stopped.
  const closes = kind === 'canceled' || kind === 'duplicate' || doubt;
  const again = kind !== 'duplicate' && (
    <Press main={!closes} key="again" onClick={() => flow.tryAgain()}>
      {say(kind === 'declined' ? 'try_other' : doubt ? 'try_anyway' : 'try_again')}
    </Press>
  );
  const close = (
    <Press main={closes} key="close" onClick={() => flow.close()}>
      {leaveLabel(flow, words, 'close')}
    </Press>
  );
  return (
    <>
      <Sign kind={kind === 'canceled' ? 'neutral' : 'wrong'} />
      <Title>{say(`${kind}_title`, { biller })}</Title>
      <p>{say(`${kind}_note`, { biller, method: methodLabel(bill, payment) })}</p>
      {kind === 'declined' || kind === 'canceled' ? undefined : reason ? (
        <>
          <p class="small">{say('reason_from', { biller })}</p>
          <blockquote dir="auto">{reason}</blockquote>
        </>
      ) : (
        <p>{say('no_reason', { biller })}</p>
      )}
      {doubt && <p class="note">{say('maybe_duplicate_note', { biller })}</p>}
      <Facts
        rows={[
          [say('amount'), words.money(payment.amount_in_cents)],
          [say('reference'), shortReference(payment)],
        ]}
      />
      <div class="actions">{closes ? [close, again] : [again, close]}</div>
    </>
  );
}

function Receipt({ flow, words, screen }: Props<'receipt'>): VNode {
  const { say } = words;
  const { payment, bill } = screen;
  const { session } = bill;
  const rows = receiptRows(bill, payment, words);
  const reference = shortReference(payment);
  const left = leftDue(bill, payment);
  const { mailed_to: address } = session.receipt ?? {};
  const details = useRef<HTMLDetailsElement>(null);
  // Paper shows the whole receipt.
  useEffect(() => {
    const open = (): unknown => details.current && (details.current.open = true);
    addEventListener('beforeprint', open);
    return () => removeEventListener('beforeprint', open);
  }, []);
  return (
    <>
      <Sign kind="right" />
      <Title>{say('receipt_title')}</Title>
      <Paid {...{ words, payment, bill }} />
      <Facts
        rows={[
          ...(left === undefined ? [] : ([[say('left_due'), words.money(left)]] as const)),
          [say('reference'), reference],
        ]}
      />
      {address !== undefined && (
        <p class="small">{say('mailed_to', { address: plainText(address) })}</p>
      )}
      <details ref={details}>
        <summary>{say('details')}</summary>
        <Facts rows={rows} />
        {/* Web views of apps have none. */}
        {typeof print === 'function' && <Press onClick={() => print()}>{say('print')}</Press>}
      </details>
      <div class="actions">
        <Press main onClick={() => flow.close()}>
          {leaveLabel(flow, words, 'done')}
        </Press>
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
        <Press onClick={() => flow.apply({ type: 'left', left: false })}>{say('show_again')}</Press>
      </div>
    </>
  );
}
