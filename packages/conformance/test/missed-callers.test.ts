/**
 * Wrong token endpoints and wrong callers of classes that the judge once missed, two for each class, and right callers that it once
 * accused. None of the checks was written against these: each differs from a right one in one small thing.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test, { describe } from 'node:test';
import { request } from 'undici';
import type { Driven, Driver } from '../src/check/driver.ts';
import { platformTarget } from '../src/check/target.ts';
import { deadline, sleep } from '../src/clock.ts';
import { judgePlatform, type RunReport } from '../src/run.ts';
import { judgeTokenPeer, tell } from './judged.ts';
import type { ProxyBehaviour, ProxyRequest } from './peers/platform-proxy.ts';
import { VIRTUAL_CLOCK as CLOCK } from './virtual-clock.ts';

/** Runs judged side by side: all of their waits end together. */
const AT_ONCE = 40;

/** A platform that reads the body in its own way first. */
const reads = (
  change: (body: Record<string, Record<string, unknown>>) => void,
): ProxyBehaviour => ({
  request(asked: ProxyRequest) {
    try {
      const body = JSON.parse(asked.body) as Record<string, Record<string, unknown>>;
      change(body);
      asked.body = JSON.stringify(body);
    } catch {
      // Not an object: for the platform to refuse.
    }
    return undefined;
  },
});
const ISSUED = { client_id: 'client-of-the-judge', api_key: 'an-api-key-of-the-judge' };

const TOKENS: readonly (readonly [string, string, 'biller' | 'aggregator', ProxyBehaviour])[] = [
  [
    'a request without any credential is taken for an internal one',
    'T04',
    'biller',
    {
      request(asked) {
        const { headers } = asked;
        if (headers['x-client-id'] !== undefined || headers['x-api-key'] !== undefined)
          return undefined;
        Object.assign(headers, { 'x-client-id': ISSUED.client_id, 'x-api-key': ISSUED.api_key });
        return undefined;
      },
    },
  ],
  [
    'without any credential the last client is used',
    'T04',
    'biller',
    ((): ProxyBehaviour => {
      let last: Record<string, string> = {};
      return {
        request({ headers }) {
          const { 'x-client-id': client, 'x-api-key': key } = headers;
          if (client === ISSUED.client_id && key === ISSUED.api_key) {
            last = { 'x-client-id': client, 'x-api-key': key };
          } else if (client === undefined && key === undefined) Object.assign(headers, last);
          return undefined;
        },
      };
    })(),
  ],
  ...(['toLowerCase', 'toUpperCase'] as const).map(
    (fold) =>
      [
        `a client id is compared after ${fold}`,
        'T05',
        'biller',
        {
          request({ headers }: ProxyRequest) {
            const given = headers['x-client-id'] ?? '';
            if (given[fold]() === ISSUED.client_id[fold]())
              headers['x-client-id'] = ISSUED.client_id;
            return undefined;
          },
        },
      ] as const,
  ),
  ...(['trim', 'trimEnd'] as const).map(
    (cut) =>
      [
        `a state is read after ${cut}`,
        'T10',
        'biller',
        reads(({ address }) => {
          if (typeof address?.['state'] === 'string') address['state'] = address['state'][cut]();
        }),
      ] as const,
  ),
  ...(['zip', 'city'] as const).map(
    (name) =>
      [
        `a ${name} may be a number`,
        'T18',
        'biller',
        reads(({ address }) => {
          if (typeof address?.[name] === 'number') address[name] = String(address[name]);
        }),
      ] as const,
  ),
  [
    'the account is looked up without its biller',
    'T07',
    'aggregator',
    reads(({ external_identifiers: ids }) => {
      if (ids?.['biller_id'] !== undefined) ids['biller_id'] = 'sandbox-utility';
    }),
  ],
  [
    'a biller that is not found is left out',
    'T07',
    'aggregator',
    reads(({ external_identifiers: ids }) => {
      if (String(ids?.['biller_id']).startsWith('no-such')) ids!['biller_id'] = 'sandbox-water';
    }),
  ],
];

describe(
  'a wrong token endpoint of a class that was missed fails',
  { concurrency: AT_ONCE },
  () => {
    for (const [what, check, kind, behaviour] of TOKENS) {
      test(`${check}: ${what}`, async () => {
        const report = await judgeTokenPeer(
          { behaviour: () => behaviour, ...(kind === 'aggregator' && { kind }) },
          [check],
        );
        assert.equal(report.counts.FAIL, 1, tell(report));
      });
    }
  },
);

