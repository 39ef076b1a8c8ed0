/**
 * The run as one page for people: a single HTML file without scripts or external resources, which can be mailed to someone who has never
 * read the interface. It holds the report of the terminal, what was sent and received where a rule was broken, and every check.
 * Everything received from a server is text: it is escaped, never treated as markup.
 */
import { CLAUSES, formatCents } from '@duebridge/contract';
import type { Verdict } from '../check/findings.ts';
import { curl, visible, type Exchange } from '../check/http.ts';
import type { CheckResult, RunReport } from '../check/result.ts';
import { escaped as html, headline, terminalReport } from './text.ts';

/** A symbol and a word for each verdict, so that colour is never the only signal. */
const WORDS: Readonly<Record<Verdict, string>> = {
  PASS: '✓ passed',
  FAIL: '✗ failed',
  WARN: '! warned',
  SKIP: '– not judged',
  CONFIG: '? not reached',
};

/** The page. */
export function pageReport(report: RunReport): string {
  const title = html(headline(report));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<p>duebridge conformance report</p>
<h1 class="${report.verdict}">${title}</h1>
<dl>${facts(report)}</dl>
<pre tabindex="0">${html(terminalReport(report, { colour: false }).trim())}</pre>
${report.exchanges.map((exchange) => exchangePart(exchange, report)).join('\n')}
<h2>Every check</h2>
${report.results.map(checkLine).join('\n')}
<footer>Judged by <b>duebridge conform ${report.subject}</b>, version ${html(report.kit_version)}. Credentials are masked and replaced by names in capital letters. Rules are paraphrased; the guides explain them under the same ids. A <b>must</b> breaks the interface or puts money at risk; a <b>should</b> is a warning.</footer>
</main>
</body>
</html>
`;
}

function facts({ target, money, profile, started_at }: RunReport): string {
  const cap = money?.cap_in_cents;
  const capped = cap === undefined ? '' : ` of a cap of ${formatCents(cap)}`;
  const all: Record<string, string | undefined> = {
    Authentication: target.authentication,
    Biller: target.biller_id,
    Account: target.account_id,
    Profile:
      profile === 'contract'
        ? 'contract: only the interface'
        : 'strict: the interface, and our decisions where it is silent',
    When: `${started_at.replace('T', ' ').slice(0, 19)} UTC`,
    'Money requested': money && `${formatCents(money.asked_in_cents)}${capped}`,
  };
  return Object.entries(all)
    .flatMap(([name, value]) =>
      value === undefined ? [] : `<dt>${name}</dt><dd>${html(value)}</dd>`,
    )
    .join('');
}

/** What was sent and received, under the checks that found something in it. */
function exchangePart(exchange: Exchange, { results }: RunReport): string {
  const { number, method, url, request_headers, request_body, status, no_answer } = exchange;
  const message = (first: string, headers: Readonly<Record<string, string>>, body: string) =>
    [
      first,
      ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
      ...(body === '' ? [] : ['', body]),
    ].join('\n');
  const parts = [
    message(`${method} ${url}`, request_headers, request_body),
    status === undefined
      ? `no answer: ${no_answer ?? 'unknown'}`
      : message(String(status), exchange.answer_headers, pretty(exchange.answer_body)),
    `# Reproduces it; the shell variables stand for your secrets.\n${curl(exchange)}`,
  ];
  const found = results.filter(({ findings }) => findings.some((one) => one.exchange === number));
  const ids = found.map(({ id }) => id).join(' ') || exchange.check;
  return `<details><summary>${ids}: ${method} ${html(url)} (${exchange.duration_ms} ms)</summary>
${parts.map((part) => `<pre tabindex="0">${html(part)}</pre>`).join('\n')}
</details>`;
}

function checkLine({ id, verdict, title, clauses }: CheckResult): string {
  const rules = clauses.map((one) => `<li><code>${one}</code> ${html(CLAUSES[one].rule)}</li>`);
  return `<details><summary><b class="${verdict}">${WORDS[verdict]}</b> <code>${id}</code> ${html(title)}</summary>
<ul>${rules.join('')}</ul></details>`;
}

function pretty(body: string): string {
  try {
    // Parsing turns escapes into the characters themselves.
    return visible(JSON.stringify(JSON.parse(body), undefined, 2));
  } catch {
    return body;
  }
}

const STYLE = `
:root{color-scheme:light dark;--ink:#1b1d22;--soft:#5d626d;--line:#dfe0e4;--good:#0b6e4f;--bad:#b3261e;--warn:#8a5300}
@media (prefers-color-scheme:dark){:root{--ink:#e9eaee;--soft:#a3a9b6;--line:#31353f;--good:#5fd3a8;--bad:#ff9b91;--warn:#f4c066}}
body{margin:0;color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{line-height:1.25;text-wrap:balance;border-left:6px solid var(--warn);padding-left:1rem}
h1.passed{border-color:var(--good)}h1.failed{border-color:var(--bad)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem}
dt,footer{color:var(--soft);font-size:.88rem}dd{margin:0;overflow-wrap:anywhere}
code,pre{font:.85em/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{padding:.75rem;border:1px solid var(--line);border-radius:8px;white-space:pre-wrap;overflow-wrap:anywhere}
.PASS{color:var(--good)}.FAIL{color:var(--bad)}.WARN{color:var(--warn)}.SKIP,.CONFIG{color:var(--soft)}
summary{cursor:pointer}summary:focus-visible,pre:focus-visible{outline:2px solid currentColor;outline-offset:2px}
`;
