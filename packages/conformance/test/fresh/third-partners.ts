/**
 * The partners of the third set: 44 wrong ones, one fault each, many of which show only in a combination, and 8 right ones of
 * unusual shape. They were written from the interface alone, by somebody who had read neither the checks nor the first two sets.
 *
 * A fault that turned out to be in an earlier set keeps its name here and extends the class of that peer.
 *
 * One file because it is one table: each peer, then the list of them.
 */
import {
  ACCOUNTS,
  MAX_AMOUNT_IN_CENTS,
  Partner,
  pause,
  Refusal,
  SETTLES_AFTER_MS,
  type Answer,
  type Call,
  type Grant,
  type Instruction,
  type Payment,
  type Wire,
} from './partner.ts';
import { gzipSync } from 'node:zlib';
import { randomBytes, randomUUID } from 'node:crypto';
import {
  wrong,
  type WrongPartner,
  KeyWithTail,
  OpenPaymentRouter,
  ReplayBeforeScope,
  FoldedIds,
  KeyPerAccount,
  DateOnlyPosting,
  QueueInMemory,
} from './wrong-partners.ts';
import { ReplayOfTheFirstAnswer } from './second-set.ts';

const isRepeat = (call: Call, payment: Payment): boolean =>
  call.method === 'PUT' && payment.status !== 'processing';
const isSecond = (partner: Partner, account_id: string): boolean =>
  [...partner.payments.values()].filter((one) => one.account_id === account_id).length > 0;

// States

class SecondEndsAtOnce extends Partner {
  override insert(instruction: Instruction): Payment {
    const known = isSecond(this, instruction.account_id);
    const payment = super.insert(instruction);
    if (known && payment.status === 'processing') this.settle(payment);
    return payment;
  }
}

class EveryThirdReadIsOld extends Partner {
  #reads = 0;

  override show(payment: Payment, call: Call): unknown {
    if (call.method !== 'GET') return payment;
    this.#reads += 1;
    const old = this.#reads % 3 === 0 && this.age(payment) < SETTLES_AFTER_MS + 2_000;
    const { failure_reason: _, ...rest } = payment;
    return old ? { ...rest, status: 'processing', posted_at: null } : payment;
  }
}

class FirstAnswerReplayed extends ReplayOfTheFirstAnswer {}

class FailuresRetried extends Partner {
  override async tick(): Promise<void> {
    await super.tick();
    for (const payment of this.payments.values()) {
      if (payment.status !== 'failed' || payment.account_id !== ACCOUNTS.inactive) continue;
      if (this.age(payment) < SETTLES_AFTER_MS + 1_500) continue;
      payment.status = 'succeeded';
      payment.posted_at = this.now();
      delete payment.failure_reason;
    }
  }
}

class CancelledWithTwoL extends Partner {
  override show(payment: Payment): unknown {
    return payment.status === 'canceled' ? { ...payment, status: 'cancelled' } : payment;
  }
}

class PostedAtLater extends Partner {
  override show(payment: Payment): unknown {
    const fresh = this.age(payment) < SETTLES_AFTER_MS + 350;
    return fresh && payment.status === 'succeeded' ? { ...payment, posted_at: null } : payment;
  }
}

class NoReasonForTheMaximum extends Partner {
  override fail(payment: Payment, reason: string): void {
    super.fail(payment, payment.amount_in_cents > MAX_AMOUNT_IN_CENTS ? '' : reason);
  }
}

class CancelsTheEnded extends Partner {
  override cancel(platform_payment_id: string): boolean {
    const payment = this.payments.get(platform_payment_id);
    if (payment === undefined) return false;
    payment.status = 'canceled';
    payment.posted_at = null;
    return true;
  }
}

class ReportOfTheFirstDay extends Partner {
  override async getPayment(id: string, call: Call): Promise<unknown> {
    const { failure_reason: _, ...shown } = (await super.getPayment(id, call)) as Payment;
    return { ...shown, status: 'processing', posted_at: null };
  }
}

// Idempotency

class KeyOfAccountAndId extends KeyPerAccount {}

class CollationWithoutCase extends FoldedIds {}

