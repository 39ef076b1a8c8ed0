/**
 * Wrong partners: each is the scripted partner with a few lines of difference, and is caught by the check that it names. Together they
 * reach every branch of the checks in which a partner can be accused; a second peer for the same branch is not kept.
 *
 * A table: one entry per wrong partner, in the order of the checks.
 */
import { randomUUID } from 'node:crypto';
import { pause } from '../../src/clock.ts';
import {
  onRecords,
  type Answer,
  type Behaviour,
  type Call,
  type Operation,
  type StoredPayment,
} from '../../src/sandbox/partner.ts';
import { VIRTUAL_CLOCK as CLOCK } from '../virtual-clock.ts';
import { wrongPeers, type Wrong } from './wrong.ts';

/** The key of the scripted partner. */
export const KEY = 'a-key-of-the-kill-matrix';
/** Its OAuth client. */
export const CLIENT = { client_id: 'judge', client_secret: 'a-secret-of-the-kill-matrix' };

/** The limit of a partner with a maximum, and the amount that most checks pay. */
export const MAXIMUM = { min_amount_in_cents: 100, max_amount_in_cents: 50_000 };
const SUBJECT_CENTS = 120;

export const DAY_MS = 24 * 60 * 60 * 1_000;

/** How a partner is run; a static key, at its usual times, unless given. */
export interface PartnerSetting {
  readonly auth?: 'oauth' | 'short-lived-oauth';
  readonly how?:
    'old-tls' | 'with-a-maximum' | 'with-a-cancellation' | 'with-an-unusual-id' | 'the-day-after';
}

/** Made for each run, because some keep state. `restarts`: how often the judge has had it restarted. */
export type MakeBehaviour = (restarts: () => number) => Behaviour;

export type WrongPartner = Wrong<MakeBehaviour> & PartnerSetting;

const { fails, warns } = wrongPeers<MakeBehaviour, PartnerSetting>();

const PAYMENT_NOT_FOUND: Answer = {
  status: 404,
  body: { code: 'PAYMENT_NOT_FOUND', message: 'Payment not found' },
};
const NOT_FOUND: Answer = { status: 404, body: { code: 'NOT_FOUND', message: 'Not found' } };
const BROKEN: Answer = {
  status: 500,
  body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' },
};
const REFUSED: Answer = {
  status: 401,
  body: { code: 'UNAUTHORIZED', message: 'The credential is not known' },
};

/** Where a record that changes at the end shows as well. */
const RECORD_CHANGED = { also: ['P24', 'P25', 'P26', 'P27', 'P28', 'P30', 'P33', 'P55'] };

/** The operator's request to cancel a payment, below /operator/cancel/; `force`: also one that has ended. */
export const canceling = (force = false): Behaviour => ({
  receive(call, partner) {
    const payment = partner.find(/^\/operator\/cancel\/([^/]+)$/.exec(call.path)?.[1] ?? '');
    if (payment === undefined) return undefined;
    partner.end(payment, { status: 'canceled', after_ms: 0 }, force);
    return { status: 200, body: {} };
  },
});

