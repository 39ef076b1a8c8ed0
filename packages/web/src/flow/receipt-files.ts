/** The receipt as a self-contained file. */
import type { Row } from './screens.tsx';
import { escapeHtml } from './text.ts';

/** The receipt as one self-contained HTML file without scripts. */
export function receiptHtml(
  title: string,
  rows: readonly Row[],
  note: string,
  tag: string,
): string {
  const cells = rows.map(
    ([label, value]) => `<dt>${escapeHtml(label)}</dt><dd>${escapeHtml(value)}</dd>`,
  );
  return `<!doctype html><html lang="${tag}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>${escapeHtml(title)}</title>
<style>body{font:16px/1.5 sans-serif;margin:2rem}dt{color:#555}dd{overflow-wrap:anywhere}</style>
<h1>${escapeHtml(title)}</h1><dl>${cells.join('')}</dl><p>${escapeHtml(note)}</p></html>
`;
}

/** By then the browser has begun to save. */
const SAVED_MS = 60_000;

/**
 * Hands a text to the browser as a file. To Firefox and WebKit a download is a navigation of the frame it begins in: the `frame-src` of
 * a site that allows the platform alone would stop it. It begins in a frame of the page's own, to which the page's policy applies.
 */
export function saveFile(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  const frame = document.createElement('iframe');
  if (parent !== window) {
    frame.hidden = true;
    document.body.append(frame);
    frame.contentDocument?.body.append(link);
  }
  link.click();
  setTimeout(() => {
    URL.revokeObjectURL(url);
    frame.remove();
  }, SAVED_MS);
}
