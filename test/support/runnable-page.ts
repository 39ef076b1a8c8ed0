/**
 * A page that is a program. Its `sh` blocks run in order, and the block after each holds what came back:
 *
 *   a curl line          is sent; the answer follows, in an `http` block after `curl -i`, as a `text` block of the body otherwise
 *   anything else        is given to the runner's `command`; a `text` block with what it printed may follow
 *   Keep `a.b` as `$C`   in the text after an answer: takes a value out of it, for `$C` in later blocks
 *
 * `…` in an expected answer stands for whatever differs from run to run.
 */
import assert from 'node:assert/strict';
import { STATUS_CODES } from 'node:http';
import { readCurl, sendCurl, shellWords, type Answer } from './curl.ts';

/** One fenced block, or one sentence that keeps a value. */
type Part =
  | {
      readonly kind: 'block';
      readonly language: string;
      readonly text: string;
      readonly line: number;
    }
  | { readonly kind: 'keep'; readonly path: string; readonly name: string; readonly line: number };

/** One step of the page, with the answer it shows, if it shows one. */
export interface Step {
  /** Line of the block in the file, from 1. */
  readonly line: number;
  readonly script: string;
  readonly expected:
    { readonly language: string; readonly text: string; readonly line: number } | undefined;
  /** Values to take out of the answer: dotted path and variable name. */
  readonly keeps: readonly { readonly path: string; readonly name: string }[];
}

/** Headers that are printed when they are present; all others are left out. */
const SHOWN = [
  'Allow',
  'Preference-Applied',
  'Retry-After',
  'Token-Expires-At',
  'WWW-Authenticate',
];

/** Longest wait for one answer: longer than the longest waiting read of a page. */
const DEADLINE_MS = 15_000;

/** Reads the steps of a page. Fails on a block that nothing would run or check. */
export function readSteps(markdown: string): Step[] {
  const steps: { -readonly [K in keyof Step]: Step[K] }[] = [];
  let open: (typeof steps)[number] | undefined;
  for (const part of parts(markdown)) {
    if (part.kind === 'keep') {
      assert(open, `line ${part.line}: there is no answer to keep ${part.path} of`);
      open.keeps = [...open.keeps, part];
    } else if (part.language === 'sh') {
      open = { line: part.line, script: part.text, expected: undefined, keeps: [] };
      steps.push(open);
    } else if (part.language === 'http' || part.language === 'text') {
      assert(open && !open.expected, `line ${part.line}: an answer without a request`);
      assert.equal(part.language, answerLanguage(open.script), `line ${part.line}`);
      open.expected = part;
    } else {
      assert.fail(`line ${part.line}: a block in "${part.language}" that nothing checks`);
    }
  }
  return steps;
}

function* parts(markdown: string): Generator<Part> {
  const pattern = /^```(\w*)\n([\s\S]*?)^```$|(?:^Keep|\sand)\s+`([\w.]+)`\s+as\s+`\$(\w+)`/gm;
  for (const match of markdown.matchAll(pattern)) {
    const [, language, text, path, name] = match;
    const line = markdown.slice(0, match.index).split('\n').length;
    if (path !== undefined && name !== undefined) yield { kind: 'keep', path, name, line };
    else yield { kind: 'block', language: language ?? '', text: (text ?? '').trimEnd(), line };
  }
}

/** A whole answer (`-i`) is shown as HTTP, whatever else is printed as text. */
function answerLanguage(script: string): 'http' | 'text' {
  return isCurl(script) && / -i /.test(script) ? 'http' : 'text';
}

/** True for a step whose answer the page does not show: `-o /dev/null`, which needs `-fsS` so that a refusal does not pass unseen. */
export function isQuiet(script: string): boolean {
  return isCurl(script) && script.includes(' -fsS ') && script.includes(' -o /dev/null');
}

/** True for a request that changes nothing, and may be repeated. */
export function isRead(script: string): boolean {
  return isCurl(script) && !/ (?:-X|-d|--data\S*|-T|-F|--json) /.test(script.replaceAll('\n', ' '));
}

/** True for a step that sends requests. */
export function isCurl(script: string): boolean {
  return script.startsWith('curl ');
}

/** What a run needs from outside. */
export interface Runner {
  /** Values of `$NAME`; kept ones are added while it runs. */
  readonly variables: Map<string, string>;
  /** Carries out a block that is not a curl line; gives what it printed. */
  command(script: string): Promise<string>;
  /** Translates the page's addresses to those of this run, and back in what is printed. */
  outward(text: string): string;
  homeward(text: string): string;
  /** The content of a file that `--data-binary @name` sends. */
  readFile(name: string): string;
}

