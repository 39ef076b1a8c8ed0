/**
 * The flow API as the page calls it (decision 31): same origin, no cookie, no cache, no referrer, the secret in a header and in one
 * variable.
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

/** Longer than the platform's own deadline for a live read, short enough for a waiting person. */
const REQUEST_TIMEOUT_MS = 20_000;
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

/** How the page reaches the platform; the inline script makes it (first.ts), because the first exchange does not wait for the rest. */
export type Api = ReturnType<typeof createApi>;

/** `partner_id` is whose page this is. The session's secret never leaves what this gives. */
export function createApi(partner_id: string) {
  let secret = '';
  let ahead = 0;

  /** Sends to a path below the platform's root; with a body it is a POST. Throws CallError for a refusal, and when there is no answer. */
  async function send<T>(path: string, asked?: object, credential = secret): Promise<T> {
    // A truncated answer counts as no answer.
    const none = (): never => {
      throw new CallError('network');
    };
    // The page itself is at `flow/v1/{partner}`.
    const answer = await fetch(new URL(`../../v1/flow/${path}`, location.href), {
      ...(asked ? { method: 'POST', body: JSON.stringify(asked) } : {}),
      headers: {
        authorization: `Bearer ${credential}`,
        ...(asked ? { 'content-type': 'application/json' } : {}),
      },
      credentials: 'omit',
      cache: 'no-store',
      redirect: 'error',
      referrerPolicy: 'no-referrer',
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    }).catch(none);
    const served = Date.parse(answer.headers.get('date') ?? '');
    if (served) ahead = served - Date.now();
    if (answer.ok) return (await answer.json().catch(none)) as T;
    const body = (await answer.json().catch(() => undefined)) as ErrorBody | undefined;
    throw new CallError(body?.code ?? 'INTERNAL_ERROR', answer);
  }

  return {
    /** Exchanges a token for a session. */
    async open(token: string, origin: string): Promise<FlowSessionGrant> {
      const asked = send<FlowSessionGrant>('session', { origin, partner_id }, token);
      const late = new Promise<never>((_, reject) =>
        setTimeout(() => reject(new CallError('network')), OPEN_TIMEOUT_MS),
      );
      const grant = await Promise.race([asked, late]);
      secret = grant.session;
      return grant;
    },
    session: () => send<FlowSession>('session'),
    pay: (asked: FlowPaymentRequest) => send<FlowPayment>('payments', asked),
    saved: (asked: FlowSavedMethodsRequest) => send<FlowSavedMethods>('saved-methods', asked),
    payment: (id: string) => send<FlowPayment>(`payments/${encodeURIComponent(id)}`),
    /** The address of the partner with the signed result. */
    leave: (asked: FlowReturnRequest) => send<FlowReturn>('return', asked),
    /** The platform's clock in ms, so that a wrong clock on this device does not show wrong times. */
    now: () => Date.now() + ahead,
  };
}

/** Any other error than a refusal by the platform is a bug in this page. */
export function callError(error: unknown): CallError {
  // By its form: this class is in the inline script, too.
  if (error instanceof Error && 'wire' in error) return error as CallError;
  // The customer still gets a problem screen; the error goes to the browser console.
  reportError(error);
  return new CallError('INTERNAL_ERROR');
}

/** The token or session has ended: a new one may help. */
export function spent(error: CallError): boolean {
  return error.code === 'token_expired' || error.code === 'token_invalid';
}
