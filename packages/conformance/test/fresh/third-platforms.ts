/**
 * The platforms of the third set: 40 wrong ones, one fault each, and 6 right ones of unusual shape, written as those of
 * third-partners.ts.
 *
 * One file because it is one table: each peer, then the list of them.
 */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { pause } from './partner.ts';
import {
  CREDENTIALS,
  isObject,
  OTHER_CREDENTIALS,
  Platform,
  Refused,
  type Answer,
  type Json,
  type Request,
  type Wire,
} from './platform.ts';
import {
  wrong,
  type WrongPlatform,
  KeyFolded,
  OwnWordsFor404,
  ClientUnknownIs401,
  ExpiryInBody,
  AnsweredAsText,
  CharsetRefused,
  OnlyE164,
  NamesOfAscii,
  BrokenJsonIs500,
  NullBodyIs500,
} from './wrong-platforms.ts';

// Responses

class ExpiryInTheBody extends ExpiryInBody {}

class CreatedWithABalance extends Platform {
  override answer(request: Request): Answer {
    const answer = super.answer(request);
    return request.text.includes('"balance"') ? { ...answer, status: 201 } : answer;
  }
}

class TokenIsANumber extends Platform {
  override tokenBody(): unknown {
    return { token: Math.floor(Math.random() * 9e15) };
  }
}

class TokenOfTheSecond extends Platform {
  override token(body: Json): string {
    const second = Math.floor(Date.now() / 1_000);
    return createHash('sha256')
      .update(`${String(body['email'])} ${String(second)}`)
      .digest('hex');
  }
}

class LatestToken extends Platform {
  #latest = '';

  override tokenBody(token: string): unknown {
    this.#latest = token;
    return { token };
  }

