/** Money: where every cent is, by biller and day, with the lines behind each figure; remittances, refunds, and cases with their ends. */
import type {
  CaseEnd,
  CaseEnded,
  CaseView,
  MoneyBalances,
  RefundView,
  RemittanceView,
} from '@duebridge/contract';
import { get, post } from './api.ts';
import {
  Act,
  Facts,
  isViewer,
  List,
  moment,
  money,
  options,
  Table,
  Trouble,
  useRead,
} from './parts.tsx';
import { go, link, query, withQuery } from './route.ts';

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
  const day = query.value.get('day') ?? '';
  const { data, error } = useRead(`money ${day}`, () =>
    get<{ balances: MoneyBalances[] }>(`/money${day === '' ? '' : `?day=${day}`}`),
  );
  const biller = query.value.get('biller') ?? '';
  const all = data?.balances ?? [];
  const shown = biller === '' ? all : all.filter((one) => keyOf(one) === biller);
  return (
    <>
      <h1>Money</h1>
      <Trouble error={error} />
      <form class="filters">
        <label>
          Moved on (UTC)
          <input
            type="date"
            name="day"
            value={day}
            onChange={(event) => {
              go(withQuery({ day: event.currentTarget.value }));
            }}
          />
        </label>
      </form>
      {(['live', 'test'] as const).map((mode) => (
        <Equation
          key={mode}
          mode={mode}
          balances={shown.filter((one) => one.mode === mode)}
          day={day}
        />
      ))}
      <Table
        caption={day === '' ? 'By biller' : `By biller, moved on ${day}`}
        command={['money', ...options({ day })]}
        rows={shown}
        keyOf={keyOf}
        empty={data === undefined ? 'Loading…' : 'No money has moved.'}
        columns={[
          {
            head: 'Biller',
            cell: (one) => <a href={withQuery({ biller: keyOf(one) })}>{one.biller_id}</a>,
          },
          { head: 'Partner', cell: (one) => one.partner_id },
          {
            head: 'Owed',
            number: true,
            cell: (one) => <a href={link('batches')}>{money(one.owed)}</a>,
          },
          {
            head: 'On its way',
            number: true,
            cell: (one) => <a href={remittancesOf(one, 'sent')}>{money(one.remitting)}</a>,
          },
          {
            head: 'Paid',
            number: true,
            cell: (one) => <a href={remittancesOf(one, 'paid')}>{money(one.paid)}</a>,
          },
          {
            head: 'Refunded',
            number: true,
            cell: (one) => <a href={withQuery({ lines: 'refunds' })}>{money(one.refunded)}</a>,
          },
          {
            head: 'Returned or disputed',
            number: true,
            cell: (one) => (
              <a href={withQuery({ lines: '' })}>{money(one.returned + one.disputed)}</a>
            ),
          },
        ]}
      />
      {biller === '' ? null : <a href={withQuery({ biller: '', lines: '' })}>All billers</a>}
      <Lines lines={query.value.get('lines') ?? ''} />
    </>
  );
}

const keyOf = ({ partner_id, biller_id }: MoneyBalances): string => `${partner_id} ${biller_id}`;
const remittancesOf = (one: MoneyBalances, state: string): string =>
  withQuery({ biller: keyOf(one), lines: `remittances ${state}` });

