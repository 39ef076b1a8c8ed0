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

/** All build output, held in memory: under 200 kB. */
interface Pages {
  /** What changes at its address: the newest SDK and script of `redirect`, and the lists of what may be pinned. */
  readonly sdkNewest: ReadonlyMap<string, Asset>;
  /** The pinned addresses: this build's, and every release's (decision 87). */
  readonly sdkFiles: ReadonlyMap<string, Asset>;
  readonly flowHtml: string;
  readonly flowPolicy: string;
  readonly flowAssets: ReadonlyMap<string, Asset>;
}

interface Script {
  readonly file: string;
  readonly sri: string;
}

interface Release {
  readonly version: string;
  /** With the script of `redirect`, since there is one. */
  readonly sdk: Script & { readonly redirect?: Script };
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

/** Where the build of @duebridge/web writes, in the workspace and in an installed package. */
const builtPages = new URL('./dist/', import.meta.resolve('@duebridge/web/package.json'));

/** Five minutes: a fixed SDK reaches every page soon, and a busy page does not request it on every view. */
const SDK_CACHE = 'public, max-age=300';
/** The name contains a hash of the content, so the file never changes. */
const IMMUTABLE_CACHE = 'public, max-age=31536000, immutable';

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
  readonly pages: () => Promise<Pages>;
  readonly funding: ReturnType<typeof openFundingFrames>;
  /** Of every page that a partner's site may show. */
  readonly headers: Readonly<Record<string, string>>;
  /** The page with what belongs to a partner; compressed once for each partner, and again when its registration changes. */
  readonly filled: (html: string) => Promise<Asset>;
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
    dist?: URL;
    adapters?: readonly FundingAdapter[];
  },
): void {
  const { registry, visits, dist = builtPages, adapters = [] } = options;
  const funding = openFundingFrames(adapters);
  const kept = new Map<string, Promise<Asset>>();
  const serving: Serving = {
    registry,
    visits,
    pages: builtOnce(dist, loadPages),
    funding,
    headers: { ...flowHeaders, ...funding.headers },
    filled(html) {
      const known = kept.get(html) ?? toAsset('flow.html', Buffer.from(html));
      const [oldest] = kept.keys();
      if (kept.size >= MAX_FILLED && oldest !== undefined) kept.delete(oldest);
      kept.set(html, known);
      return known;
    },
  };
  serveFiles(app, serving);
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
  app.get('/flow/keys.json', (_request, reply) =>
    reply.headers(sdkHeaders).header('Cache-Control', SDK_CACHE).send(visits.keys),
  );
  serveFlow(app, serving);
  serveFundingFrames(app, serving);
}

/** The files of the build, and those that partners and adapters bring. */
function serveFiles(app: FastifyInstance, { pages, registry, funding }: Serving): void {
  const own = {
    'Cross-Origin-Resource-Policy': 'same-origin',
    'X-Content-Type-Options': 'nosniff',
  };
  /** A route whose last segment is the name of a file; unknown names are 404. */
  const serve = (
    path: string,
    headers: Readonly<Record<string, string>>,
    find: (name: string) => Promise<Asset | undefined>,
  ): void => {
    app.get<{ Params: { file?: string } }>(path, async (request, reply) => {
      const asset = await find(request.params.file ?? '');
      if (asset === undefined) throw new Refusal('NOT_FOUND');
      return sendAsset(request, reply.headers(headers), asset);
    });
  };
  app.get<{ Params: { file: string } }>('/sdk/v1/:file', async (request, reply) => {
    const { sdkNewest, sdkFiles } = await pages();
    const newest = sdkNewest.get(request.params.file);
    const asset = newest ?? sdkFiles.get(request.params.file);
    if (asset === undefined) throw new Refusal('NOT_FOUND');
    const caching = newest === undefined ? IMMUTABLE_CACHE : SDK_CACHE;
    return sendAsset(request, reply.headers({ ...sdkHeaders, 'Cache-Control': caching }), asset);
  });
  serve('/flow/assets/:file', { ...own, 'Cache-Control': IMMUTABLE_CACHE }, async (name) =>
    (await pages()).flowAssets.get(name),
  );
  serve('/flow/fund/:file', { ...own, 'Cache-Control': SDK_CACHE }, async (name) =>
    funding.scripts.get(name)?.(),
  );
  app.get<{ Params: { file: string } }>('/flow/logos/:file', async (request, reply) => {
    const image = await registry.logo(request.params.file);
    if (image === undefined) throw new Refusal('NOT_FOUND');
    const policy = { 'Content-Security-Policy': "default-src 'none'" };
    reply.headers({ ...own, ...policy, 'Cache-Control': IMMUTABLE_CACHE });
    return reply.type('image/png').send(image);
  });
}

