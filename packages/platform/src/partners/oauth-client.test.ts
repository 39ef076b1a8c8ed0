import assert from 'node:assert/strict';
import test from 'node:test';
import { parseJson } from '@duebridge/contract';
import { manualClock } from '@duebridge/runtime/testing';
import {
  judgeToken,
  lifeInSeconds,
  callsWithToken,
  retryAfterMs,
  tokenForm,
} from './oauth-client.ts';
import {
  engineRig,
  keptLog,
  reply,
  scriptedPartner,
  type EngineRig,
  type ScriptedPartner,
  type Seen,
} from '../../test/engine-rig.ts';
import type { Exchange, Reply } from './http-call.ts';
import type { PaymentRow } from '../store/payments.ts';

const good = (more: object = {}): Reply =>
  reply(200, {
    access_token: 'abc',
    token_type: 'Bearer',
    expires_in: 3600,
    scope: 'read write',
    ...more,
  });
const credentials = {
  method: 'oauth',
  token_url: 'https://partner.example/token',
  client_id: 'id',
  client_secret: 'secret',
} as const;

const settled = (row: PaymentRow): boolean => row.settled_at !== null;

test('the form carries the four fields, each encoded once, whatever characters the secret has [OA2 F66]', () => {
  const secret = 'a+b%c&d:e=é /"';
  const form = tokenForm({ ...credentials, client_secret: secret }, 'read write');
  const parsed = new URLSearchParams(form);
  assert.deepEqual([...parsed.keys()], ['grant_type', 'client_id', 'client_secret', 'scope']);
  assert.equal(parsed.get('grant_type'), 'client_credentials');
  assert.equal(parsed.get('client_secret'), secret);
  assert.equal(parsed.get('scope'), 'read write');
});

test('expires_in is read as seconds, and never as an unlimited lifetime [OA3 F51 F54]', () => {
  const cases: [unknown, number][] = [
    [3600, 3600],
    ['3600', 3600],
    [60, 60],
    [0, 0],
    [-5, 0],
    ['-1', 0],
    [3_600_000, 3600],
    [10 ** 12, 3600],
    ['999999999999999999999', 3600],
    [1.5, 300],
    ['1h', 300],
    ['', 300],
    [null, 300],
    [true, 300],
    [{}, 300],
    [[], 300],
  ];
  for (const [given, seconds] of cases) {
    assert.equal(lifeInSeconds(parseJson(JSON.stringify(given))), seconds, JSON.stringify(given));
  }
  assert.equal(lifeInSeconds(undefined), 300);
});

test('an invalid token answer is refused before it reaches a header [OA3 F59 F61 F64]', () => {
  for (const more of [
    { token_type: 'mac' },
    { token_type: undefined },
    { token_type: 5 },
    { access_token: '' },
    { access_token: 'a b' },
    { access_token: 'a\r\nX-Evil: 1' },
    { access_token: 'é' },
    { access_token: 'x'.repeat(5_000) },
    { access_token: undefined },
    { access_token: 7 },
  ]) {
    assert.deepEqual(judgeToken(good(more)), {
      kind: 'not_sent',
      reason: 'invalid_answer',
      retryAfter: undefined,
    });
  }
  for (const token_type of ['bearer', 'BEARER', 'Bearer']) {
    assert.equal(judgeToken(good({ token_type })).kind, 'granted');
  }
  // A page of HTML for one call, while the endpoint is deployed, is no refusal: that would cost a minute without payments.
  const page = { ...good(), json: undefined, problem: 'content_type' } as const;
  for (const given of [page, reply(200, null), reply(200, []), reply(200, 1.5), reply(200, 'x')]) {
    const judged = judgeToken(given);
    assert.equal(judged.kind === 'not_sent' ? judged.reason : judged.kind, 'invalid_answer');
  }
});

test('Retry-After is clamped, and nonsense is ignored [F10]', () => {
  const now = Date.UTC(2026, 0, 1);
  const cases: [string | undefined, number | undefined][] = [
    ['0', 0],
    ['30', 30_000],
    ['1000000000000', 900_000],
    ['-5', undefined],
    ['1.5', undefined],
    ['soon', undefined],
    ['', undefined],
    [undefined, undefined],
    ['Thu, 01 Jan 2026 00:00:30 GMT', 30_000],
    ['Wed, 31 Dec 2025 00:00:00 GMT', 0],
    ['Fri, 01 Jan 2100 00:00:00 GMT', 900_000],
    ['Thu, 99 Foo 2026 00:00:30 GMT', undefined],
    ['2026-01-01T00:00:30Z', undefined],
  ];
  for (const [header, ms] of cases) assert.equal(retryAfterMs(header, now), ms, String(header));
});

