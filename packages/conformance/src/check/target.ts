/**
 * The target file: its fields as a table of readers, and the sentence that fixes an error in any of them.
 * One JSON file holds everything the judge must know about a server: its address, the credentials, the paths where they differ
 * from ours (decision 1), accounts to work with, declared limits, and the time in which payments end. `conform partner init`
 * writes one. Secrets may be named by environment variable (`key_env`, `client_secret_env`, `api_key_env`), so that the file can
 * be committed.
 */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { partnerRoutes, pathFields, type Route } from '@duebridge/contract';

/** The target cannot be used as given: exit code 2, with one sentence that says what to fix. */
export class TargetProblem extends Error {
  override readonly name = 'TargetProblem';
}

/** The contents of the target file before flags: a JSON object, not checked yet. */
export type Draft = Record<string, unknown>;

/** Reads a target file. Throws TargetProblem when it is missing or not a JSON object. */
export function readDraft(file: string): Draft {
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    if (isRecord(value)) return value;
  } catch (error) {
    if (!(error instanceof SyntaxError)) {
      throw new TargetProblem(`The target file ${file} cannot be read: fix its path.`);
    }
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

/** Where a field stands: its whole name, the object that holds it, and the environment. */
interface Place {
  readonly name: string;
  readonly beside: Draft;
  readonly env: NodeJS.ProcessEnv;
}

/** Reads one field; throws TargetProblem with the sentence that fixes it. */
type Read<T> = (value: unknown, at: Place) => T;

const isMissing = (value: unknown): boolean => value === undefined || value === null;

const usual =
  <T, U>(read: Read<T>, otherwise: U): Read<T | U> =>
  (value, at) =>
    isMissing(value) ? otherwise : read(value, at);

const optional = <T>(read: Read<T>): Read<T | undefined> => usual(read, undefined);

/** A non-empty string. */
const text: Read<string> = (value, { name }) => {
  if (isMissing(value)) {
    throw new TargetProblem(`${name} is missing: set it in the file, or with its flag (--help).`);
  }
  if (typeof value === 'string' && value !== '') return value;
  throw new TargetProblem(`${name} must be a non-empty string.`);
};

/** A string that may stand in an environment variable instead, which `NAME_env` names. */
const secret: Read<string> = (value, at) => {
  const short = at.name.split('.').at(-1) ?? '';
  const variable = optional(text)(at.beside[`${short}_env`], at);
  if (variable === undefined) return text(value, at);
  const given = at.env[variable];
  if (given !== undefined && given !== '') return given;
  throw new TargetProblem(`${at.name} is in the variable ${variable}, which is not set.`);
};

/** A secret that is sent in a header unchanged. */
const headerSecret: Read<string> = (value, at) => {
  const given = secret(value, at);
  if (!/[^\x21-\x7e]/.test(given)) return given;
  throw new TargetProblem(
    `${at.name} contains a space or a non-ASCII character, which a header cannot carry unencoded.`,
  );
};

const headerName: Read<string> = (value, at) => {
  const given = text(value, at);
  if (/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(given)) return given;
  throw new TargetProblem(`"${given}" is not a valid header name: fix ${at.name}.`);
};

/** An http or https URL without user, query and fragment; plain http only on this machine or where that is allowed. */
const url: Read<string> = (value, at) => {
  const given = text(value, at);
  const parsed = URL.canParse(given) ? new URL(given) : undefined;
  if (parsed === undefined || !['http:', 'https:'].includes(parsed.protocol)) {
    throw new TargetProblem(`${at.name} is not an http or https URL: fix it.`);
  }
  if ([parsed.username, parsed.password, parsed.search, parsed.hash].some((part) => part)) {
    throw new TargetProblem(`${at.name} must not contain a user, query or fragment: fix it.`);
  }
  const isPlain = parsed.protocol === 'http:' && !isLoopback(parsed.hostname);
  if (!isPlain || at.env['DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES'] === '1') return given;
  throw new TargetProblem(
    `${at.name} is plain http, which exposes the credentials: use https, or set DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES=1 for a test network.`,
  );
};

const baseUrl: Read<string> = (value, at) => url(value, at).replace(/\/+$/, '');

const count: Read<number> = (value, { name }) => {
  const number = typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0) return number;
  throw new TargetProblem(`${name} must be an integer of at least 0.`);
};

/** A value of one kind. */
const valid =
  <T>(what: string, holds: (value: unknown) => value is T): Read<T> =>
  (value, { name }) => {
    if (holds(value)) return value;
    throw new TargetProblem(`${name} must be ${what}.`);
  };

const headers = valid(
  'an object whose values are strings',
  (value): value is Readonly<Record<string, string>> =>
    isRecord(value) && Object.values(value).every((one) => typeof one === 'string'),
);

