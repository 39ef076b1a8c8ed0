/** The version of this kit, for its reports: the checks behind a verdict depend on it. */
import { readFileSync } from 'node:fs';

const manifest: unknown = JSON.parse(
  readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
);

/** Read from the package's manifest, in the repository and when installed. */
export const KIT_VERSION: string =
  typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown';
