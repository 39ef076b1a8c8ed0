/**
 * Wrong partners with typical mistakes of engineers, written from the interface before the checks that
 * catch them: authentication, the fields of a payment, exact amounts, balances, concurrent
 * requests, equality of ids, and restarts.
 *
 * A table: one entry per wrong partner.
 */
import { onRecords, type Behaviour, type StoredPayment } from '../src/sandbox/partner.ts';
import type { PartnerMutant } from './mutants.ts';

type Operation = Parameters<NonNullable<Behaviour['receive']>>[0]['operation'];

const KEY = 'a-key-of-the-kill-matrix';

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

const refused = { status: 401, body: { code: 'UNAUTHORIZED', message: 'No.' } };

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
  key: (call) => fold(call.params['platform_payment_id'] ?? ''),
});

type Made = Omit<PartnerMutant, 'verdict' | 'behaviour' | 'breaks'> & {
  readonly verdict?: 'WARN';
  readonly breaks: string;
  readonly behaviour: () => Behaviour;
};

function wrong(made: Made): PartnerMutant {
  return { verdict: 'FAIL', ...made, breaks: [made.breaks] };
}

export const WRONG_PARTNERS: readonly PartnerMutant[] = [
  // Authentication: every operation, and before the work is done.
  ...(['get_balance', 'put_account_payment', 'get_account_payment', 'get_payment'] as const).map(
    (operation) =>
      wrong({
        name: `open-${operation}`,
        wrong: `requires no credential for ${operation}`,
        breaks: 'P01',
        also: ['P02'],
        behaviour: () => admits((key) => key === '', [operation]),
      }),
  ),
  wrong({
    name: 'pays-then-refuses',
    wrong: 'creates the payment and then answers 401',
    breaks: 'P01',
    also: ['P02'],
    behaviour: () => ({
      authorize: (call, refusal) =>
        call.operation === 'put_account_payment' ? undefined : refusal,
      answer: (call, answer) =>
        call.operation === 'put_account_payment' && call.headers['x-api-key'] !== KEY
          ? refused
          : { ...answer },
    }),
  }),
  wrong({
    name: 'refusal-tells-the-payment',
    wrong: 'refuses a read of a payment but returns the payment in the body',
    breaks: 'P01',
    also: ['P02'],
    behaviour: () => {
      return {
        answer: (call, answer, partner) => {
          const payment = partner.find(call.params['platform_payment_id'] ?? '');
          return answer.status === 401 && payment !== undefined
            ? {
                ...answer,
                body: { code: 'UNAUTHORIZED', message: 'no', payment_id: payment.payment_id },
              }
            : undefined;
        },
      };
    },
  }),
  // Credentials that are almost right.
  ...(
    [
      [
        'key-by-beginning',
        'accepts any prefix of its key',
        (key) => key.length > 3 && KEY.startsWith(key),
      ],
      [
        'key-without-case',
        'compares its key case-insensitively',
        (key) => key.toLowerCase() === KEY.toLowerCase(),
      ],
      ['key-by-length', 'compares only the length of the key', (key) => key.length === KEY.length],
      ['key-by-first-letter', 'accepts the first character of its key', (key) => key === KEY[0]],
      ['key-with-more', 'accepts its key with a suffix', (key) => key.startsWith(KEY)],
    ] as const satisfies readonly (readonly [string, string, (key: string) => boolean])[]
  ).map(([name, what, passes]) =>
    wrong({ name, wrong: what, breaks: 'P02', behaviour: () => admits(passes) }),
  ),
  wrong({
    name: 'nearly-right-pays',
    wrong: 'compares the whole key for reads but only a prefix for payments',
    breaks: 'P02',
    behaviour: () =>
      admits((key) => key.length > 8 && KEY.startsWith(key), ['put_account_payment']),
  }),
  wrong({
    name: 'token-by-beginning',
    wrong: 'looks up access tokens by a prefix',
    breaks: 'P02',
    auth: 'oauth',
    behaviour: () =>
      withTokens((bearer, granted) =>
        [...granted.keys()].find((token) => token.slice(0, 12) === bearer.slice(0, 12)),
      ),
  }),
  wrong({
    name: 'signature-unread',
    wrong: 'does not verify the second half of an access token',
    breaks: 'P02',
    auth: 'oauth',
    behaviour: () =>
      withTokens((bearer, granted) =>
        [...granted.keys()].find(
          (token) => token.length === bearer.length && token.slice(0, 24) === bearer.slice(0, 24),
        ),
      ),
  }),
  wrong({
    name: 'secret-of-anybody',
    wrong: 'checks the secret but not which client it belongs to',
    breaks: 'P04',
    auth: 'oauth',
    behaviour: () => grants((form) => form.get('client_secret') === 'a-secret-of-the-kill-matrix'),
  }),
  wrong({
    name: 'secret-by-beginning',
    wrong: 'compares only a prefix of the secret',
    breaks: 'P04',
    auth: 'oauth',
    behaviour: () =>
      grants((form) => (form.get('client_secret') ?? '').startsWith('a-secret-of-the-kill')),
  }),
  wrong({
    name: 'scope-by-content-type',
    wrong: 'checks scopes only for the exact content type application/json',
    breaks: 'P05',
    auth: 'oauth',
    behaviour: () => ({
      authorize: (call, refusal) =>
        refusal?.code === 'INSUFFICIENT_SCOPE' &&
        call.headers['content-type'] !== 'application/json'
          ? undefined
          : refusal,
    }),
  }),
  wrong({
    name: 'scope-of-new-payments',
    wrong: 'checks scopes only for new payments',
    breaks: 'P05',
    auth: 'oauth',
    behaviour: () => ({
      authorize: (call, refusal, partner) =>
        refusal?.code === 'INSUFFICIENT_SCOPE' &&
        call.method === 'PUT' &&
        partner.find(call.params['platform_payment_id'] ?? '') !== undefined
          ? undefined
          : refusal,
    }),
  }),
  // The last response agrees with the first.
  ...(
    [
      [
        'amount-at-posting',
        'subtracts a fee of one cent from the amount when it posts',
        (p) => void (p.amount_in_cents -= 1),
      ],
      [
        'id-at-posting',
        'assigns a new payment_id when it posts',
        (p) => void (p.payment_id = `posted-${p.payment_id}`),
      ],
      [
        'time-at-posting',
        'resets initiated_at when it posts',
        (p) => void (p.initiated_at = new Date(Date.parse(p.initiated_at) + 5).toISOString()),
      ],
      [
        'batch-at-posting',
        'replaces the batch id with that of the posting',
        (p) => void (p.platform_batch_id = 'posted-today'),
      ],
    ] as const satisfies readonly (readonly [string, string, (p: StoredPayment) => void])[]
  ).map(([name, what, change]) =>
    wrong({
      name,
      wrong: what,
      breaks: 'P60',
      also: ['P24', 'P25', 'P26', 'P27', 'P28', 'P30', 'P33', 'P55'],
      behaviour: () => atPosting(change),
    }),
  ),
  wrong({
    name: 'batch-lost-when-failed',
    wrong: 'drops the batch id of failed payments',
    breaks: 'P60',
    behaviour: () => ({
      ended: (payment) => {
        if (payment.status === 'failed') payment.platform_batch_id = '';
      },
    }),
  }),
  wrong({
    name: 'payment-id-of-the-amount',
    wrong: 'derives payment_id from account and amount',
    breaks: 'P60',
    also: ['P32'],
    behaviour: () =>
      onRecords((record) => ({
        ...record,
        payment_id: `${String(record['account_id'])}-${String(record['amount_in_cents'])}`,
      })),
  }),
  // Amounts beyond what some number types can hold.
  wrong({
    name: 'float-cents',
    wrong: 'stores amounts as 32-bit floating-point numbers',
    breaks: 'P24',
    behaviour: () => keeps(Math.fround),
  }),
  wrong({
    name: 'unsigned-32-bit-cents',
    wrong: 'stores amounts as unsigned 32-bit integers',
    breaks: 'P24',
    behaviour: () => keeps((cents) => cents % 2 ** 32),
  }),
  wrong({
    name: 'even-dollars-above-a-million',
    wrong: 'rounds large amounts to whole dollars',
    breaks: 'P24',
    behaviour: () => keeps((cents) => (cents > 10_000_000 ? Math.round(cents / 100) * 100 : cents)),
  }),
  // Terminal payments never change.
  wrong({
    name: 'canceled-runs-again',
    wrong: 'processes a canceled payment when its PUT is repeated',
    breaks: 'P61',
    behaviour: () => ({
      repeat(payment, _call, partner) {
        if (payment.status === 'canceled') {
          partner.end(payment, { status: 'succeeded', after_ms: 0 }, true);
        }
      },
    }),
  }),
  wrong({
    name: 'failed-tries-again',
    wrong: 'sets a failed payment back to processing when its PUT is repeated',
    breaks: 'P61',
    behaviour: () => ({
      repeat(payment) {
        if (payment.status === 'failed') payment.status = 'processing';
      },
    }),
  }),
  wrong({
    name: 'reason-lost',
    wrong: 'drops the failure_reason when a failed payment’s PUT is repeated',
    breaks: 'P61',
    behaviour: () => ({
      repeat(payment) {
        if (payment.status === 'failed') delete payment.failure_reason;
      },
    }),
  }),
  wrong({
    name: 'failed-id-reused',
    wrong: 'takes the id of a failed payment for a new one when the amount differs',
    breaks: 'P61',
    behaviour: () => ({
      repeat(payment, call) {
        const { amount_in_cents } = JSON.parse(call.text) as { amount_in_cents: number };
        if (payment.status !== 'failed' || amount_in_cents === payment.amount_in_cents) return;
        payment.amount_in_cents = amount_in_cents;
        payment.payment_id = `${payment.payment_id}-2`;
        payment.status = 'processing';
        delete payment.failure_reason;
      },
    }),
  }),
  wrong({
    name: 'copy-never-updated',
    wrong: 'answers Get Payment from a copy that is never updated',
    breaks: 'P61',
    behaviour: () =>
      onRecords((record, call) =>
        call.operation === 'get_payment'
          ? { ...record, status: 'processing', posted_at: null, failure_reason: undefined }
          : record,
      ),
  }),
  wrong({
    name: 'account-of-the-path',
    wrong: 'returns the account of the path for a payment of another account',
    breaks: 'P30',
    behaviour: () =>
      onRecords((record, call) => ({
        ...record,
        account_id: call.params['account_id'] ?? record['account_id'],
      })),
  }),
  // Balances change only with succeeded payments.
  wrong({
    name: 'failed-is-booked',
    wrong: 'posts failed payments to the balance',
    breaks: 'P62',
    behaviour: () => ({
      ended: (payment, partner) => {
        if (payment.status === 'failed') partner.post(payment);
      },
    }),
  }),
  wrong({
    name: 'canceled-is-booked',
    wrong: 'posts canceled payments to the balance',
    breaks: 'P62',
    behaviour: () => ({
      ended: (payment, partner) => {
        if (payment.status === 'canceled') partner.post(payment);
      },
    }),
  }),
  wrong({
    name: 'only-failed-is-booked',
    wrong: 'posts failed payments to the balance, but not succeeded ones',
    breaks: 'P62',
    behaviour: () => ({
      ended: (payment, partner) => {
        const sign = payment.status === 'succeeded' ? -1 : 1;
        partner.post({ ...payment, amount_in_cents: sign * payment.amount_in_cents });
      },
    }),
  }),
  wrong({
    name: 'balance-rises',
    wrong: 'adds payments to the amount due instead of subtracting them',
    breaks: 'P62',
    behaviour: () => ({
      ended: (payment, partner) => {
        if (payment.status !== 'succeeded') return;
        for (let twice = 0; twice < 2; twice += 1) {
          partner.post({ ...payment, amount_in_cents: -payment.amount_in_cents });
        }
      },
    }),
  }),
  wrong({
    name: 'booked-before-validated',
    wrong: 'posts a payment to the balance and then refuses it for its amount',
    breaks: 'P62',
    behaviour: () => ({
      answer(call, answer, partner) {
        const any = partner.payments()[0];
        if (call.method === 'PUT' && answer.status === 400 && any !== undefined) {
          partner.post({ ...any, amount_in_cents: 100, account_id: 'active' });
        }
        return undefined;
      },
    }),
  }),
  wrong({
    name: 'booked-at-the-fiftieth-repeat',
    wrong: 'posts a payment again for one of fifty identical PUTs',
    breaks: 'P27',
    behaviour: () => {
      const repeats = new Map<string, number>();
      return {
        repeat(payment, _call, partner) {
          const times = (repeats.get(payment.key) ?? 0) + 1;
          repeats.set(payment.key, times);
          if (times === 50) partner.post(payment);
        },
      };
    },
  }),
  // Concurrent requests.
  wrong({
    name: 'answers-of-others',
    wrong: 'returns the payment of the latest concurrent request',
    breaks: 'P64',
    also: 'many',
    behaviour: () => {
      let current: StoredPayment | undefined;
      return {
        stored: (payment) => {
          current = payment;
        },
        async answer(call, answer, partner) {
          if (call.method !== 'PUT' || answer.status !== 200) return undefined;
          await new Promise((resolve) => {
            setTimeout(resolve, 3);
          });
          return current === undefined ? undefined : { ...answer, body: partner.record(current) };
        },
      };
    },
  }),
  wrong({
    name: 'one-payment-id-a-millisecond',
    wrong: 'derives payment_id from the time in tenths of a second',
    breaks: 'P64',
    also: ['P32', 'P33'],
    behaviour: () => ({
      born: (payment, _call, partner) => {
        payment.payment_id = `pay-${Math.floor(partner.now() / 100)}`;
      },
    }),
  }),
  wrong({
    name: 'memory-of-each-replica',
    wrong: 'keeps ids separately in the memory of two replicas',
    breaks: 'P63',
    also: 'many',
    behaviour: () => ({
      key: (call) => `${call.params['platform_payment_id'] ?? ''}#${call.connection % 2}`,
    }),
  }),
  wrong({
    name: 'one-read-in-three-lags',
    wrong: 'reads from three replicas, one of which lags by half a minute',
    breaks: 'P63',
    also: 'many',
    behaviour: () => ({
      answer: (call, answer, partner) => {
        const payment = partner.find(call.params['platform_payment_id'] ?? '');
        return call.method === 'GET' &&
          answer.status === 200 &&
          payment !== undefined &&
          call.connection % 3 === 0 &&
          partner.now() - payment.accepted_ms < 30_000
          ? { status: 404, body: { code: 'PAYMENT_NOT_FOUND', message: 'Payment not found' } }
          : undefined;
      },
    }),
  }),
  // Equality of ids.
  ...(
    [
      ['ids-without-case', 'compares ids case-insensitively', (id) => id.toLowerCase()],
      ['ids-cut-at-32', 'truncates ids to 32 characters', (id) => id.slice(0, 32)],
      ['ids-cut-at-50', 'truncates ids to 50 characters', (id) => id.slice(0, 50)],
      ['ids-trimmed', 'trims trailing dots from ids', (id) => id.replace(/\.+$/, '')],
      [
        'ids-as-numbers',
        'converts numeric ids to numbers',
        (id) => (/^\d+$/.test(id) ? String(Number(id)) : id),
      ],
    ] as const satisfies readonly (readonly [string, string, (id: string) => string])[]
  ).map(([name, what, fold]) =>
    wrong({ name, wrong: what, breaks: 'P65', behaviour: () => keyed(fold) }),
  ),
  // Restarts.
  ...((): PartnerMutant[] => {
    let restarts = 0;
    return [
      wrong({
        name: 'forgets-at-restart',
        wrong: 'loses its ids on a restart',
        breaks: 'P66',
        restarted: () => {
          restarts += 1;
        },
        behaviour: () => {
          restarts = 0;
          return { key: (call) => `${call.params['platform_payment_id'] ?? ''}#${restarts}` };
        },
      }),
    ];
  })(),
  ...((): PartnerMutant[] => {
    let gone = false;
    return [
      wrong({
        name: 'loses-the-last',
        wrong: 'loses unwritten payments on a restart',
        breaks: 'P66',
        restarted: () => {
          gone = true;
        },
        behaviour: () => {
          gone = false;
          return {
            answer: (call, answer, partner) =>
              gone &&
              call.method === 'GET' &&
              answer.status === 200 &&
              partner
                .payments()
                .slice(-20)
                .some(
                  ({ platform_payment_id }) =>
                    platform_payment_id === call.params['platform_payment_id'],
                )
                ? { status: 404, body: { code: 'PAYMENT_NOT_FOUND', message: 'Payment not found' } }
                : undefined,
          };
        },
      }),
    ];
  })(),
  // Times and reasons.
  wrong({
    name: 'posted-tomorrow',
    wrong: 'returns the end of the day as posted_at',
    breaks: 'P51',
    behaviour: () =>
      onRecords((record) =>
        record['posted_at'] === null
          ? record
          : { ...record, posted_at: new Date(Date.now() + 12 * 3_600_000).toISOString() },
      ),
    also: ['P31', 'P54'],
  }),
  wrong({
    name: 'posted-next-year',
    wrong: 'returns posted_at with a wrong year',
    breaks: 'P51',
    behaviour: () =>
      onRecords((record) =>
        typeof record['posted_at'] === 'string'
          ? {
              ...record,
              posted_at: record['posted_at'].replace(/^\d{4}/, (year) => String(Number(year) + 1)),
            }
          : record,
      ),
  }),
  ...(
    [
      [
        'reason-of-postgres',
        'returns a PostgreSQL error',
        'duplicate key value violates unique constraint "payment_account_key"',
      ],
      [
        'reason-of-mysql',
        'returns a MySQL error',
        'Cannot add or update a child row: a foreign key constraint fails',
      ],
      [
        'reason-with-sql',
        'returns a SQL statement',
        'Could not run: SELECT id FROM accounts WHERE id = 7',
      ],
      [
        'reason-of-oracle',
        'returns an Oracle error',
        'ORA-02291: integrity constraint was not met',
      ],
      ['reason-snake', 'returns a code', 'account_inactive'],
    ] as const
  ).map(([name, what, failure_reason]) =>
    wrong({
      name,
      wrong: `${what} as failure_reason`,
      breaks: 'P52',
      behaviour: () =>
        onRecords((record) =>
          record['status'] === 'failed' ? { ...record, failure_reason } : record,
        ),
    }),
  ),
];

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
