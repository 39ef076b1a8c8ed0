/**
 * Every operation of every listener under inputs made from our own OpenAPI documents, and under bytes that are hardly HTTP. What must
 * hold, whatever comes: no answer of 500, no answer that the document does not name, no stack in it, no hang, and a listener that
 * answers afterwards.
 *
 * DUEBRIDGE_SEED=4711 DUEBRIDGE_FUZZ_ROUNDS=500 makes a long run with other inputs; a round calls each operation once.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import test, { after } from 'node:test';
import {
  partnerAdminRoutes,
  partnerRoutes,
  platformAdminRoutes,
  platformRoutes,
} from '@duebridge/contract';
import { PATIENCE_MS, seededRandom } from '@duebridge/runtime/testing';
import { Agent, request } from 'undici';
import { BothSides, gasCompany } from '../support/both-sides.ts';
import { call, createToken, openSession } from '../support/customer.ts';
import { generate, type Generate, type Schema } from './generate.ts';

/** Every test run uses this seed, so that a change is judged by the same inputs as the last one. */
const SEED = Number(process.env['DUEBRIDGE_SEED'] ?? 20_260_301);
const ROUNDS = Number(process.env['DUEBRIDGE_FUZZ_ROUNDS'] ?? 6);
/** Sends a path unchanged; a URL object would normalise it. */
const caller = new Agent();
/** A path or a length that no route takes is answered by the router. */
const ALWAYS = ['400', '404', '405', '408', '413', '414', '415', '429', '431', '503'];

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

const sides = new BothSides();
after(() => sides.stop());

test('no input makes a listener answer 500, hang, reveal internals or stop, in any operation', async (t) => {
  const statuses = new Map<number, number>();
  const operations = new Set<string>();
  const findings: string[] = [];
  const listeners = await start();
  const random = generate(seededRandom(SEED));
  const corpus = JSON.parse(
    readFileSync(join(import.meta.dirname, 'corpus.json'), 'utf8'),
  ) as readonly { readonly why: string; readonly bytes: string }[];
  for (const listener of listeners) {
    for (const { why, bytes } of corpus) {
      const found = await sendRaw(listener, Buffer.from(bytes, 'latin1'));
      if (found !== undefined) findings.push(`${listener.name}: ${why}: ${found}`);
    }
    const answer = await request(`${listener.url}/openapi.json`);
    const { paths } = (await answer.body.json()) as {
      paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
    };
    const all = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods)
        .filter(([method]) => /^(get|put|post|patch|delete)$/.test(method))
        .map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
    );
    for (let round = 0; round < ROUNDS && findings.length < 20; round += 1) {
      for (const { path, method, operation } of all) {
        operations.add(`${listener.name} ${operation.operationId}`);
        // The first round sends valid requests, so that the handlers are reached; later ones get worse and worse.
        const spoil = round === 0 ? 0 : random.of([0.02, 0.1, 0.4]);
        const made = { method, ...build(listener, path, operation, random, spoil) };
        const { status, problem } = await send(listener, made, Object.keys(operation.responses));
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        if (problem !== undefined) {
          findings.push(
            `${listener.name} ${operation.operationId}: ${problem}: ${method} ${made.path} ${made.body?.slice(0, 400) ?? ''}`,
          );
        }
      }
    }
  }
  for (const { url } of listeners) assert.equal((await request(`${url}/healthz`)).statusCode, 200);
  t.diagnostic(`seed ${SEED}: ${JSON.stringify(Object.fromEntries(statuses))}`);
  assert.deepEqual(findings, []);
  // What was sent did reach the handlers, of every operation there is.
  const { access_token: _oauthOnly, ...shared } = partnerRoutes;
  const expected = [platformRoutes, platformAdminRoutes, partnerRoutes, partnerAdminRoutes, shared];
  const count = expected.reduce((sum, routes) => sum + Object.keys(routes).length, 0);
  assert.equal(operations.size, count);
  for (const status of [200, 400, 404]) assert.ok((statuses.get(status) ?? 0) > 20, `${status}`);
});

test('the judge of answers finds a crash, a leak and a wrong form', () => {
  const named = ['200', '400', '404'];
  const refusal = '{"code":"INVALID_REQUEST","message":"x"}';
  assert.equal(judge(200, '', named), undefined);
  assert.equal(judge(400, refusal, named), undefined);
  assert.equal(judge(404, '{"error":"invalid_request"}', named), undefined);
  for (const [status, text] of [
    [500, '{"code":"INTERNAL_ERROR","message":"x"}'],
    [501, refusal],
    [409, refusal],
    [302, ''],
    [400, 'Bad Request'],
    [400, '{"message":"x"}'],
    [400, '{"code":"X","message":"no duebridge_platform.payments"}'],
    [404, '{"code":"X","message":"Error\n    at get (/app/x.js:1:2)"}'],
  ] as const) {
    assert.ok(judge(status, text, named) !== undefined, `${status} ${text}`);
  }
});

