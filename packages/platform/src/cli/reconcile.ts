/** `duebridge platform reconcile`: compares a batch with its partner, or with the partner's file. Exit code 1 says that they differ. */
import { fillPath, platformAdminRoutes as routes, type Reconciliation } from '@duebridge/contract';
import {
  CommandError,
  exitCodes,
  print,
  progressReport,
  readTextFile,
  type CommandRun,
} from '@duebridge/runtime/cli';
import { comparedPayments, differences, reconciliation } from './output.ts';

/** Runs the command. Throws CommandError for differences as well. */
export async function reconcile(run: CommandRun): Promise<void> {
  const { terminal, options, values, ask } = run;
  const [platform_batch_id = ''] = values;
  const file = options['csv'];
  const result =
    typeof file === 'string'
      ? // Sent unchanged, whatever its length.
        await ask<Reconciliation>(
          'POST',
          fillPath(routes.reconcile_batch_file.path, { platform_batch_id }),
          await readTextFile(terminal, file),
        )
      : await compareToTheEnd(run);
  print(terminal, options, result, () => reconciliation(result));
  const count = result.differences.length;
  if (count > 0) {
    throw new CommandError(
      `found ${differences(count)}; ${comparedPayments(result.compared)}`,
      exitCodes.failed,
    );
  }
}

/** A comparison that reads payment by payment answers with its progress until it has ended. */
async function compareToTheEnd({ request, ask }: CommandRun): Promise<Reconciliation> {
  const report = progressReport();
  for (;;) {
    const result = await ask<Reconciliation>(request.method, request.path, {});
    if (result.running === undefined) return result;
    report(`${result.compared} of ${result.running.of} payments read`);
  }
}
