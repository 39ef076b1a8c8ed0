/**
 * The context of a check of a partner's server: the operations, payments shared by several checks, the amounts due, and waiting for
 * the end of a payment. A run has one PartnerRun; each check gets its own context over it.
 */
import { randomUUID } from 'node:crypto';
import { fillPath, isTerminal } from '@duebridge/contract';
import { Context, MOST_BUSY, waitMs, type Headers } from './context.ts';
import { Skipped, type CaseInfo, type MoreAt } from './findings.ts';
import { memoryHistory, type HistoryEntry, type History } from './history.ts';
import { asObject, isRefusal, type Outgoing, PREFLIGHT, type Reply, isSuccess } from './http.ts';
import {
  own,
  shared,
  type Planned,
  type SharedName,
  holdsPayment,
  instruction,
  recordOf,
  type Intent,
  type PaymentFields,
} from './payment-fields.ts';
import { Run, type RunOptions } from './run.ts';
import { secretsOf, type PartnerOperation, type PartnerTarget } from './target.ts';

/** Time in which payments end unless the target declares another. */
const USUAL_WINDOW_SECONDS = 60;

/** Maximum time that a run waits for payments to end; --recheck covers those that take longer. */
const LONGEST_WAIT_MS = 300_000;

/**
 * How many times the declared window can delay a run: once for all payments together, and once for each of the two that confirm
 * an excess (P62).
 */
const WINDOWS_IN_A_ROW = 3;

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

/** A payment of this run, under its own id. */
interface Payment {
  readonly intent: Intent;
  /** When it was requested, in milliseconds since 1970. */
  readonly at: number;
  /** Every record that the server returned for it, in order. */
  readonly seen: Seen[];
  /** Its polling to the end, once a check has asked for it. */
  life?: Promise<Life>;
}

/** The records in the answers to the PUTs of a payment. */
const putsOf = ({ seen }: Payment): Seen[] =>
  seen.filter(({ reply }) => reply.exchange.method === 'PUT');

/** The latest record of a payment under its own id. */
const latestOf = ({ intent, seen }: Payment): PaymentFields | undefined =>
  seen.findLast(({ record }) => record['platform_payment_id'] === intent.platform_payment_id)
    ?.record;

/** Fields of the form at the partner's token endpoint; undefined omits one. */
export type TokenForm = Partial<
  Record<'grant_type' | 'client_id' | 'client_secret' | 'scope', string | undefined>
>;

/** The ids in the path of a call. */
type PathIds = Partial<
  Readonly<Record<'biller_id' | 'account_id' | 'platform_payment_id', string>>
>;

/** Shared by all checks of one run. */
export class PartnerRun extends Run<PartnerTarget> {
  readonly history: History;
  /** Every payment requested, by its id. */
  readonly payments = new Map<string, Payment>();
  /** The latest repeats in a row that got no answer in time. */
  hungRepeats: Reply[] = [];
  /** True once an account at rest was seen to change; its balance then proves nothing. */
  unsettled = false;
  /** Cents requested so far. */
  asked_in_cents = 0;
  #access: Promise<string | undefined> | undefined;

  /** True when payments end later than this run waits; --recheck looks for their ends. */
  readonly endsLater: boolean;
  /** How long a run waits for the end of a payment. */
  readonly window_ms: number;

  constructor(target: PartnerTarget, cases: readonly CaseInfo[], options: RunOptions) {
    const { terminal_window_seconds: declared, authentication } = target;
    const window_ms = (declared ?? USUAL_WINDOW_SECONDS) * 1_000;
    const shortened_ms = Math.min(window_ms, LONGEST_WAIT_MS);
    super(target, cases, options, {
      payments_ms: WINDOWS_IN_A_ROW * shortened_ms,
      secrets: secretsOf(authentication),
    });
    this.history = options.history ?? memoryHistory();
    this.endsLater = declared !== undefined && window_ms > LONGEST_WAIT_MS;
    this.window_ms = this.endsLater ? 0 : shortened_ms;
  }

  /** The payment of an intent. Counts a new one against the cap; throws Skipped when it would exceed the cap. */
  spend(intent: Intent): Payment {
    const { platform_payment_id: id, amount_in_cents: cents } = intent;
    const known = this.payments.get(id);
    if (known !== undefined) return known;
    const cap = this.target.spending_cap_in_cents;
    if (cap !== undefined && this.asked_in_cents + cents > cap) {
      throw new Skipped(
        `its payment of ${cents} cents would exceed the spending cap of ${cap}: raise spending_cap_in_cents`,
        'wanting',
      );
    }
    this.asked_in_cents += cents;
    const payment = { intent, at: this.now(), seen: [] };
    this.payments.set(id, payment);
    return payment;
  }

