/**
 * Loaded into the process of each test file by `npm test`: ends a file that takes longer than `DUEBRIDGE_TEST_FILE_MS`. The limit
 * of the test runner is for one test; without this, a file in which many tests hang would hold the whole run for hours.
 */
const limit = Number(process.env['DUEBRIDGE_TEST_FILE_MS']);

// The runner loads this too; only its children are test files.
if (process.env['NODE_TEST_CONTEXT'] !== undefined && limit > 0) {
  setTimeout(() => {
    console.error(
      `${process.argv[1] ?? 'This test file'} took longer than ${limit / 1000} s and was ended.`,
    );
    process.exit(1);
  }, limit).unref();
}
