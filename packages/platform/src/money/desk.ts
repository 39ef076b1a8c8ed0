/**
 * The desk: transfers that people carry to the bank, in a file or by hand.
 *
 * enters: remittances that are sent, other than by Stripe; what an operator says about a transfer.  leaves: files for the bank
 *         (bank-file.ts), and what became of each transfer.
 * holds:  a transfer is in one file, and a file is the same bytes whenever it is fetched. A file is of one mode: what a test registration is
 *         owed never reaches the bank with real money. Nothing is put into a file for a biller that is held back, and what waits goes to
 *         the account that the biller has when the file is made. What was transferred by hand counts when two persons have given the same reference.
 */
import { createHash } from 'node:crypto';
import {
  conflict,
  Refusal,
  type BankFileOrder,
  type BankFileView,
  type RemittanceView,
  type TransferEnd,
} from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import type { Services } from '../services.ts';
import { askedBefore, dropAsk } from '../store/asks.ts';
import { note } from '../store/audit.ts';
import { bankDayFrom, dayAfter } from './bank-days.ts';
import { MAX_NACHA_FILES, nacha, pain001, type BankTransfer, type Payer } from './bank-file.ts';
import { openCreditor } from './payouts.ts';
import { moveRemittances, type RemittanceMove } from './remittance.ts';

/** Transfers of one file: what a bank's own limits allow everywhere. */
const MAX_TRANSFERS = 5_000;

const takeStatement = sql(`
   SELECT r.remittance_id, r.net_in_cents AS amount_in_cents, r.partner_id, r.biller_id, o.sealed
     FROM duebridge_platform.remittances r
     JOIN duebridge_platform.partners m ON m.partner_id = r.partner_id
     JOIN duebridge_platform.payouts o ON o.partner_id = r.partner_id AND o.biller_id = r.biller_id
    WHERE r.way = $1 AND r.state = 'sent' AND r.file_id IS NULL AND m.mode = $2 AND NOT o.held AND o.way <> 'stripe'
    ORDER BY r.remittance_id LIMIT ${MAX_TRANSFERS} FOR NO KEY UPDATE OF r`);
/** Files are made one after the other, so that each has a number of its own on its day. */
const inTurnStatement = sql(`
   SELECT pg_advisory_xact_lock(hashtextextended('duebridge_platform bank files', 0))`);
const madeStatement = sql(`
   SELECT count(*)::int AS made FROM duebridge_platform.bank_files WHERE way = $1 AND made_at >= $2::date AND made_at < $2::date + 1`);
const keepFileStatement = sql(`
   INSERT INTO duebridge_platform.bank_files (file_id, way, made_at, made_by, transfers, amount_in_cents, sha256, sealed)
   SELECT $1, $2, $3, $4, s.transfers, s.amount_in_cents, s.sha256, $6
     FROM jsonb_to_record($5::jsonb) AS s (transfers int, amount_in_cents bigint, sha256 text)`);
const inFileStatement = sql(`
   UPDATE duebridge_platform.remittances SET file_id = $1 WHERE remittance_id = ANY($2::text[])`);
const fileStatement = sql(`
   SELECT file_id, way, made_at, made_by, transfers, amount_in_cents, sha256, sealed FROM duebridge_platform.bank_files WHERE file_id = $1`);
/**
 * A transfer, or those of a file that are under way, until the transaction ends: a round that sends and a word that ends must not cross.
 * Of two rows of the same transfer only one is locked, so that the other one shows how it stood before a wait for the lock.
 */
const lockStatement = sql(`
   SELECT r.remittance_id, r.state, r.way, r.file_id, r.net_in_cents, r.file_id IS DISTINCT FROM before.file_id AS is_just_in_file
     FROM duebridge_platform.remittances r JOIN duebridge_platform.remittances before ON before.remittance_id = r.remittance_id
    WHERE r.remittance_id = $1 OR (r.file_id = $1 AND r.state = 'sent') ORDER BY r.remittance_id FOR NO KEY UPDATE OF r`);
/** Longer than a try at Stripe lasts, a few calls of 8 s: one that began before its biller was held back or paid another way has ended. */
const TRY_ENDS = '2 minutes';
const cannotLeaveStatement = sql(`
   SELECT 1 FROM duebridge_platform.remittances r JOIN duebridge_platform.payouts o USING (partner_id, biller_id)
    WHERE r.remittance_id = $1 AND (o.held OR o.way <> 'stripe') AND o.updated_at < clock_timestamp() - interval '${TRY_ENDS}'`);

const filePlace = (file_id: string): string => `bank_files/${file_id}`;

/** What files are made with. `payer`: the platform's own account; undefined while it is not configured. */
type FileDesk = Pick<Services, 'database' | 'sealer' | 'clock'> & {
  readonly payer: Payer | undefined;
};

/**
 * Puts what waits in one mode (default: live) into a file. Throws Refusal CONFLICT when nothing waits, when the day has no
 * number left, or when the platform's own account is not configured.
 */
