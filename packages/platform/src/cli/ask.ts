import { askAdmin, type Terminal } from '@duebridge/runtime/cli';

/** One call of the platform's admin API; throws CommandError with a sentence for whatever does not succeed. */
export function ask<Reply>(
  terminal: Terminal,
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  body?: object,
): Promise<Reply> {
  return askAdmin<Reply>(terminal, { server: 'platform', defaultPort: 4001 }, method, path, body);
}
