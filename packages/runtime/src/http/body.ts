/** Bodies are parsed strictly (decisions 5 and 11): as the type they declare, in UTF-8, unambiguously; nothing is coerced. */
import { invalidField, JsonProblem, parseJson, Refusal } from '@duebridge/contract';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { IncomingHttpHeaders } from 'node:http';

/** Media type of most bodies. */
export const JSON_TYPE = 'application/json';
const FORM_TYPE = 'application/x-www-form-urlencoded';
/** Type of files that are uploaded unchanged. */
export const CSV_TYPE = 'text/csv';

/** Rejects ill-formed UTF-8 instead of replacing it, and keeps a byte order mark so that the JSON parser rejects it. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Replaces the body parsers of a server by strict ones. */
export function readBodiesStrictly(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  const parse = (type: string, read: (body: string) => unknown): void => {
    app.addContentTypeParser(type, { parseAs: 'buffer' }, (request, body, done) => {
      // A path or method that does not exist is reported as such, whatever body was sent.
      if (request.is404) {
        done(null, undefined);
        return;
      }
      try {
        if ((request.routeOptions.config.bodyType ?? JSON_TYPE) !== type) throw unsupported();
        const { 'content-type': contentType = '', 'content-encoding': encoding } = request.headers;
        const charset = /;\s*charset="?([^";\s]*)/i.exec(contentType)?.[1];
        if (charset !== undefined && charset.toLowerCase() !== 'utf-8') throw unsupported();
        if (encoding !== undefined && encoding !== 'identity') throw unsupported();
        // Node gives a Buffer for parseAs 'buffer'; the type of Fastify leaves it open.
        done(null, read(typeof body === 'string' ? body : decode(body)));
      } catch (error) {
        done(error instanceof Error ? error : new Error(String(error)), undefined);
      }
    });
  };
  parse(JSON_TYPE, readJson);
  parse(FORM_TYPE, readForm);
  // A file is passed on as a stream, for a handler that reads it line by line and enforces its own limit. A handler that stops in the
  // middle must not destroy the request: its rest could then not be discarded, and would block the connection.
  app.addContentTypeParser(CSV_TYPE, (request, payload, done) => {
    const takes = request.is404 || request.routeOptions.config.bodyType === CSV_TYPE;
    if (takes) done(null, payload.iterator({ destroyOnReturn: false }));
    else done(unsupported(), undefined);
  });
}

/** The refusal of an unsupported type, charset or encoding. */
export function unsupported(): Refusal {
  return new Refusal('UNSUPPORTED_MEDIA_TYPE');
}

function decode(body: Uint8Array): string {
  try {
    return utf8.decode(body);
  } catch {
    throw invalidField('body', 'is not UTF-8');
  }
}

function readJson(body: string): unknown {
  try {
    return parseJson(body);
  } catch (error) {
    if (error instanceof JsonProblem) throw invalidField('body', error.message);
    throw error;
  }
}

function readForm(body: string): Readonly<Record<string, string>> {
  const fields = new Map<string, string>();
  for (const [name, value] of new URLSearchParams(body)) {
    if (fields.has(name)) throw invalidField('body', 'contains a field twice');
    if (value.includes('\0') || name.includes('\0'))
      throw invalidField('body', 'contains the character NUL');
    // URLSearchParams inserts this character where the percent-encoded bytes are not UTF-8.
    if (`${name}${value}`.includes('\uFFFD')) throw invalidField('body', 'is not UTF-8');
    if (value !== '') fields.set(name, value); // RFC 6749 section 3.2: an empty one counts as left out
  }
  return Object.fromEntries(fields);
}

/** Whether a request announces a body. */
export function hasBody(headers: IncomingHttpHeaders): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

/** Bytes of a refused body that are read and discarded before the refusal is sent. */
const DISCARDED_BYTES = 4 * 1024 * 1024;
/** How long a client that is still sending such a body is waited for. */
const DISCARD_MS = 1_000;

/**
 * Reads the rest of a body that nobody will read, and discards it, up to 4 MiB and 1 s; resolves in any case. A connection that is
 * closed with bytes unread is reset, and a client that is still sending then sees the reset instead of the refusal (LI1). One that
 * stays open with its body half read would take no other request.
 */
export async function discardRest(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { raw } = request;
  if (raw.complete || raw.readableEnded || raw.destroyed) return;
  // A body that nobody has begun to read, on a connection that stays open, is discarded by Node after the answer.
  if (!raw.readableDidRead && reply.getHeader('connection') !== 'close') return;
  await new Promise<void>((resolve) => {
    let left = DISCARDED_BYTES;
    const end = (): void => {
      clearTimeout(timer);
      raw.off('data', count);
      for (const event of ENDS) raw.off(event, end);
      resolve();
    };
    const count = (chunk: Buffer): void => {
      left -= chunk.length;
      if (left < 0) end();
    };
    const timer = setTimeout(end, DISCARD_MS);
    raw.on('data', count);
    for (const event of ENDS) raw.on(event, end);
    raw.resume();
  });
}

const ENDS = ['end', 'error', 'close'] as const;
