/** Shared by P01 and P02: call every operation with a credential that must be refused. */
import { asObject, isRefusal, isSuccess, tell, type Reply } from '../../check/http.ts';
import type { PartnerContext, Proof } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';

/** Fields that reveal an account or a payment. */
const DATA = ['balance', 'holder', 'account_id', 'amount_due_in_cents', 'payment_id', 'status'];

/**
 * Calls every operation with each credential in turn. Each call must be refused, must return no data and must not create a
 * payment. `offset` keeps the amount distinct from those of other checks.
 */
export async function refusesAll(
  t: PartnerContext,
  proofs: readonly (readonly [name: string, proof: Proof])[],
  offset: number,
): Promise<void> {
  const { accepted, paths } = { accepted: await t.subject(), paths: t.target.paths };
  await Promise.all(
    proofs.map(async ([name, proof]) => {
      const intent = t.intend(own(t.target, offset));
      const calls: (readonly [string, Promise<Reply>])[] = [
        ['GET account', t.readAccount(undefined, { proof })],
        ['GET payment under its account', t.read(accepted.intent, { proof })],
        ['PUT payment', t.put(intent, { proof })],
      ];
      if (paths.get_balance !== null) {
        calls.push(['GET balance', t.readBalance(undefined, { proof })]);
      }
      if (paths.get_payment !== null) {
        calls.push(['GET payment', t.readById(accepted.intent, { proof })]);
      }
      const replies = await Promise.all(calls.map(([, call]) => call));
      for (const [place, [what]] of calls.entries()) {
        const reply = replies[place];
        if (reply !== undefined) refused(t, reply, `${what} with ${name}`);
      }
      const read = await t.read(intent);
      t.must(!isSuccess(read), {
        expected: `no payment created by a PUT with ${name}`,
        got: tell(read),
        cause: 'The payment is stored before the credential is checked.',
        at: read,
      });
    }),
  );
}

function refused(t: PartnerContext, reply: Reply, what: string): void {
  const holds = t.must(isRefusal(reply), {
    expected: `${what}: a refusal, such as 401`,
    got: tell(reply),
    at: reply,
  });
  if (!holds) return;
  // A gateway may answer 404 for a request it blocks; that is still a refusal.
  const body = asObject(reply.json) ?? {};
  const shown = DATA.filter((field) => field in body && typeof body[field] !== 'number');
  const money = typeof body['amount_due_in_cents'] === 'number';
  t.must(!(money || shown.some((field) => field !== 'status')), {
    expected: `${what}: no data in the refusal`,
    got: tell(reply),
    at: reply,
  });
  t.strict(reply.status === 401, { expected: `${what}: 401`, got: tell(reply), at: reply });
}
