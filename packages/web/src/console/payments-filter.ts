/** The filters of the payments list: in the address, in words, and as views with a name. */
import type { FilterStatus } from '@duebridge/contract';

const DAY_MS = 86_400_000;

/** The views: a name, and its filters as a query. */
export const views: readonly (readonly [string, string])[] = [
  ['Needs a human', 'status=needs_human'],
  ['Processing', 'status=processing'],
  ['Failed', 'status=failed'],
  ['Yesterday', 'day=yesterday'],
  ['All', ''],
];

/**
 * The filter in the form of the admin API. "yesterday" stays a name in the address, because its date changes. A link of an earlier version may
 * name filters that are no more.
 */
export function filterOf(params: URLSearchParams): Record<string, string> {
  const known = [...params].filter(([name]) => name in FILTERS);
  const { day, amount, ...filter } = Object.fromEntries(known) as Record<string, string>;
  if (day !== undefined) {
    const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
    const start = day === 'yesterday' ? today - DAY_MS : Date.parse(`${day}T00:00:00Z`);
    filter['from'] = new Date(start).toISOString();
    filter['to'] = new Date(start + DAY_MS).toISOString();
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
  sort: 'order',
};
