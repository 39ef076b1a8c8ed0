/**
 * `npm start` and `npm test` load this first. Where npm was told not to run install scripts, or to leave development packages out, the
 * pinned Node and the built pages are missing, and the system's Node may not read TypeScript. Plain JavaScript, so that an older Node
 * can say so. Exit code 2 (configuration).
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const READS_TYPESCRIPT = [22, 18];

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
const readsTypeScript =
  major > READS_TYPESCRIPT[0] || (major === READS_TYPESCRIPT[0] && minor >= READS_TYPESCRIPT[1]);
const hasPages = existsSync(
  fileURLToPath(new URL('../packages/web/dist/manifest.json', import.meta.url)),
);

const missing = [
  ...(readsTypeScript ? [] : [`the Node that duebridge pins (this is ${process.versions.node})`]),
  ...(hasPages ? [] : ['the built payment pages']),
];
if (missing.length > 0) {
  console.error(
    `duebridge: the installation lacks ${missing.join(' and ')}: npm ran no install scripts, or left development packages out. Run: npm ci --include=dev && npm rebuild node --ignore-scripts=false && npm run prepare`,
  );
  process.exit(2);
}
