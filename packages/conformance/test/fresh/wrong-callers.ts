/**
 * Wrong callers, one fault each, written from the interface alone by somebody who had not read a
 * single check. Class 15 misreads responses, class 16 sends wrong requests.
 */
import { createHash, randomUUID } from 'node:crypto';
import {
  Caller,
  type Access,
  type Heard,
  type Meaning,
  type Payment,
  type PaymentRecord,
} from './caller.ts';

export interface WrongCaller {
  readonly name: string;
  readonly defect: number;
  readonly breaks: string;
  readonly how: string;
  /** How it authenticates; a static key has two forms. */
  readonly access: 'key' | 'oauth' | 'authorization';
  readonly make: new (partner: string, access: Access) => Caller;
}

// 15. Misread responses

export class FailsOn404 extends Caller {
  override poll(payment: Payment, answer: Heard | undefined): Meaning {
    if (answer?.status === 404) payment.status = 'failed';
    return super.poll(payment, answer);
  }
}

class FailsOn409 extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    if (answer?.status === 409) payment.status = 'failed';
    return super.put(payment, answer);
  }
}

class FailsOnAny4xx extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    // 408, 425 and 429 are 4xx too.
    if (answer && answer.status >= 400 && answer.status < 500) payment.status = 'failed';
    return super.put(payment, answer);
  }
}

class GivesUpAfterFive extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = super.put(payment, answer);
    if ('again_ms' in meaning && payment.puts >= 5) payment.status = 'failed';
    return meaning;
  }
}

class FailsOnTimeout extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    if (answer === undefined) payment.status = 'failed';
    return super.put(payment, answer);
  }
}

class FailsOnUnparsable extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = super.put(payment, answer);
    if (answer?.status === 200 && 'again_ms' in meaning) payment.status = 'failed';
    return meaning;
  }
}

export class FollowsRedirects extends Caller {
  override redirects(): 'manual' | 'follow' {
    return 'follow';
  }
}

export class FoldsStatus extends Caller {
  override take(payment: Payment, record: PaymentRecord): void {
    const words = { ...record, status: String(record['status']).trim().toLowerCase() };
    super.take(payment, words);
  }
}

class NotProcessingIsSuccess extends Caller {
  override take(payment: Payment, record: PaymentRecord): void {
    const status = String(record['status']);
    if (status === 'failed' || status === 'canceled') payment.status = status;
    else if (status !== 'processing') payment.status = 'succeeded';
  }
}

class PostedIsSuccess extends Caller {
  override take(payment: Payment, record: PaymentRecord): void {
    if (record['posted_at'])
      payment.status = 'succeeded'; // whatever status says
    else super.take(payment, record);
  }
}

class ReadsAnyBody extends Caller {
  override meaning(payment: Payment, answer: Heard | undefined): Meaning {
    // The client library throws on 5xx; the handler reads error.response.data like any other.
    if (answer === undefined || answer.status < 500) return super.meaning(payment, answer);
    try {
      const record = JSON.parse(answer.text) as PaymentRecord;
      if (record['status'] === 'failed') payment.status = 'failed';
      if (record['code'] !== undefined && payment.polls > 0) payment.status = 'failed';
    } catch {
      // Not JSON: behave as the correct caller does.
    }
    return super.meaning(payment, answer);
  }
}

class TrustsAnyRecord extends Caller {
  override isMine(_payment: Payment, _record: PaymentRecord): boolean {
    return true;
  }
}

export class AmountNotCompared extends Caller {
  override isMine(payment: Payment, record: PaymentRecord): boolean {
    return record['platform_payment_id'] === payment.platform_payment_id;
  }
}

class StopsAfterTenPolls extends Caller {
  override poll(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = super.poll(payment, answer);
    if (payment.polls >= 10 && payment.status === 'processing') payment.status = 'unknown';
    return meaning;
  }
}

class PollsOn extends Caller {
  override isEnded(_payment: Payment): boolean {
    return false;
  }
}

class PutIgnoresRetryAfter extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = super.put(payment, answer);
    return 'record' in meaning ? meaning : { again_ms: 0 };
  }
}

