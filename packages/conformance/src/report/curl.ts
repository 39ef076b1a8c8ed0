/**
 * A curl command that repeats an exchange. Secrets appear as shell variables, so that the command can be pasted, mailed and kept.
 */
import type { Exchange } from '../check/http.ts';

/** Headers that curl sets itself. */
const OWN_HEADERS = new Set(['host', 'content-length']);

/** The curl command of an exchange. */
export function curl(exchange: Exchange): string {
  const parts = ['curl', '-i', '-X', exchange.method];
  for (const [name, value] of Object.entries(exchange.request_headers)) {
    if (!OWN_HEADERS.has(name.toLowerCase())) parts.push('-H', quote(`${name}: ${value}`));
  }
  if (exchange.request_body !== '') parts.push('--data-binary', quote(exchange.request_body));
  parts.push(quote(exchange.url));
  return parts.join(' ');
}

/** Quotes for a POSIX shell; `‹NAME›` becomes the variable of that name. */
function quote(text: string): string {
  const quoted = `'${text.replaceAll("'", `'\\''`)}'`;
  return quoted.replaceAll(/‹([A-Z_]+)›/g, `'"$$$1"'`).replaceAll(/^''|''$/g, '') || "''";
}
