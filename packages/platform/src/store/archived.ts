/** What is in the files of archived months (archive.ts) is read here: the audit of a payment, and the fields that its short row lacks. */
import { join } from 'node:path';
import type { AuditEntry } from '@duebridge/contract';
import { messageOf, sql } from '@duebridge/runtime';
import { readArchive } from './archive-file.ts';
import type { PaymentRow, Queryable } from './payments.ts';

/** The names of the two files of a month, in its folder. */
export const FILES = { payments: 'payments.zst', audit: 'audit.zst' } as const;

/** Who ended a payment where its line does not say: nearly every payment is ended by the partner's record, and has such a line. */
export const ENDED_BY = { by: 'partner' };

const archivesStatement = sql(`
   SELECT folder, archived_at FROM duebridge_platform.archives WHERE until_id > $1 ORDER BY until`);

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
  const archives = await on.query<{ folder: string; archived_at: string }>(archivesStatement, [
    platform_payment_id,
  ]);
  const lines: AuditEntry[] = [];
  const read = async <Row>(at: number, file: string): Promise<Row[]> => {
    const { folder = '', archived_at = '' } = archives[at] ?? {};
    const path = join(folder, file);
    try {
      return await readArchive<Row>(path, 'platform_payment_id', platform_payment_id);
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
  const moment = (at: string | null): string | null => at && new Date(at).toISOString();
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
