/**
 * Reads the curl commands of the documents and sends what curl would send, so that they can be checked on a machine without curl.
 * It knows the few options that the documents use and refuses every other, which keeps them in one style.
 */
import assert from 'node:assert/strict';
import { request } from 'undici';

/** Names and values that `$NAME` and `${NAME}` stand for in a command line. */
export type Variables = ReadonlyMap<string, string>;

/**
 * Splits one command line into words as a POSIX shell does: single quotes, double quotes with variables and `\"`, a backslash at
 * the end of a line, and bare words with variables. Throws for an unset variable and for any other shell syntax.
 */
export function shellWords(line: string, variables: Variables): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let rest = line.replaceAll(/\\\n\s*/g, ' ').trim();
  while (rest !== '') {
    const match =
      /^(?:(?<space>\s+)|'(?<single>[^']*)'|"(?<double>(?:[^"\\]|\\["\\$])*)"|(?<bare>[^\s'"\\|&;<>()`*?!]+))/.exec(
        rest,
      );
    assert(match?.groups, `this style has no shell syntax like this: ${rest}`);
    const { space, single, double, bare } = match.groups;
    if (space === undefined) {
      word = (word ?? '') + (single ?? expand(double ?? bare ?? '', variables));
    } else if (word !== undefined) {
      words.push(word);
      word = undefined;
    }
    rest = rest.slice(match[0].length);
  }
  if (word !== undefined) words.push(word);
  return words;
}

function expand(text: string, variables: Variables): string {
  return text.replaceAll(
    /\\(["\\$])|\$\{(\w+)\}|\$(\w+)/g,
    (_, escaped: string | undefined, braced: string | undefined, plain: string | undefined) => {
      if (escaped !== undefined) return escaped;
      const name = braced ?? plain ?? '';
      const value = variables.get(name);
      assert(value !== undefined, `$${name} is used and was never kept`);
      return value;
    },
  );
}

/** One answer, as much of it as a page shows. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

/** What a curl command line asks for. */
export interface CurlRequest {
  readonly method: string;
  readonly url: string;
  /** A list, because the same header may be sent twice. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string | undefined;
  /** How often it is sent: an address that ends in `#[1-300]` is 300 addresses to curl, and one to the server. */
  readonly times: number;
  /** What is printed of each answer, in place of the answer (`-w`, or nothing with `-o` alone). */
  readonly print: string | undefined;
  /** True when status and headers are printed before the body (`-i`). */
  readonly withHeaders: boolean;
  /** True when an answer of 400 or more makes the command fail (`-fsS`). */
  readonly mustSucceed: boolean;
}

/** Reads the words of a curl command line; `readFile` gives the content of `--data-binary @file`. */
export function readCurl(
  words: readonly string[],
  readFile: (name: string) => string,
): CurlRequest {
  assert.equal(words[0], 'curl');
  const headers: [string, string][] = [];
  const form: string[] = [];
  let body: string | undefined;
  let method: string | undefined;
  let url: string | undefined;
  let print: string | undefined;
  let withHeaders = false;
  let mustSucceed = false;
  for (let at = 1; at < words.length; at += 1) {
    const word = words[at] ?? '';
    const value = (): string => {
      at += 1;
      return words[at] ?? assert.fail(`${word} wants a value`);
    };
    switch (word) {
      case '-i':
        withHeaders = true;
        break;
      // Be silent about progress; do not buffer a stream.
      case '-s':
      case '-N':
        break;
      case '-fsS':
        mustSucceed = true;
        break;
      case '-o':
        assert.equal(value(), '/dev/null');
        print ??= '';
        break;
      case '-w':
        print = value();
        break;
      case '-X':
        method = value();
        break;
      case '-H': {
        const header = value();
        const colon = header.indexOf(':');
        assert(colon > 0, `no header: ${header}`);
        headers.push([header.slice(0, colon), header.slice(colon + 1).trim()]);
        break;
      }
      case '-d':
        body = value();
        break;
      case '--data-binary': {
        const data = value();
        body = data.startsWith('@') ? readFile(data.slice(1)) : data;
        break;
      }
      case '--data-urlencode': {
        const [name = '', ...content] = value().split('=');
        // As curl does it: everything but unreserved characters is encoded, a space as %20.
        form.push(`${name}=${encodeURIComponent(content.join('='))}`);
        break;
      }
      default:
        assert(!word.startsWith('-'), `this style has no option ${word}`);
        assert.equal(url, undefined, 'one address in one command');
        url = word;
    }
  }
  assert(url !== undefined, 'no address');
  if (form.length > 0) body = form.join('&');
  const isTyped = headers.some(([name]) => name.toLowerCase() === 'content-type');
  if (body !== undefined && !isTyped) {
    headers.push(['Content-Type', 'application/x-www-form-urlencoded']);
  }
  const times = Number(/#\[1-(\d+)\]$/.exec(url)?.[1] ?? 1);
  return {
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    url: url.replace(/#.*$/, ''),
    headers,
    body,
    times,
    print,
    withHeaders,
    mustSucceed,
  };
}

/** Sends it and reads the whole answer; a stream is read to its end, which must come within `deadlineMs`. */
export async function sendCurl(curl: CurlRequest, deadlineMs: number): Promise<Answer> {
  const answer = await request(curl.url, {
    method: curl.method as 'GET',
    headers: [
      'accept',
      '*/*',
      ...curl.headers.flatMap(([name, value]) => (value === '' ? [] : [name, value])),
    ],
    body: curl.body ?? null,
    signal: AbortSignal.timeout(deadlineMs),
  });
  return {
    status: answer.statusCode,
    headers: answer.headers,
    body: await answer.body.text(),
  };
}
