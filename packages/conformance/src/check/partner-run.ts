/** What all checks of one run against a partner share: the payments and records seen, the access token, the balances, and time. */
import { fillPath } from '@duebridge/contract';
import { sleep, type Clock } from '../clock.ts';
import { Skipped, type Profile } from './findings.ts';
import { asObject, isSuccess, type Reply, type Wire } from './http.ts';
import type { History } from './history.ts';
import type { Pace } from './pace.ts';
import { type Intent, type PaymentFields } from './payment-fields.ts';
import { Throttle } from './throttle.ts';
import type { PartnerOperation, PartnerTarget } from './target.ts';

/** Time in which payments end unless the target declares another. */
export const USUAL_WINDOW_SECONDS = 60;

/** A requested payment, and the first answer that contained its record. */
export interface Asked {
  intent: Intent;
  /** Milliseconds since 1970. */
  readonly at: number;
  first: { readonly reply: Reply; readonly record: PaymentFields } | undefined;
}

/** A reply that contained the record of a payment. */
export interface Seen {
  readonly intent: Intent;
  readonly reply: Reply;
  readonly record: PaymentFields;
}

/** What polling a payment to its end returned. */
export interface Life {
  /** Every successful read, in order. */
  readonly reads: readonly { readonly reply: Reply; readonly record: PaymentFields }[];
  /** The read that first showed a terminal status; undefined when none came in the window. */
  readonly end: { readonly reply: Reply; readonly record: PaymentFields } | undefined;
  /** The last reply of any kind. */
  readonly last: Reply;
}

/** The amount due of each account that the run knows; accounts that show none are missing. */
export type Balances = ReadonlyMap<string, { readonly due: number; readonly reply: Reply }>;

/** How far one account's amount due fell over a run, and how far its payments predict. */
export interface AccountEffect {
  readonly account_id: string;
  readonly fell: number;
  /** The sum of its payments that succeeded, and of those that failed or were canceled. */
  readonly expected: number;
  readonly undone: number;
  readonly reply: Reply;
}

/** The effect of a run on the balances; `unmeasured` says why it cannot be determined. */
export type BalanceVerdict =
  | { readonly unmeasured: string }
  | { readonly unmeasured?: undefined; readonly effects: readonly AccountEffect[] };

/** Shared by all checks of one run. */
export class PartnerRun {
  readonly target: PartnerTarget;
  readonly profile: Profile;
  readonly wire: Wire;
  readonly history: History;
  readonly pace: Pace;
  readonly throttle: Throttle;
  readonly clock: Clock;
  /** Every payment requested under its own id. */
  readonly intents: Asked[] = [];
  /** Every record of a payment that the server returned, in order. */
  readonly seen: Seen[] = [];
  /** Every answer to Get Account and Get Balance. */
  readonly balances: Reply[] = [];
  /** The latest record of each payment that the server returned. */
  readonly records = new Map<string, PaymentFields>();
  /** True when the run only looks at payments of earlier runs and makes none. */
  readonly recheck: boolean;
  /** Restarts the server under test; undefined when the target declares no way to do so. */
  readonly restart: (() => Promise<void>) | undefined;
  /** True once an account at rest was seen to change; its balance then proves nothing. */
  unsettled = false;
  /** The amounts due before the first payment. */
  balancesBefore: Balances = new Map();
  readonly #own = new Map<string, Intent>();
  readonly #once = new Map<string, Promise<unknown>>();
  readonly #stop: AbortSignal;
  #access: Promise<{ readonly token: string | undefined; readonly until: number }> | undefined;
  #asked = 0;

  constructor(options: {
    target: PartnerTarget;
    profile: Profile;
    wire: Wire;
    history: History;
    pace: Pace;
    clock: Clock;
    stop: AbortSignal;
    recheck?: boolean;
    restart?: (() => Promise<void>) | undefined;
  }) {
    this.target = options.target;
    this.profile = options.profile;
    this.wire = options.wire;
    this.history = options.history;
    this.pace = options.pace;
    this.clock = options.clock;
    this.recheck = options.recheck ?? false;
    this.restart = options.restart;
    this.#stop = options.stop;
    this.throttle = new Throttle(options.pace.at_once);
  }

  /** True when payments end later than this run waits; --recheck looks for their ends. */
  get endsLater(): boolean {
    return (this.target.terminal_window_seconds ?? 0) * 1_000 > this.pace.longest_wait_ms;
  }

  /** How long a run waits for the end of a payment. */
  get window_ms(): number {
    return this.endsLater
      ? 0
      : Math.min(
          (this.target.terminal_window_seconds ?? USUAL_WINDOW_SECONDS) * 1_000,
          this.pace.longest_wait_ms,
        );
  }

  /** Cents requested so far. */
  get asked_in_cents(): number {
    return this.#asked;
  }

  now(): number {
    return this.clock.now();
  }

