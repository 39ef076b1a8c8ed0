/**
 * Checks of the PUT that comes again (P25, P28, P32, P33, P35, P65), and of PUTs that meet each other, a cut connection or another replica
 * (P27, P30, P34): a platform repeats a PUT whenever it has not read the answer, so a repeat that makes a second payment charges a customer
 * twice.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type { PartnerCase } from '../check/check.ts';
import type { More, Severity } from '../check/findings.ts';
import { type Reply, isOut, isSuccess, show, tell } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import {
  type Intent,
  NO_BILLER,
  holdsPayment,
  instruction,
  recordOf,
  uses,
} from '../check/payment-fields.ts';
import { LASTING_FIELDS, unchanged } from './shared.ts';

/** Repeats of one PUT, one after another. */
const REPEATS = 20;

/** Repeats that even a slow server must handle. */
const FEWEST = 5;
/** Beyond these, the check stops after this time. */
const LONGEST_MS = 15_000;

const p25: PartnerCase = {
  id: 'P25',
  title: 'Twenty repeats of a PUT return the same payment',
  clauses: ['RU5', 'ID1'],
  likely_cause: 'A repeat gets 409, or is inserted again: ids are unique per account or day.',
  creates: uses('first'),
  async run(t) {
    const { intent, record } = await t.accepted();
    const same = (again: Reply, expected: string, more: More = {}): boolean =>
      t.must(again.status === 200, expected, again, more) &&
      unchanged(t, record, again, LASTING_FIELDS, expected, more);
    const expected = '200 with the first payment, unchanged';
    const until = t.run.now() + LONGEST_MS;
    for (let repeats = 1; repeats <= REPEATS; repeats += 1) {
      if (repeats > FEWEST && t.run.now() >= until) break;
      if (!same(await t.put(intent), expected)) break;
    }
    const reordered = await t.put(intent, { body: inOtherBytes(intent) });
    same(reordered, `${expected}, whatever the order of its fields`, {
      cause: 'A repeat is recognised by the bytes of its body, or by a hash of them.',
    });
  },
};

/** The same instruction with its fields in another order and with white space: JSON gives neither a meaning. */
function inOtherBytes(intent: Intent): string {
  const { amount_in_cents, ...ids } = JSON.parse(instruction(intent)) as Record<string, unknown>;
  return JSON.stringify({ ...ids, amount_in_cents }, undefined, 2).replaceAll('":', '" :');
}

const p28: PartnerCase = {
  id: 'P28',
  title: 'A repeat with another amount or batch returns the original payment',
  clauses: ['RU5', 'PF6', 'PF3'],
  likely_cause: 'The server upserts: the second request overwrites the first.',
  creates: uses(28),
  async run(t) {
    const { intent, record: first } = await t.accept(28);
    const other = {
      amount_in_cents: intent.amount_in_cents * 2,
      platform_batch_id: randomUUID(),
    };
    const isFirst = (reply: Reply, expected: string): boolean => {
      const {
        payment_id,
        amount_in_cents: cents,
        platform_batch_id: batch,
      } = recordOf(reply) ?? {};
      // Some show the batch only when the payment is read: it need not be the first answer's.
      const isKept = cents === first['amount_in_cents'] && batch !== other.platform_batch_id;
      return t.must(isKept && payment_id === first['payment_id'], expected, reply);
    };
    const reply = await t.put(intent, { fields: other });
    const expected = '200 with the first payment, its amount and its batch';
    if (isSuccess(reply)) isFirst(reply, expected);
    else t[[409, 422].includes(reply.status ?? 0) ? 'should' : 'must'](false, expected, reply);
    isFirst(await t.read(intent), `${expected}, when read again`);
  },
};

const p32: PartnerCase = {
  id: 'P32',
  title: 'A PUT with another id is another payment, even with the same account and amount',
  clauses: ['ID1', 'FR1'],
  likely_cause: 'The server detects repeats by account and amount instead of by id.',
  creates: uses(32, 32),
  async run(t) {
    const { record: first } = await t.accept(32);
    const intent = t.intend(32);
    const reply = await t.put(intent);
    const { platform_payment_id: id, payment_id } = recordOf(reply) ?? {};
    const isOwn = id === intent.platform_payment_id && payment_id !== first['payment_id'];
    t.must(isOwn, '200 with a distinct payment_id and the id that was sent', reply);
  },
};

