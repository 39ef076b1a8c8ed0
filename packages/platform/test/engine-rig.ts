/**
 * What the engine's tests stand on: a small partner over real HTTP whose every answer a test may replace, and an engine with
 * short times over a fresh database.
 */
import assert from 'node:assert/strict';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import { parseJson, type PartnerRegistration } from '@duebridge/contract';
import { silentLog, systemClock, type Database, type Log } from '@duebridge/runtime';
import { served, testDatabase, until, type Cleanup } from '@duebridge/runtime/testing';
import { batchFor } from '../src/reconciliation/batch.ts';
import { Engine } from '../src/engine/engine.ts';
import type { FundingAdapter, PreparedOrder } from '../src/funding/adapter.ts';
import { Funds } from '../src/funding/funds.ts';
import type { FundingCallOptions } from '../src/funding.ts';
import { sandbox } from '../src/funding/sandbox.ts';
import { migrations } from '../src/migrations.ts';
import { createPartnerClient } from '../src/partners/client.ts';
import type { Reply } from '../src/partners/http-call.ts';
import { openSealer } from '../src/partners/seal.ts';
import { openPartnerRegistry } from '../src/partners/registry.ts';
import { findPayment, insertPayment, type PaymentRow } from '../src/store/payments.ts';
import type { Writer } from '../src/store/steps.ts';

/** A sealing key of the tests: 32 bytes in base64. */
export const SEAL_KEY = Buffer.alloc(32, 7).toString('base64');

/** An answer in JSON, as the client of partners gives it. */
export function reply(status: number, json: unknown): Reply {
  const parsed = json === undefined ? undefined : parseJson(JSON.stringify(json));
  const rest = { problem: undefined, retryAfter: undefined, waited: false };
  return { kind: 'reply', status, json: parsed, ...rest };
}

/** A request as the scripted partner saw it. */
export interface Seen {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: string;
  readonly at: number;
}

/** An answer: JSON with a status, or whatever the test does with the response itself. */
export type Answer =
  | { readonly status?: number; readonly json?: unknown; readonly headers?: Record<string, string> }
  | ((response: ServerResponse) => void | Promise<void>);

/** A payment as the scripted partner holds it. */
export type Held = Record<string, unknown> & { status: string; platform_payment_id: string };

/** A partner that keeps payments in memory and lets a test replace any answer. */
export interface ScriptedPartner {
  readonly url: string;
  readonly seen: Seen[];
  readonly payments: Map<string, Held>;
  /** Payments posted: how often each was created here. */
  readonly created: string[];
  /** Replaces the answer to a request; undefined leaves it to the partner. */
  script: (
    request: Seen,
    partner: ScriptedPartner,
  ) => Answer | undefined | Promise<Answer | undefined>;
  /** Polls of one payment before it has ended; default 1: the second finds the end. */
  pollsToEnd: number;
  /** The payment_id that the partner gives to a payment it takes. */
  paymentIdOf: (platform_payment_id: string) => string;
  /** What the partner does when it is asked rightly. */
  right(request: Seen): { readonly status?: number; readonly json: object };
}

