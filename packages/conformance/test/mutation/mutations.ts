/**
 * Lists the mutations of a source: each changes one operator, constant, condition, statement, word or
 * field name. oxc parses JavaScript and TypeScript, Python's own parser parses Python.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseSync } from 'oxc-parser';

/** One change of a source. */
export interface Mutation {
  readonly start: number;
  readonly end: number;
  readonly text: string;
  /** Current line, for display. Lines move, so it does not identify the mutation. */
  readonly line: number;
  /** Identifies the mutation: the text of its line, the change, and a number if several are alike. */
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

/** Fields that are easily confused. */
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

/** Changes of SQL clauses, which decide as much as the code around them. */
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

/**
 * Changes of the SQL statements of the core, made wherever they match: a guard inverted or dropped; a lock, an ORDER BY or an
 * ON CONFLICT removed. None breaks the syntax: the database would reject it at once, which proves nothing.
 */
const STATEMENTS: readonly (readonly [RegExp, string])[] = [
  [/\bIS NOT DISTINCT FROM\b/g, 'IS DISTINCT FROM'],
  [/\bIS DISTINCT FROM\b/g, 'IS NOT DISTINCT FROM'],
  [/\bIS NOT NULL\b/g, 'IS NULL'],
  [/\bIS NULL\b/g, 'IS NOT NULL'],
  // Either of two conditions suffices; the second condition is dropped.
  [/\bAND\b/g, 'OR'],
  [/\bAND [^\n]+?(?=\n|$| AND | OR | GROUP | ORDER | RETURNING | FOR |\)$|\)\n)/g, ''],
  [/(?<=\b(?:WHERE|AND|OR|ON) [\w.]+ )=(?= )/g, '<>'],
  [/ <> /g, ' = '],
  [/ <= /g, ' < '],
  [/ >= /g, ' > '],
  [/ < /g, ' <= '],
  [/ > /g, ' >= '],
  [/ - /g, ' + '],
  [/ \+ /g, ' - '],
  [/\bmin\(/g, 'max('],
  [/\bmax\(/g, 'min('],
  [/\bgreatest\(/g, 'least('],
  [/\bleast\(/g, 'greatest('],
  [/\bON CONFLICT[^\n]* DO NOTHING/g, ''],
  [/\bFOR (?:NO KEY )?UPDATE(?: SKIP LOCKED)?/g, ''],
  [/\bORDER BY [^()\n]+?(?=\n|$|\)| LIMIT | FOR )/g, ''],
  [/\bDESC\b/g, ''],
  [/\bNOT EXISTS\b/g, 'EXISTS'],
  [/'processing'/g, `'succeeded'`],
  [/'succeeded'/g, `'failed'`],
  [/'failed'/g, `'canceled'`],
];

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

/**
 * Every mutation of a source, in source order. The extension of `file` decides the language. SQL in a peer is changed only in ways
 * in which partners go wrong (SQL); SQL in the core (`isCore`) in every way (STATEMENTS).
 */
export function mutations(file: string, source: string, isCore = false): readonly Mutation[] {
  const changes = [
    ...(file.endsWith('.py') ? pythonChanges(source) : scriptChanges(file, source, isCore)),
    ...(isCore ? [] : sqlChanges(source)),
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

/**
 * The places that must run for a change at `start` to matter. For code in a function, that is the place itself. Top-level code runs
 * whenever the file is loaded, so it matters where functions use the name that it defines. If no function of the file uses the name,
 * other files may, so all functions of the file count.
 */
export function sitesOf(file: string, source: string, start: number): readonly number[] {
  const top: { name: string; start: number; end: number }[] = [];
  const functions: { start: number; end: number }[] = [];
  const uses: { name: string; start: number }[] = [];
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) {
      for (const one of value) visit(one);
      return;
    }
    if (!isNode(value)) return;
    if (/Function/.test(value.type) && !value.type.startsWith('TS') && isNode(value['body'])) {
      functions.push({ start: value['body'].start, end: value['body'].end });
    }
    const { left, right } = value;
    if (value.type === 'LogicalExpression' && isNode(left) && isNode(right)) {
      if (left.end <= start && start < right.start) place = value.start;
    }
    if (value.type === 'Identifier') uses.push({ name: String(value['name']), start: value.start });
    for (const [name, inside] of Object.entries(value)) if (name !== 'parent') visit(inside);
  };
  // V8 counts an operator like `??` with its right side, which may never run although the operator does.
  let place = start;
  const { body } = parseSync(file, source).program;
  visit(body);
  for (const statement of body as unknown as readonly Node[]) {
    const declared = isNode(statement['declaration']) ? statement['declaration'] : statement;
    const { declarations } = declared;
    if (!Array.isArray(declarations)) continue;
    for (const one of declarations) {
      const id: unknown = isNode(one) ? one['id'] : undefined;
      if (!isNode(one) || !isNode(id)) continue;
      top.push({ name: String(id['name']), start: one.start, end: one.end });
    }
  }
  const isInside = (at: number, one: { start: number; end: number }): boolean =>
    one.start <= at && at < one.end;
  const isInFunction = (at: number): boolean => functions.some((one) => isInside(at, one));
  if (isInFunction(place)) return [place];
  const found = new Set<number>();
  const seen = new Set<string>();
  const follow = (at: number): void => {
    const name = top.find((one) => isInside(at, one))?.name;
    if (name === undefined || seen.has(name)) return;
    seen.add(name);
    for (const use of uses) {
      if (use.name !== name) continue;
      if (isInFunction(use.start)) found.add(use.start);
      else follow(use.start);
    }
  };
  follow(place);
  return found.size > 0 ? [...found] : functions.map((one) => one.start);
}

/** Applies one mutation to a source. */
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

/** The changes of a string literal that holds an SQL statement. */
function statementChanges({ type, start, end }: Node, source: string): Change[] {
  if (type !== 'TemplateLiteral' && type !== 'Literal') return [];
  const text = source.slice(start + 1, end - 1);
  if (!/^\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|DECLARE)\b/.test(text)) return [];
  // Comments and placeholders are replaced by spaces, which keeps all offsets.
  const code = text.replaceAll(/--[^\n]*|\$\{[^}]*\}/g, (out) => ' '.repeat(out.length));
  return STATEMENTS.flatMap(([pattern, replacement]) =>
    [...code.matchAll(pattern)]
      .filter(([was]) => was.split('(').length === was.split(')').length || was.endsWith('('))
      .map(({ index, 0: was }) => ({
        start: start + 1 + index,
        end: start + 1 + index + was.length,
        text: replacement,
      })),
  );
}

