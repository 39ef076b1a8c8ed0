/**
 * A platform that follows a script, and a partner's site beside it: the way to every screen, every
 * problem and every accident of the network. Pages and their headers are served by the platform's own code, the wire is that of the
 * contract; only the decisions are scripted.
 *
 * One port, many names: `pay.localhost` is the platform, any other `*.localhost` a site. Browsers
 * take them for different sites and for secure ones, and need no DNS for them.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import {
  ERRORS,
  type ErrorCode,
  type FlowPayment,
  type FlowPaymentRequest,
  type FlowSession,
  type FlowSessionRequest,
} from '@duebridge/contract';
import { createServer as createPages } from '@duebridge/runtime';
import { png } from '../../packages/platform/test/png.ts';
import type { Partner, PartnerRegistry } from '../../packages/platform/src/partners/registry.ts';
import { servePages } from '../../packages/platform/src/checkout/pages.ts';
import type { Visits } from '../../packages/platform/src/checkout/visit.ts';

/** What a scripted answer can be: an error of the catalogue, a cut line, or silence. */
export type Trouble = ErrorCode | 'cut' | 'hang';

/** One request as the platform saw it. */
export interface Seen {
  readonly host: string;
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** What happens at an operation: by its count (1 is the first), a trouble or nothing. */
export type Plan = (count: number) => Trouble | undefined | Promise<Trouble | undefined>;

/** One test's platform: a partner, its bill, and the plan of what goes wrong. */
export interface World {
  readonly partner: string;
  origins: string[];
  mode: 'test' | 'live';
  bill: FlowSession['account'];
  billerName: string;
  /** The biller's colour and logo, as the platform writes them into the page. */
  look: { readonly colour?: string; readonly logo?: string };
  fundingMethods: FlowSession['funding_methods'];
  /** What else the session says: a payment before, another's payment, a usual time. */
  more: Partial<FlowSession>;
  sessionMs: number;
  /** A script that runs before any other, in the payment page and, where the site is loaded with `?before=PARTNER`, in the site. */
  before: string | undefined;
  /** What a fresh payment has become by the first poll. Empty: it stays processing. */
  outcome: Partial<FlowPayment>[];
  readonly plan: Partial<Record<Operation, Plan>>;
  readonly counts: Record<Operation, number>;
  /** Tokens given out by the site's backend, newest last. */
  readonly tokens: string[];
  readonly sessions: Map<string, { id: string; ended: boolean }>;
  readonly payments: FlowPayment[];
  /** Ends every session now, as time would. */
  endSessions(): void;
  /** Changes the newest payment. */
  change(change: Partial<FlowPayment>): void;
  /** What a page that watches itself (site-visit.ts) has told of errors, of its policy and of tokens in its console. */
  readonly wrong: string[];
  /** Requests to the platform and the site that belong to this world, and all others of its time. */
  readonly seen: Seen[];
}

export type Operation = 'page' | 'token' | 'exchange' | 'read' | 'pay' | 'payment';

export const succeeds: Partial<FlowPayment>[] = [
  { progress: 'accepted', payment_id: 'BP-7781', initiated_at: '2026-03-01T18:00:01.000Z' },
  { status: 'succeeded', progress: 'ended', posted_at: '2026-03-01T18:00:02.000Z' },
];

export type ScriptedFlow = Awaited<ReturnType<typeof startScriptedFlow>>;

/** What is another than in most worlds. */
type Change = Partial<Omit<World, 'partner' | 'plan'>> & { readonly plan?: World['plan'] };

/** Served under any name. */
const LOGO = png(64, 64);

/** Starts it on a free port, with the files that the build put into `dist`. */
export async function startScriptedFlow(dist: string) {
  const worlds = new Map<string, World>();
  const files = new Map<string, string>();
  let port = 0;
  const flow = {
    /** What happens to a request, by its path: a trouble or nothing. For what no world's plan tells: files, and calls of any kind. */
    wire: undefined as
      | ((path: string) => Trouble | undefined | Promise<Trouble | undefined>)
      | undefined,
  };
  const server: Server = createServer((request, response) => {
    void handle(request, response).catch((error: unknown) => {
      response.destroy(error instanceof Error ? error : undefined);
    });
  });
  server.listen(0, 'localhost');
  await once(server, 'listening');
  ({ port } = server.address() as AddressInfo);
  const payOrigin = `http://pay.localhost:${port}`;
  /** The world whose payment page is at a path. */
  const worldOf = (path: string): World | undefined =>
    worlds.get(/^\/flow\/v1\/([^/?]+)$/.exec(path.split('?')[0] ?? '')?.[1] ?? '');
  const pages = createPages();
  pages.addHook('onSend', (request, reply, payload, done) => {
    // A file that a test keeps out comes from no cache.
    reply.header('cache-control', 'no-store');
    const world = worldOf(request.url);
    if (world?.before === undefined) return done(null, payload);
    done(
      null,
      String(payload).replace('<head>', () => `<head>${beforeTag(world.partner)}`),
    );
  });
  servePages(pages, {
    registry: {
      get: (partner_id: string) => {
        const world = worlds.get(partner_id);
        const partner = world && { ...world, ...world.look, partner_id, name: world.billerName };
        return Promise.resolve(partner as unknown as Partner | undefined);
      },
      logo: () => Promise.resolve(LOGO),
    } as unknown as PartnerRegistry,
    visits: { keys: [] } as unknown as Visits,
    dist: pathToFileURL(`${dist}/`),
  });
  await pages.ready();

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const host = (request.headers.host ?? '').split(':')[0] ?? '';
    const path = request.url ?? '/';
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += String(chunk);
    const seen: Seen = { host, path, method: request.method ?? '', headers: request.headers, body };
    for (const world of worlds.values()) world.seen.push(seen);
    if (path.startsWith('/before.js?')) {
      response.writeHead(200, { 'content-type': 'text/javascript; charset=utf-8' });
      response.end(worlds.get(path.split('?')[1] ?? '')?.before);
    } else if (path.startsWith('/wrong?')) {
      worlds.get(path.split('?')[1] ?? '')?.wrong.push(body);
      response.writeHead(204).end();
    } else if (host === 'pay.localhost') await platform(seen, request, response);
    else await site(seen, response);
  }

