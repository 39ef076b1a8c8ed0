/** Statements of a search that are put together: their conditions, the orders of payments, and where a page continues (decision 215). */
import type { PaymentSort } from '@duebridge/contract';
import type { PaymentRow } from './payments.ts';

/** A payment as a search found it. */
export interface FoundPayment extends PaymentRow {
  /** Recorded calls to the partner; only in the order by attempts. */
  readonly calls?: number;
}

/** An order of payments: by a value and then by id, or by id alone. */
export interface Order {
  /** The column of the value. */
  readonly value?: string;
  readonly descending: boolean;
}

/** The orders by name. */
export const ORDERS: Readonly<Record<PaymentSort, Order>> = {
  newest: { descending: true },
  oldest: { descending: false },
  largest: { value: 'p.amount_in_cents', descending: true },
  smallest: { value: 'p.amount_in_cents', descending: false },
  attempts: { value: 'p.calls', descending: true },
};

/** Where the next page begins. Pure. */
export function cursorOf(sort: PaymentSort, row: FoundPayment): string {
  const { platform_payment_id } = row;
  switch (sort) {
    case 'newest':
    case 'oldest':
      return platform_payment_id;
    case 'largest':
    case 'smallest':
      return `${row.amount_in_cents}~${platform_payment_id}`;
    case 'attempts':
      return `${row.calls ?? 0}~${platform_payment_id}`;
  }
}

/** Whether a text has the form of this order's cursors. Pure. */
export function isCursor(sort: PaymentSort, text: string): boolean {
  const form = ORDERS[sort].value === undefined ? '' : '[0-9]{1,15}~';
  return new RegExp(`^${form}[A-Za-z0-9._-]{1,64}$`).test(text);
}

/** Continues after a cursor. */
export function addCursor(
  conditions: Conditions,
  { value, descending }: Order,
  cursor: string,
): void {
  const beyond = descending ? '<' : '>';
  if (value === undefined) {
    conditions.add(`p.platform_payment_id ${beyond} ?`, cursor);
    return;
  }
  const [number = '', id = ''] = cursor.split('~');
  conditions.add(`(${value}, p.platform_payment_id) ${beyond} (?::bigint, ?::text)`, number, id);
}

/** The text of ORDER BY. */
export function orderBy({ value, descending }: Order): string {
  const way = descending ? 'DESC' : 'ASC';
  return `${value === undefined ? '' : `${value} ${way}, `}p.platform_payment_id ${way}`;
}

/** The conditions of a statement that is put together, and its values. */
export class Conditions {
  readonly values: unknown[];
  readonly #texts: string[];

  constructor(from?: Conditions) {
    this.values = [...(from?.values ?? [])];
    this.#texts = [...(from === undefined ? [] : from.#texts)];
  }

  /** Each `?` stands for the next value. */
  add(condition: string, ...given: readonly unknown[]): void {
    this.#texts.push(this.placed(condition, ...given));
  }

  /** A text whose values are added, and which is no condition itself. */
  placed(text: string, ...given: readonly unknown[]): string {
    let out = text;
    for (const value of given) {
      this.values.push(value);
      out = out.replace('?', `$${this.values.length}`);
    }
    return out;
  }

  get where(): string {
    return whereOf(this.#texts);
  }

  /** Those that name a column, and those that do not: a counted column can only be compared outside the statement that counts. */
  whereOnly(column: string): string {
    return whereOf(this.#texts.filter((text) => text.includes(column)));
  }

  whereBut(column: string): string {
    return whereOf(this.#texts.filter((text) => !text.includes(column)));
  }
}

function whereOf(texts: readonly string[]): string {
  return texts.length === 0 ? '' : `WHERE ${texts.join(' AND ')}`;
}

/** A range of ids: at or after `from`, and before `before`. */
export interface IdRange {
  readonly from?: string | undefined;
  readonly before?: string | undefined;
}

/** Restricts a column of ids. */
export function addRange(conditions: Conditions, column: string, { from, before }: IdRange): void {
  if (from !== undefined) conditions.add(`${column} >= ?`, from);
  if (before !== undefined) conditions.add(`${column} < ?`, before);
}
