/**
 * The partners of the fourth set: 30 wrong ones, one fault each, written from the interface alone by somebody who had read neither the
 * checks nor the earlier sets. Many show only for an unusual value, under load, or after a restart.
 *
 * One file because it is one table: each peer, then the list of them.
 */
import {
  Partner,
  pause,
  Refusal,
  SETTLES_AFTER_MS,
  type Account,
  type Answer,
  type Call,
  type Grant,
  type Instruction,
  type Payment,
} from './partner.ts';
import { ReplayBeforeScope, SequenceFromOne, wrong, type WrongPartner } from './wrong-partners.ts';

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;

// Which payment an id names

class DedupeIgnoresCanceled extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    // SELECT ... WHERE platform_payment_id = $1 AND status <> 'canceled'
    const key = this.paymentKey(instruction.platform_payment_id);
    const existing = this.payments.get(key);
    if (existing?.status === 'canceled') {
      this.payments.delete(key);
      this.payments.set(`${key} canceled ${existing.payment_id}`, existing);
    }
    return super.put(instruction, call);
  }
}

class PhpLooseIds extends Partner {
  override paymentKey(platform_payment_id: string): string {
    // in_array() without the strict flag: '0e12' == '0', '007' == '7', '1e3' == '1000'.
    const isNumeric = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(platform_payment_id);
    return isNumeric ? String(Number(platform_payment_id)) : platform_payment_id;
  }
}

class DotIsAFormat extends Partner {
  override paymentKey(platform_payment_id: string): string {
    // The router takes what follows the last dot of a path for a format, as in report.json.
    return platform_payment_id.replace(/(?<=.)\.[^.]*$/, '');
  }
}

class LockPerAccount extends Partner {
  readonly #locks = new Map<string, Promise<unknown>>();

  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const known = this.payments.get(instruction.platform_payment_id);
    if (known !== undefined) return this.show(known, call);
    const account = this.accountKey(instruction.biller_id, instruction.account_id);
    const before = this.#locks.get(account) ?? Promise.resolve();
    const work = before.then(() => this.#underLock(instruction));
    this.#locks.set(
      account,
      work.catch(() => undefined),
    );
    return this.show(await work, call);
  }

  /** Looks again, in this account: a request for another account holds another lock. */
  async #underLock(instruction: Instruction): Promise<Payment> {
    const id = instruction.platform_payment_id;
    const first = this.payments.get(id);
    if (first?.account_id === instruction.account_id) return first;
    const own = this.payments.get(`${id} ${instruction.account_id}`);
    if (own !== undefined) return own;
    await pause(15); // The limits of the account are read.
    const other = this.payments.get(id);
    if (other === undefined) return this.insert(instruction);
    this.payments.delete(id);
    const payment = this.insert(instruction);
    this.payments.set(id, other);
    this.payments.set(`${id} ${instruction.account_id}`, payment);
    return payment;
  }

  override async getAccountPayment(
    biller_id: string,
    account_id: string,
    platform_payment_id: string,
    call: Call,
  ): Promise<unknown> {
    const own = this.payments.get(`${platform_payment_id} ${account_id}`);
    if (own !== undefined) return this.show(own, call);
    return super.getAccountPayment(biller_id, account_id, platform_payment_id, call);
  }
}

class DedupeInLruOfEight extends Partner {
  #recent: string[] = [];

  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const id = instruction.platform_payment_id;
    const existing = this.payments.get(id);
    if (existing !== undefined && !this.#recent.includes(id)) {
      // The table has no unique index; reading by id gives the newest row.
      this.payments.delete(id);
      this.payments.set(`${id} ${existing.payment_id}`, existing);
    }
    this.#recent = [id, ...this.#recent.filter((other) => other !== id)].slice(0, 8);
    return super.put(instruction, call);
  }
}

class SeenBeforeChecked extends Partner {
  readonly #seen = new Set<string>();

  override instruction(
    call: Call,
    biller_id: string,
    account_id: string,
    platform_payment_id: string,
  ): Instruction {
    const isSeen = this.#seen.has(platform_payment_id);
    this.#seen.add(platform_payment_id);
    if (isSeen && !this.payments.has(this.paymentKey(platform_payment_id))) {
      throw new Refusal(409, 'DUPLICATE_REQUEST', 'This request has been seen before');
    }
    return super.instruction(call, biller_id, account_id, platform_payment_id);
  }
}

