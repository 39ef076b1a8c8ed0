/**
 * Wrong partners, one fault each, written from the interface alone by somebody who had not read a
 * single check: what a competent engineer in a hurry gets wrong. `defect` is the number of the
 * class in docs/fresh-peers.md.
 *
 * A table: one class per fault.
 */
import { createHmac } from 'node:crypto';
import {
  CLIENT,
  KEY,
  MAX_AMOUNT_IN_CENTS,
  Partner,
  pause,
  Refusal,
  SETTLES_AFTER_MS,
  type Account,
  type Answer,
  type Auth,
  type Call,
  type Grant,
  type Instruction,
  type Payment,
} from './partner.ts';

export interface WrongPartner {
  readonly name: string;
  readonly defect: number;
  /** The clause of the interface, or the decision, that it breaks. */
  readonly breaks: string;
  readonly how: string;
  readonly auth: Auth;
  readonly make: new (auth: Auth) => Partner;
}

const since = (payment: Payment, field: 'initiated_at' | 'posted_at'): number =>
  Date.now() - Date.parse(payment[field] ?? '');

// 1. An operation that is open, or carried out before it is refused

export class OpenPaymentRouter extends Partner {
  override async answer(call: Call): Promise<Answer> {
    if (call.method === 'GET' && call.path[0] === 'payment') {
      return { status: 200, body: await this.route(call) };
    }
    return super.answer(call);
  }
}

class OpenBalance extends Partner {
  override async answer(call: Call): Promise<Answer> {
    // A monitoring probe reads balances without a key; the exemption matches by suffix.
    if (call.method === 'GET' && call.url.endsWith('/balance')) {
      return { status: 200, body: await this.route(call) };
    }
    return super.answer(call);
  }
}

class GuardOnReads extends Partner {
  override authenticate(call: Call): Grant {
    if (call.method !== 'GET') return { scopes: ['read', 'write'], ends_at: Infinity };
    return super.authenticate(call);
  }
}

class WorkBeforeGuard extends Partner {
  override async answer(call: Call): Promise<Answer> {
    if (call.path[0] === 'oauth') return super.answer(call);
    // Guard and handler run concurrently; if the guard refuses, only the handler's result is dropped.
    const work = this.route(call);
    work.catch(() => undefined);
    this.authorize(call, this.authenticate(call));
    return { status: 200, body: await work };
  }
}

class SharedResponseCache extends Partner {
  cache = new Map<string, unknown>();

  override async answer(call: Call): Promise<Answer> {
    const held = this.cache.get(call.url);
    if (call.method === 'GET' && held !== undefined) return { status: 200, body: held };
    const answer = await super.answer(call);
    // Responses are cached for a second, keyed by URL alone.
    if (call.method === 'GET' && call.path[0] === 'biller' && call.path.length === 4) {
      this.cache.set(call.url, answer.body);
      setTimeout(() => this.cache.delete(call.url), 1_000).unref();
    }
    return answer;
  }
}

class EmptyKeyInList extends Partner {
  override grantOfKey(given: string | string[] | undefined): Grant | undefined {
    const keys = `${KEY},`.split(','); // PARTNER_KEYS="…," in the environment
    return typeof given === 'string' && keys.includes(given)
      ? { scopes: ['read', 'write'], ends_at: Infinity }
      : undefined;
  }
}

// 2. The first response differs from the stored payment

class BatchOfTheNight extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    payment.platform_batch_id = `settlement-${new Date().toISOString().slice(0, 10)}`;
  }
}

class InitiatedOnUpdate extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    payment.initiated_at = this.now(); // TIMESTAMP … ON UPDATE CURRENT_TIMESTAMP
  }
}

class LedgerEntryId extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    payment.payment_id = payment.payment_id.replace('pay_', 'led_');
  }
}

class NetOfFee extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    if (payment.amount_in_cents > 100) payment.amount_in_cents -= 1; // what reached the ledger
  }
}

class LocalTimeOnRead extends Partner {
  override show(payment: Payment, call: Call): unknown {
    if (call.method === 'PUT') return payment;
    // The driver reads a timestamp without zone as local time.
    const moved = new Date(Date.parse(payment.initiated_at) - 60_000).toISOString();
    return { ...payment, initiated_at: moved };
  }
}

