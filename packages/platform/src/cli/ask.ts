import { askAdmin, readAdmin, type Terminal } from '@duebridge/runtime/cli';

const target = { server: 'platform', defaultPort: 4001 } as const;

/**
 * One call of the platform's admin API; throws CommandError with one sentence for anything but success. A text body is sent as a
 * CSV file.
 */
export function ask<Reply>(
  terminal: Terminal,
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  body?: object | string,
): Promise<Reply> {
  return askAdmin<Reply>(terminal, target, method, path, body);
}

/** A streamed answer, chunk by chunk. */
export function stream(terminal: Terminal, path: string): AsyncGenerator<string> {
  return readAdmin(terminal, target, path);
}

/** A path of the admin API; each value becomes one segment. */
export function adminPath(strings: TemplateStringsArray, ...values: readonly string[]): string {
  const rest = strings
    .slice(1)
    .map((text, index) => encodeURIComponent(values[index] ?? '') + text);
  return `/admin/v1/${strings[0] ?? ''}${rest.join('')}`;
}
