/**
 * What browsers load: the SDK for the partner's page and the hosted payment page with its files.
 *
 * enters: the files that the build of packages/web wrote into its dist folder. leaves: those bytes, with the headers that keep a
 *         framed payment page safe (S1, decision 31).
 * holds:  only the origins registered for a partner may frame its page, and nobody may frame that of an unknown partner; nothing
 *         here reads a token or a session, and no cookie but that of a visit (visit.ts).
 *
 * One file because each page's policy names what that page loads: read apart, the two would drift.
 */
import crypto from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { compileCheck, PartnerId, Refusal } from '@duebridge/contract';
import { builtOnce, sendAsset, toAsset, type Asset, type BuiltFolder } from '@duebridge/runtime';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { cookiesOf, setCookie } from '../cookies.ts';
import type { AdapterPage, FundingAdapter } from '../funding/adapter.ts';
import type { Partner, PartnerRegistry } from '../partners/registry.ts';
import { REPORTING } from './policy-reports.ts';
import { VISIT_SECONDS, type Visit, type Visits } from './visit.ts';

type Headers = Readonly<Record<string, string>>;

interface Release {
  readonly sdk: { readonly file: string };
  readonly flow: { readonly assets: readonly string[] };
}

/** The part of dist/manifest.json that the server uses. */
interface Manifest extends Release {
  readonly flow: {
    readonly html: string;
    readonly assets: readonly string[];
    readonly first_style: string;
    readonly first_script: string;
  };
  readonly releases: readonly Release[];
}

const HTML = 'text/html; charset=utf-8';

/** Filled pages that are kept: one for each partner. */
const MAX_FILLED = 1_000;

const partnerId = compileCheck(PartnerId);

/** Five minutes: a fixed SDK reaches every page soon, and a busy page does not request it on every view. */
const BRIEFLY = { 'Cache-Control': 'public, max-age=300' };
/** The name contains a hash of the content, so the file never changes. */
const FOREVER = { 'Cache-Control': 'public, max-age=31536000, immutable' };

/**
 * Content policy of the payment page without its frame-ancestors. Header, not meta: browsers ignore frame-ancestors there. The
 * inline style and script of the shell are allowed by their hashes; no other inline code runs.
 */
const flowPolicy = ({ flow }: Manifest): string[] => [
  "default-src 'none'",
  `script-src 'self' '${flow.first_script}'`,
  `style-src 'self' '${flow.first_style}'`,
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
  REPORTING.directive,
];

/**
 * Tells the embedding page that the platform is up. The SDK loads it when a payment page stays silent, to tell a refusal from an outage.
 */
const pingScript = "parent.postMessage('duebridge/ping','*')";
const pingPage = `<!doctype html><title>ping</title><script>${pingScript}</script>`;
const pingPolicy = `default-src 'none'; script-src 'sha256-${crypto.hash('sha256', pingScript, 'base64')}'`;

/** Where a processor sends customers back to: this window has done its part, and the payment page asks by itself. */
const RETURN_SCRIPT = 'close()';
const returnPage = `<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Payment</title><p>You can close this window. The payment page continues by itself.<script>${RETURN_SCRIPT}</script>`;
const returnPolicy = `default-src 'none'; script-src 'sha256-${crypto.hash('sha256', RETURN_SCRIPT, 'base64')}'; frame-ancestors 'none'`;

/** The frame of a funding method: its fields fill it, whatever they are. */
const FUNDING_STYLE = 'html,body{margin:0;background:transparent}';

/** Any third-party page may load the SDK, including one under COEP; it contains no secret. */
const sdkHeaders = {
  'Access-Control-Allow-Origin': '*',
  'Cross-Origin-Resource-Policy': 'cross-origin',
  'X-Content-Type-Options': 'nosniff',
};
const NEWEST_SDK = { ...sdkHeaders, ...BRIEFLY };
const PINNED_SDK = { ...sdkHeaders, ...FOREVER };
/** Of a file that our own pages load. */
const ownHeaders = {
  'Cross-Origin-Resource-Policy': 'same-origin',
  'X-Content-Type-Options': 'nosniff',
};
const PINNED_FILE = { ...ownHeaders, ...FOREVER };

/** Nothing of the device, but its wallet for these origins and, with them, ourselves. */
function permissions(wallets: readonly string[]): string {
  const payment =
    wallets.length === 0 ? '' : ['self', ...wallets.map((one) => `"${one}"`)].join(' ');
  return `payment=(${payment}), camera=(), microphone=(), geolocation=()`;
}

