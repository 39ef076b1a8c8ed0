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

/** The times before now that the address may name. */
export const PRESETS: Readonly<Record<string, readonly [words: string, ms: number]>> = {
  '15m': ['last 15 minutes', 900_000],
  '1h': ['last hour', 3_600_000],
  '24h': ['last 24 hours', DAY_MS],
  '7d': ['last 7 days', 7 * DAY_MS],
  '30d': ['last 30 days', 30 * DAY_MS],
};

/**
 * The filter in the form of the admin API. "yesterday", and a time before now, stay names in the address, because their dates change.
 */
export function filterOf(params: URLSearchParams): Record<string, string> {
  const {
    day,
    last,
    amount,
    payments_after: _,
    ...filter
  } = Object.fromEntries(params) as Record<string, string>;
  const before = PRESETS[last ?? '']?.[1];
  if (before !== undefined) filter['from'] = new Date(Date.now() - before).toISOString();
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
  last: 'time',
  from: 'from',
  to: 'to',
  sort: 'order',
};
