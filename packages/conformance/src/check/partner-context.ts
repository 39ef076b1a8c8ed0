/**
 * The context of a check of a partner's server: the operations, payments shared by several checks, the balances, and waiting for
 * the end of a payment.
 * A run has one PartnerRun (partner-run.ts); each check gets its own PartnerContext over it. Checks run in parallel, so that a server
 * that takes two seconds per call, or half a minute to post, costs that time only once. At most `Pace.at_once` requests are in progress; a
 * server that answers 429 gets fewer requests and more time.
 */
import { randomUUID, randomBytes } from 'node:crypto';
import { cutOff } from './cut-connection.ts';
import { Findings, Skipped, type FindingMore } from './findings.ts';
import { asObject, nothing, ON_PURPOSE, type Outgoing, type Reply } from './http.ts';
import type { HistoryEntry } from './history.ts';
import { own, shared, type Planned, type SharedName } from './planned-payments.ts';
import {
  holdsPayment,
  instruction,
  isTerminalWord,
  recordOf,
  type Intent,
  type PaymentFields,
} from './payment-fields.ts';
import { lifeOf, PartnerRun, USUAL_WINDOW_SECONDS, type Life } from './partner-run.ts';
import type { PartnerOperation, PartnerTarget } from './target.ts';

/** Minimum age of a payment that can show that payments are kept (P35, P54). */
const DAY_MS = 24 * 60 * 60 * 1_000;

/** Longest Retry-After that the judge waits out; a longer one counts as a refusal. */
const LONGEST_RETRY_AFTER_MS = 10_000;

/** Consecutive polls without a record, with no record before them, after which a payment counts as lost. */
const MAX_MISSING = 5;

/** How many times longer an answer may take when many were requested in parallel. */
const BURST_PATIENCE = 4;

/** Access tokens fetched for one request: a token may live for seconds only, and the request may be queued for longer. */
const MOST_RENEWALS = 3;

/** Delay after a 429 without Retry-After. */
const UNSAID_WAIT_MS = 1_000;

/** Number of polls of a payment whose end this run does not wait for. */
const POLLS_WITHOUT_WAITING = 2;

/** Extra time beyond the declared window for one poll to return. */
const WINDOW_SLACK_MS = 1_000;

/** A shared payment with its first answers. */
export interface Subject {
  readonly intent: Intent;
  readonly put: Reply;
  /** Read immediately after the PUT. */
  readonly read: Reply;
  /** Get Payment, read immediately; undefined when the partner does not offer it. */
  readonly other_read: Reply | undefined;
}

/** How a request authenticates: as declared, not at all, or with these headers. */
export type Proof = 'declared' | 'none' | Readonly<Record<string, string>>;

interface CallOptions {
  readonly proof?: Proof;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** True to send it immediately, regardless of other requests, and to return a 429 without retrying. */
  readonly burst?: boolean;
  /** True to send it over its own connection. */
  readonly fresh?: boolean;
}

/** The context of one check of a partner. */
export class PartnerContext extends Findings {
  readonly run: PartnerRun;
  readonly check: string;

  constructor(run: PartnerRun, check: string) {
    super(run.profile);
    this.run = run;
    this.check = check;
  }

  get target(): PartnerTarget {
    return this.run.target;
  }

  /** Sends a request unchanged, without adding a credential. */
  send(out: Outgoing): Promise<Reply> {
    return this.#send(out, async () => ({}));
  }

