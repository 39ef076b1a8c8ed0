/**
 * `duebridge platform bulk`: one act on several payments, one after the other (decision 200). The platform drives a run; the command
 * follows it, and stopping the command, or losing the connection, stops nothing.
 */
import {
  BULK_ACTS,
  MAX_BULK,
  MAX_RUN,
  MAX_RUN_IDS,
  type BulkAct,
  type BulkItem,
  type BulkPreview,
  type BulkRun,
  type BulkRunDetail,
  type PaymentPage,
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
  detach?: true;
  json?: true;
}

type Previewed = BulkPreview['payments'][number];

/** How often a run that is followed is read. */
const FOLLOW_EVERY_MS = 500;
/** Payments of a run that are read at once. */
const ITEMS = 500;

const ACTS: Readonly<Record<BulkAct, string>> = {
  resume: 'take payments out of review: the same ids and bytes are sent again',
  poll: 'ask the partner for the status of payments; changes nothing',
  withdraw: 'cancel payments that cannot have left yet',
  close: 'close payments as failed that the partner refused for good and does not know',
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
      .option('--detach', 'start it, print its id, and do not follow it')
      .addOption(jsonOption())
      .action((ids: readonly string[], options: BulkOptions) =>
        bulkAct(terminal, act, ids, options),
      );
  }
  bulk
    .command('list')
    .description('the last runs, newest first')
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const list = await ask<{ runs: BulkRun[] }>(terminal, 'GET', adminPath`bulk-runs`);
      print(terminal, options, list, () => runTable(list.runs));
    });
  bulk
    .command('show')
    .description('a run and what became of each of its payments')
    .argument('<run_id>')
    .addOption(jsonOption())
    .action(async (run_id: string, options: { json?: true }) => {
      const detail = await whole(terminal, run_id);
      print(
        terminal,
        options,
        detail,
        () => `${runTable([detail.run])}\n\n${itemTable(detail.items)}`,
      );
    });
  for (const [verb, description] of [
    ['stop', 'stop a run after the payment that is being acted on'],
    ['continue', 'continue a run that was stopped'],
  ] as const) {
    bulk
      .command(verb)
      .description(description)
      .argument('<run_id>')
      .addOption(jsonOption())
      .action(async (run_id: string, options: { json?: true }) => {
        const run = await ask<BulkRun>(terminal, 'POST', adminPath`bulk-runs/${run_id}/${verb}`);
        print(terminal, options, run, () => runTable([run]));
      });
  }
}

async function bulkAct(
  terminal: Terminal,
  act: BulkAct,
  ids: readonly string[],
  options: BulkOptions,
): Promise<void> {
  const { reason = '', dryRun, detach } = options;
  const filter = chosenFilter(ids, options);
  if (dryRun !== true && reason.trim() === '') {
    throw new CommandError(
      'say why with --reason TEXT, which the audit keeps; or see what would happen with --dry-run',
      exitCodes.usage,
    );
  }
  if (dryRun === true) {
    const wanted = filter === undefined ? [...new Set(ids)] : await found(terminal, filter);
    const payments = await preview(terminal, act, wanted);
    print(terminal, options, { act, payments }, () => previewTable(payments));
    return;
  }
  const chosen = filter === undefined ? { platform_payment_ids: [...new Set(ids)] } : { filter };
  if (filter !== undefined && (await found(terminal, { ...filter, limit: '1' }, 1)).length === 0) {
    print(terminal, options, { run: null, items: [] }, () => 'Nothing found.');
    return;
  }
  const { run } = await ask<BulkRunDetail>(terminal, 'POST', adminPath`bulk-runs`, {
    act,
    ...chosen,
  });
  const path = adminPath`bulk-runs/${run.run_id}/start`;
  const started = await ask<BulkRun>(terminal, 'POST', path, { reason });
  if (detach === true) {
    print(terminal, options, started, () => runTable([started]));
    return;
  }
  await follow(terminal, started, options.json === true);
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
  if (ids.length > MAX_RUN_IDS) {
    throw new CommandError(
      `give at most ${MAX_RUN_IDS} ids, or choose the payments by a filter`,
      exitCodes.usage,
    );
  }
  if (ids.length > 0) return undefined;
  if (isFiltered) return filter;
  throw new CommandError(
    'choose payments by their ids or by a filter, such as --stage review',
    exitCodes.usage,
  );
}