  override async send(wire: Wire, answer: Answer): Promise<void> {
    await pause(15);
    const shown = answer.status === 200 ? { ...answer, body: { token: this.#latest } } : answer;
    await super.send(wire, shown);
  }
}

class ExpiresWhenIssued extends Platform {
  override answer(request: Request): Answer {
    const now = new Date(Date.now() - 1_000).toISOString();
    return { ...super.answer(request), headers: { 'token-expires-at': now } };
  }
}

class SuccessAsText extends AnsweredAsText {}

class AlwaysZipped extends Platform {
  override async send({ response }: Wire, answer: Answer): Promise<void> {
    response.writeHead(answer.status, {
      'content-type': 'application/json',
      'content-encoding': 'gzip',
      'x-request-id': randomUUID(),
      ...answer.headers,
    });
    response.end(gzipSync(JSON.stringify(answer.body)));
  }
}

// Credentials

class UnknownClientIs401 extends ClientUnknownIs401 {}

class AccountHasItsOwnCode extends Platform {
  override accountExists(body: Json): boolean {
    if (super.accountExists(body)) return true;
    throw new Refused(404, 'ACCOUNT_NOT_FOUND', 'Resource not found');
  }
}

class ClientNotFound extends OwnWordsFor404 {}

class KeyOfAnyClient extends Platform {
  override keyIs(given: string): boolean {
    return given === OTHER_CREDENTIALS.api_key || super.keyIs(given);
  }
}

class TenCharactersOfKey extends Platform {
  override keyIs(given: string): boolean {
    return given.slice(0, 10) === CREDENTIALS.api_key.slice(0, 10);
  }
}

class KeyOfEitherCase extends KeyFolded {}

class ClientIsLike extends Platform {
  override clientIs(given: string): boolean {
    return given.includes('%') || super.clientIs(given);
  }
}

class NoKeyIs500 extends Platform {
  override authenticate(request: Request): void {
    if (request.headers['x-client-id'] && request.headers['x-api-key'] === undefined) {
      throw new TypeError('undefined');
    }
    super.authenticate(request);
  }
}

class BodyFirst extends Platform {
  override authenticate(request: Request): void {
    if (request.method === 'POST') this.parse(request.text);
    super.authenticate(request);
  }
}

// Requests

class TextIsJson extends Platform {
  override isJson(): boolean {
    return true;
  }
}

class BareTypeOnly extends CharsetRefused {}

class NameWithTwoWords extends Platform {
  override check(body: Json): void {
    const two = typeof body['first_name'] === 'string' && body['first_name'].includes(' ');
    super.check(two ? { last_name: 'X', ...body } : body);
  }
}

class StatesByName extends Platform {
  override stateIs(state: unknown): boolean {
    return typeof state === 'string' && state.length >= 2 && state.length <= 20;
  }
}

class PhonesOfE164 extends OnlyE164 {}

class CentsOfAnyNumber extends Platform {
  override centsAre(cents: unknown): boolean {
    return typeof cents === 'number';
  }
}

class DatesByPattern extends Platform {
  override dateIs(date: unknown): boolean {
    return /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/.test(String(date));
  }
}

class DateIsADatetime extends Platform {
  override datetimeIs(text: unknown): boolean {
    return this.dateIs(text) || super.datetimeIs(text);
  }
}

class OnlyZ extends Platform {
  override datetimeIs(text: unknown): boolean {
    return super.datetimeIs(text) && String(text).endsWith('Z');
  }
}

class BillerIsEnough extends Platform {
  override checkIds(ids: unknown): void {
    const enough = isObject(ids) && ids['biller_id'] && ids['account_id'] === undefined;
    if (!enough) super.checkIds(ids);
  }
}

class WholeBalances extends Platform {
  override checkBalance(balance: unknown): void {
    super.checkBalance(balance);
    if (isObject(balance) && Object.keys(balance).length < 3) throw this.invalid('incomplete');
  }
}

class NoNewAddressFields extends Platform {
  override checkAddress(address: unknown): void {
    super.checkAddress(address);
    const known = ['address_line_1', 'address_line_2', 'city', 'state', 'zip'];
    if (isObject(address) && Object.keys(address).some((name) => !known.includes(name))) {
      throw this.invalid('a field is not known');
    }
  }
}

class PlainLetters extends NamesOfAscii {}

class NumbersAreTexts extends Platform {
  override required(of: Json, name: string): void {
    const value = of[name];
    super.required(typeof value === 'number' ? { [name]: String(value) } : of, name);
  }
}

class BillerAlways extends Platform {
  override checkIds(ids: unknown): void {
    super.checkIds(ids);
    if (isObject(ids)) this.required(ids, 'biller_id');
  }
}

class ChunksAreEmpty extends Platform {
  override answer(request: Request): Answer {
    const empty = request.method === 'POST' && request.headers['content-length'] === undefined;
    if (empty) throw this.invalid('The body is empty');
    return super.answer(request);
  }
}

// Errors and limits

class GetIsFine extends Platform {
  override answer(request: Request): Answer {
    const found = request.method === 'GET' && request.url === '/v1/sbi/token';
    return found ? { status: 200, body: {} } : super.answer(request);
  }
}

class ParserBreaks extends BrokenJsonIs500 {}

class NullBreaks extends NullBodyIs500 {}

class LargeIsAPage extends Platform {
  override refusal(error: unknown): Answer {
    return error instanceof Refused && error.status === 413
      ? { status: 413, body: '<h1>413</h1>', type: 'text/html' }
      : super.refusal(error);
  }
}

class QuotesWhatItRefuses extends Platform {
  override check(body: Json): void {
    try {
      super.check(body);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      throw this.invalid(`${error.message}, got ${JSON.stringify(body)}`);
    }
  }
}

class SixthIsTooMany extends Platform {
  #hits: number[] = [];

  override spend(): void {
    this.#hits = [...this.#hits.filter((at) => Date.now() - at < 1_000), Date.now()];
    if (this.#hits.length > 5) throw new Refused(429, 'TOO_MANY_REQUESTS', 'Too many requests');
  }

  override refusal(error: unknown): Answer {
    const { headers: _, ...answer } = super.refusal(error);
    return answer;
  }
}

class AnySize extends Platform {
  override parse(text: string): Json {
    return JSON.parse(text.length > 65_536 ? '{}' : text) as Json;
  }

  override check(body: Json): void {
    if (Object.keys(body).length > 0) super.check(body);
  }
}

export const THIRD_PLATFORMS: readonly WrongPlatform[] = [
  wrong('biller', ExpiryInTheBody, 'TK1', 'the body has a second field'),
  wrong('biller', CreatedWithABalance, 'A2', 'a request with a balance is 201'),
  wrong('biller', UnknownClientIs401, 'ER1', 'an unknown client is 401'),
  wrong('biller', AccountHasItsOwnCode, 'ER1', 'an unknown account has a code of its own'),
  wrong('biller', ClientNotFound, 'ER1', 'the message of 404 is another'),
  wrong('biller', KeyOfAnyClient, 'AU1', 'the key of any client is accepted'),
  wrong('biller', TenCharactersOfKey, 'AU1', 'ten characters of the key are compared'),
  wrong('biller', KeyOfEitherCase, 'AU1', 'the case of the key is ignored'),
  wrong('biller', ClientIsLike, 'ER1', 'the client id is looked up with LIKE'),
  wrong('biller', NoKeyIs500, 'AU1', 'a missing key is a 500'),
  wrong('biller', TextIsJson, 'A1', 'text/plain is read'),
  wrong('biller', BareTypeOnly, 'A1', 'application/json with a charset is refused'),
  wrong('biller', NameWithTwoWords, 'TR1', 'a first name of two words needs no last name'),
  wrong('biller', StatesByName, 'TR2', 'California is a state code'),
  wrong('biller', PhonesOfE164, 'TR1', 'a phone number must be E.164'),
  wrong('biller', CentsOfAnyNumber, 'TR3', 'cents may be 12.5'),
  wrong('biller', DatesByPattern, 'TR3', 'due_date may be February 30'),
  wrong('biller', DateIsADatetime, 'TR3', 'last_updated_at may be a date'),
  wrong('biller', OnlyZ, 'TR3', 'last_updated_at with an offset is refused'),
  wrong('biller', BillerIsEnough, 'TR4', 'account_id may be missing beside biller_id'),
  wrong('biller', WholeBalances, 'TR3', 'a balance must have all fields'),
  wrong('biller', NoNewAddressFields, 'VE1', 'an unknown field of the address is refused'),
  wrong('biller', PlainLetters, 'TR1', 'names beyond ASCII are refused'),
  wrong('biller', TokenOfTheSecond, 'TK1', 'the token is a hash of customer and second'),
  wrong('biller', LatestToken, 'TK1', 'concurrent requests get the latest token'),
  wrong('biller', TokenIsANumber, 'TK1', 'the token is a number'),
  wrong('biller', GetIsFine, 'ER3', 'a GET is 200'),
  wrong('biller', ParserBreaks, 'ER2', 'broken JSON is a 500'),
  wrong('biller', NullBreaks, 'ER3', 'the body null is a 500'),
  wrong('biller', LargeIsAPage, 'ER3', 'a large body gets a web page'),
  wrong('biller', QuotesWhatItRefuses, 'ER3', 'errors repeat the request'),
  wrong('biller', BodyFirst, 'AU1', 'the body is parsed before the caller is known'),
  wrong(
    'biller',
    SixthIsTooMany,
    'LI1',
    'the sixth request of a second is 429 without Retry-After',
  ),
  wrong('biller', AnySize, 'LI1', 'a body of any size is accepted'),
  wrong('biller', AlwaysZipped, 'A2', 'responses are gzip, accepted or not'),
  wrong('biller', SuccessAsText, 'A2', 'success is text/plain'),
  wrong('biller', NumbersAreTexts, 'TR1', 'numbers are accepted as texts'),
  wrong('biller', BillerAlways, 'TR4', 'a biller must name its biller_id'),
  wrong('biller', ExpiresWhenIssued, 'TK1', 'Token-Expires-At is in the past'),
  wrong('biller', ChunksAreEmpty, 'A1', 'a body in chunks is taken for empty'),
];

// Right peers

class TokensOfJwt extends Platform {
  override token(): string {
    return `eyJhbGciOiJSUzI1NiJ9.${randomBytes(900).toString('base64url')}.${randomBytes(200).toString('base64url')}`;
  }
}

class SlowTokens extends Platform {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    await pause(300);
    wire.response.setHeader('connection', 'close');
    await super.send(wire, answer);
  }
}

class ErrorsWithMore extends Platform {
  override refusal(error: unknown): Answer {
    const answer = super.refusal(error);
    const more = { request_id: randomUUID(), documentation_url: 'https://example.com/errors' };
    return answer.status === 500
      ? answer
      : { ...answer, body: { ...(answer.body as Json), ...more } };
  }
}

class PrettyTokens extends Platform {
  override async send({ response }: Wire, { status, body, headers }: Answer): Promise<void> {
    const type = 'application/json; charset=utf-8';
    response.writeHead(status, { 'content-type': type, 'x-request-id': randomUUID(), ...headers });
    response.write(JSON.stringify(body, undefined, 2).slice(0, 5));
    response.end(JSON.stringify(body, undefined, 2).slice(5));
  }
}

class CookiesAndPolicies extends Platform {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    wire.response.setHeader('set-cookie', 'lb=1; Path=/; Secure; HttpOnly');
    wire.response.setHeader('strict-transport-security', 'max-age=1');
    await super.send(wire, answer);
  }
}

class StatesInLowerCase extends Platform {
  override stateIs(state: unknown): boolean {
    return super.stateIs(typeof state === 'string' ? state.toUpperCase() : state);
  }
}

export const RIGHT_PLATFORMS: readonly WrongPlatform[] = [
  wrong('biller', TokensOfJwt, '', 'tokens of 1,500 characters with dots'),
  wrong('biller', SlowTokens, '', '300 ms a call, and no connection is kept'),
  wrong('biller', ErrorsWithMore, '', 'errors with more fields'),
  wrong('biller', PrettyTokens, '', 'pretty-printed, in chunks, with a charset'),
  wrong('biller', CookiesAndPolicies, '', 'a cookie and strict transport security'),
  wrong('biller', StatesInLowerCase, '', 'state codes in lower case are accepted'),
];
