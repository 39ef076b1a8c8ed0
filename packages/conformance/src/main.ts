/**
 * `duebridge conform`: judges a partner's server or a platform (decision 30).
 * Exit codes: 0 no must failed, 1 a must failed, 2 CONFIG or judged in part, 3 usage or nothing ran.
 * One file because it is the table of the commands and options; their implementation is elsewhere.
 */
import { spawn } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { formatCents } from '@duebridge/contract';
import { Command, InvalidArgumentError, Option } from 'commander';
import type { CaseInfo } from './check/check.ts';
import type { Profile } from './check/findings.ts';
import { PARTNER_CASES, PLATFORM_CASES } from './cases/index.ts';
import { readKnownFailures } from './check/known-failures.ts';
import { DEFAULT_HISTORY, fileHistory } from './check/history.ts';
import { placeOf, proxyFor } from './check/proxy.ts';
import { addUp, choose, UsageProblem } from './check/selection.ts';
import { jsonReport, junitReport, moneyLine, progressLine, terminalReport } from './report/text.ts';
import { pageReport } from './report/page.ts';
import { badge } from './report/badge.ts';
import {
  judgePartner,
  judgePlatform,
  QUICK_CHECKS,
  RECHECKS,
  type Progress,
  type RunOptions,
  type RunReport,
} from './run.ts';
import {
  exampleTarget,
  overlay,
  partnerTarget,
  platformTarget,
  readDraft,
  TargetProblem,
  type Draft,
} from './check/target.ts';

export { sandboxCommand } from './sandbox/command.ts';

/** The target cannot be used as given (decision 30). */
const EXIT_CONFIG = 2;

/** The command was wrong, or nothing ran (decision 30). */
const EXIT_USAGE = 3;

/** What a run may request without a word, unless the target declares its own cap: about a hundred small payments. */
const ASK_ABOVE_CENTS = 100_000;

/** Interval of progress lines when there is no terminal to redraw. */
const TELL_EVERY_MS = 10_000;

/** The run's last progress message. */
const heartbeat: { last: Progress | undefined } = { last: undefined };

/** The flags of both subjects. */
interface CommonFlags {
  readonly profile: Profile;
  readonly only?: readonly string[];
  readonly failed?: boolean;
  readonly expected?: string;
  readonly history: string;
  readonly json?: boolean;
  readonly junit?: string;
  readonly html?: string;
  readonly badge?: string;
  readonly allowPartial?: boolean;
  readonly list?: boolean;
  readonly ca?: string;
  readonly baseUrl?: string;
}

interface PartnerFlags extends CommonFlags {
  readonly auth?: string;
  readonly header?: string;
  readonly key?: string;
  readonly tokenUrl?: string;
  readonly clientId?: string;
  readonly clientSecret?: string;
  readonly scope?: string;
  readonly biller?: string;
  readonly account?: string;
  readonly otherAccount?: string;
  readonly unknownAccount?: string;
  readonly inactiveAccount?: string;
  readonly canceledAccount?: string;
  readonly minAmountCents?: number;
  readonly maxAmountCents?: number;
  readonly windowSeconds?: number;
  readonly maxSpendCents?: number;
  readonly recheck?: boolean;
  readonly quick?: boolean;
  readonly restart?: boolean;
  readonly plan?: boolean;
  readonly yes?: boolean;
}

interface PlatformFlags extends CommonFlags {
  readonly clientId?: string;
  readonly apiKey?: string;
  readonly kind?: string;
  readonly biller?: string;
  readonly account?: string;
  readonly unknownAccount?: string;
  readonly flow?: boolean;
  readonly restart?: boolean;
}

