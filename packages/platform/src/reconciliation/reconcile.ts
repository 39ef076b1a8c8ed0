/**
 * Stage 9, reconciliation: one batch of ours against the partner's book (PF3, E3, decision 26).
 *
 * enters: a batch, and perhaps the partner's own file.  leaves: every disagreement, typed; the outcome stands in the audit.
 * holds:  nothing is repaired here: a difference is for people (an operator resumes, refunds, or asks the partner).
 *
 * The partner is asked for its statement first: two equal hashes settle a batch of any size in one call. A partner without
 * statements, and one whose statement differs, is read payment by payment. A file, when given, is compared instead.
 */
import {
  BatchStatement,
  compileCheck,
  isPaymentStatus,
  PlatformPaymentId,
  Refusal,
  type Detail,
  type Difference,
  type PaymentStatus,
  type ReconcileRequest,
  type Reconciliation,
} from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { note } from '../store/audit.ts';
import { judgeRecord } from '../partners/payment-record.ts';
import { linesOfBatch, REACHED_THE_PARTNER, statementOf, type StatementLine } from './batch.ts';
import type { Exchange } from '../partners/http-call.ts';
import type { NotSent, PartnerClient } from '../partners/client.ts';
import type { Partner, PartnerRegistry } from '../partners/registry.ts';
import { PAYMENT_COLUMNS, type PaymentRow } from '../store/payments.ts';

/** What reconciliation stands on. */
export interface ReconcileGround {
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly client: PartnerClient;
}

/** Payments read at once: beside the engine's calls, so few (P16). */
const READ_AT_ONCE = 4;
/** A partner that cannot be reached now is asked again after this. */
const RETRY_AFTER_S = '30';

/**
 * Compares a batch. Throws Refusal BATCH_NOT_FOUND, INVALID_REQUEST for a file that cannot be read, and PARTNER_UNREACHABLE when
 * the comparison could not be finished: half a comparison would look like agreement. A difference that the partner's statement
 * shows and no payment of ours explains stands under the batch's own id.
 */
export async function reconcileBatch(
  ground: ReconcileGround,
  platform_batch_id: string,
  request: ReconcileRequest,
  actor: string,
): Promise<Reconciliation> {
  const { database } = ground;
  const [batch] = await database.query<{ partner_id: string }>(
    sql(
      'reconcile_batch',
      'SELECT partner_id FROM duebridge_platform.batches WHERE platform_batch_id = $1',
    ),
    [platform_batch_id],
  );
  if (batch === undefined) throw new Refusal('BATCH_NOT_FOUND');
  const result =
    request.csv === undefined
      ? await compareWithPartner(ground, platform_batch_id, batch.partner_id)
      : await compareWithFile(ground, platform_batch_id, request.csv);
  await note(database, {
    actor,
    event: 'batch_reconciled',
    partner_id: batch.partner_id,
    detail: {
      platform_batch_id,
      method: result.method,
      compared: result.compared,
      differences: result.differences.length,
    },
  });
  return result;
}

// With the partner's file --------------------------------------------------------------------------------------------------

async function compareWithFile(
  { database }: ReconcileGround,
  platform_batch_id: string,
  csv: string,
): Promise<Reconciliation> {
  const theirs = readLines(csv);
  const ours = await linesOfBatch(database, platform_batch_id);
  return {
    platform_batch_id,
    method: 'csv',
    compared: ours.length,
    differences: compareLines(ours, theirs),
  };
}

const idCheck = compileCheck(PlatformPaymentId);
/** Problems named in one answer: enough to mend an export. */
const MAX_DETAILS = 20;

/** The lines of an export, `platform_payment_id,status,amount_in_cents`; a heading line is passed over. Throws Refusal INVALID_REQUEST. */
export function readLines(csv: string): StatementLine[] {
  const lines: StatementLine[] = [];
  const details: Detail[] = [];
  for (const [index, text] of csv.split(/\r\n|\n|\r/).entries()) {
    const fields = text
      .replace(/^\uFEFF/, '')
      .split(',')
      .map((field) => field.trim().replace(/^"(.*)"$/, '$1'));
    const [platform_payment_id, status, amount = ''] = fields;
    if (text.trim() === '' || platform_payment_id === 'platform_payment_id') continue;
    // The rule of decision 11, but for zero, which a book may hold for a payment that came to nothing.
    if (
      fields.length === 3 &&
      idCheck.holds(platform_payment_id) &&
      isPaymentStatus(status) &&
      /^(0|[1-9][0-9]{0,14})$/.test(amount)
    ) {
      lines.push({ platform_payment_id, status, amount_in_cents: Number(amount) });
    } else if (details.length < MAX_DETAILS) {
      details.push({
        path: `body.csv.line_${index + 1}`,
        problem: 'must be platform_payment_id,status,amount_in_cents',
      });
    }
  }
  if (details.length > 0) throw new Refusal('INVALID_REQUEST', { details });
  return lines;
}

