/**
 * The scripted partner: a complete partner in one process and in memory, correct unless configured otherwise.
 *
 * By default it conforms to the interface and every decision, so that the judge must pass it. A `behaviour`
 * makes it wrong in one way; a `scenario` makes it or its network fail in a way that happens in
 * production. It uses only node:http: it depends on the contract and on neither of the two servers that it
 * replaces.
 *
 *   request -> receive -> authorize -> validate -> find or store -> answer -> the wire
 *
 * One file because a behaviour or a scenario may step in at every stage of a request, and each stage reads the same store. What it
 * remembers (state.ts), how it fails (faults.ts), where it listens (listeners.ts) and how a developer controls it (controls.ts) are in other files.
 */
import { isUtf8 } from 'node:buffer';
import { randomBytes, randomUUID } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import type tls from 'node:tls';
import {
  compileCheck,
  isTerminal,
  JsonProblem,
  parseJson,
  partnerRoutes,
  PaymentInstruction,
  Refusal,
  SCOPES,
  type Check,
  type Detail,
  type Json,
  type Route,
} from '@duebridge/contract';
import { deadline, MACHINE_CLOCK, pause, type Clock } from '../clock.ts';
import { openFaults, REPLAY_HEADER } from './faults.ts';
import {
  closeButHold,
  closeListener,
  listen,
  listenAgain,
  mediaTypeOf,
  openEntryPoint,
  openStray,
  readBody,
  refusalAnswer,
  urlOf,
} from './listeners.ts';
import type { Scenario } from './scenarios.ts';
import { answerControl, isControl } from './controls.ts';
import type { Answer, Behaviour, Call, Operation, Reply, Wire } from './behaviour.ts';
import { openBook, statementOf, type Book } from './state.ts';
import { MAGIC_ACCOUNTS, type SandboxAccount } from './magic.ts';
import type { ScriptedAuth, ScriptedExchange, ScriptedPartner } from './running-partner.ts';

export { onRecords, recordOf } from './behaviour.ts';
export type {
  Answer,
  Behaviour,
  Call,
  Insides,
  Operation,
  Posting,
  Reply,
  StoredPayment,
  TakeOver,
  Wire,
} from './behaviour.ts';
export * from './magic.ts';
export { SCENARIOS, findScenario, type EntryPoint, type Scenario } from './scenarios.ts';
export { ScenarioProblem } from './faults.ts';
export type { ScriptedAuth, ScriptedExchange, ScriptedPartner } from './running-partner.ts';
export { MACHINE_CLOCK, type Clock } from '../clock.ts';

/** Options of a scripted partner. */
export interface ScriptedPartnerOptions {
  /** Address to listen on; 127.0.0.1 unless given. */
  readonly host?: string;
  /** 0, the usual value, takes a free port. */
  readonly port?: number;
  /** Certificate and key in PEM, to speak https instead of plain http. */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer };
  readonly auth: ScriptedAuth;
  /** The accounts it knows; the magic ones unless given. */
  readonly accounts?: readonly SandboxAccount[];
  /** How long a payment stays processing; 100 ms unless given. */
  readonly processing_ms?: number;
  /** One or more deviations from the correct behaviour. */
  readonly behaviour?: Behaviour | readonly Behaviour[];
  /** A fault by name or number (F02); see SCENARIOS. */
  readonly scenario?: string;
  /** How many faulty answers the scenario produces; the scenario's own number unless given. */
  readonly faults?: number | 'until_healed';
  /** Called after each exchange has been answered or taken over. */
  readonly seen?: (exchange: ScriptedExchange) => void;
  /** Seed of the random sequence; 1 unless given. */
  readonly seed?: number;
  /** Its time source; the machine's clock unless given. `advance` adds to it. */
  readonly clock?: Clock;
}

/** Longest wait granted to a read, in seconds (decision 24): shorter than the idle timeouts of proxies. */
const MAX_WAIT_SECONDS = 60;

/** Maximum number of exchanges kept for inspection: enough for hours of development, a few tens of megabytes. */
const MAX_EXCHANGES = 10_000;

/** Usual time from accepted to ended: long enough for a caller to see processing (RU1, ST1). */
const DEFAULT_PROCESSING_MS = 100;

