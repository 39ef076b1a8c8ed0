/**
 * The target file, the flags that override it, and the sentence that fixes an error in either.
 * One JSON file holds everything the judge must know about a server: its address, the credentials, the paths where they differ
 * from ours (decision 1), accounts to work with, declared limits, and the time in which payments end. `conform partner init`
 * writes one. Secrets may be named by environment variable (`key_env`, `client_secret_env`, `api_key_env`), so that the file can
 * be committed.
 * One file because it is one table: each field of the target file, its reading, its flag and its error.
 */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { partnerRoutes } from '@duebridge/contract';

/** The operations of a partner that the judge calls. */
export const PARTNER_OPERATIONS = [
  'get_account',
  'get_balance',
  'put_account_payment',
  'get_account_payment',
  'get_payment',
] as const;
export type PartnerOperation = (typeof PARTNER_OPERATIONS)[number];

/** The two authentication methods (S3). */
export type Authentication =
  | { readonly method: 'key'; readonly header: string; readonly key: string }
  | {
      readonly method: 'oauth';
      readonly token_url: string;
      readonly client_id: string;
      readonly client_secret: string;
      readonly scope: string;
    };

/** A request that triggers something that no operation of the interface does. */
export interface OutsideCall {
  readonly method: string;
  /** May hold `{platform_payment_id}`. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A secret and the name that replaces it in reports and commands. */
export interface Secret {
  readonly value: string;
  readonly name: string;
}

/** A partner's server. */
export interface PartnerTarget {
  readonly base_url: string;
  readonly authentication: Authentication;
  /** Path templates; null when the partner does not offer the operation. */
  readonly paths: Readonly<Record<PartnerOperation, string | null>>;
  readonly biller_id: string;
  readonly accounts: {
    /** An active account that the judge may pay. */
    readonly payable: string;
    /** Another active account, for P30. */
    readonly other?: string;
    /** An id that belongs to no account. */
    readonly unknown: string;
    readonly inactive?: string;
    /** An account whose payments the partner cancels, for P53. */
    readonly canceled?: string;
  };
  /** How the judge gets a processing payment canceled, for P53, when no account does it. */
  readonly cancel?: OutsideCall;
  readonly limits: {
    readonly min_amount_in_cents: number;
    /** Absent when the partner declares none. */
    readonly max_amount_in_cents?: number;
  };
  /** Every payment ends within this time; absent when the partner declares none. */
  readonly terminal_window_seconds?: number;
  /** Shell command that restarts the server under test (P66). */
  readonly restart_command?: string;
  /** Maximum cents that one run may request; absent when no cap was declared. */
  readonly spending_cap_in_cents?: number;
  /** PEM file of an additional trusted authority. */
  readonly ca_file?: string;
}

/** A platform's server: its token endpoint (T), and where it offers the flow (C, T15). */
export interface PlatformTarget {
  readonly base_url: string;
  /** False when only its calls are judged (C); the address and the client are then not needed. */
  readonly has_token_endpoint: boolean;
  readonly client_id: string;
  readonly api_key: string;
  readonly kind: 'biller' | 'aggregator';
  readonly biller_id?: string;
  readonly account_id?: string;
  /** An account id that the partner of this client does not know. */
  readonly unknown_account_id?: string;
  /** True when the platform offers the flow of decision 31 at base_url; T15 and the C checks use it. */
  readonly flow: boolean;
  /** Another client of the platform, whose key must not open this one (T06). */
  readonly other_client?: { readonly client_id: string; readonly api_key: string };
  /** Headers that make a test build of the platform fail internally, for T12. */
  readonly internal_fault_headers?: Readonly<Record<string, string>>;
  /** How many tokens T13 requests. */
  readonly token_sample: number;
  /** How many requests T14 sends in one burst. */
  readonly burst: number;
  /** How many requests the platform accepts before it answers 429: decision 16 unless declared (T14). */
  readonly rate: { readonly requests_per_second: number; readonly burst: number };
  /** The listening address and credentials of the scripted partner that the platform calls (C). */
  readonly caller?: CallerTarget;
  readonly ca_file?: string;
}

/** The scripted partner that the platform under test is registered with. */
export interface CallerTarget {
  /** Address to listen on; 127.0.0.1 unless named. */
  readonly host: string;
  readonly port: number;
  /** The address registered with the platform, when it differs from host and port. */
  readonly public_url?: string;
  /** PEM files of the scripted partner's TLS key and certificate. */
  readonly tls?: { readonly cert_file: string; readonly key_file: string };
  readonly authentication: Authentication;
  readonly biller_id: string;
  readonly account_id: string;
  /** Another account of that biller, for C01. */
  readonly other_account_id?: string;
  /** Shell command that restarts the platform under test (C14). */
  readonly restart_command?: string;
  /** Maximum wait for the platform's next call. */
  readonly patience_seconds: number;
  /** True when the target declares it: only then does a longer silence count against the platform. */
  readonly patience_declared: boolean;
  /** Shell command that makes the platform pay: {biller_id}, {account_id} and {amount_in_cents} are filled in. */
  readonly pay_command?: string;
  /** Shell command that prints the status of {platform_payment_id}. */
  readonly status_command?: string;
  /** Address that makes the platform pay: POST {biller_id, account_id, amount_in_cents}. */
  readonly pay_url?: string;
  /** Address of a JSON object with the status of {platform_payment_id}. */
  readonly status_url?: string;
}

/** The target cannot be used as given: exit code 2, with one sentence that says what to fix. */
export class TargetProblem extends Error {
  constructor(sentence: string) {
    super(sentence);
    this.name = 'TargetProblem';
  }
}

/** The contents of the target file before flags: a JSON object, not checked yet. */
export type Draft = Record<string, unknown>;

/** Reads a target file. Throws TargetProblem when it is missing or not a JSON object. */
export function readDraft(file: string): Draft {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    throw new TargetProblem(
      `The target file ${file} cannot be read: fix its path, or write one with "conform partner init ${file}".`,
    );
  }
  try {
    const value: unknown = JSON.parse(text);
    if (isRecord(value)) return value;
  } catch {
    // Reported below: one sentence covers invalid JSON and JSON that is not an object.
  }
  throw new TargetProblem(`The target file ${file} is not a JSON object: fix its syntax.`);
}

