/** The credentials of the scripted partner: a call's header or access token enters, a refusal or nothing leaves. */
import { randomBytes } from 'node:crypto';
import { Refusal, SCOPES } from '@duebridge/contract';
import type { Answer, Call, ScriptedAuth } from './behaviour.ts';
import { mediaTypeOf } from './listeners.ts';
import type { Book } from './state.ts';

/** Verifies credentials and issues access tokens (S3, OA1-OA4, SC1, KY1, KY2). */
export function openAuthenticator(auth: ScriptedAuth, book: Book) {
  const tokens = new Map<string, { scopes: readonly string[]; expires_ms: number }>();

  function judge(call: Call, scope: string | undefined): Refusal | undefined {
    if (auth.method === 'key') {
      // Node joins repeated headers with a comma, so that two of them never equal the key.
      if (call.headers[auth.header.toLowerCase()] !== auth.key) return new Refusal('UNAUTHORIZED');
      return undefined;
    }
    const bearer = /^Bearer +([^ ]+)$/i.exec(call.headers.authorization ?? '')?.[1];
    const token = bearer === undefined ? undefined : tokens.get(bearer);
    if (token === undefined || token.expires_ms <= book.now()) {
      return new Refusal('UNAUTHORIZED');
    }
    if (scope === undefined || token.scopes.includes(scope)) return undefined;
    return new Refusal('INSUFFICIENT_SCOPE');
  }

  function grant(call: Call, body: Buffer | undefined): Answer {
    if (auth.method !== 'oauth') throw new Refusal('NOT_FOUND');
    if (mediaTypeOf(call.headers) !== 'application/x-www-form-urlencoded') {
      return oauthError(415, 'invalid_request', 'send a form');
    }
    const form = new URLSearchParams(body === undefined ? '' : call.text);
    const isClient = form.get('client_id') === auth.client_id;
    if (!isClient || form.get('client_secret') !== auth.client_secret) {
      return oauthError(401, 'invalid_client', 'unknown client');
    }
    if (form.get('grant_type') !== 'client_credentials') {
      return oauthError(400, 'unsupported_grant_type', 'only client_credentials is supported');
    }
    const asked = (form.get('scope') ?? '').split(' ').filter((scope) => scope !== '');
    const scopes = asked.length === 0 ? [...SCOPES] : asked;
    if (!scopes.every((scope) => SCOPES.some((known) => known === scope))) {
      return oauthError(400, 'invalid_scope', 'the scopes are read and write');
    }
    const expires_in = auth.expires_in ?? 3600;
    const access_token = randomBytes(32).toString('base64url');
    tokens.set(access_token, { scopes, expires_ms: book.now() + expires_in * 1000 });
    return {
      status: 200,
      body: { access_token, token_type: 'Bearer', expires_in, scope: scopes.join(' ') },
    };
  }

  return { judge, grant };
}

function oauthError(status: number, error: string, error_description: string): Answer {
  return { status, body: { error, error_description } };
}
