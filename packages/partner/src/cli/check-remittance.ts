/**
 * `duebridge partner check-remittance`: whether the money that the platform transferred is that of the payments in the kit's own ledger.
 *
 * enters: statements of remittances, as the platform's operator sends them (CSV), and the lines of their batches from the kit's admin API.
 * leaves: each difference, named: a payment that is missing, unknown, there twice, or has another amount, and a total that its lines do not make.
 * holds:  the payments of a batch are compared as a whole. A partner with several billers gives the statements of all of them.
 */
import { text } from 'node:stream/consumers';
import { fillPath, formatCents, partnerAdminRoutes } from '@duebridge/contract';
import {
  CommandError,
  exitCodes,
  jsonOption,
  print,
  readAdmin,
  readTextFile,
  type Terminal,
} from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { CsvError, parse } from 'csv-parse/sync';
import { TARGET } from './commands.ts';

/** The columns of a statement that count, as the platform writes them. */
const COLUMNS = [
  'kind',
  'platform_payment_id',
  'amount_in_cents',
  'platform_batch_id',
  'note',
] as const;

/** A line of a statement. */
type Line = Readonly<Record<(typeof COLUMNS)[number], string>> & { readonly cents: number };

/** The lines of a statement. Throws CommandError, with the file's name, for what is none. */
export function readStatement(file: string, csv: string): Line[] {
  const refuse = (problem: string): never => {
    throw new CommandError(`${file} is no statement of a remittance: ${problem}`, exitCodes.failed);
  };
  let rows: Omit<Line, 'cents'>[] = [];
  try {
    rows = parse(csv, { bom: true, columns: true, skip_empty_lines: true });
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    return refuse('it is not CSV');
  }
  const missing = COLUMNS.find((name) => !Object.hasOwn(rows[0] ?? {}, name));
  if (missing !== undefined) return refuse(`it has no column ${missing}`);
  const lines = rows.map((row, index): Line => {
    const cents = Number(row.amount_in_cents);
    if (/^-?\d+$/.test(row.amount_in_cents) && Number.isSafeInteger(cents))
      return { ...row, cents };
    return refuse(`line ${index + 2} has no amount in whole cents`);
  });
  // It is written last: without it the file was cut off.
  if (lines.at(-1)?.kind !== 'total') return refuse('its last line is not the total');
  return lines;
}

const sum = (lines: readonly Line[]): number => lines.reduce((cents, one) => cents + one.cents, 0);

/** Compares statements with the ledger. `ledger`: the payments that succeeded, by batch, each with its amount. Pure. */
export function compareRemittances(
  statements: readonly (readonly Line[])[],
  ledger: ReadonlyMap<string, ReadonlyMap<string, number>>,
) {
  const differences: string[] = [];
  for (const lines of statements) {
    const [made, total] = [sum(lines.slice(0, -1)), lines.at(-1)];
    if (made === total?.cents) continue;
    differences.push(
      `remittance ${total?.note}: its lines make ${formatCents(made)}, and its total is ${formatCents(total?.cents ?? 0)}`,
    );
  }
  const kinds = Map.groupBy(statements.flat(), ({ kind }) => kind);
  const [payments = [], totals = []] = [kinds.get('payment'), kinds.get('total')];
  const seen = new Set<string>();
  for (const { platform_payment_id: id, platform_batch_id: batch, cents } of payments) {
    const here = ledger.get(batch)?.get(id);
    if (seen.has(id)) differences.push(`payment ${id} is there twice`);
    else if (here === undefined) {
      differences.push(
        `payment ${id} of ${formatCents(cents)} is not among the payments that succeeded in batch ${batch}`,
      );
    } else if (here !== cents) {
      differences.push(`payment ${id}: ${formatCents(here)} here, ${formatCents(cents)} there`);
    }
    seen.add(id);
  }
  for (const [batch, own] of ledger) {
    for (const [id, cents] of own) {
      if (seen.has(id)) continue;
      differences.push(
        `payment ${id} of ${formatCents(cents)} in batch ${batch} is in no statement`,
      );
    }
  }
  return {
    remittances: statements.length,
    payments: seen.size,
    /** Transferred, in cents: the sum of the totals. */
    net_in_cents: sum(totals),
    /** Taken off for refunds, returns and corrections, and carried from earlier remittances. */
    other_in_cents: sum(statements.flat()) - sum(payments) - sum(totals),
    differences,
  };
}

/** The payments of a batch that succeeded, from the kit's export of it. */
export function succeededIn(csv: string): Map<string, number> {
  return new Map(
    csv
      .split(/\r?\n/)
      .map((line) => line.split(','))
      .filter(([, status]) => status === 'succeeded')
      .map(([id = '', , cents]) => [id, Number(cents)]),
  );
}

/** Adds the command. */
export function addCheckRemittance(partner: Command, terminal: Terminal): void {
  partner
    .command('check-remittance')
    .addOption(jsonOption())
    .argument(
      '<files...>',
      'statements of remittances as CSV; of a batch, those of all its billers',
    )
    .description(
      'compare what the platform transferred with the ledger; exit code 1 when they differ',
    )
    .action(async (files: string[], options: { json?: true }) => {
      const statements: Line[][] = [];
      for (const file of files) {
        statements.push(readStatement(file, await readTextFile(terminal, file)));
      }
      const batches = new Set(statements.flat().map((one) => one.platform_batch_id));
      const ledger = new Map<string, Map<string, number>>();
      for (const platform_batch_id of batches) {
        const path = fillPath(partnerAdminRoutes.export_kit_batch.path, { platform_batch_id });
        const csv = await text(readAdmin(terminal, TARGET, path));
        ledger.set(platform_batch_id, succeededIn(csv));
      }
      const checked = compareRemittances(statements, ledger);
      print(terminal, options, checked, () => describe(checked));
      if (checked.differences.length > 0) {
        throw new CommandError(
          `the remittances differ from the ledger: ${checked.differences.length} differences`,
          exitCodes.failed,
        );
      }
    });
}

function describe(checked: ReturnType<typeof compareRemittances>): string {
  const { payments, net_in_cents, other_in_cents, differences } = checked;
  if (differences.length > 0) return differences.join('\n');
  const other =
    other_in_cents === 0 ? '' : `, with ${formatCents(other_in_cents)} of refunds and earlier ones`;
  const counted = payments === 1 ? '1 payment' : `${payments} payments`;
  return `Both sides agree: ${counted}, ${formatCents(net_in_cents)} transferred${other}.`;
}