  /** `headers` are computed when the request is sent, because it may have been queued for long. */
  async #send(
    out: Outgoing,
    headers: () => Promise<Readonly<Record<string, string>>>,
  ): Promise<Reply> {
    const { run } = this;
    const send = async (): Promise<Reply> =>
      run.wire.send(this.check, {
        timeout_ms: run.pace.request_timeout_ms * (out.burst === true ? BURST_PATIENCE : 1),
        ...out,
        headers: { ...(await headers()), ...out.headers },
      });
    if (out.burst === true) return send();
    const reply = await run.throttle.send(send, run);
    const wait_ms = Math.min(retryAfterMs(reply) ?? UNSAID_WAIT_MS, LONGEST_RETRY_AFTER_MS);
    run.throttle.saw(reply.status, wait_ms, run.now());
    return reply;
  }

  /**
   * Sends many requests in parallel while no other check sends. A server that processes them one by one may take long for the
   * last, and no other check should have to wait behind them.
   */
  async burst(sends: readonly (() => Promise<Reply>)[]): Promise<readonly Reply[]> {
    await this.proof('declared');
    return this.run.throttle.alone(() => Promise.all(sends.map((send) => send())));
  }

  /** Starts this many requests, one every `gap_ms`, without waiting for the previous answer. */
  async paced(
    count: number,
    gap_ms: number,
    send: () => Promise<Reply>,
  ): Promise<readonly Reply[]> {
    const sent: Promise<Reply>[] = [];
    for (let place = 0; place < count; place += 1) {
      if (place > 0) await this.run.sleep(gap_ms);
      const reply = send();
      // When the run ends during a pause, nobody awaits the pending requests; avoid an unhandled rejection.
      reply.catch(() => undefined);
      sent.push(reply);
    }
    return Promise.all(sent);
  }

  /** Calls an operation. Waits out a 429 and renews an expired access token. */
  async call(
    operation: PartnerOperation,
    values: Readonly<Record<string, string>>,
    options: CallOptions = {},
  ): Promise<Reply> {
    const method = operation === 'put_account_payment' ? 'PUT' : 'GET';
    const url = this.run.url(operation, { biller_id: this.target.biller_id, ...values });
    const own = (options.proof ?? 'declared') === 'declared';
    let renewals = 0;
    for (;;) {
      let proof: Readonly<Record<string, string>> = {};
      const out: Outgoing = {
        method,
        url,
        ...(options.headers === undefined ? {} : { headers: options.headers }),
        ...(options.body === undefined ? {} : { body: options.body }),
        ...(options.burst === undefined ? {} : { burst: options.burst }),
        ...(options.fresh === undefined ? {} : { fresh: options.fresh }),
      };
      const reply = await this.#send(out, async () => {
        proof = await this.proof(options.proof ?? 'declared');
        return proof;
      });
      const oauth = this.target.authentication.method === 'oauth';
      if (reply.status === 401 && renewals < MOST_RENEWALS && own && oauth) {
        renewals += 1;
        await this.run.dropAccess(proof['authorization']);
        continue;
      }
      if (reply.status !== 429 || options.burst === true) return reply;
      if ((retryAfterMs(reply) ?? 0) > LONGEST_RETRY_AFTER_MS || this.run.throttle.refusesAlways)
        return reply;
    }
  }

  /** The headers that authenticate the caller. */
  async proof(proof: Proof): Promise<Readonly<Record<string, string>>> {
    if (proof === 'none') return {};
    if (proof !== 'declared') return proof;
    const { authentication } = this.target;
    if (authentication.method === 'key') return { [authentication.header]: authentication.key };
    const token = await this.run.access(this.check);
    return token === undefined ? {} : { authorization: `Bearer ${token}` };
  }

  /** A payment not requested yet, or one of this check alone by its offset: a new id and, unless given, a new batch. */
  intend(planned: Planned | number, platform_batch_id: string = randomUUID()): Intent {
    const { amount_in_cents, account_id } =
      typeof planned === 'number' ? own(this.target, planned) : planned;
    const platform_payment_id = newPaymentId(this.run.now());
    return { platform_payment_id, platform_batch_id, amount_in_cents, account_id };
  }

  /** Puts a new payment. Skips when it is not accepted: P20 reports that. */
  async accept(
    planned: Planned | number,
    options: CallOptions = {},
  ): Promise<{ readonly intent: Intent; readonly record: PaymentFields }> {
    const intent = this.intend(planned);
    const record = recordOf(await this.put(intent, options));
    this.given(record !== undefined, 'no new payment was accepted (see P20)');
    return { intent, record };
  }

  /** Raises a finding when a refused request made a payment all the same. */
  async notMade(
    intent: Intent,
    severity: 'must' | 'should' = 'must',
    expected = 'no payment under the refused id',
    more?: FindingMore,
  ): Promise<boolean> {
    const read = await this.read(intent);
    return this[severity](!holdsPayment(read), expected, read, more);
  }

  /** The payment of this check alone, the same one on each call; `offset` makes its amount distinct. */
  ownPayment(offset: number): Intent {
    return this.run.own(this.check, () => this.intend(offset));
  }

  /** Puts a payment. `change` replaces parts of the request, not of the intent. */
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

  /** Reads a payment only by its id (B3). */
  async readById(intent: Intent, options: CallOptions = {}): Promise<Reply> {
    const { platform_payment_id } = intent;
    const reply = await this.call('get_payment', { platform_payment_id }, options);
    const record = recordOf(reply);
    if (record !== undefined && holdsPayment(reply)) this.run.seen.push({ intent, reply, record });
    return reply;
  }

  readAccount(account_id?: string, options: CallOptions = {}): Promise<Reply> {
    return this.#readDue('get_account', account_id, options);
  }

  readBalance(account_id?: string, options: CallOptions = {}): Promise<Reply> {
    return this.#readDue('get_balance', account_id, options);
  }

  async #readDue(
    operation: 'get_account' | 'get_balance',
    account_id: string = this.target.accounts.payable,
    options: CallOptions,
  ): Promise<Reply> {
    const reply = await this.call(operation, { account_id }, options);
    this.run.balances.push(reply);
    return reply;
  }

  /** The amount due of an account, by Get Balance or else Get Account; undefined where none is shown. */
  async amountDue(
    account_id = this.target.accounts.payable,
  ): Promise<{ due: number | undefined; reply: Reply }> {
    const read =
      this.target.paths.get_balance === null ? undefined : await this.readBalance(account_id);
    const shown = asObject(read?.json)?.['amount_due_in_cents'];
    if (read !== undefined && typeof shown === 'number') return { due: shown, reply: read };
    const reply = await this.readAccount(account_id);
    const due = asObject(asObject(reply.json)?.['balance'])?.['amount_due_in_cents'];
    return { due: typeof due === 'number' ? due : undefined, reply };
  }

  /** The payment that most checks use: new, put once, read immediately. */
  async subject(): Promise<Subject> {
    const subject = await this.sharedPayment('first');
    this.given(subject !== undefined, 'the target declares no payable account');
    return subject;
  }

  /**
   * A payment shared by several checks, put by the first that needs it; undefined when the target declares no account or limit
   * for it.
   */
  async sharedPayment(name: SharedName): Promise<Subject | undefined> {
    const planned = shared(this.target, name);
    if (planned === undefined) return undefined;
    return this.run.once(`payment ${name}`, async () => {
      const intent = this.intend(planned);
      const put = await this.put(intent);
      const read = await this.read(intent);
      const other_read =
        this.target.paths.get_payment === null ? undefined : await this.readById(intent);
      return { intent, put, read, other_read };
    });
  }

  /** The subject's first record. Skips when its PUT was not answered with one: P20 reports that. */
  async accepted(): Promise<{ subject: Subject; record: PaymentFields }> {
    const subject = await this.subject();
    const record = recordOf(subject.put);
    this.given(record !== undefined, 'no new payment was accepted (see P20)');
    return { subject, record };
  }

  /** Polls a payment until it ends or the declared window is over; once for all checks that ask. */
  end(intent: Intent): Promise<Life> {
    return this.run.once(lifeOf(intent), () => this.#poll(intent));
  }

  /** Like `end`, but skips when the payment did not end in the window: P50 reports that. */
  async ended(intent: Intent): Promise<{ life: Life; reply: Reply; record: PaymentFields }> {
    const life = await this.end(intent);
    if (life.end === undefined) throw this.notEnded();
    return { life, ...life.end };
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

  /** The payments of earlier runs against this server that have at least this age. */
  oldEntries(age_ms = DAY_MS): readonly HistoryEntry[] {
    return this.run.history
      .entries()
      .filter(
        (entry) =>
          entry.base_url === this.target.base_url &&
          entry.biller_id === this.target.biller_id &&
          this.run.now() - Date.parse(entry.made_at) >= age_ms,
      );
  }

  /** Puts a payment of an earlier run again, byte for byte; it does not count as new spending. */
  repeatOld({ intent }: HistoryEntry): Promise<Reply> {
    return this.call(
      'put_account_payment',
      { account_id: intent.account_id, platform_payment_id: intent.platform_payment_id },
      { body: instruction(intent), headers: { 'content-type': 'application/json' } },
    );
  }

  /** Puts a payment and cuts the connection `wait_ms` after the request was sent. */
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
    const started = this.run.clock.elapsed();
    const sent = this.run.now();
    const problem = await cutOff(url, text, wait_ms, this.run.clock, this.target.ca_file);
    this.run.wire.keep(
      this.check,
      { method: 'PUT', url: url.href, headers, body },
      nothing(problem ?? ON_PURPOSE),
      sent,
      this.run.clock.elapsed() - started,
    );
  }

  #note(intent: Intent, reply: Reply): void {
    const record = recordOf(reply);
    if (record === undefined || !holdsPayment(reply)) return;
    this.run.seen.push({ intent, reply, record });
    if (record['platform_payment_id'] === intent.platform_payment_id) {
      this.run.records.set(intent.platform_payment_id, record);
    }
    if (reply.exchange.method === 'PUT') this.run.noteFirst(intent, reply, record);
  }

  async #poll(intent: Intent): Promise<Life> {
    const reads: { reply: Reply; record: PaymentFields }[] = [];
    const deadline =
      (this.run.asked(intent)?.at ?? this.run.now()) + this.run.window_ms + WINDOW_SLACK_MS;
    let polls = 0;
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
      polls += 1;
      if (this.run.endsLater && polls >= POLLS_WITHOUT_WAITING) {
        return { reads, end: undefined, last };
      }
      // A payment that is never found will not end; P56 reports it as missing.
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

/** The wait that a Retry-After asks for; undefined when it is not in seconds. */
function retryAfterMs(reply: Reply): number | undefined {
  const text = reply.headers['retry-after'];
  if (text === undefined || !/^\d{1,6}$/.test(text)) return undefined;
  return Number(text) * 1_000;
}

/** A UUIDv7, as minted by the platform (decision 13). */
function newPaymentId(now: number): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(now, 0, 6);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x70, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  const hex = bytes.toString('hex');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
