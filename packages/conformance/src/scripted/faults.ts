/**
 * Ways to fail: what goes wrong on the wire or in an answer, for which calls, and for how many of them. scenarios.ts names them.
 */
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { gzipSync } from 'node:zlib';
import { pause, type Clock } from '../clock.ts';
import {
  recordOf,
  type Answer,
  type Behaviour,
  type Call,
  type Operation,
  type Reply,
  type TakeOver,
  type Wire,
} from './behaviour.ts';
import { textOf } from './requests.ts';
import type { Book } from './state.ts';

/** What a scenario may use of the partner and of who applies it. */
export interface FaultTools {
  readonly clock: Clock;
  /** Takes one faulty answer for this call: returns the number of its variant, or undefined when the call is answered correctly. */
  next(call: Call): number | undefined;
  /** Origin of a second listener that is not this partner: no request may ever reach it. */
  readonly stray: string;
}

/** A fault, how many variants it has, and which calls about a payment meet it. */
export interface Fault {
  /** Builds it for one partner; its state lives in the closure. */
  readonly begin: (tools: FaultTools) => Behaviour;
  /** 1 unless given. */
  readonly variants?: number;
  /** The PUT unless given. */
  readonly on?: 'PUT' | 'GET' | 'both';
}

/** What a faulty answer may be made from. */
interface Moment {
  readonly call: Call;
  readonly tools: FaultTools;
  readonly partner: Book;
}

/** The partner has done its work: `answer` is what it would have sent. */
interface Answered extends Moment {
  readonly answer: Answer;
}

/** One of the answers that a fault gives in turn. */
type Variant<M extends Moment> = Answer | ((moment: M) => Reply | Promise<Reply>);

/** Answers with the connection itself. */
export const takes =
  (takeOver: TakeOver): Variant<Moment> =>
  () =>
    takeOver;

/** Sends nothing and keeps the connection open; the caller's deadline ends the call. */
export const quiet: TakeOver = () => undefined;
export const silence = takes(quiet);

/** RST, as after a crash or from a firewall. */
export const reset: TakeOver = ({ socket }) => void socket.resetAndDestroy();

/** FIN without a byte: an idle connection closed while the request was in transit. */
export const hangUp: TakeOver = ({ socket }) => void socket.destroy();

/** Sends raw bytes, then FIN; they need not be valid HTTP. */
export const sends = (make: (wire: Wire) => string | Buffer): Variant<Moment> =>
  takes((wire) => void wire.socket.end(make(wire)));

/** The head of an HTTP/1.1 response as text. */
export const head = (...lines: string[]): string => `HTTP/1.1 ${lines.join('\r\n')}\r\n\r\n`;
export const JSON_TYPE = 'Content-Type: application/json';

/** Writes chunk after chunk until the caller disconnects. */
export const drip =
  (pieces: (wire: Wire) => Iterable<string | Buffer>, everyMs: number): Variant<Moment> =>
  ({ tools }) =>
  async (wire) => {
    const { socket, released } = wire;
    async function* slowly() {
      for (const piece of pieces(wire)) {
        yield piece;
        if (everyMs > 0) await pause(tools.clock, everyMs, released);
      }
    }
    // The connection stays open after the last chunk. It is destroyed at the release, and a caller that disconnects is no error here.
    await pipeline(slowly, socket, { end: false, signal: released }).catch(() => undefined);
  };

/** Resolves when the signal aborts. */
export async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}

export const json = { 'Content-Type': 'application/json' };

/** A 200 with this body, labelled as JSON. */
export const said = (body: string): Answer => ({ status: 200, headers: json, body });

export const PAGE =
  '<!doctype html><title>Just a moment</title><p>Checking your browser before you go on.</p>';

export const WRITES: readonly Operation[] = ['put_account_payment'];
export const READS: readonly Operation[] = ['get_account_payment', 'get_payment'];
export const PAYMENTS: readonly Operation[] = [...WRITES, ...READS];
export const TOKENS: readonly Operation[] = ['access_token'];

/** The variant whose turn it is; undefined for another operation, or when no faulty answer is due. */
function take<M extends Moment>(
  operations: readonly Operation[],
  variants: readonly Variant<M>[],
  moment: M,
): Reply | Promise<Reply> | undefined {
  if (!operations.includes(moment.call.operation)) return undefined;
  const turn = moment.tools.next(moment.call);
  const variant = turn === undefined ? undefined : variants[turn % variants.length];
  return typeof variant === 'function' ? variant(moment) : variant;
}

