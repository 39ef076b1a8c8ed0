/** Endpoints for an operator's tools: health, readiness, metrics, the API document (decision 33). */
import type { FastifyInstance } from 'fastify';
import { setTimeout as delay } from 'node:timers/promises';
import { systemClock, type Clock } from '../clock.ts';
import { remember } from '../keys.ts';
import type { Metrics } from '../metrics.ts';
import { JSON_TYPE } from './body.ts';
import { isClosing } from './closing.ts';
import { docsPage } from './docs-page.ts';

/** What was checked, and whether it works. */
type Checks = Readonly<Record<string, boolean>>;

/** The data behind these endpoints (decision 33). */
export interface OperationsOptions {
  /** Reports whether the service can do its work: one entry per dependency. Called once a second at most. */
  ready?: () => Promise<Checks>;
  metrics?: Metrics;
  clock?: Clock;
  /** The OpenAPI document, served at /openapi.json and shown at /docs. */
  openapi?: object;
}

/** The page has no script and no form and may not be framed; default-src covers neither forms nor framing. */
const docsHeaders = {
  'content-security-policy':
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
};

/** Load balancers and people with curl also use HEAD. */
const withHead = { exposeHeadRoute: true };

/** Maximum duration of a readiness check: the balancer asks again soon. */
const READY_TIMEOUT_MS = 3_000;
/** How long an answer is cached, so that callers cannot make us query the database at their rate. */
const READY_HOLDS_MS = 1_000;

/**
 * Mounts /healthz (the process runs), /readyz (it can do its work; 503 when not, or when it is closing), /metrics, /openapi.json
 * and /docs; the last three only where they were given. None needs credentials: mount them where only the right people can reach.
 */
export function mountOperations(app: FastifyInstance, options: OperationsOptions = {}): void {
  const { ready, metrics, openapi, clock = systemClock } = options;
  app.get('/healthz', withHead, () => ({ status: 'ok' }));
  const held = remember<Checks>({ clock, max: 1, forMs: READY_HOLDS_MS });
  app.get('/readyz', withHead, async (_request, reply) => {
    const checks = await held.get('checks', () => inTime(ready));
    const closing = isClosing(app);
    const isReady = !closing && Object.values(checks).every(Boolean);
    return reply.code(isReady ? 200 : 503).send({ ready: isReady, checks });
  });
  if (metrics) {
    app.get('/metrics', withHead, async (_request, reply) =>
      reply.type(metrics.contentType).send(await metrics.text()),
    );
  }
  if (openapi) {
    const json = JSON.stringify(openapi);
    const page = docsPage(openapi);
    app.get('/openapi.json', withHead, (_request, reply) => reply.type(JSON_TYPE).send(json));
    app.get('/docs', withHead, (_request, reply) =>
      reply.headers(docsHeaders).type('text/html; charset=utf-8').send(page),
    );
  }
}

async function inTime(ready: OperationsOptions['ready']): Promise<Checks> {
  const late = delay(READY_TIMEOUT_MS, { answered_in_time: false }, { ref: false });
  return Promise.race<Checks>([ready?.() ?? Promise.resolve({}), late]).catch(() => ({
    answered: false,
  }));
}
