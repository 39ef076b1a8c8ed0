/**
 * Every operation of both sides in one table. Servers mount it, clients use it for their calls, the API documents are generated
 * from it, and the conformance checks read it. Each operation is described only here.
 */
import { Type, type Static, type TObject, type TProperties, type TSchema } from 'typebox';
import { AccountRecord } from './account.ts';
import { Balance, TokenReply, TokenRequest } from './customer.ts';
import type { ErrorCode } from './errors.ts';
import { AccountId, BillerId, PlatformBatchId, PlatformPaymentId } from './fields.ts';
import {
  FlowPayment,
  FlowPaymentRequest,
  FlowReturn,
  FlowSavedMethods,
  FlowSavedMethodsRequest,
  FlowReturnRequest,
  FlowSession,
  FlowSessionGrant,
  FlowSessionRequest,
} from './flow.ts';
import type { OperatorRole } from './operate.ts';
import { AccessTokenReply, AccessTokenRequest, type Scope } from './oauth.ts';
import { BatchStatement, PaymentInstruction, PaymentRecord } from './payment.ts';

/** How a caller of the operation authenticates. */
export type RouteAuth =
  | 'none'
  | 'client_key' // X-Client-Id and X-Api-Key (AU1)
  | 'partner' // OAuth bearer with `scope`, or the static key (S3)
  | 'token' // Bearer: the start token of the flow
  | 'session' // Bearer: the flow session
  | 'admin' // Bearer: the admin key
  | 'signature'; // Duebridge-Signature over method, path and body (decision 70)

/** One operation. Its path contains `{name}` for each field of `params`, as one whole segment. */
export interface Route {
  readonly id: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly summary: string;
  /** Clause ids and decisions it comes from. */
  readonly source: string;
  readonly auth: RouteAuth;
  readonly scope?: Scope;
  /** The minimum role that may call it (decision 38); default `viewer`. */
  readonly role?: OperatorRole;
  /**
   * How an admin operation is tied to one partner, which opens it to that partner's operators (decision 38): by a field of its path or
   * query, or because it says only who asks. Without it, it is closed to them.
   */
  readonly tiedBy?:
    | 'self'
    | 'partner_id'
    | 'platform_payment_id'
    | 'platform_batch_id'
    | 'remittance_id';
  readonly params?: TObject;
  readonly query?: TObject;
  readonly body?: TSchema;
  /** Media type of the body; default JSON. A CSV body is passed on as an unread stream. */
  readonly bodyType?: 'application/json' | 'application/x-www-form-urlencoded' | 'text/csv';
  readonly reply: TSchema;
  /** Media type of the 200 answer; default JSON. */
  readonly replyType?: 'application/json' | 'text/csv';
  /** Headers of the 200 answer besides X-Request-Id. */
  readonly replyHeaders?: Readonly<Record<string, string>>;
  /** Error codes that it may return, in addition to those that every operation may return. */
  readonly errors: readonly ErrorCode[];
  /** Errors in the form of RFC 6749 instead of the catalogue's (decision 5). */
  readonly oauthErrors?: true;
}

type Field<R, K extends string> = R extends { readonly [P in K]: infer S extends TSchema }
  ? Static<S>
  : Record<string, never>;

/** The path fields of an operation. */
export type RouteParams<R extends Route> = Field<R, 'params'>;
/** The query fields of an operation: strings, as in the URL. */
export type RouteQuery<R extends Route> = Field<R, 'query'>;
/** The body of an operation; undefined when it takes none. */
export type RouteBody<R extends Route> = R extends { readonly body: infer S extends TSchema }
  ? Static<S>
  : undefined;
/** The body of the 200 answer of an operation. */
export type RouteReply<R extends Route> = Static<R['reply']>;

/** Every operation may return these: the server itself returns them, not the handler. */
export const COMMON_ERRORS = [
  'INVALID_REQUEST',
  'METHOD_NOT_ALLOWED',
  'REQUEST_TIMEOUT',
  'PAYLOAD_TOO_LARGE',
  'HEADERS_TOO_LARGE',
  'INTERNAL_ERROR',
  'SERVICE_UNAVAILABLE',
] as const satisfies readonly ErrorCode[];

/** What every operation with this authentication may return beside them. */
const ERRORS_OF: Readonly<Record<RouteAuth, readonly ErrorCode[]>> = {
  none: [],
  client_key: ['UNAUTHORIZED'],
  partner: ['UNAUTHORIZED', 'INSUFFICIENT_SCOPE'],
  token: ['TOKEN_INVALID', 'TOKEN_EXPIRED', 'TOO_MANY_REQUESTS'],
  session: ['SESSION_EXPIRED', 'TOO_MANY_REQUESTS'],
  admin: ['UNAUTHORIZED'],
  signature: ['UNAUTHORIZED'],
};

