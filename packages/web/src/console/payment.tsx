/** One payment: its facts, what may be done to it, and its history. */
import type {
  Attempt,
  AuditEntry,
  PartnerAnswer,
  PaymentDetail,
  ReviewClose,
  UnmaskedAccount,
} from '@duebridge/contract';
import { useState } from 'preact/hooks';
import { get, post } from './api.ts';
import { Cause } from './cause.tsx';
import { NextStep } from './next-step.tsx';
import {
  Act,
  Facts,
  isViewer,
  lasting,
  moment,
  money,
  Status,
  Trouble,
  useRead,
} from './parts.tsx';
import { link } from './route.ts';

export function PaymentPageOf({ id }: { id: string }) {
  const { data, error, again } = useRead(`payment ${id}`, () =>
    get<PaymentDetail>(`/payments/${encodeURIComponent(id)}`),
  );
  const [account, setAccount] = useState<string>();
  if (data === undefined) {
    return (
      <>
        <h1>Payment</h1>
        {error === undefined ? <p>Loading…</p> : <Trouble error={error} />}
      </>
    );
  }
  const { payment, pending_close, partner_held } = data;
  const acts = actsOf(payment, setAccount).map((one) => ({
    ...one,
    blocked: isViewer() ?? one.blocked,
    act: async (reason: string) => {
      const did = await one.act(reason);
      again();
      return did;
    },
  }));
  return (
    <>
      <p>
        <a href={link('payments')}>Payments</a>
      </p>
      <h1>
        {money(payment.amount_in_cents)} <Status {...payment} />
      </h1>
      <Trouble error={error} />
      <Facts
        facts={[
          ['Payment', <code>{id}</code>],
          ['At the partner', <code>{payment.payment_id ?? '–'}</code>],
          ['Partner', <a href={link('partners', payment.partner_id)}>{payment.partner_id}</a>],
          ['Mode', payment.mode === 'test' ? 'test: no money moves' : 'live'],
          ['Account', account ?? payment.masked_account_id],
          [
            'Batch',
            <a href={link('batches', payment.platform_batch_id)}>{payment.platform_batch_id}</a>,
          ],
          ['Confirmed', moment(payment.created_at)],
          [
            payment.ended_at === null ? 'Waits for' : 'Took',
            lasting(
              Date.parse(payment.ended_at ?? new Date().toISOString()) -
                Date.parse(payment.created_at),
            ),
          ],
          [
            'Attempts',
            `${payment.attempts}${payment.last_result === null ? '' : `, the last: ${payment.last_result}`}`,
          ],
          ...(payment.ended_at === null || payment.next_step !== null
            ? [['Next', <NextStep payment={payment} />] as const]
            : []),
          ['Accepted by the partner', moment(payment.initiated_at)],
          ['Posted', moment(payment.posted_at)],
          ['Ended', moment(payment.ended_at)],
          ['Reason', payment.review_reason ?? payment.failure_reason ?? '–'],
        ]}
      />
      {partner_held === null ? null : (
        <p class="note">
          It waits, because calls to{' '}
          <a href={link('partners', payment.partner_id)}>{payment.partner_id}</a> are held back:{' '}
          {partner_held}
        </p>
      )}
      {payment.paused ? (
        <p class="note">
          An operator paused it, as written below. Nothing is sent for it until somebody resumes it.
        </p>
      ) : null}
      {payment.open_case === null ? null : (
        <p class="note">
          A case ({payment.open_case.reason_code.replaceAll('_', ' ')}), opened by{' '}
          {payment.open_case.opened_by} on {moment(payment.open_case.opened_at)}:{' '}
          {payment.open_case.note}
        </p>
      )}
      {pending_close === null ? null : (
        <p class="note">
          {pending_close.requested_by} asked on {moment(pending_close.requested_at)} to close this:{' '}
          {pending_close.reason}. A second person has to do the same.
        </p>
      )}
      <Cause payment={payment} attempts={data.attempts} />
      <div class="buttons">
        {acts.map((one) => (
          <Act key={one.label} {...one} />
        ))}
      </div>
      <h2>What happened</h2>
      <Story attempts={data.attempts} audit={data.audit} />
    </>
  );
}

