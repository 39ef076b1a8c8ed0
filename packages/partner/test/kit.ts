/** Shared by the tests of this package: a partner server on a fresh database, and an HTTP client for it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { createServer, silentLog, systemClock, type Database } from '@duebridge/runtime';
import { testDatabase, type Cleanup, type TestDatabase, until } from '@duebridge/runtime/testing';
import { mountPartnerAdmin } from '../src/admin.ts';
import { Applier, type ApplierOptions } from '../src/apply.ts';
import { importCsv, type CsvKind } from '../src/csv.ts';
import type { PartnerKitOptions } from '../src/kit.ts';
import { partnerKit } from '../src/plugin.ts';
import { importAccounts, ledger, type ImportedAccount } from '../src/ledger.ts';
import { kitMetrics } from '../src/metrics.ts';
import { migrations } from '../src/migrations.ts';
import { insertPayments, type PaymentRow } from '../src/store.ts';

/** The key of test servers, and the headers that carry it. */
export const TEST_KEY = 'a-static-key-for-tests';
export const withKey = { 'x-api-key': TEST_KEY };

/** A fresh database with the kit's tables. */
export function kitDatabase(t: Cleanup, name = 'kit'): Promise<TestDatabase> {
  return testDatabase(t, { migrations, name });
}

/** An applier that runs only when the test calls it, over the kit's own accounts unless told otherwise. */
export function applierOn(database: Database, options: Partial<ApplierOptions> = {}): Applier {
  return new Applier({
    database,
    accounts: ledger(database),
    billers: undefined,
    holdMs: 0,
    announce: () => undefined,
    metrics: kitMetrics(undefined),
    log: silentLog,
    clock: systemClock,
    ...options,
  });
}

/** Accepts payments of 100 cents to A-1 of acme, unless `differences` say otherwise, without applying them. */
export async function accepted(
  database: Database,
  ids: readonly string[],
  differences: Partial<PaymentRow> = {},
): Promise<PaymentRow[]> {
  const rows = await insertPayments(
    database,
    ids.map((platform_payment_id) => ({
      platform_payment_id,
      platform_batch_id: 'b',
      biller_id: 'acme',
      account_id: 'A-1',
      client_id: 'static-key',
      amount_in_cents: 100,
      ...differences,
    })),
  );
  return [...rows.values()];
}

/** A partner server of a test. */
export type TestPartner = Awaited<ReturnType<typeof startKit>>;

/** An answer as received. */
export interface Answer<Body = Record<string, unknown>> {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  // Tests compare the contents of an answer; the wire schema is checked by the tests made for it.
  readonly body: Body;
  readonly text: string;
}

