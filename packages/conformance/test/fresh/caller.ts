/**
 * A plain correct caller: the paying part of a platform, written from the interface alone. Each wrong
 * caller overrides one of its methods. POST /pay {biller_id, account_id, amount_in_cents} makes it pay;
 * GET /payments/ID returns the status.
 */
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { closeAll, listen, textOf } from '../listen.ts';

export type Access =
  | { readonly header: 'x-api-key' | 'authorization'; readonly key: string }
  | { readonly client_id: string; readonly client_secret: string };

export interface Payment {
  platform_payment_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  readonly amount_in_cents: number;
  readonly platform_batch_id: string;
  readonly body: string;
  /** The partner's payment_id, known after the first PUT that was answered. */
  payment_id?: unknown;
  status: string;
  /** Number of polls that were answered. */
  polls: number;
  puts: number;
}

export interface Heard {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

export type PaymentRecord = { readonly [name: string]: unknown };

/** What a response says: the payment's record, or nothing certain, in which case it is retried. */
export type Meaning = { readonly record: PaymentRecord } | { readonly again_ms: number };

const ENDS: readonly unknown[] = ['succeeded', 'failed', 'canceled'];
const CALL_DEADLINE_MS = 2_000;

const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

export class Caller {
  readonly partner: string;
  readonly access: Access;
  readonly payments = new Map<string, Payment>();
  held: Promise<string> | undefined;
  closed = false;
  #process = 0;
  readonly #server: http.Server;
  readonly #aborter = new AbortController();

