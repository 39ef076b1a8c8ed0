/** `audit verify` of both commands: compares an audit with its seals through the admin API, page by page (decision 135). */
import type { AuditVerification, Route } from '@duebridge/contract';
import { Option } from 'commander';
import { CommandError, exitCodes } from '../errors.ts';
import { line, misused, type CommandLine } from './operation.ts';
import { print } from './print.ts';
import { progressReport, type Terminal } from './terminal.ts';

type Ask = (query: string) => Promise<AuditVerification>;

/** At this number the server stops counting lines that are not sealed. */
const MOST_UNSEALED = 10_000;

/** The command, over an operation that compares a piece of the audit. */
export function auditVerifyLine(
  route: Route & { readonly reply: typeof AuditVerification },
): CommandLine {
  const help = 'a seal noted earlier, which must still exist unchanged';
  return line('audit verify', route, String, {
    without: ['after', 'limit'],
    options: [new Option('--expect <number:seal>', help)],
    run: ({ terminal, options, ask }) =>
      verifyAudit(terminal, options, (query) => ask<AuditVerification>('GET', route.path + query)),
  });
}

/**
 * Compares everything, piece by piece, and prints the result. Throws CommandError with exit code 1 and one sentence when a seal is broken,
 * or when the one that `expect` names (`NUMBER:SEAL`, as printed or logged earlier) is different or missing.
 */
async function verifyAudit(
  terminal: Terminal,
  options: { readonly expect?: string; readonly json?: true },
  ask: Ask,
): Promise<void> {
  await assertExpected(options.expect, ask);
  const report = progressReport();
  const sum = { seals: 0, lines: 0 };
  for (let after = 0; ;) {
    const page = await ask(`?after=${after}`);
    sum.seals += page.seals;
    sum.lines += page.lines;
    if (page.broken !== null) {
      if (options.json) print(terminal, options, { ...page, ...sum }, String);
      throw new CommandError(sentence(page.broken), exitCodes.failed);
    }
    if (page.next === null) {
      print(terminal, options, { ...page, ...sum }, () => {
        const { through, unsealed } = page;
        const newest = through
          ? `Newest seal: ${through.seal_no}:${through.seal}, up to ${through.to}`
          : 'No seal was made yet.';
        const open = `${unsealed}${unsealed >= MOST_UNSEALED ? ' or more' : ''} not sealed yet`;
        return `The audit is intact: ${many(sum.lines, 'line')} under ${many(sum.seals, 'seal')}, ${open}.\n${newest}`;
      });
      return;
    }
    after = page.next;
    report(`Compared up to seal ${after} of ${page.newest}, ${sum.lines} lines …`);
  }
}

function many(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

async function assertExpected(expected: string | undefined, ask: Ask): Promise<void> {
  if (expected === undefined) return;
  const [, number = '', seal] = /^([1-9][0-9]{0,11}):([0-9a-f]{64})$/.exec(expected) ?? [];
  if (seal === undefined) {
    throw misused('--expect takes NUMBER:SEAL, as this command or the log prints it');
  }
  const { through } = await ask(`?after=${Number(number) - 1}&limit=1`);
  if (through?.seal_no === Number(number) && through.seal === seal) return;
  throw new CommandError(
    `the audit is broken: seal ${number} is not the expected one, so the audit was truncated or sealed again`,
    exitCodes.failed,
  );
}

function sentence({
  seal_no,
  what,
  at,
  audit_id,
}: NonNullable<AuditVerification['broken']>): string {
  const line = `line ${audit_id} of ${at}`;
  const where = `the audit is broken at seal ${seal_no}: `;
  switch (what) {
    case 'altered':
      return `${where}${line} does not match its seal`;
    case 'inserted':
      return `${where}${line} was inserted after its time had been sealed`;
    case 'removed':
      return `${where}a line after ${at} was removed`;
    case 'seal_missing':
      return `${where}a seal before it was removed`;
    case 'seal_altered':
      return `${where}the seal itself was changed`;
  }
}
