/** The latest conformance report of each partner, as the partner or an operator uploaded it. */
import type { ConformanceReport, KeptConformanceReport } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { note } from '../store/audit.ts';

const readStatement = sql(`
   SELECT report, uploaded_at FROM duebridge_platform.conformance_reports WHERE partner_id = $1`);
const keepStatement = sql(`
   INSERT INTO duebridge_platform.conformance_reports (partner_id, report) VALUES ($1, $2)
   ON CONFLICT (partner_id) DO UPDATE SET report = excluded.report, uploaded_at = excluded.uploaded_at
   RETURNING report, uploaded_at`);

interface Row {
  readonly report: ConformanceReport;
  readonly uploaded_at: string;
}
const shown = ({ report, uploaded_at }: Row): KeptConformanceReport => ({ ...report, uploaded_at });

/** The report of a registered partner; null before the first. */
export async function readReport(
  database: Database,
  partner_id: string,
): Promise<KeptConformanceReport | null> {
  const [row] = await database.query<Row>(readStatement, [partner_id]);
  return row === undefined ? null : shown(row);
}

/** Keeps a report of a registered partner, whose shape the route table has checked, in place of the one before; audited. */
export function keepReport(
  database: Database,
  partner_id: string,
  report: ConformanceReport,
  actor: string,
): Promise<KeptConformanceReport> {
  return database.transaction(async (tx) => {
    const [row] = await tx.query<Row>(keepStatement, [partner_id, JSON.stringify(report)]);
    if (row === undefined) throw new Error('the report was not kept');
    const { profile, verdict, started_at } = report;
    const detail = { profile, verdict, started_at };
    await note(tx, { actor, event: 'conformance_report_kept', partner_id, detail });
    return shown(row);
  });
}
