/**
 * Test and live (decision 160): every registration of a partner is one of the two for good, and so is all that hangs on it: its API
 * keys, tokens, sessions, payments and batches.
 */
import { Type, type Static } from 'typebox';

/** `test`: no money moves. `live`: real money, and never a sandbox. */
export const MODES = ['test', 'live'] as const;

export const Mode = Type.Enum([...MODES], {
  description: 'test: no money moves; live: real money (decision 160).',
});
export type Mode = Static<typeof Mode>;
