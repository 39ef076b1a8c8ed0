/**
 * A small platform that pays: right, or with one fault. Each fault is a line or two where a right platform does otherwise; callers.ts says
 * what it is and which check catches it. It uses nothing of the judge and nothing of our platform.
 */
import { randomUUID } from 'node:crypto';
import { JsonProblem, parseJson, type Json } from '@duebridge/contract';
import { Agent, request } from 'undici';
import { deadline, sleep } from '../../src/clock.ts';
import type { Driven, Driver } from '../../src/check/drivers.ts';
import { asObject } from '../../src/check/http.ts';
import type { Authentication } from '../../src/check/target.ts';
import { VIRTUAL_CLOCK as CLOCK } from '../virtual-clock.ts';

/**
 * One defect of a platform that pays, or what a right one may do otherwise, by name. A name that nothing below knows changes nothing, and
 * then no check catches it.
 */
export type Way = string | undefined;

/** Delay between two attempts or two polls. */
const STEP_MS = 120;

/** The pause of a platform that polls on at a slow pace: longer than the judge watches each payment. */
const SLOW_STEP_MS = 800;

/** Longest wait for one response. */
const CALL_TIMEOUT_MS = 2_500;

/** The words that end a payment (PF4). */
const ENDS = ['succeeded', 'failed', 'canceled'];

/** Maximum attempts and polls for one payment; after that it is abandoned. */
const MAX_STEPS = 1_000;

/** Creates a small platform that pays, correct without a fault. It stops by itself when `stop` aborts. */
export function smallPlatform(
  authentication: Authentication,
  fault: Way,
  stop: AbortSignal,
): (partner_url: string) => SmallPlatform {
  return (url) => new SmallPlatform(url, authentication, fault, stop);
}

/** The fields of a payment record that this platform knows (decision 3). */
const FIELDS = new Set(
  (
    'payment_id platform_payment_id platform_batch_id biller_id account_id status ' +
    'amount_in_cents initiated_at posted_at failure_reason'
  ).split(' '),
);

/** The result of a call. */
interface Called {
  readonly status: number;
  readonly record: ReturnType<typeof asObject>;
  /** The terminal status that a wrong platform infers from the response. */
  readonly ending?: string;
  readonly isArray?: boolean;
  readonly retry_after_ms: number | undefined;
}

const failed = (status: number): Called => ({
  status,
  record: undefined,
  ending: 'failed',
  retry_after_ms: undefined,
});

function readObject(text: string): ReturnType<typeof asObject> {
  try {
    return asObject(parseJson(text));
  } catch (error) {
    if (error instanceof JsonProblem) return undefined;
    throw error;
  }
}

/** A token that can be sent in a header. */
const USABLE_TOKEN = /^[\x21-\x7e]{1,4096}$/;

/** An unusable token response. */
class NoToken extends Error {}

/** The account that it pays unless told another. */
const ACCOUNT = 'A-1';

/** One row of its table. */
interface SmallPayment {
  id: string;
  readonly account_id: string;
  readonly amount_in_cents: number;
  status: string;
  payment_id: string;
}

export class SmallPlatform implements Driver {
  readonly #url: string;
  readonly #authentication: Authentication;
  readonly #fault: Way;
  readonly #stop: AbortSignal;
  // Real time must not end what waits in virtual time.
  readonly #dispatcher = new Agent({ headersTimeout: 0, bodyTimeout: 0 });
  #token: Promise<string> | undefined;

  constructor(url: string, authentication: Authentication, fault: Way, stop: AbortSignal) {
    this.#url = url;
    this.#authentication = authentication;
    this.#fault = fault;
    this.#stop = stop;
  }

  readonly at_once = 50;
  readonly #payments: SmallPayment[] = [];

