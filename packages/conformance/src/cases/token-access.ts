/**
 * Checks of who gets a token, and of what a platform answers (T04 to T07, T11, T14, T16, T20, T21): a token starts payments in a
 * customer's name, and an error must not tell strangers anything.
 */
import type { Json } from '@duebridge/contract';
import type { TokenCase } from '../check/check.ts';
import {
  asksToWait,
  asObject,
  show,
  tell,
  type Exchange,
  type Reply,
  parsed,
} from '../check/http.ts';
import { NO_BILLER } from '../check/payment-fields.ts';
import {
  credentials,
  fullBody,
  identifiers,
  leastBody,
  type TokenBody,
  type TokenContext,
} from '../check/token-context.ts';
import { isText, misspellings, revealsNothing } from './shared.ts';

const t04: TokenCase = {
  id: 'T04',
  title: 'A token request without a client id or a key is refused',
  clauses: ['AU1'],
  likely_cause: 'The server treats a request without the header as an internal call.',
  async run(t) {
    const [client, key] = ['x-client-id', 'x-api-key'];
    for (const missing of [[client], [key], [client, key]]) {
      const headers = Object.fromEntries(missing.map((name) => [name, undefined]));
      const reply = await t.create(undefined, headers);
      if (!t.refused(reply, `a request without ${missing.join(' and ')}`)) continue;
      t.strict(reply.status === 401, '401', reply);
    }
  },
};

const t05: TokenCase = {
  id: 'T05',
  title: 'An unknown client id returns 404',
  clauses: ['ER1'],
  likely_cause: 'The authentication layer answers 401 before the client is looked up.',
  async run(t) {
    const { client_id } = t.target;
    const ask = (id: string, body?: string): Promise<Reply> =>
      t.create(body, { 'x-client-id': id });
    // Twice: the first lookup may leave something behind that the second one finds.
    for (let time = 0; time < 2; time += 1) {
      const reply = await ask('never-issued-duebridge');
      if (!t.must(isNotFound(reply), NOT_FOUND, reply)) return;
    }
    const similar = [
      ['the pattern % as client id', '%'],
      ['the pattern * as client id', '*'],
      ...misspellings(client_id).map(([how, id]) => [`the right client id ${how}`, id] as const),
    ] as const;
    for (const [what, id] of similar) {
      const refusal = await ask(id);
      if (!t.refused(refusal, what)) return;
      // A gateway may refuse a malformed id by itself, and a similar one may belong to another client.
      t.should(isNotFound(refusal) || refusal.status === 401, `${NOT_FOUND} for ${what}`, refusal);
    }
    const broken = await ask('never-issued-duebridge', '{');
    t.strict(isNotFound(broken), `${NOT_FOUND} for an unknown client, whatever its body`, broken, {
      cause: 'The body is validated before the caller is authenticated.',
    });
  },
};

const NOT_FOUND = '404 {"code":"NOT_FOUND","message":"Resource not found"}';

function isNotFound({ status, json }: Reply): boolean {
  const { code, message } = asObject(json) ?? {};
  return status === 404 && code === 'NOT_FOUND' && message === 'Resource not found';
}

const t06: TokenCase = {
  id: 'T06',
  title: 'A known client with a wrong key is refused',
  clauses: ['AU1'],
  likely_cause: 'The server looks up the client but does not compare its whole key.',
  async run(t) {
    const ask = (key: string, body?: string): Promise<Reply> =>
      t.create(body, { 'x-api-key': key });
    const similar = misspellings(t.target.api_key).map(([, key]) => key);
    // Twice: a refused key may be cached, and the cache read as a list of valid ones.
    for (const key of ['wrong-key-duebridge', 'wrong-key-duebridge', ...similar]) {
      const reply = await ask(key);
      if (!t.refused(reply, 'a wrong key')) return;
      t.strict(reply.status === 401, '401', reply);
    }
    const broken = await ask('wrong-key-duebridge', '{');
    t.strict(broken.status === 401, '401 for a wrong key, whatever the body', broken, {
      cause: 'The body is validated before the caller is authenticated.',
    });
    await otherClient(t);
  },
};

