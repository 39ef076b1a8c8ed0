/**
 * The field schemas that the resources are built from: ids, amounts, strings, times.
 */
import {
  Type,
  type Static,
  type TArray,
  type TOptional,
  type TProperties,
  type TSchema,
} from 'typebox';
import { MAX_AMOUNT_IN_CENTS, MIN_AMOUNT_IN_CENTS } from './money.ts';

/** Longest free text accepted (decision 16). */
export const MAX_TEXT_LENGTH = 256;

/** Longest failure reason kept or shown (decision 16). */
export const MAX_FAILURE_REASON_LENGTH = 500;

/**
 * Ids that the partner chooses. They are printable text, byte-exact (decision 13). Excluded are control characters and others that nobody
 * sees, halves of a surrogate pair, and "." and "..", which every URL parser on the way would resolve as path segments.
 */
const PARTNER_ID_PATTERN =
  '^(?!\\.{1,2}$)[^\\u0000-\\u001f\\u007f-\\u009f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ud800-\\udfff\\ufeff]{1,128}$';

/** Ids that the platform generates (decision 13). */
const PLATFORM_ID_PATTERN = '^(?!\\.{1,2}$)[A-Za-z0-9._-]{1,64}$';

export const BillerId = Type.String({
  pattern: PARTNER_ID_PATTERN,
  description: 'The biller at the partner (TR4, decision 13).',
});

export const AccountId = Type.String({
  pattern: PARTNER_ID_PATTERN,
  description: 'The account at the biller (TR4, decision 13).',
});

/** A platform's id of a payment, under a description. */
export const platformPaymentId = (description: string) =>
  Type.String({ pattern: PLATFORM_ID_PATTERN, description });

export const PlatformPaymentId = platformPaymentId(
  'Minted by the platform, unique over all payments, kept forever: the idempotency key (PF2, decision 13).',
);

export const PlatformBatchId = Type.String({
  pattern: PLATFORM_ID_PATTERN,
  description: 'Minted by the platform; several payments may share it (PF3, decision 13).',
});

export const AmountInCents = Type.Integer({
  minimum: MIN_AMOUNT_IN_CENTS,
  maximum: MAX_AMOUNT_IN_CENTS,
  description: 'Whole US cents, written as a plain integer (S5, PF6, decision 11).',
});

/** Free text that is neither empty nor blank. */
export const text = (description: string, maxLength = MAX_TEXT_LENGTH) =>
  Type.String({ minLength: 1, maxLength, pattern: '\\S', description });

/** An instant that another system wrote, in any form of ISO 8601 with a zone (PF7, PF8). */
export const foreignInstant = (description: string) =>
  Type.String({ format: 'iso-instant', description });

/** An instant of our own APIs: RFC 3339. */
export const instant = (description: string) => Type.String({ format: 'date-time', description });

/** A UUID as PostgreSQL and we write it. */
export const Uuid = Type.String({ pattern: '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' });

/** The query of a page of a list. */
export const paging = {
  limit: Type.Optional(Type.String({ pattern: '^([1-9][0-9]{0,2}|1000)$' })),
  cursor: Type.Optional(Type.String({ maxLength: 256 })),
};

/** The life of a new key. */
export const validForDays = (what: string) =>
  Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 3_650,
      description: `${what} expires after this many days (decision 38); without it, never.`,
    }),
  );

/** A value, or null. */
export const nullable = <T extends Parameters<typeof Type.Union>[0][number]>(
  schema: T,
  description?: string,
) => Type.Union([schema, Type.Null()], described(description));

/** How many. */
export const count = (description?: string) =>
  Type.Integer({ minimum: 0, ...described(description) });

/** An object of our own APIs, where an unknown field is a typing error. */
export const strictObject = <const Fields extends TProperties>(
  fields: Fields,
  description?: string,
) => Type.Object(fields, { additionalProperties: false, ...described(description) });

function described(description: string | undefined): { description?: string } {
  return description === undefined ? {} : { description };
}

/** A text of an answer, or one whose limits are checked elsewhere. */
export const string = (description?: string) => Type.String(described(description));

/** Yes or no. */
export const flag = (description?: string) => Type.Boolean(described(description));

/** A whole number. */
export const whole = (description?: string) => Type.Integer(described(description));

/** How many, where there is one. */
export const oneOrMore = () => Type.Integer({ minimum: 1 });

/** One of a closed set of words. */
export const oneOf = <const Word extends string>(words: readonly Word[], description?: string) =>
  Type.Enum([...words], described(description));

/** The fields of an object that may be absent. */
export const optional = <const Fields extends TProperties>(fields: Fields) =>
  Object.fromEntries(
    Object.entries(fields).map(([name, schema]) => [name, Type.Optional(schema)]),
  ) as { readonly [Name in keyof Fields]: TOptional<Fields[Name]> };

/** An object of our own APIs whose fields may all be absent. */
export const partial = <const Fields extends TProperties>(fields: Fields, description?: string) =>
  strictObject(optional(fields), description);

/**
 * Test and live (decision 160): every registration of a partner is one of the two for good, and so is all that hangs on it: its API
 * keys, tokens, sessions, payments and batches. `test`: no money moves. `live`: real money, and never a sandbox.
 */
export const MODES = ['test', 'live'] as const;
export const Mode = oneOf(MODES, 'test: no money moves; live: real money (decision 160).');
export type Mode = Static<typeof Mode>;

/** What came of an act that may need two persons: done, or asked for by the first of them (decision 38). */
export const ActOutcome = oneOf(['done', 'second_person_needed']);

/** A page of a list, under the name of what it lists. */
export const page = <const Name extends string, Item extends TSchema>(name: Name, item: Item) =>
  Type.Object({
    ...({ [name]: Type.Array(item) } as { readonly [Key in Name]: TArray<Item> }),
    next_cursor: nullable(
      string(),
      'Null on the last page. A filter that fits few of many may give a short page, even an empty one, with more to search.',
    ),
  });
