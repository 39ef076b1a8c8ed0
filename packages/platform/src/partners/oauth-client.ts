/**
 * The OAuth 2.0 client of a partner (OA2-OA4, decision 14, F51-F68).
 *
 * enters: a partner's credentials, and calls to make.  leaves: their answers, made with an access token behind `Bearer`, or why there is none.
 * holds:  one fetch in flight per partner, shared by all callers (F65); tokens are renewed on use, without timers (F54); a token is
 *         never used beyond its true expiry, and while the endpoint fails the old one is used until then (F63).
 */
import { type Json, OtherNumber, type PartnerAuth } from '@duebridge/contract';
import type { Clock } from '@duebridge/runtime';
import type { Exchange, Peer } from './http-call.ts';

/** The credentials of the OAuth method. */
export type OAuthCredentials = Extract<PartnerAuth, { method: 'oauth' }>;

/** There is no access token, so nothing can be sent. `refused` and `scope` need an operator; `unreachable` is temporary. */
export interface NotSent {
  readonly kind: 'not_sent';
  readonly reason: 'refused' | 'scope' | 'invalid_answer' | 'unreachable';
  /** What the endpoint asked for, as it came. */
  readonly retryAfter: string | undefined;
}

/** The token's scope covers reads, or writes too (SC1). */
type Access = 'read' | 'write';

/** The token endpoint counts as unreachable when it takes longer. */
export const TOKEN_DEADLINE_MS = 10_000;
/** Life assumed when the answer names none that can be read (F51). */
const DEFAULT_LIFE_S = 300;
/** Longest life believed (F54): a revoked token is then noticed within the hour even if nobody answers 401. */
const MAX_LIFE_S = 3_600;
/** Longest token sent: servers refuse longer header blocks (F61). */
const MAX_TOKEN_LENGTH = 4_096;
/** A token that covers less than a PUT needs is asked for again after this (F60): the partner may fix it long before it expires. */
const LESS_PAUSE_MS = 2_000;
/**
 * After a failure the next fetch waits this long: shorter than the time between two trials of the engine, so that payments move again
 * within two seconds when the credentials are right again or the endpoint is back (F62, F63, LV8).
 */
const PAUSE_MS = 1_000;

interface Held extends Granted {
  /** Of the monotonic clock, in milliseconds. */
  readonly renewAt: number;
  readonly expiresAt: number;
}

/**
 * What makes the calls of one partner with its access token; `endpoint` leads to the origin of its token endpoint. What is asked is what the registration names as scope,
 * or both scopes. Times are the clock's monotonic ones: a step of the wall clock neither ends nor extends a token (F87).
 */
export function callsWithToken(options: {
  readonly credentials: OAuthCredentials;
  readonly endpoint: Pick<Peer, 'exchange'>;
  readonly clock: Clock;
  readonly fetched: (outcome: string) => void;
}) {
  const { credentials, clock } = options;
  const url = new URL(credentials.token_url);
  const scope = credentials.scope ?? 'read write';
  let held: Held | undefined;
  let inFlight: Promise<void> | undefined;
  /** Why the last fetch failed, and until when no other is made. */
  let blocked: { readonly until: number; readonly outcome: NotSent } | undefined;

  const fetchOne = async (): Promise<void> => {
    // Counted from before the request left: the partner's clock started no earlier.
    const startedAt = clock.monotonic();
    const answer = await options.endpoint.exchange({
      method: 'POST',
      path: url.pathname + url.search,
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: tokenForm(credentials, scope),
      deadlineMs: TOKEN_DEADLINE_MS,
    });
    const judged = judgeToken(answer);
    options.fetched(judged.kind === 'granted' ? 'granted' : judged.reason);
    if (judged.kind === 'not_sent') {
      // Never before the endpoint's own Retry-After; jitter only behind it, so that workers do not come back together.
      const asked = (retryAfterMs(judged.retryAfter, clock.now()) ?? 0) * (1 + clock.random() / 10);
      const ours = PAUSE_MS * (0.75 + clock.random() / 4);
      blocked = { until: clock.monotonic() + Math.max(asked, ours), outcome: judged };
      return;
    }
    blocked = undefined;
    const isLess = scope.split(' ').includes('write') && !covers(judged, 'write');
    const renewMs = Math.min(renewalMs(judged.lifeS), isLess ? LESS_PAUSE_MS : Infinity);
    const expiresAt = startedAt + judged.lifeS * 1_000;
    held = { ...judged, expiresAt, renewAt: startedAt + renewMs };
  };

  /** The token to use now. One that has just been fetched is used once, whatever its life. */
  const current = async (): Promise<Held | NotSent> => {
    const now = clock.monotonic();
    if (held !== undefined && now < held.renewAt) return held;
    if (blocked === undefined || now >= blocked.until) {
      inFlight ??= fetchOne().finally(() => {
        inFlight = undefined;
      });
      await inFlight;
      if (blocked === undefined && held !== undefined) return held;
    }
    if (held !== undefined && clock.monotonic() < held.expiresAt) return held;
    return blocked?.outcome ?? notSent('unreachable');
  };

  /** Makes a call with a token that is valid now and covers the access; a 401 leads to one new token and one repeat (PL13). */
  return async function carry(
    access: Access,
    call: (authorization: Readonly<Record<string, string>>) => Promise<Exchange>,
    isRepeat = false,
  ): Promise<Exchange | NotSent> {
    const token = await current();
    if (token.kind === 'not_sent') return token;
    if (!covers(token, access)) return notSent('scope');
    const answer = await call({ authorization: `Bearer ${token.access_token}` });
    if (isRepeat || answer.kind !== 'reply' || answer.status !== 401) return answer;
    // Revoked or expired early (F12, F57), unless somebody has fetched another already. RU5 makes the repeat of a PUT harmless.
    if (held?.access_token === token.access_token) held = undefined;
    return carry(access, call, true);
  };
}