/** The ids of the payments that the filter finds. Throws CommandError for more than a run takes. */
async function found(
  terminal: Terminal,
  filter: Record<string, string>,
  most = MAX_RUN,
): Promise<readonly string[]> {
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const query = queryOf({ limit: '1000', ...filter, cursor });
    const page: PaymentPage = await ask(terminal, 'GET', adminPath`payments` + query);
    ids.push(...page.payments.map((one) => one.platform_payment_id));
    cursor = page.next_cursor ?? undefined;
    if (most === 1 && ids.length > 0) return ids;
    if (ids.length > most) {
      throw new CommandError(
        `the filters find more than ${MAX_RUN} payments: choose fewer`,
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

/**
 * Prints each result as it comes, until the run ends. Throws CommandError when one of them was not done, and when the command stops
 * following: the run goes on.
 */
async function follow(terminal: Terminal, run: BulkRun, isJson: boolean): Promise<void> {
  const { run_id, payments } = run;
  const goesOn = `the run goes on at the platform: follow it with "duebridge platform bulk show ${run_id}", or end it with "duebridge platform bulk stop ${run_id}"`;
  let isLeft = false;
  const leave = (): void => {
    isLeft = true;
  };
  process.once('SIGINT', leave);
  try {
    let from = 0;
    for (;;) {
      const path = `${adminPath`bulk-runs/${run_id}`}${queryOf({ cursor: String(from), limit: String(ITEMS) })}`;
      const detail = await ask<BulkRunDetail>(terminal, 'GET', path).catch((error: unknown) => {
        throw error instanceof CommandError
          ? new CommandError(`${error.message}; ${goesOn}`, error.exitCode, { cause: error.cause })
          : error;
      });
      const open = detail.items.findIndex(({ state }) => state === 'waiting' || state === 'acting');
      const ended = open < 0 ? detail.items : detail.items.slice(0, open);
      for (const { place, platform_payment_id, state, note } of ended) {
        const line = `${place + 1}/${payments}  ${platform_payment_id}  ${state}: ${note}\n`;
        if (isJson) process.stderr.write(line);
        else terminal.write(line);
      }
      from += ended.length;
      if (from >= payments || detail.run.state === 'stopped') break;
      if (isLeft) throw new CommandError(goesOn, exitCodes.failed);
      if (ended.length === 0) {
        await new Promise((resolve) => {
          setTimeout(resolve, FOLLOW_EVERY_MS);
        });
      }
    }
  } finally {
    process.removeListener('SIGINT', leave);
  }
  const detail = await whole(terminal, run_id);
  const { done, state, note, actor } = detail.run;
  const json = isJson ? { json: true as const } : {};
  print(terminal, json, detail, () => `Done for ${done} of ${payments}.`);
  if (state === 'stopped') {
    throw new CommandError(
      `the run was stopped${note === '' ? '' : `: ${note}`}; ${actor} continues it with "duebridge platform bulk continue ${run_id}"`,
      exitCodes.failed,
    );
  }
  if (done < payments) {
    throw new CommandError(
      `${payments - done} of ${payments} were not done: the lines above say why`,
      exitCodes.failed,
    );
  }
}

/** A run with all of its payments. */
async function whole(
  terminal: Terminal,
  run_id: string,
): Promise<Omit<BulkRunDetail, 'next_cursor'>> {
  const items: BulkItem[] = [];
  for (let cursor: string | undefined; ;) {
    const query = queryOf({ cursor, limit: '1000' });
    const path = `${adminPath`bulk-runs/${run_id}`}${query}`;
    const page: BulkRunDetail = await ask(terminal, 'GET', path);
    items.push(...page.items);
    if (page.next_cursor === null) return { run: page.run, items };
    cursor = page.next_cursor;
  }
}

function runTable(runs: readonly BulkRun[]): string {
  return table(
    ['RUN', 'ACT', 'STATE', 'PAYMENTS', 'DONE', 'REFUSED', 'BY', 'PLANNED', 'REASON'],
    runs.map((run) => [
      run.run_id,
      run.act,
      run.note === '' ? run.state : `${run.state}: ${run.note}`,
      String(run.payments),
      String(run.done),
      String(run.refused),
      run.actor,
      run.planned_at,
      run.reason ?? '-',
    ]),
  );
}

function itemTable(items: readonly BulkItem[]): string {
  return table(
    ['PAYMENT', 'STATE', 'PARTNER', 'CENTS', 'NOTE'],
    items.map((one) => [
      one.platform_payment_id,
      one.state,
      one.partner_id ?? '-',
      String(one.amount_in_cents ?? '-'),
      one.note,
    ]),
  );
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
