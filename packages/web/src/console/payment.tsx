/** One payment: its facts, what may be done to it, and its history. */
import type {
  Attempt,
  AuditEntry,
  PartnerAnswer,
  PaymentDetail,
  ReviewClose,
  UnmaskedAccount,
} from '@duebridge/contract';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { post } from './api.ts';
import { Cause } from './cause.tsx';
import {
  Act,
  type ActOf,
  Facts,
  lasting,
  moment,
  money,
  Show,
  Status,
  toBatch,
  toPartner,
  words,
} from './parts.tsx';
import { nextStep } from './payments.tsx';
import { link } from './route.ts';

export function PaymentPageOf({ id }: { id: string }) {
  return (
    <>
      <p>
        <a href={link('payments')}>Payments</a>
      </p>
      <Show<PaymentDetail> path={`/payments/${encodeURIComponent(id)}`}>
        {(data) => <Detail {...data} />}
      </Show>
    </>
  );
}

function Detail({ payment, ask, partner_held, attempts, audit }: PaymentDetail) {
  const { open_case } = payment;
  const [account, setAccount] = useState<string>();
  /** What an operator has to know of it now. */
  const notes: readonly ComponentChildren[] = [
    partner_held !== null && (
      <>
        It waits, because calls to {toPartner(payment.partner_id)} are held back: {partner_held}
      </>
    ),
    payment.paused &&
      'An operator paused it, as written below. Nothing is sent for it until somebody resumes it.',
    open_case !== null &&
      `A case (${words(open_case.reason_code)}), opened by ${open_case.opened_by} on ${moment(open_case.opened_at)}: ${open_case.note}`,
    ask !== null &&
      `${ask.asked_by} asked on ${moment(ask.asked_at)} to ${ask.act}: ${ask.reason}. A second person has to do the same.`,
  ];
  return (
    <>
      <h1>
        {money(payment.amount_in_cents)} <Status {...payment} />
      </h1>
      <Facts facts={factsOf(payment, account)} />
      {notes.map(
        (note, index) =>
          note && (
            <p class="note" key={index}>
              {note}
            </p>
          ),
      )}
      <Cause payment={payment} attempts={attempts} />
      <div class="buttons">
        {actsOf(payment, setAccount).map((one) => (
          <Act key={one.label} {...one} />
        ))}
      </div>
      <h2>What happened</h2>
      <Story attempts={attempts} audit={audit} />
    </>
  );
}

function factsOf(payment: PaymentDetail['payment'], account: string | undefined) {
  const { ended_at, last_result } = payment;
  const took = Date.parse(ended_at ?? new Date().toISOString()) - Date.parse(payment.created_at);
  return [
    ['Payment', <code>{payment.platform_payment_id}</code>],
    ['At the partner', <code>{payment.payment_id ?? '–'}</code>],
    ['Partner', toPartner(payment.partner_id)],
    ['Mode', payment.mode === 'test' ? 'test: no money moves' : 'live'],
    ['Account', account ?? payment.masked_account_id],
    ['Batch', toBatch(payment.platform_batch_id)],
    ['Confirmed', moment(payment.created_at)],
    [ended_at === null ? 'Waits for' : 'Took', lasting(took)],
    ['Attempts', `${payment.attempts}${last_result === null ? '' : `, the last: ${last_result}`}`],
    ['Next', nextStep(payment)],
    ['Accepted by the partner', moment(payment.initiated_at)],
    ['Posted', moment(payment.posted_at)],
    ['Ended', moment(ended_at)],
    ['Reason', payment.review_reason ?? payment.failure_reason ?? '–'],
  ] as const;
}

