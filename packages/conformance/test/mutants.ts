/**
 * Deliberately wrong peers: for each check at least one that only this check is meant to catch.
 *
 * The kill matrix runs each of them and asserts that its check catches it and that no unrelated must-check
 * fails; a correct peer passes all. Without this, a check could pass
 * for every server, and nobody would notice.
 *
 * A table: one entry per wrong peer.
 */
import { randomUUID } from 'node:crypto';
import { leastBody } from '../src/check/token-context.ts';
import { json, type CallerFault, type ProxyBehaviour } from './wrong-platform.ts';
import { onRecords, type Answer, type Behaviour, type Call } from '../src/sandbox/partner.ts';

/** A wrong partner. */
export interface PartnerMutant {
  readonly name: string;
  /** What is wrong with it, as a verb phrase. */
  readonly wrong: string;
  /** The checks that must catch it. */
  readonly breaks: readonly string[];
  /** Other must-checks that it breaks as well, because the same defect shows there too; `many` where it shows in many. */
  readonly also?: readonly string[] | 'many';
  /** WARN if it breaks only should-rules. */
  readonly verdict: 'FAIL' | 'WARN';
  readonly profile?: 'strict';
  readonly auth?: 'oauth' | 'short-lived-oauth';
  /** What is special about how it is run. */
  readonly how?: 'old-tls' | 'with-a-maximum' | 'the-day-after';
  /** Called when the judge has it restarted (P66). */
  readonly restarted?: () => void;
  /** Created for each run, because some keep state. */
  readonly behaviour: () => Behaviour;
}

