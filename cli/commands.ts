/**
 * Names the commands and runs the one that was asked for. Each lives with the package
 * it belongs to and is loaded only when it is used, so that help comes at once.
 */
import { readFileSync } from 'node:fs';
import { endWithItsReader, exitCodes } from '@duebridge/runtime/cli';
import type { Command } from 'commander';

interface CommandEntry {
  readonly summary: string;
  readonly load: () => Promise<Command>;
}

const COMMANDS: Readonly<Record<string, CommandEntry>> = {
  demo: {
    summary: 'start everything and drive a real payment to its end',
    load: async () => (await import('../demo/main.ts')).demoCommand(),
  },
  platform: {
    summary: 'run the platform; its partners, keys, payments, batches, reconciliation',
    load: async () => (await import('@duebridge/platform/main')).platformCommand(),
  },
  partner: {
    summary: 'run the partner kit; its accounts and payments',
    load: async () => (await import('@duebridge/partner/main')).partnerCommand(),
  },
  conform: {
    summary: 'prove a partner server, or a platform, against the interface',
    load: async () => (await import('@duebridge/conformance/main')).conformCommand(),
  },
  sandbox: {
    summary: 'run a partner with every outcome and fault, or a platform, to develop against',
    load: async () => (await import('@duebridge/conformance/main')).sandboxCommand(),
  },
  init: {
    summary: 'write a project to start from: a partner server on your own accounts',
    load: async () => (await import('./init.ts')).initCommand(),
  },
  doctor: {
    summary: 'check that this machine has what duebridge needs',
    load: async () => (await import('./doctor.ts')).doctorCommand(),
  },
};

function help(): string {
  const width = Math.max(...Object.keys(COMMANDS).map((name) => name.length));
  const lines = Object.entries(COMMANDS).map(
    ([name, entry]) => `  ${name.padEnd(width)}  ${entry.summary}`,
  );
  return [
    'duebridge connects a bill-payment platform and the billers it pays.',
    '',
    'Usage: duebridge <command> [options]',
    '',
    'Commands:',
    ...lines,
    '',
    'Each takes --help; those that print data take --json. --version prints the version.',
    'Exit codes: 0 done, 1 failed, 2 configuration, 3 usage.',
    '',
  ].join('\n');
}

async function main(args: readonly string[]): Promise<void> {
  const [name, ...rest] = args;
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(help());
    process.exitCode = name === undefined ? exitCodes.usage : 0;
    return;
  }
  if (name === '--version' || name === '-V') {
    process.stdout.write(`${version()}\n`);
    return;
  }
  const entry = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (entry === undefined) {
    process.stderr.write(
      `duebridge: there is no command "${name}"; duebridge --help lists them.\n`,
    );
    process.exitCode = exitCodes.usage;
    return;
  }
  const command = await entry.load();
  command.name(`duebridge ${name}`).exitOverride();
  for (const nested of everyCommand(command)) nested.exitOverride();
  try {
    await command.parseAsync([...rest], { from: 'user' });
  } catch (error) {
    if (!isCommanderError(error)) throw error;
    // Commander has said its sentence already; asking for help is no mistake.
    process.exitCode = error.exitCode === 0 ? 0 : exitCodes.usage;
  }
}

/** The version of this package, in a clone and installed alike: both have their package.json among their exports. */
function version(): string {
  const manifest = readFileSync(new URL(import.meta.resolve('duebridge/package.json')), 'utf8');
  return (JSON.parse(manifest) as { version: string }).version;
}

function everyCommand(command: Command): Command[] {
  return command.commands.flatMap((nested) => [nested, ...everyCommand(nested)]);
}

function isCommanderError(error: unknown): error is { code: string; exitCode: number } {
  return (
    error instanceof Error && error.constructor.name === 'CommanderError' && 'exitCode' in error
  );
}

// `duebridge … | head` closes our output early: that is no error of ours.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit();
  throw error;
});

endWithItsReader();
await main(process.argv.slice(2));
