/**
 * The documents tell the truth: the quickstart and the reference are run and their answers compared, the table of errors matches the
 * catalogue, links resolve, every decision that code names exists, and no code block stands in a document without a test that runs it.
 *
 * DUEBRIDGE_UPDATE_DOCS=1 writes the checked parts anew instead of comparing them.
 */
import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import test from 'node:test';
import {
  ERRORS,
  OAUTH_ERRORS,
  partnerAdminRoutes,
  partnerRoutes,
  platformAdminRoutes,
  platformRoutes,
  type ErrorCode,
  type Route,
} from '@duebridge/contract';
import { fieldTables } from './support/field-tables.ts';
import { formatted } from './support/formatted.ts';
import { hasCurl, PageShell, runPage, stepsOf, UPDATE } from './support/page.ts';

const root = join(import.meta.dirname, '..');

/** Every Markdown file that is ours. */
const documents = globSync('**/*.md', {
  cwd: root,
  exclude: (name) => ['node_modules', 'dist', '.duebridge', 'coverage'].includes(name),
}).sort();

const read = (file: string): string => readFileSync(join(root, file), 'utf8');

// The catalogue of errors --------------------------------------------------------------------------------------------------

const CATALOGUE = /(<!-- catalogue: begin -->\n)([\s\S]*?)(<!-- catalogue: end -->)/;

