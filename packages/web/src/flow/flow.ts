/**
 * The flow without its looks: what is shown, what the customer may do, and what the platform knows.
 *
 * loading -> review -> [amount] -> confirm -> status -> receipt, and `problem` from anywhere. A screen
 * is only ever a view of what the platform answered: a payment is `processing` until the platform says
 * otherwise, whatever happens to this page, its network or its session (E9). The platform mints the
 * payment and keeps one per session, so confirm may be sent as often as it takes (P3).
 */
import type { FlowPayment, FlowSession } from '@duebridge/contract';
import type { DuebridgeErrorCode, PaymentUpdate, ScreenName } from '../embed/types.ts';
import { CallError, type Api } from './api.ts';
import { MAX_CENTS, parseAmount } from './money.ts';
import { plainText } from './text.ts';
import type { Site } from './site.ts';

/** Longest failure reason shown (decision 16). */
const MAX_REASON = 500;
/** Waits between tries when nothing arrives: from 1 s to 15 s, times this. */
const [MIN_WAIT_MS, MAX_WAIT_MS, WAIT_GROWTH] = [1_000, 15_000, 1.6];
/** Between polls when streams do not work but answers do. */
const POLL_MS = 2_000;
/** A stream that failed this often in a row is given up for polling (a proxy that buffers). */
const MAX_STREAM_FAILURES = 3;
/** Reads before the customer is told; each waits as above. */
const MAX_READS = 3;
/** Confirms answered with a fault of the platform before the customer is told. */
const MAX_FAULTS = 3;
/** How long before its end a session warns (WCAG 2.2.1 asks for 20 s at least). */
const WARNING_MS = 120_000;
/** After this the page says that the biller is slow. */
const SLOW_MS = 30_000;

export type AmountProblem =
  'amount_empty' | 'amount_unclear' | 'amount_too_small' | 'amount_too_large';

/** What an amount may be: the account's rules within the interface's (decisions 4 and 11). */
export interface AmountRules {
  readonly min: number;
  readonly max: number;
  /** The amount due, if it is known and can be paid as it is. */
  readonly full: number | undefined;
  /** There is nothing to choose: the account takes this amount and no other. */
  readonly fixed: number | undefined;
}

export interface Problem {
  readonly code: DuebridgeErrorCode;
  readonly requestId?: string | undefined;
  /** What "Try again" does; absent where trying again cannot help. */
  readonly again?: (() => void) | undefined;
}

/** Everything the screens show. Replaced as a whole at each change. */
export interface View {
  readonly screen: ScreenName | 'loading';
  readonly session?: FlowSession | undefined;
  readonly rules?: AmountRules | undefined;
  readonly amountText: string;
  readonly amountProblem?: AmountProblem | undefined;
  readonly amount?: number | undefined;
  readonly fundingMethod?: string | undefined;
  readonly payment?: FlowPayment | undefined;
  readonly sending: boolean;
  readonly offline: boolean;
  readonly slow: boolean;
  readonly problem?: Problem | undefined;
  /** Ms on the customer's clock at which the session ends, once it is near. */
  readonly endsAt?: number | undefined;
  /** The customer asked to close while a payment was being sent. */
  readonly asksToClose: boolean;
}

/** Makes the flow for a page that knows its site. Call `start()` once. */
export class Flow {
  view: View = {
    screen: 'loading',
    amountText: '',
    sending: false,
    offline: !navigator.onLine,
    slow: false,
    asksToClose: false,
  };
  /** The locale in which typed amounts are read. */
  locale = 'en-US';
  readonly #site: Site;
  readonly #api: Api;
  readonly #changed: () => void;
  #sessionId = '';
  /** The last payment that failed or was canceled, when the customer tries again. */
  #replaces: string | undefined;
  #renewing: Promise<boolean> | undefined;
  #warning: ReturnType<typeof setTimeout> | undefined;
  #wake: (() => void) | undefined;
  #following = new AbortController();
  #told = '';

