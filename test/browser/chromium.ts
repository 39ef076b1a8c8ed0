/**
 * A real Chromium from npm (package @sparticuz/chromium of tools/browser), without apt.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { chromium, type Browser } from 'playwright-core';
import { toolFolder } from '../../scripts/tool.ts';
import packages from '../../tools/browser/package.json' with { type: 'json' };

/** The package's major version is the browser's. */
const version = packages.dependencies['@sparticuz/chromium'];

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

/** Starts one browser, with more arguments where they are given; the caller closes it. */
export async function launchChromium(more: readonly string[] = []): Promise<Browser> {
  const folder = await unpacked();
  const executablePath = join(folder, 'chromium');
  const conf = join(folder, 'duebridge-own-fonts.conf');
  if (!existsSync(conf)) writeFileSync(conf, fontsConf(folder));
  const fonts = { FONTCONFIG_FILE: conf };
  // A slim container lacks a library or two; the package brings them. Ours come second to the system's.
  const brought = { LD_LIBRARY_PATH: join(folder, 'al2023/lib') };
  const starts = await promisify(execFile)(executablePath, ['--version']).then(
    () => true,
    () => false,
  );
  const browser = await chromium.launch({
    executablePath,
    args: [...ARGS, ...more],
    headless: true,
    env: { ...process.env, ...fonts, ...(starts ? {} : brought) },
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
  const tool = await toolFolder('browser', 'test');
  const folder = join(tool, 'node_modules/.cache', `chromium-${version}`);
  if (existsSync(join(folder, 'duebridge-fonts.conf'))) return folder;
  const draft = `${folder}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  try {
    // In a process of its own: TMPDIR says where it unpacks to, and tests of this process make folders at the same time.
    await promisify(execFile)(process.execPath, [join(tool, 'unpack.mjs')], {
      env: { ...process.env, TMPDIR: draft },
    });
    writeFileSync(join(draft, 'duebridge-fonts.conf'), fontsConf(folder));
    renameSync(draft, folder);
  } catch (error) {
    // Two test files that start together: the first one's folder is as good.
    if (!existsSync(join(folder, 'duebridge-fonts.conf'))) throw error;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return folder;
}

/** The package's own font alone, so that pictures look the same whatever fonts a machine has. */
function fontsConf(folder: string): string {
  const prefer = ['sans-serif', 'system-ui']
    .map(
      (name) =>
        `<alias><family>${name}</family><prefer><family>Open Sans</family></prefer></alias>`,
    )
    .join('');
  return `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<dir>${folder}/fonts</dir><cachedir>${folder}/own-fonts-cache</cachedir>${prefer}</fontconfig>
`;
}
