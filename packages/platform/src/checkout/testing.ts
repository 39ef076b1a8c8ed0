/**
 * For the tests of the front: a whole platform over real HTTP and PostgreSQL, beside a partner that does as it is told.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
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
import { ACQUIRE_MS, testDatabase, type Cleanup } from '@duebridge/runtime/testing';
import { scriptedPartner } from '../../test/engine-rig.ts';
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
export type TestPlatform = Awaited<ReturnType<typeof startTestPlatform>>;

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
  databaseAcquireMs: ACQUIRE_MS,
};

/** Starts a platform over a database of its own, on free ports. */
export async function startTestPlatform(cleanup: Cleanup, config: PlatformConfig = {}) {
  const database = await testDatabase(cleanup, { migrations, name: 'front' });
  const directory = await mkdtemp(path.join(tmpdir(), 'duebridge-front-'));
  /** Every line so far. */
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

  return { ...platform, database, dataDirectory: directory, logged, ...callsTo(platform) };
}

/** Calls to the admin listener, with the admin key unless told otherwise; a text is sent as a CSV file. */
function adminOf(platform: Platform) {
  return (
    method: string,
    at: string,
    body?: unknown,
    headers: Readonly<Record<string, string>> = bearer(platform.adminKey),
  ): Promise<Answer> =>
    call(platform.adminUrl, method, at, {
      headers: {
        ...headers,
        ...(typeof body === 'string' ? { 'content-type': 'text/csv' } : {}),
      },
      ...(typeof body === 'string' ? { raw: body } : body === undefined ? {} : { body }),
    });
}