/** The command `conform`. */
export function conformCommand(): Command {
  const command = new Command('conform').description(
    'Check a server against the interface: what breaks it, why, and how to reproduce it',
  );
  const partner = common(command.command('partner [target]'))
    .summary("check a partner's server")
    .description(
      "Check a partner's server. TARGET is a target file (write one with `conform partner init`); flags override it.",
    )
    .addOption(new Option('--auth <method>', 'key or oauth').choices(['key', 'oauth']))
    .option('--header <name>', 'header that carries the key, such as x-api-key')
    .option('--key <key>', 'the key; prefer the variable DUEBRIDGE_CONFORM_KEY')
    .option('--token-url <url>', 'OAuth token endpoint')
    .option('--client-id <id>', 'OAuth client id')
    .option(
      '--client-secret <secret>',
      'its secret; prefer the variable DUEBRIDGE_CONFORM_CLIENT_SECRET',
    )
    .option('--scope <scopes>', 'scopes to request, such as "read write"')
    .option('--biller <id>', 'biller_id of the accounts')
    .option('--account <id>', 'an active account to which the run may pay')
    .option('--other-account <id>', 'another active account')
    .option('--unknown-account <id>', 'an account id that does not exist')
    .option('--inactive-account <id>', 'an inactive account')
    .option('--canceled-account <id>', 'an account whose payments are canceled')
    .option('--min-amount-cents <cents>', 'smallest accepted amount', cents)
    .option('--max-amount-cents <cents>', 'largest accepted amount', cents)
    .option('--window-seconds <seconds>', 'time in which every payment ends', cents)
    .option('--max-spend-cents <cents>', 'maximum total that the run may request', cents)
    .option('--recheck', `only re-check payments of earlier runs (${RECHECKS.join(', ')})`)
    .option('--quick', 'finish within a minute: fewer checks, shorter waits')
    .option('--restart', 'pause and ask you to restart the server, for P66')
    .option('--plan', 'print what would be checked and created, and exit')
    .option('--yes', 'start payments above the spending cap, or without one, unasked')
    .addHelpText(
      'after',
      help(`  $ duebridge conform partner init my-server.json
  $ duebridge conform partner my-server.json --quick
  $ duebridge conform partner my-server.json --html report.html`),
    )
    .action(async (file: string | undefined, flags: PartnerFlags) => {
      process.exitCode = await conformPartner(file, flags);
    });
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
  command
    .command('report <file>')
    .description('print a saved JSON report, or convert it to another format')
    .option('--html <file>', 'write it as one HTML page')
    .option('--junit <file>', 'write it as JUnit XML')
    .option('--badge <file>', 'write its verdict as an SVG badge')
    .action((file: string, flags: OutputFlags) => {
      process.exitCode = reprint(file, flags);
    });
  common(command.command('platform [target]'))
    .summary('check a platform')
    .description(
      'Check a platform: its token endpoint and, if the target file has a "caller", how it calls a partner.',
    )
    .option('--client-id <id>', 'X-Client-Id')
    .option('--api-key <key>', 'X-Api-Key; prefer the variable DUEBRIDGE_CONFORM_API_KEY')
    .addOption(
      new Option('--kind <kind>', 'the type of the client').choices(['biller', 'aggregator']),
    )
    .option('--biller <id>', 'biller_id of the account')
    .option('--account <id>', 'an account id that exists at its partner')
    .option('--unknown-account <id>', 'an account id that does not exist at its partner')
    .option('--flow', 'the platform offers the flow API at the same address')
    .option('--restart', 'pause and ask you to restart the platform, for C14')
    .addHelpText(
      'after',
      help(`  $ duebridge conform platform --base-url https://platform.example --client-id ID \\
      --kind biller --account A-1 --html report.html`),
    )
    .action(async (file: string | undefined, flags: PlatformFlags) => {
      process.exitCode = await conformPlatform(file, flags);
    });
  return command;
}

function common(command: Command): Command {
  return command
    .option('--base-url <url>', 'base URL of the server, including a path prefix')
    .addOption(
      new Option('--profile <profile>', 'contract: the interface; strict: also our decisions')
        .choices(['contract', 'strict'])
        .default('contract'),
    )
    .option('--only <ids>', 'checks to run, such as P25,P27', (text: string) => text.split(','))
    .option('--failed', 'only the checks that failed in the last run against this URL')
    .option('--expected <file>', 'JSON list of known failures: check, owner, until, reason')
    .option('--history <folder>', 'folder for the ids used and the last failures', DEFAULT_HISTORY)
    .option('--ca <file>', 'PEM file of a certificate authority to trust, for a test server')
    .option('--json', 'print the report as JSON')
    .option('--junit <file>', 'write the report as JUnit XML')
    .option('--html <file>', 'write the report as one HTML page')
    .option('--badge <file>', 'write the verdict as an SVG badge')
    .option('--allow-partial', 'exit with 0 even if some checks could not be judged')
    .option('--list', 'list the checks, and exit');
}

