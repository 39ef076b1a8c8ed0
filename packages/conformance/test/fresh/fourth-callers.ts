/**
 * The callers of the fourth set: 25 wrong ones, one fault each, written from the interface alone by somebody who had read neither the
 * checks nor the earlier sets. Many show only for an unusual value, under load, or after a restart.
 *
 * One file because it is one table: each peer, then the list of them.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { Caller, type Heard, type Meaning, type Payment, type PaymentRecord } from './caller.ts';
import { wrong, type WrongCaller } from './wrong-callers.ts';
import { NumbersInTheAccount } from './third-callers.ts';

type Order = Pick<Payment, 'biller_id' | 'account_id' | 'amount_in_cents'>;
type Headers = { readonly [name: string]: string };

// Ids

class CounterRestarts extends Caller {
  #count = 0;

  override newId(_order: Order): string {
    this.#count += 1;
    return `${new Date().toISOString().slice(0, 10)}-${String(this.#count).padStart(6, '0')}`;
  }

  override restart(): void {
    super.restart();
    this.#count = 0;
  }
}

class CountsPerAccount extends NumbersInTheAccount {}

class DatabaseUppercasesTheId extends Caller {
  readonly #read = new WeakSet<Payment>();

  override resume(): void {
    // A uniqueidentifier comes out of the table in capitals.
    for (const payment of this.unfinished()) this.#read.add(payment);
    super.resume();
  }

  override path(payment: Payment): string {
    const path = super.path(payment);
    if (!this.#read.has(payment)) return path;
    const id = payment.platform_payment_id;
    return path.slice(0, path.length - id.length) + id.toUpperCase();
  }

  override putBody(payment: Payment): string {
    const id = payment.platform_payment_id;
    const body = super.putBody(payment);
    return this.#read.has(payment) ? body.replace(id, id.toUpperCase()) : body;
  }

  override isMine(payment: Payment, record: PaymentRecord): boolean {
    const id = record['platform_payment_id'];
    if (!this.#read.has(payment) || typeof id !== 'string') return super.isMine(payment, record);
    return super.isMine(payment, { ...record, platform_payment_id: id.toLowerCase() });
  }
}

/** Goes on under another id; what it knows the payment by inside stays as it was. */
abstract class Renames extends Caller {
  readonly #names = new WeakMap<Payment, string>();

  rename(payment: Payment): void {
    this.#names.set(payment, this.newId(payment));
  }

  override path(payment: Payment): string {
    const name = this.#names.get(payment);
    return super.path(name === undefined ? payment : { ...payment, platform_payment_id: name });
  }

  override putBody(payment: Payment): string {
    const name = this.#names.get(payment);
    if (name === undefined) return super.putBody(payment);
    return this.body(name, payment.platform_batch_id, payment.amount_in_cents);
  }

  override isMine(payment: Payment, record: PaymentRecord): boolean {
    const name = this.#names.get(payment);
    if (name === undefined) return super.isMine(payment, record);
    return super.isMine({ ...payment, platform_payment_id: name }, record);
  }
}

class NewIdAfterBrokenBody extends Renames {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = super.put(payment, answer);
    // What the partner said cannot be read: start again from the top.
    if (answer?.status === 200 && 'again_ms' in meaning) this.rename(payment);
    return meaning;
  }
}

class ResumesUnderANewId extends Renames {
  override resume(): void {
    // Whatever had no answer yet was never sent, or so the author thought.
    for (const payment of this.unfinished()) {
      if (payment.payment_id === undefined) this.rename(payment);
    }
    super.resume();
  }
}

// What a PUT says

class RetryWithoutBatch extends Caller {
  override putBody(payment: Payment): string {
    const body = super.putBody(payment);
    if (payment.puts <= 1) return body;
    // The retry is built from the row of the payment, which has no column for the batch.
    const { platform_batch_id: _unkept, ...row } = JSON.parse(body) as PaymentRecord;
    return JSON.stringify(row);
  }
}

class BatchOnlyWhenShared extends Caller {
  override putBody(payment: Payment): string {
    const body = super.putBody(payment);
    const [first] = this.payments.values();
    // One payment is no batch; the second one opens it.
    if (payment !== first) return body;
    const { platform_batch_id: _single, ...rest } = JSON.parse(body) as PaymentRecord;
    return JSON.stringify(rest);
  }
}