/** A valid key must not be accepted with the id of another client. */
async function otherClient(t: TokenContext): Promise<void> {
  const { other_client, client_id, api_key } = t.target;
  if (other_client === undefined) {
    return t.unseen('Keys of other clients were not tried: the target declares no other_client');
  }
  const crossed = [
    { 'x-client-id': client_id, 'x-api-key': other_client.api_key },
    { 'x-client-id': other_client.client_id, 'x-api-key': api_key },
  ];
  for (const headers of crossed) {
    const reply = await t.create(undefined, headers);
    if (!t.refused(reply, 'the valid key of another client')) return;
  }
}

const t07: TokenCase = {
  id: 'T07',
  title: 'An account unknown to the partner returns 404',
  clauses: ['ER1', 'TR4'],
  likely_cause: 'The account is not looked up at the partner before the token is issued.',
  async run(t: TokenContext) {
    const { unknown_account_id } = t.target;
    t.given(
      unknown_account_id !== undefined,
      'the target declares no unknown_account_id (its partner must be reachable from the platform)',
    );
    const ask = (external_identifiers: TokenBody): Promise<Reply> =>
      t.create({ ...fullBody(t.target), external_identifiers });
    for (const time of ['first', 'second']) {
      const reply = await ask(identifiers(t.target, unknown_account_id));
      const isUnknown = reply.status === 404 && asObject(reply.json)?.['code'] === 'NOT_FOUND';
      const found = t.must(isUnknown, '404 with code NOT_FOUND', reply, {
        got: `${time} request: ${tell(reply)}`,
      });
      if (!found) return;
    }
    const { kind, account_id } = t.target;
    if (kind !== 'aggregator' || account_id === undefined) return;
    const elsewhere = await ask({ account_id, biller_id: NO_BILLER });
    t.refused(elsewhere, 'a known account_id under a biller that does not exist');
  },
};

const t11: TokenCase = {
  id: 'T11',
  title: 'Other content types and methods are refused',
  clauses: ['A1', 'ER3'],
  severity: 'should',
  likely_cause: 'Any body is parsed as JSON, or the router answers 404 for an unsupported method.',
  async run(t) {
    for (const type of ['text/plain', 'application/jsonlines', 'application/json-patch+json']) {
      const typed = await t.create(undefined, { 'content-type': type });
      t.should(typed.status === 415, `415 for ${type}`, typed);
    }
    const headers = credentials(t.target, { 'content-type': undefined });
    const reply = await t.send({ method: 'GET', url: t.url, headers });
    if (!t.should(reply.status === 405, '405', reply)) return;
    const { allow } = reply.headers;
    const got = show(allow);
    t.strict(/\bPOST\b/.test(allow ?? ''), 'the header Allow: POST', reply, { got });
  },
};

const INTERNAL_ERROR = '500 {"code":"INTERNAL_ERROR","message":"An unexpected error occurred"}';

/** True for the body that the interface gives an internal error, and no more. */
function isInternalError(body: Readonly<Record<string, Json>> = {}): boolean {
  const { code, message, ...more } = body;
  const isPlain = code === 'INTERNAL_ERROR' && message === 'An unexpected error occurred';
  return isPlain && Object.keys(more).length === 0;
}

const t14: TokenCase = {
  id: 'T14',
  title: 'A large body is refused, and a burst of requests does no harm',
  clauses: ['LI1'],
  severity: 'should',
  likely_cause: 'No limit is configured, or connections are closed instead of answered 429.',
  async run(t: TokenContext) {
    const large = await t.create({ ...leastBody(), last_name: 'x'.repeat(1_048_576) });
    // A server may answer 413 and close the connection while the body is still being sent.
    t.should(large.status === 413, '413', large);
    const burst = Array.from({ length: t.target.burst }, () =>
      t.create(leastBody(), {}, { burst: true }),
    );
    const bad = (await Promise.all(burst)).filter(
      (reply) => reply.status !== 200 && !(reply.status === 429 && asksToWait(reply)),
    );
    t.none(bad, '200, or 429 with Retry-After', tell, { level: 'should' });
  },
};

/** True for an error with the strings code and message. */
function isTyped({ code, message }: Readonly<Record<string, Json>> = {}): boolean {
  return isText(code) && typeof message === 'string';
}

const ORIGIN = 'https://evil.example';