const flowHeaders = {
  'Cache-Control': 'no-store',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
  // Without these two a host under COEP shows an empty frame.
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'cross-origin',
  'Permissions-Policy': permissions([]),
};

/** What the routes of the pages share. */
interface Serving {
  readonly registry: PartnerRegistry;
  readonly visits: Visits;
  readonly pages: () => ReturnType<typeof loadPages>;
  readonly funding: ReturnType<typeof fundingFrames>;
}

/**
 * Serves `/sdk/v1/…` and `/flow/…` on `app`. Before the pages are built, these return 503 and say what to run; the APIs do not need
 * them. `dist` ends with a slash.
 */
export function servePages(
  app: FastifyInstance,
  options: {
    registry: PartnerRegistry;
    visits: Visits;
    dist: URL;
    adapters?: readonly FundingAdapter[];
  },
): void {
  const { registry, visits, dist, adapters = [] } = options;
  const pages = builtOnce(dist, (built) => loadPages(built, adapters));
  for (const folder of ['/sdk/v1/', '/flow/assets/', '/flow/fund/']) {
    app.get<{ Params: { file: string } }>(`${folder}:file`, async (request, reply) => {
      const found = (await pages()).files.get(folder + request.params.file);
      if (found === undefined) throw new Refusal('NOT_FOUND');
      return sendAsset(request, reply.headers(found.headers), found.asset);
    });
  }
  app.get<{ Params: { file: string } }>('/flow/logos/:file', async (request, reply) => {
    const image = await registry.logo(request.params.file);
    if (image === undefined) throw new Refusal('NOT_FOUND');
    reply.headers({ ...PINNED_FILE, 'Content-Security-Policy': "default-src 'none'" });
    return reply.type('image/png').send(image);
  });
  for (const [path, html, policy] of [
    ['/flow/ping', pingPage, pingPolicy],
    ['/flow/return', returnPage, returnPolicy],
  ] as const) {
    app.get(path, (_request, reply) =>
      reply
        .headers({ ...flowHeaders, 'Content-Security-Policy': policy })
        .type(HTML)
        .send(html),
    );
  }
  app.get('/flow/keys.json', (_request, reply) => reply.headers(NEWEST_SDK).send(visits.keys));
  const serving = { registry, visits, pages, funding: fundingFrames(adapters) };
  serveFlow(app, serving);
  serveFundingFrames(app, serving);
}

/** The payment page: in a frame of the partner's, or in the tab of a visit. */
function serveFlow(app: FastifyInstance, serving: Serving): void {
  const { visits, pages, funding } = serving;
  /** Filled pages, compressed once for each partner, and again when its registration changes. */
  const kept = new Map<string, Promise<Asset>>();
  const filled = (html: string): Promise<Asset> => {
    const known = kept.get(html) ?? toAsset('flow.html', Buffer.from(html));
    const [oldest] = kept.keys();
    if (kept.size >= MAX_FILLED && oldest !== undefined) kept.delete(oldest);
    kept.set(html, known);
    return known;
  };
  const send = async (
    request: FastifyRequest,
    reply: FastifyReply,
    partner: Partner,
    visit?: OpenedVisit,
  ): Promise<FastifyReply> => {
    const { flowHtml, flowPolicy: policy } = await pages();
    // A visit has the tab to itself: nobody frames it.
    const { origins } = partner;
    const framers = visit !== undefined || origins.length === 0 ? "'none'" : origins.join(' ');
    reply.headers({
      ...REPORTING.header,
      'Content-Security-Policy': `${policy}${funding.policy}; frame-ancestors ${framers}`,
    });
    const html = fillPage(flowHtml, partner, visit);
    // The compressed size of a visit could reveal something about its token.
    if (visit !== undefined) return reply.type(HTML).send(html);
    return sendAsset(request, reply, await filled(html));
  };
  app.get<{ Params: { partner: string }; Querystring: { visit?: string } }>(
    '/flow/v1/:partner',
    async (request, reply) => {
      const partner = await partnerOf(serving, request.params.partner, reply);
      if (partner === undefined) return noPage(reply);
      const { visit: id } = request.query;
      if (id === undefined) return send(request, reply, partner);
      const visit = visits.read(partner.partner_id, id, cookiesOf(request).get(visitCookie(id)));
      // Its hour is over, or the browser keeps no cookies: a payment that was made goes on.
      return send(request, reply, partner, visit ?? { problem: 'token_expired' });
    },
  );

  // The form of a partner's page (display `redirect`). The answer is an address to get, so that a reload or the back button sends
  // no form again.
  app.post<{ Params: { partner: string } }>(
    '/flow/v1/:partner',
    { config: { bodyType: 'application/x-www-form-urlencoded' } },
    async (request, reply) => {
      const partner = await partnerOf(serving, request.params.partner, reply);
      if (partner === undefined) return noPage(reply);
      try {
        const { id, sealed } = visits.begin(partner, request.body, request.headers.origin);
        return await reply
          .header('Set-Cookie', visitCookies(request, partner.partner_id, id, sealed))
          .redirect(`${partner.partner_id}?visit=${id}`, 303);
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        reply.code(error.status);
        const problem = error.code === 'ORIGIN_NOT_ALLOWED' ? 'origin_not_allowed' : 'internal';
        return send(request, reply, partner, { problem, request_id: request.id });
      }
    },
  );
}

