/**
 * Checks of the PUT that comes again (P25, P26, P28, P29, P31 to P33, P35), and of ids that only look alike (P65): a platform repeats a PUT whenever it has not read the
 * answer, so a repeat that makes a second payment charges a customer twice.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Draft, PartnerCase } from '../check/check.ts';
import type { Severity } from '../check/findings.ts';
import { isSuccess, show, tell } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import {
  differences,
  instruction,
  type Intent,
  recordOf,
  tellDifferences,
} from '../check/payment-fields.ts';
import { own, uses } from '../check/planned-payments.ts';
import { CONTROLS, oneEffect } from './balance.ts';
import { ENDED_FIELDS, LASTING_FIELDS, unchanged } from './shared.ts';

const p25: Draft<PartnerCase> = {
  id: 'P25',
  title: 'An identical PUT returns the same payment',
  clauses: ['RU5', 'ID1'],
  sends:
    'PUT payment, then the identical PUT, then one with the same fields in another order and with white space',
  likely_cause:
    'The server answers the repeat with 409, or inserts it again because the id is unique only per account or per day.',
  creates: uses('first'),
  async run(t) {
    const { subject, record } = await t.accepted();
    const changes: readonly { readonly body?: string }[] = [
      {},
      { body: inOtherBytes(subject.intent) },
    ];
    for (const change of changes) {
      const again = await t.put(subject.intent, change);
      const second = recordOf(again);
      const isSame =
        again.status === 200 &&
        second !== undefined &&
        differences(record, second, LASTING_FIELDS).length === 0;
      const what = change.body === undefined ? '' : ', whatever the order of its fields';
      t.must(isSame, `200 with the first payment, unchanged${what}`, again, {
        ...(again.status === 200 && { got: tellDifferences(record, again, LASTING_FIELDS) }),
        ...(what !== '' && {
          cause: 'A repeat is recognised by the bytes of its body, or by a hash of them.',
        }),
      });
    }
  },
};

/** The same instruction with its fields in another order and with white space: JSON gives neither a meaning. */
function inOtherBytes(intent: Intent): string {
  const { amount_in_cents, ...ids } = JSON.parse(instruction(intent)) as Record<string, unknown>;
  return JSON.stringify({ ...ids, amount_in_cents }, undefined, 2).replaceAll('":', '" :');
}

/** Consecutive repeats. */
const REPEATS = 20;

/** Repeats that even a slow server must handle. Beyond these, the check stops after `Pace.repeat_ms`. */
const FEWEST = 5;

const p26: Draft<PartnerCase> = {
  id: 'P26',
  title: 'Twenty repeats of a PUT create one payment',
  clauses: ['RU5'],
  sends: `PUT payment, then the identical PUT ${REPEATS} times, one after another`,
  likely_cause: 'Each request posts the payment, or queues it for posting again.',
  creates: uses(...CONTROLS, 26),
  async run(t: PartnerContext) {
    const payment = t.ownPayment(26);
    const payment_id = recordOf(await t.put(payment))?.['payment_id'];
    t.given(payment_id !== undefined, 'no new payment was accepted (see P20)');
    const until = t.run.now() + t.run.pace.repeat_ms;
    let repeats = 0;
    while (repeats < REPEATS && (repeats < FEWEST || t.run.now() < until)) {
      const reply = await t.put(payment);
      repeats += 1;
      const same = t.must(
        recordOf(reply)?.['payment_id'] === payment_id,
        `200 with payment_id ${JSON.stringify(payment_id)}`,
        reply,
        { got: `repeat ${repeats}: ${tell(reply)}` },
      );
      if (!same) break;
    }
  },
  atEnd: (t) => oneEffect(t, t.ownPayment(26)),
};

