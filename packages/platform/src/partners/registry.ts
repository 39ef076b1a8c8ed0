/**
 * The registry of partners: who they are, where they are called, with which credentials and within which budget.
 *
 * holds: secrets are sealed in the database and never part of a `Partner` or a `PartnerView`; a change reaches every process within
 *        five seconds, because a cached read is at most that old (decision 25).
 *
 * One file because reading, changing and caching a partner share the columns and the seal.
 */
import {
  fillPath,
  partnerRoutes,
  pathFields,
  Refusal,
  type Detail,
  type Mode,
  type PartnerAuth,
  type PartnerBudget,
  type PartnerChange,
  type PartnerPaths,
  type PartnerRegistration,
  type PartnerView,
} from '@duebridge/contract';
import {
  constraintOf,
  sql,
  type Clock,
  type Database,
  type Log,
  type Transaction,
} from '@duebridge/runtime';
import { isHostName, urlProblem } from './address-guard.ts';
import { openSealer } from './seal.ts';

/** A partner as the program uses it: every optional field filled in, no secret in it. */
export interface Partner {
  readonly partner_id: string;
  readonly name: string;
  readonly kind: 'biller' | 'aggregator';
  /** For good: everything that hangs on this registration is test, or live (decision 160). */
  readonly mode: Mode;
  /** The biller a plain biller is (decision 20); null for an aggregator. */
  readonly biller_id: string | null;
  /** What customers call an aggregator's billers, by biller_id. */
  readonly biller_names: Readonly<Record<string, string>>;
  /** For receipts; null when the partner named none. */
  readonly support_contact: string | null;
  /** Without a slash at the end. */
  readonly base_url: string;
  /** Sites that may show the flow; exact origins. */
  readonly origins: readonly string[];
  readonly paths: Readonly<Required<PartnerPaths>>;
  readonly budget: Readonly<Required<PartnerBudget>>;
  /** Codes of 400 and 422 answers that refuse a payment for good (decision 21). */
  readonly refusals: readonly string[];
  readonly account_check: 'when_reachable' | 'required' | 'off';
  readonly batch_time_zone: string;
  readonly batch_cutoff: string;
  /** The public part of the credentials. */
  readonly auth: PartnerView['auth'];
  /** True: an operator wants nothing sent. */
  readonly paused: boolean;
  /** Why calls are held back, by an operator's word or by the engine's; null when all is well. */
  readonly pause_reason: string | null;
  readonly created_at: string;
}

/** The registry. */
export interface PartnerRegistry {
  /** Registers. Throws Refusal INVALID_REQUEST with details, or CONFLICT when the id is taken. */
  add(registration: PartnerRegistration, actor: string): Promise<PartnerView>;
  /** Changes what is given. Throws Refusal INVALID_REQUEST with details, or NOT_FOUND. */
  change(partner_id: string, change: PartnerChange, actor: string): Promise<PartnerView>;
  /** The partner as it was at most five seconds ago; undefined when there is none. */
  get(partner_id: string): Promise<Partner | undefined>;
  /** All partners, by id, read now. */
  list(): Promise<PartnerView[]>;
  /** The credentials to call this partner with: for partner-client alone. Throws ConfigurationError when they do not open. */
  credentials(partner: Partner): PartnerAuth;
  /** Notes why the engine holds its calls back, or null when it no longer does; an operator's pause is left alone. */
  hold(partner_id: string, reason: string | null, actor: string): Promise<void>;
  /** Seals every secret anew with the first sealing key; returns how many were. */
  reseal(): Promise<number>;
}

/** What the registry depends on. `sealKey` as `openSealer` reads it. */
export interface PartnerRegistryOptions {
  readonly database: Database;
  readonly sealKey: string;
  readonly allowPrivateAddresses: boolean;
  readonly clock: Clock;
  readonly log: Log;
}

