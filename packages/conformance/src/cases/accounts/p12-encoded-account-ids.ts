import type { PartnerCase } from '../../check/check.ts';
import { asObject, isSuccess, tell } from '../../check/http.ts';

export const p12: PartnerCase = {
  id: 'P12',
  title: 'Account ids with special characters are handled safely',
  clauses: ['B1'],
  decisions: [13],
  severity: 'should',
  profile: 'contract',
  sends:
    'GET account with ids that contain an encoded slash, an invalid percent-encoding, non-ASCII characters or 128 characters; and with a known id in another case or with a leading or trailing space',
  expects: 'no 5xx, and never a different account from the one requested',
  likely_cause:
    'A proxy or router decodes %2F before it splits the path, or the id is truncated to the length of its column.',
  async run(t) {
    const { payable } = t.target.accounts;
    const ids = [`x/../${payable}`, `${payable}/`, `${payable}-é-账户`, 'a'.repeat(128)];
    const broken = await t.send({
      method: 'GET',
      url: `${t.run.url('get_account', { biller_id: t.target.biller_id, account_id: payable })}%zz`,
      headers: await t.proof('declared'),
    });
    t.should(broken.status !== undefined && broken.status < 500, {
      expected: 'a status below 500 for a path with an invalid percent-encoding',
      got: tell(broken),
      at: broken,
    });
    for (const id of ids) {
      const reply = await t.readAccount(id);
      t.should(reply.status !== undefined && reply.status < 500, {
        expected: `a status below 500 for ${JSON.stringify(id.slice(0, 40))}`,
        got: tell(reply),
        at: reply,
      });
      const account = isSuccess(reply) ? asObject(reply.json) : undefined;
      t.should(account === undefined || account['account_id'] === id, {
        expected: 'no account other than the one requested',
        got: tell(reply),
        at: reply,
      });
    }
    const upper = payable.toUpperCase();
    const folded = upper === payable ? payable.toLowerCase() : upper;
    for (const id of [folded, `${payable} `, ` ${payable}`].filter((id) => id !== payable)) {
      const reply = await t.readAccount(id);
      const account = isSuccess(reply) ? asObject(reply.json) : undefined;
      t.strict(account === undefined || account['account_id'] === id, {
        expected: `no account for ${JSON.stringify(id)}: ids are compared byte for byte`,
        got: tell(reply),
        cause:
          'The server trims ids or changes their case before the lookup, or the column has a case-insensitive collation.',
        at: reply,
      });
    }
  },
};
