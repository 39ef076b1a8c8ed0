import type { TokenCase } from '../../check/check.ts';
import type { TokenContext } from '../../check/token-context.ts';
import { parsed } from '../shared.ts';

export const t20: TokenCase = {
  id: 'T20',
  title: 'Every 5xx of this run has the form the interface defines',
  clauses: ['ER2', 'ER3'],
  severity: 'must',
  profile: 'contract',
  sends: 'nothing new: every 5xx from the token endpoint in this run is examined',
  expects:
    '500 {"code": "INTERNAL_ERROR", "message": "An unexpected error occurred"}, and nothing more; or 503 with a code and a message',
  likely_cause: 'An exception message or a gateway’s error page reaches the caller.',
  async run(t: TokenContext) {
    const failed = t.run.wire.exchanges.filter(
      ({ check, method, url, status }) =>
        check.startsWith('T') &&
        check !== 'T15' &&
        method === 'POST' &&
        url === t.run.url &&
        (status ?? 0) >= 500,
    );
    t.given(failed.length > 0, 'the platform never answered 5xx');
    for (const exchange of failed) {
      const error = parsed(exchange.answer_body);
      const plain = exchange.status === 500 && Object.keys(error ?? {}).length === 2;
      const holds =
        exchange.status === 503
          ? typeof error?.['code'] === 'string' && typeof error['message'] === 'string'
          : plain &&
            error?.['code'] === 'INTERNAL_ERROR' &&
            error['message'] === 'An unexpected error occurred';
      const right = t.must(holds, {
        expected: '500 {"code":"INTERNAL_ERROR","message":"An unexpected error occurred"}',
        got: `${exchange.status ?? ''} ${exchange.answer_body.slice(0, 200)}`,
        at: exchange,
      });
      if (!right) return;
    }
  },
};