test('every error that a server may return is in the list of errors, as in the catalogue [ER3]', async () => {
  const file = 'docs/errors.md';
  const page = read(file);
  const filled = page.replace(CATALOGUE, `$1\n${catalogue()}\n$3`);
  const printed = await formatted(filled);
  if (UPDATE) writeFileSync(join(root, file), printed);
  else assert.equal(page, printed, 'DUEBRIDGE_UPDATE_DOCS=1 prints docs/errors.md again');
  const codes = [...printed.matchAll(/^### ([A-Z_]+)$/gm)].map((match) => match[1]);
  assert.deepEqual(codes, Object.keys(ERRORS));
});

test('every error word of the OAuth endpoint is explained, and no other [OA3]', () => {
  const rows = [...read('docs/errors.md').matchAll(/^\| `([a-z_]+)` /gm)].map((match) => match[1]);
  assert.deepEqual(new Set(rows), new Set<string>(OAUTH_ERRORS));
  assert.equal(rows.length, OAUTH_ERRORS.length);
});

/** The entries of docs/errors.md. */
function catalogue(): string {
  return (Object.keys(ERRORS) as ErrorCode[])
    .map((code) => {
      const { status, message, remedy } = ERRORS[code];
      return `### ${code}\n\n${status}: ${message}. ${remedy}\n`;
    })
    .join('\n');
}

// The fields of the wire -----------------------------------------------------------------------------------------------------

const FIELDS = 'docs/reference/fields.md';
const TABLES = /(<!-- fields: begin -->\n)([\s\S]*?)(<!-- fields: end -->)/;

test('every field of the wire is in the tables, as the schemas have it [TR1 TR2 TR3 TR4 TK1 PF9 AC1]', async () => {
  const page = read(FIELDS);
  const tables = fieldTables([platformRoutes.create_token, ...Object.values(partnerRoutes)]);
  const filled = page.replace(TABLES, `$1\n${tables}\n$3`);
  const printed = await formatted(filled);
  if (UPDATE) writeFileSync(join(root, FIELDS), printed);
  else assert.equal(page, printed, `DUEBRIDGE_UPDATE_DOCS=1 prints ${FIELDS} again`);
});

// Pages that are programs --------------------------------------------------------------------------------------------------

/** The reference pages, in the order of their index: a later page uses what an earlier one made. */
const REFERENCE = [...read('docs/reference/README.md').matchAll(/^\| \[.*?\]\((\S+\.md)\)/gm)].map(
  ([, page = '']) => `docs/reference/${page}`,
);

test('every request of the reference is answered as its page says [S2 S3 A1 A2 AU1 ER1 OA2 OA3 OA4 SC1 KY1 KY2 B1 B2 B3 B4 B5 ID1 RU5 FR1 ST4 TK1 TR1 TR4]', async (t) => {
  const pages = globSync('docs/reference/*.md', { cwd: root }).filter(
    (page) => !['README.md', 'fields.md'].includes(basename(page)),
  );
  assert.deepEqual(REFERENCE.toSorted(), pages.toSorted(), 'the index lists every page once');
  if (!hasCurl) return t.skip('curl is not installed');
  const shell = await PageShell.open(t);
  for (const page of REFERENCE) await runPage(page, shell);
});

test('the quickstart leads from nothing to a paid bill, as it says [S1 S4 A1 TK1 B4 RU4]', async (t) => {
  if (!hasCurl) return t.skip('curl is not installed');
  await runPage('docs/quickstart.md', await PageShell.open(t));
});

/** Whose operations stand behind each address variable of the reference. */
const ADDRESSES: Readonly<Record<string, Readonly<Record<string, Route>>>> = {
  PARTNER: partnerRoutes,
  GAS: partnerRoutes,
  PARTNER_ADMIN: partnerAdminRoutes,
  GAS_ADMIN: partnerAdminRoutes,
  PLATFORM: platformRoutes,
  PLATFORM_ADMIN: platformAdminRoutes,
};

/**
 * The operations of the admin APIs that programs call, and that the reference shows by curl. What an operator does by the console and the
 * command line is in docs/runbook.md, whose commands are run.
 */
const OF_PROGRAMS = new Set(
  ['add_partner', 'list_partners', 'get_partner', 'change_partner'].concat(
    ['issue_key', 'list_keys', 'revoke_key'],
    Object.keys(partnerRoutes),
    Object.keys(platformRoutes),
  ),
);
/** The page's own, which no other program calls. */
OF_PROGRAMS.delete('open_flow_saved_methods');

test('no operation of a program, and no error, is missing from the reference [ER3]', () => {
  const shown = new Set<string>();
  for (const { script, shown: answer } of REFERENCE.flatMap(stepsOf)) {
    const [, name = '', path = ''] = /^curl .*?"\$\{?([A-Z_]+)\}?(\/[^"?#]*)/s.exec(script) ?? [];
    const sends = /\s(?:-d|--data\S*)\s/.test(script) ? 'POST' : 'GET';
    const method = /\s-X (\w+)\s/.exec(script)?.[1] ?? sends;
    const route = Object.values(ADDRESSES[name] ?? {}).find(
      (one) =>
        one.method === method &&
        new RegExp(`^${one.path.replaceAll(/\{\w+\}/g, '[^/]+')}$`).test(path),
    );
    const code = /^ {2}"code": "(\w+)"/m.exec(answer?.text ?? '')?.[1];
    const status = /^HTTP\/1.1 (\d+)/.exec(answer?.text ?? '')?.[1] ?? '429';
    shown.add(`${route?.id ?? 'none'} ${code ?? status}`);
  }
  const tables = [partnerRoutes, partnerAdminRoutes, platformRoutes, platformAdminRoutes];
  // The whole list of each operation's refusals is in the OpenAPI document; test/openapi.test.ts holds the servers to it.
  const missing = tables
    .flatMap((routes) => Object.values(routes as Readonly<Record<string, Route>>))
    .filter(({ id }) => OF_PROGRAMS.has(id) && !shown.has(`${id} 200`))
    .map(({ id }) => id);
  assert.deepEqual(missing, []);
  for (const example of [
    'create_token 429',
    'create_token NOT_FOUND',
    'create_token UNAUTHORIZED',
    'get_flow_session PARTNER_UNREACHABLE',
    'get_account ACCOUNT_NOT_FOUND',
    'get_account INSUFFICIENT_SCOPE',
    'get_account_payment PAYMENT_NOT_FOUND',
    'put_account_payment INVALID_REQUEST',
    'put_account_payment PAYLOAD_TOO_LARGE',
    'create_flow_session TOKEN_INVALID',
    'create_flow_session MODE_MISMATCH',
    'none METHOD_NOT_ALLOWED',
    'none NOT_FOUND',
  ]) {
    assert.ok(shown.has(example), example);
  }
});

// Links, blocks, decisions -------------------------------------------------------------------------------------------------

test('no link in a document leads nowhere', () => {
  const broken = documents.flatMap((file) =>
    [...withoutBlocks(read(file)).matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, target = '']) => {
      if (/^[a-z]+:/.test(target)) return [];
      const [path = '', anchor] = target.split('#');
      const to = path === '' ? file : relative(root, join(root, dirname(file), path));
      if (!existsSync(join(root, to))) return [`${file}: ${target}`];
      if (anchor === undefined || anchors(read(to)).has(anchor)) return [];
      return [`${file}: ${target}`];
    }),
  );
  assert.deepEqual(broken, []);
});