/** Payments that share one batch. */
const PAYMENTS = 3;

const p33: PartnerCase = {
  id: 'P33',
  title: 'Several payments can share a batch id',
  clauses: ['PF3'],
  likely_cause: 'The server uses the batch id as an idempotency key, or does not store it.',
  creates: uses(...Array.from({ length: PAYMENTS }, (_, number) => 330 + number)),
  async run(t) {
    const batch = randomUUID();
    const seen = new Set<string>();
    for (let number = 0; number < PAYMENTS; number += 1) {
      const intent = t.intend(330 + number, batch);
      const put = await t.put(intent);
      if (number === 0) t.acceptedBy(put);
      const read = await t.read(intent);
      const payment_id = show(recordOf(read)?.['payment_id']);
      const isOwn = recordOf(read)?.['platform_batch_id'] === batch && !seen.has(payment_id);
      const expected = `a distinct payment with platform_batch_id ${show(batch)}`;
      if (!t.must(isOwn, expected, read)) return;
      seen.add(payment_id);
    }
  },
};

/** Pairs of ids that a careless key would treat as equal; each pair has its own letters and digits. */
interface Pair {
  readonly name: string;
  readonly cause: string;
  /** True for ids of the form that platforms send. */
  readonly uuid?: true;
  readonly make: (random: string) => readonly [string, string];
}

const PAIRS: readonly Pair[] = [
  {
    name: 'that differ only in case',
    cause: 'The column’s collation ignores case, or the code lowercases the id.',
    make: (random) => [`judge-${random}-xyz`, `JUDGE-${random.toUpperCase()}-XYZ`],
  },
  {
    name: 'of 36 characters that differ only in the last one',
    cause: 'The id is truncated to the length of its column.',
    make: (random) => pad(random, 36),
  },
  {
    name: 'of 64 characters that differ only in the last one',
    cause: 'The id is truncated to the length of its column.',
    make: (random) => pad(random, 64),
  },
  {
    name: 'that differ in a trailing character that some code trims',
    cause: 'The id is trimmed or normalised before it is compared.',
    make: (random) => [`judge-${random}`, `judge-${random}.`],
  },
  {
    name: 'that are UUIDs and differ only in case',
    cause: 'The id is lowercased, or its column has the type uuid, which has one spelling.',
    uuid: true,
    make: (random) => {
      const id = `a${random.slice(0, 7)}-${random.slice(7, 11)}-7${random.slice(11, 14)}-8${random.slice(14, 17)}-${random.slice(12, 24)}`;
      return [id, id.toUpperCase()];
    },
  },
  {
    name: 'of which one has a numbered suffix',
    cause: 'The number of an attempt is cut off the id before it is compared.',
    make: (random) => [`judge-${random}`, `judge-${random}-2`],
  },
  {
    name: 'of which one ends with a space',
    cause: 'The id is trimmed before it is compared.',
    make: (random) => [`judge-${random}`, `judge-${random} `],
  },
  {
    name: 'made of digits, one with leading zeros',
    cause: 'The id is converted to a number.',
    make: (random) => {
      const digits = String(Number.parseInt(random.slice(0, 10), 16) + 1);
      return [digits, `00${digits}`];
    },
  },
  {
    name: 'with more digits than a floating-point number can represent',
    cause: 'The id is converted to a floating-point number.',
    make: (random) => {
      const digits = `9${String(Number.parseInt(random.slice(0, 10), 16)).padStart(16, '1')}`;
      return [`${digits}1`, `${digits}2`];
    },
  },
];

