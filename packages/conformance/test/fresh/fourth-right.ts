/**
 * Correct peers of unusual but legal shape, written together with the fourth set: partners, platforms and callers. The clause of each is
 * the one that leaves its shape open.
 *
 * One file because it is one table: each peer, then the lists of them.
 */
import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import { Caller, type Heard, type Payment as Sent } from './caller.ts';
import {
  Partner,
  pause,
  Refusal,
  type Account,
  type Answer,
  type Call,
  type Grant,
  type Instruction,
  type Payment,
  type Wire,
} from './partner.ts';
import {
  Platform,
  Refused,
  type Answer as PlatformAnswer,
  type Json,
  type Wire as PlatformWire,
} from './platform.ts';
import { wrong as wrongCaller, type WrongCaller } from './wrong-callers.ts';
import { wrong as wrongPartner, type WrongPartner } from './wrong-partners.ts';
import { wrong as wrongPlatform, type WrongPlatform } from './wrong-platforms.ts';

// How JSON and HTTP may be written

const JSON_TYPE = { 'content-type': 'application/json' };

/** Every character of every text, keys too, as an escape. */
const escaped = (body: unknown): string =>
  JSON.stringify(body).replace(/"(?:[^"\\]|\\.)*"/g, (text) => {
    const units = (JSON.parse(text) as string).split('');
    const hex = units.map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
    return `"${hex.join('')}"`;
  });

const reversed = (body: unknown): unknown =>
  typeof body === 'object' && body !== null && !Array.isArray(body)
    ? Object.fromEntries(Object.entries(body).toReversed())
    : body;

/** Past Node's own writing of a response: HTTP/1.0, no length, the end of the connection ends it. */
const sendOld = ({ socket }: ServerResponse, status: number, body: string): void => {
  socket?.end(`HTTP/1.0 ${String(status)} Status\r\nContent-Type: application/json\r\n\r\n${body}`);
};

class TinyChunks extends Partner {
  override async send({ response }: Wire, answer: Answer): Promise<void> {
    const bytes = Buffer.from(JSON.stringify(answer.body));
    response.writeHead(answer.status, JSON_TYPE);
    for (let at = 0; at < bytes.length; at += 7) {
      response.write(bytes.subarray(at, at + 7));
      await new Promise((resolve) => {
        setImmediate(resolve);
      });
    }
    response.end();
  }
}

class ClosesEachConnection extends Partner {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    wire.response.setHeader('connection', 'close');
    await super.send(wire, answer);
  }
}

class OldGateway extends Partner {
  override async send({ response }: Wire, answer: Answer): Promise<void> {
    sendOld(response, answer.status, JSON.stringify(answer.body));
  }
}

class PrettyWithReturns extends Partner {
  override async send({ response }: Wire, answer: Answer): Promise<void> {
    const text = JSON.stringify(answer.body, null, '\t')
      .replaceAll('":', '" \t:')
      .replaceAll('\n', '\r\n');
    response.writeHead(answer.status, JSON_TYPE).end(`\r\n ${text}\r\n\r\n`);
  }
}

class EscapesEverything extends Partner {
  override async send({ response }: Wire, answer: Answer): Promise<void> {
    response.writeHead(answer.status, JSON_TYPE).end(escaped(answer.body));
  }
}

class ReversedKeys extends Partner {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    await super.send(wire, { ...answer, body: reversed(answer.body) });
  }
}

class ShoutsItsHeaders extends Partner {
  override async send({ response }: Wire, answer: Answer): Promise<void> {
    const body = Buffer.from(JSON.stringify(answer.body));
    response
      .writeHead(answer.status, {
        'CONTENT-TYPE': 'Application/JSON ; Charset="UTF-8"',
        'CONTENT-LENGTH': String(body.length),
        'SET-COOKIE': 'lb=node-2; Path=/; HttpOnly',
        VIA: '1.1 edge, 1.0 old-proxy',
      })
      .end(body);
  }
}

class Gzips extends Partner {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    const { request, response } = wire;
    if (!/\bgzip\b/.test(String(request.headers['accept-encoding']))) {
      return super.send(wire, answer);
    }
    response
      .writeHead(answer.status, {
        ...JSON_TYPE,
        'content-encoding': 'gzip',
        vary: 'Accept-Encoding',
        etag: `W/"${randomUUID()}"`,
      })
      .end(gzipSync(JSON.stringify(answer.body)));
  }
}

