/** Runs commands of the platform in this process. For tests. */
import type { Command } from 'commander';
import { platformCommand } from '../main.ts';

/**
 * Runs a command against a platform; `words` are the arguments as a shell would split them. Returns what it printed, or throws what it
 * threw.
 */
export async function runCommand(
  platform: { readonly adminUrl: string; readonly adminKey: string },
  words: readonly string[],
  key: string = platform.adminKey,
): Promise<string> {
  let out = '';
  const command = platformCommand({
    env: { DUEBRIDGE_ADMIN_URL: platform.adminUrl, DUEBRIDGE_ADMIN_KEY: key },
    stdin: (async function* () {})(),
    write: (text) => void (out += text),
  });
  const quiet = (one: Command): void => {
    one.exitOverride().configureOutput({ writeOut: () => {}, writeErr: () => {} });
    one.commands.forEach(quiet);
  };
  quiet(command);
  await command.parseAsync([...words], { from: 'user' });
  return out;
}
