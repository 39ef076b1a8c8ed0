/**
 * The context of a check of a platform's calls: a scripted partner registered with the platform under test, a way to make the
 * platform pay, and the calls that result.
 * The judge cannot look into a platform. It plays the partner, answers each payment incorrectly in one way, and judges what the
 * platform does next. It recognises a payment by the first PUT with the requested amount; nothing in the payment has to reveal
 * the judge.
 * One file because every step reads the same scripted partner and the calls that it got.
 */
import { readFileSync } from 'node:fs';
import { OtherNumber, partnerRoutes } from '@duebridge/contract';
import { Context } from './context.ts';
import { type Driven, type Driver, byCommand } from './drivers.ts';
import { Skipped } from './findings.ts';
import { parsed } from './http.ts';
import {
  startScriptedPartner,
  together,
  type Behaviour,
  type Call,
  type ScriptedPartner,
} from '../scripted/partner.ts';
import type { Run } from './run.ts';
import { secretsOf, type CallerTarget, type PlatformTarget } from './target.ts';
import { Throttle } from './throttle.ts';

/** Interval at which the judge checks for an expected call. */
const LOOK_MS = 20;

/** Payments that get a fault at the same time: enough for a short run, while the partner still answers most calls correctly. */
const FAULTS_AT_ONCE = 20;

/** Number of parts in which a quiet period is waited for. */
const QUIET_PARTS = 10;

/** How much longer than asked a quiet period may take on a machine that is fast enough to judge times. */
const MOST_LAG_MS = 250;

/** Amounts of the payments that only show whether the platform still calls; no check uses these. */
const PROBE_CENTS = 50_000;

/** How far the amount of a PUT may be off for the payment to be recognised: less than half the distance of two amounts. */
const MOST_OFF_CENTS = 4;

/** A payment that the judge asked the platform to make. */
export interface CallerPayment {
  readonly amount_in_cents: number;
  /** How the partner treats its calls. */
  readonly behaviour: Behaviour;
  /** Undefined until its first PUT arrives. */
  platform_payment_id: string | undefined;
  driven?: Driven;
  /** The status that the platform shows its customer now; undefined when it cannot be asked. */
  readonly status: () => Promise<string | undefined>;
}

/** The partner that the platform under test pays, and what it is asked to pay. Shared by all caller checks of one run. */
export class Caller {
  readonly partner: ScriptedPartner;
  readonly driver: Driver;
  readonly target: CallerTarget;
  /** The address registered with the platform. */
  readonly url: string;
  /** How the partner treats every call: normally, unless a check sets a fault. */
  behaviour: Behaviour = {};
  /** Payments made only to see whether the platform still calls. */
  probes = 0;
  /** Faults that are being judged. */
  readonly faults = new Throttle(FAULTS_AT_ONCE);
  readonly #payments: CallerPayment[] = [];

  private constructor(run: Run, target: CallerTarget, partner: ScriptedPartner) {
    this.target = target;
    this.partner = partner;
    this.url = target.public_url ?? partner.url;
    this.driver = run.options.driver?.(this.url) ?? byCommand(target, this.url);
  }

  /** Starts the scripted partner. Rejects when its port is not available or its certificate cannot be read. */
  static async open(run: Run, target: CallerTarget): Promise<Caller> {
    const { authentication, tls, host, port, biller_id } = target;
    for (const { value, name } of secretsOf(authentication)) {
      run.wire.hide({ value, name: `PARTNER_${name}` });
    }
    const accounts = [target.account_id, target.other_account_id].filter((id) => id !== undefined);
    let caller: Caller | undefined;
    const partner = await startScriptedPartner({
      clock: run.clock,
      host,
      port,
      ...(tls && { tls: { cert: readFileSync(tls.cert_file), key: readFileSync(tls.key_file) } }),
      auth: authentication,
      accounts: accounts.map((account_id) => ({
        biller_id,
        account_id,
        status: 'active',
        balance: { amount_due_in_cents: 10_000_000 },
      })),
      behaviour: [
        { receive: (call) => caller?.noteCall(call) },
        together((call) => (call === undefined ? [] : (caller?.behavioursOf(call) ?? []))),
      ],
    });
    try {
      return (caller = new Caller(run, target, partner));
    } catch (error) {
      await partner.stop();
      throw error;
    }
  }

