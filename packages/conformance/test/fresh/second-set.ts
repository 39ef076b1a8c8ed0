/**
 * The second set of wrong peers, written after the checks that the first set had shown to be missing:
 * another fault of each such class, to test that the check catches the class and not just the case.
 */
import { Caller, type Heard, type Payment as Paid, type PaymentRecord } from './caller.ts';
import {
  Partner,
  Refusal,
  SETTLES_AFTER_MS,
  type Account,
  type Call,
  type Grant,
  type Instruction,
  type Payment,
} from './partner.ts';
import { isObject, Platform, type Json } from './platform.ts';
import { wrong as caller, type WrongCaller } from './wrong-callers.ts';
import { wrong as partner, type WrongPartner } from './wrong-partners.ts';
import { wrong as platform, type WrongPlatform } from './wrong-platforms.ts';

class TokenOfAnyCase extends Partner {
  override grantOfToken(given: string | undefined): Grant | undefined {
    for (const [token, grant] of this.tokens) {
      if (token.toLowerCase() === given?.toLowerCase()) return grant;
    }
    return undefined;
  }
}

class ReasonTranslatedLater extends Partner {
  override async tick(): Promise<void> {
    await super.tick();
    for (const payment of this.payments.values()) {
      if (payment.status === 'failed' && this.age(payment) > 3_000) {
        payment.failure_reason = 'Die Zahlung wurde abgelehnt.';
      }
    }
  }
}

class RepeatReadsTheJournal extends Partner {
  override show(payment: Payment, call: Call): unknown {
    return call.method === 'PUT' && this.age(payment) > 3_000
      ? { ...payment, posted_at: null }
      : payment;
  }
}

class LastOfTheTickWins extends Partner {
  override async tick(): Promise<void> {
    const before = new Map(
      [...this.accounts.values()].map((one) => [one, one.amount_due_in_cents]),
    );
    for (const payment of this.payments.values()) {
      if (!this.isDue(payment)) continue;
      const account = this.account(payment.biller_id, payment.account_id);
      // The balance is read once for all payments of a tick.
      if (account) account.amount_due_in_cents = before.get(account) ?? 0;
      this.settle(payment);
    }
  }
}

class CopyLagsBehind extends Partner {
  override async getAccountPayment(
    biller_id: string,
    account_id: string,
    id: string,
    call: Call,
  ): Promise<unknown> {
    const payment = await this.find(id, call);
    if (payment && this.age(payment) < 120) {
      throw new Refusal(404, 'PAYMENT_NOT_FOUND', 'Payment not found');
    }
    return super.getAccountPayment(biller_id, account_id, id, call);
  }
}

class ThreeCaches extends Partner {
  readonly #held = new Map<string, { shown: unknown; until: number }>();

  override async getAccountPayment(
    biller_id: string,
    account_id: string,
    id: string,
    call: Call,
  ): Promise<unknown> {
    const key = `${String(call.connection % 3)} ${id}`;
    const held = this.#held.get(key);
    if (held && held.until > Date.now()) return held.shown;
    const shown = {
      ...((await super.getAccountPayment(biller_id, account_id, id, call)) as object),
    };
    // Each process caches a response for most of a second.
    this.#held.set(key, { shown, until: Date.now() + 700 });
    return shown;
  }
}

class TrimmedAccounts extends Partner {
  override account(biller_id: string, account_id: string): Account | undefined {
    return super.account(biller_id, account_id.trim());
  }
}

class RestartDropsOpen extends Partner {
  override restart(): void {
    super.restart();
    for (const [key, { status }] of this.payments) {
      if (status === 'processing') this.payments.delete(key); // the journal was not flushed
    }
  }
}

class NumberedBySuccess extends Partner {
  #next = 0;

  override nextPaymentId(): string {
    this.#next += 1;
    return `N-${String(this.#next)}`;
  }

  override restart(): void {
    super.restart();
    // SELECT count(*) … WHERE status = 'succeeded', where a sequence was meant
    this.#next = [...this.payments.values()].filter(({ status }) => status === 'succeeded').length;
  }
}

/** A partner that gives the same reason for every failure. */
function reasoned(name: string, reason: string): WrongPartner['make'] {
  class Reasoned extends Partner {
    override fail(payment: Payment, _reason: string): void {
      super.fail(payment, reason);
    }
  }
  Object.defineProperty(Reasoned, 'name', { value: name });
  return Reasoned;
}

class StatusBehindOnOneOfThree extends Partner {
  override async find(id: string, call: Call): Promise<Payment | undefined> {
    const payment = await super.find(id, call);
    if (payment === undefined || call.method !== 'GET' || call.connection % 3 !== 2) return payment;
    const lags = payment.status !== 'processing' && this.age(payment) < SETTLES_AFTER_MS + 800;
    const { failure_reason: _, ...earlier } = payment;
    return lags ? { ...earlier, status: 'processing', posted_at: null } : payment;
  }
}

export class ReplayOfTheFirstAnswer extends Partner {
  readonly #first = new Map<string, unknown>();

  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    // The response is stored with the key, as some idempotency layers do, and replayed after the end.
    const kept = this.#first.get(instruction.platform_payment_id);
    if (kept !== undefined) return kept;
    const shown = { ...((await super.put(instruction, call)) as object) };
    this.#first.set(instruction.platform_payment_id, shown);
    return shown;
  }
}

class EmptyAddressParts extends Platform {
  override checkAddress(address: unknown): void {
    const filled = isObject(address)
      ? Object.fromEntries(
          Object.entries(address).map(([name, value]) => [name, value === '' ? '-' : value]),
        )
      : address;
    super.checkAddress(filled);
  }
}

