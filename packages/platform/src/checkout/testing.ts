/**
 * For the tests of the front: a whole platform over real HTTP and PostgreSQL, beside a partner that does as it is told.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type {
  ClientKeyGrant,
  FlowPayment,
  FlowSession,
  FlowSessionGrant,
  OperatorKeyGrant,
  OperatorRegistration,
  PartnerRegistration,
  PartnerView,
} from '@duebridge/contract';
import { createLogger } from '@duebridge/runtime';
import { served, testDatabase, type Cleanup, type TestDatabase } from '@duebridge/runtime/testing';
import type { PlatformConfig } from '../config.ts';
import { migrations } from '../migrations.ts';
import { startPlatform, type Platform } from '../server.ts';

/** What came back. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The body as JSON; fails the test when it is not. */
  readonly body: Record<string, unknown>;
}

/** One request. */
export interface Sending {
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON; `raw` as it stands. */
  readonly body?: unknown;
  readonly raw?: string;
}

/** A platform under test. */
export interface TestPlatform extends Platform {
  readonly database: TestDatabase;
  readonly dataDirectory: string;
  /** Every line logged so far. */
  readonly logged: string[];
  /** Calls the public listener. */
  call(method: string, path: string, sending?: Sending): Promise<Answer>;
  /** Calls the admin listener, with the admin key unless told otherwise; a text is sent as a CSV file. */
  admin(
    method: string,
    path: string,
    body?: unknown,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Answer>;
  /** Adds an operator with one key. */
  operator(
    operator_id: string,
    role: string,
    more?: Partial<OperatorRegistration>,
  ): Promise<OperatorKeyGrant>;
  /** Registers a partner: a plain biller `water` unless told otherwise. */
  register(partner: TestPartner, change?: Partial<PartnerRegistration>): Promise<PartnerView>;
  /** A fresh client of a partner, as the headers of a token request. */
  credentials(partner_id: string): Promise<Record<string, string>>;
  /** Asks for a token. */
  token(credentials: Record<string, string>, body?: unknown): Promise<Answer>;
  /** Opens a session for an account, with a customer of that name: token and exchange. */
  session(
    credentials: Record<string, string>,
    account_id: string,
    email?: string,
  ): Promise<FlowSessionGrant & { token: string }>;
  /** Confirms 5.00 dollars through the sandbox, or as `change` says, under the id that came with the bill of the session. */
  confirm(session: string, change?: object): Promise<Answer>;
  /** Reads the bill again for the id of the next payment, which the next `confirm` takes. */
  next(session: string): Promise<string>;
  /** Confirms a payment of a customer of its own, through the sandbox. */
  pay(
    credentials: Record<string, string>,
    account_id: string,
    email: string,
    amount_in_cents: number,
  ): Promise<{ readonly id: string; readonly session: string }>;
  /** The payment as its page reads it, once it has ended. */
  ended(session: string, platform_payment_id: string): Promise<FlowPayment>;
}

/** One request to the listener at `base`. */
async function call(
  base: string,
  method: string,
  at: string,
  { headers = {}, body, raw = body === undefined ? undefined : JSON.stringify(body) }: Sending = {},
): Promise<Answer> {
  const response = await fetch(new URL(at, base), {
    method,
    headers: { ...(raw === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
    ...(raw === undefined ? {} : { body: raw }),
  });
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    text,
    get body() {
      return JSON.parse(text) as Record<string, unknown>;
    },
  };
}

const UNLIMITED: PlatformConfig = {
  allowPrivateAddresses: true,
  ipRate: undefined,
  clientRate: { perSecond: 10_000, burst: 10_000 },
};

/** Starts a platform over a database of its own, on free ports. */
export async function startTestPlatform(
  cleanup: Cleanup,
  config: PlatformConfig = {},
): Promise<TestPlatform> {
  const database = await testDatabase(cleanup, { migrations, name: 'front' });
  const directory = await mkdtemp(path.join(tmpdir(), 'duebridge-front-'));
  const logged: string[] = [];
  const platform = await startPlatform({
    port: 0,
    adminPort: 0,
    databaseUrl: database.url,
    dataDirectory: directory,
    sealKey: randomBytes(32).toString('base64'),
    keyPepper: randomBytes(32).toString('base64'),
    ...UNLIMITED,
    log: createLogger({
      name: 'test',
      level: 'debug',
      destination: { write: (line: string) => void logged.push(line) },
    }),
    ...config,
  });
  database.closing(async () => {
    await platform.stop();
    await rm(directory, { recursive: true });
  });

  const admin: TestPlatform['admin'] = (method, at, body, headers = bearer(platform.adminKey)) =>
    call(platform.adminUrl, method, at, {
      headers: {
        ...headers,
        ...(typeof body === 'string' ? { 'content-type': 'text/csv' } : {}),
      },
      ...(typeof body === 'string' ? { raw: body } : body === undefined ? {} : { body }),
    });

  let partners = 0;
  const nextIds = new Map<string, string | undefined>();
  const self: TestPlatform = {
    ...platform,
    database,
    dataDirectory: directory,
    logged,
    call: (method, at, sending) => call(platform.url, method, at, sending),
    admin,
    async operator(operator_id, role, more = {}) {
      const person = { operator_id, name: operator_id, role, ...more };
      await admin('POST', '/admin/v1/operators', person);
      const grant = await admin('POST', `/admin/v1/operators/${operator_id}/keys`, {});
      assert.equal(grant.status, 200, grant.text);
      return grant.body as unknown as OperatorKeyGrant;
    },
    async register(partner, change = {}) {
      partners += 1;
      const kind = change.kind ?? 'biller';
      const { status, body } = await admin('POST', '/admin/v1/partners', {
        partner_id: `partner-${partners}`,
        name: 'Springfield Water',
        kind,
        ...(kind === 'biller' ? { biller_id: 'water' } : {}),
        base_url: partner.url,
        origins: ['https://water.example'],
        auth: { method: 'key', header: 'x-partner-key', key: PARTNER_KEY },
        ...change,
      });
      assert.equal(status, 200, JSON.stringify(body));
      return body as unknown as PartnerView;
    },
    async credentials(partner_id) {
      const { status, body } = await admin('POST', `/admin/v1/partners/${partner_id}/keys`, {});
      assert.equal(status, 200, JSON.stringify(body));
      const { client_id, api_key } = body as unknown as ClientKeyGrant;
      return { 'x-client-id': client_id, 'x-api-key': api_key };
    },
    token: (credentials, body = tokenRequest()) =>
      call(platform.url, 'POST', '/v1/sbi/token', { headers: credentials, body }),
    async session(credentials, account_id, email = 'jo@canary.example') {
      const made = await self.token(credentials, { ...tokenRequest(account_id), email });
      assert.equal(made.status, 200, made.text);
      const token = String(made.body['token']);
      const headers = bearer(token);
      const grant = await self.call('POST', '/v1/flow/session', { headers, body: {} });
      assert.equal(grant.status, 200, grant.text);
      const opened = grant.body as unknown as FlowSessionGrant;
      nextIds.set(opened.session, opened.bill?.next_payment_id);
      return { ...opened, token };
    },
    confirm(session, change) {
      const platform_payment_id = nextIds.get(session);
      const usual = { amount_in_cents: 500, funding_method: 'sandbox_bank', platform_payment_id };
      const body = { ...usual, ...change };
      return self.call('POST', '/v1/flow/payments', { headers: bearer(session), body });
    },
    async next(session) {
      const headers = bearer(session);
      const { body, text } = await self.call('GET', '/v1/flow/session', { headers });
      const { next_payment_id } = body as unknown as FlowSession;
      assert.ok(next_payment_id !== undefined, text);
      nextIds.set(session, next_payment_id);
      return next_payment_id;
    },
    async pay(credentials, account_id, email, amount_in_cents) {
      const { session } = await self.session(credentials, account_id, email);
      const made = await self.confirm(session, { amount_in_cents });
      assert.equal(made.status, 200, made.text);
      return { id: String(made.body['platform_payment_id']), session };
    },
    async ended(session, platform_payment_id) {
      const path = `/v1/flow/payments/${platform_payment_id}`;
      for (const end = Date.now() + 120_000; Date.now() < end; await delay(25)) {
        const answer = await self.call('GET', path, { headers: bearer(session) });
        assert.equal(answer.status, 200, answer.text);
        const payment = answer.body as unknown as FlowPayment;
        if (payment.progress === 'ended') return payment;
      }
      throw new Error(`the payment ${platform_payment_id} has not ended`);
    },
  };
  return self;
}

/** A whole token request, with words in it that must turn up nowhere else. */
export function tokenRequest(account_id = 'a1'): Record<string, unknown> {
  return {
    first_name: 'Josephine-canary',
    last_name: 'Quimby-canary',
    email: 'jo@canary.example',
    phone_number: '+15125550-canary',
    address: {
      address_line_1: '12 Canary Row',
      city: 'Canaryville',
      state: 'TX',
      zip: '78canary',
    },
    balance: {
      amount_due_in_cents: 4_200,
      due_date: '2026-04-30',
      last_updated_at: '2026-04-01T08:00',
    },
    external_identifiers: { account_id },
  };
}

/** A Bearer header. */
export function bearer(secret: string): { authorization: string } {
  return { authorization: `Bearer ${secret}` };
}

/** The key that the scripted partner expects, under `x-partner-key`. */
const PARTNER_KEY = 'partner-key-canary-5f2c';

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
  /** By account id, the body of a 422 to every PUT. */
  readonly refusals: Map<string, object>;
  /** How many different payments it has been given. */
  readonly payments: Map<string, object>;
}

/** Starts a partner. Its accounts `a1` to `a3` exist, with limits from 1.00 to 5,000.00 dollars. */
export async function startTestPartner(cleanup: Cleanup): Promise<TestPartner> {
  const server = createServer((request, response) => {
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
    refusals: new Map<string, object>(),
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
    const refusal = partner.refusals.get(account_id);
    if (request.method === 'PUT' && refusal) return send(422, refusal);
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

  partner.url = await served(cleanup, server);
  return partner;
}