/** Starts a partner; resolves once it listens. Rejects when the port is not available. */
export async function startScriptedPartner(
  options: ScriptedPartnerOptions,
): Promise<ScriptedPartner> {
  const host = options.host ?? '127.0.0.1';
  const clock = options.clock ?? MACHINE_CLOCK;
  const faults = openFaults({
    clock,
    scenario: options.scenario,
    faults: options.faults,
    origin: () => plainUrl,
    stray: () => stray.url,
    partner: () => book,
  });
  const behaviours = [...[options.behaviour ?? []].flat(), faults.behaviour];
  const entry = faults.scenario?.entry ?? 'open';
  const auth = scenarioAuth(options.auth, faults.scenario);
  const stray = await openStray(host);
  let plainUrl = '';
  const book = openBook({
    accounts: options.accounts ?? MAGIC_ACCOUNTS,
    processing_ms: options.processing_ms ?? DEFAULT_PROCESSING_MS,
    clock,
    seed: options.seed ?? 1,
    behaviours: () => behaviours,
  });
  const authenticator = openAuthenticator(auth, secretsInForce, book);
  function secretsInForce(): readonly string[] {
    const secrets = faults.scenario?.secrets;
    // A rotation ends when the old secret is revoked (F67).
    if (secrets !== undefined) return faults.healed() ? secrets.slice(-1) : secrets;
    return auth.method === 'oauth' ? [auth.client_secret] : [];
  }
  let exchanges: ScriptedExchange[] = [];
  let calls = 0;
  let release = new AbortController();
  const sockets = new Map<Socket, { readonly number: number; requests: number }>();
  let connections = 0;

  const handle: http.RequestListener = (request, response) => void serve(request, response);
  const server =
    options.tls === undefined
      ? http.createServer({ requestTimeout: 30_000 }, handle)
      : https.createServer({ ...options.tls, requestTimeout: 30_000 }, handle);
  server.on('connection', (socket: Socket) => {
    connections += 1;
    sockets.set(socket, { number: connections, requests: 0 });
    socket.on('close', () => sockets.delete(socket));
    // A peer that disconnects in the middle is expected here, not an error.
    socket.on('error', () => socket.destroy());
  });
  let refusedHandshakes = 0;
  server.on('tlsClientError', () => {
    refusedHandshakes += 1;
  });
  server.on('clientError', (_error, socket) => {
    if (!socket.writable) return;
    socket.end(rawBytes(refusalAnswer(new Refusal('INVALID_REQUEST')), { Connection: 'close' }));
  });

  async function serve(request: http.IncomingMessage, response: http.ServerResponse) {
    const gone = new AbortController();
    response.on('close', () => {
      // After a whole answer nothing is held, and an abort costs a stack trace for each request.
      if (!response.writableFinished) gone.abort();
    });
    const released = AbortSignal.any([gone.signal, release.signal]);
    const body = await readBody(request);
    if (isControl(request.url ?? '')) {
      const answer = await answerControl(request, body?.toString('utf8') ?? '', partner).catch(
        asRefusal,
      );
      const { status, headers, body: bytes } = toSendable(answer);
      response.writeHead(status, headers).end(bytes);
      return;
    }
    calls += 1;
    const connection = sockets.get(request.socket) ?? { number: 0, requests: 0 };
    const text = body?.toString('utf8') ?? '';
    const { call, problem } = toCall(request, text, calls, connection, released);
    connection.requests += 1;
    const exchange: ScriptedExchange = {
      number: call.number,
      connection: call.connection,
      at_ms: book.now(),
      operation: call.operation,
      method: call.method,
      path: call.path,
      headers: maskedHeaders(request, auth),
      body: call.operation === 'access_token' ? maskedForm(call.text) : call.text,
      credential: 'not_looked_at',
      answer: undefined,
      taken_over: false,
      replayed: request.headers[REPLAY_HEADER] !== undefined,
    };
    exchanges.push(exchange);
    if (exchanges.length > MAX_EXCHANGES) exchanges.shift();
    const requestId = request.headers['x-request-id'];
    const fixed = {
      'X-Request-Id': typeof requestId === 'string' ? requestId : randomUUID(),
      'Cache-Control': 'no-store',
      Date: new Date(book.now()).toUTCString(),
    };
    const send = (answer: Answer) => {
      if (response.headersSent || response.destroyed) return;
      const { status, headers, body } = toSendable(answer);
      exchange.answer = { status, body: bodyText(body) };
      response.writeHead(status, { ...fixed, ...headers });
      response.end(body);
    };

    let reply: Reply = await respond(call, body, problem, released, exchange).catch(asRefusal);
    const answer =
      typeof reply === 'function' ? refusalAnswer(new Refusal('SERVICE_UNAVAILABLE')) : reply;
    for (const behaviour of behaviours) {
      if (typeof reply === 'function') break;
      reply = (await behaviour.answer?.(call, reply, book)) ?? reply;
    }
    if (typeof reply !== 'function') {
      send(reply);
      options.seen?.(exchange);
      return;
    }

    exchange.taken_over = true;
    const wire: Wire = {
      socket: request.socket,
      response,
      answer,
      released,
      send,
      bytes: (given) => rawBytes(given, fixed),
    };
    options.seen?.(exchange);
    await reply(wire);
    if (response.writableEnded || request.socket.destroyed) return;
    const close = () => request.socket.destroy();
    if (released.aborted) close();
    else released.addEventListener('abort', close, { once: true });
  }

  /** The answer of a correct partner, with the hooks called along the way. Throws Refusal. */
  async function respond(
    call: Call,
    body: Buffer | undefined,
    problem: Refusal | undefined,
    released: AbortSignal,
    exchange: { credential: ScriptedExchange['credential'] },
  ): Promise<Reply> {
    for (const behaviour of behaviours) {
      const reply = await behaviour.receive?.(call, book);
      if (reply !== undefined) return reply;
    }
    if (problem !== undefined) throw problem;
    if (call.operation === 'unknown') throw new Refusal('NOT_FOUND');
    if (call.operation === 'access_token') return authenticator.grant(call, body);

    let refusal = authenticator.judge(call, partnerRoutes[call.operation].scope);
    for (const behaviour of behaviours) {
      if (behaviour.authorize) refusal = behaviour.authorize(call, refusal, book);
    }
    exchange.credential = refusal === undefined ? 'right' : 'refused';
    if (refusal !== undefined) throw refusal;
    const wrongParams = PARAMS[call.operation].problems(call.params, 'path');
    if (wrongParams.length > 0) throw new Refusal('INVALID_REQUEST', { details: wrongParams });

    book.settle();
    switch (call.operation) {
      case 'get_account':
      case 'get_balance':
        return readAccount(call, released);
      case 'put_account_payment':
        return await putPayment(call, body);
      case 'get_account_payment':
      case 'get_payment':
        return await readPayment(call, released);
      case 'get_batch_statement':
        return readStatement(call, book);
    }
  }

  async function readAccount(call: Call, released: AbortSignal): Promise<Answer> {
    const { biller_id = '', account_id = '' } = call.params;
    const account = book.account(biller_id, account_id);
    if (account === undefined) throw new Refusal('ACCOUNT_NOT_FOUND');
    if (account.read_delay_ms !== undefined) await pause(clock, account.read_delay_ms, released);
    if (call.operation === 'get_balance') return { status: 200, body: { ...account.balance } };
    const { status, holder, balance, payment_rules } = account;
    return {
      status: 200,
      body: {
        biller_id,
        account_id,
        status,
        ...(holder === undefined ? {} : { holder }),
        ...(balance === undefined ? {} : { balance }),
        ...(payment_rules === undefined ? {} : { payment_rules }),
      },
    };
  }

  async function putPayment(call: Call, body: Buffer | undefined): Promise<Answer> {
    const instruction = readInstruction(call, body);
    const { biller_id = '', account_id = '', platform_payment_id = '' } = call.params;
    let key = platform_payment_id;
    for (const behaviour of behaviours) key = behaviour.key?.(call, instruction, book) ?? key;
    let payment = book.find(key);
    for (const behaviour of behaviours) {
      if (behaviour.beforeStore) await behaviour.beforeStore(call, book);
    }
    if (payment === undefined) {
      const { platform_batch_id, amount_in_cents } = instruction;
      payment = book.draft({
        key,
        platform_payment_id,
        platform_batch_id,
        biller_id,
        account_id,
        amount_in_cents,
      });
      for (const behaviour of behaviours) behaviour.born?.(payment, call, book);
      book.store(payment);
    } else {
      for (const behaviour of behaviours) behaviour.repeat?.(payment, call, book);
    }
    for (const behaviour of behaviours) behaviour.stored?.(payment, call, book);
    return { status: 200, body: book.record(payment) };
  }

  /** Validates the body of a PUT. A behaviour may accept an invalid one; missing fields then get usable defaults. */
  function readInstruction(call: Call, body: Buffer | undefined): PaymentInstruction {
    if (mediaTypeOf(call.headers) !== 'application/json')
      throw new Refusal('UNSUPPORTED_MEDIA_TYPE');
    if (body === undefined) throw new Refusal('PAYLOAD_TOO_LARGE');
    let problems: readonly Detail[] = [];
    try {
      if (!isUtf8(body)) throw new JsonProblem('the text is not UTF-8');
      call.body = parseJson(call.text);
      problems = INSTRUCTION.problems(call.body, 'body');
    } catch (error) {
      if (!(error instanceof JsonProblem)) throw error;
      problems = [{ path: 'body', problem: error.problem }];
    }
    const fields = isObject(call.body) ? call.body : {};
    const { platform_payment_id = '' } = call.params;
    const echoed = fields['platform_payment_id'];
    if (problems.length === 0 && echoed !== undefined && echoed !== platform_payment_id) {
      problems = [{ path: 'body.platform_payment_id', problem: 'must equal the id in the path' }];
    }
    for (const behaviour of behaviours) problems = behaviour.validate?.(call, problems) ?? problems;
    if (problems.length > 0) throw new Refusal('INVALID_REQUEST', { details: problems });
    const { amount_in_cents, platform_batch_id } = fields;
    return {
      amount_in_cents: typeof amount_in_cents === 'number' ? amount_in_cents : asNumber(fields),
      platform_batch_id: typeof platform_batch_id === 'string' ? platform_batch_id : '',
    };
  }

  async function readPayment(call: Call, released: AbortSignal): Promise<Answer> {
    const { biller_id, account_id, platform_payment_id = '' } = call.params;
    const payment =
      book.find(platform_payment_id) ??
      // Behaviours that use another key still read by the id that the caller knows: the newest payment wins.
      book.payments().findLast((entry) => entry.platform_payment_id === platform_payment_id);
    if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
    if (call.operation === 'get_account_payment') {
      const here = payment.biller_id === biller_id && payment.account_id === account_id;
      if (!here) throw new Refusal('PAYMENT_NOT_FOUND');
    }
    const seconds = waitSeconds(call);
    if (seconds === undefined) return { status: 200, body: book.record(payment) };
    if (!isTerminal(payment.status)) {
      const enough = deadline(clock, seconds * 1000);
      await book.whenEnded(payment, AbortSignal.any([released, enough.signal]));
      enough.cancel();
    }
    return {
      status: 200,
      headers: { 'Preference-Applied': 'wait' },
      body: book.record(payment),
    };
  }

  const port = await listen(server, options.port ?? 0, host).catch(async (error: unknown) => {
    await stray.stop();
    throw error;
  });
  plainUrl = urlOf(options.tls === undefined ? 'http' : 'https', host, port);
  const front = await openEntryPoint(entry, host);
  const url = front?.url ?? plainUrl;
  let held = entry === 'closed' ? await closeButHold(server, port, host, stray.port) : undefined;
  const letGo = () => {
    release.abort();
    release = new AbortController();
  };
  let stopped: Promise<void> | undefined;

  const partner: ScriptedPartner = {
    url,
    plain_url: plainUrl,
    token_url: `${plainUrl}${partnerRoutes.access_token.path}`,
    auth,
    scenario: faults.scenario,
    payments: () => {
      book.settle();
      return book.payments();
    },
    postings: () => {
      book.settle();
      return book.postings();
    },
    exchanges: () => exchanges,
    accounts: () => book.accounts(),
    faults: () => faults.count(),
    healed: () => faults.healed(),
    async heal() {
      faults.heal();
      letGo();
      if (entry === 'closed' && !server.listening) await listenAgain(clock, server, port, host);
      held?.resetAndDestroy();
      held = undefined;
    },
    entryConnections: () => front?.connections() ?? 0,
    stray_url: stray.url,
    strayRequests: () => stray.paths().length,
    strayPaths: () => stray.paths(),
    async refuseConnections() {
      const closed = closeButHold(server, port, host, stray.port);
      for (const socket of sockets.keys()) socket.destroy();
      const place = await closed;
      return async () => {
        place.resetAndDestroy();
        if (stopped === undefined) await listenAgain(clock, server, port, host);
      };
    },
    refusedHandshakes: () => refusedHandshakes,
    replaceCertificate(pem) {
      const { tls: own } = options;
      if (own === undefined || !(server instanceof https.Server)) {
        throw new RangeError('start the partner with the option tls');
      }
      const present = (context: tls.SecureContextOptions): void => {
        server.setSecureContext(context);
        for (const socket of sockets.keys()) socket.destroy();
      };
      present(pem);
      return () => present(own);
    },
    end(platform_payment_id, status) {
      const payment = book.find(platform_payment_id);
      if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
      if (isTerminal(payment.status)) throw new Refusal('CONFLICT');
      book.end(payment, {
        status,
        after_ms: 0,
        ...(status === 'failed' ? { failure_reason: 'Ended by hand in the sandbox.' } : {}),
      });
    },
    reset() {
      letGo();
      book.reset();
      authenticator.reset();
      faults.reset();
      exchanges = [];
      calls = 0;
    },
    advance: (ms) => book.advance(ms),
    now: () => book.now(),
    stop() {
      stopped ??= (async () => {
        book.close();
        release.abort();
        held?.resetAndDestroy();
        const closed = closeListener(server);
        for (const socket of sockets.keys()) socket.destroy();
        await Promise.all([closed, stray.stop(), front?.stop()]);
      })();
      return stopped;
    },
  };
  return partner;
}

