/**
 * Global setup of a run of the tests: one embedded PostgreSQL for every test file, in a folder among the temporary files that also takes
 * compiled modules and whatever the tests write. At the end, what the tests left running is ended and the folder removed.
 */
import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbeddedPostgres } from '@duebridge/runtime';
import { endProcessesOf } from './left-processes.ts';

let end: (() => Promise<void>) | undefined;

/** Sets the variables that the test files, which are children of this process, inherit. */
export async function globalSetup(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-tests-'));
  // Others may pass through: as root, the database and some tests run as other users, who need to reach their own files.
  chmodSync(folder, 0o711);
  const temporary = join(folder, 'tmp');
  mkdirSync(temporary);
  // As /tmp: everybody may make files, and only their owner may remove them.
  chmodSync(temporary, 0o1777);
  const compiled = join(folder, 'compiled');
  const postgres = await startEmbeddedPostgres({ dataDirectory: join(folder, 'database') });
  end = async () => {
    const left = await endProcessesOf([temporary, compiled]);
    if (left.length > 0) console.error(`Ended what the tests had left: ${left.join(', ')}.`);
    await postgres.stop();
    // Again, while a browser that was just killed still writes.
    rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  };
  Object.assign(process.env, {
    DUEBRIDGE_TEST_DATABASE_URL: postgres.url,
    // The modules are compiled once for all files and the programs they start, which halves the time of a start.
    NODE_COMPILE_CACHE: compiled,
    TMPDIR: temporary,
  });
}

export async function globalTeardown(): Promise<void> {
  assert(end !== undefined, 'set up before');
  await end();
}
