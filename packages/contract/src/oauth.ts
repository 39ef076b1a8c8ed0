/**
 * OAuth 2.0 client credentials as the interface defines them (OA1-OA4, SC1). Errors of the token endpoint have the form of RFC
 * 6749, not that of the error catalogue (decision 5).
 */
import { Type, type Static } from 'typebox';
import { oneOf, optional, string } from './fields.ts';

/** Queries need read, Put Account Payment needs write (SC1). */
export const SCOPES = ['read', 'write'] as const;
export type Scope = (typeof SCOPES)[number];

/** Form fields of the token request (OA2). */
export const AccessTokenRequest = Type.Object({
  grant_type: string(),
  ...optional({
    client_id: string(),
    client_secret: string(),
    scope: string('Separated by spaces, such as "read write".'),
  }),
});
export type AccessTokenRequest = Static<typeof AccessTokenRequest>;

/** OA3; expires_in is seconds (decision 14). */
export const AccessTokenReply = Type.Object({
  access_token: string(),
  token_type: Type.Literal('Bearer'),
  expires_in: Type.Integer({ minimum: 1, description: 'Seconds (decision 14).' }),
  scope: string('The scopes granted.'),
});
export type AccessTokenReply = Static<typeof AccessTokenReply>;

/** Error codes of RFC 6749 section 5.2 that the endpoint uses. */
export const OAUTH_ERRORS = [
  'invalid_request',
  'invalid_client',
  'unsupported_grant_type',
  'invalid_scope',
] as const;
export type OAuthErrorCode = (typeof OAUTH_ERRORS)[number];

/** Error body of RFC 6749 section 5.2. */
export const OAuthErrorBody = Type.Object({
  error: oneOf(OAUTH_ERRORS),
  error_description: Type.Optional(string()),
});