/** Starts a scripted partner on a free port. */
export async function scriptedPartner(cleanup: Cleanup): Promise<ScriptedPartner> {
  const polls = new Map<string, number>();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const seen: Seen = {
        method: request.method ?? '',
        path: request.url ?? '',
        headers: request.headers,
        rawHeaders: request.rawHeaders,
        body: Buffer.concat(chunks).toString('utf8'),
        at: performance.now(),
      };
      partner.seen.push(seen);
      void (async () => {
        const answer: Answer = (await partner.script(seen, partner)) ?? partner.right(seen);
        if (typeof answer === 'function') {
          await answer(response);
          return;
        }
        const text = JSON.stringify(answer.json ?? {});
        response.writeHead(answer.status ?? 200, {
          'content-type': 'application/json',
          ...answer.headers,
        });
        response.end(text);
      })();
    });
  });
  const partner: ScriptedPartner = {
    url: '',
    seen: [],
    payments: new Map(),
    created: [],
    script: () => undefined,
    pollsToEnd: 1,
    paymentIdOf: (id) => `P-${id}`,
    right(request) {
      const parts = request.path.split('?')[0]?.split('/').map(decodeURIComponent) ?? [];
      const at = parts.indexOf('payment');
      const id = parts[at + 1] ?? '';
      if (request.path.startsWith('/oauth/token')) {
        return {
          json: {
            access_token: 'token-1',
            token_type: 'Bearer',
            expires_in: 3600,
            scope: 'read write',
          },
        };
      }
      if (request.method === 'PUT') {
        const body = JSON.parse(request.body) as Record<string, unknown>;
        let held = partner.payments.get(id);
        if (held === undefined) {
          held = {
            payment_id: partner.paymentIdOf(id),
            platform_payment_id: id,
            platform_batch_id: body['platform_batch_id'],
            biller_id: parts[parts.indexOf('biller') + 1],
            account_id: parts[parts.indexOf('account') + 1],
            status: 'processing',
            amount_in_cents: body['amount_in_cents'],
            initiated_at: new Date().toISOString(),
            posted_at: null,
          };
          partner.payments.set(id, held);
          partner.created.push(id);
        }
        return { json: held };
      }
      const held = partner.payments.get(id);
      if (held === undefined)
        return { status: 404, json: { code: 'PAYMENT_NOT_FOUND', message: 'no' } };
      const count = (polls.get(id) ?? 0) + 1;
      polls.set(id, count);
      if (held.status === 'processing' && count > partner.pollsToEnd) {
        held.status = 'succeeded';
        held['posted_at'] = new Date().toISOString();
      }
      return { json: held };
    },
  };
  return Object.assign(partner, { url: await served(cleanup, server) });
}

/** A worker that writes now. */
export function writer(worker_id: string): Writer {
  return { worker_id, at: new Date().toISOString() };
}

/** Puts a worker that lives, but does nothing, on the list, and gives it these slots. */
export async function idleWorker(
  database: Database,
  worker_id: string,
  slots: readonly number[],
): Promise<void> {
  await database.query('INSERT INTO duebridge_platform.workers (worker_id) VALUES ($1)', [
    worker_id,
  ]);
  await database.query('UPDATE duebridge_platform.slots SET worker_id = $1 WHERE slot = ANY($2)', [
    worker_id,
    slots,
  ]);
}

/** How the funds of a payment stand. */
export async function stateOfFunds(database: Database, id: string): Promise<string | undefined> {
  const [row] = await database.query<{ state: string }>(
    'SELECT state FROM duebridge_platform.funds WHERE platform_payment_id = $1',
    [id],
  );
  return row?.state;
}

/** Times short enough for a test, long enough for a busy machine. */
export const SHORT_TIMES = {
  leaseMs: 5_000,
  beatMs: 200,
  stopMs: 500,
  pausedMs: 100,
  trialMs: 200,
  retryMs: 20,
  maxRetryMs: 500,
  bugPauseMs: 100,
  pollMs: 20,
  callsEndMs: 20,
} as const;

/** A log that keeps its lines. */
export function keptLog(): Log & {
  readonly lines: { level: string; details: object; message: string }[];
} {
  const lines: { level: string; details: object; message: string }[] = [];
  const keep = (level: string) => (details: object, message: string) => {
    lines.push({ level, details, message });
  };
  return {
    lines,
    debug: keep('debug'),
    info: keep('info'),
    warn: keep('warn'),
    error: keep('error'),
  };
}

/** Its one method collects elsewhere, so that nothing is reserved. */
const LEDGER: FundingAdapter = {
  name: 'ledger',
  methods: () => [
    { funding_method: 'ledger', label: 'Ledger', sandbox: true, collection: 'elsewhere' },
  ],
  authorize: () => Promise.reject(new Error('asked for an authorization')),
  capture: () => Promise.reject(new Error('asked for a capture')),
  void: () => Promise.reject(new Error('asked for a release')),
  refund: () => Promise.reject(new Error('asked for a refund')),
};

/** The funding port over the sandbox, whose acts are noted in `asked` by payment, and over a ledger whose funds nobody has to ask for. */
export function sandboxFunds(database: Database, asked = new Map<string, string[]>()): Funds {
  const noting = (act: 'authorize' | 'capture' | 'void' | 'refund') => ({
    [act]: (order: PreparedOrder, call: FundingCallOptions) => {
      const acts = asked.get(order.platform_payment_id) ?? [];
      if (!acts.includes(act)) asked.set(order.platform_payment_id, [...acts, act]);
      return sandbox[act](order, call);
    },
  });
  const acts = { ...noting('authorize'), ...noting('capture'), ...noting('void') };
  return new Funds({
    database,
    sealer: openSealer(SEAL_KEY),
    clock: systemClock,
    log: silentLog,
    adapters: [{ ...sandbox, ...acts, ...noting('refund') }, LEDGER],
  });
}

