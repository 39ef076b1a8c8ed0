/**
 * A plain correct partner, written from the interface alone. Each step is a method, so that a wrong
 * partner overrides just the method that its author got wrong. Maps stand for database tables; fields
 * that restart() clears stand for a server's memory.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import http, { type IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import { closeAll, listen, textOf } from '../listen.ts';

export type Auth = 'key' | 'oauth';

export interface Account {
  readonly biller_id: string;
  readonly account_id: string;
  readonly status: 'active' | 'inactive';
  amount_due_in_cents: number;
}

export interface Payment {
  platform_payment_id: string;
  payment_id: string;
  platform_batch_id: string;
  biller_id: string;
  account_id: string;
  amount_in_cents: number;
  status: 'processing' | 'succeeded' | 'failed' | 'canceled';
  initiated_at: string;
  posted_at: string | null;
  failure_reason?: string;
}

export interface Call {
  readonly method: string;
  /** The decoded segments of the path. */
  readonly path: readonly string[];
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** Number of the connection: 0 for the first, 1 for the next. */
  readonly connection: number;
}

export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/** The raw request and response, for partners that send in another way. */
export interface Wire {
  readonly request: http.IncomingMessage;
  readonly response: http.ServerResponse;
}

export interface Instruction {
  readonly platform_payment_id: string;
  readonly platform_batch_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  readonly amount_in_cents: number;
}

export interface Grant {
  readonly scopes: readonly string[];
  readonly ends_at: number;
}

export class Refusal extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const BILLER = 'city-water';
export const ACCOUNTS = {
  active: 'A-1001',
  other: 'A-1002',
  inactive: 'A-1003',
  /** The biller cancels its payments instead of posting them. */
  canceling: 'A-1004',
  unknown: 'A-9999',
} as const;
export const KEY = 'k3y-Of-The-Platform-7781';
export const CLIENT = { client_id: 'platform-77', client_secret: 's3cret-Of-The-Platform' };
export const MAX_AMOUNT_IN_CENTS = 9_000_000_000;
export const SETTLES_AFTER_MS = 150;
const TICK_MS = 25;

export const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

export class Partner {
  readonly auth: Auth;
  /** Tables: survive a restart. */
  readonly accounts = new Map<string, Account>();
  readonly payments = new Map<string, Payment>();
  readonly accepted_ms = new WeakMap<Payment, number>();
  /** Memory: cleared by a restart. */
  tokens = new Map<string, Grant>();
  #connections = 0;
  readonly #sockets = new Map<Socket, number>();
  readonly #server: http.Server;
  #ticking: NodeJS.Timeout | undefined;