/** The credentials, as changed by the scenario. */
function scenarioAuth(auth: ScriptedAuth, scenario: Scenario | undefined): ScriptedAuth {
  if (scenario?.needs === 'oauth' && auth.method !== 'oauth') {
    throw new RangeError(`${scenario.name} is an OAuth fault: start the partner with OAuth`);
  }
  const secret = scenario?.secrets?.[0];
  return auth.method === 'oauth' && secret !== undefined
    ? { ...auth, client_secret: secret }
    : auth;
}

/** Verifies credentials and issues access tokens (S3, OA1-OA4, SC1, KY1, KY2). */
function openAuthenticator(auth: ScriptedAuth, secrets: () => readonly string[], book: Book) {
  const tokens = new Map<string, { scopes: readonly string[]; expires_ms: number }>();

  function judge(call: Call, scope: string | undefined): Refusal | undefined {
    if (auth.method === 'key') {
      // Node joins repeated headers with a comma, so that two of them never equal the key.
      if (call.headers[auth.header.toLowerCase()] !== auth.key) return new Refusal('UNAUTHORIZED');
      call.scopes = SCOPES;
      return undefined;
    }
    const bearer = /^Bearer +([^ ]+)$/i.exec(call.headers.authorization ?? '')?.[1];
    const token = bearer === undefined ? undefined : tokens.get(bearer);
    if (token === undefined || token.expires_ms <= book.now()) {
      const error = bearer === undefined ? '' : ', error="invalid_token"';
      return new Refusal('UNAUTHORIZED', {
        headers: { 'WWW-Authenticate': `Bearer realm="sandbox"${error}` },
      });
    }
    call.scopes = token.scopes;
    if (scope === undefined || token.scopes.includes(scope)) return undefined;
    return new Refusal('INSUFFICIENT_SCOPE', {
      headers: {
        'WWW-Authenticate': `Bearer realm="sandbox", error="insufficient_scope", scope="${scope}"`,
      },
    });
  }

  function grant(call: Call, body: Buffer | undefined): Answer {
    if (auth.method !== 'oauth') throw new Refusal('NOT_FOUND');
    if (mediaTypeOf(call.headers) !== 'application/x-www-form-urlencoded') {
      return oauthError(415, 'invalid_request', 'send a form');
    }
    if (body === undefined) return oauthError(413, 'invalid_request', 'the form is too large');
    const form = new URLSearchParams(call.text);
    const repeated = [...form.keys()].some((name) => form.getAll(name).length > 1);
    if (repeated) return oauthError(400, 'invalid_request', 'a field is repeated');
    const basic = basicCredentials(call.headers.authorization);
    if (basic !== undefined && form.has('client_secret')) {
      return oauthError(400, 'invalid_request', 'send the secret once: in the form or by Basic');
    }
    const client_id = basic?.client_id ?? form.get('client_id');
    const client_secret = basic?.client_secret ?? form.get('client_secret');
    if (client_id !== auth.client_id || !secrets().includes(client_secret ?? '')) {
      return oauthError(401, 'invalid_client', 'unknown client', {
        'WWW-Authenticate': 'Basic realm="sandbox"',
      });
    }
    const grantType = form.get('grant_type');
    if (grantType === null) return oauthError(400, 'invalid_request', 'grant_type is missing');
    if (grantType !== 'client_credentials') {
      return oauthError(400, 'unsupported_grant_type', 'only client_credentials is supported');
    }
    const asked = (form.get('scope') ?? '').split(' ').filter((scope) => scope !== '');
    const scopes = asked.length === 0 ? [...SCOPES] : asked;
    if (!scopes.every((scope) => SCOPES.some((known) => known === scope))) {
      return oauthError(400, 'invalid_scope', 'the scopes are read and write');
    }
    const expires_in = auth.expires_in ?? 3600;
    const access_token = randomBytes(32).toString('base64url');
    tokens.set(access_token, { scopes, expires_ms: book.now() + expires_in * 1000 });
    return {
      status: 200,
      body: { access_token, token_type: 'Bearer', expires_in, scope: scopes.join(' ') },
    };
  }

  return { judge, grant, reset: () => tokens.clear() };
}

