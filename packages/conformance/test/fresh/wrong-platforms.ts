/**
 * Wrong platforms, one fault each, written from the interface alone by somebody who had not read a
 * single check. All belong to class 13 of docs/fresh-peers.md: what a partner's server sees of the
 * token endpoint.
 */
import { createHash } from 'node:crypto';
import {
  CREDENTIALS,
  isObject,
  KNOWN_ACCOUNT,
  Platform,
  Refused,
  type Answer,
  type Json,
  type Request,
} from './platform.ts';

export interface WrongPlatform {
  readonly name: string;
  readonly defect: number;
  readonly breaks: string;
  readonly how: string;
  readonly kind: 'biller' | 'aggregator';
  readonly make: new (kind: 'biller' | 'aggregator') => Platform;
}

class TokenByName extends Platform {
  readonly #held = new Map<string, string>();

  override token(body: Json): string {
    const key = `${String(body['last_name'])} ${String((body['address'] as Json)['zip'])}`;
    const token = this.#held.get(key) ?? super.token(body);
    this.#held.set(key, token);
    return token;
  }
}

class TokenByAccount extends Platform {
  readonly #held = new Map<string, string>();

  override token(body: Json): string {
    const ids = body['external_identifiers'];
    if (!isObject(ids)) return super.token(body);
    const key = String(ids['account_id']);
    const token = this.#held.get(key) ?? super.token(body);
    this.#held.set(key, token);
    return token;
  }
}

class TokenIsHash extends Platform {
  override token(body: Json): string {
    return createHash('sha256').update(JSON.stringify(body)).digest('hex');
  }
}

class TokenCounts extends Platform {
  #count = 100_000;

  override token(_body: Json): string {
    this.#count += 1;
    return Buffer.from(`session:${String(this.#count)}`).toString('base64url');
  }
}

class TokenHoldsCustomer extends Platform {
  override token(body: Json): string {
    const claims = { sub: body['email'], jti: super.token(body) };
    return `${Buffer.from('{"alg":"HS256"}').toString('base64url')}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.c2ln`;
  }
}

export class BrokenJsonIs500 extends Platform {
  override parse(text: string): Json {
    return JSON.parse(text) as Json;
  }
}

export class NullBodyIs500 extends Platform {
  override parse(text: string): Json {
    if (text.trim() !== 'null') return super.parse(text);
    throw new TypeError("Cannot read properties of null (reading 'first_name')");
  }
}

class CoercedNames extends Platform {
  override required(of: Json, name: string): void {
    if (of[name] === undefined || of[name] === null || of[name] === '') {
      throw this.invalid(`${name} is required`);
    }
  }
}

class EmptyIsThere extends Platform {
  override required(of: Json, name: string): void {
    if (typeof of[name] !== 'string') throw this.invalid(`${name} is required`);
  }
}

class NullIsThere extends Platform {
  override required(of: Json, name: string): void {
    if (!(name in of)) throw this.invalid(`${name} is required`);
    if (of[name] !== null) super.required(of, name);
  }
}

class AddressOfText extends Platform {
  override checkAddress(address: unknown): void {
    if (typeof address !== 'string') super.checkAddress(address);
  }
}

export class OnlyE164 extends Platform {
  override check(body: Json): void {
    super.check(body);
    if (!/^\+[1-9][0-9]{6,14}$/.test(String(body['phone_number']))) {
      throw this.invalid('phone_number must be in E.164 format');
    }
  }
}

class LatinNames extends Platform {
  override check(body: Json): void {
    super.check(body);
    const text = `${String(body['first_name'])}${String(body['last_name'])}`;
    if (/[\u0100-\uffff]/.test(text)) {
      throw new Error('Incorrect string value for column first_name');
    }
  }
}

