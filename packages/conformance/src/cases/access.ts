/** Checks of who may call a partner (P01 to P08), and of what it says about its accounts (P10 to P14). A hole here lets strangers read bills or record payments; customers decide by an account what to pay, and to whom. */
import { AccountRecord, type Json, compileCheck, isDate } from '@duebridge/contract';
import type { PartnerCase } from '../check/check.ts';
import type { Headers } from '../check/context.ts';
import {
  type Reply,
  asObject,
  isJson,
  isRefusal,
  isSuccess,
  parsed,
  show,
  tell,
} from '../check/http.ts';
import { type PartnerContext, type TokenForm, accessToken } from '../check/partner-context.ts';
import { NO_BILLER, isTime, uses } from '../check/payment-fields.ts';
import { changed, isText, misspellings, oauthOnly, otherCase } from './shared.ts';

/** Fields that reveal an account or a payment. */
const DATA = ['balance', 'holder', 'account_id', 'payment_id'];

/**
 * Calls every operation with each credential in turn. Each call must be refused, must return no data and must not create a
 * payment. `offset` keeps the amount distinct from those of other checks.
 */
async function refusesAll(
  t: PartnerContext,
  proofs: readonly (readonly [name: string, proof: Headers])[],
  offset: number,
): Promise<void> {
  const { intent: known } = await t.subject();
  await Promise.all(
    proofs.map(async ([name, proof]) => {
      const intent = t.intend(offset);
      const calls: [string, Promise<Reply>][] = [
        ['GET account', t.readAccount(undefined, { proof })],
        ['GET payment under its account', t.read(known, { proof })],
        ['PUT payment', t.put(intent, { proof })],
        ['PUT of a known payment', t.put(known, { proof })],
      ];
      if (t.offers('get_balance')) calls.push(['GET balance', t.readBalance(undefined, { proof })]);
      if (t.offers('get_payment')) calls.push(['GET payment', t.readById(known, { proof })]);
      const replies = await Promise.all(
        calls.map(async ([what, reply]) => [what, await reply] as const),
      );
      for (const [what, reply] of replies) refused(t, reply, `${what} with ${name}`);
      await t.notMade(intent, {
        expected: `no payment created by a PUT with ${name}`,
        cause: 'The payment is stored before the credential is checked.',
      });
    }),
  );
}

function refused(t: PartnerContext, reply: Reply, what: string): void {
  if (!t.must(isRefusal(reply), `${what}: a refusal, such as 401`, reply)) return;
  // A gateway may answer 404 for a request it blocks; that is still a refusal.
  const body = asObject(reply.json) ?? {};
  const isShown = DATA.some((field) => field in body && typeof body[field] !== 'number');
  const isMoney = (body['amount_due_in_cents'] ?? null) !== null;
  t.must(!isMoney && !isShown, `${what}: no data in the refusal`, reply);
  t.strict(reply.status === 401, `${what}: 401`, reply);
}

/** Maximum number of wrong credentials tried; the plan reserves one payment for each. */
const MOST = 8;

const p01: PartnerCase = {
  id: 'P01',
  title: 'Requests without a credential, or with a wrong one, are refused',
  clauses: ['S3', 'OA4', 'KY1'],
  likely_cause:
    'A route is outside the authentication, or only a part of the credential is compared.',
  creates: uses(...Array.from({ length: 1 + MOST }, () => 2)),
  async run(t) {
    const { authentication } = t.target;
    const wrong =
      authentication.method === 'key'
        ? wrongKeys(authentication.header, authentication.key)
        : wrongTokens(await tokenFor(t));
    await refusesAll(t, [['no credential', {}], ...wrong.slice(0, MOST)], 2);
  },
};

