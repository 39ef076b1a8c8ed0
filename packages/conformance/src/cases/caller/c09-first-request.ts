import { OtherNumber } from '@duebridge/contract';
import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { Skipped } from '../../check/findings.ts';
import { show, type Reply } from '../../check/http.ts';
import { BEYOND_24_BITS, BEYOND_32_BITS } from '../../check/planned-payments.ts';
import type { Call, ScriptedExchange } from '../../sandbox/partner.ts';
import { parsed } from '../shared.ts';
import { decoded } from './calls.ts';

const CENTS = 9_001;

/** Odd amounts just beyond 24 and 32 bits. */
const LARGE_CENTS = [BEYOND_24_BITS, BEYOND_32_BITS];

/** Maximum wait for a payment that the platform may refuse to make. */
const LARGE_WAIT_MS = 5_000;

/** Names of fields that hold personal data. */
const PERSONAL = /^(?:.*_)?(?:name|email|phone|address|customer|payer|holder)(?:_.*)?$/i;

export const c09: CallerCase = {
  id: 'C09',
  title: 'The first requests of a payment conform to the interface',
  clauses: ['B4', 'PF6', 'S5', 'PF3', 'OA2', 'OA4', 'KY2'],
  severity: 'must',
  profile: 'contract',
  stage: 'first',
  sends: `nothing: the platform makes one payment, and its first requests are examined; then payments of ${LARGE_CENTS.join(' and ')} cents; with a static key, all calls of the run are examined for it`,
  expects:
    'a JSON PUT under the account’s path, with the requested amount in integer cents, large or small, and a batch id; the credential in the declared form, a static key in every call; a form POST to the token endpoint',
  likely_cause: 'The client was written for another interface.',
  async run(t: CallerContext) {
    const payment = await t.pay(CENTS);
    await t.until(() => t.puts().length > 0 || refusedTokens(t) > 2);
    tokenRequests(t);
    await t.arrived(payment);
    const [first] = t.puts(payment);
    const put =
      first === undefined ? undefined : t.run.raw.find(({ number }) => number === first.number);
    if (first === undefined || put === undefined) return;
    const at = t.cite(first);
    const { biller_id, account_id } = t.run.caller;
    const path = ['biller', biller_id, 'account', account_id, 'payment'];
    t.must(
      path.every((segment, place) => decoded(put.path.split('/')[place + 1]) === segment),
      {
        expected: `PUT /${path.map(encodeURIComponent).join('/')}/{platform_payment_id}`,
        got: put.path,
        clause: 'B4',
        at,
      },
    );
    const type = (put.headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase();
    t.must(type === 'application/json', {
      expected: 'content type application/json',
      got: type === undefined || type === '' ? 'no content type' : type,
      clause: 'B4',
      at,
    });
    instruction(t, put, at, payment.platform_payment_id);
    credential(t, put, at);
    await taken(t, payment);
    // A platform whose first request is wrong would only make the run longer.
    if (t.all.length === 0) await largeAmounts(t);
  },
  atEnd: laterCalls,
};

/**
 * Every later call must carry the key too, such as the poll after a Retry-After. Not judged for OAuth: some scenarios issue unusable
 * tokens, and what a call carries then says nothing.
 */
async function laterCalls(t: CallerContext): Promise<void> {
  const { authentication } = t.run.caller;
  if (t.all.length > 0 || authentication.method === 'oauth') return;
  const { header, key } = authentication;
  const bare = t.run.raw.find(
    ({ operation, headers }) =>
      PROTECTED.includes(operation) && headers[header.toLowerCase()] !== key,
  );
  const exchange = t.run.partner.exchanges().find(({ number }) => number === bare?.number);
  t.must(bare === undefined, {
    expected: `${header} with the key in every call`,
    got: `${bare?.method ?? ''} ${bare?.path ?? ''} without it`,
    clause: 'KY1',
    cause: 'A retry or a deferred poll is sent without the headers of the first call.',
    ...(exchange === undefined ? {} : { at: t.cite(exchange) }),
  });
}

/** The operations that require a credential. */
const PROTECTED: readonly string[] = ['put_account_payment', 'get_account_payment', 'get_payment'];

/** The scripted partner accepts every correct PUT; one that it refuses for another reason than those above is wrong too. */
async function taken(t: CallerContext, payment: CallerPayment): Promise<void> {
  const answered = (): readonly ScriptedExchange[] =>
    t.puts(payment).filter(({ answer }) => answer !== undefined);
  if (t.all.length > 0 || !(await t.until(() => answered().length > 0))) return;
  const refused = answered().find(({ answer }) => answer?.status === 400);
  const batch = parsed(answered()[0]?.body ?? '')?.['platform_batch_id'];
  // The interface sets no form for the platform's ids; the scripted partner takes those of decision 13.
  const usual = [payment.platform_payment_id, batch].every(
    (id) => typeof id === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(id),
  );
  t[usual ? 'must' : 'should'](refused === undefined, {
    expected: usual
      ? 'a PUT that a partner accepts'
      : 'a platform_payment_id and a platform_batch_id of 1 to 64 letters, digits, dots, underscores and hyphens',
    got: refused?.answer?.body.slice(0, 200) ?? '',
    clause: usual ? 'B4' : 'PF2',
    ...(refused === undefined ? {} : { at: t.cite(refused) }),
  });
}

/** Amounts that a number type narrower than the interface's would change (PF6). */
async function largeAmounts(t: CallerContext): Promise<void> {
  if (t.run.driver.at_once === 1) {
    t.notes.push('Large amounts were not judged, because a person makes the payments.');
    return;
  }
  for (const cents of LARGE_CENTS) {
    // The platform may have a limit of its own, and then refuses to make the payment.
    const payment = await t.pay(cents).catch((error: unknown) => {
      if (error instanceof Skipped) return undefined;
      throw error;
    });
    const wait_ms = Math.min(t.patience_ms, LARGE_WAIT_MS);
    const came =
      payment !== undefined && (await t.until(() => t.puts(payment).length > 0, wait_ms));
    const [first] = came ? t.puts(payment) : [];
    if (first === undefined) {
      t.notes.push(
        `The platform made no payment of ${cents} cents, so that amount was not judged.`,
      );
      continue;
    }
    const amount = parsed(first.body)?.['amount_in_cents'];
    t.must(amount === cents, {
      expected: `amount_in_cents as a plain JSON integer, ${cents}`,
      got: amount instanceof OtherNumber ? amount.source : show(amount),
      clause: typeof amount === 'number' ? 'PF6' : 'S5',
      cause: 'Amounts beyond 24 or 32 bits are rounded, wrapped, or written as text.',
      at: t.cite(first),
    });
  }
}

function instruction(t: CallerContext, put: Call, at: Reply, id: string | undefined): void {
  const body = parsed(put.text);
  if (
    !t.must(body !== undefined, {
      expected: 'a JSON object',
      got: put.text.slice(0, 200),
      clause: 'B4',
      at,
    }) ||
    body === undefined
  ) {
    return;
  }
  const amount = body['amount_in_cents'];
  const whole = t.must(typeof amount === 'number', {
    expected: `amount_in_cents as a plain JSON integer, ${CENTS}`,
    got: amount instanceof OtherNumber ? amount.source : show(amount),
    clause: 'S5',
    cause: 'The amount is in dollars, is a string, or has another name.',
    at,
  });
  if (whole) {
    t.must(amount === CENTS, {
      expected: `the requested amount, ${CENTS}`,
      got: show(amount),
      clause: 'PF6',
      cause: 'A fee is added, or the amount is converted to cents twice.',
      at,
    });
  }
  const batch = body['platform_batch_id'];
  t.must(typeof batch === 'string' && batch !== '', {
    expected: 'platform_batch_id, a non-empty string',
    got: show(batch),
    clause: 'PF3',
    at,
  });
  const personal = Object.keys(body).find((name) => PERSONAL.test(name));
  t.strict(personal === undefined, {
    expected: 'no personal data: the account identifies the customer',
    got: `the field ${personal ?? ''}`,
    cause: 'The client sends the whole order.',
    at,
  });
  const named = body['platform_payment_id'];
  t.must(named === undefined || named === id, {
    expected: `platform_payment_id as in the path, ${id ?? ''}`,
    got: show(named),
    clause: 'PF2',
    at,
  });
}

/** The credential of a call, as the partner declared it. */
function credential(t: CallerContext, put: Call, at: Reply): void {
  const { authentication } = t.run.caller;
  if (authentication.method === 'oauth') {
    t.must(/^Bearer \S+$/.test(put.headers.authorization ?? ''), {
      expected: 'Authorization: Bearer and the access token',
      got: kindOf(put.headers.authorization),
      clause: 'OA4',
      at,
    });
    return;
  }
  const { header, key } = authentication;
  const given = put.headers[header.toLowerCase()];
  const text = Array.isArray(given) ? given.join(', ') : given;
  t.must(text === key, {
    expected: `${header} with only the key, without a scheme such as Bearer`,
    got:
      text !== undefined && text.endsWith(key)
        ? `${text.slice(0, -key.length)}and the key`
        : kindOf(text),
    clause: 'KY2',
    cause: 'The client library adds Bearer or another scheme to the Authorization header.',
    at,
  });
}

/** The requests at the token endpoint (OA2). */
function tokenRequests(t: CallerContext): void {
  const { authentication } = t.run.caller;
  if (authentication.method !== 'oauth') return;
  const fetches = t.run.raw.filter(({ operation }) => operation === 'access_token');
  // A platform may hold one token for reads and another for writes.
  const fetch = fetches.findLast(({ text }) => asksToWrite(text)) ?? fetches.at(-1);
  t.must(fetch !== undefined, {
    expected: 'a request to the token endpoint',
    got: 'none',
    clause: 'OA2',
  });
  if (fetch === undefined) return;
  const exchange = t.run.partner.exchanges().find(({ number }) => number === fetch.number);
  const at = exchange === undefined ? {} : { at: t.cite(exchange) };
  const type = (fetch.headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase();
  t.must(type === 'application/x-www-form-urlencoded', {
    expected: 'content type application/x-www-form-urlencoded at the token endpoint',
    got: type === undefined || type === '' ? 'no content type' : type,
    clause: 'OA2',
    cause: 'The form is sent as JSON.',
    ...at,
  });
  const form = new URLSearchParams(fetch.text);
  const wanted: [string, string][] = [
    ['grant_type', 'client_credentials'],
    ['client_id', authentication.client_id],
    ['client_secret', authentication.client_secret],
  ];
  for (const [name, value] of wanted) {
    t.must(form.get(name) === value, {
      expected: `the form field ${name}`,
      got: form.has(name) ? 'another value' : 'it is missing',
      clause: 'OA2',
      ...at,
    });
  }
  t.must(asksToWrite(fetch.text), {
    expected: 'the form field scope, including write',
    got: show(form.get('scope') ?? undefined),
    clause: 'OA2',
    ...at,
  });
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
function kindOf(value: string | undefined): string {
  if (value === undefined || value === '') return 'no such header';
  const [word = '', ...rest] = value.split(' ');
  return rest.length === 0 ? 'another value' : `${word} and another value`;
}
