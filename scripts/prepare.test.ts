/** What npm runs after an install must not fail one without development packages: `npm ci --omit=dev`. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';

test('an install without development packages succeeds, and says that the pages are not built', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-prepare-'));
  t.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'scripts'));
  mkdirSync(join(folder, 'packages/web/dist'), { recursive: true });
  writeFileSync(join(folder, 'packages/web/package.json'), '{}');
  const script = join(folder, 'scripts/prepare.mjs');
  copyFileSync(new URL('prepare.mjs', import.meta.url), script);
  const run = (): { status: number | null; out: string } => {
    const { status, stdout } = spawnSync(process.execPath, [script], {
      encoding: 'utf8',
      timeout: 180_000,
    });
    return { status, out: stdout };
  };
  const bare = run();
  assert.equal(bare.status, 0);
  assert.match(bare.out, /^The payment pages are not built, .*npm run build once/);
  // With pages that were built elsewhere there is nothing to say.
  writeFileSync(join(folder, 'packages/web/dist/manifest.json'), '{}');
  assert.deepEqual(run(), { status: 0, out: '' });
});
