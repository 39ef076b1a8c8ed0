import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell, type Reply } from '../../check/http.ts';
import {
  differences,
  instruction,
  recordOf,
  tellDifferences,
  type Intent,
} from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';

/** New ids that are put to two accounts concurrently. */
const RACES = 3;

/** The fields that say whose payment it is. */
const OWNER_FIELDS = ['platform_payment_id', 'biller_id', 'account_id', 'amount_in_cents'] as const;

export const p30: PartnerCase = {
  id: 'P30',
  title: 'A known id under another account creates no second payment',
  clauses: ['PF2'],
  decisions: [9],
  severity: 'must',
  profile: 'contract',
  sends: `PUT payment, then PUT with the same id under the path of another account, then GET under both; then ${RACES} new ids, each put to both accounts concurrently`,
  expects: 'no second payment: ids are unique across all payments, not per account',
  likely_cause:
    'The unique constraint is on (account_id, platform_payment_id) instead of platform_payment_id.',
  creates: (target) => [
    own(target, 30),
    ...(target.accounts.other === undefined
      ? []
      : Array.from({ length: RACES }, (_, place) => own(target, 300 + place))),
  ],
  async run(t: PartnerContext) {
    const intent = t.intend(own(t.target, 30));
    const first = recordOf(await t.put(intent));
    t.given(first !== undefined, 'no new payment was accepted (see P20)');
    const account_id = t.target.accounts.other ?? t.target.accounts.unknown;
    const put = await t.put(intent, { account_id });
    const under = await t.read(intent, { account_id });
    for (const reply of [put, under]) {
      const alone = t.must(
        !isSuccess(reply) || recordOf(reply)?.['payment_id'] === first['payment_id'],
        {
          expected: `a refusal, or payment_id ${show(first['payment_id'])}`,
          got: tell(reply),
          at: reply,
        },
      );
      if (!alone) return;
    }
    const shown = recordOf(put);
    const changed = shown === undefined ? [] : differences(first, shown, OWNER_FIELDS);
    t.must(changed.length === 0, {
      expected: `the stored payment, with account_id ${show(first['account_id'])}`,
      got: tellDifferences(first, put, OWNER_FIELDS),
      clause: 'RU5',
      cause: 'The response repeats the account of the path instead of the stored one.',
      at: put,
    });
    t.strict(under.status === 404, {
      expected: '404: a payment is found only under its own account',
      got: tell(under),
      at: under,
    });
    const read = await t.read(intent);
    t.must(recordOf(read)?.['payment_id'] === first['payment_id'], {
      expected: `payment_id ${show(first['payment_id'])} under its own account`,
      got: tell(read),
      at: read,
    });
    const { other } = t.target.accounts;
    if (other === undefined) return;
    const intents = Array.from({ length: RACES }, (_, place) =>
      t.intend(own(t.target, 300 + place)),
    );
    for (const intent of intents) t.run.spend(intent);
    // In one burst, because nothing else is sent meanwhile: at a slow server each one costs the run seconds.
    const puts = await t.burst(
      intents.flatMap((intent) =>
        [intent.account_id, other].map((account_id) => () => putTo(t, intent, account_id)),
      ),
    );
    await Promise.all(
      intents.map((intent, place) =>
        judgeRace(t, intent, other, puts.slice(2 * place, 2 * place + 2)),
      ),
    );
  },
};

/** Not t.put, which would note the first response as that of the intent's own account. */
function putTo(t: PartnerContext, intent: Intent, account_id: string): Promise<Reply> {
  return t.call(
    'put_account_payment',
    { account_id, platform_payment_id: intent.platform_payment_id },
    {
      body: instruction(intent),
      headers: { 'content-type': 'application/json' },
      burst: true,
    },
  );
}

/** After one new id was put to two accounts concurrently: at most one of the two requests created a payment. */
async function judgeRace(
  t: PartnerContext,
  intent: Intent,
  other: string,
  puts: readonly Reply[],
): Promise<void> {
  const accounts = [intent.account_id, other];
  const { platform_payment_id } = intent;
  const reads: Reply[] = [];
  for (const account_id of accounts) {
    reads.push(await t.call('get_account_payment', { account_id, platform_payment_id }));
  }
  const [own_read, other_read] = reads;
  const isOwn = own_read !== undefined && isSuccess(own_read);
  if (!isOwn && other_read !== undefined && isSuccess(other_read)) {
    t.run.moved({ ...intent, account_id: other });
  }
  const found = [...puts, ...reads].filter(isSuccess);
  const ids = new Set(found.map((reply) => show(recordOf(reply)?.['payment_id'])));
  const last = found.at(-1);
  t.must(ids.size <= 1, {
    expected: 'one payment_id after concurrent PUTs of one new id to two accounts',
    got: `the payment_ids ${[...ids].join(', ')}`,
    cause: 'The id is checked under a lock of the account, without a unique constraint on the id.',
    ...(last === undefined ? {} : { at: last }),
  });
}