export async function makeBankFile(
  { database, sealer, clock, payer }: FileDesk,
  { way, mode = 'live' }: BankFileOrder,
  actor: string,
): Promise<BankFileView> {
  if (payer === undefined) {
    throw conflict('The account that pays is not configured: set DUEBRIDGE_PAYER');
  }
  return database.transaction(async (tx) => {
    await tx.query(inTurnStatement);
    type Row = Pick<BankTransfer, 'remittance_id' | 'amount_in_cents'> &
      Parameters<typeof openCreditor>[1];
    const rows = await tx.query<Row>(takeStatement, [way, mode]);
    if (rows.length === 0) {
      throw conflict(`No transfer of ${mode} mode waits for a file of this kind`);
    }
    const made_at = new Date(clock.now()).toISOString();
    const file_id = uuidv7({ msecs: clock.now() });
    const transfers = rows.map((row) => {
      const creditor = openCreditor(sealer, row);
      if ('stripe_account' in creditor) throw new Error(`${row.biller_id} has no bank account`);
      return { ...row, ...creditor };
    });
    const [day] = await tx.query<{ made: number }>(madeStatement, [way, made_at.slice(0, 10)]);
    const files_before = day?.made ?? 0;
    if (way === 'nacha' && files_before >= MAX_NACHA_FILES) {
      throw conflict(
        `A bank takes ${MAX_NACHA_FILES} NACHA files a day at most: make the next one tomorrow (UTC)`,
      );
    }
    const execute_on = bankDayFrom(dayAfter(made_at.slice(0, 10)));
    const write = way === 'nacha' ? nacha : pain001;
    const content = write({ file_id, payer, made_at, execute_on, files_before, transfers });
    const sha256 = createHash('sha256').update(content).digest('hex');
    const amount_in_cents = rows.reduce((sum, one) => sum + one.amount_in_cents, 0);
    const sealed = sealer.seal(content, filePlace(file_id));
    const sum = { transfers: rows.length, amount_in_cents, sha256 };
    await tx.query(keepFileStatement, [file_id, way, made_at, actor, JSON.stringify(sum), sealed]);
    await tx.query(inFileStatement, [file_id, rows.map((one) => one.remittance_id)]);
    await note(tx, { actor, event: 'bank_file_made', detail: { file_id, way, mode, ...sum } });
    return { file_id, way, made_at, made_by: actor, ...sum, content };
  });
}

/** A file again, as it was made; noted, because it holds bank accounts. Throws Refusal NOT_FOUND. */
export async function readBankFile(
  { database, sealer }: Pick<FileDesk, 'database' | 'sealer'>,
  file_id: string,
  actor: string,
): Promise<BankFileView> {
  const [row] = await database.query<Omit<BankFileView, 'content'> & { sealed: string }>(
    fileStatement,
    [file_id],
  );
  if (row === undefined) throw new Refusal('NOT_FOUND');
  await note(database, { actor, event: 'bank_file_read', detail: { file_id } });
  const { sealed, ...view } = row;
  return { ...view, content: sealer.open(sealed, filePlace(file_id)) };
}

/** A transfer as it stands. `way`: null before its first try. */
type Transfer = Pick<RemittanceView, 'remittance_id' | 'state' | 'file_id' | 'net_in_cents'> & {
  readonly way: string | null;
  readonly is_just_in_file: boolean;
};

/** The move by which a word of people ends a transfer; undefined where none may. Pure. */
function moveBy(
  { state, way }: Transfer,
  outcome: TransferEnd['outcome'],
): RemittanceMove | undefined {
  if (state === 'sent' && way !== 'stripe') return `sent ${outcome}`;
  if (outcome !== 'returned') return undefined;
  // Only people can see at Stripe that a transfer which cannot be sent any more was never made.
  return state === 'paid' || (state === 'sending' && way === 'stripe')
    ? `${state} returned`
    : undefined;
}

/**
 * What became of a transfer, or of all transfers of a file that have no end yet. One made by hand, one that never left by Stripe, and above
 * the limit one that was paid and came back need a second person who gives the same reference. Throws Refusal NOT_FOUND when no such
 * transfer is open, and CONFLICT when the same person says it twice, when one that waits for a file is said to be paid, when it comes
 * into a file at the same moment, or when one by Stripe is said to be returned while it may still leave.
 */
export function endTransfer(
  {
    database,
    clock,
    secondPersonAboveCents,
  }: Pick<FileDesk, 'database' | 'clock'> & { readonly secondPersonAboveCents: number },
  id: string,
  { outcome, reference }: TransferEnd,
  actor: string,
): Promise<{ outcome: 'done' | 'second_person_needed'; transfers: number }> {
  return database.transaction(async (tx) => {
    const found = await tx.query<Transfer>(lockStatement, [id]);
    const [one] = found;
    const by = one && moveBy(one, outcome);
    if (one === undefined || by === undefined) throw new Refusal('NOT_FOUND');
    if (by === 'sent paid' && one.file_id === null && one.way !== 'by_hand') {
      throw conflict(
        'This transfer is in no file, so that no bank can have paid it: make the file first, or end it with the outcome returned',
      );
    }
    if (one.is_just_in_file) {
      throw conflict(
        'A file for the bank was made with this transfer at the same moment: say again what became of it',
      );
    }
    if (by === 'sending returned' && (await tx.query(cannotLeaveStatement, [id])).length === 0) {
      throw conflict(
        `It may leave by Stripe at any moment: hold its biller back, or pay it another way, and look at Stripe again after ${TRY_ENDS}`,
      );
    }
    const isBack = by === 'paid returned' && one.net_in_cents > secondPersonAboveCents;
    if (isBack || by === 'sending returned' || one.way === 'by_hand') {
      const subject = `transfer/${id}` as const;
      const act = `${outcome} ${reference}`;
      const ask = { subject, act, version: one.state, reason: reference, actor };
      const first = await askedBefore(tx, ask);
      if (first === undefined) return { outcome: 'second_person_needed', transfers: 0 };
      await dropAsk(tx, subject);
    }
    const ids = found.map(({ remittance_id }) => remittance_id);
    const said = outcome === 'paid' ? { reference } : { reason: reference };
    const transfers = await moveRemittances(tx, ids, by, clock.now(), { ...said, actor });
    return { outcome: 'done', transfers };
  });
}