  constructor(site: Site, api: Api, changed: () => void) {
    this.#site = site;
    this.#api = api;
    this.#changed = changed;
    addEventListener('online', () => this.#online());
    addEventListener('offline', () => {
      this.#set({ offline: true });
      this.#wake?.();
    });
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) this.#wake?.();
    });
  }

  /** From the handshake to the first screen: a session, then the bill. */
  async start(): Promise<void> {
    for (let tried = false, wait = MIN_WAIT_MS; ;) {
      try {
        if (await this.#open(tried ? 'expired' : 'initial')) break;
        return this.#stop(tried ? 'token_expired' : 'token_invalid', undefined, this.#restart);
      } catch (error) {
        const failed = callError(error);
        if (failed.wire === 'network') {
          this.#stop('network_lost');
          await this.#pause(wait);
          wait = longer(wait);
        } else if (!tried && this.canRenew && spent(failed)) {
          // A token that lay about too long: a fresh one, unseen by the customer.
          tried = true;
        } else {
          const helps = failed.code === 'token_expired' || failed.code === 'internal';
          return this.#stop(failed.code, failed.requestId, helps ? this.#restart : undefined);
        }
      }
    }
    await this.#showBill();
  }

  /** review -> confirm with an amount that the screen offers. */
  choose(amount: number): void {
    this.#set({ amount, amountProblem: undefined });
    this.#show('confirm');
  }

  /** To the amount screen; what was typed before is still there. */
  editAmount(): void {
    this.#show('amount');
  }

  typeAmount(amountText: string): void {
    this.#set({ amountText });
  }

  /** amount -> confirm when the amount is within the account's rules; else says why at the field. */
  submitAmount(): void {
    const { rules, amountText } = this.view;
    if (!rules) return;
    const cents = parseAmount(amountText, this.locale);
    const amountProblem = judgeAmount(amountText, cents, rules);
    this.#set({ amountProblem });
    if (amountProblem === undefined && cents !== undefined) this.choose(cents);
  }

  chooseFunding(fundingMethod: string): void {
    this.#set({ fundingMethod });
  }

  back(): void {
    const { screen, rules, amount } = this.view;
    const typed = screen === 'confirm' && amount !== rules?.full && rules?.fixed === undefined;
    this.#show(typed ? 'amount' : 'review');
  }

  /** confirm -> status. Sent until it is answered; the platform makes one payment of it (P3). */
  async pay(): Promise<void> {
    const { amount, fundingMethod, sending } = this.view;
    if (sending || amount === undefined || fundingMethod === undefined) return;
    this.#set({ sending: true });
    let faults = 0;
    for (let wait = MIN_WAIT_MS; ; wait = longer(wait)) {
      try {
        const payment = await this.#api.pay({
          amount_in_cents: amount,
          funding_method: fundingMethod,
          ...(this.#replaces === undefined ? {} : { replaces: this.#replaces }),
        });
        this.#set({ offline: false });
        this.#follow(payment);
        return;
      } catch (error) {
        const failed = callError(error);
        try {
          if (failed.wire === 'network') {
            this.#set({ offline: true });
            await this.#pause(wait);
          } else if (failed.wire === 'SESSION_EXPIRED') {
            if (!(await this.#renew())) return this.#ended();
            if (await this.#found()) return;
          } else if (failed.wire === 'CONFLICT') {
            if (!(await this.#found())) return this.#lookAgain(failed);
            return;
          } else if (failed.code === 'amount_out_of_range') {
            return await this.#outOfRange(failed);
          } else if (failed.code === 'internal' && failed.status >= 408) {
            // It may have arrived: the same again, until the platform answers.
            faults += 1;
            if (faults >= MAX_FAULTS) return this.#lookAgain(failed);
            await this.#pause(Math.max(failed.retryAfterMs ?? 0, wait));
          } else {
            return this.#lookAgain(failed);
          }
        } catch (second) {
          // The read after a refusal did not work either.
          if (callError(second).wire !== 'network') return this.#lookAgain(callError(second));
          this.#set({ offline: true });
          await this.#pause(wait);
        }
      }
    }
  }

  /** failed or canceled -> review, for a payment that takes the place of the last (P3). */
  tryAgain(): void {
    this.#replaces = this.view.payment?.platform_payment_id;
    this.#set({ payment: undefined });
    this.#reread();
  }

  /** The customer leaves, by Done, Close or Escape. */
  close(sure = false): void {
    const { screen, sending, payment, problem } = this.view;
    if (sending && !sure) {
      this.#set({ asksToClose: true });
      return;
    }
    this.#site.send({
      type: 'exit',
      exit: {
        reason:
          payment?.status === 'succeeded' ? 'completed' : problem === undefined ? 'user' : 'error',
        at: screen,
        sessionId: this.#sessionId,
        payment: payment && update(payment),
      },
    });
    this.#set({ asksToClose: false });
  }

  keepOpen(): void {
    this.#set({ asksToClose: false });
  }

  /** The customer answers the warning: a new session in place of the one that ends. */
  async stay(): Promise<void> {
    try {
      if (!(await this.#renew())) this.#ended();
    } catch (error) {
      // A lost network ends nothing: the session is there until its time, and the button still is.
      if (callError(error).wire === 'network') this.#set({ offline: true });
      else this.#ended();
    }
  }

  get canRenew(): boolean {
    return this.#site.init.renews;
  }

  /** The platform's clock. */
  now(): number {
    return this.#api.now();
  }

  /** Gets a token and a session for it; false when the site has no token to give. */
  async #open(why: 'initial' | 'expired'): Promise<boolean> {
    const token = await this.#site.token(why);
    // Without a network the site could not ask either: that is no fault of its tokens.
    if (token === null && !navigator.onLine) throw new CallError('network');
    if (token === null) return false;
    const grant = await this.#api.open(token, {
      origin: this.#site.origin,
      ...(this.#sessionId === '' ? {} : { continues: this.#sessionId }),
    });
    this.#sessionId = grant.session_id;
    clearTimeout(this.#warning);
    this.#set({ endsAt: undefined });
    const left = Date.parse(grant.expires_at) - this.#api.now();
    this.#warning = setTimeout(
      () => this.#set({ endsAt: Date.now() + Math.min(left, WARNING_MS) }),
      // Longer waits than a timer can hold would fire at once.
      Math.min(Math.max(left - WARNING_MS, 0), 2 ** 31 - 1),
    );
    return true;
  }

  /** A new session in place of one that has ended; one renewal at a time. */
  #renew(): Promise<boolean> {
    if (!this.#site.init.renews) return Promise.resolve(false);
    this.#renewing ??= this.#open('expired').finally(() => (this.#renewing = undefined));
    return this.#renewing;
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

  /** Reads the bill and shows it, or the payment of this session if there is one. */
  async #read(): Promise<void> {
    let session: FlowSession;
    for (let tries = 1, wait = MIN_WAIT_MS; ; tries += 1, wait = longer(wait)) {
      try {
        session = tidy(await this.#renewed(() => this.#api.session()));
        break;
      } catch (error) {
        const failed = callError(error);
        const passing = failed.code === 'partner_unreachable' || failed.code === 'internal';
        if (passing && failed.status >= 429 && tries < MAX_READS) {
          await this.#pause(Math.min(failed.retryAfterMs ?? wait, wait));
        } else if (passing || spent(failed)) {
          this.#stop(failed.code, failed.requestId, this.#reread);
          return;
        } else if (failed.wire === 'network') {
          throw failed;
        } else {
          this.#stop(failed.code, failed.requestId);
          return;
        }
      }
    }
    const rules = amountRules(session);
    const { amountText, fundingMethod } = this.view;
    this.#set({
      session,
      rules,
      problem: undefined,
      amountText,
      fundingMethod: fundingMethod ?? session.funding_methods[0]?.funding_method,
      sending: false,
      offline: !navigator.onLine,
    });
    const { payment } = session;
    if (payment && payment.platform_payment_id !== this.#replaces) this.#follow(payment);
    else this.#show('review');
  }

  /** Reads and shows, however long the network takes. */
  async #showBill(): Promise<void> {
    for (let wait = MIN_WAIT_MS; ; wait = longer(wait)) {
      try {
        return await this.#read();
      } catch (error) {
        const failed = callError(error);
        if (failed.wire !== 'network') {
          return this.#stop(failed.code, failed.requestId, this.#restart);
        }
        this.#stop('network_lost');
        await this.#pause(wait);
      }
    }
  }

  /** "Try again" where the session may still be good. */
  #reread = (): void => {
    this.#set({ problem: undefined, screen: 'loading' });
    void this.#showBill();
  };

  /** "Try again" from the start: another token, another session. */
  #restart = (): void => {
    this.#set({ problem: undefined, screen: 'loading' });
    void this.start();
  };

  /** After a confirm that may have arrived: true when the platform has its payment, now shown. */
  async #found(): Promise<boolean> {
    const session = tidy(await this.#renewed(() => this.#api.session()));
    this.#set({ session, rules: amountRules(session) });
    const { payment } = session;
    if (!payment || payment.platform_payment_id === this.#replaces) return false;
    this.#follow(payment);
    return true;
  }

  async #outOfRange(failed: CallError): Promise<void> {
    if (await this.#found()) return;
    this.#tell('amount_out_of_range', failed.requestId);
    const { rules, amount = 0 } = this.view;
    const amountProblem = rules && amount > rules.max ? 'amount_too_large' : 'amount_too_small';
    this.#set({
      sending: false,
      amountProblem,
      amountText: this.view.amountText || (amount / 100).toFixed(2),
    });
    this.#show(rules?.fixed === undefined ? 'amount' : 'review');
  }

  /** Nobody knows whether the payment exists: the next try reads before it sends. */
  #lookAgain(failed: CallError): void {
    this.#set({ sending: false });
    const again = failed.code === 'account_not_found' ? undefined : this.#reread;
    this.#stop(failed.code, failed.requestId, again);
  }

  #ended(): void {
    this.#set({ sending: false, endsAt: undefined });
    this.#stop('token_expired', undefined, this.canRenew ? this.#restart : undefined);
  }

  /** Shows a payment, and what becomes of it until it has ended. */
  #follow(payment: FlowPayment): void {
    this.#following.abort();
    this.#following = new AbortController();
    this.#set({ sending: false, asksToClose: false, slow: false, problem: undefined });
    this.#heard(payment);
    if (payment.status === 'processing') {
      void this.#watch(payment.platform_payment_id, this.#following.signal);
    }
  }

  #heard(payment: FlowPayment): void {
    const known = this.view.payment;
    // Answers may overtake each other; an ended payment does not go back (RU2).
    const same = known?.platform_payment_id === payment.platform_payment_id;
    if (same && known.progress === 'ended') return;
    this.#set({ payment: tidyPayment(payment), offline: false });
    this.#show(payment.status === 'succeeded' ? 'receipt' : 'status');
    const told = update(payment);
    const text = JSON.stringify(told);
    if (text !== this.#told) this.#site.send({ type: 'payment', payment: told });
    this.#told = text;
    if (payment.duplicate === true) this.#tell('duplicate_payment');
  }

  /** Streams while streams work, polls when they do not, and takes nothing for an end but an end. */
  async #watch(id: string, signal: AbortSignal): Promise<void> {
    const going = (): boolean => !signal.aborted && this.view.payment?.status === 'processing';
    const slow = setTimeout(() => going() && this.#set({ slow: true }), SLOW_MS);
    let streamFailures = 0;
    for (let wait = MIN_WAIT_MS; going();) {
      if (streamFailures < MAX_STREAM_FAILURES && navigator.onLine) {
        const before = this.view.payment;
        await this.#stream(id, signal);
        streamFailures = before === this.view.payment ? streamFailures + 1 : 0;
        if (!going()) break;
      }
      try {
        this.#heard(await this.#renewed(() => this.#api.payment(id)));
        wait = MIN_WAIT_MS;
        if (going()) await this.#pause(POLL_MS);
      } catch (error) {
        const failed = callError(error);
        if (spent(failed)) {
          this.#ended();
          break;
        }
        // Also for "not found": the payment was confirmed, so it is there or will be.
        if (failed.wire === 'network') this.#set({ offline: true });
        await this.#pause(Math.max(failed.retryAfterMs ?? 0, wait));
        wait = longer(wait);
      }
    }
    clearTimeout(slow);
  }

  /** One stream, however it ends; left when the network goes, so that its return is noticed at once. */
  async #stream(id: string, signal: AbortSignal): Promise<void> {
    const stop = new AbortController();
    this.#wake = () => {
      if (!navigator.onLine) stop.abort();
    };
    const either = AbortSignal.any([signal, stop.signal]);
    const heard = (payment: FlowPayment): unknown => !signal.aborted && this.#heard(payment);
    // Why it failed does not matter: the poll that follows meets the same trouble, and deals with it.
    await this.#api.follow(id, heard, either).catch(callError);
    this.#wake = undefined;
  }

  /** Waits, or until the network or the customer is back. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #online(): void {
    this.#set({ offline: false });
    this.#wake?.();
  }

  #stop(code: DuebridgeErrorCode, requestId?: string, again?: () => void): void {
    const known = this.view.problem?.code === code;
    this.#set({ problem: { code, requestId, again }, sending: false });
    this.#show('problem');
    if (!known) this.#tell(code, requestId, again !== undefined);
  }

  #tell(code: DuebridgeErrorCode, requestId?: string, again = true): void {
    this.#site.send({
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

  /** The title of a problem in the customer's language; set by the page that has the words. */
  describe: (code: DuebridgeErrorCode) => string = (code) => code;

  #show(screen: ScreenName): void {
    if (screen === this.view.screen) return;
    this.#set({ screen });
  }

  #set(change: Partial<View>): void {
    this.view = { ...this.view, ...change };
    this.#changed();
  }
}

