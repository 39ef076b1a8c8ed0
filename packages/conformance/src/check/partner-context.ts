/**
 * What a check of a partner's server works with: the operations, payments that several checks share,
 * the money watch, and waiting for the end of a payment.
 *
 * A run has one PartnerRun; each check gets its own PartnerContext over it. Checks send one after
 * another (they take turns on one lane), so that what each sees is its own doing; only while it waits
 * for a payment to end does a check give up its turn. A partner that takes half a minute to post thus
 * costs half a minute, not half a minute for each check.
 */
import { randomUUID, randomBytes } from 'node:crypto';
import { connect as connectTcp, type Socket } from 'node:net';
import { readFileSync } from 'node:fs';
import { connect as connectTls } from 'node:tls';
import { fillPath, type Json } from '@duebridge/contract';
import { Findings, Skipped, type Profile } from './findings.ts';
import {
  asObject,
  errorCode,
  isSuccess,
  nothing,
  REQUEST_TIMEOUT_MS,
  tell,
  type Outgoing,
  type Reply,
  type Wire,
} from './http.ts';
import type { History, HistoryEntry, Intent } from './history.ts';
import { shared, type Planned, type SharedName } from './planned-payments.ts';
import type { PartnerOperation, PartnerTarget } from './target.ts';

/** How fast the judge goes. Tests shorten it; a real run uses USUAL_PACE. */
export interface Pace {
  /** First and longest wait between two polls of one payment. */
  readonly poll_first_ms: number;
  readonly poll_longest_ms: number;
  /** P57: polls a second, and for how long. */
  readonly burst_per_second: number;
  readonly burst_seconds: number;
  /** P54: wait between two of the ten polls after the end. */
  readonly after_end_ms: number;
  /** How long a balance may lag behind a status that says succeeded. */
  readonly balance_lag_ms: number;
  /** Longest wait for one answer. */
  readonly request_timeout_ms: number;
  /** How long a platform must keep quiet about a payment that has ended (C03, C08). */
  readonly quiet_ms: number;
}

export const USUAL_PACE: Pace = {
  poll_first_ms: 150,
  poll_longest_ms: 2_000,
  burst_per_second: 10,
  burst_seconds: 10,
  after_end_ms: 100,
  balance_lag_ms: 2_000,
  request_timeout_ms: REQUEST_TIMEOUT_MS,
  quiet_ms: 3_000,
};

/** How old a payment must be to show that it is kept (P35, P54). */
const DAY_MS = 24 * 60 * 60 * 1_000;

/** Longest Retry-After that the judge waits out; a longer one is taken for a refusal. */
const LONGEST_RETRY_AFTER_SECONDS = 10;

/** Polls in a row that find nothing, and nothing before them, after which a payment counts as lost. */
const MAX_MISSING = 5;

/** Most repeats of one request answered 429. */
const MAX_RETRIES = 3;

/** Time beyond the declared window that one poll may take to come back. */
const WINDOW_SLACK_MS = 1_000;

/** What polling a payment to its end saw. */
export interface Life {
  /** Every successful read, in order. */
  readonly reads: readonly { readonly reply: Reply; readonly record: PaymentFields }[];
  /** The read that first showed a terminal status; undefined when none came in the window. */
  readonly end: { readonly reply: Reply; readonly record: PaymentFields } | undefined;
  /** The last reply, whatever it was. */
  readonly last: Reply;
}

/** The fields of a payment as they came: nothing is believed yet. */
export type PaymentFields = Readonly<Record<string, Json>>;

/** A shared payment with its first answers. */
export interface Subject {
  readonly intent: Intent;
  readonly put: Reply;
  /** Read at once after the PUT. */
  readonly read: Reply;
  /** Get Payment, read at once; undefined when the partner does not offer it. */
  readonly other_read: Reply | undefined;
}

/** How a request proves who calls: as declared, not at all, or with these headers. */
export type Proof = 'declared' | 'none' | Readonly<Record<string, string>>;

interface CallOptions {
  readonly proof?: Proof;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** True to take a 429 as it comes. */
  readonly raw?: boolean;
}

/** One after another: whoever holds the lane sends. */
class Lane {
  #tail: Promise<void> = Promise.resolve();

