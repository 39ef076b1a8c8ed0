/**
 * What needs two persons: above the limit of one person, or always where only people know that it is so (decision 38).
 *
 * enters: an act on a payment, a case or a transfer, and who wants it.  leaves: who asked for the same before, or a note of the ask.
 * holds:  an ask counts for the same act alone, while its subject stands as it did, while its author may still act, and for a week. The
 *         second person does the same as the first; the audit names both.
 */
import { conflict, type AskView } from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import { note, OF_PAYMENTS } from './audit.ts';
import type { Queryable } from './payments.ts';

/** An ask of longer ago was forgotten by the person who made it. The sweep removes it (checkout/retention.ts). */
export const ASK_DAYS = 7;

/** What somebody wants to do. */
export interface Ask {
  readonly subject: `${'payment' | 'case' | 'transfer'}/${string}`;
  /** In words that the second person reads, such as `close as failed`. */
  readonly act: string;
  /** How the subject stands: an ask of before it changed does not count. */
  readonly version: string;
  readonly reason: string;
  readonly actor: string;
  readonly platform_payment_id?: string;
  readonly partner_id?: string;
}

/** The deployment's own key is in no table, and never leaves. */
const COUNTS = `a.asked_at > now() - interval '${ASK_DAYS} days' AND (a.asked_by = 'admin-key' OR EXISTS
  (SELECT 1 FROM duebridge_platform.operators o WHERE o.operator_id = a.asked_by AND o.role IN ('operator', 'admin') AND o.disabled_at IS NULL))`;
const findStatement = sql(`
   SELECT a.act, a.version, a.asked_by FROM duebridge_platform.asks a WHERE a.subject = $1 AND ${COUNTS}`);
const keepStatement = sql(`
   INSERT INTO duebridge_platform.asks (subject, act, version, asked_by, reason) VALUES ($1, $2, $3, $4, $5)
   ON CONFLICT (subject) DO UPDATE SET act = excluded.act, version = excluded.version, asked_by = excluded.asked_by,
     reason = excluded.reason, asked_at = excluded.asked_at`);
const dropStatement = sql(`DELETE FROM duebridge_platform.asks WHERE subject = $1`);
const listStatement = sql(`
   SELECT a.subject, a.act, a.version, a.asked_by, a.reason, a.asked_at FROM duebridge_platform.asks a
    WHERE ${COUNTS} AND ($1::text IS NULL OR a.subject = $1) ORDER BY a.asked_at LIMIT 1000`);

/**
 * Who asked for this before, so that it may be done now; undefined when nobody has, and then the ask is noted. The caller acts, and calls
 * `dropAsk`. Throws Refusal CONFLICT when the same person asks twice.
 */
export async function askedBefore(on: Queryable, ask: Ask): Promise<string | undefined> {
  const { subject, act, version, reason, actor, ...of } = ask;
  type Found = Pick<AskView, 'act' | 'asked_by'> & { readonly version: string };
  const [first] = await on.query<Found>(findStatement, [subject]);
  if (first?.act === act && first.version === version) {
    if (first.asked_by !== actor) return first.asked_by;
    throw conflict('You asked for this already: a second person has to do the same');
  }
  await on.query(keepStatement, [subject, act, version, actor, reason]);
  const detail = { subject, act, reason };
  await note(on, { actor, event: 'second_person_asked', ...of, detail });
  return undefined;
}

/** Forgets what was asked of a subject: it was done. */
export async function dropAsk(on: Queryable, subject: Ask['subject']): Promise<void> {
  await on.query(dropStatement, [subject]);
}

/**
 * Asks that wait for a second person, the oldest first, of at most 1,000: all of them, or that of one subject. One about a payment to which
 * something has happened since waits for nobody.
 */
export async function listAsks(on: Queryable, subject?: Ask['subject']): Promise<AskView[]> {
  type Kept = AskView & { readonly version: string };
  const asks = await on.query<Kept>(listStatement, [subject ?? null]);
  const ofPayments = asks.filter((ask) => ask.subject.startsWith(PAYMENT));
  const versions = await versionsOf(on, ofPayments.map(paymentOf));
  const waits = (ask: Kept): boolean =>
    !ask.subject.startsWith(PAYMENT) || ask.version === (versions.get(paymentOf(ask)) ?? '');
  return asks.filter(waits).map(({ version: _version, ...view }) => view);
}

const PAYMENT = 'payment/';
const paymentOf = ({ subject }: AskView): string => subject.slice(PAYMENT.length);

/** Since when payments stand as they do: the versions of asks about them. */
const standsStatement = sql(`
   SELECT a.platform_payment_id, max(a.at)::text AS since FROM duebridge_platform.audit a
    WHERE ${OF_PAYMENTS} AND a.event IN ('payment_review', 'payment_resumed', 'payment_paused', 'payment_ended',
      'funds_settled_by_operator', 'refund_sending', 'refund_refused') GROUP BY 1`);

async function versionsOf(on: Queryable, ids: readonly string[]): Promise<Map<string, string>> {
  type Stands = { readonly platform_payment_id: string; readonly since: string };
  const times = ids.map((id) => id.slice(0, 10));
  const rows = ids.length === 0 ? [] : await on.query<Stands>(standsStatement, [ids, times]);
  return new Map(rows.map((row) => [row.platform_payment_id, row.since]));
}

/** The version of a payment, by what happened to it last. */
export async function versionOfPayment(
  on: Queryable,
  platform_payment_id: string,
): Promise<string> {
  return (await versionsOf(on, [platform_payment_id])).get(platform_payment_id) ?? '';
}