class EarlyHints extends Partner {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    // A content network says something before it has the answer.
    if (wire.request.httpVersion === '1.1') {
      wire.response.writeEarlyHints({ link: '</docs>; rel=preconnect' });
    }
    await super.send(wire, answer);
  }
}

// What a record may hold

class NestedNamesakes extends Partner {
  override show(payment: Payment, _call: Call): unknown {
    return {
      account: { id: payment.account_id, status: 'active', balance: { amount_in_cents: 1 } },
      history: [{ status: 'processing', at: payment.initiated_at }],
      fee: { amount_in_cents: 0, status: 'failed' },
      tags: [],
      ...payment,
      note: null,
    };
  }
}

class OnlyNamedFields extends Partner {
  override show(payment: Payment, _call: Call): unknown {
    const { biller_id: _biller, account_id: _account, ...named } = payment;
    return named;
  }
}

class NoPostedAtWithoutPosting extends Partner {
  override show(payment: Payment, _call: Call): unknown {
    if (payment.status !== 'failed' && payment.status !== 'canceled') return payment;
    const { posted_at: _never, ...rest } = payment;
    return rest;
  }
}

class LongPaymentIds extends Partner {
  override nextPaymentId(): string {
    return `urn:biller:city-water:ledger:2026:${randomBytes(110).toString('hex')}`;
  }
}

class StrangePaymentIds extends Partner {
  #count = 0;

  override nextPaymentId(): string {
    this.#count += 1;
    return `№ ${String(this.#count)}/2026 "Ñandú" \\ 日本 😀 <a&b> ${randomUUID()}`;
  }
}

class LongReasons extends Partner {
  override fail(payment: Payment, reason: string): void {
    const more = ' Llame al 311, opción “agua”; horario: 8–17 h.\n\t"Référence" \\ 水道局 ☎';
    super.fail(payment, `${reason}${more.repeat(30)}`);
  }
}

// How a time may be written

class KolkataInSeconds extends Partner {
  override now(): string {
    const wall = new Date(Date.now() + 5.5 * 3_600_000).toISOString();
    return `${wall.slice(0, 19)}+05:30`;
  }
}

class NineDigits extends Partner {
  override now(): string {
    return new Date().toISOString().replace('Z', '456789Z');
  }
}

class TwoZones extends Partner {
  override post(payment: Payment, account: Account): void {
    super.post(payment, account);
    const wall = new Date(Date.now() - 3.5 * 3_600_000).toISOString();
    payment.posted_at = wall.replace('Z', '-03:30');
  }

  override now(): string {
    return new Date().toISOString().replace('Z', '+00:00');
  }
}

class OffsetInHours extends Partner {
  override now(): string {
    // to_char(..., 'YYYY-MM-DD"T"HH24:MI:SS.MSOF') of PostgreSQL.
    return new Date().toISOString().replace('Z', '+00');
  }
}

// When things happen

class ColdStart extends Partner {
  #warm: Promise<void> | undefined;

  override async answer(call: Call): Promise<Answer> {
    this.#warm ??= pause(1_300);
    await this.#warm;
    return super.answer(call);
  }

  override restart(): void {
    super.restart();
    this.#warm = undefined;
  }
}

class PostsAtOnce extends Partner {
  override async put(instruction: Instruction, call: Call): Promise<unknown> {
    const shown = { ...((await super.put(instruction, call)) as Payment) };
    // Accepted, and posted before the answer has left the house.
    const payment = this.payments.get(this.paymentKey(instruction.platform_payment_id));
    if (payment?.status === 'processing') this.settle(payment);
    return shown;
  }
}

class PostsInRuns extends Partner {
  #ran_at = 0;

  override async tick(): Promise<void> {
    if (Date.now() - this.#ran_at < 900) return;
    this.#ran_at = Date.now();
    const posted_at = this.now();
    for (const payment of this.payments.values()) {
      if (!this.isDue(payment)) continue;
      this.settle(payment);
      if (payment.status === 'succeeded') payment.posted_at = posted_at;
    }
  }
}

class OneAtATime extends Partner {
  #last: Promise<unknown> = Promise.resolve();

