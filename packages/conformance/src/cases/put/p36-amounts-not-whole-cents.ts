import type { PartnerCase } from '../../check/check.ts';
import type { Severity } from '../../check/findings.ts';
import { isRefusal, isSuccess, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import type { Intent } from '../../check/payment-fields.ts';
import { own } from '../../check/planned-payments.ts';

/** Amounts as written in the body, with the severity of accepting each. */
const AMOUNTS: readonly {
  readonly source: string | undefined;
  readonly severity: Severity | 'strict';
}[] = [
  { source: '"100"', severity: 'must' },
  { source: '10.5', severity: 'must' },
  { source: undefined, severity: 'must' },
  { source: '0', severity: 'should' },
  { source: '-1', severity: 'should' },
  { source: 'null', severity: 'strict' },
  { source: 'true', severity: 'strict' },
  { source: '1e2', severity: 'strict' },
];

export const p36: PartnerCase = {
  id: 'P36',
  title: 'Amounts that are not a positive integer of cents are refused',
  clauses: ['S5', 'PF6'],
  decisions: [11],
  severity: 'must',
  profile: 'contract',
  sends:
    'PUT payment with amount_in_cents "100", 10.5, missing, 0 and -1, each with a new id; then one of the refused ids with a valid amount',
  expects:
    'a refusal (400) each time, and no payment under that id; the corrected request is accepted',
  likely_cause: 'A framework converts strings and fractions to integers before validation.',
  creates: (target) => AMOUNTS.map(() => own(target, 0)),
  async run(t) {
    const amounts = AMOUNTS.filter(
      ({ severity }) => severity !== 'strict' || t.profile === 'strict',
    );
    // Side by side: each has an id of its own.
    const tried = await Promise.all(
      amounts.map(async ({ source, severity }) => {
        const intent = t.intend(own(t.target, 0));
        const amount = source === undefined ? '' : `"amount_in_cents":${source},`;
        const put = await t.put(intent, {
          body: `{${amount}"platform_batch_id":"${intent.platform_batch_id}","platform_payment_id":"${intent.platform_payment_id}"}`,
        });
        const read = isRefusal(put) ? await t.read(intent) : undefined;
        return { source, severity, intent, put, read };
      }),
    );
    for (const { source, severity, put, read } of tried) {
      const raise = severity === 'must' ? t.must.bind(t) : t.should.bind(t);
      raise(read !== undefined, {
        expected: `a refusal of ${source === undefined ? 'a body without amount_in_cents' : `amount_in_cents ${source}`}`,
        got: tell(put),
        at: put,
      });
      if (read === undefined) continue;
      t.strict(put.status === 400 || put.status === 422, {
        expected: '400 or 422: the request is invalid, not the credential or the URL',
        got: tell(put),
        cause:
          'The platform does not treat any other refusal as final, so it retries the request forever.',
        at: put,
      });
      raise(!isSuccess(read), {
        expected: 'no payment under the refused id',
        got: tell(read),
        at: read,
      });
    }
    await correctsTheFirst(
      t,
      tried.flatMap(({ intent, read }) => (read === undefined || isSuccess(read) ? [] : [intent])),
    );
  },
};

/** A refused request was not accepted, so the id is still new (ST1). */
async function correctsTheFirst(t: PartnerContext, refused: readonly Intent[]): Promise<void> {
  const [intent] = refused;
  if (intent === undefined) return;
  const put = await t.put(intent);
  const isBusy = put.status === undefined || put.status === 429 || put.status >= 500;
  t.should(isBusy || isSuccess(put), {
    expected: '200 for the refused id with a valid amount',
    got: tell(put),
    clause: 'ST1',
    cause: 'The id is stored as seen before the request is validated.',
    at: put,
  });
}