class ResumeRebuildsFromDollars extends Caller {
  readonly #read = new WeakSet<Payment>();

  override resume(): void {
    for (const payment of this.unfinished()) this.#read.add(payment);
    super.resume();
  }

  override putBody(payment: Payment): string {
    if (!this.#read.has(payment)) return super.putBody(payment);
    // The table has dollars: 29 comes back as 28.999999999999996.
    const cents = (payment.amount_in_cents / 100) * 100;
    return this.body(payment.platform_payment_id, payment.platform_batch_id, cents);
  }
}

class SharedBodyBuffer extends Caller {
  #buffer = '';

  override body(id: string, batch: string, amount_in_cents: number): string {
    this.#buffer = super.body(id, batch, amount_in_cents);
    return this.#buffer;
  }

  override putBody(payment: Payment): string {
    // The id in the body is set last, so that it agrees with the path; the amount is the buffer's.
    const body = JSON.parse(this.#buffer) as PaymentRecord;
    return JSON.stringify({ ...body, platform_payment_id: payment.platform_payment_id });
  }

  override async credential(refused?: string): Promise<Headers> {
    const credential = await super.credential(refused);
    await pause(20); // The vault takes its time.
    return credential;
  }
}

class SpaceIsPlus extends Caller {
  override path(payment: Payment): string {
    // URLSearchParams and urlencode() write for a query, not for a path.
    return super.path(payment).replaceAll('%20', '+');
  }
}

// Credentials

class PollerKeepsItsToken extends Caller {
  readonly #first = new WeakMap<Payment, Headers>();

  override async call(method: 'PUT' | 'GET', payment: Payment): Promise<Heard | undefined> {
    const headers = this.#first.get(payment);
    if (method === 'PUT' || headers === undefined) {
      const heard = await super.call(method, payment);
      if (heard?.status === 200) this.#first.set(payment, await this.credential());
      return heard;
    }
    try {
      // The poller got its headers when it was made.
      return await this.send(this.partner + this.path(payment), { method, headers });
    } catch {
      return undefined;
    }
  }
}

class RenewsForReadOnly extends Caller {
  #fetched = 0;

  override tokenForm(): URLSearchParams {
    const form = super.tokenForm();
    this.#fetched += 1;
    // Renewal was written for the poller.
    if (this.#fetched > 1) form.set('scope', 'read');
    return form;
  }

  override restart(): void {
    super.restart();
    this.#fetched = 0;
  }
}

class SecretNotEncoded extends Caller {
  override tokenRequest(): RequestInit {
    const fields = [...this.tokenForm()].map(([name, value]) => `${name}=${value}`);
    return {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: fields.join('&').replace('read write', 'read%20write'),
    };
  }
}

class PollsWithScheme extends Caller {
  override async send(url: string, init: RequestInit): Promise<Heard> {
    const headers = { ...(init.headers as Headers) };
    const given = headers['authorization'];
    // The poller uses the HTTP client of another team, which puts the word in front.
    if (init.method === 'GET' && given !== undefined && !given.startsWith('Bearer ')) {
      headers['authorization'] = `Bearer ${given}`;
    }
    return super.send(url, { ...init, headers });
  }
}

class DeferredPollHasNoKey extends Caller {
  readonly #deferred = new WeakSet<Payment>();
  #bare = false;

  override async call(method: 'PUT' | 'GET', payment: Payment): Promise<Heard | undefined> {
    this.#bare = method === 'GET' && this.#deferred.has(payment);
    const heard = await super.call(method, payment);
    // The queue of late requests keeps a URL, not its headers.
    if (heard?.headers.has('retry-after') === true) this.#deferred.add(payment);
    else this.#deferred.delete(payment);
    return heard;
  }

  override async credential(refused?: string): Promise<Headers> {
    const isBare = this.#bare;
    this.#bare = false;
    return isBare ? {} : super.credential(refused);
  }
}

// Until when it asks

class ForgetsAcceptedOnRestart extends Caller {
  override unfinished(): readonly Payment[] {
    // What has the partner's id is in the partner's hands.
    return super.unfinished().filter(({ payment_id }) => payment_id === undefined);
  }
}

class ConfirmsOnce extends Caller {
  override poll(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = super.poll(payment, answer);
    if (this.isEnded(payment)) void this.#confirm(payment);
    return meaning;
  }