const kind = valid(
  '"biller" or "aggregator" (--kind)',
  (value) => value === 'biller' || value === 'aggregator',
);

/** A file with at least one certificate in PEM form. */
const certificateFile: Read<string> = (value, at) => {
  const file = text(value, at);
  try {
    void new X509Certificate(readFileSync(file));
    return file;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new TargetProblem(`${file} holds no certificate in PEM form (${why}): fix --ca.`);
  }
};

/** An object with these fields and no others, so that a typo is reported. Everything that is wrong in it is said at once. */
const object =
  <F extends Record<string, Read<unknown>>>(
    fields: F,
  ): Read<{ readonly [K in keyof F]: ReturnType<F[K]> }> =>
  (value, { name, env }) => {
    const given = value ?? {};
    if (!isRecord(given)) throw new TargetProblem(`${name} must be an object.`);
    const prefix = name === '' ? '' : `${name}.`;
    const problems: string[] = [];
    const read = Object.entries(fields).map(([field, read]) => {
      try {
        return [field, read(given[field], { name: prefix + field, beside: given, env })];
      } catch (error) {
        if (!(error instanceof TargetProblem)) throw error;
        problems.push(error.message);
        return [field, undefined];
      }
    });
    const unknown = Object.keys(given).find(
      (field) => !(field.replace(/_env$/, '') in fields) && given[field] !== undefined,
    );
    if (unknown !== undefined) {
      problems.push(
        `${prefix}${unknown} is not a field of the target file: the fields here are ${Object.keys(fields).join(', ')}.`,
      );
    }
    if (problems.length > 0) throw new TargetProblem(problems.join(' '));
    return Object.fromEntries(read);
  };

// ---------------------------------------------------------------------------------------------
// The fields
// ---------------------------------------------------------------------------------------------

const KEY_FIELDS = { header: headerName, key: headerSecret };

const OAUTH_FIELDS = {
  token_url: url,
  client_id: text,
  client_secret: secret,
  scope: usual(text, 'read write'),
};

/** The two authentication methods (S3). */
export type Authentication = ReturnType<typeof authentication>;

const authentication = (value: unknown, at: Place) => {
  const { method, ...given } = isRecord(value) ? value : {};
  // The fields of the other method may be present too: flags and the environment choose between them.
  const without = (others: object): Draft =>
    Object.fromEntries(
      Object.entries(given).filter(([name]) => !(name.replace(/_env$/, '') in others)),
    );
  if (method === 'key') {
    return { method, ...object(KEY_FIELDS)(without(OAUTH_FIELDS), at) } as const;
  }
  if (method === 'oauth') {
    return { method, ...object(OAUTH_FIELDS)(without(KEY_FIELDS), at) } as const;
  }
  throw new TargetProblem(
    isMissing(method)
      ? 'The authentication method is missing: pass --auth key or --auth oauth.'
      : `"${String(method)}" is not an authentication method: use key or oauth.`,
  );
};

/** A path template: as decision 1 has it unless given. Null where the partner does not offer the operation and need not. */
const path =
  ({ path: usualPath }: Route, need: 'needed' | 'optional' = 'needed'): Read<string | null> =>
  (value, at) => {
    if (value === null && need === 'optional') return null;
    const template = usual(text, usualPath)(value, at);
    const last = `{${pathFields(usualPath).at(-1) ?? ''}}`;
    if (value !== null && template.startsWith('/') && template.includes(last)) return template;
    throw new TargetProblem(`${at.name} is invalid: it must start with "/" and contain ${last}.`);
  };

const PATHS = {
  get_account: path(partnerRoutes.get_account),
  get_balance: path(partnerRoutes.get_balance, 'optional'),
  put_account_payment: path(partnerRoutes.put_account_payment),
  get_account_payment: path(partnerRoutes.get_account_payment),
  get_payment: path(partnerRoutes.get_payment, 'optional'),
};

/** An operation of a partner that the judge calls. */
export type PartnerOperation = keyof typeof PATHS;

const readPartner = object({
  base_url: baseUrl,
  authentication,
  paths: object(PATHS),
  biller_id: text,
  accounts: object({
    /** An active account that the judge may pay. */
    payable: text,
    /** Another active account, for P30. */
    other: optional(text),
    /** An id that belongs to no account. */
    unknown: usual(text, 'no-such-account-duebridge'),
    inactive: optional(text),
    /** An account whose payments the partner cancels, for P53. */
    canceled: optional(text),
  }),
  limits: object({
    min_amount_in_cents: usual(count, 1),
    /** Absent when the partner declares none. */
    max_amount_in_cents: optional(count),
  }),
  /** Every payment ends within this time; absent when the partner declares none. */
  terminal_window_seconds: optional(count),
  /** Maximum cents that one run may request; absent when no cap was declared. */
  spending_cap_in_cents: optional(count),
  /** PEM file of an additional trusted authority. */
  ca_file: optional(certificateFile),
});