/** What may be done to a payment: each act with what it does, and why it is not possible now. */
function actsOf(
  payment: PaymentDetail['payment'],
  showAccount: (account_id: string) => void,
): Parameters<typeof Act>[0][] {
  const { platform_payment_id: id, stage, paused, status, open_case, review_reason } = payment;
  const name = `${money(payment.amount_in_cents)} to ${payment.partner_id}, ${id}`;
  const send = <Reply,>(act: string, reason: string): Promise<Reply> =>
    post<Reply>(`/payments/${encodeURIComponent(id)}/${act}`, { reason });
  /** An act whose answer says nothing more. */
  const plain = (act: string, done: string) => async (reason: string) => {
    await send(act, reason);
    return done;
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
      async act(reason) {
        const { outcome } = await send<ReviewClose>('close', reason);
        return outcome === 'closed' ? 'Closed.' : 'Noted. A second person has to confirm it.';
      },
    },
    {
      label: 'Resume',
      blocked: paused ? undefined : inReview && 'Only a payment in review, or a paused one.',
      about: paused
        ? `Ends the pause of ${name}: it continues where it was.`
        : `Sends ${name} again, with the same id and the same bytes. A partner that has it already returns the existing payment.`,
      act: plain('resume', 'Resumed.'),
    },
    {
      label: 'Pause',
      blocked: paused ? 'It is paused.' : isDriven ? undefined : 'Nothing is sent for it.',
      about: `Sends nothing more for ${name} until it is resumed. It does not end meanwhile; other payments go on.`,
      act: plain('pause', 'Paused.'),
    },
    {
      label: 'Open a case',
      about: `Opens a case about ${name}, which stays in the list of what needs a person until it is ended. Nothing else is changed.`,
      reasonLabel: 'What it is about, kept in the audit',
      act: plain('cases', 'The case is open.'),
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
      async act(reason) {
        const { answer } = await send<PartnerAnswer>('poll', reason);
        return `The partner says: ${answer.replaceAll('_', ' ')}.`;
      },
    },
    {
      label: 'Withdraw',
      danger: true,
      blocked: isUnsent
        ? undefined
        : 'It may have reached the partner; only the partner can cancel it.',
      about: `Cancels ${name}, which cannot have left yet.`,
      act: plain('withdraw', 'Withdrawn.'),
    },
    {
      label: 'Show the account',
      about: `Shows the whole account id of ${name}.`,
      async act(reason) {
        showAccount((await send<UnmaskedAccount>('unmask', reason)).account_id);
        return 'The account is shown.';
      },
    },
  ];
}

interface Line {
  readonly at: string;
  readonly what: string;
  readonly how: string;
  readonly attempt?: Attempt;
}

/** Attempts and decisions in chronological order; a pause of more than a minute is shown. */
function Story({
  attempts,
  audit,
}: {
  attempts: readonly Attempt[];
  audit: readonly AuditEntry[];
}) {
  const lines: Line[] = [
    ...audit.map((entry) => ({
      at: entry.at,
      what: entry.event.replaceAll('_', ' '),
      how: [
        entry.actor,
        ...Object.entries(entry.detail).map(([name, value]) => `${name}: ${value}`),
      ].join(' · '),
    })),
    ...attempts.map((attempt) => ({ at: attempt.at, what: callOf(attempt), how: '', attempt })),
  ].sort((a, b) => (a.at < b.at ? -1 : 1));
  return (
    <ol class="story">
      {lines.map((line, index) => {
        const before = lines[index - 1];
        const since = before === undefined ? 0 : Date.parse(line.at) - Date.parse(endOf(before));
        return (
          <li
            key={`${line.at} ${line.what} ${index}`}
            class={line.attempt === undefined ? '' : 'attempt'}
          >
            {since > 60_000 ? <p class="pause">{lasting(since)} later</p> : null}
            <time dateTime={line.at}>{moment(line.at)}</time> <strong>{line.what}</strong>
            {line.attempt === undefined ? (
              <span class="how">{line.how}</span>
            ) : (
              <AttemptLine attempt={line.attempt} />
            )}
          </li>
        );
      })}
    </ol>
  );
}

function endOf(line: Line): string {
  return line.attempt?.last_at ?? line.at;
}

function callOf({ kind, count }: Attempt): string {
  if (kind === 'put') return 'PUT';
  return count === 1 ? 'poll' : `${count} polls`;
}

function AttemptLine({ attempt }: { attempt: Attempt }) {
  const { count, result, http_status, took_ms, request_id, body, last_at } = attempt;
  return (
    <>
      <span class="how">
        {count > 1 ? `all ${result}, until ${moment(last_at)}` : result} · HTTP {http_status ?? '–'}{' '}
        · {took_ms} ms · request <code>{request_id}</code>
      </span>
      {body === null ? null : (
        <details>
          <summary>What the partner answered</summary>
          <pre>{body}</pre>
        </details>
      )}
    </>
  );
}