/** Starts a server with the kit on the database, protected by the test key unless `auth` says otherwise. */
export async function startKit(
  database: Database & { closing?: TestDatabase['closing'] },
  options: Partial<PartnerKitOptions> & { connections?: number } = {},
) {
  const { connections = 50, ...kitOptions } = options;
  const app = createServer();
  await app.register(partnerKit, {
    database,
    auth: { method: 'key', header: 'x-api-key', keys: [TEST_KEY] },
    ...kitOptions,
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  let closing: Promise<void> | undefined;
  const closeBoth = async (): Promise<void> => {
    agent.destroy();
    await app.close();
  };
  const close = (): Promise<void> => (closing ??= closeBoth());
  database.closing?.(close);
  return {
    app,
    url,
    close,
    call: callsTo(url, agent),
  };
}

/** What calls a kit over HTTP, with the test key unless `headers` are given. */
export const callsTo =
  (url: string, agent: Agent) =>
  (
    method: string,
    path: string,
    { headers = withKey, body }: { headers?: Record<string, string>; body?: string } = {},
  ): Promise<Answer> =>
    callOver(agent, `${url}${path}`, method, headers, body);

export const ADMIN_KEY = 'admin-key-of-the-tests';

/** Starts a kit and its admin API on a database of their own. */
export async function startAdmin(t: Cleanup, options: Partial<PartnerKitOptions> = {}) {
  const database = await kitDatabase(t);
  const partner = await startKit(database, options);
  const app = createServer();
  mountPartnerAdmin(app, { database, kit: partner.app.partnerKit, adminKey: ADMIN_KEY });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  database.closing(() => app.close());
  return {
    partner,
    database,
    /** Calls `/admin/v1` and the path with the admin key, unless `headers` are given. */
    async call<T = Record<string, unknown>>(
      method: string,
      path: string,
      body?: object,
      headers: Record<string, string> = { authorization: `Bearer ${ADMIN_KEY}` },
    ): Promise<Answer<T>> {
      const sent = body && JSON.stringify(body);
      const answer = await callOver(new Agent(), `${url}/admin/v1${path}`, method, headers, sent);
      return { ...answer, body: answer.body as T };
    },
  };
}

/** One request over real HTTP; header names and values are sent unchanged. */
export async function callOver(
  agent: Agent,
  url: string,
  method: string,
  headers: Record<string, string>,
  body?: string,
): Promise<Answer> {
  const json = body === undefined ? {} : { 'content-type': 'application/json' };
  const asked = httpRequest(url, { method, agent, headers: { ...json, ...headers } }).end(body);
  const [incoming] = (await once(asked, 'response')) as [IncomingMessage];
  const answer = await text(incoming);
  const isJson = incoming.headers['content-type']?.includes('json') ?? false;
  return {
    status: incoming.statusCode ?? 0,
    headers: incoming.headers,
    body: isJson ? (JSON.parse(answer) as Record<string, unknown>) : {},
    text: answer,
  };
}

/** The account most tests pay into: active, owing 1,000.00. */
export const testAccount: ImportedAccount = {
  biller_id: 'acme',
  account_id: 'A-1',
  status: 'active',
  first_name: 'Ada',
  last_name: 'Lovelace',
  amount_due_in_cents: 100_000,
  due_date: '2026-12-01',
};

/** Stores accounts; each is the test account with the given changes. */
export async function haveAccounts(
  database: Database,
  ...differences: Partial<ImportedAccount>[]
): Promise<void> {
  await importAccounts(
    database,
    (differences.length > 0 ? differences : [{}]).map((one) => ({ ...testAccount, ...one })),
  );
}

/** Path of a payment of the test account, or of another one. */
export function paymentPath(id: string, account_id = 'A-1', biller_id = 'acme'): string {
  return `/biller/${biller_id}/account/${account_id}/payment/${id}`;
}

/** A PUT body. */
export function instruction(amount_in_cents = 2_500, platform_batch_id = 'batch-1'): string {
  return JSON.stringify({ amount_in_cents, platform_batch_id });
}

/** Reads a payment with waiting reads until it has ended; fails after 20 of them. */
export async function ended(
  partner: TestPartner,
  id: string,
  path = paymentPath(id),
): Promise<Answer> {
  for (let tried = 0; tried < 20; tried += 1) {
    const answer = await partner.call('GET', path, { headers: { ...withKey, prefer: 'wait=5' } });
    assert.equal(answer.status, 200, answer.text);
    if (answer.body['status'] !== 'processing') return answer;
  }
  assert.fail(`payment ${id} did not end`);
}

/** A payment in processing as the database would hold it, of 100 cents to A-1 of acme unless `differences` say otherwise. */
export function processing(id: string, differences: Partial<PaymentRow> = {}): PaymentRow {
  return {
    platform_payment_id: id,
    payment_id: `there-${id}`,
    platform_batch_id: 'b',
    biller_id: 'acme',
    account_id: 'A-1',
    status: 'processing',
    amount_in_cents: 100,
    initiated_at: '2026-01-01T00:00:00.000Z',
    posted_at: null,
    failure_reason: null,
    ...differences,
  };
}

/** Resolves when everything that follows by promises alone has happened: nothing here takes more turns of the event loop. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) {
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
  }
}

/** Resolves when a session of this database waits for a lock; fails after 20 s. */
export async function untilOneWaits(database: Database): Promise<void> {
  const waits = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
  await until('a wait for a lock', async () => (await database.query(waits)).length > 0);
}

/** What the lines of a file hold. Throws Refusal that names every bad line. */
export async function linesIn<T>(kind: CsvKind<T>, csv: string): Promise<T[]> {
  const lines: T[] = [];
  await importCsv({
    kind,
    open: () => [csv],
    store: async (page) => void lines.push(...page),
    note: async () => undefined,
  });
  return lines;
}
