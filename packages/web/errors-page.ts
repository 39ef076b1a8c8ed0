/**
 * docs/sdk-errors.md as a page that the platform serves: the developer tools of a test page link to it. Pure. The document is written in
 * the little of Markdown that this reads; anything else throws, so that no page shows raw marks.
 */

const STYLE =
  'body{font:1rem/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;color:#1b2430;background:#fff}h2{margin:2.5rem 0 .5rem;padding-top:.5rem}:target{background:#fff3c4}code{font-size:.95em}@media(prefers-color-scheme:dark){body{color:#e8ecf1;background:#14181f}:target{background:#4a3d00}}';

/** The page and its style, which the policy has to name. */
export function errorsPage(markdown: string): { readonly html: string; readonly style: string } {
  const body = markdown
    .trim()
    .split(/\n{2,}/)
    .map(block)
    .join('');
  const html = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="robots" content="noindex"><title>The errors of the SDK</title><style>${STYLE}</style><main>${body}</main></html>`;
  return { html, style: STYLE };
}

function block(text: string): string {
  const code = /^## `(\w+)`$/.exec(text)?.[1];
  if (code !== undefined) return `<h2 id="${code}"><code>${code}</code></h2>`;
  if (text.startsWith('# ')) return `<h1>${line(text.slice(2))}</h1>`;
  if (/^[#>|*+-]|^\d+\.|^```|^ /m.test(text)) throw new Error(`not a paragraph: ${text}`);
  return `<p>${line(text)}</p>`;
}

/** Code stays code; a link to another document stays as its words, because only this one is served. */
function line(text: string): string {
  const escaped = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
  const shown = escaped
    .replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1')
    .replaceAll(/`([^`]+)`/g, '<code>$1</code>');
  if (/[`*[\]]/.test(shown)) throw new Error(`a mark that is not read: ${text}`);
  return shown;
}
