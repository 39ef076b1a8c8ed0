/**
 * The proxy between the judge and a server (decision 95): HTTPS_PROXY and NO_PROXY, as curl reads them. Only https goes through a
 * proxy, by CONNECT, so that the proxy carries bytes that it cannot read and what is judged is the server. A server on this machine
 * is always reached directly.
 */
import http from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import type { Clock } from '../clock.ts';
import { isLoopback, TargetProblem } from './target.ts';

/** Maximum wait for a proxy to open a tunnel: it looks the name up and connects first. */
const TUNNEL_TIMEOUT_MS = 5_000;

/** A proxy did not open a tunnel. `code` says why, such as PROXY_407 or ECONNREFUSED. */
export class TunnelProblem extends Error {
  /** Host and port of the proxy. */
  readonly place: string;
  readonly code: string;

  constructor(place: string, code: string) {
    super(`the proxy ${place} opened no tunnel (${code})`);
    this.name = 'TunnelProblem';
    this.place = place;
    this.code = code;
  }
}

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

/**
 * A connection to the host of `url` through its proxy, on which TLS has not begun; undefined when the address is reached directly.
 * Rejects with TunnelProblem.
 */
export function tunnelTo(url: URL, clock: Clock): Promise<Socket | undefined> {
  const proxy = proxyFor(url);
  if (proxy === undefined) return Promise.resolve(undefined);
  const authority = `${url.hostname}:${url.port || '443'}`;
  const place = placeOf(proxy);
  return new Promise((resolve, reject) => {
    const fail = (code: string): void => reject(new TunnelProblem(place, code));
    const request = (proxy.protocol === 'https:' ? https : http).request({
      host: proxy.hostname.replace(/^\[|\]$/g, ''),
      port: proxy.port || (proxy.protocol === 'https:' ? 443 : 80),
      method: 'CONNECT',
      path: authority,
      headers: { host: authority, ...credentialsOf(proxy) },
      agent: false,
    });
    const cancel = clock.after(TUNNEL_TIMEOUT_MS, () => {
      request.destroy();
      fail('ETIMEDOUT');
    });
    request.once('close', cancel);
    request.once('connect', (response, socket: Socket) => {
      cancel();
      if (response.statusCode === 200) {
        resolve(socket);
        return;
      }
      socket.destroy();
      fail(`PROXY_${response.statusCode ?? 0}`);
    });
    // Answered like an ordinary request: no proxy, or one that knows no CONNECT.
    request.once('response', (response) => {
      response.destroy();
      fail(`PROXY_${response.statusCode ?? 0}`);
    });
    request.once('error', (error: NodeJS.ErrnoException) => fail(error.code ?? 'UNKNOWN'));
    request.end();
  });
}

function credentialsOf(proxy: URL): Record<string, string> {
  if (proxy.username === '') return {};
  const pair = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  return { 'proxy-authorization': `Basic ${Buffer.from(pair).toString('base64')}` };
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