/** A partner's server. */
export type PartnerTarget = ReturnType<typeof readPartner>;

const readCaller = object({
  /** Address and port on which the scripted partner listens. */
  host: usual(text, '127.0.0.1'),
  port: usual(count, 4300),
  /** The address registered with the platform, when it differs from host and port. */
  public_url: optional(url),
  /** PEM files of the scripted partner's TLS key and certificate. */
  tls: optional(object({ cert_file: text, key_file: text })),
  authentication,
  biller_id: text,
  account_id: text,
  /** Another account of that biller, for C01. */
  other_account_id: optional(text),
  /** Maximum wait for the platform's next call; only if it is declared, a longer silence counts against the platform. */
  patience_seconds: optional(count),
  /** Shell command that makes the platform pay: {biller_id}, {account_id} and {amount_in_cents} are filled in. */
  pay_command: optional(text),
  /** Shell command that prints the status of {platform_payment_id}. */
  status_command: optional(text),
});

/** How long the judge waits for a platform's next call unless the target declares it. */
const USUAL_PATIENCE_SECONDS = 30;

/** The scripted partner that the platform under test is registered with. */
export type CallerTarget = ReturnType<typeof caller>;

const caller = (value: unknown, at: Place) => {
  const read = readCaller(value, at);
  const { patience_seconds } = read;
  return {
    ...read,
    patience_seconds: patience_seconds ?? USUAL_PATIENCE_SECONDS,
    patience_declared: patience_seconds !== undefined,
  };
};

/** The fields of a platform; with `callsOnly` it needs no token endpoint. */
const platformFields = (callsOnly: boolean) => {
  const needed = (read: Read<string>): Read<string> => (callsOnly ? usual(read, '') : read);
  return {
    base_url: needed(baseUrl),
    client_id: needed(text),
    api_key: needed(headerSecret),
    kind: usual(kind, 'biller'),
    biller_id: optional(text),
    account_id: optional(text),
    /** An account id that the partner of this client does not know. */
    unknown_account_id: optional(text),
    /** Another client of the platform, whose key must not open this one (T06). */
    other_client: optional(object({ client_id: text, api_key: headerSecret })),
    /** Headers that make a test build of the platform fail internally, for T20. */
    internal_fault_headers: optional(headers),
    /** How many tokens T13 requests, and how many requests T14 sends in one burst. */
    token_sample: usual(count, 1_000),
    burst: usual(count, 200),
    /** The listening address and credentials of the scripted partner that the platform calls. */
    caller: optional(caller),
    ca_file: optional(certificateFile),
  };
};

/** Builds a partner target from a draft. Throws TargetProblem naming the first invalid field. */
export function partnerTarget(draft: Draft, env: NodeJS.ProcessEnv = process.env): PartnerTarget {
  const target = readPartner(draft, { name: '', beside: {}, env });
  const { min_amount_in_cents: min, max_amount_in_cents: max } = target.limits;
  if (max === undefined || max >= min) return target;
  throw new TargetProblem('limits.max_amount_in_cents is below limits.min_amount_in_cents.');
}

/** A platform's server: its token endpoint (T), and how it calls a partner (C, F). */
export type PlatformTarget = ReturnType<typeof platformTarget>;

/** Builds a platform target from a draft. Throws TargetProblem naming the first invalid field. */
export function platformTarget(draft: Draft, env: NodeJS.ProcessEnv = process.env) {
  const isSet = (name: string): boolean => draft[name] !== undefined;
  // For a target with a caller but no token endpoint, only the calls are judged.
  const callsOnly = isSet('caller') && !isSet('base_url') && !isSet('client_id');
  const read = object(platformFields(callsOnly))(draft, { name: '', beside: {}, env });
  return {
    ...read,
    ...(callsOnly ? { base_url: read.caller?.public_url ?? 'http://127.0.0.1' } : {}),
    has_token_endpoint: !callsOnly,
  };
}

/** A secret and the name that replaces it in reports and commands. */
export interface Secret {
  readonly value: string;
  readonly name: string;
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
    paths: object(PATHS)({}, { name: 'paths', beside: {}, env: {} }),
    limits: { min_amount_in_cents: 1, max_amount_in_cents: 500_000 },
    terminal_window_seconds: 60,
    spending_cap_in_cents: 2_000_000,
  };
}

/** True for a host name of this machine, the only kind of host for which plain http is allowed. */
function isLoopback(hostname: string): boolean {
  return /^(?:localhost|.+\.localhost|127(?:\.\d{1,3}){3}|\[::1\])$/.test(hostname);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
