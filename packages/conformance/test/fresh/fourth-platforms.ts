/**
 * The platforms of the fourth set: 25 wrong ones, one fault each, written from the interface alone by somebody who had read neither the
 * checks nor the earlier sets. Many show only for an unusual value, under load, or after a restart.
 *
 * One file because it is one table: each peer, then the list of them.
 */
import { createHash, randomBytes } from 'node:crypto';
import {
  CREDENTIALS,
  isObject,
  Platform,
  type Answer,
  type Json,
  type Request,
  type Wire,
} from './platform.ts';
import { wrong, type WrongPlatform } from './wrong-platforms.ts';
import { ThreeBytesALetter } from './second-set.ts';

const accountOf = (body: Json): string => {
  const ids = body['external_identifiers'];
  return isObject(ids) ? JSON.stringify([ids['biller_id'], ids['account_id']]) : '';
};

// Valid requests that it refuses

class ZipLosesItsZero extends Platform {
  override checkAddress(address: unknown): void {
    super.checkAddress(address);
    const zip = String((address as Json)['zip']);
    // A spreadsheet's column: a number, which then has four digits.
    if (/^\d+$/.test(zip) && String(Number(zip)).length < 5) {
      throw this.invalid('zip must have five digits');
    }
  }
}

class FiftyStatesOnly extends Platform {
  override stateIs(state: unknown): boolean {
    const states =
      'AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK OR PA RI SC SD TN TX UT VT VA WA WV WI WY';
    return typeof state === 'string' && states.split(' ').includes(state);
  }
}

class MisterNull extends Platform {
  override required(of: Json, name: string): void {
    super.required(of, name);
    // The CSV layer below has one way to write nothing.
    if (/^(null|nil|none|undefined)$/i.test(String(of[name]))) {
      throw this.invalid(`${name} is required`);
    }
  }
}

class ZeroIsMissing extends Platform {
  override checkBalance(balance: unknown): void {
    super.checkBalance(balance);
    const { amount_due_in_cents, due_date } = balance as Json;
    const isGiven = 'amount_due_in_cents' in (balance as Json);
    // if (!balance.amount): nothing due is no amount. Without the field it does not ask.
    if (isGiven && due_date !== undefined && !amount_due_in_cents) {
      throw this.invalid('amount_due_in_cents is required with due_date');
    }
  }
}

class NoLeapDay extends Platform {
  override dateIs(date: unknown): boolean {
    const days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if (typeof date !== 'string' || !super.dateIs(date)) return false;
    const [, month = 0, day = 0] = date.split('-').map(Number);
    return day <= (days[month - 1] ?? 0);
  }
}

class DueDateMustBeAhead extends Platform {
  override checkBalance(balance: unknown): void {
    super.checkBalance(balance);
    const due = (balance as Json)['due_date'];
    if (typeof due === 'string' && due < new Date().toISOString().slice(0, 10)) {
      throw this.invalid('due_date must not be in the past');
    }
  }
}

class WholeHourOffsets extends Platform {
  override datetimeIs(text: unknown): boolean {
    return super.datetimeIs(text) && !/[+-]\d{2}:(?!00)\d{2}$/.test(String(text));
  }
}

class BillerIdOnlyForAggregators extends Platform {
  override checkIds(ids: unknown): void {
    super.checkIds(ids);
    if (this.kind === 'biller' && (ids as Json)['biller_id'] !== undefined) {
      throw this.invalid('biller_id is for aggregators');
    }
  }
}

class ThreeByteColumns extends ThreeBytesALetter {}

class HeaderNamesByHand extends Platform {
  override async send(wire: Wire, answer: Answer): Promise<void> {
    const names = wire.request.rawHeaders.filter((_text, place) => place % 2 === 0);
    const isFound = ['x-client-id', 'x-api-key'].every((name) =>
      names.some((given) => given === name || given === TITLE[name]),
    );
    // headers['X-Client-Id'] ?? headers['x-client-id']
    if (isFound || answer.status !== 200) return super.send(wire, answer);
    return super.send(wire, this.refusal(this.unauthorized()));
  }
}
const TITLE: Readonly<Record<string, string>> = {
  'x-client-id': 'X-Client-Id',
  'x-api-key': 'X-Api-Key',
};

// Requests that it should refuse

class KnownCustomerMayOmit extends Platform {
  readonly #known = new Map<string, Json>();

