/**
 * Wrong partners by what an engineer gets wrong, written from the interface before the checks that
 * catch them: who may call, what a payment keeps, how exact money is, what moves a balance, what runs
 * at the same moment, which ids are equal, and what a restart forgets.
 *
 * A table: one entry per wrong partner.
 */
import { onRecords, type Behaviour, type StoredPayment } from '../src/sandbox/partner.ts';
import type { PartnerMutant } from './mutants.ts';

type Operation = Parameters<NonNullable<Behaviour['receive']>>[0]['operation'];

const KEY = 'a-key-of-the-kill-matrix';

/** Lets in whoever holds a credential of which `passes` is true, on the operations named. */
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

/** Remembers the access tokens that were granted, with their scopes. */
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

/** Keeps amounts as `keep` does. */
const keeps = (keep: (cents: number) => number): Behaviour => ({
  born: (payment) => {
    payment.amount_in_cents = keep(payment.amount_in_cents);
  },
});

/** Deduplicates by what `fold` makes of the id. */
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
  // Who may call: every operation, and not after the work is done.
  ...(['get_balance', 'put_account_payment', 'get_account_payment', 'get_payment'] as const).map(
    (operation) =>
      wrong({
        name: `open-${operation}`,
        wrong: `asks for no credential on ${operation} alone`,
        breaks: 'P01',
        also: ['P02'],
        behaviour: () => admits((key) => key === '', [operation]),
      }),
  ),
  wrong({
    name: 'pays-then-refuses',
    wrong: 'makes the payment and then answers 401',
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
    wrong: 'refuses a read of a payment, with the payment in the refusal',
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
  // Credentials that are nearly right.
  ...(
    [
      [
        'key-by-beginning',
        'takes any key that begins like its own',
        (key) => key.length > 3 && KEY.startsWith(key),
      ],
      [
        'key-without-case',
        'compares its key without case',
        (key) => key.toLowerCase() === KEY.toLowerCase(),
      ],
      ['key-by-length', 'compares only how long a key is', (key) => key.length === KEY.length],
      ['key-by-first-letter', 'takes one right letter for the key', (key) => key === KEY[0]],
      ['key-with-more', 'takes its key with something after it', (key) => key.startsWith(KEY)],
    ] as const satisfies readonly (readonly [string, string, (key: string) => boolean])[]
  ).map(([name, what, passes]) =>
    wrong({ name, wrong: what, breaks: 'P02', behaviour: () => admits(passes) }),
  ),
  wrong({
    name: 'nearly-right-pays',
    wrong: 'compares the key in full for reads, and by its beginning for payments',
    breaks: 'P02',
    behaviour: () =>
      admits((key) => key.length > 8 && KEY.startsWith(key), ['put_account_payment']),
  }),
  wrong({
    name: 'token-by-beginning',
    wrong: 'looks up access tokens by their first letters',
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
    wrong: 'looks at the secret and not whose it is',
    breaks: 'P04',
    auth: 'oauth',
    behaviour: () => grants((form) => form.get('client_secret') === 'a-secret-of-the-kill-matrix'),
  }),
  wrong({
    name: 'secret-by-beginning',
    wrong: 'compares the first letters of a secret',
    breaks: 'P04',
    auth: 'oauth',
    behaviour: () =>
      grants((form) => (form.get('client_secret') ?? '').startsWith('a-secret-of-the-kill')),
  }),
  wrong({
    name: 'scope-by-content-type',
    wrong: 'compares scopes only where the body says application/json and nothing more',
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
    wrong: 'compares scopes only where a payment is new',
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
  // What the first answer said stands at the end.
  ...(
    [
      [
        'amount-at-posting',
        'takes a fee of a cent from the amount when it posts',
        (p) => void (p.amount_in_cents -= 1),
      ],
      [
        'id-at-posting',
        'gives a payment a new payment_id when it posts',
        (p) => void (p.payment_id = `posted-${p.payment_id}`),
      ],
      [
        'time-at-posting',
        'sets initiated_at again when it posts',
        (p) => void (p.initiated_at = new Date(Date.parse(p.initiated_at) + 5).toISOString()),
      ],
      [
        'batch-at-posting',
        'moves a payment to the batch of the posting',
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
    wrong: 'forgets the batch of payments that fail',
    breaks: 'P60',
    behaviour: () => ({
      ended: (payment) => {
        if (payment.status === 'failed') payment.platform_batch_id = '';
      },
    }),
  }),
  wrong({
    name: 'payment-id-of-the-amount',
    wrong: 'makes payment_id of account and amount',
    breaks: 'P60',
    also: ['P32'],
    behaviour: () =>
      onRecords((record) => ({
        ...record,
        payment_id: `${String(record['account_id'])}-${String(record['amount_in_cents'])}`,
      })),
  }),
  // Exact money beyond what some numbers hold.
  wrong({
    name: 'float-cents',
    wrong: 'keeps amounts as 32-bit floating point',
    breaks: 'P24',
    behaviour: () => keeps(Math.fround),
  }),
  wrong({
    name: 'unsigned-32-bit-cents',
    wrong: 'keeps amounts in 32 bits without a sign',
    breaks: 'P24',
    behaviour: () => keeps((cents) => cents % 2 ** 32),
  }),
  wrong({
    name: 'even-dollars-above-a-million',
    wrong: 'rounds large amounts to whole dollars',
    breaks: 'P24',
    behaviour: () => keeps((cents) => (cents > 10_000_000 ? Math.round(cents / 100) * 100 : cents)),
  }),
  // What ended stays, whoever asks again.
  wrong({
    name: 'canceled-runs-again',
    wrong: 'runs a canceled payment when its PUT is repeated',
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
    wrong: 'puts a failed payment back to processing when its PUT is repeated',
    breaks: 'P61',
    behaviour: () => ({
      repeat(payment) {
        if (payment.status === 'failed') payment.status = 'processing';
      },
    }),
  }),
  wrong({
    name: 'reason-lost',
    wrong: 'no longer knows why a payment failed once it was put again',
    breaks: 'P61',
    behaviour: () => ({
      repeat(payment) {
        if (payment.status === 'failed') delete payment.failure_reason;
      },
    }),
  }),
  // Balances move with what succeeded, and with nothing else.
  wrong({
    name: 'failed-is-booked',
    wrong: 'books payments that fail',
    breaks: 'P62',
    behaviour: () => ({
      ended: (payment, partner) => {
        if (payment.status === 'failed') partner.post(payment);
      },
    }),
  }),
  wrong({
    name: 'canceled-is-booked',
    wrong: 'books payments that are canceled',
    breaks: 'P62',
    behaviour: () => ({
      ended: (payment, partner) => {
        if (payment.status === 'canceled') partner.post(payment);
      },
    }),
  }),
  wrong({
    name: 'only-failed-is-booked',
    wrong: 'books payments that fail, and not those that succeed',
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
    wrong: 'adds what was paid to the amount due',
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
    wrong: 'books a payment that it then refuses for its amount',
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
    wrong: 'books once more for one of fifty equal PUTs',
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
  // What runs at the same moment.
  wrong({
    name: 'answers-of-others',
    wrong: 'answers with the payment of whoever came last',
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
    wrong: 'makes payment_id of the time in tenths of a second',
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
    wrong: 'keeps ids in the memory of each of two replicas',
    breaks: 'P63',
    also: 'many',
    behaviour: () => ({
      key: (call) => `${call.params['platform_payment_id'] ?? ''}#${call.connection % 2}`,
    }),
  }),
  wrong({
    name: 'one-read-in-three-lags',
    wrong: 'reads from three replicas, of which one is half a minute behind',
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
  // Which ids are equal.
  ...(
    [
      ['ids-without-case', 'folds the case of ids', (id) => id.toLowerCase()],
      ['ids-cut-at-32', 'cuts ids to 32 characters', (id) => id.slice(0, 32)],
      ['ids-cut-at-50', 'cuts ids to 50 characters', (id) => id.slice(0, 50)],
      ['ids-trimmed', 'trims dots from the end of ids', (id) => id.replace(/\.+$/, '')],
      [
        'ids-as-numbers',
        'turns ids of digits into numbers',
        (id) => (/^\d+$/.test(id) ? String(Number(id)) : id),
      ],
    ] as const satisfies readonly (readonly [string, string, (id: string) => string])[]
  ).map(([name, what, fold]) =>
    wrong({ name, wrong: what, breaks: 'P65', behaviour: () => keyed(fold) }),
  ),
  // A restart.
  ...((): PartnerMutant[] => {
    let restarts = 0;
    return [
      wrong({
        name: 'forgets-at-restart',
        wrong: 'forgets its ids when it is restarted',
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
        wrong: 'loses what it had not yet written when it is restarted',
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
    wrong: 'says posted_at as the end of the day',
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
    wrong: 'says posted_at with a wrong year',
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
        'quotes its database',
        'duplicate key value violates unique constraint "payment_account_key"',
      ],
      [
        'reason-of-mysql',
        'quotes another database',
        'Cannot add or update a child row: a foreign key constraint fails',
      ],
      [
        'reason-with-sql',
        'shows a statement',
        'Could not run: SELECT id FROM accounts WHERE id = 7',
      ],
      [
        'reason-of-oracle',
        'shows an error number of its database',
        'ORA-02291: integrity constraint was not met',
      ],
      ['reason-snake', 'gives a word for programs as the reason', 'account_inactive'],
    ] as const
  ).map(([name, what, failure_reason]) =>
    wrong({
      name,
      wrong: `${what} as the reason of a failure`,
      breaks: 'P52',
      behaviour: () =>
        onRecords((record) =>
          record['status'] === 'failed' ? { ...record, failure_reason } : record,
        ),
    }),
  ),
];

/** A token endpoint that grants whenever `takes` is true of the form, whatever the right one says. */
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