/** Both servers, the kit in each of its two modes, with a bill to pay. */
async function start(): Promise<Listener[]> {
  const key = 'the-key-that-the-biller-chose';
  const secret = 'a-secret-of-the-platform';
  const keyed = await sides.partner({
    auth: { method: 'key', header: 'x-api-key', keys: [key] },
  });
  await keyed.importAccounts(
    'biller_id,account_id,status,first_name,last_name,amount_due,due_date\ngas,a1,active,Ada,Lovelace,120.50,2026-12-01\n',
  );
  const oauth = await sides.partner({
    auth: { method: 'oauth', client_id: 'platform', secrets: [secret] },
  });
  const granted = await request(`${oauth.server.url}/oauth/token`, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: `grant_type=client_credentials&client_id=platform&client_secret=${secret}`,
  });
  const { access_token } = (await granted.body.json()) as { access_token: string };
  const { platform, register } = await sides.platform();
  const client = await register(gasCompany(keyed.server.url, key));
  const { body } = await createToken(client, { account_id: 'a1' });
  const browser = await openSession(platform.url, body.token);
  await browser.ended((await browser.confirm(100)).body.platform_payment_id);
  const { token } = (await createToken(client, { account_id: 'a1' })).body;
  const grant = await call<{ session: string }>(
    'POST',
    `${platform.url}/v1/flow/session`,
    bearer(token),
    {},
  );
  const { client_id, api_key } = client;
  const ofPlatform = { 'x-client-id': client_id, 'x-api-key': api_key };
  return [
    {
      name: 'platform',
      url: platform.url,
      headers: { ...ofPlatform, ...bearer(grant.body.session) },
    },
    { name: 'platform admin', url: platform.adminUrl, headers: bearer(platform.adminKey) },
    { name: 'kit by key', url: keyed.server.url, headers: { 'x-api-key': key } },
    { name: 'kit admin', url: keyed.server.adminUrl, headers: bearer(keyed.server.adminKey) },
    { name: 'kit by OAuth', url: oauth.server.url, headers: bearer(access_token) },
  ];
}

function bearer(token: string): { authorization: string } {
  return { authorization: `Bearer ${token}` };
}

/** A request for an operation: valid but for a share of `spoil`. */
function build(
  listener: Listener,
  path: string,
  operation: Operation,
  random: Generate,
  spoil: number,
): { path: string; headers: Record<string, string>; body: string | undefined } {
  const query: string[] = [];
  let filled = path;
  for (const { name, in: place, schema, required } of operation.parameters ?? []) {
    if (place === 'path') {
      filled = filled.replace(`{${name}}`, random.part(schema, spoil) || '%20');
    } else if (place === 'query' && (required === true || random.chance(0.5))) {
      query.push(`${random.chance(spoil / 4) ? 'unknown' : name}=${random.part(schema, spoil)}`);
    }
  }
  const headers: Record<string, string> = { ...listener.headers };
  if (random.chance(spoil / 3)) delete headers['authorization'];
  if (random.chance(spoil / 3)) {
    const name = random.of(['prefer', 'origin', 'if-match', 'accept', 'x-request-id']);
    headers[name] = random.of(['wait=-1', 'wait=99999999999', 'null', '*', 'a'.repeat(300)]);
  }
  let body: string | undefined;
  const [type, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  if (type !== undefined && content !== undefined) {
    headers['content-type'] = random.chance(spoil / 4)
      ? random.of(['text/plain', 'application/json; charset=utf-16', 'x'])
      : type;
    body = random.json(content.schema, spoil);
    if (type.includes('form')) body = form(body);
    if (random.chance(spoil / 8)) body = body.slice(0, body.length / 2);
  }
  return { path: query.length > 0 ? `${filled}?${query.join('&')}` : filled, headers, body };
}

function form(value: string): string {
  try {
    const fields = Object.entries(JSON.parse(value) as Record<string, unknown>);
    return fields.map(([key, one]) => `${key}=${encodeURIComponent(String(one))}`).join('&');
  } catch {
    return value;
  }
}

async function send(
  listener: Listener,
  made: { method: string } & ReturnType<typeof build>,
  named: readonly string[],
): Promise<{ status: number; problem?: string | undefined }> {
  const { method, path, headers, body } = made;
  let answer;
  try {
    answer = await caller.request({
      origin: listener.url,
      path,
      method,
      headers: { ...headers, 'x-request-id': randomBytes(8).toString('hex') },
      ...(body === undefined ? {} : { body }),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    const name = error instanceof Error ? error.name : '';
    // What the client itself refuses to send was never a request.
    if (/InvalidArgument|TypeError/.test(name)) return { status: 0 };
    return { status: 0, problem: `no answer: ${String(error)}` };
  }
  const status = answer.statusCode;
  return { status, problem: judge(status, await answer.body.text(), named) };
}

/** What is wrong with an answer, given the statuses that the document names for the operation. */
function judge(status: number, text: string, named: readonly string[]): string | undefined {
  const shown = text.slice(0, 200);
  if (status === 500) return `500: ${shown}`;
  if (![...named, ...ALWAYS].includes(String(status))) return `${status} is not in the document`;
  if (/\n\s+at .+:\d+:\d+|node_modules|duebridge_(platform|partner)\./.test(text)) {
    return `says what is inside: ${shown}`;
  }
  if (status < 400) return undefined;
  try {
    const body = JSON.parse(text) as { code?: unknown; error?: unknown };
    return typeof (body.code ?? body.error) === 'string' ? undefined : `no code: ${shown}`;
  } catch {
    return `no JSON: ${shown}`;
  }
}

/** Sends bytes, closes the sending side and reads to the end. Returns what is wrong with the answer, if anything. */
function sendRaw(listener: Listener, bytes: Buffer): Promise<string | undefined> {
  const { hostname, port } = new URL(listener.url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    let text = '';
    socket.setTimeout(PATIENCE_MS, () => {
      socket.destroy();
      resolve('hangs');
    });
    socket.setEncoding('latin1').on('data', (piece: string) => (text += piece));
    socket.on('error', () => undefined);
    socket.on('close', () => {
      const bad = /^HTTP\/1\.1 (500|501|502|504|505)\b/m.exec(text)?.[1];
      if (bad !== undefined) resolve(`${bad} to bytes`);
      else if (text !== '' && !/^HTTP\/1\.1 \d{3} /.test(text)) resolve(`no HTTP: ${text}`);
      else resolve(/\n\s+at .+:\d+:\d+/.test(text) ? 'a stack to bytes' : undefined);
    });
    socket.end(bytes);
  });
}
