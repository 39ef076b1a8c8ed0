/**
 * A run as text for a terminal, as JSON for programs, and as JUnit XML for build servers; page.ts makes the page for people. All
 * print the same report value; none makes decisions.
 */
import { formatCents, type ClauseId } from '@duebridge/contract';
import type { CheckResult, Progress, ReportedFinding, RunReport } from './run-report.ts';

/** Terminal colours; the text alone carries the same information. */
interface Paint {
  readonly good: (text: string) => string;
  readonly bad: (text: string) => string;
  readonly warn: (text: string) => string;
  readonly dim: (text: string) => string;
  readonly strong: (text: string) => string;
}

/** The run in one screen: the verdict first, then each broken rule once, then what was not judged. */
export function terminalReport(report: RunReport, options: { colour: boolean }): string {
  const paint = painter(options.colour);
  const lines: string[] = ['', headline(report, paint), ''];
  if (report.config !== undefined) {
    lines.push(`  ${report.config.sentence}`, '');
    if (report.config.curl !== undefined) lines.push(`  ${paint.dim(report.config.curl)}`, '');
  }
  for (const broken of report.broken) {
    const mark = broken.severity === 'must' ? paint.bad('✗') : paint.warn('!');
    lines.push(
      `${mark} ${paint.strong(broken.clause)}  ${broken.rule}  ${paint.dim(broken.checks.join(' '))}`,
    );
    // The first check shows the details and the command; the others are only listed.
    const [first, ...others] = broken.checks.flatMap(
      (id) => report.results.find((one) => one.id === id) ?? [],
    );
    if (first !== undefined) lines.push(...foundLines(first, paint, broken.clause));
    for (const other of others) {
      const [finding] = findingsOf(other, broken.clause);
      lines.push(
        `    ${paint.strong(other.id)} ${other.title}${excusedWords(other)}: ${paint.dim(finding?.got ?? '')}`,
      );
    }
    lines.push('');
  }
  const skipped = report.results.filter(({ verdict }) => verdict === 'SKIP');
  const reasons = Map.groupBy(skipped, ({ skipped: reason }) => reason ?? '');
  for (const [reason, results] of reasons) {
    lines.push(
      paint.dim(`– ${results.map(({ id }) => id).join(' ')}: not judged, because ${reason}`),
    );
  }
  for (const { id, verdict, wanting } of report.results) {
    if (wanting !== undefined && verdict !== 'SKIP') {
      lines.push(paint.warn(`– ${id}: judged in part, because ${wanting.join('; ')}`));
    }
  }
  const unseen = report.results.flatMap(({ id, notes }) => notes.map((note) => ({ id, note })));
  for (const [note, those] of Map.groupBy(unseen, ({ note }) => note)) {
    lines.push(paint.dim(`– ${those.map(({ id }) => id).join(' ')}: ${note}`));
  }
  if (report.stopped !== undefined) {
    lines.push(paint.warn(`The run ended early: ${report.stopped}.`));
  }
  if (lines.at(-1) !== '') lines.push('');
  for (const problem of report.judge_failed) {
    lines.push(paint.bad(`The judge had an internal error in ${problem}. Please report it.`), '');
  }
  lines.push(countsLine(report), '');
  return lines.join('\n');
}

/** A one-sentence summary of a run. */
export function headline(report: RunReport, paint: Paint = painter(false)): string {
  const { counts, target, profile } = report;
  const ran = counts.PASS + counts.FAIL + counts.WARN;
  switch (report.verdict) {
    case 'passed':
      return `${paint.good('✓')} ${paint.strong(target.base_url)} conforms to the interface: ${counts.PASS} of ${ran} checks passed${counts.WARN === 0 ? '' : `, ${counts.WARN} with a warning`} (profile ${profile}).`;
    case 'partial':
      return `${paint.warn('PARTLY JUDGED')} ${paint.strong(target.base_url)}: ${counts.PASS} of ${ran} checks passed${counts.WARN === 0 ? '' : `, ${counts.WARN} with a warning`}, but not everything could be judged (profile ${profile}).`;
    case 'failed':
      return `${paint.bad('✗')} ${paint.strong(target.base_url)} breaks the interface: ${counts.FAIL} of ${ran} checks failed${counts.WARN === 0 ? '' : `, ${counts.WARN} warned`} (profile ${profile}).`;
    case 'config':
      return `${paint.warn('CONFIG')} ${paint.strong(target.base_url)} could not be judged.`;
    case 'nothing':
      return `${paint.warn('NOTHING RAN')} ${paint.strong(target.base_url)}: no check could be judged.`;
  }
}

/** Counts, time and money in one line. */
function countsLine(report: RunReport): string {
  const { counts, money } = report;
  const parts = [
    `${counts.PASS} passed`,
    `${counts.FAIL} failed`,
    `${counts.WARN} warned`,
    `${counts.SKIP} not judged`,
    `${(report.duration_ms / 1_000).toFixed(1)} s`,
  ];
  if (money !== undefined) parts.push(`${formatCents(money.asked_in_cents)} requested`);
  parts.push(`kit ${report.kit_version}`);
  return parts.join(' · ');
}

/** What a run will create, printed before it starts. */
export function moneyLine(money: NonNullable<RunReport['money']>): string {
  const cap =
    money.cap_in_cents === undefined
      ? 'no spending cap declared'
      : `spending cap ${formatCents(money.cap_in_cents)}`;
  return `This run may create ${money.payments === 1 ? '1 payment' : `up to ${money.payments} payments`}, ${formatCents(money.total_in_cents)} (${money.total_in_cents} cents) in all, the largest ${formatCents(money.largest_in_cents)}; ${cap}.`;
}

