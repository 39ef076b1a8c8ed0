/**
 * A visit: a customer who comes with the whole tab, by a form that the partner's page posts, and goes back with a signed result
 * (display `redirect`, decision 115).
 *
 * enters: the form of a partner's page, and later the session of its customer.  leaves: a sealed visit, which a cookie of this one
 *         page keeps over reloads; then an address of the partner with a result that only this platform can have signed.
 * holds:  only registered origins send customers and get them back; the token is in no address; a result names the token it
 *         answers, so one customer's cannot be shown as another's; a payment without a known end is never told as failed (EE9).
 */
import crypto, {
  createPrivateKey,
  createPublicKey,
  hkdfSync,
  randomBytes,
  sign,
} from 'node:crypto';
import {
  invalidField,
  Refusal,
  type FlowResult,
  type FlowReturn,
  type FlowReturnRequest,
} from '@duebridge/contract';
import { v4 as uuidv4 } from 'uuid';
import { flowAsItStands, isPayable, lockFlow, type Session } from './flow.ts';
import type { Partner } from '../partners/registry.ts';
import { parsedJson } from '../plain-text.ts';
import type { Services } from '../services.ts';

/** How long a reload of the page finds its visit: as long as a session lives. */
export const VISIT_SECONDS = 3600;
/** How long a result is good for: a redirect takes seconds, a phone that was put away a few minutes. */
const RESULT_SECONDS = 600;
const MAX_URL = 2048;
/** Browsers drop a cookie of over 4,096 bytes, name and attributes among them, without a word. */
const MAX_SEALED = 3800;
/** The parameter in which the result comes back. */
const RESULT_PARAMETER = 'duebridge_result';
/** An Ed25519 private key in PKCS #8 is this prefix and its 32 bytes (RFC 8410). */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');

/** What the payment page has to know of its visit. */
export interface Visit {
  readonly token: string;
  /** The site that the customer came from: a registered origin, as the browser said. */
  readonly origin: string;
  readonly return_url: string;
  readonly locale: string;
  /** The site's appearance; the page checks what is in it. */
  readonly appearance: object;
}

export type Visits = ReturnType<typeof openVisits>;