  /** Every record of a payment that the server returned. */
  get seen(): readonly Seen[] {
    return [...this.payments.values()].flatMap(({ seen }) => seen);
  }

  /** The payments whose PUT was answered with a record, each with those records. */
  accepted(): { readonly intent: Intent; readonly first: Seen; readonly puts: readonly Seen[] }[] {
    return [...this.payments.values()].flatMap((payment) => {
      const puts = putsOf(payment);
      const [first] = puts;
      return first === undefined ? [] : { intent: payment.intent, first, puts };
    });
  }

  /** The payments that were polled to their end, each with the record that showed it. */
  async ended(): Promise<{ readonly intent: Intent; readonly end: PaymentFields }[]> {
    const lives = [...this.payments.values()].map(async ({ intent, life }) => {
      const end = (await life)?.end;
      return end === undefined ? [] : [{ intent, end: end.record }];
    });
    return (await Promise.all(lives)).flat();
  }

  /** Keeps the payments of this run, each with its latest record, for a later run. */
  remember(): void {
    const { base_url, biller_id } = this.target;
    this.history.add(
      [...this.payments.values()].flatMap((payment) => {
        const { intent, at } = payment;
        const record = latestOf(payment);
        const made_at = new Date(at).toISOString();
        return record === undefined ? [] : { base_url, biller_id, intent, made_at, record };
      }),
    );
  }