const t16: TokenCase = {
  id: 'T16',
  title: 'Other origins get no permissive CORS',
  clauses: ['AU1'],
  severity: 'should',
  likely_cause: 'CORS is enabled for all routes and all origins.',
  async run(t) {
    const asked = await t.send({
      method: 'OPTIONS',
      url: t.url,
      headers: {
        origin: ORIGIN,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'x-client-id, x-api-key, content-type',
      },
    });
    const posted = await t.send({
      method: 'POST',
      url: t.url,
      headers: credentials(t.target, { origin: ORIGIN }),
      body: '{}',
    });
    for (const reply of [asked, posted]) {
      const allowed = reply.headers['access-control-allow-origin'] ?? '';
      const isClosed = allowed !== '*' && allowed !== ORIGIN;
      t.should(isClosed, 'no Access-Control-Allow-Origin for another site', reply, {
        got: `Access-Control-Allow-Origin: ${allowed}`,
      });
    }
  },
};

/** The answers of the token endpoint in this run whose statuses are at least this, and below the next hundred. */
const errorsOf = (t: TokenContext, from: number): Exchange[] =>
  t.run.wire.exchanges.filter(
    ({ check, method, url, status = 0 }) =>
      check.startsWith('T') &&
      method === 'POST' &&
      url === t.url &&
      Math.floor(status / 100) === from / 100,
  );

const t20: TokenCase = {
  id: 'T20',
  title: 'Every 5xx of this run has the form the interface defines',
  clauses: ['ER2', 'ER3'],
  likely_cause: 'An exception message or a gateway’s error page reaches the caller.',
  async run(t: TokenContext) {
    // Only a test build can raise an internal error on request.
    const { internal_fault_headers } = t.target;
    if (internal_fault_headers !== undefined) await t.create(undefined, internal_fault_headers);
    const failed = errorsOf(t, 500);
    t.given(
      failed.length > 0,
      'the platform never answered 5xx: internal_fault_headers can name headers that make a test build do so',
    );
    t.none(
      failed.filter(({ status, answer_body }) => {
        const error = parsed(answer_body);
        return status === 503 ? !isTyped(error) : status !== 500 || !isInternalError(error);
      }),
      INTERNAL_ERROR,
      ({ status, answer_body }) => `${status} ${answer_body.slice(0, 200)}`,
    );
  },
};

/** Statuses that a proxy in front of the platform may answer by itself. */
const OF_A_PROXY: readonly number[] = [408, 413, 429, 431];

const t21: TokenCase = {
  id: 'T21',
  title: 'Errors are JSON with code and message, and repeat nothing confidential',
  clauses: ['ER3', 'ER1'],
  likely_cause: 'A refusal comes from the router or a proxy, or quotes what it refuses.',
  async run(t: TokenContext) {
    // Values that a refusal can be seen to repeat: no other request has them.
    const marks = ['private.duebridge', '+1 512 555 0199'];
    const sent = [
      await t.create({ ...leastBody(), email: { address: marks[0] } }),
      await t.create({ ...leastBody(), phone_number: [marks[1]] }),
      await t.create({ ...leastBody(), email: `${marks[0]}@example.com`, last_name: 7 }),
    ];
    const refusals = errorsOf(t, 400);
    t.given(refusals.length > 0, 'the platform refused nothing');
    const unformed = refusals.filter((one) => !hasForm(one));
    const own = unformed.filter(({ status }) => !OF_A_PROXY.includes(status ?? 0));
    t.none(
      [...own, ...unformed],
      'a JSON object with the strings code and message',
      ({ status, answer_headers, answer_body }) =>
        `${status} ${show(answer_headers['content-type'])} ${answer_body.slice(0, 100)} (${unformed.length} such refusals)`,
      { level: own.length === 0 ? 'should' : 'must' },
    );
    revealsNothing(t, refusals);
    t.none(
      sent.filter(({ text }) => marks.some((mark) => text.includes(mark))),
      'a refusal that names the field, without the customer’s data',
      () => 'it repeats the value that was sent, which then stands in logs on both sides',
      { level: 'should' },
    );
  },
};

function hasForm({ answer_body, answer_headers }: Exchange): boolean {
  const type = answer_headers['content-type'] ?? '';
  return isTyped(parsed(answer_body)) && /^application\/(?:[\w.+-]+\+)?json\b/i.test(type);
}

export const TOKEN_ACCESS = [t04, t05, t06, t07, t11, t14, t16, t20, t21];