const p28: Draft<PartnerCase> = {
  id: 'P28',
  title: 'A repeat with another amount returns the original payment',
  clauses: ['RU5', 'PF6'],
  decisions: [9],
  sends: 'PUT payment, then PUT with the same id and twice the amount',
  likely_cause: 'The server upserts: the second request overwrites the first.',
  creates: uses(28),
  async run(t: PartnerContext) {
    const { intent, record: first } = await t.accept(28);
    const reply = await t.put(intent, { fields: { amount_in_cents: intent.amount_in_cents * 2 } });
    if (isSuccess(reply)) {
      const second = recordOf(reply);
      t.must(
        second !== undefined &&
          second['amount_in_cents'] === first['amount_in_cents'] &&
          second['payment_id'] === first['payment_id'],
        `payment_id ${show(first['payment_id'])} with amount_in_cents ${show(first['amount_in_cents'])}`,
        reply,
      );
    } else {
      const conflict = reply.status === 409 || reply.status === 422;
      t.must(conflict, '200 with the first payment', reply);
      t.should(!conflict, '200 with the first payment', reply);
    }
    const expected = `amount_in_cents ${show(first['amount_in_cents'])} when read again`;
    const isFirst = (cents: unknown): boolean => cents === first['amount_in_cents'];
    t.field(await t.read(intent), 'amount_in_cents', expected, isFirst);
  },
};

const p29: Draft<PartnerCase> = {
  id: 'P29',
  title: 'A repeat with another batch id leaves the stored one unchanged',
  clauses: ['PF3', 'RU5'],
  decisions: [9],
  severity: 'should',
  sends: 'PUT payment, then PUT with the same id and another platform_batch_id, then GET',
  likely_cause: 'The server upserts: the second request overwrites the first.',
  creates: uses(29),
  async run(t: PartnerContext) {
    const { intent, record: first } = await t.accept(29);
    await t.put(intent, { fields: { platform_batch_id: randomUUID() } });
    const expected = `platform_batch_id ${show(first['platform_batch_id'])}`;
    const isFirst = (batch: unknown): boolean => batch === first['platform_batch_id'];
    t.field(await t.read(intent), 'platform_batch_id', expected, isFirst, { severity: 'should' });
  },
};

const p31: Draft<PartnerCase> = {
  id: 'P31',
  title: 'A repeat after the end returns the same terminal payment',
  clauses: ['RU2', 'RU5'],
  sends: 'PUT payment, GET until it is terminal, then the identical PUT, then GET',
  likely_cause: 'The repeat resets the status to processing or queues the payment again.',
  creates: uses('first'),
  async run(t) {
    const { subject } = await t.accepted();
    const { record } = await t.ended(subject.intent);
    for (const again of [await t.put(subject.intent), await t.read(subject.intent)]) {
      if (!unchanged(t, record, again, ENDED_FIELDS, 'the terminal payment, unchanged')) return;
    }
  },
};

const p32: Draft<PartnerCase> = {
  id: 'P32',
  title: 'A PUT with another id is another payment, even with the same account and amount',
  clauses: ['ID1', 'FR1'],
  sends: 'two PUTs with different ids, the same account and the same amount',
  likely_cause: 'The server detects repeats by account and amount instead of by id.',
  creates: uses(32, 32),
  async run(t: PartnerContext) {
    const { record: first } = await t.accept(32);
    const intent = t.intend(32);
    const reply = await t.put(intent);
    const second = recordOf(reply);
    t.must(
      second !== undefined &&
        second['payment_id'] !== first['payment_id'] &&
        second['platform_payment_id'] === intent.platform_payment_id,
      '200 with a distinct payment_id and the id that was sent',
      reply,
    );
  },
};

/** Payments that share one batch. */
const PAYMENTS = 3;

/** Batch ids that careless code changes. A server may refuse them, but must not store another one. */
const UNUSUAL: readonly ((random: string) => string)[] = [
  (random) => `0012${BigInt(`0x${random}`)}`,
  (random) => `Judge.${random.toUpperCase()}.`,
  (random) => `judge-${random}`.padEnd(64, 'x'),
  (random) => `${random} & <"O'Neill">`,
];

