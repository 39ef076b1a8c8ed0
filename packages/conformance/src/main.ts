/**
 * `duebridge conform`: judges a partner's server or a platform (decision 30).
 * Exit codes: 0 no must failed, 1 a must failed, 2 CONFIG or judged in part, 3 usage or nothing ran.
 * One file because it is the table of the commands and options; their implementation is elsewhere.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { formatCents } from '@duebridge/contract';
import { Command, Option } from 'commander';
import { addUp, choose, UsageProblem } from './check/check.ts';
import type { CaseInfo, Profile } from './check/findings.ts';
import { PARTNER_CASES, PLATFORM_CASES } from './cases/index.ts';
import { DEFAULT_HISTORY, fileHistory } from './check/history.ts';
import { readKnownFailures } from './check/known-failures.ts';
import { describe } from './check/result.ts';
import { jsonReport, junitReport, moneyLine, progressLine, terminalReport } from './report/text.ts';
import { pageReport } from './report/page.ts';
import { judgePartner, judgePlatform, RECHECKS, type RunOptions, type RunReport } from './run.ts';
import {
  exampleTarget,
  overlay,
  partnerTarget,
  platformTarget,
  readDraft,
  TargetProblem,
  type Draft,
} from './check/target.ts';

export { sandboxCommand } from './sandbox.ts';

/** Where the command writes; its tests read it there. */
export const terminal = {
  out: (text: string): void => void process.stdout.write(text),
  err: (text: string): void => void process.stderr.write(text),
};

/** The target cannot be used as given (decision 30). */
const EXIT_CONFIG = 2;

/** The command was wrong, or nothing ran (decision 30). */
const EXIT_USAGE = 3;

/** What a run may request without a word, unless the target declares its own cap: about a hundred small payments. */
const UNASKED_CENTS = 100_000;

/** The flags that are not fields of the target file. */
interface Flags {
  readonly profile: Profile;
  readonly only?: readonly string[];
  readonly history: string;
  readonly json?: boolean;
  readonly junit?: string;
  readonly html?: string;
  readonly allowPartial?: boolean;
  readonly expected?: string;
  readonly list?: boolean;
  readonly recheck?: boolean;
  readonly plan?: boolean;
  readonly yes?: boolean;
}

/** A flag that overrides a field of the target file: its form, what it means, and the field. */
type FieldFlag = readonly [form: string, meaning: string, field: string];

const COMMON_FIELDS: readonly FieldFlag[] = [
  ['--base-url <url>', 'base URL of the server, including a path prefix', 'base_url'],
  ['--biller <id>', 'biller_id of the accounts', 'biller_id'],
  ['--ca <file>', 'PEM file of a certificate authority to trust, for a test server', 'ca_file'],
];

const PARTNER_FIELDS: readonly FieldFlag[] = [
  ...COMMON_FIELDS,
  ['--auth <method>', 'key or oauth', 'authentication.method'],
  ['--header <name>', 'header that carries the key, such as x-api-key', 'authentication.header'],
  ['--key <key>', 'the key; prefer the variable DUEBRIDGE_CONFORM_KEY', 'authentication.key'],
  ['--token-url <url>', 'OAuth token endpoint', 'authentication.token_url'],
  ['--client-id <id>', 'OAuth client id', 'authentication.client_id'],
  [
    '--client-secret <secret>',
    'its secret; prefer the variable DUEBRIDGE_CONFORM_CLIENT_SECRET',
    'authentication.client_secret',
  ],
  ['--scope <scopes>', 'scopes to request, such as "read write"', 'authentication.scope'],
  ['--account <id>', 'an active account to which the run may pay', 'accounts.payable'],
  ['--other-account <id>', 'another active account', 'accounts.other'],
  ['--unknown-account <id>', 'an account id that does not exist', 'accounts.unknown'],
  ['--inactive-account <id>', 'an inactive account', 'accounts.inactive'],
  ['--canceled-account <id>', 'an account whose payments are canceled', 'accounts.canceled'],
  ['--min-amount-cents <cents>', 'smallest accepted amount', 'limits.min_amount_in_cents'],
  ['--max-amount-cents <cents>', 'largest accepted amount', 'limits.max_amount_in_cents'],
  ['--window-seconds <seconds>', 'time in which every payment ends', 'terminal_window_seconds'],
  ['--max-spend-cents <cents>', 'maximum total that the run may request', 'spending_cap_in_cents'],
];

const PLATFORM_FIELDS: readonly FieldFlag[] = [
  ...COMMON_FIELDS,
  ['--client-id <id>', 'X-Client-Id', 'client_id'],
  ['--api-key <key>', 'X-Api-Key; prefer the variable DUEBRIDGE_CONFORM_API_KEY', 'api_key'],
  ['--kind <kind>', 'the type of the client: biller or aggregator', 'kind'],
  ['--account <id>', 'an account id that exists at its partner', 'account_id'],
  ['--unknown-account <id>', 'an account id that no account has', 'unknown_account_id'],
];