/** Where the money came from, where it is, and that both are equal. */
function Equation({
  mode,
  balances,
  day,
}: {
  mode: string;
  balances: readonly MoneyBalances[];
  day: string;
}) {
  if (balances.length === 0) return null;
  const sum = (account: Account): number =>
    balances.reduce((total, one) => total + one[account], 0);
  const side = (accounts: typeof FROM) =>
    accounts.map(([account, words]) => [words, sum(account)] as const);
  const total = (lines: ReturnType<typeof side>): number =>
    lines.reduce((cents, [, each]) => cents + each, 0);
  const [from, to] = [side(FROM), side(TO)];
  const apart = total(from) - total(to);
  return (
    <section aria-label={`The equation, ${mode}`}>
      <h2>
        {mode === 'test' ? 'Test money' : 'Live money'}
        {day === '' ? '' : ` on ${day}`}
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
  const [partner_id = ''] = (query.value.get('biller') ?? '').split(' ');
  switch (of) {
    case 'remittances':
      return (
        <List<RemittanceView>
          caption={`Remittances, ${state}, newest first`}
          command={['money', 'remittances', ...options({ partner: partner_id, state })]}
          path={`/money/remittances?${new URLSearchParams({ ...(partner_id !== '' && { partner_id }), state })}`}
          of="remittances"
          keyOf={(one) => one.remittance_id}
          empty="No remittances."
          columns={[
            {
              head: 'Remittance',
              cell: ({ remittance_id }) => (
                <a
                  href={`/admin/v1/money/remittances/${remittance_id}/statement`}
                  target="_self"
                  download={`${remittance_id}.csv`}
                >
                  {remittance_id}
                </a>
              ),
            },
            {
              head: 'Batch',
              cell: (one) => (
                <a href={link('batches', one.platform_batch_id)}>{one.platform_batch_id}</a>
              ),
            },
            { head: 'Biller', cell: (one) => one.biller_id },
            { head: 'Payments', number: true, cell: (one) => one.payments },
            { head: 'Gross', number: true, cell: (one) => money(one.gross_in_cents) },
            { head: 'Taken off', number: true, cell: (one) => money(one.deducted_in_cents) },
            { head: 'Carried', number: true, cell: (one) => money(one.carried_in_cents) },
            { head: 'Net', number: true, cell: (one) => money(one.net_in_cents) },
            { head: 'Bank’s reference', cell: (one) => one.reference ?? one.reason ?? '–' },
          ]}
        />
      );
    case 'refunds':
      return (
        <List<RefundView>
          caption="Refunds, newest first"
          command={['money', 'refunds']}
          path="/money/refunds"
          of="refunds"
          keyOf={(one) => one.refund_id}
          empty="No refunds."
          columns={[
            { head: 'Payment', cell: (one) => paymentLink(one.platform_payment_id) },
            { head: 'Amount', number: true, cell: (one) => money(one.amount_in_cents) },
            { head: 'Reason', cell: (one) => words(one.reason_code) },
            { head: 'Borne by', cell: (one) => one.borne_by },
            { head: 'State', cell: (one) => one.state },
          ]}
        />
      );
    default:
      return <Cases />;
  }
}

const words = (code: string): string => code.replaceAll('_', ' ');
const paymentLink = (id: string) => <a href={link('payments', id)}>{id}</a>;

/** What has not ended, the most urgent first, each with the ends that it may have now. */
function Cases() {
  return (
    <List<CaseView>
      caption="Cases, the most urgent first"
      command={['case']}
      path="/money/cases"
      of="cases"
      keyOf={(one) => one.case_id}
      empty="No cases."
      columns={[
        { head: 'Payment', cell: (one) => paymentLink(one.platform_payment_id) },
        { head: 'About', cell: (one) => words(one.reason_code) },
        { head: 'Money', number: true, cell: (one) => money(one.amount_in_cents) },
        { head: 'Answer by', cell: (one) => moment(one.deadline) },
        { head: 'Note', cell: (one) => one.note },
        {
          head: 'Ends',
          cell: (one) =>
            endsOf(one).map(([disposition, label]) => (
              <Act
                key={disposition}
                label={label}
                blocked={isViewer()}
                about={`Ends the case about ${one.platform_payment_id} (${words(one.reason_code)}, ${money(one.amount_in_cents)}) as ${words(disposition)}.`}
                act={(reason) => endOf(one, { disposition, reason })}
              />
            )),
        },
      ]}
    />
  );
}

/** The ends that a case may have: money that is gone is made up for, and a dispute whose end the processor does not tell is decided. Pure. */
function endsOf(one: CaseView): readonly (readonly [CaseEnd['disposition'], string])[] {
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

async function endOf({ case_id }: CaseView, end: CaseEnd): Promise<string> {
  const { outcome } = await post<CaseEnded>(`/money/cases/${encodeURIComponent(case_id)}/end`, end);
  if (outcome !== 'ended') return 'Noted. A second person has to confirm it.';
  return end.disposition === 'lost'
    ? 'The dispute is lost: say who makes up for its money.'
    : 'The case has ended.';
}
