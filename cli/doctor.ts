/** `duebridge doctor`: makes the checks of a start one by one, says what each found, and changes nothing that was there. */
import { access } from 'node:fs/promises';
import { messageOf, openServerDatabase, secretText } from '@duebridge/runtime';
import { jsonOption, print, processTerminal } from '@duebridge/runtime/cli';
import { Command } from 'commander';
import { assertPortsFree } from '../demo/servers.ts';

/** Each says what it found, or throws what is wrong and how to fix it. A Node that is too old has been refused before. */
const CHECKS: Readonly<Record<string, () => Promise<string>>> = {
  node: () => Promise.resolve(process.version),
  async 'payment pages'() {
    const web = import.meta.resolve('@duebridge/web/package.json');
    await access(new URL('./dist/manifest.json', web)).catch(() => {
      throw new Error('not built; run npm run build');
    });
    return 'built';
  },
  async database() {
    const databaseUrl = secretText(process.env, 'DATABASE_URL');
    const opened = await openServerDatabase({
      server: 'platform',
      databaseUrl,
      databaseConnections: 1,
    });
    await opened.close();
    const keeps = opened.warning === undefined ? 'keeps what it commits' : `but ${opened.warning}`;
    return `${databaseUrl === undefined ? 'embedded' : 'DATABASE_URL'}, ${keeps}`;
  },
  ports: () => assertPortsFree(4000).then(() => 'those of npm start are free'),
};

/** The command; exit code 0 when every check is green, 1 otherwise. */
export function doctorCommand(): Command {
  return new Command('doctor')
    .description('Check that this machine has what duebridge needs.')
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const findings: { check: string; ok: boolean; says: string }[] = [];
      for (const [check, look] of Object.entries(CHECKS)) {
        const finding = await look().then(
          (says) => ({ check, ok: true, says }),
          (error: unknown) => ({ check, ok: false, says: messageOf(error) }),
        );
        findings.push(finding);
      }
      print(processTerminal, options, { findings }, () =>
        findings
          .map(({ check, ok, says }) => `${ok ? 'ok ' : 'NO '} ${check.padEnd(15)} ${says}`)
          .join('\n'),
      );
      process.exitCode = findings.every(({ ok }) => ok) ? 0 : 1;
    });
}
