/**
 * The callers of the third set: 37 wrong ones, one fault each, and 6 right ones of unusual shape, written as those of
 * third-partners.ts.
 *
 * One file because it is one table: each peer, then the list of them.
 */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import {
  Caller,
  type Access,
  type Heard,
  type Meaning,
  type Payment,
  type PaymentRecord,
} from './caller.ts';
import {
  wrong,
  type WrongCaller,
  FailsOn404,
  FollowsRedirects,
  AmountNotCompared,
  SchemeBeforeKey,
  TokenByJson,
  ScopeWithComma,
  AccountFolded,
  RefusedTokenStays,
  NoContentType,
  FoldsStatus,
  CanceledStaysOpen,
  AmountInDollars,
  NoBackoff,
  NewBatchOnRetry,
} from './wrong-callers.ts';

type Order = Pick<Payment, 'biller_id' | 'account_id' | 'amount_in_cents'>;

// Ids

class NewIdAfterTimeout extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    if (answer === undefined) payment.platform_payment_id = randomUUID();
    return super.put(payment, answer);
  }
}

class BodyOfEachTry extends NewBatchOnRetry {}

class PaysAgainAfter500 extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    if (answer?.status === 500) payment.platform_payment_id = randomUUID();
    return super.put(payment, answer);
  }
}

class IdOfTheDay extends Caller {
  override newId(order: Order): string {
    const day = new Date().toISOString().slice(0, 10);
    const text = `${order.biller_id} ${order.account_id} ${String(order.amount_in_cents)} ${day}`;
    return createHash('sha256').update(text).digest('hex').slice(0, 32);
  }
}

export class NumbersInTheAccount extends Caller {
  readonly #last = new Map<string, number>();

  override newId({ account_id }: Order): string {
    const next = (this.#last.get(account_id) ?? 0) + 1;
    this.#last.set(account_id, next);
    return `pay-${String(next)}`;
  }
}

class FailedIdAgain extends Caller {
  override newId(order: Order): string {
    const failed = [...this.payments.values()].find(
      ({ account_id, status }) => account_id === order.account_id && status === 'failed',
    );
    return failed?.platform_payment_id ?? super.newId(order);
  }
}

class NewIdAfter401 extends Caller {
  override async call(method: 'PUT' | 'GET', payment: Payment): Promise<Heard | undefined> {
    const before = this.held;
    const answer = await super.call(method, payment);
    if (method === 'PUT' && before !== undefined && this.held !== before) {
      payment.platform_payment_id = randomUUID();
      return super.call(method, payment);
    }
    return answer;
  }
}

class IdStoredAfterThePut extends Caller {
  override restart(): void {
    super.restart();
    for (const payment of this.unfinished()) payment.platform_payment_id = randomUUID();
  }
}

class ForgetsTheOpen extends Caller {
  override unfinished(): readonly Payment[] {
    return [];
  }
}

// Polls

class ReadsOnEachSecond extends Caller {
  override async drive(payment: Payment): Promise<void> {
    await super.drive(payment);
    const timer = setInterval(() => {
      if (this.closed) clearInterval(timer);
      else void this.call('GET', payment);
    }, 1_000);
  }
}

class FivePolls extends Caller {
  override isEnded(payment: Payment): boolean {
    return payment.polls >= 5 || super.isEnded(payment);
  }
}

class TwoEnds extends CanceledStaysOpen {}

class PollsByPut extends Caller {
  override async call(_method: 'PUT' | 'GET', payment: Payment): Promise<Heard | undefined> {
    return super.call('PUT', payment);
  }
}

class PollsWithoutPause extends NoBackoff {}

class GoneIsFailed extends FailsOn404 {}

class RetryAfterUnread extends Caller {
  override retryAfterMs(): number {
    return 0;
  }

  override backoffMs(): number {
    return 50;
  }
}

class ErrorEndsPolling extends Caller {
  override poll(payment: Payment, answer: Heard | undefined): Meaning {
    if ((answer?.status ?? 0) >= 500) throw new Error('The response is not JSON');
    return super.poll(payment, answer);
  }
}

class OneAfterAnother extends Caller {
  #line: Promise<void> = Promise.resolve();

  override async drive(payment: Payment): Promise<void> {
    this.#line = this.#line.then(() => super.drive(payment)).catch(() => undefined);
    await this.#line;
  }
}

// Records

class UnknownIsFailed extends Caller {
  override take(payment: Payment, record: PaymentRecord): void {
    const known = ['processing', 'succeeded', 'failed', 'canceled'].includes(
      String(record['status']),
    );
    payment.status = known ? String(record['status']) : 'failed';
  }
}

class WordsOfAnyCase extends FoldsStatus {}

class AmountUnread extends AmountNotCompared {}

class IdUnread extends Caller {
  override isMine(payment: Payment, record: PaymentRecord): boolean {
    return record['amount_in_cents'] === payment.amount_in_cents;
  }
}

// Money and bodies

class DollarsInTheBody extends AmountInDollars {}

class LargeIsText extends Caller {
  override body(id: string, batch: string, cents: number): string {
    const text = super.body(id, batch, cents);
    return cents > 2_147_483_647 ? text.replace(/(\d+)}$/, '"$1"}') : text;
  }
}

