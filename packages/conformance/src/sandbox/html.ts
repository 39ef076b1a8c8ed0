/** The small HTML helper of the sandbox pages: escaped by construction, under a strict content policy. */
import type http from 'node:http';
import type { Answer } from './behaviour.ts';

/** Trusted HTML; only `html` creates it. */
export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Part = Html | string | number | readonly Part[];

/** A template that escapes its values unless they are trusted HTML. */
export function html(strings: TemplateStringsArray, ...values: readonly Part[]): Html {
  const rest = values.map((value, index) => `${toText(value)}${strings[index + 1] ?? ''}`);
  return new Html(`${strings[0] ?? ''}${rest.join('')}`);
}

function toText(part: Part): string {
  if (part instanceof Html) return part.text;
  if (typeof part === 'object') return part.map(toText).join('');
  return escaped(String(part));
}

/** Text for HTML or XML, as content or in a quoted attribute. */
export function escaped(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

const STYLE = `
  :root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
  body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
  h1, h2 { font-weight: 600; } h2 { font-size: 1.1rem; margin-top: 2rem; }
  table { border-collapse: collapse; width: 100%; font-size: 0.87rem; }
  th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
  .number { text-align: right; font-variant-numeric: tabular-nums; }
  .acts { display: flex; gap: 0.5rem; flex-wrap: wrap; } button { font: inherit; padding: 0.2rem 0.8rem; }
  label { display: block; margin: 0.5rem 0; } input { font: inherit; padding: 0.2rem 0.4rem; } pre { overflow-x: auto; }
`;

/** A whole page: it loads nothing, runs no script, and cannot be framed. */
export function htmlAnswer(title: string, nonce: string, body: Html): Answer {
  const page = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>${title}</title>
        <style nonce="${nonce}">
          ${new Html(STYLE)}
        </style>
      </head>
      <body>
        <main>${body}</main>
      </body>
    </html>`;
  return {
    status: 200,
    headers: {
      'Content-Type': 'text/html; charset=utf-8',
      'Cache-Control': 'no-store',
      'Content-Security-Policy': `default-src 'none'; style-src 'nonce-${nonce}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'`,
      'Referrer-Policy': 'same-origin',
      'X-Content-Type-Options': 'nosniff',
    },
    body: page.text,
  };
}

/** True for a request sent by a page of another site: the developer's browser sends it, but the developer did not ask for it. */
export function isForeign(headers: http.IncomingHttpHeaders): boolean {
  const { origin, host } = headers;
  return origin !== undefined && origin !== `http://${host}`;
}