class FailedLosesBatch extends Partner {
  override fail(payment: Payment, reason: string): void {
    super.fail(payment, reason);
    payment.platform_batch_id = 'rejected'; // moved to the table of rejects
  }
}

// 3. Numbers

class Float32Column extends Partner {
  override column(amount_in_cents: number): number {
    return Math.fround(amount_in_cents);
  }
}

class DollarsInDouble extends Partner {
  override column(amount_in_cents: number): number {
    return Math.floor((amount_in_cents / 100) * 100); // 29 cents are 0.29 dollars are 28 cents
  }
}

class Unsigned32 extends Partner {
  override column(amount_in_cents: number): number {
    return amount_in_cents >>> 0;
  }
}

class ClampedDecimal extends Partner {
  override column(amount_in_cents: number): number {
    return Math.min(amount_in_cents, 999_999_999); // DECIMAL(9,2) of a lenient database
  }
}

class SixDigitsOfText extends Partner {
  override column(amount_in_cents: number): number {
    return Math.round(Number((amount_in_cents / 100).toPrecision(6)) * 100); // "%g"
  }
}

// 4. Terminal payments change

class ReturnedByBank extends Partner {
  override async tick(): Promise<void> {
    await super.tick();
    for (const payment of this.payments.values()) {
      if (payment.status === 'succeeded' && since(payment, 'posted_at') > 4_000) {
        this.fail(payment, 'The bank returned the payment.');
      }
    }
  }
}

class RetryOfFailed extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const payment = await this.find(instruction.platform_payment_id, call);
    if (payment?.status === 'failed') {
      payment.status = 'processing';
      delete payment.failure_reason;
      this.accepted_ms.set(payment, Date.now());
    }
    return super.put(instruction, call);
  }
}

class CanceledIsPosted extends Partner {
  override async tick(): Promise<void> {
    await super.tick();
    for (const payment of this.payments.values()) {
      const account = this.account(payment.biller_id, payment.account_id);
      // The nightly run picks up every payment without a posting date.
      if (payment.status === 'canceled' && account && since(payment, 'initiated_at') > 3_000) {
        this.post(payment, account);
      }
    }
  }
}

class PostedAgainEachRun extends Partner {
  #run = Date.now();

  override async tick(): Promise<void> {
    await super.tick();
    if (Date.now() - this.#run < 3_000) return;
    this.#run = Date.now();
    for (const payment of this.payments.values()) {
      if (payment.status === 'succeeded') payment.posted_at = this.now();
    }
  }
}

class ArchivedAfterSeconds extends Partner {
  override async find(id: string, call: Call): Promise<Payment | undefined> {
    const payment = await super.find(id, call);
    const archived =
      Boolean(payment?.posted_at) && payment !== undefined && since(payment, 'posted_at') > 4_000;
    return archived && call.method === 'GET' ? undefined : payment;
  }
}

class TimestampsTouchedByPut extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const payment = await this.find(instruction.platform_payment_id, call);
    if (payment?.status === 'succeeded' && since(payment, 'posted_at') > 2_000) {
      payment.posted_at = this.now(); // ON CONFLICT DO UPDATE SET posted_at = now()
    }
    return super.put(instruction, call);
  }
}

// 5. Effects on the balance

class FailedIsCharged extends Partner {
  override fail(payment: Payment, reason: string): void {
    super.fail(payment, reason);
    this.charge(payment);
  }
}

class RefusedIsCharged extends Partner {
  override instruction(
    call: Call,
    biller_id: string,
    account_id: string,
    platform_payment_id: string,
  ): Instruction {
    try {
      return super.instruction(call, biller_id, account_id, platform_payment_id);
    } catch (error) {
      const cents = Number(/"amount_in_cents"\s*:\s*"?([0-9]+)/.exec(call.text)?.[1] ?? 0);
      const account = this.account(biller_id, account_id);
      // Another service reserves the amount before the request is validated.
      if (account) account.amount_due_in_cents -= cents;
      throw error;
    }
  }
}

class CanceledIsCharged extends Partner {
  override settle(payment: Payment): void {
    super.settle(payment);
    if (payment.status === 'canceled') this.charge(payment);
  }
}

class ReplayIsCharged extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const payment = await this.find(instruction.platform_payment_id, call);
    if (payment?.status === 'succeeded') {
      this.charge({ ...instruction, amount_in_cents: payment.amount_in_cents });
    }
    return super.put(instruction, call);
  }
}