function oauthError(
  status: number,
  error: string,
  error_description: string,
  headers: Readonly<Record<string, string>> = {},
): Answer {
  return { status, headers, body: { error, error_description } };
}

function basicCredentials(header: string | undefined) {
  const encoded = /^Basic +([A-Za-z0-9+/=]+)$/i.exec(header ?? '')?.[1];
  if (encoded === undefined) return undefined;
  const [client_id = '', ...rest] = Buffer.from(encoded, 'base64').toString('utf8').split(':');
  try {
    // RFC 6749 section 2.3.1: both parts are form-encoded before they are joined.
    const decode = (part: string) => decodeURIComponent(part.replaceAll('+', ' '));
    return { client_id: decode(client_id), client_secret: decode(rest.join(':')) };
  } catch {
    return { client_id: '', client_secret: '' };
  }
}

const INSTRUCTION = compileCheck(PaymentInstruction);

type PartnerOperation = Exclude<Operation, 'unknown' | 'access_token'>;

const PARAMS: Readonly<Record<PartnerOperation, Check<unknown>>> = {
  get_account: compileCheck(partnerRoutes.get_account.params),
  get_balance: compileCheck(partnerRoutes.get_balance.params),
  put_account_payment: compileCheck(partnerRoutes.put_account_payment.params),
  get_account_payment: compileCheck(partnerRoutes.get_account_payment.params),
  get_payment: compileCheck(partnerRoutes.get_payment.params),
  get_batch_statement: compileCheck(partnerRoutes.get_batch_statement.params),
};

