/**
 * Mails to customers: a receipt when a payment succeeded, again when money of it was refunded, and a notice when it failed. Off unless SMTP
 * is configured.
 *
 * enters: ends of payments and of refunds, read from the audit.  leaves: one mail for each, to the address the partner gave for the customer.
 * holds:  a mail is queued in the table before it is sent, once for each payment, whose row a refund queues again; one worker takes it at a time, and it is marked
 *         as sent only after the mail server accepted it. If the process dies between the two, the mail is sent again after fifteen
 *         minutes under the same Message-ID, by which mailboxes recognize the duplicate. Addresses are never stored in the queue or
 *         logged.
 */
import { createHash } from 'node:crypto';
import type { Mode } from '@duebridge/contract';
import { repeatedly, sql, type Database, type Log } from '@duebridge/runtime';
import { createTransport } from 'nodemailer';
import { maskAccountId } from '../mask.ts';
import { refundedCents } from '../money/refunds.ts';
import { plainText } from '../plain-text.ts';
import { billerName } from '../partners/registry.ts';
import type { Services } from '../services.ts';
import type { Sealer } from '../partners/seal.ts';
import { findPayment, type PaymentRow } from '../store/payments.ts';

/** Pause between polls of the queue; roughly how long a customer waits for the mail. */
const POLL_EVERY_MS = 2_000;
/** Mails sent per poll. */
const MAILS_PER_POLL = 20;
/** When another worker takes a mail over: Nodemailer waits for one answer for ten minutes, and the server may be slow before it. */
const CLAIM_MINUTES = 15;
/** Attempts before a mail is given up: with the pauses between them, about a day. */
const MAX_TRIES = 12;
/** A mail that could not be sent for this long is not sent any more. */
const LATE_HOURS = 24;
/** Time whose payments are queued by one statement: at 1,000 payments a second some seconds of the database's work. */
const SPAN_MINUTES = 5;

/** How mails are sent: with `from`, such as `Payments <pay@example.com>`. */
export interface MailTransport {
  /** `smtp://user:password@host:port`, or smtps. */
  readonly url: string;
  readonly from: string;
}

/** What mailing depends on; it ends when `signal` aborts. */
interface MailDependencies extends Pick<
  Services,
  'database' | 'registry' | 'sealer' | 'clock' | 'log'
> {
  readonly mail: MailTransport;
  readonly signal: AbortSignal;
}

const progressStatement = sql(`
   INSERT INTO duebridge_platform.mail_progress (read_to) VALUES (clock_timestamp()) ON CONFLICT (one) DO NOTHING`);
/**
 * Queues the mails of a stretch of time, and says whether there is more. A payment's end time is taken before its transaction commits,
 * so each read overlaps the last by a minute, which is longer than any statement may run. Mails already queued are left as they are.
 */
async function queueMails(database: Database, log: Log): Promise<boolean> {
  return database.transaction(async (tx) => {
    // The lock is on this one row of a registry: a sharded database locks no rows that it has to look for.
    const [span] = await tx.query<Span>(spanStatement);
    if (span === undefined) return false;
    if (span.skipped !== null)
      log.warn(
        { from: span.skipped, to: span.from },
        'mail was off for more than a day: what ended then is not mailed',
      );
    await tx.query(queueStatement, [span.from, span.to]);
    await tx.query(movedStatement, [span.to]);
    return span.more;
  });
}
const MAIL_FROM = `greatest(read_to, clock_timestamp() - interval '${LATE_HOURS} hours')`;
interface Span {
  readonly from: string;
  readonly to: string;
  readonly more: boolean;
  /** Since when nothing is mailed, where that is more than a day ago. */
  readonly skipped: string | null;
}
/** After mail was off for long, the latest day is read, SPAN_MINUTES in a statement: nobody waits for an older receipt. */
const spanStatement = sql(`
   SELECT ${MAIL_FROM}::text AS from, least(clock_timestamp(), ${MAIL_FROM} + interval '${SPAN_MINUTES} minutes')::text AS to,
          ${MAIL_FROM} + interval '${SPAN_MINUTES} minutes' < clock_timestamp() AS more,
          CASE WHEN read_to < clock_timestamp() - interval '${LATE_HOURS} hours' THEN read_to::text END AS skipped
     FROM duebridge_platform.mail_progress FOR UPDATE`);