/** What one caller does in its own way. */
interface Ways {
  /** The method of an attempt to pay; PUT unless given. */
  readonly method?: (attempt: number) => string;
  /** Where an attempt goes, when not to the payment itself. */
  readonly path?: (id: string, attempt: number) => string | undefined;
  readonly amount?: (cents: number) => number;
  /** Whether a record of another amount is believed. */
  readonly believes?: (given: number, cents: number) => boolean;
  /** What comes after the end of a payment. */
  readonly afterwards?: (poll: () => Promise<unknown>) => Promise<unknown>;
  /** True to leave a payment alone after this answer to its PUT. */
  readonly freezes?: (status: number, text: string) => boolean;
  /** How often one call fetches a new token when it is refused; 1 unless given. */
  readonly renewals?: number;
}

const STEP_MS = 100;
const wait = (ms: number): Promise<void> => sleep(CLOCK, ms);

/** A small caller, right but for its ways. Stops when the signal aborts. */
function caller(ways: Ways, method: 'key' | 'oauth', stop: AbortSignal): (url: string) => Driver {
  return (url) => {
    let token: Promise<string> | undefined;
    const fetchToken = async (): Promise<string> => {
      const answer = await request(`${url}/oauth/token`, {
        method: 'POST',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: 'grant_type=client_credentials&client_id=judge&client_secret=a-secret&scope=read+write',
        signal: stop,
      });
      return ((await answer.body.json()) as { access_token: string }).access_token;
    };
    const send = async (verb: string, path: string, body?: string, renewals = 0) => {
      const headers: Record<string, string> = { 'content-type': 'application/json' };
      if (method === 'key') headers['x-api-key'] = 'a-key-of-the-missed';
      else headers['authorization'] = `Bearer ${await (token ??= fetchToken())}`;
      const held = token;
      const late = deadline(CLOCK, 2_500);
      try {
        const answer = await request(url + path, {
          method: verb as 'GET',
          headers,
          ...(body === undefined ? {} : { body }),
          signal: AbortSignal.any([stop, late.signal]),
        });
        const text = await answer.body.text();
        if (answer.statusCode === 401 && method === 'oauth' && renewals < (ways.renewals ?? 1)) {
          if (token === held) token = undefined;
          return await send(verb, path, body, renewals + 1);
        }
        const said = String(answer.headers['retry-after'] ?? 0);
        const after = /^\d+$/.test(said) ? Number(said) * 1_000 : Date.parse(said) - CLOCK.now();
        return { status: answer.statusCode, text, after };
      } catch {
        stop.throwIfAborted();
        return { status: 0, text: '', after: 0 };
      } finally {
        late.cancel();
      }
    };
    const recordOf = ({ status, text }: { status: number; text: string }) => {
      try {
        const value: unknown = JSON.parse(text);
        const isRecord = typeof value === 'object' && value !== null && 'status' in value;
        return status === 200 && isRecord ? (value as Record<string, unknown>) : undefined;
      } catch {
        return undefined;
      }
    };
    const pay = async (cents: number, account = 'A-1'): Promise<Driven> => {
      const id = randomUUID();
      let shown = 'processing';
      const path = `/biller/judge/account/${account}/payment/${id}`;
      const body = JSON.stringify({
        amount_in_cents: ways.amount?.(cents) ?? cents,
        platform_batch_id: 'batch-of-today',
      });
      const isOwn = (record: Record<string, unknown>): boolean =>
        record['platform_payment_id'] === id &&
        (record['amount_in_cents'] === cents ||
          ways.amount !== undefined ||
          ways.believes?.(Number(record['amount_in_cents']), cents) === true);
      const drive = async (): Promise<void> => {
        for (let attempt = 0; ; attempt += 1) {
          const verb = ways.method?.(attempt) ?? 'PUT';
          const answer = await send(verb, ways.path?.(id, attempt) ?? path, body);
          const record = recordOf(answer);
          if (record !== undefined && isOwn(record)) break;
          if (ways.freezes?.(answer.status, answer.text) === true) return;
          await wait(Math.max(answer.after, 2 * STEP_MS));
        }
        for (;;) {
          await wait(STEP_MS);
          const answer = await send('GET', path);
          if (answer.after > 0) await wait(answer.after);
          const record = recordOf(answer);
          const ended = ['succeeded', 'failed', 'canceled'].includes(String(record?.['status']));
          if (record === undefined || !ended || !isOwn(record)) continue;
          shown = String(record['status']);
          await ways.afterwards?.(() => send('GET', path));
          return;
        }
      };
      drive().catch(() => undefined);
      return { platform_payment_id: id, status: async () => shown };
    };
    return { at_once: 50, pay };
  };
}