/** The paths of decision 1, for a partner that overrides none. */
const DEFAULT_PATHS: Readonly<Required<PartnerPaths>> = {
  get_account: partnerRoutes.get_account.path,
  get_balance: partnerRoutes.get_balance.path,
  put_account_payment: partnerRoutes.put_account_payment.path,
  get_account_payment: partnerRoutes.get_account_payment.path,
  get_payment: partnerRoutes.get_payment.path,
  get_batch_statement: partnerRoutes.get_batch_statement.path,
};

/** The budget of a partner that declares none (decision 25): what a small server bears, and 100 payments/s need. */
const DEFAULT_BUDGET: Readonly<Required<PartnerBudget>> = {
  max_concurrent_calls: 64,
  max_calls_per_second: 1000,
  // A partner that answers at all answers within seconds; repeating is harmless (RU5), waiting longer holds a slot.
  call_timeout_ms: 15_000,
  // Below the idle limits of common proxies (30 and 60 s).
  wait_seconds: 20,
};

/** Oldest a read may be, in milliseconds: a pause or a rotated secret takes effect everywhere within this time. */
const CACHE_MS = 5_000;

interface StoredPartner {
  readonly partner_id: string;
  readonly name: string;
  readonly kind: 'biller' | 'aggregator';
  readonly mode: Mode;
  readonly biller_id: string | null;
  readonly biller_names: Readonly<Record<string, string>>;
  /** For receipts; null when the partner named none. */
  readonly support_contact: string | null;
  readonly base_url: string;
  readonly origins: string[];
  readonly paths: PartnerPaths;
  readonly budget: PartnerBudget;
  readonly refusals: string[];
  readonly account_check: Partner['account_check'];
  readonly batch_time_zone: string;
  readonly batch_cutoff: string;
  readonly auth_method: 'oauth' | 'key';
  readonly auth_public: Omit<PartnerView['auth'], 'method'>;
  readonly auth_sealed: string;
  readonly paused: boolean;
  readonly pause_reason: string | null;
  readonly created_at: string;
}

/**
 * What customers call the biller of a payment: a biller by the name of its registration, one of an aggregator by the name given for
 * it, or by its id where none was given.
 */
export function billerName(partner: Partner, biller_id: string): string {
  if (partner.kind === 'biller') return partner.name;
  return new Map(Object.entries(partner.biller_names)).get(biller_id) ?? biller_id;
}

const COLUMNS = `partner_id, name, kind, mode, biller_id, biller_names, support_contact, base_url, origins, paths, budget, refusals, account_check,
  batch_time_zone, batch_cutoff, auth_method, auth_public, auth_sealed, paused, pause_reason, created_at`;

const getStatement = sql(
  'partner_get',
  `SELECT ${COLUMNS} FROM duebridge_platform.partners WHERE partner_id = $1`,
);

const addStatement = sql(
  'partner_add',
  `WITH added AS (
     INSERT INTO duebridge_platform.partners (partner_id, name, kind, biller_id, base_url, origins, paths, budget, account_check,
                           batch_time_zone, batch_cutoff, auth_method, auth_public, auth_sealed, biller_names, refusals, support_contact, mode)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $16, $17, $18, $19) RETURNING ${COLUMNS}
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, partner_id, detail)
     SELECT $15, 'partner_added', partner_id, jsonb_build_object('base_url', base_url, 'mode', mode) FROM added
   )
   SELECT * FROM added`,
);

const changeStatement = sql(
  'partner_change',
  `WITH changed AS (
     UPDATE duebridge_platform.partners
        SET name = $2, base_url = $3, origins = $4, paths = $5, budget = $6, account_check = $7, auth_method = $8,
            auth_public = $9, auth_sealed = $10, paused = $11, pause_reason = $12, biller_names = $15, refusals = $16, support_contact = $18,
            updated_at = now()
      WHERE partner_id = $1 RETURNING ${COLUMNS}
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, partner_id, detail)
     SELECT $13, 'partner_changed', partner_id, jsonb_strip_nulls(jsonb_build_object('fields', $14::text, 'reason', $17::text)) FROM changed
   )
   SELECT * FROM changed`,
);

