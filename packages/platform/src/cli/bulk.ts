/**
 * `duebridge platform bulk`: one act on several payments, one after the other (decision 166).
 *
 * holds: each act is the single one, with its own guard and audit line. The command stops at an act whose result it did not learn; run
 *        again, it repeats nothing, because what was done is refused.
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
import type { Command } from 'commander';
import { adminPath, ask } from './ask.ts';
import { filterOf, withFilters, type FilterOptions } from './payments.ts';

interface BulkOptions extends FilterOptions {
  reason?: string;
  dryRun?: true;
  json?: true;
}

type Previewed = BulkPreview['payments'][number];

/** What became of one payment. */
interface Done {
  readonly platform_payment_id: string;
  readonly state: 'done' | 'refused';
  readonly note: string;
}

/** Most payments of one command: more is an incident of its own, and no list that anybody reads. */
const MAX_PAYMENTS = 10_000;

const ACTS: Readonly<Record<BulkAct, string>> = {
  resume: 'take payments out of review: the same ids and bytes are sent again',
  poll: 'ask the partner for the status of payments; changes nothing',
  withdraw: 'cancel payments that cannot have left yet',
  close: 'fail payments that the partner refused and does not have',
};

/** Adds the commands. */
export function addBulk(command: Command, terminal: Terminal): void {
  const bulk = command
    .command('bulk')
    .description(
      'act on several payments, one after the other; each is checked and audited by itself',
    );
  for (const act of BULK_ACTS) {
    withFilters(
      bulk
        .command(act)
        .description(ACTS[act])
        .argument(
          '[platform_payment_id...]',
          'these payments; or choose them by the filters below',
        ),
    )
      .option('--reason <text>', 'kept in the audit of each payment')
      .option('--dry-run', 'say what would happen to each, and do nothing')
      .addOption(jsonOption())
      .action((ids: readonly string[], options: BulkOptions) =>
        bulkAct(terminal, act, ids, options),
      );
  }
}

async function bulkAct(
  terminal: Terminal,
  act: BulkAct,
  given: readonly string[],
  options: BulkOptions,
): Promise<void> {
  const { reason = '', dryRun } = options;
  const filter = chosenFilter(given, options);
  if (dryRun !== true && reason.trim() === '') {
    throw new CommandError(
      'say why with --reason TEXT, which the audit keeps; or see what would happen with --dry-run',
      exitCodes.usage,
    );
  }
  const ids = filter === undefined ? [...new Set(given)] : await found(terminal, filter);
  if (dryRun === true) {
    const payments = await preview(terminal, act, ids);
    print(terminal, options, { payments }, () => previewTable(payments));
    return;
  }
  const results: Done[] = [];
  for (const id of ids) {
    const result = await actOn(terminal, act, id, reason);
    results.push(result);
    const line = `${results.length}/${ids.length}  ${id}  ${result.state}: ${result.note}\n`;
    if (options.json === true) process.stderr.write(line);
    else terminal.write(line);
  }
  const done = results.filter(({ state }) => state === 'done').length;
  print(terminal, options, { act, payments: results }, () =>
    ids.length === 0 ? 'Nothing found.' : `Done for ${done} of ${ids.length}.`,
  );
  if (done < ids.length) {
    throw new CommandError(
      `${ids.length - done} of ${ids.length} were not done: the lines above say why`,
      exitCodes.failed,
    );
  }
}

/** Acts on one payment. Throws CommandError where the platform did not say what became of it. */
async function actOn(
  terminal: Terminal,
  act: BulkAct,
  platform_payment_id: string,
  reason: string,
): Promise<Done> {
  const path = adminPath`payments/${platform_payment_id}/${act}`;
  try {
    const answer = await ask<unknown>(terminal, 'POST', path, { reason });
    return { platform_payment_id, state: 'done', note: noteOf(act, answer) };
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    // Only an answer of the admin API says that nothing was done; without a key or an address no payment can be acted on.
    if (error.exitCode !== exitCodes.failed) throw error;
    if (error.cause !== undefined) {
      throw new CommandError(
        `stopped at ${platform_payment_id}: ${error.message}; run the same command again: what is done already will be refused`,
        exitCodes.failed,
        { cause: error.cause },
      );
    }
    return { platform_payment_id, state: 'refused', note: error.message };
  }
}

function noteOf(act: BulkAct, answer: unknown): string {
  switch (act) {
    case 'resume':
      return 'It is sent again';
    case 'withdraw':
      return 'It is canceled';
    case 'poll':
      return `The partner says ${(answer as PartnerAnswer).answer.replaceAll('_', ' ')}`;
    case 'close':
      return (answer as ReviewClose).outcome === 'closed'
        ? 'It ended as failed'
        : 'It waits for a second person';
  }
}

/** The filter that chooses the payments; undefined when their ids were given. Throws CommandError for both, or neither. */
function chosenFilter(
  ids: readonly string[],
  options: BulkOptions,
): Record<string, string> | undefined {
  const filter = JSON.parse(JSON.stringify(filterOf(options))) as Record<string, string>;
  const isFiltered = Object.keys(filter).length > 0;
  if (ids.length > 0 && isFiltered) {
    throw new CommandError('give ids or filters, not both', exitCodes.usage);
  }
  if (ids.length > 0) return undefined;
  if (isFiltered) return filter;
  throw new CommandError(
    'choose payments by their ids or by a filter, such as --status review',
    exitCodes.usage,
  );
}

/** The ids of the payments that the filter finds. Throws CommandError for too many. */
async function found(
  terminal: Terminal,
  filter: Record<string, string>,
): Promise<readonly string[]> {
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const query = queryOf({ limit: '1000', ...filter, cursor });
    const page: PaymentPage = await ask(terminal, 'GET', adminPath`payments` + query);
    ids.push(...page.payments.map((one) => one.platform_payment_id));
    cursor = page.next_cursor ?? undefined;
    if (ids.length > MAX_PAYMENTS) {
      throw new CommandError(
        `the filters find more than ${MAX_PAYMENTS} payments: choose fewer`,
        exitCodes.usage,
      );
    }
  } while (cursor !== undefined);
  return ids;
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