type Calls = ReturnType<typeof callsWithToken>;

function source(answers: (number: number) => Exchange) {
  const clock = manualClock();
  let count = 0;
  const tokens = callsWithToken({
    credentials,
    clock,
    fetched: () => undefined,
    endpoint: {
      exchange() {
        count += 1;
        return Promise.resolve(answers(count));
      },
    },
  });
  return { tokens, clock, fetches: () => count };
}

/** The token that a call carries, or why it is not made. */
const tokenOf = async (tokens: Calls, access: 'read' | 'write' = 'write'): Promise<string> => {
  let carried = '';
  const outcome = await tokens(access, ({ authorization = '' }) => {
    carried = authorization.replace('Bearer ', '');
    return Promise.resolve(reply(200, {}));
  });
  return outcome.kind === 'reply' ? carried : outcome.reason;
};

test('a token is renewed on use, at four fifths of its lifetime or a minute before its end [OA3 OA4]', async () => {
  const long = source((n) => good({ access_token: `t${n}`, expires_in: 3600 }));
  assert.equal(await tokenOf(long.tokens), 't1');
  await long.clock.advance(2_879_000);
  assert.equal(await tokenOf(long.tokens), 't1');
  await long.clock.advance(2_000);
  assert.equal(await tokenOf(long.tokens), 't2');
  const short = source((n) => good({ access_token: `t${n}`, expires_in: 100 }));
  await tokenOf(short.tokens);
  await short.clock.advance(39_000);
  assert.equal(await tokenOf(short.tokens), 't1');
  await short.clock.advance(2_000);
  assert.equal(await tokenOf(short.tokens), 't2');
  const never = source((n) => good({ access_token: `t${n}`, expires_in: 0 }));
  assert.equal(await tokenOf(never.tokens), 't1');
  assert.equal(await tokenOf(never.tokens), 't2');
});

test('a step of the wall clock neither ends nor extends a token', async () => {
  const { tokens, clock } = source((n) => good({ access_token: `t${n}`, expires_in: 1000 }));
  await tokenOf(tokens);
  clock.stepWallClock(3_600_000);
  assert.equal(await tokenOf(tokens), 't1');
  clock.stepWallClock(-7_200_000);
  await clock.advance(801_000);
  assert.equal(await tokenOf(tokens), 't2');
});

test('while the endpoint fails, the old token is used until it expires, and not a second longer', async () => {
  const { tokens, clock, fetches } = source((n) =>
    n === 1 ? good({ access_token: 't1', expires_in: 1000 }) : reply(503, {}),
  );
  await tokenOf(tokens);
  await clock.advance(900_000);
  assert.equal(await tokenOf(tokens), 't1');
  const before = fetches();
  assert.equal(await tokenOf(tokens), 't1');
  assert.equal(fetches(), before, 'the endpoint is not asked again at once');
  await clock.advance(101_000);
  assert.equal(await tokenOf(tokens), 'unreachable');
});

test('the token endpoint’s Retry-After is honoured, as seconds and as a date', async () => {
  for (const header of ['120', 'in two minutes'] as const) {
    const { tokens, clock, fetches } = source((n) => ({
      ...reply(n === 1 ? 503 : 200, n === 1 ? {} : { access_token: 't2', token_type: 'Bearer' }),
      retryAfter: header === '120' ? header : new Date(clock.now() + 120_000).toUTCString(),
    }));
    assert.equal(await tokenOf(tokens), 'unreachable');
    await clock.advance(118_000);
    assert.equal(await tokenOf(tokens), 'unreachable');
    assert.equal(fetches(), 1, 'not asked before the time that it named');
    await clock.advance(14_001);
    assert.equal(await tokenOf(tokens), 't2');
  }
});