export class NamesOfAscii extends Platform {
  override check(body: Json): void {
    super.check(body);
    for (const name of ['first_name', 'last_name']) {
      if (!/^[A-Za-z][A-Za-z .'-]*$/.test(String(body[name]))) {
        throw this.invalid(`${name} holds characters that are not allowed`);
      }
    }
  }
}

class StateFolded extends Platform {
  override stateIs(state: unknown): boolean {
    return typeof state === 'string' && /^[A-Za-z0-9]{2}$/.test(state);
  }
}

class DateRollsOver extends Platform {
  override dateIs(date: unknown): boolean {
    return typeof date === 'string' && !Number.isNaN(Date.parse(date));
  }
}

class CentsCoerced extends Platform {
  override centsAre(cents: unknown): boolean {
    return Number.isInteger(Number(cents)); // true is 1, "1250" is 1250, null is 0
  }
}

class DatetimeOfAnything extends Platform {
  override datetimeIs(text: unknown): boolean {
    return !Number.isNaN(new Date(text as string).getTime()); // 1700000000, "yesterday" is not
  }
}

class EmptyBalanceRefused extends Platform {
  override checkBalance(balance: unknown): void {
    super.checkBalance(balance);
    if (isObject(balance) && balance['amount_due_in_cents'] === undefined) {
      throw this.invalid('amount_due_in_cents is required');
    }
  }
}

class NegativeBalanceRefused extends Platform {
  override centsAre(cents: unknown): boolean {
    return Number.isSafeInteger(cents) && (cents as number) > 0; // zero due is refused
  }
}

class SecondLineRequired extends Platform {
  override checkAddress(address: unknown): void {
    super.checkAddress(address);
    if (isObject(address)) this.required(address, 'address_line_2');
  }
}

class NumericAccountId extends Platform {
  override checkIds(ids: unknown): void {
    super.checkIds(
      isObject(ids) && typeof ids['account_id'] === 'number'
        ? { ...ids, account_id: String(ids['account_id']) }
        : ids,
    );
  }
}

class IdsOfAnyShape extends Platform {
  override checkIds(ids: unknown): void {
    if (isObject(ids)) super.checkIds(ids); // a text or an array is ignored
  }
}

class AggregatorAsBiller extends Platform {
  override checkIds(ids: unknown): void {
    if (!isObject(ids)) throw this.invalid('external_identifiers must be an object');
    this.required(ids, 'account_id');
    if (ids['biller_id'] !== undefined) this.required(ids, 'biller_id');
  }
}

export class KeyFolded extends Platform {
  override keyIs(given: string): boolean {
    return given.toLowerCase() === CREDENTIALS.api_key.toLowerCase();
  }
}

class KeyByPrefix extends Platform {
  override keyIs(given: string): boolean {
    return given.length >= 6 && CREDENTIALS.api_key.startsWith(given);
  }
}

class KeyWithTail extends Platform {
  override keyIs(given: string): boolean {
    return given.slice(0, CREDENTIALS.api_key.length) === CREDENTIALS.api_key;
  }
}

class ClientFolded extends Platform {
  override clientIs(given: string): boolean {
    return given.toUpperCase() === CREDENTIALS.client_id.toUpperCase();
  }
}

class CredentialsInQuery extends Platform {
  override authenticate(request: Request): void {
    const query = new URL(request.url, 'http://here').searchParams;
    const headers = {
      'x-client-id': query.get('client_id') ?? undefined,
      'x-api-key': query.get('api_key') ?? undefined,
      ...request.headers,
    };
    super.authenticate({ ...request, headers });
  }
}

export class ClientUnknownIs401 extends Platform {
  override unknownClient(): Refused {
    return this.unauthorized();
  }
}

export class OwnWordsFor404 extends Platform {
  override unknownClient(): Refused {
    return new Refused(404, 'NOT_FOUND', 'Client not found');
  }
}

class AccountUnknownIs200 extends Platform {
  override accountExists(_body: Json): boolean {
    return true;
  }
}

class AccountUnknownIs422 extends Platform {
  override answer(request: Request): Answer {
    try {
      return super.answer(request);
    } catch (error) {
      const found = error instanceof Refused && error.status === 404 && this.knows(request);
      throw found ? new Refused(422, 'ACCOUNT_NOT_FOUND', 'No such account') : error;
    }
  }

