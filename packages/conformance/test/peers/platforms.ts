/**
 * Wrong platforms at their token endpoint: each is the scripted platform behind a proxy that changes a request or an answer, and is
 * caught by the check that it names.
 *
 * A table: one entry per wrong platform, in the order of the checks.
 */
import { randomUUID } from 'node:crypto';
import { VIRTUAL_CLOCK as CLOCK } from '../virtual-clock.ts';
import {
  API_KEY as KEY,
  json,
  type ProxyAnswer,
  type ProxyBehaviour,
  type ProxyRequest,
} from './platform-proxy.ts';
import { wrongPeers, type Wrong } from './wrong.ts';

/** How a platform is registered. */
interface PlatformSetting {
  readonly kind?: 'aggregator';
  readonly other_client?: typeof OTHER;
}

/** The credentials of the client. */
const RIGHT = { 'x-client-id': 'client-of-the-judge', 'x-api-key': KEY };

/** A second client of the same partner. */
export const OTHER = { client_id: 'another-client', api_key: 'a-key-of-another-client' };

const BROKEN = json(500, { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' });

const isArrayRefused = ({ status }: ProxyAnswer, { body }: ProxyRequest): boolean =>
  status === 400 && body.startsWith('[');

/** Made for each run, because some keep state. */
type MakeProxy = () => ProxyBehaviour;

export type WrongPlatform = Wrong<MakeProxy> & PlatformSetting;

const { fails, warns } = wrongPeers<MakeProxy, PlatformSetting>();

export const WRONG_PLATFORMS: readonly WrongPlatform[] = [
  fails('T01', 'returns the expiry in addition to the token', () =>
    changeGiven((given) => ({ ...given, expires_in: 1_800 })),
  ),
  warns(
    'T01',
    'omits the header with the expiry of a token',
    () => ({ answer: (answer) => void delete answer.headers['token-expires-at'] }),
    { profile: 'strict' },
  ),
  warns(
    'T11',
    'omits the Allow header from a 405',
    () => ({ answer: (answer) => void delete answer.headers['allow'] }),
    { profile: 'strict' },
  ),
  fails('T19', 'refuses a customer without a balance', () =>
    refuses((body) => body.length > 2 && !body.includes('"balance"')),
  ),
  fails('T03', 'accepts a customer without a last name', () =>
    changeAsked((body) => ({ last_name: 'Unknown', ...body })),
  ),
  fails('T21', 'refuses with plain text instead of code and message', () =>
    answers(({ status }) => status === 400, { body: '"bad request"' }),
  ),
  fails('T04', 'accepts a client id without a key', () => ({
    request(asked) {
      asked.headers['x-api-key'] ??= KEY;
    },
  })),
  fails('T05', 'answers an unknown client id with 401', () => ({
    request: (asked) =>
      asked.headers['x-client-id'] === 'never-issued-duebridge'
        ? json(401, { code: 'UNAUTHORIZED', message: 'Who are you?' })
        : undefined,
  })),
  fails('T06', 'accepts any key of a known client', () => admits((key) => key !== '')),
  fails(
    'T07',
    'issues a token for an unknown account',
    () => changeIds((ids) => ('account_id' in ids ? { ...ids, account_id: 'A-1' } : ids)),
    { also: ['T18'] },
  ),
  fails('T08', 'requires a biller_id from a biller', () =>
    refuses((body) => body.includes('"account_id"') && !body.includes('"biller_id"')),
  ),
  fails(
    'T08',
    'accepts an account of an aggregator without a biller_id',
    () => changeIds((ids) => ({ biller_id: 'judge', ...ids })),
    { kind: 'aggregator' },
  ),
  fails('T03', 'accepts external_identifiers without an account_id', () =>
    changeIds((ids) => ({ account_id: 'A-1', ...ids })),
  ),
  ...(
    [
      ['takes any word for a state', '"state":"Texas"', '"state":"TX"'],
      ['takes cents as a text', ':"1250"', ':1250'],
      ['rounds cents', ':12.5', ':12'],
      ['takes a date that does not exist', '2026-13-01', '2026-12-01'],
    ] as const
  ).map(([wrong, from, to]) =>
    fails('T10', wrong, () => ({
      request: (asked) => void (asked.body = asked.body.replace(from, to)),
    })),
  ),
  warns('T11', 'parses any content type as JSON', () => ({
    request(asked) {
      if (asked.method === 'POST') asked.headers['content-type'] = 'application/json';
    },
  })),
  fails('T20', 'returns the details of an internal error', () =>
    answers(({ status }) => status === 500, {
      body: '{"code":"INTERNAL_ERROR","message":"An unexpected error occurred","cause":"ECONNREFUSED"}',
    }),
  ),
  warns('T13', 'gives a customer who asks again the same token', () => {
    const given = new Map<string, string>();
    return {
      answer(answer, { path, body }) {
        if (!path.includes('/token') || answer.status !== 200) return;
        answer.body = given.get(body) ?? answer.body;
        given.set(body, answer.body);
      },
    };
  }),
  warns('T13', 'uses a counter as token', () => {
    let count = 0;
    return changeGiven(() => {
      count += 1;
      return { token: `token-of-the-platform-${String(count).padStart(12, '0')}` };
    });
  }),
  warns('T13', 'encodes the customer in the token', () =>
    changeGiven(({ token }) => ({
      token: `${Buffer.from('{"email":"ada@example.com"}').toString('base64url')}.${text(token)}`,
    })),
  ),
  warns(
    'T14',
    'answers a large body with 500',
    () => answers(({ status }) => status === 413, { status: 500 }),
    { also: ['T20'] },
  ),
  warns(
    'T14',
    'answers 503 beyond its rate limit',
    () => {
      let since = Number.POSITIVE_INFINITY;
      return {
        // Counted from the large body, not timed, because on a slow machine no burst reaches a limit. Requests after the burst must
        // get correct responses again.
        answer(answer, asked) {
          if (asked.body.length > 100_000) since = 0;
          else since += 1;
          if (since <= 20 || since > 40) return;
          answer.status = 503;
          answer.headers['retry-after'] = '1';
        },
      };
    },
    { also: ['T20'] },
  ),
  warns('T16', 'lets any web page request tokens', () => ({
    answer(answer) {
      answer.headers['access-control-allow-origin'] = '*';
    },
  })),
  fails('T13', 'issues the same token to everybody', () =>
    changeGiven(() => ({ token: `dbt_${'0123456789abcdef'.repeat(3)}` })),
  ),
  fails('T06', 'compares the key case-insensitively', () =>
    admits((key) => key.toLowerCase() === KEY),
  ),
  fails('T18', 'accepts a truncated body', () => takes((body) => !body.endsWith('}'))),
  fails('T18', 'accepts a number as a name', () => takes((body) => /"first_name":7/.test(body))),
  warns('T18', 'answers a body that is not JSON with 500', () =>
    answers(({ status }, { body }) => status === 400 && /^\{[^}]*$/.test(body), BROKEN),
  ),
  fails('T20', 'answers a body of the wrong shape with 500 and internal details', () =>
    answers(({ status }, { body }) => status === 400 && body.includes('"address":"'), {
      status: 500,
      body: '{"error":"TypeError: body.address.city is undefined"}',
    }),
  ),
  fails('T19', 'refuses a phone number that is not in E.164', () =>
    refuses((body) => body.includes('(512) 555-0100')),
  ),
  warns(
    'T19',
    'refuses unknown fields of an address',
    () => refuses((body) => /"address":\{[^}]*a_field_of_tomorrow/.test(body)),
    { profile: 'strict' },
  ),
  warns('T19', 'reads no body that comes in chunks', () =>
    refuses((_body, { headers }) => headers['transfer-encoding'] !== undefined),
  ),
  warns(
    'T01',
    'returns the time of issue as the expiry of a token',
    () => ({
      answer(answer) {
        if (answer.headers['token-expires-at'] === undefined) return;
        answer.headers['token-expires-at'] = new Date(CLOCK.now() - 1_000).toISOString();
      },
    }),
    { profile: 'strict' },
  ),
  fails('T03', 'accepts a customer without a last name if the first name has two words', () =>
    changeAsked((body) =>
      typeof body['first_name'] === 'string' && body['first_name'].includes(' ')
        ? { last_name: 'Example', ...body }
        : body,
    ),
  ),
  fails('T05', 'looks up the client id with LIKE', () => ({
    request(asked) {
      if (asked.headers['x-client-id'] === '%') {
        asked.headers['x-client-id'] = 'client-of-the-judge';
      }
    },
  })),
  warns('T05', 'answers a client id of another length as an invalid request', () =>
    refuses((_body, { headers }) => headers['x-client-id'] === 'client-of-the-judgex'),
  ),
  ...(
    [
      ['T05', 'an unknown client', 'x-client-id', 'client-of-the-judge'],
      ['T06', 'a wrong key', 'x-api-key', KEY],
    ] as const
  ).map(([check, who, header, right]) =>
    warns(
      check,
      `validates the body of ${who} before it refuses it`,
      () => refuses((body, asked) => body === '{' && asked.headers[header] !== right),
      { profile: 'strict' },
    ),
  ),
  fails('T13', 'returns the token of the latest concurrent request', () => {
    let latest: { token: string; at: number } | undefined;
    return changeGiven(({ token }) => {
      // The crowd of T13 arrives together; a token that is asked for alone is a new one.
      if (latest === undefined || CLOCK.now() - latest.at > 50) {
        latest = { token: text(token), at: CLOCK.now() };
      }
      return { token: latest.token };
    });
  }),
  fails('T21', 'answers an invalid body with the page of its framework', () =>
    answers(isArrayRefused, { body: '<pre>SyntaxError: Unexpected token</pre>' }, 'text/html'),
  ),
  warns('T21', 'answers a large body with the page of its proxy', () =>
    answers(({ status }) => status === 413, { body: '<h1>413</h1>' }, 'text/html'),
  ),
  warns('T21', 'repeats the refused value in its errors', () => ({
    answer(answer, asked) {
      if (answer.status !== 400 || !asked.body.includes('private.duebridge')) return;
      answer.body = JSON.stringify({ code: 'INVALID_REQUEST', message: `got ${asked.body}` });
    },
  })),
  // What only an unusual request shows.
  fails(
    'T01',
    'answers 201 to a token request',
    () =>
      answers(({ status }, { path }) => path.endsWith('/token') && status === 200, { status: 201 }),
    { also: 'many' },
  ),
  warns(
    'T03',
    'accepts an empty name',
    () =>
      changeAsked((body) =>
        body['first_name'] === '' ? { ...body, first_name: 'Unknown' } : body,
      ),
    { profile: 'strict' },
  ),
  warns(
    'T04',
    'breaks on a missing key',
    () => ({
      request: (asked) =>
        asked.path.endsWith('/token') && asked.headers['x-api-key'] === undefined
          ? BROKEN
          : undefined,
    }),
    { profile: 'strict' },
  ),
  fails('T05', 'folds the case of client ids', () => ({
    request(asked) {
      const id = asked.headers['x-client-id'];
      if (id?.toLowerCase() === 'client-of-the-judge')
        asked.headers['x-client-id'] = id.toLowerCase();
    },
  })),
  fails(
    'T06',
    'accepts the key of any client',
    () => ({
      request(asked) {
        if (asked.headers['x-client-id'] === OTHER.client_id) {
          if (asked.headers['x-api-key'] !== OTHER.api_key) return;
          asked.headers['x-client-id'] = 'client-of-the-judge';
        }
        if (asked.headers['x-api-key'] === OTHER.api_key) asked.headers['x-api-key'] = KEY;
      },
    }),
    { other_client: OTHER },
  ),
  warns(
    'T06',
    'calls a client unknown after three wrong keys',
    () => {
      let failures = 0;
      return {
        answer(answer) {
          if (answer.status !== 401) return;
          failures += 1;
          if (failures <= 3) return;
          answer.status = 404;
          answer.body = JSON.stringify({ code: 'NOT_FOUND', message: 'Resource not found' });
        },
      };
    },
    { profile: 'strict' },
  ),
  warns('T11', 'answers a GET of the token endpoint with 200', () => ({
    request: (asked) =>
      asked.method === 'GET' && asked.path.endsWith('/token') ? json(200, {}) : undefined,
  })),
  fails('T04', 'takes a request without any credential for its own', () => ({
    request({ headers }) {
      if (headers['x-client-id'] !== undefined || headers['x-api-key'] !== undefined) return;
      Object.assign(headers, RIGHT);
    },
  })),
  ...(['trim', 'trimEnd'] as const).map((cut) =>
    fails('T10', `reads a state after ${cut}`, () =>
      changePart('address', (address) =>
        'state' in address ? { ...address, state: text(address['state'])[cut]() } : address,
      ),
    ),
  ),
  fails(
    'T07',
    'looks up an account without its biller',
    () => changeIds((ids) => ('biller_id' in ids ? { ...ids, biller_id: 'sandbox-water' } : ids)),
    { kind: 'aggregator' },
  ),
  warns('T10', 'accepts a last_updated_at without a time', () => ({
    request: (asked) =>
      void (asked.body = asked.body.replace(
        /("last_updated_at":"\d{4}-\d\d-\d\d)"/,
        '$1T00:00:00Z"',
      )),
  })),
  warns('T10', 'accepts a due_date that ends with a newline', () => ({
    request: (asked) => void (asked.body = asked.body.replace(/(-\d\d)\\n"/, '$1"')),
  })),
  warns('T19', 'breaks on a long name', () => ({
    request: (asked) => (/_name":"[^"]{101}/.test(asked.body) ? BROKEN : undefined),
  })),
];

type Fields = Record<string, unknown>;

/** Changes a part of a token request, such as the address, if it has that part. */
const changePart = (name: string, change: (part: Fields) => Fields): ProxyBehaviour =>
  changeAsked((body) => {
    const part = body[name];
    return isFields(part) ? { ...body, [name]: change(part) } : body;
  });

/** The same for what identifies the account. */
const changeIds = (change: (ids: Fields) => Fields): ProxyBehaviour =>
  changePart('external_identifiers', change);

/** Changes the answers for which this is true. */
const answers = (
  when: (answer: ProxyAnswer, asked: ProxyRequest) => boolean,
  change: Partial<Pick<ProxyAnswer, 'status' | 'body'>>,
  type?: string,
): ProxyBehaviour => ({
  answer(answer, asked) {
    if (!when(answer, asked)) return;
    Object.assign(answer, change);
    if (type !== undefined) answer.headers['content-type'] = type;
  },
});

/** Takes every key for which this is true for the right one. */
function admits(passes: (key: string) => boolean): ProxyBehaviour {
  return {
    request(asked) {
      if (passes(asked.headers['x-api-key'] ?? '')) asked.headers['x-api-key'] = KEY;
    },
  };
}

/** Issues a token for the bodies for which this is true. */
function takes(passes: (body: string) => boolean): ProxyBehaviour {
  return {
    request: (asked) =>
      asked.method === 'POST' &&
      asked.path.endsWith('/token') &&
      asked.headers['content-type'] === 'application/json' &&
      passes(asked.body)
        ? json(200, { token: `dbt_${randomUUID()}${randomUUID()}` })
        : undefined,
  };
}

/** Refuses the requests for which this is true as invalid. */
function refuses(isRefused: (body: string, asked: ProxyRequest) => boolean): ProxyBehaviour {
  return {
    request: (asked) =>
      isRefused(asked.body, asked)
        ? json(400, { code: 'INVALID_REQUEST', message: 'The body is not valid' })
        : undefined,
  };
}

/** A proxy that changes the JSON body of token requests if it is an object. */
function changeAsked(change: (body: Fields) => Fields): ProxyBehaviour {
  return {
    request(asked) {
      if (asked.path.includes('/token') && isJsonObject(asked.body)) {
        asked.body = JSON.stringify(change(JSON.parse(asked.body) as Fields));
      }
    },
  };
}

function isJsonObject(text: string): boolean {
  try {
    return isFields(JSON.parse(text));
  } catch {
    return false;
  }
}

/** A proxy that changes the body of a token response. */
function changeGiven(change: (given: Fields) => Fields): ProxyBehaviour {
  return {
    answer(answer, asked) {
      if (asked.path.includes('/token') && answer.status === 200) {
        answer.body = JSON.stringify(change(JSON.parse(answer.body) as Fields));
      }
    },
  };
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