/** An engine's surroundings. */
export type EngineRig = Awaited<ReturnType<typeof engineRig>>;

/** What a test's payment may have of its own. */
export interface PayOptions {
  readonly amount_in_cents: number;
  readonly account_id: string;
  readonly funding_method: string;
  readonly slot: number;
}

/** Everything an engine needs, over a fresh database. */
export async function engineRig(
  cleanup: Cleanup,
  options: { log?: Log; url?: never; icuLocale?: string } = {},
) {
  const { icuLocale } = options;
  const database = await testDatabase(cleanup, {
    migrations,
    name: 'engine',
    ...(icuLocale === undefined ? {} : { icuLocale }),
  });
  const log = options.log ?? silentLog;
  const registry = openPartnerRegistry({
    database,
    sealKey: SEAL_KEY,
    allowPrivateAddresses: true,
    clock: systemClock,
  });
  const client = createPartnerClient({
    registry,
    clock: systemClock,
    log,
    allowPrivateAddresses: true,
  });
  database.closing(() => client.close());
  const asked = new Map<string, string[]>();
  const funding = sandboxFunds(database, asked);
  return {
    database,
    registry,
    client,
    funding,
    /** What the sandbox was asked for each payment, each act once. */
    asked,
    /** An engine of its own worker over the same database; stopped before the database goes. */
    engine(more: Partial<ConstructorParameters<typeof Engine>[0]> = {}): Engine {
      const engine = new Engine({
        database,
        registry,
        client,
        funding,
        clock: systemClock,
        log,
        ...more,
        options: { ...SHORT_TIMES, ...more.options },
      });
      database.closing(() => engine.stop());
      return engine;
    },
    /** Registers a partner with a static key. */
    async register(
      partner_id: string,
      base_url: string,
      more: Partial<PartnerRegistration> = {},
    ): Promise<void> {
      await registry.add(
        {
          partner_id,
          name: 'A biller',
          kind: 'biller',
          biller_id: 'acme',
          base_url,
          origins: [],
          budget: { call_timeout_ms: 1_000, wait_seconds: 0 },
          auth: { method: 'key', header: 'x-api-key', key: 'partner-key-0123456789' },
          ...more,
        },
        'test',
      );
    },
    /** Commits a payment owned by the engine and hands it over. */
    async pay(
      engine: Engine,
      partner_id: string,
      more: Partial<PayOptions> = {},
    ): Promise<PaymentRow> {
      const partner = await registry.get(partner_id);
      assert(partner);
      const order = {
        funding_method: more.funding_method ?? 'sandbox_bank',
        amount_in_cents: more.amount_in_cents ?? 12_345,
      };
      const platform_batch_id = await batchFor(database, partner, Date.now());
      const row = await database.transaction((tx) =>
        insertPayment(tx, {
          partner_id,
          biller_id: partner.biller_id ?? 'acme',
          account_id: more.account_id ?? 'ACC-1',
          platform_batch_id,
          ...order,
          ...(more.slot === undefined
            ? engine.placeForNew(partner, order)
            : { slot: more.slot, stage: 'created' }),
          actor: 'test',
        }),
      );
      engine.take(row);
      return row;
    },
    /** Waits until the payment is as wanted. */
    until: (id: string, wanted: (row: PaymentRow) => boolean): Promise<PaymentRow> =>
      until(`payment ${id} as it is wanted`, async () => {
        const row = await findPayment(database, id);
        assert(row);
        return wanted(row) && row;
      }),
  };
}

/** The database, with something done around the statement of a name, or of a text that begins so. */
export function around(
  database: Database,
  name: string,
  wrap: (run: () => Promise<unknown[]>) => Promise<unknown[]>,
): Database {
  return {
    ...database,
    query: <Row>(
      statement: Parameters<Database['query']>[0],
      values?: readonly unknown[],
    ): Promise<Row[]> => {
      const run = (): Promise<Row[]> => database.query<Row>(statement, values);
      const is =
        typeof statement === 'string' ? statement.startsWith(name) : statement.name === name;
      return is ? (wrap(run) as Promise<Row[]>) : run();
    },
  };
}
