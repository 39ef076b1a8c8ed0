/**
 * A real Chromium from npm, without apt and without a download (package @sparticuz/chromium).
 */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { chromium, type Browser } from 'playwright-core';

const modules = join(import.meta.dirname, '../../node_modules');

/** The package's major version is the browser's. */
const { version } = JSON.parse(
  readFileSync(join(modules, '@sparticuz/chromium/package.json'), 'utf8'),
) as { version: string };

/**
 * Not the package's own arguments: those switch off web security and site isolation, which is what
 * these tests are about. No sandbox, because containers and root have none; the rest keeps it offline.
 */
const ARGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
];

/** Starts one browser; the caller closes it. */
export async function launchChromium(): Promise<Browser> {
  const folder = await unpacked();
  const browser = await chromium.launch({
    executablePath: join(folder, 'chromium'),
    args: ARGS,
    // Playwright's default lets frames share storage across sites; people's browsers do not.
    headless: true,
  });
  const [major] = version.split('.');
  assert.equal(browser.version().split('.')[0], major, 'a stale browser was unpacked');
  return browser;
}

/**
 * The browser's folder. The package unpacks to a fixed name in the temporary folder and takes what
 * lies there for its own, so each version gets a folder of its own, filled apart and then renamed.
 */
async function unpacked(): Promise<string> {
  const folder = join(modules, '.cache/duebridge', `chromium-${version}`);
  if (existsSync(folder)) return folder;
  const draft = `${folder}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  const before = process.env['TMPDIR'];
  process.env['TMPDIR'] = draft;
  try {
    const { default: sparticuz } = await import('@sparticuz/chromium');
    await sparticuz.executablePath();
    if (!existsSync(folder)) renameSync(draft, folder);
  } finally {
    if (before === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = before;
    rmSync(draft, { recursive: true, force: true });
  }
  return folder;
}