/** How many variants a fault has, and which calls meet it. */
const met = (operations: readonly Operation[], variants: readonly unknown[]) =>
  ({
    variants: Math.max(1, variants.length),
    on: operations === WRITES ? 'PUT' : operations === READS ? 'GET' : 'both',
  }) as const;

/** The request never reaches the partner's records. Without variants, calls are only counted. */
export const before = (
  operations: readonly Operation[],
  ...variants: Variant<Moment>[]
): Fault => ({
  ...met(operations, variants),
  begin: (tools) => ({
    receive: (call, partner) => take(operations, variants, { call, tools, partner }),
  }),
});

/** The partner does its work, and only its answer is corrupted. Refusals pass unchanged. */
export const after = (
  operations: readonly Operation[],
  ...variants: Variant<Answered>[]
): Fault => ({
  ...met(operations, variants),
  begin: (tools) => ({
    answer: (call, answer, partner) =>
      answer.status === 200
        ? take(operations, variants, { call, tools, partner, answer })
        : undefined,
  }),
});

type Fields = Record<string, unknown>;

/** Changes fields of the record, or of the token answer; undefined removes a field. */
export const fields =
  (change: Fields | ((record: Fields, call: Call) => Fields)): Variant<Answered> =>
  ({ answer, call }) => {
    const record = answer.body as Fields;
    const changed = typeof change === 'function' ? change(record, call) : change;
    return { ...answer, body: { ...record, ...changed } };
  };

export const otherAmount = (change: (cents: number) => number): Variant<Answered> =>
  fields((record) => ({ amount_in_cents: change(Number(record['amount_in_cents'])) }));

/** The same instant at an offset in minutes, in whole seconds. */
export function atOffset(instant: unknown, minutes: number): unknown {
  if (typeof instant !== 'string') return instant;
  const local = new Date(Date.parse(instant) + minutes * 60_000).toISOString().slice(0, 19);
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const two = (number: number): string => String(number).padStart(2, '0');
  return `${local}${minutes < 0 ? '-' : '+'}${two(hours)}:${two(rest)}`;
}

/** The record as it was before the payment ended. */
export function stillProcessing(record: Fields): Fields {
  const { failure_reason: _reason, ...rest } = record;
  return { ...rest, status: 'processing', posted_at: null };
}

/** That record, as a cache or a node that lags returns it. */
export const stale =
  (headers?: Answer['headers']): Variant<Answered> =>
  ({ answer }) => ({
    status: 200,
    ...(headers && { headers }),
    body: stillProcessing(recordOf(answer) ?? {}),
  });

/** The record's text with the amount in another notation. */
export const amountAs =
  (write: (amount: number) => string): Variant<Answered> =>
  ({ answer }) =>
    said(
      textOf(answer).replace(
        /"amount_in_cents":(\d+)/,
        (_, digits) => `"amount_in_cents":${write(Number(digits))}`,
      ),
    );

export const refuse = (status: number, code: string, headers: Answer['headers'] = {}): Answer => ({
  status,
  headers,
  body: { code, message: 'Injected by the scenario' },
});

/** A 503 with this Retry-After. */
export const busy = (retryAfter: string | string[]): Answer =>
  refuse(503, 'SERVICE_UNAVAILABLE', { 'Retry-After': retryAfter });

export const tooMany = (retryAfter: string): Answer =>
  refuse(429, 'TOO_MANY_REQUESTS', { 'Retry-After': retryAfter });

export const html = (status: number, body: string): Answer => ({
  status,
  headers: { 'Content-Type': 'text/html' },
  body,
});

export const redirect =
  (status: number, to: string | ((moment: Moment) => string) = away): Variant<Moment> =>
  (moment) => ({
    status,
    headers: { Location: typeof to === 'string' ? to : to(moment) },
    body: '',
  });

/** The same path on a host that is not this partner. */
function away({ call, tools }: Moment): string {
  return `${tools.stray}${call.path}`;
}

/** 1 MiB of spaces, compressed to 1 KiB. gzip members can be concatenated, which makes the bomb. */
export const zippedMebibyte = gzipSync(Buffer.alloc(1024 * 1024, ' '));
export const BOMB_MEBIBYTES = 200;

/** More than any caller may read. */
export const HUGE_BODY_BYTES = 100 * 1024 * 1024;
export const CHUNK = Buffer.alloc(64 * 1024, ' ');