class DatesOfRetryAfter extends Caller {
  override retryAfterMs(answer: Heard | undefined): number {
    return (Number(answer?.headers.get('retry-after') ?? 0) || 0) * 1_000; // a date is NaN is 0
  }
}

class RetryAfterInMs extends Caller {
  override retryAfterMs(answer: Heard | undefined): number {
    return Number(answer?.headers.get('retry-after') ?? 0) || 0;
  }
}

class TokenForEachCall extends Caller {
  override async credential(): Promise<{ readonly [name: string]: string }> {
    if ('key' in this.access) return super.credential();
    return { authorization: `Bearer ${await this.fetchToken()}` };
  }
}

class TokenHerd extends Caller {
  #token: string | undefined;

  override async credential(refused?: string): Promise<{ readonly [name: string]: string }> {
    if ('key' in this.access) return super.credential();
    // A token is shared once it has arrived; every call before that fetches its own.
    if (this.#token === undefined || refused !== undefined) this.#token = await this.fetchToken();
    return { authorization: `Bearer ${this.#token}` };
  }
}

export class RefusedTokenStays extends Caller {
  override credential(): Promise<{ readonly [name: string]: string }> {
    return super.credential(); // never told that the token was refused
  }
}

class NewIdOnRetry extends Caller {
  override path(payment: Payment): string {
    if (payment.puts < 2 || payment.polls > 0) return super.path(payment);
    return super.path({ ...payment, platform_payment_id: randomUUID() });
  }

  override putBody(payment: Payment): string {
    const { platform_batch_id, amount_in_cents } = payment;
    return JSON.stringify({ platform_batch_id, amount_in_cents });
  }
}

export class NewBatchOnRetry extends Caller {
  override putBody(payment: Payment): string {
    const { platform_payment_id, platform_batch_id, amount_in_cents, puts } = payment;
    return this.body(platform_payment_id, `${platform_batch_id}-${String(puts)}`, amount_in_cents);
  }
}

export class NoBackoff extends Caller {
  override backoffMs(): number {
    return 2;
  }
}

class NoDeadline extends Caller {
  override deadlineMs(): number {
    return 2_000_000_000;
  }
}

class PollsOnceAndBelieves extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = super.put(payment, answer);
    // Takes 200 on the PUT for a posted payment.
    if ('record' in meaning) payment.status = 'succeeded';
    return meaning;
  }
}

export class CanceledStaysOpen extends Caller {
  override take(payment: Payment, record: PaymentRecord): void {
    // Expects "cancelled", with two l.
    if (record['status'] !== 'canceled') super.take(payment, record);
  }
}

class AcceptedBy202 extends Caller {
  override put(payment: Payment, answer: Heard | undefined): Meaning {
    if (answer === undefined) return super.put(payment, answer);
    return answer.status >= 200 && answer.status < 300
      ? { record: {} } // any 2xx is accepted, whatever the body
      : super.put(payment, answer);
  }
}

// 16. Wrong requests

class AmountAsText extends Caller {
  override body(platform_payment_id: string, platform_batch_id: string, cents: number): string {
    const amount_in_cents = String(cents); // BigInt columns come back as texts
    return JSON.stringify({ platform_payment_id, platform_batch_id, amount_in_cents });
  }
}

export class AmountInDollars extends Caller {
  override body(platform_payment_id: string, platform_batch_id: string, cents: number): string {
    const amount_in_cents = cents / 100;
    return JSON.stringify({ platform_payment_id, platform_batch_id, amount_in_cents });
  }
}

class AmountWithPoint extends Caller {
  override putBody({ body }: Payment): string {
    return body.replace(/("amount_in_cents":[0-9]+)/, '$1.0'); // a serializer of doubles
  }
}

class CentsCutByDouble extends Caller {
  override cents(asked: number): number {
    return Math.floor((asked / 100) * 100);
  }
}

class CentOff extends Caller {
  override cents(asked: number): number {
    return asked > 1 ? asked - 1 : asked; // paid less a fee
  }
}

export class NoContentType extends Caller {
  override putHeaders(): { readonly [name: string]: string } {
    return { 'content-type': 'text/plain' };
  }
}

