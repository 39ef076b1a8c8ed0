/**
 * `duebridge platform bulk`: one act on several payments, one after the other, as the console does it (decision 166).
 *
 * holds: each payment is acted on by a call of its own, so that each is decided and audited by itself. A call without an answer
 *        that says what became of it ends the run; running the command again repeats nothing, because what was done is refused.
 */
import {
  BULK_ACTS,
  MAX_BULK,
  type BulkAct,
  type BulkPreview,
  type PartnerAnswer,
  type PaymentPage,
  type ReviewClose,
} from '@duebridge/contract';
import {
  CommandError,
  exitCodes,
  jsonOption,
  print,
  queryOf,
  table,
  type Terminal,
} from '@duebridge/runtime/cli';
import { Argument, type Command } from 'commander';
import { adminPath, ask } from './ask.ts';
import { filterOf, withFilters, type FilterOptions } from './payments.ts';

interface BulkOptions extends FilterOptions {
  reason?: string;
  dryRun?: true;
  json?: true;
}

type Previewed = BulkPreview['payments'][number];

/** What became of one payment. */
interface Outcome {
  readonly platform_payment_id: string;
  readonly outcome: 'done' | 'refused' | 'unknown' | 'not_reached';
  readonly told: string;
}

/** Payments of one run: more is an incident of its own, and no list that anybody reads. */
const MAX_PAYMENTS = 10_000;

/** Adds the command. */
export function addBulk(command: Command, terminal: Terminal): void {
  withFilters(
    command
      .command('bulk')
      .description(
        'act on several payments, one after the other; each is checked and audited by itself',
      )
      .addArgument(new Argument('<act>').choices(BULK_ACTS))
      .argument('[platform_payment_id...]', 'these payments; or choose them by the filters below'),
  )
    .option('--reason <text>', 'kept in the audit of each payment')
    .option('--dry-run', 'say what would happen to each, and do nothing')
    .addOption(jsonOption())
    .action(async (act: BulkAct, ids: readonly string[], options: BulkOptions) => {
      const { reason, dryRun } = options;
      if (dryRun !== true && (reason ?? '').trim() === '') {
        throw new CommandError(
          'say why with --reason TEXT, which the audit keeps; or see what would happen with --dry-run',
          exitCodes.usage,
        );
      }
      const wanted = await chosen(terminal, ids, options);
      const previewed = await preview(terminal, act, wanted);
      if (dryRun === true) {
        print(terminal, options, { act, payments: previewed }, () => previewTable(previewed));
        return;
      }
      if (previewed.length === 0) {
        print(terminal, options, { act, reason, done: 0, payments: [] }, () => 'Nothing found.');
        return;
      }
      await run(terminal, act, previewed, reason ?? '', options.json === true);
    });
}

/** The ids that were given, or those of all payments that the filters find. */
async function chosen(
  terminal: Terminal,
  ids: readonly string[],
  options: BulkOptions,
): Promise<readonly string[]> {
  const filter = filterOf(options);
  const isFiltered = Object.values(filter).some((value) => value !== undefined);
  if (ids.length > 0 && isFiltered) {
    throw new CommandError('give ids or filters, not both', exitCodes.usage);
  }
  if (ids.length > 0) return [...new Set(ids)];
  if (!isFiltered) {
    throw new CommandError(
      'choose payments by their ids or by a filter, such as --stage review',
      exitCodes.usage,
    );
  }
  const found: string[] = [];
  let cursor: string | undefined;
  do {
    const query = queryOf({ ...filter, limit: '1000', cursor });
    const page: PaymentPage = await ask(terminal, 'GET', adminPath`payments` + query);
    found.push(...page.payments.map((one) => one.platform_payment_id));
    cursor = page.next_cursor ?? undefined;
    if (cursor !== undefined && found.length >= MAX_PAYMENTS) {
      throw new CommandError(
        `the filters find more than ${MAX_PAYMENTS} payments: choose fewer`,
        exitCodes.usage,
      );
    }
  } while (cursor !== undefined);
  return found;
}