const lockEndpointStatement = sql(
  'partner_lock_endpoint',
  "SELECT pg_advisory_xact_lock(hashtextextended('duebridge_platform endpoint ' || $1, 0))",
);

const otherModeStatement = sql(
  'partner_other_mode',
  'SELECT partner_id, base_url FROM duebridge_platform.partners WHERE mode <> $1 ORDER BY partner_id',
);

const holdStatement = sql(
  'partner_hold',
  `WITH held AS (
     UPDATE duebridge_platform.partners SET pause_reason = $2, updated_at = now()
      WHERE partner_id = $1 AND NOT paused AND pause_reason IS DISTINCT FROM $2 RETURNING partner_id
   )
   INSERT INTO duebridge_platform.audit (actor, event, partner_id, detail)
   SELECT $3, CASE WHEN $2::text IS NULL THEN 'partner_released' ELSE 'partner_held' END, partner_id,
          jsonb_build_object('reason', $2::text)
     FROM held`,
);

/** Opens the registry over the database. Throws ConfigurationError when the sealing key cannot be used. */
export function openPartnerRegistry(options: PartnerRegistryOptions): PartnerRegistry {
  const { database, allowPrivateAddresses, clock } = options;
  const sealer = openSealer(options.sealKey);
  const cache = new Map<
    string,
    { readonly at: number; readonly found: Promise<Partner | undefined> }
  >();
  // Keep secrets outside the objects, so that printing or serialising a Partner cannot reveal one (PL15).
  const sealedOf = new WeakMap<Partner, string>();

  const place = (partner_id: string): string => `partners/${partner_id}/auth`;

  const toPartner = (row: StoredPartner): Partner => {
    const partner: Partner = {
      partner_id: row.partner_id,
      name: row.name,
      kind: row.kind,
      mode: row.mode,
      biller_id: row.biller_id,
      biller_names: row.biller_names,
      support_contact: row.support_contact,
      base_url: row.base_url,
      origins: row.origins,
      paths: { ...DEFAULT_PATHS, ...row.paths },
      budget: { ...DEFAULT_BUDGET, ...row.budget },
      refusals: row.refusals,
      account_check: row.account_check,
      batch_time_zone: row.batch_time_zone,
      batch_cutoff: row.batch_cutoff,
      auth: { method: row.auth_method, ...row.auth_public },
      paused: row.paused,
      pause_reason: row.pause_reason,
      created_at: row.created_at,
    };
    sealedOf.set(partner, row.auth_sealed);
    return partner;
  };

  const read = async (partner_id: string): Promise<StoredPartner | undefined> => {
    const [row] = await database.query<StoredPartner>(getStatement, [partner_id]);
    return row;
  };

  const get = (partner_id: string): Promise<Partner | undefined> => {
    const at = clock.monotonic();
    const cached = cache.get(partner_id);
    if (cached !== undefined && at - cached.at < CACHE_MS) return cached.found;
    const found = read(partner_id).then((row) => (row === undefined ? undefined : toPartner(row)));
    const entry = { at, found };
    cache.set(partner_id, entry);
    // Cache neither failures nor absences: a failure would outlive its cause, and strangers could fill the map with absences.
    const forget = (): void => {
      if (cache.get(partner_id) === entry) cache.delete(partner_id);
    };
    found.then((partner) => partner ?? forget(), forget);
    return found;
  };

  /**
   * A test must not reach the accounts of real customers, nor a customer's money an endpoint for tests. Locks the endpoint until the
   * transaction ends: of two simultaneous registrations, the later one sees the earlier.
   */
  const endpointProblems = async (
    tx: Transaction,
    mode: Mode,
    base_url: string,
  ): Promise<Detail[]> => {
    const endpoint = normalized(base_url);
    // The base_url has been found wrong already.
    if (endpoint === undefined) return [];
    await tx.query(lockEndpointStatement, [endpoint]);
    const others = await tx.query<Pick<StoredPartner, 'partner_id' | 'base_url'>>(
      otherModeStatement,
      [mode],
    );
    const other = others.find((one) => normalized(one.base_url) === endpoint);
    if (other === undefined) return [];
    const { partner_id } = other;
    const problem = `is the endpoint of ${partner_id}, which is ${mode === 'test' ? 'live' : 'test'}: a ${mode} registration needs one of its own`;
    return [{ path: 'body.base_url', problem }];
  };

  return {
    async add(registration, actor) {
      const mode = registration.mode ?? 'test';
      const problems = [
        ...registrationProblems(registration, allowPrivateAddresses),
        ...modeProblems(mode, registration.origins, allowPrivateAddresses),
      ];
      const auth = splitAuth(registration.auth);
      const add = async (tx: Transaction): Promise<StoredPartner | undefined> => {
        refuse([...problems, ...(await endpointProblems(tx, mode, registration.base_url))]);
        const [row] = await tx.query<StoredPartner>(addStatement, [
          registration.partner_id,
          registration.name,
          registration.kind,
          registration.biller_id ?? null,
          trimmed(registration.base_url),
          registration.origins,
          JSON.stringify(registration.paths ?? {}),
          JSON.stringify(registration.budget ?? {}),
          registration.account_check ?? 'when_reachable',
          registration.batch_time_zone ?? 'UTC',
          registration.batch_cutoff ?? '00:00',
          registration.auth.method,
          JSON.stringify(auth.open),
          sealer.seal(auth.secret, place(registration.partner_id)),
          actor,
          JSON.stringify(registration.biller_names ?? {}),
          registration.refusals ?? [],
          registration.support_contact ?? null,
          mode,
        ]);
        return row;
      };
      try {
        const row = await database.transaction(add);
        if (row === undefined) throw new Error('an insert gave no row');
        return toView(row);
      } catch (error) {
        if (constraintOf(error) !== 'partners_pkey') throw error;
        throw new Refusal('CONFLICT', { message: 'A partner with this id is registered already' });
      }
    },

    async change(partner_id, change, actor) {
      const before = await read(partner_id);
      if (before === undefined) throw new Refusal('NOT_FOUND');
      const problems = [
        ...changeProblems(change, allowPrivateAddresses),
        ...modeProblems(before.mode, change.origins ?? [], allowPrivateAddresses),
      ];
      const auth = change.auth === undefined ? undefined : splitAuth(change.auth);
      const paused = change.paused ?? before.paused;
      const row = await database.transaction(async (tx) => {
        refuse([
          ...problems,
          ...(change.base_url === undefined
            ? []
            : await endpointProblems(tx, before.mode, change.base_url)),
        ]);
        const [changed] = await tx.query<StoredPartner>(changeStatement, [
          partner_id,
          change.name ?? before.name,
          trimmed(change.base_url ?? before.base_url),
          change.origins ?? before.origins,
          JSON.stringify(change.paths ?? before.paths),
          JSON.stringify(change.budget ?? before.budget),
          change.account_check ?? before.account_check,
          change.auth?.method ?? before.auth_method,
          JSON.stringify(auth?.open ?? before.auth_public),
          auth === undefined ? before.auth_sealed : sealer.seal(auth.secret, place(partner_id)),
          paused,
          pauseReason(before, change),
          actor,
          Object.keys(change)
            .filter((field) => field !== 'reason')
            .join(' '),
          JSON.stringify(change.biller_names ?? before.biller_names),
          change.refusals ?? before.refusals,
          change.reason ?? null,
          change.support_contact ?? before.support_contact,
        ]);
        return changed;
      });
      cache.delete(partner_id);
      if (row === undefined) throw new Refusal('NOT_FOUND');
      return toView(row);
    },

    get,

    async list() {
      const rows = await database.query<StoredPartner>(
        `SELECT ${COLUMNS} FROM duebridge_platform.partners ORDER BY partner_id`,
      );
      return rows.map(toView);
    },

    credentials(partner) {
      const sealed = sealedOf.get(partner);
      if (sealed === undefined)
        throw new Error('credentials are asked of a partner the registry did not give');
      const secret = sealer.open(sealed, place(partner.partner_id));
      const { method, token_url = '', client_id = '', scope, header = '' } = partner.auth;
      return method === 'key'
        ? { method, header, key: secret }
        : {
            method,
            token_url,
            client_id,
            client_secret: secret,
            ...(scope === undefined ? {} : { scope }),
          };
    },

    async hold(partner_id, reason, actor) {
      await database.query(holdStatement, [partner_id, reason, actor]);
      cache.delete(partner_id);
    },

    async reseal() {
      const rows = await database.query<{ partner_id: string; auth_sealed: string }>(
        'SELECT partner_id, auth_sealed FROM duebridge_platform.partners',
      );
      let resealed = 0;
      for (const { partner_id, auth_sealed } of rows) {
        const anew = sealer.seal(sealer.open(auth_sealed, place(partner_id)), place(partner_id));
        // Guarded by the old value: credentials changed meanwhile are already under the new key.
        const done = await database.query(
          'UPDATE duebridge_platform.partners SET auth_sealed = $3 WHERE partner_id = $1 AND auth_sealed = $2 RETURNING partner_id',
          [partner_id, auth_sealed, anew],
        );
        resealed += done.length;
      }
      cache.clear();
      return resealed;
    },
  };
}

