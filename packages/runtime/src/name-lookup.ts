/**
 * Resolves host names without libuv's thread pool.
 *
 * enters: a host name from `net.connect`. leaves: its addresses, or an error within the deadline.
 * holds:  node's own `lookup` calls getaddrinfo in one of four threads that the whole process shares, so that a few names whose
 *         DNS servers are silent stop every other lookup, file and compression for as long as getaddrinfo waits. This one asks the
 *         DNS servers through sockets (c-ares): a name that hangs delays only those who asked for that name.
 *
 * /etc/hosts comes first, then DNS with the search domains of /etc/resolv.conf. Names that only other sources know (mDNS, NIS) do
 * not resolve.
 */
import type { LookupAddress } from 'node:dns';
import { Resolver } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import { isIP, type LookupFunction } from 'node:net';
import { callbackify } from 'node:util';
import { systemClock, type Clock } from './clock.ts';

/** A name that has not resolved by then fails; shorter than the 3 s in which a partner's connection must stand. */
const DEADLINE_MS = 2_500;
/** How long the addresses of one family wait for those of the other: some DNS servers ignore every question for IPv6 (RFC 4074). */
const OTHER_FAMILY_MS = 500;

/** What a test sets. */
export interface NameLookupOptions {
  /** DNS servers as `address:port`; default: those of the system. */
  readonly servers?: readonly string[];
  /** Default 2,500 ms. */
  readonly deadlineMs?: number;
  readonly clock?: Clock;
  /** What asks the DNS servers; default c-ares. */
  readonly newResolver?: () => NameResolver;
}

/** The part of `dns.promises.Resolver` that is used. */
export type NameResolver = Pick<Resolver, 'cancel'> & {
  resolve4(name: string): Promise<string[]>;
  resolve6(name: string): Promise<string[]>;
};

/**
 * A `lookup` for `net.connect` and everything built on it. Nothing is kept: a pool's connections last, and a failover by DNS is followed by
 * the next one. Its errors have the codes ENOTFOUND (there is no such name) and EAI_AGAIN (no usable answer in time).
 */
export function openNameLookup(options: NameLookupOptions = {}): LookupFunction {
  return (hostname, { all, family }, callback) => {
    const name = hostname.toLowerCase();
    callbackify(() => resolve(name, options))((error, found) => {
      const wanted = found?.filter((one) => !family || `${family}`.endsWith(`${one.family}`));
      const first = wanted?.[0];
      if (first === undefined) callback(error ?? failure('ENOTFOUND', name), '', 0);
      else if (all === true) callback(null, wanted ?? []);
      else callback(null, first.address, first.family);
    });
  };
}

async function resolve(name: string, options: NameLookupOptions): Promise<LookupAddress[]> {
  const written = hostsEntry(name.replace(/\.$/, ''));
  if (written.length > 0) return written;
  const { clock = systemClock, deadlineMs = DEADLINE_MS } = options;
  // One resolver for each question: it reads the current resolv.conf, and can be canceled by itself.
  const resolver = options.newResolver?.() ?? systemResolver(options.servers);
  const answered = new AbortController();
  const cancelIn = (ms: number) => clock.sleep(ms, answered.signal).then(() => resolver.cancel());
  void cancelIn(deadlineMs);
  try {
    const domains = name.endsWith('.') ? [] : searchDomains();
    for (const full of [name, ...domains.map((domain) => `${name}.${domain}`)]) {
      const asked = [resolver.resolve4(full), resolver.resolve6(full)];
      void Promise.any(asked)
        .then(() => cancelIn(OTHER_FAMILY_MS))
        .catch(() => undefined);
      const found = await answersOf(full, asked);
      if (found.length > 0) return found;
    }
  } finally {
    answered.abort();
  }
  throw failure('ENOTFOUND', name);
}

function systemResolver(servers: NameLookupOptions['servers']): Resolver {
  const resolver = new Resolver({ timeout: 1_000, tries: 3, maxTimeout: 1_000 });
  if (servers !== undefined) resolver.setServers(servers);
  return resolver;
}

/** The addresses of a name; none when DNS says that it has none. Throws EAI_AGAIN when DNS does not say. */
async function answersOf(name: string, asked: Promise<string[]>[]): Promise<LookupAddress[]> {
  const answers = await Promise.allSettled(asked);
  const found = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  if (found.length > 0) return found.map((address) => ({ address, family: isIP(address) }));
  const isUnknown = answers.every(
    (answer) =>
      answer.status === 'rejected' && ['ENOTFOUND', 'ENODATA'].includes(String(answer.reason.code)),
  );
  if (isUnknown) return [];
  throw failure('EAI_AGAIN', name);
}

/** The addresses that /etc/hosts gives a name; `localhost` and what ends in it is always this machine (RFC 6761). */
function hostsEntry(name: string): LookupAddress[] {
  const found = linesOf('/etc/hosts')
    .filter(([address = '', ...names]) => isIP(address) > 0 && names.includes(name))
    .map(([address = '']) => ({ address, family: isIP(address) }));
  if (found.length > 0 || !/(^|\.)localhost$/.test(name)) return found;
  return [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ];
}

function searchDomains(): readonly string[] {
  const last = linesOf('/etc/resolv.conf').findLast(([word]) => word === 'search');
  return (last ?? []).slice(1).map((domain) => domain.replace(/\.$/, ''));
}

/** The lines of a small system file as lower-case words, without comments; none when it cannot be read. */
function linesOf(file: string): string[][] {
  try {
    const text = readFileSync(file, 'utf8').replaceAll(/[#;].*/g, '');
    const lines = text.toLowerCase().split('\n');
    return lines.map((line) => line.trim().split(/\s+/));
  } catch {
    return [];
  }
}

function failure(code: 'ENOTFOUND' | 'EAI_AGAIN', name: string): NodeJS.ErrnoException {
  const what = code === 'ENOTFOUND' ? 'does not exist' : 'could not be resolved in time';
  return Object.assign(new Error(`the host name ${name} ${what}`), { code });
}