  override async answer(call: Call): Promise<Answer> {
    const own = this.#last.then(async () => {
      await pause(10);
      return super.answer(call);
    });
    this.#last = own.catch(() => undefined);
    return own;
  }
}

class LimitsPolls extends Partner {
  readonly #reads = new Map<string, number[]>();

  override async route(call: Call): Promise<unknown> {
    if (call.method !== 'GET') return super.route(call);
    const path = call.path.join('/');
    const recent = (this.#reads.get(path) ?? []).filter((time) => time > Date.now() - 1_000);
    if (recent.length >= 5) throw new Refusal(429, 'TOO_MANY_REQUESTS', 'Ask again in a second');
    this.#reads.set(path, [...recent, Date.now()]);
    return super.route(call);
  }

  override async send(wire: Wire, answer: Answer): Promise<void> {
    if (answer.status === 429) wire.response.setHeader('Retry-After', '1');
    await super.send(wire, answer);
  }
}

class ShutAfterRestart extends Partner {
  #opens_at = 0;

  override restart(): void {
    super.restart();
    this.#opens_at = Date.now() + 500;
  }

  override async answer(call: Call): Promise<Answer> {
    if (Date.now() < this.#opens_at) throw new Refusal(503, 'UNAVAILABLE', 'Starting');
    return super.answer(call);
  }

  override async send(wire: Wire, answer: Answer): Promise<void> {
    // The balancer's own page; the time is a date here, as HTTP allows.
    if (answer.status !== 503) return super.send(wire, answer);
    const after = new Date(Date.now() + 1_000).toUTCString();
    wire.response
      .writeHead(503, { 'content-type': 'text/html', 'retry-after': after })
      .end('<html><h1>503 Service Unavailable</h1></html>');
  }
}

// What a partner may refuse, and how

class PlainErrors extends Partner {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    if (answer.status < 400) return super.send(wire, answer);
    if (answer.status === 401) {
      wire.response.writeHead(401, { 'www-authenticate': 'Bearer error="invalid_token"' }).end();
      return;
    }
    wire.response.writeHead(answer.status, { 'content-type': 'text/html' }).end('<p>No.</p>');
  }
}

class DetectsDuplicates extends Partner {
  override settle(payment: Payment): void {
    const own_ms = this.accepted_ms.get(payment) ?? 0;
    const isRepeated = [...this.payments.values()].some(
      (other) =>
        other !== payment &&
        other.account_id === payment.account_id &&
        other.amount_in_cents === payment.amount_in_cents &&
        other.platform_batch_id === payment.platform_batch_id &&
        other.status === 'succeeded' &&
        own_ms - (this.accepted_ms.get(other) ?? 0) < 1_000,
    );
    if (isRepeated) this.fail(payment, 'Duplicate payment detected: same account and amount.');
    else super.settle(payment);
  }
}

class SmallMaximum extends Partner {
  override settle(payment: Payment): void {
    if (payment.amount_in_cents <= 1_000_000) super.settle(payment);
    else this.fail(payment, 'We take at most $10,000.00 at a time.');
  }
}

// Tokens

class SameTokenUntilItEnds extends Partner {
  readonly #held = new Map<string, string>();

  override token(call: Call): Answer {
    const answer = super.token(call);
    const body = answer.body as Record<string, unknown>;
    const grant = this.grantOfToken(String(body['access_token']));
    if (answer.status !== 200 || grant === undefined) return answer;
    const expires_in = Math.floor((grant.ends_at - Date.now()) / 1_000);
    return { ...answer, body: { ...body, expires_in, issued_token_type: 'access', ext: {} } };
  }

