/**
 * The run as one page for people: a single HTML file without scripts or external resources, readable by someone who has never
 * read the interface. It shows the verdict, then each broken rule once with what was sent, received and expected, then every
 * check.
 * Everything received from a server is text: it is escaped, never treated as markup.
 */
import { CLAUSES, formatCents, type ClauseId } from '@duebridge/contract';
import type { Verdict } from '../check/findings.ts';
import { curl } from './curl.ts';
import { visible, type Exchange } from '../check/http.ts';
import { escaped as html, headline } from './text.ts';
import type { BrokenClause, CheckResult, RunReport } from './run-report.ts';

/** A symbol and a word for each verdict, so that colour is never the only signal. */
const WORDS: Readonly<Record<Verdict, readonly [sign: string, word: string]>> = {
  PASS: ['✓', 'passed'],
  FAIL: ['✗', 'failed'],
  WARN: ['!', 'warned'],
  SKIP: ['–', 'not judged'],
  CONFIG: ['?', 'not reached'],
};

const TITLES: Readonly<Record<RunReport['verdict'], readonly [sign: string, title: string]>> = {
  passed: ['✓', 'Conforms to the interface'],
  failed: ['✗', 'Breaks the interface'],
  partial: ['?', 'Partly judged'],
  config: ['?', 'Could not be judged'],
  nothing: ['?', 'Nothing was judged'],
};

