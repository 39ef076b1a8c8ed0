/**
 * The page at /docs: the OpenAPI document as plain HTML without scripts, so that it works under the strictest content policy
 * (decision 33).
 */

/** Renders an OpenAPI document. Takes the document as served; returns a whole HTML page. */
export function docsPage(document: object): string {
  const info = inside(document, 'info');
  const paths = Object.entries(inside(document, 'paths')).flatMap(([path, methods]) =>
    Object.entries(record(methods)).map(([method, operation]) =>
      renderOperation(path, method, record(operation)),
    ),
  );
  const schemas = Object.entries(inside(inside(document, 'components'), 'schemas')).map(
    ([name, schema]) => `<details><summary>${escape(name)}</summary>${json(schema)}</details>`,
  );
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(info['title'])}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2733; background: #fff }
code, pre { font-family: ui-monospace, monospace; font-size: 0.875rem }
pre { background: #f3f5f8; padding: 0.75rem; overflow-x: auto; border-radius: 6px }
section { border-top: 1px solid #d5dbe3; margin-top: 1.5rem }
</style>
<h1>${escape(info['title'])} <small>${escape(info['version'])}</small></h1>
<p>${escape(info['description'])}</p>
<p><a href="openapi.json">openapi.json</a></p>
<main>${paths.join('\n')}</main>
${schemas.length > 0 ? `<h2>Schemas</h2>${schemas.join('\n')}` : ''}
</html>
`;
}

function renderOperation(
  path: string,
  method: string,
  operation: Readonly<Record<string, unknown>>,
): string {
  const parts = ['parameters', 'requestBody', 'responses', 'security']
    .filter((part) => operation[part] !== undefined)
    .map((part) => `<details><summary>${part}</summary>${json(operation[part])}</details>`);
  return `<section><h2><code>${escape(method.toUpperCase())} ${escape(path)}</code></h2>
<p>${escape(operation['summary'])}</p><p>${escape(operation['description'])}</p>${parts.join('\n')}</section>`;
}

function inside(value: object, name: string): Readonly<Record<string, unknown>> {
  return record(record(value)[name]);
}

function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}

function json(value: unknown): string {
  return `<pre>${escape(JSON.stringify(value, undefined, 2))}</pre>`;
}

function escape(value: unknown): string {
  return typeof value === 'string'
    ? value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')
    : '';
}