  knows({ headers }: Request): boolean {
    return headers['x-client-id'] === CREDENTIALS.client_id;
  }
}

export class ExpiryInBody extends Platform {
  override tokenBody(token: string): unknown {
    return { token, expires_in: 1_800 };
  }
}

class CamelToken extends Platform {
  override tokenBody(token: string): unknown {
    return { data: { token } };
  }
}

export class AnsweredAsText extends Platform {
  override answer(request: Request): Answer {
    return { ...super.answer(request), type: 'text/plain' };
  }
}

class Created201 extends Platform {
  override answer(request: Request): Answer {
    return { ...super.answer(request), status: 201 };
  }
}

export class CharsetRefused extends Platform {
  override isJson(type: string): boolean {
    return type === 'application/json';
  }
}

class AnyTypeRead extends Platform {
  override isJson(_type: string): boolean {
    return true;
  }
}

class HtmlErrors extends Platform {
  override refusal(error: unknown): Answer {
    const answer = super.refusal(error);
    if (answer.status !== 400) return answer;
    const body = `<!DOCTYPE html><pre>ValidationError: ${String(error)}<br> at check</pre>`;
    return { ...answer, type: 'text/html', body };
  }
}

class ErrorsNested extends Platform {
  override refusal(error: unknown): Answer {
    const answer = super.refusal(error);
    return answer.status === 400 ? { ...answer, body: { errors: [answer.body] } } : answer;
  }
}

class LongNamesAre500 extends Platform {
  override check(body: Json): void {
    super.check(body);
    for (const name of ['first_name', 'last_name', 'email']) {
      if (String(body[name]).length > 100) throw new Error('value too long for varchar(100)');
    }
  }
}

class KnownAccountOnly extends Platform {
  override accountExists(body: Json): boolean {
    const ids = body['external_identifiers'];
    return isObject(ids) && ids['account_id'] === KNOWN_ACCOUNT; // no identifiers: no account
  }
}

class KeyBeforeClient extends Platform {
  override authenticate(request: Request): void {
    if (request.headers['x-api-key'] !== CREDENTIALS.api_key) throw this.unauthorized();
    // The client is only logged.
  }
}

/** One row of the table. */
export const wrong = (
  kind: WrongPlatform['kind'],
  make: WrongPlatform['make'],
  breaks: string,
  how: string,
): WrongPlatform => ({ name: make.name, defect: 13, kind, make, breaks, how });

export const WRONG_PLATFORMS: readonly WrongPlatform[] = [
  wrong('biller', TokenByName, 'S1 TK1', 'customers of one name and ZIP share a token'),
  wrong('biller', TokenByAccount, 'S1 TK1', 'all customers of an account share a token'),
  wrong('biller', TokenIsHash, 'TK1', 'the token is a hash of the request'),
  wrong('biller', TokenCounts, 'TK1', 'the token is a counter'),
  wrong('aggregator', TokenHoldsCustomer, 'TK1', 'the token contains the email address'),
  wrong('biller', BrokenJsonIs500, 'ER2 ER3', 'broken JSON is a 500'),
  wrong('biller', NullBodyIs500, 'ER2 ER3', 'the body null is a 500'),
  wrong('biller', CoercedNames, 'TR1', 'numbers and objects are accepted as strings'),
  wrong('biller', EmptyIsThere, 'TR1 TR2', 'empty required fields are accepted'),
  wrong('biller', NullIsThere, 'TR1 TR2', 'null required fields are accepted'),
  wrong('biller', AddressOfText, 'TR1 TR2', 'the address may be a string'),
  wrong('biller', OnlyE164, 'TR1', 'a phone number that is not E.164 is refused'),
  wrong('biller', LatinNames, 'TR1 ER2', 'a name beyond Latin-1 is a 500'),
  wrong('biller', NamesOfAscii, 'TR1', 'a name beyond ASCII is refused'),
  wrong('biller', StateFolded, 'TR2', 'a state may hold digits'),
  wrong('biller', DateRollsOver, 'TR3', 'due_date accepts whatever Date.parse accepts'),
  wrong('biller', CentsCoerced, 'TR3 S5', 'cents are coerced'),
  wrong('biller', DatetimeOfAnything, 'TR3', 'last_updated_at may be a number or a date'),
  wrong('biller', EmptyBalanceRefused, 'TR3', 'a balance without amount is refused'),
  wrong('biller', NegativeBalanceRefused, 'TR3', 'a balance of zero is refused'),
  wrong('biller', SecondLineRequired, 'TR2', 'address_line_2 is required'),
  wrong('biller', NumericAccountId, 'TR4', 'account_id may be a number'),
  wrong('biller', IdsOfAnyShape, 'TR4', 'external_identifiers may be a string'),
  wrong('aggregator', AggregatorAsBiller, 'TR4', 'an aggregator may omit biller_id'),
  wrong('biller', KeyFolded, 'AU1', 'the case of the key is ignored'),
  wrong('biller', KeyByPrefix, 'AU1', 'a prefix of the key is enough'),
  wrong('biller', KeyWithTail, 'AU1', 'anything may follow the key'),
  wrong('biller', ClientFolded, 'ER1 AU1', 'the case of the client id is ignored'),
  wrong('biller', CredentialsInQuery, 'AU1', 'credentials are read from the query'),
  wrong('biller', ClientUnknownIs401, 'ER1', 'an unknown client id is a 401'),
  wrong('biller', OwnWordsFor404, 'ER1', 'the 404 has another message'),
  wrong('biller', AccountUnknownIs200, 'ER1', 'an unknown account gets a token'),
  wrong('biller', AccountUnknownIs422, 'ER1', 'an unknown account is a 422'),
  wrong('biller', ExpiryInBody, 'TK1', 'the response has a second field'),
  wrong('biller', CamelToken, 'TK1', 'the token is inside an envelope'),
  wrong('biller', AnsweredAsText, 'A2', 'the response is text/plain'),
  wrong('biller', Created201, 'A2', 'the response is 201'),
  wrong('biller', CharsetRefused, 'A1', 'application/json with a charset is refused'),
  wrong('biller', AnyTypeRead, 'A1', 'any content type is read'),
  wrong('biller', HtmlErrors, 'ER3', 'refusals are pages of HTML'),
  wrong('aggregator', ErrorsNested, 'ER3', 'refusals have no code and message'),
  wrong('biller', LongNamesAre500, 'ER2', 'a long name is a 500'),
  wrong('biller', KnownAccountOnly, 'TR1', 'identifiers are required'),
  wrong('biller', KeyBeforeClient, 'ER1 AU1', 'the client id is not checked'),
];
