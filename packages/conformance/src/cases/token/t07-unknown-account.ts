import type { TokenCase } from '../../check/check.ts';
import { asObject, tell } from '../../check/http.ts';
import { fullBody, identifiers, type TokenContext } from '../../check/token-context.ts';

export const t07: TokenCase = {
  id: 'T07',
  title: 'An account unknown to the partner returns 404',
  clauses: ['ER1', 'TR4'],
  decisions: [7],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token with an account_id that does not exist, twice',
  expects: '404 NOT_FOUND',
  likely_cause:
    'The platform does not look up the account at the partner before it issues the token.',
  async run(t: TokenContext) {
    const { unknown_account_id } = t.target;
    t.given(
      unknown_account_id !== undefined,
      'the target declares no unknown_account_id (its partner must be reachable from the platform)',
    );
    for (const time of ['first', 'second']) {
      const reply = await t.create({
        ...fullBody(t.target),
        external_identifiers: identifiers(t.target, unknown_account_id),
      });
      const found = t.must(reply.status === 404 && asObject(reply.json)?.['code'] === 'NOT_FOUND', {
        expected: '404 with code NOT_FOUND',
        got: `${time} request: ${tell(reply)}`,
        at: reply,
        ...(time === 'first'
          ? {}
          : { cause: 'The first request leaves a row behind that the second one finds.' }),
      });
      if (!found) return;
    }
  },
};
