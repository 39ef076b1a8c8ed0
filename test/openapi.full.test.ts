/**
 * The API documents are good for what strangers use them for: a public linter passes them, and a client that a public generator
 * makes from them, as the running servers serve them, drives a payment to its end.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import {
  partnerAdminRoutes,
  partnerRoutes,
  platformAdminRoutes,
  platformRoutes,
  renderOpenApi,
  type AccessTokenReply,
  type AccountImportResult,
  type AccountRecord,
  type Balance,
  type BatchStatement,
  type ClientKeyGrant,
  type FlowPayment,
  type FlowSession,
  type FlowSessionGrant,
  type PartnerView,
  type PaymentRecord,
  type TokenReply,
} from '@duebridge/contract';
import { partnerOpenApi, startPartner } from '@duebridge/partner';
import { startPlatform } from '@duebridge/platform';
import { ensureDatabase, openDatabase, silentLog } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { importTool } from '../scripts/tool.ts';

const root = join(import.meta.dirname, '..');
const { generateApi, linter } = await importTool<{
  /** Makes a client from an OpenAPI document. */
  readonly generateApi: (options: object) => Promise<{
    files: readonly { readonly fileExtension: string; readonly fileContent: string }[];
  }>;
  /** The program of a public linter. */
  readonly linter: string;
}>('checks', 'openapi');
const info = {
  title: 'duebridge',
  description: 'As rendered.',
  version: '1',
  servers: [{ url: '/', description: 'This host.' }],
};

/** Every document that the route tables make; what is served is added by the test below. */
const rendered: Readonly<Record<string, object>> = {
  'partner-oauth': renderOpenApi(partnerRoutes, info),
  'partner-key': partnerOpenApi('X-Biller-Key'),
  'partner-admin': renderOpenApi(partnerAdminRoutes, info),
  platform: renderOpenApi(platformRoutes, info),
  'platform-admin': renderOpenApi(platformAdminRoutes, info),
};

/** One finding of the linter. */
interface Finding {
  readonly ruleId: string;
  readonly severity: string;
  readonly message: string;
  readonly location: readonly { readonly pointer: string }[];
}