/** The partner of a path, with the headers of its pages. */
async function partnerOf(
  { registry, funding }: Serving,
  partner_id: string,
  reply: FastifyReply,
): Promise<Partner | undefined> {
  reply.headers({ ...flowHeaders, ...funding.headers });
  return partnerId.holds(partner_id) ? registry.get(partner_id) : undefined;
}

function serveFundingFrames(app: FastifyInstance, serving: Serving): void {
  const { funding } = serving;
  app.get<{ Params: { partner: string; method: string } }>(
    '/flow/v1/:partner/fund/:method',
    async (request, reply) => {
      const { method } = request.params;
      const partner = await partnerOf(serving, request.params.partner, reply);
      const frame = funding.frames.get(method);
      if (partner === undefined || frame === undefined) return noPage(reply);
      const { page, script } = frame;
      const settings = JSON.stringify({ ...page.settings, funding_method: method });
      return reply
        .header('Content-Security-Policy', fundPolicy(page, partner.origins))
        .type(HTML)
        .send(
          `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Payment details</title><style>${FUNDING_STYLE}</style><meta name="duebridge-fund" content="${escapeAttribute(settings)}"><script type="module" src="../../../..${script}"></script></head><body></body></html>`,
        );
    },
  );
}

/** Where the script of an adapter's frame is served. */
const scriptOf = ({ name }: FundingAdapter): string => `/flow/fund/${name}.js`;

/** What processors' adapters add to the page: a document in a frame of its own, which is loaded when its method is chosen. */
function fundingFrames(adapters: readonly FundingAdapter[]) {
  const frames = new Map(
    adapters.flatMap((adapter) => {
      const { page } = adapter;
      if (page === undefined) return [];
      const asking = adapter.methods().filter(({ asks }) => asks === true);
      return asking.map(
        (one) => [one.funding_method, { page, script: scriptOf(adapter) }] as const,
      );
    }),
  );
  const all = [...frames.values()].map(({ page }) => page);
  const outside = all.some((page) => page.policy['frame-src'] !== undefined);
  const wallets = new Set(all.flatMap((page) => page.wallets ?? []));
  return {
    /** By funding method. */
    frames,
    /** What the payment page's own policy needs. */
    policy: frames.size === 0 ? '' : "; frame-src 'self'",
    // Processors' frames do not opt into COEP, and a page under it could not show them: a site that requires it cannot either.
    headers: {
      ...(outside ? { 'Cross-Origin-Embedder-Policy': 'unsafe-none' } : {}),
      ...(wallets.size > 0 ? { 'Permissions-Policy': permissions([...wallets]) } : {}),
    },
  };
}

/** The frame's policy: closed, and opened by what the adapter names. */
function fundPolicy(page: AdapterPage, framers: readonly string[]): string {
  const closed: Readonly<Record<string, readonly string[]>> = {
    'default-src': ["'none'"],
    'script-src': ["'self'"],
    'style-src': [`'sha256-${crypto.hash('sha256', FUNDING_STYLE, 'base64')}'`],
    'connect-src': [],
    'img-src': ['data:'],
    'frame-src': [],
    'base-uri': ["'none'"],
    'form-action': ["'none'"],
  };
  const directives = new Set([...Object.keys(closed), ...Object.keys(page.policy)]);
  const lines = [...directives].flatMap((name) => {
    const sources = [...(closed[name] ?? []), ...(page.policy[name] ?? [])];
    return sources.length === 0 ? [] : [`${name} ${sources.join(' ')}`];
  });
  return [...lines, `frame-ancestors 'self' ${framers.join(' ')}`.trim()].join('; ');
}

