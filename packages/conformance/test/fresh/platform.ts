/**
 * A plain correct platform as a partner's server sees it: the token endpoint, written from the
 * interface alone. Each wrong platform overrides one of its methods.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import http, { type IncomingHttpHeaders } from 'node:http';
import { closeAll, listen, textOf } from '../listen.ts';

export const CREDENTIALS = { client_id: 'cl_5f0c2b7d', api_key: 'sk_Qm9VtR3xL8wZ' };
/** Another client, whose key must not work for the first one. */
export const OTHER_CREDENTIALS = { client_id: 'cl_9a41e6c0', api_key: 'sk_Zr4NfY7wQ2pB' };
export const KNOWN_ACCOUNT = 'A-1';
export const UNKNOWN_ACCOUNT = 'A-404';
const MAX_BODY_BYTES = 65_536;
const REQUESTS_PER_SECOND = 25;
const BURST = 50;
const LIFETIME_MS = 30 * 60_000;

export type Json = Readonly<Record<string, unknown>>;

export interface Answer {
  readonly status: number;
  readonly body: unknown;
  readonly type?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Request {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** The raw request and response, for platforms that send in another way. */
export interface Wire {
  readonly request: http.IncomingMessage;
  readonly response: http.ServerResponse;
}

export class Refused extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export class Platform {
  readonly kind: 'biller' | 'aggregator';
  readonly #server: http.Server;
  #left = BURST;
  #at = Date.now();

  constructor(kind: 'biller' | 'aggregator') {
    this.kind = kind;
    this.#server = http.createServer((request, response) => void this.#serve(request, response));
  }

  async open(): Promise<string> {
    return `http://127.0.0.1:${String(await listen(this.#server))}`;
  }

  async close(): Promise<void> {
    await closeAll(this.#server);
  }

  answer(request: Request): Answer {
    if (request.url.split('?')[0] !== '/v1/sbi/token') throw this.notFound();
    if (request.method !== 'POST') {
      throw new Refused(405, 'METHOD_NOT_ALLOWED', 'Only POST is allowed here');
    }
    this.authenticate(request);
    this.spend();
    if (!this.isJson(request.headers['content-type'] ?? '')) {
      throw new Refused(415, 'UNSUPPORTED_MEDIA_TYPE', 'Send application/json');
    }
    const body = this.parse(request.text);
    this.check(body);
    if (!this.accountExists(body)) throw this.notFound();
    const expires = new Date(Date.now() + LIFETIME_MS).toISOString();
    return {
      status: 200,
      body: this.tokenBody(this.token(body)),
      headers: { 'token-expires-at': expires },
    };
  }

  authenticate({ headers }: Request): void {
    const [client, key] = [headers['x-client-id'], headers['x-api-key']];
    if (typeof client !== 'string' || typeof key !== 'string') throw this.unauthorized();
    if (!this.clientIs(client)) throw this.unknownClient();
    if (!this.keyIs(key)) throw this.unauthorized();
  }

  /** 25 requests per second, with bursts of 50. */
  spend(): void {
    const now = Date.now();
    this.#left = Math.min(BURST, this.#left + ((now - this.#at) * REQUESTS_PER_SECOND) / 1_000);
    this.#at = now;
    if (this.#left < 1) throw new Refused(429, 'TOO_MANY_REQUESTS', 'Too many requests');
    this.#left -= 1;
  }

  clientIs(given: string): boolean {
    return given === CREDENTIALS.client_id;
  }

  keyIs(given: string): boolean {
    return given === CREDENTIALS.api_key;
  }

  unauthorized(): Refused {
    return new Refused(401, 'UNAUTHORIZED', 'The credentials are missing or not valid');
  }

  unknownClient(): Refused {
    return this.notFound();
  }

  notFound(): Refused {
    return new Refused(404, 'NOT_FOUND', 'Resource not found');
  }

  isJson(type: string): boolean {
    return /^application\/json *(;|$)/i.test(type);
  }

  parse(text: string): Json {
    if (Buffer.byteLength(text) > MAX_BODY_BYTES) {
      throw new Refused(413, 'PAYLOAD_TOO_LARGE', 'The body is too large');
    }
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      throw this.invalid('The body is not JSON');
    }
    if (!isObject(body)) throw this.invalid('The body must be an object');
    return body;
  }

  invalid(message: string): Refused {
    return new Refused(400, 'INVALID_REQUEST', message);
  }

  check(body: Json): void {
    for (const name of ['first_name', 'last_name', 'email', 'phone_number']) {
      this.required(body, name);
    }
    this.checkAddress(body['address']);
    if (body['balance'] !== undefined) this.checkBalance(body['balance']);
    if (body['external_identifiers'] !== undefined) this.checkIds(body['external_identifiers']);
  }

  required(of: Json, name: string): void {
    const value = of[name];
    if (typeof value !== 'string' || value.trim() === '' || value.length > 256) {
      throw this.invalid(`${name} must be a text of 1 to 256 characters`);
    }
  }

  optional(of: Json, name: string): void {
    if (of[name] !== undefined && (typeof of[name] !== 'string' || of[name].length > 256)) {
      throw this.invalid(`${name} must be a text`);
    }
  }

  checkAddress(address: unknown): void {
    if (!isObject(address)) throw this.invalid('address must be an object');
    for (const name of ['address_line_1', 'city', 'zip']) this.required(address, name);
    this.optional(address, 'address_line_2');
    if (!this.stateIs(address['state'])) throw this.invalid('state must be a two-letter code');
  }

  stateIs(state: unknown): boolean {
    return typeof state === 'string' && /^[A-Z]{2}$/.test(state);
  }

  checkBalance(balance: unknown): void {
    if (!isObject(balance)) throw this.invalid('balance must be an object');
    const { amount_due_in_cents, due_date, last_updated_at } = balance;
    if (amount_due_in_cents !== undefined && !this.centsAre(amount_due_in_cents)) {
      throw this.invalid('amount_due_in_cents must be a whole number of cents');
    }
    if (due_date !== undefined && !this.dateIs(due_date)) {
      throw this.invalid('due_date must be a date, YYYY-MM-DD');
    }
    if (last_updated_at !== undefined && !this.datetimeIs(last_updated_at)) {
      throw this.invalid('last_updated_at must be an ISO 8601 datetime');
    }
  }

  centsAre(cents: unknown): boolean {
    return Number.isSafeInteger(cents);
  }

  dateIs(date: unknown): boolean {
    if (typeof date !== 'string' || !/^\d{4}-\d{2}-\d{2}$/.test(date)) return false;
    const parsed = new Date(`${date}T00:00:00Z`);
    return !Number.isNaN(parsed.getTime()) && parsed.toISOString().startsWith(date);
  }

  datetimeIs(text: unknown): boolean {
    const shape = /^(\d{4}-\d{2}-\d{2})T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/;
    const date = typeof text === 'string' ? shape.exec(text)?.[1] : undefined;
    return this.dateIs(date) && !Number.isNaN(Date.parse(text as string));
  }

  checkIds(ids: unknown): void {
    if (!isObject(ids)) throw this.invalid('external_identifiers must be an object');
    this.required(ids, 'account_id');
    if (this.kind === 'aggregator') this.required(ids, 'biller_id');
    else this.optional(ids, 'biller_id');
  }

  accountExists(body: Json): boolean {
    const ids = body['external_identifiers'];
    return !isObject(ids) || ids['account_id'] !== UNKNOWN_ACCOUNT;
  }

  token(_body: Json): string {
    return `tok_${randomBytes(32).toString('base64url')}`;
  }

  tokenBody(token: string): unknown {
    return { token };
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    let answer: Answer;
    try {
      const text = await textOf(request);
      const { method = 'GET', url = '/', headers } = request;
      answer = this.answer({ method, url, headers, text });
    } catch (error) {
      answer = this.refusal(error);
    }
    await this.send({ request, response }, answer);
  }

  async send({ response }: Wire, answer: Answer): Promise<void> {
    const { status, body, type = 'application/json', headers = {} } = answer;
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const common = { 'content-type': type, 'x-request-id': randomUUID() };
    response.writeHead(status, { ...common, ...headers }).end(text);
  }

  refusal(error: unknown): Answer {
    if (error instanceof Refused) {
      const { status, code, message } = error;
      const headers =
        status === 405 ? { allow: 'POST' } : status === 429 ? { 'retry-after': '1' } : undefined;
      return { status, body: { code, message }, ...(headers === undefined ? {} : { headers }) };
    }
    return {
      status: 500,
      body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' },
    };
  }
}
