/** Money: where every cent is, by biller and day, with the lines behind each figure; remittances, refunds, and cases with their ends. */
import type {
  CaseEnd,
  CaseEnded,
  CaseView,
  MoneyBalances,
  PayoutView,
  RefundView,
  RemittanceView,
} from '@duebridge/contract';
import { post } from './api.ts';
import {
  Act,
  chosen,
  Facts,
  List,
  moment,
  money,
  Show,
  Table,
  toBatch,
  toPayment,
  words,
} from './parts.tsx';
import { go, link, withQuery } from './route.ts';

type Account = Exclude<keyof MoneyBalances, 'mode' | 'partner_id' | 'biller_id'>;

/** Both sides of the equation, in the words of docs/money.md. */
const FROM: readonly (readonly [Account, string])[] = [
  ['taken', 'Taken'],
  ['elsewhere', 'Collected elsewhere'],
  ['uncollected', 'Not collected'],
  ['borne', 'Borne by the platform'],
];
const TO: readonly (readonly [Account, string])[] = [
  ['owed', 'Owed to billers'],
  ['remitting', 'On its way to billers'],
  ['paid', 'Paid to billers'],
  ['refunding', 'On its way to customers'],
  ['refunded', 'Refunded'],
  ['returned', 'Taken back by banks'],
  ['disputed', 'Disputed'],
  ['under_way', 'Under way'],
];

export function MoneyPage() {
  const day = chosen('day');
  return (
    <>
      <h1>Money</h1>
      <form class="filters">
        <label>
          Moved on (UTC)
          <input
            type="date"
            value={day}
            onChange={({ currentTarget }) => go(withQuery({ day: currentTarget.value }))}
          />
        </label>
      </form>
      <Show<{ balances: MoneyBalances[] }> path={`/money${day && `?day=${day}`}`}>
        {({ balances }) => <Balances {...{ balances, day }} />}
      </Show>
      <Lines lines={chosen('lines')} />
      <p>
        Files for the bank are made by <code>duebridge platform money bank-file</code>; what the
        bank says of their transfers is noted by <code>duebridge platform money end</code>.
      </p>
    </>
  );
}

const keyOf = ({ partner_id, biller_id }: MoneyBalances): string => `${partner_id} ${biller_id}`;

function Balances({ balances, day }: { balances: readonly MoneyBalances[]; day: string }) {
  const biller = chosen('biller');
  const shown = biller === '' ? balances : balances.filter((one) => keyOf(one) === biller);
  /** A figure that opens into its lines. */
  const figure = (cents: number, one: MoneyBalances, lines: string) => (
    <a href={withQuery({ biller: keyOf(one), lines })}>{money(cents)}</a>
  );
  return (
    <>
      {(['live', 'test'] as const).map((mode) => (
        <Equation
          key={mode}
          {...{ mode, day }}
          balances={shown.filter((one) => one.mode === mode)}
        />
      ))}
      <Table
        caption={day === '' ? 'By biller' : `By biller, moved on ${day}`}
        rows={shown}
        empty="No money has moved."
        columns={[
          ['Biller', (one) => <a href={withQuery({ biller: keyOf(one) })}>{one.biller_id}</a>],
          ['Partner', (one) => one.partner_id],
          ['Owed', (one) => <a href={link('batches')}>{money(one.owed)}</a>, 'number'],
          ['On its way', (one) => figure(one.remitting, one, 'remittances sent'), 'number'],
          ['Paid', (one) => figure(one.paid, one, 'remittances paid'), 'number'],
          ['Refunded', (one) => figure(one.refunded, one, 'refunds'), 'number'],
          ['Returned or disputed', (one) => figure(one.returned + one.disputed, one, ''), 'number'],
        ]}
      />
      {biller !== '' && (
        <>
          <a href={withQuery({ biller: '', lines: '' })}>All billers</a>
          <List<PayoutView>
            caption="How it is paid"
            path={`/partners/${encodeURIComponent(biller.split(' ')[0] ?? '')}/payout`}
            of="payouts"
            empty="Nobody has said how it is paid, by duebridge platform money payout: what it is owed waits."
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
        </>
      )}
    </>
  );
}

/** Where the money came from, where it is, and that both are equal. */
function Equation(props: { mode: string; balances: readonly MoneyBalances[]; day: string }) {
  const { mode, balances, day } = props;
  if (balances.length === 0) return null;
  const side = (accounts: typeof FROM) =>
    accounts.map(
      ([account, name]) => [name, balances.reduce((sum, one) => sum + one[account], 0)] as const,
    );
  const total = (lines: ReturnType<typeof side>): number =>
    lines.reduce((cents, [, each]) => cents + each, 0);
  const [from, to] = [side(FROM), side(TO)];
  const apart = total(from) - total(to);
  return (
    <section aria-label={`The equation, ${mode}`}>
      <h2>
        {mode === 'test' ? 'Test money' : 'Live money'}
        {day && ` on ${day}`}
      </h2>
      <Facts
        facts={[...from, ...to].flatMap(([w, cents]) => (cents === 0 ? [] : [[w, money(cents)]]))}
      />
      <p class={apart === 0 ? 'note' : 'trouble'}>
        {money(total(from))} came from customers and the platform;{' '}
        {apart === 0
          ? 'every cent of it is above.'
          : `${money(apart)} of it is nowhere: run duebridge platform money check.`}
      </p>
    </section>
  );
}

