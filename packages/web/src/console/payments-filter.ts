/** The filters of the payments list: in the address, in words, as a command, and as views with a name. */
import type { FilterStatus } from '@duebridge/contract';
import { self } from './api.ts';

const DAY_MS = 86_400_000;

/** A UTC day in the form of the query. */
function day(offset: number): string {
  return new Date(Math.floor(Date.now() / DAY_MS) * DAY_MS + offset * DAY_MS)
    .toISOString()
    .slice(0, 10);
}

/** The views that everybody has: a name, and its filters as a query. */
export const views: readonly (readonly [string, string])[] = [
  ['Needs a human', 'status=needs_human'],
  ['Processing', 'status=processing'],
  ['Failed', 'status=failed'],
  ['Yesterday', 'day=yesterday'],
  ['All', ''],
];

/** The times before now that the address may name. */
export const PRESETS: Readonly<Record<string, readonly [words: string, ms: number]>> = {
  '15m': ['last 15 minutes', 900_000],
  '1h': ['last hour', 3_600_000],
  '24h': ['last 24 hours', DAY_MS],
  '7d': ['last 7 days', 7 * DAY_MS],
  '30d': ['last 30 days', 30 * DAY_MS],
};

/**
 * The filter in the form of the admin API. A named day such as "yesterday", and a time before now, stay names in the address, because
 * their dates change.
 */
export function filterOf(params: URLSearchParams): Record<string, string> {
  const {
    day: named,
    last,
    amount,
    ...filter
  } = Object.fromEntries(params) as Record<string, string>;
  const before = PRESETS[last ?? '']?.[1];
  if (before !== undefined) filter['from'] = new Date(Date.now() - before).toISOString();
  const date = named === 'yesterday' ? day(-1) : named === 'today' ? day(0) : named;
  if (date !== undefined) {
    filter['from'] = `${date}T00:00:00Z`;
    filter['to'] = new Date(Date.parse(filter['from']) + DAY_MS).toISOString();
  }
  const cents = amount === undefined ? undefined : toCents(amount);
  if (cents !== undefined) filter['amount_in_cents'] = cents;
  return filter;
}

/** Parses a dollar amount as people write it into cents. */
export function toCents(text: string): string | undefined {
  const match = /^\$?(\d{1,9})(?:\.(\d{2}))?$/.exec(text.trim().replaceAll(',', ''));
  return match === null ? undefined : String(Number(`${match[1]}${match[2] ?? '00'}`));
}

/** Where this browser keeps the views of the operator who is signed in. */
const viewsKey = (): string => `views of ${self.value?.operator_id}`;

/** The views that this person named. */
export function ownViews(): Record<string, string> {
  try {
    return JSON.parse(localStorage.getItem(viewsKey()) ?? '{}') as Record<string, string>;
  } catch {
    return {};
  }
}

/** Keeps a view under a name. */
export function keepView(name: string, search: string): void {
  localStorage.setItem(viewsKey(), JSON.stringify({ ...ownViews(), [name]: search }));
}

/** Options of the command that are not named as the field of the address. */
const OPTIONS: Readonly<Record<string, string>> = { partner_id: 'partner' };

/** The words of the command that lists the same payments. */
export function commandOf(params: URLSearchParams): readonly string[] {
  const words = [...params].flatMap(([name, value]) => {
    if (!(name in FILTERS)) return [];
    const option = `--${OPTIONS[name] ?? name}`;
    if (name === 'day') {
      const date = value === 'yesterday' ? day(-1) : value === 'today' ? day(0) : value;
      return ['--from', date, '--to', date];
    }
    if (name === 'last') {
      return ['--from', new Date(Date.now() - (PRESETS[value]?.[1] ?? 0)).toISOString()];
    }
    return [option, value];
  });
  return ['payments', ...words];
}

export const STATUSES: Readonly<Record<FilterStatus, string>> = {
  needs_human: 'needs a human',
  processing: 'processing',
  succeeded: 'succeeded',
  failed: 'failed',
  canceled: 'canceled',
  review: 'in review',
  paused: 'paused',
  overdue: 'not ended after a day',
  unsettled: 'funds not settled',
  case: 'with a case',
};

/** What the filters of the address are called. */
export const FILTERS: Readonly<Record<string, string>> = {
  id: 'id',
  status: 'status',
  partner_id: 'partner',
  amount: 'amount',
  day: 'day',
  last: 'time',
  from: 'from',
  to: 'to',
  sort: 'order',
};
