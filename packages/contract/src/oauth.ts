/**
 * OAuth 2.0 client credentials as the interface defines them (OA1-OA4, SC1). Errors of the token endpoint have the form of RFC
 * 6749, not that of the error catalogue (decision 5).
 */
import { Type, type Static } from 'typebox';

/** Queries need read, Put Account Payment needs write (SC1). */
export const SCOPES = ['read', 'write'] as const;
export type Scope = (typeof SCOPES)[number];

/** Form fields of the token request (OA2). Client fields may come by HTTP Basic instead (RFC 6749). */
export const AccessTokenRequest = Type.Object({
  grant_type: Type.String(),
  client_id: Type.Optional(Type.String()),
  client_secret: Type.Optional(Type.String()),
  scope: Type.Optional(Type.String({ description: 'Separated by spaces, such as "read write".' })),
});
export type AccessTokenRequest = Static<typeof AccessTokenRequest>;

/** OA3; expires_in is seconds (decision 14). */
export const AccessTokenReply = Type.Object({
  access_token: Type.String(),
  token_type: Type.Literal('Bearer'),
  expires_in: Type.Integer({ minimum: 1, description: 'Seconds (decision 14).' }),
  scope: Type.String({ description: 'The scopes granted.' }),
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

/** Error body of RFC 6749 section 5.2; invalid_client is 401, the others are 400. */
export const OAuthErrorBody = Type.Object({
  error: Type.Enum([...OAUTH_ERRORS]),
  error_description: Type.Optional(Type.String()),
});
export type OAuthErrorBody = Static<typeof OAuthErrorBody>;