/** One line of progress. */
export function progressLine(progress: Progress): string {
  const width = 24;
  const filled = Math.round((progress.done / Math.max(1, progress.total)) * width);
  return `[${'#'.repeat(filled)}${'.'.repeat(width - filled)}] ${progress.done}/${progress.total} ${progress.check} ${progress.verdict}`;
}

/** The report value as JSON, terminated by a line feed. */
export function jsonReport(report: RunReport): string {
  return `${JSON.stringify(report, undefined, 2)}\n`;
}

/** JUnit XML: one test suite, one test case per check. A warning passes and is shown in system-out. */
export function junitReport(report: RunReport): string {
  const { results, config } = report;
  const failures = results.filter((one) => one.verdict === 'FAIL' && one.excused === undefined);
  const cases = results.map((one) => {
    const open = `    <testcase classname="${xml(`duebridge.${report.subject}`)}" name="${xml(`${one.id} ${one.title}`)}" time="${(one.duration_ms / 1_000).toFixed(3)}"`;
    const body = [
      ...(one.verdict === 'SKIP'
        ? [`      <skipped message="${xml(one.skipped ?? '')}"/>`]
        : one.verdict === 'FAIL' && one.excused !== undefined
          ? [
              `      <skipped message="${xml(`expected to fail until ${one.excused.until} (${one.excused.owner}): ${one.excused.reason}`)}"/>`,
            ]
          : one.verdict === 'FAIL'
            ? [
                `      <failure message="${xml(summary(one))}" type="${xml(one.findings.find(({ severity }) => severity === 'must')?.clause ?? '')}">${xml(plain(one))}</failure>`,
              ]
            : []),
      ...(one.verdict === 'WARN' ? [`      <system-out>${xml(plain(one))}</system-out>`] : []),
    ];
    return body.length === 0 ? `${open}/>` : `${open}>\n${body.join('\n')}\n    </testcase>`;
  });
  if (report.verdict === 'partial') {
    const wanting = results.flatMap(
      (one) => one.wanting?.map((what) => `${one.id}: ${what}`) ?? [],
    );
    if (report.stopped !== undefined) wanting.push(report.stopped);
    cases.unshift(
      `    <testcase classname="duebridge.${report.subject}" name="everything could be judged">\n      <error message="${xml(wanting.join('; '))}" type="partial"/>\n    </testcase>`,
    );
  }
  if (config !== undefined) {
    cases.unshift(
      `    <testcase classname="duebridge.${report.subject}" name="pre-flight">\n      <error message="${xml(config.sentence)}" type="config"/>\n    </testcase>`,
    );
  }
  return `<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="${xml(`duebridge conform ${report.subject} ${report.target.base_url}`)}" tests="${cases.length}" failures="${failures.length}" errors="${config === undefined && report.verdict !== 'partial' ? 0 : 1}" skipped="${report.counts.SKIP}" timestamp="${report.started_at}" time="${(report.duration_ms / 1_000).toFixed(3)}">
    <properties>
      <property name="kit_version" value="${xml(report.kit_version)}"/>
      <property name="profile" value="${xml(report.profile)}"/>
      <property name="verdict" value="${xml(report.verdict)}"/>
    </properties>
${cases.join('\n')}
  </testsuite>
</testsuites>
`;
}

/** The worst finding in one line. */
function summary({ findings }: CheckResult): string {
  const worst = findings.find(({ severity }) => severity === 'must') ?? findings[0];
  return worst === undefined ? '' : `${worst.clause}: expected ${worst.expected}; got ${worst.got}`;
}

/** A check's findings as plain text. */
function plain(result: CheckResult): string {
  return foundLines(result, painter(false)).join('\n').trim();
}

/** What a check found: everything, or only the breaches of one rule. */
function foundLines(result: CheckResult, paint: Paint, clause?: ClauseId): string[] {
  const lines = [`    ${paint.strong(result.id)} ${result.title}${excusedWords(result)}`];
  const findings = clause === undefined ? result.findings : findingsOf(result, clause);
  let cause = '';
  for (const finding of findings) {
    const { severity, expected, got } = finding;
    if (clause === undefined) lines.push(`      rule      ${finding.clause} ${finding.rule}`);
    lines.push(
      `      ${severity === 'must' ? paint.bad('expected') : paint.warn('expected')}  ${expected}`,
      `      got       ${got}`,
    );
    if (finding.likely_cause !== cause) lines.push(`      likely    ${finding.likely_cause}`);
    cause = finding.likely_cause;
    if (clause === undefined && finding.curl !== undefined) lines.push(`      ${finding.curl}`);
  }
  const command = findings.find(({ curl }) => curl !== undefined)?.curl;
  if (clause !== undefined && command !== undefined) lines.push(paint.dim(`      ${command}`));
  return lines;
}

function findingsOf(result: CheckResult, clause: ClauseId): readonly ReportedFinding[] {
  return result.findings.filter((finding) => finding.clause === clause);
}

function excusedWords({ excused }: CheckResult): string {
  return excused === undefined
    ? ''
    : ` (expected to fail until ${excused.until}, ${excused.owner}: ${excused.reason})`;
}

/** Text for HTML or XML, as content or in a quoted attribute. */
export function escaped(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

/** Escapes for XML and drops characters that XML 1.0 does not allow: a server may answer with any bytes. */
function xml(text: string): string {
  return escaped(
    text.replaceAll(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, '\ufffd'),
  );
}

function painter(colour: boolean): Paint {
  const style =
    (open: number, close: number) =>
    (text: string): string =>
      colour ? `\u001b[${open}m${text}\u001b[${close}m` : text;
  return {
    good: style(32, 39),
    bad: style(31, 39),
    warn: style(33, 39),
    dim: style(2, 22),
    strong: style(1, 22),
  };
}
