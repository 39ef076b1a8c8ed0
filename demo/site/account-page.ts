/**
 * The account page of a biller as its customers know it: the bill with its button, the bills before, and the use. A function of what it
 * shows; server.ts serves it, and the pictures of the payment page have it behind them.
 */

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

/** Made-up months before this one: what was used, in thousands, and what it cost in cents. */
const MONTHS = [
  { used: 4.1, cents: 9_480 },
  { used: 3.6, cents: 8_715 },
  { used: 4.4, cents: 9_935 },
  { used: 5.2, cents: 11_160 },
  { used: 5.9, cents: 12_230 },
  { used: 5.0, cents: 10_850 },
] as const;
const PAID_SHOWN = 3;
/** Of the drawing of the use, in its own units. */
const BAR = { width: 34, step: 52, height: 90 };

/** The content of `<body>`. `now` tells the months. */
export function accountBody(page: AccountPage, now = new Date()): string {
  const { billerName, others } = page;
  const months = MONTHS.map((month, index) => ({
    ...month,
    name: monthBefore(now, MONTHS.length - index),
  }));
  const rows = months
    .slice(-PAID_SHOWN)
    .toReversed()
    .map(
      ({ name, cents }) =>
        `<tr><th scope="row">${name}</th><td>${dollars(cents)}</td><td>Paid</td></tr>`,
    );
  const most = Math.max(...MONTHS.map(({ used }) => used));
  const unit = /gas/i.test(billerName) ? 'cubic feet' : 'gallons';
  const bars = months.map(({ name, used }, index) => {
    const height = Math.round((used / most) * BAR.height);
    const left = index * BAR.step;
    return (
      `<rect x="${left}" y="${BAR.height - height}" width="${BAR.width}" height="${height}" rx="4"/>` +
      `<text x="${left + BAR.width / 2}" y="${BAR.height + 18}">${name.slice(0, 3)}</text>`
    );
  });
  const list = others.map(
    ({ about, href, isThis }) =>
      `<li><a href="${escape(href)}"${isThis ? ' aria-current="page"' : ''}>${escape(about)}</a></li>`,
  );
  return `${siteHeader(billerName)}
    <main>
      <h1>Hello, ${escape(page.firstName)}</h1>
      <section class="card" aria-labelledby="bill" data-account="${escape(page.account_id)}">
        <div>
          <h2 id="bill">Amount due</h2>
          <p class="amount" id="amount">${escape(page.amount)}</p>
          <p class="muted" id="due">${escape(page.due)}</p>
        </div>
        <button id="pay" type="button">Pay bill</button>
        <p id="message" role="status"></p>
      </section>
      <div class="pair">
        <section class="card plain" aria-labelledby="before">
          <h2 id="before">Bills before</h2>
          <table><tbody>${rows.join('')}</tbody></table>
        </section>
        <section class="card plain" aria-labelledby="use">
          <h2 id="use">Your use</h2>
          <svg viewBox="0 0 ${BAR.step * MONTHS.length} ${BAR.height + 24}" role="img" aria-label="Use in the last six months, at most ${most * 1_000} ${unit} a month">${bars.join('')}</svg>
          <p class="muted">${unit}, last six months</p>
        </section>
      </div>
      <section class="card facts" aria-label="Account">
        <p><span class="muted">Account</span> ${escape(page.account_id)}</p>
        <p><span class="muted">Name</span> ${escape(page.name)}</p>
        <p><span class="muted">Service at</span> ${escape(page.place)}</p>
      </section>
      ${others.length > 1 ? `<section><h2>Sign in as</h2><ul class="others">${list.join('')}</ul></section>` : ''}
      <section class="log"><h2>What the SDK said</h2><ol id="log"></ol></section>
    </main>
    ${siteFooter(billerName)}`;
}

/** The head of each page of the site. */
export const siteHeader = (billerName: string): string => `<header>
      <a class="brand" href="/"><svg viewBox="0 0 24 24" aria-hidden="true"><path d="M12 2c4 5 7 8.5 7 12.5a7 7 0 0 1-14 0C5 10.5 8 7 12 2z"/></svg>${escape(billerName)}</a>
      <nav aria-label="Pages"><a href="/">My account</a><a href="/options">More ways to show it</a></nav>
    </header>`;

/** Its foot. */
export const siteFooter = (billerName: string): string =>
  `<footer>A demo. ${escape(billerName)} does not exist, and no money moves.</footer>`;

/** The name of the month that ended so many months ago. */
function monthBefore(now: Date, months: number): string {
  const at = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - months, 1));
  return new Intl.DateTimeFormat('en-US', { month: 'long', timeZone: 'UTC' }).format(at);
}

const dollars = (cents: number): string =>
  new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' }).format(cents / 100);

/** A text within HTML. */
export function escape(text: string): string {
  return text.replaceAll(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