class OtherAccountIsCharged extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const payment = await this.find(instruction.platform_payment_id, call);
    if (payment !== undefined && payment.account_id !== instruction.account_id) {
      this.charge(instruction);
    }
    return super.put(instruction, call);
  }
}

class LostUpdate extends Partner {
  override post(payment: Payment, account: Account): void {
    const before = account.amount_due_in_cents;
    super.post(payment, account);
    account.amount_due_in_cents = before;
    // Read-modify-write without a lock: of two concurrent payments, one is lost.
    setTimeout(() => {
      account.amount_due_in_cents = before - payment.amount_in_cents;
    }, 10);
  }
}

// 6. Credentials

class PrefixOfKey extends Partner {
  override grantOfKey(given: string | string[] | undefined): Grant | undefined {
    const right = typeof given === 'string' && given.length >= 8 && KEY.startsWith(given);
    return right ? { scopes: ['read', 'write'], ends_at: Infinity } : undefined;
  }
}

export class KeyWithTail extends Partner {
  override grantOfKey(given: string | string[] | undefined): Grant | undefined {
    const right = typeof given === 'string' && given.startsWith(KEY); // strncmp(given, key, strlen(key))
    return right ? { scopes: ['read', 'write'], ends_at: Infinity } : undefined;
  }
}

class KeyOfAnyCase extends Partner {
  override grantOfKey(given: string | string[] | undefined): Grant | undefined {
    const right = typeof given === 'string' && given.toLowerCase() === KEY.toLowerCase();
    return right ? { scopes: ['read', 'write'], ends_at: Infinity } : undefined;
  }
}

const sign = (text: string): string =>
  createHmac('sha256', 'signing-key').update(text).digest('base64url');
const segment = (value: unknown): string =>
  Buffer.from(JSON.stringify(value)).toString('base64url');

class UnverifiedSignature extends Partner {
  override issue(scopes: readonly string[]): string {
    const ends_at = Date.now() + 3_600_000;
    const text = `${segment({ alg: 'HS256', typ: 'JWT' })}.${segment({ scopes, ends_at })}`;
    return `${text}.${sign(text)}`;
  }

  override grantOfToken(given: string | undefined): Grant | undefined {
    try {
      const claims = Buffer.from(given?.split('.')[1] ?? '', 'base64url').toString();
      return JSON.parse(claims) as Grant; // decode() where verify() was meant
    } catch {
      return undefined;
    }
  }
}

class TokenByPrefix extends Partner {
  override grantOfToken(given: string | undefined): Grant | undefined {
    if (given === undefined || given.length < 16) return undefined;
    for (const [token, grant] of this.tokens) {
      if (token.slice(0, 16) === given.slice(0, 16)) return grant; // CHAR(16) index column
    }
    return undefined;
  }
}

export class ReplayBeforeScope extends Partner {
  override async answer(call: Call): Promise<Answer> {
    if (call.method === 'PUT' && this.payments.has(call.path[5] ?? '')) {
      this.authenticate(call);
      return { status: 200, body: await this.route(call) };
    }
    return super.answer(call);
  }
}

class ScopeByContentType extends Partner {
  override authorize(call: Call, grant: Grant): void {
    // The filter that checks the scope is mapped to application/json only.
    if (call.method === 'GET' || call.headers['content-type'] === 'application/json') {
      super.authorize(call, grant);
    }
  }
}

class SecretOfAnyClient extends Partner {
  override clientIs(_client_id: string | null, client_secret: string | null): boolean {
    return client_secret === CLIENT.client_secret; // WHERE client_secret = $1
  }
}

class ScopeAsClaimed extends Partner {
  override authorize(call: Call, grant: Grant): void {
    const needed = call.method === 'GET' ? 'read' : 'write';
    // Get Payment is another service, which accepts any scope.
    if (call.path[0] === 'payment' ? grant.scopes.length === 0 : !grant.scopes.includes(needed)) {
      throw new Refusal(403, 'INSUFFICIENT_SCOPE', `The token needs the scope ${needed}`);
    }
  }
}

// 7. Concurrency and replicas

class MutexOfOneReplica extends Partner {
  readonly #rows = [0, 1, 2].map(() => new Map<string, Payment>());

