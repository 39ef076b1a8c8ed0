import type { ClientKeyGrant, ClientKeyView, RevokedAccess } from '@duebridge/contract';
import { jsonOption, print, table, wholeDays, type Terminal } from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { adminPath, ask } from './ask.ts';

/** `duebridge platform key …`: the API keys of the token endpoint. */
export function addKeys(command: Command, terminal: Terminal): void {
  const key = command.command('key').description('API keys of the token endpoint');
  key
    .command('issue')
    .description('issue a key; it is shown once')
    .requiredOption('--partner <id>', 'whose key')
    .option('--client <client_id>', 'issue a second key for this client, for a rotation')
    .option('--days <n>', 'expire the key after this many days; default: never', wholeDays)
    .addOption(jsonOption())
    .action(async (options: { partner: string; client?: string; days?: number; json?: true }) => {
      const grant = await ask<ClientKeyGrant>(
        terminal,
        'POST',
        `/admin/v1/partners/${encodeURIComponent(options.partner)}/keys`,
        {
          ...(options.client === undefined ? {} : { client_id: options.client }),
          ...(options.days === undefined ? {} : { valid_for_days: options.days }),
        },
      );
      print(terminal, options, grant, () =>
        [
          `client_id  ${grant.client_id}`,
          `api_key    ${grant.api_key}`,
          `key_id     ${grant.key_id}`,
          `expires    ${grant.expires_at ?? 'never'}`,
          `mode       ${grant.mode}`,
          'The api_key is not shown again; it goes into X-Api-Key, the client_id into X-Client-Id.',
        ].join('\n'),
      );
    });
  key
    .command('list')
    .description('list the keys of a partner, without their secrets')
    .requiredOption('--partner <id>', 'whose keys')
    .addOption(jsonOption())
    .action(async (options: { partner: string; json?: true }) => {
      const { keys } = await ask<{ keys: ClientKeyView[] }>(
        terminal,
        'GET',
        `/admin/v1/partners/${encodeURIComponent(options.partner)}/keys`,
      );
      print(terminal, options, { keys }, () =>
        table(
          ['KEY', 'MODE', 'CLIENT', 'ISSUED', 'LAST USED', 'EXPIRES', 'REVOKED'],
          keys.map((one) => [
            one.key_id,
            one.mode,
            one.client_id,
            one.created_at,
            one.last_used_at ?? '-',
            one.expires_at ?? '-',
            one.revoked_at ?? '-',
          ]),
        ),
      );
    });
  key
    .command('revoke')
    .description('revoke a key; refused everywhere within five seconds')
    .argument('<key_id>', 'from key issue or key list')
    .requiredOption('--partner <id>', 'whose key')
    .addOption(jsonOption())
    .action(async (key_id: string, options: { partner: string; json?: true }) => {
      const view = await ask<ClientKeyView>(
        terminal,
        'DELETE',
        `/admin/v1/partners/${encodeURIComponent(options.partner)}/keys/${encodeURIComponent(key_id)}`,
      );
      print(terminal, options, view, () => `Revoked ${view.key_id} of ${view.client_id}.`);
    });
  key
    .command('revoke-access')
    .description(
      'end every token and session that a client was given; payments already made continue',
    )
    .argument('<client_id>', 'from key list')
    .requiredOption('--partner <id>', 'whose client')
    .requiredOption('--reason <text>', 'kept in the audit')
    .addOption(jsonOption())
    .action(
      async (client_id: string, options: { partner: string; reason: string; json?: true }) => {
        const done = await ask<RevokedAccess>(
          terminal,
          'POST',
          adminPath`partners/${options.partner}/clients/${client_id}/revoke-access`,
          { reason: options.reason },
        );
        print(
          terminal,
          options,
          done,
          () => `Ended ${done.tokens} tokens and ${done.sessions} sessions of ${done.client_id}.`,
        );
      },
    );
}