function wrongKeys(header: string, key: string): (readonly [string, Headers])[] {
  const tries: (readonly [string, string])[] = [
    ['a made-up key', 'wrong-key-duebridge'],
    ['an empty key', ''],
    ['the first character of the key', key.slice(0, 1)],
    ...misspellings(key).map(([how, value]) => [`the key ${how}`, value] as const),
  ];
  return tries
    .filter(([, value]) => value !== key)
    .map(([name, value]) => [name, { [header]: value }]);
}

function wrongTokens(token: string): (readonly [string, Headers])[] {
  const parts = token.split('.');
  const middle = Math.floor(token.length / 2);
  const tries: [string, string][] = [
    ['a made-up token', 'Bearer not-a-token-duebridge'],
    ['no token after the word Bearer', 'Bearer'],
    ['Basic instead of Bearer', 'Basic ZHVlYnJpZGdlOndyb25n'],
    ['the token without its last four characters', `Bearer ${token.slice(0, -4)}`],
    // Never the last character: the final base64 character may carry bits that decoders ignore.
    ['the token with one of its last changed', `Bearer ${changed(token, token.length - 6)}`],
    ['the token with one character changed', `Bearer ${changed(token, middle)}`],
    ['the token in another case', `Bearer ${otherCase(token)}`],
  ];
  if (parts.length === 3) {
    tries.push(['the token without its signature', `Bearer ${parts[0]}.${parts[1]}.`]);
  }
  return tries
    .filter(([, value]) => value !== `Bearer ${token}`)
    .map(([name, authorization]) => [name, { authorization }]);
}

/** A new access token. Skips when the partner issues none. */
async function tokenFor(t: PartnerContext, change?: TokenForm): Promise<string> {
  const granted = await t.run.fetchToken(t.check, change);
  const token = accessToken(granted);
  const scope = change?.scope === undefined ? '' : ` for scope ${change.scope}`;
  t.given(token !== undefined, `no token${scope} is issued (see P03): ${tell(granted)}`);
  return token;
}

const p03: PartnerCase = {
  id: 'P03',
  title: 'The token endpoint accepts the OAuth 2.0 client credentials form',
  clauses: ['OA2', 'OA3'],
  likely_cause: 'The endpoint expects JSON instead of a form, or omits a field of the response.',
  unfit: oauthOnly,
  async run(t) {
    const reply = await t.run.fetchToken(t.check);
    const isRead = reply.status === 200 && isJson(reply) && asObject(reply.json) !== undefined;
    if (!t.must(isRead, '200 with a JSON object', reply)) return;
    t.field(reply, 'access_token', 'access_token, a non-empty string', isText);
    const isBearer = (type: unknown): boolean => typeof type === 'string' && /^bearer$/i.test(type);
    t.field(reply, 'token_type', 'token_type "Bearer"', isBearer);
    const isTime = (life: unknown): boolean => typeof life === 'number' && life > 0;
    t.field(reply, 'expires_in', 'expires_in, a positive integer number of seconds', isTime);
    const isScope = (scope: unknown): boolean => typeof scope === 'string';
    t.field(reply, 'scope', 'scope, the scopes granted', isScope);
  },
};

const p04: PartnerCase = {
  id: 'P04',
  title: 'The token endpoint refuses wrong client credentials, other grants and unknown scopes',
  clauses: ['OA1', 'OA2', 'OA3', 'SC1'],
  likely_cause: 'Only the client, only the secret, or only a part of the secret is compared.',
  unfit: oauthOnly,
  async run(t) {
    const { authentication } = t.target;
    if (authentication.method !== 'oauth') return;
    const { client_id, client_secret } = authentication;
    const tries: (readonly [string, TokenForm])[] = [
      ['a wrong secret', { client_secret: 'wrong-secret-duebridge' }],
      ['the right secret under another client_id', { client_id: `${client_id}-duebridge` }],
      ...misspellings(client_secret).map(
        ([how, value]) => [`the secret ${how}`, { client_secret: value }] as const,
      ),
    ];
    for (const [what, change] of tries) {
      const reply = await t.run.fetchToken(t.check, change);
      const isRefused = [400, 401, 403].includes(reply.status ?? 0);
      const isKept = isRefused && !reply.text.includes('"access_token"');
      t.must(isKept, `400 or 401 without a token, for ${what}`, reply);
    }
    await otherGrants(t);
  },
};