/** The payment page: in a frame of the partner's, or in the tab of a visit. */
function serveFlow(app: FastifyInstance, serving: Serving): void {
  const { visits } = serving;
  app.get<{ Params: { partner: string }; Querystring: { visit?: string } }>(
    '/flow/v1/:partner',
    async (request, reply) => {
      const partner = await partnerOf(serving, request.params.partner, reply);
      if (partner === undefined) return noPage(reply);
      const { visit: id } = request.query;
      if (id === undefined) return sendPage(serving, request, reply, partner, undefined);
      const visit = visits.read(partner.partner_id, id, cookiesOf(request).get(visitCookie(id)));
      // Its hour is over, or the browser keeps no cookies: a payment that was made goes on.
      return sendPage(serving, request, reply, partner, visit ?? { problem: 'token_expired' });
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
        return sendPage(serving, request, reply, partner, { problem, request_id: request.id });
      }
    },
  );
}

/** The partner of a path, with the headers of its pages. */
async function partnerOf(
  { registry, headers }: Serving,
  partner_id: string,
  reply: FastifyReply,
): Promise<Partner | undefined> {
  reply.headers(headers);
  return partnerId.holds(partner_id) ? registry.get(partner_id) : undefined;
}

async function sendPage(
  { pages, funding, filled }: Serving,
  request: FastifyRequest,
  reply: FastifyReply,
  partner: Partner,
  visit: OpenedVisit | undefined,
): Promise<FastifyReply> {
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
      const { page, file } = frame;
      const settings = JSON.stringify({ ...page.settings, funding_method: method });
      return reply
        .header('Content-Security-Policy', fundPolicy(page, partner.origins))
        .type(HTML)
        .send(
          `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Payment details</title><style>${FUNDING_STYLE}</style><meta name="duebridge-fund" content="${escapeAttribute(settings)}"><script type="module" src="../../../fund/${file}"></script></head><body></body></html>`,
        );
    },
  );
}

/** What processors' adapters add to the page: a document in a frame of its own, which is loaded when its method is chosen. */
function openFundingFrames(adapters: readonly FundingAdapter[]) {
  /** By funding method, with the file of the script. */
  const frames = new Map<string, { readonly page: AdapterPage; readonly file: string }>();
  const scripts = new Map<string, () => Promise<Asset>>();
  for (const adapter of adapters) {
    const { name, page } = adapter;
    if (page === undefined) continue;
    const file = `${name}.js`;
    let loaded: Promise<Asset> | undefined;
    scripts.set(
      file,
      () => (loaded ??= readFile(page.script).then((bytes) => toAsset(file, bytes))),
    );
    for (const { funding_method, asks } of adapter.methods()) {
      if (asks === true) frames.set(funding_method, { page, file });
    }
  }
  const all = [...frames.values()].map(({ page }) => page);
  const outside = all.some((page) => page.policy['frame-src'] !== undefined);
  const wallets = new Set(all.flatMap((page) => page.wallets ?? []));
  return {
    // What the payment page's own policy needs.
    policy: frames.size === 0 ? '' : "; frame-src 'self'",
    // Processors' frames do not opt into COEP, and a page under it could not show them: a site that requires it cannot either.
    headers: {
      ...(outside ? { 'Cross-Origin-Embedder-Policy': 'unsafe-none' } : {}),
      ...(wallets.size > 0 ? { 'Permissions-Policy': permissions([...wallets]) } : {}),
    },
    frames,
    scripts,
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

async function loadPages({ manifest: built, asset, text }: BuiltFolder): Promise<Pages> {
  const manifest = built as Manifest;
  const releases = [...manifest.releases, manifest];
  const load = async (folder: string, names: readonly string[]): Promise<Map<string, Asset>> => {
    const each = [...new Set(names)].map(
      async (name) => [name, await asset(`${folder}/${name}`)] as const,
    );
    return new Map(await Promise.all(each));
  };
  const scripts = releases.flatMap(({ version, sdk }) =>
    [sdk, sdk.redirect].flatMap((script) => (script === undefined ? [] : [{ version, ...script }])),
  );
  const table = scripts.map(({ version, file, sri }) => ({ version, file, integrity: sri }));
  const {
    sdk,
    sdk: { redirect },
  } = manifest;
  const newest: [string, Asset][] = [
    ['duebridge.js', await asset(`sdk/${sdk.file}`)],
    ['manifest.json', await asset('manifest.json')],
    ['integrity.json', await toAsset('integrity.json', Buffer.from(`${JSON.stringify(table)}\n`))],
  ];
  if (redirect !== undefined)
    newest.push(['duebridge-redirect.js', await asset(`sdk/${redirect.file}`)]);
  return {
    sdkNewest: new Map(newest),
    sdkFiles: await load(
      'sdk',
      scripts.map(({ file }) => file),
    ),
    flowHtml: await text(`flow/${manifest.flow.html}`),
    flowPolicy: flowPolicy(manifest).join('; '),
    flowAssets: await load(
      'flow',
      releases.flatMap(({ flow }) => flow.assets),
    ),
  };
}
