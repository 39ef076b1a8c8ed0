/**
 * The page at /docs: the operations of an OpenAPI document as plain HTML without scripts, so that it works under the strictest content
 * policy (decision 33).
 */

interface Document {
  readonly info?: {
    readonly title?: string;
    readonly version?: string;
    readonly description?: string;
  };
  readonly paths?: Readonly<
    Record<string, Readonly<Record<string, { readonly summary?: string }>>>
  >;
}

/** Renders an OpenAPI document. Takes the document as served; returns a whole HTML page. */
export function docsPage({ info = {}, paths = {} }: Document): string {
  const rows = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(
      ([method, { summary }]) =>
        `<dt><code>${escape(method.toUpperCase())} ${escape(path)}</code></dt><dd>${escape(summary)}</dd>`,
    ),
  );
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(info.title)}</title>
<style>body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }</style>
<h1>${escape(info.title)} <small>${escape(info.version)}</small></h1>
<p>${escape(info.description)}</p>
<p>Parameters, bodies and errors are in <a href="openapi.json">openapi.json</a>.</p>
<main><dl>${rows.join('\n')}</dl></main>
</html>
`;
}

function escape(value = ''): string {
  return value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}
