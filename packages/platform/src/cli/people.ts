import type { Person, PersonErasure } from '@duebridge/contract';
import { jsonOption, print, table, type Terminal } from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { adminPath, ask } from './ask.ts';
import { paymentTable } from './payments.ts';

/** `duebridge platform person …`: the data held about a person, and its erasure (decision 52). */
export function addPeople(command: Command, terminal: Terminal): void {
  const person = command.command('person').description('the data held about a person');
  person
    .command('show')
    .description(
      'show the data held about the person with this e-mail address; the audit keeps the reason',
    )
    .argument('<email>')
    .requiredOption('--reason <text>', 'kept in the audit')
    .addOption(jsonOption())
    .action(async (email: string, options: { reason: string; json?: true }) => {
      const { reason } = options;
      const found = await ask<Person>(terminal, 'POST', adminPath`people/show`, { email, reason });
      print(terminal, options, found, () => {
        const records = table(
          ['PARTNER', 'NAME', 'E-MAIL', 'PHONE', 'ERASED AFTER'],
          found.records.map((one) => [
            one.partner_id,
            `${one.first_name} ${one.last_name}`,
            one.email,
            one.phone_number,
            one.erase_after,
          ]),
        );
        return `${records}\n\n${paymentTable(found.payments)}`;
      });
    });
  person
    .command('erase')
    .description('erase the personal data of the person with this e-mail address; payments stay')
    .argument('<email>')
    .requiredOption('--reason <text>', 'kept in the audit')
    .addOption(jsonOption())
    .action(async (email: string, options: { reason: string; json?: true }) => {
      const { reason } = options;
      const done = await ask<PersonErasure>(terminal, 'POST', adminPath`people/erase`, {
        email,
        reason,
      });
      print(terminal, options, done, () => {
        const kept =
          done.kept_for_payments === 0
            ? ''
            : ` ${done.kept_for_payments} kept until their payments have ended: run this again then.`;
        return `Erased ${done.customers} records.${kept}`;
      });
    });
}
