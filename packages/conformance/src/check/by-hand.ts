/**
 * A driver for platforms that only a person can make pay. At the terminal and on a small page, the judge says what to pay next
 * and then asks what status the platform shows its customer. The page also imitates a biller's site: it requests a token from the
 * platform and shows the markup that the platform's SDK needs in a page.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { formatCents, isPaymentStatus, PAYMENT_STATUSES } from '@duebridge/contract';
import { html, Html, htmlAnswer, isForeign } from '../sandbox/html.ts';
import type { Driver } from './driver.ts';
import { isLoopback, type CallerTarget } from './target.ts';
import { tell } from './http.ts';
import { fullBody, identifiers, TokenContext, tokenOf, type TokenRun } from './token-context.ts';

/** How the driver talks to the person. */
export interface Person {
  /** Prints one sentence. */
  readonly say: (sentence: string) => void;
  /** Asks a question and returns the line typed; stops when the signal aborts. Absent where nobody can type. */
  readonly asked?: (question: string, signal: AbortSignal) => Promise<string>;
}

/** Time that a person has to make one payment. */
const PAY_MS = 5 * 60_000;

/** Time that a person has to report the platform's status. */
const ANSWER_MS = 60_000;

/** Minimum time between two questions about the same payment, so that the platform has time to learn something. */
const ASK_AGAIN_MS = 3_000;

/** Interval at which the driver checks for an answer. */
const LOOK_MS = 50;

/** Interval at which the page checks for the next task. */
const REFRESH_SECONDS = '2';

/** Maximum size of the form that the page sends. */
const MAX_FORM_BYTES = 1_000;

interface Question {
  readonly amount_in_cents: number;
  readonly answer: (word: string) => void;
}

/** Opens the page and returns the driver. Rejects when the page cannot listen on the port named by the target. */
export async function openByHand(
  tokens: TokenRun,
  caller: CallerTarget,
  partner_url: string,
  person: Person,
): Promise<Driver> {
  const hand = new Hand(tokens, caller, partner_url, person);
  await hand.listen();
  return hand;
}

class Hand implements Driver {
  readonly at_once = 1;
  readonly arrival_ms = PAY_MS;
  readonly #tokens: TokenRun;
  readonly #caller: CallerTarget;
  readonly #partner_url: string;
  readonly #person: Person;
  readonly #server: http.Server;
  #url = '';
  #asked = 0;
  #due: number | undefined;
  #account_id = '';
  #question: Question | undefined;

