import type { TokenCase } from '../../check/check.ts';
import { isDateTime, parseInstant } from '@duebridge/contract';
import { asObject, isJson, show, tell } from '../../check/http.ts';
import { tokenOf } from '../../check/token-context.ts';

export const t01: TokenCase = {
  id: 'T01',
  title: 'A token request with every field is accepted',
  clauses: ['A2', 'TK1', 'A1', 'S1'],
  decisions: [5, 8],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token with every field of the interface',
  expects: '200 with a JSON object whose only field is token, a string',
  likely_cause:
    'The response has additional fields, such as the expiry, or a status other than 200; or an optional field is refused, such as a biller_id that is not this client’s.',
  async run(t) {
    const reply = await t.create();
    t.must(reply.status === 200 && isJson(reply) && tokenOf(reply) !== undefined, {
      expected: '200 with {"token": "…"}',
      got: tell(reply),
      at: reply,
    });
    t.strict(reply.headers['x-request-id'] !== undefined, {
      expected: 'the header X-Request-Id, which identifies the response in a log',
      got: 'none',
      clause: 'ER3',
      at: reply,
    });
    const expires = reply.headers['token-expires-at'];
    const dated =
      expires !== undefined && isDateTime(expires) ? (parseInstant(expires) ?? 0) : undefined;
    t.strict(tokenOf(reply) === undefined || dated !== undefined, {
      expected: 'the header Token-Expires-At, an ISO 8601 time',
      got: show(expires),
      at: reply,
    });
    t.strict(tokenOf(reply) === undefined || dated === undefined || dated > reply.sent, {
      expected: `a Token-Expires-At after the request, which was sent at ${new Date(reply.sent).toISOString()}`,
      got: show(expires),
      cause: 'The header holds the time of issue, or local time without its offset.',
      at: reply,
    });
    const fields = Object.keys(asObject(reply.json) ?? {});
    t.must(tokenOf(reply) === undefined || fields.length === 1, {
      expected: 'the single field token',
      got: `the fields ${fields.join(', ')}`,
      at: reply,
    });
  },
};
