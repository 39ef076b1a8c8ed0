import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, tell } from '../../check/http.ts';
import { instruction } from '../../check/payment-fields.ts';
import { own } from '../../check/planned-payments.ts';

export const p39: PartnerCase = {
  id: 'P39',
  title: 'A body that is not a JSON object, or not declared as JSON, is refused',
  clauses: ['ER3'],
  decisions: [5],
  severity: 'should',
  profile: 'contract',
  sends:
    'PUT payment with a truncated body, with content type text/plain, and with an array, null or a string as the body',
  expects: '400 or 415, not 5xx, and no payment under that id',
  likely_cause: 'The parser’s exception is returned as 500.',
  creates: (target) => Array.from({ length: 5 }, () => own(target, 39)),
  async run(t) {
    const cut = t.intend(own(t.target, 39));
    const typed = t.intend(own(t.target, 39));
    const others = ['[]', 'null', '"pay"'];
    const halves = instruction(cut);
    const tries = [
      { intent: cut, change: { body: halves.slice(0, halves.length / 2) } },
      { intent: typed, change: { headers: { 'content-type': 'text/plain' } } },
      ...others.map((body) => ({ intent: t.intend(own(t.target, 39)), change: { body } })),
    ];
    // Side by side: each has an id of its own.
    const tried = await Promise.all(
      tries.map(async ({ intent, change }) => {
        const put = await t.put(intent, change);
        const isRight = put.status === 400 || put.status === 415;
        return { put, read: isRight ? await t.read(intent) : undefined };
      }),
    );
    for (const { put, read } of tried) {
      t.should(read !== undefined, {
        expected: '400 or 415',
        got: tell(put),
        at: put,
      });
      if (read === undefined) continue;
      t.should(!isSuccess(read), {
        expected: 'no payment under the refused id',
        got: tell(read),
        at: read,
      });
    }
  },
};