  constructor(tokens: TokenRun, caller: CallerTarget, partner_url: string, person: Person) {
    this.#tokens = tokens;
    this.#caller = caller;
    this.#partner_url = partner_url;
    this.#person = person;
    this.#server = http.createServer({ requestTimeout: 30_000 }, (request, response) => {
      void this.#serve(request, response).catch(() => response.destroy());
    });
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(this.#caller.page_port, '127.0.0.1', resolve);
    });
    this.#url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
    this.#person.say(
      `The partner to pay is at ${this.#partner_url}: register it with the platform. This terminal, and the page ${this.#url}, show what to pay.`,
    );
  }

  /** The amount due on the account while the driver waits for a payment: the amount shown to the person. */
  due_in_cents = (): number | undefined => this.#due;

  pay: Driver['pay'] = async (amount_in_cents, account_id = this.#caller.account_id) => {
    const { biller_id } = this.#caller;
    this.#account_id = account_id;
    this.#asked += 1;
    this.#due = amount_in_cents;
    this.#person.say(
      `Now pay ${formatCents(amount_in_cents)} for account ${account_id} of ${biller_id}, within ${PAY_MS / 60_000} minutes.`,
    );
    let next = 0;
    return {
      platform_payment_id: undefined,
      status: async () => {
        if (this.#tokens.now() < next) await this.#tokens.sleep(next - this.#tokens.now());
        const word = await this.#ask(amount_in_cents);
        next = this.#tokens.now() + ASK_AGAIN_MS;
        return word;
      },
    };
  };

  arrived = (): void => {
    this.#due = undefined;
  };

  close = (): void => {
    this.#server.close();
    this.#server.closeAllConnections();
  };

  /** The status that the platform shows its customer, as reported by the person; undefined when not reported. */
  async #ask(amount_in_cents: number): Promise<string | undefined> {
    const question = `Which status does the platform show its customer for the payment of ${formatCents(amount_in_cents)} now? ${PAYMENT_STATUSES.join(', ')}, or Enter if it shows none.`;
    const said: string[] = [];
    const over = new AbortController();
    this.#question = { amount_in_cents, answer: (word) => void said.push(word) };
    if (this.#person.asked === undefined) this.#person.say(question);
    else {
      const typed = this.#person.asked(question, over.signal);
      typed.then(
        (word) => void said.push(word),
        () => undefined,
      );
    }
    try {
      const deadline = this.#tokens.now() + ANSWER_MS;
      while (said.length === 0 && this.#tokens.now() < deadline) await this.#tokens.sleep(LOOK_MS);
    } finally {
      over.abort();
      this.#question = undefined;
    }
    const word = said[0]?.trim().toLowerCase();
    return isPaymentStatus(word) ? word : undefined;
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const send = (status: number, headers: http.OutgoingHttpHeaders, body: string): void => {
      response.writeHead(status, { 'Cache-Control': 'no-store', ...headers }).end(body);
    };
    // Pages of other sites must neither answer for the person nor request tokens.
    const host = (request.headers.host ?? '').replace(/:\d+$/, '');
    if (!isLoopback(host) || isForeign(request.headers)) return send(403, {}, '');
    switch (`${request.method} ${request.url}`) {
      case 'GET /': {
        const page = this.#page();
        const headers = { ...page.headers, Refresh: REFRESH_SECONDS };
        return send(page.status, headers, typeof page.body === 'string' ? page.body : '');
      }
      case 'POST /status': {
        let text = '';
        for await (const piece of request) if (text.length < MAX_FORM_BYTES) text += String(piece);
        this.#question?.answer(new URLSearchParams(text).get('status') ?? '');
        return send(303, { Location: '/' }, '');
      }
      case 'GET /site':
        return send(200, { 'Content-Type': 'text/html; charset=utf-8' }, await this.#site());
      default:
        return send(404, {}, '');
    }
  }

  #page() {
    const { biller_id } = this.#caller;
    const account_id = this.#account_id;
    const question = this.#question;
    const todo =
      question !== undefined
        ? html`<p>
              Which status does the platform show its customer for the payment of
              <b>${formatCents(question.amount_in_cents)}</b> now?
            </p>
            <form method="post" action="/status" class="acts">
              ${PAYMENT_STATUSES.map(
                (word) => html`<button name="status" value="${word}">${word}</button>`,
              )}
              <button name="status" value="">it shows none</button>
            </form>`
        : this.#due === undefined
          ? html`<p>Nothing to do now: the judge is observing the platform.</p>`
          : html`<p>
                Now pay <b>${formatCents(this.#due)}</b> for account <b>${account_id}</b> of
                <b>${biller_id}</b>.
              </p>
              ${
                this.#tokens.target.has_token_endpoint
                  ? html`<p><a href="/site" target="_blank">Open the biller's site</a></p>`
                  : ''
              }`;
    return htmlAnswer(
      'Pay by hand',
      randomBytes(16).toString('base64'),
      html`<h1>Pay by hand</h1>
        ${todo}
        <p>
          Payment ${this.#asked}. The partner to pay is at ${this.#partner_url}; register it with
          the platform.
        </p>`,
    );
  }

  /** The imitation of the biller's site: a token, and the SDK's markup in the page. */
  async #site(): Promise<string> {
    const { site_snippet } = this.#caller;
    const account_id = this.#account_id;
    const due = this.#due ?? 0;
    const context = new TokenContext(this.#tokens, 'driver');
    // A platform may show a customer the payment that is already open, so each visit uses another customer.
    const reply = await context.create({
      ...fullBody(this.#tokens.target),
      email: `ada.${randomUUID().slice(0, 8)}@example.com`,
      balance: { amount_due_in_cents: due },
      external_identifiers: identifiers(this.#tokens.target, account_id),
    });
    const token = tokenOf(reply);
    if (token !== undefined) this.#tokens.wire.hide({ value: token, name: 'TOKEN' });
    const page = html`<!doctype html>
      <html lang="en">
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>A biller's site</title>
        <h1>Account ${account_id}</h1>
        <p>Amount due: ${formatCents(due)}</p>
        ${
          token === undefined
            ? html`<p>The platform issued no token: ${tell(reply)}</p>`
            : site_snippet === undefined
              ? html`<p>
                  Token: <code>${token}</code>. Set caller.site_snippet to the markup that the
                  platform’s SDK needs in this page, with {token} in place of the token.
                </p>`
              : new Html(site_snippet.replaceAll('{token}', html`${token}`.text))
        }
      </html>`;
    return page.text;
  }
}
