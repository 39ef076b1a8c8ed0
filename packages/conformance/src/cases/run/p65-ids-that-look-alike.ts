import { randomBytes } from 'node:crypto';
import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { own } from '../../check/planned-payments.ts';

/** Pairs of ids that a careless key would treat as equal; each pair has its own letters and digits. */
const PAIRS: readonly {
  readonly name: string;
  readonly cause: string;
  readonly make: (random: string) => readonly [string, string];
}[] = [
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

export const p65: PartnerCase = {
  id: 'P65',
  title: 'Similar ids are different payments',
  clauses: ['PF2', 'ID1'],
  decisions: [13],
  severity: 'must',
  profile: 'contract',
  sends: `${PAIRS.length} pairs of PUTs whose ids differ in case, in the last character, in a trailing dot, or in leading zeros`,
  expects: 'two payments, each under its own id; a server may refuse ids that are not UUIDs',
  likely_cause:
    'The id is lowercased, truncated, trimmed or converted to a number before it is compared.',
  creates: (target) => PAIRS.flatMap(() => [own(target, 65), own(target, 66)]),
  async run(t: PartnerContext) {
    let refused = 0;
    await Promise.all(
      PAIRS.map(async ({ name, cause, make }) => {
        const [one, other] = make(randomBytes(12).toString('hex'));
        const intents = [
          { ...t.intend(own(t.target, 65)), platform_payment_id: one },
          { ...t.intend(own(t.target, 66)), platform_payment_id: other },
        ] as const;
        const first = await t.put(intents[0]);
        const second = await t.put(intents[1]);
        if (!isSuccess(first) || !isSuccess(second)) {
          refused += 1;
          return;
        }
        for (const [intent, reply] of [
          [intents[0], first],
          [intents[1], second],
          [intents[0], await t.read(intents[0])],
          [intents[1], await t.read(intents[1])],
        ] as const) {
          const record = recordOf(reply);
          t.must(
            record?.['platform_payment_id'] === intent.platform_payment_id &&
              record['amount_in_cents'] === intent.amount_in_cents,
            {
              expected: `ids ${name}: the payment ${show(intent.platform_payment_id)} of ${intent.amount_in_cents} cents`,
              got: tell(reply),
              cause,
              at: reply,
            },
          );
        }
        t.must(recordOf(first)?.['payment_id'] !== recordOf(second)?.['payment_id'], {
          expected: `ids ${name}: two payments`,
          got: `payment_id ${show(recordOf(first)?.['payment_id'])} for both`,
          cause,
          at: second,
        });
      }),
    );
    t.given(refused < PAIRS.length, 'the server refuses every id that is not a UUID');
    if (refused > 0)
      t.notes.push(`${refused} of ${PAIRS.length} pairs were refused and could not be compared.`);
  },
};

function pad(random: string, length: number): readonly [string, string] {
  const start = `judge-${random}`.padEnd(length - 1, 'x');
  return [`${start}a`, `${start}b`];
}