async function conformPartner(file: string | undefined, flags: PartnerFlags): Promise<number> {
  if (flags.list === true) return listChosen(PARTNER_CASES, flags);
  return guarded(flags, async () => {
    const target = partnerTarget(
      overlay(overlay(partnerEnvironment(), fileDraft(file)), partnerDraft(flags)),
    );
    const options = {
      ...runOptions(flags, target.base_url),
      recheck: flags.recheck === true,
      quick: flags.quick === true,
      ...restarter(target.restart_command, flags.restart === true),
    };
    if (nothingFailed(flags, options)) return EXIT_USAGE;
    const chosen = choose(
      PARTNER_CASES,
      flags.profile,
      flags.recheck === true ? RECHECKS : options.only,
    );
    const quick = flags.quick === true && options.only === undefined;
    const cases = quick ? chosen.filter(({ id }) => QUICK_CHECKS.includes(id)) : chosen;
    if (quick) {
      const left = chosen.filter((one) => !cases.includes(one)).map(({ id }) => id);
      process.stderr.write(`A quick run leaves out ${left.join(' ')}.\n`);
    }
    const cap = target.spending_cap_in_cents;
    const money = {
      ...addUp(cases, target),
      asked_in_cents: 0,
      ...(cap === undefined ? {} : { cap_in_cents: cap }),
    };
    if (flags.recheck !== true) process.stderr.write(`${moneyLine(money)}\n`);
    if (flags.plan === true) return list(cases, flags);
    canWrite(flags);
    const isMeant = flags.yes === true || flags.recheck === true;
    if (!isMeant && !(await mayStart(money.total_in_cents, cap))) return EXIT_USAGE;
    return deliver(
      await interruptible((signal) => judgePartner(target, { ...options, signal })),
      flags,
    );
  });
}

async function conformPlatform(file: string | undefined, flags: PlatformFlags): Promise<number> {
  if (flags.list === true) return listChosen(PLATFORM_CASES, flags);
  return guarded(flags, async () => {
    const target = platformTarget(
      overlay(
        overlay({ api_key: process.env['DUEBRIDGE_CONFORM_API_KEY'] }, fileDraft(file)),
        platformDraft(flags),
      ),
    );
    const options = runOptions(flags, target.base_url);
    if (nothingFailed(flags, options)) return EXIT_USAGE;
    canWrite(flags);
    return deliver(
      await interruptible((signal) =>
        judgePlatform(target, {
          ...options,
          ...restarter(target.caller?.restart_command, flags.restart === true),
          signal,
          onPrompt: (sentence) => process.stderr.write(`${sentence}\n`),
          ...(process.stdin.isTTY ? { onQuestion: ask } : {}),
        }),
      ),
      flags,
    );
  });
}

/** Asks before a run that would request more than its cap. Without anybody to ask, a declared cap keeps the run below it. */
async function mayStart(total_in_cents: number, cap: number | undefined): Promise<boolean> {
  if (total_in_cents <= (cap ?? ASK_ABOVE_CENTS)) return true;
  const worth = formatCents(total_in_cents);
  if (process.stdin.isTTY) {
    const what =
      cap === undefined ? 'no spending cap is declared' : `the cap is ${formatCents(cap)}`;
    const answer = await ask(`Start payments worth ${worth}, although ${what}? [y/N]`);
    return /^y(?:es)?$/i.test(answer.trim());
  }
  if (cap !== undefined) return true;
  process.stderr.write(
    `Payments worth ${worth} need a word: declare spending_cap_in_cents (--max-spend-cents), or pass --yes.\n`,
  );
  return false;
}

/** Asks the person at the terminal. */
async function ask(question: string, signal?: AbortSignal): Promise<string> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return await terminal.question(`${question} `, signal === undefined ? {} : { signal });
  } finally {
    terminal.close();
  }
}

/** Reports an unusable target as CONFIG, in the requested form. */
async function guarded(flags: CommonFlags, run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof UsageProblem) {
      process.stderr.write(`${error.message}\n`);
      return EXIT_USAGE;
    }
    if (!(error instanceof TargetProblem)) throw error;
    if (flags.json === true) {
      process.stdout.write(
        `${JSON.stringify({ verdict: 'config', exit_code: EXIT_CONFIG, config: { sentence: error.message } })}\n`,
      );
    }
    process.stderr.write(`CONFIG  ${error.message}\n`);
    return EXIT_CONFIG;
  }
}