  override async accept(instruction: Instruction, call: Call): Promise<Payment> {
    const id = instruction.platform_payment_id;
    const rows = this.#rows[call.connection % 3];
    // The lock is local to the process; several processes insert, and the last one wins.
    const mine = rows?.get(id);
    if (mine !== undefined) return mine;
    this.payments.delete(id);
    const payment = this.insert(instruction);
    rows?.set(id, payment);
    await pause(8);
    return payment;
  }

  override async find(id: string, call: Call): Promise<Payment | undefined> {
    const payment = await super.find(id, call);
    // Other processes see a row only after its commit.
    const committed = payment === undefined || this.age(payment) > 8;
    return committed || call.method === 'GET' ? payment : undefined;
  }
}

class RequestInAGlobal extends Partner {
  #current: Instruction | undefined;

  override async accept(instruction: Instruction, _call: Call): Promise<Payment> {
    this.#current = instruction;
    await pause(3);
    this.insert(instruction);
    return this.insert(this.#current);
  }
}

class LaggingReplica extends Partner {
  override async find(id: string, call: Call): Promise<Payment | undefined> {
    const payment = await super.find(id, call);
    const ended = payment !== undefined && payment.status !== 'processing';
    const lag = ended && call.method === 'GET' && call.connection % 2 === 1;
    if (!lag || this.age(payment) > SETTLES_AFTER_MS + 1_200) return payment;
    const { failure_reason: _, ...earlier } = payment;
    return { ...earlier, status: 'processing', posted_at: null };
  }
}

class LockForForty extends Partner {
  #inside = 0;

  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    this.#inside += 1;
    try {
      // The pool has forty connections; a request that gets none continues without its lock.
      if (this.#inside <= 40) {
        await pause(80);
        return await super.put(instruction, call);
      }
      await pause(90);
      const payment = this.insert(instruction);
      return this.show({ ...payment, payment_id: this.nextPaymentId() }, call);
    } finally {
      this.#inside -= 1;
    }
  }
}

class IndexLate extends Partner {
  override async getPayment(platform_payment_id: string, call: Call): Promise<unknown> {
    const payment = await this.find(platform_payment_id, call);
    // The search index behind Get Payment lags half a second behind the table.
    if (payment && this.age(payment) < 500) {
      throw new Refusal(404, 'PAYMENT_NOT_FOUND', 'Payment not found');
    }
    return super.getPayment(platform_payment_id, call);
  }
}

class TwoPosters extends Partner {
  #posting = 0;

  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    this.#posting += 1;
    // Under load, two workers take the same job every seventh time.
    const busy = [...this.payments.values()].filter(({ status }) => status === 'processing').length;
    if (busy >= 5 && this.#posting % 7 === 0)
      account.amount_due_in_cents -= payment.amount_in_cents;
  }
}

class ReplicaOfItsOwn extends Partner {
  override async find(id: string, call: Call): Promise<Payment | undefined> {
    const payment = await super.find(id, call);
    // Each replica caches reads for a second and is not told of changes.
    if (payment === undefined || call.method !== 'GET') return payment;
    const key = `${String(call.connection % 2)} ${id}`;
    const held = this.#held.get(key);
    if (held && Date.now() - held.at < 1_000) return held.payment;
    this.#held.set(key, { payment: { ...payment }, at: Date.now() });
    return payment;
  }

  readonly #held = new Map<string, { payment: Payment; at: number }>();
}

// 8. Identifiers

export class FoldedIds extends Partner {
  override paymentKey(id: string): string {
    return id.toLowerCase(); // utf8_general_ci
  }
}

class Char36 extends Partner {
  override paymentKey(id: string): string {
    return id.slice(0, 36);
  }
}

class PunctuationDropped extends Partner {
  override paymentKey(id: string): string {
    return id.replace(/[._-]/g, ''); // "normalize" a UUID
  }
}

class NumericIds extends Partner {
  override paymentKey(id: string): string {
    return /^[0-9]+$/.test(id) ? String(Number(id)) : id;
  }
}

class ClockPaymentId extends Partner {
  override nextPaymentId(): string {
    return `P${String(Date.now())}`;
  }
}

class CounterOfFifty extends Partner {
  #count = 0;

  override nextPaymentId(): string {
    this.#count += 1;
    return `PMT-${String(this.#count % 50)}`;
  }
}