function toView(row: StoredPartner): PartnerView {
  return {
    partner_id: row.partner_id,
    name: row.name,
    kind: row.kind,
    mode: row.mode,
    ...(row.biller_id === null ? {} : { biller_id: row.biller_id }),
    ...(row.support_contact === null ? {} : { support_contact: row.support_contact }),
    ...(Object.keys(row.biller_names).length === 0 ? {} : { biller_names: row.biller_names }),
    base_url: row.base_url,
    origins: row.origins,
    paths: row.paths,
    budget: row.budget,
    refusals: row.refusals,
    account_check: row.account_check,
    batch_time_zone: row.batch_time_zone,
    batch_cutoff: row.batch_cutoff,
    auth: { method: row.auth_method, ...row.auth_public },
    paused: row.paused,
    pause_reason: row.pause_reason,
    created_at: row.created_at,
  };
}

function refuse(problems: readonly Detail[]): void {
  if (problems.length > 0) throw new Refusal('INVALID_REQUEST', { details: problems });
}

function trimmed(base_url: string): string {
  return base_url.replace(/\/+$/, '');
}

/** The same for every way to write an endpoint: capitals in the host, its default port, a slash at the end. Undefined for no URL. */
function normalized(base_url: string): string | undefined {
  const url = URL.parse(base_url);
  return url === null ? undefined : trimmed(url.origin + url.pathname);
}

