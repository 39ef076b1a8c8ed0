import { AccountRecord, compileCheck } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import { asObject, isJson, show, tell } from '../../check/http.ts';

const record = compileCheck(AccountRecord);

export const p10: PartnerCase = {
  id: 'P10',
  title: 'A known account can be read',
  clauses: ['B1', 'AC1', 'S2'],
  decisions: [4],
  severity: 'must',
  profile: 'contract',
  sends: 'GET account for a known account',
  expects: '200 with a JSON object; ids in the response equal those in the request',
  likely_cause:
    'The content type is not application/json, the object is wrapped in an array, or ids are reformatted in the response.',
  async run(t) {
    const reply = await t.readAccount();
    const account = asObject(reply.json);
    const read = t.must(reply.status === 200 && isJson(reply) && account !== undefined, {
      expected: '200 with a JSON object and content type application/json',
      got: `${tell(reply)} (${reply.headers['content-type'] ?? 'no content type'}${reply.json_problem === undefined ? '' : `; ${reply.json_problem}`})`,
      at: reply,
    });
    if (!read || account === undefined) return;
    const asked = { biller_id: t.target.biller_id, account_id: t.target.accounts.payable };
    for (const [name, value] of Object.entries(asked)) {
      t.should(account[name] === undefined || account[name] === value, {
        expected: `${name} ${show(value)}`,
        got: `${name} is ${show(account[name])}`,
        at: reply,
      });
    }
    const problems = record.problems(account, 'body');
    t.strict(problems.length === 0, {
      expected: 'the account record of decision 4',
      got: problems.map(({ path, problem }) => `${path} ${problem}`).join('; '),
      at: reply,
    });
  },
};
