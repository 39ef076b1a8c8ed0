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
import { askAdmin, type AdminTarget } from './admin-client.ts';
import { jsonOption, print } from './print.ts';
import { readBytes, readTextFile, secretOption, type Terminal } from './terminal.ts';

/** How a field is written at a terminal, where its name and its schema do not say. */
export interface FieldWords {
  /** As commander writes them; default: the field's name, such as `--base-url <url>`. */
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

/** A request, as the table and the user's words make it. */
export interface AdminRequest {
  readonly method: Route['method'];
  readonly path: string;
  readonly body?: object;
}

/** What a command of its own way is given. */
export interface CommandRun {
  readonly terminal: Terminal;
  readonly request: AdminRequest;
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

/** An operation that is called instead when a field or a flag is given. */
export interface Instead {
  /** The name of a field, or of a flag such as `summary`. */
  readonly when: string;
  /** The help of the flag. */
  readonly flag?: string;
  readonly route: Route;
  readonly show: (answer: never) => string;
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
  /** The name of an argument that may be repeated and is no field. */
  readonly rest?: string;
  readonly fields?: Words;
  /** Fields of the body that the command sets itself. */
  readonly fixed?: Readonly<Record<string, unknown>>;
  /** Fields as they are sent when the user says nothing. */
  readonly defaults?: Readonly<Record<string, unknown>>;
  /** Fields that this command does not offer. */
  readonly without?: readonly string[];
  /** Options that are no fields. */
  readonly options?: readonly Option[];
  readonly instead?: readonly Instead[];
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

/** The same for an operation that is called instead. */
export function instead<const R extends Route>(
  when: string,
  route: R,
  show: (answer: RouteReply<R>) => string,
  flag?: string,
): Instead {
  return { when, route, show, ...(flag === undefined ? {} : { flag }) };
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

const isNullable = ({ anyOf }: Schema): boolean =>
  anyOf?.some(({ type }) => type === 'null') === true;

/** Without `null`; the one alternative that is left stands for the whole. */
function plain(schema: Schema): Schema {
  const rest = schema.anyOf?.filter(({ type }) => type !== 'null');
  return rest?.length === 1 && rest[0] !== undefined ? rest[0] : schema;
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
    const nested =
      key === undefined
        ? fieldsOf(schema)
        : [key, ...(schema.anyOf ?? []).flatMap(fieldsOf).filter(({ name }) => name !== key.name)];
    if (nested.length === 0) return [field];
    // What an alternative or an optional object requires is required only with that one.
    const isAlways = (one: Field) =>
      field.isRequired && one.isRequired && (key === undefined || one === key);
    return leavesOf(nested.map((one) => ({ ...one, isRequired: isAlways(one) })));
  });
  return [...new Map(leaves.map((one) => [one.name, one])).values()];
}

const bodyOf = (route: Route): Schema | undefined => route.body;
const fieldsOfRoute = (route: Route): Field[] => [
  ...fieldsOf(route.params),
  ...fieldsOf(route.query),
  ...fieldsOf(bodyOf(route)),
];

// One command --------------------------------------------------------------------------------------------------------------------

function addLine(
  command: Command,
  each: CommandLine,
  table: CommandTable,
  terminal: Terminal,
): void {
  const { route, instead: others = [], without = [], defaults = {} } = each;
  const args = each.args ?? pathFields(route.path);
  const optionalArgs = others
    .flatMap((one) => pathFields(one.route.path))
    .filter((name) => !args.includes(name));
  const wordsOf = (name: string): FieldWords => ({ ...table.words[name], ...each.fields?.[name] });
  const own = leavesOf(fieldsOfRoute(route));
  const leaves = [
    ...own,
    ...others
      .flatMap((one) => leavesOf(fieldsOfRoute(one.route)))
      .map((one) => ({ ...one, isRequired: false })),
  ].filter(
    ({ name }, index, all) =>
      !without.includes(name) && all.findIndex((one) => one.name === name) === index,
  );
  command.description(each.help ?? sentencePart(route.summary));
  const required: string[] = [];
  for (const name of args) {
    command.argument(`[${name}]`, each.fields?.[name]?.help ?? '');
    required.push(`<${name}>`);
  }
  for (const name of optionalArgs) command.argument(`[${name}]`);
  if (each.rest !== undefined) command.argument(`[${each.rest}...]`);
  const options = new Map<string, Option>();
  for (const leaf of leaves) {
    if (args.includes(leaf.name) || optionalArgs.includes(leaf.name)) continue;
    const option = optionOf(leaf, wordsOf(leaf.name));
    options.set(leaf.name, option);
    command.addOption(option);
    if (leaf.isRequired && !(leaf.name in defaults)) required.push(option.flags);
  }
  for (const { when, flag } of others) if (flag !== undefined) command.option(`--${when}`, flag);
  for (const option of each.options ?? []) command.addOption(option);
  command.addOption(jsonOption());
  const shownArgs = optionalArgs.map((name) => `[${name}]`);
  if (each.rest !== undefined) shownArgs.push(`[${each.rest}...]`);
  command.usage([...required, ...shownArgs, '[options]'].join(' '));

  command.action(async (...given: unknown[]) => {
    const typed = command.opts<Record<string, unknown>>();
    // Commander appends the options and the command.
    const values = given.slice(0, -2).flat() as (string | undefined)[];
    const byName = new Map<string, unknown>();
    [...args, ...optionalArgs].forEach((name, index) => byName.set(name, values[index]));
    for (const [name, option] of options) byName.set(name, typed[option.attributeName()]);
    const chosen = others.find(
      (one) => byName.get(one.when) !== undefined || typed[one.when] === true,
    );
    const reader = new Reader(
      byName,
      each,
      wordsOf,
      (name) => options.get(name)?.long ?? `<${name}>`,
      terminal,
    );
    const request = await reader.request(chosen?.route ?? route, command);
    const json = command.optsWithGlobals<{ json?: true }>().json;
    const ask = <Reply>(method: Route['method'], path: string, body?: object | string) =>
      askAdmin<Reply>(terminal, table.target, method, path, body);
    if (each.run !== undefined) {
      const settings = { ...typed, ...(json === true ? { json } : {}) };
      const texts = values.filter((value) => value !== undefined);
      await each.run({ terminal, request, options: settings, values: texts, ask });
      return;
    }
    const answer = await ask<never>(request.method, request.path, request.body);
    print(terminal, json === true ? { json } : {}, answer, () => (chosen ?? each).show(answer));
  });
}

/** `Pause a payment.` as part of a sentence: `pause a payment`. */
function sentencePart(text: string): string {
  const plainText = text.replace(/\.$/, '');
  return /^[A-Z][a-z]/.test(plainText)
    ? plainText.charAt(0).toLowerCase() + plainText.slice(1)
    : plainText;
}

function optionOf({ name, schema }: Field, words: FieldWords): Option {
  const shape = plain(schema);
  const flag = `--${name.replaceAll('_', '-')}`;
  const value = name.split('_').at(-1);
  const isFlag = shape.type === 'boolean' || shape.const !== undefined;
  const isMany = shape.type === 'array' || shape.patternProperties !== undefined;
  const flags = words.flags ?? (isFlag ? flag : `${flag} <${value}${isMany ? '...' : ''}>`);
  const option = new Option(flags, words.help ?? sentencePart(shape.description ?? ''));
  if (shape.enum !== undefined) option.choices(shape.enum);
  return option;
}

/** Reads what was typed into the fields of a request, and notes what is missing. */
class Reader {
  readonly #typed: ReadonlyMap<string, unknown>;
  readonly #line: CommandLine;
  readonly #words: (name: string) => FieldWords;
  readonly #flag: (name: string) => string;
  readonly #terminal: Terminal;
  readonly #missing: string[] = [];
  readonly #read = new Set<string>();

