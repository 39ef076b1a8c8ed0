/**
 * Commands made from the table of an admin API.
 *
 * enters: a line of a command table (its words, its operation, how the answer is printed), and what the user typed.
 * leaves: one request, and its answer printed for people, or unchanged with `--json`.
 * holds:  the operation's schemas become arguments, options and choices, so that a new field needs no code here. Everything that is
 *         missing is named in one sentence.
 */
import { fillPath, pathFields, type Route, type RouteReply } from '@duebridge/contract';
import { Option, type Command } from 'commander';
import { CommandError, ConfigurationError, exitCodes } from '../errors.ts';
import { askAdmin, readAdmin, type AdminTarget } from './admin-client.ts';
import { jsonOption, print } from './print.ts';
import { readBytes, readTextFile, secretOption, type Terminal } from './terminal.ts';

/** How a field is written at a terminal, where its name and its schema do not say. */
export interface FieldWords {
  /** As commander writes them; default: the field's name, such as `--base-url <url>`, `<file>` for a file and `<n>` for a number. */
  readonly flags?: string;
  /** Default: the description of the schema. */
  readonly help?: string;
  /** What people write, as the value of the wire. Throws CommandError. */
  readonly parse?: (text: string) => unknown;
  /** A secret: `-` reads it from standard input; not given, it is taken from this environment variable. */
  readonly secretIn?: string;
  /** The partner's server reads the same variable, which holds "new,old" while one secret replaces another. One is meant here. */
  readonly rotates?: true;
  /** The option names a file that holds the value, as text or to be sent in base64. */
  readonly file?: 'text' | 'base64';
}
export type Words = Readonly<Record<string, FieldWords>>;

/** What a command of its own way is given. */
export interface CommandRun {
  readonly terminal: Terminal;
  readonly request: Awaited<ReturnType<typeof readRequest>>;
  /** As commander read them. */
  readonly options: Readonly<Record<string, unknown>> & { readonly json?: true };
  /** The arguments, in their order. */
  readonly values: readonly string[];
  /** Calls any operation. Throws CommandError. */
  readonly ask: <Reply>(
    method: Route['method'],
    path: string,
    body?: object | string,
  ) => Promise<Reply>;
}

/** A line of a command table. */
export interface CommandLine {
  /** Such as `payment pause`. */
  readonly words: string;
  readonly route: Route;
  /** Default: the summary of the operation. */
  readonly help?: string;
  /** Fields that are arguments; default: those of the path. */
  readonly args?: readonly string[];
  readonly fields?: Words;
  /** Fields of the body that the command sets itself. */
  readonly fixed?: Readonly<Record<string, unknown>>;
  /** Fields as they are sent when the user says nothing. */
  readonly defaults?: Readonly<Record<string, unknown>>;
  /** Fields that this command does not offer. */
  readonly without?: readonly string[];
  /** Options that are no fields. */
  readonly options?: readonly Option[];
  readonly show: (answer: never) => string;
  /** Instead of asking once and printing. */
  readonly run?: (run: CommandRun) => Promise<void>;
}

/** Makes a line whose `show` is typed by the operation. */
export function line<const R extends Route>(
  words: string,
  route: R,
  show: (answer: RouteReply<R>) => string,
  rest: Omit<CommandLine, 'words' | 'route' | 'show'> = {},
): CommandLine {
  return { words, route, show, ...rest };
}

/** What commands of one admin API share. */
export interface CommandTable {
  readonly lines: readonly CommandLine[];
  readonly words: Words;
  /** Descriptions of the groups that are no commands themselves. */
  readonly groups: Readonly<Record<string, string>>;
  readonly target: AdminTarget;
}

/** Adds the commands of a table. */
export function addCommands(parent: Command, table: CommandTable, terminal: Terminal): void {
  for (const each of table.lines) {
    let command = parent;
    const path: string[] = [];
    for (const word of each.words.split(' ')) {
      path.push(word);
      const known = command.commands.find((one) => one.name() === word);
      // Options after the name of a command in a group belong to that command.
      command = known ?? command.command(word).enablePositionalOptions();
      if (known === undefined) command.description(table.groups[path.join(' ')] ?? '');
    }
    addLine(command, each, table, terminal);
  }
}