/** The page. */
export function pageReport(report: RunReport): string {
  const title = headline(report).replace(/^[✓✗] /, '');
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>${html(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
${top(report)}
${configPart(report)}
${partialPart(report)}
${brokenPart(report)}
${checksPart(report)}
${footer(report)}
</main>
</body>
</html>
`;
}

function top(report: RunReport): string {
  const { counts, target, money, profile } = report;
  const [sign, title] = TITLES[report.verdict];
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
    value === undefined ? [] : `<div><dt>${name}</dt><dd>${html(value)}</dd></div>`,
  );
  const sum = (['PASS', 'FAIL', 'WARN', 'SKIP'] as const)
    .filter((verdict) => counts[verdict] > 0)
    .map((verdict) => `${counts[verdict]} ${WORDS[verdict][1]}`);
  return `<header class="verdict ${report.verdict}">
<p class="tool">duebridge conformance report</p>
<h1><span class="seal" aria-hidden="true">${sign}</span>${title}</h1>
<p class="sum">Of ${report.results.length} checks: ${sum.join(', ') || 'none judged'}.</p>
<dl>${shown.join('')}</dl>
</header>`;
}

function configPart(report: RunReport): string {
  const { config } = report;
  if (config === undefined) return '';
  const exchange = report.exchanges.find(({ number }) => number === config.exchange);
  return `<section class="fix"><h2>What to fix first</h2>
<p class="sentence">${html(config.sentence)}</p>
${exchange === undefined ? '' : exchangePart(exchange)}
</section>`;
}

function partialPart(report: RunReport): string {
  const lines = report.results.flatMap(
    ({ id, wanting }) => wanting?.map((what) => `<li>${id}: ${html(what)}</li>`) ?? [],
  );
  if (report.stopped !== undefined) lines.push(`<li>${html(report.stopped)}</li>`);
  return lines.length === 0
    ? ''
    : `<section class="fix"><h2>What could not be judged</h2><ul>${lines.join('')}</ul></section>`;
}

function brokenPart(report: RunReport): string {
  if (report.broken.length === 0) return '';
  return `<section><h2>Rules that were broken</h2>
<p class="hint">Each rule is listed once, with all the checks that found it broken. A <b>must</b> breaks the interface or puts money at risk; a <b>should</b> is a warning.</p>
${report.broken.map((broken) => brokenRule(broken, report)).join('\n')}
</section>`;
}

function brokenRule(broken: BrokenClause, report: RunReport): string {
  const results = broken.checks.flatMap((id) => report.results.find((one) => one.id === id) ?? []);
  return `<article class="rule ${broken.severity}">
<h3><span class="tag">${broken.severity}</span> ${html(broken.rule)} <span class="clause">${broken.clause}</span></h3>
${results.map((result) => brokenCheck(result, broken.clause, report)).join('\n')}
</article>`;
}

function brokenCheck(result: CheckResult, clause: ClauseId, report: RunReport): string {
  const exchange = (number: number | undefined) =>
    report.exchanges.find((one) => one.number === number);
  const excused =
    result.excused === undefined
      ? ''
      : `<p class="excused">Expected to fail until ${result.excused.until} (${html(result.excused.owner)}): ${html(result.excused.reason)}</p>`;
  let shown: number | undefined;
  let cause = '';
  const own = result.findings.filter((finding) => finding.clause === clause);
  const findings = own.map((finding) => {
    const show = finding.exchange !== undefined && finding.exchange !== shown;
    shown = finding.exchange ?? shown;
    const evidence = show ? exchange(finding.exchange) : undefined;
    const because =
      finding.likely_cause === cause
        ? ''
        : `\n<p class="cause"><b>Likely cause:</b> ${html(finding.likely_cause)}</p>`;
    cause = finding.likely_cause;
    return `<div class="finding"><dl class="compare"><div class="want"><dt>expected</dt><dd>${html(finding.expected)}</dd></div><div class="got"><dt>received</dt><dd>${html(finding.got)}</dd></div></dl>
${evidence === undefined ? '' : exchangePart(evidence)}${because}</div>`;
  });
  return `<div class="check" id="${result.id}-${clause}">
<h4><span class="id">${result.id}</span> ${html(result.title)}</h4>
${excused}<p><b>Sent:</b> ${html(result.sends)}.</p>
${findings.join('\n')}
</div>`;
}

function exchangePart(exchange: Exchange): string {
  const headers = (list: Readonly<Record<string, string>>): string =>
    Object.entries(list)
      .map(([name, value]) => `${name}: ${value}`)
      .join('\n');
  const sent = `${exchange.method} ${exchange.url}\n${headers(exchange.request_headers)}${exchange.request_body === '' ? '' : `\n\n${exchange.request_body}`}`;
  const came =
    exchange.status === undefined
      ? `no answer: ${exchange.no_answer ?? 'unknown'}`
      : `${exchange.status}\n${headers(exchange.answer_headers)}${exchange.answer_body === '' ? '' : `\n\n${pretty(exchange.answer_body)}`}`;
  return `<details class="exchange"><summary>Request and response (${exchange.duration_ms} ms)</summary>
<div class="pair"><figure><figcaption>request</figcaption><pre tabindex="0">${html(sent)}</pre></figure>
<figure><figcaption>response</figcaption><pre tabindex="0">${html(came)}</pre></figure></div>
<figure><figcaption>reproduce it; the shell variables stand for your secrets</figcaption><pre class="curl" tabindex="0">${html(curl(exchange))}</pre></figure>
</details>`;
}

function checksPart(report: RunReport): string {
  if (report.results.length === 0) return '';
  return `<section><h2>Every check</h2>
<ul class="checks">${report.results.map((result) => checkLine(result, report)).join('\n')}</ul>
</section>`;
}

function checkLine(result: CheckResult, report: RunReport): string {
  const exchange = report.exchanges.find(({ number }) => number === result.shown);
  const [sign, word] = WORDS[result.verdict];
  const rules = result.clauses
    .map((clause) => `<li><span class="clause">${clause}</span> ${html(CLAUSES[clause].rule)}</li>`)
    .join('');
  const inside = `<p><b>Sent:</b> ${html(result.sends)}.</p>
<ul class="rules">${rules}</ul>
${result.skipped === undefined ? '' : `<p><b>Not judged:</b> ${html(result.skipped)}.</p>`}
${result.notes.map((note) => `<p class="note">${html(note)}</p>`).join('')}
${result.findings.length > 0 ? `<p><a href="#${result.id}-${result.findings[0]?.clause ?? ''}">What was found</a></p>` : exchange === undefined ? '' : exchangePart(exchange)}`;
  return `<li><details><summary><span class="mark ${result.verdict}"><span aria-hidden="true">${sign}</span> ${word}</span> <span class="id">${result.id}</span> <span class="title">${html(result.title)}</span>${result.skipped === undefined ? '' : ` <span class="why">${html(result.skipped)}</span>`}</summary>
<div class="inside">${inside}</div></details></li>`;
}

function footer(report: RunReport): string {
  const failed = report.judge_failed.map(
    (problem) => `<p>The judge had an internal error in ${html(problem)}. Please report it.</p>`,
  );
  return `<footer>${failed.join('')}<p>Judged by <b>duebridge conform ${report.subject}</b>, version ${html(report.kit_version)}. Credentials are masked and replaced by names in capital letters. Rules are paraphrased; the guides explain them under the same ids.</p></footer>`;
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
:root{color-scheme:light dark;--bg:#f7f7f5;--card:#fff;--ink:#1b1d22;--soft:#5d626d;--line:#dfe0e4;--code:#f1f1ef;
--good:#0b6e4f;--good-bg:#dff3ea;--bad:#b3261e;--bad-bg:#fbe4e1;--warn:#8a5300;--warn-bg:#fdeecd;--skip:#5d626d;--skip-bg:#e8e9ec}
@media (prefers-color-scheme:dark){:root{--bg:#131519;--card:#1b1e24;--ink:#e9eaee;--soft:#a3a9b6;--line:#31353f;--code:#12141a;
--good:#5fd3a8;--good-bg:#12352a;--bad:#ff9b91;--bad-bg:#431c19;--warn:#f4c066;--warn-bg:#3a2b0d;--skip:#a3a9b6;--skip-bg:#2a2e37}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1,h2,h3,h4{line-height:1.25;text-wrap:balance}
h2{margin:2.75rem 0 .5rem;font-size:1.35rem}
h3{margin:1.75rem 0 .5rem;font-size:1.05rem}
h4{margin:0 0 .4rem;font-size:1rem}
p{margin:.4rem 0}
a{color:inherit}
.verdict{background:var(--card);border:1px solid var(--line);border-top:6px solid var(--skip);border-radius:12px;padding:1.5rem 1.75rem}
.verdict.passed{border-top-color:var(--good)}.verdict.failed{border-top-color:var(--bad)}
.tool{margin:0;color:var(--soft);font-size:.85rem;letter-spacing:.04em;text-transform:uppercase}
h1{margin:.35rem 0 .25rem;font-size:2.1rem;display:flex;gap:.6rem;align-items:center}
.seal{display:inline-grid;place-items:center;width:1.35em;height:1.35em;border-radius:50%;font-size:.8em;background:var(--skip-bg);color:var(--skip);flex:none}
.passed .seal{background:var(--good-bg);color:var(--good)}.failed .seal{background:var(--bad-bg);color:var(--bad)}
.sum{font-size:1.1rem}
dl{margin:0}dt{color:var(--soft);font-size:.82rem}dd{margin:0;overflow-wrap:anywhere}
.verdict dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:.75rem 1.5rem}
.hint{color:var(--soft)}
.fix{background:var(--warn-bg);border-radius:12px;padding:.25rem 1.5rem 1.25rem;margin-top:1.5rem}
.fix h2{margin-top:1rem}.sentence{font-size:1.15rem}
.rule{background:var(--card);border:1px solid var(--line);border-left:6px solid var(--warn);border-radius:10px;padding:1rem 1.25rem;margin:1rem 0}
.rule.must{border-left-color:var(--bad)}
.rule>h3{margin:0 0 .75rem}
.tag{font-size:.75rem;text-transform:uppercase;letter-spacing:.04em;padding:.1rem .5rem;border-radius:1rem;background:var(--warn-bg);color:var(--warn);vertical-align:2px}
.must .tag{background:var(--bad-bg);color:var(--bad)}
.clause,.id{font:600 .85em/1 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:var(--soft)}
.check{border-top:1px solid var(--line);padding:.9rem 0 .25rem}
.compare{display:grid;grid-template-columns:1fr 1fr;gap:.75rem;margin:.6rem 0}
.compare>div{border-radius:8px;padding:.5rem .75rem}
.want{background:var(--good-bg)}.got{background:var(--bad-bg)}
.want dt{color:var(--good)}.got dt{color:var(--bad)}
.cause,.excused{border-left:3px solid var(--line);padding-left:.75rem;color:var(--soft)}
details>summary{cursor:pointer;list-style-position:inside}
summary:focus-visible,pre:focus-visible,a:focus-visible{outline:2px solid currentColor;outline-offset:2px}
.exchange{margin:.5rem 0}.exchange>summary{color:var(--soft);font-size:.92rem}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:.75rem}
figure{margin:.5rem 0;min-width:0}figcaption{color:var(--soft);font-size:.82rem}
pre{margin:.2rem 0;padding:.75rem;background:var(--code);border:1px solid var(--line);border-radius:8px;font:.82rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere;max-height:26rem;overflow:auto}
.checks{list-style:none;margin:0;padding:0;background:var(--card);border:1px solid var(--line);border-radius:10px}
.checks>li+li{border-top:1px solid var(--line)}
.checks summary{display:flex;flex-wrap:wrap;gap:.2rem .7rem;align-items:baseline;padding:.55rem .9rem;list-style:none}
.checks summary::-webkit-details-marker{display:none}
.mark{flex:none;min-width:6.6rem;text-align:center;font-size:.82rem;padding:.05rem .5rem;border-radius:1rem}
.mark.PASS{background:var(--good-bg);color:var(--good)}.mark.FAIL{background:var(--bad-bg);color:var(--bad)}
.mark.WARN{background:var(--warn-bg);color:var(--warn)}.mark.SKIP{background:var(--skip-bg);color:var(--skip)}
.why{flex-basis:100%;padding-left:7.3rem;color:var(--soft);font-size:.88rem}
.inside{padding:.1rem 1rem 1rem}.inside .exchange>summary{display:list-item;padding:0}
.rules{margin:.4rem 0;padding-left:1.2rem;color:var(--soft);font-size:.92rem}
.note{color:var(--soft)}
footer{margin-top:3rem;color:var(--soft);font-size:.88rem}
@media (max-width:44rem){.compare,.pair{grid-template-columns:1fr}main{padding:1rem .75rem 3rem}h1{font-size:1.6rem}.why{padding-left:0}}
@media print{body{background:#fff;font-size:11pt}main{max-width:none;padding:0}.verdict,.rule,.check{break-inside:avoid}pre{max-height:none}.checks summary{padding:.2rem .5rem}}
`;