class FeeAfter429 extends Caller {
  #busy = new Set<Payment>();

  override put(payment: Payment, answer: Heard | undefined): Meaning {
    if (answer?.status === 429) this.#busy.add(payment);
    return super.put(payment, answer);
  }

  override putBody(payment: Payment): string {
    const { platform_payment_id, platform_batch_id, amount_in_cents } = payment;
    const fee = this.#busy.has(payment) ? Math.round(amount_in_cents / 100) : 0;
    return this.body(platform_payment_id, platform_batch_id, amount_in_cents + fee);
  }
}

class FirstWithoutBatch extends Caller {
  #first = true;

  override body(id: string, batch: string, cents: number): string {
    if (!this.#first) return super.body(id, batch, cents);
    this.#first = false;
    return JSON.stringify({ platform_payment_id: id, amount_in_cents: cents });
  }
}

class OrderNumberAsId extends Caller {
  override body(id: string, batch: string, cents: number): string {
    return super.body(`order-${id.slice(0, 8)}`, batch, cents);
  }
}

class CustomerInTheBody extends Caller {
  override body(platform_payment_id: string, platform_batch_id: string, cents: number): string {
    const customer = { first_name: 'Ada', email: 'ada@example.com' };
    return JSON.stringify({
      platform_payment_id,
      platform_batch_id,
      customer,
      amount_in_cents: cents,
    });
  }
}

class TextPlain extends NoContentType {}

class SmallAccountIds extends AccountFolded {}

// Credentials

class SchemeBeforeTheKey extends SchemeBeforeKey {}

class KeyOnPutsOnly extends Caller {
  override async call(method: 'PUT' | 'GET', payment: Payment): Promise<Heard | undefined> {
    return method === 'PUT'
      ? super.call(method, payment)
      : this.send(this.partner + this.path(payment), {}).catch(() => undefined);
  }
}

class TokenAskedWithJson extends TokenByJson {}

class CommaBetweenScopes extends ScopeWithComma {}

class LifeInMilliseconds extends Caller {
  #fetched = 0;