  async function platform(
    seen: Seen,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    if (isTrouble(await flow.wire?.(seen.path), response)) return;
    if (seen.path.startsWith('/v1/')) return flowApi(seen, response);
    const world = worldOf(seen.path);
    if (world && (await trouble(world, 'page', response))) return;
    // A form opens the page as well; what comes of its fields is tested at the real platform (redirect.test.ts).
    if (seen.method === 'POST')
      Object.assign(request, { method: 'GET', headers: { host: seen.host } });
    // What a script is put into is not compressed.
    if (world?.before !== undefined) delete request.headers['accept-encoding'];
    pages.routing(request, response);
  }

  async function flowApi(seen: Seen, response: ServerResponse): Promise<void> {
    const bearer = /^Bearer (.+)$/.exec(seen.headers.authorization ?? '')?.[1] ?? '';
    const world = worlds.get(bearer.split('_')[1] ?? '');
    if (!world) return refuse(response, 'TOKEN_INVALID');
    if (seen.path === '/v1/flow/session' && seen.method === 'POST') {
      if (await trouble(world, 'exchange', response)) return;
      if (!world.tokens.includes(bearer)) return refuse(response, 'TOKEN_INVALID');
      const asked = JSON.parse(seen.body) as FlowSessionRequest;
      if (!world.origins.includes(asked.origin ?? ''))
        return refuse(response, 'ORIGIN_NOT_ALLOWED');
      const session = `dbs_${world.partner}_${world.sessions.size + 1}`;
      const id = `session-${world.sessions.size + 1}`;
      world.sessions.set(session, { id, ended: false });
      const expires_at = new Date(Date.now() + world.sessionMs).toISOString();
      // With nothing planned for the read the bill comes along, as it does where the biller answers.
      const bill = world.plan.read ? {} : { bill: readAnswer(world, id) };
      return json(response, 200, { session, session_id: id, expires_at, ...bill });
    }
    const session = world.sessions.get(bearer);
    const operation = operationOf(seen);
    if (await trouble(world, operation, response)) return;
    if (!session || session.ended) return refuse(response, 'SESSION_EXPIRED');
    if (operation === 'read') return json(response, 200, readAnswer(world, session.id));
    if (operation === 'pay') {
      const asked = JSON.parse(seen.body) as FlowPaymentRequest;
      if (asked.platform_payment_id === realId(world)) start(world, asked);
    } else {
      const newest = world.payments.at(-1);
      if (!newest) return refuse(response, 'PAYMENT_NOT_FOUND');
      if (newest.progress === 'sending') for (const step of world.outcome) world.change(step);
    }
    return json(response, 200, world.payments.at(-1));
  }

