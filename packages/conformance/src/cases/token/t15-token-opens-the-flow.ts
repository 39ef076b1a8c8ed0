import { platformRoutes } from '@duebridge/contract';
import type { TokenCase } from '../../check/check.ts';
import { asObject, isRefusal, isSuccess, tell, type Reply } from '../../check/http.ts';
import { fullBody, tokenOf, type TokenContext } from '../../check/token-context.ts';

export const t15: TokenCase = {
  id: 'T15',
  title: 'A token opens the flow; a made-up one is refused',
  clauses: ['S1', 'TK1'],
  decisions: [8, 31],
  severity: 'must',
  profile: 'contract',
  sends: 'POST flow session with a new token, with the same one again, and with a made-up one',
  expects:
    'the flow starts; a used token opens the same flow or is refused with code and message; a made-up one is refused with code and message',
  likely_cause: 'A wrong token causes an exception, or opens a flow without a customer.',
  async run(t: TokenContext) {
    t.given(t.target.flow, 'the target does not offer the flow of decision 31 (--flow)');
    const token = tokenOf(await t.create(fullBody(t.target)));
    t.given(token !== undefined, 'no token was issued (see T01)');
    t.run.wire.hide({ value: token, name: 'TOKEN' });
    const opened = await open(t, token);
    t.must(isSuccess(opened), { expected: '200: the flow starts', got: tell(opened), at: opened });
    const used = await open(t, token);
    t.must(isSuccess(used) || isTypedRefusal(used), {
      expected: 'the same flow again, or a refusal with code and message',
      got: tell(used),
      at: used,
    });
    const random = await open(t, 'dbt_made-up-duebridge');
    t.must(isTypedRefusal(random), {
      expected: 'a refusal of a made-up token, with code and message',
      got: tell(random),
      at: random,
    });
  },
};

function isTypedRefusal(reply: Reply): boolean {
  const error = asObject(reply.json);
  return (
    isRefusal(reply) && typeof error?.['code'] === 'string' && typeof error['message'] === 'string'
  );
}

function open(t: TokenContext, token: string): Promise<Reply> {
  return t.send({
    method: 'POST',
    url: t.target.base_url + platformRoutes.create_flow_session.path,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: '{}',
  });
}