async function preview(
  terminal: Terminal,
  act: BulkAct,
  ids: readonly string[],
): Promise<readonly Previewed[]> {
  const previewed: Previewed[] = [];
  for (let from = 0; from < ids.length; from += MAX_BULK) {
    const platform_payment_ids = ids.slice(from, from + MAX_BULK);
    const body = { act, platform_payment_ids };
    const { payments } = await ask<BulkPreview>(
      terminal,
      'POST',
      adminPath`payments/preview`,
      body,
    );
    previewed.push(...payments);
  }
  return previewed;
}

/** Acts on each payment, and prints each result as it comes. Throws CommandError when one of them was not done. */
async function run(
  terminal: Terminal,
  act: BulkAct,
  previewed: readonly Previewed[],
  reason: string,
  isJson: boolean,
): Promise<void> {
  const outcomes: Outcome[] = [];
  let stopped: CommandError | undefined;
  let asksToStop = false;
  const stop = (): void => {
    asksToStop = true;
  };
  process.once('SIGINT', stop);
  for (const { platform_payment_id, refused, would } of previewed) {
    let result: Omit<Outcome, 'platform_payment_id'>;
    if (stopped !== undefined || asksToStop)
      result = { outcome: 'not_reached', told: 'stopped before' };
    else if (refused) result = { outcome: 'refused', told: would };
    else {
      try {
        const answer = await ask<unknown>(
          terminal,
          'POST',
          adminPath`payments/${platform_payment_id}/${act}`,
          { reason },
        );
        result = { outcome: 'done', told: toldOf(act, answer) };
      } catch (error) {
        if (!(error instanceof CommandError)) throw error;
        // Without an answer, or without a right key, the next payment would fare no better.
        const isLost = error.cause !== undefined;
        if (isLost || error.exitCode !== exitCodes.failed) stopped = error;
        result = {
          outcome: isLost ? 'unknown' : 'refused',
          told: isLost
            ? 'nobody knows what became of it: look at it with "duebridge platform payment show"'
            : error.message,
        };
      }
    }
    outcomes.push({ platform_payment_id, ...result });
    const line = `${outcomes.length}/${previewed.length}  ${platform_payment_id}  ${result.outcome}: ${result.told}\n`;
    if (isJson) process.stderr.write(line);
    else terminal.write(line);
  }
  process.removeListener('SIGINT', stop);
  const done = outcomes.filter(({ outcome }) => outcome === 'done').length;
  const summary = `Done for ${done} of ${outcomes.length}.`;
  print(
    terminal,
    isJson ? { json: true } : {},
    { act, reason, done, payments: outcomes },
    () => summary,
  );
  if (stopped !== undefined) throw stopped;
  if (done < outcomes.length) {
    throw new CommandError(
      `${outcomes.length - done} of ${outcomes.length} were not done: the lines above say why`,
      exitCodes.failed,
    );
  }
}

function toldOf(act: BulkAct, answer: unknown): string {
  switch (act) {
    case 'resume':
      return 'it is sent again';
    case 'withdraw':
      return 'it is canceled';
    case 'poll':
      return `the partner says ${(answer as PartnerAnswer).answer}`;
    case 'close':
      return (answer as ReviewClose).outcome === 'closed'
        ? 'it ended as failed'
        : 'a second operator has to run the same command';
  }
}

function previewTable(previewed: readonly Previewed[]): string {
  if (previewed.length === 0) return 'Nothing found.';
  const would = previewed.filter(({ refused }) => !refused).length;
  return `${table(
    ['PAYMENT', 'STATUS', 'STAGE', 'CENTS', 'WOULD'],
    previewed.map(({ platform_payment_id, payment, refused, would: what }) => [
      platform_payment_id,
      payment?.status ?? '-',
      payment?.stage ?? '-',
      String(payment?.amount_in_cents ?? '-'),
      refused ? `be refused: ${what}` : what,
    ]),
  )}\n\nNothing was done. ${would} of ${previewed.length} would be acted on.`;
}