class CacheOfForty extends Partner {
  override insert(instruction: Instruction): Payment {
    const [oldest] = this.payments.keys();
    if (this.payments.size >= 40 && oldest !== undefined) this.payments.delete(oldest);
    return super.insert(instruction);
  }
}

class LookThenInsert extends Partner {
  override async accept(instruction: Instruction, call: Call): Promise<Payment> {
    await pause(20);
    this.payments.delete(this.paymentKey(instruction.platform_payment_id));
    return super.accept(instruction, call);
  }
}

class AmountOfTheLatest extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const existing = await this.find(instruction.platform_payment_id, call);
    if (existing?.status === 'processing') existing.amount_in_cents = instruction.amount_in_cents;
    return super.put(instruction, call);
  }

  /** Late enough that a repeat comes before. */
  override isDue(payment: Payment): boolean {
    return super.isDue(payment) && this.age(payment) > 2_000;
  }
}

class FailedIdIsFree extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const existing = await this.find(instruction.platform_payment_id, call);
    if (existing?.status === 'failed' && existing.amount_in_cents !== instruction.amount_in_cents) {
      this.payments.delete(this.paymentKey(instruction.platform_payment_id));
    }
    return super.put(instruction, call);
  }
}

class SettledIsConflict extends Partner {
  override show(payment: Payment, call: Call): unknown {
    if (isRepeat(call, payment)) throw new Refusal(409, 'ALREADY_SETTLED', 'It is settled');
    return payment;
  }
}

class KeyOfIdAndBatch extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const existing = await this.find(instruction.platform_payment_id, call);
    if (existing !== undefined && existing.platform_batch_id !== instruction.platform_batch_id) {
      this.payments.delete(this.paymentKey(instruction.platform_payment_id));
    }
    return super.put(instruction, call);
  }
}

class EqualPaymentsAreOne extends Partner {
  override insert(instruction: Instruction): Payment {
    for (const payment of this.payments.values()) {
      const equal =
        payment.account_id === instruction.account_id &&
        payment.amount_in_cents === instruction.amount_in_cents;
      if (equal && this.age(payment) < 60_000) return payment;
    }
    return super.insert(instruction);
  }
}

class PaymentIdOfTheSecond extends Partner {
  override nextPaymentId(): string {
    return `PAY-${String(Math.floor(Date.now() / 1_000))}`;
  }
}

class RepeatNamesThePath extends Partner {
  override show(payment: Payment, call: Call): unknown {
    return call.method === 'PUT' ? { ...payment, account_id: call.path[3] } : payment;
  }
}

// Money

class DollarsInAFloat extends Partner {
  override show(payment: Payment, call: Call): unknown {
    if (call.method === 'PUT' && !isRepeat(call, payment)) return payment;
    return { ...payment, amount_in_cents: (payment.amount_in_cents / 100) * 100 };
  }
}

class SignedBits extends Partner {
  override show(payment: Payment, call: Call): unknown {
    if (call.method === 'PUT' && !isRepeat(call, payment)) return payment;
    return { ...payment, amount_in_cents: payment.amount_in_cents | 0 };
  }
}

class LargeAmountsAsText extends Partner {
  override show(payment: Payment, call: Call): unknown {
    return isRepeat(call, payment) && payment.amount_in_cents > 2_147_483_647
      ? { ...payment, amount_in_cents: String(payment.amount_in_cents) }
      : payment;
  }
}

class AnythingLikeANumber extends Partner {
  override parse(text: string): Record<string, unknown> {
    const body = JSON.parse(text) as Record<string, unknown>;
    const { amount_in_cents: amount } = body;
    return typeof amount === 'string' || typeof amount === 'number'
      ? { ...body, amount_in_cents: Number(amount) }
      : body;
  }
}

class NothingIsAnAmount extends Partner {
  override instruction(call: Call, biller: string, account: string, id: string): Instruction {
    const text = call.text.replace('"amount_in_cents":0', '"amount_in_cents":1');
    return super.instruction({ ...call, text }, biller, account, id);
  }
}

// Times

class PostedWithoutZone extends Partner {
  override show(payment: Payment): unknown {
    return { ...payment, posted_at: payment.posted_at?.replace('Z', '') ?? null };
  }
}