class SequenceRestarts extends SequenceFromOne {}

// The repeated request

class ReplaySerializerDropsZone extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const wasThere = this.payments.get(this.paymentKey(instruction.platform_payment_id));
    const shown = await super.put(instruction, call);
    if (typeof wasThere?.posted_at !== 'string' || !isRecord(shown)) return shown;
    // The row is mapped by the older of two mappers, to a local date and time.
    return { ...shown, posted_at: wasThere.posted_at.replace(/Z$/, '') };
  }
}

class ReplayWithoutReason extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const shown = await super.put(instruction, call);
    if (!isRecord(shown)) return shown;
    // INSERT ... ON CONFLICT DO NOTHING, then a SELECT of the columns that the INSERT has.
    const { failure_reason: _unread, ...columns } = shown;
    return columns;
  }
}

class ReplayComparedByBytes extends Partner {
  readonly #bodies = new Map<string, string>();

  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const id = instruction.platform_payment_id;
    const body = this.#bodies.get(id);
    if (body !== undefined && body !== call.text) {
      throw new Refusal(409, 'IDEMPOTENCY_KEY_REUSED', 'The key came with another request');
    }
    this.#bodies.set(id, call.text);
    return super.put(instruction, call);
  }
}

class ReplayEnqueuesAgain extends Partner {
  readonly #more = new Map<string, number>();

  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const id = instruction.platform_payment_id;
    const existing = this.payments.get(this.paymentKey(id));
    // The upsert writes to the outbox each time; the worker does not look at the status.
    if (existing?.status === 'processing') this.#more.set(id, (this.#more.get(id) ?? 0) + 1);
    return super.put(instruction, call);
  }

  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    const times = this.#more.get(payment.platform_payment_id) ?? 0;
    for (let time = 0; time < times; time += 1) this.charge(payment);
  }
}

class RetryIsTheDuplicate extends Partner {
  readonly #twice = new WeakSet<Payment>();

  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const existing = this.payments.get(this.paymentKey(instruction.platform_payment_id));
    if (existing?.status === 'processing') this.#twice.add(existing);
    return super.put(instruction, call);
  }

  override settle(payment: Payment): void {
    if (this.#twice.has(payment)) this.fail(payment, 'A duplicate payment was detected.');
    else super.settle(payment);
  }
}

// Amounts

class LedgerTruncatesDollars extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    // The ledger keeps dollars; what it answers is written back: 29 becomes 28.999..., then 28.
    payment.amount_in_cents = Math.trunc((payment.amount_in_cents / 100) * 100);
  }
}

class ThousandsSeparatorOnPolls extends Partner {
  override async getAccountPayment(
    biller_id: string,
    account_id: string,
    platform_payment_id: string,
    call: Call,
  ): Promise<unknown> {
    const shown = await super.getAccountPayment(biller_id, account_id, platform_payment_id, call);
    if (!isRecord(shown)) return shown;
    // The view formats dollars for people: parseFloat reads 1,000.00 as 1.
    const dollars = (Number(shown['amount_in_cents']) / 100).toLocaleString('en-US', {
      minimumFractionDigits: 2,
    });
    return { ...shown, amount_in_cents: Math.round(Number.parseFloat(dollars) * 100) };
  }
}

// Times

class FirstTimestampUpdatesItself extends Partner {
  // A first TIMESTAMP column has ON UPDATE CURRENT_TIMESTAMP unless one says otherwise.
  override settle(payment: Payment): void {
    super.settle(payment);
    payment.initiated_at = this.now();
  }

  override cancel(platform_payment_id: string): boolean {
    const isDone = super.cancel(platform_payment_id);
    const payment = this.payments.get(platform_payment_id);
    if (isDone && payment !== undefined) payment.initiated_at = this.now();
    return isDone;
  }
}

class OffsetSignReversed extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    // The clock on the wall in New York, and getTimezoneOffset() with its own sign: +300.
    const wall = new Date(Date.now() - 5 * 3_600_000).toISOString();
    payment.posted_at = wall.replace(/Z$/, '+05:00');
  }
}

class ExpectedPostingDate extends Partner {
  override show(payment: Payment, call: Call): unknown {
    const shown = super.show(payment, call);
    if (payment.status !== 'processing' || payment.amount_in_cents < 1_000_000) return shown;
    // From ten thousand dollars on a payment goes with tomorrow's run, and the app shows when.
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString();
    return { ...(shown as Payment), posted_at: `${tomorrow.slice(0, 10)}T06:00:00Z` };
  }
}