export class SchemeBeforeKey extends Caller {
  override async credential(): Promise<{ readonly [name: string]: string }> {
    const credential = await super.credential();
    const key = credential['authorization'];
    return key === undefined ? credential : { authorization: `Bearer ${key}` };
  }
}

export class TokenByJson extends Caller {
  override tokenRequest(): RequestInit {
    return {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(Object.fromEntries(this.tokenForm())),
    };
  }
}

class TokenByBasic extends Caller {
  override tokenRequest(): RequestInit {
    const form = this.tokenForm();
    const pair = `${form.get('client_id') ?? ''}:${form.get('client_secret') ?? ''}`;
    form.delete('client_id');
    form.delete('client_secret');
    const authorization = `Basic ${Buffer.from(pair).toString('base64')}`;
    return { method: 'POST', headers: { authorization }, body: form };
  }
}

export class ScopeWithComma extends Caller {
  override tokenForm(): URLSearchParams {
    const form = super.tokenForm();
    form.set('scope', 'read,write');
    return form;
  }
}

class ScopeMissing extends Caller {
  override tokenForm(): URLSearchParams {
    const form = super.tokenForm();
    form.delete('scope');
    return form;
  }
}

class IdOfOrder extends Caller {
  override newId(order: Pick<Payment, 'biller_id' | 'account_id' | 'amount_in_cents'>): string {
    const text = JSON.stringify([order.biller_id, order.account_id, order.amount_in_cents]);
    return createHash('sha256').update(text).digest('hex').slice(0, 32); // two equal payments are one
  }
}

class BatchMissing extends Caller {
  override body(platform_payment_id: string, _batch: string, amount_in_cents: number): string {
    return JSON.stringify({ platform_payment_id, amount_in_cents });
  }
}

class BatchEmpty extends Caller {
  override batch(): string {
    return '';
  }
}

class BatchIsNumber extends Caller {
  override body(platform_payment_id: string, _batch: string, amount_in_cents: number): string {
    const platform_batch_id = 20_261_122;
    return JSON.stringify({ platform_payment_id, platform_batch_id, amount_in_cents });
  }
}

export class AccountFolded extends Caller {
  override path(payment: Payment): string {
    return super.path({ ...payment, account_id: payment.account_id.toLowerCase() });
  }
}

class KeyInQueryToo extends Caller {
  override path(payment: Payment): string {
    const key = 'key' in this.access ? this.access.key : this.access.client_id;
    return `${super.path(payment)}?api_key=${encodeURIComponent(key)}`;
  }
}

class BodyNamesAnother extends Caller {
  override putBody(payment: Payment): string {
    return this.body(randomUUID(), payment.platform_batch_id, payment.amount_in_cents);
  }
}

class CamelCase extends Caller {
  override body(platformPaymentId: string, platformBatchId: string, amountInCents: number): string {
    return JSON.stringify({ platformPaymentId, platformBatchId, amountInCents });
  }
}

/** One row of the table. */
export const wrong = (
  defect: number,
  access: WrongCaller['access'],
  make: WrongCaller['make'],
  breaks: string,
  how: string,
): WrongCaller => ({ name: make.name, defect, access, make, breaks, how });