/** Content types for which the scope must be enforced too. */
const TYPES = ['application/json', 'application/json; charset=utf-8', 'text/plain'];

const p05: PartnerCase = {
  id: 'P05',
  title: 'A token with scope read cannot create payments, and one with scope write cannot read',
  clauses: ['SC1'],
  likely_cause: 'The scope is not checked, or only for one content type or new payments.',
  unfit: oauthOnly,
  creates: uses('first', ...TYPES.map(() => 5)),
  async run(t) {
    const proof = { authorization: `Bearer ${await tokenFor(t, { scope: 'read' })}` };
    for (const type of TYPES) {
      const intent = t.intend(5);
      const reply = await t.put(intent, { proof, headers: { 'content-type': type } });
      const isRefused = t.refused(reply, `a PUT as ${type}, such as 403`);
      if (isRefused && type === TYPES[0]) t.strict(reply.status === 403, '403', reply);
      await t.notMade(intent);
    }
    const { intent } = await t.accepted();
    t.refused(await t.put(intent, { proof }), 'a PUT that repeats a known payment, such as 403');
    const writing = { proof: { authorization: `Bearer ${await tokenFor(t, { scope: 'write' })}` } };
    const reads = [await t.readAccount(undefined, writing)];
    if (t.offers('get_balance')) reads.push(await t.readBalance(undefined, writing));
    if (t.offers('get_payment')) reads.push(await t.readById(intent, writing));
    const cause = 'Write is taken to include read; in the interface they are separate scopes.';
    for (const reply of reads)
      t.refused(reply, 'the read, such as 403', { level: 'should', cause });
  },
};

/** Longest token lifetime for which the judge waits until expiry. */
const LONGEST_WAIT_SECONDS = 10;

const p07: PartnerCase = {
  id: 'P07',
  title: 'An expired access token is refused',
  clauses: ['OA3'],
  severity: 'should',
  likely_cause: 'expires_in is announced but never enforced, or its unit is not seconds.',
  unfit: oauthOnly,
  async run(t: PartnerContext) {
    const granted = await t.run.fetchToken(t.check);
    const seconds = asObject(granted.json)?.['expires_in'];
    t.given(
      typeof seconds === 'number' && seconds <= LONGEST_WAIT_SECONDS,
      `the token lives longer than ${LONGEST_WAIT_SECONDS} s`,
    );
    const read = (token: Reply): Promise<Reply> =>
      t.readAccount(undefined, { proof: { authorization: `Bearer ${accessToken(token)}` } });
    // Wait half a second longer than announced, because neither clock is exact.
    await t.run.sleep(seconds * 1_000 + 500);
    const late = await read(granted);
    t.should(late.status === 401, '401', late);
    const again = await read(await t.run.fetchToken(t.check));
    t.should(isSuccess(again), '200 with a new token', again);
  },
};

const p08: PartnerCase = {
  id: 'P08',
  title: 'The key is accepted in the declared header and in no other',
  clauses: ['KY1', 'KY2'],
  likely_cause: 'The name is compared case-sensitively, or several headers are read.',
  unfit: (target) =>
    target.authentication.method === 'key' ? undefined : 'the target uses OAuth, not a static key',
  async run(t) {
    const { authentication } = t.target;
    if (authentication.method !== 'key') return;
    const { header, key } = authentication;
    for (const name of [header, header.toLowerCase(), header.toUpperCase()]) {
      const reply = await t.readAccount(undefined, { proof: { [name]: key } });
      const expected = `the plain key is accepted in ${name}: header names are case-insensitive`;
      if (!t.must(isSuccess(reply), expected, reply)) return;
    }
    const other = header.toLowerCase() === 'authorization' ? 'x-api-key' : 'authorization';
    const reply = await t.readAccount(undefined, { proof: { [other]: key } });
    t.refused(reply, `the key in ${other}`, { level: 'should' });
  },
};