function runOptions(
  flags: CommonFlags,
  base_url: string,
): RunOptions & { readonly only?: readonly string[] } {
  const history = fileHistory(flags.history, (why) => {
    process.stderr.write(
      `The ids of this run could not be kept (${why}), so --recheck and --failed will not know it: name another folder with --history.\n`,
    );
  });
  const proxy = proxyFor(new URL(base_url));
  if (proxy !== undefined) {
    const { hostname } = new URL(base_url);
    process.stderr.write(
      `Requests go through the proxy ${placeOf(proxy)} of HTTPS_PROXY; NO_PROXY=${hostname} goes without.\n`,
    );
  }
  const only = flags.failed === true ? history.lastFailed(base_url) : flags.only;
  let toldAt = Date.now();
  return {
    allowPartial: flags.allowPartial === true,
    profile: flags.profile,
    history,
    ...(only === undefined ? {} : { only }),
    ...(flags.expected === undefined ? {} : { expected: readKnownFailures(flags.expected) }),
    onProgress(progress) {
      heartbeat.last = progress;
      if (process.stderr.isTTY) {
        process.stderr.write(`\r\u001b[K${progressLine(progress)}`);
        if (progress.done === progress.total) process.stderr.write('\r\u001b[K');
        return;
      }
      const bad = progress.verdict === 'FAIL' || progress.verdict === 'WARN';
      if (!bad && progress.done < progress.total && Date.now() - toldAt < TELL_EVERY_MS) return;
      toldAt = Date.now();
      process.stderr.write(`${progressLine(progress)}\n`);
    },
  };
}

function nothingFailed(flags: CommonFlags, options: RunOptions): boolean {
  if (flags.failed !== true || options.only?.length !== 0) return false;
  process.stderr.write('No check failed in the last run against this URL.\n');
  return true;
}

/** Where a report is written to. */
interface OutputFlags {
  readonly junit?: string;
  readonly html?: string;
  readonly badge?: string;
  readonly json?: boolean;
}

function forms(flags: OutputFlags): (readonly [string | undefined, (r: RunReport) => string])[] {
  return [
    [flags.junit, junitReport],
    [flags.html, pageReport],
    [flags.badge, badge],
  ];
}

/** Throws TargetProblem for a file that cannot be written, before any payment is made. */
function canWrite(flags: OutputFlags): void {
  for (const [file] of forms(flags)) {
    if (file === undefined) continue;
    try {
      accessSync(existsSync(file) ? file : dirname(file), constants.W_OK);
      // A folder may be writable, and is still no file.
      if (existsSync(file) && statSync(file).isDirectory()) throw new Error('EISDIR');
    } catch {
      throw new TargetProblem(
        `The report cannot be written to ${file}: choose a file in an existing, writable folder.`,
      );
    }
  }
}

/** Prints and writes the report in every requested form; returns the exit code. */
function deliver(report: RunReport, flags: OutputFlags): number {
  // Printed first: a disk that is full by now must not cost the result of a whole run.
  process.stdout.write(
    flags.json === true
      ? jsonReport(report)
      : terminalReport(report, {
          colour: process.stdout.isTTY && process.env['NO_COLOR'] === undefined,
        }),
  );
  for (const [file, form] of forms(flags)) {
    if (file === undefined) continue;
    try {
      writeFileSync(file, form(report));
    } catch {
      throw new TargetProblem(`The report could not be written to ${file}.`);
    }
  }
  return report.exit_code;
}

/** Converts a saved report to other forms. */
function reprint(file: string, flags: OutputFlags): number {
  let report: unknown;
  try {
    report = JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    process.stderr.write(
      `${file} is not a readable JSON report: save one with --json > ${file}.\n`,
    );
    return EXIT_CONFIG;
  }
  const fields = typeof report === 'object' && report !== null ? report : {};
  if (!('tool' in fields && fields.tool === 'duebridge conform' && 'results' in fields)) {
    process.stderr.write(`${file} is not a report of duebridge conform.\n`);
    return EXIT_CONFIG;
  }
  if (!('version' in fields && fields.version === 2)) {
    process.stderr.write(
      `${file} was written by another version of the kit: run the checks again.\n`,
    );
    return EXIT_CONFIG;
  }
  try {
    canWrite(flags);
    deliver(fields as unknown as RunReport, flags);
    return 0;
  } catch (error) {
    if (!(error instanceof TargetProblem)) throw error;
    process.stderr.write(`CONFIG  ${error.message}\n`);
    return EXIT_CONFIG;
  }
}

/** Runs with a signal that Ctrl-C aborts; the report is written anyway. A second Ctrl-C ends the process. */
async function interruptible(run: (signal: AbortSignal) => Promise<RunReport>): Promise<RunReport> {
  const controller = new AbortController();
  // Show progress while the server is slow or takes time to post, so that the judge does not seem to hang.
  const timer = setInterval(() => {
    if (process.stderr.isTTY || heartbeat.last === undefined) return;
    const { done, total } = heartbeat.last;
    process.stderr.write(
      `${done} of ${total} checks done; the others are waiting for the server.\n`,
    );
  }, TELL_EVERY_MS);
  const interrupt = (): void => {
    process.stderr.write('\nStopping the run; the report of the completed checks follows.\n');
    controller.abort();
  };
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  try {
    return await run(controller.signal);
  } finally {
    clearInterval(timer);
    process.off('SIGINT', interrupt);
    process.off('SIGTERM', interrupt);
  }
}