  override issue(scopes: readonly string[]): string {
    const key = [...scopes].sort().join(' ');
    const held = this.#held.get(key);
    if (held !== undefined && this.grantOfToken(held) !== undefined) return held;
    const token = super.issue(scopes);
    this.#held.set(key, token);
    return token;
  }
}

class TokensOfThousands extends Partner {
  override issue(scopes: readonly string[]): string {
    const token = `v4.local.${randomBytes(2_600).toString('base64').replaceAll('=', '')}._~+/==`;
    this.tokens.set(token, this.#grant(scopes));
    return token;
  }

  #grant(scopes: readonly string[]): Grant {
    return { scopes, ends_at: Date.now() + this.lifetime_s() * 1_000 };
  }
}

class ShortTokens extends Partner {
  override lifetime_s(): number {
    return 2;
  }
}

export const RIGHT_PARTNERS_4: readonly WrongPartner[] = [
  wrongPartner(
    0,
    'key',
    TinyChunks,
    'B4 B5',
    'bodies in chunks of seven bytes, cut within characters',
  ),
  wrongPartner(0, 'oauth', ClosesEachConnection, 'S2', 'Connection: close with each answer'),
  wrongPartner(
    0,
    'key',
    OldGateway,
    'S2 B4',
    'HTTP/1.0, no Content-Length, an own reason phrase, the body ends with the connection',
  ),
  wrongPartner(
    0,
    'oauth',
    PrettyWithReturns,
    'B4 B5 OA3',
    'tabs, CRLF, blanks before colons, white space before and after the body',
  ),
  wrongPartner(
    0,
    'oauth',
    EscapesEverything,
    'B4 B5 OA3',
    'every character of every text and name is an escape',
  ),
  wrongPartner(0, 'key', ReversedKeys, 'B4 B5', 'names in the opposite order'),
  wrongPartner(
    0,
    'key',
    ShoutsItsHeaders,
    'B4 B5',
    'CONTENT-TYPE: Application/JSON ; Charset="UTF-8", cookies of a balancer, VIA',
  ),
  wrongPartner(
    0,
    'oauth',
    Gzips,
    'B4 B5',
    'gzip and a weak ETag for clients with Accept-Encoding: gzip',
  ),
  wrongPartner(0, 'key', EarlyHints, 'B4', '103 before each answer'),
  wrongPartner(
    0,
    'key',
    NestedNamesakes,
    'PF9',
    'nested status and amount_in_cents before and beside the own ones',
  ),
  wrongPartner(0, 'oauth', OnlyNamedFields, 'PF9', 'records without biller_id and account_id'),
  wrongPartner(
    0,
    'key',
    NoPostedAtWithoutPosting,
    'PF8',
    'failed and canceled records have no posted_at at all',
  ),
  wrongPartner(0, 'key', LongPaymentIds, 'PF1', 'payment_id of 250 characters with colons'),
  wrongPartner(
    0,
    'oauth',
    StrangePaymentIds,
    'PF1',
    'payment_id with spaces, quotes, a backslash, a slash, Chinese, an emoji',
  ),
  wrongPartner(
    0,
    'key',
    LongReasons,
    'PF5',
    'reasons of 2,000 characters with newlines, quotes and other scripts',
  ),
  wrongPartner(
    0,
    'key',
    KolkataInSeconds,
    'PF7 PF8',
    'whole seconds, +05:30; both times can be the same second',
  ),
  wrongPartner(0, 'oauth', NineDigits, 'PF7 PF8', 'nanoseconds'),
  wrongPartner(
    0,
    'key',
    TwoZones,
    'PF7 PF8',
    'initiated_at in +00:00, posted_at in -03:30: as texts they sort the other way round',
  ),
  wrongPartner(0, 'oauth', OffsetInHours, 'PF7 PF8', 'times that end with +00'),
  wrongPartner(0, 'oauth', ColdStart, 'LI1', 'the first answer after a start takes 1.3 s'),
  wrongPartner(
    0,
    'key',
    PostsAtOnce,
    'ST1 ST2 RU3',
    'the first poll, and a repeat of the PUT, find the end; nothing is ever left to cancel',
  ),
  wrongPartner(
    0,
    'oauth',
    PostsInRuns,
    'ST2 PF8',
    'a run each 900 ms, all of its payments with one posted_at',
  ),
  wrongPartner(0, 'key', OneAtATime, 'LI1', 'requests wait for each other, 10 ms each'),
  wrongPartner(
    0,
    'key',
    LimitsPolls,
    'LI1 ER3',
    'more than five reads of one address in a second get 429 with Retry-After: 1',
  ),
  wrongPartner(
    0,
    'oauth',
    ShutAfterRestart,
    'ER3 LI1',
    '503 as HTML with Retry-After as a date for half a second after a restart',
  ),
  wrongPartner(0, 'oauth', PlainErrors, 'ER3', '401 without a body, all other errors as HTML'),
  wrongPartner(
    0,
    'key',
    DetectsDuplicates,
    'FR1',
    'a second payment of one amount, account and batch within a second becomes failed',
  ),
  wrongPartner(0, 'oauth', SmallMaximum, 'FR1', 'above 1000000 cents payments become failed'),
  wrongPartner(
    0,
    'oauth',
    SameTokenUntilItEnds,
    'OA3',
    'one token per scope with the seconds that are left, and two more fields',
  ),
  wrongPartner(
    0,
    'oauth',
    TokensOfThousands,
    'OA3 OA4',
    'tokens of 3,500 characters with + / ~ . _ and == at the end',
  ),
  wrongPartner(
    0,
    'oauth',
    ShortTokens,
    'OA3 LI1',
    'tokens that live for two seconds, as expires_in says',
  ),
];

// Platforms

class LongTokenPlatform extends Platform {
  override token(_body: Json): string {
    return [64, 3_000, 32].map((size) => randomBytes(size).toString('base64url')).join('.');
  }
}

class SameTokenForSameRequest extends Platform {
  readonly #secret = randomBytes(32);