/** A scope that no server knows. */
const NO_SCOPE = 'no-such-scope-duebridge';

/** Scopes that are asked for, with one that must not be granted then. */
const SCOPES = [
  {
    asked: NO_SCOPE,
    never: NO_SCOPE,
    expected: 'a refusal, or a token without the unknown scope',
    clause: 'OA3',
    cause: 'The response repeats the requested scope instead of the granted one.',
  },
  {
    asked: 'read',
    never: 'write',
    expected: 'a token of scope read, as requested',
    clause: 'SC1',
    cause: 'The token gets every scope of the client, whatever was requested.',
  },
] as const;

/** The only grant is that of client credentials, and a token has no scope that was not asked for. */
async function otherGrants(t: PartnerContext): Promise<void> {
  for (const grant_type of ['password', undefined]) {
    const reply = await t.run.fetchToken(t.check, { grant_type });
    const expected = `no token for grant_type ${show(grant_type)}`;
    t.should(!isSuccess(reply), expected, reply, {
      clause: 'OA2',
      cause: 'Only the client is read.',
    });
  }
  for (const { asked, never, expected, ...more } of SCOPES) {
    const reply = await t.run.fetchToken(t.check, { scope: asked });
    const granted = asObject(reply.json)?.['scope'];
    const isWrong = typeof granted === 'string' && granted.split(' ').includes(never);
    t.should(!isWrong, expected, reply, { got: `scope ${show(granted)}`, ...more });
  }
}

const record = compileCheck(AccountRecord);

const p10: PartnerCase = {
  id: 'P10',
  title: 'A known account can be read',
  clauses: ['B1', 'AC1', 'S2'],
  likely_cause: 'The content type is wrong, the object is in an array, or ids are reformatted.',
  async run(t) {
    const reply = await t.readAccount();
    const account = asObject(reply.json);
    const isRead = reply.status === 200 && isJson(reply) && account !== undefined;
    const type = reply.headers['content-type'] ?? 'no content type';
    const problem = reply.json_problem === undefined ? '' : `; ${reply.json_problem}`;
    const expected = '200 with a JSON object and content type application/json';
    t.must(isRead, expected, reply, { got: `${tell(reply)} (${type}${problem})` });
    if (!isRead) return;
    const asked = { biller_id: t.target.biller_id, account_id: t.target.accounts.payable };
    for (const [name, wanted] of Object.entries(asked)) {
      if (account[name] !== undefined) t.equals(reply, name, wanted, { level: 'should' });
    }
    const problems = record.problems(account, 'body');
    t.strict(problems.length === 0, 'the account record of decision 4', reply, {
      got: problems.map(({ path, problem }) => `${path} ${problem}`).join('; '),
    });
  },
};

const p11: PartnerCase = {
  id: 'P11',
  title: 'Reading an account or a payment that does not exist returns an error',
  clauses: ['ER3', 'B1', 'B5', 'B3'],
  severity: 'should',
  likely_cause:
    'A missing row becomes an empty 200 or an exception, or the biller is not looked at.',
  async run(t) {
    const reply = await t.readAccount(t.target.accounts.unknown);
    t.should(isRefusal(reply) && isJson(reply), '404 with a JSON body', reply);
    t.strict(reply.status === 404, '404', reply);
    const intent = t.intend(0);
    const payments = [await t.read(intent)];
    if (t.offers('get_payment')) payments.push(await t.readById(intent));
    for (const read of payments) {
      const is404 = read.status === 404 && isJson(read);
      t.should(is404, '404 with a JSON body', read, { clause: 'B5' });
    }
    if (t.target.paths.get_account?.includes('{biller_id}') !== true) return;
    const place = { biller_id: NO_BILLER, account_id: t.target.accounts.payable };
    const elsewhere = await t.call('get_account', place);
    const isShown = accountIn(elsewhere)?.['account_id'] !== undefined;
    t.should(!isShown, 'no account under a biller that does not exist', elsewhere);
  },
};