/** Merges flags into a draft: an undefined flag keeps the file's value, objects are merged. */
export function overlay(draft: Draft, flags: Draft): Draft {
  const merged: Draft = { ...draft };
  for (const [name, value] of Object.entries(flags)) {
    if (value === undefined) continue;
    const below = merged[name];
    merged[name] = isRecord(value) ? overlay(isRecord(below) ? below : {}, value) : value;
  }
  return merged;
}

/** Builds a partner target from a draft. Throws TargetProblem naming the first invalid field. */
export function partnerTarget(draft: Draft, env: NodeJS.ProcessEnv = process.env): PartnerTarget {
  const read = new Reader(draft, env);
  const accounts = read.inside('accounts');
  const limits = read.inside('limits');
  const max = limits.count('max_amount_in_cents');
  const cap = read.count('spending_cap_in_cents');
  const cancel = outsideCall(read);
  const target: PartnerTarget = {
    base_url: read.url('base_url', '--base-url').replace(/\/+$/, ''),
    authentication: authentication(read.inside('authentication')),
    paths: paths(read.inside('paths')),
    biller_id: read.text('biller_id', '--biller'),
    accounts: {
      payable: accounts.text('payable', '--account'),
      unknown: accounts.optional('unknown') ?? 'no-such-account-duebridge',
      ...accounts.optionals('other', 'inactive', 'canceled'),
    },
    ...present('cancel', cancel),
    limits: {
      min_amount_in_cents: limits.count('min_amount_in_cents') ?? 1,
      ...present('max_amount_in_cents', max),
    },
    ...present('terminal_window_seconds', read.count('terminal_window_seconds')),
    ...present('restart_command', read.optional('restart_command')),
    ...present('spending_cap_in_cents', cap),
    ...present('ca_file', read.certificateFile('ca_file', '--ca')),
  };
  read.end();
  if (max !== undefined && max < target.limits.min_amount_in_cents) {
    throw new TargetProblem('limits.max_amount_in_cents is below limits.min_amount_in_cents.');
  }
  return target;
}