/** The wrong partners, in the order of the checks that catch them. */
export const PARTNER_MUTANTS: readonly PartnerMutant[] = [
  {
    name: 'no-authentication',
    wrong: 'accepts requests without a credential',
    breaks: ['P01'],
    verdict: 'FAIL',
    behaviour: () => ({
      authorize: (call, refusal) => (call.headers['x-api-key'] === undefined ? undefined : refusal),
    }),
  },
  {
    name: 'chatty-refusal',
    wrong: 'refuses a request but returns the account in the body',
    breaks: ['P01'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer: (call, answer) =>
        answer.status === 401 && call.headers['x-api-key'] === undefined
          ? { ...answer, body: { code: 'UNAUTHORIZED', message: 'no', balance: {} } }
          : undefined,
    }),
  },
  {
    name: 'any-key',
    wrong: 'accepts any key that is present',
    breaks: ['P02'],
    verdict: 'FAIL',
    behaviour: () => ({
      authorize: (call, refusal) => (call.headers['x-api-key'] === undefined ? refusal : undefined),
    }),
  },
  {
    name: 'any-bearer',
    wrong: 'accepts any bearer token',
    breaks: ['P02'],
    verdict: 'FAIL',
    auth: 'oauth',
    behaviour: () => ({
      authorize: (call, refusal) =>
        refusal?.code === 'UNAUTHORIZED' && /^Bearer \S/.test(call.headers.authorization ?? '')
          ? undefined
          : refusal,
    }),
  },
  {
    name: 'token-without-scope',
    wrong: 'issues an access token without scope in the response',
    breaks: ['P03'],
    verdict: 'FAIL',
    auth: 'oauth',
    behaviour: () => changeToken((token) => ({ ...token, scope: undefined })),
  },
  {
    name: 'life-as-text',
    wrong: 'returns expires_in as a string with a unit',
    breaks: ['P03'],
    verdict: 'FAIL',
    auth: 'oauth',
    behaviour: () => changeToken((token) => ({ ...token, expires_in: '1h' })),
  },
  {
    name: 'any-secret',
    wrong: 'issues access tokens for a wrong secret',
    breaks: ['P04'],
    verdict: 'FAIL',
    auth: 'oauth',
    behaviour: () => ({
      answer: (call, answer) =>
        call.operation === 'access_token' && answer.status === 401
          ? {
              status: 200,
              body: { access_token: 'granted', token_type: 'Bearer', expires_in: 60, scope: '' },
            }
          : undefined,
    }),
  },
  {
    name: 'any-grant',
    wrong: 'issues access tokens for any grant_type',
    breaks: ['P67'],
    verdict: 'WARN',
    auth: 'oauth',
    behaviour: () => tokenDespite(/unsupported_grant_type|grant_type is missing/, 'read write'),
  },
  {
    name: 'scope-as-requested',
    wrong: 'returns the requested scope, even one that does not exist',
    breaks: ['P67'],
    verdict: 'WARN',
    auth: 'oauth',
    behaviour: () => tokenDespite(/invalid_scope/, 'no-such-scope-duebridge'),
  },
  {
    name: 'own-oauth-errors',
    wrong: 'answers at its token endpoint with error codes of its own',
    breaks: ['P67'],
    verdict: 'WARN',
    profile: 'strict',
    auth: 'oauth',
    behaviour: () => ({
      answer: (call, answer) =>
        call.operation === 'access_token' && answer.status >= 400
          ? { ...answer, body: { code: 'INVALID_REQUEST', message: 'The request is not valid' } }
          : undefined,
    }),
  },
  {
    name: 'read-may-pay',
    wrong: 'accepts a payment with a token of scope read',
    breaks: ['P05'],
    verdict: 'FAIL',
    auth: 'oauth',
    behaviour: () => ignoreScope('put_account_payment'),
  },
  {
    name: 'write-may-read',
    wrong: 'accepts a read with a token of scope write',
    breaks: ['P06'],
    verdict: 'WARN',
    auth: 'oauth',
    behaviour: () => ignoreScope('get_account'),
  },
  {
    name: 'tokens-for-ever',
    wrong: 'accepts access tokens long after they expire',
    breaks: ['P07'],
    also: ['P05'],
    verdict: 'WARN',
    auth: 'short-lived-oauth',
    behaviour: () => {
      const granted = new Set<string>();
      return {
        answer(call, answer) {
          const body = answer.body;
          if (call.operation === 'access_token' && isFields(body)) {
            granted.add(`Bearer ${String(body['access_token'])}`);
          }
          return undefined;
        },
        authorize: (call, refusal) =>
          refusal?.code === 'UNAUTHORIZED' && granted.has(call.headers.authorization ?? '')
            ? undefined
            : refusal,
      };
    },
  },
  {
    name: 'header-with-case',
    wrong: 'compares the name of its key header case-sensitively',
    breaks: ['P08'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer: (call, answer) =>
        call.headers['x-api-key'] === undefined
          ? undefined
          : (wire) => {
              const exact = wire.response.req.rawHeaders.includes('x-api-key');
              wire.send(exact ? answer : refused());
            },
    }),
  },
  {
    name: 'any-header',
    wrong: 'accepts the key in any header',
    breaks: ['P08'],
    verdict: 'WARN',
    behaviour: () => ({
      authorize: (call, refusal) =>
        call.headers.authorization === undefined ? refusal : undefined,
    }),
  },
  {
    name: 'old-tls',
    wrong: 'accepts TLS 1.1',
    breaks: ['P09'],
    verdict: 'WARN',
    profile: 'strict',
    how: 'old-tls',
    behaviour: () => ({}),
  },
  {
    name: 'account-as-text',
    wrong: 'returns accounts as text/plain',
    breaks: ['P10'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer: (call, answer) =>
        call.operation === 'get_account' && answer.status === 200
          ? {
              status: 200,
              headers: { 'Content-Type': 'text/plain' },
              body: JSON.stringify(answer.body),
            }
          : undefined,
    }),
  },
  {
    name: 'other-account-id',
    wrong: 'returns its internal id as account_id',
    breaks: ['P10'],
    verdict: 'WARN',
    behaviour: () => changeBody('get_account', (body) => ({ ...body, account_id: '000017' })),
  },
  {
    name: 'empty-account',
    wrong: 'answers an unknown account with an empty 200',
    breaks: ['P11'],
    verdict: 'WARN',
    behaviour: () => ({
      answer: (call, answer) =>
        call.operation === 'get_account' && answer.status === 404
          ? { status: 200, body: {} }
          : undefined,
    }),
  },
  {
    name: 'slash-decoded',
    wrong: 'decodes an encoded slash and resolves the path',
    breaks: ['P12'],
    verdict: 'WARN',
    behaviour: () => ({
      receive: (call) =>
        call.operation === 'get_account' && (call.params['account_id'] ?? '').includes('/../')
          ? { status: 200, body: { account_id: 'active', status: 'active' } }
          : undefined,
    }),
  },
  {
    name: 'long-id-breaks',
    wrong: 'answers a long account id with 500',
    breaks: ['P12'],
    verdict: 'WARN',
    behaviour: () => ({
      receive: (call) => ((call.params['account_id'] ?? '').length > 100 ? inside() : undefined),
    }),
  },
  {
    name: 'balance-as-text',
    wrong: 'returns the amount due as a string',
    breaks: ['P13'],
    verdict: 'FAIL',
    behaviour: () =>
      changeBody('get_balance', (body) => ({
        ...body,
        amount_due_in_cents: String(body['amount_due_in_cents']),
      })),
  },
  {
    name: 'balance-in-dollars',
    wrong: 'returns the amount due as a fraction',
    breaks: ['P13'],
    verdict: 'FAIL',
    behaviour: () =>
      changeBody('get_balance', (body) => ({
        ...body,
        amount_due_in_cents: Number(body['amount_due_in_cents']) / 1_000,
      })),
  },
  {
    name: 'due-on-no-day',
    wrong: 'returns a due date that does not exist',
    breaks: ['P13'],
    verdict: 'WARN',
    behaviour: () => changeBody('get_balance', (body) => ({ ...body, due_date: '2026-02-30' })),
  },
  {
    name: 'reading-costs',
    wrong: 'adds a cent to the amount due at each read',
    breaks: ['P14'],
    verdict: 'FAIL',
    behaviour: () => {
      let reads = 0;
      return changeBody('get_balance', (body) => {
        reads += 1;
        return { ...body, amount_due_in_cents: Number(body['amount_due_in_cents']) + reads };
      });
    },
  },
  {
    name: 'missing-is-broken',
    wrong: 'answers a payment that does not exist with 500',
    breaks: ['P15'],
    verdict: 'WARN',
    behaviour: () => ({
      answer: (call, answer) =>
        call.operation === 'get_payment' && answer.status === 404 ? inside() : undefined,
    }),
  },
  {
    name: 'created',
    wrong: 'answers a new payment with 201',
    breaks: ['P20'],
    verdict: 'FAIL',
    behaviour: () => {
      const known = new Set<string>();
      return {
        answer(call, answer) {
          if (call.operation !== 'put_account_payment' || answer.status !== 200) return undefined;
          if (known.has(call.path)) return undefined;
          known.add(call.path);
          return { ...answer, status: 201 };
        },
      };
    },
  },
  {
    name: 'no-payment-id',
    wrong: 'returns no payment_id',
    breaks: ['P20'],
    also: ['P26', 'P32', 'P33'],
    verdict: 'FAIL',
    behaviour: () => onRecords((record) => ({ ...record, payment_id: undefined })),
  },
  {
    name: 'batch-dropped',
    wrong: 'does not echo the batch id of a new payment',
    breaks: ['P20'],
    also: ['P33', 'P55'],
    verdict: 'FAIL',
    behaviour: () =>
      onRecords((record, call) =>
        call.method === 'PUT' ? { ...record, platform_batch_id: null } : record,
      ),
  },
  {
    name: 'own-word',
    wrong: 'returns the status pending for a new payment',
    breaks: ['P20'],
    verdict: 'FAIL',
    behaviour: () =>
      onRecords((record, call) =>
        call.method === 'PUT' && record['status'] === 'processing'
          ? { ...record, status: 'pending' }
          : record,
      ),
  },
  {
    name: 'born-ended',
    wrong: 'never returns the status processing',
    breaks: ['P21'],
    verdict: 'WARN',
    behaviour: () => ({
      born(payment, _call, partner) {
        if (payment.ending.status !== 'succeeded') return;
        payment.status = 'succeeded';
        payment.posted_at = payment.initiated_at;
        partner.post(payment);
      },
    }),
  },
  {
    name: 'second-payment-born-ended',
    wrong: 'returns succeeded at once for all but the first payment of an account',
    breaks: ['P21'],
    verdict: 'WARN',
    behaviour: () => ({
      born(payment, _call, partner) {
        const { account_id, ending } = payment;
        const known = partner.payments().some((other) => other.account_id === account_id);
        if (!known || ending.status !== 'succeeded') return;
        payment.status = 'succeeded';
        payment.posted_at = payment.initiated_at;
        partner.post(payment);
      },
    }),
  },
  {
    name: 'local-time',
    wrong: 'returns initiated_at without a time zone',
    breaks: ['P22'],
    verdict: 'FAIL',
    behaviour: () =>
      onRecords((record) => ({
        ...record,
        initiated_at: text(record['initiated_at']).replace('Z', ''),
      })),
  },
  {
    name: 'clock-ahead',
    wrong: 'has a clock that is an hour ahead',
    breaks: ['P22'],
    verdict: 'WARN',
    behaviour: () =>
      onRecords((record) => ({
        ...record,
        initiated_at: shift(record['initiated_at'], 3_600_000),
        posted_at: shift(record['posted_at'], 3_600_000),
      })),
  },
  {
    name: 'posted-early',
    wrong: 'returns posted_at while the payment is processing',
    breaks: ['P23'],
    verdict: 'FAIL',
    behaviour: () =>
      onRecords((record) =>
        record['status'] === 'processing'
          ? { ...record, posted_at: record['initiated_at'] }
          : record,
      ),
  },
  {
    name: '32-bit-cents',
    wrong: 'stores amounts in 32 bits',
    breaks: ['P24'],
    verdict: 'FAIL',
    behaviour: () => ({
      born(payment) {
        payment.amount_in_cents = Math.min(payment.amount_in_cents, 2 ** 31 - 1);
      },
    }),
  },
  {
    name: 'conflict-on-repeat',
    wrong: 'answers a known id with 409',
    breaks: ['P25'],
    also: ['P26', 'P31', 'P34'],
    verdict: 'FAIL',
    behaviour: () => {
      const known = new Set<string>();
      return {
        answer(call, answer) {
          if (call.operation !== 'put_account_payment' || answer.status !== 200) return undefined;
          if (known.has(call.path)) {
            return { status: 409, body: { code: 'CONFLICT', message: 'It exists already' } };
          }
          known.add(call.path);
          return undefined;
        },
      };
    },
  },
  {
    name: 'accepted-anew',
    wrong: 'resets initiated_at on each repeat',
    breaks: ['P25'],
    also: ['P31', 'P51', 'P54'],
    verdict: 'FAIL',
    behaviour: () => ({
      repeat(payment, _call, partner) {
        payment.initiated_at = new Date(partner.now() + 1).toISOString();
      },
    }),
  },
  {
    name: 'forgets-after-ten',
    wrong: 'forgets an id after ten requests',
    breaks: ['P26'],
    also: ['P27'],
    verdict: 'FAIL',
    behaviour: () => {
      const seen = new Map<string, number>();
      return {
        key(call) {
          const id = call.params['platform_payment_id'] ?? '';
          const times = (seen.get(id) ?? 0) + 1;
          seen.set(id, times);
          return times > 10 ? `${id}#${times}` : id;
        },
      };
    },
  },
  {
    name: 'books-each-repeat',
    wrong: 'returns one payment but posts it again on every tenth repeat',
    breaks: ['P62'],
    verdict: 'FAIL',
    behaviour: () => {
      const repeats = new Map<string, number>();
      return {
        repeat(payment, _call, partner) {
          const times = (repeats.get(payment.key) ?? 0) + 1;
          repeats.set(payment.key, times);
          if (times % 10 === 0) partner.post(payment);
        },
      };
    },
  },
  {
    name: 'look-then-insert',
    wrong: 'looks up the id and then inserts, with a race between the two',
    breaks: ['P27'],
    also: ['P30', 'P34'],
    verdict: 'FAIL',
    behaviour: () => ({ beforeStore: () => pause(15) }),
  },
  {
    name: 'upsert-amount',
    wrong: 'overwrites the amount with that of the repeat',
    breaks: ['P28'],
    verdict: 'FAIL',
    behaviour: () => ({
      repeat(payment, call) {
        const amount = isFields(call.body) ? call.body['amount_in_cents'] : undefined;
        if (typeof amount === 'number') payment.amount_in_cents = amount;
      },
    }),
  },
  {
    name: 'conflict-on-other-amount',
    wrong: 'answers a repeat with another amount with 409',
    breaks: ['P28'],
    verdict: 'WARN',
    behaviour: () => ({
      answer(call, answer, partner) {
        const stored = partner.find(call.params['platform_payment_id'] ?? '');
        const amount = isFields(call.body) ? call.body['amount_in_cents'] : undefined;
        return call.method === 'PUT' &&
          stored !== undefined &&
          amount !== stored.amount_in_cents &&
          answer.status === 200
          ? { status: 409, body: { code: 'CONFLICT', message: 'Another amount' } }
          : undefined;
      },
    }),
  },
  {
    name: 'upsert-batch',
    wrong: 'overwrites the batch id with that of the repeat',
    breaks: ['P29'],
    verdict: 'WARN',
    behaviour: () => ({
      repeat(payment, call) {
        const batch = isFields(call.body) ? call.body['platform_batch_id'] : undefined;
        if (typeof batch === 'string') payment.platform_batch_id = batch;
      },
    }),
  },
  {
    name: 'unique-per-account',
    wrong: 'keeps ids unique per account only',
    breaks: ['P30'],
    verdict: 'FAIL',
    behaviour: () => ({
      key: (call) =>
        `${call.params['account_id'] ?? ''}/${call.params['platform_payment_id'] ?? ''}`,
    }),
  },
  {
    name: 'posts-again-after-the-end',
    wrong: 'processes a terminal payment again when its PUT is repeated',
    breaks: ['P31'],
    also: ['P54'],
    verdict: 'FAIL',
    behaviour: () => ({
      repeat(payment, _call, partner) {
        if (payment.status === 'succeeded') {
          payment.posted_at = new Date(partner.now() + 1).toISOString();
        }
      },
    }),
  },
  {
    name: 'same-amount-same-payment',
    wrong: 'treats a payment with the same account and amount as a repeat',
    breaks: ['P32'],
    verdict: 'FAIL',
    behaviour: () => ({
      key: (call, instruction, partner) =>
        partner
          .payments()
          .find(
            (payment) =>
              payment.account_id === call.params['account_id'] &&
              payment.amount_in_cents === instruction.amount_in_cents,
          )?.key ??
        call.params['platform_payment_id'] ??
        '',
    }),
  },
  {
    name: 'one-payment-per-batch',
    wrong: 'uses the batch id as the idempotency key',
    breaks: ['P33'],
    verdict: 'FAIL',
    behaviour: () => ({
      key: (call, instruction, partner) =>
        partner
          .payments()
          .find((payment) => payment.platform_batch_id === instruction.platform_batch_id)?.key ??
        call.params['platform_payment_id'] ??
        '',
    }),
  },
  {
    name: 'remembers-only-what-it-answered',
    wrong: 'stores an id only after the response was delivered',
    breaks: ['P34'],
    also: ['P27', 'P30'],
    verdict: 'FAIL',
    behaviour: () => {
      const answered = new Map<string, string>();
      return {
        key(call) {
          const id = call.params['platform_payment_id'] ?? '';
          return answered.get(id) ?? `${id}#${call.number}`;
        },
        answer(call, answer, partner) {
          const id = call.params['platform_payment_id'] ?? '';
          if (call.method !== 'PUT' || answer.status !== 200 || answered.has(id)) return undefined;
          return async (wire) => {
            // Much longer than the judge waits before it closes the connection, even on a slow machine.
            await pause(250);
            if (wire.released.aborted) return;
            answered.set(id, partner.payments().findLast(ofId(id))?.key ?? id);
            wire.send(answer);
          };
        },
      };
    },
  },
  {
    name: 'forgets-after-a-day',
    wrong: 'forgets ids after a day',
    breaks: ['P35'],
    verdict: 'FAIL',
    how: 'the-day-after',
    behaviour: () => ({
      key(call, _instruction, partner) {
        const id = call.params['platform_payment_id'] ?? '';
        const known = partner.find(id);
        return known !== undefined && partner.now() - known.accepted_ms > DAY_MS ? `${id}#2` : id;
      },
    }),
  },
  ...(
    [
      ['amount-as-text', 'takes an amount written as a text', /"amount_in_cents":"/, 'FAIL'],
      ['amount-rounded', 'rounds an amount with a fraction', /"amount_in_cents":10\.5/, 'FAIL'],
      ['amount-missing', 'takes a payment without an amount', /^(?!.*"amount_in_cents")/, 'FAIL'],
      ['amount-zero', 'takes a payment of nothing', /"amount_in_cents":0,/, 'WARN'],
    ] as const
  ).map(([name, wrong, pattern, verdict]): PartnerMutant => ({
    name,
    wrong,
    breaks: ['P36'],
    verdict,
    behaviour: () => ({
      validate: (call, problems) => (pattern.test(call.text) ? [] : problems),
    }),
  })),
  {
    name: 'body-id-ignored',
    wrong: 'does not compare the id in the body with the one in the path',
    breaks: ['P37'],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => ({
      validate: (_call, problems) =>
        problems.filter(({ path }) => path !== 'body.platform_payment_id'),
    }),
  },
  {
    name: 'ids-mixed-up',
    wrong: 'returns the account id as the biller_id of a payment',
    breaks: ['P20'],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => onRecords((record) => ({ ...record, biller_id: record['account_id'] ?? '' })),
  },
  {
    name: 'batch-not-needed',
    wrong: 'accepts a payment without a batch id',
    breaks: ['P42'],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => ({
      validate: (_call, problems) =>
        problems.filter(({ path }) => path !== 'body.platform_batch_id'),
    }),
  },
  {
    name: 'errors-without-code',
    wrong: 'returns errors without a code',
    breaks: ['P59'],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => ({
      answer: (_call, answer) =>
        answer.status < 400 || typeof answer.body !== 'object'
          ? undefined
          : { ...answer, body: { error: 'Something is wrong' } },
    }),
  },
  {
    name: 'breaks-on-bad-encoding',
    wrong: 'answers a path with an invalid percent-encoding with 500',
    breaks: ['P12'],
    verdict: 'WARN',
    behaviour: () => ({
      receive: (call) =>
        call.path.includes('%zz')
          ? {
              status: 500,
              body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' },
            }
          : undefined,
    }),
  },
  {
    name: 'reads-fields-of-a-list',
    wrong: 'answers a body that is an array with 500',
    breaks: ['P39'],
    verdict: 'WARN',
    behaviour: () => ({
      receive: (call) =>
        call.method === 'PUT' && call.text === '[]'
          ? {
              status: 500,
              body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' },
            }
          : undefined,
    }),
  },
  {
    name: 'closed-schema',
    wrong: 'refuses unknown fields',
    breaks: ['P38'],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => ({
      validate: (call, problems) =>
        call.text.includes('a_field_of_tomorrow')
          ? [{ path: 'body', problem: 'holds a field that is not known' }]
          : problems,
    }),
  },
  {
    name: 'parser-breaks',
    wrong: 'answers a body that is not JSON with 500',
    breaks: ['P39'],
    verdict: 'WARN',
    behaviour: () => ({
      answer: (call, answer) =>
        call.method === 'PUT' && answer.status === 400 && !call.text.endsWith('}')
          ? inside()
          : undefined,
    }),
  },
  {
    name: 'pays-nobody',
    wrong: 'posts payments to accounts that do not exist',
    breaks: ['P40'],
    verdict: 'FAIL',
    behaviour: () => ({
      born(payment, _call, partner) {
        if (partner.account(payment.biller_id, payment.account_id) === undefined) {
          payment.ending = { status: 'succeeded', after_ms: payment.ending.after_ms };
        }
      },
    }),
  },
  {
    name: 'pays-the-inactive',
    wrong: 'posts payments to inactive accounts',
    breaks: ['P41'],
    verdict: 'FAIL',
    behaviour: () => ({
      born(payment, _call, partner) {
        if (partner.account(payment.biller_id, payment.account_id)?.status === 'inactive') {
          payment.ending = { status: 'succeeded', after_ms: payment.ending.after_ms };
        }
      },
    }),
  },
  {
    name: 'above-the-maximum',
    wrong: 'posts payments above its maximum',
    breaks: ['P41'],
    verdict: 'FAIL',
    how: 'with-a-maximum',
    behaviour: () => ({
      born(payment) {
        if (payment.amount_in_cents > 50_000) {
          payment.ending = { status: 'succeeded', after_ms: payment.ending.after_ms };
        }
      },
    }),
  },
  {
    name: 'never-ends',
    wrong: 'leaves a payment processing forever',
    breaks: ['P50'],
    verdict: 'FAIL',
    behaviour: () => ({
      born(payment) {
        if (payment.amount_in_cents === SUBJECT_CENTS) {
          payment.ending = { ...payment.ending, after_ms: undefined };
        }
      },
    }),
  },
  {
    name: 'own-word-for-the-end',
    wrong: 'returns the status completed instead of succeeded',
    breaks: ['P50'],
    verdict: 'FAIL',
    behaviour: () =>
      onRecords((record) =>
        record['status'] === 'succeeded' && record['amount_in_cents'] === SUBJECT_CENTS
          ? { ...record, status: 'completed' }
          : record,
      ),
  },
  {
    name: 'flaps',
    wrong: 'returns a terminal payment as processing in every other read',
    breaks: ['P50'],
    also: ['P31', 'P54'],
    verdict: 'FAIL',
    behaviour: () => {
      let reads = 0;
      return onRecords((record, call) => {
        if (call.method !== 'GET' || record['status'] !== 'succeeded') return record;
        if (record['amount_in_cents'] !== SUBJECT_CENTS) return record;
        reads += 1;
        return reads === 1 ? record : { ...record, status: 'processing', posted_at: null };
      });
    },
  },
  {
    name: 'posted-on-a-day',
    wrong: 'returns posted_at as a date without a time',
    breaks: ['P51'],
    verdict: 'FAIL',
    behaviour: () =>
      onRecords((record) =>
        record['posted_at'] === null
          ? record
          : { ...record, posted_at: text(record['posted_at']).slice(0, 10) },
      ),
  },
  {
    name: 'posted-before-accepted',
    wrong: 'returns a posted_at before initiated_at',
    breaks: ['P51'],
    verdict: 'FAIL',
    behaviour: () =>
      onRecords((record) => ({ ...record, posted_at: shift(record['posted_at'], -3_600_000) })),
  },
  ...(
    [
      ['reason-missing', 'gives no reason for a failed payment', undefined],
      ['reason-as-code', 'gives a code for a reason', 'E_ACCT_0017'],
      [
        'reason-as-stack',
        'gives a stack trace for a reason',
        'NullPointerException: account\n    at History.post(History.java:42)',
      ],
    ] as const
  ).map(([name, wrong, failure_reason]): PartnerMutant => ({
    name,
    wrong,
    breaks: ['P52'],
    verdict: 'FAIL',
    behaviour: () =>
      onRecords((record) =>
        record['status'] === 'failed' ? { ...record, failure_reason } : record,
      ),
  })),
  {
    name: 'two-ls',
    wrong: 'spells canceled with two l',
    breaks: ['P53'],
    verdict: 'WARN',
    behaviour: () =>
      onRecords((record) =>
        record['status'] === 'canceled' ? { ...record, status: 'cancelled' } : record,
      ),
  },
  {
    name: 'rewritten-later',
    wrong: 'changes posted_at a few reads after the end',
    breaks: ['P54'],
    verdict: 'FAIL',
    behaviour: () => {
      let reads = 0;
      return onRecords((record, call) => {
        if (call.method !== 'GET' || record['status'] !== 'succeeded') return record;
        if (record['amount_in_cents'] !== SUBJECT_CENTS) return record;
        reads += 1;
        return reads < 8 ? record : { ...record, posted_at: shift(record['posted_at'], 1_000) };
      });
    },
  },
  {
    name: 'archived-next-day',
    wrong: 'no longer finds payments of the previous day',
    breaks: ['P54'],
    verdict: 'FAIL',
    how: 'the-day-after',
    behaviour: () => ({
      answer(call, answer, partner) {
        const known = partner.find(call.params['platform_payment_id'] ?? '');
        return call.method === 'GET' &&
          answer.status === 200 &&
          known !== undefined &&
          partner.now() - known.accepted_ms > DAY_MS
          ? { status: 404, body: { code: 'PAYMENT_NOT_FOUND', message: 'Payment not found' } }
          : undefined;
      },
    }),
  },
  {
    name: 'two-books',
    wrong: 'returns another payment_id from Get Payment than from Get Account Payment',
    breaks: ['P55'],
    verdict: 'FAIL',
    behaviour: () =>
      onRecords((record, call) =>
        call.operation === 'get_payment'
          ? { ...record, payment_id: `${text(record['payment_id'])}-2` }
          : record,
      ),
  },
  {
    name: 'lagging-replica',
    wrong: 'does not find a payment immediately after accepting it',
    breaks: ['P56'],
    verdict: 'FAIL',
    behaviour: () => {
      let reads = 0;
      return {
        answer(call, answer, partner) {
          const known = partner.find(call.params['platform_payment_id'] ?? '');
          if (call.operation !== 'get_account_payment' || answer.status !== 200) return undefined;
          if (known?.amount_in_cents !== SUBJECT_CENTS) return undefined;
          reads += 1;
          return reads > 1
            ? undefined
            : { status: 404, body: { code: 'PAYMENT_NOT_FOUND', message: 'Payment not found' } };
        },
      };
    },
  },
  {
    name: 'late-index',
    wrong: 'does not find a payment by Get Payment for the first half second',
    breaks: ['P56'],
    also: ['P55'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer(call, answer, partner) {
        if (call.operation !== 'get_payment' || answer.status !== 200) return undefined;
        const known = partner.find(call.params['platform_payment_id'] ?? '');
        const age = partner.now() - Date.parse(known?.initiated_at ?? '');
        return age > 500
          ? undefined
          : { status: 404, body: { code: 'PAYMENT_NOT_FOUND', message: 'Payment not found' } };
      },
    }),
  },
  {
    name: 'overrun',
    wrong: 'answers 500 after thirty polls of a payment',
    breaks: ['P57'],
    verdict: 'WARN',
    behaviour: () => {
      const polls = new Map<string, number>();
      return {
        receive(call) {
          if (call.operation !== 'get_account_payment') return undefined;
          const times = (polls.get(call.path) ?? 0) + 1;
          polls.set(call.path, times);
          return times > 30 ? inside() : undefined;
        },
      };
    },
  },
  {
    name: 'told-late',
    wrong: 'shows a terminal status two minutes after posting',
    breaks: ['P58'],
    verdict: 'WARN',
    behaviour: () =>
      onRecords((record) => ({
        ...record,
        posted_at: shift(record['posted_at'], -120_000),
      })),
  },
  {
    name: 'framework-error-page',
    wrong: 'returns the error page of its framework',
    breaks: ['P59'],
    verdict: 'WARN',
    behaviour: () => ({
      answer: (_call, answer) =>
        answer.status === 404
          ? {
              status: 404,
              headers: { 'Content-Type': 'text/html' },
              body: '<h1>Not Found</h1>',
            }
          : undefined,
    }),
  },
  {
    name: 'debug-mode',
    wrong: 'returns a stack trace in its errors',
    breaks: ['P59'],
    verdict: 'WARN',
    behaviour: () => ({
      answer: (_call, answer) =>
        answer.status === 404
          ? {
              status: 404,
              body: {
                code: 'NOT_FOUND',
                message: 'x',
                stack: 'Error: x\n    at get (/srv/a.js:4:2)',
              },
            }
          : undefined,
    }),
  },
  {
    name: 'echoes-the-key',
    wrong: 'repeats the key in its errors',
    breaks: ['P59'],
    verdict: 'WARN',
    behaviour: () => ({
      answer: (call, answer) =>
        answer.status === 404
          ? {
              status: 404,
              body: { code: 'NOT_FOUND', message: `not for ${String(call.headers['x-api-key'])}` },
            }
          : undefined,
    }),
  },
];

