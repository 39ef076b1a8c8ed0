/** Unpacks Chromium, and the libraries that a slim container lacks, into the folder that TMPDIR names. */
import { join } from 'node:path';
import chromium, { inflate } from '@sparticuz/chromium';

await chromium.executablePath();
await inflate(join(import.meta.dirname, 'node_modules/@sparticuz/chromium/bin/al2023.tar.br'));