class DateOfTheUnitedStates extends Platform {
  override dateIs(date: unknown): boolean {
    const text = typeof date === 'string' ? date : '';
    const parts = /^(\d{2})\/(\d{2})\/(\d{4})$/.exec(text);
    return super.dateIs(parts ? `${parts[3] ?? ''}-${parts[1] ?? ''}-${parts[2] ?? ''}` : date);
  }
}

class DateCutFromDatetime extends Platform {
  override dateIs(date: unknown): boolean {
    return super.dateIs(typeof date === 'string' ? date.slice(0, 10) : date);
  }
}

class EpochTaken extends Platform {
  override datetimeIs(text: unknown): boolean {
    return Number.isInteger(text) || super.datetimeIs(text);
  }
}

class TypeCaseMatters extends Platform {
  override isJson(type: string): boolean {
    return type.startsWith('application/json');
  }
}

class NamesOfFifty extends Platform {
  override check(body: Json): void {
    super.check(body);
    if (String(body['last_name']).length > 50) throw this.invalid('last_name is too long');
  }
}

export class ThreeBytesALetter extends Platform {
  override check(body: Json): void {
    super.check(body);
    if (/[\u{10000}-\u{10ffff}]/u.test(String(body['first_name']))) {
      throw new Error('Incorrect string value'); // the utf8 of MySQL
    }
  }
}

class StopsAfterSevenPolls extends Caller {
  override isEnded(payment: Paid): boolean {
    return payment.polls >= 7 || super.isEnded(payment);
  }
}

class SuccessByAmountPosted extends Caller {
  override take(payment: Paid, record: PaymentRecord): void {
    // "posted" is whatever is not null any more.
    if (record['posted_at'] !== null && record['posted_at'] !== undefined) {
      payment.status = 'succeeded';
      return;
    }
    super.take(payment, record);
  }
}

class RetryDatesOfToday extends Caller {
  override retryAfterMs(answer: Heard | undefined): number {
    const text = answer?.headers.get('retry-after') ?? '';
    return /^[0-9]+$/.test(text) ? Number(text) * 1_000 : 0; // dates are left for later
  }
}

class IdOfAccountAndHour extends Caller {
  override newId(order: Pick<Paid, 'biller_id' | 'account_id' | 'amount_in_cents'>): string {
    const hour = new Date().toISOString().slice(0, 13);
    return `${order.account_id}-${String(order.amount_in_cents)}-${hour}`.replaceAll(':', '');
  }
}

export const SECOND_PARTNERS: readonly WrongPartner[] = [
  partner(6, 'oauth', TokenOfAnyCase, 'OA4', 'the case of a token is ignored'),
  partner(4, 'key', ReasonTranslatedLater, 'RU2', 'a reason is rewritten after three seconds'),
  partner(4, 'key', RepeatReadsTheJournal, 'RU5', 'a repeat after three seconds loses posted_at'),
  partner(4, 'key', ReplayOfTheFirstAnswer, 'RU5', 'a repeat says processing for ever'),
  partner(5, 'key', LastOfTheTickWins, 'ST2', 'of payments posted together one counts'),
  partner(7, 'key', CopyLagsBehind, 'B5', 'Get Account Payment finds a payment late'),
  partner(7, 'key', ThreeCaches, 'RU2', 'three processes cache a payment for themselves'),
  partner(7, 'key', StatusBehindOnOneOfThree, 'RU2', 'one of three replicas is behind'),
  partner(8, 'key', TrimmedAccounts, 'B1', 'account ids are trimmed'),
  partner(9, 'key', RestartDropsOpen, 'PF2', 'a restart drops what was processing'),
  partner(9, 'key', NumberedBySuccess, 'PF1', 'a restart counts on from the successes'),
  partner(
    10,
    'key',
    reasoned('ReasonOfTemplate', 'Payment of {{amount}} failed'),
    'PF5',
    'a template is not filled',
  ),
  partner(
    10,
    'key',
    reasoned('ReasonOfClient', 'Request failed with status code 502'),
    'PF5',
    'the error of an HTTP client',
  ),
  partner(10, 'key', reasoned('ReasonUndefined', 'undefined'), 'PF5', 'the reason is undefined'),
  partner(
    10,
    'key',
    reasoned('ReasonOfMarkup', '<p>Account closed</p>'),
    'PF5',
    'the reason is markup',
  ),
];

export const SECOND_PLATFORMS: readonly WrongPlatform[] = [
  platform('biller', EmptyAddressParts, 'TR2', 'parts of the address may be empty'),
  platform('biller', DateOfTheUnitedStates, 'TR3', 'due_date may be 03/01/2026'),
  platform('biller', DateCutFromDatetime, 'TR3', 'due_date may have a time'),
  platform('biller', EpochTaken, 'TR3', 'last_updated_at may be seconds since 1970'),
  platform('biller', TypeCaseMatters, 'A1', 'Application/JSON is refused'),
  platform('biller', NamesOfFifty, 'TR1', 'a name of sixty letters is refused'),
  platform('biller', ThreeBytesALetter, 'TR1 ER2', 'a letter of four bytes is a 500'),
];

export const SECOND_CALLERS: readonly WrongCaller[] = [
  caller(15, 'key', StopsAfterSevenPolls, 'S4 RU4', 'polling stops after seven polls'),
  caller(15, 'key', SuccessByAmountPosted, 'PF4 PF8', 'posted_at decides'),
  caller(15, 'key', RetryDatesOfToday, 'LI1', 'Retry-After as a date is not read'),
  caller(16, 'key', IdOfAccountAndHour, 'PF2', 'the id is made of account, amount and hour'),
];