class InitiatedByTheLastPut extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const existing = await this.find(instruction.platform_payment_id, call);
    if (existing !== undefined && existing.status !== 'processing') {
      existing.initiated_at = this.now();
    }
    return super.put(instruction, call);
  }
}

class NewYorkWithZ extends Partner {
  override now(): string {
    return new Date(Date.now() - 5 * 3_600_000).toISOString();
  }
}

class PostedWhenRead extends Partner {
  override show(payment: Payment): unknown {
    return payment.posted_at === null ? payment : { ...payment, posted_at: this.now() };
  }
}

class PostedAtMidnight extends DateOnlyPosting {}

// Batches

class BatchOfTheAccount extends Partner {
  readonly #batches = new Map<string, string>();

  override insert(instruction: Instruction): Payment {
    const { account_id } = instruction;
    const platform_batch_id = this.#batches.get(account_id) ?? instruction.platform_batch_id;
    this.#batches.set(account_id, platform_batch_id);
    return super.insert({ ...instruction, platform_batch_id });
  }
}

class NoBatchWhenFailed extends Partner {
  override show(payment: Payment): unknown {
    const { platform_batch_id: _, ...rest } = payment;
    return payment.status === 'failed' ? rest : payment;
  }
}

// Credentials and scopes

class KeyBegins extends KeyWithTail {}

class NewRouteIsOpen extends OpenPaymentRouter {}

function withField(call: Call, name: string, value: string): Call {
  const form = new URLSearchParams(call.text);
  form.set(name, value);
  return { ...call, text: form.toString() };
}

class AnyGrantType extends Partner {
  override token(call: Call): Answer {
    return super.token(withField(call, 'grant_type', 'client_credentials'));
  }
}

class ScopeOfNewPayments extends ReplayBeforeScope {}

class TokensLiveForever extends Partner {
  override grantOfToken(given: string | undefined): Grant | undefined {
    return given === undefined ? undefined : this.tokens.get(given);
  }

  override lifetime_s(): number {
    return 2;
  }
}

class AllScopesOfTheClient extends Partner {
  override token(call: Call): Answer {
    return super.token(withField(call, 'scope', 'read write'));
  }
}

// Errors and bodies

class NothingIsNull extends Partner {
  override refused(error: unknown): Answer {
    return error instanceof Refusal && error.code === 'PAYMENT_NOT_FOUND'
      ? { status: 200, body: null }
      : super.refused(error);
  }
}

class ParserIs500 extends Partner {
  override refused(error: unknown): Answer {
    return error instanceof Refusal && error.message === 'The body is not JSON'
      ? { status: 500, body: { code: 'INTERNAL_ERROR', message: error.stack } }
      : super.refused(error);
  }
}

class NoFieldOfTomorrow extends Partner {
  override parse(text: string): Record<string, unknown> {
    const body = super.parse(text);
    const known = ['amount_in_cents', 'platform_batch_id', 'platform_payment_id'];
    if (Object.keys(body).some((name) => !known.includes(name))) {
      throw new Refusal(400, 'INVALID_REQUEST', 'A field is not known');
    }
    return body;
  }
}

class BodyWithMark extends Partner {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    wire.response
      .writeHead(answer.status, { 'content-type': 'application/json' })
      .end(`\uFEFF${JSON.stringify(answer.body)}`);
  }
}

class LockedWhileWritten extends Partner {
  readonly #busy = new Set<string>();

  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const id = instruction.platform_payment_id;
    const shown = await super.put(instruction, call);
    this.#busy.add(id);
    setTimeout(() => this.#busy.delete(id), 120);
    return shown;
  }

