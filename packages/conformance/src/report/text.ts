/**
 * A run as text for a terminal, as JSON for programs, and as JUnit XML for build servers; page.ts makes the page for people. All
 * print the same report value; none makes decisions.
 */
// Node 18 has no `styleText`: a named import would fail there before the sentence that says which Node is needed.
import util from 'node:util';
import { formatCents, type ClauseId } from '@duebridge/contract';
import { OF_THE_WHOLE_RUN } from '../cases/index.ts';
import type { PlannedMoney } from '../check/check.ts';
import { excuse, type CheckResult, type ReportedFinding, type RunReport } from '../check/result.ts';
import type { Progress } from '../check/run.ts';

/** Writes in a colour or weight of the terminal, or plainly; the text alone carries the same information. */
type Paint = (style: Parameters<typeof util.styleText>[0], text: string) => string;

const plainly: Paint = (_style, text) => text;
const inColour: Paint = (style, text) => util.styleText(style, text, { validateStream: false });

/** The run in one screen: the verdict first, then each broken rule once, then what was not judged. */
export function terminalReport(report: RunReport, { colour }: { colour: boolean }): string {
  const paint = colour ? inColour : plainly;
  const lines: string[] = ['', headline(report, paint), ''];
  if (report.config !== undefined) {
    lines.push(`  ${report.config.sentence}`, '');
    if (report.config.curl !== undefined) lines.push(`  ${paint('dim', report.config.curl)}`, '');
  }
  for (const { clause, severity, rule, checks } of report.broken) {
    const mark = severity === 'must' ? paint('red', '✗') : paint('yellow', '!');
    lines.push(`${mark} ${paint('bold', clause)}  ${rule}  ${paint('dim', checks.join(' '))}`);
    // The first check shows the details and the command; the others are only listed.
    const [first, ...others] = report.results.filter(({ id }) => checks.includes(id));
    if (first !== undefined) lines.push(...foundLines(first, clause, paint));
    for (const { id, title, findings } of others) {
      const got = findings.find((finding) => finding.clause === clause)?.got ?? '';
      lines.push(`    ${paint('bold', id)} ${title}: ${paint('dim', got)}`);
    }
    lines.push('');
  }
  const unseen = report.results.flatMap(({ id, verdict, skipped, wanting = [], notes }) => [
    ...(verdict === 'SKIP' ? [{ id, why: `not judged, because ${skipped ?? ''}` }] : []),
    ...(verdict === 'SKIP'
      ? []
      : wanting.map((why) => ({ id, why: `judged in part, because ${why}` }))),
    ...notes.map((why) => ({ id, why })),
  ]);
  for (const [why, those] of Map.groupBy(unseen, (one) => one.why)) {
    lines.push(paint('dim', `– ${those.map(({ id }) => id).join(' ')}: ${why}`));
  }
  if (report.stopped !== undefined) {
    lines.push(paint('yellow', `The run ended early: ${report.stopped}.`));
  }
  if (lines.at(-1) !== '') lines.push('');
  for (const problem of report.judge_failed) {
    lines.push(paint('red', `Internal error of the judge in ${problem}: please report it.`), '');
  }
  const again = report.results.filter(({ findings }) => findings.length > 0).map(({ id }) => id);
  const whole = again.filter((id) => OF_THE_WHOLE_RUN.includes(id));
  if (whole.length > 0) {
    const judge = whole.length === 1 ? 'judges' : 'judge';
    lines.push(`To run these again: all checks, as ${whole.join(' ')} ${judge} the whole run`, '');
  } else if (again.length > 0) lines.push(`To run these again: --only ${again.join(',')}`, '');
  lines.push(countsLine(report), '');
  return lines.join('\n');
}

/** A one-sentence summary of a run. */
export function headline(report: RunReport, paint: Paint = plainly): string {
  const { counts, profile } = report;
  const url = paint('bold', report.target.base_url);
  const ran = counts.PASS + counts.FAIL + counts.WARN;
  const warned = counts.WARN === 0 ? '' : `, ${counts.WARN} with a warning`;
  const passed = `${counts.PASS} of ${ran} checks passed${warned}`;
  switch (report.verdict) {
    case 'passed':
      return counts.FAIL > 0
        ? `${paint('yellow', '!')} ${url} breaks the interface as expected, not otherwise: ${passed} (profile ${profile}).`
        : `${paint('green', '✓')} ${url} conforms to the interface: ${passed} (profile ${profile}).`;
    case 'partial':
      return `${paint('yellow', 'PARTLY JUDGED')} ${url}: ${passed}, but not everything could be judged (profile ${profile}).`;
    case 'failed':
      return `${paint('red', '✗')} ${url} breaks the interface: ${counts.FAIL} of ${ran} checks failed${warned} (profile ${profile}).`;
    case 'config':
      return `${paint('yellow', 'CONFIG')} ${url} could not be judged.`;
    case 'nothing':
      return `${paint('yellow', 'NOTHING RAN')} ${url}: no check could be judged.`;
  }
}

