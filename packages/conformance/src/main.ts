/**
 * `duebridge conform`: judges a partner's server or a platform (decision 30).
 * Exit codes: 0 no must failed, 1 a must failed, 2 CONFIG, 3 usage or nothing ran.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { Command, InvalidArgumentError, Option } from 'commander';
import type { CaseInfo } from './check/check.ts';
import type { Profile } from './check/findings.ts';
import { CALLER_CASES, PARTNER_CASES, TOKEN_CASES } from './cases/index.ts';
import { readKnownFailures } from './check/known-failures.ts';
import { DEFAULT_HISTORY, fileHistory } from './check/history.ts';
import { addUp, choose, UsageProblem } from './check/selection.ts';
import { jsonReport, junitReport, moneyLine, progressLine, terminalReport } from './report/text.ts';
import { pageReport } from './report/page.ts';
import { judgePartner, judgePlatform, type RunOptions, type RunReport } from './run.ts';
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

/** The flags that both subjects have. */
interface CommonFlags {
  readonly profile: Profile;
  readonly only?: readonly string[];
  readonly failed?: boolean;
  readonly expected?: string;
  readonly history: string;
  readonly json?: boolean;
  readonly junit?: string;
  readonly html?: string;
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
  readonly plan?: boolean;
}

interface PlatformFlags extends CommonFlags {
  readonly clientId?: string;
  readonly apiKey?: string;
  readonly kind?: string;
  readonly biller?: string;
  readonly account?: string;
  readonly unknownAccount?: string;
  readonly flow?: boolean;
}

/** The command `conform`. */
export function conformCommand(): Command {
  const command = new Command('conform').description(
    'Judge a server by the interface: what breaks it, why, and how to see it again',
  );
  const partner = common(command.command('partner [target]'))
    .summary("judge a partner's server")
    .description(
      "Judge a partner's server. TARGET is a target file (write one with `conform partner init`); flags override it.",
    )
    .addOption(new Option('--auth <method>', 'key or oauth').choices(['key', 'oauth']))
    .option('--header <name>', 'header that carries the key, such as x-api-key')
    .option('--key <key>', 'the key; better in DUEBRIDGE_CONFORM_KEY')
    .option('--token-url <url>', 'OAuth token endpoint')
    .option('--client-id <id>', 'OAuth client id')
    .option('--client-secret <secret>', 'better in DUEBRIDGE_CONFORM_CLIENT_SECRET')
    .option('--scope <scopes>', 'scopes to ask for, such as "read write"')
    .option('--biller <id>', 'biller_id of the accounts')
    .option('--account <id>', 'an active account that may be paid')
    .option('--other-account <id>', 'another active account')
    .option('--unknown-account <id>', 'an id that no account has')
    .option('--inactive-account <id>', 'an inactive account')
    .option('--canceled-account <id>', 'an account whose payments are canceled')
    .option('--min-amount-cents <cents>', 'smallest amount taken', cents)
    .option('--max-amount-cents <cents>', 'largest amount taken', cents)
    .option('--window-seconds <seconds>', 'time in which every payment ends', cents)
    .option('--max-spend-cents <cents>', 'most that the run may ask for in all', cents)
    .option('--recheck', 'only look again at the payments of runs a day old (P35, P54)')
    .option('--plan', 'tell what would be checked and created, and stop')
    .action(async (file: string | undefined, flags: PartnerFlags) => {
      process.exitCode = await conformPartner(file, flags);
    });
  partner
    .command('init [file]')
    .description('write a target file to fill in')
    .action((file: string | undefined) => {
      process.exitCode = init(file ?? 'duebridge-target.json');
    });
  common(command.command('platform [target]'))
    .summary('judge a platform')
    .description(
      'Judge a platform: its token endpoint and, where the target file has a "caller", how it calls a partner.',
    )
    .option('--client-id <id>', 'X-Client-Id')
    .option('--api-key <key>', 'X-Api-Key; better in DUEBRIDGE_CONFORM_API_KEY')
    .addOption(new Option('--kind <kind>', 'what the client is').choices(['biller', 'aggregator']))
    .option('--biller <id>', 'biller_id of the account')
    .option('--account <id>', 'an account that its partner knows')
    .option('--unknown-account <id>', 'an account that its partner does not know')
    .option('--flow', 'the platform offers the flow API at the same address')
    .action(async (file: string | undefined, flags: PlatformFlags) => {
      process.exitCode = await conformPlatform(file, flags);
    });
  return command;
}