function readStatement(call: Call, book: Book): Answer {
  const { platform_batch_id = '' } = call.params;
  const payments = book.payments().filter((p) => p.platform_batch_id === platform_batch_id);
  if (payments.length === 0) throw new Refusal('BATCH_NOT_FOUND');
  return { status: 200, body: statementOf(platform_batch_id, payments) };
}

/** Finds the operation of a request and its path fields; `problem` when there is none. */
function toCall(
  request: http.IncomingMessage,
  text: string,
  number: number,
  connection: { readonly number: number; readonly requests: number },
  released: AbortSignal,
): { call: Call; problem: Refusal | undefined } {
  const method = request.method ?? '';
  const path = request.url ?? '';
  let operation: Operation = 'unknown';
  let params: Record<string, string> = {};
  let problem: Refusal | undefined;
  const allowed: string[] = [];
  for (const route of Object.values(partnerRoutes) as Route[]) {
    const fields = matchPath(route.path, path.split('?')[0] ?? '');
    if (fields === undefined) continue;
    allowed.push(route.method);
    if (route.method !== method) continue;
    operation = route.id as Operation;
    if (fields === 'undecodable') problem = new Refusal('INVALID_REQUEST');
    else params = fields;
  }
  if (operation === 'unknown' && allowed.length > 0) {
    problem = new Refusal('METHOD_NOT_ALLOWED', { headers: { Allow: allowed.join(', ') } });
  }
  const call: Call = {
    number,
    connection: connection.number,
    earlier: connection.requests,
    released,
    operation,
    method,
    path,
    params,
    headers: request.headers,
    text,
    body: undefined,
    scopes: undefined,
  };
  return { call, problem };
}

