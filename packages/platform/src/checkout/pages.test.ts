import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { pathToFileURL } from 'node:url';
import {
  createMetrics,
  createServer,
  systemClock,
  type Database,
  type Log,
} from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { png } from '../../test/png.ts';
import { openSealer } from '../partners/seal.ts';
import { servePages } from './pages.ts';
import { mountPolicyReports } from './policy-reports.ts';
import { openVisits } from './visit.ts';
import type { Partner, PartnerRegistry } from '../partners/registry.ts';

const folder = await mkdtemp(path.join(tmpdir(), 'duebridge-pages-'));
after(() => rm(folder, { recursive: true }));

const origins: Record<string, string[]> = {
  water: ['https://water.example', 'https://www.water.example'],
  closed: [],
};
const LOGO = `${'a'.repeat(32)}.png`;
/** All that the pages ask of the registry. */
const registry = {
  get: (partner_id: string) =>
    Promise.resolve(
      partner_id in origins
        ? ({
            partner_id,
            name: 'City Water',
            origins: origins[partner_id],
            colour: '#0b7a75',
            logo: LOGO,
          } as unknown as Partner)
        : undefined,
    ),
  logo: (name: string) => Promise.resolve(name === LOGO ? png(32, 32) : undefined),
} as PartnerRegistry;

const app = createServer();
const sealKey = randomBytes(32).toString('base64');
const sealer = openSealer(sealKey);
// Only the way back reads the database.
const visits = openVisits(
  { registry, sealer, clock: systemClock, database: {} as Database },
  sealKey,
);
servePages(app, { registry, visits, dist: pathToFileURL(`${folder}/`) });
const metrics = createMetrics();
const logged: object[] = [];
const log = { warn: (fields: object) => void logged.push(fields) } as unknown as Log;
// Time stands still: what is counted does not depend on how fast the machine is.
mountPolicyReports(app, { clock: manualClock(), log, metrics });
after(() => app.close());

async function build(): Promise<void> {
  await mkdir(path.join(folder, 'sdk'), { recursive: true });
  await mkdir(path.join(folder, 'flow'), { recursive: true });
  await writeFile(path.join(folder, 'sdk/duebridge-0.1.0-aa.js'), 'window.duebridge = {};');
  await writeFile(path.join(folder, 'sdk/duebridge-0.0.9-99.js'), 'window.old = {};');
  await writeFile(path.join(folder, 'flow/flow-99.js'), 'export const old = 1;');
  await writeFile(path.join(folder, 'flow/flow-bb.js'), 'export {};');
  await writeFile(path.join(folder, 'flow/flow-cc.css'), 'a{}');
  await writeFile(
    path.join(folder, 'flow/flow.html'),
    '<meta name="duebridge-origins" content="__ORIGINS__" /><meta name="duebridge-partner" content="__PARTNER__" /><meta name="duebridge-biller" content="__BILLER__" />',
  );
  await writeFile(
    path.join(folder, 'manifest.json'),
    JSON.stringify({
      version: '0.1.0',
      sdk: { file: 'duebridge-0.1.0-aa.js', sri: 'sha384-x' },
      flow: {
        html: 'flow.html',
        assets: ['flow-bb.js', 'flow-cc.css'],
        first_style: 'sha256-style',
        first_script: 'sha256-script',
      },
      releases: [
        {
          version: '0.0.9',
          sdk: { file: 'duebridge-0.0.9-99.js', sri: 'sha384-old' },
          flow: { assets: ['flow-99.js'] },
        },
      ],
    }),
  );
}

test('a payment page is framed by its own partner and by nobody else [S1]', async () => {
  await build();
  const page = await app.inject('/flow/v1/water');
  assert.equal(page.statusCode, 200);
  const policy = String(page.headers['content-security-policy']);
  assert.ok(
    policy.endsWith('; frame-ancestors https://water.example https://www.water.example'),
    policy,
  );
  assert.match(page.body, /content="\[&quot;https:\/\/water\.example&quot;,/);
  assert.match(page.body, /name="duebridge-partner" content="water"/);
  const closed = await app.inject('/flow/v1/closed');
  assert.match(String(closed.headers['content-security-policy']), /frame-ancestors 'none'$/);
  for (const nobody of [
    '/flow/v1/nobody',
    '/flow/v1/%0A',
    '/flow/v1/..%2Fwater',
    '/flow/v1/WATER',
  ]) {
    const unknown = await app.inject(nobody);
    assert.equal(unknown.statusCode, 404);
    assert.match(String(unknown.headers['content-security-policy']), /frame-ancestors 'none'$/);
  }
});

test('a page names the logo of its biller, which is served by us forever and is nothing but a picture', async () => {
  await build();
  const page = await app.inject('/flow/v1/water');
  const [, meta = ''] = /name="duebridge-biller" content="([^"]*)"/.exec(page.body) ?? [];
  assert.deepEqual(JSON.parse(meta.replaceAll('&quot;', '"')), {
    name: 'City Water',
    colour: '#0b7a75',
    logo: LOGO,
  });
  const { headers, rawPayload } = await app.inject(`/flow/logos/${LOGO}`);
  assert.deepEqual(rawPayload, png(32, 32));
  assert.equal(headers['content-type'], 'image/png');
  assert.equal(headers['cache-control'], 'public, max-age=31536000, immutable');
  assert.equal(headers['x-content-type-options'], 'nosniff');
  assert.equal(headers['content-security-policy'], "default-src 'none'");
  assert.equal((await app.inject('/flow/logos/other.png')).statusCode, 404);
});

