/**
 * What is wrong with a registration or a change of one, beside its schema: addresses that must not be called, templates that would read
 * another record, headers and certificates that cannot work. Pure.
 */
import {
  pathFields,
  type Detail,
  type Mode,
  type PartnerConnection,
  type PartnerRegistration,
} from '@duebridge/contract';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { isHostName, urlProblem } from './address-guard.ts';
import { readLogo } from './logo.ts';

/** The fields of a registration, or those that a change gives. */
export type PartlyGiven = {
  readonly [Field in keyof PartnerRegistration]?:
    | PartnerRegistration[Field]
    | (Field extends 'logo' | 'colour' | 'connection' ? null : never)
    | undefined;
};

/** What is wrong with the fields given, by their paths in the body. `allowPrivate` admits http and private addresses (decision 30). */
export function registrationProblems(
  given: PartlyGiven,
  { mode, allowPrivate }: { readonly mode: Mode; readonly allowPrivate: boolean },
): Detail[] {
  const { kind, biller_id, batch_time_zone, base_url, logo, auth, connection } = given;
  const each = (
    field: string,
    values: object = {},
    problem: (value: never, name: string) => string | undefined,
  ): [string, string | undefined][] =>
    Object.entries(values).map(([name, value]) => [
      `${field}.${name}`,
      problem(value as never, name),
    ]);
  const problems = [
    ['biller_id', kind && billerIdProblem(kind, biller_id)],
    ['batch_time_zone', batch_time_zone !== undefined && timeZoneProblem(batch_time_zone)],
    ['base_url', base_url !== undefined && baseUrlProblem(base_url, allowPrivate)],
    ['logo', logoProblem(logo)],
    ...each('biller_logos', given.biller_logos, logoProblem),
    ...each('origins', given.origins, (one: string) =>
      originProblem(one, mode === 'test' || allowPrivate),
    ),
    ...each('paths', given.paths, templateProblem),
    ['auth.header', auth?.method === 'key' && headerProblem(auth.header)],
    // Sent verbatim and compared whole (decision 15): a space would be read as a scheme word by some server on the way.
    [
      'auth.key',
      auth?.method !== 'key' || /^[\u0021-\u007e]+$/.test(auth.key)
        ? undefined
        : 'must be visible ASCII without spaces',
    ],
    ['auth.token_url', auth?.method === 'oauth' && urlProblem(auth.token_url, allowPrivate)],
    ...connectionProblems(connection ?? {}, allowPrivate),
  ] as const;
  return problems.flatMap(([name, problem]) =>
    problem ? [{ path: `body.${name}`, problem }] : [],
  );
}

function billerIdProblem(
  kind: PartnerRegistration['kind'],
  biller_id: string | undefined,
): string | undefined {
  if ((kind === 'biller') === (biller_id !== undefined)) return undefined;
  return kind === 'biller'
    ? 'is required for a biller'
    : 'is not for an aggregator: it names one with each account';
}

function timeZoneProblem(zone: string): string | undefined {
  try {
    new Intl.DateTimeFormat('en-US', { timeZone: zone }).format(0);
    return undefined;
  } catch {
    return 'must be an IANA time zone such as America/New_York';
  }
}

function baseUrlProblem(base_url: string, allowPrivate: boolean): string | undefined {
  const problem = urlProblem(base_url, allowPrivate);
  return problem ?? (base_url.includes('?') ? 'must have no query' : undefined);
}

function logoProblem(picture: string | null | undefined): string | undefined {
  const read = typeof picture === 'string' ? readLogo(picture) : undefined;
  return typeof read === 'string' ? read : undefined;
}

/** Sites of real customers are reached by https; only a test may stand on the engineer's own machine. */
function originProblem(text: string, allowLocal: boolean): string | undefined {
  const url = URL.parse(text);
  // It is written into a policy header, where `;` and `,` would begin another directive or policy.
  if (url === null || url.origin !== text || !isHostName(url.hostname)) {
    return 'must be one exact origin, such as https://www.example.com';
  }
  const isLocal =
    url.protocol === 'http:' && (url.hostname === 'localhost' || url.hostname === '127.0.0.1');
  if (url.protocol === 'https:' || (isLocal && allowLocal)) return undefined;
  return isLocal
    ? 'must begin with https:// when live'
    : 'must begin with https:// (or http://localhost)';
}

