/** Unpacks Chromium into the folder that TMPDIR names: `node unpack-chromium.ts <archive of its libraries>`. */
import chromium, { inflate } from '@sparticuz/chromium';

const [, , libraries = ''] = process.argv;
await chromium.executablePath();
await inflate(libraries);