function scriptChanges(file: string, source: string, isCore: boolean): Change[] {
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
      // Types vanish at run time; expressions below `as` and `!` remain.
      visit(value['expression']);
      return;
    }
    const { callee, arguments: given } = value;
    if (isCore && isNode(callee) && callee['name'] === 'sql' && Array.isArray(given)) {
      // The first argument names a prepared statement; nothing depends on it.
      visit(given.slice(1));
      return;
    }
    const limits = isCore ? limitChanges(value) : [];
    for (const change of limits.length > 0 ? limits : changesOf(value, source)) {
      add(change, change.text);
    }
    if (isCore) found.push(...statementChanges(value, source));
    for (const [name, inside] of Object.entries(value)) if (name !== 'parent') visit(inside);
  };
  visit(parseSync(file, source).program);
  return found;
}

/** Numbers above this are limits or times, where one more changes nothing but a factor of ten is a plausible bug. */
const LIMIT = 100;

/** Multiplies a limit of the core by ten. */
function limitChanges({ type, start, end, value }: Node): Change[] {
  return type === 'Literal' && typeof value === 'number' && value > LIMIT
    ? [{ start, end, text: String(value * 10) }]
    : [];
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
      // Words that programs read: statuses, codes, names of fields and headers. Prose is left alone.
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

/** Runs Python's own parser, which reports the position of every node. */
function pythonChanges(source: string): Change[] {
  const script = join(import.meta.dirname, 'python-mutations.py');
  const ran = spawnSync('python3', [script], { input: source, encoding: 'utf8' });
  if (ran.status !== 0) throw new Error(`python3 could not parse the source: ${ran.stderr}`);
  return JSON.parse(ran.stdout) as Change[];
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}
