/**
 * Checks of the PUT that comes again (P25, P28, P32, P33, P35), and of ids that only look alike (P65): a platform repeats a PUT whenever it has not read the
 * answer, so a repeat that makes a second payment charges a customer twice.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type { PartnerCase } from '../check/check.ts';
import type { More, Severity } from '../check/findings.ts';
import { isSuccess, type Reply, show } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import { instruction, type Intent, recordOf, own, uses } from '../check/payment-fields.ts';
import { LASTING_FIELDS, unchanged } from './shared.ts';

/** Repeats of one PUT, one after another. */
const REPEATS = 20;

/** Repeats that even a slow server must handle. Beyond these, the check stops after `Pace.repeat_ms`. */
const FEWEST = 5;

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
    const until = t.run.now() + t.run.pace.repeat_ms;
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
  title: 'A repeat with another amount returns the original payment',
  clauses: ['RU5', 'PF6'],
  likely_cause: 'The server upserts: the second request overwrites the first.',
  creates: uses(28),
  async run(t) {
    const { intent, record: first } = await t.accept(28);
    const reply = await t.put(intent, { fields: { amount_in_cents: intent.amount_in_cents * 2 } });
    const expected = '200 with the first payment';
    if (isSuccess(reply)) unchanged(t, first, reply, ['amount_in_cents', 'payment_id'], expected);
    else t[[409, 422].includes(reply.status ?? 0) ? 'should' : 'must'](false, expected, reply);
    const note = ' when read again';
    t.equals(await t.read(intent), 'amount_in_cents', first['amount_in_cents'], { note });
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
  creates: (target) => Array.from({ length: PAYMENTS }, (_, number) => own(target, 330 + number)),
  async run(t) {
    const batch = randomUUID();
    const seen = new Set<string>();
    for (let number = 0; number < PAYMENTS; number += 1) {
      const intent = t.intend(own(t.target, 330 + number), batch);
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
  creates: (target) => PAIRS.flatMap(() => [own(target, 65), own(target, 66)]),
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
      if (!isOwn) t.run.forget(intent);
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
  title: 'A PUT repeated the next day returns the original payment',
  clauses: ['PF2', 'RU5'],
  likely_cause: 'Idempotency keys are kept in a cache or table whose entries expire after a day.',
  async run(t: PartnerContext) {
    const old = t.oldEntries().slice(0, MOST_REPEATS);
    t.given(
      old.length > 0,
      'no run against this server is 24 hours old yet: run again tomorrow with --recheck',
    );
    for (const { intent, record, made_at } of old) {
      const reply = await t.repeat(intent);
      const expected = `200 with the payment created at ${made_at}`;
      if (!t.must(reply.status === 200, expected, reply)) return;
      if (!unchanged(t, record, reply, LASTING_FIELDS, expected)) return;
    }
  },
};

export const PUT_REPEATS = [p25, p28, p32, p33, p35, p65];
