/**
 * The proxy between the judge and a server (decision 95): HTTPS_PROXY and NO_PROXY, as curl reads them. Only https goes through a
 * proxy, by CONNECT, so that the proxy carries bytes that it cannot read and what is judged is the server. A server on this machine
 * is always reached directly.
 */
import { isLoopback, TargetProblem } from './target.ts';

/** The proxy for an address; undefined when it is reached directly. Throws TargetProblem when HTTPS_PROXY names none. */
export function proxyFor(url: URL, env: NodeJS.ProcessEnv = process.env): URL | undefined {
  const given = env['https_proxy'] || env['HTTPS_PROXY'];
  if (given === undefined || given === '') return undefined;
  if (url.protocol !== 'https:' || isLoopback(url.hostname) || isExempt(url, env)) return undefined;
  // As for curl, a host and a port without a scheme are a proxy that speaks plain http.
  const address = /^[a-z][a-z0-9+.-]*:\/\//i.test(given) ? given : `http://${given}`;
  const proxy = URL.canParse(address) ? new URL(address) : undefined;
  if (proxy === undefined || !['http:', 'https:'].includes(proxy.protocol)) {
    throw new TargetProblem(
      `HTTPS_PROXY is not the http or https URL of a proxy: fix it, or set NO_PROXY=${url.hostname} to go without.`,
    );
  }
  return proxy;
}

/** Host and port of a proxy, without its password. */
export function placeOf(proxy: URL): string {
  return `${proxy.hostname}:${proxy.port || (proxy.protocol === 'https:' ? '443' : '80')}`;
}

/** True when NO_PROXY names the host: itself, a domain above it, with or without a port, or all by `*`. */
function isExempt(url: URL, env: NodeJS.ProcessEnv): boolean {
  const host = url.hostname.replace(/^\[|\]$/g, '').toLowerCase();
  const port = url.port || '443';
  const entries = (env['no_proxy'] || env['NO_PROXY'] || '').toLowerCase().split(/[\s,]+/);
  return entries.some((entry) => {
    if (entry === '*') return true;
    const [, name = '', only] = /^\*?\.?\[?(.*?)\]?(?::(\d+))?$/.exec(entry) ?? [];
    if (name === '' || (only !== undefined && only !== port)) return false;
    return host === name || host.endsWith(`.${name}`);
  });
}
