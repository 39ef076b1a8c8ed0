/**
 * Which addresses the platform may call: public ones only, unless private ones are admitted (PL14).
 *
 * The guard checks twice. It checks a URL after parsing, because 127.1, 2130706433, 0x7f.1 and full-width digits all become
 * 127.0.0.1 there and no name lookup follows. It checks every address that a name resolves to at connect time, and only checked
 * addresses are connected to, so that a name that changes between the check and the call cannot bypass it (F48).
 */
import type { LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';

/** What is wrong with a URL to call, or undefined. `allowPrivate` admits http and private addresses (decision 30). */
export function urlProblem(text: string, allowPrivate: boolean): string | undefined {
  if (!URL.canParse(text)) return 'must be a URL';
  const url = new URL(text);
  if (url.protocol !== 'https:' && !(allowPrivate && url.protocol === 'http:')) {
    return 'must begin with https://';
  }
  if (url.username !== '' || url.password !== '') return 'must not contain a user name or password';
  if (url.hash !== '' || text.includes('#')) return 'must have no fragment';
  if (allowPrivate) return undefined;
  if (literalAddress(url.hostname) !== undefined) return 'must name a host, not an address';
  // A trailing dot names the same host: `localhost.` is localhost.
  const name = url.hostname.replace(/\.$/, '');
  if (name === 'localhost' || name.endsWith('.localhost') || !name.includes('.')) {
    return 'must name a public host';
  }
  return isHostName(name) ? undefined : 'must name a host by letters, digits, dots and hyphens';
}

/** True for labels of letters, digits, hyphens and underscores: URL parsers let more through (`a;b`, `a,b`, `a..b`). */
export function isHostName(name: string): boolean {
  return /^[a-z0-9_-]+(\.[a-z0-9_-]+)*$/.test(name);
}

/** The address that a URL's hostname is, without brackets; undefined when it is a name. */
export function literalAddress(hostname: string): string | undefined {
  const bare = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
  return ipaddr.isValid(bare) ? bare : undefined;
}

/** All that is given out as global unicast (RFC 4291, IANA); what lies outside is special, tunnelled or unassigned. */
const GLOBAL_UNICAST = ipaddr.IPv6.parseCIDR('2000::/3');

/** True for an address of the public internet; false for anything private, special, tunnelled or unreadable. */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.parse(address);
  // Allow the one public prefix: a library's list of special ranges may be incomplete.
  if (parsed instanceof ipaddr.IPv6 && !parsed.match(GLOBAL_UNICAST)) return false;
  // Refuse all forms that embed an IPv4 address: a public peer does not need them.
  return parsed.range() === 'unicast';
}

/** A name's addresses were all refused. */
class AddressRefused extends Error {
  override readonly name = 'AddressRefused';
  readonly code = 'ADDRESS_REFUSED';
  constructor() {
    super('the host resolves to an address that may not be called');
  }
}

/** A `lookup` for net.connect that returns only public addresses, pinned for the connection about to be made. */
export function guardedLookup(lookup: LookupFunction): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, found) => {
      const addresses = typeof found === 'string' ? [] : found;
      const [first] = addresses;
      if (error !== null) callback(error, []);
      // One private address among public ones is an attack or a mistake: refuse the name as a whole.
      else if (first === undefined || !addresses.every(({ address }) => isPublicAddress(address))) {
        callback(new AddressRefused(), []);
      } else if (options.all === true) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}