/** The account that an answer shows; undefined when it is none. */
const accountIn = (reply: Reply) => (isSuccess(reply) ? asObject(reply.json) : undefined);

/** True when an answer shows this account or none, but not another one. */
function showsOnly(reply: Reply, id: string): boolean {
  const account = accountIn(reply);
  return account === undefined || account['account_id'] === id;
}

const isBelow500 = ({ status }: Reply): boolean => status !== undefined && status < 500;

const p12: PartnerCase = {
  id: 'P12',
  title: 'Account ids with special characters are handled safely',
  clauses: ['B1'],
  severity: 'should',
  likely_cause: 'The path is decoded before it is split, or ids are cut, trimmed or folded.',
  async run(t) {
    const { payable } = t.target.accounts;
    const url = `${t.run.url('get_account', { account_id: payable })}%zz`;
    const broken = await t.send({ method: 'GET', url }, () => t.run.credential(t.check));
    const expected = 'a status below 500 for a path with an invalid percent-encoding';
    t.should(isBelow500(broken), expected, broken);
    const ids = [`x/../${payable}`, `${payable}/`, `${payable}-é-账户`, 'a'.repeat(128)];
    for (const id of ids) {
      const reply = await t.readAccount(id);
      const named = JSON.stringify(id.slice(0, 40));
      t.should(isBelow500(reply), `a status below 500 for ${named}`, reply);
      t.should(showsOnly(reply, id), 'no account other than the one requested', reply);
    }
    for (const id of [otherCase(payable), `${payable} `, ` ${payable}`]) {
      if (id === payable) continue;
      const reply = await t.readAccount(id);
      const expected = `no account for ${JSON.stringify(id)}: ids are compared byte for byte`;
      t.strict(showsOnly(reply, id), expected, reply);
    }
    await declaredIds(t);
  },
};

/** Ids of the biller's own must arrive as they are written, whatever a path encodes. */
async function declaredIds(t: PartnerContext): Promise<void> {
  const { payable, other, inactive, canceled } = t.target.accounts;
  const declared = [payable, other, inactive, canceled].filter((id) => id !== undefined);
  const unusual = declared.filter((one) => /[^\w.~-]/.test(one));
  if (unusual.length === 0) {
    t.unseen('The target declares no account id with a character that a path must encode');
  }
  for (const id of unusual) {
    const reply = await t.readAccount(id);
    const { account_id = id } = accountIn(reply) ?? {};
    const isFound = isSuccess(reply) && account_id === id;
    t.should(
      isFound,
      `the declared account ${JSON.stringify(id)}, exactly as it is written`,
      reply,
    );
  }
}

const p13: PartnerCase = {
  id: 'P13',
  title: 'A balance can be read',
  clauses: ['S5', 'B2', 'TR3'],
  // Last of all, because an amount may be whole until a payment has been posted.
  stage: 'final',
  likely_cause: 'Amounts are stored in dollars or as decimal strings and returned unconverted.',
  unfit: (target) =>
    target.paths.get_balance === null ? 'the target does not offer Get Balance' : undefined,
  async run(t) {
    const reply = await t.readBalance();
    const balance = asObject(reply.json);
    const isRead = reply.status === 200 && balance !== undefined;
    t.must(isRead, '200 with a JSON object', reply);
    if (!isRead) return;
    const broken = t.run.wire.exchanges.filter(
      ({ method, status, answer_body: body }) =>
        method === 'GET' &&
        status === 200 &&
        !['undefined', 'number'].includes(typeof dueIn(parsed(body))),
    );
    t.none(
      broken,
      'amount_due_in_cents as a plain JSON integer, such as 12500',
      ({ answer_body: body }) => `amount_due_in_cents is ${show(dueIn(parsed(body)))}`,
      broken[0] === reply.exchange
        ? {}
        : { cause: 'Payments are subtracted in dollars, as floating-point numbers or as text.' },
    );
    const { amount_due_in_cents, due_date, last_updated_at } = balance;
    // No field of a Balance is required, so an empty one is correct.
    if ([amount_due_in_cents, due_date, last_updated_at].every((one) => one === undefined)) {
      t.notes.push('The balance has no field of the interface, so there was nothing to check.');
    }
    const isDay = (day: unknown): boolean =>
      day === undefined || (typeof day === 'string' && isDate(day));
    const level = 'should';
    t.field(reply, 'due_date', 'due_date as YYYY-MM-DD, an existing date', isDay, { level });
    const expected = 'last_updated_at as an ISO 8601 time';
    const isDated = (time: Json | undefined): boolean => time === undefined || isTime(time);
    t.field(reply, 'last_updated_at', expected, isDated, { level });
  },
};

