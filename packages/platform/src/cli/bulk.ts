/**
 * `duebridge platform bulk`: one act on several payments, one after the other (decision 166).
 *
 * holds: each act is the single one, with its own guard and audit line. The command stops at an act whose result it did not learn; run
 *        again, it repeats nothing, because what was done is refused.
 */
import {
  fillPath,
  platformAdminRoutes as routes,
  type PaymentPage,
  type Route,
} from '@duebridge/contract';
import {
  CommandError,
  exitCodes,
  line,
  print,
  type CommandLine,
  type CommandRun,
} from '@duebridge/runtime/cli';
import { Option } from 'commander';

/** What became of one payment. */
interface Done {
  readonly platform_payment_id: string;
  readonly state: 'done' | 'refused';
  readonly note: string;
}

/** Most payments of one command: more is an incident of its own, and no list that anybody reads. */
const MAX_PAYMENTS = 10_000;

const ACTS: readonly (readonly [act: string, route: Route, help: string])[] = [
  ['resume', routes.resume_payment, 'take payments out of review: the same PUTs are sent again'],
  ['poll', routes.poll_payment, 'ask the partner for the status of payments; changes nothing'],
  ['withdraw', routes.withdraw_payment, 'cancel payments that cannot have left yet'],
  ['close', routes.close_review, 'fail payments that the partner refused and does not have'],
];

/** The commands: filters as those of `payments`, or ids. */
export const bulkLines: readonly CommandLine[] = ACTS.map(([act, route, help]) =>
  line(`bulk ${act}`, routes.list_payments, String, {
    help: `${help}; chosen by their ids or by filters`,
    rest: 'platform_payment_id',
    without: ['sort', 'limit', 'cursor'],
    options: [new Option('--reason <text>', 'kept in the audit of each payment')],
    run: (run) => bulkAct(run, route),
  }),
);

async function bulkAct(run: CommandRun, route: Route): Promise<void> {
  const { terminal, options, values } = run;
  const reason = typeof options['reason'] === 'string' ? options['reason'] : '';
  const isFiltered = run.request.path.includes('?');
  if (values.length > 0 === isFiltered) {
    throw new CommandError(
      'choose payments by their ids or by a filter, such as --status review',
      exitCodes.usage,
    );
  }
  if (reason.trim() === '') {
    throw new CommandError('say why with --reason TEXT, which the audit keeps', exitCodes.usage);
  }
  const ids = isFiltered ? await found(run) : new Set(values);
  const results: Done[] = [];
  for (const id of ids) {
    const result = await actOn(run, route, id, reason);
    results.push(result);
    const text = `${results.length}/${ids.size}  ${id}  ${result.state}: ${result.note}\n`;
    if (options.json === true) process.stderr.write(text);
    else terminal.write(text);
  }
  const done = results.filter(({ state }) => state === 'done').length;
  print(terminal, options, { payments: results }, () => `Done for ${done} of ${ids.size}.`);
  if (done < ids.size) {
    throw new CommandError(
      `${ids.size - done} of ${ids.size} were not done: the lines above say why`,
      exitCodes.failed,
    );
  }
}

/** Acts on one payment. Throws CommandError where the platform did not say what became of it. */
async function actOn(
  { ask }: CommandRun,
  route: Route,
  platform_payment_id: string,
  reason: string,
): Promise<Done> {
  try {
    const path = fillPath(route.path, { platform_payment_id });
    const { outcome, answer } = await ask<{ outcome?: string; answer?: string }>('POST', path, {
      reason,
    });
    const note = (outcome ?? answer ?? 'ok').replaceAll('_', ' ');
    return { platform_payment_id, state: 'done', note };
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
async function found({ request, ask }: CommandRun): Promise<ReadonlySet<string>> {
  const ids = new Set<string>();
  let cursor = '';
  do {
    const page: PaymentPage = await ask('GET', `${request.path}&limit=1000${cursor}`);
    for (const one of page.payments) ids.add(one.platform_payment_id);
    cursor = page.next_cursor === null ? '' : `&cursor=${encodeURIComponent(page.next_cursor)}`;
    if (ids.size > MAX_PAYMENTS) {
      throw new CommandError(
        `the filters find more than ${MAX_PAYMENTS} payments: choose fewer`,
        exitCodes.usage,
      );
    }
  } while (cursor !== '');
  return ids;
}
