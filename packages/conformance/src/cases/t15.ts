import { platformRoutes } from '@duebridge/contract';
import type { TokenCase } from '../case.ts';
import { asObject, isSuccess, tell, type Reply } from '../exchange.ts';
import { fullBody, tokenOf, type TokenBench } from '../token-bench.ts';

export const t15: TokenCase = {
  id: 'T15',
  title: 'The flow is opened with a good, a used and a made-up token',
  clauses: ['S1', 'TK1'],
  decisions: [8, 31],
  severity: 'must',
  profile: 'contract',
  sends: 'POST flow session with a new token, with the same one again, and with a random one',
  expects:
    'the flow starts; a used token starts it again or, like a made-up one, gets one refusal with code and message',
  likely_cause: 'Whatever is sent as a token opens the flow, or a wrong one ends in an exception.',
  async run(t: TokenBench) {
    t.given(t.target.flow, 'the target does not offer the flow of decision 31 (--flow)');
    const token = tokenOf(await t.create(fullBody(t.target)));
    t.given(token !== undefined, 'no token was given (see T01)');
    t.run.wire.hide({ value: token, name: 'TOKEN' });
    const opened = await open(t, token);
    t.must(isSuccess(opened), { expected: '200: the flow starts', got: tell(opened), at: opened });
    const session = asObject(opened.json)?.['session'];
    if (typeof session === 'string') t.run.wire.hide({ value: session, name: 'SESSION' });
    const again = await open(t, token);
    const session_again = asObject(again.json)?.['session'];
    if (typeof session_again === 'string')
      t.run.wire.hide({ value: session_again, name: 'SESSION_2' });
    // Whether a token opens the flow once or until it expires is the platform's to say (decision 8).
    const tries: [string, Reply][] = [
      ...(isSuccess(again) ? [] : [['a used token', again] satisfies [string, Reply]]),
      ['a made-up token', await open(t, 'dbt_made-up-duebridge')],
    ];
    for (const [what, reply] of tries) {
      const error = asObject(reply.json);
      t.must(
        reply.status !== undefined &&
          reply.status >= 400 &&
          reply.status < 500 &&
          typeof error?.['code'] === 'string' &&
          typeof error['message'] === 'string',
        {
          expected: `a refusal of ${what}, with code and message`,
          got: tell(reply),
          at: reply,
        },
      );
    }
  },
};

function open(t: TokenBench, token: string): Promise<Reply> {
  return t.send({
    method: 'POST',
    url: t.target.base_url + platformRoutes.create_flow_session.path,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: '{}',
  });
}