  /** Waits for its turn; gives the function that ends it. */
  async enter(): Promise<() => void> {
    const before = this.#tail;
    let leave = (): void => undefined;
    this.#tail = new Promise((resolve) => {
      leave = resolve;
    });
    await before;
    return leave;
  }
}

/** What all checks of one run share. */
export class PartnerRun {
  readonly target: PartnerTarget;
  readonly profile: Profile;
  readonly wire: Wire;
  readonly history: History;
  readonly pace: Pace;
  readonly lane = new Lane();
  readonly now: () => number;
  /** Every payment asked for under an id of its own, with the answer to its first PUT. */
  readonly intents: { readonly intent: Intent; readonly at: number }[] = [];
  /** The latest record that the server gave of each payment. */
  readonly records = new Map<string, PaymentFields>();
  /** True once a check has found payments doubled: what the balance does then proves nothing more. */
  unsettled = false;
  readonly #sleep: (ms: number) => Promise<void>;
  readonly #shared = new Map<string, Promise<Subject>>();
  readonly #lives = new Map<string, Promise<Life>>();
  #access: { readonly token: string; readonly until: number } | undefined;
  #asked = 0;

  constructor(options: {
    target: PartnerTarget;
    profile: Profile;
    wire: Wire;
    history: History;
    pace: Pace;
    now: () => number;
    sleep: (ms: number) => Promise<void>;
  }) {
    this.target = options.target;
    this.profile = options.profile;
    this.wire = options.wire;
    this.history = options.history;
    this.pace = options.pace;
    this.now = options.now;
    this.#sleep = options.sleep;
  }

  /** Cents asked for so far. */
  get asked_in_cents(): number {
    return this.#asked;
  }

  sleep(ms: number): Promise<void> {
    return this.#sleep(ms);
  }

  /** Counts a new payment against the cap. Throws Skipped when it would pass it. */
  spend(intent: Intent): void {
    if (
      this.intents.some((known) => known.intent.platform_payment_id === intent.platform_payment_id)
    ) {
      return;
    }
    const cap = this.target.spending_cap_in_cents;
    if (cap !== undefined && this.#asked + intent.amount_in_cents > cap) {
      throw new Skipped(
        `it would ask for ${intent.amount_in_cents} cents more, above the spending cap of ${cap}`,
      );
    }
    this.#asked += intent.amount_in_cents;
    this.intents.push({ intent, at: this.now() });
  }

  /** The shared payment of this name, made by whichever check needs it first. */
  shared(name: string, make: () => Promise<Subject>): Promise<Subject> {
    const known = this.#shared.get(name);
    if (known !== undefined) return known;
    const made = make();
    this.#shared.set(name, made);
    return made;
  }

  /** The life of a payment: polled once, however many checks wait for it. */
  life(intent: Intent, poll: () => Promise<Life>): Promise<Life> {
    const known = this.#lives.get(intent.platform_payment_id);
    if (known !== undefined) return known;
    const polled = poll();
    this.#lives.set(intent.platform_payment_id, polled);
    return polled;
  }

  /** The lives polled so far, ended or not. */
  async lives(): Promise<{ readonly intent: Intent; readonly life: Life }[]> {
    const found: { intent: Intent; life: Life }[] = [];
    for (const { intent } of this.intents) {
      const life = await this.#lives.get(intent.platform_payment_id);
      if (life !== undefined) found.push({ intent, life });
    }
    return found;
  }

  /** The access token in use, fetched when there is none or four fifths of its life are over. */
  async access(check: string): Promise<string | undefined> {
    if (this.#access === undefined || this.now() > this.#access.until) {
      this.#access = undefined;
      const reply = await this.fetchToken(check);
      const token = accessToken(reply);
      if (token === undefined) return undefined;
      const seconds = asObject(reply.json)?.['expires_in'];
      const life = typeof seconds === 'number' && seconds > 0 ? seconds : 300;
      this.#access = { token, until: this.now() + life * 800 };
    }
    return this.#access.token;
  }

  /** Forgets the access token in use, because the server refused it. */
  dropAccess(): void {
    this.#access = undefined;
  }

