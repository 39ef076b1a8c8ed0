/**
 * A Markdown page that is a program: takes a page, runs it in a shell as a reader would, and compares what came back with what it shows.
 *
 *   ```sh                is run by bash; what ends with `&` is a server, which is waited for; `export` and `NAME=` lines set variables
 *   ```js server.js      a name after the language: the file is written
 *   ```json              is only looked at, as is a text after an answer
 *   ```http, ```text     what the block before printed: a whole answer after `curl -i`, the output otherwise
 *   Keep `a.b` as `$C`   in the text after an answer: takes a value out of it, for `$C` in later blocks
 *
 * `…` stands for whatever differs from run to run. DUEBRIDGE_UPDATE_DOCS=1 prints what came into the page instead of comparing it.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { emptyDatabase, freePort, PATIENCE_MS, testServer } from '@duebridge/runtime/testing';
import { Consumer, emptyFolder, listens, type Block, type Cleanup } from '../consumers/consumer.ts';

const root = join(import.meta.dirname, '../..');
export const UPDATE = process.env['DUEBRIDGE_UPDATE_DOCS'] === '1';
/** The port at which a page says that nobody listens, and a reserved one where nobody does. */
const NOBODY = ['4999', '1'] as const;
/** Headers that are printed when they are present; all others are left out. */
const SHOWN = /^(?:Allow|Preference-Applied|Retry-After|Token-Expires-At|WWW-Authenticate):/i;

/** A block, and its line in the page, from 1. */
interface PlacedBlock extends Block {
  readonly line: number;
}

