/** For the tests of the front: a partner that does as it is told. */
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Cleanup } from '@duebridge/runtime/testing';

/** The key that the scripted partner expects, under `x-partner-key`. */
export const PARTNER_KEY = 'partner-key-canary-5f2c';

/** A partner under a test's control. */
export interface TestPartner {
  readonly url: string;
  /** Account records by account id, as answered; what is not in it is 404. */
  readonly accounts: Map<string, object>;
  /** Balances by account id; what is not in it is 404. */
  readonly balances: Map<string, object>;
  /** What is asked for, in order: `GET /biller/…`. */
  readonly asked: string[];
  /** How it answers: as it should, with 500, or never. */
  mode: 'ok' | 'broken' | 'silent';
  /** What a payment becomes; until it is set for an account its payments stay in processing. */
  readonly endings: Map<string, object>;
  /** How many different payments it has been given. */
  readonly payments: Map<string, object>;
}

/** Starts a partner. Its accounts `a1` to `a3` exist, with limits from 1.00 to 5,000.00 dollars. */
export async function startTestPartner(cleanup: Cleanup): Promise<TestPartner> {
  const server = createHttpServer((request, response) => {
    void answer(request, response);
  });
  const accounts = new Map<string, object>();
  const partner = {
    url: '',
    accounts,
    balances: new Map<string, object>(),
    asked: [] as string[],
    mode: 'ok' as TestPartner['mode'],
    endings: new Map<string, object>(),
    payments: new Map<string, object>(),
  };
  for (const account_id of ['a1', 'a2', 'a3']) {
    accounts.set(account_id, {
      biller_id: 'water',
      account_id,
      status: 'active',
      balance: { amount_due_in_cents: 12_345, due_date: '2026-05-01' },
      payment_rules: { min_amount_in_cents: 100, max_amount_in_cents: 500_000 },
    });
  }

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const url = request.url ?? '';
    partner.asked.push(`${request.method} ${url}`);
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const send = (status: number, body: unknown): void => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    if (partner.mode === 'silent') return;
    if (partner.mode === 'broken') return send(500, { code: 'INTERNAL_ERROR', message: 'broken' });
    if (request.headers['x-partner-key'] !== PARTNER_KEY) {
      return send(401, { code: 'UNAUTHORIZED', message: 'no' });
    }
    const [, , biller_id = '', , account_id = '', rest, id = ''] = url
      .split('/')
      .map(decodeURIComponent);
    if (rest === undefined || rest === 'balance') {
      const found = (rest === undefined ? accounts : partner.balances).get(account_id);
      return found === undefined
        ? send(404, { code: 'ACCOUNT_NOT_FOUND', message: 'no such account' })
        : send(200, found);
    }
    if (request.method === 'PUT' && !partner.payments.has(id)) {
      const { amount_in_cents, platform_batch_id } = JSON.parse(text) as Record<string, unknown>;
      partner.payments.set(id, {
        payment_id: `there-${id}`,
        platform_payment_id: id,
        platform_batch_id,
        biller_id,
        account_id,
        amount_in_cents,
        initiated_at: new Date().toISOString(),
      });
    }
    const payment = partner.payments.get(id);
    if (payment === undefined) return send(404, { code: 'PAYMENT_NOT_FOUND', message: 'no' });
    const ending = partner.endings.get(account_id) ?? { status: 'processing', posted_at: null };
    send(200, { ...payment, ...ending });
  };

  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  partner.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  cleanup.after(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => {
      server.close(resolve);
    });
  });
  return partner;
}
