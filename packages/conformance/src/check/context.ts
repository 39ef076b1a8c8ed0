/**
 * The context of a check: its findings, and its requests, which wait out a 429, and a 503 that says when to come again. Checks run in
 * parallel, so that a server that takes two seconds a call costs that time only once; at most `Pace.at_once` requests are in
 * progress, and all of them wait.
 */
import type { Json } from '@duebridge/contract';
import type { Call } from '../scripted/behaviour.ts';
import {
  Skipped,
  type Finding,
  type Found,
  type Level,
  type More,
  type MoreAt,
  type Profile,
} from './findings.ts';
import {
  asksToWait,
  asObject,
  isSuccess,
  nothing,
  show,
  tell,
  type Exchange,
  type Outgoing,
  type Reply,
} from './http.ts';
import type { Run } from './run.ts';

/** Longest Retry-After that the judge waits out: many count by the minute. A longer one counts as a refusal. */
const LONGEST_RETRY_AFTER_MS = 60_000;

/** Delay after a refusal that does not say in seconds how long to wait. */
const UNSAID_WAIT_MS = 1_000;

/** How often one request is sent again after a 503 in a row: whoever is too busy for it each time refuses it. */
export const MOST_BUSY = 5;

/** How many times longer an answer may take when many were requested in parallel. */
const BURST_PATIENCE = 4;

export type Headers = Readonly<Record<string, string>>;

/** What can show a finding: an answer, a recorded exchange, or a call that the scripted partner got. */
type At = Reply | Exchange | Call;

/** Headers of a received call that may hold a credential which the judge does not know. */
const CREDENTIALS = ['authorization', 'cookie', 'x-api-key'];

/** What a check gets. */
export class Context<R extends Run = Run> implements Found {
  readonly run: R;
  readonly check: string;
  readonly all: Finding[] = [];
  readonly notes: string[] = [];
  readonly wanting: string[] = [];
  /** The exchanges of the calls that show its findings, by their numbers. */
  readonly #calls = new Map<number, Exchange>();

  constructor(run: R, check: string) {
    this.run = run;
    this.check = check;
  }

  get target(): R['target'] {
    return this.run.target;
  }

  get profile(): Profile {
    return this.run.profile;
  }

  /** Raises a must-finding unless `holds`. Returns `holds`, so that a check can continue or stop. */
  must(holds: boolean, expected: string, at?: At, more?: More): boolean {
    return this.#raise('must', holds, expected, at, more);
  }

  /** Raises a should-finding unless `holds`. */
  should(holds: boolean, expected: string, at?: At, more?: More): boolean {
    return this.#raise('should', holds, expected, at, more);
  }

  /** Raises a should-finding unless `holds`, in the strict profile only: a rule that a decision adds. */
  strict(holds: boolean, expected: string, at?: At, more?: More): boolean {
    return this.#raise('strict', holds, expected, at, more);
  }

  /** Raises a finding when anything bad was found; the first shows it. `got` tells of it, and of how many there are. */
  none<T extends At>(
    found: readonly T[],
    expected: string,
    got?: (one: T, count: number) => string,
    { level = 'must', ...more }: MoreAt = {},
  ): boolean {
    const [one] = found;
    if (one === undefined) return true;
    const told = got === undefined ? more : { got: got(one, found.length), ...more };
    return this.#raise(level, false, expected, one, told);
  }

  /** Raises a finding unless one field of the answer's object is right; it says what the field is. */
  field(
    reply: Reply,
    name: string,
    expected: string,
    holds: (value: Json | undefined) => boolean,
    { level = 'must', ...more }: MoreAt = {},
  ): boolean {
    const fields = isSuccess(reply) ? asObject(reply.json) : undefined;
    const got = fields === undefined ? tell(reply) : `${name} is ${show(fields[name])}`;
    return this.#raise(level, holds(fields?.[name]), expected, reply, { got, ...more });
  }

  /** Raises a finding unless one field of the answer's object has this value. `note` follows it in the expectation. */
  equals(
    reply: Reply,
    name: string,
    wanted: Json | undefined,
    { note = '', ...more }: MoreAt & { readonly note?: string } = {},
  ): boolean {
    return this.field(reply, name, `${name} ${show(wanted)}${note}`, (got) => got === wanted, more);
  }

