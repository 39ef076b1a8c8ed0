/** Every error is answered in the catalogue's form, or in that of RFC 6749, and reveals no internals. */
import { ERRORS, Refusal, type ErrorCode, type OAuthErrorCode } from '@duebridge/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { DatabaseUnavailable, messageOf } from '../errors.ts';
import type { Log } from '../log.ts';
import { JSON_TYPE } from './body.ts';

/** Retry-After in seconds when the database is unavailable: a restart takes about that long. */
const RETRY_AFTER_SECONDS = '2';

/** An error of the OAuth token endpoint, in the form of RFC 6749: a 400, because no client authenticates by a header. */
export class OAuthRefusal extends Error {
  override readonly name = 'OAuthRefusal';
  readonly error: OAuthErrorCode;
  constructor(error: OAuthErrorCode, description: string) {
    super(description);
    this.error = error;
  }
}

/** Codes for the errors that Fastify and Node raise by themselves, by status. */
const codeOfStatus: Readonly<Record<number, ErrorCode>> = {
  400: 'INVALID_REQUEST',
  404: 'NOT_FOUND',
  405: 'METHOD_NOT_ALLOWED',
  408: 'REQUEST_TIMEOUT',
  413: 'PAYLOAD_TOO_LARGE',
  414: 'URI_TOO_LONG',
  415: 'UNSUPPORTED_MEDIA_TYPE',
  431: 'HEADERS_TOO_LARGE',
};

/** The errors that were answered, for the log and for whoever counts them. */
const answered = new WeakMap<FastifyReply, Refusal>();

/** The error that a reply carries; undefined for any other reply. */
export function refusalOf(reply: FastifyReply): Refusal | undefined {
  return answered.get(reply);
}

/** Answers whatever was thrown while a request was handled. */
export function answerError(
  log: Log,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const inOAuthForm = request.routeOptions.config?.oauthErrors === true;
  // Headers set for the intended answer (a type, an expiry) do not belong to the error that replaces it.
  reply.removeHeader('content-type');
  if (error instanceof OAuthRefusal) {
    return reply
      .code(400)
      .type(JSON_TYPE)
      .send(JSON.stringify({ error: error.error, error_description: error.message }));
  }
  const refusal = toRefusal(error);
  answered.set(reply, refusal);
  if (refusal.code === 'INTERNAL_ERROR') {
    log.error({ error, request_id: request.id, route: request.routeOptions.url }, 'a bug');
  } else if (error instanceof DatabaseUnavailable) {
    log.warn({ error: messageOf(error), request_id: request.id }, 'database unavailable');
  }
  const oauth = inOAuthForm && refusal.status < 500 && refusal.status !== 429;
  const body = oauth
    ? { error: 'invalid_request', error_description: describeForOAuth(refusal) }
    : refusal.toBody();
  // Serialised here, so that the serialiser of the route's 200 answer is not applied.
  return reply
    .code(refusal.status)
    .headers(refusal.headers)
    .type(JSON_TYPE)
    .send(JSON.stringify(body));
}

/** Message and details in one text, of the characters that RFC 6749 section 5.2 admits there. */
function describeForOAuth({ message, details = [] }: Refusal): string {
  const named = details.map(({ path, problem }) => `${path} ${problem}`);
  const text = named.length === 0 ? message : `${message}: ${named.join('; ')}`;
  return text.replaceAll(/[^\u0020-\u007e]|["\\]/g, "'");
}

function toRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof DatabaseUnavailable) {
    return new Refusal('SERVICE_UNAVAILABLE', { headers: { 'Retry-After': RETRY_AFTER_SECONDS } });
  }
  const isOfFastify =
    error instanceof Error &&
    'statusCode' in error &&
    typeof error.statusCode === 'number' &&
    'code' in error;
  const code = isOfFastify ? codeOfStatus[Number(error.statusCode)] : undefined;
  return new Refusal(code ?? 'INTERNAL_ERROR');
}

/** Answers bytes that are not a request in the form of all other errors, and closes the connection. */
export function answerBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  const code: ErrorCode =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? 'HEADERS_TOO_LARGE'
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? 'REQUEST_TIMEOUT'
        : 'INVALID_REQUEST';
  if (error.code === 'ECONNRESET' || !socket.writable || hasBegunAnswer(socket)) {
    socket.destroy();
    return;
  }
  const refusal = new Refusal(code);
  const body = JSON.stringify(refusal.toBody());
  socket.end(
    [
      `HTTP/1.1 ${refusal.status} ${ERRORS[code].message}`,
      `X-Request-Id: ${randomUUID()}`,
      `Content-Type: ${JSON_TYPE}`,
      `Content-Length: ${Buffer.byteLength(body)}`,
      'Cache-Control: no-store',
      'X-Content-Type-Options: nosniff',
      'Connection: close',
      '',
      body,
    ].join('\r\n'),
    () => socket.destroy(),
  );
}

/** Whether an answer is already being sent on this connection: Node's own handler tests the same field. */
function hasBegunAnswer(socket: Socket & { _httpMessage?: ServerResponse | null }): boolean {
  return socket._httpMessage?.headersSent === true;
}