/** What may be paid, from the account's rules and its balance. */
export function amountRules({ account }: Pick<FlowSession, 'account'>): AmountRules {
  const { min_amount_in_cents: low = 1, max_amount_in_cents: high = MAX_CENTS } =
    account.payment_rules;
  const due = account.balance?.amount_due_in_cents;
  const fixed = low === high ? low : undefined;
  const full = due !== undefined && due >= low && due <= high && due > 0 ? due : undefined;
  return { min: low, max: high, full: fixed ?? full, fixed };
}

/** Why an amount cannot be paid; undefined when it can. */
export function judgeAmount(
  typed: string,
  cents: number | undefined,
  rules: AmountRules,
): AmountProblem | undefined {
  if (typed.trim() === '') return 'amount_empty';
  if (cents === undefined) return 'amount_unclear';
  if (cents < rules.min) return 'amount_too_small';
  return cents > rules.max ? 'amount_too_large' : undefined;
}

/** Partner texts become plain text once, here, so that no screen can forget it. */
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
    ...(payment.failure_reason === undefined
      ? {}
      : { failureReason: plainText(payment.failure_reason, MAX_REASON) }),
  };
}

/** Anything that is not a refusal of the platform is a fault of this page. */
function callError(error: unknown): CallError {
  if (error instanceof CallError) return error;
  // The customer gets an honest screen all the same; the console gets the mistake.
  reportError(error);
  return new CallError('INTERNAL_ERROR');
}

/** The token or session has ended: a new one may help. */
function spent(error: CallError): boolean {
  return error.code === 'token_expired' || error.code === 'token_invalid';
}

function longer(wait: number): number {
  return Math.min(wait * WAIT_GROWTH, MAX_WAIT_MS);
}
