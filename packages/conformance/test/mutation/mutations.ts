/**
 * Mutations of a source: one operator, constant, condition, statement, word or field name changed at a
 * time. JavaScript and TypeScript are parsed by oxc, Python by its own parser.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseSync } from 'oxc-parser';

/** One change of a source. */
export interface Mutation {
  readonly start: number;
  readonly end: number;
  readonly text: string;
  /** Where it stands now; lines move, so nothing is known by it. */
  readonly line: number;
  /** The line that it changes, what into what, and which of several alike: by this it is known. */
  readonly name: string;
}

type Change = Pick<Mutation, 'start' | 'end' | 'text'>;

const OPERATORS: Readonly<Record<string, string>> = {
  '===': '!==',
  '!==': '===',
  '<': '<=',
  '>': '>=',
  '<=': '<',
  '>=': '>',
  '&&': '||',
  '||': '&&',
  '??': '&&',
  '+': '-',
  '-': '+',
};

/** Fields that are easily taken for each other. */
const FIELDS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    payment_id: 'platform_payment_id',
    platform_payment_id: 'payment_id',
    platform_batch_id: 'platform_payment_id',
    biller_id: 'account_id',
    account_id: 'biller_id',
    initiated_at: 'posted_at',
    posted_at: 'initiated_at',
    client_id: 'api_key',
  }),
);

/** Clauses of SQL: they are as much the server as its code. */
const SQL: readonly (readonly [string, string])[] = [
  ['ON CONFLICT DO NOTHING', ''],
  [" AND status = 'processing'", ''],
  ['amount_due_in_cents - ?', 'amount_due_in_cents + ?'],
  ['TEXT PRIMARY KEY', 'TEXT'],
  [
    'ON CONFLICT DO NOTHING',
    'ON CONFLICT DO UPDATE SET amount_in_cents = excluded.amount_in_cents',
  ],
  [
    'ON CONFLICT DO NOTHING',
    'ON CONFLICT DO UPDATE SET platform_batch_id = excluded.platform_batch_id',
  ],
  ['ON CONFLICT DO NOTHING', 'ON CONFLICT DO UPDATE SET initiated_at = excluded.initiated_at'],
  ['ON CONFLICT DO NOTHING', "ON CONFLICT DO UPDATE SET status = 'processing'"],
  ['platform_payment_id TEXT PRIMARY KEY', 'platform_payment_id TEXT COLLATE NOCASE PRIMARY KEY'],
  [' AND account_id = ?', " AND account_id >= ? AND status = 'active'"],
];

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

/** Every mutation of a source, in the order of its text. `file` tells the language by its end. */
export function mutations(file: string, source: string): readonly Mutation[] {
  const changes = [
    ...(file.endsWith('.py') ? pythonChanges(source) : scriptChanges(file, source)),
    ...sqlChanges(source),
  ];
  changes.sort((one, other) => one.start - other.start || one.end - other.end);
  const seen = new Map<string, number>();
  const lines = source.split('\n');
  return changes.map((change) => {
    const line = source.slice(0, change.start).split('\n').length;
    const was = short(source.slice(change.start, change.end));
    const alike = `${lines[line - 1]?.trim() ?? ''} | ${was} -> ${short(change.text) || 'nothing'}`;
    const count = (seen.get(alike) ?? 0) + 1;
    seen.set(alike, count);
    return { ...change, line, name: count === 1 ? alike : `${alike} (${count})` };
  });
}

/** The source with one mutation in it. */
export function mutated(source: string, { start, end, text }: Change): string {
  return source.slice(0, start) + text + source.slice(end);
}

function short(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim().slice(0, 60);
}

function sqlChanges(source: string): Change[] {
  return SQL.flatMap(([from, text]) => {
    const start = source.indexOf(from);
    return start < 0 ? [] : [{ start, end: start + from.length, text }];
  });
}

function scriptChanges(file: string, source: string): Change[] {
  const found: Change[] = [];
  const add = ({ start, end }: { start: number; end: number }, text: string): void => {
    found.push({ start, end, text });
  };
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) {
      for (const one of value) visit(one);
      return;
    }
    if (!isNode(value) || value.type.startsWith('Import') || value.type.startsWith('ExportAll')) {
      return;
    }
    if (value.type.startsWith('TS')) {
      // Types are not there when it runs; what stands below `as` and `!` is.
      visit(value['expression']);
      return;
    }
    for (const change of changesOf(value, source)) add(change, change.text);
    for (const [name, inside] of Object.entries(value)) if (name !== 'parent') visit(inside);
  };
  visit(parseSync(file, source).program);
  return found;
}

function changesOf(node: Node, source: string): Change[] {
  const { start, end, left, right, operator, test } = node;
  switch (node.type) {
    case 'BinaryExpression':
    case 'LogicalExpression': {
      const other = OPERATORS[String(operator)];
      if (!isNode(left) || !isNode(right) || other === undefined) return [];
      const at = source.slice(left.end, right.start).indexOf(String(operator));
      if (at < 0) return [];
      const from = left.end + at;
      return [{ start: from, end: from + String(operator).length, text: other }];
    }
    case 'Literal': {
      const value = node['value'];
      if (typeof value === 'number') return [{ start, end, text: String(value + 1) }];
      if (typeof value === 'boolean') return [{ start, end, text: String(!value) }];
      // Words that programs read: statuses, codes, names of fields and headers. Prose is for people.
      return typeof value === 'string' && /^[A-Za-z][A-Za-z_-]{2,}$/.test(value)
        ? [{ start, end, text: `'${value}x'` }]
        : [];
    }
    case 'UnaryExpression': {
      const argument = node['argument'];
      return operator === '!' && isNode(argument) ? [{ start, end: argument.start, text: '' }] : [];
    }
    case 'ExpressionStatement':
    case 'ThrowStatement':
      return [{ start, end, text: ';' }];
    case 'IfStatement':
    case 'ConditionalExpression':
      return isNode(test)
        ? ['true', 'false'].map((text) => ({ start: test.start, end: test.end, text }))
        : [];
    case 'MemberExpression': {
      const property = node['property'];
      const name = isNode(property) ? property['name'] : undefined;
      const other = typeof name === 'string' ? FIELDS.get(name) : undefined;
      return node['computed'] === true || other === undefined || !isNode(property)
        ? []
        : [{ start: property.start, end: property.end, text: other }];
    }
    default:
      return [];
  }
}

/** Asks Python itself, whose parser tells where everything stands. */
function pythonChanges(source: string): Change[] {
  const script = join(import.meta.dirname, 'python-mutations.py');
  const ran = spawnSync('python3', [script], { input: source, encoding: 'utf8' });
  if (ran.status !== 0) throw new Error(`python3 could not parse the source: ${ran.stderr}`);
  return JSON.parse(ran.stdout) as Change[];
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}
