/**
 * Performs the flow's actions: opens the session, reads the bill, confirms, follows the payment, and applies the results to
 * the state (`state.ts`). Each button calls a method here; `state` is what the page shows.
 *
 * One file because its methods share one session and one state, and each has to see what another is doing: nothing is sent twice.
 */
import type { FlowFundingMethod, FlowPayment, FlowSession } from '@duebridge/contract';
import type { DuebridgeErrorCode, PaymentUpdate, TokenReason } from '../embed/types.ts';
import { callError, spent, type Api } from './api.ts';
import { confirmPayment, followPayment } from './confirm.ts';
import type { Site } from './site.ts';
import {
  amountOf,
  hears,
  initialState,
  isSlow,
  loads,
  methodFor,
  nameOf,
  paymentOf,
  reads,
  refusesAmount,
  sends,
  stops,
  type Again,
  type Move,
  type State,
} from './state.ts';
import { plainText } from './text.ts';
import { createWaiting } from './waiting.ts';

/** Longest failure reason shown (decision 16). */
const MAX_REASON = 500;
/** How long before its end a session warns (WCAG 2.2.1 asks for 20 s at least). */
const WARNING_MS = 120_000;
/** After this the page says that the biller is slow. */
const SLOW_MS = 30_000;

/** Creates the flow for a page that is connected to its site. Call `start()` once. */
export class Flow {
  state: State;
  /** Called after each change of the state; set by the page. */
  changed: () => void = () => {};
  /** The title of a problem in the customer's language; set by the page, which has the translations. */
  describe: (code: DuebridgeErrorCode) => string = (code) => code;
  /** Asks the frame of the chosen funding method for what the customer entered; undefined when incomplete. */
  instrument: (() => Promise<string | undefined>) | undefined;
  readonly site: Site;
  readonly api: Api;
  /** What waits to be repeated; "Try again" while the connection is lost wakes it. */
  readonly waiting = createWaiting((lost) => (lost ? this.#lost() : this.#connection(false)));
  #sessionId = '';
  /** The session that is being opened: the bill that came with it, null without one, false when the site gave no token. */
  #opening: Promise<FlowSession | null | false> | undefined;
  /** When the session ends, in ms on the customer's clock; 0 before there is one. */
  #end = 0;
  #warning: ReturnType<typeof setTimeout> | undefined;
  #following = new AbortController();
  #lastUpdate = '';
  /** A confirm was sent and its answer is not known: there may be a payment that no read has shown yet. */
  #unanswered = false;
  #leaving = false;

  constructor(site: Site, api: Api) {
    this.site = site;
    this.api = api;
    this.state = initialState(!navigator.onLine, site.problem);
    for (const type of ['online', 'offline'])
      addEventListener(type, () => {
        this.#connection(type === 'offline');
        this.waiting.wake();
      });
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) return;
      // The way back may have opened the biller's app, which leaves this page behind: the button has to work again.
      this.#leaving = false;
      this.waiting.wake();
      this.#warn();
    });
  }

  // What the customer does --------------------------------------------------------------------------------------------------

  /**
   * Confirms, by the chosen method, or by one with a button of its own and what that gave. A second press while it is sent does
   * nothing.
   */
  async pay(express?: {
    readonly method: FlowFundingMethod;
    readonly instrument: string;
  }): Promise<void> {
    const { screen } = this.state;
    if (screen.name !== 'review' || screen.sending) return;
    const { bill } = screen;
    const { next_payment_id: next } = bill.session;
    const amount = amountOf(bill);
    const method = express?.method ?? (amount && methodFor(bill, amount));
    if (!amount || !method || next === undefined) return;
    this.apply({ left: false });
    this.apply(sends('sends'));
    let instrument = express?.instrument;
    if (!express && method.frame !== undefined) {
      instrument = await this.instrument?.();
      if (instrument === undefined) return this.apply(sends(false));
    }
    const request = {
      amount_in_cents: amount,
      funding_method: method.funding_method,
      ...(instrument === undefined ? {} : { instrument }),
      platform_payment_id: next,
    };
    const wasUnanswered = this.#unanswered;
    this.#unanswered = true;
    const confirmed = await confirmPayment(
      this.waiting,
      (repeated) =>
        this.#renewed(() => this.api.pay(repeated ? { ...request, repeated } : request)),
      () => this.#renewed(() => this.api.session()),
      wasUnanswered,
      bill.ended,
    );
    this.#unanswered = confirmed.unanswered ?? false;
    if (confirmed.payment) return this.#follow(confirmed.payment);
    const { failed, session } = confirmed;
    const { code, requestId } = failed;
    if (spent(failed)) return this.#ended();
    if (code === 'amount_out_of_range' && session) {
      this.#tell(code, requestId);
      return this.apply(refusesAmount(tidy(session)));
    }
    this.#stop(code, requestId, code === 'account_not_found' ? undefined : 'bill');
  }

  /** What the method's page needs to show and save methods; null without: new details can be entered all the same. */
  saved({ funding_method }: FlowFundingMethod): Promise<string | null> {
    return this.#renewed(() => this.api.saved({ funding_method })).then(
      ({ data }) => data,
      () => null,
    );
  }

  /** "Try again": after a problem, or after a payment that failed or was canceled. */
  again(with_: Again): void {
    this.apply(loads);
    void (with_ === 'bill' ? this.#showBill() : this.start());
  }

  /** The customer leaves, by Done, Close or Escape. */
  close(sure = false): void {
    const { screen } = this.state;
    if (screen.name === 'review' && screen.sending && !sure) return this.apply(sends('asks'));
    if (this.site.returnUrl !== undefined) return void this.#goBack(this.site.returnUrl);
    const payment = paymentOf(screen);
    const reason =
      payment?.status === 'succeeded' ? 'completed' : screen.name === 'problem' ? 'error' : 'user';
    this.site.send({
      type: 'exit',
      exit: {
        reason,
        at: nameOf(screen) ?? 'loading',
        sessionId: this.#sessionId,
        payment: payment && update(payment),
      },
    });
    // In the site's own page the frame stays as it is until the site removes it.
    this.apply({ left: this.site.display === 'inline' });
  }

  /** Returns to the site with a signed result; without one, which says nothing about a payment, when the session has ended. */
  async #goBack(return_url: string): Promise<void> {
    if (this.#leaving) return;
    this.#leaving = true;
    let to = return_url;
    try {
      const leaving = { return_url, confirm_unanswered: this.#unanswered };
      // Without a network the browser could not show the site either; any refusal ends it.
      ({ location: to } = await this.waiting.persist(
        () => this.api.leave(leaving),
        () => true,
      ));
    } catch (error) {
      callError(error);
    }
    // Not added to the history: Back leads to where the customer came from.
    location.replace(to);
  }

  /** The customer answers the warning: replaces the session that is about to end. */
  async stay(): Promise<void> {
    try {
      if (!(await this.#renew())) this.#ended();
    } catch (error) {
      // A lost network does not end the session: it is valid until its expiry, and the button stays.
      if (callError(error).wire === 'network') this.#connection(true);
      else this.#ended();
    }
  }

  // From the handshake to the first screen ----------------------------------------------------------------------------------

  /** A session and the bill with it, however long the network takes. */
  async start(): Promise<void> {
    for (let why: TokenReason = 'initial'; ; why = 'expired') {
      try {
        const bill = await this.waiting.persist(() => this.#opened(why));
        if (bill === false)
          return this.#stop(
            `token_${why === 'initial' ? 'invalid' : 'expired'}`,
            undefined,
            'session',
          );
        return bill ? this.#show(bill) : await this.#showBill();
      } catch (error) {
        const failed = callError(error);
        // The token expired before it was used: get a new one without showing a problem.
        if (why === 'initial' && this.site.init.renews && spent(failed)) continue;
        const { code, requestId } = failed;
        const helps = code === 'internal' || (code === 'token_expired' && this.site.init.renews);
        return this.#stop(code, requestId, helps ? 'session' : undefined);
      }
    }
  }

  /** Opens a session, one at a time. */
  #opened(why: TokenReason): Promise<FlowSession | null | false> {
    this.#opening ??= this.#open(why).finally(() => (this.#opening = undefined));
    return this.#opening;
  }

  /** Gets a token and a session for it. */
  async #open(why: TokenReason): Promise<FlowSession | null | false> {
    const grant = await this.site.open(why);
    if (grant === null) return false;
    this.#sessionId = grant.session_id;
    this.apply({ endsAt: undefined });
    // By the clock that the customer sees, right or wrong.
    this.#end = Date.now() + Date.parse(grant.expires_at) - this.api.now();
    this.#warn();
    return grant.bill ?? null;
  }

  /** Warns before the session ends. A timer sleeps with the device, so this runs on waking as well. */
  #warn(): void {
    clearTimeout(this.#warning);
    const left = this.#end - Date.now();
    if (left > WARNING_MS) this.#warning = setTimeout(() => this.#warn(), left - WARNING_MS);
    else if (left > 0) this.apply({ endsAt: this.#end });
  }

  /** Replaces an ended session with a new one. */
  async #renew(): Promise<boolean> {
    return this.site.init.renews && (await this.#opened('expired')) !== false;
  }

  /** Runs a call; when the session has ended, renews it and runs the call again. */
  async #renewed<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (error) {
      if (callError(error).wire !== 'SESSION_EXPIRED' || !(await this.#renew())) throw error;
      return act();
    }
  }

  /** Reads the bill and shows it, or says why there is none. */
  async #showBill(): Promise<void> {
    try {
      this.#show(await this.waiting.persist(() => this.#renewed(() => this.api.session())));
    } catch (error) {
      const failed = callError(error);
      const { code, requestId } = failed;
      const helps = code === 'partner_unreachable' || code === 'internal' || spent(failed);
      this.#stop(code, requestId, helps ? 'bill' : undefined);
    }
  }

  #show(read: FlowSession): void {
    this.apply(reads(tidy(read)));
    const payment = paymentOf(this.state.screen);
    if (payment) this.#follow(payment);
  }

  // Following ---------------------------------------------------------------------------------------------------------------

  /** Shows a payment and follows it until it has ended. */
  #follow(payment: FlowPayment): void {
    this.#following.abort();
    const following = new AbortController();
    this.#following = following;
    this.#heard(payment);
    if (payment.status !== 'processing') return;
    const slow = setTimeout(() => this.apply(isSlow), SLOW_MS);
    void followPayment(
      this.waiting,
      () => this.#renewed(() => this.api.payment(payment.platform_payment_id)),
      (news) => this.#heard(news),
      following.signal,
    )
      .catch(() => following.signal.aborted || this.#ended())
      .finally(() => clearTimeout(slow));
  }

  #heard(news: FlowPayment): void {
    this.apply(hears(tidyPayment(news)));
    const payment = paymentOf(this.state.screen);
    if (!payment) return;
    const change = update(payment);
    const text = JSON.stringify(change);
    if (text === this.#lastUpdate) return;
    this.#lastUpdate = text;
    this.site.send({ type: 'payment', payment: change });
    if (payment.failure === 'duplicate') this.#tell('duplicate_payment');
  }

  // Saying so ---------------------------------------------------------------------------------------------------------------

  #ended(): void {
    this.apply({ endsAt: undefined });
    this.#stop('token_expired', undefined, this.site.init.renews ? 'session' : undefined);
  }

  /** Before there is a bill to show beside it, a lost connection is a screen of its own. */
  #lost(): void {
    const { name } = this.state.screen;
    if (name === 'loading' || name === 'problem') this.#stop('network_lost');
    else this.#connection(true);
  }

  #connection(lost: boolean): void {
    if (this.state.offline !== lost) this.apply({ offline: lost });
  }

  #stop(code: DuebridgeErrorCode, requestId?: string, again?: Again): void {
    const { screen } = this.state;
    const known = screen.name === 'problem' && screen.code === code;
    this.apply(stops({ code, requestId, again }));
    if (!known) this.#tell(code, requestId, again !== undefined);
  }

  #tell(code: DuebridgeErrorCode, requestId?: string, again = true): void {
    this.site.send({
      type: 'error',
      error: {
        code,
        message: `the payment page shows: ${code}`,
        recoverable: again || code === 'network_lost',
        displayMessage: this.describe(code),
        requestId,
      },
    });
  }

  /** Moves to the next state, or sets what is beside its screen; and shows it. */
  apply(change: Move | Partial<Omit<State, 'screen'>>): void {
    this.state = typeof change === 'function' ? change(this.state) : { ...this.state, ...change };
    this.changed();
  }
}

/** Strings from a partner become plain text here, in one place, so that no screen can forget it. */
function tidy(session: FlowSession): FlowSession {
  return {
    ...session,
    partner: { ...session.partner, name: plainText(session.partner.name) },
    biller: { ...session.biller, name: plainText(session.biller.name) },
    account: {
      ...session.account,
      masked_account_id: plainText(session.account.masked_account_id),
    },
  };
}

function tidyPayment(payment: FlowPayment): FlowPayment {
  const { failure_reason: reason, payment_id: id } = payment;
  return {
    ...payment,
    payment_id: id === null ? null : plainText(id),
    ...(reason === undefined ? {} : { failure_reason: plainText(reason, MAX_REASON) }),
  };
}

function update(payment: FlowPayment): PaymentUpdate {
  return {
    platformPaymentId: payment.platform_payment_id,
    status: payment.status,
    amountInCents: payment.amount_in_cents,
    initiatedAt: payment.initiated_at,
    postedAt: payment.posted_at,
    ...(payment.failure_reason === undefined ? {} : { failureReason: payment.failure_reason }),
  };
}