  override check(body: Json): void {
    const email = String(body['email']);
    // What is on file fills in what is not sent.
    super.check({ ...this.#known.get(email), ...body });
    if (!this.#known.has(email)) this.#known.set(email, body);
  }
}

class ModuloOne extends Platform {
  override centsAre(cents: unknown): boolean {
    // '5000' % 1 is 0, as is true % 1.
    return (cents as number) % 1 === 0;
  }
}

class DollarIsBeforeNewline extends Platform {
  override stateIs(state: unknown): boolean {
    return typeof state === 'string' && /^[A-Z]{2}\n?$/.test(state);
  }
}

class TypeStartsWithJson extends Platform {
  override isJson(type: string): boolean {
    return type.toLowerCase().startsWith('application/json');
  }
}

// Who may ask

class RemembersTheUnknownClient extends Platform {
  readonly #asked = new Set<string>();

  override authenticate(request: Request): void {
    const client = String(request.headers['x-client-id']);
    const isCached = this.#asked.has(client);
    this.#asked.add(client);
    // The lookup that found nothing is cached as done, and an empty client has no key to differ from.
    if (isCached && client !== CREDENTIALS.client_id && request.headers['x-api-key'] !== undefined)
      return;
    super.authenticate(request);
  }
}

class TrustsAfterSuccess extends Platform {
  #until = 0;

  override authenticate(request: Request): void {
    // The session is kept by client id and address for a while; the key was right a moment ago.
    const isSame = request.headers['x-client-id'] === CREDENTIALS.client_id;
    if (isSame && request.headers['x-api-key'] !== undefined && Date.now() < this.#until) return;
    super.authenticate(request);
    this.#until = Date.now() + 3_000;
  }
}

class NineCharactersOfKey extends Platform {
  override keyIs(given: string): boolean {
    // The first letters find the row; the comparison of the hash was to come in the next ticket.
    return given.slice(0, 9) === CREDENTIALS.api_key.slice(0, 9);
  }
}

class LockedLooksUnknown extends Platform {
  #failures = 0;

  override authenticate(request: Request): void {
    const isClient = request.headers['x-client-id'] === CREDENTIALS.client_id;
    if (isClient && this.#failures >= 3) throw this.unknownClient();
    try {
      super.authenticate(request);
    } catch (error) {
      if (isClient) this.#failures += 1;
      throw error;
    }
  }
}

// 404

class NotFoundIsRemembered extends Platform {
  readonly #missing = new Set<string>();

  override accountExists(body: Json): boolean {
    const email = String(body['email']).toLowerCase();
    if (!super.accountExists(body)) this.#missing.add(email);
    return !this.#missing.has(email);
  }
}

class SecondAskFindsIt extends Platform {
  readonly #asked = new Set<string>();

  override accountExists(body: Json): boolean {
    // get_or_create: the row of the first ask is there at the second.
    const account = accountOf(body);
    const isAsked = this.#asked.has(account);
    this.#asked.add(account);
    return isAsked || super.accountExists(body);
  }
}

class ThrottledIs404 extends Platform {
  #times: number[] = [];

  override spend(): void {
    super.spend();
    const now = Date.now();
    this.#times = [...this.#times.filter((time) => time > now - 250), now];
    // The gateway takes the route away while it is above its limit.
    if (this.#times.length > 10) throw this.notFound();
  }
}

// Tokens

class TokenOfTheMillisecond extends Platform {
  readonly #secret = randomBytes(16);

  override token(_body: Json): string {
    const hash = createHash('sha256').update(this.#secret).update(String(Date.now()));
    return `tok_${hash.digest('base64url')}`;
  }
}

class PlusTagStripped extends Platform {
  readonly #held = new Map<string, string>();

  override token(body: Json): string {
    // One mailbox, one user.
    const [local = '', domain = ''] = String(body['email']).toLowerCase().split('@');
    const key = `${local.replace(/\+.*$/, '').replaceAll('.', '')}@${domain}`;
    const token = this.#held.get(key) ?? super.token(body);
    this.#held.set(key, token);
    return token;
  }
}

class EveryFourthIsANumber extends Platform {
  #count = 0;

  override tokenBody(token: string): unknown {
    this.#count += 1;
    // A token that happens to have digits alone is cast on its way through a template.
    if (this.#count % 4 !== 0) return super.tokenBody(token);
    return { token: randomBytes(6).readUIntBE(0, 6) };
  }
}

class SaysKnownCustomer extends Platform {
  readonly #known = new Set<string>();
  #isKnown = false;

  override token(body: Json): string {
    const key = JSON.stringify([body['email'], accountOf(body)]);
    this.#isKnown = this.#known.has(key);
    this.#known.add(key);
    return super.token(body);
  }

  override tokenBody(token: string): unknown {
    return this.#isKnown ? { token, existing_customer: true } : super.tokenBody(token);
  }
}

export const FOURTH_PLATFORMS: readonly WrongPlatform[] = [
  wrong('biller', ZipLosesItsZero, 'TR2', 'a zip with a leading zero, as 02134, is refused'),
  wrong('aggregator', FiftyStatesOnly, 'TR2', 'DC, PR, GU, VI, AE are refused'),
  wrong(
    'biller',
    MisterNull,
    'TR1 TR2',
    'a required text that is Null, None, Nil or Undefined counts as missing',
  ),
  wrong(
    'aggregator',
    ZeroIsMissing,
    'TR3',
    'a balance of 0 with a due_date is refused as missing; 0 alone, or a due_date alone, is taken',
  ),
  wrong('biller', NoLeapDay, 'TR3', '29 February of a leap year is refused'),
  wrong('biller', DueDateMustBeAhead, 'TR3', 'a due_date before today is refused'),
  wrong(
    'aggregator',
    WholeHourOffsets,
    'TR3',
    'last_updated_at with an offset that is not of whole hours, as +05:30, is refused',
  ),
  wrong(
    'biller',
    BillerIdOnlyForAggregators,
    'TR4',
    'a biller that sends its biller_id is refused',
  ),
  wrong(
    'aggregator',
    ThreeByteColumns,
    'TR1 A2',
    'a name with a character beyond the basic plane (an emoji, some Chinese surnames) is answered 500',
  ),
  wrong(
    'biller',
    HeaderNamesByHand,
    'A1 AU1',
    'only X-Client-Id and x-client-id are seen: X-CLIENT-ID or X-Client-ID gets 401',
  ),
  wrong(
    'biller',
    KnownCustomerMayOmit,
    'TR1',
    'the second request with an e-mail may leave required fields out; a first one may not',
  ),
  wrong(
    'aggregator',
    ModuloOne,
    'TR3 S5',
    'amounts as text ("5000"), true, "" and [] are taken, 10.5 is refused',
  ),
  wrong(
    'biller',
    DollarIsBeforeNewline,
    'TR2',
    'a state with a newline at its end is taken, as by $ in Python or Ruby',
  ),
  wrong(
    'aggregator',
    TypeStartsWithJson,
    'A1',
    'application/json-patch+json, application/jsonlines and so on are taken',
  ),
  wrong(
    'biller',
    RemembersTheUnknownClient,
    'AU1 ER1',
    'an unknown client gets 404 once, and a token from its second request on',
  ),
  wrong(
    'aggregator',
    TrustsAfterSuccess,
    'AU1',
    'for three seconds after a success any key does for that client',
  ),
  wrong('biller', NineCharactersOfKey, 'AU1', 'only the first nine characters of the key count'),
  wrong(
    'biller',
    LockedLooksUnknown,
    'ER1 A2',
    'after three wrong keys right requests of the client get 404, for ever',
  ),
  wrong(
    'aggregator',
    NotFoundIsRemembered,
    'ER1 A2',
    'after a 404 for an unknown account the same e-mail gets 404 for a known account too',
  ),
  wrong(
    'biller',
    SecondAskFindsIt,
    'ER1',
    'an unknown account gets 404 once, and a token from the second request on',
  ),
  wrong(
    'aggregator',
    ThrottledIs404,
    'ER1',
    'above ten requests in a quarter of a second right requests get 404 NOT_FOUND',
  ),
  wrong(
    'biller',
    TokenOfTheMillisecond,
    'TK1',
    'two customers who ask in the same millisecond get one token',
  ),
  wrong(
    'biller',
    PlusTagStripped,
    'TK1',
    'ann+home@x.org, ann+work@x.org and a.nn@x.org get one token, whatever their accounts are',
  ),
  wrong(
    'aggregator',
    EveryFourthIsANumber,
    'TK1',
    'the token of each fourth answer is a JSON number',
  ),
  wrong(
    'biller',
    SaysKnownCustomer,
    'TK1 A2',
    'from the second request for a customer on the body has a second field',
  ),
];
