/**
 * `duebridge platform bulk`: one act on several payments, one after the other (decision 166).
 *
 * holds: each act is the single one, with its own guard and audit line. The command stops at an act whose result it did not learn; run
 *        again, it repeats nothing, because what was done is refused.
 */
import {
  BULK_ACTS,
  fillPath,
  MAX_BULK,
  platformAdminRoutes as routes,
  type BulkAct,
  type BulkPreview,
  type PaymentPage,
} from '@duebridge/contract';
import { bulkNote } from '@duebridge/contract/bulk-note';
import {
  CommandError,
  exitCodes,
  line,
  print,
  table,
  type CommandLine,
  type CommandRun,
} from '@duebridge/runtime/cli';
import { Option } from 'commander';

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

const ACT_ROUTES = {
  resume: routes.resume_payment,
  poll: routes.poll_payment,
  withdraw: routes.withdraw_payment,
  close: routes.close_review,
} as const;

/** The commands: filters as those of `payments`, or ids. */
export const bulkLines: readonly CommandLine[] = BULK_ACTS.map((act) =>
  line(`bulk ${act}`, routes.list_payments, String, {
    help: `${ACTS[act]}; chosen by their ids or by filters`,
    rest: 'platform_payment_id',
    without: ['sort', 'limit', 'cursor'],
    options: [
      new Option('--reason <text>', 'kept in the audit of each payment'),
      new Option('--dry-run', 'say what would happen to each, and do nothing'),
    ],
    run: (run) => bulkAct(run, act),
  }),
);

async function bulkAct(run: CommandRun, act: BulkAct): Promise<void> {
  const { terminal, options, values } = run;
  const reason = typeof options['reason'] === 'string' ? options['reason'] : '';
  const isDryRun = options['dryRun'] === true;
  const isFiltered = run.request.path.includes('?');
  if (values.length > 0 && isFiltered) {
    throw new CommandError('give ids or filters, not both', exitCodes.usage);
  }
  if (values.length === 0 && !isFiltered) {
    throw new CommandError(
      'choose payments by their ids or by a filter, such as --status review',
      exitCodes.usage,
    );
  }
  if (!isDryRun && reason.trim() === '') {
    throw new CommandError(
      'say why with --reason TEXT, which the audit keeps; or see what would happen with --dry-run',
      exitCodes.usage,
    );
  }
  const ids = isFiltered ? await found(run) : [...new Set(values)];
  if (isDryRun) {
    const payments = await preview(run, act, ids);
    print(terminal, options, { payments }, () => previewTable(payments));
    return;
  }
  const results: Done[] = [];
  for (const id of ids) {
    const result = await actOn(run, act, id, reason);
    results.push(result);
    const text = `${results.length}/${ids.length}  ${id}  ${result.state}: ${result.note}\n`;
    if (options.json === true) process.stderr.write(text);
    else terminal.write(text);
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
  { ask }: CommandRun,
  act: BulkAct,
  platform_payment_id: string,
  reason: string,
): Promise<Done> {
  try {
    const path = fillPath(ACT_ROUTES[act].path, { platform_payment_id });
    const answer = await ask<unknown>('POST', path, { reason });
    return { platform_payment_id, state: 'done', note: bulkNote(act, answer) };
  } catch (error) {
    // Only an answer of the admin API says that nothing was done; without a key or an address no payment can be acted on.
    if (!(error instanceof CommandError) || error.code === undefined) throw error;
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

/** The ids of the payments that the filters find. Throws CommandError for too many. */
async function found({ request, ask }: CommandRun): Promise<readonly string[]> {
  const ids: string[] = [];
  let cursor = '';
  do {
    const page: PaymentPage = await ask('GET', `${request.path}&limit=1000${cursor}`);
    ids.push(...page.payments.map((one) => one.platform_payment_id));
    cursor = page.next_cursor === null ? '' : `&cursor=${encodeURIComponent(page.next_cursor)}`;
    if (ids.length > MAX_PAYMENTS) {
      throw new CommandError(
        `the filters find more than ${MAX_PAYMENTS} payments: choose fewer`,
        exitCodes.usage,
      );
    }
  } while (cursor !== '');
  return ids;
}

async function preview(
  { ask }: CommandRun,
  act: BulkAct,
  ids: readonly string[],
): Promise<readonly Previewed[]> {
  const previewed: Previewed[] = [];
  for (let from = 0; from < ids.length; from += MAX_BULK) {
    const body = { act, platform_payment_ids: ids.slice(from, from + MAX_BULK) };
    previewed.push(...(await ask<BulkPreview>('POST', routes.preview_acts.path, body)).payments);
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