/** The lines behind a figure; cases, which need a person, unless another figure was opened. */
function Lines({ lines }: { lines: string }) {
  const [of = '', state = ''] = lines.split(' ');
  const [partner_id] = chosen('biller').split(' ');
  if (of === 'remittances')
    return <Remittances of={{ ...(partner_id && { partner_id }), ...(state && { state }) }} />;
  if (of === 'refunds')
    return (
      <List<RefundView>
        caption="Refunds, newest first"
        path="/money/refunds"
        empty="No refunds."
        columns={[
          ['Payment', (one) => toPayment(one.platform_payment_id)],
          ['Amount', (one) => money(one.amount_in_cents), 'number'],
          ['Reason', (one) => words(one.reason_code)],
          ['Borne by', (one) => one.borne_by],
          ['State', (one) => one.state],
        ]}
      />
    );
  // What has not ended, the most urgent first, each with the ends that it may have now.
  return (
    <List<CaseView>
      caption="Cases, the most urgent first"
      path="/money/cases"
      keyOf={(one) => one.case_id}
      empty="No cases."
      columns={[
        ['Payment', (one) => toPayment(one.platform_payment_id)],
        ['About', (one) => words(one.reason_code)],
        ['Money', (one) => money(one.amount_in_cents), 'number'],
        ['Answer by', (one) => moment(one.deadline)],
        ['Note', (one) => one.note],
        ['Ends', (one) => endsOf(one).map((end) => <End key={end[0]} one={one} end={end} />)],
      ]}
    />
  );
}

/** Remittances, each with its statement to save: a partner's, or those in a state. */
export function Remittances({ of }: { of: { readonly partner_id?: string; state?: string } }) {
  return (
    <List<RemittanceView>
      caption={`Remittances, ${of.state ? `${of.state}, ` : ''}newest first`}
      path={`/money/remittances?${new URLSearchParams(of)}`}
      keyOf={(one) => one.remittance_id}
      empty="No remittances."
      columns={[
        ['Remittance', (one) => statementOf(one.remittance_id)],
        ['Batch', (one) => toBatch(one.platform_batch_id)],
        ['Biller', (one) => one.biller_id],
        ['State', (one) => one.state],
        ['Payments', (one) => one.payments, 'number'],
        ['Gross', (one) => money(one.gross_in_cents), 'number'],
        ['Taken off', (one) => money(one.deducted_in_cents), 'number'],
        ['Carried', (one) => money(one.carried_in_cents), 'number'],
        ['Net', (one) => money(one.net_in_cents), 'number'],
        ['Bank’s reference', (one) => one.reference ?? one.reason ?? '–'],
      ]}
    />
  );
}

const statementOf = (id: string) => (
  <a href={`/admin/v1/money/remittances/${id}/statement`} target="_self" download={`${id}.csv`}>
    {id}
  </a>
);

type End = readonly [CaseEnd['disposition'], label: string];

/** The ends that a case may have: money that is gone is made up for, and a dispute whose end the processor does not tell is decided. Pure. */
function endsOf(one: CaseView): readonly End[] {
  if (one.state === 'lost') {
    return [
      ['recovered', 'Recovered'],
      ['charged_to_biller', 'Charge the biller'],
      ['written_off', 'Write off'],
    ];
  }
  return one.amount_in_cents === 0 || one.reason_code === 'refunded_elsewhere'
    ? [['answered', 'Answered']]
    : [
        ['won', 'Won'],
        ['lost', 'Lost'],
      ];
}

function End({ one, end: [disposition, label] }: { one: CaseView; end: End }) {
  return (
    <Act
      label={label}
      about={`Ends the case about ${one.platform_payment_id} (${words(one.reason_code)}, ${money(one.amount_in_cents)}) as ${words(disposition)}.`}
      act={async (reason) => {
        const path = `/money/cases/${encodeURIComponent(one.case_id)}/end`;
        const { outcome } = await post<CaseEnded>(path, { disposition, reason });
        if (outcome !== 'done') return 'Noted. A second person has to confirm it.';
        return disposition === 'lost'
          ? 'The dispute is lost: say who makes up for its money.'
          : 'The case has ended.';
      }}
    />
  );
}