  /** Asks the partner's token endpoint (OA2); each field can be replaced. */
  async fetchToken(
    check: string,
    change: { scope?: string; client_secret?: string } = {},
  ): Promise<Reply> {
    const { authentication } = this.target;
    if (authentication.method !== 'oauth') throw new Skipped('the target uses a static key');
    const reply = await this.wire.send(check, {
      method: 'POST',
      url: authentication.token_url,
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({
        grant_type: 'client_credentials',
        client_id: authentication.client_id,
        client_secret: change.client_secret ?? authentication.client_secret,
        scope: change.scope ?? authentication.scope,
      }).toString(),
      timeout_ms: this.pace.request_timeout_ms,
    });
    const token = accessToken(reply);
    if (token !== undefined) this.wire.hide({ value: token, name: 'ACCESS_TOKEN' });
    return reply;
  }

  /** Where an operation is. */
  url(operation: PartnerOperation, values: Readonly<Record<string, string>>): string {
    const template = this.target.paths[operation];
    if (template === null) throw new Skipped(`the target does not offer ${operation}`);
    return this.target.base_url + fillPath(template, values);
  }
}

/** The access_token of a token answer; undefined when there is none to use. */
export function accessToken(reply: Reply): string | undefined {
  const token = isSuccess(reply) ? asObject(reply.json)?.['access_token'] : undefined;
  return typeof token === 'string' && /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}

/** What one check of a partner works with. */
export class PartnerContext extends Findings {
  readonly run: PartnerRun;
  readonly check: string;
  #leave: (() => void) | undefined;

  constructor(run: PartnerRun, check: string) {
    super(run.profile);
    this.run = run;
    this.check = check;
  }

  get target(): PartnerTarget {
    return this.run.target;
  }

  /** Takes the turn to send. */
  async enter(): Promise<void> {
    this.#leave = await this.run.lane.enter();
  }

  /** Gives the turn up. */
  leave(): void {
    this.#leave?.();
    this.#leave = undefined;
  }

  /** Waits for something that needs no turn, and takes the turn again after it. */
  async rest<T>(waiting: Promise<T>): Promise<T> {
    this.leave();
    try {
      return await waiting;
    } finally {
      await this.enter();
    }
  }

  /** Sends a request as it is, with no credential of its own. */
  send(out: Outgoing): Promise<Reply> {
    return this.run.wire.send(this.check, { timeout_ms: this.run.pace.request_timeout_ms, ...out });
  }

  /** Calls an operation. Waits out a 429 that says for how long, and renews an expired access token. */
  async call(
    operation: PartnerOperation,
    values: Readonly<Record<string, string>>,
    options: CallOptions = {},
  ): Promise<Reply> {
    const method = operation === 'put_account_payment' ? 'PUT' : 'GET';
    const url = this.run.url(operation, { biller_id: this.target.biller_id, ...values });
    let renewed = false;
    for (let attempt = 0; ; attempt += 1) {
      const reply = await this.send({
        method,
        url,
        headers: { ...(await this.proof(options.proof ?? 'declared')), ...options.headers },
        ...(options.body === undefined ? {} : { body: options.body }),
      });
      if (
        reply.status === 401 &&
        !renewed &&
        (options.proof ?? 'declared') === 'declared' &&
        this.target.authentication.method === 'oauth'
      ) {
        renewed = true;
        this.run.dropAccess();
        continue;
      }
      const wait = retryAfterMs(reply);
      if (reply.status !== 429 || options.raw === true || wait === undefined) return reply;
      if (attempt >= MAX_RETRIES) return reply;
      await this.run.sleep(wait);
    }
  }

  /** The headers that prove who calls. */
  async proof(proof: Proof): Promise<Readonly<Record<string, string>>> {
    if (proof === 'none') return {};
    if (proof !== 'declared') return proof;
    const { authentication } = this.target;
    if (authentication.method === 'key') return { [authentication.header]: authentication.key };
    const token = await this.run.access(this.check);
    return token === undefined ? {} : { authorization: `Bearer ${token}` };
  }

  /** A payment not asked for yet: a new id and, unless given, a new batch. */
  intend(planned: Planned, platform_batch_id: string = randomUUID()): Intent {
    return {
      platform_payment_id: newPaymentId(this.run.now()),
      platform_batch_id,
      amount_in_cents: planned.amount_in_cents,
      account_id: planned.account_id,
    };
  }

