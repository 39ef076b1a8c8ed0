/** Checks of the requests that a platform sends to a partner (C01, C09), and of how long it calls (C03): to the end of each payment, and not beyond. */
import {
  type CallerContext,
  type CallerPayment,
  amountOf,
  decoded,
  idOf,
} from '../check/caller-context.ts';
import type { CallerCase } from '../check/check.ts';
import { Skipped } from '../check/findings.ts';
import { parsed, show } from '../check/http.ts';
import { BEYOND_24_BITS, BEYOND_32_BITS } from '../check/payment-fields.ts';
import { secretsOf } from '../check/target.ts';
import { mediaTypeOf } from '../scripted/listeners.ts';
import { type Behaviour, type Call, onRecords } from '../scripted/partner.ts';
import { hasEnded, returnedTheEnd, stopsAtTheEnd, untilEnd } from './caller-rules.ts';
import { isText } from './shared.ts';

const CENTS = 9_001;

/** Odd amounts just beyond 24 and 32 bits. */
const LARGE_CENTS = [BEYOND_24_BITS, BEYOND_32_BITS];

/** Maximum wait for a payment that the platform may refuse to make. */
const LARGE_WAIT_MS = 5_000;

/** Names of fields that hold personal data. */
const PERSONAL = /^(?:.*_)?(?:name|email|phone|address|customer|payer|holder)(?:_.*)?$/i;

const c09: CallerCase = {
  id: 'C09',
  title: 'The requests of a payment conform to the interface, without a credential in a URL',
  clauses: ['B4', 'PF6', 'S5', 'PF3', 'OA2', 'OA4', 'KY1', 'KY2', 'S3'],
  stage: 'first',
  likely_cause: 'The client was written for another interface.',
  async run(t: CallerContext) {
    const payment = await t.pay(CENTS);
    await t.until(() => t.puts().length > 0 || refusedTokens(t) > 2);
    tokenRequests(t);
    await t.arrived(payment);
    const [first] = t.puts(payment);
    if (first === undefined) return;
    const { biller_id, account_id } = t.caller.target;
    const path = ['biller', biller_id, 'account', account_id, 'payment'];
    const isPath = path.every((part, place) => decoded(first.path.split('/')[place + 1]) === part);
    const expected = `PUT /${path.map(encodeURIComponent).join('/')}/{platform_payment_id}`;
    t.must(isPath, expected, first, { got: first.path, clause: 'B4' });
    const type = mediaTypeOf(first.headers);
    t.must(type === 'application/json', 'content type application/json', first, {
      got: type || 'no content type',
      clause: 'B4',
    });
    instruction(t, first, payment.platform_payment_id);
    credential(t, first);
    await taken(t, payment);
    // A platform whose first request is wrong would only make the run longer.
    if (t.all.length === 0) await largeAmounts(t);
  },
  atEnd: laterCalls,
};

/**
 * Every payment of the run must be put with the amount that was asked for, and no URL may contain a credential. Every later call must carry the key too, such as the poll after a Retry-After. Not judged for OAuth: some scenarios issue unusable
 * tokens, and what a call carries then says nothing.
 */
async function laterCalls(t: CallerContext): Promise<void> {
  const off = t.caller.otherAmount();
  t.must(off === undefined, `the requested amount in every PUT, such as ${off?.asked}`, off?.put, {
    got: `amount_in_cents ${amountOf(off?.put.text ?? '') ?? 'missing'}`,
    clause: 'PF6',
    cause: 'The amount is rounded on its way, or a fee is added or taken off.',
  });
  const { authentication } = t.caller.target;
  const secrets = [...secretsOf(authentication).map(({ value }) => value), t.target.api_key]
    .filter((secret) => secret !== '')
    .flatMap((one) => [one, encodeURIComponent(one)]);
  t.none(
    t.caller.partner.exchanges.filter(
      ({ path }) =>
        secrets.some((secret) => path.includes(secret)) ||
        /[?&](?:access_token|api_?key|client_secret|token)=/i.test(path),
    ),
    'URLs without credentials',
    ({ method, path }) => `${method} ${path.split('?')[0]} contains one`,
    {
      clause: 'S3',
      cause: 'The key is also sent as a query parameter, as another partner wants it.',
    },
  );
  if (t.all.length > 0 || authentication.method === 'oauth') return;
  const { header, key } = authentication;
  t.none(
    t.caller.partner.exchanges
      .filter(({ operation }) => PROTECTED.includes(operation))
      .filter(({ headers }) => headers[header.toLowerCase()] !== key),
    `${header} with the key in every call`,
    ({ method, path }) => `${method} ${path} without it`,
    { clause: 'KY1', cause: 'A retry or a poll is sent without the headers of the first call.' },
  );
}