const queueStatement = sql(`
   INSERT INTO duebridge_platform.mails AS m (platform_payment_id, kind, queued_at)
   SELECT DISTINCT ON (a.platform_payment_id) a.platform_payment_id, CASE a.detail ->> 'status' WHEN 'failed' THEN 'failed' ELSE 'receipt' END, a.at
     FROM duebridge_platform.audit a
    WHERE a.at > $1::timestamptz - interval '1 minute' AND a.at <= $2::timestamptz
      AND (a.event = 'refund_done' OR (a.event = 'payment_ended' AND a.detail ->> 'status' IN ('succeeded', 'failed')))
    ORDER BY a.platform_payment_id, a.at DESC
   ON CONFLICT (platform_payment_id) DO UPDATE
      SET kind = excluded.kind, queued_at = excluded.queued_at, due_at = excluded.due_at, tries = 0, sent_at = NULL, given_up_at = NULL
    WHERE m.queued_at < excluded.queued_at`);
const movedStatement = sql(`UPDATE duebridge_platform.mail_progress SET read_to = $1::timestamptz`);
const lateStatement = sql(`
   UPDATE duebridge_platform.mails SET given_up_at = now()
    WHERE sent_at IS NULL AND given_up_at IS NULL AND due_at < now() - interval '${LATE_HOURS} hours' RETURNING 1`);
const claimStatement = sql(`
   UPDATE duebridge_platform.mails SET tries = tries + 1, due_at = now() + interval '${CLAIM_MINUTES} minutes'
    WHERE platform_payment_id = (SELECT platform_payment_id FROM duebridge_platform.mails
                                  WHERE sent_at IS NULL AND given_up_at IS NULL AND due_at <= now()
                                  ORDER BY due_at, platform_payment_id LIMIT 1 FOR UPDATE SKIP LOCKED)
   RETURNING platform_payment_id, kind, tries, queued_at::text`);
/** Ends a mail: sent, or given up; not one that a refund has queued again meanwhile. */
const ends = (column: 'sent_at' | 'given_up_at') =>
  sql(`
     UPDATE duebridge_platform.mails SET ${column} = now() WHERE platform_payment_id = $1 AND queued_at = $2::timestamptz`);
const sentStatement = ends('sent_at');
const giveUpStatement = ends('given_up_at');
const laterStatement = sql(`
   UPDATE duebridge_platform.mails SET due_at = now() + make_interval(secs => $3) WHERE platform_payment_id = $1 AND queued_at = $2::timestamptz`);

interface Claimed {
  readonly platform_payment_id: string;
  readonly kind: 'receipt' | 'failed';
  readonly tries: number;
  readonly queued_at: string;
}

/** What a mail says of a payment. */
type Content = Pick<
  PaymentRow,
  | 'platform_payment_id'
  | 'account_id'
  | 'amount_in_cents'
  | 'failure_reason'
  | 'posted_at'
  | 'created_at'
> & { readonly refunded_in_cents: number };

/** Queues and sends until `signal` aborts; resolves then. Any number of replicas may do so at once. */
export async function keepMailing(dependencies: MailDependencies): Promise<void> {
  const { database, log, mail, signal } = dependencies;
  const mailer = createTransport(mail.url);
  await repeatedly(dependencies, POLL_EVERY_MS, 'could not read the mail queue', async () => {
    await database.query(progressStatement);
    const more = await queueMails(database, log);
    const late = await database.query(lateStatement);
    if (late.length > 0) log.warn({ mails: late.length }, 'mails that are a day late are not sent');
    // Each is claimed as it is sent: the claims of a batch would expire behind a mail that takes long, and wait after a stop.
    for (let sent = 0; sent < MAILS_PER_POLL && !signal.aborted; sent += 1) {
      const [due] = await database.query<Claimed>(claimStatement);
      if (due === undefined) return more;
      await sendOne(dependencies, mailer, due);
    }
    // No pause while there is more: a backlog drains as fast as the mail server accepts it.
    return true;
  });
  mailer.close();
}

async function sendOne(
  dependencies: MailDependencies,
  mailer: ReturnType<typeof createTransport>,
  { platform_payment_id, kind, tries, queued_at }: Claimed,
): Promise<void> {
  const { database, registry, sealer, mail, log } = dependencies;
  const claimed = [platform_payment_id, queued_at];
  const content = await findPayment(database, platform_payment_id);
  const payer = content && (await payerOf(database, sealer, content));
  // No customer confirmed this payment, or the customer was erased: there is no recipient.
  if (content === undefined || payer === undefined) {
    await database.query(giveUpStatement, claimed);
    return;
  }
  const refunded_in_cents = await refundedCents(database, platform_payment_id);
  const partner = await registry.get(content.partner_id);
  const domain = /@([A-Za-z0-9.-]+)/.exec(mail.from)?.[1] ?? 'localhost';
  try {
    await mailer.sendMail({
      from: mail.from,
      to: { name: '', address: payer.email },
      messageId: `<${messageName(platform_payment_id, refunded_in_cents)}@${domain}>`,
      ...textOf(
        kind,
        { ...content, refunded_in_cents },
        {
          mode: partner?.mode ?? 'live',
          name: partner ? billerName(partner, content.biller_id) : content.biller_id,
          support: partner?.support_contact ?? null,
        },
      ),
    });
  } catch (error) {
    const refused = isForGood(error) || tries >= MAX_TRIES;
    log.warn(
      { platform_payment_id, tries, given_up: refused, code: codeOf(error) },
      'the mail server did not accept a mail',
    );
    const seconds = Math.min(4 * 3_600, 30 * 2 ** tries);
    if (refused) await database.query(giveUpStatement, claimed);
    else await database.query(laterStatement, [...claimed, seconds]);
    return;
  }
  await database.query(sentStatement, claimed);
}

