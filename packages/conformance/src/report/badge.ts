/** The verdict of a run as a small picture for a README: no script, no font, no external address. */
import type { RunReport } from './run-report.ts';

const COLOURS: Readonly<Record<RunReport['verdict'], string>> = {
  passed: '#0b6e4f',
  partial: '#8a5300',
  failed: '#b3261e',
  config: '#5d626d',
  nothing: '#5d626d',
};

/** Character width in units of the picture; determines the width of the two boxes. */
const CHARACTER = 6.6;

/** The badge as SVG. */
export function badge(report: RunReport): string {
  const { counts, verdict, kit_version, profile } = report;
  const ran = counts.PASS + counts.FAIL + counts.WARN;
  const label = `duebridge ${report.subject}${report.left_out === undefined ? '' : ' (quick)'}`;
  const says =
    verdict === 'config' || verdict === 'nothing'
      ? 'not judged'
      : `${counts.PASS}/${ran} ${verdict === 'partial' ? 'partly judged' : verdict}`;
  const [left, right] = [label.length * CHARACTER + 12, says.length * CHARACTER + 12];
  const day = report.started_at.slice(0, 10);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${left + right}" height="20" role="img" aria-label="${label}: ${says}">
<title>${label}: ${says}, profile ${profile}, kit ${kit_version}, ${day}</title>
<rect width="${left}" height="20" fill="#3b3f47"/><rect x="${left}" width="${right}" height="20" fill="${COLOURS[verdict]}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"><text x="${left / 2}" y="14">${label}</text><text x="${left + right / 2}" y="14">${says}</text></g>
</svg>
`;
}