  /** Looks once more, a moment later, for the audit log. */
  async #confirm(payment: Payment): Promise<void> {
    await pause(400);
    if (!this.closed) await this.call('GET', payment);
  }
}

class HedgedPolls extends Caller {
  override async call(method: 'PUT' | 'GET', payment: Payment): Promise<Heard | undefined> {
    const first = super.call(method, payment);
    if (method === 'PUT') return first;
    const early = await Promise.race([first, pause(300, 'late' as const)]);
    if (early !== 'late') return early;
    // The second answer is taken; the first, when it comes, is written over it.
    void first.then((heard) => this.#write(payment, heard));
    return super.call(method, payment);
  }

  #write(payment: Payment, heard: Heard | undefined): void {
    const meaning = this.meaning(payment, heard);
    if (this.closed || !('record' in meaning)) return;
    const wasEnded = this.isEnded(payment);
    payment.status = String(meaning.record['status']);
    if (wasEnded && !this.isEnded(payment)) void this.drive(payment).catch(() => undefined);
  }
}

class OneTimerForAll extends Caller {
  #generation = 0;
  readonly #of = new WeakMap<Payment, number>();

  override async call(method: 'PUT' | 'GET', payment: Payment): Promise<Heard | undefined> {
    const started = this.#of.get(payment) ?? this.#generation;
    this.#of.set(payment, started);
    // clearInterval(this.timer): the one that is held is for every payment begun since the last end.
    if (method === 'GET') {
      while (started !== this.#generation && !this.closed) await pause(100);
    }
    return super.call(method, payment);
  }

  override take(payment: Payment, record: PaymentRecord): void {
    super.take(payment, record);
    if (this.isEnded(payment)) this.#generation += 1;
  }

  override resume(): void {
    for (const payment of this.unfinished()) this.#of.delete(payment);
    super.resume();
  }
}

// What an answer says

class RetriedPutIsDone extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = super.put(payment, answer);
    // 200 to the second PUT: so the first one went through.
    if ('record' in meaning && payment.puts > 1) payment.status = 'succeeded';
    return meaning;
  }
}

class BatchFailsTogether extends Caller {
  override take(payment: Payment, record: PaymentRecord): void {
    super.take(payment, record);
    if (payment.status !== 'failed') return;
    for (const other of this.payments.values()) {
      const isSame = other.platform_batch_id === payment.platform_batch_id;
      if (isSame && !this.isEnded(other)) other.status = 'failed';
    }
  }
}

class FirstStatusInTheText extends Caller {
  override poll(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = this.meaning(payment, answer);
    if (!('record' in meaning)) return meaning;
    // A quick look into the text, to spare the parser.
    const status = /"status"\s*:\s*"([a-z]+)"/.exec(answer?.text ?? '')?.[1];
    this.take(payment, { ...meaning.record, status });
    return meaning;
  }
}

class DatesOnlyInZ extends Caller {
  override take(payment: Payment, record: PaymentRecord): void {
    const shape = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z$/;
    const isRead = ['initiated_at', 'posted_at'].every((name) => {
      const text = record[name];
      return text === null || text === undefined || (typeof text === 'string' && shape.test(text));
    });
    if (isRead) super.take(payment, record);
  }
}

class EveryEndIsPosted extends Caller {
  override take(payment: Payment, record: PaymentRecord): void {
    // An end without a posting time is taken for one that is not written yet.
    if (typeof record['posted_at'] === 'string') super.take(payment, record);
  }
}

class PaymentIdColumnOf36 extends Caller {
  override isMine(payment: Payment, record: PaymentRecord): boolean {
    const kept = payment.payment_id;
    // VARCHAR(36), since that is what an id is.
    if (typeof kept === 'string') payment.payment_id = kept.slice(0, 36);
    return super.isMine(payment, record);
  }
}

export const FOURTH_CALLERS: readonly WrongCaller[] = [
  wrong(
    16,
    'key',
    CounterRestarts,
    'PF2',
    'ids are the day and a counter of the process: after a restart an id of the same day comes again',
  ),
  wrong(
    16,
    'oauth',
    CountsPerAccount,
    'PF2',
    'ids count per account: the first payments of two accounts have one id',
  ),
  wrong(
    16,
    'key',
    DatabaseUppercasesTheId,
    'PF2 S4',
    'after a restart the id of an open payment is sent in capitals: another id to the partner',
  ),
  wrong(
    15,
    'oauth',
    NewIdAfterBrokenBody,
    'S4 PF2',
    'a PUT that was answered 200 with a body that cannot be read is sent again under a new id',
  ),
  wrong(
    16,
    'key',
    ResumesUnderANewId,
    'S4 PF2',
    'after a restart a payment whose PUT had no answer is sent under a new id',
  ),
  wrong(
    16,
    'oauth',
    RetryWithoutBatch,
    'PF3',
    'the second PUT of a payment has no platform_batch_id',
  ),
  wrong(
    16,
    'key',
    BatchOnlyWhenShared,
    'PF3',
    'the first payment of all has no platform_batch_id, later ones have it',
  ),
  wrong(
    16,
    'key',
    ResumeRebuildsFromDollars,
    'S5 PF6',
    'after a restart the amount of a PUT is cents / 100 * 100, unrounded: 29 is 28.999999999999996, 100 is 100',
  ),
  wrong(
    16,
    'oauth',
    SharedBodyBuffer,
    'PF6 S4',
    'of two orders at the same time both are sent with the amount of the second',
  ),
  wrong(
    16,
    'key',
    SpaceIsPlus,
    'B1 B4 TR4',
    'a space in a biller or account id is sent as + in the path',
  ),
  wrong(
    15,
    'oauth',
    PollerKeepsItsToken,
    'OA3 OA4 S4',
    'polls use the token of the PUT for ever: once it is refused, each poll is refused and no end is seen',
  ),
  wrong(
    16,
    'oauth',
    RenewsForReadOnly,
    'SC1 OA2',
    'every token but the first is asked for with scope read alone, and is then used for PUT',
  ),
  wrong(
    16,
    'oauth',
    SecretNotEncoded,
    'OA2',
    'client_id and client_secret go into the form as they are: + & % = in a secret change it',
  ),
  wrong(
    16,
    'authorization',
    PollsWithScheme,
    'KY2',
    'PUT sends the key alone, polls send Bearer and the key',
  ),
  wrong(
    16,
    'key',
    DeferredPollHasNoKey,
    'KY1',
    'the poll after an answer with Retry-After goes out without the key',
  ),
  wrong(
    15,
    'oauth',
    ForgetsAcceptedOnRestart,
    'S4',
    'after a restart payments that the partner had accepted are not polled any more',
  ),
  wrong(15, 'key', ConfirmsOnce, 'RU4', 'one more poll 400 ms after the end'),
  wrong(
    15,
    'key',
    HedgedPolls,
    'RU2 RU4',
    'a poll that takes more than 300 ms is asked again; the older answer, when it comes, replaces the newer and reopens the payment',
  ),
  wrong(
    15,
    'oauth',
    OneTimerForAll,
    'S4',
    'when one payment ends, the polls of all that were open stop',
  ),
  wrong(
    15,
    'key',
    RetriedPutIsDone,
    'RU5 S4',
    'a 200 to a PUT that was sent again is taken for succeeded while the record says processing',
  ),
  wrong(
    15,
    'oauth',
    BatchFailsTogether,
    'PF3 S4',
    'one failed payment makes all open payments of its batch failed',
  ),
  wrong(
    15,
    'key',
    FirstStatusInTheText,
    'B5 PF4',
    'the first "status" in the text counts, be it of a nested object that comes before',
  ),
  wrong(
    15,
    'oauth',
    DatesOnlyInZ,
    'PF7 PF8 RU4',
    'a record with times as +00:00 or -05:00, or with more than six digits, is passed over: polling never stops',
  ),
  wrong(
    15,
    'key',
    EveryEndIsPosted,
    'PF8 RU4',
    'failed and canceled without posted_at do not count as ends: polling never stops',
  ),
  wrong(
    15,
    'oauth',
    PaymentIdColumnOf36,
    'PF1 RU4',
    'a payment_id of more than 36 characters is cut, then no poll agrees with it: polling never stops',
  ),
];