/** The sections of a page, in order, each up to the next heading. */
export function readPage(file: string) {
  const markdown = readFileSync(join(root, file), 'utf8');
  let line = 1;
  return markdown.split(/^(?=#+ )/m).map((part) => {
    const first = line;
    line += part.split('\n').length - 1;
    const blocks = [...part.matchAll(/^```(\w+) ?([\w./[\]-]*)[^\n]*\n([\s\S]*?)^```$/gm)].map(
      ({ index, 1: language = '', 2: name = '', 3: text = '' }): PlacedBlock => ({
        language,
        file: name === '' ? undefined : name,
        text,
        line: first + part.slice(0, index).split('\n').length - 1,
      }),
    );
    return { heading: /^#+ (.*)/.exec(part)?.[1] ?? '', blocks };
  });
}

/** Whether the pages can be run on this machine. */
export const hasCurl = spawnSync('curl', ['--version']).status === 0;

/** A shell in an empty folder, with the commands of this repository; addresses of the page are translated, and back in what is printed. */
export class PageShell {
  readonly consumer: Consumer;
  readonly variables: Record<string, string> = {};
  readonly #cleanup: Cleanup;
  readonly #databaseUrl: () => Promise<string>;
  readonly #ports = new Map<string, string>([NOBODY]);
  /** The databases of the servers of partners, by their data directories, whose embedded ones they stand for. */
  readonly #books = new Map<string, string>();

  private constructor(cleanup: Cleanup, consumer: Consumer, databaseUrl: () => Promise<string>) {
    this.consumer = consumer;
    this.#cleanup = cleanup;
    this.#databaseUrl = databaseUrl;
  }

  static async open(t: Cleanup): Promise<PageShell> {
    const closers: (() => Promise<unknown>)[] = [];
    t.after(async () => {
      for (const close of closers.toReversed()) await close();
    });
    const cleanup: Cleanup = { after: (hook) => closers.push(hook) };
    const folder = await emptyFolder(cleanup, 'page');
    const bin = join(folder, 'bin');
    mkdirSync(bin);
    const npx = `shift; exec "${process.execPath}" "${join(root, 'bin/duebridge.ts')}" "$@"`;
    writeFileSync(join(bin, 'npx'), `#!/bin/sh\n${npx}\n`);
    chmodSync(join(bin, 'npx'), 0o755);
    symlinkSync(join(root, 'docs'), join(folder, 'docs'));
    const consumer = new Consumer(folder, { packed: new Map() });
    consumer.environment['PATH'] = [bin, consumer.environment['PATH']].join(delimiter);
    const postgres = await testServer();
    closers.push(() => postgres.stop());
    return new PageShell(cleanup, consumer, async () => {
      const { url, drop } = await emptyDatabase(postgres.url, 'page');
      closers.push(drop);
      return url;
    });
  }

  /** The port of this run that stands for one of the page. */
  async port(shown: string): Promise<string> {
    const port = this.#ports.get(shown) ?? String(await freePort());
    this.#ports.set(shown, port);
    return port;
  }

  /** Runs a block; gives what it printed, in the page's addresses. Fails unless it ends well. */
  async run(script: string): Promise<string> {
    const lines = script.trim().split('\n');
    while (/^(?:export )?\w+=\S*$/.test(lines[0] ?? '')) {
      const [name = '', ...value] = (lines.shift() ?? '').replace('export ', '').split('=');
      this.variables[name] = await this.#outward(value.join('='));
    }
    if (lines.length === 0) return '';
    const command = await this.#outward(lines.join('\n'));
    if (command.endsWith('&')) {
      await this.#serve(command.slice(0, -1));
      return '';
    }
    const DATABASE_URL = command.includes('duebridge partner')
      ? this.#books.get(dataDirectoryOf(command))
      : undefined;
    const env = { ...this.variables, ...(DATABASE_URL !== undefined && { DATABASE_URL }) };
    return this.#homeward(await this.consumer.run('bash', ['-c', command], { env })).trim();
  }

  /** Writes a file of the page. */
  async write(file: string, text: string): Promise<void> {
    await this.consumer.write(file, await this.#outward(text));
  }

  async #serve(command: string): Promise<void> {
    const isPlatform = command.includes('duebridge platform');
    const isOurs = command.includes('npx duebridge');
    const [own, admin] = isPlatform ? ['4000', '4001'] : ['4100', '4101'];
    const key = (): string => randomBytes(32).toString('base64');
    const DATABASE_URL = isOurs ? await this.#databaseUrl() : undefined;
    if (DATABASE_URL && !isPlatform) this.#books.set(dataDirectoryOf(command), DATABASE_URL);
    const env = {
      ...this.variables,
      PORT: await this.port(isOurs ? own : '4400'),
      ADMIN_PORT: await this.port(admin),
      ...(DATABASE_URL && { DATABASE_URL }),
      ...(isPlatform && { DUEBRIDGE_SEAL_KEY: key(), DUEBRIDGE_KEY_PEPPER: key() }),
    };
    const ports = {
      ...env,
      ...Object.fromEntries([...command.matchAll(PORT)].map(([, name, port]) => [name, port])),
    };
    // Its variables come first, and `exec` takes none before it.
    const bash = `exec bash -c '${command.replaceAll("'", `'\\''`)}'`;
    await this.consumer.serve(this.#cleanup, bash, Number(ports.PORT), env);
    if (!isOurs) return;
    while (!(await listens(Number(ports.ADMIN_PORT)))) await delay(20);
  }

  async #outward(text: string): Promise<string> {
    let out = text;
    const named = [...text.matchAll(/(?:127\.0\.0\.1:|PORT=)(\d+)/g)];
    for (const port of new Set(named.map(([, shown = '']) => shown))) {
      const place = new RegExp(`(127\\.0\\.0\\.1:|\\b(?:ADMIN_)?PORT=)${port}\\b`, 'g');
      out = out.replaceAll(place, `$1${await this.port(port)}`);
    }
    return out;
  }

  #homeward(text: string): string {
    return text.replaceAll(/127\.0\.0\.1:(\d+)/g, (whole, at: string) => {
      const known = [...this.#ports].find(([, port]) => port === at);
      return known === undefined ? whole : `127.0.0.1:${known[0]}`;
    });
  }
}

const PORT = /\b((?:ADMIN_)?PORT)=(\d+)/g;

const dataDirectoryOf = (command: string): string =>
  /\bDUEBRIDGE_DATA_DIR=(\S+)/.exec(command)?.[1] ?? '.duebridge';

/** A block that is run, with the block that shows what it prints, and the values to take out of that: dotted path and variable. */
export interface Step {
  readonly script: string;
  readonly at: PlacedBlock;
  shown?: PlacedBlock;
  readonly keeps: [path: string, name: string][];
}

/** The steps of a page. Fails on a block that nothing would run or check. */
export function stepsOf(file: string): Step[] {
  const steps: Step[] = [];
  for (const block of readPage(file).flatMap(({ blocks }) => blocks)) {
    const last = steps.at(-1);
    if (block.language === 'sh' || block.file !== undefined) {
      steps.push({ script: block.text.trimEnd(), at: block, keeps: [] });
    } else if (block.language === 'http' || (block.language === 'text' && !last?.shown)) {
      assert.ok(last && !last.shown, `${file} line ${block.line}: an answer without a request`);
      assert.equal(block.language, answerLanguage(last.script), `${file} line ${block.line}`);
      last.shown = block;
    }
  }
  const markdown = readFileSync(join(root, file), 'utf8');
  for (const match of markdown.matchAll(/(?:^Keep|\sand)\s+`([\w.]+)`\s+as\s+`\$(\w+)`/gm)) {
    const line = markdown.slice(0, match.index).split('\n').length;
    const [, path = '', name = ''] = match;
    steps.findLast(({ at }) => at.line < line)?.keeps.push([path, name]);
  }
  return steps;
}

/** A whole answer (`-i`) is shown as HTTP, whatever else is printed as text. */
function answerLanguage(script: string): 'http' | 'text' {
  return / -i /.test(script) ? 'http' : 'text';
}

/** Runs every step of a page and compares what came with what it shows; with UPDATE, prints that into the page instead. */
export async function runPage(file: string, shell: PageShell): Promise<void> {
  const steps = stepsOf(file);
  assert.ok(steps.length > 0, `${file} has nothing to run`);
  const came: string[] = [];
  for (const step of steps) {
    const where = `${file} line ${step.at.line}`;
    if (step.at.file !== undefined) {
      await shell.write(step.at.file, step.at.text);
      came.push('');
      continue;
    }
    const carry = (): Promise<string> =>
      carryOut(step, shell).catch((error: unknown) => {
        throw new Error(where, { cause: error });
      });
    const expected = step.shown?.text.trimEnd() ?? '';
    let answer = await carry();
    // A read shows what the page says once a payment has ended; a slow machine has not come so far at the first look.
    const until = performance.now() + PATIENCE_MS;
    const mayStillCome = (): boolean =>
      !UPDATE &&
      isRead(step.script) &&
      /"processing"|"step": "settle"/.test(answer) &&
      inTheWordsOf(expected, answer) !== expected;
    while (mayStillCome() && performance.now() < until) answer = await carry();
    came.push(answer);
    if (UPDATE) continue;
    const isQuiet = / -fsS .* -o \/dev\/null| -fsS -o \/dev\/null/.test(step.script);
    assert.ok(
      step.shown !== undefined || !step.script.startsWith('curl ') || isQuiet,
      `${where}: the page does not show the answer`,
    );
    if (step.shown ?? step.script.startsWith('curl ')) {
      assert.equal(inTheWordsOf(expected, answer), expected, where);
    }
  }
  if (UPDATE) writeFileSync(join(root, file), rewritten(file, steps, came));
}

/** A request that changes nothing, and may be repeated. */
function isRead(script: string): boolean {
  return script.startsWith('curl ') && !/\s(?:-X|-d|--data\S*|-T|-F|--json)\s/.test(script);
}

/** Carries out one step; gives what came back as the page would print it. Fails when a whole answer has no X-Request-Id. */
async function carryOut({ script, keeps }: Step, shell: PageShell): Promise<string> {
  const printed = await shell.run(script);
  const isWhole = answerLanguage(script) === 'http';
  const [head = '', ...rest] = printed.replace(/^HTTP\/1\.1 100 .*\r\n\r\n/, '').split('\r\n\r\n');
  const body = isWhole ? rest.join('\r\n\r\n').trimEnd() : printed;
  for (const [path, name] of keeps) {
    let value: unknown = JSON.parse(body);
    for (const key of path.split('.')) value = Reflect.get(Object(value), key);
    assert.ok(typeof value === 'string', `the answer has no text at ${path}: ${body}`);
    shell.variables[name] = value;
  }
  if (!isWhole) return printed;
  const [status = '', ...headers] = head.split('\r\n');
  assert.match(head, /^x-request-id: [\w-]{8,}$/im, 'no X-Request-Id');
  const type = /^content-type: (.*)$/im.exec(head)?.[1] ?? '';
  const isJson = /^application\/json\b/.test(type);
  return [
    status,
    ...(isJson ? [] : [`Content-Type: ${type}`]),
    ...headers
      .filter((line) => SHOWN.test(line))
      .map(inCapitals)
      .toSorted(),
    '',
    isJson ? JSON.stringify(JSON.parse(body), undefined, 2) : body,
  ].join('\n');
}

/** A header as the standards write its name. */
function inCapitals(header: string): string {
  const name = header.split(':', 1)[0] ?? '';
  const written = name.replaceAll(/\b\w/g, (letter) => letter.toUpperCase());
  return written.replace('Www-', 'WWW-') + header.slice(name.length);
}

/**
 * What came, in the words of what was expected: equal to it exactly when it is right. `…` stands for some text within a line, and
 * alone on a line for any number of lines. Where it is wrong, the lines that agree are in the expected words all the same.
 */
function inTheWordsOf(expected: string, came: string): string {
  const wanted = expected.split('\n');
  const inLine = (line: string): string => line.split('…').map(escaped).join('.+');
  const whole = wanted.map((line) => (line === '…' ? '(?:[^\n]*\n)*?' : `${inLine(line)}\n`));
  if (new RegExp(`^${whole.join('')}$`).test(`${came}\n`)) return expected;
  return came
    .split('\n')
    .map((line, index) => {
      const words = wanted[index] ?? '';
      return words !== '…' && new RegExp(`^${inLine(words)}$`).test(line) ? words : line;
    })
    .join('\n');
}

const escaped = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\/-]/g, '\\$&');

/** The page with what came back in place of what it said, and `…` for what differs from run to run. */
function rewritten(file: string, steps: readonly Step[], came: readonly string[]): string {
  const lines = readFileSync(join(root, file), 'utf8').split('\n');
  for (const [index, { at, script, shown }] of [...steps.entries()].toReversed()) {
    const text = inTheWordsOf(shown?.text.trimEnd() ?? '', came[index] ?? '')
      .replaceAll(/\b(db[a-z]_|key_)[\w-]{16,}/g, '$1…')
      .replaceAll(/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, '…')
      .replaceAll(/\b\d{4}-\d\d-\d\d-[0-9a-z]{10}\b/g, '…')
      .replaceAll(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, '…');
    const fenced = [`\`\`\`${answerLanguage(script)}`, text, '```'];
    const end = at.line + script.split('\n').length + 1;
    if (shown) lines.splice(shown.line - 1, shown.text.split('\n').length + 1, ...fenced);
    else if (text !== '') lines.splice(end, 0, '', ...fenced);
  }
  return lines.join('\n');
}
