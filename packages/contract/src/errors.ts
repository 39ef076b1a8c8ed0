/**
 * Catalogue of every error that either side returns. Servers, clients, the API documents and the guides all use it, so that they
 * cannot disagree (ER1, ER2, decision 5).
 */

interface CatalogueEntry {
  /** HTTP status. */
  readonly status: number;
  /** Default message, used unless the code that throws gives a more specific one. */
  readonly message: string;
  /** What the caller should do; printed in the API documents. */
  readonly remedy: string;
}

/** The catalogue. The texts of NOT_FOUND and INTERNAL_ERROR are the interface's (ER1, ER2). */
export const ERRORS = {
  INVALID_REQUEST: {
    status: 400,
    message: 'The request is not valid',
    remedy: 'Fix the fields named in details; the same request will be refused again.',
  },
  UNAUTHORIZED: {
    status: 401,
    message: 'The credentials are missing or not valid',
    remedy: 'Send the credentials that were issued to you, in the headers the operation names.',
  },
  TOKEN_INVALID: {
    status: 401,
    message: 'The token is not valid',
    remedy: 'Ask for a new token; this one was never issued, or was removed long ago.',
  },
  TOKEN_EXPIRED: {
    status: 401,
    message: 'The token has expired',
    remedy: 'Ask for a new token; nothing was lost.',
  },
  SESSION_EXPIRED: {
    status: 401,
    message: 'The session has expired',
    remedy: 'Open the flow again with a new token; a payment already made continues.',
  },
  INSUFFICIENT_SCOPE: {
    status: 403,
    message: 'The access token does not cover this operation',
    remedy: 'Ask for an access token with the scope named in WWW-Authenticate.',
  },
  INSUFFICIENT_ROLE: {
    status: 403,
    message: 'Your role does not allow this',
    remedy: 'Ask an operator who has the role that the operation names.',
  },
  CSRF_TOKEN_REQUIRED: {
    status: 403,
    message: 'The request does not come from the console page',
    remedy: 'Send the csrf value of /admin/v1/me in X-CSRF-Token, or use a bearer key.',
  },
  ORIGIN_NOT_ALLOWED: {
    status: 403,
    message: 'The flow may not be shown on this site',
    remedy: 'Have the site registered as one of the partner origins.',
  },
  MODE_MISMATCH: {
    status: 403,
    message: 'A test token was used on a live page, or a live token on a test page',
    remedy:
      'Use the partner id of the page and the API key of the backend from the same registration: both test, or both live.',
  },
  NOT_FOUND: {
    status: 404,
    message: 'Resource not found',
    remedy:
      'Check the path, the client id and the account; in test mode the header Duebridge-Not-Found of Create Token says which of the two.',
  },
  ACCOUNT_NOT_FOUND: {
    status: 404,
    message: 'Account not found',
    remedy: 'Check biller_id and account_id with the biller.',
  },
  PAYMENT_NOT_FOUND: {
    status: 404,
    message: 'Payment not found',
    remedy: 'Check the id; a payment is found only under the account it was made for.',
  },
  BATCH_NOT_FOUND: {
    status: 404,
    message: 'Batch not found',
    remedy: 'Check the batch id.',
  },
  METHOD_NOT_ALLOWED: {
    status: 405,
    message: 'The method is not allowed here',
    remedy: 'Use a method named in the Allow header.',
  },
  REQUEST_TIMEOUT: {
    status: 408,
    message: 'The request took too long to arrive',
    remedy: 'Send it again over a faster connection.',
  },
  CONFLICT: {
    status: 409,
    message: 'The request conflicts with what is stored',
    remedy: 'Read the current state first; sending the same request again will not help.',
  },
  PAYLOAD_TOO_LARGE: {
    status: 413,
    message: 'The request body is too large',
    remedy: 'Send at most 64 KiB.',
  },
  URI_TOO_LONG: {
    status: 414,
    message: 'The path is too long',
    remedy: 'Check the ids in the path.',
  },
  UNSUPPORTED_MEDIA_TYPE: {
    status: 415,
    message: 'The content type is not supported',
    remedy: 'Send the content type that the operation names.',
  },
  AMOUNT_OUT_OF_RANGE: {
    status: 422,
    message: 'The amount is outside what the account allows',
    remedy: 'Choose an amount within the limits named in details.',
  },
  TOO_MANY_REQUESTS: {
    status: 429,
    message: 'Too many requests',
    remedy: 'Wait for the time in Retry-After.',
  },
  HEADERS_TOO_LARGE: {
    status: 431,
    message: 'The request headers are too large',
    remedy: 'Send fewer or shorter headers.',
  },
  INTERNAL_ERROR: {
    status: 500,
    message: 'An unexpected error occurred',
    remedy: 'Send the same request again; if it keeps failing, report the X-Request-Id.',
  },
  PARTNER_UNREACHABLE: {
    status: 503,
    message: 'The biller cannot be reached right now',
    remedy: 'Try again after Retry-After; nothing has been charged.',
  },
  SERVICE_UNAVAILABLE: {
    status: 503,
    message: 'The service cannot take the request right now',
    remedy: 'Send the same request again after Retry-After.',
  },
} as const satisfies Record<string, CatalogueEntry>;

/** A code of the catalogue. */
export type ErrorCode = keyof typeof ERRORS;

/** One problem: its place (dotted path from `body`, `path`, `query` or `headers`) and a description. */
export interface Detail {
  readonly path: string;
  readonly problem: string;
}

/** The body of every error answer outside the OAuth endpoint (decision 5). */
export interface ErrorBody {
  readonly code: ErrorCode;
  readonly message: string;
  readonly details?: readonly Detail[];
}

/**
 * The caller made a mistake or must wait. Thrown anywhere; the server turns it into the error response. Takes a code of the
 * catalogue; `details` names what to fix, and `headers` are sent with the response (Retry-After, WWW-Authenticate, Allow). None
 * of them may contain a secret.
 */
export class Refusal extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly details: readonly Detail[] | undefined;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    code: ErrorCode,
    options: {
      message?: string;
      details?: readonly Detail[];
      headers?: Readonly<Record<string, string>>;
    } = {},
  ) {
    super(options.message ?? ERRORS[code].message);
    this.name = 'Refusal';
    this.code = code;
    this.status = ERRORS[code].status;
    this.details = options.details;
    this.headers = options.headers ?? {};
  }

  /** The body of the error response (decision 5). */
  toBody(): ErrorBody {
    return {
      code: this.code,
      message: this.message,
      ...(this.details === undefined ? {} : { details: this.details }),
    };
  }
}

/** The refusal of one field, named by its path, such as `body.amount_in_cents`. */
export function invalidField(path: string, problem: string): Refusal {
  return new Refusal('INVALID_REQUEST', { details: [{ path, problem }] });
}

/** The refusal of an act that does not go with the state, with what the caller reads. */
export function conflict(message: string): Refusal {
  return new Refusal('CONFLICT', { message });
}