  /** Puts a payment. `change` replaces parts of what goes out, not of the intent. */
  async put(
    intent: Intent,
    change: CallOptions & { account_id?: string; fields?: Readonly<Record<string, unknown>> } = {},
  ): Promise<Reply> {
    this.run.spend(intent);
    const reply = await this.call(
      'put_account_payment',
      {
        account_id: change.account_id ?? intent.account_id,
        platform_payment_id: intent.platform_payment_id,
      },
      {
        body: instruction(intent, change.fields),
        ...change,
        headers: { 'content-type': 'application/json', ...change.headers },
      },
    );
    this.#note(intent, reply);
    return reply;
  }

  /** Reads a payment under its account (B5). */
  async read(intent: Intent, options: CallOptions & { account_id?: string } = {}): Promise<Reply> {
    const reply = await this.call(
      'get_account_payment',
      {
        account_id: options.account_id ?? intent.account_id,
        platform_payment_id: intent.platform_payment_id,
      },
      options,
    );
    this.#note(intent, reply);
    return reply;
  }

  /** Reads a payment by its id alone (B3). */
  readById(intent: Intent, options: CallOptions = {}): Promise<Reply> {
    return this.call('get_payment', { platform_payment_id: intent.platform_payment_id }, options);
  }

  readAccount(
    account_id = this.target.accounts.payable,
    options: CallOptions = {},
  ): Promise<Reply> {
    return this.call('get_account', { account_id }, options);
  }

  readBalance(
    account_id = this.target.accounts.payable,
    options: CallOptions = {},
  ): Promise<Reply> {
    return this.call('get_balance', { account_id }, options);
  }

  /** The amount due of the payable account, by Get Balance or else Get Account. */
  async amountDue(): Promise<{ due: number | undefined; reply: Reply }> {
    const read = this.target.paths.get_balance === null ? undefined : await this.readBalance();
    const shown = asObject(read?.json)?.['amount_due_in_cents'];
    if (read !== undefined && typeof shown === 'number') return { due: shown, reply: read };
    const reply = await this.readAccount();
    const due = asObject(asObject(reply.json)?.['balance'])?.['amount_due_in_cents'];
    return { due: typeof due === 'number' ? due : undefined, reply };
  }

  /** The payment that most checks look at: new, put once, read at once. */
  async subject(): Promise<Subject> {
    const subject = await this.sharedPayment('first');
    this.given(subject !== undefined, 'the target declares no payable account');
    return subject;
  }

  /**
   * A payment that several checks look at, put by whichever needs it first; undefined where the
   * target declares no account or limit for it.
   */
  async sharedPayment(name: SharedName): Promise<Subject | undefined> {
    const planned = shared(this.target, name);
    if (planned === undefined) return undefined;
    return this.run.shared(name, async () => {
      const intent = this.intend(planned);
      const put = await this.put(intent);
      const read = await this.read(intent);
      const other_read =
        this.target.paths.get_payment === null ? undefined : await this.readById(intent);
      return { intent, put, read, other_read };
    });
  }

  /** The subject's first record. Skips when its PUT was not answered with one: P20 tells that. */
  async accepted(): Promise<{ subject: Subject; record: PaymentFields }> {
    const subject = await this.subject();
    const record = recordOf(subject.put);
    this.given(record !== undefined, 'no new payment was accepted (see P20)');
    return { subject, record };
  }

