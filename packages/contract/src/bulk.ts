/** The admin API: acts on several payments, what they would do, and what became of each (decisions 166 and 200). */
import { Type, type Static } from 'typebox';
import { PartnerId, PaymentView } from './admin.ts';
import { instant, PlatformPaymentId } from './fields.ts';
import { PaymentFilterFields } from './operate.ts';

const strict = { additionalProperties: false } as const;

/** What operators do to several payments, one after the other. */
export const BULK_ACTS = ['resume', 'poll', 'withdraw', 'close'] as const;
export type BulkAct = (typeof BULK_ACTS)[number];
/** Payments of one preview. */
export const MAX_BULK = 500;

/** Asks what an act would do to these payments; nothing is done. */
export const BulkPreviewRequest = Type.Object(
  {
    act: Type.Enum([...BULK_ACTS]),
    platform_payment_ids: Type.Array(PlatformPaymentId, { minItems: 1, maxItems: MAX_BULK }),
  },
  strict,
);
export type BulkPreviewRequest = Static<typeof BulkPreviewRequest>;

/** What the act would do to each, as the payments are now; another person or the partner may be faster. */
export const BulkPreview = Type.Object({
  payments: Type.Array(
    Type.Object({
      platform_payment_id: PlatformPaymentId,
      payment: Type.Union([PaymentView, Type.Null()]),
      refused: Type.Boolean({ description: 'The act would be refused.' }),
      would: Type.String({ description: 'What would happen, or why it would be refused.' }),
    }),
    { description: 'In the order of the request.' },
  ),
});
export type BulkPreview = Static<typeof BulkPreview>;

/** Payments of one run: more is an incident of its own, and no list that anybody reads. */
export const MAX_RUN = 10_000;
/** Ids in one request, which is limited to 64 KiB; a filter chooses more. */
export const MAX_RUN_IDS = 1_000;

/** Plans a run over these payments, or over all that the filter finds now. Nothing is done before it is started. */
export const BulkRunRequest = Type.Object(
  {
    act: Type.Enum([...BULK_ACTS]),
    platform_payment_ids: Type.Optional(
      Type.Array(PlatformPaymentId, { minItems: 1, maxItems: MAX_RUN_IDS, uniqueItems: true }),
    ),
    filter: Type.Optional(Type.Object(PaymentFilterFields, { ...strict, minProperties: 1 })),
  },
  strict,
);
export type BulkRunRequest = Static<typeof BulkRunRequest>;

export const BULK_RUN_STATES = ['planned', 'running', 'stopped', 'done'] as const;

/** One act on several payments. The platform drives it, whether or not anybody looks. */
export const BulkRun = Type.Object({
  run_id: Type.String(),
  act: Type.Enum([...BULK_ACTS]),
  actor: Type.String({ description: 'Who planned it. Nobody else may start or continue it.' }),
  reason: Type.Union([Type.String(), Type.Null()]),
  state: Type.Enum([...BULK_RUN_STATES]),
  note: Type.String({ description: 'Why it stopped by itself; otherwise empty.' }),
  planned_at: instant('Database time.'),
  started_at: Type.Union([Type.String(), Type.Null()]),
  ended_at: Type.Union([Type.String(), Type.Null()]),
  payments: Type.Integer({ minimum: 1 }),
  amount_in_cents: Type.Integer({ minimum: 0, description: 'Of all its payments together.' }),
  done: Type.Integer({ minimum: 0 }),
  refused: Type.Integer({ minimum: 0 }),
});
export type BulkRun = Static<typeof BulkRun>;

/** One payment of a run. */
export const BulkItem = Type.Object({
  place: Type.Integer({ minimum: 0 }),
  platform_payment_id: PlatformPaymentId,
  partner_id: Type.Union([PartnerId, Type.Null()]),
  amount_in_cents: Type.Union([Type.Integer(), Type.Null()]),
  state: Type.Enum(['waiting', 'acting', 'done', 'refused']),
  note: Type.String({ description: 'What would happen; once it is done or refused, what did.' }),
});
export type BulkItem = Static<typeof BulkItem>;

/** A run and some of its payments, in the order in which they are acted on. */
export const BulkRunDetail = Type.Object({
  run: BulkRun,
  items: Type.Array(BulkItem),
  next_cursor: Type.Union([Type.String(), Type.Null()]),
});
export type BulkRunDetail = Static<typeof BulkRunDetail>;

export const BulkItemQuery = Type.Object(
  {
    cursor: Type.Optional(Type.String({ pattern: '^[0-9]{1,6}$' })),
    limit: Type.Optional(Type.String({ pattern: '^([1-9][0-9]{0,2}|1000)$' })),
  },
  strict,
);
export type BulkItemQuery = Static<typeof BulkItemQuery>;
