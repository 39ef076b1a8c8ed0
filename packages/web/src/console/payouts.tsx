/** How the billers of a partner are paid, and the form that an admin sets it by. */
import type { Payout, PayoutView } from '@duebridge/contract';
import { post } from './api.ts';
import { announcement, Form, money, needsAdmin, Show, Table, words } from './parts.tsx';
import { toCents } from './payments-filter.ts';

const WAYS = ['pain001', 'nacha', 'by_hand', 'stripe'] as const satisfies readonly Payout['way'][];

export function Payouts({ partner_id }: { partner_id: string }) {
  const path = `/partners/${encodeURIComponent(partner_id)}/payout`;
  return (
    <Show<{ payouts: PayoutView[] }> path={path}>
      {({ payouts }, again) => (
        <>
          <Table
            caption="How it is paid"
            rows={payouts}
            empty="Nobody has said how it is paid: what it is owed waits."
            columns={[
              ['Biller', (one) => one.biller_id],
              ['Way', (one) => words(one.way)],
              ['Account of', (one) => one.holder_name],
              ['Account', (one) => one.account],
              ['At least', (one) => money(one.minimum_in_cents), 'number'],
              ['Held', (one) => (one.held ? 'yes: nothing is transferred' : 'no')],
              ['Bears refunds', (one) => (one.bears_refunds ? 'yes' : 'no')],
            ]}
          />
          {needsAdmin() === undefined && <Change {...{ path, again }} />}
        </>
      )}
    </Show>
  );
}

const AS_IT_IS = 'as it is';
const SWITCH = [AS_IT_IS, 'yes', 'no'] as const;

/** The account is given in full, because it is shown nowhere. What else is left as it is stays so: a new account ends no hold. */
function Change({ path, again }: { path: string; again: () => void }) {
  return (
    <Form
      fields={[
        { name: 'biller_id', label: 'Biller, of an aggregator' },
        { name: 'way', label: 'Way', options: WAYS },
        { name: 'holder_name', label: 'Account of', required: true, maxLength: 140 },
        { name: 'routing_number', label: 'Routing number', inputMode: 'numeric' },
        { name: 'account_number', label: 'Account number', inputMode: 'numeric' },
        { name: 'stripe_account', label: 'Account at Stripe' },
        { name: 'minimum', label: 'At least, in dollars', inputMode: 'decimal' },
        { name: 'held', label: 'Held', options: SWITCH },
        { name: 'bears_refunds', label: 'Bears refunds', options: SWITCH },
      ]}
      button="Set how it is paid"
      submit={async ({ minimum = '', held, bears_refunds, ...given }) => {
        const cents = toCents(minimum);
        if (minimum !== '' && cents === undefined)
          throw new Error('Write the least as 25 or 25.00.');
        const set = await post<PayoutView>(path, {
          ...Object.fromEntries(Object.entries(given).filter(([, text]) => text)),
          ...(cents && { minimum_in_cents: Number(cents) }),
          ...(held !== AS_IT_IS && { held: held === 'yes' }),
          ...(bears_refunds !== AS_IT_IS && { bears_refunds: bears_refunds === 'yes' }),
        });
        again();
        announcement.value = `${set.biller_id} is paid by ${words(set.way)}.`;
      }}
    />
  );
}