/** What operators, partners and pages ask of a platform. */
function callsTo(platform: Platform) {
  const admin = adminOf(platform);
  let partners = 0;
  const nextIds = new Map<string, string | undefined>();
  const self = {
    /** Calls the public listener. */
    call: (method: string, at: string, sending?: Sending): Promise<Answer> =>
      call(platform.url, method, at, sending),
    admin,
    /** Adds an operator with one key. */
    async operator(
      operator_id: string,
      role: string,
      more: Partial<OperatorRegistration> = {},
    ): Promise<OperatorKeyGrant> {
      const person = { operator_id, name: operator_id, role, ...more };
      await admin('POST', '/admin/v1/operators', person);
      const grant = await admin('POST', `/admin/v1/operators/${operator_id}/keys`, {});
      assert.equal(grant.status, 200, grant.text);
      return grant.body as unknown as OperatorKeyGrant;
    },
    /** Registers a partner: a plain biller `water` unless told otherwise. */
    async register(
      partner: TestPartner,
      change: Partial<PartnerRegistration> = {},
    ): Promise<PartnerView> {
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
    /** A fresh client of a partner, as the headers of a token request. */
    async credentials(partner_id: string): Promise<Record<string, string>> {
      const { status, body } = await admin('POST', `/admin/v1/partners/${partner_id}/keys`, {});
      assert.equal(status, 200, JSON.stringify(body));
      const { client_id, api_key } = body as unknown as ClientKeyGrant;
      return { 'x-client-id': client_id, 'x-api-key': api_key };
    },
    /** Asks for a token. */
    token: (credentials: Record<string, string>, body: unknown = tokenRequest()): Promise<Answer> =>
      call(platform.url, 'POST', '/v1/sbi/token', { headers: credentials, body }),
    /** Opens a session for an account, with a customer of that name: token and exchange. */
    async session(
      credentials: Record<string, string>,
      account_id: string,
      email = 'jo@canary.example',
    ): Promise<FlowSessionGrant & { token: string }> {
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
    /** Confirms 5.00 dollars through the sandbox, or as `change` says, under the id that came with the bill of the session. */
    confirm(session: string, change?: object): Promise<Answer> {
      const platform_payment_id = nextIds.get(session);
      const usual = { amount_in_cents: 500, funding_method: 'sandbox_bank', platform_payment_id };
      const body = { ...usual, ...change };
      return self.call('POST', '/v1/flow/payments', { headers: bearer(session), body });
    },
    /** Reads the bill again for the id of the next payment, which the next `confirm` takes. */
    async next(session: string): Promise<string> {
      const headers = bearer(session);
      const { body, text } = await self.call('GET', '/v1/flow/session', { headers });
      const { next_payment_id } = body as unknown as FlowSession;
      assert.ok(next_payment_id !== undefined, text);
      nextIds.set(session, next_payment_id);
      return next_payment_id;
    },
    /** Confirms a payment of a customer of its own, through the sandbox. */
    async pay(
      credentials: Record<string, string>,
      account_id: string,
      email: string,
      amount_in_cents: number,
    ): Promise<{ readonly id: string; readonly session: string }> {
      const { session } = await self.session(credentials, account_id, email);
      const made = await self.confirm(session, { amount_in_cents });
      assert.equal(made.status, 200, made.text);
      return { id: String(made.body['platform_payment_id']), session };
    },
    /** The payment as its page reads it, once it has ended. */
    async ended(session: string, platform_payment_id: string): Promise<FlowPayment> {
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
export type TestPartner = Awaited<ReturnType<typeof startTestPartner>>;

/** Starts a partner. Its accounts `a1` to `a3` exist, with limits from 1.00 to 5,000.00 dollars. */
export async function startTestPartner(cleanup: Cleanup) {
  const scripted = await scriptedPartner(cleanup);
  scripted.pollsToEnd = Infinity;
  scripted.paymentIdOf = (id) => `there-${id}`;
  const usual = {
    biller_id: 'water',
    status: 'active',
    balance: { amount_due_in_cents: 12_345, due_date: '2026-05-01' },
    payment_rules: { min_amount_in_cents: 100, max_amount_in_cents: 500_000 },
  };
  const partner = {
    url: scripted.url,
    /** Account records by account id, as answered; what is not in it is 404. */
    accounts: new Map<string, object>(
      ['a1', 'a2', 'a3'].map((account_id) => [account_id, { account_id, ...usual }]),
    ),
    /** Balances by account id; what is not in it is 404. */
    balances: new Map<string, object>(),
    /** What is asked for, in order: `GET /biller/…`. */
    asked: [] as string[],
    /** How it answers: as it should, with 500, or never. */
    mode: 'ok' as 'ok' | 'broken' | 'silent',
    /** What a payment becomes; until it is set for an account its payments stay in processing. */
    endings: new Map<string, object>(),
    /** By account id, the body of a 422 to every PUT. */
    refusals: new Map<string, object>(),
    /** How many different payments it has been given. */
    payments: scripted.payments as Map<string, object>,
  };
  scripted.script = (request) => {
    partner.asked.push(`${request.method} ${request.path}`);
    // Never answered.
    if (partner.mode === 'silent') return () => undefined;
    if (partner.mode === 'broken')
      return { status: 500, json: { code: 'INTERNAL_ERROR', message: 'broken' } };
    if (request.headers['x-partner-key'] !== PARTNER_KEY)
      return { status: 401, json: { code: 'UNAUTHORIZED', message: 'no' } };
    const [, , , , account_id = '', rest] = request.path.split('/').map(decodeURIComponent);
    if (rest === undefined || rest === 'balance') {
      const found = (rest === undefined ? partner.accounts : partner.balances).get(account_id);
      return found === undefined
        ? { status: 404, json: { code: 'ACCOUNT_NOT_FOUND', message: 'no such account' } }
        : { json: found };
    }
    const refusal = partner.refusals.get(account_id);
    if (request.method === 'PUT' && refusal) return { status: 422, json: refusal };
    const { status, json } = scripted.right(request);
    return status === undefined
      ? { json: { ...json, ...partner.endings.get(account_id) } }
      : { status, json };
  };
  return partner;
}
