import type { AccessPage, RevokedAccess } from '@duebridge/contract';
import { jsonOption, print, queryOf, table, type Terminal } from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { adminPath, ask } from './ask.ts';

/** `duebridge platform access …`: the tokens and sessions that there are, and the end of one (decision 218). */
export function addAccess(command: Command, terminal: Terminal): void {
  const access = command
    .command('access')
    .description('list tokens and their sessions, or end one')
    .option('--partner <id>', 'of one partner')
    .option('--client <client_id>', 'made with the keys of one client')
    .option('--email <address>', 'of one person; the audit keeps that you searched')
    .option('--limit <n>', 'maximum number of tokens (default 50)')
    .option('--cursor <cursor>', 'continue from the next_cursor of the previous page')
    .addOption(jsonOption())
    .action(
      async (options: {
        partner?: string;
        client?: string;
        email?: string;
        limit?: string;
        cursor?: string;
        json?: true;
      }) => {
        const { partner: partner_id, client: client_id, email, limit, cursor } = options;
        const filter = { partner_id, client_id, limit, cursor };
        const page =
          email === undefined
            ? await ask<AccessPage>(terminal, 'GET', adminPath`access` + queryOf(filter))
            : await ask<AccessPage>(
                terminal,
                'POST',
                adminPath`access/search`,
                JSON.parse(JSON.stringify({ ...filter, email })) as object,
              );
        print(terminal, options, page, () => {
          const more = page.next_cursor === null ? '' : `\nMore: --cursor "${page.next_cursor}"`;
          return accessTable(page) + more;
        });
      },
    );
  access
    .command('end')
    .description('end a token and its sessions; payments already made continue')
    .argument('<token_id>', 'from the list')
    .requiredOption('--reason <text>', 'kept in the audit')
    .addOption(jsonOption())
    .action(async (id: string, options: { reason: string; json?: true }) => {
      const { reason } = options;
      const done = await ask<RevokedAccess>(terminal, 'POST', adminPath`access/${id}/end`, {
        reason,
      });
      print(
        terminal,
        options,
        done,
        () => `Ended ${done.tokens} tokens and ${done.sessions} sessions.`,
      );
    });
}

function accessTable({ tokens }: AccessPage): string {
  return table(
    ['TOKEN', 'PARTNER', 'CLIENT', 'ACCOUNT', 'CREATED', 'ENDS', 'SESSIONS', 'OPEN', 'PAYMENTS'],
    tokens.map((one) => [
      one.token_id,
      one.partner_id,
      one.client_id,
      one.masked_account_id ?? '-',
      one.created_at,
      one.ended ? 'ended' : one.expires_at,
      String(one.opened),
      String(one.sessions.filter((session) => !session.ended).length),
      one.payments.join(' ') || '-',
    ]),
  );
}
