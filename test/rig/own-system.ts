/**
 * A biller's own system behind two kits. It keeps accounts and books each payment once, as the contract of the account service
 * asks, and records violations by the kits: one id in two concurrent calls, or a payment with another amount.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import { listen } from '../support/listening.ts';

/** What it booked. */
export interface Booked {
  readonly id: string;
  readonly cents: number;
  readonly posted_at: string;
}

/** The system. It runs in the rig, because it is never killed. */
export class OwnSystem {
  readonly booked = new Map<string, Booked>();
  /** Violations by the kit, in words. */
  readonly complaints: string[] = [];
  /** Chance that the answer to a booking is lost. */
  lostAnswer = 0;
  readonly #random: () => number;
  readonly #server: Server;
  readonly #underWay = new Set<string>();

  constructor(random: () => number) {
    this.#random = random;
    this.#server = createServer((request, response) => {
      void this.#serve(request, response);
    });
  }

  /** Listens on a free local port and returns the URL. */
  async listen(): Promise<string> {
    return `http://127.0.0.1:${await listen(this.#server)}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const answer = await this.#answer(request);
    if (answer === undefined) {
      request.socket.destroy();
      return;
    }
    response.writeHead(answer.status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(answer.body));
  }

  async #answer(request: IncomingMessage): Promise<{ status: number; body: unknown } | undefined> {
    const path = request.url ?? '';
    const account = /^\/accounts\/([^/]+)\/([^/]+)$/.exec(path);
    if (account !== null) {
      const [, biller_id, account_id] = account;
      return { status: 200, body: { biller_id, account_id, status: 'active' } };
    }
    const known = /^\/payments\/([^/]+)$/.exec(path);
    if (known !== null) {
      const booked = this.booked.get(known[1] ?? '');
      return booked === undefined
        ? { status: 404, body: { code: 'PAYMENT_NOT_FOUND', message: 'Payment not found' } }
        : { status: 200, body: { outcome: 'posted', posted_at: booked.posted_at } };
    }
    const { platform_payment_id: id, amount_in_cents: cents } = JSON.parse(
      await textOf(request),
    ) as {
      platform_payment_id: string;
      amount_in_cents: number;
    };
    if (this.#underWay.has(id)) this.complaints.push(`${id} was posted by two calls at once`);
    this.#underWay.add(id);
    // A killed kit disconnects: its call ends when the kit notices, not when we answer.
    const hungUp = (): boolean => this.#underWay.delete(id);
    request.socket.once('close', hungUp);
    await pause(5 + this.#random() * 60);
    const before = this.booked.get(id);
    if (before !== undefined && before.cents !== cents) {
      this.complaints.push(`${id} was posted with ${before.cents} cents, then with ${cents}`);
    }
    const booked = before ?? { id, cents, posted_at: new Date().toISOString() };
    this.booked.set(id, booked);
    this.#underWay.delete(id);
    request.socket.off('close', hungUp);
    if (this.#random() < this.lostAnswer) return undefined;
    return { status: 200, body: { outcome: 'posted', posted_at: booked.posted_at } };
  }
}

async function textOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts).toString('utf8');
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