/** A wrong platform, at its token endpoint. */
export interface TokenMutant {
  readonly name: string;
  readonly wrong: string;
  readonly breaks: readonly string[];
  readonly also?: readonly string[];
  readonly verdict: 'FAIL' | 'WARN';
  readonly kind?: 'aggregator';
  readonly profile?: 'strict';
  /** The limits of the platform that the target declares. */
  readonly rate?: { readonly requests_per_second: number; readonly burst: number };
  readonly behaviour: () => ProxyBehaviour;
}

/** The key of the client with which the tests request tokens. */
const CLIENT_KEY = 'an-api-key-of-the-judge';

/** The wrong token endpoints, in the order of the checks that catch them. */
export const TOKEN_MUTANTS: readonly TokenMutant[] = [
  {
    name: 'token-and-more',
    wrong: 'returns the expiry in addition to the token',
    breaks: ['T01'],
    verdict: 'FAIL',
    behaviour: () => changeGiven((given) => ({ ...given, expires_in: 1_800 })),
  },
  {
    name: 'expiry-unsaid',
    wrong: 'omits the header with the expiry of a token',
    breaks: ['T01'],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => ({ answer: (answer) => void delete answer.headers['token-expires-at'] }),
  },
  {
    name: 'refuses-methods-in-silence',
    wrong: 'omits the Allow header from a 405',
    breaks: ['T11'],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => ({ answer: (answer) => void delete answer.headers['allow'] }),
  },
  {
    name: 'balance-required',
    wrong: 'refuses a customer without a balance',
    breaks: ['T02'],
    also: ['T19'],
    verdict: 'FAIL',
    behaviour: () => ({
      request: (asked) =>
        asked.path.includes('token') && asked.body.length > 2 && !asked.body.includes('"balance"')
          ? json(400, { code: 'INVALID_REQUEST', message: 'balance is required' })
          : undefined,
    }),
  },
  {
    name: 'fills-the-name',
    wrong: 'accepts a customer without a last name',
    breaks: ['T03'],
    verdict: 'FAIL',
    behaviour: () => changeAsked((body) => ({ last_name: 'Unknown', ...body })),
  },
  {
    name: 'fills-the-zip',
    wrong: 'accepts an address without a zip',
    breaks: ['T03'],
    verdict: 'FAIL',
    behaviour: () =>
      changeAsked((body) =>
        isFields(body['address'])
          ? { ...body, address: { zip: '00000', ...body['address'] } }
          : body,
      ),
  },
  {
    name: 'error-without-code',
    wrong: 'refuses with plain text instead of code and message',
    breaks: ['T03'],
    also: ['T21'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer(answer) {
        if (answer.status === 400) answer.body = '"bad request"';
      },
    }),
  },
  {
    name: 'key-not-needed',
    wrong: 'accepts a client id without a key',
    breaks: ['T04'],
    verdict: 'FAIL',
    behaviour: () => ({
      request(asked) {
        asked.headers['x-api-key'] ??= 'an-api-key-of-the-judge';
        return undefined;
      },
    }),
  },
  {
    name: 'one-refusal-for-all',
    wrong: 'answers an unknown client id with 401',
    breaks: ['T05'],
    verdict: 'FAIL',
    behaviour: () => ({
      request: (asked) =>
        asked.headers['x-client-id'] === 'never-issued-duebridge'
          ? json(401, { code: 'UNAUTHORIZED', message: 'Who are you?' })
          : undefined,
    }),
  },
  {
    name: 'any-key-of-a-client',
    wrong: 'accepts any key of a known client',
    breaks: ['T06'],
    verdict: 'FAIL',
    behaviour: () => ({
      request(asked) {
        if (asked.headers['x-api-key'] !== undefined) {
          asked.headers['x-api-key'] = 'an-api-key-of-the-judge';
        }
        return undefined;
      },
    }),
  },
  {
    name: 'account-not-asked-for',
    wrong: 'issues a token for an unknown account',
    breaks: ['T07'],
    also: ['T18'],
    verdict: 'FAIL',
    behaviour: () =>
      changeAsked((body) =>
        isFields(body['external_identifiers'])
          ? {
              ...body,
              external_identifiers: {
                ...body['external_identifiers'],
                ...('account_id' in body['external_identifiers'] ? { account_id: 'A-1' } : {}),
              },
            }
          : body,
      ),
  },
  {
    name: 'biller-of-all',
    wrong: 'requires a biller_id from a biller',
    breaks: ['T08'],
    verdict: 'FAIL',
    behaviour: () => ({
      request: (asked) =>
        asked.body.includes('"account_id"') && !asked.body.includes('"biller_id"')
          ? json(400, { code: 'INVALID_REQUEST', message: 'biller_id is required' })
          : undefined,
    }),
  },
  {
    name: 'aggregator-without-biller',
    wrong: 'accepts an account of an aggregator without a biller_id',
    breaks: ['T08'],
    verdict: 'FAIL',
    kind: 'aggregator',
    behaviour: () =>
      changeAsked((body) =>
        isFields(body['external_identifiers'])
          ? {
              ...body,
              external_identifiers: { biller_id: 'judge', ...body['external_identifiers'] },
            }
          : body,
      ),
  },
  {
    name: 'identifiers-without-account',
    wrong: 'accepts external_identifiers without an account_id',
    breaks: ['T09'],
    verdict: 'FAIL',
    behaviour: () =>
      changeAsked((body) =>
        isFields(body['external_identifiers'])
          ? {
              ...body,
              external_identifiers: { account_id: 'A-1', ...body['external_identifiers'] },
            }
          : body,
      ),
  },
  ...(
    [
      ['any-state', 'takes any word for a state', '"state":"Texas"', '"state":"TX"'],
      ['cents-as-text', 'takes cents as a text', ':"1250"', ':1250'],
      ['cents-rounded', 'rounds cents', ':12.5', ':12'],
      ['month-thirteen', 'takes a date that does not exist', '2026-13-01', '2026-12-01'],
    ] as const
  ).map(([name, wrong, from, to]): TokenMutant => ({
    name,
    wrong,
    breaks: ['T10'],
    verdict: 'FAIL',
    behaviour: () => ({
      request(asked) {
        asked.body = asked.body.replace(from, to);
        return undefined;
      },
    }),
  })),
  {
    name: 'any-content-type',
    wrong: 'parses any content type as JSON',
    breaks: ['T11'],
    verdict: 'WARN',
    behaviour: () => ({
      request(asked) {
        if (asked.method === 'POST') asked.headers['content-type'] = 'application/json';
        return undefined;
      },
    }),
  },
  {
    name: 'inside-shown',
    wrong: 'returns the details of an internal error',
    breaks: ['T12'],
    also: ['T20'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer(answer) {
        if (answer.status === 500) {
          answer.body = JSON.stringify({
            code: 'INTERNAL_ERROR',
            message: 'An unexpected error occurred',
            cause: 'connect ECONNREFUSED 10.0.0.7:5432',
          });
        }
      },
    }),
  },
  {
    name: 'tokens-counted',
    wrong: 'uses a counter as token',
    breaks: ['T13'],
    also: ['T15'],
    verdict: 'WARN',
    behaviour: () => {
      let count = 0;
      return changeGiven(() => {
        count += 1;
        return { token: `token-of-the-platform-${String(count).padStart(12, '0')}` };
      });
    },
  },
  {
    name: 'customer-in-token',
    wrong: 'encodes the customer in the token',
    breaks: ['T13'],
    also: ['T15'],
    verdict: 'WARN',
    behaviour: () =>
      changeGiven(({ token }) => ({
        token: `${Buffer.from('{"email":"ada@example.com"}').toString('base64url')}.${text(token)}`,
      })),
  },
  {
    name: 'large-body-breaks',
    wrong: 'answers a large body with 500',
    breaks: ['T14'],
    also: ['T20'],
    verdict: 'WARN',
    behaviour: () => ({
      answer(answer) {
        if (answer.status === 413) answer.status = 500;
      },
    }),
  },
  {
    name: 'burst-breaks',
    wrong: 'answers 503 beyond its rate limit',
    breaks: ['T14'],
    also: ['T20'],
    verdict: 'WARN',
    behaviour: () => {
      let since = Number.POSITIVE_INFINITY;
      return {
        // Counted from the large body, not timed, because on a slow machine no burst reaches a limit. Requests after the burst must
        // get correct responses again.
        answer(answer, asked) {
          if (asked.body.length > 100_000) since = 0;
          else since += 1;
          if (since > 20 && since <= 40) answer.status = 503;
        },
      };
    },
  },
  {
    name: 'no-limit',
    wrong: 'has no rate limit',
    breaks: ['T14'],
    verdict: 'WARN',
    profile: 'strict',
    // So low that even the slowest machine exceeds it.
    rate: { requests_per_second: 1, burst: 20 },
    behaviour: () => ({
      request: (asked) =>
        asked.body === JSON.stringify(leastBody()) &&
        asked.headers['x-api-key'] === 'an-api-key-of-the-judge' &&
        asked.headers['content-type'] === 'application/json'
          ? json(200, { token: `dbt_${randomUUID()}${randomUUID()}` })
          : undefined,
    }),
  },
  {
    name: 'wrong-token-breaks',
    wrong: 'answers a made-up token with 500',
    breaks: ['T15'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer(answer, asked) {
        if (asked.path.includes('session') && answer.status === 401) answer.status = 500;
      },
    }),
  },
  {
    name: 'flow-does-not-start',
    wrong: 'does not accept the tokens that it issued',
    breaks: ['T15'],
    verdict: 'FAIL',
    behaviour: () => ({
      request: (asked) =>
        asked.path.includes('session')
          ? json(401, { code: 'TOKEN_INVALID', message: 'The token is not valid' })
          : undefined,
    }),
  },
  {
    name: 'open-to-all-sites',
    wrong: 'lets any web page request tokens',
    breaks: ['T16'],
    verdict: 'WARN',
    behaviour: () => ({
      answer(answer) {
        answer.headers['access-control-allow-origin'] = '*';
      },
    }),
  },
  {
    name: 'one-token-for-all',
    wrong: 'issues the same token to everybody',
    breaks: ['T17'],
    also: ['T15'],
    verdict: 'FAIL',
    behaviour: () => changeGiven(() => ({ token: `dbt_${'0123456789abcdef'.repeat(3)}` })),
  },
  {
    name: 'one-token-an-account',
    wrong: 'issues the same token to all customers of an account',
    breaks: ['T17'],
    also: ['T15'],
    verdict: 'FAIL',
    behaviour: () => changeGiven(() => ({ token: `dbt_A-1_${'fedcba9876543210'.repeat(3)}` })),
  },
  ...(
    [
      [
        'first-key-by-case',
        'compares the key case-insensitively',
        (key: string) => key.toLowerCase() === CLIENT_KEY,
      ],
      [
        'key-by-beginning',
        'compares only a prefix of the key',
        (key: string) => key.length > 8 && CLIENT_KEY.startsWith(key),
      ],
      [
        'key-by-length',
        'compares only the length of the key',
        (key: string) => key.length === CLIENT_KEY.length,
      ],
    ] as const
  ).map(([name, wrong, passes]): TokenMutant => ({
    name: `token-${name}`,
    wrong: `${wrong} at the token endpoint`,
    breaks: ['T06'],
    verdict: 'FAIL',
    behaviour: () => ({
      request(asked) {
        if (passes(asked.headers['x-api-key'] ?? '')) asked.headers['x-api-key'] = CLIENT_KEY;
        return undefined;
      },
    }),
  })),
  ...(
    [
      ['half-body-taken', 'accepts a truncated body', (body: string) => !body.endsWith('}')],
      [
        'list-taken',
        'accepts an array and reads its first element',
        (body: string) => body.startsWith('['),
      ],
      ['empty-taken', 'issues a token for an empty body', (body: string) => body === ''],
      [
        'number-as-name',
        'accepts a number as a name',
        (body: string) => /"first_name":7/.test(body),
      ],
      [
        'text-as-address',
        'accepts a string as an address',
        (body: string) => /"address":"/.test(body),
      ],
      [
        'null-as-mail',
        'accepts null as an email address',
        (body: string) => /"email":null/.test(body),
      ],
    ] as const
  ).map(([name, wrong, takes]): TokenMutant => ({
    name,
    wrong,
    breaks: ['T18'],
    verdict: 'FAIL',
    behaviour: () => ({
      request: (asked) =>
        asked.method === 'POST' &&
        asked.path.endsWith('/token') &&
        asked.headers['content-type'] === 'application/json' &&
        takes(asked.body)
          ? json(200, { token: `dbt_${randomUUID()}${randomUUID()}` })
          : undefined,
    }),
  })),
  {
    name: 'parser-breaks-at-the-platform',
    wrong: 'answers a body that is not JSON with 500',
    breaks: ['T18'],
    verdict: 'WARN',
    behaviour: () => ({
      answer(answer, asked) {
        if (answer.status === 400 && asked.body.startsWith('{') && !asked.body.endsWith('}')) {
          answer.status = 500;
          answer.body = JSON.stringify({
            code: 'INTERNAL_ERROR',
            message: 'An unexpected error occurred',
          });
        }
      },
    }),
  },
  {
    name: 'shape-breaks-and-tells',
    wrong: 'answers a body of the wrong shape with 500 and internal details',
    breaks: ['T20'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer(answer, asked) {
        if (answer.status === 400 && asked.body.includes('"address":"')) {
          answer.status = 500;
          answer.body = '{"error":"TypeError: body.address.city is undefined"}';
        }
      },
    }),
  },
  {
    name: 'page-when-it-fails',
    wrong: 'answers an internal error with a web page',
    breaks: ['T20'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer(answer, asked) {
        if (answer.status === 400 && asked.body.startsWith('[')) {
          answer.status = 502;
          answer.headers['content-type'] = 'text/html';
          answer.body = '<h1>Bad gateway</h1>';
        }
      },
    }),
  },
  ...(
    [
      ['only-e164', 'refuses a phone number that is not in E.164', '(512) 555-0100'],
      ['only-ascii-names', 'refuses a name with letters beyond ASCII', 'Zoë'],
      ['only-five-digits', 'refuses a ZIP code with four digits more', '78701-1234'],
    ] as const
  ).map(([name, wrong, refused]): TokenMutant => ({
    name,
    wrong,
    breaks: ['T19'],
    verdict: 'FAIL',
    behaviour: () => ({
      request: (asked) =>
        asked.body.includes(refused)
          ? json(400, { code: 'INVALID_REQUEST', message: 'The body is not valid' })
          : undefined,
    }),
  })),
  {
    name: 'unknown-field-in-an-address',
    wrong: 'refuses unknown fields of an address',
    breaks: ['T19'],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => ({
      request: (asked) =>
        /"address":\{[^}]*a_field_of_tomorrow/.test(asked.body)
          ? json(400, { code: 'INVALID_REQUEST', message: 'The body is not valid' })
          : undefined,
    }),
  },
  {
    name: 'reads-content-length',
    wrong: 'reads no body that comes in chunks',
    breaks: ['T19'],
    verdict: 'WARN',
    behaviour: () => ({
      request: (asked) =>
        asked.headers['transfer-encoding'] === undefined
          ? undefined
          : json(400, { code: 'INVALID_REQUEST', message: 'The body is empty' }),
    }),
  },
  {
    name: 'expired-at-once',
    wrong: 'returns the time of issue as the expiry of a token',
    breaks: ['T01'],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => ({
      answer(answer) {
        if (answer.headers['token-expires-at'] === undefined) return;
        answer.headers['token-expires-at'] = new Date(Date.now() - 1_000).toISOString();
      },
    }),
  },
  {
    name: 'two-first-names-are-enough',
    wrong: 'accepts a customer without a last name if the first name has two words',
    breaks: ['T03'],
    verdict: 'FAIL',
    behaviour: () =>
      changeAsked((body) =>
        typeof body['first_name'] === 'string' && body['first_name'].includes(' ')
          ? { last_name: 'Example', ...body }
          : body,
      ),
  },
  {
    name: 'client-by-pattern',
    wrong: 'looks up the client id with LIKE',
    breaks: ['T05'],
    verdict: 'FAIL',
    behaviour: () => ({
      request(asked) {
        if (asked.headers['x-client-id'] === '%') {
          asked.headers['x-client-id'] = 'client-of-the-judge';
        }
        return undefined;
      },
    }),
  },
  {
    name: 'client-by-length',
    wrong: 'answers a client id of another length as an invalid request',
    breaks: ['T05'],
    verdict: 'WARN',
    behaviour: () => ({
      request: (asked) =>
        asked.headers['x-client-id'] === 'client-of-the-judgex'
          ? json(400, { code: 'INVALID_REQUEST', message: 'The client id has another length' })
          : undefined,
    }),
  },
  ...(
    [
      ['T05', 'an unknown client', 'x-client-id', 'client-of-the-judge'],
      ['T06', 'a wrong key', 'x-api-key', CLIENT_KEY],
    ] as const
  ).map(([check, who, header, right]): TokenMutant => ({
    name: `body-before-${header}`,
    wrong: `validates the body of ${who} before it refuses it`,
    breaks: [check],
    verdict: 'WARN',
    profile: 'strict',
    behaviour: () => ({
      request: (asked) =>
        asked.body === '{' && asked.headers[header] !== right
          ? json(400, { code: 'INVALID_REQUEST', message: 'The body is not JSON' })
          : undefined,
    }),
  })),
  {
    name: 'one-token-at-a-time',
    wrong: 'returns the token of the latest concurrent request',
    breaks: ['T17'],
    verdict: 'FAIL',
    behaviour: () => {
      let latest: { token: string; at: number } | undefined;
      return changeGiven(({ token }) => {
        // The crowd of T17 arrives together; a token that is asked for alone is a new one.
        if (latest === undefined || Date.now() - latest.at > 50) {
          latest = { token: text(token), at: Date.now() };
        }
        return { token: latest.token };
      });
    },
  },
  {
    name: 'page-from-the-body-parser',
    wrong: 'answers an invalid body with the page of its framework',
    breaks: ['T21'],
    verdict: 'FAIL',
    behaviour: () => ({
      answer(answer, asked) {
        if (answer.status !== 400 || !asked.body.startsWith('[')) return;
        answer.headers['content-type'] = 'text/html';
        answer.body = '<pre>SyntaxError: Unexpected token</pre>';
      },
    }),
  },
  {
    name: 'page-for-a-large-body',
    wrong: 'answers a large body with the page of its proxy',
    breaks: ['T21'],
    verdict: 'WARN',
    behaviour: () => ({
      answer(answer) {
        if (answer.status !== 413) return;
        answer.headers['content-type'] = 'text/html';
        answer.body = '<h1>413 Request Entity Too Large</h1>';
      },
    }),
  },
  {
    name: 'quotes-the-customer',
    wrong: 'repeats the refused value in its errors',
    breaks: ['T21'],
    verdict: 'WARN',
    behaviour: () => ({
      answer(answer, asked) {
        if (answer.status !== 400 || !asked.body.includes('private.duebridge')) return;
        answer.body = JSON.stringify({ code: 'INVALID_REQUEST', message: `got ${asked.body}` });
      },
    }),
  },
];