/** The operations that require a credential. */
const PROTECTED: readonly string[] = ['put_account_payment', 'get_account_payment', 'get_payment'];

/** The scripted partner accepts every correct PUT; one that it refuses for another reason than those above is wrong too. */
async function taken(t: CallerContext, payment: CallerPayment): Promise<void> {
  const answered = (): readonly Call[] =>
    t.puts(payment).filter(({ answer }) => answer !== undefined);
  if (t.all.length > 0 || !(await t.until(() => answered().length > 0))) return;
  const batch = parsed(answered()[0]?.text ?? '')?.['platform_batch_id'];
  // The interface sets no form for the platform's ids; the scripted partner takes those of decision 13.
  const isUsual = [payment.platform_payment_id, batch].every(
    (id) => typeof id === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(id),
  );
  t.none(
    answered().filter(({ answer }) => answer?.status === 400),
    isUsual
      ? 'a PUT that a partner accepts'
      : 'a platform_payment_id and a platform_batch_id of 1 to 64 letters, digits, dots, underscores and hyphens',
    ({ answer }) => answer?.body.slice(0, 200) ?? '',
    isUsual ? { clause: 'B4' } : { level: 'should', clause: 'PF2' },
  );
}

/** Amounts that a number type narrower than the interface's would change (PF6). */
async function largeAmounts(t: CallerContext): Promise<void> {
  for (const cents of LARGE_CENTS) {
    // The platform may have a limit of its own, and then refuses to make the payment.
    const payment = await t.pay(cents).catch((error: unknown) => {
      if (error instanceof Skipped) return undefined;
      throw error;
    });
    const wait_ms = Math.min(t.patience_ms, LARGE_WAIT_MS);
    const isMade =
      payment !== undefined && (await t.until(() => t.puts(payment).length > 0, wait_ms));
    const [first] = isMade ? t.puts(payment) : [];
    if (first === undefined) continue;
    const amount = parsed(first.text)?.['amount_in_cents'];
    t.must(amount === cents, `amount_in_cents as a plain JSON integer, ${cents}`, first, {
      got: show(amount),
      clause: typeof amount === 'number' ? 'PF6' : 'S5',
      cause: 'Amounts beyond 24 or 32 bits are rounded, wrapped, or written as text.',
    });
  }
}

/** The body of the PUT. */
function instruction(t: CallerContext, at: Call, id: string | undefined): void {
  const body = parsed(at.text);
  const isObject = body !== undefined;
  t.must(isObject, 'a JSON object', at, { got: at.text.slice(0, 200), clause: 'B4' });
  if (!isObject) return;
  const {
    amount_in_cents: amount,
    platform_batch_id: batch,
    platform_payment_id: named = id,
  } = body;
  const isWhole = typeof amount === 'number';
  t.must(isWhole, `amount_in_cents as a plain JSON integer, ${CENTS}`, at, {
    got: show(amount),
    clause: 'S5',
    cause: 'The amount is in dollars, is a string, or has another name.',
  });
  t.must(!isWhole || amount === CENTS, `the requested amount, ${CENTS}`, at, {
    got: show(amount),
    clause: 'PF6',
    cause: 'A fee is added, or the amount is converted to cents twice.',
  });
  t.must(isText(batch), 'platform_batch_id, a string', at, { got: show(batch), clause: 'PF3' });
  const personal = Object.keys(body).find((name) => PERSONAL.test(name));
  t.strict(personal === undefined, 'no personal data: the account identifies the customer', at, {
    got: `the field ${personal ?? ''}`,
    cause: 'The client sends the whole order.',
  });
  const own = `platform_payment_id as in the path, ${id}`;
  t.must(named === id, own, at, { got: show(named), clause: 'PF2' });
}

