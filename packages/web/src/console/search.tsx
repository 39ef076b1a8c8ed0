/**
 * The one search field, on every page. What is typed becomes suggestions: pages, views, and filters of the payments. What identifies a
 * person never enters the address.
 */
import type { PartnerView } from '@duebridge/contract';
import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { get, self } from './api.ts';
import { isViewer, money } from './parts.tsx';
import { FILTERS, STATUSES, toCents, views } from './payments-filter.ts';
import { go, link, parts, personal, query, withQuery } from './route.ts';

/** The pages: name, path, and whether they are of the platform's operators alone. */
const places: readonly (readonly [name: string, path: string, whose?: 'operators'])[] = [
  ['Overview', ''],
  ['Payments', 'payments'],
  ['Partners', 'partners', 'operators'],
  ['Batches', 'batches'],
  ['Reconciliation', 'reconciliation'],
  ['Money', 'money', 'operators'],
  ['Audit', 'audit', 'operators'],
];

/** The pages of whoever is signed in, each with its address. */
export const myPlaces = () =>
  places
    .filter(([, , whose]) => whose === undefined || self.value?.role !== 'partner')
    .map(([name, path]) => ({ name, path, to: path === '' ? link() : link(path) }));

interface Suggestion {
  readonly words: string;
  readonly to: string;
  /** Filters that stay out of the address; without it, none. */
  readonly personal?: Readonly<Record<string, string>>;
}

/** The partners that can be suggested, read when the field is used for the first time. */
const partners = signal<readonly PartnerView[]>([]);

/** The list of payments with one more filter, or with this one alone when another page is open. */
function filtered(change: Readonly<Record<string, string>>): string {
  const isList = parts.value[0] === 'payments' && parts.value.length === 1;
  if (isList) return withQuery({ ...change, payments_after: '' });
  return `${link('payments')}?${new URLSearchParams(change)}`;
}

/** What a text may mean, the likeliest first. */
function suggestionsFor(text: string): Suggestion[] {
  const wanted = text.toLowerCase();
  const named = (words: string): boolean => words.toLowerCase().includes(wanted);
  const filter = (words: string, change: Readonly<Record<string, string>>): Suggestion => ({
    words,
    to: filtered(change),
    personal: personal.value,
  });
  const cents = toCents(text);
  const all = views.map(([name, search]) => ({
    words: `View: ${name}`,
    to: link('payments') + (search === '' ? '' : `?${search}`),
  }));
  const pages = myPlaces().map(({ name, to }) => ({ words: name, to }));
  if (text === '') return [...all, ...pages];
  const person = (words: string, field: 'account_id' | 'email'): Suggestion[] =>
    isViewer() !== undefined
      ? []
      : [{ words, to: filtered({}), personal: { ...personal.value, [field]: text } }];
  return [
    ...(cents === undefined
      ? []
      : [filter(`Amount: ${money(Number(cents))}`, { amount: text.replace('$', '') })]),
    ...(/^\d{4}-\d{2}-\d{2}$/.test(text) ? [filter(`Day: ${text} (UTC)`, { day: text })] : []),
    ...(text.includes('@') ? person(`E-mail: ${text} (audited)`, 'email') : []),
    ...pages.filter(({ words }) => named(words)),
    ...partners.value
      .filter((one) => named(`${one.partner_id} ${one.name}`))
      .flatMap(({ partner_id }) => [
        { words: `Partner: ${partner_id}`, to: link('partners', partner_id) },
        filter(`Payments to ${partner_id}`, { partner_id }),
      ]),
    ...all.filter(({ words }) => named(words)),
    ...Object.entries(STATUSES)
      .filter(([, words]) => named(words))
      .map(([status, words]) => filter(`Status: ${words}`, { status })),
    filter(`Any id: ${text}`, { id: text }),
    ...person(`Account: ${text} (audited)`, 'account_id'),
  ];
}

export function Search() {
  const [typed, setTyped] = useState('');
  const found = suggestionsFor(typed.trim());
  const readPartners = (): void => {
    if (partners.value.length > 0 || self.value?.role === 'partner') return;
    get<{ partners: PartnerView[] }>('/partners').then(
      (reply) => (partners.value = reply.partners),
      // Without them the field suggests no partner; the next use tries again.
      () => undefined,
    );
  };
  const take = (place: Suggestion | undefined): void => {
    setTyped('');
    // On to what was chosen: without the focus the list is not shown any more (style.css).
    document.querySelector<HTMLElement>('#main')?.focus({ preventScroll: true });
    if (place !== undefined) go(place.to, place.personal);
  };
  return (
    <search onKeyDown={(event) => event.key === 'Escape' && take(undefined)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          take(found[0]);
        }}
      >
        <input
          id="search"
          type="search"
          aria-label="Search"
          placeholder="Id, account, e-mail, amount, partner, status, page"
          autocomplete="off"
          value={typed}
          onFocus={readPartners}
          onInput={({ currentTarget }) => setTyped(currentTarget.value)}
        />
      </form>
      {/* Enter takes the first, Tab leads to the others, Escape leaves them all. */}
      <ul aria-label="Suggestions">
        {found.map((place) => (
          <li key={place.words}>
            {/* Safari gives a pressed button no focus: the field keeps it, or the list would go before the click. */}
            <button
              type="button"
              onMouseDown={(event) => event.preventDefault()}
              onClick={() => take(place)}
            >
              {place.words}
            </button>
          </li>
        ))}
      </ul>
    </search>
  );
}

/** Every filter that is on, each can be removed; those of a person too, which the address does not have. */
export function Chips() {
  const on = [...query.value].filter(([name]) => name in FILTERS);
  const hidden = Object.entries(personal.value);
  if (on.length + hidden.length === 0) return null;
  const without = (name: string): Readonly<Record<string, string>> =>
    Object.fromEntries(hidden.filter(([one]) => one !== name));
  return (
    <ul class="chips" aria-label="Filters that are on">
      {[...on, ...hidden].map(([name, value]) => (
        <li key={name}>
          <button
            type="button"
            title="Remove this filter"
            onClick={() => go(withQuery({ [name]: '', payments_after: '' }), without(name))}
          >
            {FILTERS[name] ?? name}: {value} <span aria-hidden="true">×</span>
          </button>
        </li>
      ))}
    </ul>
  );
}