/** How to restart the server under test: by the declared command, or by the person at the terminal. */
function restarter(
  command: string | undefined,
  byHand: boolean,
): { readonly restart?: () => Promise<void> } {
  if (command !== undefined) {
    return {
      restart: () =>
        new Promise((resolve, reject) => {
          const child = spawn(command, { shell: true, stdio: ['ignore', 2, 2] });
          child.once('error', reject);
          child.once('exit', (code) => {
            if (code === 0) resolve();
            else reject(new Error(`restart_command ended with ${code ?? 'a signal'}`));
          });
        }),
    };
  }
  if (!byHand) return {};
  return {
    restart: async () => void (await ask('\nRestart your server now, then press Enter.')),
  };
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

/** `--list`: every check of both profiles, or those that `--only` names. */
function listChosen(cases: readonly CaseInfo[], flags: CommonFlags): Promise<number> {
  return guarded(flags, () => Promise.resolve(list(choose(cases, 'strict', flags.only), flags)));
}

function list(cases: readonly CaseInfo[], flags: CommonFlags): number {
  if (flags.json === true) {
    const shown = cases.map(
      ({ id, title, clauses, decisions, severity, profile, sends, expects }) => ({
        id,
        title,
        clauses,
        decisions: decisions ?? [],
        severity,
        profile,
        sends,
        expects,
      }),
    );
    process.stdout.write(`${JSON.stringify(shown, undefined, 2)}\n`);
    return 0;
  }
  for (const { id, title, clauses, severity, profile } of cases) {
    const only = profile === 'strict' ? ', strict only' : '';
    process.stdout.write(`${id}  ${title}  [${clauses.join(' ')}] ${severity}${only}\n`);
  }
  return 0;
}

function init(file: string, method: 'key' | 'oauth'): number {
  if (existsSync(file)) {
    process.stderr.write(`${file} already exists and was not changed.\n`);
    return EXIT_CONFIG;
  }
  writeFileSync(file, `${JSON.stringify(exampleTarget(method), undefined, 2)}\n`, { mode: 0o600 });
  process.stdout.write(
    `Wrote ${file}. Fill it in, set ${method === 'key' ? 'DUEBRIDGE_CONFORM_KEY' : 'DUEBRIDGE_CONFORM_CLIENT_SECRET'}, then: duebridge conform partner ${file}\n`,
  );
  return 0;
}

/** Values from the environment, used when neither the file nor a flag sets them. */
function partnerEnvironment(): Draft {
  const { DUEBRIDGE_CONFORM_KEY: key, DUEBRIDGE_CONFORM_CLIENT_SECRET: client_secret } =
    process.env;
  return { authentication: { key, client_secret } };
}

function fileDraft(file: string | undefined): Draft {
  return file === undefined ? {} : readDraft(file);
}

function partnerDraft(flags: PartnerFlags): Draft {
  return {
    base_url: flags.baseUrl,
    authentication: {
      method: flags.auth,
      header: flags.header,
      key: flags.key,
      // A secret given here takes precedence over the variable named in the file.
      key_env: flags.key === undefined ? undefined : null,
      token_url: flags.tokenUrl,
      client_id: flags.clientId,
      client_secret: flags.clientSecret,
      client_secret_env: flags.clientSecret === undefined ? undefined : null,
      scope: flags.scope,
    },
    biller_id: flags.biller,
    accounts: {
      payable: flags.account,
      other: flags.otherAccount,
      unknown: flags.unknownAccount,
      inactive: flags.inactiveAccount,
      canceled: flags.canceledAccount,
    },
    limits: {
      min_amount_in_cents: flags.minAmountCents,
      max_amount_in_cents: flags.maxAmountCents,
    },
    terminal_window_seconds: flags.windowSeconds,
    spending_cap_in_cents: flags.maxSpendCents,
    ca_file: flags.ca,
  };
}

function platformDraft(flags: PlatformFlags): Draft {
  return {
    base_url: flags.baseUrl,
    client_id: flags.clientId,
    api_key: flags.apiKey,
    api_key_env: flags.apiKey === undefined ? undefined : null,
    kind: flags.kind,
    biller_id: flags.biller,
    account_id: flags.account,
    unknown_account_id: flags.unknownAccount,
    flow: flags.flow,
    ca_file: flags.ca,
  };
}

function cents(text: string): number {
  const number = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(number)) {
    throw new InvalidArgumentError('must be an integer.');
  }
  return number;
}
