/** Commands talk to a running server through its admin API, like any program with the admin key (decision 32). */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { secretText } from '../config.ts';
import { adminKeyFile, dataDirectory, type ServerName } from '../data-directory.ts';
import type { ErrorBody } from '@duebridge/contract';
import { CommandError, exitCodes } from '../errors.ts';
import type { Terminal } from './terminal.ts';

/** How often, and how long at most, a command waits when it makes more calls than the server takes from one operator. */
const MAX_WAITS = 5;
const MAX_WAIT_S = 10;
/** A call on which nothing moves for this long is given up: a check of money has a quarter of an hour for each of its statements. */
const SILENT_MS = 60 * 60_000;

/** The admin API to call. */
export interface AdminTarget {
  readonly server: ServerName;
  /** Port of decision 27, used when no variable names another. */
  readonly defaultPort: number;
}

/**
 * One call of an admin API. `Reply` is the operation's answer according to the contract; client and server have the same version.
 * Throws CommandError; it has a `cause` when no answer came, or none that says what became of the call.
 * A body that is text is sent as a CSV file.
 */
export async function askAdmin<Reply>(
  terminal: Terminal,
  target: AdminTarget,
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  body?: object | string,
): Promise<Reply> {
  for (let turn = 1; ; turn += 1) {
    const response = await send(terminal, target, method, path, body);
    const answer: unknown = await response.json().catch(() => undefined);
    if (response.ok && answer !== undefined) return answer as Reply;
    const wait = Number(response.headers.get('retry-after'));
    // A command that makes many calls meets the limit of its operator; nothing was done.
    if (response.status !== 429 || turn > MAX_WAITS || !(wait > 0 && wait <= MAX_WAIT_S)) {
      throw refused(terminal, target, response, answer);
    }
    await delay(wait * 1_000);
  }
}

/** The text of a streamed answer, chunk by chunk. */
export async function* readAdmin(
  terminal: Terminal,
  target: AdminTarget,
  path: string,
): AsyncGenerator<string> {
  const response = await send(terminal, target, 'GET', path);
  if (!response.ok || response.body === null) {
    throw refused(terminal, target, response, await response.json().catch(() => undefined));
  }
  const utf8 = new TextDecoder();
  try {
    for await (const chunk of response.body) yield utf8.decode(chunk, { stream: true });
  } catch {
    throw new CommandError(
      `the ${target.server} broke off in the middle: what was written is not complete; run the command again`,
      exitCodes.failed,
    );
  }
  yield utf8.decode();
}

async function send(
  terminal: Terminal,
  target: AdminTarget,
  method: string,
  path: string,
  body?: object | string,
): Promise<Response> {
  const base = adminUrl(terminal, target);
  const [type, content] =
    typeof body === 'string' ? ['text/csv', body] : ['application/json', JSON.stringify(body)];
  const about = { 'content-type': type, 'content-length': Buffer.byteLength(content ?? '') };
  const key = await adminKey(terminal, target.server);
  const headers = { authorization: `Bearer ${key}`, ...(body !== undefined && about) };
  try {
    // fetch gives up an answer that has not begun after five minutes. No redirect is followed: it would send the key to another address.
    const { request } = new URL(base).protocol === 'https:' ? https : http;
    const call = request(`${base}${path}`, { method, headers, timeout: SILENT_MS });
    call.on('timeout', () => call.destroy()).on('error', () => undefined);
    const [answer] = (await once(call.end(content), 'response')) as [IncomingMessage];
    const said = answer.headers as Record<string, string>;
    return new Response(Readable.toWeb(answer), { status: answer.statusCode ?? 0, headers: said });
  } catch (cause) {
    throw new CommandError(
      `the ${target.server} does not answer at ${base}: start it with "duebridge ${target.server} serve", or set DUEBRIDGE_ADMIN_URL`,
      exitCodes.failed,
      { cause, code: 'NO_ANSWER' },
    );
  }
}

function refused(
  terminal: Terminal,
  target: AdminTarget,
  response: Response,
  answer: unknown,
): CommandError {
  const { server, defaultPort } = target;
  const { status, headers } = response;
  if (status === 401) {
    return new CommandError(
      `the ${server} at ${adminUrl(terminal, target)} refused the admin key: set DUEBRIDGE_ADMIN_KEY, or DUEBRIDGE_DATA_DIR to the folder of that ${server}`,
      exitCodes.configuration,
    );
  }
  if (!isErrorBody(answer)) {
    // An answer of a proxy.
    return new CommandError(
      `the ${server} answered ${status} in a form that is not its own: check DUEBRIDGE_ADMIN_URL`,
      exitCodes.failed,
      { code: `HTTP_${status}`, cause: new Error(`HTTP ${status}`) },
    );
  }
  const { code, message, details = [] } = answer;
  if (code === 'NOT_FOUND') {
    return new CommandError(
      `${message} (${code}): check the id or name that you gave, and that DUEBRIDGE_ADMIN_URL names the admin listener, whose port is ${defaultPort} unless ADMIN_PORT says otherwise`,
      exitCodes.usage,
      { code },
    );
  }
  // What names nothing is a wrong argument.
  const isAddress = details.length > 0 && details.every(({ path }) => /^(path|query)\./.test(path));
  const isUsage = status === 404 || isAddress;
  // A server that lost its database answers like this, perhaps after the commit.
  const isUnknown = status === 503 && headers.has('retry-after');
  // Where a field stood in the request is nothing that a command's user wrote.
  const list = details.map(
    (one) => `${one.path.replace(/^(path|query|body)\./, '')} ${one.problem}`,
  );
  return new CommandError(
    `${message} (${code})${list.length === 0 ? '' : `: ${list.join('; ')}`}`,
    isUsage ? exitCodes.usage : exitCodes.failed,
    { code, ...(isUnknown ? { cause: new Error(`HTTP ${status}`) } : {}) },
  );
}

/** The base URL of the admin API, without a trailing slash. Throws CommandError for an invalid address. */
export function adminUrl(terminal: Terminal, target: AdminTarget): string {
  const { env } = terminal;
  const port = env['ADMIN_PORT'] || String(target.defaultPort);
  const given = env['DUEBRIDGE_ADMIN_URL'] || `http://127.0.0.1:${port}`;
  if (!URL.canParse(given) || !/^https?:$/.test(new URL(given).protocol)) {
    throw new CommandError(
      `DUEBRIDGE_ADMIN_URL is not an address: give it as http://127.0.0.1:${target.defaultPort}`,
      exitCodes.configuration,
    );
  }
  return given.replace(/\/+$/, '');
}

/** The admin key given, or the one in the server's data directory. */
async function adminKey(terminal: Terminal, server: ServerName): Promise<string> {
  const given = secretText(terminal.env, 'DUEBRIDGE_ADMIN_KEY');
  if (given !== undefined) return given;
  const file = adminKeyFile(dataDirectory(terminal.env), server);
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch {
    throw new CommandError(
      `there is no admin key: set DUEBRIDGE_ADMIN_KEY, or DUEBRIDGE_DATA_DIR to the folder of the ${server} (${file} cannot be read)`,
      exitCodes.configuration,
    );
  }
}

function isErrorBody(answer: unknown): answer is ErrorBody {
  return typeof answer === 'object' && answer !== null && 'code' in answer;
}