/** The credential of a call, as the partner declared it. */
function credential(t: CallerContext, at: Call): void {
  const { headers } = at;
  const { authentication } = t.caller.target;
  if (authentication.method === 'oauth') {
    const { authorization = '' } = headers;
    const isBearer = /^Bearer \S+$/.test(authorization);
    t.must(isBearer, 'Authorization: Bearer and the access token', at, {
      got: kindOf(authorization),
      clause: 'OA4',
    });
    return;
  }
  const { header, key } = authentication;
  const given = String(headers[header.toLowerCase()] ?? '');
  t.must(given === key, `${header} with only the key, without a scheme such as Bearer`, at, {
    got: given.endsWith(key) ? `${given.slice(0, -key.length)}and the key` : kindOf(given),
    clause: 'KY2',
    cause: 'The client library adds Bearer or another scheme to the Authorization header.',
  });
}

/** The requests at the token endpoint (OA2). */
function tokenRequests(t: CallerContext): void {
  const { authentication } = t.caller.target;
  if (authentication.method !== 'oauth') return;
  const fetches = t.caller.partner.exchanges.filter(
    ({ operation }) => operation === 'access_token',
  );
  // A platform may hold one token for reads and another for writes.
  const at = fetches.findLast(({ text }) => asksToWrite(text)) ?? fetches.at(-1);
  const more = { clause: 'OA2' } as const;
  t.must(at !== undefined, 'a request to the token endpoint', undefined, {
    got: 'none',
    ...more,
  });
  if (at === undefined) return;
  const type = mediaTypeOf(at.headers);
  const expected = 'application/x-www-form-urlencoded';
  t.must(type === expected, `content type ${expected} at the token endpoint`, at, {
    got: type || 'no content type',
    cause: 'The form is sent as JSON.',
    ...more,
  });
  const form = new URLSearchParams(at.text);
  const { client_id, client_secret } = authentication;
  const wanted = { grant_type: 'client_credentials', client_id, client_secret };
  for (const [name, value] of Object.entries(wanted)) {
    const got = form.has(name) ? 'another value' : 'it is missing';
    t.must(form.get(name) === value, `the form field ${name}`, at, { got, ...more });
  }
  const got = show(form.get('scope') ?? undefined);
  t.must(asksToWrite(at.text), 'the form field scope, including write', at, { got, ...more });
}

function asksToWrite(form: string): boolean {
  return (new URLSearchParams(form).get('scope') ?? '').split(' ').includes('write');
}

function refusedTokens(t: CallerContext): number {
  return t
    .calls()
    .filter(({ operation, answer }) => operation === 'access_token' && answer?.status !== 200)
    .length;
}

/** Describes a header value without revealing a possible secret. */
function kindOf(value: string): string {
  if (value === '') return 'no such header';
  const [word = '', ...rest] = value.split(' ');
  return rest.length === 0 ? 'another value' : `${word} and another value`;
}

const c01: CallerCase = {
  id: 'C01',
  title: 'Every payment has an id of its own, under its own account',
  clauses: ['PF2', 'B4'],
  likely_cause: 'The id is derived from account, amount and date, or counted within an account.',
  async run(t) {
    const payment = await t.pay(1_010);
    await t.arrived(payment);
    await paidAgain(t, payment);
    await otherAccount(t);
  },
};