class ProjectionRebuiltAtStart extends Partner {
  override restart(): void {
    super.restart();
    // The read model is built anew from the events; the handler stamps the time at which it runs.
    for (const payment of this.payments.values()) {
      if (payment.status === 'succeeded') payment.posted_at = this.now();
    }
  }
}

class LastOfTheRunHasNoPostingTime extends Partner {
  #ran_at = 0;

  override async tick(): Promise<void> {
    if (Date.now() - this.#ran_at < 100) return;
    this.#ran_at = Date.now();
    const due = [...this.payments.values()].filter((payment) => this.isDue(payment));
    for (const payment of due) this.settle(payment);
    // UPDATE ... SET posted_at for due[0 .. length - 1): a run of one takes another way.
    const last = due.at(-1);
    if (due.length > 1 && last?.status === 'succeeded') last.posted_at = null;
  }
}

// Ends that do not stay

class RunPostsFromASnapshot extends Partner {
  readonly #picked = new Set<Payment>();
  readonly #known = new WeakSet<Payment>();

  override async tick(): Promise<void> {
    for (const payment of this.payments.values()) {
      if (payment.status === 'processing' && !this.#known.has(payment)) {
        this.#known.add(payment);
        this.#picked.add(payment);
      }
    }
    // The run was put together when the payments came in; nobody looks at the status again.
    for (const payment of this.#picked) {
      if (this.age(payment) < SETTLES_AFTER_MS) continue;
      this.#picked.delete(payment);
      this.settle(payment);
    }
  }
}

class GivesUpThenPosts extends Partner {
  readonly #late = new Map<Payment, number>();
  #ran_at = 0;

  override async tick(): Promise<void> {
    if (Date.now() - this.#ran_at < 100) return;
    this.#ran_at = Date.now();
    const due = [...this.payments.values()].filter((payment) => this.isDue(payment));
    for (const payment of due.slice(0, 3)) this.settle(payment);
    // The ledger takes three postings at a time; the others wait for longer than the client does.
    for (const payment of due.slice(3)) {
      this.fail(payment, 'The ledger did not answer in time.');
      this.#late.set(payment, Date.now() + 400);
    }
    for (const [payment, at] of this.#late) {
      if (at > Date.now()) continue;
      this.#late.delete(payment);
      delete payment.failure_reason;
      this.settle(payment);
    }
  }
}

class StaleSecondReplica extends Partner {
  #copy = new Map<string, Payment>();
  #copied_at = 0;
  #reads = 0;