  override async credential(refused?: string): Promise<{ readonly [name: string]: string }> {
    if (Date.now() - this.#fetched > 3.6) {
      this.held = undefined;
      this.#fetched = Date.now();
    }
    return super.credential(refused);
  }
}

class DeadTokenRepeated extends RefusedTokenStays {}

class RedirectWithKey extends FollowsRedirects {}

export const THIRD_CALLERS: readonly WrongCaller[] = [
  wrong(16, 'key', NewIdAfterTimeout, 'S4', 'after a timeout the PUT has a new id'),
  wrong(16, 'key', BodyOfEachTry, 'RU5', 'each retry has another batch'),
  wrong(15, 'key', PaysAgainAfter500, 'S4', 'after a 500 the payment is made again under a new id'),
  wrong(16, 'key', IdOfTheDay, 'PF2', 'equal payments of a day share an id'),
  wrong(16, 'key', NumbersInTheAccount, 'PF2', 'payments are numbered within each account'),
  wrong(16, 'key', FailedIdAgain, 'RU2', 'the id of a failed payment is used again'),
  wrong(16, 'oauth', NewIdAfter401, 'OA4', 'after a 401 the PUT has a new id'),
  wrong(16, 'key', IdStoredAfterThePut, 'PF2', 'after a restart open payments get new ids'),
  wrong(15, 'key', ForgetsTheOpen, 'S4', 'after a restart open payments are forgotten'),
  wrong(15, 'key', ReadsOnEachSecond, 'RU4', 'an ended payment is read every second'),
  wrong(15, 'key', FivePolls, 'S4', 'polling stops after five polls'),
  wrong(15, 'key', TwoEnds, 'RU4', 'canceled is not an end'),
  wrong(16, 'key', PollsByPut, 'B5', 'the status is asked by repeating the PUT'),
  wrong(15, 'key', PollsWithoutPause, 'RU4', 'polls follow without a pause'),
  wrong(15, 'key', GoneIsFailed, 'S4', 'a poll that gets 404 fails the payment'),
  wrong(15, 'key', RetryAfterUnread, 'LI1', 'Retry-After is ignored'),
  wrong(15, 'key', ErrorEndsPolling, 'S4', 'a 502 ends the polling'),
  wrong(15, 'key', OneAfterAnother, 'S4', 'one payment at a time'),
  wrong(15, 'key', UnknownIsFailed, 'PF4', 'an unknown status is a failure'),
  wrong(15, 'key', WordsOfAnyCase, 'PF4', 'SUCCEEDED is an end'),
  wrong(15, 'key', AmountUnread, 'PF6', 'the amount of a record is not compared'),
  wrong(15, 'key', IdUnread, 'PF2', 'the id of a record is not compared'),
  wrong(16, 'key', DollarsInTheBody, 'S5', 'the amount is in dollars'),
  wrong(16, 'key', LargeIsText, 'S5', 'large amounts are text'),
  wrong(16, 'key', FeeAfter429, 'PF6', 'a retry after 429 has a fee'),
  wrong(16, 'key', FirstWithoutBatch, 'PF3', 'the first payment has no batch'),
  wrong(16, 'key', OrderNumberAsId, 'B4', 'the body has another id than the path'),
  wrong(16, 'key', CustomerInTheBody, 'B4', "the body has the customer's name and email"),
  wrong(16, 'key', TextPlain, 'B4', 'the body is text/plain'),
  wrong(16, 'key', SmallAccountIds, 'B1', 'account ids are lowercased'),
  wrong(16, 'authorization', SchemeBeforeTheKey, 'KY2', 'Bearer stands before a static key'),
  wrong(16, 'key', KeyOnPutsOnly, 'KY1', 'polls carry no key'),
  wrong(16, 'oauth', TokenAskedWithJson, 'OA2', 'the token is requested with JSON'),
  wrong(16, 'oauth', CommaBetweenScopes, 'OA2', 'scopes are separated by a comma'),
  wrong(15, 'oauth', LifeInMilliseconds, 'OA3', 'expires_in is read as milliseconds'),
  wrong(15, 'oauth', DeadTokenRepeated, 'OA4', 'a refused token is never renewed'),
  wrong(15, 'key', RedirectWithKey, 'OA4', 'redirects are followed with the key'),
];

// Right peers

class BatchForEach extends Caller {
  override newId(): string {
    return `01J${randomBytes(12).toString('hex').toUpperCase().slice(0, 23)}`;
  }

  override batch(): string {
    return randomUUID();
  }
}

class EvenPace extends Caller {
  override backoffMs(): number {
    return 800;
  }
}

class PrettyBodies extends Caller {
  override body(platform_payment_id: string, platform_batch_id: string, cents: number): string {
    const body = { platform_batch_id, amount_in_cents: cents, platform_payment_id };
    return JSON.stringify(body, undefined, 2);
  }

  override putHeaders(): { readonly [name: string]: string } {
    return { 'content-type': 'application/json; charset=utf-8' };
  }
}

class LooksFirst extends Caller {
  override async drive(payment: Payment): Promise<void> {
    const account = this.path(payment).split('/payment/')[0] ?? '';
    const headers = await this.credential();
    for (const path of [account, `${account}/balance`]) {
      await this.send(this.partner + path, { headers }).catch(() => undefined);
    }
    await super.drive(payment);
  }
}

class TokenForEachScope extends Caller {
  readonly #others: Caller;

  constructor(partner: string, access: Access) {
    super(partner, access);
    // One client that only reads, with its own token.
    this.#others = new (class extends Caller {
      override tokenForm(): URLSearchParams {
        const form = super.tokenForm();
        form.set('scope', 'read');
        return form;
      }
    })(partner, access);
  }

  override async call(method: 'PUT' | 'GET', payment: Payment): Promise<Heard | undefined> {
    return method === 'PUT' ? super.call(method, payment) : this.#others.call(method, payment);
  }
}

class EncodesEverything extends Caller {
  override path(payment: Payment): string {
    return super
      .path(payment)
      .replace(/[^A-Za-z0-9/%]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
  }

  override putHeaders(): { readonly [name: string]: string } {
    return { ...super.putHeaders(), prefer: 'wait=10' };
  }
}

export const RIGHT_CALLERS: readonly WrongCaller[] = [
  wrong(0, 'key', BatchForEach, '', 'a batch for each payment, and ids as ULIDs'),
  wrong(0, 'key', EvenPace, '', 'polls every 800 ms'),
  wrong(0, 'key', PrettyBodies, '', 'pretty-printed bodies in another order, with a charset'),
  wrong(0, 'key', LooksFirst, '', 'reads account and balance before it pays'),
  wrong(0, 'oauth', TokenForEachScope, '', 'one token for reads and one for writes'),
  wrong(0, 'key', EncodesEverything, '', 'percent-encodes more than it must'),
];