  pay = async (amount_in_cents: number, account_id = ACCOUNT): Promise<Driven> => {
    const id =
      this.#fault === 'numbers_by_account'
        ? `pay-${this.#payments.filter((one) => one.account_id === account_id).length + 1}`
        : this.#newId(account_id, amount_in_cents);
    const payment = { id, account_id, amount_in_cents, status: 'processing', payment_id: '' };
    this.#payments.push(payment);
    this.#drive(payment).catch(() => undefined);
    return { platform_payment_id: payment.id, status: async () => payment.status };
  };

  #newId(account_id: string, amount_in_cents: number): string {
    if (this.#fault === 'one_id_for_equal_amounts') return `${account_id}-${amount_in_cents}`;
    if (this.#fault === 'ids_in_capitals') return randomUUID().toUpperCase().replaceAll('-', '');
    if (this.#fault === 'long_ids') return `pay.us-east-1_${randomUUID()}`.padEnd(64, '0');
    return randomUUID();
  }

  async #drive(payment: SmallPayment): Promise<void> {
    const { id, account_id, amount_in_cents } = payment;
    const fault = this.#fault;
    const amount: Readonly<Record<string, unknown>> = {
      dollars: amount_in_cents / 100,
      amount_as_text: String(amount_in_cents),
      adds_a_fee: amount_in_cents + 50,
      a_cent_short: amount_in_cents - 1,
      two_cents_short_above_100_dollars: amount_in_cents - (amount_in_cents > 10_000 ? 2 : 0),
      large_amount_as_text:
        amount_in_cents > 0xffff_ffff ? String(amount_in_cents) : amount_in_cents,
    };
    const bytes = (attempt: number): string =>
      written(fault, {
        amount_in_cents: fault !== undefined && fault in amount ? amount[fault] : amount_in_cents,
        ...(fault === 'no_batch' ? {} : { platform_batch_id: 'batch-of-today' }),
        ...(fault === 'new_bytes_on_retry' ? { attempt } : {}),
        ...(fault === 'other_id_in_the_body' ? { platform_payment_id: randomUUID() } : {}),
        ...(fault === 'customer_in_the_body'
          ? { first_name: 'Ada', email: 'ada@example.com' }
          : {}),
      });
    const end = (status: string): void => void (payment.status = status);
    // Does the partner know it already? Then somebody has paid before.
    if (fault === 'looks_first') {
      const looked = await this.#call('GET', payment);
      await this.#wait(looked?.retry_after_ms ?? 0);
    }
    for (let attempt = 0; attempt < MAX_STEPS; attempt += 1) {
      const other = fault === 'new_id_on_retry' && attempt > 0;
      const sent = { account_id, id: other ? randomUUID() : id };
      const isPosted = attempt > 0 && fault?.startsWith('retries_by_post') === true;
      const reply = await this.#call(isPosted ? 'POST' : 'PUT', sent, bytes(attempt));
      if (reply?.ending !== undefined) return end(reply.ending);
      if (reply?.record !== undefined) {
        const given = reply.record['payment_id'];
        payment.payment_id = typeof given === 'string' ? given : '';
        if (fault === 'believes_the_put') return end('succeeded');
        break;
      }
      const { status } = reply ?? {};
      if (fault === 'conflict_is_accepted' && status === 409) break;
      const failed =
        fault === 'error_is_failure' ||
        (fault === 'not_found_is_failure' && status === 404) ||
        (fault === 'page_is_failure' && status === 200) ||
        (fault === 'redirect_is_failure' && Math.floor((status ?? 0) / 100) === 3);
      if (failed) return end('failed');
      if (fault === 'gives_up' || (fault === 'freezes_an_array' && reply?.isArray === true)) return;
      if (fault === 'gives_up_after_three' && attempt === 2) return;
      const asked = fault === 'ignores_retry_after_on_put' ? 20 : reply?.retry_after_ms;
      await this.#wait(asked ?? (fault === 'retries_at_once' ? 20 : STEP_MS * 2));
    }
    for (let poll = 0; poll < MAX_STEPS; poll += 1) {
      if (fault === 'polls_three_times' && poll === 3) return;
      if (fault === 'polls_once' && poll === 1) return;
      await this.#wait(STEP_MS);
      if (fault === 'floods') {
        for (let more = 0; more < 15; more += 1) this.#call('GET', payment).catch(() => undefined);
      }
      const reply =
        fault === 'polls_by_put'
          ? await this.#call('PUT', payment, bytes(0))
          : await this.#call('GET', payment);
      if (reply?.retry_after_ms !== undefined && fault !== 'ignores_retry_after') {
        await this.#wait(reply.retry_after_ms);
      }
      const record = reply?.record;
      if (reply?.ending !== undefined) return end(reply.ending);
      if (record === undefined && fault === 'poll_error_is_failure') return end('failed');
      if (record === undefined && fault === 'poll_error_stops') return;
      const told = record?.['status'];
      const status = typeof told === 'string' ? this.#understood(told) : undefined;
      if (record === undefined || status === undefined) continue;
      const same =
        record['platform_payment_id'] === id &&
        this.#isAmount(Number(record['amount_in_cents']), amount_in_cents) &&
        (fault === 'ignores_echoes' ||
          (record['account_id'] === account_id &&
            record['platform_batch_id'] === 'batch-of-today' &&
            record['payment_id'] === payment.payment_id));
      if (!same && fault === 'mismatch_is_failure') payment.status = 'failed';
      if ((same && fault !== 'forgets_the_end') || fault === 'believes_status_alone')
        payment.status = status;
      if (fault?.startsWith('polls_once_more') === true) {
        await this.#wait(fault === 'polls_once_more' ? 1_300 : 1_600);
        await this.#call('GET', payment);
        return;
      }
      if (fault === 'polls_slowly_on') await this.#wait(SLOW_STEP_MS);
      else if (fault !== 'polls_on') return;
    }
  }

  /** Whether the amount of a record is that of the payment. */
  #isAmount(given: number, cents: number): boolean {
    if (this.#fault === 'believes_less') return given <= cents;
    if (this.#fault === 'believes_one_percent') return Math.abs(given - cents) <= cents / 100;
    return given === cents || this.#fault?.includes('cents_short') === true;
  }

  /** The terminal status for a status word; undefined if it is not terminal. */
  #understood(word: string): string | undefined {
    if (word === 'canceled' && this.#fault === 'knows_two_words') return undefined;
    if (ENDS.includes(word)) return word;
    if (this.#fault === 'words_without_case' && ENDS.includes(word.toLowerCase())) {
      return word.toLowerCase();
    }
    return this.#fault === 'unknown_word_is_success' && word !== 'processing'
      ? 'succeeded'
      : undefined;
  }

  async #call(
    method: 'PUT' | 'GET' | 'POST',
    payment: Pick<SmallPayment, 'id' | 'account_id'>,
    body?: string,
    renewals = 0,
  ): Promise<Called | undefined> {
    const query =
      this.#fault === 'key_in_address' && this.#authentication.method === 'key'
        ? `?api_key=${this.#authentication.key}`
        : '';
    const account =
      this.#fault === 'folds_account' ? payment.account_id.toLowerCase() : payment.account_id;
    const encoded = (id: string): string =>
      this.#fault === 'encodes_everything'
        ? [...Buffer.from(id)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')
        : encodeURIComponent(id);
    const list = `/biller/judge/account/${encoded(account)}/payment`;
    const isToList = method === 'POST' && this.#fault === 'retries_by_post_to_the_list';
    const path = isToList ? list : `${list}/${encoded(payment.id)}`;
    const held = this.#token;
    const late = deadline(CLOCK, CALL_TIMEOUT_MS);
    try {
      const headers =
        this.#fault === 'no_key_on_polls' && method === 'GET' ? {} : await this.#proof();
      const answer = await request(`${this.#url}${path}${query}`, {
        method,
        headers: {
          ...headers,
          'content-type': this.#fault === 'text_body' ? 'text/plain' : 'application/json',
        },
        ...(body === undefined ? {} : { body }),
        dispatcher: this.#dispatcher,
        signal:
          this.#fault === 'waits_forever' ? this.#stop : AbortSignal.any([this.#stop, late.signal]),
      });
      const to = answer.headers['location'];
      if (this.#fault === 'follows_redirects' && typeof to === 'string') {
        await request(to, { method, headers, signal: this.#stop });
      }
      const text = await answer.body.text();
      const { statusCode: status } = answer;
      if (status === 401 && this.#fault === 'refusal_is_failure') return failed(status);
      if (status === 403 && this.#fault === 'forbidden_is_failure') return failed(status);
      const renews =
        this.#authentication.method === 'oauth' && this.#fault !== 'keeps_a_refused_token';
      const most = this.#fault === 'renews_without_end' ? 1_000 : 1;
      if (status === 401 && renewals < most && renews) {
        // Only a call that still holds the refused token discards it; the others wait for the new one.
        if (this.#token === held || this.#fault === 'token_for_each_call') this.#token = undefined;
        return await this.#call(method, payment, body, renewals + 1);
      }
      const after = answer.headers['retry-after'];
      const seconds =
        this.#fault === 'only_seconds_of_retry_after' ? Number(after) : secondsOf(after);
      const type = String(answer.headers['content-type'] ?? '');
      return {
        status,
        ...this.#read(status, type, text),
        isArray: status === 200 && text.startsWith('['),
        retry_after_ms: seconds >= 0 ? seconds * 1_000 : undefined,
      };
    } catch (error) {
      const fails = ['token_error_is_failure', 'wants_an_expiry'].includes(this.#fault ?? '');
      if (error instanceof NoToken && fails) return failed(0);
      if (this.#stop.aborted && !(error instanceof JsonProblem)) throw error;
      return undefined;
    } finally {
      late.cancel();
    }
  }

  /** The record in a response, or the terminal status that a wrong platform infers from it. */
  #read(status: number, type: string, text: string): Pick<Called, 'record' | 'ending'> {
    const fault = this.#fault;
    if (status !== 200) return { record: undefined };
    if (fault === 'type_is_failure' && !type.startsWith('application/json')) {
      return { record: undefined, ending: 'failed' };
    }
    const record = asObject(
      fault === 'last_key_wins' ? (JSON.parse(text) as Json) : parseJson(text),
    );
    if (record === undefined) return { record };
    if (
      fault === 'times_only_in_z' &&
      !JSON.stringify(record['initiated_at'] ?? '').endsWith('Z"')
    ) {
      return { record: undefined };
    }
    if (fault === 'first_status_in_the_text') {
      return { record: { ...record, status: /"status"\s*:\s*"(\w+)"/.exec(text)?.[1] ?? '' } };
    }
    const { amount_in_cents: amount } = record;
    const needed = ['status', 'amount_in_cents', 'initiated_at'];
    const fails =
      (fault === 'last_key_wins' && record['status'] === 'failed') ||
      (fault === 'amount_text_is_failure' && typeof amount !== 'number' && amount !== undefined) ||
      (fault === 'missing_field_is_failure' && !needed.every((name) => name in record));
    if (fails) return { record, ending: 'failed' };
    if (fault === 'posted_is_success' && typeof record['posted_at'] === 'string') {
      return { record, ending: 'succeeded' };
    }
    const known = Object.keys(record).every((name) => FIELDS.has(name));
    return { record: fault === 'unknown_field_is_no_record' && !known ? undefined : record };
  }

  async #proof(): Promise<Record<string, string>> {
    const authentication = this.#authentication;
    if (authentication.method === 'key') {
      const scheme = this.#fault === 'bearer_key' ? 'Bearer ' : '';
      return { [authentication.header]: scheme + authentication.key };
    }
    const own = this.#fault === 'own_token_for_each_call';
    const token = own || this.#token === undefined ? this.#fetchToken(authentication) : this.#token;
    this.#token = token;
    try {
      // Only injects_headers holds a token with a line feed: what follows is the name and value of another header.
      const [bearer = '', ...injected] = (await token).split(/\r\n|: /);
      const [name, value = ''] = injected;
      return {
        authorization: `Bearer ${bearer}`,
        ...(name === undefined ? {} : { [name]: value }),
      };
    } catch (error) {
      // The refusal holds for all payments for a while: each asking by itself would be too many requests for the partner.
      CLOCK.after(STEP_MS, () => {
        if (this.#token === token) this.#token = undefined;
      });
      throw error;
    }
  }

  async #fetchToken(authentication: Extract<Authentication, { method: 'oauth' }>): Promise<string> {
    const form = {
      grant_type: 'client_credentials',
      client_id: authentication.client_id,
      client_secret: authentication.client_secret,
      ...(this.#fault === 'no_scope' ? {} : { scope: authentication.scope }),
    };
    const json = this.#fault === 'json_form';
    const byHand = Object.entries(form).map(([name, value]) => `${name}=${encodeURI(value)}`);
    const late = deadline(CLOCK, CALL_TIMEOUT_MS);
    const answer = await request(`${this.#url}/oauth/token`, {
      method: 'POST',
      headers: { 'content-type': json ? 'application/json' : 'application/x-www-form-urlencoded' },
      body: json
        ? JSON.stringify(form)
        : this.#fault === 'form_by_hand'
          ? byHand.join('&')
          : new URLSearchParams(form).toString(),
      signal: AbortSignal.any([this.#stop, late.signal]),
    })
      .catch((error: unknown) => {
        throw new NoToken('no answer', { cause: error });
      })
      .finally(late.cancel);
    const to = answer.headers['location'];
    if (this.#fault === 'follows_redirects' && typeof to === 'string') {
      await request(to, { method: 'POST', body: 'secret', signal: this.#stop });
    }
    const text = await answer.body.text();
    const given = answer.statusCode === 200 ? readObject(text) : undefined;
    const { access_token: token, token_type: type, expires_in: expires } = given ?? {};
    const usable = this.#fault === 'injects_headers' ? /^abc\r\n|^\S{1,4096}$/ : USABLE_TOKEN;
    if (typeof token !== 'string' || !usable.test(token)) throw new NoToken('no token');
    if (typeof type !== 'string' || type.toLowerCase() !== 'bearer') throw new NoToken('no bearer');
    if (this.#fault === 'wants_an_expiry' && !(Number.isInteger(expires) && Number(expires) > 0)) {
      throw new NoToken('no expiry');
    }
    if (this.#fault === 'timer_by_expiry' && typeof expires === 'number') {
      this.#renewIn(expires * 1_000, authentication);
    }
    return token;
  }

  /** As a timer of Node: one of more than 2^31 ms fires at once. */
  #renewIn(ms: number, authentication: Extract<Authentication, { method: 'oauth' }>): void {
    CLOCK.after(ms < 2 ** 31 ? ms : 1, () => {
      if (this.#stop.aborted) return;
      this.#token = this.#fetchToken(authentication);
      this.#token.catch(() => undefined);
    });
  }

  #wait(ms: number): Promise<void> {
    return sleep(CLOCK, ms, this.#stop);
  }
}

/** A body, as JSON may be written. */
function written(habit: Way, body: Record<string, unknown>): string {
  if (habit === 'more_fields') {
    return JSON.stringify({ meta: { amount_in_cents: 1 }, ...body, note: 'water "Ñ" 𠮷' });
  }
  if (habit !== 'escapes_its_json') return JSON.stringify(body);
  const escaped = JSON.stringify(Object.fromEntries(Object.entries(body).toReversed()), null, '\t');
  return `\r\n${escaped.replaceAll(/[a-z](?=[^"]*"[:,])/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`)}\n`;
}

/** A Retry-After in seconds or as a date; NaN when there is none. */
function secondsOf(text: unknown): number {
  return /^[0-9]+$/.test(String(text))
    ? Number(text)
    : (Date.parse(String(text)) - CLOCK.now()) / 1_000;
}
