/**
 * The run as one page for people: a single HTML file without scripts or external resources, readable by someone who has never
 * read the interface. It shows the verdict, then each broken rule once with what was sent, received and expected, then every
 * check.
 * Everything received from a server is text: it is escaped, never treated as markup.
 */
import { CLAUSES, formatCents } from '@duebridge/contract';
import type { Verdict } from '../check/findings.ts';
import { curl, visible, type Exchange } from '../check/http.ts';
import { escaped as html, headline } from './text.ts';
import type { BrokenClause, CheckResult, RunReport } from '../check/result.ts';

/** A symbol and a word for each verdict, so that colour is never the only signal. */
const WORDS: Readonly<Record<Verdict, readonly [sign: string, word: string]>> = {
  PASS: ['✓', 'passed'],
  FAIL: ['✗', 'failed'],
  WARN: ['!', 'warned'],
  SKIP: ['–', 'not judged'],
  CONFIG: ['?', 'not reached'],
};

/** The page. */
export function pageReport(report: RunReport): string {
  const { broken, results } = report;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>${html(headline(report).replace(/^[✓✗] /, ''))}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
${top(report)}
${configPart(report)}
${section('What could not be judged', unjudged(report))}
${section('Rules that were broken', broken.map((one) => brokenRule(one, report)).join('\n'))}
${section('Every check', results.map((one) => checkLine(one, report)).join('\n'))}
${footer(report)}
</main>
</body>
</html>
`;
}

const section = (title: string, content: string): string =>
  content === '' ? '' : `<section><h2>${title}</h2>\n${content}\n</section>`;

function top(report: RunReport): string {
  const { target, money, profile } = report;
  const cap = money?.cap_in_cents;
  const capped = cap === undefined ? '' : ` of a cap of ${formatCents(cap)}`;
  const seconds = (report.duration_ms / 1_000).toFixed(1);
  const facts: Record<string, string | undefined> = {
    [report.subject === 'partner' ? 'Partner server' : 'Platform']: target.base_url,
    Authentication: target.authentication,
    Biller: target.biller_id,
    Account: target.account_id,
    Profile:
      profile === 'contract'
        ? 'contract: only the interface'
        : 'strict: the interface, and our decisions where it is silent',
    When: `${report.started_at.replace('T', ' ').slice(0, 19)} UTC, ${seconds}\u00a0s`,
    'Money requested': money && `${formatCents(money.asked_in_cents)}${capped}`,
  };
  const shown = Object.entries(facts).flatMap(([name, value]) =>
    value === undefined ? [] : `<dt>${name}</dt><dd>${html(value)}</dd>`,
  );
  return `<header class="${report.verdict}">
<p>duebridge conformance report</p>
<h1>${html(headline(report))}</h1>
<dl>${shown.join('')}</dl>
</header>`;
}

function configPart({ config, exchanges }: RunReport): string {
  if (config === undefined) return '';
  const exchange = exchanges.find(({ number }) => number === config.exchange);
  return section('What to fix first', `<p>${html(config.sentence)}</p>\n${exchangePart(exchange)}`);
}

function unjudged({ results, stopped }: RunReport): string {
  const lines = results.flatMap(({ id, wanting = [] }) => wanting.map((what) => `${id}: ${what}`));
  if (stopped !== undefined) lines.push(stopped);
  return lines.map((line) => `<p>${html(line)}</p>`).join('\n');
}

function brokenRule({ severity, rule, clause, checks }: BrokenClause, report: RunReport): string {
  const results = report.results.filter(({ id }) => checks.includes(id));
  return `<article class="${severity}">
<h3>${severity}: ${html(rule)} <code>${clause}</code></h3>
${results.map((result) => brokenCheck(result, clause, report)).join('\n')}
</article>`;
}

function brokenCheck(result: CheckResult, clause: string, { exchanges }: RunReport): string {
  let [shown, cause]: [number | undefined, string] = [undefined, ''];
  const own = result.findings.filter((finding) => finding.clause === clause);
  const findings = own.map(({ expected, got, exchange, likely_cause }) => {
    const evidence =
      exchange === shown ? undefined : exchanges.find(({ number }) => number === exchange);
    const because =
      likely_cause === cause ? '' : `<p><b>Likely cause:</b> ${html(likely_cause)}</p>`;
    [shown, cause] = [exchange ?? shown, likely_cause];
    return `<dl><dt>expected</dt><dd>${html(expected)}</dd><dt>received</dt><dd>${html(got)}</dd></dl>
${exchangePart(evidence)}${because}`;
  });
  return `<div id="${result.id}-${clause}">
<h4><code>${result.id}</code> ${html(result.title)}</h4>
${findings.join('\n')}
</div>`;
}

function exchangePart(exchange: Exchange | undefined): string {
  if (exchange === undefined) return '';
  const { method, url, request_headers, request_body, status, no_answer } = exchange;
  const message = (first: string, headers: Readonly<Record<string, string>>, body: string) =>
    [
      first,
      ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
      ...(body === '' ? [] : ['', body]),
    ].join('\n');
  const parts = {
    request: message(`${method} ${url}`, request_headers, request_body),
    response:
      status === undefined
        ? `no answer: ${no_answer ?? 'unknown'}`
        : message(String(status), exchange.answer_headers, pretty(exchange.answer_body)),
    'reproduce it; the shell variables stand for your secrets': curl(exchange),
  };
  const figures = Object.entries(parts).map(
    ([title, text]) =>
      `<figure><figcaption>${title}</figcaption><pre tabindex="0">${html(text)}</pre></figure>`,
  );
  return `<details><summary>Request and response (${exchange.duration_ms} ms)</summary>
${figures.join('\n')}
</details>`;
}

function checkLine(result: CheckResult, report: RunReport): string {
  const { id, verdict, title, clauses, skipped, notes, findings } = result;
  const exchange = report.exchanges.find(({ number }) => number === result.shown);
  const rules = clauses.map((one) => `<li><code>${one}</code> ${html(CLAUSES[one].rule)}</li>`);
  const remarks = [...(skipped === undefined ? [] : [`Not judged: ${skipped}.`]), ...notes];
  const found =
    findings[0] === undefined
      ? exchangePart(exchange)
      : `<p><a href="#${id}-${findings[0].clause}">What was found</a></p>`;
  return `<details><summary><b class="${verdict}">${WORDS[verdict].join(' ')}</b> <code>${id}</code> ${html(title)}</summary>
<ul>${rules.join('')}</ul>
${remarks.map((remark) => `<p>${html(remark)}</p>`).join('')}
${found}</details>`;
}

function footer(report: RunReport): string {
  const failed = report.judge_failed.map(
    (problem) => `<p>The judge had an internal error in ${html(problem)}. Please report it.</p>`,
  );
  return `<footer>${failed.join('')}<p>Judged by <b>duebridge conform ${report.subject}</b>, version ${html(report.kit_version)}. Credentials are masked and replaced by names in capital letters. Rules are paraphrased; the guides explain them under the same ids. A <b>must</b> breaks the interface or puts money at risk; a <b>should</b> is a warning.</p></footer>`;
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
:root{color-scheme:light dark;--bg:#f7f7f5;--card:#fff;--ink:#1b1d22;--soft:#5d626d;--line:#dfe0e4;--good:#0b6e4f;--bad:#b3261e;--warn:#8a5300}
@media (prefers-color-scheme:dark){:root{--bg:#131519;--card:#1b1e24;--ink:#e9eaee;--soft:#a3a9b6;--line:#31353f;--good:#5fd3a8;--bad:#ff9b91;--warn:#f4c066}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1,h2,h3,h4{line-height:1.25;text-wrap:balance;margin:1rem 0 .5rem}
p{margin:.4rem 0}a{color:inherit}
header,article,section>details{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.75rem 1.25rem;margin:.75rem 0}
header,article{border-left:6px solid var(--warn)}
header.passed{border-color:var(--good)}header.failed,article.must{border-color:var(--bad)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem;margin:.6rem 0}
dt,figcaption,footer{color:var(--soft);font-size:.88rem}dd{margin:0;overflow-wrap:anywhere}
code,pre{font:.85em/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.PASS{color:var(--good)}.FAIL{color:var(--bad)}.WARN{color:var(--warn)}.SKIP,.CONFIG{color:var(--soft)}
summary{cursor:pointer}
summary:focus-visible,pre:focus-visible,a:focus-visible{outline:2px solid currentColor;outline-offset:2px}
figure{margin:.5rem 0;min-width:0}
pre{margin:.2rem 0;padding:.75rem;border:1px solid var(--line);border-radius:8px;white-space:pre-wrap;overflow-wrap:anywhere;max-height:26rem;overflow:auto}
@media print{body{background:#fff;font-size:11pt}main{max-width:none;padding:0}article{break-inside:avoid}pre{max-height:none}}
`;
