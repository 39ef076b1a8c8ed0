/**
 * Every operation of every listener under inputs made from our own OpenAPI documents, and under bytes that are hardly HTTP. What must
 * hold, whatever comes: no answer of 500, no answer that the document does not name, no stack in it, no hang, and a listener that
 * answers afterwards.
 *
 *   npm run fuzz -- --seconds 600        a long run; --seed N repeats one
 *
 * A finding is printed with its seed. Bytes that found something are added to corpus.json, and every run starts with those.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { BothSides } from '../support/both-sides.ts';
import { createToken, openSession } from '../support/customer.ts';
import { Chance, json, mutate, part, type Schema } from './generate.ts';

/** One listener, and its callers' credentials. */
interface Listener {
  readonly name: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

interface Operation {
  readonly operationId: string;
  readonly parameters?: readonly { name: string; in: string; schema: Schema; required?: boolean }[];
  readonly requestBody?: { content: Readonly<Record<string, { schema: Schema }>> };
  readonly responses: Readonly<Record<string, unknown>>;
}

/** The result of a run. */
export interface FuzzReport {
  readonly requests: number;
  readonly raw: number;
  /** How often each status came: a run that got only 401 has tested only the authentication. */
  readonly statuses: ReadonlyMap<number, number>;
  readonly operations: ReadonlySet<string>;
  readonly findings: readonly string[];
}

/** An answer that takes longer is a hang: twice the longest deadline behind an operation. */
const HANG_MS = 30_000;

/** Sends a path unchanged; a URL object would normalise it. */
const caller = new Agent();

const corpus = JSON.parse(
  readFileSync(join(import.meta.dirname, 'corpus.json'), 'utf8'),
) as readonly { readonly why: string; readonly bytes: string }[];

/** Runs until `rounds` rounds are done or `untilMs` of performance.now() has come; a round calls each operation once. */
export async function fuzz(options: {
  readonly seed: number;
  readonly rounds: number;
  readonly untilMs?: number;
}): Promise<FuzzReport> {
  const chance = new Chance(options.seed);
  const both = new BothSides();
  const statuses = new Map<number, number>();
  const operations = new Set<string>();
  const findings: string[] = [];
  const sum = { requests: 0, raw: 0 };
  try {
    const listeners = await start(both);
    const known = await Promise.all(
      listeners.map(async (listener) => {
        const answer = await request(`${listener.url}/openapi.json`);
        const { paths } = (await answer.body.json()) as {
          paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
        };
        const all = Object.entries(paths).flatMap(([path, methods]) =>
          Object.entries(methods)
            .filter(([method]) => /^(get|put|post|patch|delete)$/.test(method))
            .map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
        );
        return { listener, all };
      }),
    );
    const over = (): boolean => performance.now() > (options.untilMs ?? Infinity);
    for (const { listener } of known) {
      for (const { why, bytes } of corpus) {
        sum.raw += 1;
        const found = await sendRaw(listener, Buffer.from(bytes, 'latin1'));
        if (found !== undefined) findings.push(`${listener.name}: ${why}: ${found}`);
      }
    }
    for (let round = 0; round < options.rounds && !over(); round += 1) {
      for (const { listener, all } of known) {
        for (const { path, method, operation } of all) {
          operations.add(`${listener.name} ${operation.operationId}`);
          const made = build(listener, path, method, operation, chance, round);
          sum.requests += 1;
          const { status, problem } = await sendOne(listener, made, operation);
          statuses.set(status, (statuses.get(status) ?? 0) + 1);
          if (problem !== undefined) {
            findings.push(
              `${listener.name} ${operation.operationId}: ${problem}: ${made.method} ${made.path} ${made.body?.slice(0, 400) ?? ''}`,
            );
          }
          // Bytes beside every few requests, changed from one that is right.
          if (chance.below(3) === 0) {
            const bytes = mutate(toBytes(made), chance);
            sum.raw += 1;
            const found = await sendRaw(listener, bytes);
            if (found !== undefined)
              findings.push(
                `${listener.name}: ${found}: ${JSON.stringify(bytes.toString('latin1'))}`,
              );
          }
          if (findings.length >= 20) return { ...sum, statuses, operations, findings };
        }
      }
    }
    for (const { url, name } of listeners) {
      const { statusCode } = await request(`${url}/healthz`);
      if (statusCode !== 200) findings.push(`${name}: does not answer any more: ${statusCode}`);
    }
    return { ...sum, statuses, operations, findings };
  } finally {
    await both.stop();
  }
}

/** Both servers, the kit in each of its two modes, with a bill to pay. */
async function start(both: BothSides): Promise<Listener[]> {
  const key = { 'x-api-key': 'the-key-that-the-biller-chose' };
  const secret = 'a-secret-of-the-platform';
  const csv =
    'biller_id,account_id,status,first_name,last_name,amount_due,due_date\ngas,a1,active,Ada,Lovelace,120.50,2026-12-01\n';
  const keyed = await both.partner({
    auth: { method: 'key', header: 'x-api-key', keys: [key['x-api-key']] },
  });
  await keyed.importAccounts(csv);
  const oauth = await both.partner({
    auth: { method: 'oauth', clients: [{ client_id: 'platform', secrets: [secret] }] },
  });
  const granted = await request(`${oauth.server.url}/oauth/token`, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: `grant_type=client_credentials&client_id=platform&client_secret=${secret}`,
  });
  const { access_token } = (await granted.body.json()) as { access_token: string };
  const { platform, register } = await both.platform();
  const client = await register({
    partner_id: 'gas',
    name: 'Gas Company',
    kind: 'biller',
    biller_id: 'gas',
    base_url: keyed.server.url,
    auth: { method: 'key', header: 'x-api-key', key: key['x-api-key'] },
  });
  const { body } = await createToken(client, { account_id: 'a1' });
  const browser = await openSession(platform.url, body.token);
  const { platform_payment_id } = (await browser.confirm(100)).body;
  await browser.ended(platform_payment_id);
  const again = await createToken(client, { account_id: 'a1' });
  const session = await request(`${platform.url}/v1/flow/session`, {
    method: 'POST',
    headers: { authorization: `Bearer ${again.body.token}`, 'content-type': 'application/json' },
    body: '{}',
  });
  const grant = (await session.body.json()) as { session: string };
  return [
    {
      name: 'platform',
      url: platform.url,
      headers: {
        'x-client-id': client.client_id,
        'x-api-key': client.api_key,
        authorization: `Bearer ${grant.session}`,
      },
    },
    {
      name: 'platform admin',
      url: platform.adminUrl,
      headers: { authorization: `Bearer ${platform.adminKey}` },
    },
    { name: 'kit by key', url: keyed.server.url, headers: key },
    {
      name: 'kit admin',
      url: keyed.server.adminUrl,
      headers: { authorization: `Bearer ${keyed.server.adminKey}` },
    },
    {
      name: 'kit by OAuth',
      url: oauth.server.url,
      headers: { authorization: `Bearer ${access_token}` },
    },
  ];
}

