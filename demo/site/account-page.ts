/**
 * The account page of a biller as its customers know it: account.html with what it shows. server.ts serves it, and the pictures of the
 * payment page have it behind them. The bills before and the use are made up.
 */
import { readFileSync } from 'node:fs';

/** What the page shows. */
export interface AccountPage {
  readonly billerName: string;
  readonly account_id: string;
  readonly firstName: string;
  readonly name: string;
  readonly place: string;
  /** As the customer reads them. */
  readonly amount: string;
  readonly due: string;
  /** The accounts to sign in as, with their addresses. */
  readonly others: readonly {
    readonly about: string;
    readonly href: string;
    readonly isThis: boolean;
  }[];
}

/** The content of `<body>`. `now` tells the months. */
export function accountBody({ others, ...page }: AccountPage, now = new Date()): string {
  const values: Record<string, string> = {
    ...page,
    unit: /gas/i.test(page.billerName) ? 'Cubic feet' : 'Gallons',
  };
  for (const ago of [1, 2, 3, 4, 5, 6]) {
    const at = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - ago, 1);
    const month = new Intl.DateTimeFormat('en-US', { month: 'long', timeZone: 'UTC' }).format(at);
    values[`month${ago}`] = month;
    values[`short${ago}`] = month.slice(0, 3);
  }
  const list = others.map(
    ({ about, href, isThis }) =>
      `<li><a href="${escape(href)}"${isThis ? ' aria-current="page"' : ''}>${escape(about)}</a></li>`,
  );
  return readFileSync(new URL('account.html', import.meta.url), 'utf8').replaceAll(
    /\{\{(\w+)\}\}/g,
    (_, name: string) => (name === 'others' ? list.join('') : escape(values[name] ?? '')),
  );
}

/** A text within HTML. */
export function escape(text: string): string {
  return text.replaceAll(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
