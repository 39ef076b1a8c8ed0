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
  [4.1, 9_480],
  [3.6, 8_715],
  [4.4, 9_935],
  [5.2, 11_160],
  [5.9, 12_230],
  [5.0, 10_850],
] as const;
const PAID_SHOWN = 3;
/** Of the drawing of the use, in its own units. */
const BAR = { width: 34, step: 52, height: 90 };

/** The content of `<body>`. `now` tells the months. */
export function accountBody(page: AccountPage, now = new Date()): string {
  const { billerName, others } = page;
  const names = MONTHS.map((_, index) => monthBefore(now, MONTHS.length - index));
  const most = Math.max(...MONTHS.map(([used]) => used));
  const rows = MONTHS.map(
    ([, cents], index) =>
      `<tr><th scope="row">${names[index]}</th><td>${dollars(cents)}</td><td>Paid</td></tr>`,
  );
  const bars = MONTHS.map(([used], index) => {
    const [left, height] = [index * BAR.step, Math.round((used / most) * BAR.height)];
    return (
      `<rect x="${left}" y="${BAR.height - height}" width="${BAR.width}" height="${height}" rx="4"/>` +
      `<text x="${left + BAR.width / 2}" y="${BAR.height + 18}">${names[index]?.slice(0, 3)}</text>`
    );
  });
  const unit = /gas/i.test(billerName) ? 'cubic feet' : 'gallons';
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
          <table><tbody>${rows.slice(-PAID_SHOWN).toReversed().join('')}</tbody></table>
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

/** The second page: the ways to show the payment page, with the account that it pays. */
export function optionsBody(
  billerName: string,
  account: { readonly account_id: string } | undefined,
): string {
  const choose = (name: string, label: string, values: readonly string[]): string =>
    `<label>${label} <select id="${name}">${values
      .map((value) => `<option>${value}</option>`)
      .join('')}</select></label>`;
  return `${siteHeader(billerName)}<main>
    <h1>More ways to show it</h1>
    <section class="card controls" data-account="${escape(account?.account_id ?? '')}">
      ${choose('display', 'Display', ['inline', 'modal'])}
      ${choose('theme', 'Theme', ['auto', 'light', 'dark'])}
      ${choose('accent', 'Accent', ['default', '#7a1fa2', '#0a7d55', '#c2410c'])}
      ${choose('locale', 'Language', ['en-US', 'es-US'])}
      <button id="open" type="button">Open</button>
      <button id="close" type="button" class="plain">Close</button>
      <p id="message" role="status"></p>
    </section>
    <section class="stage" id="stage" aria-label="The payment page, inline"></section>
    <section class="log"><h2>What the SDK said</h2><ol id="log"></ol></section></main>${siteFooter(billerName)}`;
}

/** The head of each page of the site. */
const siteHeader = (billerName: string): string => `<header>
      <a class="brand" href="/"><svg viewBox="0 0 24 24" aria-hidden="true"><path d="M12 2c4 5 7 8.5 7 12.5a7 7 0 0 1-14 0C5 10.5 8 7 12 2z"/></svg>${escape(billerName)}</a>
      <nav aria-label="Pages"><a href="/">My account</a><a href="/options">More ways to show it</a></nav>
    </header>`;

/** Its foot. */
const siteFooter = (billerName: string): string =>
  `<footer>A demo. ${escape(billerName)} does not exist, and no money moves.</footer>`;

/** The name of the month that ended so many months ago. */
function monthBefore(now: Date, months: number): string {
  const at = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - months, 1));
  return new Intl.DateTimeFormat('en-US', { month: 'long', timeZone: 'UTC' }).format(at);
}

/** An amount as the customer reads it. */
export const dollars = (cents: number): string =>
  new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' }).format(cents / 100);

/** A text within HTML. */
export function escape(text: string): string {
  return text.replaceAll(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