/** A wrong platform that pays. */
export interface CallerMutant {
  readonly name: CallerFault;
  readonly wrong: string;
  readonly breaks: readonly string[];
  readonly also?: readonly string[] | 'many';
  readonly verdict: 'FAIL' | 'WARN';
  readonly auth?: 'oauth';
}

/** The wrong callers, in the order of the checks that catch them. */
export const CALLER_MUTANTS: readonly CallerMutant[] = [
  {
    name: 'no_batch',
    wrong: 'sends payments without a batch id',
    breaks: ['C01'],
    also: ['C02', 'C03', 'C07', 'C09'],
    verdict: 'FAIL',
  },
  {
    name: 'new_id_on_retry',
    wrong: 'retries with a new id',
    breaks: ['C02'],
    also: ['C07', 'C12', 'C13'],
    verdict: 'FAIL',
  },
  {
    name: 'new_bytes_on_retry',
    wrong: 'retries with different bytes',
    breaks: ['C02'],
    also: ['C07', 'C13'],
    verdict: 'FAIL',
  },
  {
    name: 'forgets_the_end',
    wrong: 'never shows its customer that the payment has ended',
    breaks: ['C03'],
    verdict: 'FAIL',
  },
  {
    name: 'knows_two_words',
    wrong: 'does not treat canceled as terminal',
    breaks: ['C03'],
    verdict: 'FAIL',
  },
  { name: 'polls_on', wrong: 'keeps polling after the end', breaks: ['C03'], verdict: 'FAIL' },
  {
    name: 'ignores_retry_after',
    wrong: 'ignores Retry-After',
    breaks: ['C04'],
    verdict: 'WARN',
  },
  {
    name: 'floods',
    wrong: 'polls without a delay',
    breaks: ['C04'],
    also: ['C03'],
    verdict: 'WARN',
  },
  {
    name: 'token_for_each_call',
    wrong: 'fetches an access token for each refused call',
    breaks: ['C05'],
    verdict: 'WARN',
    auth: 'oauth',
  },
  {
    name: 'key_in_address',
    wrong: 'also sends its key in the URL',
    breaks: ['C06'],
    verdict: 'FAIL',
  },
  {
    name: 'error_is_failure',
    wrong: 'marks a payment as failed when its PUT gets no response',
    breaks: ['C07'],
    also: ['C02', 'C12', 'C13'],
    verdict: 'FAIL',
  },
  {
    name: 'gives_up',
    wrong: 'never retries a PUT that got no response',
    breaks: ['C07'],
    also: ['C02', 'C12', 'C13'],
    verdict: 'FAIL',
  },
  {
    name: 'believes_status_alone',
    wrong: 'accepts the status of a record with another amount',
    breaks: ['C08'],
    verdict: 'FAIL',
  },
  {
    name: 'mismatch_is_failure',
    wrong: 'marks a payment as failed when the record has another amount',
    breaks: ['C08'],
    verdict: 'FAIL',
  },
  ...(
    [
      ['dollars', 'sends the amount in dollars', 'C09', 'many'],
      ['amount_as_text', 'sends the amount as a string', 'C09', 'many'],
      ['adds_a_fee', 'adds a fee to the amount', 'C09', 'many'],
      ['bearer_key', 'adds Bearer before a static key', 'C09', 'many'],
      ['text_body', 'sends its JSON as text/plain', 'C09', 'many'],
      ['json_form', 'requests access tokens with a JSON body', 'C09', 'many', 'oauth'],
      ['no_scope', 'requests access tokens without a scope', 'C09', [], 'oauth'],
      ['not_found_is_failure', 'marks a payment as failed when its PUT gets 404', 'C07', []],
      ['conflict_is_accepted', 'treats 409 as the acceptance of a payment', 'C07', []],
      [
        'page_is_failure',
        'marks a payment as failed when its PUT gets 200 with a web page',
        'C07',
        [],
      ],
      ['waits_forever', 'waits forever for a response', 'C07', ['C10']],
      [
        'poll_error_is_failure',
        'marks a payment as failed when a poll gets no usable response',
        'C10',
        ['C12'],
      ],
      ['poll_error_stops', 'stops polling when a poll gets no usable response', 'C10', []],
      ['unknown_word_is_success', 'treats an unknown status as success', 'C11', []],
      ['words_without_case', 'compares statuses case-insensitively', 'C11', []],
      ['follows_redirects', 'follows redirects', 'C12', []],
      ['redirect_is_failure', 'marks a payment as failed when its PUT is redirected', 'C12', []],
      ['gives_up_after_three', 'gives up after three PUTs', 'C13', []],
      [
        'polls_three_times',
        'gives up after three polls',
        'C13',
        ['C10', 'C11', 'C03', 'C05', 'C08'],
      ],
    ] as const satisfies readonly (readonly [
      CallerFault,
      string,
      string,
      readonly string[] | 'many',
      'oauth'?,
    ])[]
  ).map(([name, wrong, check, also, auth]): CallerMutant => ({
    name,
    wrong,
    breaks: [check],
    also,
    verdict: 'FAIL',
    ...(auth === undefined ? {} : { auth }),
  })),
  {
    name: 'large_amount_as_text',
    wrong: 'sends amounts beyond 32 bits as a string',
    breaks: ['C09'],
    verdict: 'FAIL',
  },
  {
    name: 'polls_by_put',
    wrong: 'repeats the PUT to learn the status',
    breaks: ['C13'],
    also: 'many',
    verdict: 'FAIL',
  },
  {
    name: 'polls_slowly_on',
    wrong: 'keeps polling after the end, at a slow pace',
    breaks: ['C03'],
    verdict: 'FAIL',
  },
  {
    name: 'numbers_by_account',
    wrong: 'numbers its payments within each account',
    breaks: ['C01'],
    verdict: 'FAIL',
  },
  {
    name: 'forgets_on_restart',
    wrong: 'forgets its open payments on a restart',
    breaks: ['C14'],
    verdict: 'FAIL',
  },
  {
    name: 'new_id_after_restart',
    wrong: 'sends its open payments under a new id after a restart',
    breaks: ['C14'],
    verdict: 'FAIL',
  },
  {
    name: 'retries_at_once',
    wrong: 'retries a PUT immediately',
    breaks: ['C13'],
    verdict: 'WARN',
  },
  {
    name: 'ignores_retry_after_on_put',
    wrong: 'obeys Retry-After only for polls',
    breaks: ['C04'],
    verdict: 'WARN',
  },
];