// Schemas, as far as commands need them ----------------------------------------------------------------------------------------

interface Schema {
  readonly type?: string;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly patternProperties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly enum?: readonly string[];
  readonly const?: string;
  readonly anyOf?: readonly Schema[];
  readonly minimum?: number;
  readonly maximum?: number;
}

interface Field {
  readonly name: string;
  readonly schema: Schema;
  readonly isRequired: boolean;
}

/** Without `null`; the one alternative that is left stands for the whole. */
function plain(schema: Schema): Schema {
  const rest = schema.anyOf?.filter(({ type }) => type !== 'null');
  return rest?.length === 1 && rest[0] !== undefined ? rest[0] : schema;
}

function isNullable({ anyOf = [] }: Schema): boolean {
  return anyOf.some(({ type }) => type === 'null');
}

function fieldsOf(schema: Schema | undefined): Field[] {
  return Object.entries(schema?.properties ?? {}).map(([name, one]) => ({
    name,
    schema: one,
    isRequired: schema?.required?.includes(name) === true,
  }));
}

/** The field that tells the alternatives of a union apart, with all its values; undefined for anything else. */
function discriminator({ anyOf = [] }: Schema): Field | undefined {
  const key = fieldsOf(anyOf[0]).find((field) => field.schema.const !== undefined)?.name;
  if (key === undefined) return undefined;
  const words = anyOf.map((one) => one.properties?.[key]?.const ?? '');
  return { name: key, schema: { enum: words }, isRequired: true };
}

/** The fields that a user writes: those of nested objects and of every alternative of a union, each name once. */
function leavesOf(fields: readonly Field[]): Field[] {
  const leaves = fields.flatMap((field) => {
    const schema = plain(field.schema);
    const key = discriminator(schema);
    // What an alternative or an optional object requires is required only with that one.
    const nested =
      key === undefined
        ? fieldsOf(schema)
        : [key, ...(schema.anyOf ?? []).flatMap(fieldsOf).map((one) => optional(one))];
    if (nested.length === 0) return [field];
    return leavesOf(field.isRequired ? nested : nested.map(optional));
  });
  return leaves.filter((one, at) => leaves.findIndex(({ name }) => name === one.name) === at);
}

const optional = (field: Field): Field => ({ ...field, isRequired: false });

const bodyOf = (route: Route): Schema | undefined => route.body;
const leavesOfRoute = (route: Route): Field[] =>
  leavesOf([route.params, route.query, bodyOf(route)].flatMap(fieldsOf));

// One command --------------------------------------------------------------------------------------------------------------------

function addLine(
  command: Command,
  each: CommandLine,
  table: CommandTable,
  terminal: Terminal,
): void {
  const { route, without = [], defaults = {} } = each;
  const args = each.args ?? pathFields(route.path);
  const wordsOf = (name: string): FieldWords => ({ ...table.words[name], ...each.fields?.[name] });
  const own = leavesOfRoute(route).filter(
    ({ name }) => !without.includes(name) && !args.includes(name),
  );
  command.description(each.help ?? sentencePart(route.summary));
  for (const name of args) command.argument(`[${name}]`, each.fields?.[name]?.help ?? '');
  const options = new Map(own.map((leaf) => [leaf.name, optionOf(leaf, wordsOf(leaf.name))]));
  for (const option of options.values()) command.addOption(option);
  for (const option of each.options ?? []) command.addOption(option);
  command.addOption(jsonOption());
  const needed = own.filter(({ name, isRequired }) => isRequired && !(name in defaults));
  command.usage(
    [
      ...args.map((name) => `<${name}>`),
      ...needed.map(({ name }) => options.get(name)?.flags),
      '[options]',
    ].join(' '),
  );

  command.action(async (...given: unknown[]) => {
    const typed = command.opts<Record<string, unknown>>();
    // Commander appends the options and the command.
    const values = given.slice(0, -2).flat() as (string | undefined)[];
    const byName = new Map<string, unknown>(args.map((name, index) => [name, values[index]]));
    for (const [name, option] of options) byName.set(name, typed[option.attributeName()]);
    const flagOf = (name: string): string => options.get(name)?.long ?? `<${name}>`;
    const request = await readRequest(
      { line: each, typed: byName, wordsOf, flagOf, terminal },
      command,
    );
    const { json } = command.optsWithGlobals<{ json?: true }>();
    const asJson = json === true ? { json } : {};
    const ask = <Reply>(method: Route['method'], path: string, body?: object | string) =>
      askAdmin<Reply>(terminal, table.target, method, path, body);
    if (each.run !== undefined) {
      const texts = values.filter((value) => value !== undefined);
      await each.run({ terminal, request, options: { ...typed, ...asJson }, values: texts, ask });
      return;
    }
    // A file is written as it comes.
    if (route.replyType === 'text/csv') {
      for await (const text of readAdmin(terminal, table.target, request.path))
        terminal.write(text);
      return;
    }
    const answer = await ask<never>(request.method, request.path, request.body);
    print(terminal, asJson, answer, () => each.show(answer));
  });
}

