/**
 * The flow API as the page calls it (decision 31): same origin, no cookie, the secret in a header and
 * in one variable.
 */
import type {
  ErrorBody,
  FlowPayment,
  FlowPaymentRequest,
  FlowReturn,
  FlowReturnRequest,
  FlowSavedMethods,
  FlowSavedMethodsRequest,
  FlowSession,
  FlowSessionGrant,
} from '@duebridge/contract';
import type { DuebridgeErrorCode } from '../embed/types.ts';
import { SESSION_PATH, type request } from './request.ts';

/**
 * The customer sees nothing but an outline until the session is open. The platform asks the biller for 5 s at most, so an exchange that
 * takes longer than this hangs, and counts as a lost network.
 */
const OPEN_TIMEOUT_MS = 8_000;

/** Why a call failed. `network`: it is unknown whether the request arrived. */
export class CallError extends Error {
  readonly code: DuebridgeErrorCode;
  /** The code of the catalogue; `network` when there was no answer. */
  readonly wire: ErrorBody['code'] | 'network';
  readonly status: number;
  readonly requestId: string | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(wire: CallError['wire'], answer?: Response) {
    super(wire);
    this.wire = wire;
    this.code = OTHERS[wire] ?? SAME.find((one) => one === wire.toLowerCase()) ?? 'internal';
    this.status = answer?.status ?? 0;
    this.requestId = answer?.headers.get('x-request-id') ?? undefined;
    const seconds = Number.parseInt(answer?.headers.get('retry-after') ?? '', 10);
    this.retryAfterMs = seconds >= 0 ? seconds * 1000 : undefined;
  }
}

/** The catalogue's codes that the page and the site have under the same name; any other is `internal`. */
const SAME = [
  'origin_not_allowed',
  'mode_mismatch',
  'token_invalid',
  'token_expired',
  'account_not_found',
  'partner_unreachable',
  'amount_out_of_range',
] as const satisfies readonly DuebridgeErrorCode[];
const OTHERS: Partial<Record<CallError['wire'], DuebridgeErrorCode>> = {
  network: 'network_lost',
  UNAUTHORIZED: 'token_invalid',
  SESSION_EXPIRED: 'token_expired',
};

/** How the page reaches the platform. */
export type Api = ReturnType<typeof createApi>;

/**
 * `partner_id` is whose page this is; `send` comes from the inline script (first.ts). The session's secret never leaves what this gives.
 */
export function createApi(partner_id: string, send: typeof request) {
  let secret = '';
  let ahead = 0;

  /** Waits for an answer; throws CallError for a refusal, and when there is none. */
  async function json<T>(asked: Promise<Response>): Promise<T> {
    // A truncated answer counts as no answer.
    const none = (): never => {
      throw new CallError('network');
    };
    const answer = await asked.catch(none);
    const served = Date.parse(answer.headers.get('date') ?? '');
    if (served) ahead = served - Date.now();
    if (answer.ok) return (await answer.json().catch(none)) as T;
    const body = (await answer.json().catch(() => undefined)) as ErrorBody | undefined;
    throw new CallError(body?.code ?? 'INTERNAL_ERROR', answer);
  }

  return {
    /** Exchanges a token for a session. `begun` is the answer to the same exchange when it has been sent already. */
    async open(
      token: string,
      origin: string,
      begun?: Promise<Response>,
    ): Promise<FlowSessionGrant> {
      const asked = begun ?? send(SESSION_PATH, token, { origin, partner_id });
      const grant = await json<FlowSessionGrant>(within(OPEN_TIMEOUT_MS, asked));
      secret = grant.session;
      return grant;
    },
    session: () => json<FlowSession>(send(SESSION_PATH, secret)),
    pay: (asked: FlowPaymentRequest) => json<FlowPayment>(send('v1/flow/payments', secret, asked)),
    saved: (asked: FlowSavedMethodsRequest) =>
      json<FlowSavedMethods>(send('v1/flow/saved-methods', secret, asked)),
    payment: (id: string) =>
      json<FlowPayment>(send(`v1/flow/payments/${encodeURIComponent(id)}`, secret)),
    /** The address of the partner with the signed result. */
    leave: (asked: FlowReturnRequest) => json<FlowReturn>(send('v1/flow/return', secret, asked)),
    /** The platform's clock in ms, so that a wrong clock on this device does not show wrong times. */
    now: () => Date.now() + ahead,
  };
}

/** The result of `awaited`; rejects when it takes longer than `ms`. */
function within<T>(ms: number, awaited: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    setTimeout(reject, ms, new Error('timeout'));
    awaited.then(resolve, reject);
  });
}

/** Any other error than a refusal by the platform is a bug in this page. */
export function callError(error: unknown): CallError {
  if (error instanceof CallError) return error;
  // The customer still gets a problem screen; the error goes to the browser console.
  reportError(error);
  return new CallError('INTERNAL_ERROR');
}

/** The token or session has ended: a new one may help. */
export function spent(error: CallError): boolean {
  return error.code === 'token_expired' || error.code === 'token_invalid';
}