/** Two books, line against line, in the order of the ids. An id that stands twice there counts with the sum of its amounts. Pure. */
export function compareLines(
  ours: readonly StatementLine[],
  theirs: readonly StatementLine[],
): Difference[] {
  const there = new Map<
    string,
    { status: PaymentStatus; amount_in_cents: number; lines: number }
  >();
  for (const { platform_payment_id, status, amount_in_cents } of theirs) {
    const before = there.get(platform_payment_id);
    there.set(platform_payment_id, {
      status,
      amount_in_cents: amount_in_cents + (before?.amount_in_cents ?? 0),
      lines: 1 + (before?.lines ?? 0),
    });
  }
  const differences: Difference[] = [];
  for (const { platform_payment_id, status, amount_in_cents } of ours) {
    const other = there.get(platform_payment_id);
    there.delete(platform_payment_id);
    if (other === undefined) {
      differences.push({ platform_payment_id, kind: 'missing_there', here: status, there: null });
      continue;
    }
    if (other.status !== status) {
      differences.push({ platform_payment_id, kind: 'status', here: status, there: other.status });
    }
    if (other.amount_in_cents !== amount_in_cents || other.lines > 1) {
      const times = other.lines > 1 ? ` in ${other.lines} lines` : '';
      differences.push({
        platform_payment_id,
        kind: 'amount',
        here: String(amount_in_cents),
        there: `${other.amount_in_cents}${times}`,
      });
    }
  }
  for (const [platform_payment_id, { status }] of there) {
    differences.push({ platform_payment_id, kind: 'missing_here', here: null, there: status });
  }
  return inIdOrder(differences);
}

function inIdOrder(differences: Difference[]): Difference[] {
  return differences.sort((a, b) => (a.platform_payment_id < b.platform_payment_id ? -1 : 1));
}

// With the partner itself --------------------------------------------------------------------------------------------------

async function compareWithPartner(
  { database, registry, client }: ReconcileGround,
  platform_batch_id: string,
  partner_id: string,
): Promise<Reconciliation> {
  const partner = await registry.get(partner_id);
  if (partner === undefined) throw new Refusal('BATCH_NOT_FOUND');
  const payments = await database.query<PaymentRow>(
    sql(
      'reconcile_payments',
      `SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.payments p WHERE p.platform_batch_id = $1 AND ${REACHED_THE_PARTNER}
        ORDER BY p.platform_payment_id`,
    ),
    [platform_batch_id],
  );
  const here = statementOf(platform_batch_id, payments);
  const there = judgeStatement(await client.getStatement(partner, platform_batch_id));
  if (there?.sha256 === here.sha256 && there.count === here.count) {
    return { platform_batch_id, method: 'statement', compared: here.count, differences: [] };
  }
  const differences = await readEach(client, partner, payments);
  // Those of ours that its statement can count: not what it does not have, or has in another batch.
  const absent = differences.filter(
    ({ kind, there }) =>
      kind === 'missing_there' && (there === null || there === 'another platform_batch_id'),
  );
  const shared = here.count - absent.length;
  if (there !== undefined && there.count > shared) {
    differences.push({
      platform_payment_id: platform_batch_id,
      kind: 'missing_here',
      here: `${shared} payments`,
      there: `${there.count} payments`,
    });
  }
  return { platform_batch_id, method: 'payments', compared: payments.length, differences };
}

const statementCheck = compileCheck(BatchStatement);

/** The partner's statement; undefined when it has none to offer (the extension is not everybody's). Pure. */
function judgeStatement(answer: Exchange | NotSent): BatchStatement | undefined {
  if (answer.kind !== 'reply' || answer.status !== 200) return undefined;
  return statementCheck.holds(answer.json) ? answer.json : undefined;
}

async function readEach(
  client: PartnerClient,
  partner: Partner,
  payments: readonly PaymentRow[],
): Promise<Difference[]> {
  const differences: Difference[] = [];
  let next = 0;
  const readOn = async (): Promise<void> => {
    for (let payment = payments[next]; payment !== undefined; payment = payments[next]) {
      next += 1;
      const found = comparePayment(payment, await client.poll(partner, payment));
      if (found === undefined) {
        next = payments.length;
        throw new Refusal('PARTNER_UNREACHABLE', { headers: { 'Retry-After': RETRY_AFTER_S } });
      }
      differences.push(...found);
    }
  };
  await Promise.all(Array.from({ length: READ_AT_ONCE }, readOn));
  return inIdOrder(differences);
}

/** How one payment differs from what its partner answered; undefined when the answer tells nothing. Pure. */
function comparePayment(payment: PaymentRow, answer: Exchange | NotSent): Difference[] | undefined {
  const { platform_payment_id, status: here } = payment;
  if (answer.kind !== 'reply') return undefined;
  if (answer.status === 404 && answer.json !== undefined) {
    return [{ platform_payment_id, kind: 'missing_there', here, there: null }];
  }
  if (answer.status !== 200) return undefined;
  const judged = judgeRecord(payment, answer.json);
  switch (judged.kind) {
    case 'invalid':
      return undefined;
    case 'mismatch':
      // With another amount it is our payment, wrongly booked; with another id, account or batch it is not our payment.
      return [
        judged.field === 'amount_in_cents'
          ? {
              platform_payment_id,
              kind: 'amount',
              here: String(payment.amount_in_cents),
              there: amountText(answer.json),
            }
          : { platform_payment_id, kind: 'missing_there', here, there: `another ${judged.field}` },
      ];
    case 'processing':
      return here === 'processing'
        ? []
        : [{ platform_payment_id, kind: 'status', here, there: 'processing' }];
    case 'incomplete':
      return [
        here === 'succeeded'
          ? { platform_payment_id, kind: 'time', here: payment.posted_at, there: null }
          : { platform_payment_id, kind: 'status', here, there: 'succeeded' },
      ];
    case 'ended': {
      const { status: there, posted_at } = judged.ending;
      if (here !== there) return [{ platform_payment_id, kind: 'status', here, there }];
      return payment.posted_at === posted_at
        ? []
        : [{ platform_payment_id, kind: 'time', here: payment.posted_at, there: posted_at }];
    }
  }
}

function amountText(json: unknown): string | null {
  return typeof json === 'object' && json !== null && 'amount_in_cents' in json
    ? String(json.amount_in_cents)
    : null;
}