/** An operation as a table has it: what follows from its call, its caller and its body is left out. */
export interface Operation extends Partial<Omit<Route, 'id' | 'method' | 'path' | 'params'>> {
  /** Method and path, without the prefix that the paths of the table share. */
  readonly call: `${Route['method']} /${string}`;
  readonly summary: string;
  readonly reply: TSchema;
}

type FieldsOf<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? Name | FieldsOf<Rest>
  : never;
type ParamsOf<Fields extends TProperties, Call extends string> = [FieldsOf<Call>] extends [never]
  ? unknown
  : { readonly params: TObject<Pick<Fields, FieldsOf<Call> & keyof Fields>> };
/** A completed table of operations, by their ids. */
export type Routes<Fields extends TProperties, T extends Readonly<Record<string, Operation>>> = {
  readonly [Id in keyof T]: Omit<T[Id], 'call' | 'errors'> &
    Pick<Route, 'id' | 'method' | 'path' | 'source' | 'auth' | 'errors'> &
    ParamsOf<Fields, T[Id]['call']>;
};

/**
 * Completes a table of operations: ids, paths and the schemas of their fields, what they share, and the errors that follow from these.
 * `errorsOf` adds those that follow from more.
 */
export function routeTable<
  const Fields extends TProperties,
  const T extends Readonly<Record<string, Operation>>,
>(
  fields: Fields,
  shared: { readonly prefix?: string; readonly source?: string; readonly auth?: RouteAuth },
  operations: T,
  errorsOf: (route: Route) => readonly ErrorCode[] = () => [],
): Routes<Fields, T> {
  const { prefix = '', ...common } = shared;
  const routes = Object.entries<Operation>(operations).map(([id, operation]) => {
    const { call, errors = [], ...own } = operation;
    const [method = '', path = ''] = call.split(' ');
    const names = pathFields(path).map((name) => [name, fields[name]]);
    const params = names.length === 0 ? {} : { params: Type.Object(Object.fromEntries(names)) };
    const route = { id, method, path: prefix + path, ...common, ...own, ...params } as Route;
    const unread: ErrorCode[] = route.body === undefined ? [] : ['UNSUPPORTED_MEDIA_TYPE'];
    const all = [...ERRORS_OF[route.auth], ...unread, ...errorsOf(route), ...errors];
    return [id, { ...route, errors: [...new Set(all)] }];
  });
  return Object.fromEntries(routes) as Routes<Fields, T>;
}

/** Every field that stands in a path of the wire. */
export const PATH_FIELDS = {
  biller_id: BillerId,
  account_id: AccountId,
  platform_payment_id: PlatformPaymentId,
  platform_batch_id: PlatformBatchId,
};

const wire = <const T extends Readonly<Record<string, Operation>>>(operations: T) =>
  routeTable(PATH_FIELDS, {}, operations);

/** Hosted by the partner, called by the platform (S2, decision 1). */
export const partnerRoutes = wire({
  access_token: {
    call: 'POST /oauth/token',
    summary: 'Get an access token with the client credentials of the platform',
    source: 'OA1 OA2 OA3',
    auth: 'none',
    body: AccessTokenRequest,
    bodyType: 'application/x-www-form-urlencoded',
    reply: AccessTokenReply,
    replyHeaders: { 'Cache-Control': 'no-store' },
    errors: ['TOO_MANY_REQUESTS'],
    oauthErrors: true,
  },
  get_account: {
    call: 'GET /biller/{biller_id}/account/{account_id}',
    summary: 'Get Account',
    source: 'B1 AC1, decision 4',
    auth: 'partner',
    scope: 'read',
    reply: AccountRecord,
    errors: ['ACCOUNT_NOT_FOUND'],
  },
  get_balance: {
    call: 'GET /biller/{biller_id}/account/{account_id}/balance',
    summary: 'Get Balance',
    source: 'B2 TR3, decisions 1 and 4',
    auth: 'partner',
    scope: 'read',
    reply: Balance,
    errors: ['ACCOUNT_NOT_FOUND'],
  },
  put_account_payment: {
    call: 'PUT /biller/{biller_id}/account/{account_id}/payment/{platform_payment_id}',
    summary: 'Put Account Payment: create it, or get the one that has this id',
    source: 'B4 ID1 RU5 ST1, decisions 1, 2, 9 and 10',
    auth: 'partner',
    scope: 'write',
    body: PaymentInstruction,
    reply: PaymentRecord,
  },
  get_account_payment: {
    call: 'GET /biller/{biller_id}/account/{account_id}/payment/{platform_payment_id}',
    summary: 'Get Account Payment: its current status; the operation that is polled',
    source: 'B5 RU4, decisions 1 and 24',
    auth: 'partner',
    scope: 'read',
    reply: PaymentRecord,
    replyHeaders: { 'Preference-Applied': 'wait, when the request said Prefer: wait=N' },
    errors: ['PAYMENT_NOT_FOUND'],
  },
  get_payment: {
    call: 'GET /payment/{platform_payment_id}',
    summary: 'Get Payment',
    source: 'B3, decision 1',
    auth: 'partner',
    scope: 'read',
    reply: PaymentRecord,
    errors: ['PAYMENT_NOT_FOUND'],
  },
  get_batch_statement: {
    call: 'GET /batch/{platform_batch_id}',
    summary: 'Get the statement of one batch (an extension)',
    source: 'decision 26',
    auth: 'partner',
    scope: 'read',
    reply: BatchStatement,
    errors: ['BATCH_NOT_FOUND'],
  },
});