/** A pause sets the operator's reason; resuming clears any reason; new credentials clear the errors of the old ones. */
function pauseReason(before: StoredPartner, change: PartnerChange): string | null {
  if (change.paused === true) {
    return change.reason === undefined
      ? 'paused by an operator'
      : `paused by an operator: ${change.reason}`;
  }
  if (change.paused === false || change.auth !== undefined || change.base_url !== undefined) {
    return before.paused && change.paused !== false ? before.pause_reason : null;
  }
  return before.pause_reason;
}

function splitAuth(auth: PartnerAuth): {
  open: Omit<PartnerView['auth'], 'method'>;
  secret: string;
} {
  if (auth.method === 'key') return { open: { header: auth.header }, secret: auth.key };
  const { token_url, client_id, client_secret, scope } = auth;
  return {
    open: { token_url, client_id, ...(scope === undefined ? {} : { scope }) },
    secret: client_secret,
  };
}

function registrationProblems(registration: PartnerRegistration, allowPrivate: boolean): Detail[] {
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

function changeProblems(
  change: Pick<PartnerChange, 'base_url' | 'origins' | 'paths' | 'auth'>,
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
  if (change.auth?.method === 'oauth') {
    add('body.auth.token_url', urlProblem(change.auth.token_url, allowPrivate));
  }
  return problems;
}

/** Sites of real customers are reached by https; only a test may stand on the engineer's own machine. */
function modeProblems(mode: Mode, origins: readonly string[], allowPrivate: boolean): Detail[] {
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
