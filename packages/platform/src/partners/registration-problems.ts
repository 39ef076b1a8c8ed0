/**
 * What is wrong with a registration or a change of one, beside its schema: addresses that must not be called, templates that would read
 * another record, headers and certificates that cannot work. Pure.
 */
import {
  fillPath,
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
  const problems = changeProblems(registration, allowPrivate);
  if (registration.kind === 'biller' && registration.biller_id === undefined) {
    problems.push({ path: 'body.biller_id', problem: 'is required for a biller' });
  }
  if (registration.kind === 'aggregator' && registration.biller_id !== undefined) {
    problems.push({
      path: 'body.biller_id',
      problem: 'is not for an aggregator: it names one with each account',
    });
  }
  const zone = registration.batch_time_zone;
  if (zone !== undefined && !isTimeZone(zone)) {
    problems.push({
      path: 'body.batch_time_zone',
      problem: 'must be an IANA time zone such as America/New_York',
    });
  }
  return problems;
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
  },
  allowPrivate: boolean,
): Detail[] {
  const problems: Detail[] = [];
  const add = (path: string, problem: string | undefined): void => {
    if (problem !== undefined) problems.push({ path, problem });
  };
  if (change.base_url !== undefined) {
    add(
      'body.base_url',
      urlProblem(change.base_url, allowPrivate) ?? queryProblem(change.base_url),
    );
  }
  if (typeof change.logo === 'string') {
    const logo = readLogo(change.logo);
    add('body.logo', typeof logo === 'string' ? logo : undefined);
  }
  for (const [index, origin] of (change.origins ?? []).entries()) {
    add(`body.origins.${index}`, originProblem(origin));
  }
  for (const [name, template] of Object.entries(change.paths ?? {})) {
    add(`body.paths.${name}`, templateProblem(name, template));
  }
  if (change.auth?.method === 'key') {
    add('body.auth.header', headerProblem(change.auth.header));
    // Sent verbatim and compared whole (decision 15): a space would be read as a scheme word by some server on the way.
    add(
      'body.auth.key',
      /^[\u0021-\u007e]+$/.test(change.auth.key)
        ? undefined
        : 'must be visible ASCII without spaces',
    );
  }
  problems.push(...connectionProblems(change.connection ?? {}, allowPrivate));
  if (change.auth?.method === 'oauth') {
    add('body.auth.token_url', urlProblem(change.auth.token_url, allowPrivate));
  }
  return problems;
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

function queryProblem(base_url: string): string | undefined {
  return base_url.includes('?') ? 'must have no query' : undefined;
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

/** Fields that each template must hold, or another record would be read or written; it may hold no others. */
const TEMPLATE_FIELDS: Readonly<
  Record<string, { readonly needs: string[]; readonly may: string[] }>
> = {
  get_account: { needs: ['account_id'], may: ['biller_id'] },
  get_balance: { needs: ['account_id'], may: ['biller_id'] },
  put_account_payment: { needs: ['account_id', 'platform_payment_id'], may: ['biller_id'] },
  get_account_payment: { needs: ['platform_payment_id'], may: ['biller_id', 'account_id'] },
  get_payment: { needs: ['platform_payment_id'], may: [] },
  get_batch_statement: { needs: ['platform_batch_id'], may: [] },
};

function templateProblem(name: string, template: string): string | undefined {
  const rules = TEMPLATE_FIELDS[name];
  if (rules === undefined) return undefined;
  if (!/^(\/([A-Za-z0-9._~-]+|\{[a-z_]+\}))+$/.test(template)) {
    return 'must be a path of plain segments and {fields}';
  }
  const fields = pathFields(template);
  const missing = rules.needs.find((field) => !fields.includes(field));
  if (missing !== undefined) return `must contain {${missing}}`;
  const foreign = fields.find(
    (field) => !rules.needs.includes(field) && !rules.may.includes(field),
  );
  if (foreign !== undefined) return `cannot contain {${foreign}}`;
  if (name === 'put_account_payment' && !template.endsWith('/payment/{platform_payment_id}')) {
    return 'must end with /payment/{platform_payment_id} (B4)';
  }
  try {
    fillPath(template, Object.fromEntries(fields.map((field) => [field, 'x'])));
    return template.split('/').some((segment) => segment === '.' || segment === '..')
      ? 'must have no dot segments'
      : undefined;
  } catch {
    return 'cannot be filled';
  }
}

/** Names that steer the connection, the body or what others on the way believe: never a key's. */
const DENIED_HEADERS =
  /^(host|connection|keep-alive|upgrade|te|trailer|transfer-encoding|expect|date|cookie|forwarded|via|prefer|accept|accept-encoding|user-agent|traceparent|tracestate|x-request-id|content-.*|x-forwarded-.*|proxy-.*|sec-.*)$/i;

/** What is wrong with the name of the header that carries a key, or undefined (KY1). */
export function headerProblem(header: string): string | undefined {
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(header)) return 'must be a header name';
  return DENIED_HEADERS.test(header) ? 'is a header with a different meaning' : undefined;
}

function connectionProblems(connection: PartnerConnection, allowPrivate: boolean): Detail[] {
  const { certificate, private_key, authority, proxy_url } = connection;
  const problems: Detail[] = [];
  const add = (field: string, problem: string): void => {
    problems.push({ path: `body.connection.${field}`, problem });
  };
  const wrongCertificate = tlsProblem({ cert: certificate });
  if (wrongCertificate !== undefined)
    add('certificate', `must be a certificate with its chain as PEM (${wrongCertificate})`);
  const wrongKey = tlsProblem({ key: private_key });
  if (wrongKey !== undefined)
    add('private_key', `must be an unencrypted private key as PEM (${wrongKey})`);
  if (certificate !== undefined && private_key === undefined)
    add('private_key', 'is required with a certificate');
  if (private_key !== undefined && certificate === undefined)
    add('certificate', 'is required with a private key');
  if (problems.length === 0 && tlsProblem({ cert: certificate, key: private_key }) !== undefined) {
    add('private_key', 'is not the key of the certificate');
  }
  // As `ca`, certificates that cannot be read are ignored without a word.
  const wrongAuthority = tlsProblem({ cert: authority });
  if (wrongAuthority !== undefined)
    add('authority', `must be certificates as PEM (${wrongAuthority})`);
  const proxy = proxy_url === undefined ? undefined : proxyProblem(proxy_url, allowPrivate);
  if (proxy !== undefined) add('proxy_url', proxy);
  return problems;
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