  /** Polls a payment until it ends or the declared window is over, giving up the turn meanwhile. */
  end(intent: Intent): Promise<Life> {
    return this.rest(this.run.life(intent, () => this.#poll(intent)));
  }

  /** As `end`, but skips when the payment did not end in the window: P50 tells that. */
  async ended(intent: Intent): Promise<{ life: Life; reply: Reply; record: PaymentFields }> {
    const life = await this.end(intent);
    this.given(
      life.end !== undefined,
      `the payment did not end within ${this.target.terminal_window_seconds} s (see P50)`,
    );
    return { life, ...life.end };
  }

  /**
   * Measures what `act` does to the balance of the payable account, which must be at rest before and
   * is so again after. Gives how far it fell, and undefined where the balance is not shown.
   */
  async effect(act: () => Promise<readonly Intent[]>): Promise<Effect> {
    for (const { intent } of this.run.intents) {
      if (intent.account_id === this.target.accounts.payable) await this.end(intent);
    }
    const { due: before } = await this.amountDue();
    const intents = await act();
    let expected = 0;
    for (const intent of intents) {
      const life = await this.end(intent);
      if (life.end === undefined) return { fell: undefined, expected: undefined };
      if (life.end.record['status'] === 'succeeded') expected += intent.amount_in_cents;
    }
    if (before === undefined || this.run.unsettled) return { fell: undefined, expected };
    const deadline = this.run.now() + this.run.pace.balance_lag_ms;
    for (;;) {
      const { due: after, reply } = await this.amountDue();
      const fell = after === undefined ? undefined : before - after;
      if (fell === expected || fell === undefined || this.run.now() >= deadline) {
        return { fell, expected, reply };
      }
      await this.run.sleep(this.run.pace.poll_first_ms);
    }
  }

  /** The payments of runs against this server that are at least a day old. */
  oldEntries(): readonly HistoryEntry[] {
    return this.run.history
      .entries()
      .filter(
        (entry) =>
          entry.base_url === this.target.base_url &&
          entry.biller_id === this.target.biller_id &&
          this.run.now() - Date.parse(entry.made_at) >= DAY_MS,
      );
  }

  /** Puts a payment of an earlier run again, byte for byte; it counts as no new spending. */
  repeatOld({ intent }: HistoryEntry): Promise<Reply> {
    return this.call(
      'put_account_payment',
      { account_id: intent.account_id, platform_payment_id: intent.platform_payment_id },
      { body: instruction(intent), headers: { 'content-type': 'application/json' } },
    );
  }

  /** Raises a must-finding when the balance fell by more than the payments that succeeded. */
  oneEffect({ fell, expected, reply }: Effect): void {
    if (fell === undefined || expected === undefined) {
      this.notes.push(
        this.run.unsettled
          ? 'The effect on the balance was not measured: an earlier check found it moving on its own.'
          : 'The effect on the balance was not measured: no amount due is shown, or no end came.',
      );
      return;
    }
    this.must(fell <= expected, {
      expected: `the amount due falls by ${expected} cents: one payment, one effect`,
      got: `it fell by ${fell} cents`,
      ...(reply === undefined ? {} : { at: reply }),
    });
    if (fell < expected) {
      this.notes.push(`The amount due fell by ${fell} cents, not yet by ${expected}.`);
    }
  }

  /** Puts a payment and cuts the connection as soon as the request has left, `wait_ms` later. */
  async putAndCut(intent: Intent, wait_ms: number): Promise<void> {
    this.run.spend(intent);
    const url = new URL(
      this.run.url('put_account_payment', {
        biller_id: this.target.biller_id,
        account_id: intent.account_id,
        platform_payment_id: intent.platform_payment_id,
      }),
    );
    const body = instruction(intent);
    const headers: Record<string, string> = {
      host: url.host,
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(body)),
      ...(await this.proof('declared')),
    };
    const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const text = `PUT ${url.pathname}${url.search} HTTP/1.1\r\n${head.join('')}\r\n${body}`;
    const started = performance.now();
    const sent = this.run.now();
    const problem = await cutOff(url, text, wait_ms, this.target.ca_file);
    this.run.wire.keep(
      this.check,
      { method: 'PUT', url: url.href, headers, body },
      nothing(problem ?? 'the judge cut the connection on purpose before the answer'),
      sent,
      performance.now() - started,
    );
  }

  #note(intent: Intent, reply: Reply): void {
    const record = recordOf(reply);
    if (record?.['platform_payment_id'] === intent.platform_payment_id) {
      this.run.records.set(intent.platform_payment_id, record);
    }
  }

