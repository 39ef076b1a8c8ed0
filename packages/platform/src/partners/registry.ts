/**
 * The registry of partners: who they are, where they are called, with which credentials and within which budget.
 *
 * holds: secrets are sealed in the database and never part of a `Partner` or a `PartnerView`; a change reaches every process within
 *        five seconds, because a cached read is at most that old (decision 25).
 *
 * One file because reading, changing and caching a partner share the columns and the seal.
 */
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import {
  conflict,
  partnerRoutes,
  Refusal,
  type Detail,
  type Mode,
  type PartnerAuth,
  type PartnerBudget,
  type PartnerChange,
  type PartnerConnection,
  type PartnerPaths,
  type PartnerRegistration,
  type PartnerView,
} from '@duebridge/contract';
import {
  constraintOf,
  remember,
  sql,
  type Clock,
  type Database,
  type Transaction,
} from '@duebridge/runtime';
import { registrationProblems, type PartlyGiven } from './registration-problems.ts';
import { note } from '../store/audit.ts';
import { keepLogo, storedLogo } from './logo.ts';
import { openSealer, type Sealer } from './seal.ts';

/** A partner as the program uses it: every optional field filled in, no secret in it. */
export interface Partner extends Readonly<Required<Omit<PartnerView, keyof Filled>>>, Filled {}

/** What a registration may leave out. */
interface Filled {
  /** This biller's own id (decision 20); null for an aggregator. */
  readonly biller_id: string | null;
  /** For receipts; null when the partner named none. */
  readonly support_contact: string | null;
  /** Of the payment page, as #rrggbb; null when none was registered. */
  readonly colour: string | null;
  /** Name of the logo, which `logo()` reads; null when none was registered. */
  readonly logo: string | null;
  readonly paths: Readonly<Required<PartnerPaths>>;
  readonly budget: Readonly<Required<PartnerBudget>>;
  /** The public part of how it is reached; null or absent: directly, and with the public authorities. */
  readonly connection?: PartnerView['connection'] | null;
}

