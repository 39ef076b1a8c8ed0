/**
 * Sign-in to the console by OpenID Connect: the authorization code flow with PKCE, by the library openid-client (decision 38).
 *
 * enters: a browser that asks to sign in, then the provider's redirect.  leaves: a console session of the operator whose registered
 *         subject the ID token names; nobody else gets one.
 * holds:  state, nonce and verifier travel in a sealed cookie of ten minutes that only this listener reads; the provider is looked up
 *         at the first sign-in, so that its absence never keeps the platform from starting.
 */
import { Refusal } from '@duebridge/contract';
import { messageOf, openNameLookup } from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import * as oidc from 'openid-client';
import { Agent, fetch } from 'undici';
import type { Services } from '../services.ts';
import { cookiesOf, setCookie } from '../cookies.ts';
import { startSession } from './sign-in.ts';
import type { Operators } from './operators.ts';

/** The one provider of a deployment. */
export interface OpenIdProvider {
  /** Its issuer, such as https://login.example.com. */
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** The redirect URI: the console's address and /console/oidc/callback. */
  readonly redirectUrl: string;
}

/** Lax, because the provider's redirect comes from another site and must carry the cookie. */
const SIGN_IN = { name: 'duebridge_oidc', path: '/console/oidc', sameSite: 'Lax' } as const;
const SIGN_IN_PATH = 'console/oidc';
/** Maximum time that a person may take at the provider. */
const MAX_AGE_SECONDS = 600;

interface Pending {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

/** Mounts `/console/oidc/start` and `/console/oidc/callback`. */
export function mountOpenId(
  app: FastifyInstance,
  provider: OpenIdProvider,
  { operators, sealer, log }: Pick<Services, 'sealer' | 'log'> & { readonly operators: Operators },
): void {
  // A provider whose DNS is silent must not hold the threads of the process.
  const dispatcher = new Agent({ connect: { lookup: openNameLookup() } });
  const fetchProvider: oidc.CustomFetch = (url, request) =>
    // The same class in two declarations: that of undici and that of Node's types.
    fetch(url, {
      ...request,
      body: request.body ?? null,
      dispatcher,
    }) as Promise<unknown> as Promise<Response>;
  let found: Promise<oidc.Configuration> | undefined;
  const configuration = (): Promise<oidc.Configuration> => {
    const { issuer, clientId, clientSecret } = provider;
    // http is for a provider on this machine; the library refuses it otherwise, and so does the configuration.
    const execute = issuer.startsWith('http://') ? [oidc.allowInsecureRequests] : [];
    found ??= oidc
      .discovery(new URL(issuer), clientId, clientSecret, undefined, {
        execute,
        [oidc.customFetch]: fetchProvider,
      })
      .catch((error: unknown) => {
        found = undefined;
        log.error({ error: messageOf(error) }, 'the OpenID Connect provider cannot be reached');
        throw new Refusal('SERVICE_UNAVAILABLE', {
          message: 'The identity provider cannot be reached: sign in with a key, or try again',
          headers: { 'Retry-After': '10' },
        });
      });
    return found;
  };

  app.get('/console/oidc/start', async (request, reply) => {
    const config = await configuration();
    const pending: Pending = {
      state: oidc.randomState(),
      nonce: oidc.randomNonce(),
      verifier: oidc.randomPKCECodeVerifier(),
    };
    const url = oidc.buildAuthorizationUrl(config, {
      redirect_uri: provider.redirectUrl,
      scope: 'openid',
      state: pending.state,
      nonce: pending.nonce,
      code_challenge: await oidc.calculatePKCECodeChallenge(pending.verifier),
      code_challenge_method: 'S256',
    });
    const sealed = sealer.seal(JSON.stringify(pending), SIGN_IN_PATH);
    return reply
      .header('Set-Cookie', setCookie(request, SIGN_IN, sealed, MAX_AGE_SECONDS))
      .redirect(url.href);
  });

  app.get('/console/oidc/callback', async (request, reply) => {
    const cookie = cookiesOf(request).get(SIGN_IN.name);
    const clear = setCookie(request, SIGN_IN, '', 0);
    try {
      if (cookie === undefined) throw new Error('no sign-in is in progress');
      const pending = JSON.parse(sealer.open(cookie, SIGN_IN_PATH)) as Pending;
      const answered = new URL(provider.redirectUrl);
      answered.search = new URL(request.url, provider.redirectUrl).search;
      const tokens = await oidc.authorizationCodeGrant(await configuration(), answered, {
        expectedState: pending.state,
        expectedNonce: pending.nonce,
        pkceCodeVerifier: pending.verifier,
        idTokenExpected: true,
      });
      const oidc_subject = tokens.claims()?.sub;
      if (oidc_subject === undefined) throw new Error('the ID token names no subject');
      await startSession(operators, { oidc_subject }, reply);
    } catch (error) {
      // The reason is logged; the caller learns only that the sign-in failed.
      log.warn({ error: messageOf(error) }, 'an OpenID Connect sign-in was refused');
      return reply.header('Set-Cookie', clear).redirect('/console?refused');
    }
    return reply.header('Set-Cookie', clear).redirect('/console');
  });
}
