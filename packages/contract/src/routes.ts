/**
 * Every operation of both sides in one table. Servers mount it, clients use it for their calls, the API documents are generated
 * from it, and the conformance checks read it. Each operation is described only here.
 */
import { Type, type Static, type TObject, type TSchema } from 'typebox';
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
    'self' | 'partner_id' | 'platform_payment_id' | 'platform_batch_id' | 'remittance_id';
  readonly params?: TObject;
  readonly query?: TObject;
  readonly body?: TSchema;
  /** Media type of the body; default JSON. A CSV body is passed on as an unread stream. */
  readonly bodyType?: 'application/json' | 'application/x-www-form-urlencoded' | 'text/csv';
  readonly reply: TSchema;
  /** Media type of the 200 answer; default JSON. */
  readonly replyType?: 'application/json' | 'text/event-stream' | 'text/csv';
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

/** Types a table of operations by its entries. */
export const routeTable = <const T extends Readonly<Record<string, Route>>>(routes: T): T => routes;

const accountParams = Type.Object({ biller_id: BillerId, account_id: AccountId });
const accountPaymentParams = Type.Object({
  biller_id: BillerId,
  account_id: AccountId,
  platform_payment_id: PlatformPaymentId,
});

/** Hosted by the partner, called by the platform (S2, decision 1). */
export const partnerRoutes = routeTable({
  access_token: {
    id: 'access_token',
    method: 'POST',
    path: '/oauth/token',
    summary: 'Get an access token with the client credentials of the platform',
    source: 'OA1 OA2 OA3',
    auth: 'none',
    body: AccessTokenRequest,
    bodyType: 'application/x-www-form-urlencoded',
    reply: AccessTokenReply,
    replyHeaders: { 'Cache-Control': 'no-store' },
    errors: ['UNSUPPORTED_MEDIA_TYPE', 'TOO_MANY_REQUESTS'],
    oauthErrors: true,
  },
  get_account: {
    id: 'get_account',
    method: 'GET',
    path: '/biller/{biller_id}/account/{account_id}',
    summary: 'Get Account',
    source: 'B1 AC1, decision 4',
    auth: 'partner',
    scope: 'read',
    params: accountParams,
    reply: AccountRecord,
    errors: ['UNAUTHORIZED', 'INSUFFICIENT_SCOPE', 'ACCOUNT_NOT_FOUND'],
  },
  get_balance: {
    id: 'get_balance',
    method: 'GET',
    path: '/biller/{biller_id}/account/{account_id}/balance',
    summary: 'Get Balance',
    source: 'B2 TR3, decisions 1 and 4',
    auth: 'partner',
    scope: 'read',
    params: accountParams,
    reply: Balance,
    errors: ['UNAUTHORIZED', 'INSUFFICIENT_SCOPE', 'ACCOUNT_NOT_FOUND'],
  },
  put_account_payment: {
    id: 'put_account_payment',
    method: 'PUT',
    path: '/biller/{biller_id}/account/{account_id}/payment/{platform_payment_id}',
    summary: 'Put Account Payment: create it, or get the one that has this id',
    source: 'B4 ID1 RU5 ST1, decisions 1, 2, 9 and 10',
    auth: 'partner',
    scope: 'write',
    params: accountPaymentParams,
    body: PaymentInstruction,
    reply: PaymentRecord,
    errors: ['UNAUTHORIZED', 'INSUFFICIENT_SCOPE', 'CONFLICT', 'UNSUPPORTED_MEDIA_TYPE'],
  },
  get_account_payment: {
    id: 'get_account_payment',
    method: 'GET',
    path: '/biller/{biller_id}/account/{account_id}/payment/{platform_payment_id}',
    summary: 'Get Account Payment: its current status; the operation that is polled',
    source: 'B5 RU4, decisions 1 and 24',
    auth: 'partner',
    scope: 'read',
    params: accountPaymentParams,
    reply: PaymentRecord,
    replyHeaders: { 'Preference-Applied': 'wait, when the request said Prefer: wait=N' },
    errors: ['UNAUTHORIZED', 'INSUFFICIENT_SCOPE', 'PAYMENT_NOT_FOUND'],
  },
  get_payment: {
    id: 'get_payment',
    method: 'GET',
    path: '/payment/{platform_payment_id}',
    summary: 'Get Payment',
    source: 'B3, decision 1',
    auth: 'partner',
    scope: 'read',
    params: Type.Object({ platform_payment_id: PlatformPaymentId }),
    reply: PaymentRecord,
    errors: ['UNAUTHORIZED', 'INSUFFICIENT_SCOPE', 'PAYMENT_NOT_FOUND'],
  },
  get_batch_statement: {
    id: 'get_batch_statement',
    method: 'GET',
    path: '/batch/{platform_batch_id}',
    summary: 'Get the statement of one batch (an extension)',
    source: 'decision 26',
    auth: 'partner',
    scope: 'read',
    params: Type.Object({ platform_batch_id: PlatformBatchId }),
    reply: BatchStatement,
    errors: ['UNAUTHORIZED', 'INSUFFICIENT_SCOPE', 'BATCH_NOT_FOUND'],
  },
});

