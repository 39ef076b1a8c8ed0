/**
 * The hooks by which the scripted partner can be made to misbehave, and their arguments. A wrong partner is an object of a few
 * lines; an absent hook means correct behaviour.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Detail, Json, PaymentInstruction, Refusal, partnerRoutes } from '@duebridge/contract';
import type { Book, StoredPayment } from './state.ts';

/** An operation of the partner, or `unknown` for an unknown path or method. */
export type Operation = keyof typeof partnerRoutes | 'unknown';

/** One request as it arrived, credentials included, and what was answered. */
export interface Call {
  /** Counts from 1 over the partner's lifetime. */
  readonly number: number;
  /** Counts the TCP connections; equal numbers mean the same connection. */
  readonly connection: number;
  /** Requests that came before it on the same connection. */
  readonly earlier: number;
  /** Aborted when the caller disconnects, or the partner heals or stops. */
  readonly released: AbortSignal;
  readonly operation: Operation;
  readonly method: string;
  /** Path and query as sent. */
  readonly path: string;
  /** Path fields, decoded. */
  readonly params: Readonly<Record<string, string>>;
  readonly headers: IncomingMessage['headers'];
  /** The body's bytes as text; empty without a body. */
  readonly text: string;
  /** The parsed body; undefined when there was none or it was not JSON. */
  body: Json | undefined;
  /** Milliseconds of the partner's clock. */
  readonly at_ms: number;
  /** What was sent; undefined until it is answered, and for connections taken over. */
  answer: { readonly status: number; readonly body: string } | undefined;
}

/** The answer. A body that is an object is sent as JSON; text and bytes are sent unchanged. */
export interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: Record<string, unknown> | readonly unknown[] | string | Uint8Array | null;
}

/** The connection of one call, for answers that are not HTTP, late, or missing. */
export interface Wire {
  readonly socket: Socket;
  readonly response: ServerResponse;
  /** The answer that would have been sent. */
  readonly answer: Answer;
  /** As Call.released. */
  readonly released: AbortSignal;
  /** Sends an answer normally. */
  readonly send: (answer: Answer) => void;
  /** An answer as the bytes of HTTP/1.1, with a Content-Length. */
  readonly bytes: (answer: Answer) => Buffer;
}

/** Takes the connection over. If it is still open at release, it is closed then. */
export type TakeOver = (wire: Wire) => void | Promise<void>;

/** What a hook may return instead of an answer. */
export type Reply = Answer | TakeOver;

type Maybe<T> = T | undefined | Promise<T | undefined>;

/** The hooks, in the order in which they are called. */
export interface Behaviour {
  /** Answers instead of the partner, before anything is checked; undefined continues. */
  receive?(call: Call, partner: Book): Maybe<Reply>;
  /** Final decision on the credential: takes the refusal or undefined, returns the one to use. */
  authorize?(call: Call, refusal: Refusal | undefined, partner: Book): Refusal | undefined;
  /** Final decision on the body of a PUT; an empty list accepts it. */
  validate?(call: Call, problems: readonly Detail[]): readonly Detail[];
  /** The key by which a payment is deduplicated; the platform's id by default. */
  key?(call: Call, instruction: PaymentInstruction, partner: Book): string;
  /** Runs between looking up the payment and storing it: awaiting here creates a race. */
  beforeStore?(call: Call, partner: Book): void | Promise<void>;
  /** Changes a new payment before it is stored. */
  born?(payment: StoredPayment, call: Call, partner: Book): void;
  /** A PUT found an existing payment: changes the payment before the answer. */
  repeat?(payment: StoredPayment, call: Call, partner: Book): void;
  /** A payment has just ended. */
  ended?(payment: StoredPayment, partner: Book): void;
  /** Replaces an answer before it is sent; undefined leaves it unchanged. */
  answer?(call: Call, answer: Answer, partner: Book): Maybe<Reply>;
}

/** Several behaviours as one: the first reply is taken, and each decision is handed to the next. */
export function together(of: (call?: Call) => readonly Behaviour[]): Required<Behaviour> {
  return {
    async receive(call, partner) {
      for (const one of of(call)) {
        const reply = await one.receive?.(call, partner);
        if (reply !== undefined) return reply;
      }
      return undefined;
    },
    authorize: (call, refusal, partner) =>
      of(call).reduce(
        (last, one) => (one.authorize === undefined ? last : one.authorize(call, last, partner)),
        refusal,
      ),
    validate: (call, problems) =>
      of(call).reduce((last, one) => one.validate?.(call, last) ?? last, problems),
    key: (...given) =>
      of(given[0]).reduce(
        (last, one) => one.key?.(...given) ?? last,
        given[0].params['platform_payment_id'] ?? '',
      ),
    async beforeStore(call, partner) {
      for (const one of of(call)) await one.beforeStore?.(call, partner);
    },
    born: (...given) => of(given[1]).forEach((one) => one.born?.(...given)),
    repeat: (...given) => of(given[1]).forEach((one) => one.repeat?.(...given)),
    ended: (...given) => of().forEach((one) => one.ended?.(...given)),
    async answer(call, answer, partner) {
      let reply: Reply = answer;
      for (const one of of(call)) {
        if (typeof reply === 'function') break;
        reply = (await one.answer?.(call, reply, partner)) ?? reply;
      }
      return reply;
    },
  };
}

/** A behaviour that changes every payment record sent, in PUT and GET answers alike. */
export function onRecords(
  change: (record: Record<string, unknown>, call: Call, partner: Book) => Record<string, unknown>,
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