test('a payment page runs only its own scripts, is not cached and sends no referrer', async () => {
  await build();
  const { headers } = await app.inject('/flow/v1/water');
  const policy = String(headers['content-security-policy']);
  for (const directive of [
    "default-src 'none'",
    "script-src 'self' 'sha256-script'",
    "style-src 'self' 'sha256-style'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ]) {
    assert.ok(policy.split('; ').includes(directive), directive);
  }
  const sent = Object.fromEntries(
    [
      'cache-control',
      'referrer-policy',
      'x-content-type-options',
      'cross-origin-embedder-policy',
      'cross-origin-resource-policy',
      'permissions-policy',
      'cross-origin-opener-policy',
      'x-frame-options',
      'set-cookie',
    ].map((name) => [name, headers[name]]),
  );
  assert.deepEqual(sent, {
    'cache-control': 'no-store',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'cross-origin-embedder-policy': 'require-corp',
    'cross-origin-resource-policy': 'cross-origin',
    'permissions-policy': 'payment=(), camera=(), microphone=(), geolocation=()',
    // It would cut the page off from the site that opened it.
    'cross-origin-opener-policy': undefined,
    'x-frame-options': undefined,
    'set-cookie': undefined,
  });
});

test('what the policy of a page stops is reported, counted and bounded, whatever is sent', async () => {
  const { headers } = await app.inject('/flow/v1/water');
  assert.match(String(headers['content-security-policy']), /; report-to duebridge;/);
  assert.equal(headers['reporting-endpoints'], 'duebridge="/flow/reports"');
  const report = (effectiveDirective: string) => ({
    type: 'csp-violation',
    body: { effectiveDirective, blockedURL: 'https://evil.example/path?card=4111' },
  });
  const send = (payload: string): Promise<{ statusCode: number }> =>
    app.inject({
      method: 'POST',
      url: '/flow/reports',
      headers: { 'content-type': 'application/reports+json' },
      payload,
    });
  const many = Array.from({ length: 1_000 }, () => report('x'));
  const bodies = [
    JSON.stringify([report('script-src'), report('made up'), { type: 'deprecation' }, null]),
    JSON.stringify(many.slice(0, 100)),
    // No text, and nothing that can be made one.
    '[{"type":"csp-violation","body":{"effectiveDirective":"font-src","blockedURL":{"toString":1}}}]',
    'not JSON',
    'null',
  ];
  for (const body of bodies) assert.equal((await send(body)).statusCode, 204);
  assert.equal((await send(JSON.stringify(many))).statusCode, 413);
  for (let n = 0; n < 100; n += 1) await send(JSON.stringify([report('img-src')]));
  const counted = await metrics.text();
  assert.match(counted, /policy_reports_total\{directive="script-src"\} 1$/m);
  assert.match(counted, /policy_reports_total\{directive="other"\} 12$/m);
  const images = Number(/\{directive="img-src"\} (\d+)/.exec(counted)?.[1]);
  assert.ok(images > 0 && images < 90, `${images} of 100`);
  assert.deepEqual(logged, [{ directive: 'script-src', blocked: 'https://evil.example' }]);
});

test('what a partner pinned keeps working after the next release: the SDK, its page, the table of hashes', async () => {
  await build();
  for (const [url, text] of [
    ['/sdk/v1/duebridge-0.0.9-99.js', 'window.old = {};'],
    ['/flow/assets/flow-99.js', 'export const old = 1;'],
  ] as const) {
    const pinned = await app.inject(url);
    assert.deepEqual([pinned.statusCode, pinned.body], [200, text]);
    assert.equal(pinned.headers['cache-control'], 'public, max-age=31536000, immutable');
  }
  const table = await app.inject('/sdk/v1/manifest.json');
  assert.equal(table.headers['access-control-allow-origin'], '*');
  assert.equal(table.json<{ sdk: { sri: string } }>().sdk.sri, 'sha384-x');
});