const p65: PartnerCase = {
  id: 'P65',
  title: 'Similar ids are different payments',
  clauses: ['PF2', 'ID1'],
  likely_cause: 'The id is lowercased, cut, trimmed or made a number before it is compared.',
  creates: uses(...PAIRS.flatMap(() => [65, 66])),
  async run(t: PartnerContext) {
    const plain = PAIRS.filter(({ uuid }) => uuid !== true);
    const told = await Promise.all(plain.map((pair) => comparePair(t, pair, 'must')));
    const refused = told.filter((compared) => !compared).length;
    // Where ids are UUIDs only, two spellings of one are the same value, and platforms send one spelling.
    const severity = refused === plain.length ? 'should' : 'must';
    for (const pair of PAIRS.filter(({ uuid }) => uuid === true)) {
      await comparePair(t, pair, severity);
    }
    t.given(refused < plain.length || t.all.length > 0, 'the server refuses ids that are no UUIDs');
  },
};

/** Puts two similar ids. Returns false when the server refuses one of them. */
async function comparePair(
  t: PartnerContext,
  { name, cause, make }: Pair,
  severity: Severity,
): Promise<boolean> {
  const [one, other] = make(randomBytes(12).toString('hex'));
  const intents = [
    { ...t.intend(65), platform_payment_id: one },
    { ...t.intend(66), platform_payment_id: other },
  ] as const;
  const puts = [await t.put(intents[0]), await t.put(intents[1])] as const;
  if (!puts.every(isSuccess)) return false;
  for (const [place, intent] of intents.entries()) {
    for (const reply of [puts[place] ?? puts[0], await t.read(intent)]) {
      const { platform_payment_id: id, amount_in_cents: cents } = recordOf(reply) ?? {};
      const isOwn = id === intent.platform_payment_id && cents === intent.amount_in_cents;
      // The other checks must not take the record of the one payment for that of the other.
      if (!isOwn) t.run.payments.delete(intent.platform_payment_id);
      const own = `the payment ${show(intent.platform_payment_id)} of ${intent.amount_in_cents} cents`;
      t[severity](isOwn, `ids ${name}: ${own}`, reply, { cause });
    }
  }
  const [first, second] = puts.map((put) => recordOf(put)?.['payment_id']);
  t[severity](first !== second, `ids ${name}: two payments`, puts[1], {
    got: `payment_id ${show(first)} for both`,
    cause,
  });
  return true;
}

function pad(random: string, length: number): readonly [string, string] {
  const start = `judge-${random}`.padEnd(length - 1, 'x');
  return [`${start}a`, `${start}b`];
}

/** How many payments of earlier runs are put again. */
const MOST_REPEATS = 10;

const p35: PartnerCase = {
  id: 'P35',
  title: 'A PUT repeated the next day, or after a restart, returns the original payment',
  clauses: ['PF2', 'RU5'],
  likely_cause:
    'Idempotency keys are kept in memory, or in a cache whose entries expire after a day.',
  async run(t: PartnerContext) {
    const old = t.oldEntries(MOST_REPEATS);
    t.given(
      old.length > 0,
      'no run against this server is 24 hours old yet: run again tomorrow, or now with --recheck',
    );
    for (const { intent, record, made_at } of old) {
      const reply = await t.repeat(intent);
      const expected = `200 with the payment created at ${made_at}`;
      if (!t.must(reply.status === 200, expected, reply)) return;
      if (!unchanged(t, record, reply, LASTING_FIELDS, expected)) return;
    }
  },
};

/** Concurrent PUTs of one id, and then of as many ids. */
const IDENTICAL = 100;
const DIFFERENT = 20;

