/**
 * The address is the state: its path and query determine what is shown. A link therefore shows the same page to a colleague, and
 * Back works. Values that must not appear in an address (an e-mail address, an account id) are kept in the history's state
 * instead.
 */
import { computed, signal } from '@preact/signals';

const BASE = '/console';

const address = signal(location.pathname + location.search);
/** Filters of this history entry that identify a person, and must not appear in its address. */
export const personal = signal(personalOf(stateOf()));

/** The parts of the path below /console. */
export const parts = computed(() =>
  new URL(address.value, location.origin).pathname
    .slice(BASE.length)
    .split('/')
    .filter((part) => part !== '')
    .map(decodeURIComponent),
);
/** The query. */
export const query = computed(() => new URL(address.value, location.origin).searchParams);

function stateOf(): Readonly<Record<string, string>> {
  const state: unknown = history.state;
  return typeof state === 'object' && state !== null ? (state as Record<string, string>) : {};
}

function personalOf({
  account_id,
  email,
}: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return { ...(account_id && { account_id }), ...(email && { email }) };
}

addEventListener('popstate', () => {
  address.value = location.pathname + location.search;
  personal.value = personalOf(stateOf());
});

/** The address of a page: `link('payments', id)`. */
export function link(...path: readonly string[]): string {
  return [BASE, ...path.map(encodeURIComponent)].join('/');
}

/** Keeps a value with this history entry, where Back finds it again. */
export function keepHere(change: Readonly<Record<string, string>>): void {
  history.replaceState({ ...stateOf(), ...change }, '');
}

/** What was kept with this history entry. */
export const keptHere = (name: string): string | undefined => stateOf()[name];

/** Goes to an address of the console, with filters that identify a person or without. */
export function go(to: string, state: Readonly<Record<string, string>> = {}): void {
  if (to === address.value && JSON.stringify(state) === JSON.stringify(personal.value)) return;
  keepHere({ scroll: String(Math.round(scrollY)) });
  history.pushState(state, '', to);
  address.value = to;
  personal.value = state;
  scrollTo(0, 0);
}

/** The current address with other query fields; an empty field is removed. */
export function withQuery(change: Readonly<Record<string, string | undefined>>): string {
  const next = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(change)) {
    if (value === undefined || value === '') next.delete(name);
    else next.set(name, value);
  }
  const text = next.toString();
  return location.pathname + (text === '' ? '' : `?${text}`);
}

/** Follows links within the console without reloading the page. */
export function followLinks(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey) return;
  const anchor = event.target instanceof Element ? event.target.closest('a') : null;
  if (anchor === null || anchor.target !== '' || anchor.hasAttribute('download')) return;
  const url = new URL(anchor.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(BASE)) return;
  event.preventDefault();
  // Another filter or order of the same list leaves the person that it is narrowed to.
  go(url.pathname + url.search, url.pathname === location.pathname ? personal.value : {});
}
