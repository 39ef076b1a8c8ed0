/** What a running scripted partner shows of itself: to tests, to checks of callers, and to the page on which a person looks into it. */
import type { Operation, Posting, StoredPayment } from './behaviour.ts';
import type { SandboxAccount } from './magic.ts';
import type { Scenario } from './scenarios.ts';

/** How the partner protects its operations (S3): exactly one of the two methods. */
export type ScriptedAuth =
  | {
      readonly method: 'oauth';
      readonly client_id: string;
      readonly client_secret: string;
      /** Life of an access token in seconds; 3,600 unless named (OA3). */
      readonly expires_in?: number;
    }
  | { readonly method: 'key'; readonly header: string; readonly key: string };

/** One request and what became of it. Credentials are masked. */
export interface ScriptedExchange {
  readonly number: number;
  readonly connection: number;
  /** Milliseconds of the sandbox's clock. */
  readonly at_ms: number;
  readonly operation: Operation;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Whether the right credential came with it. */
  readonly credential: 'right' | 'refused' | 'not_looked_at';
  /** What was sent; undefined while it is being answered, and for connections taken over. */
  answer: { readonly status: number; readonly body: string } | undefined;
  /** Set when the answer was no ordinary one. */
  taken_over: boolean;
  /** True for a request that the sandbox itself sent, in a proxy's place (F49). */
  readonly replayed: boolean;
}

/** A running scripted partner. */
export interface ScriptedPartner {
  /** Base URL to register, such as http://127.0.0.1:4100; under a scenario of TLS or names, the bad one. */
  readonly url: string;
  /** Where it can be reached once the registration is mended: `url`, unless that one is bad. */
  readonly plain_url: string;
  /** The credentials in force; the secret may be the scenario's. */
  readonly auth: ScriptedAuth;
  /** The running scenario. */
  readonly scenario: Scenario | undefined;
  /** The OAuth token endpoint (OA1); of use in OAuth mode only. */
  readonly token_url: string;
  /** Every payment ever stored, oldest first. */
  payments(): readonly Readonly<StoredPayment>[];
  /** The ledger: one line for each posting, so a payment posted twice stands there twice. */
  postings(): readonly Posting[];
  /** Every request since the start or the last reset, oldest first. */
  exchanges(): readonly ScriptedExchange[];
  accounts(): readonly SandboxAccount[];
  /** Faulty answers given since the start or the last reset. */
  faults(): number;
  /** True when every fault is over. */
  healed(): boolean;
  /** Ends every fault, at once and for good. */
  heal(): Promise<void>;
  /** Connections to the bad entry point (F47, F48): a handshake may be tried, a private address may not. */
  entryConnections(): number;
  /** The host beside the partner, to which some scenarios redirect. */
  readonly stray_url: string;
  /** Requests that reached the host beside the partner, to which some scenarios redirect: none may. */
  strayRequests(): number;
  /** Ends a payment by hand, as an operator of the partner would (decision 18). */
  end(platform_payment_id: string, status: 'succeeded' | 'failed' | 'canceled'): void;
  /** Forgets everything; accounts, clock and chance are as at the start. */
  reset(): void;
  /** Moves the partner's clock forward and ends what is then due. */
  advance(ms: number): void;
  /** The partner's clock: milliseconds since 1970. */
  now(): number;
  /** Ends all connections and closes the port. Calling it twice is harmless. */
  stop(): Promise<void>;
}