const p27: PartnerCase = {
  id: 'P27',
  title: 'A hundred concurrent identical PUTs create one payment',
  clauses: ['RU5', 'PF2'],
  // A server that takes them one by one may be slow for the last, and no other check should have to wait behind that.
  stage: 'alone',
  likely_cause: 'The id is looked up and then inserted, or each process has a memory of its own.',
  creates: uses(27, ...Array.from({ length: DIFFERENT }, (_, place) => 200 + place)),
  async run(t) {
    const intent = t.intend(27);
    // P60 reports an answer that is about another of them.
    const others = Array.from({ length: DIFFERENT }, (_, place) => t.intend(200 + place));
    for (const one of [intent, ...others]) t.run.spend(one);
    // By an ordinary request, which waits where the server asks for it.
    await t.run.credential(t.check);
    const puts = (some: readonly Intent[]): Promise<Reply[]> =>
      Promise.all(some.map((one) => t.put(one, { burst: true })));
    const replies = await puts(Array.from({ length: IDENTICAL }, () => intent));
    // After those, because a server may take no more connections than that.
    await puts(others);
    const silent = replies.filter(({ exchange }) => isOut(exchange));
    t.none(
      silent,
      'a response to each request',
      (one, count) => `${count} of ${IDENTICAL} got none, such as ${tell(one)}`,
      { level: 'should', cause: 'The server, or a proxy before it, accepts fewer connections.' },
    );
    t.none(
      replies.filter((reply) => (reply.status ?? 0) >= 500 && !silent.includes(reply)),
      'no 5xx',
      (one, count) => `${count} of ${IDENTICAL}, such as ${tell(one)}`,
      { cause: 'Those that lose the race violate the constraint, and nobody handles that.' },
    );
    const taken = replies.filter(isSuccess);
    t.must(taken.length > 0, 'at least one 200', replies[0], {
      got: replies.map((reply) => reply.status ?? 'none').join(', '),
    });
    const ids = taken.map((reply) => show(recordOf(reply)?.['payment_id']));
    t.none(
      taken.filter((_, place) => ids[place] !== ids[0]),
      'one payment_id in all responses',
      () => `${new Set(ids).size} payment_ids in ${taken.length} responses`,
    );
  },
};

/** The fields that say whose payment it is. */
const OWNER_FIELDS = ['platform_payment_id', 'biller_id', 'account_id', 'amount_in_cents'] as const;

const p30: PartnerCase = {
  id: 'P30',
  title: 'A known id under another account or biller creates no second payment',
  clauses: ['PF2'],
  likely_cause: 'The unique constraint is on the account and the id instead of on the id.',
  creates: uses(30),
  async run(t) {
    const { intent, record: first } = await t.accept(30);
    const { payment_id } = first;
    const { other, unknown } = t.target.accounts;
    const elsewhere = { account_id: other ?? unknown };
    const put = await t.put(intent, { elsewhere });
    const under = await t.read(intent, { elsewhere });
    const hasBiller = t.target.paths.put_account_payment?.includes('{biller_id}') === true;
    const isAnswered = put.status !== undefined;
    const strange =
      hasBiller && isAnswered
        ? [await t.repeat(intent, { elsewhere: { biller_id: NO_BILLER }, burst: true })]
        : [];
    for (const reply of [put, under, ...strange].filter(holdsPayment)) {
      if (!t.equals(reply, 'payment_id', payment_id, { note: ', or a refusal' })) return;
    }
    if (recordOf(put) !== undefined) {
      const expected = `the stored payment, with account_id ${show(first['account_id'])}`;
      unchanged(t, first, put, OWNER_FIELDS, expected, { clause: 'RU5' });
    }
    t.strict(under.status === 404, '404: a payment is found only under its own account', under);
    const read = await t.read(intent);
    t.equals(read, 'payment_id', payment_id, { note: ' under its own account' });
  },
};

/** Delay between sending the request and cutting the connection: none, and while the server works on the request. */
const CUTS_MS = [0, 30];

const p34: PartnerCase = {
  id: 'P34',
  title: 'A retry after a lost response creates no second payment',
  clauses: ['RU5', 'S4'],
  likely_cause: 'The id is stored only after the response has been sent.',
  creates: uses(34),
  async run(t: PartnerContext) {
    const intent = t.intend(34);
    for (const cut_ms of CUTS_MS) await t.put(intent, { cut_ms });
    const between = recordOf(await t.read(intent));
    const reply = await t.put(intent);
    const isTaken = t.must(recordOf(reply) !== undefined, '200 with the payment', reply);
    if (!isTaken || between === undefined) return;
    const note = ', as read after the lost response';
    t.equals(reply, 'payment_id', between['payment_id'], { note });
  },
};

export const REPEATED_PUTS = [p25, p27, p28, p30, p32, p33, p34, p35, p65];
