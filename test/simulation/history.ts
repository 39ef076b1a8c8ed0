/** What happened in a simulated world, as an all-seeing observer would record it: for the checkers and for who reads them. */
import type { Collection } from '../../packages/platform/src/funding.ts';

/** One event. `at` is virtual milliseconds since the start of the world. */
export type Event = { readonly at: number } & (
  | {
      readonly kind: 'confirmed';
      readonly id: string;
      readonly partner: string;
      readonly cents: number;
      /** In the simulation: where it began; `dispatching` when its PUT leaves at once (decision 66). */
      readonly stage?: string;
    }
  | {
      readonly kind: 'sent';
      readonly call: number;
      readonly by: string;
      readonly method: 'PUT' | 'GET';
      readonly id: string;
      readonly partner: string;
      /** What the PUT carried besides the id. */
      readonly payload: string;
    }
  /** The partner acted on a call and answered, whether or not the answer arrives. */
  | {
      readonly kind: 'answered';
      readonly call: number;
      readonly id: string;
      readonly answer: Answer;
    }
  | {
      readonly kind: 'arrived';
      readonly call: number;
      readonly id: string;
      readonly answer: string;
    }
  /** A row of the platform, read from outside, after it changed. */
  | {
      readonly kind: 'row';
      readonly id: string;
      readonly stage: string;
      readonly status: string;
      /** The slot whose owner drives it; null in review. */
      readonly slot: number | null;
    }
  | { readonly kind: 'fault'; readonly what: string }
  /** The platform's database has lost its latest commits: its rows are as they were a moment before. */
  | { readonly kind: 'rewound' }
  | { readonly kind: 'healed' }
);

/** A partner's answer, as much of it as the checkers compare. */
export interface Answer {
  readonly http: number;
  readonly status?: string;
  readonly payment_id?: string;
  readonly amount_in_cents?: number;
  readonly initiated_at?: string;
}

/** The facts at the end of a world, read from both databases and the partners' own records. */
export interface Ending {
  readonly platform: readonly PlatformRow[];
  /** Acts of the funding port, in order. */
  readonly funds: readonly {
    readonly id: string;
    readonly act: string;
    readonly cents: number;
    /** When the processor executed it, in milliseconds of the world. */
    readonly at?: number;
    /** When a hold ends by itself, where it does. */
    readonly until?: number;
  }[];
  /** Each partner's payments. */
  readonly partner: readonly PartnerRow[];
  /** Postings: one entry each, so that a payment posted twice is there twice. */
  readonly postings: readonly { readonly id: string; readonly cents: number }[];
}

export interface PlatformRow {
  readonly id: string;
  readonly partner: string;
  readonly status: string;
  readonly stage: string;
  readonly settled: boolean;
  readonly cents: number;
  readonly review_reason: string | null;
  readonly payment_id: string | null;
  /** When its method takes the money; default `reserved`. */
  readonly collection?: Collection;
}

export interface PartnerRow {
  readonly id: string;
  readonly partner: string;
  readonly status: string;
  readonly cents: number;
}

/** The events as lines of JSON, in their order: the story of a world that somebody wants to read. */
export function linesOf(history: Pick<History, 'events'>): string {
  return history.events.map((event) => `${JSON.stringify(event)}\n`).join('');
}

/** The events of one world, in order. */
export class History {
  readonly events: Event[] = [];
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  add(event: WithoutTime<Event>): void {
    this.events.push({ at: this.#now(), ...event });
  }
}

type WithoutTime<E> = E extends unknown ? Omit<E, 'at'> : never;
