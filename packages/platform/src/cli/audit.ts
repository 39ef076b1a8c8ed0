import type { AuditEntry, AuditPage, AuditVerification } from '@duebridge/contract';
import {
  jsonOption,
  print,
  queryOf,
  table,
  verifyAudit,
  type AuditVerifyOptions,
  type Terminal,
} from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { adminPath, ask } from './ask.ts';

interface AuditOptions {
  actor?: string;
  event?: string;
  partner?: string;
  payment?: string;
  from?: string;
  to?: string;
  limit?: string;
  cursor?: string;
  json?: true;
}

/** `duebridge platform audit`. */
export function addAudit(command: Command, terminal: Terminal): void {
  const audit = command
    .command('audit')
    .description('who did what and why, newest first')
    .option('--actor <name>', 'of one operator, such as ada, or admin-key')
    .option('--event <event>', 'of one kind, such as payment_ended')
    .option('--partner <id>', 'about one partner')
    .option('--payment <id>', 'about one payment')
    .option('--from <time>', 'at or after, such as 2026-03-21T00:00:00Z')
    .option('--to <time>', 'before')
    .option('--limit <n>', 'maximum number of rows (default 50)')
    .option('--cursor <cursor>', 'continue from the next_cursor of the previous page')
    .addOption(jsonOption())
    .action(async (options: AuditOptions) => {
      const { actor, event, partner, payment, from, to, limit, cursor } = options;
      const page = await ask<AuditPage>(
        terminal,
        'GET',
        adminPath`audit` +
          queryOf({
            actor,
            event,
            partner_id: partner,
            platform_payment_id: payment,
            from,
            to,
            limit,
            cursor,
          }),
      );
      print(terminal, options, page, () => {
        const more = page.next_cursor === null ? '' : `\nMore: --cursor '${page.next_cursor}'`;
        return auditTable(page.entries) + more;
      });
    });
  audit
    .command('verify')
    .description('compare the audit with its seals: was a line altered, removed or inserted?')
    .option('--expect <number:seal>', 'a seal noted earlier, which must still exist unchanged')
    .option('--after <number>', 'continue after this seal, up to which an earlier run compared')
    .addOption(jsonOption())
    // When `--json` precedes the subcommand, commander assigns it to `audit`.
    .action((options: AuditVerifyOptions, self: Command) =>
      verifyAudit(
        terminal,
        { ...self.optsWithGlobals<AuditVerifyOptions>(), ...options },
        (query) =>
          ask<AuditVerification>(terminal, 'GET', `${adminPath`audit/verification`}${query}`),
      ),
    );
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