/** Fields that each template must hold, or another record would be read or written; and those that it may hold besides. */
const TEMPLATE_FIELDS: Readonly<Record<string, readonly [needs: string[], may: string[]]>> = {
  get_account: [['account_id'], ['biller_id']],
  get_balance: [['account_id'], ['biller_id']],
  put_account_payment: [['account_id', 'platform_payment_id'], ['biller_id']],
  get_account_payment: [['platform_payment_id'], ['biller_id', 'account_id']],
  get_payment: [['platform_payment_id'], []],
  get_batch_statement: [['platform_batch_id'], []],
};

function templateProblem(template: string, name: string): string | undefined {
  const [needs, may] = TEMPLATE_FIELDS[name] ?? [[], []];
  if (!/^(\/([A-Za-z0-9._~-]+|\{[a-z_]+\}))+$/.test(template)) {
    return 'must be a path of plain segments and {fields}';
  }
  const fields = pathFields(template);
  const missing = needs.find((field) => !fields.includes(field));
  if (missing !== undefined) return `must contain {${missing}}`;
  const foreign = fields.find((field) => !needs.includes(field) && !may.includes(field));
  if (foreign !== undefined) return `cannot contain {${foreign}}`;
  if (name === 'put_account_payment' && !template.endsWith('/payment/{platform_payment_id}')) {
    return 'must end with /payment/{platform_payment_id} (B4)';
  }
  return /\/\.\.?(?:\/|$)/.test(template) ? 'must have no dot segments' : undefined;
}

/** Names that steer the connection, the body or what others on the way believe: never a key's. */
const DENIED_HEADERS =
  /^(host|connection|keep-alive|upgrade|te|trailer|transfer-encoding|expect|date|cookie|forwarded|via|prefer|accept|accept-encoding|user-agent|traceparent|tracestate|x-request-id|content-.*|x-forwarded-.*|proxy-.*|sec-.*)$/i;

/** What is wrong with the name of the header that carries a key, or undefined (KY1). */
export function headerProblem(header: string): string | undefined {
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(header)) return 'must be a header name';
  return DENIED_HEADERS.test(header) ? 'is a header with a different meaning' : undefined;
}

/** What is wrong with a connection: its first fault for TLS, and that of its proxy. */
function connectionProblems(
  { certificate: cert, private_key: key, authority, proxy_url }: PartnerConnection,
  allowPrivate: boolean,
): [string, string | false | undefined][] {
  const faults: readonly (readonly [string, boolean | string | undefined, string])[] = [
    ['certificate', tlsProblem({ cert }), 'must be a certificate with its chain as PEM'],
    ['private_key', tlsProblem({ key }), 'must be an unencrypted private key as PEM'],
    ['certificate', cert === undefined && key !== undefined, 'is required with a private key'],
    ['private_key', key === undefined && cert !== undefined, 'is required with a certificate'],
    ['private_key', tlsProblem({ cert, key }), 'is not the key of the certificate'],
    // As `ca`, certificates that cannot be read are ignored without a word.
    ['authority', tlsProblem({ cert: authority }), 'must be certificates as PEM'],
  ];
  const [part = '', fault, says = ''] = faults.find((one) => one[1]) ?? [];
  return [
    [`connection.${part}`, typeof fault === 'string' ? `${says} (${fault})` : fault && says],
    ['connection.proxy_url', proxy_url && proxyProblem(proxy_url, allowPrivate)],
  ];
}

/** Why TLS cannot use these, in the words of OpenSSL, such as "no start line"; undefined when it can. */
function tlsProblem(material: SecureContextOptions): string | undefined {
  try {
    createSecureContext(material);
    return undefined;
  } catch (error) {
    return String(Reflect.get(Object(error) as object, 'reason') ?? 'unreadable');
  }
}

/** A proxy is guarded like a partner, and may be asked with a name and a password. */
function proxyProblem(text: string, allowPrivate: boolean): string | undefined {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) return 'must be an http or https URL';
  if (url.pathname !== '/' || url.search !== '') return 'must be a host and a port alone';
  try {
    decodeURIComponent(url.username + url.password);
  } catch {
    return 'must write % in its name and password as %25';
  }
  url.username = '';
  url.password = '';
  return urlProblem(url.href.replace(/^http:/, 'https:'), allowPrivate);
}