function noPage(reply: FastifyReply): FastifyReply {
  return reply
    .code(404)
    .header('Content-Security-Policy', "default-src 'none'; frame-ancestors 'none'")
    .type('text/plain; charset=utf-8')
    .send('There is no payment page at this address.\n');
}

/** A visit as its page is told of it, or why there is none. */
type OpenedVisit = Visit | { readonly problem: string; readonly request_id?: string };

/** Visits of one customer to one partner at a time, beside a new one. */
const KEPT_VISITS = 2;
const visitCookie = (id: string): string => `duebridge_visit_${id}`;
const VISIT_COOKIE = /^duebridge_visit_[A-Za-z0-9_-]{16}$/;

/** Sets the cookie of a new visit, and ends those of all but a few: browsers send the oldest first, and all would fill the headers. */
function visitCookies(
  request: FastifyRequest,
  partner_id: string,
  id: string,
  sealed: string,
): string[] {
  // Lax: the customer comes from the partner's site.
  const cookie = (name: string, value: string, seconds: number): string =>
    setCookie(request, { name, path: `/flow/v1/${partner_id}`, sameSite: 'Lax' }, value, seconds);
  const others = [...cookiesOf(request).keys()].filter((name) => VISIT_COOKIE.test(name));
  return [
    cookie(visitCookie(id), sealed, VISIT_SECONDS),
    ...others.slice(0, -KEPT_VISITS).map((name) => cookie(name, '', 0)),
  ];
}

/** Fills the shell's placeholders, each inside a double-quoted attribute. */
function fillPage(
  html: string,
  { partner_id, mode, origins, name, support_contact, colour, logo }: Partner,
  visit: OpenedVisit | undefined,
): string {
  // Replacer functions: in a replacement text `$` would mean something.
  return html
    .replace('__ORIGINS__', () => escapeAttribute(JSON.stringify(origins)))
    .replace('__PARTNER__', () => escapeAttribute(partner_id))
    .replace('__MODE__', () => mode)
    .replace('__VISIT__', () => escapeAttribute(visit === undefined ? '' : JSON.stringify(visit)))
    .replace('__BILLER__', () =>
      escapeAttribute(
        JSON.stringify({
          name,
          contact: support_contact ?? undefined,
          colour: colour ?? undefined,
          logo: logo ?? undefined,
        }),
      ),
    );
}

function escapeAttribute(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('"', '&quot;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;');
}

/** All build output, held in memory: under 200 kB. */
async function loadPages(
  { manifest: built, asset, text }: BuiltFolder,
  adapters: readonly FundingAdapter[],
) {
  const manifest = built as Manifest;
  const { sdk, flow } = manifest;
  const releases = [...manifest.releases, manifest];
  const files: (readonly [path: string, asset: Promise<Asset>, headers: Headers])[] = [
    ...releases.map(
      ({ sdk: { file } }) => [`/sdk/v1/${file}`, asset(`sdk/${file}`), PINNED_SDK] as const,
    ),
    ...releases
      .flatMap((one) => one.flow.assets)
      .map((file) => [`/flow/assets/${file}`, asset(`flow/${file}`), PINNED_FILE] as const),
    ['/sdk/v1/duebridge.js', asset(`sdk/${sdk.file}`), NEWEST_SDK],
    ['/sdk/v1/manifest.json', asset('manifest.json'), NEWEST_SDK],
  ];
  for (const adapter of adapters) {
    if (adapter.page === undefined) continue;
    const script = readFile(adapter.page.script).then((bytes) => toAsset('fund.js', bytes));
    files.push([scriptOf(adapter), script, { ...ownHeaders, ...BRIEFLY }]);
  }
  const loaded = files.map(
    async ([path, loading, headers]) => [path, { asset: await loading, headers }] as const,
  );
  return {
    /** By address: what changes at it (the newest SDK, the list of what may be pinned), and what is pinned (decision 87). */
    files: new Map(await Promise.all(loaded)),
    flowHtml: await text(`flow/${flow.html}`),
    flowPolicy: flowPolicy(manifest).join('; '),
  };
}