  constructor(auth: Auth) {
    this.auth = auth;
    for (const account_id of [ACCOUNTS.active, ACCOUNTS.other, ACCOUNTS.canceling]) {
      this.addAccount(account_id, 'active');
    }
    this.addAccount(ACCOUNTS.inactive, 'inactive');
    this.#server = http.createServer((request, response) => void this.#serve(request, response));
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.set(socket, this.#connections);
      this.#connections += 1;
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  addAccount(account_id: string, status: Account['status']): void {
    const account = {
      biller_id: BILLER,
      account_id,
      status,
      amount_due_in_cents: 5_000_000_000_000,
    };
    this.accounts.set(this.accountKey(BILLER, account_id), account);
  }

  async open(): Promise<string> {
    const port = await listen(this.#server);
    this.#ticking = setInterval(() => void this.tick(), TICK_MS);
    return `http://127.0.0.1:${String(port)}`;
  }

  async close(): Promise<void> {
    clearInterval(this.#ticking);
    await closeAll(this.#server);
  }

  /** Restarts the process: tables survive, memory does not. */
  restart(): void {
    this.tokens = new Map();
  }

  /** Cancels a payment that has not been posted, as the biller's staff would. */
  cancel(platform_payment_id: string): boolean {
    const payment = this.payments.get(platform_payment_id);
    if (payment?.status !== 'processing') return false;
    payment.status = 'canceled';
    return true;
  }

  // Access

  async answer(call: Call): Promise<Answer> {
    if (call.method === 'POST' && call.path[0] === 'oauth' && this.auth === 'oauth') {
      return this.token(call);
    }
    const [first, , id = ''] = call.path;
    if (call.method === 'POST' && first === 'operator') {
      return this.cancel(id) ? { status: 200, body: {} } : { status: 409, body: {} };
    }
    this.authorize(call, this.authenticate(call));
    return { status: 200, body: await this.route(call) };
  }

  authenticate(call: Call): Grant {
    const grant =
      this.auth === 'key'
        ? this.grantOfKey(call.headers['x-api-key'])
        : this.grantOfToken(/^Bearer ([^ ]+)$/.exec(call.headers.authorization ?? '')?.[1]);
    if (grant === undefined) throw new Refusal(401, 'UNAUTHORIZED', 'The credential is not valid');
    return grant;
  }

  grantOfKey(given: string | string[] | undefined): Grant | undefined {
    return given === KEY ? { scopes: ['read', 'write'], ends_at: Infinity } : undefined;
  }

  grantOfToken(given: string | undefined): Grant | undefined {
    const grant = given === undefined ? undefined : this.tokens.get(given);
    return grant !== undefined && grant.ends_at > Date.now() ? grant : undefined;
  }

  authorize(call: Call, grant: Grant): void {
    const needed = call.method === 'GET' ? 'read' : 'write';
    if (!grant.scopes.includes(needed)) {
      throw new Refusal(403, 'INSUFFICIENT_SCOPE', `The token needs the scope ${needed}`);
    }
  }

  token(call: Call): Answer {
    const refuse = (status: number, error: string): Answer => ({ status, body: { error } });
    if (!/^application\/x-www-form-urlencoded\b/.test(call.headers['content-type'] ?? '')) {
      return refuse(400, 'invalid_request');
    }
    const form = new URLSearchParams(call.text);
    if (form.get('grant_type') !== 'client_credentials')
      return refuse(400, 'unsupported_grant_type');
    if (!this.clientIs(form.get('client_id'), form.get('client_secret'))) {
      return refuse(401, 'invalid_client');
    }
    const asked = (form.get('scope') ?? 'read write').split(' ').filter((word) => word !== '');
    if (!asked.every((word) => word === 'read' || word === 'write')) {
      return refuse(400, 'invalid_scope');
    }
    return {
      status: 200,
      body: {
        access_token: this.issue(asked),
        token_type: 'Bearer',
        expires_in: this.lifetime_s(),
        scope: asked.join(' '),
      },
    };
  }

  lifetime_s(): number {
    return 3_600;
  }

  clientIs(client_id: string | null, client_secret: string | null): boolean {
    return client_id === CLIENT.client_id && client_secret === CLIENT.client_secret;
  }

  issue(scopes: readonly string[]): string {
    const token = randomBytes(24).toString('base64url');
    this.tokens.set(token, { scopes, ends_at: Date.now() + this.lifetime_s() * 1_000 });
    return token;
  }

  // Operations

  async route(call: Call): Promise<unknown> {
    const [first, one = '', second, two = '', third, three = '', ...rest] = call.path;
    if (rest.length === 0 && first === 'biller' && second === 'account') {
      if (third === undefined && call.method === 'GET') return this.getAccount(one, two, call);
      if (third === 'balance' && three === '' && call.method === 'GET') {
        return this.getBalance(one, two, call);
      }
      if (third === 'payment' && three !== '') {
        if (call.method === 'GET') return this.getAccountPayment(one, two, three, call);
        if (call.method === 'PUT') return this.put(this.instruction(call, one, two, three), call);
      }
    }
    if (first === 'payment' && one !== '' && second === undefined && call.method === 'GET') {
      return this.getPayment(one, call);
    }
    throw new Refusal(404, 'NOT_FOUND', 'There is nothing at this address');
  }

  accountKey(biller_id: string, account_id: string): string {
    return JSON.stringify([biller_id, account_id]);
  }

  paymentKey(platform_payment_id: string): string {
    return platform_payment_id;
  }

  account(biller_id: string, account_id: string): Account | undefined {
    return this.accounts.get(this.accountKey(biller_id, account_id));
  }

  async getAccount(biller_id: string, account_id: string, _call: Call): Promise<unknown> {
    const account = this.account(biller_id, account_id);
    if (account === undefined) throw new Refusal(404, 'ACCOUNT_NOT_FOUND', 'Account not found');
    const { amount_due_in_cents, ...shown } = account;
    return { ...shown, balance: { amount_due_in_cents } };
  }

  async getBalance(biller_id: string, account_id: string, _call: Call): Promise<unknown> {
    const account = this.account(biller_id, account_id);
    if (account === undefined) throw new Refusal(404, 'ACCOUNT_NOT_FOUND', 'Account not found');
    return { amount_due_in_cents: account.amount_due_in_cents };
  }

  async getAccountPayment(
    biller_id: string,
    account_id: string,
    platform_payment_id: string,
    call: Call,
  ): Promise<unknown> {
    const payment = await this.find(platform_payment_id, call);
    if (payment?.biller_id !== biller_id || payment.account_id !== account_id) {
      throw new Refusal(404, 'PAYMENT_NOT_FOUND', 'Payment not found');
    }
    return this.show(payment, call);
  }

  async getPayment(platform_payment_id: string, call: Call): Promise<unknown> {
    const payment = await this.find(platform_payment_id, call);
    if (payment === undefined) throw new Refusal(404, 'PAYMENT_NOT_FOUND', 'Payment not found');
    return this.show(payment, call);
  }

  instruction(
    call: Call,
    biller_id: string,
    account_id: string,
    platform_payment_id: string,
  ): Instruction {
    if (!/^application\/json\b/i.test(call.headers['content-type'] ?? '')) {
      throw new Refusal(415, 'UNSUPPORTED_MEDIA_TYPE', 'Send application/json');
    }
    const body = this.parse(call.text);
    const { amount_in_cents, platform_batch_id } = body;
    if (
      typeof amount_in_cents !== 'number' ||
      !Number.isSafeInteger(amount_in_cents) ||
      amount_in_cents < 1
    ) {
      throw new Refusal(400, 'INVALID_REQUEST', 'amount_in_cents must be a whole number from 1');
    }
    if (typeof platform_batch_id !== 'string' || platform_batch_id === '') {
      throw new Refusal(400, 'INVALID_REQUEST', 'platform_batch_id is required');
    }
    if ((body['platform_payment_id'] ?? platform_payment_id) !== platform_payment_id) {
      throw new Refusal(400, 'INVALID_REQUEST', 'platform_payment_id differs from the path');
    }
    return { platform_payment_id, platform_batch_id, biller_id, account_id, amount_in_cents };
  }

  parse(text: string): Record<string, unknown> {
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      throw new Refusal(400, 'INVALID_REQUEST', 'The body is not JSON');
    }
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      throw new Refusal(400, 'INVALID_REQUEST', 'The body must be an object');
    }
    // JSON.parse accepts 1e2 and 1.0; an amount must be digits only.
    if (/"amount_in_cents"\s*:\s*-?[0-9]*[.eE]/.test(text)) {
      throw new Refusal(400, 'INVALID_REQUEST', 'amount_in_cents must be written in digits');
    }
    return body as Record<string, unknown>;
  }

  async put(instruction: Instruction, call: Call): Promise<unknown> {
    const existing = await this.find(instruction.platform_payment_id, call);
    const payment = existing ?? (await this.accept(instruction, call));
    return this.show(payment, call);
  }

  /** INSERT … ON CONFLICT DO NOTHING: atomic, because it awaits nothing. */
  async accept(instruction: Instruction, _call: Call): Promise<Payment> {
    return this.insert(instruction);
  }

  insert(instruction: Instruction): Payment {
    const key = this.paymentKey(instruction.platform_payment_id);
    const existing = this.payments.get(key);
    if (existing !== undefined) return existing;
    const payment: Payment = {
      payment_id: this.nextPaymentId(),
      ...instruction,
      amount_in_cents: this.column(instruction.amount_in_cents),
      status: 'processing',
      initiated_at: this.now(),
      posted_at: null,
    };
    this.payments.set(key, payment);
    this.accepted_ms.set(payment, Date.now());
    return payment;
  }

  /** The amount as its database column stores it. */
  column(amount_in_cents: number): number {
    return amount_in_cents;
  }

  nextPaymentId(): string {
    return `pay_${randomUUID()}`;
  }

  now(): string {
    return new Date().toISOString();
  }

  async find(platform_payment_id: string, _call: Call): Promise<Payment | undefined> {
    return this.payments.get(this.paymentKey(platform_payment_id));
  }

  show(payment: Payment, _call: Call): unknown {
    return payment;
  }

  // Posting

  async tick(): Promise<void> {
    for (const payment of this.payments.values()) {
      if (this.isDue(payment)) this.settle(payment);
    }
  }

  isDue(payment: Payment): boolean {
    return payment.status === 'processing' && this.age(payment) >= SETTLES_AFTER_MS;
  }

  /** Milliseconds since the payment was accepted. */
  age(payment: Payment): number {
    return Date.now() - (this.accepted_ms.get(payment) ?? 0);
  }

  settle(payment: Payment): void {
    const account = this.account(payment.biller_id, payment.account_id);
    if (account?.account_id === ACCOUNTS.canceling) payment.status = 'canceled';
    else if (account?.status !== 'active') {
      this.fail(payment, 'The account was not found or is not active.');
    } else if (payment.amount_in_cents > MAX_AMOUNT_IN_CENTS) {
      this.fail(payment, 'The amount is above the maximum that we take.');
    } else this.post(payment, account);
  }

  fail(payment: Payment, reason: string): void {
    payment.status = 'failed';
    payment.failure_reason = reason;
  }

  post(payment: Payment, account: Account): void {
    payment.status = 'succeeded';
    payment.posted_at = this.now();
    account.amount_due_in_cents -= payment.amount_in_cents;
  }

  /** For wrong partners only: lowers the balance of an account, if it exists, without posting a payment. */
  charge({ biller_id, account_id, amount_in_cents }: Instruction): void {
    const account = this.account(biller_id, account_id);
    if (account !== undefined) account.amount_due_in_cents -= amount_in_cents;
  }

  // HTTP

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    let answer: Answer;
    try {
      const text = await textOf(request);
      const url = request.url ?? '/';
      const [, ...path] = (url.split('?')[0] ?? '').split('/');
      answer = await this.answer({
        method: request.method ?? 'GET',
        path: path.map(decodeURIComponent),
        url,
        headers: request.headers,
        text,
        connection: this.#sockets.get(request.socket) ?? 0,
      });
    } catch (error) {
      answer = this.refused(error);
    }
    await this.send({ request, response }, answer);
  }

  async send({ response }: Wire, answer: Answer): Promise<void> {
    const body = JSON.stringify(answer.body);
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(body);
  }

  refused(error: unknown): Answer {
    if (error instanceof Refusal) {
      return { status: error.status, body: { code: error.code, message: error.message } };
    }
    if (error instanceof URIError) {
      return { status: 400, body: { code: 'INVALID_REQUEST', message: 'The path is not valid' } };
    }
    return {
      status: 500,
      body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' },
    };
  }
}
