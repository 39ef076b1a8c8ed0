/** The little of oidc-provider that the tests use; the package brings no types of its own. */
declare module 'oidc-provider' {
  import type { RequestListener } from 'node:http';

  export class Provider {
    constructor(issuer: string, configuration: object);
    callback(): RequestListener;
    readonly ClientCredentials: { find(token: string): Promise<object | undefined> };
  }
}
