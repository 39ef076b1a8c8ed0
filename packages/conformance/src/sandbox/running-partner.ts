/** The interface of a running scripted partner, for tests, for checks of callers, and for its controls. */
import type { Operation, Posting, StoredPayment } from './behaviour.ts';
import type { SandboxAccount } from './magic.ts';
import type { Scenario } from './scenarios.ts';

/** How the partner protects its operations (S3): exactly one of the two methods. */
export type ScriptedAuth =
  | {
      readonly method: 'oauth';
      readonly client_id: string;
      readonly client_secret: string;
      /** Lifetime of an access token in seconds; 3,600 unless given (OA3). */
      readonly expires_in?: number;
    }
  | { readonly method: 'key'; readonly header: string; readonly key: string };

/** One request and its answer. Credentials are masked. */
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
  /** Whether its credential was accepted. */
  readonly credential: 'right' | 'refused' | 'not_looked_at';
  /** What was sent; undefined until it is answered, and for connections taken over. */
  answer: { readonly status: number; readonly body: string } | undefined;
}

/** A running scripted partner. */
export interface ScriptedPartner {
  /** Base URL to register, such as http://127.0.0.1:4100. */
  readonly url: string;
  /** The valid credentials. */
  readonly auth: ScriptedAuth;
  /** The running scenario. */
  readonly scenario: Scenario | undefined;
  /** The OAuth token endpoint (OA1); used in OAuth mode only. */
  readonly token_url: string;
  /** Every payment ever stored, oldest first. */
  payments(): readonly Readonly<StoredPayment>[];
  /** The ledger: one line per posting, so a payment posted twice appears twice. */
  postings(): readonly Posting[];
  /** Every request since the start, oldest first. */
  exchanges(): readonly ScriptedExchange[];
  accounts(): readonly SandboxAccount[];
  /** Faulty answers given since the start. */
  faults(): number;
  /** Ends every fault immediately and permanently. */
  heal(): Promise<void>;
  /** Another host, to which some scenarios redirect. */
  readonly stray_url: string;
  /** Paths of the requests that reached that other host, oldest first: a correct caller sends none. */
  strayPaths(): readonly string[];
  /** Refuses connections, and ends those that are open, until the returned function is called. */
  refuseConnections(): Promise<() => Promise<void>>;
  /** TLS handshakes that the caller aborted. */
  refusedHandshakes(): number;
  /** Uses this TLS certificate until the returned function is called; ends open connections. Needs the option `tls`. */
  replaceCertificate(pem: { readonly cert: string; readonly key: string }): () => void;
  /** Ends a payment by hand, as an operator of the partner would (decision 18). */
  end(platform_payment_id: string, status: 'succeeded' | 'failed' | 'canceled'): void;
  /** Moves the partner's clock forward and ends the payments that are then due. */
  advance(ms: number): void;
  /** The partner's clock: milliseconds since 1970. */
  now(): number;
  /** Ends all connections and closes the port. Calling it twice is harmless. */
  stop(): Promise<void>;
}