  override token(body: Json): string {
    // Keyed with a secret of this run: no one can make it, and another customer has another.
    return createHmac('sha256', this.#secret).update(JSON.stringify(body)).digest('hex');
  }
}

class EscapedPlatform extends Platform {
  override async send(wire: PlatformWire, answer: PlatformAnswer): Promise<void> {
    await super.send(wire, { ...answer, body: `\r\n${escaped(answer.body)} \t\n` });
  }
}

class OldPlatform extends Platform {
  override async send({ response }: PlatformWire, answer: PlatformAnswer): Promise<void> {
    sendOld(response, answer.status, JSON.stringify(answer.body));
  }
}

class ColdPlatform extends Platform {
  #warm: Promise<void> | undefined;

  override async send(wire: PlatformWire, answer: PlatformAnswer): Promise<void> {
    this.#warm ??= pause(1_300);
    await this.#warm;
    await super.send(wire, answer);
  }
}

class LowLimitPlatform extends Platform {
  #times: number[] = [];

  override spend(): void {
    const now = Date.now();
    this.#times = this.#times.filter((time) => time > now - 1_000);
    if (this.#times.length >= 8) throw new Refused(429, 'SLOW_DOWN', 'Eight requests a second');
    this.#times.push(now);
  }
}

class StrangeTokenPlatform extends Platform {
  override token(_body: Json): string {
    return `v1:${randomBytes(24).toString('base64')}~!*'()"\\/<>&=+ é`;
  }
}

class ProxiedPlatform extends Platform {
  override invalid(message: string): Refused {
    return new Refused(422, 'VALIDATION_FAILED', message);
  }

  override async send({ request, response }: PlatformWire, answer: PlatformAnswer): Promise<void> {
    const text = Buffer.from(JSON.stringify(answer.body));
    const isZipped = /\bgzip\b/.test(String(request.headers['accept-encoding']));
    response.writeHead(answer.status, {
      'CONTENT-TYPE': 'application/json;charset=utf-8',
      'CACHE-CONTROL': 'no-store',
      CONNECTION: 'close',
      ...(isZipped ? { 'CONTENT-ENCODING': 'gzip' } : {}),
      ...(answer.status === 429 ? { 'RETRY-AFTER': '1' } : {}),
      ...(answer.status === 405 ? { ALLOW: 'POST' } : {}),
    });
    response.end(isZipped ? gzipSync(text) : text);
  }
}

export const RIGHT_PLATFORMS_4: readonly WrongPlatform[] = [
  wrongPlatform('biller', LongTokenPlatform, 'TK1', 'tokens of 4,100 characters in three parts'),
  wrongPlatform(
    'aggregator',
    SameTokenForSameRequest,
    'TK1 LI1',
    'an identical request gets an identical token; any other gets another',
  ),
  wrongPlatform(
    'biller',
    EscapedPlatform,
    'A2',
    'every character an escape, white space before and after',
  ),
  wrongPlatform(
    'aggregator',
    OldPlatform,
    'A1 A2',
    'HTTP/1.0, no Content-Length, no other headers',
  ),
  wrongPlatform('biller', ColdPlatform, 'LI1', 'the first answer takes 1.3 s'),
  wrongPlatform(
    'biller',
    LowLimitPlatform,
    'LI1 ER3',
    'eight requests a second, then 429 with Retry-After: 1 and an own code',
  ),
  wrongPlatform(
    'aggregator',
    StrangeTokenPlatform,
    'TK1',
    'tokens with quotes, a backslash, a space, + / = and a letter beyond ASCII',
  ),
  wrongPlatform(
    'biller',
    ProxiedPlatform,
    'A2 ER3',
    '422 for invalid requests, headers in capitals, gzip where accepted, a connection per request',
  ),
];

// Callers

class UlidCaller extends Caller {
  override newId(): string {
    const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
    const letters = [...randomBytes(16)].map((byte) => alphabet[byte % 32] ?? '0');
    return `01${Date.now().toString(32).toUpperCase().padStart(8, '0').slice(-8)}${letters.join('')}`;
  }
}

class LongIdCaller extends Caller {
  override newId(): string {
    return `pay.us-east-1_2026~:@!$'()*,;=${randomBytes(60).toString('hex')}`;
  }
}

class MoreFieldsCaller extends Caller {
  override body(id: string, batch: string, cents: number): string {
    return JSON.stringify({
      meta: { status: 'processing', amount_in_cents: 1, attempt: null },
      ...(JSON.parse(super.body(id, batch, cents)) as object),
      currency: 'USD',
      payer: { name: 'Zoë "Ann" 𠮷田' },
      lines: [],
    });
  }
}

class EscapingCaller extends Caller {
  override body(id: string, batch: string, cents: number): string {
    return `\r\n\t${escaped(reversed(JSON.parse(super.body(id, batch, cents))))}\n`;
  }