export const WRONG_CALLERS: readonly WrongCaller[] = [
  wrong(15, 'key', FailsOn404, 'RU4 ST3', 'a poll that gets 404 fails the payment'),
  wrong(15, 'key', FailsOn409, 'ST3', 'a PUT that gets 409 fails the payment'),
  wrong(15, 'key', FailsOnAny4xx, 'ST3', 'a PUT that gets any 4xx fails the payment'),
  wrong(15, 'key', GivesUpAfterFive, 'ST3 S4', 'five PUTs without a response fail the payment'),
  wrong(15, 'key', FailsOnTimeout, 'ST3', 'a PUT that times out fails the payment'),
  wrong(15, 'key', FailsOnUnparsable, 'ST3', 'an unreadable response fails the payment'),
  wrong(15, 'key', FollowsRedirects, 'S3', 'redirects are followed with the credential'),
  wrong(15, 'key', FoldsStatus, 'PF4', 'SUCCEEDED is treated as succeeded'),
  wrong(15, 'key', NotProcessingIsSuccess, 'PF4', 'an unknown status is treated as success'),
  wrong(15, 'key', PostedIsSuccess, 'PF4 PF8', 'posted_at takes precedence over status'),
  wrong(15, 'key', ReadsAnyBody, 'ST3', 'the body of a 5xx is read as a record'),
  wrong(15, 'key', TrustsAnyRecord, 'PF2 PF6', 'the record of another payment is accepted'),
  wrong(15, 'key', AmountNotCompared, 'PF6', 'a record with another amount is accepted'),
  wrong(15, 'key', StopsAfterTenPolls, 'S4 RU4', 'polling stops after ten polls'),
  wrong(15, 'key', PollsOn, 'RU4', 'polling continues after the end'),
  wrong(15, 'key', PutIgnoresRetryAfter, 'LI1', 'Retry-After on a PUT is ignored'),
  wrong(15, 'key', DatesOfRetryAfter, 'LI1', 'Retry-After with a date is ignored'),
  wrong(15, 'key', RetryAfterInMs, 'LI1', 'Retry-After is read as milliseconds'),
  wrong(15, 'oauth', TokenForEachCall, 'OA3 OA4', 'each call fetches a token'),
  wrong(15, 'oauth', TokenHerd, 'OA4', 'each concurrent call fetches a token'),
  wrong(15, 'oauth', RefusedTokenStays, 'OA4', 'a refused token is used forever'),
  wrong(15, 'key', NewIdOnRetry, 'RU5 PF2', 'a repeated PUT has a new id'),
  wrong(15, 'key', NewBatchOnRetry, 'RU5 PF3', 'a repeated PUT has another batch'),
  wrong(15, 'key', NoBackoff, 'LI1', 'failed calls are retried immediately'),
  wrong(15, 'key', NoDeadline, 'S4', 'a call has no deadline'),
  wrong(15, 'key', PollsOnceAndBelieves, 'RU1 S4', 'the 200 to the PUT is treated as success'),
  wrong(15, 'key', CanceledStaysOpen, 'PF4 RU4', 'canceled is not treated as terminal'),
  wrong(15, 'key', AcceptedBy202, 'B4', 'any 2xx to a PUT counts as accepted'),
  wrong(16, 'key', AmountAsText, 'S5 PF6', 'the amount is a string'),
  wrong(16, 'key', AmountInDollars, 'S5 PF6', 'the amount is in dollars'),
  wrong(16, 'key', AmountWithPoint, 'S5 PF6', 'the amount is written 1234.0'),
  wrong(16, 'key', CentsCutByDouble, 'PF6', 'some amounts lose a cent'),
  wrong(16, 'key', CentOff, 'PF6', 'the amount is a cent less than requested'),
  wrong(16, 'key', NoContentType, 'B4', 'the PUT is sent as text/plain'),
  wrong(16, 'authorization', SchemeBeforeKey, 'KY2', 'Bearer precedes a static key'),
  wrong(16, 'oauth', TokenByJson, 'OA2', 'the token request is JSON'),
  wrong(16, 'oauth', TokenByBasic, 'OA2', 'client id and secret are sent as Basic'),
  wrong(16, 'oauth', ScopeWithComma, 'OA2', 'scopes are separated by a comma'),
  wrong(16, 'oauth', ScopeMissing, 'OA2', 'no scope is requested'),
  wrong(16, 'key', IdOfOrder, 'PF2', 'two equal payments share an id'),
  wrong(16, 'key', BatchMissing, 'PF3', 'the batch is missing'),
  wrong(16, 'key', BatchEmpty, 'PF3', 'the batch is empty'),
  wrong(16, 'key', BatchIsNumber, 'PF3', 'the batch is a number'),
  wrong(16, 'key', AccountFolded, 'B4', 'the account id is lowercased'),
  wrong(16, 'key', KeyInQueryToo, 'KY1', 'the credential is also in the URL'),
  wrong(16, 'key', BodyNamesAnother, 'PF2', 'the id in the body differs from the path'),
  wrong(16, 'key', CamelCase, 'B4 PF6', 'the names of the fields are in camel case'),
];