  /** Registers an expected payment and asks the platform to make it. */
  async pay(
    amount_in_cents: number,
    behaviour: Behaviour,
    account_id: string | undefined,
  ): Promise<CallerPayment> {
    const expected: CallerPayment = {
      amount_in_cents,
      behaviour,
      platform_payment_id: undefined,
      status: async () => {
        const { platform_payment_id: id, driven } = expected;
        return id === undefined ? undefined : driven?.status(id);
      },
    };
    this.#payments.push(expected);
    try {
      expected.driven = await this.driver.pay(amount_in_cents, account_id);
    } catch (error) {
      this.#payments.splice(this.#payments.indexOf(expected), 1);
      throw error;
    }
    expected.platform_payment_id ??= expected.driven.platform_payment_id;
    return expected;
  }

  /** A payment that was put, and never with the amount that was asked for; undefined when there is none. */
  otherAmount(): { readonly asked: number; readonly put: Call } | undefined {
    for (const { amount_in_cents: asked, platform_payment_id: id } of this.#payments) {
      const puts = this.exchangesOf(id).filter(({ method }) => method === 'PUT');
      const [put] = puts;
      if (put !== undefined && puts.every(({ text }) => amountOf(text) !== asked)) {
        return { asked, put };
      }
    }
    return undefined;
  }

  /** Begins the next checks: behaves correctly, and stops expecting payments whose PUT has not arrived. */
  begin(): void {
    this.behaviour = {};
    for (const payment of this.#payments.filter((one) => one.platform_payment_id === undefined)) {
      this.#payments.splice(this.#payments.indexOf(payment), 1);
    }
  }

