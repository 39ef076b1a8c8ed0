/**
 * Where the scripted partner can be made to behave wrongly: the hooks, and what they are given.
 * A wrong partner is an object of a few lines; a hook that is absent means the right behaviour.
 */
import type { Socket } from 'node:net';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type {
  Detail,
  Json,
  PaymentInstruction,
  PaymentStatus,
  Refusal,
  partnerRoutes,
} from '@duebridge/contract';
import type { Ending, SandboxAccount } from './magic.ts';

/** An operation of the partner, or `unknown` for a path or method that is none. */
export type Operation = keyof typeof partnerRoutes | 'unknown';

/** One request as it arrived. */
export interface Call {
  /** Counts from 1 over the life of the partner. */
  readonly number: number;
  /** Counts the TCP connections; equal numbers mean the same connection. */
  readonly connection: number;
  readonly operation: Operation;
  readonly method: string;
  /** Path and query as sent. */
  readonly path: string;
  /** Path fields, decoded. */
  readonly params: Readonly<Record<string, string>>;
  readonly headers: IncomingMessage['headers'];
  /** The body's bytes as text; empty without a body. */
  readonly text: string;
  /** The body as read; undefined where there was none or it was not JSON. */
  body: Json | undefined;
  /** The scopes of the credential; undefined until it was accepted. */
  scopes: readonly string[] | undefined;
}

/** What is sent back. A body that is an object leaves as JSON; texts and bytes leave as they are. */
export interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: Record<string, unknown> | readonly unknown[] | string | Uint8Array | null;
}

/** The connection of one call, for answers that are no HTTP, or come late, or never. */
export interface Wire {
  readonly socket: Socket;
  readonly response: ServerResponse;
  /** What would have been sent. */
  readonly answer: Answer;
  /** Aborted when the partner heals or stops, or the caller hangs up. */
  readonly released: AbortSignal;
  /** Sends an answer in the ordinary way. */
  readonly send: (answer: Answer) => void;
  /** An answer as the bytes of HTTP/1.1, with a Content-Length. */
  readonly bytes: (answer: Answer) => Buffer;
}

/** Takes the connection over. What it leaves open is closed at release. */
export type TakeOver = (wire: Wire) => void | Promise<void>;

/** What a hook may give back in place of an answer. */
export type Reply = Answer | TakeOver;

/** A payment as the scripted partner keeps it. Hooks may write to it: that is what they are for. */
export interface StoredPayment {
  /** What it was found by at its creation; a right partner uses platform_payment_id (PF2). */
  readonly key: string;
  payment_id: string;
  platform_payment_id: string;
  platform_batch_id: string;
  biller_id: string;
  account_id: string;
  status: PaymentStatus;
  amount_in_cents: number;
  initiated_at: string;
  posted_at: string | null;
  failure_reason?: string;
  ending: Ending;
  /** Milliseconds of the sandbox's clock since 1970. */
  accepted_ms: number;
}

/** One line of the partner's ledger. */
export interface Posting {
  readonly platform_payment_id: string;
  readonly payment_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  readonly amount_in_cents: number;
  readonly posted_at: string;
}

/** The partner's memory, as hooks see it. */
export interface Insides {
  /** The sandbox's clock: milliseconds since 1970. */
  now(): number;
  /** The same clock as an instant of the wire. */
  instant(): string;
  /** The next number of the seeded sequence, from 0 up to 1. */
  chance(): number;
  /** Every payment ever stored, oldest first. */
  payments(): readonly StoredPayment[];
  postings(): readonly Posting[];
  find(key: string): StoredPayment | undefined;
  account(biller_id: string, account_id: string): SandboxAccount | undefined;
  /** Writes one line to the ledger and lowers the balance; a right partner does it once a payment. */
  post(payment: StoredPayment): void;
  /** Moves a payment, unless it is terminal; `force` moves it whatever it is. */
  end(payment: StoredPayment, ending: Ending, force?: boolean): void;
  /** Moves the clock forward and ends what is then due. */
  advance(ms: number): void;
  /** What the record of a payment says on the wire (decision 3). */
  record(payment: StoredPayment): Record<string, unknown>;
}

type Maybe<T> = T | undefined | Promise<T | undefined>;

/** The hooks, in the order in which a call meets them. */
export interface Behaviour {
  /** Answers in place of the partner, before anything is looked at; undefined goes on. */
  receive?(call: Call, partner: Insides): Maybe<Reply>;
  /** Has the last word on the credential: given the refusal or undefined, gives the one to use. */
  authorize?(call: Call, refusal: Refusal | undefined, partner: Insides): Refusal | undefined;
  /** Has the last word on the body of a PUT; an empty list accepts it. */
  validate?(call: Call, problems: readonly Detail[]): readonly Detail[];
  /** The key by which a payment is deduplicated; the platform's id unless replaced. */
  key?(call: Call, instruction: PaymentInstruction, partner: Insides): string;
  /** Runs between looking for the payment and storing it: awaiting here opens a race. */
  beforeStore?(call: Call, partner: Insides): void | Promise<void>;
  /** Changes a new payment before it is stored. */
  born?(payment: StoredPayment, call: Call, partner: Insides): void;
  /** A PUT found its payment: changes it before it is answered. */
  repeat?(payment: StoredPayment, call: Call, partner: Insides): void;
  /** Runs once a PUT is committed, whether new or repeated, before it is answered. */
  stored?(payment: StoredPayment, call: Call, partner: Insides): void;
  /** A payment has just ended. */
  ended?(payment: StoredPayment, partner: Insides): void;
  /** Replaces an answer before it leaves; undefined leaves it as it is. */
  answer?(call: Call, answer: Answer, partner: Insides): Maybe<Reply>;
}

/** A behaviour that changes every payment record that leaves, in PUT and GET answers alike. */
export function onRecords(
  change: (
    record: Record<string, unknown>,
    call: Call,
    partner: Insides,
  ) => Record<string, unknown>,
): Behaviour {
  return {
    answer(call, answer, partner) {
      const record = recordOf(answer);
      return record === undefined
        ? undefined
        : { ...answer, body: change({ ...record }, call, partner) };
    },
  };
}

/** The payment record in an answer, or undefined when it carries none. */
export function recordOf(answer: Answer): Record<string, unknown> | undefined {
  const { body } = answer;
  if (answer.status !== 200 || typeof body !== 'object' || body === null) return undefined;
  if (Array.isArray(body) || body instanceof Uint8Array) return undefined;
  return 'payment_id' in body ? body : undefined;
}
