/** The admin API: what an act would do to each of several payments (decision 166). */
import { Type, type Static } from 'typebox';
import { PaymentView } from './admin.ts';
import { PlatformPaymentId, strictObject } from './fields.ts';

/** What operators do to several payments, one after the other. */
export const BULK_ACTS = ['resume', 'poll', 'withdraw', 'close'] as const;
export type BulkAct = (typeof BULK_ACTS)[number];
/** Payments of one preview. */
export const MAX_BULK = 500;

/** Asks what an act would do to these payments; nothing is done. */
export const BulkPreviewRequest = strictObject({
  act: Type.Enum([...BULK_ACTS]),
  platform_payment_ids: Type.Array(PlatformPaymentId, { minItems: 1, maxItems: MAX_BULK }),
});
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