/** Hosted by the platform, called by partners and by the payment page. */
export const platformRoutes = routeTable({
  create_token: {
    id: 'create_token',
    method: 'POST',
    path: '/v1/sbi/token',
    summary: 'Create Token: exchange customer details for the token that starts the payment flow',
    source: 'A1 A2 TK1 VE1, decisions 6, 7 and 8',
    auth: 'client_key',
    body: TokenRequest,
    reply: TokenReply,
    replyHeaders: { 'Token-Expires-At': 'ISO 8601; when the token stops opening the flow' },
    errors: ['UNAUTHORIZED', 'NOT_FOUND', 'UNSUPPORTED_MEDIA_TYPE', 'TOO_MANY_REQUESTS'],
  },
  create_flow_session: {
    id: 'create_flow_session',
    method: 'POST',
    path: '/v1/flow/session',
    summary: 'Exchange the token for a session',
    source: 'S1, decisions 8 and 31',
    auth: 'token',
    body: FlowSessionRequest,
    reply: FlowSessionGrant,
    errors: [
      'TOKEN_INVALID',
      'TOKEN_EXPIRED',
      'ORIGIN_NOT_ALLOWED',
      'MODE_MISMATCH',
      'UNSUPPORTED_MEDIA_TYPE',
      'TOO_MANY_REQUESTS',
    ],
  },
  get_flow_session: {
    id: 'get_flow_session',
    method: 'GET',
    path: '/v1/flow/session',
    summary: 'Read the current bill and the payment of this session',
    source: 'S1, decision 31',
    auth: 'session',
    reply: FlowSession,
    errors: ['SESSION_EXPIRED', 'ACCOUNT_NOT_FOUND', 'PARTNER_UNREACHABLE', 'TOO_MANY_REQUESTS'],
  },
  create_flow_payment: {
    id: 'create_flow_payment',
    method: 'POST',
    path: '/v1/flow/payments',
    summary: 'Confirm: the one payment of this session, however often it is sent',
    source: 'S4, decision 31',
    auth: 'session',
    body: FlowPaymentRequest,
    reply: FlowPayment,
    errors: [
      'SESSION_EXPIRED',
      'CONFLICT',
      'AMOUNT_OUT_OF_RANGE',
      'ACCOUNT_NOT_FOUND',
      'PARTNER_UNREACHABLE',
      'UNSUPPORTED_MEDIA_TYPE',
      'TOO_MANY_REQUESTS',
    ],
  },
  open_flow_saved_methods: {
    id: 'open_flow_saved_methods',
    method: 'POST',
    path: '/v1/flow/saved-methods',
    summary: 'What the processor’s page needs to show and save the customer’s methods',
    source: 'decision 110',
    auth: 'session',
    body: FlowSavedMethodsRequest,
    reply: FlowSavedMethods,
    errors: ['SESSION_EXPIRED', 'UNSUPPORTED_MEDIA_TYPE', 'TOO_MANY_REQUESTS'],
  },
  create_flow_return: {
    id: 'create_flow_return',
    method: 'POST',
    path: '/v1/flow/return',
    summary: 'Send the customer back to the partner with a signed result',
    source: 'decision 115',
    auth: 'session',
    body: FlowReturnRequest,
    reply: FlowReturn,
    errors: [
      'SESSION_EXPIRED',
      'ORIGIN_NOT_ALLOWED',
      'UNSUPPORTED_MEDIA_TYPE',
      'TOO_MANY_REQUESTS',
    ],
  },
  get_flow_payment: {
    id: 'get_flow_payment',
    method: 'GET',
    path: '/v1/flow/payments/{platform_payment_id}',
    summary: 'Read a payment of this session',
    source: 'decision 31',
    auth: 'session',
    params: Type.Object({ platform_payment_id: PlatformPaymentId }),
    reply: FlowPayment,
    errors: ['SESSION_EXPIRED', 'PAYMENT_NOT_FOUND', 'TOO_MANY_REQUESTS'],
  },
  get_flow_payment_events: {
    id: 'get_flow_payment_events',
    method: 'GET',
    path: '/v1/flow/payments/{platform_payment_id}/events',
    summary:
      'Follow a payment: one `payment` event at once and one for each change, until it has ended',
    source: 'decision 31',
    auth: 'session',
    params: Type.Object({ platform_payment_id: PlatformPaymentId }),
    reply: Type.String({ description: 'Each event `payment` carries a FlowPayment as JSON.' }),
    replyType: 'text/event-stream',
    errors: ['SESSION_EXPIRED', 'PAYMENT_NOT_FOUND', 'TOO_MANY_REQUESTS'],
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
  let path = '';
  piecesOf(template).forEach((piece, index) => {
    if (index % 2 === 0) {
      path += piece;
      return;
    }
    const value = values[piece];
    if (value === undefined || value === '' || value === '.' || value === '..') {
      throw new RangeError(`no usable value for {${piece}} of ${template}`);
    }
    path += encodeURIComponent(value);
  });
  return path;
}

/** Templates in pieces: text, the name of a field, text, and so on. Every call fills one, and searching it each time takes longer. */
const pieces = new Map<string, readonly string[]>();
/** Templates that are kept; a partner has five. */
const MAX_TEMPLATES = 10_000;

function piecesOf(template: string): readonly string[] {
  let known = pieces.get(template);
  if (known === undefined) {
    if (pieces.size >= MAX_TEMPLATES) pieces.clear();
    known = template.split(/\{([a-z_]+)\}/);
    pieces.set(template, known);
  }
  return known;
}