/** What may be done to a payment: each act with what it does, and why it is not possible now. */
function actsOf(
  payment: PaymentDetail['payment'],
  showAccount: (account_id: string) => void,
): ActOf[] {
  const { platform_payment_id: id, stage, paused, status, open_case, review_reason } = payment;
  const name = `${money(payment.amount_in_cents)} to ${payment.partner_id}, ${id}`;
  /** Sends an act, and gives what was done: a sentence, or one of the answer. */
  const send =
    <Reply,>(act: string, done: string | ((reply: Reply) => string)): ActOf['act'] =>
    async (reason) => {
      const reply = await post<Reply>(`/payments/${encodeURIComponent(id)}/${act}`, { reason });
      return typeof done === 'string' ? done : done(reply);
    };
  const inReview = stage === 'review' ? undefined : 'Only a payment in review.';
  const isRefused = review_reason?.startsWith('rejected_') === true;
  const isUnsent = stage === 'created' || stage === 'authorized';
  const isDriven = status === 'processing' && stage !== 'review';
  return [
    {
      label: 'Close as failed',
      danger: true,
      blocked: inReview ?? (isRefused ? undefined : 'The partner did not refuse it.'),
      about: `Ends ${name} as failed. The partner is asked first and must not know it; the funds are released and the customer may pay anew.`,
      act: send('close', ({ outcome }: ReviewClose) =>
        outcome === 'done' ? 'Closed.' : 'Noted. A second person has to confirm it.',
      ),
    },
    {
      label: 'Resume',
      blocked: paused ? undefined : inReview && 'Only a payment in review, or a paused one.',
      about: paused
        ? `Ends the pause of ${name}: it continues where it was.`
        : `Sends ${name} again, with the same id and the same bytes. A partner that has it already returns the existing payment.`,
      act: send('resume', 'Resumed.'),
    },
    {
      label: 'Pause',
      blocked: paused ? 'It is paused.' : isDriven ? undefined : 'Nothing is sent for it.',
      about: `Sends nothing more for ${name} until it is resumed. It does not end meanwhile; other payments go on.`,
      act: send('pause', 'Paused.'),
    },
    {
      label: 'Open a case',
      about: `Opens a case about ${name}, which stays in the list of what needs a person until it is ended. Nothing else is changed.`,
      reasonLabel: 'What it is about, kept in the audit',
      act: send('cases', 'The case is open.'),
    },
    ...(open_case === null
      ? []
      : [
          {
            label: 'End the case',
            about: `Ends the case about ${name} as answered. One about money is ended on the page Money.`,
            reasonLabel: 'What came of it, kept in the audit',
            async act(reason: string) {
              const to = `/money/cases/${encodeURIComponent(open_case.case_id)}/end`;
              await post(to, { disposition: 'answered', reason });
              return 'The case has ended.';
            },
          },
        ]),
    {
      label: 'Poll now',
      blocked: isUnsent ? 'Nothing has been sent to the partner yet.' : undefined,
      about: `Asks the partner for the status of ${name} now. Nothing is changed; the next poll records the result.`,
      act: send('poll', ({ answer }: PartnerAnswer) => `The partner says: ${words(answer)}.`),
    },
    {
      label: 'Withdraw',
      danger: true,
      blocked: payment.withdrawable
        ? undefined
        : 'It may have reached the partner; only the partner can cancel it.',
      about: `Cancels ${name}, which cannot have left yet.`,
      act: send('withdraw', 'Withdrawn.'),
    },
    {
      label: 'Show the account',
      about: `Shows the whole account id of ${name}.`,
      act: send('unmask', ({ account_id }: UnmaskedAccount) => {
        showAccount(account_id);
        return 'The account is shown.';
      }),
    },
  ];
}

/** Attempts and decisions in chronological order; a pause of more than a minute is shown. */
function Story(props: { attempts: readonly Attempt[]; audit: readonly AuditEntry[] }) {
  const lines = [
    ...props.audit.map(({ at, event, actor, detail }) => ({
      at,
      until: at,
      what: words(event),
      how: [actor, ...Object.entries(detail).map(([name, value]) => `${name}: ${value}`)].join(
        ' · ',
      ),
      body: null,
    })),
    ...props.attempts.map(lineOf),
  ].sort((a, b) => (a.at < b.at ? -1 : 1));
  return (
    <ol class="story">
      {lines.map(({ at, what, how, body }, index) => {
        const before = lines[index - 1]?.until ?? at;
        const pause = Date.parse(at) - Date.parse(before);
        return (
          <li key={`${at} ${what} ${index}`}>
            {pause > 60_000 && <p class="pause">{lasting(pause)} later</p>}
            <time dateTime={at}>{moment(at)}</time> <strong>{what}</strong>
            <span class="how">{how}</span>
            {body !== null && (
              <details>
                <summary>What the partner answered</summary>
                <pre>{body}</pre>
              </details>
            )}
          </li>
        );
      })}
    </ol>
  );
}

/** A call, or several polls with the same answer. */
function lineOf({ kind, count, at, last_at, result, body, ...call }: Attempt) {
  const many = kind !== 'put' && count > 1;
  return {
    at,
    until: last_at,
    what: kind === 'put' ? 'PUT' : many ? `${count} polls` : 'poll',
    how: `${many ? `all ${result}, until ${moment(last_at)}` : result} · HTTP ${call.http_status ?? '–'} · ${call.took_ms} ms · request ${call.request_id}`,
    body,
  };
}