/** `sealKeys` is the deployment's list of sealing keys, from which those of the results are derived: all replicas have the same. */
export function openVisits(
  services: Pick<Services, 'database' | 'registry' | 'sealer' | 'clock'>,
  sealKeys: string,
) {
  const { database, registry, sealer, clock } = services;
  const keys = sealKeys.split(',').map((key) => signingKey(Buffer.from(key, 'base64')));
  const [current] = keys;
  if (current === undefined) throw new Error('no sealing key');

  return {
    /**
     * Takes the form of a partner's page. Gives an id for the page's address, which opens nothing without the other value, in the cookie
     * of its name. Throws Refusal ORIGIN_NOT_ALLOWED, INVALID_REQUEST.
     */
    begin(partner: Partner, form: unknown, origin: string | undefined) {
      if (origin === undefined || !partner.origins.includes(origin)) {
        throw new Refusal('ORIGIN_NOT_ALLOWED');
      }
      const { token, return_url = '', locale = '', appearance: look = '{}' } = textsOf(form);
      if (token === undefined) throw invalidField('body.token', 'is required');
      checkReturnUrl(return_url, partner);
      const appearance = parsedJson(look);
      if (typeof appearance !== 'object' || appearance === null)
        throw invalidField('body.appearance', 'is not an object in JSON');
      const visit: Visit = { token, origin, return_url, locale, appearance };
      const id = randomBytes(12).toString('base64url');
      const sealed = sealer.seal(JSON.stringify(visit), placeOf(partner.partner_id, id));
      if (sealed.length > MAX_SEALED) throw invalidField('body', 'is too long');
      return { id, sealed };
    },

    /** The visit of an id and its cookie; undefined when one of them is missing, was altered or belongs elsewhere. */
    read(partner_id: string, id: string, sealed: string | undefined): Visit | undefined {
      try {
        if (sealed === undefined) return undefined;
        return JSON.parse(sealer.open(sealed, placeOf(partner_id, id))) as Visit;
      } catch {
        return undefined;
      }
    },

    /** The way back. Throws Refusal ORIGIN_NOT_ALLOWED, INVALID_REQUEST. */
    async leave(
      session: Session,
      { return_url, confirm_unanswered }: FlowReturnRequest,
    ): Promise<FlowReturn> {
      const partner = await registry.get(session.partner_id);
      if (partner === undefined) throw new Refusal('ORIGIN_NOT_ALLOWED');
      checkReturnUrl(return_url, partner);
      const now = Math.floor(clock.now() / 1000);
      const payment = await database.transaction(async (tx) => {
        // A confirm that is being written is waited for: "none" would be wrong a moment later.
        if (isPayable(session)) await lockFlow(tx, session);
        return (await flowAsItStands(tx, session)).standing;
      });
      const claims: FlowResult = {
        aud: partner.partner_id,
        iat: now,
        exp: now + RESULT_SECONDS,
        jti: uuidv4(),
        token_sha256: session.token_hash.toString('base64url'),
        status: payment?.status ?? (confirm_unanswered === true ? 'unknown' : 'none'),
        ...(payment && {
          platform_payment_id: payment.platform_payment_id,
          amount_in_cents: payment.amount_in_cents,
        }),
      };
      const url = new URL(return_url);
      // Appended as text: the partner's own query stays as it was written.
      url.search += `${url.search === '' ? '?' : '&'}${RESULT_PARAMETER}=${signed(claims, current)}`;
      return { location: url.href };
    },

    /** The public keys of the results, as a JWK set: the one that signs, and those of sealing keys that are being replaced. */
    keys: { keys: keys.map(({ jwk }) => jwk) },
  };
}

const placeOf = (partner_id: string, id: string): string => `visits/${partner_id}/${id}`;

/** The Ed25519 key that belongs to a sealing key. */
function signingKey(sealKey: Buffer) {
  const seed = Buffer.from(hkdfSync('sha256', sealKey, '', 'duebridge flow result', 32));
  const key = createPrivateKey({
    key: Buffer.concat([PKCS8_PREFIX, seed]),
    format: 'der',
    type: 'pkcs8',
  });
  const jwk = createPublicKey(key).export({ format: 'jwk' });
  // A public value of 32 bytes: its digest names it.
  const kid = crypto.hash('sha256', String(jwk.x), 'base64url').slice(0, 16);
  return { kid, key, jwk: { ...jwk, kid, alg: 'EdDSA', use: 'sig' } };
}

/** A JWT (RFC 7519, RFC 8037). */
function signed(claims: FlowResult, { kid, key }: ReturnType<typeof signingKey>): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const text = `${part({ alg: 'EdDSA', typ: 'JWT', kid })}.${part(claims)}`;
  return `${text}.${sign(null, Buffer.from(text), key).toString('base64url')}`;
}

function textsOf(form: unknown): Readonly<Record<string, string>> {
  const entries = Object.entries(form ?? {}) as [string, unknown][];
  return Object.fromEntries(
    entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  );
}

/** Throws Refusal for an address to which no customer may be sent. */
function checkReturnUrl(text: string, partner: Partner): void {
  const path = 'body.return_url';
  const url = text.length <= MAX_URL && URL.canParse(text) ? new URL(text) : undefined;
  // The origin of blob:https://site/… is that of the site too.
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw invalidField(path, 'is not an address');
  }
  if (!partner.origins.includes(url.origin)) throw new Refusal('ORIGIN_NOT_ALLOWED');
  if (url.username !== '' || url.password !== '') throw invalidField(path, 'holds a password');
  if (url.searchParams.has(RESULT_PARAMETER)) throw invalidField(path, 'holds a result already');
}
