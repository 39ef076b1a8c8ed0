/** The screens after the press of Pay: the payment on its way, its end, and the receipt. */
import type { FlowPayment } from '@duebridge/contract';
import type { VNode } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Facts, Leave, Press, Sign, Sum, Title, type Props } from './elements.tsx';
import { Act } from './funding.tsx';
import type { Language } from './i18n.ts';
import { leftDue, methodOf, type Bill } from './state.ts';

export function Status(props: Props<'status'>): VNode {
  return props.screen.payment.status === 'processing' ? OnItsWay(props) : Ended(props);
}

function OnItsWay({ flow, words, screen }: Props<'status'>): VNode {
  const { say } = words;
  const { payment, bill, slow } = screen;
  const biller = bill.session.biller.name;
  const { action } = payment;
  const method = methodOf(bill, payment);
  if (action && method) {
    return (
      <>
        <Title>{say('act_title')}</Title>
        <Paid {...{ words, payment, bill }} />
        <p>{say('act_note', { biller })}</p>
        <Act {...{ flow, words, method, action, amount: payment.amount_in_cents }} />
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
        <Leave {...{ flow, words }} />
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
  const { failure_reason: reason, failure: why, status } = payment;
  const doubt = why === 'possible_duplicate';
  const kind =
    status === 'canceled' ? status : why === 'declined' || why === 'duplicate' ? why : 'failed';
  // Nobody is led to pay again what may be paid already, or what the biller has stopped.
  const closes = kind === 'canceled' || kind === 'duplicate' || doubt;
  const again = kind !== 'duplicate' && (
    <Press kind={closes ? undefined : 'main'} key="again" onClick={() => flow.again('bill')}>
      {say(kind === 'declined' ? 'try_other' : doubt ? 'try_anyway' : 'try_again')}
    </Press>
  );
  const close = <Leave key="close" {...{ flow, words }} kind={closes ? 'main' : undefined} />;
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

export function Receipt({ flow, words, screen }: Props<'receipt'>): VNode {
  const { say, money, instant } = words;
  const { payment, bill } = screen;
  const { account, biller, refunded_in_cents: refunded } = bill.session;
  const left = leftDue(bill, payment);
  const details = useRef<HTMLDetailsElement>(null);
  // Paper shows the whole receipt.
  useEffect(() => {
    const open = (): unknown => details.current && (details.current.open = true);
    addEventListener('beforeprint', open);
    return () => removeEventListener('beforeprint', open);
  }, []);
  const reference = [say('reference'), shortReference(payment)] as const;
  return (
    <>
      <Sign kind="right" />
      <Title>{say('receipt_title')}</Title>
      <Paid {...{ words, payment, bill }} />
      <Facts rows={[[say('left_due'), left === undefined ? undefined : money(left)], reference]} />
      <details ref={details}>
        <summary>{say('details')}</summary>
        {/* Everything that a customer needs to talk to the biller about it, in reading order. */}
        <Facts
          rows={[
            [say('pay_to'), biller.name],
            [say('account'), account.masked_account_id],
            [say('amount'), money(payment.amount_in_cents)],
            [say('refunded'), refunded === undefined ? undefined : money(refunded)],
            [say('method'), methodLabel(bill, payment)],
            [say('initiated'), instant(payment.initiated_at ?? payment.created_at)],
            [say('posted'), payment.posted_at === null ? undefined : instant(payment.posted_at)],
            reference,
            [say('full_reference'), payment.platform_payment_id],
            [say('biller_reference', { biller: biller.name }), payment.payment_id ?? undefined],
          ]}
        />
        {/* Web views of apps have none. */}
        {typeof print === 'function' && <Press onClick={() => print()}>{say('print')}</Press>}
      </details>
      <div class="actions">
        <Leave {...{ flow, words }} kind="main" word="done" />
      </div>
    </>
  );
}

/** What the method is called that a payment was made with. */
const methodLabel = (bill: Bill, payment: FlowPayment): string =>
  methodOf(bill, payment)?.label ?? payment.funding_method;

/** What a person reads out on the phone: the last eight characters of the id, in two groups. The whole id is on the receipt too. */
function shortReference({ platform_payment_id: id }: FlowPayment): string {
  const end = id.replaceAll('-', '').slice(-8).toUpperCase();
  return `${end.slice(0, -4)}-${end.slice(-4)}`;
}
