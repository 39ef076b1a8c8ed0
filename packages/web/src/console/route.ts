/**
 * The address is the state: its path and query determine what is shown. A link therefore shows the same page to a colleague, and
 * Back works. Values that must not appear in an address (an e-mail address, an account id) are kept in the history's state
 * instead, for the operator who entered them: the history outlives their session.
 */
import { computed, signal } from '@preact/signals';
import { self } from './api.ts';

const BASE = '/console';

const address = signal(location.pathname + location.search);
const entry = signal<unknown>(history.state);
/** Filters of this history entry that identify a person, and must not appear in its address. */
export const personal = computed((): Readonly<Record<string, string>> => {
  const { account_id, email } = stateOf(entry.value);
  return { ...(account_id && { account_id }), ...(email && { email }) };
});

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

/** What a history entry keeps for the operator who is signed in. */
function stateOf(state: unknown = history.state): Readonly<Record<string, string | undefined>> {
  const kept = typeof state === 'object' && state !== null ? (state as Record<string, string>) : {};
  return kept['operator_id'] === self.value?.operator_id ? kept : {};
}

addEventListener('popstate', () => {
  address.value = location.pathname + location.search;
  entry.value = history.state;
});

/** The address of a page: `link('payments', id)`. */
export function link(...path: readonly string[]): string {
  return [BASE, ...path.map(encodeURIComponent)].join('/');
}

/** What was kept with this history entry. */
export const keptHere = (name: string): string | undefined => stateOf()[name];

/** Goes to an address of the console, with filters that identify a person or without. */
export function go(to: string, state: Readonly<Record<string, string>> = {}): void {
  if (to === address.value && JSON.stringify(state) === JSON.stringify(personal.value)) return;
  const operator_id = self.value?.operator_id;
  // Back finds the place in this page again.
  const scroll = String(Math.round(scrollY));
  history.replaceState({ ...stateOf(), scroll, operator_id }, '');
  history.pushState({ ...state, operator_id }, '', to);
  address.value = to;
  entry.value = history.state;
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