class BatchCut extends Partner {
  override insert(instruction: Instruction): Payment {
    const platform_batch_id = instruction.platform_batch_id.slice(0, 20);
    return super.insert({ ...instruction, platform_batch_id });
  }
}

class FoldedAccounts extends Partner {
  override account(biller_id: string, account_id: string): Account | undefined {
    return super.account(biller_id, account_id.trim().toUpperCase());
  }
}

export class KeyPerAccount extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const { platform_payment_id, account_id } = instruction;
    const known = await this.find(platform_payment_id, call);
    if (known !== undefined && known.account_id !== account_id) {
      const second = {
        ...this.insert({
          ...instruction,
          platform_payment_id: `${account_id}/${platform_payment_id}`,
        }),
      };
      return { ...second, platform_payment_id };
    }
    return super.put(instruction, call);
  }
}

// 9. Restart

class IdsInMemory extends Partner {
  #known = new Set<string>();

  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    if (!this.#known.has(instruction.platform_payment_id)) {
      this.#known.add(instruction.platform_payment_id);
      this.payments.delete(instruction.platform_payment_id);
    }
    return super.put(instruction, call);
  }

  override restart(): void {
    super.restart();
    this.#known = new Set();
  }
}

export class QueueInMemory extends Partner {
  #queue = new Set<string>();

  override insert(instruction: Instruction): Payment {
    const payment = super.insert(instruction);
    if (payment.status === 'processing') this.#queue.add(payment.platform_payment_id);
    return payment;
  }

  // A repeat after a restart finds the row, and so does not queue the payment again.
  override isDue(payment: Payment): boolean {
    return this.#queue.has(payment.platform_payment_id) && super.isDue(payment);
  }

  override restart(): void {
    super.restart();
    this.#queue = new Set();
  }
}

export class SequenceFromOne extends Partner {
  #next = 1;

  override nextPaymentId(): string {
    this.#next += 1;
    return `P-${String(this.#next).padStart(6, '0')}`;
  }

  override restart(): void {
    super.restart();
    this.#next = 1;
  }
}

class PostedTwiceAtStart extends Partner {
  override restart(): void {
    super.restart();
    // Replays the last minute of the journal into the ledger.
    for (const payment of this.payments.values()) {
      if (payment.status === 'succeeded') this.charge(payment);
    }
  }
}

class IdsForTenSeconds extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const payment = await this.find(instruction.platform_payment_id, call);
    // Uniqueness is enforced only by a cache with a short TTL.
    if (payment && this.age(payment) > 10_000) {
      this.payments.delete(instruction.platform_payment_id);
    }
    return super.put(instruction, call);
  }
}

// 10. Times and reasons

class LocalTimeAsUtc extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    const local = Date.now() + 2 * 3_600_000;
    payment.posted_at = new Date(local).toISOString(); // local clock, with a Z behind it
  }
}

class NextBusinessDay extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
    payment.posted_at = `${tomorrow}T00:00:00Z`;
  }
}

export class DateOnlyPosting extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    payment.posted_at = `${this.now().slice(0, 10)}T00:00:00+00:00`;
  }
}

class ReasonOfConstraint extends Partner {
  override fail(payment: Payment, _reason: string): void {
    super.fail(
      payment,
      'insert or update on table "ledger_entry" violates foreign key constraint "ledger_entry_account_fk"',
    );
  }
}

class ReasonOfOracle extends Partner {
  override fail(payment: Payment, _reason: string): void {
    super.fail(payment, 'ORA-02290: check constraint (BILLING.CK_ACCT_ACTIVE) violated');
  }
}

class ReasonOfRpc extends Partner {
  override fail(payment: Payment, _reason: string): void {
    super.fail(payment, 'rpc error: code = NotFound desc = no rows in result set');
  }
}

class ReasonOfAnObject extends Partner {
  override fail(payment: Payment, _reason: string): void {
    super.fail(payment, '[object Object]'); // an error object where its message was meant
  }
}

class ReasonOfSql extends Partner {
  override fail(payment: Payment, _reason: string): void {
    super.fail(
      payment,
      `Query failed: UPDATE accounts SET due = due - ${String(payment.amount_in_cents)} WHERE id = '${payment.account_id}' AND active`,
    );
  }
}

