/** Runs commands of the platform in this process. For tests. */
import type { Command } from 'commander';
import { platformCommand } from '../main.ts';

/** Words of a command: as a shell would split them, or in one text, which is split at spaces. */
export type CommandWords = string | readonly string[];

/** Runs a command; `out` is what it printed, `said` what commander said, and `error` what it threw. */
export async function outcomeOf(
  env: Readonly<Record<string, string>>,
  words: CommandWords,
  stdin = '',
): Promise<{ readonly out: string; readonly said: string; readonly error?: unknown }> {
  let [out, said] = ['', ''];
  const write = (text: string): void => void (out += text);
  const input = (async function* () {
    yield Buffer.from(stdin);
  })();
  const command = platformCommand({ env, stdin: input, write });
  const quiet = (one: Command): void => {
    const writeErr = (text: string): void => void (said += text);
    one.exitOverride().configureOutput({ writeOut: write, writeErr });
    one.commands.forEach(quiet);
  };
  quiet(command);
  const given = typeof words === 'string' ? words.split(' ') : [...words];
  return command.parseAsync(given, { from: 'user' }).then(
    () => ({ out, said }),
    (error: unknown) => ({ out, said, error }),
  );
}

/** Runs a command against a platform. Returns what it printed, or throws what it threw. */
export async function runCommand(
  platform: { readonly adminUrl: string; readonly adminKey: string },
  words: CommandWords,
  key: string = platform.adminKey,
  stdin?: string,
): Promise<string> {
  const env = { DUEBRIDGE_ADMIN_URL: platform.adminUrl, DUEBRIDGE_ADMIN_KEY: key };
  const { out, error } = await outcomeOf(env, words, stdin);
  if (error !== undefined) throw error as Error;
  return out;
}