/** The command `conform`. */
export function conformCommand(): Command {
  const command = new Command('conform').description(
    'Check a server against the interface: what breaks it, why, and how to reproduce it',
  );
  const partner = judging(command.command('partner [target]'), PARTNER_FIELDS, conformPartner)
    .summary("check a partner's server")
    .description(
      "Check a partner's server. TARGET is a target file (write one with `conform partner init`); flags override it.",
    )
    .option(
      '--recheck',
      `only check the payments of earlier runs again (${RECHECKS.join(', ')}): a day later, or after a restart`,
    )
    .option('--plan', 'print what would be checked and created, and exit')
    .option('--yes', 'start payments of more than $1,000 without a spending cap')
    .addHelpText(
      'after',
      help(`  $ duebridge conform partner init my-server.json
  $ duebridge conform partner my-server.json
  $ duebridge conform partner my-server.json --html report.html`),
    );
  partner
    .command('init [file]')
    .description('write a target file to fill in')
    .addOption(
      new Option('--auth <method>', 'key or oauth').choices(['key', 'oauth']).default('key'),
    )
    .action((file: string | undefined, flags: { auth: 'key' | 'oauth' }, self: Command) => {
      // The parent command has a flag of the same name and consumes it when it precedes "init".
      const method = self.optsWithGlobals<{ auth?: 'key' | 'oauth' }>().auth ?? flags.auth;
      process.exitCode = init(file ?? 'duebridge-target.json', method);
    });
  judging(command.command('platform [target]'), PLATFORM_FIELDS, conformPlatform)
    .summary('check a platform')
    .description(
      'Check a platform: its token endpoint and, if the target file has a "caller", how it calls a partner.',
    )
    .addHelpText(
      'after',
      help(`  $ duebridge conform platform --base-url https://platform.example --client-id ID \\
      --kind biller --account A-1 --html report.html`),
    );
  return command;
}

/** What both subjects have: their fields, the flags of a run, and one exit code for each outcome. */
function judging(
  command: Command,
  fields: readonly FieldFlag[],
  run: (draft: Draft, flags: Flags) => Promise<number>,
): Command {
  const options = fields.map(([form, meaning]) => new Option(form, meaning));
  for (const option of options) command.addOption(option);
  return command
    .addOption(
      new Option('--profile <profile>', 'contract: the interface; strict: also our decisions')
        .choices(['contract', 'strict'])
        .default('contract'),
    )
    .option('--only <ids>', 'checks to run, such as P25,P27', (text: string) => text.split(','))
    .option('--history <folder>', 'folder for the ids used', DEFAULT_HISTORY)
    .option('--json', 'print the report as JSON')
    .option('--junit <file>', 'write the report as JUnit XML')
    .option('--html <file>', 'write the report as one HTML page')
    .option('--allow-partial', 'exit with 0 even if some checks could not be judged')
    .option('--expected <file>', 'JSON list of known failures: check, owner, until, reason')
    .option('--list', 'list the checks, and exit')
    .action(async (file: string | undefined, flags: Flags & Record<string, unknown>) => {
      let given: Draft = {};
      for (const [place, option] of options.entries()) {
        const value = flags[option.attributeName()];
        const field = fields[place]?.[2] ?? '';
        if (value === undefined) continue;
        given = overlay(given, within(field, value));
        // A secret given here takes precedence over the variable named in the file.
        if (/key$|secret$/.test(field)) given = overlay(given, within(`${field}_env`, null));
      }
      process.exitCode = await guarded(flags, async () =>
        run(overlay(file === undefined ? {} : readDraft(file), given), flags),
      );
    });
}

/** A draft with one value, at a place such as `accounts.payable`. */
function within(place: string, value: unknown): Draft {
  const [first = '', ...rest] = place.split('.');
  return { [first]: rest.length === 0 ? value : within(rest.join('.'), value) };
}

async function conformPartner(draft: Draft, flags: Flags): Promise<number> {
  if (flags.list === true) return list(choose(PARTNER_CASES, 'strict', flags.only), flags);
  const { DUEBRIDGE_CONFORM_KEY: key, DUEBRIDGE_CONFORM_CLIENT_SECRET: client_secret } =
    process.env;
  const target = partnerTarget(overlay({ authentication: { key, client_secret } }, draft));
  const recheck = flags.recheck === true;
  const options = { ...runOptions(flags), recheck };
  const cases = choose(PARTNER_CASES, flags.profile, recheck ? RECHECKS : options.only);
  const money = addUp(cases, target);
  if (!recheck) terminal.err(`${moneyLine(money)}\n`);
  if (flags.plan === true) return list(cases, flags);
  // A declared cap keeps the run below it.
  const isMeant = flags.yes === true || recheck || money.cap_in_cents !== undefined;
  if (!isMeant && money.total_in_cents > UNASKED_CENTS) {
    terminal.err(
      `Payments worth ${formatCents(money.total_in_cents)} need a word: declare spending_cap_in_cents (--max-spend-cents), or pass --yes.\n`,
    );
    return EXIT_USAGE;
  }
  return deliver(flags, (signal) => judgePartner(target, { ...options, signal }));
}