  function readAnswer(world: World, session_id: string): FlowSession {
    return {
      session_id,
      expires_at: new Date(Date.now() + world.sessionMs).toISOString(),
      mode: world.mode,
      partner: { partner_id: world.partner, name: world.billerName },
      biller: { biller_id: 'biller', name: world.billerName },
      account: world.bill,
      funding_methods: world.fundingMethods,
      payment: world.payments.at(-1) ?? null,
      next_payment_id: realId(world),
      ...world.more,
    };
  }

  function start(world: World, asked: FlowPaymentRequest): void {
    world.payments.push({
      platform_payment_id: realId(world),
      payment_id: null,
      status: 'processing',
      progress: 'sending',
      amount_in_cents: asked.amount_in_cents,
      funding_method: asked.funding_method,
      created_at: new Date().toISOString(),
      initiated_at: null,
      posted_at: null,
    });
  }

  /** Carries out what the plan says; true when that was the answer. */
  async function trouble(
    world: World,
    name: Operation,
    response: ServerResponse,
  ): Promise<boolean> {
    world.counts[name] += 1;
    return isTrouble(await world.plan[name]?.(world.counts[name]), response);
  }

  /** The partner's site: its own page, its own script, its own backend; the strictest policy there is. */
  async function site(seen: Seen, response: ServerResponse): Promise<void> {
    const origin = `http://${seen.host}:${port}`;
    const url = new URL(seen.path, origin);
    if (url.pathname === '/token') {
      const world = worlds.get(url.searchParams.get('partner') ?? '');
      if (!world || (await trouble(world, 'token', response))) return;
      const token = `dbt_${world.partner}_${world.tokens.length + 1}`;
      world.tokens.push(token);
      return json(response, 200, { token });
    }
    if (url.pathname.startsWith('/npm/')) return send(response, join(dist, url.pathname));
    const extra = files.get(url.pathname);
    if (extra !== undefined) {
      response.writeHead(200, { 'content-type': 'text/javascript; charset=utf-8' });
      return void response.end(extra);
    }
    if (['/site.js', '/hostile.js'].includes(url.pathname))
      return send(response, join(import.meta.dirname, 'site', url.pathname));
    if (url.pathname === '/hostile') {
      const policy = "default-src 'none'; script-src 'self'";
      response.writeHead(200, { 'content-type': 'text/html', 'content-security-policy': policy });
      const frame = '<!doctype html><title>A frame</title><script src="/hostile.js"></script>';
      return void response.end(frame);
    }
    const frames = [payOrigin, ...url.searchParams.getAll('frame')].join(' ');
    const reports = url.searchParams.has('reports');
    const policy =
      `default-src 'none'; script-src 'self'; connect-src 'self'; ` +
      `frame-src ${url.searchParams.has('noframe') ? "'self'" : frames}${url.searchParams.get('hostile') === null ? '' : ` http://evil.localhost:${port}`}; ` +
      `base-uri 'none'; form-action ${reports ? payOrigin : "'none'"}; ` +
      "require-trusted-types-for 'script'; trusted-types 'none'";
    response.writeHead(200, {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': policy,
      ...(reports
        ? { 'content-security-policy-report-only': "frame-src 'none'; form-action 'none'" }
        : {}),
      ...(url.searchParams.get('coep') === null
        ? {}
        : { 'cross-origin-embedder-policy': 'require-corp' }),
    });
    response.end(
      `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
        `<title>A site</title>${beforeTag(url.searchParams.get('before') ?? undefined)}<script type="module" src="/site.js"></script>` +
        `<h1>Acme Water</h1><button id="open">Pay bill</button><div id="place"></div><a href="#end" id="after">After</a></html>`,
    );
  }

  return Object.assign(flow, {
    port,
    payOrigin,
    /** More files of the sites, by path. */
    files,
    site: (name: string) => `http://${name}.localhost:${port}`,
    world(change: Change = {}): World {
      const partner = `p${worlds.size + 1}`;
      const world: World = {
        partner,
        origins: [`http://acme.localhost:${port}`],
        billerName: 'Acme Water',
        look: {},
        bill: {
          masked_account_id: '••••4417',
          balance: {
            amount_due_in_cents: 12_345,
            due_date: '2099-12-03',
            last_updated_at: '2026-03-01T17:30:00.000Z',
          },
          balance_source: 'partner',
          payment_rules: {},
        },
        fundingMethods: [{ funding_method: 'sandbox', label: 'Test bank account', sandbox: true }],
        more: {},
        sessionMs: 3_600_000,
        before: undefined,
        // As a customer meets it.
        mode: 'live',
        outcome: succeeds,
        counts: { page: 0, token: 0, exchange: 0, read: 0, pay: 0, payment: 0 },
        tokens: [],
        sessions: new Map(),
        payments: [],
        wrong: [],
        seen: [],
        endSessions() {
          for (const session of world.sessions.values()) session.ended = true;
        },
        change(step) {
          const index = world.payments.length - 1;
          const payment = world.payments[index];
          if (!payment) throw new Error('there is no payment to change');
          world.payments[index] = { ...payment, ...step };
        },
        ...change,
        plan: change.plan ?? {},
      };
      worlds.set(partner, world);
      return world;
    },
    async stop(): Promise<void> {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  });
}

/** An id as long as a real one. */
function realId({ partner, payments }: World): string {
  const place = Number(partner.slice(1)) * 1_000 + payments.length + 1;
  return `01a200de-b1b2-7068-8074-${String(place).padStart(12, '0')}`;
}

function beforeTag(partner: string | undefined): string {
  return partner === undefined ? '' : `<script src="/before.js?${partner}"></script>`;
}

function operationOf({ method, path }: Seen): 'read' | 'pay' | 'payment' {
  if (path === '/v1/flow/session') return 'read';
  if (path === '/v1/flow/payments' && method === 'POST') return 'pay';
  return 'payment';
}

function json(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' });
  response.end(JSON.stringify(body));
}

function refuse(response: ServerResponse, code: ErrorCode): void {
  response.setHeader('x-request-id', 'request-4711');
  const { status, message } = ERRORS[code];
  if (status === 503) response.setHeader('retry-after', '0');
  json(response, status, { code, message });
}

/** Carries out a trouble; true when that was the answer. */
function isTrouble(what: Trouble | undefined, response: ServerResponse): boolean {
  if (what === 'cut') response.destroy();
  else if (what !== 'hang' && what !== undefined) refuse(response, what);
  return what !== undefined;
}

/** Sends a script as the platform does: compressed. Every browser of these tests takes that. */
function send(response: ServerResponse, file: string): void {
  let body: Buffer;
  try {
    body = readFileSync(file);
  } catch {
    return refuse(response, 'NOT_FOUND');
  }
  response.writeHead(200, {
    'content-type': 'text/javascript; charset=utf-8',
    'content-encoding': 'gzip',
    'x-content-type-options': 'nosniff',
  });
  response.end(gzipSync(body));
}