interface Made {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
}

function build(
  listener: Listener,
  path: string,
  method: string,
  operation: Operation,
  chance: Chance,
  round: number,
): Made {
  // The first round sends valid requests, so that the handlers are reached; later ones get worse and worse.
  const spoil = round === 0 ? 0 : chance.of([0.02, 0.1, 0.4]);
  const query: string[] = [];
  let filled = path;
  for (const { name, in: place, schema, required } of operation.parameters ?? []) {
    if (place === 'path')
      filled = filled.replace(`{${name}}`, part(schema, chance, spoil) || '%20');
    else if (place === 'query' && (required === true || chance.below(2) === 0)) {
      query.push(`${chance.next() < spoil / 4 ? 'unknown' : name}=${part(schema, chance, spoil)}`);
    }
  }
  const headers: Record<string, string> = { ...listener.headers };
  if (chance.next() < spoil / 3) delete headers['authorization'];
  if (chance.next() < spoil / 3) {
    headers[chance.of(['prefer', 'origin', 'if-match', 'accept', 'x-request-id', 'traceparent'])] =
      chance.of([
        'wait=0',
        'wait=-1',
        'wait=99999999999',
        'null',
        '*',
        'a'.repeat(300),
        '00-0-0-0',
      ]);
  }
  let body: string | undefined;
  const [type, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  if (type !== undefined && content !== undefined) {
    headers['content-type'] =
      chance.next() < spoil / 4
        ? chance.of(['text/plain', 'application/json; charset=utf-16', 'x'])
        : type;
    const value = json(content.schema, chance, spoil);
    body = type.includes('form')
      ? form(value)
      : type.includes('csv')
        ? chance.of(['platform_payment_id,status,amount_in_cents\r\nx,succeeded,1\r\n', '"', value])
        : value;
    if (chance.next() < spoil / 8) body = body.slice(0, chance.below(body.length + 1));
  }
  return {
    method,
    path: query.length > 0 ? `${filled}?${query.join('&')}` : filled,
    headers,
    body,
  };
}

function form(value: string): string {
  try {
    const fields = Object.entries(JSON.parse(value) as Record<string, unknown>);
    return fields.map(([key, one]) => `${key}=${encodeURIComponent(String(one))}`).join('&');
  } catch {
    return value;
  }
}

async function sendOne(
  listener: Listener,
  made: Made,
  operation: Operation,
): Promise<{ status: number; problem?: string }> {
  let answer;
  try {
    answer = await caller.request({
      origin: listener.url,
      path: made.path,
      method: made.method,
      headers: { ...made.headers, 'x-request-id': randomBytes(8).toString('hex') },
      ...(made.body === undefined ? {} : { body: made.body }),
      signal: AbortSignal.timeout(HANG_MS),
    });
  } catch (error) {
    const name = error instanceof Error ? error.name : '';
    // What the client itself refuses to send was never a request.
    if (/InvalidArgument|TypeError/.test(name)) return { status: 0 };
    return { status: 0, problem: `no answer: ${String(error)}` };
  }
  const status = answer.statusCode;
  if (String(answer.headers['content-type']).startsWith('text/event-stream')) {
    answer.body.on('error', () => undefined).destroy();
    return { status };
  }
  const text = await answer.body.text();
  return { status, ...judge(status, text, Object.keys(operation.responses)) };
}

/** What is wrong with an answer, given the statuses that the document names for the operation. */
export function judge(
  status: number,
  text: string,
  named: readonly string[],
): { problem?: string } {
  if (status === 500) return { problem: `500: ${text.slice(0, 200)}` };
  // A path or a length that no route takes is answered by the router.
  const always = ['400', '404', '405', '408', '413', '414', '415', '429', '431', '503'];
  if (!named.includes(String(status)) && !always.includes(String(status))) {
    return { problem: `${status} is not in the document` };
  }
  if (/\n\s+at .+:\d+:\d+|node_modules|duebridge_(platform|partner)\./.test(text)) {
    return { problem: `says what is inside: ${text.slice(0, 200)}` };
  }
  if (status >= 400) {
    try {
      const body = JSON.parse(text) as { code?: unknown; error?: unknown };
      if (typeof (body.code ?? body.error) !== 'string')
        return { problem: `no code: ${text.slice(0, 200)}` };
    } catch {
      return { problem: `no JSON: ${text.slice(0, 200)}` };
    }
  }
  return {};
}

function toBytes({ method, path, headers, body }: Made): Buffer {
  const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
  const lines = Object.entries({ host: '127.0.0.1', ...headers, ...length }).map(
    ([name, value]) => `${name}: ${value}`,
  );
  return Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body ?? ''}`);
}

/** Sends bytes, closes the sending side and reads to the end. Returns what is wrong with the answer, if anything. */
function sendRaw(listener: Listener, bytes: Buffer): Promise<string | undefined> {
  const { hostname, port } = new URL(listener.url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    let text = '';
    const hang = setTimeout(() => {
      socket.destroy();
      resolve('hangs');
    }, HANG_MS);
    socket.setEncoding('latin1').on('data', (piece: string) => {
      text += piece;
      // A stream of events ends when we disconnect.
      if (/^content-type: text\/event-stream/im.test(text)) socket.destroy();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(hang);
      const bad = /^HTTP\/1\.1 (500|501|502|504|505)\b/m.exec(text)?.[1];
      if (bad !== undefined) resolve(`${bad} to bytes`);
      else if (text !== '' && !/^HTTP\/1\.1 \d{3} /.test(text))
        resolve(`no HTTP: ${text.slice(0, 80)}`);
      else if (/\n\s+at .+:\d+:\d+/.test(text)) resolve('a stack to bytes');
      else resolve(undefined);
    });
    socket.end(bytes);
  });
}