test('refused credentials are tried once a second at most, not once a payment, and soon found to be right again [LV8]', async () => {
  const { tokens, clock, fetches } = source(() => reply(400, { error: 'invalid_client' }));
  for (let time = 0; time < 100; time += 1) assert.equal(await tokenOf(tokens), 'refused');
  assert.equal(fetches(), 1);
  for (let time = 0; time < 10_000; time += 10) {
    await clock.advance(10);
    await tokenOf(tokens);
  }
  assert.ok(fetches() >= 10 && fetches() <= 14, `${fetches()} in ten seconds`);
});

test('a granted scope without write sends no put, and an absent scope counts as the requested one [SC1]', async () => {
  const shrunk = source(() => good({ scope: 'read' }));
  assert.equal(await tokenOf(shrunk.tokens), 'scope');
  assert.equal(await tokenOf(shrunk.tokens, 'read'), 'abc');
  const absent = source(() => good({ scope: undefined }));
  assert.equal(await tokenOf(absent.tokens), 'abc');
});

async function registerOAuth(rig: EngineRig, { url }: ScriptedPartner): Promise<void> {
  await rig.register('acme', url, {
    auth: {
      method: 'oauth',
      token_url: `${url}/oauth/token`,
      client_id: 'platform',
      client_secret: 's+e%c&r:e=t',
      scope: 'read write',
    },
  });
}

test('a thousand waiting payments fetch one token, and each call carries it as Bearer [OA2 OA3 OA4 PL13 F65]', async (t) => {
  const log = keptLog();
  const rig = await engineRig(t, { log });
  const partner = await scriptedPartner(t);
  partner.pollsToEnd = 0;
  await registerOAuth(rig, partner);
  const engine = rig.engine();
  await engine.start();
  const rows = await Promise.all(Array.from({ length: 1_000 }, () => rig.pay(engine, 'acme')));
  for (const row of rows) await rig.until(row.platform_payment_id, settled);
  const isToken = (seen: Seen): boolean => seen.path === '/oauth/token';
  const fetches = partner.seen.filter(isToken);
  // On a machine that is starved of time the answer may miss its deadline. Only then is the token fetched again.
  const missed = log.lines.filter(({ message }) => message === 'no access token');
  assert.ok(fetches.length >= 1 && fetches.length <= 1 + missed.length, `${fetches.length}`);
  assert.equal(fetches[0]?.headers['content-type'], 'application/x-www-form-urlencoded');
  assert.equal(new URLSearchParams(fetches[0]?.body).get('client_secret'), 's+e%c&r:e=t');
  for (const seen of partner.seen) {
    if (!isToken(seen)) assert.equal(seen.headers.authorization, 'Bearer token-1');
  }
});

test('a revoked token leads to one new fetch and one repeat, whoever waits [OA4 PL13 F57]', async (t) => {
  const log = keptLog();
  const rig = await engineRig(t, { log });
  const partner = await scriptedPartner(t);
  await registerOAuth(rig, partner);
  let issued = 0;
  let valid = '';
  partner.script = (seen) => {
    if (seen.path === '/oauth/token') {
      issued += 1;
      valid = `token-${issued}`;
      return { json: { access_token: valid, token_type: 'bearer', expires_in: 3600 } };
    }
    return seen.headers.authorization === `Bearer ${valid}` ? undefined : { status: 401, json: {} };
  };
  const engine = rig.engine();
  await engine.start();
  const warm = await rig.pay(engine, 'acme');
  await rig.until(warm.platform_payment_id, settled);
  assert.equal(issued, 1);
  valid = 'revoked';
  const rows = await Promise.all(Array.from({ length: 50 }, () => rig.pay(engine, 'acme')));
  for (const row of rows)
    assert.equal((await rig.until(row.platform_payment_id, settled)).status, 'succeeded');
  assert.equal(issued, 2);
  // Not repeated at once, the call would hold the partner for a minute and call an operator, who can do nothing about it.
  assert.ok(!log.lines.some(({ message }) => message.includes('held back')));
});

test('a redirect from the token endpoint is not followed with the secret [OA1]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  const thief = await scriptedPartner(t);
  await registerOAuth(rig, partner);
  let redirected = 0;
  partner.script = (seen) => {
    if (seen.path !== '/oauth/token' || redirected > 0) return undefined;
    redirected += 1;
    return { status: 307, headers: { location: `${thief.url}/oauth/token` } };
  };
  const engine = rig.engine();
  await engine.start();
  const row = await rig.pay(engine, 'acme');
  await rig.until(row.platform_payment_id, settled);
  assert.equal(thief.seen.length, 0);
});
