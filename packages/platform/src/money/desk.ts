/**
 * The desk: transfers that people carry to the bank, in a file or by hand.
 *
 * enters: remittances, as their channel; what an operator says about a transfer.  leaves: files for the bank (bank-file.ts), and what became
 *         of each transfer.
 * holds:  a transfer is in one file, and a file is the same bytes whenever it is fetched. What was transferred by hand counts when two
 *         persons have given the same reference.
 */
import { createHash } from 'node:crypto';
import { Refusal, type BankFileView, type TransferEnd } from '@duebridge/contract';
import { sql, type Clock, type Database } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import type { Sealer } from '../partners/seal.ts';
import { note } from '../store/audit.ts';
import { bankDayFrom, dayAfter } from './bank-days.ts';
import { MAX_NACHA_CENTS, nacha, pain001, type Payer } from './bank-file.ts';
import type { Creditor } from './payouts.ts';
import type { RemittanceChannel } from './remittance.ts';

/** Transfers of one file: what a bank's own limits allow everywhere. */
const MAX_TRANSFERS = 5_000;

const putStatement = sql(
  'desk_put',
  `INSERT INTO duebridge_platform.bank_transfers (remittance_id, way, amount_in_cents, sealed) VALUES ($1, $2, $3, $4)
   ON CONFLICT (remittance_id) DO NOTHING`,
);
const findStatement = sql(
  'desk_find',
  `SELECT result, reference FROM duebridge_platform.bank_transfers WHERE remittance_id = $1`,
);
const takeStatement = sql(
  'desk_take',
  `SELECT remittance_id, amount_in_cents, sealed FROM duebridge_platform.bank_transfers
    WHERE way = $1 AND file_id IS NULL AND result IS NULL ORDER BY remittance_id LIMIT ${MAX_TRANSFERS} FOR UPDATE`,
);
const keepFileStatement = sql(
  'desk_keep_file',
  `INSERT INTO duebridge_platform.bank_files (file_id, way, made_at, made_by, transfers, amount_in_cents, sha256, sealed)
   VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
);
const inFileStatement = sql(
  'desk_in_file',
  'UPDATE duebridge_platform.bank_transfers SET file_id = $1 WHERE remittance_id = ANY($2::text[])',
);
const FILE = 'file_id, way, made_at, made_by, transfers, amount_in_cents, sha256';
const fileStatement = sql(
  'desk_file',
  `SELECT ${FILE}, sealed FROM duebridge_platform.bank_files WHERE file_id = $1`,
);
const endStatement = sql(
  'desk_end',
  `UPDATE duebridge_platform.bank_transfers SET result = $2, reference = $3
    WHERE (remittance_id = $1 OR file_id = $1) AND result IS NULL RETURNING remittance_id`,
);
const askStatement = sql(
  'desk_ask',
  `UPDATE duebridge_platform.bank_transfers SET asked_by = $2, asked = $3 WHERE remittance_id = $1 AND result IS NULL RETURNING 1 AS one`,
);
const byHandStatement = sql(
  'desk_by_hand',
  `SELECT asked_by, asked, result FROM duebridge_platform.bank_transfers WHERE remittance_id = $1 AND way = 'by_hand' FOR UPDATE`,
);

const creditorPlace = (remittance_id: string): string => `bank_transfers/${remittance_id}`;
const filePlace = (file_id: string): string => `bank_files/${file_id}`;

/** The desk as a channel: an order lies on it until somebody says what became of it. */
export function openDesk(database: Database, sealer: Sealer): RemittanceChannel {
  const find = async (remittance_id: string) => {
    const [row] = await database.query<{
      result: 'paid' | 'returned' | null;
      reference: string | null;
    }>(findStatement, [remittance_id]);
    return row;
  };
  return {
    async send({ remittance_id, way, amount_in_cents, creditor }) {
      if (way === 'nacha' && amount_in_cents > MAX_NACHA_CENTS) {
        return {
          kind: 'refused',
          reason: 'a NACHA entry holds $99,999,999.99 at most: pay this biller another way',
        };
      }
      const sealed = sealer.seal(JSON.stringify(creditor), creditorPlace(remittance_id));
      await database.query(putStatement, [remittance_id, way, amount_in_cents, sealed]);
      return { kind: 'sent' };
    },
    async find(remittance_id) {
      return (await find(remittance_id)) === undefined ? undefined : { kind: 'sent' };
    },
    async state(remittance_id) {
      const row = await find(remittance_id);
      if (row?.result === 'paid') return { kind: 'paid', reference: row.reference ?? '' };
      if (row?.result === 'returned') return { kind: 'returned', reason: row.reference ?? '' };
      return { kind: 'under_way' };
    },
  };
}

/**
 * Puts what waits into a file. Throws Refusal CONFLICT when nothing waits, or when the platform's own account is not configured.
 */
export async function makeBankFile(
  desk: {
    readonly database: Database;
    readonly sealer: Sealer;
    readonly clock: Clock;
    readonly payer: Payer | undefined;
  },
  way: 'pain001' | 'nacha',
  actor: string,
): Promise<BankFileView> {
  const { database, sealer, clock, payer } = desk;
  if (payer === undefined) {
    throw new Refusal('CONFLICT', {
      message: 'The account that pays is not configured: set DUEBRIDGE_PAYER',
    });
  }
  return database.transaction(async (tx) => {
    const rows = await tx.query<{ remittance_id: string; amount_in_cents: number; sealed: string }>(
      takeStatement,
      [way],
    );
    if (rows.length === 0) {
      throw new Refusal('CONFLICT', { message: 'No transfer waits for a file of this kind' });
    }
    const made_at = new Date(clock.now()).toISOString();
    const file_id = uuidv7({ msecs: clock.now() });
    const transfers = rows.map(({ remittance_id, amount_in_cents, sealed }) => ({
      remittance_id,
      amount_in_cents,
      ...(JSON.parse(sealer.open(sealed, creditorPlace(remittance_id))) as Creditor),
    }));
    const execute_on = bankDayFrom(dayAfter(made_at.slice(0, 10)));
    const write = way === 'nacha' ? nacha : pain001;
    const content = write({ file_id, payer, made_at, execute_on, transfers });
    const sha256 = createHash('sha256').update(content).digest('hex');
    const amount_in_cents = rows.reduce((sum, one) => sum + one.amount_in_cents, 0);
    const sealed = sealer.seal(content, filePlace(file_id));
    await tx.query(keepFileStatement, [
      file_id,
      way,
      made_at,
      actor,
      rows.length,
      amount_in_cents,
      sha256,
      sealed,
    ]);
    await tx.query(inFileStatement, [file_id, rows.map((one) => one.remittance_id)]);
    const detail = { file_id, way, transfers: rows.length, amount_in_cents, sha256 };
    await note(tx, { actor, event: 'bank_file_made', detail });
    return {
      file_id,
      way,
      made_at,
      made_by: actor,
      transfers: rows.length,
      amount_in_cents,
      sha256,
      content,
    };
  });
}

/** A file again, as it was made; noted, because it holds bank accounts. Throws Refusal NOT_FOUND. */
export async function readBankFile(
  { database, sealer }: { readonly database: Database; readonly sealer: Sealer },
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

/**
 * What became of a transfer, or of all transfers of a file that have no end yet. One made by hand needs a second person who gives the same
 * reference. Throws Refusal NOT_FOUND when no such transfer is open, and CONFLICT when the same person says it twice.
 */
export function endTransfer(
  database: Database,
  id: string,
  { outcome, reference }: TransferEnd,
  actor: string,
): Promise<{ outcome: 'done' | 'second_person_needed'; transfers: number }> {
  return database.transaction(async (tx) => {
    const [byHand] = await tx.query<{ asked_by: string | null; asked: string | null }>(
      byHandStatement,
      [id],
    );
    const asked = `${outcome} ${reference}`;
    if (byHand !== undefined && byHand.asked !== asked) {
      const kept = await tx.query(askStatement, [id, actor, asked]);
      if (kept.length === 0) throw new Refusal('NOT_FOUND');
      const detail = { remittance_id: id, outcome, reference };
      await note(tx, { actor, event: 'transfer_end_requested', detail });
      return { outcome: 'second_person_needed', transfers: 0 };
    }
    if (byHand?.asked_by === actor) {
      throw new Refusal('CONFLICT', {
        message: 'You said this already: a second person must give the same reference',
      });
    }
    const ended = await tx.query(endStatement, [id, outcome, reference]);
    if (ended.length === 0) throw new Refusal('NOT_FOUND');
    const detail = { id, outcome, reference, transfers: ended.length };
    await note(tx, { actor, event: 'transfer_ended', detail });
    return { outcome: 'done', transfers: ended.length };
  });
}
