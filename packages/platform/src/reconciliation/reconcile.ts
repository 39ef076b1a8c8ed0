/**
 * Stage 9, reconciliation: one batch of ours against the partner's records (PF3, EE3, decision 26).
 *
 * enters: a batch, and perhaps the partner's own file.  leaves: every disagreement, typed; the outcome is in the audit.
 * holds:  nothing is repaired here: an operator decides on a difference (resume, refund, or ask the partner).
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
import { keepDifferences } from './differences.ts';
import { judgeRecord } from '../partners/payment-record.ts';
import {
  linesOfBatch,
  readStatement,
  REACHED_THE_PARTNER,
  statementOf,
  type StatementLine,
} from './batch.ts';
import type { Exchange } from '../partners/http-call.ts';
import type { NotSent, PartnerClient } from '../partners/client.ts';
import type { Partner, PartnerRegistry } from '../partners/registry.ts';
import { PAYMENT_COLUMNS, type PaymentRow } from '../store/payments.ts';

/** What reconciliation needs. */
export interface ReconcileDependencies {
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly client: PartnerClient;
}

/** Payments read at once. Few, because the engine calls the same partner (PL16). */
const READ_AT_ONCE = 4;
/** Retry-After when the partner cannot be reached. */
const RETRY_AFTER_S = '30';

/**
 * Compares a batch. Throws Refusal BATCH_NOT_FOUND, INVALID_REQUEST for a file that cannot be read, and PARTNER_UNREACHABLE when
 * the comparison could not be finished: half a comparison would look like agreement. A difference that the partner's statement
 * shows and no payment of ours explains stands under the batch's own id.
 */
export async function reconcileBatch(
  dependencies: ReconcileDependencies,
  platform_batch_id: string,
  request: ReconcileRequest,
  actor: string,
): Promise<Reconciliation> {
  const { database } = dependencies;
  const partner_id = await partnerOf(database, platform_batch_id);
  const found =
    request.csv === undefined
      ? await compareWithPartner(dependencies, platform_batch_id, partner_id)
      : await compareWithFile(database, platform_batch_id, readLines(request.csv));
  await keep(database, partner_id, found, actor);
  return found.result;
}

/**
 * Compares a batch with a file that arrives as a stream: lines are read as they come, so that 100,000 of them block nothing. Throws
 * Refusal BATCH_NOT_FOUND, PAYLOAD_TOO_LARGE, and INVALID_REQUEST for a file that cannot be read.
 */
export async function reconcileFile(
  database: Database,
  platform_batch_id: string,
  file: AsyncIterable<Uint8Array>,
  actor: string,
): Promise<Reconciliation> {
  const partner_id = await partnerOf(database, platform_batch_id);
  const lines = await readFile(file);
  const found = await compareWithFile(database, platform_batch_id, lines);
  await keep(database, partner_id, found, actor);
  return found.result;
}

async function partnerOf(database: Database, platform_batch_id: string): Promise<string> {
  const [batch] = await database.query<{ partner_id: string }>(
    sql(
      'reconcile_batch',
      'SELECT partner_id FROM duebridge_platform.batches WHERE platform_batch_id = $1',
    ),
    [platform_batch_id],
  );
  if (batch === undefined) throw new Refusal('BATCH_NOT_FOUND');
  return batch.partner_id;
}

/** What a run found, and what the partner says about the batch as a whole. */
interface Found {
  readonly result: Reconciliation;
  readonly theirs: BatchStatement | null;
}

/** Keeps what a run found and the partner's statement, with its line of the audit, in one transaction that holds the batch. */
async function keep(
  database: Database,
  partner_id: string,
  { result, theirs }: Found,
  actor: string,
): Promise<void> {
  const { platform_batch_id, method, compared, differences } = result;
  await database.transaction(async (tx) => {
    await tx.query(
      'SELECT 1 FROM duebridge_platform.batches WHERE platform_batch_id = $1 FOR NO KEY UPDATE',
      [platform_batch_id],
    );
    const gone = await keepDifferences(tx, { platform_batch_id, partner_id, differences, actor });
    await tx.query(
      `INSERT INTO duebridge_platform.comparisons (platform_batch_id, actor, method, compared, differences, partner_statement)
       VALUES ($1, $2, $3, $4, $5, $6)`,
      [
        platform_batch_id,
        actor,
        method,
        compared,
        differences.length,
        theirs === null ? null : JSON.stringify(theirs),
      ],
    );
    await note(tx, {
      actor,
      event: 'batch_reconciled',
      partner_id,
      detail: { platform_batch_id, method, compared, differences: differences.length, gone },
    });
  });
}

// With the partner's file --------------------------------------------------------------------------------------------------

async function compareWithFile(
  database: Database,
  platform_batch_id: string,
  theirs: readonly StatementLine[],
): Promise<Found> {
  const ours = await linesOfBatch(database, platform_batch_id);
  return {
    result: {
      platform_batch_id,
      method: 'csv',
      compared: countIds(ours, theirs),
      differences: compareLines(ours, theirs),
    },
    theirs: await statementOf(platform_batch_id, theirs),
  };
}

/** Payments that either side has: the number that differences are counted against. */
function countIds(...sides: readonly (readonly StatementLine[])[]): number {
  return new Set(sides.flatMap((lines) => lines.map((line) => line.platform_payment_id))).size;
}

const idCheck = compileCheck(PlatformPaymentId);
/** Problems named in one answer: enough to fix an export. */
const MAX_DETAILS = 20;
/** Largest file, in bytes: a million lines. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;
/** Lines read before the event loop gets a turn: a millisecond or two. */
const LINES_AT_ONCE = 2_000;