function notSent(reason: NotSent['reason'], retryAfter?: string): NotSent {
  return { kind: 'not_sent', reason, retryAfter };
}

/** A scope that came back smaller is obeyed (F60); one that did not come back is the one asked for (RFC 6749 5.1). */
function covers({ scope }: Granted, access: Access): boolean {
  const granted = scope?.split(' ') ?? [];
  // A partner with scopes of its own names cannot be judged by ours.
  if (!granted.includes('read') && !granted.includes('write')) return true;
  return granted.includes(access);
}

/** 80 % of the life, or 60 s before its end, whichever comes first (decision 14); never before now. */
function renewalMs(lifeS: number): number {
  return (lifeS > 60 ? Math.min(lifeS * 0.8, lifeS - 60) : lifeS * 0.8) * 1_000;
}

/** The form of OA2, each value encoded once (F66). */
export function tokenForm({ client_id, client_secret }: OAuthCredentials, scope: string): string {
  const fields = { grant_type: 'client_credentials', client_id, client_secret, scope };
  return new URLSearchParams(fields).toString();
}

/** A token as its endpoint granted it. */
interface Granted {
  readonly kind: 'granted';
  readonly access_token: string;
  readonly lifeS: number;
  readonly scope: string | undefined;
}

/** What an answer of the token endpoint means (OA3). Pure. */
export function judgeToken(exchange: Exchange): Granted | NotSent {
  if (exchange.kind === 'no_reply') {
    // Like a wrong secret, a bad certificate or a forbidden address does not fix itself.
    const isForGood = exchange.reason === 'certificate' || exchange.reason === 'address';
    return notSent(isForGood ? 'refused' : 'unreachable');
  }
  const { status, json, retryAfter } = exchange;
  if (status === 400 || status === 401 || status === 403) return notSent('refused', retryAfter);
  if (status === 408 || status === 429 || status >= 500) return notSent('unreachable', retryAfter);
  const { access_token, token_type, expires_in, scope } = Object(json) as Record<string, Json>;
  const isToken =
    status === 200 &&
    typeof token_type === 'string' &&
    token_type.toLowerCase() === 'bearer' &&
    typeof access_token === 'string' &&
    isTokenText(access_token);
  if (!isToken) return notSent('invalid_answer', retryAfter);
  return {
    kind: 'granted',
    access_token,
    lifeS: lifeInSeconds(expires_in),
    scope: typeof scope === 'string' && scope.trim() !== '' ? scope.trim() : undefined,
  };
}

/** RFC 6750's b68token, widened to visible ASCII: what can stand in a header without meaning anything else (F61). */
function isTokenText(text: string): boolean {
  return text.length <= MAX_TOKEN_LENGTH && /^[\u0021-\u007e]+$/.test(text);
}

/** Seconds (decision 14): an integer or integer text; zero and negative are used once; anything else is 300; at most 3,600. */
export function lifeInSeconds(expires_in: Json | undefined): number {
  const text = expires_in instanceof OtherNumber ? expires_in.source : expires_in;
  if (typeof text !== 'string' && typeof text !== 'number') return DEFAULT_LIFE_S;
  if (!/^-?[0-9]+$/.test(String(text))) return DEFAULT_LIFE_S;
  return Math.max(0, Math.min(MAX_LIFE_S, Number(text)));
}

/** The longest wait that a Retry-After is obeyed for (F10). */
const MAX_RETRY_AFTER_MS = 15 * 60_000;

/**
 * Reads Retry-After: whole seconds, or an HTTP date against our wall clock. Returns milliseconds within [0, 15 min], or undefined
 * for anything that is neither (F09, F10).
 */
export function retryAfterMs(header: string | undefined, now: number): number | undefined {
  if (header === undefined) return undefined;
  const text = header.trim();
  if (/^[0-9]{1,15}$/.test(text)) return Math.min(MAX_RETRY_AFTER_MS, Number(text) * 1_000);
  if (!/^[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT$/.test(text))
    return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, Math.min(MAX_RETRY_AFTER_MS, at - now));
}
