/** The context of a check of a platform's token endpoint (A1, A2, TR1-TR4, TK1, AU1). */
import { platformRoutes } from '@duebridge/contract';
import { Context, type Headers } from './context.ts';
import type { ConfigProblem, Level } from './findings.ts';
import { asObject, isSuccess, PREFLIGHT, type Outgoing, type Reply } from './http.ts';
import { pageProblem, problemOf } from './preflight.ts';
import type { Run } from './run.ts';
import type { PlatformTarget } from './target.ts';

/** Maximum wait for the first answer. */
const ANSWER_TIMEOUT_MS = 5_000;

/** A body as a JavaScript value, which checks can modify. */
export type TokenBody = Record<string, unknown>;

/** The context of one check of the token endpoint. */
export class TokenContext extends Context<Run<PlatformTarget>> {
  get url(): string {
    return tokenUrl(this.run);
  }

  /** Requests a token. A header given as undefined is omitted. */
  create(
    body: TokenBody | string = fullBody(this.target),
    headers: Readonly<Record<string, string | undefined>> = {},
    options: Pick<Outgoing, 'burst' | 'chunked'> = {},
  ): Promise<Reply> {
    return this.send({
      ...options,
      method: 'POST',
      url: this.url,
      headers: credentials(this.target, headers),
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  }

  /** Raises a finding when a request that must be refused was issued a token. */
  refused(reply: Reply, what: string, level: Level = 'must'): boolean {
    const refused = reply.status !== undefined && !isSuccess(reply);
    return this[level](refused, `no token for ${what}`, reply);
  }
}

const tokenUrl = ({ target }: Run<PlatformTarget>): string =>
  target.base_url + platformRoutes.create_token.path;

/** The token of an answer; undefined when there is none. */
export function tokenOf(reply: Reply): string | undefined {
  const token = asObject(reply.json)?.['token'];
  return isSuccess(reply) && typeof token === 'string' && token !== '' ? token : undefined;
}

/** Every field of the request, with values that a correct platform accepts. */
export function fullBody(target: PlatformTarget) {
  const { account_id } = target;
  return {
    ...leastBody(),
    address: { ...leastBody().address, address_line_2: 'Apartment 2' },
    balance: {
      amount_due_in_cents: 12_500,
      due_date: '2030-01-31',
      last_updated_at: '2029-12-31T08:00:00Z',
    },
    ...(account_id !== undefined && { external_identifiers: identifiers(target, account_id) }),
  };
}

/** Only the required fields. */
export function leastBody() {
  return {
    first_name: 'Ada',
    last_name: 'Example',
    email: 'ada@example.com',
    phone_number: '+15125550100',
    address: { address_line_1: '1 Main Street', city: 'Austin', state: 'TX', zip: '78701' },
  };
}

/** External identifiers as this kind of partner sends them (TR4). */
export function identifiers(target: PlatformTarget, account_id: string): TokenBody {
  return { account_id, ...(target.biller_id === undefined ? {} : { biller_id: target.biller_id }) };
}

/** The headers of a token request; a header given as undefined is omitted. */
export function credentials(
  target: PlatformTarget,
  change: Readonly<Record<string, string | undefined>>,
): Headers {
  const headers = {
    'x-client-id': target.client_id,
    'x-api-key': target.api_key,
    'content-type': 'application/json',
    ...change,
  };
  return Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value]],
    ),
  );
}

/** Tests a platform. Returns undefined when the checks can begin. */
export async function platformPreflight(
  run: Run<PlatformTarget>,
): Promise<ConfigProblem | undefined> {
  const ask = (body: TokenBody): Promise<Reply> =>
    run.wire.send(PREFLIGHT, {
      method: 'POST',
      url: tokenUrl(run),
      headers: credentials(run.target, {}),
      body: JSON.stringify(body),
      timeout_ms: ANSWER_TIMEOUT_MS,
    });
  const full = await ask(fullBody(run.target));
  // A platform that takes the smallest body but refuses one with every field is for the checks to report (T01).
  const isInvalid = full.status === 400 || full.status === 422;
  const reply = isInvalid ? await ask(leastBody()) : full;
  if (isSuccess(reply)) return pageProblem(reply, 'This is a web page: fix base_url.');
  const { base_url: url, ca_file } = run.target;
  return problemOf(reply, {
    what: 'A token request with all fields',
    place: { url, name: 'base_url', ca_file },
    flag: '--base-url',
    credential: 'the credentials: fix --client-id and --api-key',
    others: 'base_url, or --client-id or --account if it does not know one of them',
  });
}