/** Hosted by the platform, called by partners and by the payment page. */
export const platformRoutes = wire({
  create_token: {
    call: 'POST /v1/sbi/token',
    summary: 'Create Token: exchange customer details for the token that starts the payment flow',
    source: 'A1 A2 TK1 VE1, decisions 6, 7 and 8',
    auth: 'client_key',
    body: TokenRequest,
    reply: TokenReply,
    replyHeaders: { 'Token-Expires-At': 'ISO 8601; when the token stops opening the flow' },
    errors: ['NOT_FOUND', 'TOO_MANY_REQUESTS'],
  },
  create_flow_session: {
    call: 'POST /v1/flow/session',
    summary: 'Exchange the token for a session',
    source: 'S1, decisions 8 and 31',
    auth: 'token',
    body: FlowSessionRequest,
    reply: FlowSessionGrant,
    errors: ['ORIGIN_NOT_ALLOWED', 'MODE_MISMATCH'],
  },
  get_flow_session: {
    call: 'GET /v1/flow/session',
    summary: 'Read the current bill and the payment of this session',
    source: 'S1, decision 31',
    auth: 'session',
    reply: FlowSession,
    errors: ['ACCOUNT_NOT_FOUND', 'PARTNER_UNREACHABLE'],
  },
  create_flow_payment: {
    call: 'POST /v1/flow/payments',
    summary: 'Confirm: the one payment of this session, however often it is sent',
    source: 'S4, decision 31',
    auth: 'session',
    body: FlowPaymentRequest,
    reply: FlowPayment,
    errors: ['CONFLICT', 'AMOUNT_OUT_OF_RANGE', 'ACCOUNT_NOT_FOUND', 'PARTNER_UNREACHABLE'],
  },
  open_flow_saved_methods: {
    call: 'POST /v1/flow/saved-methods',
    summary: 'What the processor’s page needs to show and save the customer’s methods',
    source: 'decision 110',
    auth: 'session',
    body: FlowSavedMethodsRequest,
    reply: FlowSavedMethods,
  },
  create_flow_return: {
    call: 'POST /v1/flow/return',
    summary: 'Send the customer back to the partner with a signed result',
    source: 'decision 115',
    auth: 'session',
    body: FlowReturnRequest,
    reply: FlowReturn,
    errors: ['ORIGIN_NOT_ALLOWED'],
  },
  get_flow_payment: {
    call: 'GET /v1/flow/payments/{platform_payment_id}',
    summary: 'Read a payment of this session',
    source: 'decision 31',
    auth: 'session',
    reply: FlowPayment,
    errors: ['PAYMENT_NOT_FOUND'],
  },
});

/** The names of a path's fields, in order: `platform_payment_id` for `/payment/{platform_payment_id}`. */
export function pathFields(path: string): string[] {
  return [...path.matchAll(/\{([a-z_]+)\}/g)].map((match) => match[1] ?? '');
}

/**
 * Fills a path template. Each value becomes exactly one encoded segment, so that no value can change the rest of the path.
 * Throws RangeError for a missing or empty value, "." or "..".
 */
export function fillPath(template: string, values: Readonly<Record<string, string>>): string {
  return template.replaceAll(/\{([a-z_]+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined || value === '' || value === '.' || value === '..') {
      throw new RangeError(`no usable value for {${name}} of ${template}`);
    }
    return encodeURIComponent(value);
  });
}