/** Builds a platform target from a draft. Throws TargetProblem naming the first invalid field. */
export function platformTarget(draft: Draft, env: NodeJS.ProcessEnv = process.env): PlatformTarget {
  const read = new Reader(draft, env);
  const kind = read.optional('kind') ?? 'biller';
  if (kind !== 'biller' && kind !== 'aggregator') {
    throw new TargetProblem('kind is invalid: set it to "biller" or "aggregator" (--kind).');
  }
  const fault = read.headers('internal_fault_headers');
  const rate = read.inside('rate');
  const caller = read.has('caller') ? callerTarget(read.inside('caller')) : undefined;
  // For a target with a caller but no token endpoint, only the calls are judged.
  const caller_only = caller !== undefined && !read.has('base_url') && !read.has('client_id');
  read.know('api_key', 'api_key_env');
  const other = read.has('other_client') ? read.inside('other_client') : undefined;
  const target: PlatformTarget = {
    base_url: caller_only
      ? (caller.public_url ?? 'http://127.0.0.1')
      : read.url('base_url', '--base-url').replace(/\/+$/, ''),
    has_token_endpoint: !caller_only,
    client_id: caller_only ? '' : read.text('client_id', '--client-id'),
    api_key: caller_only
      ? ''
      : read.headerSecret('api_key', '--api-key or DUEBRIDGE_CONFORM_API_KEY'),
    kind,
    ...read.optionals('biller_id', 'account_id', 'unknown_account_id'),
    ...(other === undefined
      ? {}
      : {
          other_client: {
            client_id: other.text('client_id', 'other_client.client_id'),
            api_key: other.headerSecret('api_key', 'other_client.api_key'),
          },
        }),
    flow: read.flag('flow'),
    ...(Object.keys(fault).length === 0 ? {} : { internal_fault_headers: fault }),
    token_sample: read.count('token_sample') ?? 1_000,
    burst: read.count('burst') ?? 200,
    rate: {
      requests_per_second: rate.count('requests_per_second') ?? 25,
      burst: rate.count('burst') ?? 50,
    },
    ...present('caller', caller),
    ...present('ca_file', read.certificateFile('ca_file', '--ca')),
  };
  read.end();
  return target;
}

/** The secrets of an authentication, with the names that replace them in reports. */
export function secretsOf(authentication: Authentication): readonly Secret[] {
  return authentication.method === 'key'
    ? [{ value: authentication.key, name: 'API_KEY' }]
    : [{ value: authentication.client_secret, name: 'CLIENT_SECRET' }];
}

/** The file that `conform partner init` writes. */
export function exampleTarget(method: 'key' | 'oauth'): Draft {
  return {
    base_url: 'https://partner.example',
    authentication:
      method === 'key'
        ? { method, header: 'x-api-key', key_env: 'DUEBRIDGE_CONFORM_KEY' }
        : {
            method,
            token_url: 'https://partner.example/oauth/token',
            client_id: 'the-client-id-of-the-platform',
            client_secret_env: 'DUEBRIDGE_CONFORM_CLIENT_SECRET',
            scope: 'read write',
          },
    biller_id: 'your-biller-id',
    accounts: {
      payable: 'an-active-account',
      other: 'another-active-account',
      unknown: 'an-id-no-account-has',
      inactive: 'a-closed-account',
    },
    paths: Object.fromEntries(PARTNER_OPERATIONS.map((name) => [name, partnerRoutes[name].path])),
    limits: { min_amount_in_cents: 1, max_amount_in_cents: 500_000 },
    terminal_window_seconds: 60,
    spending_cap_in_cents: 2_000_000,
  };
}

/** True for a host name of this machine, the only kind of host for which plain http is allowed. */
export function isLoopback(hostname: string): boolean {
  return /^(?:localhost|.+\.localhost|127(?:\.\d{1,3}){3}|\[::1\])$/.test(hostname);
}

/** How long the judge waits for a platform's next call unless the target declares it. */
const USUAL_PATIENCE_SECONDS = 30;

function callerTarget(read: Reader): CallerTarget {
  const tls = read.has('tls') ? read.inside('tls') : undefined;
  const url = (name: 'public_url' | 'pay_url' | 'status_url'): string | undefined =>
    read.has(name) ? read.url(name, `caller.${name}`) : undefined;
  return {
    host: read.optional('host') ?? '127.0.0.1',
    port: read.count('port') ?? 4300,
    ...present('public_url', url('public_url')),
    ...(tls === undefined
      ? {}
      : {
          tls: {
            cert_file: tls.text('cert_file', 'caller.tls.cert_file'),
            key_file: tls.text('key_file', 'caller.tls.key_file'),
          },
        }),
    authentication: authentication(read.inside('authentication')),
    biller_id: read.text('biller_id', 'caller.biller_id'),
    account_id: read.text('account_id', 'caller.account_id'),
    ...read.optionals('other_account_id', 'restart_command', 'pay_command', 'status_command'),
    patience_seconds: read.count('patience_seconds') ?? USUAL_PATIENCE_SECONDS,
    patience_declared: read.has('patience_seconds'),
    ...present('pay_url', url('pay_url')),
    ...present('status_url', url('status_url')),
  };
}