  override putHeaders(): { readonly [name: string]: string } {
    return { 'content-type': 'application/json; charset="UTF-8"' };
  }
}

class EagerCaller extends Caller {
  override backoffMs(_tries: number): number {
    return 20;
  }
}

class TokenPerCallCaller extends Caller {
  override async credential(_refused?: string): Promise<{ readonly [name: string]: string }> {
    return { authorization: `Bearer ${await this.fetchToken()}` };
  }

  override tokenForm(): URLSearchParams {
    // The fields in another order, and the scopes too.
    const form = super.tokenForm();
    form.set('scope', 'write read');
    return new URLSearchParams([...form].toReversed());
  }
}

class AsksFirstCaller extends Caller {
  override async drive(payment: Sent): Promise<void> {
    // Does the partner know it already? Then somebody has paid before.
    await this.call('GET', payment);
    if (!this.closed) await super.drive(payment);
  }
}

class TwicePutCaller extends Caller {
  override async call(method: 'PUT' | 'GET', payment: Sent): Promise<Heard | undefined> {
    const first = super.call(method, payment);
    if (method === 'GET') return first;
    // Two workers hold the job; both send it, with one id and one body.
    const [heard, second] = await Promise.all([first, super.call(method, payment)]);
    return heard ?? second;
  }
}

export const RIGHT_CALLERS_4: readonly WrongCaller[] = [
  wrongCaller(0, 'key', UlidCaller, 'PF2', 'ids in capitals that begin with the time'),
  wrongCaller(
    0,
    'oauth',
    LongIdCaller,
    'PF2 B4',
    "ids of 150 characters with . _ ~ : @ ! $ ' ( ) * , ; =",
  ),
  wrongCaller(
    0,
    'key',
    MoreFieldsCaller,
    'PF9',
    'more fields in the PUT, some with names of known ones inside',
  ),
  wrongCaller(
    0,
    'authorization',
    EscapingCaller,
    'PF9 B4',
    'names and texts escaped, the order reversed, charset="UTF-8"',
  ),
  wrongCaller(
    0,
    'key',
    EagerCaller,
    'RU4',
    'a poll each 20 ms (more seldom where Retry-After says so)',
  ),
  wrongCaller(
    0,
    'oauth',
    TokenPerCallCaller,
    'OA2 OA4',
    'a token request before every call, scope "write read", the fields in another order',
  ),
  wrongCaller(0, 'oauth', AsksFirstCaller, 'B5 S4', 'a GET of the payment before its PUT'),
  wrongCaller(
    0,
    'key',
    TwicePutCaller,
    'RU5 ID1',
    'each PUT is sent twice at once, with one id and one body',
  ),
];