class PostedWhileProcessing extends Partner {
  override insert(instruction: Instruction): Payment {
    const payment = super.insert(instruction);
    payment.posted_at ??= this.now(); // NOT NULL DEFAULT now()
    return payment;
  }
}

class CappedInSilence extends Partner {
  override settle(payment: Payment): void {
    const amount = payment.amount_in_cents;
    if (amount > MAX_AMOUNT_IN_CENTS) payment.amount_in_cents = MAX_AMOUNT_IN_CENTS;
    super.settle(payment); // pays as much as is allowed
    payment.amount_in_cents = amount;
  }
}

/** One row of the table. */
export const wrong = (
  defect: number,
  auth: Auth,
  make: WrongPartner['make'],
  breaks: string,
  how: string,
): WrongPartner => ({ name: make.name, defect, auth, make, breaks, how });

export const WRONG_PARTNERS: readonly WrongPartner[] = [
  wrong(1, 'key', OpenPaymentRouter, 'S3', 'Get Payment is on a router without the guard'),
  wrong(1, 'key', OpenBalance, 'S3', 'Get Balance is exempt from the guard'),
  wrong(1, 'key', GuardOnReads, 'S3', 'only reads are guarded'),
  wrong(1, 'oauth', WorkBeforeGuard, 'S3', 'a PUT is carried out, then refused with 401'),
  wrong(1, 'key', SharedResponseCache, 'S3', 'an account is cached for a second by URL only'),
  wrong(1, 'key', EmptyKeyInList, 'S3 KY1', 'an empty key is in the list of keys'),
  wrong(2, 'key', BatchOfTheNight, 'PF3', "posting writes its own batch over the platform's"),
  wrong(2, 'key', InitiatedOnUpdate, 'PF7', 'posting moves initiated_at'),
  wrong(2, 'key', LedgerEntryId, 'PF1', 'posting replaces payment_id'),
  wrong(2, 'oauth', NetOfFee, 'PF6', 'posting subtracts a fee of one cent'),
  wrong(2, 'key', LocalTimeOnRead, 'PF7 B5', 'reads move initiated_at by a minute'),
  wrong(2, 'key', FailedLosesBatch, 'PF3', 'a failed payment loses its batch'),
  wrong(3, 'key', Float32Column, 'PF6 S5', 'amounts are stored as float32'),
  wrong(3, 'key', DollarsInDouble, 'PF6 S5', 'amounts are stored in dollars and truncated'),
  wrong(3, 'key', Unsigned32, 'PF6 S5', 'amounts wrap at 2^32'),
  wrong(3, 'key', ClampedDecimal, 'PF6 S5', 'amounts are clamped at 9,999,999.99'),
  wrong(3, 'oauth', SixDigitsOfText, 'PF6 S5', 'amounts are formatted with six digits'),
  wrong(4, 'key', ReturnedByBank, 'RU2', 'succeeded becomes failed after four seconds'),
  wrong(4, 'key', RetryOfFailed, 'RU2 RU5', 'a repeated PUT processes a failed payment again'),
  wrong(4, 'key', CanceledIsPosted, 'RU2', 'a canceled payment is posted three seconds later'),
  wrong(4, 'key', PostedAgainEachRun, 'RU2 PF8', 'every run stamps posted_at again'),
  wrong(4, 'oauth', ArchivedAfterSeconds, 'B5 PF2', 'posted payments are gone after four seconds'),
  wrong(4, 'key', TimestampsTouchedByPut, 'RU5 PF8', 'a repeat after two seconds moves posted_at'),
  wrong(5, 'key', FailedIsCharged, 'ST3', 'a failed payment lowers the balance'),
  wrong(5, 'key', RefusedIsCharged, 'S5', 'a refused request lowers the balance'),
  wrong(5, 'key', CanceledIsCharged, 'ST4', 'a canceled payment lowers the balance'),
  wrong(5, 'key', ReplayIsCharged, 'RU5', 'a repeat after the end lowers the balance again'),
  wrong(5, 'key', OtherAccountIsCharged, 'PF2 RU5', 'a repeat under another account charges that'),
  wrong(5, 'key', LostUpdate, 'ST2', "concurrent payments overwrite each other's balance"),
  wrong(6, 'key', PrefixOfKey, 'KY1', 'a prefix of the key is enough'),
  wrong(6, 'key', KeyWithTail, 'KY1', 'anything may follow the key'),
  wrong(6, 'key', KeyOfAnyCase, 'KY1', 'the case of the key is ignored'),
  wrong(6, 'oauth', UnverifiedSignature, 'OA4', 'the signature of a token is not verified'),
  wrong(6, 'oauth', TokenByPrefix, 'OA4', 'sixteen characters of a token are enough'),
  wrong(6, 'oauth', ReplayBeforeScope, 'SC1', 'a repeated PUT needs no scope write'),
  wrong(6, 'oauth', ScopeByContentType, 'SC1', 'scope is checked for one spelling of the type'),
  wrong(6, 'oauth', SecretOfAnyClient, 'OA1', 'client_id is not checked'),
  wrong(6, 'oauth', ScopeAsClaimed, 'SC1', 'Get Payment accepts a token of any scope'),
  wrong(7, 'key', MutexOfOneReplica, 'RU5 PF2', 'each replica locks for itself'),
  wrong(7, 'key', RequestInAGlobal, 'B4 ID1', "concurrent requests return each other's payment"),
  wrong(7, 'key', LaggingReplica, 'RU2 B5', 'every other connection reads a second late'),
  wrong(7, 'key', LockForForty, 'RU5', 'the forty-first concurrent request has no lock'),
  wrong(7, 'oauth', IndexLate, 'B3', 'Get Payment finds a payment half a second late'),
  wrong(7, 'key', TwoPosters, 'ST2', 'under load a payment is posted twice'),
  wrong(7, 'key', ReplicaOfItsOwn, 'RU2 RU3', 'two replicas cache a status for a second each'),
  wrong(8, 'key', FoldedIds, 'PF2', 'ids that differ in case are treated as equal'),
  wrong(8, 'key', Char36, 'PF2', 'ids are truncated to 36 characters'),
  wrong(8, 'key', PunctuationDropped, 'PF2', 'ids that differ in punctuation are treated as equal'),
  wrong(8, 'key', NumericIds, 'PF2', 'numeric ids are read as numbers'),
  wrong(8, 'key', ClockPaymentId, 'PF1', 'payment_id is the millisecond'),
  wrong(8, 'key', CounterOfFifty, 'PF1', 'payment_id starts over after fifty'),
  wrong(8, 'key', BatchCut, 'PF3', 'batch ids are truncated to twenty characters'),
  wrong(8, 'key', FoldedAccounts, 'B1', 'account ids are trimmed and uppercased'),
  wrong(8, 'key', KeyPerAccount, 'PF2', 'ids are unique per account only'),
  wrong(9, 'key', IdsInMemory, 'PF2', 'a restart loses the ids'),
  wrong(9, 'key', QueueInMemory, 'RU3 ST2', 'a restart loses the posting queue'),
  wrong(9, 'key', SequenceFromOne, 'PF1', 'a restart reuses payment_ids'),
  wrong(9, 'key', PostedTwiceAtStart, 'ST2 RU2', 'a restart posts again'),
  wrong(9, 'key', IdsForTenSeconds, 'PF2', 'ids are known for ten seconds'),
  wrong(10, 'key', LocalTimeAsUtc, 'PF8', 'posted_at is local time with a Z'),
  wrong(10, 'key', NextBusinessDay, 'PF8', 'posted_at is the next day'),
  wrong(10, 'key', DateOnlyPosting, 'PF8', 'posted_at is the previous midnight'),
  wrong(10, 'key', ReasonOfConstraint, 'PF5', 'failure_reason names a constraint of PostgreSQL'),
  wrong(10, 'key', ReasonOfOracle, 'PF5', 'failure_reason names a constraint of Oracle'),
  wrong(10, 'key', ReasonOfRpc, 'PF5', 'failure_reason is an error of a remote call'),
  wrong(10, 'key', ReasonOfAnObject, 'PF5', 'failure_reason is [object Object]'),
  wrong(10, 'oauth', ReasonOfSql, 'PF5', 'failure_reason contains the SQL statement'),
  wrong(10, 'key', PostedWhileProcessing, 'PF8 ST1', 'posted_at is set from the start'),
  wrong(
    5,
    'key',
    CappedInSilence,
    'FR1 ST2',
    'an amount above the limit is paid in part and succeeds',
  ),
];
