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

/**
 * Changes of the statements of our own core, each at every place where it fits: a guard turned round or dropped, a lock, an order or a
 * conflict forgotten. What breaks the syntax is killed by the database at once and would prove nothing, so there is none of it.
 */
const STATEMENTS: readonly (readonly [RegExp, string])[] = [
  [/\bIS NOT DISTINCT FROM\b/g, 'IS DISTINCT FROM'],
  [/\bIS DISTINCT FROM\b/g, 'IS NOT DISTINCT FROM'],
  [/\bIS NOT NULL\b/g, 'IS NULL'],
  [/\bIS NULL\b/g, 'IS NOT NULL'],
  // Of two conditions one is enough, and one of them is forgotten.
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
 * Every mutation of a source, in the order of its text. `file` tells the language by its end. The statements of a peer are changed in
 * the few ways in which partners are wrong; those of the core (`isCore`) in every way.
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
 * The places that have to be run for a change at `start` to matter. For code in a function that is the place itself. What stands at
 * the top of a file runs when it is loaded, by every test: it matters where functions use the name that it belongs to. A name that no
 * function of the file uses may be used by any other file, so that the places are all of its functions.
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
  // An operator like `??` is counted with its right side, which may never be run, although both decide the result.
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

/** The changes of a text that is a statement. */
function statementChanges({ type, start, end }: Node, source: string): Change[] {
  if (type !== 'TemplateLiteral' && type !== 'Literal') return [];
  const text = source.slice(start + 1, end - 1);
  if (!/^\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b/.test(text)) return [];
  // Comments, and what is filled in, are blanked out, so that places stay where they are.
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
      // Types are not there when it runs; what stands below `as` and `!` is.
      visit(value['expression']);
      return;
    }
    const { callee, arguments: given } = value;
    if (isCore && isNode(callee) && callee['name'] === 'sql' && Array.isArray(given)) {
      // Its first argument is the name of a prepared statement, which nothing reads.
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

/** Above this a number is a limit or a time: one more changes nothing, and ten times as much is a bug that people make. */
const LIMIT = 100;

/** A limit of the core ten times as high. */
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
