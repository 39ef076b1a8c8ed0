import type { TokenCase } from '../../check/check.ts';
import type { TokenContext } from '../../check/token-context.ts';
import { asObject, show, tell } from '../../check/http.ts';

export const t12: TokenCase = {
  id: 'T12',
  title: 'An internal error reveals no details',
  clauses: ['ER2'],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token with headers that make a test build raise an internal error',
  expects:
    '500 {"code": "INTERNAL_ERROR", "message": "An unexpected error occurred"}, and nothing more',
  likely_cause: 'The exception’s message or stack trace is returned to the caller.',
  async run(t: TokenContext) {
    const { internal_fault_headers } = t.target;
    t.given(
      internal_fault_headers !== undefined,
      'the target declares no internal_fault_headers: only a test build can raise an internal error on request',
    );
    const reply = await t.create(undefined, internal_fault_headers);
    const error = asObject(reply.json);
    const fields = Object.keys(error ?? {}).sort();
    t.must(
      reply.status === 500 &&
        error?.['code'] === 'INTERNAL_ERROR' &&
        error['message'] === 'An unexpected error occurred' &&
        fields.length === 2,
      {
        expected: '500 {"code":"INTERNAL_ERROR","message":"An unexpected error occurred"}',
        got: error === undefined ? tell(reply) : `${reply.status} ${show(reply.json)}`,
        at: reply,
      },
    );
  },
};