async function judgeCaller(
  ways: Ways,
  only: readonly string[],
  method: 'key' | 'oauth' = 'key',
): Promise<RunReport> {
  const stop = new AbortController();
  const draft = {
    caller: {
      port: 0,
      authentication:
        method === 'key'
          ? { method, header: 'x-api-key', key: 'a-key-of-the-missed' }
          : {
              method,
              client_id: 'judge',
              client_secret: 'a-secret',
              scope: 'read write',
              token_url: 'http://127.0.0.1:1/',
            },
      biller_id: 'judge',
      account_id: 'A-1',
      patience_seconds: 40,
    },
  };
  try {
    return await judgePlatform(platformTarget(draft, {}), {
      clock: CLOCK,
      only,
      driver: caller(ways, method, stop.signal),
    });
  } finally {
    stop.abort();
  }
}

/** The check that must find it, with `W` for a warning, and the callers. */
const CALLERS: readonly (readonly [string, string, Ways, ('key' | 'oauth')?])[] = [
  ['retries are sent as POST', 'F02', { method: (attempt) => (attempt === 0 ? 'PUT' : 'POST') }],
  [
    'retries are sent as POST to the list of payments',
    'F02',
    {
      method: (attempt) => (attempt === 0 ? 'PUT' : 'POST'),
      path: (_id, attempt) => (attempt === 0 ? undefined : '/biller/judge/account/A-1/payment'),
    },
  ],
  [
    'one poll follows 1.3 seconds after the end',
    'C03',
    { afterwards: (poll) => wait(1_300).then(poll) },
  ],
  [
    'one poll follows 1.6 seconds after the end, to be sure',
    'C03',
    { afterwards: async (poll) => void (await wait(1_600), await poll()) },
  ],
  ['a token is fetched for every 401, without an end', 'F12 W', { renewals: 1_000 }, 'oauth'],
  ['a token is fetched twenty times for a call', 'F12 W', { renewals: 20 }, 'oauth'],
  ['a record of less is believed', 'F28', { believes: (given, cents) => given < cents }],
  [
    'a record within one percent is believed',
    'F28',
    { believes: (given, cents) => Math.abs(given - cents) <= cents / 100 },
  ],
];

describe('a wrong caller of a class that was missed is caught', { concurrency: AT_ONCE }, () => {
  for (const [what, expected, ways, method] of CALLERS) {
    test(`${expected}: ${what}`, async () => {
      const id = expected.slice(0, 3);
      const report = await judgeCaller(ways, [id], method);
      const verdict = report.results.find((one) => one.id === id)?.verdict;
      assert.ok(verdict === 'FAIL' || (verdict === 'WARN' && expected.endsWith('W')), tell(report));
    });
  }

  for (const [what, amount] of [
    ['one cent short', (cents: number) => cents - 1],
    ['two cents short above ten thousand', (cents: number) => (cents > 10_000 ? cents - 2 : cents)],
  ] as const) {
    test(`C09: amounts that are ${what} are told as another amount, not as another id`, async () => {
      const report = await judgeCaller({ amount }, ['C01', 'C09', 'F08']);
      const found = report.results.flatMap(({ findings }) => findings);
      assert.ok(
        found.some(({ clause }) => clause === 'PF6'),
        tell(report),
      );
      assert.deepEqual(
        found.filter(({ expected }) => /another id|other platform_payment_id/.test(expected)),
        [],
      );
    });
  }
});

describe('a right caller that was accused is not', { concurrency: AT_ONCE }, () => {
  const ARRAY = (status: number, text: string): boolean => status === 200 && text.startsWith('[');
  const RIGHT: readonly (readonly [string, Ways, readonly string[], ('key' | 'oauth')?])[] = [
    ['that freezes a payment after an array', { freezes: ARRAY }, ['F22', 'F24', 'C13']],
    ['with a static key', {}, ['C01', 'C03', 'C09', 'F02', 'F08', 'F09', 'F19', 'F28', 'F32']],
    ['with OAuth', {}, ['C03', 'C06', 'C09', 'F12', 'F57', 'F65'], 'oauth'],
  ];
  for (const [what, ways, only, method] of RIGHT) {
    test(what, async () => {
      const report = await judgeCaller(ways, only, method);
      assert.equal(tell(report), '');
    });
  }
});
