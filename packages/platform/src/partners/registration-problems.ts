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
import { createSecureContext } from 'node:tls';
import { isHostName, urlProblem } from './address-guard.ts';
import { readLogo } from './logo.ts';

/** Fields of a registration, of which any may be absent. */
export type PartlyGiven<Key extends keyof PartnerRegistration> = {
  readonly [Field in Key]?: PartnerRegistration[Field] | undefined;
};

/** A registration as a whole. */
export function registrationProblems(
  registration: PartnerRegistration,
  allowPrivate: boolean,
): Detail[] {
  const { kind, biller_id, batch_time_zone: zone } = registration;
  const isBiller = kind === 'biller';
  return [
    ...changeProblems(registration, allowPrivate),
    ...problemsOf({
      biller_id:
        isBiller === (biller_id !== undefined)
          ? undefined
          : isBiller
            ? 'is required for a biller'
            : 'is not for an aggregator: it names one with each account',
      batch_time_zone:
        zone === undefined || isTimeZone(zone)
          ? undefined
          : 'must be an IANA time zone such as America/New_York',
    }),
  ];
}

/** The fields with a problem, by their paths in the body. */
function problemsOf(fields: Readonly<Record<string, string | undefined>>): Detail[] {
  return Object.entries(fields).flatMap(([name, problem]) =>
    problem === undefined ? [] : [{ path: `body.${name}`, problem }],
  );
}

function isTimeZone(zone: string): boolean {
  try {
    return new Intl.DateTimeFormat('en-US', { timeZone: zone }).format(0) !== '';
  } catch {
    return false;
  }
}

/** What a change gives; its connection as it will be, because parts that stay must fit those that change. */
export function changeProblems(
  change: PartlyGiven<'base_url' | 'origins' | 'paths' | 'auth' | 'connection'> & {
    readonly logo?: string | null | undefined;
    readonly biller_logos?: Readonly<Record<string, string | null>> | undefined;
  },
  allowPrivate: boolean,
): Detail[] {
  const {
    base_url,
    logo,
    biller_logos = {},
    origins = [],
    paths = {},
    auth,
    connection = {},
  } = change;
  return problemsOf({
    base_url:
      base_url === undefined
        ? undefined
        : (urlProblem(base_url, allowPrivate) ??
          (base_url.includes('?') ? 'must have no query' : undefined)),
    logo: logoProblem(logo),
    ...Object.fromEntries(
      Object.entries(biller_logos).map(([id, one]) => [`biller_logos.${id}`, logoProblem(one)]),
    ),
    ...Object.fromEntries(origins.map((one, at) => [`origins.${at}`, originProblem(one)])),
    ...Object.fromEntries(
      Object.entries(paths).map(([name, one]) => [`paths.${name}`, templateProblem(name, one)]),
    ),
    ...(auth?.method === 'key' && {
      'auth.header': headerProblem(auth.header),
      // Sent verbatim and compared whole (decision 15): a space would be read as a scheme word by some server on the way.
      'auth.key': /^[\u0021-\u007e]+$/.test(auth.key)
        ? undefined
        : 'must be visible ASCII without spaces',
    }),
    ...connectionProblems(connection, allowPrivate),
    ...(auth?.method === 'oauth' && {
      'auth.token_url': urlProblem(auth.token_url, allowPrivate),
    }),
  });
}

function logoProblem(picture: string | null | undefined): string | undefined {
  const read = typeof picture === 'string' ? readLogo(picture) : undefined;
  return typeof read === 'string' ? read : undefined;
}

/** Sites of real customers are reached by https; only a test may stand on the engineer's own machine. */
export function modeProblems(
  mode: Mode,
  origins: readonly string[],
  allowPrivate: boolean,
): Detail[] {
  if (mode === 'test' || allowPrivate) return [];
  return origins.flatMap((origin, index) =>
    origin.startsWith('http:')
      ? [{ path: `body.origins.${index}`, problem: 'must begin with https:// when live' }]
      : [],
  );
}

function originProblem(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  // It is written into a policy header, where `;` and `,` would begin another directive or policy.
  if (url === undefined || url.origin !== text || !isHostName(url.hostname)) {
    return 'must be one exact origin, such as https://www.example.com';
  }
  const local =
    url.protocol === 'http:' && (url.hostname === 'localhost' || url.hostname === '127.0.0.1');
  return url.protocol === 'https:' || local
    ? undefined
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

function templateProblem(name: string, template: string): string | undefined {
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

/** What is wrong with each part of a connection. */
function connectionProblems(
  { certificate, private_key, authority, proxy_url }: PartnerConnection,
  allowPrivate: boolean,
): Record<string, string | undefined> {
  const said = (what: string, problem: string | undefined): string | undefined =>
    problem === undefined ? undefined : `must be ${what} as PEM (${problem})`;
  const ofCertificate =
    said('a certificate with its chain', tlsProblem({ cert: certificate })) ??
    (certificate === undefined && private_key !== undefined
      ? 'is required with a private key'
      : undefined);
  const ofKey =
    said('an unencrypted private key', tlsProblem({ key: private_key })) ??
    (private_key === undefined && certificate !== undefined
      ? 'is required with a certificate'
      : undefined);
  const isEachRight = ofCertificate === undefined && ofKey === undefined;
  const pair = isEachRight ? tlsProblem({ cert: certificate, key: private_key }) : undefined;
  return {
    'connection.certificate': ofCertificate,
    'connection.private_key': ofKey ?? (pair && 'is not the key of the certificate'),
    // As `ca`, certificates that cannot be read are ignored without a word.
    'connection.authority': said('certificates', tlsProblem({ cert: authority })),
    'connection.proxy_url':
      proxy_url === undefined ? undefined : proxyProblem(proxy_url, allowPrivate),
  };
}

/** Why TLS cannot use these, in the words of OpenSSL, such as "no start line"; undefined when it can. */
function tlsProblem(material: {
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}): string | undefined {
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