const payerStatement = sql(`
   SELECT customer_id FROM duebridge_platform.flow_payments WHERE platform_payment_id = $1`);
const customerStatement = sql(`
   SELECT sealed FROM duebridge_platform.customers WHERE customer_id = $1 AND partner_id = $2`);

/** The payer of a partner's payment; undefined for one that nobody confirmed, and for a person who was erased. */
async function payerOf(
  database: Database,
  sealer: Sealer,
  { platform_payment_id, partner_id }: { platform_payment_id: string; partner_id: string },
): Promise<{ readonly email: string } | undefined> {
  const [payer] = await database.query<{ customer_id: string }>(payerStatement, [
    platform_payment_id,
  ]);
  if (payer === undefined) return undefined;
  const of = [payer.customer_id, partner_id];
  const [row] = await database.query<{ sealed: string | null }>(customerStatement, of);
  if (row === undefined || row.sealed === null) return undefined;
  return JSON.parse(sealer.open(row.sealed, `customers/${payer.customer_id}`));
}

/** The same on every attempt, another after each refund, and reveals nothing about the payment to a mail server. */
function messageName(platform_payment_id: string, refunded_in_cents: number): string {
  const of = `mail ${platform_payment_id} ${refunded_in_cents}`;
  return createHash('sha256').update(of).digest('hex').slice(0, 32);
}

/** The mail server rejected this mail permanently (5xx): a retry would be rejected too. */
function isForGood(error: unknown): boolean {
  const code =
    error instanceof Error && 'responseCode' in error ? Number(error.responseCode) : undefined;
  return code !== undefined && code >= 500 && code < 600;
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
}

const dollars = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' });

/** The text of the mail: plain text without data that does not belong in a mailbox. Pure. */
export function textOf(
  kind: 'receipt' | 'failed',
  content: Content,
  biller: { readonly name: string; readonly support: string | null; readonly mode: Mode },
): { readonly subject: string; readonly text: string } {
  const { refunded_in_cents } = content;
  const amount = dollars.format(content.amount_in_cents / 100);
  const refunded = dollars.format(refunded_in_cents / 100);
  // One line, whatever it contains: the name stands in a header.
  const name = plainText(biller.name);
  const contact = biller.support === null ? `${name}.` : `${name}: ${biller.support}`;
  const facts = [
    `Amount:    ${amount}`,
    ...(refunded_in_cents > 0 ? [`Refunded:  ${refunded}`] : []),
    `Account:   ${maskAccountId(content.account_id)}`,
    `Confirmed: ${when(content.created_at)}`,
    ...(content.posted_at === null ? [] : [`Posted:    ${when(content.posted_at)}`]),
    `Reference: ${content.platform_payment_id}`,
  ];
  const isTest = biller.mode === 'test';
  const { failure_reason } = content;
  let subject = `Receipt: ${amount} to ${name}`;
  let news = [`Your payment to ${name} was posted.`];
  if (kind === 'failed') {
    subject = `Your payment of ${amount} to ${name} was not made`;
    news = [
      `Your payment to ${name} failed and you have not been charged for it.`,
      // A card's hold may have been captured before it expired (decision 110).
      'If money was taken already, it is on its way back.',
      ...(failure_reason === null ? [] : ['', `Reason: ${plainText(failure_reason)}`]),
    ];
  } else if (refunded_in_cents > 0) {
    subject = `Refund: ${refunded} of your payment to ${name}`;
    news = [
      `${refunded} of your payment to ${name} went back to you. Your bank may take some days to show it.`,
    ];
  }
  const note = isTest ? ['This was a test: no money was taken.', ''] : [];
  return {
    subject: isTest ? `[Test] ${subject}` : subject,
    text: [...note, ...news, '', ...facts, '', `Questions? Contact ${contact}`, ''].join('\n'),
  };
}

function when(iso: string): string {
  return `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC`;
}