function authentication(read: Reader): Authentication {
  const method = read.optional('method');
  // The fields of the other method may be present too: flags and the environment choose between them.
  read.know('header', 'key', 'key_env', 'token_url', 'client_id', 'scope');
  read.know('client_secret', 'client_secret_env');
  switch (method) {
    case 'key':
      return {
        method,
        header: read.headerName('header', '--header'),
        key: read.headerSecret('key', '--key or DUEBRIDGE_CONFORM_KEY'),
      };
    case 'oauth':
      return {
        method,
        token_url: read.url('token_url', '--token-url'),
        client_id: read.text('client_id', '--client-id'),
        client_secret: read.secret(
          'client_secret',
          '--client-secret or DUEBRIDGE_CONFORM_CLIENT_SECRET',
        ),
        scope: read.optional('scope') ?? 'read write',
      };
    case undefined:
      throw new TargetProblem(
        'The authentication method is missing: pass --auth key or --auth oauth.',
      );
    default:
      throw new TargetProblem(`"${method}" is not an authentication method: use key or oauth.`);
  }
}

function paths(read: Reader): Record<PartnerOperation, string | null> {
  const path = (name: PartnerOperation): string | null => {
    if (read.isNull(name)) return null;
    const template = read.optional(name) ?? partnerRoutes[name].path;
    const fields = [...template.matchAll(/\{([a-z_]+)\}/g)].map((match) => match[1]);
    const last = name.endsWith('payment') ? 'platform_payment_id' : 'account_id';
    if (!template.startsWith('/') || !fields.includes(last)) {
      throw new TargetProblem(
        `paths.${name} is invalid: it must start with "/" and contain {${last}}.`,
      );
    }
    return template;
  };
  const needed = (name: PartnerOperation): string => {
    const template = path(name);
    if (template === null) {
      throw new TargetProblem(`paths.${name} is null, but every partner must offer it.`);
    }
    return template;
  };
  return {
    get_account: needed('get_account'),
    get_balance: path('get_balance'),
    put_account_payment: needed('put_account_payment'),
    get_account_payment: needed('get_account_payment'),
    get_payment: path('get_payment'),
  };
}

function outsideCall(read: Reader): OutsideCall | undefined {
  if (!read.has('cancel')) return undefined;
  const inside = read.inside('cancel');
  const body = inside.optional('body') ?? '';
  return {
    method: inside.optional('method') ?? 'POST',
    url: inside.url('url', 'cancel.url'),
    headers: inside.headers('headers'),
    body,
  };
}

/** Reads fields of a draft; each failure is one sentence that names the field and its flag. */
class Reader {
  readonly #draft: Draft;
  readonly #env: NodeJS.ProcessEnv;
  readonly #place: string;
  /** The fields read so far: all others are unknown. */
  readonly #known = new Set<string>();
  readonly #inside: Reader[] = [];

  constructor(draft: Draft, env: NodeJS.ProcessEnv, place = '') {
    this.#draft = draft;
    this.#env = env;
    this.#place = place;
  }

  has(name: string): boolean {
    return this.#value(name) !== undefined;
  }

  isNull(name: string): boolean {
    return this.#value(name) === null;
  }

