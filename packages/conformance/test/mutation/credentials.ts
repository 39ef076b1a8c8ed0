/** The credentials of every mutant and of its judge. */
import type { ScriptedAuth } from '../../src/sandbox/running-partner.ts';

export const KEY = 'a-key-of-the-mutation';

export const CLIENT = { client_id: 'judge', client_secret: 'a secret of the mutation' };

export const AUTHS: Readonly<Record<'key' | 'oauth', ScriptedAuth>> = {
  key: { method: 'key', header: 'x-api-key', key: KEY },
  oauth: { method: 'oauth', ...CLIENT, expires_in: 6 },
};
