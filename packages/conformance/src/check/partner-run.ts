/** What all checks of one run against a partner share: the payments asked for, every record seen, the access token, and time. */
import { fillPath } from '@duebridge/contract';
import { Run, type Headers, type Means } from './context.ts';
import { Skipped } from './findings.ts';
import { asObject, isSuccess, type Reply } from './http.ts';
import type { History } from './history.ts';
import type { Intent, PaymentFields } from './payment-fields.ts';
import type { PartnerOperation, PartnerTarget } from './target.ts';

/** Time in which payments end unless the target declares another. */
export const USUAL_WINDOW_SECONDS = 60;

/** A requested payment, and when, in milliseconds since 1970. */
export interface Asked {
  intent: Intent;
  readonly at: number;
}

/** A reply that contained the record of a payment. */
export interface Seen {
  readonly reply: Reply;
  readonly record: PaymentFields;
}

/** What polling a payment to its end returned. */
export interface Life {
  /** Every successful read, in order. */
  readonly reads: readonly Seen[];
  /** The read that first showed a terminal status; undefined when none came in the window. */
  readonly end: Seen | undefined;
  /** The last reply of any kind. */
  readonly last: Reply;
}

/** Fields of the form at the partner's token endpoint; undefined omits one. */
export type TokenForm = Partial<
  Record<'grant_type' | 'client_id' | 'client_secret' | 'scope', string | undefined>
>;

/** Shared by all checks of one run. */
export class PartnerRun extends Run<PartnerTarget> {
  readonly history: History;
  /** True when the run only looks at payments of earlier runs and makes none. */
  readonly recheck: boolean;
  /** Every payment requested under its own id. */
  readonly intents: Asked[] = [];
  /** Every record of a payment that the server returned, in order. */
  readonly seen: (Seen & { readonly intent: Intent })[] = [];
  /** Every answer to Get Account and Get Balance. */
  readonly balances: Reply[] = [];
  /** True once an account at rest was seen to change; its balance then proves nothing. */
  unsettled = false;
  /** Cents requested so far. */
  asked_in_cents = 0;
  #access: Promise<{ readonly token: string | undefined; readonly until: number }> | undefined;

  constructor(target: PartnerTarget, means: Means, history: History, recheck: boolean) {
    super(target, means);
    this.history = history;
    this.recheck = recheck;
  }

  /** True when payments end later than this run waits; --recheck looks for their ends. */
  get endsLater(): boolean {
    return (this.target.terminal_window_seconds ?? 0) * 1_000 > this.pace.longest_wait_ms;
  }

  /** How long a run waits for the end of a payment. */
  get window_ms(): number {
    const { terminal_window_seconds: seconds = USUAL_WINDOW_SECONDS } = this.target;
    return this.endsLater ? 0 : Math.min(seconds * 1_000, this.pace.longest_wait_ms);
  }

  /** The payment as requested under the id of this intent; undefined before its first request. */
  asked({ platform_payment_id }: Intent): Asked | undefined {
    return this.intents.find(({ intent }) => intent.platform_payment_id === platform_payment_id);
  }

  /** Counts a new payment against the cap. Throws Skipped when it would exceed the cap. */
  spend(intent: Intent): void {
    if (this.asked(intent) !== undefined) return;
    const cap = this.target.spending_cap_in_cents;
    if (cap !== undefined && this.asked_in_cents + intent.amount_in_cents > cap) {
      throw new Skipped(
        `its payment of ${intent.amount_in_cents} cents would exceed the spending cap of ${cap}: raise spending_cap_in_cents`,
        'wanting',
      );
    }
    this.asked_in_cents += intent.amount_in_cents;
    this.intents.push({ intent, at: this.now() });
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

  /** The payments whose PUT was answered with a record, each with its first one. */
  accepted(): { readonly intent: Intent; readonly first: Seen }[] {
    return this.intents.flatMap(({ intent }) => {
      const [first] = this.putsOf(intent);
      return first === undefined ? [] : { intent, first };
    });
  }

  /** The records in the answers to the PUTs of a payment. */
  putsOf({ platform_payment_id: id }: Intent): readonly Seen[] {
    return this.seen.filter(
      ({ intent, reply }) => intent.platform_payment_id === id && reply.exchange.method === 'PUT',
    );
  }

  /** The latest record of a payment under its own id. */
  latest({ platform_payment_id: id }: Intent): PaymentFields | undefined {
    return this.seen.findLast(
      ({ intent, record }) =>
        intent.platform_payment_id === id && record['platform_payment_id'] === id,
    )?.record;
  }

  /** The lives polled so far, ended or not. */
  async lives(): Promise<{ readonly intent: Intent; readonly life: Life }[]> {
    const found: { intent: Intent; life: Life }[] = [];
    for (const { intent } of this.intents) {
      const life = await this.known<Life>(lifeOf(intent));
      if (life !== undefined) found.push({ intent, life });
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

  /** Calls the partner's token endpoint (OA2) with the declared form, changed. */
  async fetchToken(
    check: string,
    change: TokenForm = {},
    timeout_ms = this.pace.request_timeout_ms,
  ): Promise<Reply> {
    const { authentication } = this.target;
    if (authentication.method !== 'oauth') throw new Skipped('the target uses a static key');
    const { client_id, client_secret, scope } = authentication;
    const form = { grant_type: 'client_credentials', client_id, client_secret, scope, ...change };
    const given = Object.entries(form).flatMap(([name, value]): [string, string][] =>
      value === undefined ? [] : [[name, value]],
    );
    const reply = await this.wire.send(check, {
      method: 'POST',
      url: authentication.token_url,
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams(given).toString(),
      timeout_ms,
    });
    const token = accessToken(reply);
    if (token !== undefined) this.wire.hide({ value: token, name: 'ACCESS_TOKEN' });
    return reply;
  }

  /** The headers that authenticate the judge. */
  async credential(check: string): Promise<Headers> {
    const { authentication } = this.target;
    if (authentication.method === 'key') return { [authentication.header]: authentication.key };
    const token = await this.access(check);
    return token === undefined ? {} : { authorization: `Bearer ${token}` };
  }

  /** The URL of an operation. */
  url(operation: PartnerOperation, values: Readonly<Record<string, string>>): string {
    const template = this.target.paths[operation];
    if (template === null) throw new Skipped(`the target does not offer ${operation}`);
    const { biller_id } = this.target;
    return this.target.base_url + fillPath(template, { biller_id, ...values });
  }
}

/** The access_token of a token answer; undefined when there is no usable one. */
export function accessToken(reply: Reply): string | undefined {
  const token = isSuccess(reply) ? asObject(reply.json)?.['access_token'] : undefined;
  return typeof token === 'string' && /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}

/** The name of a payment's life among what a run finds out once. */
export const lifeOf = ({ platform_payment_id }: Intent): string => `life ${platform_payment_id}`;