/** Carries out one step; gives what came back as the page would print it. Fails when an answer has no X-Request-Id. */
export async function carryOut(step: Step, runner: Runner): Promise<string> {
  if (!isCurl(step.script)) {
    return runner.homeward((await runner.command(step.script)).trimEnd());
  }
  const words = shellWords(step.script, runner.variables).map((word) => runner.outward(word));
  const curl = readCurl(words, (name) => runner.readFile(name));
  if (curl.print !== undefined) {
    let printed = '';
    for (let time = 0; time < curl.times; time += 1) {
      const { status, body } = await sendCurl(curl, DEADLINE_MS);
      assert(!curl.mustSucceed || status < 400, `${curl.url} answered ${status}: ${body}`);
      printed += curl.print.replace('%{http_code}', String(status));
    }
    return printed.trimEnd();
  }
  const answer = await sendCurl(curl, DEADLINE_MS);
  assert.match(String(answer.headers['x-request-id']), /^[\w-]{8,}$/, 'no X-Request-Id');
  for (const { path, name } of step.keeps) runner.variables.set(name, pick(answer, path));
  return runner.homeward(curl.withHeaders ? print(answer) : answer.body.trimEnd());
}

function pick(answer: Answer, path: string): string {
  let value: unknown = JSON.parse(answer.body);
  for (const key of path.split('.')) {
    value = typeof value === 'object' && value !== null ? Reflect.get(value, key) : undefined;
  }
  assert(typeof value === 'string', `the answer has no text at ${path}: ${answer.body}`);
  return value;
}

/** The answer as the page shows it: status line, the headers that matter, the body laid out. */
function print(answer: Answer): string {
  const type = String(answer.headers['content-type'] ?? '');
  const isJson = /^application\/json\b/.test(type);
  const headers = SHOWN.flatMap((name) => {
    const value = answer.headers[name.toLowerCase()];
    return value === undefined ? [] : [`${name}: ${String(value)}`];
  });
  if (!isJson) headers.unshift(`Content-Type: ${type}`);
  const body = isJson
    ? JSON.stringify(JSON.parse(answer.body), undefined, 2)
    : answer.body.trimEnd();
  return [
    `HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status] ?? ''}`,
    ...headers,
    '',
    body,
  ].join('\n');
}

/**
 * What came, in the words of what was expected: equal to it exactly when it is right. `…` stands for some text within a line, and
 * alone on a line for any number of lines. Where it is wrong, the lines that agree are in the expected words all the same.
 */
export function inTheWordsOf(expected: string, came: string): string {
  const wanted = expected.split('\n');
  const whole = wanted
    .map((line) => (line === '…' ? '(?:[^\n]*\n)*?' : `${inLine(line)}\n`))
    .join('');
  if (new RegExp(`^${whole}$`).test(`${came}\n`)) return expected;
  return came
    .split('\n')
    .map((line, index) => {
      const words = wanted[index] ?? '';
      return words !== '…' && new RegExp(`^${inLine(words)}$`).test(line) ? words : line;
    })
    .join('\n');
}

function inLine(line: string): string {
  return line.split('…').map(escapeRegExp).join('.+');
}

function escapeRegExp(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\/-]/g, String.raw`\$&`);
}

/** Masks what differs from run to run, for writing the page anew. Takes and gives an answer as printed. */
function mask(printed: string): string {
  return printed
    .replaceAll(/\b(db[a-z]_|key_)[\w-]{16,}/g, '$1…')
    .replaceAll(/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, '…')
    .replaceAll(/\b\d{4}-\d\d-\d\d-[0-9a-f]{20}\b/g, '…')
    .replaceAll(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, '…');
}

/** The page with what came back in place of what it said; `came` has one text for each step. */
export function rewritten(
  markdown: string,
  steps: readonly Step[],
  came: readonly string[],
): string {
  const lines = markdown.split('\n');
  for (const [index, step] of [...steps.entries()].toReversed()) {
    const text = mask(inTheWordsOf(step.expected?.text ?? '', came[index] ?? ''));
    const endOfScript = step.line + step.script.split('\n').length + 1;
    if (step.expected !== undefined) {
      const { line, text: before } = step.expected;
      lines.splice(line, before.split('\n').length, ...text.split('\n'));
    } else if (text !== '') {
      lines.splice(
        endOfScript,
        0,
        '',
        `\`\`\`${answerLanguage(step.script)}`,
        ...text.split('\n'),
        '```',
      );
    }
  }
  return lines.join('\n');
}