  override async find(id: string, call: Call): Promise<Payment | undefined> {
    if (call.method === 'GET' && this.#busy.has(id)) throw new Error('The row is locked');
    return super.find(id, call);
  }
}

class TimersInMemory extends QueueInMemory {}

export const THIRD_PARTNERS: readonly WrongPartner[] = [
  wrong(2, 'key', SecondEndsAtOnce, 'RU1', 'all but the first payment of an account end at once'),
  wrong(7, 'key', EveryThirdReadIsOld, 'RU2', 'every third read comes from an old replica'),
  wrong(4, 'key', FirstAnswerReplayed, 'RU5', 'a repeat returns the first response forever'),
  wrong(4, 'key', FailuresRetried, 'RU2', 'a job retries failed payments of inactive accounts'),
  wrong(10, 'key', CancelledWithTwoL, 'PF4', 'canceled is spelled with two l'),
  wrong(10, 'key', PostedAtLater, 'ST2', 'posted_at follows 350 ms after succeeded'),
  wrong(10, 'key', NoReasonForTheMaximum, 'ST3', 'no reason for an amount above the maximum'),
  wrong(4, 'key', CancelsTheEnded, 'RU2', 'an operator can cancel a payment that succeeded'),
  wrong(4, 'key', ReportOfTheFirstDay, 'RU3 B3', 'Get Payment never shows a later status'),
  wrong(8, 'key', KeyOfAccountAndId, 'PF2', 'the key is account and id'),
  wrong(8, 'key', CollationWithoutCase, 'PF2', 'ids are compared without case'),
  wrong(8, 'key', CacheOfForty, 'PF2', 'the 41st payment makes the first forgotten'),
  wrong(7, 'key', LookThenInsert, 'RU5', 'two first PUTs together create two payments'),
  wrong(2, 'key', AmountOfTheLatest, 'PF6', 'a repeat changes the amount while processing'),
  wrong(4, 'key', FailedIdIsFree, 'RU2', 'the id of a failed payment pays another amount'),
  wrong(4, 'key', SettledIsConflict, 'RU5', 'a repeat after the end is 409'),
  wrong(8, 'key', KeyOfIdAndBatch, 'RU5', 'a repeat in another batch is a new payment'),
  wrong(8, 'key', EqualPaymentsAreOne, 'ID1', 'equal payments within a minute are one'),
  wrong(8, 'key', PaymentIdOfTheSecond, 'PF1', 'payment_id is the second'),
  wrong(8, 'key', RepeatNamesThePath, 'PF2', 'a repeat under another account names that account'),
  wrong(3, 'key', DollarsInAFloat, 'PF6', 'amounts are dollars in a float'),
  wrong(3, 'key', SignedBits, 'PF6', 'reads and repeats show 32 bits of the amount'),
  wrong(3, 'key', LargeAmountsAsText, 'PF6', 'a repeat shows large amounts as text'),
  wrong(3, 'key', AnythingLikeANumber, 'S5', '"100" and 1e2 are accepted as 100'),
  wrong(3, 'key', NothingIsAnAmount, 'S5', 'zero is accepted'),
  wrong(10, 'key', PostedWithoutZone, 'PF8', 'posted_at alone lacks its zone'),
  wrong(2, 'key', InitiatedByTheLastPut, 'PF7', 'a repeat after the end moves initiated_at'),
  wrong(10, 'key', NewYorkWithZ, 'PF7', 'local time is labelled Z'),
  wrong(10, 'key', PostedWhenRead, 'PF8', 'posted_at is the time of the read'),
  wrong(10, 'key', PostedAtMidnight, 'PF8', 'posted_at is the midnight before'),
  wrong(2, 'key', BatchOfTheAccount, 'PF3', 'the second payment of an account has the first batch'),
  wrong(2, 'key', NoBatchWhenFailed, 'PF3', 'a failed payment has no batch'),
  wrong(6, 'key', KeyBegins, 'KY1', 'anything may follow the key'),
  wrong(1, 'key', NewRouteIsOpen, 'S3', 'Get Payment needs no credential'),
  wrong(6, 'oauth', AnyGrantType, 'OA2', 'grant_type is not read'),
  wrong(6, 'oauth', ScopeOfNewPayments, 'SC1', 'a repeated PUT needs no scope'),
  wrong(6, 'oauth', TokensLiveForever, 'OA3', 'tokens outlive expires_in'),
  wrong(6, 'oauth', AllScopesOfTheClient, 'OA3', 'the requested scope is ignored'),
  wrong(10, 'key', NothingIsNull, 'ER3', 'an unknown payment is 200 null'),
  wrong(10, 'key', ParserIs500, 'ER3', 'broken JSON is 500 with a stack trace'),
  wrong(10, 'key', NoFieldOfTomorrow, 'B4', 'unknown fields are refused'),
  wrong(10, 'key', BodyWithMark, 'B5', 'bodies start with a byte order mark'),
  wrong(7, 'key', LockedWhileWritten, 'B5', 'a read soon after the PUT is 500'),
  wrong(9, 'key', TimersInMemory, 'PF2', 'a restart loses the timers'),
];

// Right peers

class OffsetOfIndia extends Partner {
  override now(): string {
    return new Date(Date.now() + 19_800_000).toISOString().replace('Z', '123+05:30');
  }
}

class SlowAndClosing extends Partner {
  override async answer(call: Call): Promise<Answer> {
    await pause(400);
    return super.answer(call);
  }

