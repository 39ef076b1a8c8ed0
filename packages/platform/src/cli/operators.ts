import type { OperatorKeyGrant, OperatorView } from '@duebridge/contract';
import { jsonOption, print, table, wholeDays, type Terminal } from '@duebridge/runtime/cli';
import { Option, type Command } from 'commander';
import { adminPath, ask } from './ask.ts';

const roles = ['viewer', 'operator', 'admin'] as const;

/** `duebridge platform operator …`: operators and their roles (decision 38). */
export function addOperators(command: Command, terminal: Terminal): void {
  const operator = command
    .command('operator')
    .description('the platform’s operators and their roles');
  operator
    .command('add')
    .description('add an operator; give them a key with operator key')
    .requiredOption('--id <id>', 'as the audit names them, such as ada')
    .requiredOption('--name <name>', 'shown in the console')
    .addOption(
      new Option('--role <role>', 'viewer reads, operator acts, admin changes partners and people')
        .choices(roles)
        .makeOptionMandatory(),
    )
    .option('--subject <sub>', 'their identity at the OpenID Connect provider')
    .addOption(jsonOption())
    .action(
      async (options: {
        id: string;
        name: string;
        role: string;
        subject?: string;
        json?: true;
      }) => {
        const view = await ask<OperatorView>(terminal, 'POST', adminPath`operators`, {
          operator_id: options.id,
          name: options.name,
          role: options.role,
          ...(options.subject === undefined ? {} : { oidc_subject: options.subject }),
        });
        print(terminal, options, view, () => operatorTable([view]));
      },
    );
  operator
    .command('list')
    .description('list the operators and their keys, without secrets')
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const list = await ask<{ operators: OperatorView[] }>(terminal, 'GET', adminPath`operators`);
      print(terminal, options, list, () => operatorTable(list.operators));
    });
  operator
    .command('change')
    .description('change the role of an operator, or disable one')
    .argument('<operator_id>')
    .addOption(new Option('--role <role>').choices(roles))
    .option('--disable', 'stop accepting their keys and sessions')
    .option('--enable', 'accept them again')
    .addOption(jsonOption())
    .action(
      async (
        id: string,
        options: { role?: string; disable?: true; enable?: true; json?: true },
      ) => {
        const view = await ask<OperatorView>(terminal, 'PATCH', adminPath`operators/${id}`, {
          ...(options.role === undefined ? {} : { role: options.role }),
          ...(options.disable === true ? { disabled: true } : {}),
          ...(options.enable === true ? { disabled: false } : {}),
        });
        print(terminal, options, view, () => operatorTable([view]));
      },
    );
  operator
    .command('key')
    .description('issue a key to an operator; it is shown once, and two may be active')
    .argument('<operator_id>')
    .option('--days <n>', 'it expires after so many days; without it, never', wholeDays)
    .addOption(jsonOption())
    .action(async (id: string, options: { days?: number; json?: true }) => {
      const path = adminPath`operators/${id}/keys`;
      const body = options.days === undefined ? {} : { valid_for_days: options.days };
      const grant = await ask<OperatorKeyGrant>(terminal, 'POST', path, body);
      print(terminal, options, grant, () =>
        [
          `operator_key  ${grant.operator_key}`,
          `key_id        ${grant.key_id}`,
          `expires       ${grant.expires_at ?? 'never'}`,
          'The key is not shown again; it signs in to the console, and goes into DUEBRIDGE_ADMIN_KEY of the command line.',
        ].join('\n'),
      );
    });
  operator
    .command('revoke')
    .description('revoke a key of an operator, and the sessions it opened')
    .argument('<operator_id>')
    .argument('<key_id>', 'from operator list')
    .addOption(jsonOption())
    .action(async (id: string, key_id: string, options: { json?: true }) => {
      const view = await ask<OperatorView>(
        terminal,
        'DELETE',
        adminPath`operators/${id}/keys/${key_id}`,
      );
      print(terminal, options, view, () => operatorTable([view]));
    });
}

function operatorTable(operators: readonly OperatorView[]): string {
  return table(
    ['OPERATOR', 'NAME', 'ROLE', 'STATE', 'KEYS'],
    operators.map((one) => [
      one.operator_id,
      one.name,
      one.role,
      one.disabled_at === null ? 'active' : 'disabled',
      one.keys
        .filter((key) => key.revoked_at === null)
        .map(({ key_id, expires_at }) =>
          expires_at === null ? key_id : `${key_id} until ${expires_at}`,
        )
        .join(' ') || '-',
    ]),
  );
}