/** The amount due in the answer to Get Balance or Get Account, as it was sent. */
function dueIn(answer: Readonly<Record<string, Json>> = {}): Json | undefined {
  const { balance, amount_due_in_cents: alone } = answer;
  return alone ?? asObject(balance)?.['amount_due_in_cents'];
}

/** Consecutive reads of the account and of the balance. */
const READS = 20;

/** How many times the values must change while reading, and not change at rest, before the check reports it. */
const ROUNDS = 3;

const p14: PartnerCase = {
  id: 'P14',
  title: 'Reading changes nothing',
  clauses: ['B1', 'B2'],
  stage: 'first',
  likely_cause: 'A read posts, accrues or rounds, or two replicas hold different balances.',
  async run(t) {
    const first = await look(t);
    if (!flips(first)) return;
    // The values changed. Others may use the test system, or it may be refreshed; the check must rule out every cause but the
    // reads.
    let caused = 0;
    let last = first.at(-1);
    for (let round = 0; round < ROUNDS; round += 1) {
      const started = t.run.now();
      const reads = await look(t);
      const took = t.run.now() - started;
      const before = await look(t, 1);
      await t.run.sleep(took);
      const rest = [...before, ...(await look(t, 1))];
      const moved = spread(reads);
      const isTurned = moved === 0 && flips(reads) && !flips(rest);
      if (moved > spread(rest) * 2 || isTurned) caused += 1;
      last = reads.at(-1);
    }
    if (caused < ROUNDS) {
      t.run.unsettled = true;
      t.notes.push('Not measured: the account also changes while nothing reads it.');
      return;
    }
    t.must(false, `unchanged: ${first[0]?.shown ?? ''}`, last?.reply, { got: last?.shown ?? '' });
  },
};

type Look = Awaited<ReturnType<typeof look>>[number];

/** Reads the account and its balance. Gives what each read shows as text, the amount due, and the answer. */
function look(t: PartnerContext, times = READS) {
  return Promise.all(
    Array.from({ length: times }, async () => {
      const [account, balance] = await Promise.all([
        t.readAccount(),
        t.offers('get_balance') ? t.readBalance() : undefined,
      ]);
      const status = asObject(account.json)?.['status'];
      const [within, alone] = [account, balance].map((reply) => dueIn(asObject(reply?.json)));
      const due = [alone, within].find((one) => typeof one === 'number') ?? 0;
      return {
        shown: `status ${show(status)}, amount due ${show(within ?? alone)} / ${show(alone)}`,
        due,
        reply: balance ?? account,
      };
    }),
  );
}

function spread(looks: readonly Look[]): number {
  const dues = looks.map(({ due }) => due);
  return Math.max(...dues) - Math.min(...dues);
}

function flips(looks: readonly Look[]): boolean {
  return new Set(looks.map(({ shown }) => shown)).size > 1;
}

export const ACCESS = [p01, p03, p04, p05, p07, p08, p10, p11, p12, p13, p14];