  inside(name: string): Reader {
    const value = this.#value(name) ?? {};
    if (!isRecord(value)) throw new TargetProblem(`${this.#place}${name} must be an object.`);
    const reader = new Reader(value, this.#env, `${this.#place}${name}.`);
    this.#inside.push(reader);
    return reader;
  }

  /** Marks these fields as known although nothing reads them. */
  know(...names: readonly string[]): void {
    for (const name of names) this.#known.add(name);
  }

  /** Throws TargetProblem for the first field that nothing reads, so that a typo is reported. */
  end(): void {
    const unknown = Object.keys(this.#draft).find(
      (name) => !this.#known.has(name) && this.#draft[name] !== undefined,
    );
    if (unknown !== undefined) {
      const fields = [...this.#known].filter((name) => !name.endsWith('_env')).join(', ');
      throw new TargetProblem(
        `${this.#place}${unknown} is not a field of the target file: the fields here are ${fields}.`,
      );
    }
    for (const reader of this.#inside) reader.end();
  }

  #value(name: string): unknown {
    this.#known.add(name);
    return this.#draft[name];
  }

  optional(name: string): string | undefined {
    const value = this.#value(name);
    if (value === undefined || value === null) return undefined;
    if (typeof value !== 'string' || value === '') {
      throw new TargetProblem(`${this.#place}${name} must be a non-empty string.`);
    }
    return value;
  }

  /** Those of these fields that are set. */
  optionals<K extends string>(...names: readonly K[]): Partial<Record<K, string>> {
    const found: Partial<Record<K, string>> = {};
    for (const name of names) Object.assign(found, present(name, this.optional(name)));
    return found;
  }

  text(name: string, flag: string): string {
    const value = this.optional(name);
    if (value === undefined) {
      throw new TargetProblem(
        `${this.#place}${name} is missing: set it in the file or with ${flag}.`,
      );
    }
    return value;
  }

  secret(name: string, flag: string): string {
    const variable = this.optional(`${name}_env`);
    const value = variable === undefined ? this.text(name, flag) : this.#env[variable];
    if (value === undefined || value === '') {
      throw new TargetProblem(
        `${this.#place}${name} is read from the environment variable ${variable ?? name}, which is not set.`,
      );
    }
    return value;
  }

  /** A secret that is sent in a header unchanged. */
  headerSecret(name: string, flag: string): string {
    const value = this.secret(name, flag);
    if (/[^\x21-\x7e]/.test(value)) {
      throw new TargetProblem(
        `${this.#place}${name} contains a space or a non-ASCII character, which a header cannot carry unencoded.`,
      );
    }
    return value;
  }

  headerName(name: string, flag: string): string {
    const value = this.text(name, flag);
    if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(value)) {
      throw new TargetProblem(`"${value}" is not a valid header name: fix ${flag}.`);
    }
    return value;
  }

  /** A file with at least one certificate in PEM form. */
  certificateFile(name: string, flag: string): string | undefined {
    const file = this.optional(name);
    if (file === undefined) return undefined;
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new TargetProblem(`The file ${file} cannot be read (${why}): fix ${flag}.`);
    }
    if (!holdsCertificate(text)) {
      throw new TargetProblem(`The file ${file} holds no certificate in PEM form: fix ${flag}.`);
    }
    return file;
  }

  url(name: string, flag: string): string {
    const value = this.text(name, flag);
    const url = URL.canParse(value) ? new URL(value) : undefined;
    if (url === undefined || !['http:', 'https:'].includes(url.protocol)) {
      throw new TargetProblem(`${this.#place}${name} is not an http or https URL: fix ${flag}.`);
    }
    if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
      throw new TargetProblem(
        `${this.#place}${name} must not contain a user, query or fragment: fix ${flag}.`,
      );
    }
    if (
      url.protocol === 'http:' &&
      !isLoopback(url.hostname) &&
      this.#env['DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES'] !== '1'
    ) {
      throw new TargetProblem(
        `${this.#place}${name} is plain http, which would expose the credentials on the network: use https, or set DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES=1 for a test network.`,
      );
    }
    return value;
  }

  flag(name: string): boolean {
    const value = this.#value(name) ?? false;
    if (typeof value !== 'boolean') {
      throw new TargetProblem(`${this.#place}${name} must be true or false.`);
    }
    return value;
  }

  count(name: string): number | undefined {
    const value = this.#value(name);
    if (value === undefined || value === null) return undefined;
    const number = typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value;
    if (typeof number !== 'number' || !Number.isSafeInteger(number) || number < 0) {
      throw new TargetProblem(`${this.#place}${name} must be an integer of at least 0.`);
    }
    return number;
  }

  headers(name: string): Record<string, string> {
    const value = this.#value(name) ?? {};
    if (!isRecord(value) || Object.values(value).some((text) => typeof text !== 'string')) {
      throw new TargetProblem(`${this.#place}${name} must be an object whose values are strings.`);
    }
    return value as Record<string, string>;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function present<K extends string, V>(name: K, value: V | undefined): Partial<Record<K, V>> {
  return value === undefined ? {} : ({ [name]: value } as Record<K, V>);
}

function holdsCertificate(text: string): boolean {
  try {
    return new X509Certificate(text).raw.length > 0;
  } catch {
    return false;
  }
}
