/** Funding methods that need more than a choice: the processor's frame, and what the customer has to do at their bank. */
import type { FlowAction, FlowFundingMethod } from '@duebridge/contract';
import type { VNode } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { FromFund, ToFund } from '../fund/messages.ts';
import { Press, type Acting } from './elements.tsx';
import { methodsFor, type Bill } from './state.ts';

/** A processor that has not answered a press of Pay within this time is told as slow, and the customer can press again. */
const ANSWER_MS = 60_000;
/** If a processor's fields are not shown within this time, the page reports them as missing. */
const SLOW_MS = 15_000;

interface Paying extends Acting {
  readonly method: FlowFundingMethod;
  readonly amount: number;
}

/**
 * The processor's page in a frame. While it is shown it answers `flow.instrument`, or pays by a button of its own. `act`: the data of a
 * step-up that the customer has to do.
 */
export function FundingFrame(props: Paying & { readonly act?: string | undefined }): VNode {
  const { flow, words, method, amount, act } = props;
  // What the customer has to do is shown in full, whatever method they paid by.
  const express = method.express === true && act === undefined;
  const frame = useRef<HTMLIFrameElement>(null);
  const [state, setState] = useState<'loading' | 'slow' | 'there'>('loading');
  // Before the paint: a frame that loads immediately would send its message before anybody listens.
  useLayoutEffect(() => {
    let there = false;
    let answer: ((instrument?: string) => void) | undefined;
    const answered = (instrument?: string): void => {
      answer?.(instrument);
      answer = undefined;
    };
    // A statement, no returned call: WebKit eliminates tail calls, and would then name the frame itself as the sender.
    const send = (message: ToFund): void => {
      frame.current?.contentWindow?.postMessage(message, location.origin);
    };
    const hear = ({ origin, source, data }: MessageEvent<FromFund>): void => {
      if (origin !== location.origin || source !== frame.current?.contentWindow) return;
      switch (data.fund) {
        case 'ready': {
          const dark = document.documentElement.dataset['theme'] === 'dark';
          const start = {
            fund: 'start',
            amount_in_cents: amount,
            locale: words.tag,
            dark,
            act,
          } as const;
          if (!method.saves || act !== undefined) return send(start);
          return void flow.saved(method).then((saved) => send({ ...start, saved }));
        }
        case 'height':
          // A step-up opens its own window in the frame, which keeps the height of the style.
          if (frame.current && act === undefined && data.height > 0)
            frame.current.style.height = `${data.height}px`;
          there = true;
          return setState('there');
        case 'instrument':
          if (express) return void flow.pay({ method, instrument: data.instrument });
          return answered(data.instrument);
        case 'problem':
          return answered();
        case 'acted':
          return;
      }
    };
    addEventListener('message', hear);
    if (express) return () => removeEventListener('message', hear);
    const slow = setTimeout(() => setState((now) => (now === 'loading' ? 'slow' : now)), SLOW_MS);
    flow.instrument = () =>
      new Promise((resolve) => {
        answered();
        answer = resolve;
        const late = (): void => {
          // Its answer is no longer wanted: by then another press may wait for one.
          if (answer !== resolve) return;
          setState('slow');
          answered();
        };
        if (!there) return late();
        setTimeout(late, ANSWER_MS);
        send({ fund: 'ask' });
      });
    return () => {
      clearTimeout(slow);
      removeEventListener('message', hear);
      flow.instrument = undefined;
      answered();
    };
  }, [method.frame, act]);
  return (
    <>
      {state === 'slow' && <p class="note">{words.say('method_slow')}</p>}
      <iframe
        ref={frame}
        class={`fund ${act === undefined ? state : 'act'}`}
        // Nothing, until the processor has found a wallet.
        style={express ? { height: 0, margin: 0 } : undefined}
        title={method.label}
        src={new URL(method.frame ?? '', new URL('../../', location.href)).href}
      />
    </>
  );
}

/** The buttons of wallets. Where the device can have none, nothing of the processor is loaded to find out. */
export function Express(props: Omit<Paying, 'method'> & { readonly bill: Bill }): VNode {
  const { bill, amount } = props;
  const mayBe = 'ApplePaySession' in window || 'PaymentRequest' in window;
  return (
    <>
      {(mayBe ? methodsFor(bill, amount, true) : []).map((method) => (
        <FundingFrame key={`${method.funding_method} ${amount}`} {...props} method={method} />
      ))}
    </>
  );
}

/** What the customer has to do before the payment is sent. */
export function Act(props: Paying & { readonly action: FlowAction }): VNode {
  const { action, words } = props;
  const [blocked, setBlocked] = useState(false);
  if (action.kind === 'step_up') return <FundingFrame {...props} act={action.data} />;
  const go = (): void => {
    const bank = open(action.url, '_blank');
    // The bank must not send this page elsewhere. With noopener, the page that it comes back to could not close the window.
    if (bank) bank.opener = null;
    setBlocked(!bank);
  };
  return (
    <div class="actions">
      {/* A window of its own: this frame may not take the site around it away. It comes back to a page that closes itself. */}
      <Press kind="main" onClick={go}>
        {words.say('act_open')}
      </Press>
      {blocked && (
        <p class="note" role="alert">
          {words.say('act_blocked')}
        </p>
      )}
    </div>
  );
}
