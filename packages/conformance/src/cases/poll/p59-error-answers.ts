import type { PartnerCase } from '../../check/check.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { show, type Exchange } from '../../check/http.ts';
import { looksInternal, parsed } from '../shared.ts';

/** Maximum p95 of a read and of a PUT. */
const MOST_READ_MS = 2_000;
const MOST_PUT_MS = 10_000;

/** The codes of decision 5 that a partner uses, by status. */
const CODES: Readonly<Record<number, readonly string[]>> = {
  400: ['INVALID_REQUEST'],
  401: ['UNAUTHORIZED'],
  403: ['INSUFFICIENT_SCOPE'],
  404: ['NOT_FOUND', 'ACCOUNT_NOT_FOUND', 'PAYMENT_NOT_FOUND'],
  415: ['UNSUPPORTED_MEDIA_TYPE'],
};

export const p59: PartnerCase = {
  id: 'P59',
  title: 'Errors are JSON without secrets, and responses are fast enough',
  clauses: ['ER3'],
  decisions: [5],
  severity: 'should',
  profile: 'contract',
  stage: 'last',
  sends: 'nothing new: all requests and responses of this run are examined',
  expects:
    'every error is JSON, without HTML, secrets or stack traces; a p95 of at most 2 s for reads and 10 s for PUTs',
  likely_cause:
    'The caller receives the error page of a framework or gateway, or debug mode is on.',
  async run(t: PartnerContext) {
    const all = t.run.wire.exchanges.filter(
      ({ check }) => check !== 'preflight' && check !== 'P53',
    );
    t.given(all.length > 0, 'nothing was sent in this run');
    const errors = all.filter(
      ({ status }) => status !== undefined && (status < 200 || status > 299),
    );
    const first = (
      finding: { expected: string; got: (one: Exchange) => string },
      bad: (one: Exchange) => boolean,
    ): void => {
      const found = errors.filter(bad);
      const one = found[0];
      t.should(one === undefined, {
        expected: finding.expected,
        got:
          one === undefined
            ? ''
            : `${finding.got(one)} (${found.length} of ${errors.length} errors)`,
        ...(one === undefined ? {} : { at: one }),
      });
    };
    first(
      {
        expected: 'errors with content type application/json',
        got: (one) =>
          `${one.status} with ${one.answer_headers['content-type'] ?? 'no content type'}`,
      },
      (one) => !/json/i.test(one.answer_headers['content-type'] ?? ''),
    );
    first(
      { expected: 'errors without a stack trace', got: (one) => `${one.status} with one` },
      (one) => looksInternal(one.answer_body),
    );
    // The token endpoint uses the error form of RFC 6749 instead.
    const coded = errors.filter(({ method }) => method !== 'POST');
    const uncoded = coded.find((one) => codeProblem(one) !== undefined);
    t.strict(uncoded === undefined, {
      expected: 'errors with the code of decision 5, and a message',
      got: uncoded === undefined ? '' : `${uncoded.status} with ${codeProblem(uncoded) ?? ''}`,
      ...(uncoded === undefined ? {} : { at: uncoded }),
    });
    const leak = all.find(({ leaked }) => leaked);
    t.should(leak === undefined, {
      expected: 'no credential in any response',
      got: 'a response repeats the credential that was sent',
      ...(leak === undefined ? {} : { at: leak }),
    });
    slow(all, 'GET', MOST_READ_MS);
    slow(all, 'PUT', MOST_PUT_MS);

    function slow(exchanges: readonly Exchange[], method: string, most: number): void {
      const times = exchanges.filter((one) => one.method === method && one.status !== undefined);
      times.sort((one, other) => one.duration_ms - other.duration_ms);
      const p95 = times[Math.max(0, Math.ceil(times.length * 0.95) - 1)];
      t.should(p95 === undefined || p95.duration_ms <= most, {
        expected: `a p95 of at most ${most / 1_000} s for ${method}`,
        got: `${p95?.duration_ms ?? 0} ms`,
        ...(p95 === undefined ? {} : { at: p95 }),
      });
    }
  },
};

/** How the code and message of an error violate decision 5; undefined when they do not. */
function codeProblem({ status, answer_body }: Exchange): string | undefined {
  const { code, message } = parsed(answer_body) ?? {};
  if (typeof message !== 'string' || message === '') return `message ${show(message)}`;
  const codes = CODES[status ?? 0];
  const right =
    typeof code === 'string' && /^[A-Z][A-Z0-9_]*$/.test(code) && codes?.includes(code) !== false;
  return right ? undefined : `code ${show(code)}`;
}
