/** The version of this kit, for its reports: a verdict is worth what the checks behind it were worth. */
import { readFileSync } from 'node:fs';

const manifest: unknown = JSON.parse(
  readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
);

/** As the package's manifest says, in the repository and installed alike. */
export const KIT_VERSION: string =
  typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown';
