/** The context of a check of a platform's token endpoint (A1, A2, TR1-TR4, TK1, AU1). */
import { platformRoutes } from '@duebridge/contract';
import { sleep, type Clock } from '../clock.ts';
import { Findings, type Profile } from './findings.ts';
import { asObject, isSuccess, tell, type Outgoing, type Reply, type Wire } from './http.ts';
import type { Pace } from './pace.ts';
import { answerProblem, pageProblem, PREFLIGHT, reach, type ConfigProblem } from './preflight.ts';
import type { PlatformTarget } from './target.ts';

/** Maximum wait for the first answer. */
const ANSWER_TIMEOUT_MS = 5_000;

/** Longest Retry-After that the judge waits out; a longer one counts as a refusal. */
const LONGEST_RETRY_AFTER_SECONDS = 10;

/** Delay after a 429 that does not say in seconds how long to wait. */
const UNSAID_WAIT_SECONDS = 1;

/** Maximum repeats of one request answered 429; after a platform needed more, the judge does not wait for it again. */
const MAX_RETRIES = 20;

/** Shared by all checks of one run. */
export class TokenRun {
  readonly target: PlatformTarget;
  readonly profile: Profile;
  readonly wire: Wire;
  readonly pace: Pace;
  readonly clock: Clock;
  readonly stop: AbortSignal;
  /** True once a request was answered 429 on every attempt. */
  refusesAlways = false;

  constructor(options: {
    target: PlatformTarget;
    profile: Profile;
    wire: Wire;
    pace: Pace;
    clock: Clock;
    stop: AbortSignal;
  }) {
    this.target = options.target;
    this.profile = options.profile;
    this.wire = options.wire;
    this.pace = options.pace;
    this.clock = options.clock;
    this.stop = options.stop;
  }

  now(): number {
    return this.clock.now();
  }

  sleep(ms: number): Promise<void> {
    return sleep(this.clock, ms, this.stop);
  }

  get url(): string {
    return this.target.base_url + platformRoutes.create_token.path;
  }
}

/** A body as a JavaScript value, which checks can modify. */
export type TokenBody = Record<string, unknown>;

/** The context of one check of the token endpoint. */
export class TokenContext extends Findings {
  readonly run: TokenRun;
  readonly check: string;

  constructor(run: TokenRun, check: string) {
    super(run.profile);
    this.run = run;
    this.check = check;
  }

  get target(): PlatformTarget {
    return this.run.target;
  }

  /** Sends a request unchanged. */
  send(out: Outgoing): Promise<Reply> {
    return this.run.wire.send(this.check, { timeout_ms: this.run.pace.request_timeout_ms, ...out });
  }

  /** Requests a token, waiting out a 429. */
  async create(
    body: TokenBody | string = fullBody(this.target),
    headers: Readonly<Record<string, string | undefined>> = {},
    options: { raw?: boolean; chunked?: boolean } = {},
  ): Promise<Reply> {
    for (let attempt = 0; ; attempt += 1) {
      const reply = await this.send({
        method: 'POST',
        url: this.run.url,
        headers: credentials(this.target, headers),
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...(options.chunked === true ? { chunked: true } : {}),
      });
      if (reply.status !== 429 || options.raw === true) return reply;
      const said = Number(reply.headers['retry-after'] ?? Number.NaN);
      const seconds = Number.isNaN(said) ? UNSAID_WAIT_SECONDS : said;
      if (seconds > LONGEST_RETRY_AFTER_SECONDS) return reply;
      if (attempt >= MAX_RETRIES) this.run.refusesAlways = true;
      if (this.run.refusesAlways) return reply;
      await this.run.sleep(Math.max(seconds * 1_000, 50));
    }
  }

  /** Raises a finding when a request that must be refused was issued a token. */
  refused(reply: Reply, what: string, severity: 'must' | 'should' = 'must'): boolean {
    const refused = reply.status !== undefined && !isSuccess(reply) && tokenOf(reply) === undefined;
    return this[severity](refused, `no token for ${what}`, reply);
  }
}

/** The token of an answer; undefined when there is none. */
export function tokenOf(reply: Reply): string | undefined {
  const token = asObject(reply.json)?.['token'];
  return isSuccess(reply) && typeof token === 'string' && token !== '' ? token : undefined;
}

/** Every field of the request, with values that a correct platform accepts. */
export function fullBody(target: PlatformTarget): TokenBody {
  return {
    ...leastBody(),
    address: {
      address_line_1: '1 Main Street',
      address_line_2: 'Apartment 2',
      city: 'Austin',
      state: 'TX',
      zip: '78701',
    },
    balance: {
      amount_due_in_cents: 12_500,
      due_date: '2030-01-31',
      last_updated_at: '2029-12-31T08:00:00Z',
    },
    ...(target.account_id === undefined
      ? {}
      : { external_identifiers: identifiers(target, target.account_id) }),
  };
}

/** Only the required fields. */
export function leastBody(): TokenBody {
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
  return {
    account_id,
    ...(target.biller_id === undefined ? {} : { biller_id: target.biller_id }),
  };
}

/** The headers of a token request; a header given as undefined is omitted. */
export function credentials(
  target: PlatformTarget,
  change: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const headers: Record<string, string | undefined> = {
    'x-client-id': target.client_id,
    'x-api-key': target.api_key,
    'content-type': 'application/json',
    ...change,
  };
  const sent: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) sent[name] = value;
  }
  return sent;
}

/** Tests a platform. Returns undefined when the checks can begin. */
export async function platformPreflight(run: TokenRun): Promise<ConfigProblem | undefined> {
  const unreachable = await reach(run.clock, run.target.base_url, 'base_url', run.target.ca_file);
  if (unreachable !== undefined) return { sentence: unreachable };
  const ask = (body: TokenBody): Promise<Reply> =>
    run.wire.send(PREFLIGHT, {
      method: 'POST',
      url: run.url,
      headers: credentials(run.target, {}),
      body: JSON.stringify(body),
      timeout_ms: ANSWER_TIMEOUT_MS,
    });
  const full = await ask(fullBody(run.target));
  // A platform that takes the smallest body but refuses one with every field is for the checks to report (T01).
  const isInvalid = full.status === 400 || full.status === 422;
  const reply = isInvalid ? await ask(leastBody()) : full;
  if (isSuccess(reply)) {
    return pageProblem(reply, 'The token endpoint returns a web page: fix base_url.');
  }
  return answerProblem(reply, {
    silent: `The server accepts connections but sends no response (${reply.exchange.no_answer ?? 'nothing'}): see its log.`,
    refused: `The platform refuses (${reply.status ?? ''}) the credentials: fix --client-id and --api-key.`,
    missing: `The platform answers ${reply.status ?? ''}: fix base_url, or --client-id or --account if it does not know one of them (${tell(reply)}).`,
    flag: '--base-url',
    usual: `A token request with all fields gets ${tell(reply)}: see the platform's log, and run the kit again.`,
  });
}
