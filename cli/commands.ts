/**
 * The command `duebridge`. Each command lives with the package it belongs to and is loaded only when it is used, so that help comes at
 * once; completion loads them all.
 *
 * leaves: exit codes (decision 30), and one sentence for whatever goes wrong; with `--json` a JSON value on standard error instead.
 */
import { readFileSync } from 'node:fs';
import completion from '@bomb.sh/tab/commander';
import {
  CommandError,
  ConfigurationError,
  endWithItsReader,
  exitCodes,
} from '@duebridge/runtime/cli';
import { Command, CommanderError } from 'commander';

/** Each command: its summary, and what loads it. */
const COMMANDS: Readonly<Record<string, readonly [string, () => Promise<Command>]>> = {
  demo: [
    'start everything and drive a real payment to its end',
    async () => (await import('../demo/main.ts')).demoCommand(),
  ],
  platform: [
    'run the platform; its partners, keys, payments, batches, reconciliation',
    async () => (await import('@duebridge/platform/main')).platformCommand(),
  ],
  partner: [
    'run the partner kit; its accounts and payments',
    async () => (await import('@duebridge/partner/main')).partnerCommand(),
  ],
  conform: [
    'prove a partner server, or a platform, against the interface',
    async () => (await import('@duebridge/conformance/main')).conformCommand(),
  ],
  sandbox: [
    'run a partner with every outcome, to develop against',
    async () => (await import('@duebridge/conformance/main')).sandboxCommand(),
  ],
  doctor: [
    'check that this machine has what duebridge needs',
    async () => (await import('./doctor.ts')).doctorCommand(),
  ],
};

/**
 * The command with the whole of `name`, or of every command where `name` asks for completion. It throws instead of ending the process;
 * `isJson`: it prints no sentence of its own.
 */
async function rootCommand(name: string | undefined, isJson: boolean): Promise<Command> {
  const root = new Command('duebridge')
    .description('connects a bill-payment platform and the billers it pays')
    .version(version(), '-V, --version', 'print the version')
    .enablePositionalOptions()
    .addHelpText(
      'after',
      `
Each command takes --help; those that print data take --json. For completion in bash, zsh or fish: duebridge complete SHELL.
Exit codes: 0 done, 1 failed, 2 configuration, 3 usage.`,
    );
  const completes = name === 'complete';
  for (const [each, [summary, load]] of Object.entries(COMMANDS)) {
    if (completes || each === name) root.addCommand((await load()).name(each));
    else root.command(each).description(summary);
  }
  for (const command of everyCommand(root)) {
    command.exitOverride();
    if (isJson) command.configureOutput({ writeErr: () => {} });
  }
  // Last: it makes commands of its own, which end the process as the root does.
  if (completes) completion(root);
  return root;
}

async function main(args: readonly string[]): Promise<void> {
  const isJson = args.includes('--json');
  const root = await rootCommand(args[0], isJson);
  try {
    await root.parseAsync([...args], { from: 'user' });
  } catch (error) {
    const isUsage = error instanceof CommanderError;
    // Commander has said its sentence already; asking for help is no mistake.
    if (isUsage) process.exitCode = error.exitCode === 0 ? exitCodes.done : exitCodes.usage;
    if (isJson && !(isUsage && error.exitCode === 0)) writeError(error);
    else if (!isUsage) throw error;
  }
}

/** An error for programs. */
function writeError(error: unknown): void {
  const known = error instanceof CommandError || error instanceof ConfigurationError;
  if (known) process.exitCode = error.exitCode;
  else process.exitCode ??= exitCodes.failed;
  const code = error instanceof CommandError ? error.code : undefined;
  const names = ['DONE', 'FAILED', 'CONFIGURATION', 'USAGE'];
  const text = error instanceof Error ? error.message : String(error);
  const message = text.replace(/^error: /, '');
  const body = { code: code ?? names[Number(process.exitCode)], message };
  process.stderr.write(`${JSON.stringify({ error: body })}\n`);
}

/** The version of this package, in a clone and installed alike: both have their package.json among their exports. */
function version(): string {
  const manifest = readFileSync(new URL(import.meta.resolve('duebridge/package.json')), 'utf8');
  return (JSON.parse(manifest) as { version: string }).version;
}

function everyCommand(command: Command): Command[] {
  return [command, ...command.commands.flatMap(everyCommand)];
}

endWithItsReader();
await main(process.argv.slice(2));