function matchPath(template: string, path: string) {
  const [wanted, given] = [template.split('/'), path.split('/')];
  if (wanted.length !== given.length) return undefined;
  const fields: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? '';
    if (!part.startsWith('{')) {
      if (part !== value) return undefined;
      continue;
    }
    try {
      fields[part.slice(1, -1)] = decodeURIComponent(value);
    } catch {
      return 'undecodable';
    }
  }
  return fields;
}

/** Seconds of `Prefer: wait=N` (RFC 7240), at most the bound; undefined when the request has none. */
function waitSeconds(call: Call): number | undefined {
  const prefer = call.headers['prefer'];
  const value = /(?:^|[,;\s])wait\s*=\s*"?(\d{1,6})"?/i.exec(String(prefer ?? ''))?.[1];
  return value === undefined ? undefined : Math.min(MAX_WAIT_SECONDS, Number(value));
}

function isObject(value: Json | undefined): value is Readonly<Record<string, Json>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function asNumber(fields: Readonly<Record<string, Json>>): number {
  const value = Number(JSON.parse(JSON.stringify(fields['amount_in_cents'] ?? null)));
  return Number.isFinite(value) ? value : 0;
}

function asRefusal(error: unknown): Answer {
  if (!(error instanceof Refusal)) throw error;
  return refusalAnswer(error);
}