/** What the registry depends on. `sealKey` as `openSealer` reads it. */
export interface PartnerRegistryOptions {
  readonly database: Database;
  readonly sealKey: string;
  readonly allowPrivateAddresses: boolean;
  readonly clock: Clock;
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

/** Partners that are remembered at most, each for five seconds: a pause or a rotated secret takes effect everywhere within this time. */
const MAX_REMEMBERED = 100_000;

/** A row: a partner as it was registered, with its secrets sealed. */
interface StoredPartner extends Omit<Partner, 'paths' | 'budget'> {
  readonly paths: PartnerPaths;
  readonly budget: PartnerBudget;
  readonly auth_sealed: string;
  readonly connection_sealed: string | null;
}

/** Columns to write; those without a value get their default, or keep what they have. */
type Written = Readonly<Record<string, unknown>>;

/**
 * What customers call the biller of a payment: a biller by the name of its registration, one of an aggregator by the name given for
 * it, or by its id where none was given.
 */
export function billerName(partner: Partner, biller_id: string): string {
  if (partner.kind === 'biller') return partner.name;
  return new Map(Object.entries(partner.biller_names)).get(biller_id) ?? biller_id;
}

/** The name of the logo that customers see for the biller of a payment; null for none. */
export function billerLogo(partner: Partner, biller_id: string): string | null {
  return new Map(Object.entries(partner.biller_logos)).get(biller_id) ?? partner.logo;
}

const COLUMNS =
  'partner_id, kind, mode, biller_id, name, biller_names, biller_logos, support_contact, colour, logo, base_url, origins, paths, budget, refusals, ' +
  "jsonb_build_object('method', auth_method) || auth_public AS auth, auth_sealed, connection_public AS connection, connection_sealed, " +
  'paused, pause_reason, batch_time_zone, batch_cutoff, created_at';

const SELECT_ONE = `SELECT ${COLUMNS} FROM duebridge_platform.partners WHERE partner_id = $1`;
const getStatement = sql(SELECT_ONE);

const lockStatement = sql(`${SELECT_ONE} FOR UPDATE`);

const otherModeStatement = sql(`
   SELECT partner_id, base_url FROM duebridge_platform.partners WHERE mode <> $1 ORDER BY partner_id`);

const holdStatement = sql(`
   WITH held AS (
     UPDATE duebridge_platform.partners SET pause_reason = $2, updated_at = now()
      WHERE partner_id = $1 AND NOT paused AND pause_reason IS DISTINCT FROM $2 RETURNING partner_id
   )
   INSERT INTO duebridge_platform.audit (actor, event, partner_id, detail)
   SELECT $3, CASE WHEN $2::text IS NULL THEN 'partner_released' ELSE 'partner_held' END, partner_id,
          jsonb_build_object('reason', $2::text)
     FROM held`);

/** The registry. */
export type PartnerRegistry = ReturnType<typeof openPartnerRegistry>;

/** Opens the registry over the database. Throws ConfigurationError when the sealing key cannot be used. */
export function openPartnerRegistry(options: PartnerRegistryOptions) {
  const { database, clock } = options;
  const writing = { ...options, sealer: openSealer(options.sealKey) };
  const remembered = remember<Partner | undefined>({
    clock,
    max: MAX_REMEMBERED,
    keep: (partner) => partner !== undefined,
  });
  const get = (partner_id: string): Promise<Partner | undefined> =>
    remembered.get(partner_id, async () => {
      const [row] = await database.query<StoredPartner>(getStatement, [partner_id]);
      return row && toPartner(row);
    });
  return {
    /** Registers. Throws Refusal INVALID_REQUEST with details, or CONFLICT when the id is taken. */
    add: (registration: PartnerRegistration, actor: string): Promise<PartnerView> =>
      database.transaction((tx) => add(tx, writing, registration, actor)).then(toView, refuseTaken),
    /** Changes what is given, also within `paths` and `budget`. Throws Refusal INVALID_REQUEST with details, or NOT_FOUND. */
    async change(partner_id: string, change: PartnerChange, actor: string): Promise<PartnerView> {
      const row = await database.transaction((tx) =>
        changeRow(tx, writing, partner_id, change, actor),
      );
      remembered.forget(partner_id);
      return toView(row);
    },
    /** The partner as it was at most five seconds ago; undefined when there is none. */
    get,
    /** The same. Throws Refusal NOT_FOUND when there is none. */
    async known(partner_id: string): Promise<Partner> {
      const partner = await get(partner_id);
      if (partner === undefined) throw new Refusal('NOT_FOUND');
      return partner;
    },
    /** A logo by its name; undefined when no partner ever had it. */
    logo: (name: string) => storedLogo(database, name),
    /** All partners, by id, read now. */
    async list(): Promise<PartnerView[]> {
      const rows = await database.query<StoredPartner>(
        `SELECT ${COLUMNS} FROM duebridge_platform.partners ORDER BY partner_id`,
      );
      return rows.map(toView);
    },
    /** The secrets to call this partner with: for partner-client alone. Throws ConfigurationError when they do not open. */
    credentials: (partner: Partner) => openSecrets(writing.sealer, partner),
    /** Notes why the engine holds its calls back, or null when it no longer does; an operator's pause is left alone. */
    async hold(partner_id: string, reason: string | null, actor: string): Promise<void> {
      await database.query(holdStatement, [partner_id, reason, actor]);
      remembered.forget(partner_id);
    },
  };
}

// Writing ---------------------------------------------------------------------------------------------------------------------

type Writing = Pick<PartnerRegistryOptions, 'allowPrivateAddresses'> & { readonly sealer: Sealer };

async function add(
  tx: Transaction,
  writing: Writing,
  registration: PartnerRegistration,
  actor: string,
): Promise<StoredPartner> {
  const { partner_id, mode = 'test' } = registration;
  const nothing = { partner_id, mode, biller_logos: {} };
  const { columns, values } = await columnsOf(tx, writing, nothing, { ...registration, mode });
  const [added] = await tx.query<StoredPartner>(
    `INSERT INTO duebridge_platform.partners (${columns.join(', ')})
     VALUES (${columns.map((_, index) => `$${index + 1}`).join(', ')}) RETURNING ${COLUMNS}`,
    values,
  );
  assert(added);
  const detail = { base_url: added.base_url, mode };
  await note(tx, { actor, event: 'partner_added', partner_id, detail });
  return added;
}

/** What a change does not give stays as it is, so the row is locked before it is read. */
async function changeRow(
  tx: Transaction,
  writing: Writing,
  partner_id: string,
  change: PartnerChange,
  actor: string,
): Promise<StoredPartner> {
  const [before] = await tx.query<StoredPartner>(lockStatement, [partner_id]);
  if (before === undefined) throw new Refusal('NOT_FOUND');
  const { reason, ...given } = change;
  const { columns, values } = await columnsOf(tx, writing, before, {
    ...given,
    paths: { ...before.paths, ...given.paths },
    budget: { ...before.budget, ...given.budget },
    pause_reason: pauseReason(before, change),
  });
  const [changed] = await tx.query<StoredPartner>(
    `UPDATE duebridge_platform.partners SET ${columns.map((column, index) => `${column} = $${index + 2}`).join(', ')}, updated_at = now()
      WHERE partner_id = $1 RETURNING ${COLUMNS}`,
    [partner_id, ...values],
  );
  assert(changed);
  const fields = Object.keys(change).filter((field) => field !== 'reason');
  const detail = { fields: fields.join(' '), ...(reason === undefined ? {} : { reason }) };
  await note(tx, { actor, event: 'partner_changed', partner_id, detail });
  return changed;
}

/** The columns of what a registration or a change gives, with their values as parameters. Throws Refusal INVALID_REQUEST. */
async function columnsOf(
  tx: Transaction,
  { sealer, allowPrivateAddresses: allowPrivate }: Writing,
  before: Pick<StoredPartner, 'partner_id' | 'mode' | 'biller_logos'>,
  given: PartlyGiven & { readonly paused?: boolean; readonly pause_reason?: string | null },
): Promise<{ readonly columns: string[]; readonly values: unknown[] }> {
  const { partner_id, mode } = before;
  const { auth, connection, base_url, logo, biller_logos, ...plain } = given;
  const details = [
    ...registrationProblems(given, { mode, allowPrivate }),
    ...(base_url === undefined ? [] : await endpointProblems(tx, mode, base_url)),
  ];
  if (details.length > 0) throw new Refusal('INVALID_REQUEST', { details });
  const written: Written = {
    ...plain,
    base_url: base_url && trimmed(base_url),
    logo: logo && (await keepLogo(tx, logo)),
    biller_logos: biller_logos && (await keptLogos(tx, before.biller_logos, biller_logos)),
    ...sealedColumns(sealer, partner_id, auth, connection),
  };
  const columns = Object.entries(written).filter(([, value]) => value !== undefined);
  return {
    columns: columns.map(([column]) => column),
    // Objects are those of jsonb columns.
    values: columns.map(([, value]) =>
      typeof value === 'object' && value !== null && !Array.isArray(value)
        ? JSON.stringify(value)
        : value,
    ),
  };
}

/** Stores the pictures of billers; null takes one away, and those that are not named stay. */
async function keptLogos(
  tx: Transaction,
  before: StoredPartner['biller_logos'],
  given: NonNullable<PartnerChange['biller_logos']>,
): Promise<StoredPartner['biller_logos']> {
  const names = new Map(Object.entries(before));
  for (const [biller_id, picture] of Object.entries(given)) {
    if (picture === null) names.delete(biller_id);
    else names.set(biller_id, await keepLogo(tx, picture));
  }
  return Object.fromEntries(names);
}

function refuseTaken(error: unknown): never {
  if (constraintOf(error) !== 'partners_pkey') throw error;
  throw conflict('A partner with this id is registered already');
}

/**
 * A test must not reach the accounts of real customers, nor a customer's money an endpoint for tests. Of two registrations at the same
 * moment neither sees the other: they are the work of few people.
 */
async function endpointProblems(tx: Transaction, mode: Mode, base_url: string): Promise<Detail[]> {
  const endpoint = normalized(base_url);
  // The base_url has been found wrong already.
  if (endpoint === undefined) return [];
  const others = await tx.query<Pick<StoredPartner, 'partner_id' | 'base_url'>>(
    otherModeStatement,
    [mode],
  );
  const other = others.find((one) => normalized(one.base_url) === endpoint);
  if (other === undefined) return [];
  const problem = `is the endpoint of ${other.partner_id}, which is ${mode === 'test' ? 'live' : 'test'}: a ${mode} registration needs one of its own`;
  return [{ path: 'body.base_url', problem }];
}

function trimmed(base_url: string): string {
  return base_url.replace(/\/+$/, '');
}

/** The same for every way to write an endpoint: capitals in the host, its default port, a slash at the end. Undefined for no URL. */
function normalized(base_url: string): string | undefined {
  const url = URL.parse(base_url);
  return url === null ? undefined : trimmed(url.origin + url.pathname);
}

const PAUSED_BY_OPERATOR = 'paused by an operator';

/** Why a partner is held, without the reason that an operator gave. */
export function withoutOperatorsReason(pause_reason: string): string {
  return pause_reason.startsWith(PAUSED_BY_OPERATOR) ? PAUSED_BY_OPERATOR : pause_reason;
}

/** A pause sets the operator's reason; resuming clears any reason; new credentials clear the errors of the old ones. */
function pauseReason(before: StoredPartner, change: PartnerChange): string | null {
  if (change.paused === true) {
    return change.reason === undefined
      ? PAUSED_BY_OPERATOR
      : `${PAUSED_BY_OPERATOR}: ${change.reason}`;
  }
  if (change.paused === false || change.auth !== undefined || change.base_url !== undefined) {
    return before.paused && change.paused !== false ? before.pause_reason : null;
  }
  return before.pause_reason;
}

// Secrets ---------------------------------------------------------------------------------------------------------------------

/** What is sealed of a partner. Kept outside the objects, so that printing or serialising a Partner cannot reveal a secret (PL15). */
const sealedOf = new WeakMap<Partner, Pick<StoredPartner, 'auth_sealed' | 'connection_sealed'>>();

const placeOf = (partner_id: string, what: 'auth' | 'connection'): string =>
  `partners/${partner_id}/${what}`;

/** The columns of credentials and of a connection, where they are given. */
function sealedColumns(
  sealer: Sealer,
  partner_id: string,
  auth: PartnerAuth | undefined,
  connection: PartnerConnection | null | undefined,
): Written {
  const written: Record<string, unknown> = {};
  if (auth !== undefined) {
    const { method, key, client_secret, ...open } = { key: '', client_secret: '', ...auth };
    written['auth_method'] = method;
    written['auth_public'] = open;
    written['auth_sealed'] = sealer.seal(key || client_secret, placeOf(partner_id, 'auth'));
  }
  if (connection !== undefined) {
    const via = connection && Object.keys(connection).length > 0 ? connection : null;
    written['connection_public'] = via && publicConnection(via);
    written['connection_sealed'] =
      via && sealer.seal(JSON.stringify(via), placeOf(partner_id, 'connection'));
  }
  return written;
}

/** What calls to a partner carry and how they reach it. */
function openSecrets(sealer: Sealer, partner: Partner) {
  const sealed = sealedOf.get(partner);
  assert(sealed, 'credentials are asked of a partner that the registry did not give');
  const { partner_id, auth } = partner;
  const { auth_sealed, connection_sealed } = sealed;
  const secret = sealer.open(auth_sealed, placeOf(partner_id, 'auth'));
  const connection =
    connection_sealed && sealer.open(connection_sealed, placeOf(partner_id, 'connection'));
  return {
    auth: { ...auth, [auth.method === 'key' ? 'key' : 'client_secret']: secret } as PartnerAuth,
    connection: JSON.parse(connection ?? '{}') as PartnerConnection,
  };
}

/** What operators see of a connection. */
function publicConnection({
  certificate,
  authority,
  proxy_url,
}: PartnerConnection): NonNullable<PartnerView['connection']> {
  return {
    ...(certificate === undefined
      ? {}
      : { certificate_expires_at: new X509Certificate(certificate).validToDate.toISOString() }),
    private_authority: authority !== undefined,
    ...(proxy_url === undefined ? {} : { proxy: new URL(proxy_url).host }),
  };
}

// Reading ---------------------------------------------------------------------------------------------------------------------

function toPartner({ auth_sealed, connection_sealed, ...row }: StoredPartner): Partner {
  const partner = {
    ...row,
    paths: { ...DEFAULT_PATHS, ...row.paths },
    budget: { ...DEFAULT_BUDGET, ...row.budget },
  };
  sealedOf.set(partner, { auth_sealed, connection_sealed });
  return partner;
}

/** As it was registered, without defaults; what was not registered is absent. */
function toView(row: StoredPartner): PartnerView {
  const { paths, budget, pause_reason } = row;
  const given = Object.entries({ ...toPartner(row), paths, budget }).filter(
    ([field, value]) =>
      value !== null &&
      !(/^biller_(names|logos)$/.test(field) && Object.keys(Object(value) as object).length === 0),
  );
  return { ...Object.fromEntries(given), pause_reason } as PartnerView;
}
