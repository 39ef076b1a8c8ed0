/**
 * What a replica knows of a payment that it has claimed for the biller's own system, and when it may hand it over or cancel it.
 *
 *   (nothing) ── claimed, the first time ──► fresh ── called ──► asked ── stored "later" ──► resting ── called ──► asked
 *       │                                                          │ threw, or its answer was not stored
 *       └── claimed before, by whomever ──► unknown ◄──────────────┘
 *                                             └── called, after a look-up that knows nothing of it ──► asked
 *
 * Known is only what a commit has stored; everything else is `unknown`, which the row says too: a payment that was claimed before
 * and of which a replica knows nothing has an unknown outcome. So nothing is lost when a process dies, and forgetting is safe.
 *
 * `step` is the whole machine, and pure. It refuses (undefined) what would post or cancel a payment of unknown outcome.
 */

/** What is known of one payment. */
export type ClaimState =
  /** Claimed, and never handed over. */
  | { readonly kind: 'fresh' }
  /** A call that holds it has not returned, or what it returned is not stored yet. */
  | { readonly kind: 'asked' }
  /** It may have been handed over, and its outcome is not stored. */
  | { readonly kind: 'unknown' }
  /** Its last stored answer was `later`. */
  | { readonly kind: 'resting'; readonly cancelable: boolean }
  /** A cancel is under way. */
  | { readonly kind: 'canceling' };

/** Something that happened, or that is about to happen (`call`, `cancel`). */
export type ClaimEvent =
  /** The claim is committed. `isFirst`: nobody had claimed it before. */
  | { readonly kind: 'claimed'; readonly isFirst: boolean }
  /** The row says that this replica claimed it at an earlier attempt. */
  | { readonly kind: 'held' }
  /** It is to be handed over. `isAbsent`: asked a moment ago, the other system does not know it; or it cannot be asked. */
  | { readonly kind: 'call'; readonly isAbsent: boolean }
  /** The call threw, or its answer could not be stored. */
  | { readonly kind: 'lost' }
  /** The answer `later` is stored. */
  | { readonly kind: 'later'; readonly cancelable: boolean }
  /** It is to be canceled. */
  | { readonly kind: 'cancel' }
  /** The cancel did not succeed. */
  | { readonly kind: 'kept' };

/** The next state; undefined when the event must not happen. `state` is undefined when nothing is known of the payment. */
export function step(state: ClaimState | undefined, event: ClaimEvent): ClaimState | undefined {
  switch (event.kind) {
    case 'claimed':
      if (isInUse(state)) return undefined;
      return { kind: event.isFirst ? 'fresh' : 'unknown' };
    case 'held':
      return isInUse(state) ? undefined : (state ?? { kind: 'unknown' });
    case 'call': {
      const isKnown = state?.kind === 'fresh' || state?.kind === 'resting';
      return isKnown || (state?.kind === 'unknown' && event.isAbsent)
        ? { kind: 'asked' }
        : undefined;
    }
    case 'lost':
      return { kind: 'unknown' };
    case 'later':
      return { kind: 'resting', cancelable: event.cancelable };
    case 'cancel': {
      const isFree = state?.kind === 'fresh' || (state?.kind === 'resting' && state.cancelable);
      return isFree ? { kind: 'canceling' } : undefined;
    }
    case 'kept':
      return { kind: 'unknown' };
  }
}

/** Whether a call or a cancel holds the payment at this moment, so that nothing else may begin. */
export function isInUse(state: ClaimState | undefined): boolean {
  return state?.kind === 'asked' || state?.kind === 'canceling';
}