  override async send(wire: Wire, answer: Answer): Promise<void> {
    wire.response.setHeader('connection', 'close');
    await super.send(wire, answer);
  }
}

class PrettyAndMore extends Partner {
  override async send(wire: Wire, { status, body }: Answer): Promise<void> {
    const more =
      typeof body === 'object' && body !== null
        ? { _links: {}, ...Object.fromEntries(Object.entries(body).toReversed()), ledger: null }
        : body;
    const text = JSON.stringify(more, undefined, 4);
    wire.response.writeHead(status, { 'content-type': 'application/json;charset=UTF-8' });
    wire.response.write(text.slice(0, 7));
    wire.response.end(text.slice(7));
  }
}

class NumbersAsIds extends Partner {
  override nextPaymentId(): string {
    return String(10_000_000 + this.payments.size);
  }
}

class SettlesBeforeTheRead extends Partner {
  override show(payment: Payment, call: Call): unknown {
    const shown = { ...payment };
    const ends = call.method === 'PUT' && payment.account_id !== ACCOUNTS.canceling;
    if (ends && payment.status === 'processing') this.settle(payment);
    return shown;
  }
}

class LongTokens extends Partner {
  override issue(scopes: readonly string[]): string {
    const token = `eyJ.${randomBytes(640).toString('base64url')}.${super.issue(scopes)}`;
    this.tokens.set(token, { scopes, ends_at: Date.now() + this.lifetime_s() * 1_000 });
    return token;
  }

  override lifetime_s(): number {
    return 90;
  }
}

class ZippedIfAccepted extends Partner {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    if (!/\bgzip\b/.test(String(wire.request.headers['accept-encoding']))) {
      await super.send(wire, answer);
      return;
    }
    const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
    wire.response.writeHead(answer.status, { ...headers, 'x-request-id': randomUUID() });
    wire.response.end(gzipSync(JSON.stringify(answer.body)));
  }
}

class BareAccounts extends Partner {
  override async getAccount(biller: string, account: string, call: Call): Promise<unknown> {
    const { balance: _, ...rest } = (await super.getAccount(biller, account, call)) as {
      balance: unknown;
    };
    return rest;
  }

  override async getBalance(biller: string, account: string, call: Call): Promise<unknown> {
    await super.getBalance(biller, account, call);
    return {};
  }
}

export const RIGHT_PARTNERS: readonly WrongPartner[] = [
  wrong(0, 'key', OffsetOfIndia, '', 'times with microseconds and the offset +05:30'),
  wrong(0, 'key', SlowAndClosing, '', '400 ms a call, and no connection is kept'),
  wrong(
    0,
    'key',
    PrettyAndMore,
    '',
    'pretty-printed, in chunks, with more fields in another order',
  ),
  wrong(0, 'key', NumbersAsIds, '', 'payment_id is a number as text'),
  wrong(0, 'key', SettlesBeforeTheRead, '', 'the first read already says succeeded'),
  wrong(0, 'oauth', LongTokens, '', 'tokens of 900 characters that live 90 seconds'),
  wrong(0, 'key', ZippedIfAccepted, '', 'gzip for those who accept it'),
  wrong(0, 'key', BareAccounts, '', 'an empty balance, and accounts without one'),
];