  constructor(partner: string, access: Access) {
    this.partner = partner;
    this.access = access;
    this.#server = http.createServer((request, response) => {
      this.#serve(request, response).catch(() => response.destroy());
    });
  }

  async open(): Promise<string> {
    return `http://127.0.0.1:${String(await listen(this.#server))}`;
  }

  async close(): Promise<void> {
    this.closed = true;
    this.#aborter.abort();
    await closeAll(this.#server);
  }

  /** The payments that are open when a process starts. */
  unfinished(): readonly Payment[] {
    return [...this.payments.values()].filter((payment) => !this.isEnded(payment));
  }

  /** Restarts the process: the table of payments survives, memory does not. */
  restart(): void {
    this.#process += 1;
    this.held = undefined;
  }

  /** Continues the open payments after a restart. */
  resume(): void {
    for (const payment of this.unfinished()) void this.drive(payment).catch(() => undefined);
  }

  // Requests

  begin(order: Pick<Payment, 'biller_id' | 'account_id' | 'amount_in_cents'>): Payment {
    const platform_payment_id = this.newId(order);
    const platform_batch_id = this.batch();
    const amount_in_cents = this.cents(order.amount_in_cents);
    const payment: Payment = {
      ...order,
      platform_payment_id,
      platform_batch_id,
      amount_in_cents,
      body: this.body(platform_payment_id, platform_batch_id, amount_in_cents),
      status: 'processing',
      polls: 0,
      puts: 0,
    };
    this.payments.set(platform_payment_id, payment);
    void this.drive(payment).catch(() => undefined);
    return payment;
  }

  newId(_order: Pick<Payment, 'biller_id' | 'account_id' | 'amount_in_cents'>): string {
    return randomUUID();
  }

  batch(): string {
    return `batch-${new Date().toISOString().slice(0, 10)}`;
  }

  cents(asked: number): number {
    return asked;
  }

  body(platform_payment_id: string, platform_batch_id: string, amount_in_cents: number): string {
    return JSON.stringify({ platform_payment_id, platform_batch_id, amount_in_cents });
  }

  path({ biller_id, account_id, platform_payment_id }: Payment): string {
    const [biller, account] = [biller_id, account_id].map(encodeURIComponent);
    return `/biller/${biller ?? ''}/account/${account ?? ''}/payment/${platform_payment_id}`;
  }

  putHeaders(): { readonly [name: string]: string } {
    return { 'content-type': 'application/json' };
  }

  // Access

  async credential(refused?: string): Promise<{ readonly [name: string]: string }> {
    if ('key' in this.access) return { [this.access.header]: this.access.key };
    if (this.held === undefined || (refused !== undefined && (await this.held) === refused)) {
      this.held = this.fetchToken();
      this.held.catch(() => {
        this.held = undefined;
      });
    }
    return { authorization: `Bearer ${await this.held}` };
  }

  async fetchToken(): Promise<string> {
    const answer = await this.send(`${this.partner}/oauth/token`, this.tokenRequest());
    const token: unknown = (JSON.parse(answer.text) as { access_token?: unknown }).access_token;
    if (answer.status !== 200 || typeof token !== 'string') throw new Error('no token');
    return token;
  }

  tokenForm(): URLSearchParams {
    if (!('client_id' in this.access)) throw new Error('no client');
    const { client_id, client_secret } = this.access;
    return new URLSearchParams({
      grant_type: 'client_credentials',
      client_id,
      client_secret,
      scope: 'read write',
    });
  }

  tokenRequest(): RequestInit {
    return { method: 'POST', body: this.tokenForm() };
  }

  // Calls

  async send(url: string, init: RequestInit): Promise<Heard> {
    const signal = AbortSignal.any([this.#aborter.signal, AbortSignal.timeout(this.deadlineMs())]);
    const answer = await fetch(url, { redirect: this.redirects(), ...init, signal });
    return { status: answer.status, headers: answer.headers, text: await answer.text() };
  }

  deadlineMs(): number {
    return CALL_DEADLINE_MS;
  }

  redirects(): 'manual' | 'follow' {
    return 'manual';
  }

  async call(method: 'PUT' | 'GET', payment: Payment): Promise<Heard | undefined> {
    const request = async (refused?: string): Promise<[Heard, string | undefined]> => {
      const credential = await this.credential(refused);
      const init =
        method === 'PUT'
          ? {
              method,
              headers: { ...credential, ...this.putHeaders() },
              body: this.putBody(payment),
            }
          : { method, headers: credential };
      const answer = await this.send(this.partner + this.path(payment), init);
      return [answer, credential['authorization']?.slice('Bearer '.length)];
    };
    try {
      const [answer, token] = await request();
      if (answer.status !== 401 || 'key' in this.access) return answer;
      return (await request(token))[0];
    } catch {
      return undefined; // No response, or half of one: the outcome is unknown.
    }
  }

  putBody(payment: Payment): string {
    return payment.body;
  }

  meaning(payment: Payment, answer: Heard | undefined): Meaning {
    const again_ms = this.retryAfterMs(answer);
    if (answer?.status !== 200) return { again_ms };
    try {
      const record: unknown = JSON.parse(answer.text);
      if (
        typeof record === 'object' &&
        record !== null &&
        !namesTwice(answer.text) &&
        this.isMine(payment, record as PaymentRecord)
      ) {
        return { record: record as PaymentRecord };
      }
    } catch {
      // Falls through: an unreadable response says nothing.
    }
    return { again_ms };
  }

  isMine(payment: Payment, record: PaymentRecord): boolean {
    return (
      record['platform_payment_id'] === payment.platform_payment_id &&
      record['amount_in_cents'] === payment.amount_in_cents &&
      (payment.payment_id ?? record['payment_id']) === record['payment_id'] &&
      this.agrees(record, payment, 'account_id') &&
      this.agrees(record, payment, 'platform_batch_id')
    );
  }

  /** True if the field is absent from the record or has the value that was sent. */
  agrees(
    record: PaymentRecord,
    payment: Payment,
    name: 'account_id' | 'platform_batch_id',
  ): boolean {
    return record[name] === undefined || record[name] === payment[name];
  }

  retryAfterMs(answer: Heard | undefined): number {
    const text = answer?.headers.get('retry-after');
    if (text === null || text === undefined) return 0;
    const ms = /^[0-9]+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - Date.now();
    return Number.isNaN(ms) ? 0 : Math.max(0, ms);
  }

  backoffMs(tries: number): number {
    return Math.min(250 * 1.5 ** tries, 5_000);
  }

  async drive(payment: Payment): Promise<void> {
    const own = this.#process;
    const isOver = (): boolean => this.closed || this.#process !== own;
    for (let tries = 0; !isOver(); tries += 1) {
      payment.puts += 1;
      const heard = await this.call('PUT', payment);
      if (isOver()) return;
      const meaning = this.put(payment, heard);
      if (this.isEnded(payment)) return;
      if ('record' in meaning) {
        payment.payment_id = meaning.record['payment_id'];
        break;
      }
      await pause(Math.max(this.backoffMs(tries), meaning.again_ms));
    }
    for (let tries = 0; !isOver() && !this.isEnded(payment); tries += 1) {
      const answer = await this.call('GET', payment);
      if (isOver()) return;
      payment.polls += 1;
      const meaning = this.poll(payment, answer);
      if (this.isEnded(payment)) return;
      const again_ms = 'again_ms' in meaning ? meaning.again_ms : this.retryAfterMs(answer);
      await pause(Math.max(this.backoffMs(Math.min(tries, 4)), again_ms));
    }
  }

  put(payment: Payment, answer: Heard | undefined): Meaning {
    return this.meaning(payment, answer);
  }

  poll(payment: Payment, answer: Heard | undefined): Meaning {
    const meaning = this.meaning(payment, answer);
    if ('record' in meaning) this.take(payment, meaning.record);
    return meaning;
  }

  take(payment: Payment, record: PaymentRecord): void {
    if (ENDS.includes(record['status'])) payment.status = String(record['status']);
  }

  isEnded(payment: Payment): boolean {
    return payment.status !== 'processing';
  }

  // Its own endpoints

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const text = await textOf(request);
    const id = decodeURIComponent((request.url ?? '').split('/').at(-1) ?? '');
    const body =
      request.method === 'POST'
        ? { platform_payment_id: this.begin(JSON.parse(text) as Payment).platform_payment_id }
        : { status: this.payments.get(id)?.status ?? 'unknown' };
    response.setHeader('content-type', 'application/json').end(JSON.stringify(body));
  }
}

/** True if the outermost object has the same field twice, which parsers read differently. */
function namesTwice(json: string): boolean {
  const names: string[] = [];
  let depth = 0;
  for (const [token, name] of json.matchAll(
    /("(?:[^"\\]|\\.)*")(?=\s*:)|"(?:[^"\\]|\\.)*"|[{}[\]]/g,
  )) {
    if (name !== undefined && depth === 1) names.push(name);
    else if (token === '{' || token === '[') depth += 1;
    else if (token === '}' || token === ']') depth -= 1;
  }
  return new Set(names).size < names.length;
}