function withoutBlocks(markdown: string): string {
  return markdown.replaceAll(/^```[\s\S]*?^```$/gm, '').replaceAll(/`[^`\n]*`/g, '');
}

/** The fragments that a page can be linked at: its headings, as they are written in an address. */
function anchors(markdown: string): Set<string> {
  return new Set(
    [...markdown.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
        .trim()
        .replaceAll(/\s/g, '-'),
    ),
  );
}

/** Languages of blocks that are only looked at. */
const SHOWN_ONLY = new Set(['text', 'http', 'json']);

/** Pages whose commands are npm's: each must be a script of package.json, and the scripts have tests of their own. */
const NPM_PAGES = new Set(['README.md', 'CONTRIBUTING.md']);

test('the map of the code and the walk name files that exist', () => {
  const files = globSync('{packages/{platform,partner,web}/src,test,scripts,tools}/**/*.{ts,tsx}', {
    cwd: root,
    exclude: (name) => name === 'node_modules',
  }).map((file) => `/${file}`);
  for (const page of ['ARCHITECTURE.md', 'test/walk.test.ts']) {
    const text = page.endsWith('.md') ? read(page) : read(page).replaceAll(/^import .*$/gm, '');
    const named = new Set([...text.matchAll(/[\w/-][\w./-]*\.tsx?\b/g)].map(([name]) => name));
    assert.ok(named.size > 5, page);
    for (const name of named) {
      assert.ok(
        files.some((file) => file.endsWith(`/${name}`)),
        `${page} names ${name}, which is not there`,
      );
    }
  }
});

test('a payment is followed in at most eight files and 2,000 lines, as long as the page says', () => {
  const rows = [...read('CONTRIBUTING.md').matchAll(/^\| \[[^\]]+\]\(([^)]+)\) .*\| +(\d+) \|$/gm)];
  const lines = rows.map(([, file = '']) => read(file).split('\n').length);
  assert.ok(rows.length > 4 && rows.length <= 8, `${rows.length} files`);
  assert.ok(lines.reduce((sum, one) => sum + one, 0) <= 2_000, lines.join(' + '));
  for (const [index, [, file, told]] of rows.entries()) {
    const off = Math.abs(Number(told) / (lines[index] ?? 0) - 1);
    assert.ok(off < 0.2, `${file} has ${lines[index]} lines`);
  }
});

test('every command and program in a document is run by something', () => {
  const tests = globSync(['packages/*/{src,test}/**/*.test.{ts,tsx}', 'test/**/*.test.ts'], {
    cwd: root,
  });
  const runs = (file: string): boolean => {
    if (REFERENCE.includes(file)) return true;
    const names = file.startsWith('docs/') ? [file, basename(file)] : [file];
    return tests.some((name) => names.some((as) => read(name).includes(`'${as}'`)));
  };
  const unrun = documents.flatMap((file) =>
    [...read(file).matchAll(/^```(\w*)[^\n]*\n([\s\S]*?)^```$/gm)]
      .filter(([, language = '']) => !SHOWN_ONLY.has(language))
      .filter(([, language, text = '']) =>
        NPM_PAGES.has(file) && language === 'sh' ? !isNpm(text) : !runs(file),
      )
      .map(([, language = '', text = '']) => `${file}: ${language} ${text.split('\n')[0] ?? ''}`),
  );
  assert.deepEqual(unrun, []);
});

/** True when every line is `npm ci` or a script that package.json has. */
function isNpm(text: string): boolean {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
  return text
    .trim()
    .split(/\n| && /)
    .every((command) => {
      const [npm, verb = '', name = ''] = command.split(' ');
      return npm === 'npm' && (verb === 'ci' || (verb === 'run' ? name : verb) in scripts);
    });
}

test('every json block is JSON', () => {
  for (const file of documents) {
    for (const [, text = ''] of read(file).matchAll(/^```json.*\n([\s\S]*?)^```$/gm)) {
      assert.doesNotThrow(() => JSON.parse(text) as unknown, `${file}: ${text}`);
    }
  }
});

test('every decision has the one form and is listed, and code names only decisions that exist', () => {
  const files = globSync('decisions/[0-9]*.md', { cwd: root }).sort();
  const index = read('decisions/README.md');
  const numbers = new Set<number>();
  for (const file of files) {
    const page = read(file);
    const number = file.slice('decisions/'.length, 'decisions/'.length + 3);
    numbers.add(Number(number));
    assert.ok(
      index.includes(`[${number}](${file.slice('decisions/'.length)})`),
      `${file} is not listed`,
    );
    const headings = [...page.matchAll(/^#+ (.+)$/gm)].map((match) => match[1] ?? '');
    assert.ok(headings[0]?.startsWith(number), `${file}: its title has its number`);
    for (const part of ['Context', 'Choice', 'What would change our mind']) {
      assert.ok(headings.includes(part), `${file}: ${part}`);
    }
    assert.doesNotMatch(
      page,
      /^Chosen: (?:the (?:first|second|third|fourth|last)\b|\d\. )/m,
      `${file}: a choice is named, not numbered`,
    );
  }
  // Not the migrations: they never change, and name decisions of their day.
  const sources = globSync(
    ['packages/*/src/**/*.{ts,tsx}', '{bin,demo,test,scripts}/**/*.ts', 'docs/*.md'],
    { cwd: root },
  );
  const strangers = sources.flatMap((file) =>
    [...read(file).matchAll(/\bdecisions? (\d+(?:(?:, | and )\d+)*)/gi)]
      .flatMap(([, named = '']) => named.split(/\D+/).map(Number))
      .filter((number) => !numbers.has(number))
      .map((number) => `${file}: decision ${number}`),
  );
  assert.deepEqual(strangers, []);
});