  /** Says what this run could not look at. In the strict profile it counts as judged in part: what nobody saw is no proof. */
  unseen(what: string): void {
    if (this.profile === 'strict') this.wanting.push(what);
    else this.notes.push(`${what}.`);
  }

  /** Ends the check as SKIP unless `holds`: its precondition. */
  given(holds: boolean, reason: string): asserts holds {
    if (!holds) throw new Skipped(reason);
  }

  /** A call as an exchange that a report can show. */
  #received(call: Call): Exchange {
    const { method, path, text, answer, number } = call;
    const masked = Object.entries(call.headers).map(([name, value]): [string, string] => [
      name,
      CREDENTIALS.includes(name) ? '(masked)' : String(value),
    ]);
    const url = `http://${call.headers.host ?? ''}${path}`;
    const out = { method, url, headers: Object.fromEntries(masked), body: text, received: true };
    const came =
      answer === undefined
        ? nothing('the scripted partner withheld, cut or garbled the response on purpose')
        : { status: answer.status, headers: {}, text: answer.body };
    const exchange =
      this.#calls.get(number) ?? this.run.wire.keep(this.check, out, came, call.at_ms, 0).exchange;
    this.#calls.set(number, exchange);
    return exchange;
  }

  #raise(
    level: Level,
    holds: boolean,
    expected: string,
    at: At | undefined,
    more: More = {},
  ): boolean {
    if (holds || (level === 'strict' && this.profile !== 'strict')) return true;
    const severity = level === 'must' ? level : 'should';
    const isReply = at !== undefined && 'exchange' in at;
    this.all.push({
      severity,
      expected,
      got: isReply ? tell(at) : '',
      ...more,
      ...(at && {
        exchange: isReply ? at.exchange : 'operation' in at ? this.#received(at) : at,
      }),
    });
    return false;
  }

  /**
   * Sends a request unchanged, with no credential but `headers`, which are computed when it is sent, because it may be queued for
   * long. Waits out a 429, or a 503 with Retry-After, unless it is one of a burst: that is sent at once, regardless of others.
   */
  async send(out: Outgoing, headers: () => Promise<Headers> = async () => ({})): Promise<Reply> {
    const { run, check } = this;
    const patience = out.burst === true ? BURST_PATIENCE : 1;
    const send = async (): Promise<Reply> =>
      run.wire.send(check, {
        timeout_ms: run.pace.request_timeout_ms * patience,
        ...out,
        headers: { ...(await headers()), ...out.headers },
      });
    if (out.burst === true) return send();
    for (let busy = 0; ;) {
      const reply = await run.throttle.send(send, run);
      const wait_ms = waitMs(reply);
      if (reply.status !== undefined) run.throttle.saw(wait_ms, run.now());
      if (reply.status === 503) busy += 1;
      if (wait_ms === undefined || run.throttle.refusesAlways || busy > MOST_BUSY) return reply;
    }
  }

  /** Starts this many requests, one every `gap_ms`, without waiting for the previous answer. */
  async paced(
    count: number,
    gap_ms: number,
    send: () => Promise<Reply>,
  ): Promise<readonly Reply[]> {
    const sent: Promise<Reply>[] = [];
    for (let place = 0; place < count; place += 1) {
      if (place > 0) await this.run.sleep(gap_ms);
      const reply = send();
      // When the run ends during a pause, nobody awaits the pending requests; avoid an unhandled rejection.
      reply.catch(() => undefined);
      sent.push(reply);
    }
    return Promise.all(sent);
  }
}

/** How long an answer asks to wait; undefined when it asks for nothing, or for longer than the judge waits. */
export function waitMs(reply: Reply): number | undefined {
  if (reply.status !== 429 && !asksToWait(reply)) return undefined;
  const text = reply.headers['retry-after'] ?? '';
  const ms = /^\d{1,6}$/.test(text) ? Number(text) * 1_000 : UNSAID_WAIT_MS;
  return ms > LONGEST_RETRY_AFTER_MS ? undefined : ms;
}