/** `Pause a payment (decision 61).` as part of a sentence: `pause a payment`. */
function sentencePart(text: string): string {
  return text
    .replaceAll(/ \(decisions? [\d, and]+\)/g, '')
    .replace(/\.$/, '')
    .replace(/^[A-Z](?=[a-z])/, (first) => first.toLowerCase());
}

function optionOf({ name, schema }: Field, words: FieldWords): Option {
  const shape = plain(schema);
  const flag = `--${name.replaceAll('_', '-')}`;
  const isNumber = shape.type === 'integer';
  const value = words.file ? 'file' : isNumber ? 'n' : name.split('_').at(-1);
  const isFlag = shape.type === 'boolean' || shape.const !== undefined;
  const isMany = shape.type === 'array' || shape.patternProperties !== undefined;
  const flags = words.flags ?? (isFlag ? flag : `${flag} <${value}${isMany ? '...' : ''}>`);
  const help = [words.help ?? sentencePart(schema.description ?? shape.description ?? '')];
  if (isNullable(schema) && !isFlag && !isMany) help.push('"" for none');
  if (words.secretIn) help.push(`- reads it from standard input; else ${words.secretIn}`);
  const option = new Option(flags, help.filter((part) => part !== '').join('; '));
  if (shape.enum !== undefined) option.choices(shape.enum);
  return option;
}

/** What was typed for a line. */
interface Typed {
  readonly line: CommandLine;
  /** By the names of the fields. */
  readonly typed: ReadonlyMap<string, unknown>;
  readonly wordsOf: (name: string) => FieldWords;
  readonly flagOf: (name: string) => string;
  readonly terminal: Terminal;
}

