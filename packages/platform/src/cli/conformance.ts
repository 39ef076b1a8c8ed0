/** `duebridge platform partner report`: uploads what `duebridge conform partner --json` wrote, or shows what was uploaded last. */
import {
  compileCheck,
  ConformanceFile,
  MAX_TEXT_LENGTH,
  platformAdminRoutes as routes,
  type ConformanceReport,
  type KeptConformanceReport,
} from '@duebridge/contract';
import { facts, misused, print, readTextFile, type CommandRun } from '@duebridge/runtime/cli';
import { parsedJson } from '../plain-text.ts';

const reportFile = compileCheck(ConformanceFile);

const WORDS = { FAIL: 'failed', WARN: 'warned', SKIP: 'not_judged' } as const;

/** Runs the command. Throws CommandError for a file that is no report of a run, or of one that judged nothing. */
export async function conformanceReport(run: CommandRun): Promise<void> {
  const { terminal, options, request, ask } = run;
  const file = options['file'];
  if (typeof file !== 'string') {
    const { report } = await ask<{ report: KeptConformanceReport | null }>('GET', request.path);
    print(terminal, options, { report }, () => (report === null ? NO_REPORT : facts(report)));
    return;
  }
  const found = summaryOf(file, await readTextFile(terminal, file));
  const kept = await ask<KeptConformanceReport>(
    routes.put_conformance_report.method,
    request.path,
    found,
  );
  print(terminal, options, kept, () => facts(kept));
}

const NO_REPORT =
  'No report yet: run "duebridge conform partner TARGET --json > report.json" and give --file report.json.';

/** What is sent of a report's file. Throws CommandError. */
function summaryOf(name: string, text: string): ConformanceReport {
  const file = parsedJson(text);
  if (!reportFile.holds(file)) {
    throw misused(
      `${name} is not a report of a partner: write one with "duebridge conform partner TARGET --json"`,
    );
  }
  const { verdict, target, profile, started_at, kit_version, counts } = file;
  if (verdict === 'config' || verdict === 'nothing') {
    throw misused(`the run of ${name} judged nothing: mend what it says, and run it again`);
  }
  return {
    base_url: cut(target.base_url),
    profile,
    started_at,
    kit_version,
    verdict,
    passed: counts.PASS,
    others: file.results.flatMap((one) =>
      one.verdict === 'PASS'
        ? []
        : [
            {
              check: one.id,
              verdict: WORDS[one.verdict],
              title: cut(one.title),
              why: cut(whyOf(one)),
            },
          ],
    ),
  };
}

function whyOf({ skipped = '-', findings }: ConformanceFile['results'][number]): string {
  return findings.length === 0 ? skipped : [...new Set(findings.map(({ rule }) => rule))].join(' ');
}

const cut = (text: string): string =>
  text.length <= MAX_TEXT_LENGTH ? text : `${text.slice(0, MAX_TEXT_LENGTH - 1).toWellFormed()}…`;