/** Counts, time and money in one line. */
function countsLine({ counts, money, duration_ms, kit_version }: RunReport): string {
  return [
    `${counts.PASS} passed`,
    `${counts.FAIL} failed`,
    `${counts.WARN} warned`,
    `${counts.SKIP} not judged`,
    `${(duration_ms / 1_000).toFixed(1)} s`,
    ...(money === undefined ? [] : [`${formatCents(money.asked_in_cents)} requested`]),
    `kit ${kit_version}`,
  ].join(' · ');
}

/** What a run will create, printed before it starts. */
export function moneyLine(money: PlannedMoney): string {
  const { payments, total_in_cents: total, largest_in_cents: largest, cap_in_cents } = money;
  const cap =
    cap_in_cents === undefined
      ? 'no spending cap declared'
      : `spending cap ${formatCents(cap_in_cents)}`;
  return `This run may create ${payments === 1 ? '1 payment' : `up to ${payments} payments`}, ${formatCents(total)} (${total} cents) in all, the largest ${formatCents(largest)}; ${cap}.`;
}

/** One line of progress. */
export function progressLine({ done, total, check, verdict }: Progress): string {
  const width = 24;
  const filled = Math.round((done / Math.max(1, total)) * width);
  return `[${'#'.repeat(filled)}${'.'.repeat(width - filled)}] ${done}/${total} ${check} ${verdict}`;
}

/** The report value as JSON, terminated by a line feed. */
export function jsonReport(report: RunReport): string {
  return `${JSON.stringify(report, undefined, 2)}\n`;
}

/** JUnit XML: one test suite, one test case per check. A warning passes and is shown in system-out. */
export function junitReport(report: RunReport): string {
  const { results, config, counts, subject, stopped } = report;
  const timeOf = (ms: number): string => (ms / 1_000).toFixed(3);
  const testcase = (name: string, body: string, time = ''): string =>
    `    <testcase classname="duebridge.${subject}" name="${xml(name)}"${time}>${body}</testcase>`;
  const error = (name: string, type: string, message: string): string =>
    testcase(name, `<error message="${xml(message)}" type="${type}"/>`);
  const cases = results.map((one) => {
    const { verdict, skipped = '', findings } = one;
    const worst = findings.find(({ severity }) => severity === 'must') ?? findings[0];
    const found = xml(foundLines(one).join('\n').trim());
    const body = {
      PASS: '',
      CONFIG: '',
      SKIP: `<skipped message="${xml(skipped)}"/>`,
      WARN: `<system-out>${found}</system-out>`,
      FAIL: `<failure message="${xml(`${worst?.clause}: expected ${worst?.expected}; got ${worst?.got}`)}" type="${worst?.clause}">${found}</failure>`,
    }[verdict];
    const known = one.excused && `<skipped message="${xml(excuse(one.excused))}"/>`;
    return testcase(`${one.id} ${one.title}`, known ?? body, ` time="${timeOf(one.duration_ms)}"`);
  });
  if (report.verdict === 'partial') {
    const wanting = results.flatMap(({ id, wanting = [] }) =>
      wanting.map((what) => `${id}: ${what}`),
    );
    const all = [...wanting, ...(stopped === undefined ? [] : [stopped])].join('; ');
    cases.unshift(error('everything could be judged', 'partial', all));
  }
  if (config !== undefined) cases.unshift(error('pre-flight', 'config', config.sentence));
  const errors = cases.length - results.length;
  const failures = counts.FAIL - results.filter((one) => one.excused !== undefined).length;
  return `<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="${xml(`duebridge conform ${subject} ${report.target.base_url}`)}" tests="${cases.length}" failures="${failures}" errors="${errors}" skipped="${counts.SKIP}" timestamp="${report.started_at}" time="${timeOf(report.duration_ms)}">
${cases.join('\n')}
  </testsuite>
</testsuites>
`;
}

/** What a check found: everything, or only the breaches of one rule. */
function foundLines(
  { id, title, findings }: CheckResult,
  clause?: ClauseId,
  paint: Paint = plainly,
): string[] {
  const lines = [`    ${paint('bold', id)} ${title}`];
  const own = findings.filter((finding) => clause === undefined || finding.clause === clause);
  let last: ReportedFinding | undefined;
  for (const finding of own) {
    const { severity, expected, got, likely_cause: cause } = finding;
    if (clause === undefined) lines.push(`      rule      ${finding.clause} ${finding.rule}`);
    const colour = severity === 'must' ? 'red' : 'yellow';
    lines.push(`      ${paint(colour, 'expected')}  ${expected}`, `      got       ${got}`);
    if (cause !== last?.likely_cause) lines.push(`      likely    ${cause}`);
    last = finding;
  }
  const command = own.find(({ curl }) => curl !== undefined)?.curl;
  return command === undefined ? lines : [...lines, paint('dim', `      ${command}`)];
}

/** Text for HTML or XML, as content or in a quoted attribute. */
export function escaped(text: string): string {
  const marks: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
  return text.replaceAll(/[&<>"']/g, (mark) => marks[mark] ?? '&#39;');
}

/** Escapes for XML and drops characters that XML 1.0 does not allow: a server may answer with any bytes. */
function xml(text: string): string {
  const allowed = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
  return escaped(text.replaceAll(allowed, '\ufffd'));
}