  override async tick(): Promise<void> {
    await super.tick();
    if (Date.now() - this.#copied_at < 600) return;
    this.#copied_at = Date.now();
    this.#copy = new Map([...this.payments].map(([key, payment]) => [key, { ...payment }]));
  }

  override async find(platform_payment_id: string, call: Call): Promise<Payment | undefined> {
    const payment = await super.find(platform_payment_id, call);
    if (call.method !== 'GET' || payment === undefined) return payment;
    this.#reads += 1;
    if (this.#reads % 2 === 1) return payment;
    return this.#copy.get(this.paymentKey(platform_payment_id)) ?? payment;
  }
}

// What is kept and what is answered

class BatchOnTheAccountRow extends Partner {
  readonly #batches = new Map<string, string>();

  override insert(instruction: Instruction): Payment {
    const isNew = !this.payments.has(this.paymentKey(instruction.platform_payment_id));
    const key = this.accountKey(instruction.biller_id, instruction.account_id);
    if (isNew) this.#batches.set(key, instruction.platform_batch_id);
    return super.insert(instruction);
  }

  override show(payment: Payment, _call: Call): unknown {
    const key = this.accountKey(payment.biller_id, payment.account_id);
    return { ...payment, platform_batch_id: this.#batches.get(key) ?? payment.platform_batch_id };
  }
}

class BatchIdEscapedForHtml extends Partner {
  override instruction(
    call: Call,
    biller_id: string,
    account_id: string,
    platform_payment_id: string,
  ): Instruction {
    const instruction = super.instruction(call, biller_id, account_id, platform_payment_id);
    // A filter of the framework cleans every text that comes in.
    const platform_batch_id = instruction.platform_batch_id
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;')
      .replaceAll('"', '&quot;')
      .replaceAll("'", '&#39;');
    return { ...instruction, platform_batch_id };
  }
}

class AcceptedUnderLoad extends Partner {
  override async answer(call: Call): Promise<Answer> {
    const answer = await super.answer(call);
    if (call.method !== 'PUT' || answer.status !== 200) return answer;
    const open = [...this.payments.values()].filter(({ status }) => status === 'processing');
    // With more than four waiting, the queue's answer goes out instead of the handler's.
    return open.length > 4 ? { ...answer, status: 202 } : answer;
  }
}

class LoaderOutOfOrder extends Partner {
  #asked: string[] = [];
  #rows: Promise<readonly (Payment | undefined)[]> | undefined;

  override async find(platform_payment_id: string, call: Call): Promise<Payment | undefined> {
    if (call.method !== 'GET') return super.find(platform_payment_id, call);
    if (!this.#asked.includes(platform_payment_id)) this.#asked.push(platform_payment_id);
    const place = this.#asked.indexOf(platform_payment_id);
    this.#rows ??= this.#load();
    return (await this.#rows)[place];
  }

  /** SELECT ... WHERE id IN (...): the rows come in the order of the table. */
  async #load(): Promise<readonly Payment[]> {
    await pause(8);
    const asked = new Set(this.#asked.map((id) => this.paymentKey(id)));
    this.#asked = [];
    this.#rows = undefined;
    return [...this.payments].filter(([key]) => asked.has(key)).map(([, payment]) => payment);
  }
}

// Access

class ReplayNeedsNoWrite extends ReplayBeforeScope {}

class TokenCachedPerClient extends Partner {
  #held: string | undefined;

  override issue(scopes: readonly string[]): string {
    // One client, one token, whatever scope is asked for; the answer repeats what was asked.
    if (this.#held === undefined || this.grantOfToken(this.#held) === undefined) {
      this.#held = super.issue(scopes);
    }
    return this.#held;
  }
}

class KeyCacheHoldsRefusals extends Partner {
  readonly #cache = new Map<string, Grant | undefined>();

  override grantOfKey(given: string | string[] | undefined): Grant | undefined {
    const key = String(given);
    if (given !== undefined && this.#cache.has(key)) {
      return { scopes: ['read', 'write'], ends_at: Infinity };
    }
    const grant = super.grantOfKey(given);
    this.#cache.set(key, grant);
    return grant;
  }
}

class FailsOpenUnderLoad extends Partner {
  #asking = 0;

  override async answer(call: Call): Promise<Answer> {
    if (call.path[0] === 'oauth' || call.path[0] === 'operator') return super.answer(call);
    this.#asking += 1;
    try {
      await pause(15); // The token is looked up at the identity service.
      return await super.answer(call);
    } finally {
      this.#asking -= 1;
    }
  }

  override authenticate(call: Call): Grant {
    // The pool of connections has six places; an error of the pool is logged and passed over.
    if (this.#asking > 6 && call.headers.authorization !== undefined) {
      return { scopes: ['read', 'write'], ends_at: Infinity };
    }
    return super.authenticate(call);
  }
}

export const FOURTH_PARTNERS: readonly WrongPartner[] = [
  wrong(
    8,
    'key',
    DedupeIgnoresCanceled,
    'RU5 RU2',
    'a PUT of an id whose payment was canceled makes a second payment under that id',
  ),
  wrong(
    8,
    'key',
    PhpLooseIds,
    'PF2 ID1',
    'ids that look like numbers are compared as numbers: 007 and 7, 1e3 and 1000 are one payment',
  ),
  wrong(
    8,
    'key',
    DotIsAFormat,
    'PF2 ID1 B4',
    'the router cuts the id at its last dot: pay.1 and pay.2 are one payment',
  ),
  wrong(
    7,
    'key',
    LockPerAccount,
    'PF2',
    'the same id sent at the same time to two accounts makes two payments; one after the other it does not',
  ),
  wrong(
    8,
    'oauth',
    DedupeInLruOfEight,
    'PF2 RU5',
    'a repeat is known among the last eight ids only; after eight other payments it makes a second payment',
  ),
  wrong(
    8,
    'key',
    SeenBeforeChecked,
    'ST1 ID1',
    'a PUT that was refused as invalid burns its id: the corrected PUT gets 409 though no payment exists',
  ),
  wrong(
    9,
    'oauth',
    SequenceRestarts,
    'PF1',
    'after a restart payment_id counts from 1 again: two payments have one payment_id',
  ),
  wrong(
    2,
    'key',
    ReplaySerializerDropsZone,
    'PF8',
    'posted_at has no timezone in the answer to a PUT that repeats a succeeded payment; elsewhere it has',
  ),
  wrong(
    2,
    'oauth',
    ReplayWithoutReason,
    'PF5 RU5',
    'the answer to a PUT that repeats a failed payment has no failure_reason; the poll has it',
  ),
  wrong(
    8,
    'key',
    ReplayComparedByBytes,
    'RU5 B4',
    'a repeat whose JSON has other spaces or another order of keys is refused with 409',
  ),
  wrong(
    5,
    'key',
    ReplayEnqueuesAgain,
    'RU5 ID1',
    'each repeat while processing lowers the balance once more when the payment posts; the record is one',
  ),
  wrong(
    8,
    'oauth',
    RetryIsTheDuplicate,
    'FR1 RU5',
    'a repeat while processing makes the payment fail as a duplicate of itself',
  ),
  wrong(
    3,
    'key',
    LedgerTruncatesDollars,
    'PF6',
    'when the payment posts, the amount becomes trunc(cents / 100 * 100): 29 turns into 28, 100 stays',
  ),
  wrong(
    3,
    'key',
    ThousandsSeparatorOnPolls,
    'PF6 B5',
    'from 100000 cents on, Get Account Payment alone reads 1,000.00 as 1 and answers 100',
  ),
  wrong(
    10,
    'oauth',
    FirstTimestampUpdatesItself,
    'PF7',
    'initiated_at moves to the time of the last change when the payment posts, fails or is canceled',
  ),
  wrong(
    10,
    'key',
    OffsetSignReversed,
    'PF8',
    'posted_at is New York time with +05:00: ten hours before the payment was accepted',
  ),
  wrong(
    10,
    'oauth',
    ExpectedPostingDate,
    'PF8 ST1',
    'from 1000000 cents on, posted_at is the expected day while the payment is processing',
  ),
  wrong(
    9,
    'key',
    ProjectionRebuiltAtStart,
    'PF8 RU2',
    'a restart gives every succeeded payment the time of the restart as posted_at',
  ),
  wrong(
    10,
    'key',
    LastOfTheRunHasNoPostingTime,
    'PF8 ST2',
    'when two or more payments post in one run, the last is succeeded with posted_at null',
  ),
  wrong(
    4,
    'key',
    RunPostsFromASnapshot,
    'RU2 ST4',
    'a payment that the biller cancels while it waits is posted all the same: canceled turns into succeeded',
  ),
  wrong(
    4,
    'oauth',
    GivesUpThenPosts,
    'RU2',
    'with more than three payments due at once the others become failed, and succeeded 400 ms later',
  ),
  wrong(
    7,
    'key',
    StaleSecondReplica,
    'RU2 RU3 B5',
    'every second read comes from a copy up to 600 ms old: succeeded, then processing again',
  ),
  wrong(
    2,
    'oauth',
    BatchOnTheAccountRow,
    'PF3',
    'the batch is kept with the account: a second payment of another batch changes the batch of the first',
  ),
  wrong(
    8,
    'key',
    BatchIdEscapedForHtml,
    'PF3',
    'a batch id with &, <, >, " or \' is kept and answered with HTML entities',
  ),
  wrong(
    7,
    'key',
    AcceptedUnderLoad,
    'B4',
    'with more than four payments processing a PUT is answered 202',
  ),
  wrong(
    7,
    'key',
    LoaderOutOfOrder,
    'B5 B3',
    'reads at the same time are loaded together and answered in the order of the table: two polls can swap',
  ),
  wrong(
    6,
    'oauth',
    ReplayNeedsNoWrite,
    'SC1',
    'a token of scope read alone may PUT an id that is known; a new id is refused',
  ),
  wrong(
    6,
    'oauth',
    TokenCachedPerClient,
    'SC1 OA3',
    'the first token is given out again for any scope: a token answered with scope read can write, or one with write cannot',
  ),
  wrong(
    6,
    'key',
    KeyCacheHoldsRefusals,
    'S3 KY1',
    'a wrong key is refused once; the same wrong key is let in from its second request on',
  ),
  wrong(
    6,
    'oauth',
    FailsOpenUnderLoad,
    'S3 OA4',
    'with more than six requests open at once any Authorization header is let in',
  ),
];