function toSendable(answer: Answer) {
  const { body } = answer;
  const plain = body === undefined || typeof body === 'string' || body instanceof Uint8Array;
  const bytes = plain ? (body ?? '') : JSON.stringify(body);
  const headers: Record<string, string | string[]> = plain
    ? {}
    : { 'Content-Type': 'application/json; charset=utf-8' };
  for (const [name, value] of Object.entries(answer.headers ?? {})) {
    headers[name] = typeof value === 'string' ? value : [...value];
  }
  return { status: answer.status, headers, body: bytes };
}

function rawBytes(answer: Answer, fixed: Readonly<Record<string, string>>): Buffer {
  const { status, headers, body } = toSendable(answer);
  const bytes = Buffer.from(body as string);
  const lines = [`HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? 'Unknown'}`];
  const all = { ...fixed, 'Content-Length': String(bytes.length), ...headers };
  for (const [name, value] of Object.entries(all)) {
    for (const one of [value].flat()) lines.push(`${name}: ${one}`);
  }
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), bytes]);
}

function bodyText(body: string | Uint8Array): string {
  return typeof body === 'string' ? body : Buffer.from(body).toString('utf8');
}

/** Headers as text, in one entry each, with credentials masked. */
function maskedHeaders(request: http.IncomingMessage, auth: ScriptedAuth): Record<string, string> {
  const secret = new Set(['authorization', 'cookie', 'x-api-key']);
  if (auth.method === 'key') secret.add(auth.header.toLowerCase());
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(request.headers)) {
    headers[name] = secret.has(name) ? '(masked)' : String(value);
  }
  return headers;
}

function maskedForm(text: string): string {
  const form = new URLSearchParams(text);
  if (form.has('client_secret')) form.set('client_secret', '(masked)');
  return form.toString();
}