/** The lines of an export in one text. Throws Refusal INVALID_REQUEST. */
export function readLines(csv: string): StatementLine[] {
  const reader = lineReader();
  reader.read(csv.split(/\r\n|\n|\r/));
  return reader.end();
}

/** The lines of an export that arrives in pieces; yields to the event loop in between. */
async function readFile(file: AsyncIterable<Uint8Array>): Promise<StatementLine[]> {
  const reader = lineReader();
  const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const decode = (bytes?: Uint8Array): string => {
    try {
      return bytes === undefined ? utf8.decode() : utf8.decode(bytes, { stream: true });
    } catch {
      throw new Refusal('INVALID_REQUEST', {
        details: [{ path: 'body', problem: 'is not UTF-8: save the file as CSV UTF-8' }],
      });
    }
  };
  let bytes = 0;
  let rest = '';
  const take = async (text: string, last: boolean): Promise<void> => {
    // A return at the very end may be the first half of a line break.
    const parts = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = last ? '' : (parts.pop() ?? '');
    for (let from = 0; from < parts.length; from += LINES_AT_ONCE) {
      reader.read(parts.slice(from, from + LINES_AT_ONCE));
      await new Promise(setImmediate);
    }
  };
  for await (const chunk of file) {
    bytes += chunk.length;
    if (bytes > MAX_FILE_BYTES) {
      throw new Refusal('PAYLOAD_TOO_LARGE', { message: 'The file is larger than 64 MiB' });
    }
    await take(decode(chunk), false);
  }
  await take(decode(), true);
  return reader.end();
}

/** Reads lines `platform_payment_id,status,amount_in_cents`; a heading line is skipped. `end` throws Refusal INVALID_REQUEST. */
function lineReader(): { read(texts: readonly string[]): void; end(): StatementLine[] } {
  const lines: StatementLine[] = [];
  const details: Detail[] = [];
  let number = 0;
  const readOne = (text: string): void => {
    number += 1;
    const fields = text
      .replace(/^\uFEFF/, '')
      .split(',')
      .map((field) => field.trim().replace(/^"(.*)"$/, '$1'));
    const [platform_payment_id, status, amount = ''] = fields;
    if (text.trim() === '' || platform_payment_id === 'platform_payment_id') return;
    // Decision 11, except for zero, which an export may have for a payment that came to nothing.
    if (
      fields.length === 3 &&
      idCheck.holds(platform_payment_id) &&
      isPaymentStatus(status) &&
      /^(0|[1-9][0-9]{0,14})$/.test(amount)
    ) {
      lines.push({ platform_payment_id, status, amount_in_cents: Number(amount) });
    } else if (details.length < MAX_DETAILS) {
      details.push({
        path: `body.csv.line_${number}`,
        problem: 'must be platform_payment_id,status,amount_in_cents',
      });
    }
  };
  return {
    read: (texts) => texts.forEach(readOne),
    end() {
      if (details.length > 0) throw new Refusal('INVALID_REQUEST', { details });
      return lines;
    },
  };
}

/** Compares two lists of lines in the order of their ids. An id that occurs twice in theirs counts with the sum of its amounts. Pure. */
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
  { database, registry, client }: ReconcileDependencies,
  platform_batch_id: string,
  partner_id: string,
): Promise<Found> {
  const partner = await registry.get(partner_id);
  if (partner === undefined) throw new Refusal('BATCH_NOT_FOUND');
  const here = await readStatement(database, platform_batch_id);
  const there = judgeStatement(await client.getStatement(partner, platform_batch_id));
  if (there?.sha256 === here.sha256 && there.count === here.count) {
    const compared = here.count;
    return {
      result: { platform_batch_id, method: 'statement', compared, differences: [] },
      theirs: there,
    };
  }
  const payments = await database.query<PaymentRow>(
    sql(
      'reconcile_payments',
      `SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.payments p WHERE p.platform_batch_id = $1 AND ${REACHED_THE_PARTNER}
        ORDER BY p.platform_payment_id`,
    ),
    [platform_batch_id],
  );
  const differences = await readEach(client, partner, payments);
  // Its statement can count ours, but for those that it lacks or has in another batch.
  const absent = differences.filter(
    ({ kind, there }) =>
      kind === 'missing_there' && (there === null || there === otherThan('platform_batch_id')),
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
  // Payments that only the partner has are counted too; otherwise the report could say six differences in five payments.
  const extra = differences.filter(({ kind }) => kind === 'missing_here').length;
  const compared = payments.length + extra;
  return {
    result: { platform_batch_id, method: 'payments', compared, differences },
    theirs: there ?? null,
  };
}

const statementCheck = compileCheck(BatchStatement);

/** The partner's statement; undefined when it does not offer the extension. Pure. */
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

/** How one payment differs from what its partner answered; undefined when the answer is inconclusive. Pure. */
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
      // With another amount it is our payment, recorded wrongly; with another id, account or batch it is not our payment.
      return [
        judged.field === 'amount_in_cents'
          ? {
              platform_payment_id,
              kind: 'amount',
              here: String(payment.amount_in_cents),
              there: amountText(answer.json),
            }
          : { platform_payment_id, kind: 'missing_there', here, there: otherThan(judged.field) },
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

/** What the partner shows where its record under our id is not of our payment. */
function otherThan(field: string): string {
  return `a different ${field}`;
}

function amountText(json: unknown): string | null {
  return typeof json === 'object' && json !== null && 'amount_in_cents' in json
    ? String(json.amount_in_cents)
    : null;
}