async function conformPlatform(draft: Draft, flags: Flags): Promise<number> {
  if (flags.list === true) return list(choose(PLATFORM_CASES, 'strict', flags.only), flags);
  const api_key = process.env['DUEBRIDGE_CONFORM_API_KEY'];
  const target = platformTarget(overlay({ api_key }, draft));
  const options = runOptions(flags);
  return deliver(flags, (signal) => judgePlatform(target, { ...options, signal }));
}

/** Reports an unusable target as CONFIG, in the requested form. */
async function guarded(flags: Flags, run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof UsageProblem) {
      terminal.err(`${error.message}\n`);
      return EXIT_USAGE;
    }
    if (!(error instanceof TargetProblem)) throw error;
    if (flags.json === true) {
      terminal.out(
        `${JSON.stringify({ verdict: 'config', exit_code: EXIT_CONFIG, config: { sentence: error.message } })}\n`,
      );
    }
    terminal.err(`CONFIG  ${error.message}\n`);
    return EXIT_CONFIG;
  }
}

function runOptions(flags: Flags): RunOptions {
  const history = fileHistory(flags.history, (why) => {
    terminal.err(
      `The ids of this run could not be kept (${why}), so --recheck will not know it: name another folder with --history.\n`,
    );
  });
  const { only } = flags;
  return {
    allowPartial: flags.allowPartial === true,
    profile: flags.profile,
    history,
    ...(only !== undefined && { only }),
    ...(flags.expected !== undefined && { expected: readKnownFailures(flags.expected) }),
    onProgress(progress) {
      const isOver = progress.done === progress.total;
      if (process.stderr.isTTY) {
        terminal.err(`\r\u001b[K${isOver ? '' : progressLine(progress)}`);
      } else if (isOver || progress.verdict === 'FAIL' || progress.verdict === 'WARN') {
        terminal.err(`${progressLine(progress)}\n`);
      }
    },
  };
}

/** Runs the checks until the signal aborts. */
type Judge = (signal: AbortSignal) => Promise<RunReport>;

/** Judges; prints and writes the report in every requested form. Returns the exit code. */
async function deliver(flags: Flags, judge: Judge): Promise<number> {
  const report = await interruptible(judge);
  const colour = process.stdout.isTTY && process.env['NO_COLOR'] === undefined;
  // Printed first: a file that cannot be written must not cost the result of a whole run.
  terminal.out(flags.json === true ? jsonReport(report) : terminalReport(report, { colour }));
  const unwritten = (
    [
      [flags.junit, junitReport],
      [flags.html, pageReport],
    ] as const
  ).flatMap(([file, form]) => {
    try {
      if (file !== undefined) writeFileSync(file, form(report));
      return [];
    } catch {
      return [file];
    }
  });
  if (unwritten.length > 0) {
    throw new TargetProblem(
      `The report could not be written to ${unwritten.join(' and ')}: choose a file in an existing, writable folder.`,
    );
  }
  return report.exit_code;
}

/** Runs with a signal that Ctrl-C aborts; the report is written anyway. A second Ctrl-C ends the process. */
async function interruptible(run: Judge): Promise<RunReport> {
  const controller = new AbortController();
  const interrupt = (): void => {
    terminal.err('\nStopping the run; the report of the completed checks follows.\n');
    controller.abort();
  };
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  try {
    return await run(controller.signal);
  } finally {
    process.off('SIGINT', interrupt);
    process.off('SIGTERM', interrupt);
  }
}

function help(example: string): string {
  return `
Exit codes:
  0  no must-check failed
  1  a must-check failed
  2  the target cannot be used as configured, or was judged only in part
  3  the command line was wrong, or no check ran

Example:
${example}
`;
}

function list(cases: readonly CaseInfo[], flags: Flags): number {
  const described = cases.map(describe);
  if (flags.json === true) {
    terminal.out(`${JSON.stringify(described, undefined, 2)}\n`);
    return 0;
  }
  for (const { id, title, clauses, severity, profile } of described) {
    const only = profile === 'strict' ? ', strict only' : '';
    terminal.out(`${id}  ${title}  [${clauses.join(' ')}] ${severity}${only}\n`);
  }
  return 0;
}

function init(file: string, method: 'key' | 'oauth'): number {
  if (existsSync(file)) {
    terminal.err(`${file} already exists and was not changed.\n`);
    return EXIT_CONFIG;
  }
  writeFileSync(file, `${JSON.stringify(exampleTarget(method), undefined, 2)}\n`, { mode: 0o600 });
  terminal.out(
    `Wrote ${file}. Fill it in, set ${method === 'key' ? 'DUEBRIDGE_CONFORM_KEY' : 'DUEBRIDGE_CONFORM_CLIENT_SECRET'}, then: duebridge conform partner ${file}\n`,
  );
  return 0;
}
