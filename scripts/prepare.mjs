/**
 * npm runs this after an install: it builds the browser files. Plain JavaScript, because an install without development packages
 * (npm ci --omit=dev) has neither the build tool nor the pinned Node that reads TypeScript.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('../packages/web', import.meta.url));
// The package `node` leaves the headers and manuals that came with its program behind: 68 MB that nothing reads.
const leftOver = new URL('../node_modules/node/node_modules', import.meta.url);
rmSync(leftOver, { recursive: true, force: true });
if (hasBuildTool()) {
  const built = spawnSync('node', [join(web, 'build.ts')], { stdio: 'inherit' });
  process.exitCode = built.status ?? 1;
} else if (!existsSync(join(web, 'dist', 'manifest.json'))) {
  console.log(
    'The payment pages are not built, because the development packages are not installed: run npm ci and npm run build once, or copy packages/web/dist from where that was done.',
  );
}

function hasBuildTool() {
  try {
    createRequire(join(web, 'package.json')).resolve('vite');
    return true;
  } catch {
    return false;
  }
}