/** The amount of the payment that most checks use, with the usual limits. */
const SUBJECT_CENTS = 120;

const DAY_MS = 24 * 60 * 60 * 1_000;

function inside(): Answer {
  return { status: 500, body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' } };
}

function refused(): Answer {
  return { status: 401, body: { code: 'UNAUTHORIZED', message: 'The credential is not known' } };
}

/** A proxy that changes the JSON body of token requests if it is an object. */
function changeAsked(
  change: (body: Record<string, unknown>) => Record<string, unknown>,
): ProxyBehaviour {
  return {
    request(asked) {
      if (asked.path.includes('/token') && isJsonObject(asked.body)) {
        asked.body = JSON.stringify(change(JSON.parse(asked.body) as Record<string, unknown>));
      }
      return undefined;
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
function changeGiven(
  change: (given: Record<string, unknown>) => Record<string, unknown>,
): ProxyBehaviour {
  return {
    answer(answer, asked) {
      if (asked.path.includes('/token') && answer.status === 200) {
        answer.body = JSON.stringify(change(JSON.parse(answer.body) as Record<string, unknown>));
      }
    },
  };
}

function changeToken(
  change: (token: Record<string, unknown>) => Record<string, unknown>,
): Behaviour {
  return changeBody('access_token', change);
}

function changeBody(
  operation: Call['operation'],
  change: (body: Record<string, unknown>) => Record<string, unknown>,
): Behaviour {
  return {
    answer: (call, answer) =>
      call.operation === operation && answer.status === 200 && isFields(answer.body)
        ? { ...answer, body: change({ ...answer.body }) }
        : undefined,
  };
}

function ignoreScope(operation: Call['operation']): Behaviour {
  return {
    authorize: (call, refusal) =>
      call.operation === operation && refusal?.code === 'INSUFFICIENT_SCOPE' ? undefined : refusal,
  };
}

function isFields(value: unknown): value is Record<string, unknown> {
  return (
    typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof Uint8Array)
  );
}

function ofId(id: string): (payment: { platform_payment_id: string }) => boolean {
  return ({ platform_payment_id }) => platform_payment_id === id;
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** An instant moved by so many milliseconds; any other value unchanged. */
function shift(instant: unknown, ms: number): unknown {
  return typeof instant === 'string' ? new Date(Date.parse(instant) + ms).toISOString() : instant;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** A token endpoint that issues a token of this scope where it should answer with an error. */
function tokenDespite(error: RegExp, scope: string): Behaviour {
  return {
    answer: (call, answer) =>
      call.operation === 'access_token' &&
      answer.status >= 400 &&
      error.test(JSON.stringify(answer.body))
        ? {
            status: 200,
            body: { access_token: randomUUID(), token_type: 'Bearer', expires_in: 60, scope },
          }
        : undefined,
  };
}