  /** Discards the access token because the server refused it, unless it has been replaced in the meantime. */
  async dropAccess(authorization?: string): Promise<void> {
    const refused = this.#access;
    const isHeld = authorization === undefined || authorization === `Bearer ${await refused}`;
    if (this.#access === refused && isHeld) this.#access = undefined;
  }

  /** Calls the partner's token endpoint (OA2) with the declared form, changed. */
  async fetchToken(
    check: string,
    change: TokenForm = {},
    timeout_ms = this.pace.request_timeout_ms,
    tries = 1,
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
    // It may have a limit of its own. The pre-flight has to end soon.
    const wait_ms = check === PREFLIGHT || tries > MOST_BUSY ? undefined : waitMs(reply);
    if (wait_ms !== undefined) {
      await this.sleep(wait_ms);
      return this.fetchToken(check, change, timeout_ms, tries + 1);
    }
    const token = accessToken(reply);
    if (token !== undefined) this.wire.hide({ value: token, name: 'ACCESS_TOKEN' });
    return reply;
  }

  /** The headers that authenticate the judge. */
  async credential(check: string): Promise<Headers> {
    const { authentication } = this.target;
    if (authentication.method === 'key') return { [authentication.header]: authentication.key };
    // Fetched once for all checks; a call that is refused fetches the next.
    const token = await (this.#access ??= this.fetchToken(check).then(accessToken));
    return token === undefined ? {} : { authorization: `Bearer ${token}` };
  }

  /** The URL of an operation. */
  url(operation: PartnerOperation, ids: PathIds): string {
    const { base_url, paths, biller_id } = this.target;
    const template = paths[operation];
    if (template === null) throw new Skipped(`the target does not offer ${operation}`);
    return base_url + fillPath(template, { biller_id, ...ids });
  }
}

/** The access_token of a token answer; undefined when there is no usable one. */
export function accessToken(reply: Reply): string | undefined {
  const token = isSuccess(reply) ? asObject(reply.json)?.['access_token'] : undefined;
  return typeof token === 'string' && /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}

/** Minimum age of a payment that can show that payments are kept (P35, P54). */
const DAY_MS = 24 * 60 * 60 * 1_000;

/** Consecutive polls without a record, with no record before them, after which a payment counts as lost. */
const MAX_MISSING = 5;

/** Access tokens fetched for one request: a token may live for seconds only, and the request may be queued for longer. */
const MOST_RENEWALS = 3;

/** Repeats in a row without an answer after which no other is tried: a server may hang once. */
const MOST_HUNG = 2;

/** Number of polls of a payment whose end this run does not wait for. */
const POLLS_WITHOUT_WAITING = 2;

/** Extra time beyond the declared window for one poll to return. */
const WINDOW_SLACK_MS = 1_000;

/** What a call may do otherwise; the rest is as Outgoing has it. */
type CallOptions = Pick<Outgoing, 'headers' | 'body' | 'burst' | 'fresh' | 'cut_ms'> & {
  /** The headers that authenticate it: as declared, unless given. */
  readonly proof?: Headers;
  /** Ids of the path that are not those of the target or of the payment. */
  readonly elsewhere?: PathIds;
};

/** The same for a PUT. `fields`: parts of its body that are not as the payment has them. */
type PutOptions = CallOptions & { readonly fields?: Readonly<Record<string, unknown>> };

/** The context of one check of a partner. */
export class PartnerContext extends Context<PartnerRun> {
  /** Calls an operation. Renews an access token that has expired. */
  async call(
    operation: PartnerOperation,
    ids: PathIds,
    { proof, elsewhere, ...options }: CallOptions = {},
  ): Promise<Reply> {
    const { run, check } = this;
    const method = operation === 'put_account_payment' ? 'PUT' : 'GET';
    const out = { ...options, method, url: run.url(operation, { ...ids, ...elsewhere }) };
    if (proof !== undefined) return this.send(out, async () => proof);
    for (let renewals = 0; ; renewals += 1) {
      let given: Headers = {};
      const reply = await this.send(out, async () => (given = await run.credential(check)));
      const isKey = this.target.authentication.method === 'key';
      if (reply.status !== 401 || isKey || renewals >= MOST_RENEWALS) return reply;
      await run.dropAccess(given['authorization']);
    }
  }

  /** A payment not requested yet, or one of this check alone by its offset: a new id and, unless given, a new batch. */
  intend(planned: Planned | number, platform_batch_id: string = randomUUID()): Intent {
    const { amount_in_cents, account_id } =
      typeof planned === 'number' ? own(this.target, planned) : planned;
    return { platform_payment_id: randomUUID(), platform_batch_id, amount_in_cents, account_id };
  }

  /** Puts a new payment. Skips when it is not accepted: P20 reports that. */
  async accept(offset: number) {
    const intent = this.intend(offset);
    return { intent, record: this.acceptedBy(await this.put(intent)) };
  }

  /** The record of a PUT. Skips when there is none: P20 reports that. */
  acceptedBy(put: Reply): PaymentFields {
    const record = recordOf(put);
    this.given(record !== undefined, 'no new payment was accepted (see P20)');
    return record;
  }

  /** Raises a finding when a request was not refused. */
  refused(reply: Reply, what: string, { level = 'must', ...more }: MoreAt = {}): boolean {
    return this[level](isRefusal(reply), `a refusal of ${what}`, reply, more);
  }

  /** Raises a finding when a refused request made a payment all the same. */
  async notMade(
    intent: Intent,
    options: MoreAt & { readonly expected?: string } = {},
  ): Promise<boolean> {
    const { level = 'must', expected = 'no payment under the refused id', ...more } = options;
    const read = await this.read(intent);
    return this[level](!holdsPayment(read), expected, read, more);
  }

  /**
   * Puts a payment. `change` replaces parts of the request, not of the intent. Where the server has left repeats without an answer, the
   * last of them stands for all that follow: each would take as long as a request may.
   */
  async put(intent: Intent, change: PutOptions = {}): Promise<Reply> {
    const { run } = this;
    const isRepeat = run.payments.has(intent.platform_payment_id);
    run.spend(intent);
    const [hung] =
      isRepeat && change.proof === undefined ? run.hungRepeats.slice(MOST_HUNG - 1) : [];
    if (hung !== undefined) return hung;
    const reply = await this.repeat(intent, change);
    if (isRepeat && reply.error === 'TIMEOUT' && change.burst !== true) run.hungRepeats.push(reply);
    else if (isRepeat && reply.status !== undefined) run.hungRepeats = [];
    return this.#note(intent, reply);
  }

  /** Puts a payment without counting it, or its record, as one of this run: it belongs to an earlier run, or to another path. */
  repeat(intent: Intent, { fields, ...options }: PutOptions = {}): Promise<Reply> {
    return this.call('put_account_payment', intent, {
      body: instruction(intent, fields),
      ...options,
      headers: { 'content-type': 'application/json', ...options.headers },
    });
  }

  /** Reads a payment under its account (B5). */
  async read(intent: Intent, options: CallOptions = {}): Promise<Reply> {
    return this.#note(intent, await this.call('get_account_payment', intent, options));
  }

  /** Reads a payment only by its id (B3). */
  async readById(intent: Intent, options: CallOptions = {}): Promise<Reply> {
    return this.#note(intent, await this.call('get_payment', intent, options));
  }

  readAccount(
    account_id: string = this.target.accounts.payable,
    options: CallOptions = {},
  ): Promise<Reply> {
    return this.call('get_account', { account_id }, options);
  }

  readBalance(
    account_id: string = this.target.accounts.payable,
    options: CallOptions = {},
  ): Promise<Reply> {
    return this.call('get_balance', { account_id }, options);
  }

  /** True when the partner offers an operation: two of them it need not. */
  offers(operation: PartnerOperation): boolean {
    return this.target.paths[operation] !== null;
  }

  /** The amount due of an account, by Get Balance or else Get Account; undefined where none is shown. */
  async amountDue(account_id?: string): Promise<{ due: number | undefined; reply: Reply }> {
    if (this.offers('get_balance')) {
      const reply = await this.readBalance(account_id);
      const due = asObject(reply.json)?.['amount_due_in_cents'];
      if (typeof due === 'number') return { due, reply };
    }
    const reply = await this.readAccount(account_id);
    const due = asObject(asObject(reply.json)?.['balance'])?.['amount_due_in_cents'];
    return { due: typeof due === 'number' ? due : undefined, reply };
  }

  /** The payment that most checks use: new, put once, read immediately. */
  async subject() {
    const subject = await this.sharedPayment('first');
    this.given(subject !== undefined, 'the target declares no payable account');
    return subject;
  }

  /**
   * A payment shared by several checks, put by the first that needs it, and read under its account immediately after; undefined when the
   * target declares no account or limit for it.
   */
  async sharedPayment(name: SharedName) {
    const planned = shared(this.target, name);
    if (planned === undefined) return undefined;
    return this.run.once(`payment ${name}`, async () => {
      const intent = this.intend(planned);
      const put = await this.put(intent);
      const read = await this.read(intent);
      // Its record too is judged with all others.
      if (this.offers('get_payment')) await this.readById(intent);
      return { intent, put, read };
    });
  }

  /** The subject's first record. Skips when its PUT was not answered with one. */
  async accepted() {
    const subject = await this.subject();
    return { ...subject, record: this.acceptedBy(subject.put) };
  }

  /** Polls a payment until it ends or the declared window is over; once for all checks that ask. */
  end(intent: Intent, options: CallOptions = {}): Promise<Life> {
    const payment = this.run.spend(intent);
    return (payment.life ??= this.#poll(payment, options));
  }

  /** Like `end`, but skips when the payment did not end in the window: P50 reports that. */
  async ended(intent: Intent): Promise<Seen> {
    const { end } = await this.end(intent);
    if (end === undefined) throw this.notEnded();
    return end;
  }

  /** Why a payment that has not ended is not judged. */
  notEnded(): Skipped {
    const { terminal_window_seconds: declared } = this.target;
    if (this.run.endsLater) {
      return new Skipped(
        `payments may take ${declared} s to end, longer than a run waits: run again after that time with --recheck`,
      );
    }
    return declared === undefined
      ? new Skipped(
          `the payment did not end within ${USUAL_WINDOW_SECONDS} s, and the target declares no terminal_window_seconds`,
          'wanting',
        )
      : new Skipped(`the payment did not end within ${declared} s (see P50)`);
  }

  /**
   * The payments of earlier runs against this server: those that are a day old, or with --recheck all, as after a restart. At most so
   * many, half of them the oldest and half the newest.
   */
  oldEntries(
    most: number,
    holds: (entry: HistoryEntry) => boolean = () => true,
  ): readonly HistoryEntry[] {
    const { base_url, biller_id } = this.target;
    const age_ms = this.run.options.recheck === true ? 0 : DAY_MS;
    const old = this.run.history
      .entries()
      .filter(
        (entry) =>
          entry.base_url === base_url &&
          entry.biller_id === biller_id &&
          this.run.now() - Date.parse(entry.made_at) >= age_ms &&
          holds(entry),
      );
    return old.length <= most ? old : [...old.slice(0, most / 2), ...old.slice(-most / 2)];
  }

  /** Remembers a record of a payment of this run. */
  #note(intent: Intent, reply: Reply): Reply {
    const record = recordOf(reply);
    const payment = this.run.payments.get(intent.platform_payment_id);
    if (record !== undefined && holdsPayment(reply)) payment?.seen.push({ reply, record });
    return reply;
  }

  async #poll(payment: Payment, options: CallOptions): Promise<Life> {
    const { run } = this;
    const reads: Seen[] = [];
    // From its acceptance: before, the request may have waited for its turn here.
    const accepted = putsOf(payment)[0]?.reply.came ?? payment.at;
    const deadline = accepted + run.window_ms + WINDOW_SLACK_MS;
    let wait = run.pace.poll_first_ms;
    let missing = 0;
    for (let polls = 1; ; polls += 1) {
      const last = await this.read(payment.intent, options);
      const record = recordOf(last);
      if (record !== undefined) {
        const read = { reply: last, record };
        reads.push(read);
        if (isTerminal(record['status'])) return { reads, end: read, last };
      }
      // A payment that is never found will not end; P56 reports it as missing.
      const gone = last.status !== undefined && last.status >= 400 && last.status !== 429;
      missing = gone && reads.length === 0 ? missing + 1 : 0;
      // A payment has all of its window: only a read that was sent after it can say that it did not end.
      const isLate = run.endsLater ? polls >= POLLS_WITHOUT_WAITING : last.sent >= deadline;
      if (isLate || missing >= MAX_MISSING) return { reads, end: undefined, last };
      await run.sleep(run.endsLater ? wait : Math.min(wait, Math.max(0, deadline - run.now())));
      wait = Math.min(wait * 1.4, run.pace.poll_longest_ms);
    }
  }
}