  constructor(
    typed: ReadonlyMap<string, unknown>,
    each: CommandLine,
    words: (name: string) => FieldWords,
    flag: (name: string) => string,
    terminal: Terminal,
  ) {
    this.#typed = typed;
    this.#line = each;
    this.#words = words;
    this.#flag = flag;
    this.#terminal = terminal;
  }

  /** Throws CommandError for what is missing, wrong, or does not belong together. */
  async request(route: Route, command: Command): Promise<AdminRequest> {
    const params = await this.#fields(route.params);
    const query = await this.#fields(route.query);
    const schema = bodyOf(route);
    const body =
      schema?.properties === undefined
        ? undefined
        : { ...this.#line.fixed, ...(await this.#fields(schema)) };
    const more = `${pathOf(command)} --help says more`;
    if (this.#missing.length > 0) {
      throw new CommandError(`give ${listed(this.#missing)}; ${more}`, exitCodes.usage);
    }
    const extra = [...this.#typed].filter(
      ([name, value]) => value !== undefined && !this.#read.has(name),
    );
    if (extra.length > 0) {
      const names = listed(extra.map(([name]) => this.#flag(name)));
      throw new CommandError(`${names} cannot be given here; ${more}`, exitCodes.usage);
    }
    const search = new URLSearchParams(query as Record<string, string>).toString();
    try {
      const path = fillPath(route.path, params as Record<string, string>);
      return {
        method: route.method,
        path: search === '' ? path : `${path}?${search}`,
        ...(body === undefined ? {} : { body }),
      };
    } catch {
      const wrong = Object.entries(params).find(([, value]) =>
        ['', '.', '..'].includes(String(value)),
      );
      throw new CommandError(`"${String(wrong?.[1])}" is no ${wrong?.[0]}`, exitCodes.usage);
    }
  }

  async #fields(schema: Schema | undefined, known = {}): Promise<Record<string, unknown>> {
    const values: Record<string, unknown> = { ...known };
    for (const field of fieldsOf(schema)) {
      if (field.name in known) continue;
      const value = await this.#value(field);
      if (value !== undefined) values[field.name] = value;
    }
    return values;
  }

  async #value(field: Field): Promise<unknown> {
    const { name, schema, isRequired } = field;
    const { defaults = {}, without = [] } = this.#line;
    if (without.includes(name)) return undefined;
    const shape = plain(schema);
    const key = discriminator(shape);
    if (key !== undefined || shape.properties !== undefined) {
      const isGiven = leavesOf([field]).some((one) => this.#typed.get(one.name) !== undefined);
      if (!isGiven && !isRequired) return undefined;
      if (key === undefined) return this.#fields(shape);
      const word = await this.#value(key);
      const chosen = shape.anyOf?.find((one) => one.properties?.[key.name]?.const === word);
      return this.#fields(chosen, { [key.name]: word });
    }
    this.#read.add(name);
    const typed = this.#typed.get(name);
    const value = await this.#leaf(field, typed);
    if (value !== undefined) return value;
    if (name in defaults) return defaults[name];
    if (isRequired) {
      const { secretIn } = this.#words(name);
      this.#missing.push(this.#flag(name) + (secretIn === undefined ? '' : `, or ${secretIn}`));
    }
    return undefined;
  }

  async #leaf({ name, schema }: Field, typed: unknown): Promise<unknown> {
    const { parse, secretIn, rotates, file } = this.#words(name);
    if (typed === '' && isNullable(schema)) return null;
    if (secretIn !== undefined) {
      const value = await secretOption(this.#terminal, typed as string | undefined, secretIn);
      if (rotates && typed === undefined && value?.includes(',')) {
        throw new ConfigurationError(
          `${secretIn} lists several with commas: give the new one alone, or by ${this.#flag(name)} -`,
        );
      }
      return value;
    }
    const shape = plain(schema);
    if (Array.isArray(typed) && shape.patternProperties !== undefined) {
      return Object.fromEntries((typed as string[]).map((pair) => this.#pair(name, pair)));
    }
    if (typed === true && shape.const !== undefined) return shape.const;
    if (typeof typed !== 'string') return typed;
    if (parse !== undefined) return parse(typed);
    if (file === 'text') return readTextFile(this.#terminal, typed);
    if (file === 'base64') return (await readBytes(this.#terminal, typed)).toString('base64');
    if (shape.type !== 'integer') return typed;
    const { minimum = 0, maximum = Number.MAX_SAFE_INTEGER } = shape;
    if (!/^\d{1,15}$/.test(typed) || Number(typed) < minimum || Number(typed) > maximum) {
      throw new CommandError(
        `${this.#flag(name)} ${typed}: write a whole number from ${minimum} to ${maximum}`,
        exitCodes.usage,
      );
    }
    return Number(typed);
  }

  #pair(name: string, text: string): [string, string] {
    const [, key, value] = /^([^=]+)=(.+)$/.exec(text) ?? [];
    if (key === undefined || value === undefined) {
      throw new CommandError(
        `${this.#flag(name)} ${text}: write it as ID=TEXT, such as lakeside-energy="Lakeside Energy"`,
        exitCodes.usage,
      );
    }
    return [key, value];
  }
}

/** Such as `duebridge platform payment pause`. */
function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/** `a`, `a and b`, `a, b and c`. */
function listed(names: readonly string[]): string {
  return new Intl.ListFormat('en', { type: 'conjunction' }).format(names);
}