/** An id that another account has used is another account's payment (PF2). */
async function otherAccount(t: CallerContext): Promise<void> {
  const { other_account_id } = t.caller.target;
  if (other_account_id === undefined) return;
  const known = new Set(t.caller.partner.exchanges.map(idOf));
  const payment = await t.pay(1_040, {}, other_account_id);
  const isIts = (put: Call): boolean =>
    amountOf(put.text) === payment.amount_in_cents || accountOf(put) === other_account_id;
  const isSent = await t.until(() => t.puts().some(isIts));
  t.given(isSent, 'the platform sent no PUT for the other account');
  const put = t.puts().find(isIts);
  if (put === undefined) return;
  const expected = `a path with the account ${encodeURIComponent(other_account_id)}`;
  t.must(accountOf(put) === other_account_id, expected, put, {
    got: put.path,
    clause: 'B4',
    cause: 'The id is written into the path without percent-encoding, or encoded as in a query.',
  });
  t.must(
    !known.has(idOf(put)),
    'a platform_payment_id that no payment of another account has',
    put,
    { got: put.path, clause: 'PF2', cause: 'Ids are numbered within each account.' },
  );
}

const accountOf = ({ path }: Call): string | undefined => decoded(path.split('/').at(-3));

/** A second payment of the same amount to the same account is another payment (PF2). */
async function paidAgain(t: CallerContext, first: CallerPayment): Promise<void> {
  if (!(await untilEnd(t, first))) return;
  const before = t.puts(first).length;
  await t.pay(first.amount_in_cents);
  const other = (): boolean => t.doubles(first).length > 0;
  // A PUT of the first payment may still be on its way from a busy machine: only one without the other is wrong.
  await t.until(other);
  // Its polls would otherwise reach into the next check.
  const [double] = t.doubles(first);
  if (double !== undefined) {
    await t.until(() =>
      t.calls().some((call) => call.path === double.path && returnedTheEnd(call)),
    );
  }
  const [repeated] = other() ? [] : t.puts(first).slice(before);
  t.none(
    repeated === undefined ? [] : [repeated],
    'another platform_payment_id for a second payment of the same amount',
    ({ path }) => path,
    { clause: 'PF2', cause: 'The id is derived from account, amount and date.' },
  );
}

/** The three terminal statuses, one payment each. */
const ENDS = ['succeeded', 'failed', 'canceled'] as const;

const c03: CallerCase = {
  id: 'C03',
  title: 'Polling stops once the payment has ended',
  clauses: ['RU4', 'B5', 'EV1'],
  likely_cause: 'The next poll is scheduled before the answer of this one is read.',
  async run(t) {
    const payments = await t.payAll(
      ENDS.map((status, place) => ({ cents: 3_010 + 10 * place, behaviour: endsAs(status) })),
    );
    for (const payment of payments) await t.accepted(payment);
    await t.until(() => payments.every((payment) => hasEnded(t, payment)));
    await Promise.all(
      payments.map(async (payment) => {
        const isPolled = t.must(
          hasEnded(t, payment),
          'polls until the payment has ended',
          undefined,
          {
            got: `${t.calls(payment).length} calls, none of which got a terminal status`,
            cause: 'The platform treats the response to the PUT as final, or polls the wrong URL.',
          },
        );
        if (isPolled) await stopsAtTheEnd(t, payment);
      }),
    );
    for (const payment of payments) t.atRest.set(payment, t.calls(payment).length);
  },
  async atEnd(t) {
    // One read after the end may be a reconciliation; the next are polls at a slower pace.
    const most = 1;
    for (const [payment, calls] of t.all.length > 0 ? [] : t.atRest) {
      const later = t.calls(payment).slice(calls);
      t.none(
        later.slice(most),
        `at most ${most} calls for an ended payment while the other checks run`,
        () => `${later.length}`,
        { cause: 'The platform goes on polling at a slower pace.' },
      );
    }
  },
};

/** Ends the payment with this status when the partner ends it. */
function endsAs(status: (typeof ENDS)[number]): Behaviour {
  return onRecords((record) =>
    record['status'] !== 'succeeded' || status === 'succeeded'
      ? record
      : {
          ...record,
          status,
          posted_at: null,
          ...(status === 'failed' ? { failure_reason: 'The account is closed.' } : {}),
        },
  );
}

export const CALLER = [c01, c03, c09];