export const WRONG_PARTNERS: readonly WrongPartner[] = [
  fails('P01', 'accepts requests without a credential', () => ({
    authorize: (call, refusal) => (call.headers['x-api-key'] === undefined ? undefined : refusal),
  })),
  fails('P01', 'refuses a request but returns the account in the body', () => ({
    answer: (call, answer) =>
      answer.status === 401 && call.headers['x-api-key'] === undefined
        ? { ...answer, body: { code: 'UNAUTHORIZED', message: 'no', balance: {} } }
        : undefined,
  })),
  fails('P01', 'refuses a request but returns the amount due, as text', () => ({
    answer: (call, answer) =>
      answer.status === 401 && call.headers['x-api-key'] === undefined
        ? { ...answer, body: { code: 'UNAUTHORIZED', message: 'no', amount_due_in_cents: '100' } }
        : undefined,
  })),
  fails('P02', 'accepts any key that is present', () => ({
    authorize: (call, refusal) => (call.headers['x-api-key'] === undefined ? refusal : undefined),
  })),
  fails(
    'P02',
    'accepts any bearer token',
    () => ({
      authorize: (call, refusal) =>
        refusal?.code === 'UNAUTHORIZED' && /^Bearer \S/.test(call.headers.authorization ?? '')
          ? undefined
          : refusal,
    }),
    { auth: 'oauth' },
  ),
  fails(
    'P03',
    'issues an access token without scope in the response',
    () => changeToken((token) => ({ ...token, scope: undefined })),
    { auth: 'oauth' },
  ),
  fails(
    'P03',
    'returns expires_in as a string with a unit',
    () => changeToken((token) => ({ ...token, expires_in: '1h' })),
    { auth: 'oauth' },
  ),
  fails(
    'P03',
    'returns token_type as a list',
    () => changeToken((token) => ({ ...token, token_type: ['Bearer'] })),
    { auth: 'oauth' },
  ),
  fails(
    'P04',
    'issues access tokens for a wrong secret',
    () => ({
      answer: (call, answer) =>
        call.operation === 'access_token' && answer.status === 401
          ? {
              status: 200,
              body: { access_token: 'granted', token_type: 'Bearer', expires_in: 60, scope: '' },
            }
          : undefined,
    }),
    { auth: 'oauth' },
  ),
  warns(
    'P67',
    'issues access tokens for any grant_type',
    () => tokenDespite(/unsupported_grant_type|grant_type is missing/, 'read write'),
    { auth: 'oauth' },
  ),
  warns(
    'P67',
    'returns the requested scope, even one that does not exist',
    () => tokenDespite(/invalid_scope/, 'no-such-scope-duebridge'),
    { auth: 'oauth' },
  ),
  warns(
    'P67',
    'answers at its token endpoint with error codes of its own',
    () => ({
      answer: (call, answer) =>
        call.operation === 'access_token' && answer.status >= 400
          ? { ...answer, body: { code: 'INVALID_REQUEST', message: 'The request is not valid' } }
          : undefined,
    }),
    { profile: 'strict', auth: 'oauth' },
  ),
  fails(
    'P05',
    'accepts a payment with a token of scope read',
    () => ignoreScope('put_account_payment'),
    { auth: 'oauth' },
  ),
  warns('P06', 'accepts a read with a token of scope write', () => ignoreScope('get_account'), {
    auth: 'oauth',
  }),
  warns(
    'P07',
    'accepts access tokens long after they expire',
    () => {
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
    { also: ['P05'], auth: 'short-lived-oauth' },
  ),
  fails('P08', 'compares the name of its key header case-sensitively', () => ({
    answer: (call, answer) =>
      call.headers['x-api-key'] === undefined
        ? undefined
        : (wire) => {
            const exact = wire.response.req.rawHeaders.includes('x-api-key');
            wire.send(exact ? answer : REFUSED);
          },
  })),
  warns('P08', 'accepts the key in any header', () => ({
    authorize: (call, refusal) => (call.headers.authorization === undefined ? refusal : undefined),
  })),
  warns('P09', 'accepts TLS 1.1', () => ({}), { profile: 'strict', how: 'old-tls' }),
  fails('P10', 'returns accounts as text/plain', () => ({
    answer: (call, answer) =>
      call.operation === 'get_account' && answer.status === 200
        ? {
            status: 200,
            headers: { 'Content-Type': 'text/plain' },
            body: JSON.stringify(answer.body),
          }
        : undefined,
  })),
  warns('P10', 'returns its internal id as account_id', () =>
    changeBody('get_account', (body) => ({ ...body, account_id: '000017' })),
  ),
  warns('P11', 'answers an unknown account with an empty 200', () => ({
    answer: (call, answer) =>
      call.operation === 'get_account' && answer.status === 404
        ? { status: 200, body: {} }
        : undefined,
  })),
  warns('P12', 'decodes an encoded slash and resolves the path', () => ({
    receive: (call) =>
      call.operation === 'get_account' && (call.params['account_id'] ?? '').includes('/../')
        ? { status: 200, body: { account_id: 'active', status: 'active' } }
        : undefined,
  })),
  warns(
    'P12',
    'splits the path of a declared account after it has decoded it',
    () => ({
      receive: (call) => (/account\/[^/]*%2F/.test(call.path) ? NOT_FOUND : undefined),
    }),
    { how: 'with-an-unusual-id', also: 'many' },
  ),
  warns(
    'P12',
    'writes the id of a declared account with a plus for its space',
    () =>
      changeBody('get_account', (body) => ({
        ...body,
        account_id: text(body['account_id']).replace(' ', '+'),
      })),
    { how: 'with-an-unusual-id' },
  ),
  warns('P12', 'answers a long account id with 500', () => ({
    receive: (call) => ((call.params['account_id'] ?? '').length > 100 ? BROKEN : undefined),
  })),
  fails('P13', 'returns the amount due as a string', () =>
    changeBody('get_balance', (body) => ({
      ...body,
      amount_due_in_cents: String(body['amount_due_in_cents']),
    })),
  ),
  warns('P13', 'returns a due date that does not exist', () =>
    changeBody('get_balance', (body) => ({ ...body, due_date: '2026-02-30' })),
  ),
  fails('P14', 'adds a cent to the amount due at each read', () => {
    let reads = 0;
    return changeBody('get_balance', (body) => {
      reads += 1;
      return { ...body, amount_due_in_cents: Number(body['amount_due_in_cents']) + reads };
    });
  }),
  warns('P15', 'answers a payment that does not exist with 500', () => ({
    answer: (call, answer) =>
      call.operation === 'get_payment' && answer.status === 404 ? BROKEN : undefined,
  })),
  fails('P20', 'answers a new payment with 201', () => {
    const known = new Set<string>();
    return {
      answer(call, answer) {
        if (call.operation !== 'put_account_payment' || answer.status !== 200) return undefined;
        if (known.has(call.path)) return undefined;
        known.add(call.path);
        return { ...answer, status: 201 };
      },
    };
  }),
  fails(
    'P20',
    'returns no payment_id',
    () => onRecords((record) => ({ ...record, payment_id: undefined })),
    { also: ['P26', 'P32', 'P33'] },
  ),
  fails(
    'P20',
    'does not echo the batch id of a new payment',
    () =>
      onRecords((record, call) =>
        call.method === 'PUT' ? { ...record, platform_batch_id: null } : record,
      ),
    { also: ['P33', 'P55'] },
  ),
  fails('P20', 'returns the status pending for a new payment', () =>
    onRecords((record, call) =>
      call.method === 'PUT' && record['status'] === 'processing'
        ? { ...record, status: 'pending' }
        : record,
    ),
  ),
  warns('P21', 'never returns the status processing', () => ({
    born(payment, _call, partner) {
      if (payment.ending.status !== 'succeeded') return;
      payment.status = 'succeeded';
      payment.posted_at = payment.initiated_at;
      partner.post(payment);
    },
  })),
  warns('P21', 'returns succeeded at once for all but the first payment of an account', () => ({
    born(payment, _call, partner) {
      const { account_id, ending } = payment;
      const known = partner.payments().some((other) => other.account_id === account_id);
      if (!known || ending.status !== 'succeeded') return;
      payment.status = 'succeeded';
      payment.posted_at = payment.initiated_at;
      partner.post(payment);
    },
  })),
  fails('P22', 'returns initiated_at without a time zone', () =>
    onRecords((record) => ({
      ...record,
      initiated_at: text(record['initiated_at']).replace('Z', ''),
    })),
  ),
  warns('P22', 'has a clock that is an hour ahead', () =>
    onRecords((record) => ({
      ...record,
      initiated_at: shift(record['initiated_at'], 3_600_000),
      posted_at: shift(record['posted_at'], 3_600_000),
    })),
  ),
  fails('P23', 'returns posted_at while the payment is processing', () =>
    onRecords((record) =>
      record['status'] === 'processing' ? { ...record, posted_at: record['initiated_at'] } : record,
    ),
  ),
  fails(
    'P25',
    'answers a known id with 409',
    () => {
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
    { also: ['P26', 'P31', 'P34'] },
  ),
  fails(
    'P25',
    'resets initiated_at on each repeat',
    () => ({
      repeat(payment, _call, partner) {
        payment.initiated_at = new Date(partner.now() + 1).toISOString();
      },
    }),
    { also: ['P31', 'P51', 'P54'] },
  ),
  fails(
    'P26',
    'forgets an id after ten requests',
    () => {
      const seen = new Map<string, number>();
      return {
        key(call) {
          const id = idOf(call);
          const times = (seen.get(id) ?? 0) + 1;
          seen.set(id, times);
          return times > 10 ? `${id}#${times}` : id;
        },
      };
    },
    { also: ['P27'] },
  ),
  fails('P62', 'returns one payment but posts it again on every tenth repeat', () => {
    const repeats = new Map<string, number>();
    return {
      repeat(payment, _call, partner) {
        const times = (repeats.get(payment.key) ?? 0) + 1;
        repeats.set(payment.key, times);
        if (times % 10 === 0) partner.post(payment);
      },
    };
  }),
  fails(
    'P27',
    'looks up the id and then inserts, with a race between the two',
    () => ({ beforeStore: () => pause(CLOCK, 15) }),
    { also: ['P30', 'P34'] },
  ),
  fails('P28', 'overwrites the amount with that of the repeat', () => ({
    repeat(payment, call) {
      const amount = isFields(call.body) ? call.body['amount_in_cents'] : undefined;
      if (typeof amount === 'number') payment.amount_in_cents = amount;
    },
  })),
  warns('P28', 'answers a repeat with another amount with 409', () => ({
    answer(call, answer, partner) {
      const stored = partner.find(idOf(call));
      const amount = isFields(call.body) ? call.body['amount_in_cents'] : undefined;
      return call.method === 'PUT' &&
        stored !== undefined &&
        amount !== stored.amount_in_cents &&
        answer.status === 200
        ? { status: 409, body: { code: 'CONFLICT', message: 'Another amount' } }
        : undefined;
    },
  })),
  warns('P29', 'overwrites the batch id with that of the repeat', () => ({
    repeat(payment, call) {
      const batch = isFields(call.body) ? call.body['platform_batch_id'] : undefined;
      if (typeof batch === 'string') payment.platform_batch_id = batch;
    },
  })),
  fails('P30', 'keeps ids unique per account only', () => ({
    key: (call) => `${call.params['account_id'] ?? ''}/${idOf(call)}`,
  })),
  fails(
    'P31',
    'processes a terminal payment again when its PUT is repeated',
    () => ({
      repeat(payment, _call, partner) {
        if (payment.status === 'succeeded') {
          payment.posted_at = new Date(partner.now() + 1).toISOString();
        }
      },
    }),
    { also: ['P54'] },
  ),
  fails('P32', 'treats a payment with the same account and amount as a repeat', () => ({
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
  })),
  fails('P33', 'uses the batch id as the idempotency key', () => ({
    key: (call, instruction, partner) =>
      partner
        .payments()
        .find((payment) => payment.platform_batch_id === instruction.platform_batch_id)?.key ??
      call.params['platform_payment_id'] ??
      '',
  })),
  fails(
    'P34',
    'stores an id only after the response was delivered',
    () => {
      const answered = new Map<string, string>();
      return {
        key(call) {
          const id = idOf(call);
          return answered.get(id) ?? `${id}#${call.number}`;
        },
        answer(call, answer, partner) {
          const id = idOf(call);
          if (call.method !== 'PUT' || answer.status !== 200 || answered.has(id)) return undefined;
          return async (wire) => {
            // Much longer than the judge waits before it closes the connection, even on a slow machine.
            await pause(CLOCK, 250);
            if (wire.released.aborted) return;
            answered.set(id, partner.payments().findLast(ofId(id))?.key ?? id);
            wire.send(answer);
          };
        },
      };
    },
    { also: ['P27', 'P30'] },
  ),
  fails(
    'P35',
    'forgets ids after a day',
    () => ({
      key(call, _instruction, partner) {
        const id = idOf(call);
        const known = partner.find(id);
        return known !== undefined && partner.now() - known.accepted_ms > DAY_MS ? `${id}#2` : id;
      },
    }),
    { how: 'the-day-after' },
  ),
  ...(
    [
      [fails, 'takes an amount written as a text', /"amount_in_cents":"/],
      [fails, 'rounds an amount with a fraction', /"amount_in_cents":10\.5/],
      [fails, 'takes a payment without an amount', /^(?!.*"amount_in_cents")/],
      [warns, 'takes a payment of nothing', /"amount_in_cents":0,/],
    ] as const
  ).map(([kind, wrong, pattern]) =>
    kind(
      'P36',
      wrong,
      () => ({ validate: (call, problems) => (pattern.test(call.text) ? [] : problems) }),
      // A fraction that is taken stays in the balance.
      wrong.includes('fraction') ? { also: ['P13'] } : {},
    ),
  ),
  warns(
    'P37',
    'does not compare the id in the body with the one in the path',
    () => ({
      validate: (_call, problems) =>
        problems.filter(({ path }) => path !== 'body.platform_payment_id'),
    }),
    { profile: 'strict' },
  ),
  warns(
    'P20',
    'returns the account id as the biller_id of a payment',
    () => onRecords((record) => ({ ...record, biller_id: record['account_id'] ?? '' })),
    { profile: 'strict' },
  ),
  warns(
    'P42',
    'accepts a payment without a batch id',
    () => ({
      validate: (_call, problems) =>
        problems.filter(({ path }) => path !== 'body.platform_batch_id'),
    }),
    { profile: 'strict' },
  ),
  warns(
    'P59',
    'returns errors without a code',
    () => ({
      answer: (_call, answer) =>
        answer.status < 400 || typeof answer.body !== 'object'
          ? undefined
          : { ...answer, body: { error: 'Something is wrong' } },
    }),
    { profile: 'strict' },
  ),
  warns('P12', 'answers a path with an invalid percent-encoding with 500', () => ({
    receive: (call) =>
      call.path.includes('%zz')
        ? {
            status: 500,
            body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' },
          }
        : undefined,
  })),
  warns('P39', 'answers a body that is an array with 500', () => ({
    receive: (call) =>
      call.method === 'PUT' && call.text === '[]'
        ? {
            status: 500,
            body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' },
          }
        : undefined,
  })),
  warns(
    'P38',
    'refuses unknown fields',
    () => ({
      validate: (call, problems) =>
        call.text.includes('a_field_of_tomorrow')
          ? [{ path: 'body', problem: 'holds a field that is not known' }]
          : problems,
    }),
    { profile: 'strict' },
  ),
  fails('P40', 'posts payments to accounts that do not exist', () => ({
    born(payment, _call, partner) {
      if (partner.account(payment.biller_id, payment.account_id) === undefined) {
        payment.ending = { status: 'succeeded', after_ms: payment.ending.after_ms };
      }
    },
  })),
  fails('P41', 'posts payments to inactive accounts', () => ({
    born(payment, _call, partner) {
      if (partner.account(payment.biller_id, payment.account_id)?.status === 'inactive') {
        payment.ending = { status: 'succeeded', after_ms: payment.ending.after_ms };
      }
    },
  })),
  fails(
    'P41',
    'posts payments above its maximum',
    () => ({
      born(payment) {
        if (payment.amount_in_cents > 50_000) {
          payment.ending = { status: 'succeeded', after_ms: payment.ending.after_ms };
        }
      },
    }),
    { how: 'with-a-maximum' },
  ),
  fails('P50', 'leaves a payment processing forever', () => ({
    born(payment) {
      if (payment.amount_in_cents === SUBJECT_CENTS) {
        payment.ending = { ...payment.ending, after_ms: undefined };
      }
    },
  })),
  fails('P50', 'returns the status completed instead of succeeded', () =>
    onRecords((record) =>
      record['status'] === 'succeeded' && record['amount_in_cents'] === SUBJECT_CENTS
        ? { ...record, status: 'completed' }
        : record,
    ),
  ),
  fails(
    'P50',
    'returns a terminal payment as processing in every other read',
    () => {
      let reads = 0;
      return onRecords((record, call) => {
        if (call.method !== 'GET' || record['status'] !== 'succeeded') return record;
        if (record['amount_in_cents'] !== SUBJECT_CENTS) return record;
        reads += 1;
        return reads === 1 ? record : { ...record, status: 'processing', posted_at: null };
      });
    },
    { also: ['P31', 'P54'] },
  ),
  fails('P51', 'returns posted_at as a date without a time', () =>
    onRecords((record) =>
      record['posted_at'] === null
        ? record
        : { ...record, posted_at: text(record['posted_at']).slice(0, 10) },
    ),
  ),
  fails('P51', 'returns a posted_at before initiated_at', () =>
    onRecords((record) => ({ ...record, posted_at: shift(record['posted_at'], -3_600_000) })),
  ),
  fails('P52', 'gives no reason for a failed payment', () => reason(undefined)),
  fails('P52', 'gives a code for a reason', () => reason('E_ACCT_0017')),
  warns('P53', 'spells canceled with two l', () =>
    onRecords((record) =>
      record['status'] === 'canceled' ? { ...record, status: 'cancelled' } : record,
    ),
  ),
  fails('P54', 'changes posted_at a few reads after the end', () => {
    let reads = 0;
    return onRecords((record, call) => {
      if (call.method !== 'GET' || record['status'] !== 'succeeded') return record;
      if (record['amount_in_cents'] !== SUBJECT_CENTS) return record;
      reads += 1;
      return reads < 8 ? record : { ...record, posted_at: shift(record['posted_at'], 1_000) };
    });
  }),
  fails(
    'P54',
    'no longer finds payments of the previous day',
    () => ({
      answer(call, answer, partner) {
        const known = partner.find(idOf(call));
        return call.method === 'GET' &&
          answer.status === 200 &&
          known !== undefined &&
          partner.now() - known.accepted_ms > DAY_MS
          ? PAYMENT_NOT_FOUND
          : undefined;
      },
    }),
    { how: 'the-day-after' },
  ),
  fails('P55', 'returns another payment_id from Get Payment than from Get Account Payment', () =>
    onRecords((record, call) =>
      call.operation === 'get_payment'
        ? { ...record, payment_id: `${text(record['payment_id'])}-2` }
        : record,
    ),
  ),
  fails('P56', 'does not find a payment immediately after accepting it', () => {
    let reads = 0;
    return {
      answer(call, answer, partner) {
        const known = partner.find(idOf(call));
        if (call.operation !== 'get_account_payment' || answer.status !== 200) return undefined;
        if (known?.amount_in_cents !== SUBJECT_CENTS) return undefined;
        reads += 1;
        return reads > 1 ? undefined : PAYMENT_NOT_FOUND;
      },
    };
  }),
  fails(
    'P56',
    'does not find a payment by Get Payment for the first half second',
    () => ({
      answer(call, answer, partner) {
        if (call.operation !== 'get_payment' || answer.status !== 200) return undefined;
        const known = partner.find(idOf(call));
        const age = partner.now() - Date.parse(known?.initiated_at ?? '');
        return age > 500 ? undefined : PAYMENT_NOT_FOUND;
      },
    }),
    { also: ['P55'] },
  ),
  warns('P57', 'answers 500 after thirty polls of a payment', () => {
    const polls = new Map<string, number>();
    return {
      receive(call) {
        if (call.operation !== 'get_account_payment') return undefined;
        const times = (polls.get(call.path) ?? 0) + 1;
        polls.set(call.path, times);
        return times > 30 ? BROKEN : undefined;
      },
    };
  }),
  warns('P58', 'shows a terminal status two minutes after posting', () =>
    onRecords((record) => ({
      ...record,
      posted_at: shift(record['posted_at'], -120_000),
    })),
  ),
  warns('P59', 'returns the error page of its framework', () => ({
    answer: (_call, answer) =>
      answer.status === 404
        ? {
            status: 404,
            headers: { 'Content-Type': 'text/html' },
            body: '<h1>Not Found</h1>',
          }
        : undefined,
  })),
  warns('P59', 'returns a stack trace in its errors', () => ({
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
  })),
  warns('P59', 'repeats the key in its errors', () => ({
    answer: (call, answer) =>
      answer.status === 404
        ? {
            status: 404,
            body: { code: 'NOT_FOUND', message: `not for ${String(call.headers['x-api-key'])}` },
          }
        : undefined,
  })),
  // Authentication: every operation, and before the work is done.
  ...(['get_balance', 'put_account_payment', 'get_account_payment', 'get_payment'] as const).map(
    (operation) =>
      fails(
        'P01',
        `requires no credential for ${operation}`,
        () => admits((key) => key === '', [operation]),
        { also: ['P02'] },
      ),
  ),
  fails(
    'P01',
    'creates the payment and then answers 401',
    () => ({
      authorize: (call, refusal) =>
        call.operation === 'put_account_payment' ? undefined : refusal,
      answer: (call, answer) =>
        call.operation === 'put_account_payment' && call.headers['x-api-key'] !== KEY
          ? REFUSED
          : { ...answer },
    }),
    { also: ['P02'] },
  ),
  fails(
    'P01',
    'refuses a read of a payment but returns the payment in the body',
    () => {
      return {
        answer: (call, answer, partner) => {
          const payment = partner.find(idOf(call));
          return answer.status === 401 && payment !== undefined
            ? {
                ...answer,
                body: { code: 'UNAUTHORIZED', message: 'no', payment_id: payment.payment_id },
              }
            : undefined;
        },
      };
    },
    { also: ['P02'] },
  ),
  // Credentials that are almost right.
  fails('P02', 'compares its key case-insensitively', () =>
    admits((key) => key.toLowerCase() === KEY.toLowerCase()),
  ),
  fails('P02', 'compares only the length of the key', () =>
    admits((key) => key.length === KEY.length),
  ),
  fails('P02', 'accepts the first character of its key', () => admits((key) => key === KEY[0])),
  fails('P02', 'accepts its key with a suffix', () => admits((key) => key.startsWith(KEY))),
  fails(
    'P02',
    'does not verify the second half of an access token',
    () =>
      withTokens((bearer, granted) =>
        [...granted.keys()].find(
          (token) => token.length === bearer.length && token.slice(0, 24) === bearer.slice(0, 24),
        ),
      ),
    { auth: 'oauth' },
  ),
  fails(
    'P04',
    'checks the secret but not which client it belongs to',
    () => grants((form) => form.get('client_secret') === 'a-secret-of-the-kill-matrix'),
    { auth: 'oauth' },
  ),
  fails(
    'P04',
    'compares only a prefix of the secret',
    () => grants((form) => (form.get('client_secret') ?? '').startsWith('a-secret-of-the-kill')),
    { auth: 'oauth' },
  ),
  fails(
    'P05',
    'checks scopes only for the exact content type application/json',
    () => ({
      authorize: (call, refusal) =>
        refusal?.code === 'INSUFFICIENT_SCOPE' &&
        call.headers['content-type'] !== 'application/json'
          ? undefined
          : refusal,
    }),
    { auth: 'oauth' },
  ),
  fails(
    'P05',
    'checks scopes only for new payments',
    () => ({
      authorize: (call, refusal, partner) =>
        refusal?.code === 'INSUFFICIENT_SCOPE' &&
        call.method === 'PUT' &&
        partner.find(idOf(call)) !== undefined
          ? undefined
          : refusal,
    }),
    { auth: 'oauth' },
  ),
  // The last response agrees with the first.
  fails(
    'P60',
    'subtracts a fee of one cent from the amount when it posts',
    () => atPosting((p) => void (p.amount_in_cents -= 1)),
    RECORD_CHANGED,
  ),
  fails(
    'P60',
    'assigns a new payment_id when it posts',
    () => atPosting((p) => void (p.payment_id = `posted-${p.payment_id}`)),
    RECORD_CHANGED,
  ),
  fails('P60', 'drops the batch id of failed payments', () => ({
    ended: (payment) => {
      if (payment.status === 'failed') payment.platform_batch_id = '';
    },
  })),
  fails(
    'P60',
    'derives payment_id from account and amount',
    () =>
      onRecords((record) => ({
        ...record,
        payment_id: `${String(record['account_id'])}-${String(record['amount_in_cents'])}`,
      })),
    { also: ['P32'] },
  ),
  // Amounts beyond what some number types can hold.
  fails('P24', 'stores amounts as 32-bit floating-point numbers', () => keeps(Math.fround)),
  fails('P24', 'stores amounts as unsigned 32-bit integers', () =>
    keeps((cents) => cents % 2 ** 32),
  ),
  fails('P24', 'rounds large amounts to whole dollars', () =>
    keeps((cents) => (cents > 10_000_000 ? Math.round(cents / 100) * 100 : cents)),
  ),
  // Terminal payments never change.
  fails('P61', 'processes a canceled payment when its PUT is repeated', () => ({
    repeat(payment, _call, partner) {
      if (payment.status === 'canceled') {
        partner.end(payment, { status: 'succeeded', after_ms: 0 }, true);
      }
    },
  })),
  fails('P61', 'sets a failed payment back to processing when its PUT is repeated', () => ({
    repeat(payment) {
      if (payment.status === 'failed') payment.status = 'processing';
    },
  })),
  fails('P61', 'takes the id of a failed payment for a new one when the amount differs', () => ({
    repeat(payment, call) {
      const { amount_in_cents } = JSON.parse(call.text) as { amount_in_cents: number };
      if (payment.status !== 'failed' || amount_in_cents === payment.amount_in_cents) return;
      payment.amount_in_cents = amount_in_cents;
      payment.payment_id = `${payment.payment_id}-2`;
      payment.status = 'processing';
      delete payment.failure_reason;
    },
  })),
  fails('P61', 'answers Get Payment from a copy that is never updated', () =>
    onRecords((record, call) =>
      call.operation === 'get_payment'
        ? { ...record, status: 'processing', posted_at: null, failure_reason: undefined }
        : record,
    ),
  ),
  fails('P30', 'returns the account of the path for a payment of another account', () =>
    onRecords((record, call) => ({
      ...record,
      account_id: call.params['account_id'] ?? record['account_id'],
    })),
  ),
  // Balances change only with succeeded payments.
  fails('P62', 'posts failed payments to the balance', () => ({
    ended: (payment, partner) => {
      if (payment.status === 'failed') partner.post(payment);
    },
  })),
  fails('P62', 'posts failed payments to the balance, but not succeeded ones', () => ({
    ended: (payment, partner) => {
      const sign = payment.status === 'succeeded' ? -1 : 1;
      partner.post({ ...payment, amount_in_cents: sign * payment.amount_in_cents });
    },
  })),
  fails('P62', 'adds payments to the amount due instead of subtracting them', () => ({
    ended: (payment, partner) => {
      if (payment.status !== 'succeeded') return;
      for (let twice = 0; twice < 2; twice += 1) {
        partner.post({ ...payment, amount_in_cents: -payment.amount_in_cents });
      }
    },
  })),
  fails('P62', 'posts a payment to the balance and then refuses it for its amount', () => ({
    answer(call, answer, partner) {
      const any = partner.payments()[0];
      if (call.method === 'PUT' && answer.status === 400 && any !== undefined) {
        partner.post({ ...any, amount_in_cents: 100, account_id: 'active' });
      }
      return undefined;
    },
  })),
  fails('P27', 'posts a payment again for one of fifty identical PUTs', () => {
    const repeats = new Map<string, number>();
    return {
      repeat(payment, _call, partner) {
        const times = (repeats.get(payment.key) ?? 0) + 1;
        repeats.set(payment.key, times);
        if (times === 50) partner.post(payment);
      },
    };
  }),
  // Concurrent requests.
  fails(
    'P64',
    'returns the payment of the latest concurrent request',
    () => {
      let current: StoredPayment | undefined;
      return {
        stored: (payment) => {
          current = payment;
        },
        async answer(call, answer, partner) {
          if (call.method !== 'PUT' || answer.status !== 200) return undefined;
          await pause(CLOCK, 3);
          return current === undefined ? undefined : { ...answer, body: partner.record(current) };
        },
      };
    },
    { also: 'many' },
  ),
  fails(
    'P64',
    'derives payment_id from the time in tenths of a second',
    () => ({
      born: (payment, _call, partner) => {
        payment.payment_id = `pay-${Math.floor(partner.now() / 100)}`;
      },
    }),
    { also: ['P32', 'P33'] },
  ),
  fails(
    'P63',
    'keeps ids separately in the memory of two replicas',
    () => ({
      key: (call) => `${idOf(call)}#${call.connection % 2}`,
    }),
    { also: 'many' },
  ),
  fails(
    'P63',
    'reads from three replicas, one of which lags by half a minute',
    () => ({
      answer: (call, answer, partner) => {
        const payment = partner.find(idOf(call));
        return call.method === 'GET' &&
          answer.status === 200 &&
          payment !== undefined &&
          call.connection % 3 === 0 &&
          partner.now() - payment.accepted_ms < 30_000
          ? PAYMENT_NOT_FOUND
          : undefined;
      },
    }),
    { also: 'many' },
  ),
  // Equality of ids.
  fails('P65', 'compares ids case-insensitively', () => keyed((id) => id.toLowerCase())),
  fails('P65', 'truncates ids to 50 characters', () => keyed((id) => id.slice(0, 50))),
  fails('P65', 'trims trailing dots from ids', () => keyed((id) => id.replace(/\.+$/, ''))),
  fails('P65', 'converts numeric ids to numbers', () =>
    keyed((id) => (/^\d+$/.test(id) ? String(Number(id)) : id)),
  ),
  // Restarts.
  fails('P66', 'loses its ids on a restart', (restarts) => ({
    key: (call) => `${idOf(call)}#${restarts()}`,
  })),
  fails('P66', 'loses unwritten payments on a restart', (restarts) => ({
    answer: (call, answer, partner) =>
      restarts() > 0 &&
      call.method === 'GET' &&
      answer.status === 200 &&
      partner
        .payments()
        .slice(-20)
        .some(({ platform_payment_id }) => platform_payment_id === idOf(call))
        ? PAYMENT_NOT_FOUND
        : undefined,
  })),
  // Times and reasons.
  fails(
    'P51',
    'returns the end of the day as posted_at',
    () =>
      onRecords((record) =>
        record['posted_at'] === null
          ? record
          : { ...record, posted_at: new Date(CLOCK.now() + 12 * 3_600_000).toISOString() },
      ),
    { also: ['P31', 'P54'] },
  ),
  // What only an unusual request, a later moment or a second one shows.
  warns(
    'P12',
    'folds the case of account ids',
    () => ({
      receive: (call) =>
        call.operation === 'get_account' &&
        call.params['account_id'] !== 'active' &&
        call.params['account_id']?.toLowerCase() === 'active'
          ? { status: 200, body: { account_id: 'active', status: 'active' } }
          : undefined,
    }),
    { profile: 'strict' },
  ),
  fails('P13', 'begins a balance with a byte order mark', () => ({
    answer: (call, answer) =>
      call.operation === 'get_balance' && answer.status === 200
        ? asJson(`\ufeff${JSON.stringify(answer.body)}`)
        : undefined,
  })),
  warns(
    'P15',
    'answers a payment that does not exist with 200 and null',
    () => ({
      answer: (call, answer) =>
        call.operation.endsWith('payment') && answer.status === 404 ? asJson('null') : undefined,
    }),
    { also: 'many' },
  ),
  warns(
    'P36',
    'takes the right request for a repeat of one that it refused',
    () => {
      const refused = new Set<string>();
      return {
        receive: (call) =>
          call.method === 'PUT' && refused.has(idOf(call))
            ? { status: 409, body: { code: 'DUPLICATE_REQUEST', message: 'Seen before' } }
            : undefined,
        answer(call, answer) {
          if (call.method === 'PUT' && answer.status === 400) refused.add(idOf(call));
          return undefined;
        },
      };
    },
    { profile: 'strict' },
  ),
  fails('P53', 'cancels a payment that has ended', () => canceling(true), {
    how: 'with-a-cancellation',
    also: 'many',
  }),
  fails(
    'P53',
    'posts a payment that was canceled after the run of postings had begun',
    () => ({
      receive(_call, partner) {
        for (const payment of partner.payments()) {
          const isInTheRun =
            payment.account_id === 'active' && partner.now() - payment.accepted_ms > 60;
          if (payment.status === 'canceled' && isInTheRun) {
            partner.end(payment, { status: 'succeeded', after_ms: 0 }, true);
          }
        }
        return undefined;
      },
    }),
    { how: 'with-a-cancellation' },
  ),
  fails(
    'P56',
    'fails reads of a payment for a tenth of a second after its PUT',
    () => ({
      answer(call, answer, partner) {
        const payment = partner.find(idOf(call));
        return call.method === 'GET' &&
          answer.status === 200 &&
          payment !== undefined &&
          partner.now() - payment.accepted_ms < 120
          ? BROKEN
          : undefined;
      },
    }),
    { also: 'many' },
  ),
  fails(
    'P60',
    'takes a payment back four seconds after it was posted',
    () => ({
      receive(_call, partner) {
        for (const payment of partner.payments()) {
          if (payment.status !== 'succeeded' || partner.now() - payment.accepted_ms < 4_000)
            continue;
          partner.end(
            payment,
            { status: 'failed', after_ms: 0, failure_reason: 'The bank returned the payment.' },
            true,
          );
        }
        return undefined;
      },
    }),
    { also: 'many' },
  ),
  warns('P62', 'loses one of two postings of the same moment', () => {
    let last: string | null = null;
    return {
      ended(payment, partner) {
        if (payment.status !== 'succeeded') return;
        const isLost = payment.posted_at === last;
        last = payment.posted_at;
        if (isLost) partner.post({ ...payment, amount_in_cents: -payment.amount_in_cents });
      },
    };
  }),
  fails('P66', 'never posts what was open at a restart', (restarts) => {
    let known = 0;
    return {
      receive(_call, partner) {
        if (restarts() === known) return undefined;
        known = restarts();
        for (const payment of partner.payments()) {
          payment.ending = { ...payment.ending, after_ms: undefined };
        }
        return undefined;
      },
    };
  }),
  warns(
    'P67',
    'grants every scope of the client, whatever was asked for',
    () => changeToken((token) => ({ ...token, scope: 'read write' })),
    { auth: 'oauth' },
  ),
];

/** An answer of 200 whose text claims to be JSON. */
const asJson = (body: string): Answer => ({
  status: 200,
  headers: { 'Content-Type': 'application/json' },
  body,
});

/** The id of the payment that a call is about. */
const idOf = (call: Call): string => call.params['platform_payment_id'] ?? '';

/** Gives this reason for every failed payment. */
const reason = (failure_reason: string | undefined): Behaviour =>
  onRecords((record) => (record['status'] === 'failed' ? { ...record, failure_reason } : record));

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

/** Accepts every credential for which `passes` returns true, on the operations named. */
function admits(
  passes: (credential: string) => boolean,
  operations?: readonly Operation[],
): Behaviour {
  return {
    authorize: (call, refusal) =>
      (operations === undefined || operations.includes(call.operation)) &&
      passes(String(call.headers['x-api-key'] ?? ''))
        ? undefined
        : refusal,
  };
}

/** Remembers the access tokens that were issued, with their scopes. */
function withTokens(
  decide: (bearer: string, granted: ReadonlyMap<string, string>) => string | undefined,
): Behaviour {
  const granted = new Map<string, string>();
  return {
    answer(call, answer) {
      const body = answer.body as Record<string, unknown> | undefined;
      if (call.operation === 'access_token' && answer.status === 200 && body !== undefined) {
        granted.set(String(body['access_token']), String(body['scope']));
      }
      return undefined;
    },
    authorize(call, refusal) {
      const bearer = /^Bearer (.+)$/.exec(call.headers.authorization ?? '')?.[1];
      if (refusal?.code !== 'UNAUTHORIZED' || bearer === undefined) return refusal;
      const known = decide(bearer, granted);
      if (known === undefined) return refusal;
      call.scopes = (granted.get(known) ?? '').split(' ');
      return undefined;
    },
  };
}

/** Changes the lasting fields of a payment once it is posted. */
const atPosting = (change: (payment: StoredPayment) => void): Behaviour => ({
  ended: (payment) => {
    if (payment.status === 'succeeded') change(payment);
  },
});

/** Stores amounts as converted by `keep`. */
const keeps = (keep: (cents: number) => number): Behaviour => ({
  born: (payment) => {
    payment.amount_in_cents = keep(payment.amount_in_cents);
  },
});

/** Deduplicates by the result of `fold` on the id. */
const keyed = (fold: (id: string) => string): Behaviour => ({
  key: (call) => fold(idOf(call)),
});

/** A token endpoint that issues a token whenever `takes` returns true for the form, even where a correct one refuses. */
function grants(takes: (form: URLSearchParams) => boolean): Behaviour {
  return {
    answer: (call, answer) =>
      call.operation === 'access_token' &&
      answer.status === 401 &&
      takes(new URLSearchParams(call.text))
        ? {
            status: 200,
            body: {
              access_token: 'granted',
              token_type: 'Bearer',
              expires_in: 60,
              scope: 'read write',
            },
          }
        : undefined,
  };
}