  sleep(ms: number): Promise<void> {
    return sleep(this.clock, ms, this.#stop);
  }

  /** The payment as requested under the id of this intent; undefined before its first request. */
  asked({ platform_payment_id }: Intent): Asked | undefined {
    return this.intents.find(({ intent }) => intent.platform_payment_id === platform_payment_id);
  }

  /** Counts a new payment against the cap. Throws Skipped when it would exceed the cap. */
  spend(intent: Intent): void {
    if (this.asked(intent) !== undefined) return;
    const cap = this.target.spending_cap_in_cents;
    if (cap !== undefined && this.#asked + intent.amount_in_cents > cap) {
      throw new Skipped(
        `its payment of ${intent.amount_in_cents} cents would exceed the spending cap of ${cap}: raise spending_cap_in_cents`,
        'wanting',
      );
    }
    this.#asked += intent.amount_in_cents;
    this.intents.push({ intent, at: this.now(), first: undefined });
  }

  /** The record of the first PUT that was answered with one, for each payment (P60). */
  noteFirst(intent: Intent, reply: Reply, record: PaymentFields): void {
    const asked = this.asked(intent);
    if (asked !== undefined) asked.first ??= { reply, record };
  }

  /** Drops a requested payment that the server took for another one: it has no record of its own. */
  forget(intent: Intent): void {
    const asked = this.asked(intent);
    if (asked !== undefined) this.intents.splice(this.intents.indexOf(asked), 1);
  }

  /** Corrects the account of a requested payment: of two concurrent first requests for one id, the other one was accepted. */
  moved(intent: Intent): void {
    const asked = this.asked(intent);
    if (asked !== undefined) asked.intent = intent;
  }

  /** The payment of a single check; the same one on each call. */
  own(check: string, make: () => Intent): Intent {
    const known = this.#own.get(check) ?? make();
    this.#own.set(check, known);
    return known;
  }

  /** Facts that several checks need and one run determines once. */
  once<T>(name: string, find: () => Promise<T>): Promise<T> {
    const known = this.#once.get(name);
    if (known !== undefined) return known as Promise<T>;
    const found = find();
    this.#once.set(name, found);
    return found;
  }

  /** The lives polled so far, ended or not. */
  async lives(): Promise<{ readonly intent: Intent; readonly life: Life }[]> {
    const found: { intent: Intent; life: Life }[] = [];
    for (const { intent } of this.intents) {
      const life = this.#once.get(lifeOf(intent)) as Promise<Life> | undefined;
      if (life !== undefined) found.push({ intent, life: await life });
    }
    return found;
  }

  /** The access token in use. Fetched once for all checks, when there is none or four fifths of its lifetime have passed. */
  async access(check: string): Promise<string | undefined> {
    if (this.#access === undefined || this.now() > (await this.#access).until) {
      this.#access = this.#fetchAccess(check);
    }
    return (await this.#access).token;
  }

  async #fetchAccess(check: string): Promise<{ token: string | undefined; until: number }> {
    const reply = await this.fetchToken(check);
    const seconds = asObject(reply.json)?.['expires_in'];
    const life = typeof seconds === 'number' && seconds > 0 ? seconds : 300;
    const token = accessToken(reply);
    return { token, until: token === undefined ? 0 : this.now() + life * 800 };
  }

  /** Discards the access token because the server refused it, unless it has been replaced in the meantime. */
  async dropAccess(authorization?: string): Promise<void> {
    const refused = this.#access;
    const token = (await refused)?.token;
    const held = authorization === undefined || authorization === `Bearer ${token}`;
    if (this.#access === refused && held) this.#access = undefined;
  }

  /** Calls the partner's token endpoint (OA2); each field can be replaced, and `grant_type` omitted. */
  async fetchToken(
    check: string,
    change: {
      scope?: string;
      client_secret?: string;
      client_id?: string;
      grant_type?: string | undefined;
    } = {},
  ): Promise<Reply> {
    const { authentication } = this.target;
    if (authentication.method !== 'oauth') throw new Skipped('the target uses a static key');
    const grant_type = 'grant_type' in change ? change.grant_type : 'client_credentials';
    const reply = await this.wire.send(check, {
      method: 'POST',
      url: authentication.token_url,
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({
        ...(grant_type === undefined ? {} : { grant_type }),
        client_id: change.client_id ?? authentication.client_id,
        client_secret: change.client_secret ?? authentication.client_secret,
        scope: change.scope ?? authentication.scope,
      }).toString(),
      timeout_ms: this.pace.request_timeout_ms,
    });
    const token = accessToken(reply);
    if (token !== undefined) this.wire.hide({ value: token, name: 'ACCESS_TOKEN' });
    return reply;
  }

  /** The URL of an operation. */
  url(operation: PartnerOperation, values: Readonly<Record<string, string>>): string {
    const template = this.target.paths[operation];
    if (template === null) throw new Skipped(`the target does not offer ${operation}`);
    return this.target.base_url + fillPath(template, values);
  }
}

/** The access_token of a token answer; undefined when there is no usable one. */
export function accessToken(reply: Reply): string | undefined {
  const token = isSuccess(reply) ? asObject(reply.json)?.['access_token'] : undefined;
  return typeof token === 'string' && /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}

/** The name of a payment's life among what a run finds out once. */
export const lifeOf = ({ platform_payment_id }: Intent): string => `life ${platform_payment_id}`;