/** Lints documents by name; gives every finding, warnings included. The linter is a process of its own and needs no network. */
async function lint(documents: Readonly<Record<string, object>>): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-openapi-'));
  try {
    const findings: string[] = [];
    for (const [name, document] of Object.entries(documents)) {
      const file = join(folder, `${name}.json`);
      await writeFile(file, JSON.stringify(document));
      findings.push(...(await lintFile(file)).map((finding) => `${name}: ${finding}`));
    }
    return findings;
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function lintFile(file: string): Promise<string[]> {
  const config = join(root, 'test/redocly.yaml');
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [linter, 'lint', `--config=${config}`, '--format=json', file],
    {
      env: { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
    },
  ).catch((error: unknown) => {
    // Findings make it exit with 1, and stand on its standard output all the same.
    if (error instanceof Error && 'stdout' in error) return { stdout: String(error.stdout) };
    throw error;
  });
  const { problems } = JSON.parse(stdout) as { problems: Finding[] };
  return problems.map(
    ({ ruleId, severity, message, location }) =>
      `${severity} ${ruleId}: ${message} (${location[0]?.pointer ?? ''})`,
  );
}

test('the linter of our API documents finds a fault if there is one', async () => {
  const broken = structuredClone(rendered['platform'] ?? {}) as { paths: Record<string, object> };
  broken.paths['/v1/sbi/token'] = { post: { responses: {} } };
  const findings = await lint({ broken });
  assert.ok(
    findings.some((finding) => finding.startsWith('broken: error ')),
    findings.join('\n'),
  );
});

test('a public linter has no finding in the API documents of either side', async () => {
  assert.deepEqual(await lint(rendered), []);
});

// A generated client -------------------------------------------------------------------------------------------------------

/** As much of a generated client as the test uses: each operation answers the parsed body as `data`, and throws what is not 2xx. */
interface Answer<T> {
  readonly data: T;
}

type Call<T> = (...args: readonly unknown[]) => Promise<Answer<T>>;

interface PartnerClient {
  readonly oauth: { readonly accessToken: Call<AccessTokenReply> };
  readonly biller: {
    readonly getAccount: Call<AccountRecord>;
    readonly getBalance: Call<Balance>;
    readonly putAccountPayment: Call<PaymentRecord>;
    readonly getAccountPayment: Call<PaymentRecord>;
  };
  readonly payment: { readonly getPayment: Call<PaymentRecord> };
  readonly batch: { readonly getBatchStatement: Call<BatchStatement> };
}

interface PlatformClient {
  readonly v1: {
    readonly createToken: Call<TokenReply>;
    readonly createFlowSession: Call<FlowSessionGrant>;
    readonly getFlowSession: Call<FlowSession>;
    readonly createFlowPayment: Call<FlowPayment>;
    readonly getFlowPayment: Call<FlowPayment>;
  };
}

interface PartnerAdminClient {
  readonly admin: { readonly importAccounts: Call<AccountImportResult> };
}

interface PlatformAdminClient {
  readonly admin: {
    readonly addPartner: Call<PartnerView>;
    readonly issueKey: Call<ClientKeyGrant>;
  };
}

/** Makes a client whose every request carries the headers that `headers` gives. */
type MakeClient<T> = (headers: () => Readonly<Record<string, string>>) => T;

/** Fetches the document that a server serves, lints it as served, and generates a client from it. */
async function clientOf<T>(t: TestContext, baseUrl: string): Promise<MakeClient<T>> {
  const spec = (await (await fetch(`${baseUrl}/openapi.json`)).json()) as object;
  assert.deepEqual(await lint({ served: spec }), []);
  const { files } = await generateApi({
    spec,
    fileName: 'client.ts',
    output: false,
    toJS: true,
    silent: true,
  });
  const program = files.find((file) => file.fileExtension === '.js');
  assert.ok(program);
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-client-'));
  t.after(() => rm(folder, { recursive: true }));
  const file = join(folder, 'client.mjs');
  await writeFile(file, program.fileContent);
  const { Api } = (await import(pathToFileURL(file).href)) as { Api: new (options: object) => T };
  return (headers) =>
    new Api({
      baseUrl,
      baseApiParams: { secure: true },
      securityWorker: () => ({ headers: headers() }),
    });
}

/** Closes what a test opened, the last first. */
type Closers = (() => Promise<unknown>)[];

/** Makes a database for one server; it is dropped when the test ends. */
async function makeDatabase(closers: Closers, name: string): Promise<string> {
  const server = await testServer();
  const database = `${name}_${randomBytes(6).toString('hex')}`;
  const url = await ensureDatabase(server.url, database);
  closers.push(async () => {
    const admin = openDatabase({ url: server.url, applicationName: name, maxConnections: 1 });
    await admin.query(`DROP DATABASE ${database} WITH (FORCE)`);
    await admin.close();
    await server.stop();
  });
  return url;
}

const random32 = (): string => randomBytes(32).toString('base64');

test('clients generated from the served API documents drive a payment to its end [S1 S2 S4 A1 B1 B2 B3 B4 B5 OA2 TK1]', async (t) => {
  const closers: Closers = [];
  t.after(async () => {
    for (const close of closers.toReversed()) await close();
  });
  const client_secret = randomBytes(16).toString('hex');
  const partner = await startPartner({
    auth: { method: 'oauth', clients: [{ client_id: 'platform', secrets: [client_secret] }] },
    databaseUrl: await makeDatabase(closers, 'openapi_partner'),
    port: 0,
    adminPort: 0,
    adminKey: random32(),
  });
  closers.push(() => partner.stop());
  const platform = await startPlatform({
    databaseUrl: await makeDatabase(closers, 'openapi_platform'),
    port: 0,
    adminPort: 0,
    adminKey: random32(),
    sealKey: random32(),
    keyPepper: random32(),
    allowPrivateAddresses: true,
    log: silentLog,
  });
  closers.push(() => platform.stop());

  const bearer = (key: string) => () => ({ Authorization: `Bearer ${key}` });
  const partnerAdmin = await clientOf<PartnerAdminClient>(t, partner.adminUrl);
  const books = partnerAdmin(bearer(partner.adminKey));
  const csv = 'biller_id,account_id,amount_due\nwater,a-1,25.00\n';
  assert.equal((await books.admin.importAccounts({ csv })).data.created, 1);

  // The partner, by a client of its own, as the platform of somebody else would have it.
  let access_token = '';
  const partnerOperations = await clientOf<PartnerClient>(t, partner.url);
  const theirs = partnerOperations(() => (access_token === '' ? {} : bearer(access_token)()));
  const form = { grant_type: 'client_credentials', client_id: 'platform', client_secret };
  ({ access_token } = (await theirs.oauth.accessToken(form)).data);
  assert.equal((await theirs.biller.getAccount('water', 'a-1')).data.status, 'active');
  const put = await theirs.biller.putAccountPayment('water', 'a-1', 'pay-1', {
    amount_in_cents: 500,
    platform_batch_id: 'batch-1',
  });
  assert.equal(put.data.amount_in_cents, 500);
  const waited = await theirs.biller.getAccountPayment('water', 'a-1', 'pay-1', {
    headers: { Prefer: 'wait=10' },
  });
  assert.equal(waited.data.status, 'succeeded');
  assert.equal((await theirs.biller.getBalance('water', 'a-1')).data.amount_due_in_cents, 2000);
  assert.equal((await theirs.payment.getPayment('pay-1')).data.payment_id, put.data.payment_id);
  assert.equal((await theirs.batch.getBatchStatement('batch-1')).data.count, 1);

  // The platform, by clients of the operator, of the partner's site and of the payment page.
  const platformAdmin = await clientOf<PlatformAdminClient>(t, platform.adminUrl);
  const operator = platformAdmin(bearer(platform.adminKey));
  await operator.admin.addPartner({
    partner_id: 'water-bills',
    name: 'Water Bills',
    kind: 'aggregator',
    base_url: partner.url,
    origins: [],
    auth: {
      method: 'oauth',
      token_url: `${partner.url}/oauth/token`,
      client_id: 'platform',
      client_secret,
    },
  });
  const { client_id, api_key } = (await operator.admin.issueKey('water-bills', {})).data;
  const platformOperations = await clientOf<PlatformClient>(t, platform.url);
  const site = platformOperations(() => ({ 'X-Client-Id': client_id, 'X-Api-Key': api_key }));
  const { token } = (
    await site.v1.createToken({
      first_name: 'Ada',
      last_name: 'Example',
      email: 'ada@example.com',
      phone_number: '+15125550100',
      address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
      external_identifiers: { biller_id: 'water', account_id: 'a-1' },
    })
  ).data;
  let credential = token;
  const page = platformOperations(() => bearer(credential)());
  credential = (await page.v1.createFlowSession({})).data.session;
  const bill = (await page.v1.getFlowSession()).data;
  assert.equal(bill.account.balance?.amount_due_in_cents, 2000);
  const confirmed = (
    await page.v1.createFlowPayment({ amount_in_cents: 2000, funding_method: 'sandbox_bank' })
  ).data;
  const ended = await untilEnded(page, confirmed.platform_payment_id);
  assert.equal(ended.status, 'succeeded');
  const record = (await theirs.payment.getPayment(confirmed.platform_payment_id)).data;
  assert.deepEqual(
    [record.status, record.amount_in_cents, record.posted_at],
    ['succeeded', 2000, ended.posted_at],
  );
  assert.equal((await theirs.biller.getBalance('water', 'a-1')).data.amount_due_in_cents, 0);
});

/** Reads the payment until it has ended; gives up after a time that no healthy pair of servers needs. */
async function untilEnded(page: PlatformClient, id: string): Promise<FlowPayment> {
  const until = performance.now() + 20_000;
  for (;;) {
    const payment = (await page.v1.getFlowPayment(id)).data;
    if (payment.progress === 'ended') return payment;
    assert.ok(performance.now() < until, `still ${payment.status}`);
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
  }
}
