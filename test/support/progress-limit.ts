/**
 * Loaded into the process of each test file: ends a file in which no test has started or ended for a long time. The limit is of progress,
 * so that a slow machine or a long file passes, and a file in which everything hangs does not hold the run.
 */
import { afterEach, beforeEach } from 'node:test';

const WITHOUT_PROGRESS_MS = 10 * 60_000;

// The runner loads this too; only its children are test files.
if (process.env['NODE_TEST_CONTEXT'] !== undefined) {
  const limit = setTimeout(() => {
    console.error(
      `${process.argv[1] ?? 'This test file'} was ended: no test of it has started or ended for ${WITHOUT_PROGRESS_MS / 60_000} minutes.`,
    );
    process.exit(1);
  }, WITHOUT_PROGRESS_MS).unref();
  const progress = (): void => void limit.refresh();
  beforeEach(progress);
  afterEach(progress);
}
