/**
 * The tables of docs/reference/fields.md: takes operations of the route table, gives Markdown with every field of their requests and
 * answers, from the schemas that the servers check.
 */
import type { Route } from '@duebridge/contract';
import { FORMAT_WORDS, PATTERN_WORDS } from '../../packages/contract/src/pattern-words.ts';
import type { Schema } from '../fuzz/generate.ts';

/** One section for each operation: method, path, credential, then a table of what it takes and one of what it gives. */
export function fieldTables(routes: readonly Route[]): string {
  return routes
    .map((route, index) => {
      const earlier = routes.slice(0, index).find(({ reply }) => reply === route.reply);
      return section(route, earlier);
    })
    .join('\n');
}

function section(route: Route, sameAnswer: Route | undefined): string {
  const parts: readonly [string, Schema | undefined][] = [
    ['path', route.params],
    ['query', route.query],
    ['body', route.body],
  ];
  const taken = parts.flatMap(([name, schema]) => (schema ? rows(schema, `${name}.`) : []));
  const given = rows(route.reply, '');
  return [
    `## ${nameOf(route)}`,
    '',
    `\`${route.method} ${route.path}\`${route.scope ? `, scope \`${route.scope}\`` : ''} (${route.source})`,
    '',
    'Request:',
    '',
    ...table(taken),
    '',
    ...(sameAnswer
      ? [`Answer: as that of ${nameOf(sameAnswer)}.`]
      : ['Answer:', '', ...table(given)]),
    '',
  ].join('\n');
}

/** Get Account, of get_account. */
function nameOf({ id }: Route): string {
  return id.replaceAll(/(?:^|_)(\w)/g, (_, letter: string) => ` ${letter.toUpperCase()}`).trim();
}

function table(lines: readonly string[]): readonly string[] {
  return [
    '| field | type | required | limits | meaning |',
    '| --- | --- | --- | --- | --- |',
    ...lines,
  ];
}

/** A row for each field, and below it one for each field of an object. */
function rows(schema: Schema, prefix: string): readonly string[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const path = `${prefix}${name}`;
    const cells = [
      `\`${path}\``,
      typeOf(field),
      schema.required?.includes(name) ? 'yes' : 'no',
      limitsOf(field),
      meaningOf(field),
    ];
    const nested = field.properties ? field : (field.items ?? {});
    return [
      `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`,
      ...rows(nested, `${path}${field.items ? '[].' : '.'}`),
    ];
  });
}

function typeOf({ type, anyOf, enum: values, items }: Schema): string {
  if (values) return 'string';
  if (anyOf) return [...new Set(anyOf.map(typeOf))].join(' or ');
  if (items) return `array of ${typeOf(items)}`;
  return String(type ?? 'any');
}

function limitsOf({ const: only, anyOf, enum: choices, ...schema }: Schema): string {
  const values = only === undefined ? choices : [only];
  if (values) return values.map((value) => `\`${String(value)}\``).join(', ');
  if (anyOf) return anyOf.map(limitsOf).filter(Boolean).join(', ');
  const { minimum, maximum, minLength, maxLength, pattern, format } = schema;
  const words = [PATTERN_WORDS[pattern ?? ''], FORMAT_WORDS[format ?? '']];
  return [
    ...words.map((text) => text?.replace(/^must (?:be |(?=not ))/, '').replace(/^not be /, 'not ')),
    minimum === undefined ? undefined : `at least ${minimum}`,
    maximum === undefined ? undefined : `at most ${maximum}`,
    minLength !== undefined && minLength > 1 ? `at least ${minLength} characters` : undefined,
    maxLength === undefined ? undefined : `at most ${maxLength} characters`,
  ]
    .filter((text) => text !== undefined)
    .join(', ');
}

function meaningOf({ description, anyOf }: Schema): string {
  return description ?? anyOf?.find((part) => part.description)?.description ?? '';
}
