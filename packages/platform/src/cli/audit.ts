import type { AuditEntry } from '@duebridge/contract';
import { jsonOption, print, table, type Terminal } from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { ask } from './ask.ts';

/** `duebridge platform audit`. */
export function addAudit(command: Command, terminal: Terminal): void {
  command
    .command('audit')
    .description('the latest entries of the audit, newest first')
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const { entries } = await ask<{ entries: AuditEntry[] }>(terminal, 'GET', '/admin/v1/audit');
      print(terminal, options, { entries }, () => auditTable(entries));
    });
}

/** Entries of the audit in columns. */
export function auditTable(entries: readonly AuditEntry[]): string {
  return table(
    ['AT', 'ACTOR', 'EVENT', 'DETAIL'],
    entries.map((one) => [
      one.at,
      one.actor,
      one.event,
      Object.entries(one.detail)
        .map(([name, value]) => `${name}=${value}`)
        .join(' '),
    ]),
  );
}