  async #poll(intent: Intent): Promise<Life> {
    const reads: { reply: Reply; record: PaymentFields }[] = [];
    const created = this.run.intents.find(
      (known) => known.intent.platform_payment_id === intent.platform_payment_id,
    );
    const deadline =
      (created?.at ?? this.run.now()) +
      this.target.terminal_window_seconds * 1_000 +
      WINDOW_SLACK_MS;
    let wait = this.run.pace.poll_first_ms;
    let missing = 0;
    for (;;) {
      const last = await this.read(intent);
      const record = recordOf(last);
      if (record !== undefined) {
        const read = { reply: last, record };
        reads.push(read);
        if (isTerminalWord(record['status'])) return { reads, end: read, last };
      }
      // A payment that is never there will not end; P56 tells that it is missing.
      const gone = last.status !== undefined && last.status >= 400 && last.status !== 429;
      missing = gone && reads.length === 0 ? missing + 1 : 0;
      if (this.run.now() + wait > deadline || missing >= MAX_MISSING) {
        return { reads, end: undefined, last };
      }
      await this.run.sleep(wait);
      wait = Math.min(wait * 1.4, this.run.pace.poll_longest_ms);
    }
  }
}

/** How far the amount due fell, and how far the payments that succeeded say it should. */
export interface Effect {
  readonly fell: number | undefined;
  readonly expected: number | undefined;
  /** The last read of the balance. */
  readonly reply?: Reply;
}

/** The record of a 2xx answer; undefined when the answer is no such thing. */
export function recordOf(reply: Reply): PaymentFields | undefined {
  return isSuccess(reply) ? asObject(reply.json) : undefined;
}

/** True for one of the three words that end a payment, as it stood on the wire. */
export function isTerminalWord(status: Json | undefined): boolean {
  return status === 'succeeded' || status === 'failed' || status === 'canceled';
}

/** What the judge puts (decision 2). */
export function instruction(
  intent: Intent,
  change: Readonly<Record<string, unknown>> = {},
): string {
  return JSON.stringify({
    amount_in_cents: intent.amount_in_cents,
    platform_batch_id: intent.platform_batch_id,
    platform_payment_id: intent.platform_payment_id,
    ...change,
  });
}

/** How long a Retry-After asks to wait; undefined when it does not say, or asks too long. */
function retryAfterMs(reply: Reply): number | undefined {
  const text = reply.headers['retry-after'];
  if (text === undefined || !/^\d{1,6}$/.test(text)) return undefined;
  const seconds = Number(text);
  return seconds <= LONGEST_RETRY_AFTER_SECONDS ? seconds * 1_000 : undefined;
}

/** The fields of two records that must agree; gives the names of those that do not. */
export function differences(
  one: PaymentFields,
  other: PaymentFields,
  fields: readonly string[],
): string[] {
  return fields.filter(
    (name) => JSON.stringify(one[name] ?? null) !== JSON.stringify(other[name] ?? null),
  );
}

/** `reply`'s record against the first one, in words: which fields differ and how. */
export function tellDifferences(
  first: PaymentFields,
  reply: Reply,
  fields: readonly string[],
): string {
  const record = recordOf(reply);
  if (record === undefined) return tell(reply);
  return differences(first, record, fields)
    .map((name) => `${name} was ${JSON.stringify(first[name])}, is ${JSON.stringify(record[name])}`)
    .join('; ');
}

/** A UUIDv7, as the platform mints them (decision 13). */
function newPaymentId(now: number): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(now, 0, 6);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x70, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  const hex = bytes.toString('hex');
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    hex.slice(12, 16),
    hex.slice(16, 20),
    hex.slice(20),
  ].join('-');
}

/** Writes `text`, waits, destroys the socket. Gives what went wrong before the cut, if anything. */
function cutOff(
  url: URL,
  text: string,
  wait_ms: number,
  ca_file: string | undefined,
): Promise<string | undefined> {
  return new Promise((resolve) => {
    const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
    const host = url.hostname.replace(/^\[|\]$/g, '');
    let socket: Socket;
    const write = (): void => {
      socket.write(text, () => setTimeout(() => end(undefined), wait_ms));
    };
    const end = (problem: string | undefined): void => {
      socket.destroy();
      resolve(problem);
    };
    socket =
      url.protocol === 'https:'
        ? connectTls(
            {
              host,
              port,
              servername: host,
              ...(ca_file === undefined ? {} : { ca: readFileSync(ca_file, 'utf8') }),
            },
            write,
          )
        : connectTcp({ host, port }, write);
    socket.setTimeout(REQUEST_TIMEOUT_MS, () => end('no connection in time'));
    socket.once('error', (error) => end(`the exchange broke (${errorCode(error)})`));
  });
}
