/** What is in the files of archived months (archive.ts) is read here: the audit of a payment, and the fields that its short row lacks. */
import { join } from 'node:path';
import type { AuditEntry } from '@duebridge/contract';
import { messageOf, sql } from '@duebridge/runtime';
import { spanOf } from '../payment-id.ts';
import { readArchive } from './archive-file.ts';
import type { PaymentRow, Queryable } from './payments.ts';

/** The names of the two files of a month, in its folder. */
export const FILES = { payments: 'payments.zst', audit: 'audit.zst' } as const;

/** Who ended a payment where its line does not say: nearly every payment is ended by the partner's record, and has such a line. */
export const ENDED_BY = { by: 'partner' };

const archivesStatement = sql(`
   SELECT folder, archived_at, until_id FROM duebridge_platform.archives WHERE until_id > $1 ORDER BY until`);
type Archive = Readonly<Record<'folder' | 'archived_at' | 'until_id', string>>;

/** A time of a file in the form of those of the database. */
const moment = (at: string | null): string | null => at && new Date(at).toISOString();

/** What the files have of a payment. Empty for one whose month is in the database. */
export interface Archived {
  /** Lines of its audit, oldest first, and one for each file that could not be read, which says where it should be. */
  readonly lines: readonly AuditEntry[];
  /** What the short row does not keep, or has the last moment of its month for. */
  readonly fields: Partial<PaymentRow>;
}

/** Reads what archived files have of a payment: never throws for a file. */
export async function readArchived(
  on: Queryable,
  { platform_payment_id, ended_at }: PaymentRow,
): Promise<Archived> {
  const archives = await on.query<Archive>(archivesStatement, [platform_payment_id]);
  const lines: AuditEntry[] = [];
  const read = async <Row>(at: number, file: string): Promise<Row[]> => {
    const { folder = '', archived_at = '' } = archives[at] ?? {};
    const path = join(folder, file);
    try {
      return await readArchive<Row>(path, [platform_payment_id]);
    } catch (error) {
      const detail = { where: path, why: messageOf(error) };
      lines.push({ at: archived_at, actor: 'duebridge', event: 'archived_elsewhere', detail });
      return [];
    }
  };
  if (archives.length === 0) return { lines, fields: {} };
  const [full] = await read<PaymentRow>(0, FILES.payments);
  for (const at of archives.keys()) {
    for (const line of await read<AuditEntry>(at, FILES.audit)) {
      const { actor, event } = line;
      const detail = event === 'payment_ended' ? { ...ENDED_BY, ...line.detail } : line.detail;
      lines.push({ at: new Date(line.at).toISOString(), actor, event, detail });
    }
  }
  const place = ({ at, event }: AuditEntry): string => `${at} ${event}`;
  lines.sort((one, other) => (place(one) < place(other) ? -1 : 1));
  if (full === undefined) return { lines, fields: { accepted_at: null, settled_at: ended_at } };
  return {
    lines,
    fields: {
      rejection_message: full.rejection_message,
      initiated_at: moment(full.initiated_at),
      accepted_at: moment(full.accepted_at),
      settled_at: moment(full.settled_at),
    },
  };
}

/** Payments, at least one, with the time of `initiated_at`, which short rows do not keep; without it where a file cannot be read. */
export async function withInitiated(on: Queryable, rows: PaymentRow[]): Promise<PaymentRow[]> {
  const ids = rows.map((row) => row.platform_payment_id);
  const found = new Map<string, string | null>();
  for (const { folder, until_id } of await on.query<Archive>(archivesStatement, [spanOf(ids)[0]])) {
    const theirs = ids.filter((id) => id < until_id);
    const full = readArchive<PaymentRow>(join(folder, FILES.payments), theirs).catch(() => []);
    for (const one of await full) found.set(one.platform_payment_id, moment(one.initiated_at));
    if (found.size === ids.length) break;
  }
  return rows.map((row) => {
    const initiated_at = found.get(row.platform_payment_id) ?? row.initiated_at;
    return { ...row, initiated_at };
  });
}