/** Reads what was typed into the fields of a request. Throws CommandError for what is missing, wrong, or does not belong together. */
async function readRequest(given: Typed, command: Command) {
  const { line: each, typed, wordsOf, flagOf } = given;
  const { route, defaults = {}, without = [] } = each;
  const missing: string[] = [];
  const read = new Set<string>();

  const fieldsIn = async (schema: Schema | undefined, known = {}): Promise<object> => {
    const values: Record<string, unknown> = { ...known };
    for (const field of fieldsOf(schema)) {
      if (field.name in known) continue;
      const value = await valueOf(field);
      if (value !== undefined) values[field.name] = value;
    }
    return values;
  };
  const valueOf = async (field: Field): Promise<unknown> => {
    const { name, schema, isRequired } = field;
    if (without.includes(name)) return undefined;
    const shape = plain(schema);
    const key = discriminator(shape);
    if (key !== undefined || shape.properties !== undefined) {
      const isGiven = leavesOf([field]).some((one) => typed.get(one.name) !== undefined);
      if (!isGiven && !isRequired) return undefined;
      if (key === undefined) return fieldsIn(shape);
      const word = await valueOf(key);
      const chosen = shape.anyOf?.find((one) => one.properties?.[key.name]?.const === word);
      return fieldsIn(chosen, { [key.name]: word });
    }
    read.add(name);
    const leaf = await readLeaf(given, field);
    // null is a value: it removes what is there.
    const value = leaf === undefined ? defaults[name] : leaf;
    if (value === undefined && isRequired) {
      const { secretIn } = wordsOf(name);
      missing.push(flagOf(name) + (secretIn === undefined ? '' : `, or ${secretIn}`));
    }
    return value;
  };

  const params = await fieldsIn(route.params);
  const query = await fieldsIn(route.query);
  const schema = bodyOf(route);
  const body = schema?.properties && { ...each.fixed, ...(await fieldsIn(schema)) };
  const more = `${pathOf(command)} --help says more`;
  if (missing.length > 0) throw misused(`give ${listed(missing)}; ${more}`);
  const extra = [...typed].filter(([name, value]) => value !== undefined && !read.has(name));
  if (extra.length > 0) {
    throw misused(`${listed(extra.map(([name]) => flagOf(name)))} cannot be given here; ${more}`);
  }
  const search = new URLSearchParams(query as Record<string, string>).toString();
  try {
    const path = fillPath(route.path, params as Record<string, string>);
    const { method } = route;
    return { method, path: search === '' ? path : `${path}?${search}`, body };
  } catch {
    throw misused(`none of ${listed(Object.keys(params))} may be empty, "." or ".."`);
  }
}

/** What was typed for one field, as the value of the wire. */
async function readLeaf(
  { typed: all, wordsOf, flagOf, terminal }: Typed,
  { name, schema }: Field,
): Promise<unknown> {
  const typed = all.get(name);
  const { parse, secretIn, rotates, file } = wordsOf(name);
  const shape = plain(schema);
  if (typed === '' && isNullable(schema)) return null;
  if (secretIn !== undefined) {
    const value = await secretOption(terminal, typed as string | undefined, secretIn);
    if (!rotates || typed !== undefined || !value?.includes(',')) return value;
    throw new ConfigurationError(
      `${secretIn} lists several with commas: give the new one alone, or by ${flagOf(name)} -`,
    );
  }
  const read = async (text: string): Promise<string> => {
    if (file === undefined) return text;
    if (file === 'text') return readTextFile(terminal, text);
    return (await readBytes(terminal, text)).toString('base64');
  };
  if (Array.isArray(typed) && shape.patternProperties !== undefined) {
    const mayRemove = Object.values(shape.patternProperties).some(isNullable);
    const pairs = (typed as string[]).map(async (pair) => {
      const [, key, value = ''] = /^([^=]+)=(.*)$/.exec(pair) ?? [];
      if (key !== undefined && value !== '') return [key, await read(value)] as const;
      if (key !== undefined && mayRemove) return [key, null] as const;
      const form =
        file === undefined
          ? 'ID=TEXT, such as lakeside-energy="Lakeside Energy"'
          : 'ID=FILE, such as lakeside-energy=logo.png';
      throw misused(`${flagOf(name)} ${pair}: write it as ${form}`);
    });
    return Object.fromEntries(await Promise.all(pairs));
  }
  if (typed === true && shape.const !== undefined) return shape.const;
  if (typeof typed !== 'string') return typed;
  if (parse !== undefined) return parse(typed);
  if (file !== undefined || shape.type !== 'integer') return read(typed);
  const { minimum = 0, maximum = Number.MAX_SAFE_INTEGER } = shape;
  const number = /^\d{1,15}$/.test(typed) ? Number(typed) : Number.NaN;
  if (number >= minimum && number <= maximum) return number;
  throw misused(`${flagOf(name)} ${typed}: write a whole number from ${minimum} to ${maximum}`);
}

/** The error of a command that was used wrongly. */
export function misused(sentence: string): CommandError {
  return new CommandError(sentence, exitCodes.usage);
}

/** Such as `duebridge platform payment pause`. */
function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/** `a`, `a and b`, `a, b and c`. */
function listed(names: readonly string[]): string {
  return new Intl.ListFormat('en', { type: 'conjunction' }).format(names);
}