function common(command: Command): Command {
  return command
    .option('--base-url <url>', 'address of the server, with its prefix if it has one')
    .addOption(
      new Option('--profile <profile>', 'contract: the interface; strict: our decisions too')
        .choices(['contract', 'strict'])
        .default('contract'),
    )
    .option('--only <ids>', 'checks to run, such as P25,P27', (text: string) => text.split(','))
    .option('--failed', 'only what failed in the last run against this address')
    .option('--expected <file>', 'JSON list of known failures: check, owner, until, reason')
    .option('--history <folder>', 'where used ids and last failures are kept', DEFAULT_HISTORY)
    .option('--ca <file>', 'PEM of an authority to trust, for a test server')
    .option('--json', 'print the report as JSON')
    .option('--junit <file>', 'write the report as JUnit XML')
    .option('--html <file>', 'write the report as one HTML page')
    .option('--list', 'list the checks, and stop');
}

async function conformPartner(file: string | undefined, flags: PartnerFlags): Promise<number> {
  if (flags.list === true) return list(PARTNER_CASES, flags);
  return guarded(flags, async () => {
    const target = partnerTarget(
      overlay(overlay(partnerEnvironment(), fileDraft(file)), partnerDraft(flags)),
    );
    const options = runOptions(
      flags,
      target.base_url,
      flags.recheck === true ? ['P35', 'P54'] : undefined,
    );
    if (nothingFailed(flags, options)) return EXIT_USAGE;
    const cases = choose(PARTNER_CASES, flags.profile, options.only);
    const cap = target.spending_cap_in_cents;
    const money = {
      ...addUp(cases, target),
      asked_in_cents: 0,
      ...(cap === undefined ? {} : { cap_in_cents: cap }),
    };
    process.stderr.write(`${moneyLine(money)}\n`);
    if (flags.plan === true) return list(cases, flags);
    return told(await judgePartner(target, options), flags);
  });
}

async function conformPlatform(file: string | undefined, flags: PlatformFlags): Promise<number> {
  if (flags.list === true) return list([...TOKEN_CASES, ...CALLER_CASES], flags);
  return guarded(flags, async () => {
    const target = platformTarget(
      overlay(
        overlay({ api_key: process.env['DUEBRIDGE_CONFORM_API_KEY'] }, fileDraft(file)),
        platformDraft(flags),
      ),
    );
    const options = runOptions(flags, target.base_url);
    if (nothingFailed(flags, options)) return EXIT_USAGE;
    return told(await judgePlatform(target, options), flags);
  });
}

/** Turns a target that cannot be used into CONFIG, in the form that was asked for. */
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
  recheck?: readonly string[],
): RunOptions & { readonly only?: readonly string[] } {
  const history = fileHistory(flags.history);
  const only = recheck ?? (flags.failed === true ? history.lastFailed(base_url) : flags.only);
  return {
    profile: flags.profile,
    history,
    ...(only === undefined ? {} : { only }),
    ...(flags.expected === undefined ? {} : { expected: readKnownFailures(flags.expected) }),
    onProgress(progress) {
      if (process.stderr.isTTY) {
        process.stderr.write(`\r\u001b[K${progressLine(progress)}`);
        if (progress.done === progress.total) process.stderr.write('\r\u001b[K');
      } else if (progress.verdict === 'FAIL' || progress.verdict === 'WARN') {
        process.stderr.write(`${progressLine(progress)}\n`);
      }
    },
  };
}

function nothingFailed(flags: CommonFlags, options: RunOptions): boolean {
  if (flags.failed !== true || options.only?.length !== 0) return false;
  process.stderr.write('Nothing failed in the last run against this address.\n');
  return true;
}

/** Prints and writes the report in every form asked for; gives the exit code. */
function told(report: RunReport, flags: CommonFlags): number {
  const forms: [string | undefined, (report: RunReport) => string][] = [
    [flags.junit, junitReport],
    [flags.html, pageReport],
  ];
  for (const [file, form] of forms) {
    if (file === undefined) continue;
    try {
      writeFileSync(file, form(report));
    } catch {
      throw new TargetProblem(
        `The report cannot be written to ${file}: give a folder that exists.`,
      );
    }
  }
  process.stdout.write(
    flags.json === true
      ? jsonReport(report)
      : terminalReport(report, {
          colour: process.stdout.isTTY && process.env['NO_COLOR'] === undefined,
        }),
  );
  return report.exit_code;
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

function init(file: string): number {
  if (existsSync(file)) {
    process.stderr.write(`${file} exists already; it was left as it is.\n`);
    return EXIT_CONFIG;
  }
  writeFileSync(file, `${JSON.stringify(exampleTarget(), undefined, 2)}\n`, { mode: 0o600 });
  process.stdout.write(
    `Wrote ${file}. Fill it in, set DUEBRIDGE_CONFORM_KEY, then: duebridge conform partner ${file}\n`,
  );
  return 0;
}

/** What the environment gives where neither the file nor a flag does. */
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
      // A secret given here goes before the variable that the file names.
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
    throw new InvalidArgumentError('must be a whole number.');
  }
  return number;
}