const p33: Draft<PartnerCase> = {
  id: 'P33',
  title: 'Several payments can share a batch id',
  clauses: ['PF3'],
  sends: `${PAYMENTS} PUTs with different ids and one platform_batch_id, then GET of each; ${UNUSUAL.length} PUTs with a batch id of digits, of mixed case, of 64 characters and with punctuation`,
  likely_cause: 'The server uses the batch id as an idempotency key, or does not store it.',
  creates: (target) =>
    Array.from({ length: PAYMENTS + UNUSUAL.length }, (_, number) => own(target, 330 + number)),
  async run(t: PartnerContext) {
    const batch = randomUUID();
    const seen = new Set<string>();
    for (let number = 0; number < PAYMENTS; number += 1) {
      const intent = t.intend(own(t.target, 330 + number), batch);
      const put = await t.put(intent);
      t.given(number > 0 || recordOf(put) !== undefined, 'no new payment was accepted (see P20)');
      const read = await t.read(intent);
      const record = recordOf(read);
      const payment_id = show(record?.['payment_id']);
      const holds = t.must(
        record !== undefined && record['platform_batch_id'] === batch && !seen.has(payment_id),
        `a distinct payment with platform_batch_id ${show(batch)}`,
        read,
      );
      if (!holds) return;
      seen.add(payment_id);
    }
    await Promise.all(
      UNUSUAL.map(async (make, place) => {
        const unusual = make(randomBytes(8).toString('hex'));
        const intent = t.intend(own(t.target, 330 + PAYMENTS + place), unusual);
        const put = await t.put(intent);
        if (!isSuccess(put)) return;
        for (const reply of [put, await t.read(intent)]) {
          t.must(
            recordOf(reply)?.['platform_batch_id'] === unusual,
            `platform_batch_id ${show(unusual)}, as it was sent`,
            reply,
            { cause: 'The batch id is escaped, folded, cut or converted to a number.' },
          );
        }
      }),
    );
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
    cause:
      'The id is compared case-insensitively: the column’s collation ignores case, or the code lowercases it.',
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

const p65: Draft<PartnerCase> = {
  id: 'P65',
  title: 'Similar ids are different payments',
  clauses: ['PF2', 'ID1'],
  decisions: [13],
  sends: `${PAIRS.length} pairs of PUTs whose ids differ in case, in the last character, in a suffix, a trailing dot or space, or in leading zeros`,
  likely_cause:
    'The id is lowercased, truncated, trimmed or converted to a number before it is compared.',
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
    t.given(
      refused < plain.length || t.all.length > 0,
      'the server refuses every id that is not a UUID',
    );
    if (refused > 0)
      t.notes.push(`${refused} of ${plain.length} pairs were refused and could not be compared.`);
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
  const first = await t.put(intents[0]);
  const second = await t.put(intents[1]);
  if (!isSuccess(first) || !isSuccess(second)) return false;
  for (const [intent, reply] of [
    [intents[0], first],
    [intents[1], second],
    [intents[0], await t.read(intents[0])],
    [intents[1], await t.read(intents[1])],
  ] as const) {
    const record = recordOf(reply);
    const isOwn =
      record?.['platform_payment_id'] === intent.platform_payment_id &&
      record['amount_in_cents'] === intent.amount_in_cents;
    // The other checks must not take the record of the one payment for that of the other.
    if (!isOwn) t.run.forget(intent);
    t[severity](
      isOwn,
      `ids ${name}: the payment ${show(intent.platform_payment_id)} of ${intent.amount_in_cents} cents`,
      reply,
      { cause },
    );
  }
  t[severity](
    recordOf(first)?.['payment_id'] !== recordOf(second)?.['payment_id'],
    `ids ${name}: two payments`,
    second,
    {
      got: `payment_id ${show(recordOf(first)?.['payment_id'])} for both`,
      cause,
    },
  );
  return true;
}

function pad(random: string, length: number): readonly [string, string] {
  const start = `judge-${random}`.padEnd(length - 1, 'x');
  return [`${start}a`, `${start}b`];
}

/** How many payments of earlier runs are put again. */
const MOST_REPEATS = 10;

const p35: Draft<PartnerCase> = {
  id: 'P35',
  title: 'A PUT repeated the next day returns the original payment',
  clauses: ['PF2', 'RU5'],
  sends: `up to ${MOST_REPEATS} PUTs of a run at least 24 hours old, byte for byte`,
  likely_cause: 'Idempotency keys are kept in a cache or table whose entries expire after a day.',
  async run(t: PartnerContext) {
    const old = t.oldEntries().slice(0, MOST_REPEATS);
    t.given(
      old.length > 0,
      'no run against this server is 24 hours old yet: run again tomorrow with --recheck',
    );
    for (const entry of old) {
      const reply = await t.repeatOld(entry);
      const record = recordOf(reply);
      const same = t.must(
        reply.status === 200 &&
          record !== undefined &&
          differences(entry.record, record, LASTING_FIELDS).length === 0,
        `the payment created at ${entry.made_at}`,
        reply,
        { got: tellDifferences(entry.record, reply, LASTING_FIELDS) },
      );
      if (!same) return;
    }
  },
};

export const PUT_REPEATS = [p25, p26, p28, p29, p31, p32, p33, p35, p65];