  /** Finds the payment that a new id belongs to. */
  noteCall(call: Call): undefined {
    if (call.method !== 'PUT') return;
    const id = idOf(call);
    if (this.#payments.some((payment) => payment.platform_payment_id === id)) return;
    const open = this.#payments.filter((payment) => payment.platform_payment_id === undefined);
    const cents = amountOf(call.text);
    // The amount identifies the payment: amounts are ten cents apart, so one that is a little off is recognised too. Any other amount
    // that was not requested belongs to the only payment whose PUT has not arrived yet.
    const within = (most: number) => (payment: CallerPayment) =>
      Math.abs(payment.amount_in_cents - (cents ?? NaN)) <= most;
    const known = this.#payments.some(within(0));
    const others = open.find(within(MOST_OFF_CENTS)) ?? (open.length === 1 ? open[0] : undefined);
    const found = open.find(within(0)) ?? (known ? undefined : others);
    if (found !== undefined) found.platform_payment_id = id;
  }

  /** The exchanges about one payment, oldest first. */
  exchangesOf(platform_payment_id: string | undefined): readonly Call[] {
    return platform_payment_id === undefined ? [] : this.partner.exchangesOf(platform_payment_id);
  }

  /** The fault for a call: that of its payment first, then that for all calls. */
  behavioursOf(call: Call): Behaviour[] {
    const id = idOf(call);
    const payment = this.#payments.find((one) => one.platform_payment_id === id);
    return payment === undefined ? [this.behaviour] : [payment.behaviour, this.behaviour];
  }

  async close(): Promise<void> {
    this.driver.close?.();
    await this.partner.stop();
  }
}

/** The last segment of a call's path, which is the id when the call is about a payment. */
export function idOf({ path }: Pick<Call, 'path'>): string {
  const last = (path.split('?')[0] ?? '').split('/').at(-1) ?? '';
  return decoded(last) ?? last;
}

/** A path segment without percent-encoding, which may also encode characters that need none. */
export function decoded(segment: string | undefined): string | undefined {
  try {
    return segment === undefined ? undefined : decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}

/** The amount in a body, in any notation; undefined when there is none. */
export function amountOf(text: string): number | undefined {
  const amount = parsed(text)?.['amount_in_cents'] ?? undefined;
  const cents = Number(amount instanceof OtherNumber ? amount.source : amount);
  return amount === undefined || Number.isNaN(cents) ? undefined : cents;
}

/** The context of one caller check. */
export class CallerContext extends Context<Run<PlatformTarget>> {
  readonly caller: Caller;
  readonly #from: number;
  readonly #made: CallerPayment[] = [];

  /** The number of calls of each payment when it was seen to rest. */
  readonly atRest = new Map<CallerPayment, number>();

  constructor(run: Run<PlatformTarget>, check: string, caller: Caller) {
    super(run, check);
    this.caller = caller;
    this.#from = caller.partner.exchanges.at(-1)?.number ?? 0;
  }

  /** Asks the platform for a payment, to which the partner applies this fault. Skips when the platform cannot be asked. */
  async pay(
    amount_in_cents: number,
    behaviour: Behaviour = {},
    account_id?: string,
  ): Promise<CallerPayment> {
    const payment = await this.caller.pay(amount_in_cents, behaviour, account_id);
    this.#made.push(payment);
    return payment;
  }

  /** Asks for several payments, in parallel as far as the platform allows. */
  async payAll(
    orders: readonly { readonly cents: number; readonly behaviour?: Behaviour }[],
  ): Promise<readonly CallerPayment[]> {
    const { at_once } = this.caller.driver;
    const payments: CallerPayment[] = [];
    for (let from = 0; from < orders.length; from += at_once) {
      const some = orders.slice(from, from + at_once);
      payments.push(
        ...(await Promise.all(some.map(({ cents, behaviour }) => this.pay(cents, behaviour)))),
      );
    }
    return payments;
  }

  /** Ends a payment as succeeded if the partner has it and it is still processing there. */
  settle({ platform_payment_id: id }: CallerPayment): void {
    if (id !== undefined) this.caller.partner.settle(id);
  }

  /** Runs a job so many times, in parallel as far as the platform and the limit on concurrent faults allow. */
  async each(count: number, job: (place: number) => Promise<void>): Promise<void> {
    const places = Array.from({ length: count }, (_, place) => place);
    const ends = await Promise.allSettled(
      places.map((place) => this.caller.faults.send(() => job(place), this.run)),
    );
    // Waits for all jobs before rethrowing the first error, so that no job adds findings to a check that has ended.
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
  }

  /** Waits for the first PUT of a payment; skips when none comes. */
  async arrived(payment: CallerPayment | undefined): Promise<void> {
    const ms = this.patience_ms;
    const put = (): boolean => payment !== undefined && this.puts(payment).length > 0;
    this.given(
      await this.until(put, ms),
      `the platform sent no PUT within ${ms / 1_000} s: register ${this.caller.url} with it, and check that the platform can reach it`,
    );
  }

  /** Waits for a PUT of the payment that is answered 200; skips when none arrives: C09 reports the reason. */
  async accepted(payment: CallerPayment): Promise<void> {
    await this.arrived(payment);
    const taken = await this.until(() =>
      this.puts(payment).some(({ answer }) => answer?.status === 200),
    );
    if (!taken) throw new Skipped('no PUT was accepted (see C09)');
  }

  /** The calls since this check began: all, or those of one payment. */
  calls(payment?: CallerPayment): readonly Call[] {
    const all =
      payment === undefined
        ? this.caller.partner.exchanges
        : this.caller.exchangesOf(payment.platform_payment_id);
    return all.filter(({ number }) => number > this.#from);
  }

  /** The PUTs of one payment, or of all. */
  puts(payment?: CallerPayment): readonly Call[] {
    return this.calls(payment).filter(({ method }) => method === 'PUT');
  }

  /** The token requests since this check began. */
  fetches(): readonly Call[] {
    return this.calls().filter(({ operation }) => operation === 'access_token');
  }

  /** PUTs of this amount under another id: a duplicate payment. */
  doubles(payment: CallerPayment): readonly Call[] {
    return this.puts().filter(
      (put) =>
        idOf(put) !== payment.platform_payment_id && amountOf(put.text) === payment.amount_in_cents,
    );
  }

  /** Attempts at a payment by another method than PUT, at its own path or at any other. */
  others({ platform_payment_id: id, amount_in_cents }: CallerPayment): readonly Call[] {
    return this.calls().filter(
      (call) =>
        !['PUT', 'GET', 'HEAD', 'OPTIONS'].includes(call.method) &&
        call.operation !== 'access_token' &&
        (idOf(call) === id || amountOf(call.text) === amount_in_cents),
    );
  }

  /** Requests about payments of this check, or for a token, that followed a redirect. */
  strays(): number {
    const ids = this.#made.flatMap(({ platform_payment_id: id }) => id ?? []);
    ids.push(idOf(partnerRoutes.access_token));
    return this.caller.partner.strayPaths().filter((path) => ids.includes(idOf({ path }))).length;
  }

  /**
   * Whether the platform still calls the partner at all: the judge requests a payment without a fault, and its PUT arrives. A platform that
   * pauses a partner after many failures has not given up on one payment.
   */
  async isAwake(): Promise<boolean> {
    this.caller.probes += 1;
    const probe = await this.pay(PROBE_CENTS + 10 * this.caller.probes).catch(() => undefined);
    return probe !== undefined && (await this.until(() => this.puts(probe).length > 0));
  }

  /** What a platform must do once the partner is right again, in words. */
  get untilTheEnd(): string {
    return `calls until a terminal status, within ${this.caller.target.patience_seconds} s`;
  }

  /** Longest wait for the platform's next call. */
  get patience_ms(): number {
    return this.caller.target.patience_seconds * 1_000;
  }

  /**
   * Waits until the condition holds, at most as long as the target's patience. Returns whether it did. Time in which this machine was
   * too busy to run the judge does not count, because a platform on the same machine did not run either.
   */
  async until(
    holds: () => boolean | Promise<boolean>,
    ms: number = this.patience_ms,
  ): Promise<boolean> {
    let deadline = this.run.now() + ms;
    for (;;) {
      if (await holds()) return true;
      const before = this.run.now();
      if (before >= deadline) return false;
      await this.run.sleep(LOOK_MS);
      const late = this.run.now() - before - LOOK_MS;
      if (late > LOOK_MS) deadline += late;
    }
  }

  /**
   * Waits until the condition holds, or until no call about the payment or for a token has come for as long as the target's patience;
   * in any case not longer than three times that.
   */
  async untilSilent(
    payment: CallerPayment,
    holds: () => boolean | Promise<boolean>,
  ): Promise<boolean> {
    for (let round = 0; round < 3; round += 1) {
      const calls = this.#callsFor(payment);
      if (await this.until(holds)) return true;
      if (this.#callsFor(payment) === calls) break;
    }
    return false;
  }

  #callsFor(payment: CallerPayment): number {
    return this.calls(payment).length + this.fetches().length;
  }

  /**
   * Waits for a period in which no further call should arrive: that of the pace, or longer. In parts: if the judge itself is stopped for
   * a while, calls that arrived meanwhile are read before the period is over. Returns false when this machine was too busy to tell
   * when a call was sent by when it arrived.
   */
  async quiet(least_ms = 0): Promise<boolean> {
    const { run } = this;
    const began = run.clock.elapsed();
    const whole_ms = Math.max(run.pace.quiet_ms, least_ms);
    for (let part = 0; part < QUIET_PARTS; part += 1) await run.sleep(whole_ms / QUIET_PARTS);
    return run.clock.elapsed() - began < whole_ms + MOST_LAG_MS;
  }
}
