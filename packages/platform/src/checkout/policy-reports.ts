/**
 * Reports of browsers that the content policy of a payment page stopped something: a changed script or header would show here first
 * (PCI DSS 11.6.1).
 *
 * enters: what any browser, or anybody, sends.  leaves: a figure for each directive, and one log line a minute.
 * holds:  a body is at most 16 KiB and its first ten reports count; more than ten bodies a second are dropped unread. No query and no
 *         path of an address is logged.
 */
import { rateLimiter, type Clock, type Log, type Metrics } from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import { parsedJson } from '../plain-text.ts';

/** The endpoint, and its name in the headers of a page. */
const ENDPOINT = '/flow/reports';
export const REPORTING = {
  header: { 'Reporting-Endpoints': `duebridge="${ENDPOINT}"` },
  directive: 'report-to duebridge',
} as const;

const MAX_BYTES = 16 * 1024;
const MAX_REPORTS = 10;
const BODIES = { perSecond: 10, burst: 50, maxKeys: 1 };
/** One line a minute: a sample, beside the figure that counts all. */
const LINES = { perSecond: 1 / 60, burst: 1, maxKeys: 1 };

/** The directives of our pages; a label is one of these or `other`, whatever is sent. */
const DIRECTIVES = new Set(
  (
    'default-src script-src script-src-elem script-src-attr style-src style-src-elem style-src-attr connect-src img-src frame-src ' +
    'base-uri form-action frame-ancestors require-trusted-types-for trusted-types'
  ).split(' '),
);

/** Serves the endpoint. */
export function mountPolicyReports(
  app: FastifyInstance,
  options: { readonly clock: Clock; readonly log: Log; readonly metrics: Metrics },
): void {
  const { clock, log, metrics } = options;
  const reported = metrics.counter(
    'duebridge_policy_reports_total',
    'Reports of browsers about the content policy of payment pages, by directive',
    ['directive'],
  );
  const bodies = rateLimiter({ ...BODIES, clock });
  const lines = rateLimiter({ ...LINES, clock });
  void app.register((scope, _options, done) => {
    // Read here as text: what is not JSON is no report, and no error of the page.
    scope.addContentTypeParser(
      'application/reports+json',
      { parseAs: 'string', bodyLimit: MAX_BYTES },
      (_request, body, parsed) => parsed(null, body),
    );
    scope.post(ENDPOINT, (request, reply) => {
      if (!bodies.take('')) {
        for (const { effectiveDirective, blockedURL } of reportsOf(request.body)) {
          const directive = DIRECTIVES.has(effectiveDirective) ? effectiveDirective : 'other';
          reported.inc({ directive });
          if (!lines.take('')) {
            log.warn(
              { directive, blocked: originOf(blockedURL) },
              'a browser reports that the content policy of a payment page stopped something',
            );
          }
        }
      }
      return reply.code(204).send();
    });
    done();
  });
}

function reportsOf(body: unknown) {
  const reports = parsedJson(String(body));
  if (!Array.isArray(reports)) return [];
  return reports.slice(0, MAX_REPORTS).flatMap((report: unknown) => {
    const { type, body: violation } = Object(report) as { type?: unknown; body?: unknown };
    const { effectiveDirective, blockedURL } = Object(violation) as Record<string, unknown>;
    // Counted all the same: it is null where nothing with an address was stopped.
    const blocked = typeof blockedURL === 'string' ? blockedURL : '';
    return type === 'csp-violation' && typeof effectiveDirective === 'string'
      ? [{ effectiveDirective, blockedURL: blocked }]
      : [];
  });
}

/** The origin of what was blocked, or its kind: `inline`, `eval`. */
function originOf(blocked: string): string {
  if (/^[a-z-]{1,32}$/.test(blocked)) return blocked;
  return URL.parse(blocked)?.origin.slice(0, 100) ?? 'no address';
}
