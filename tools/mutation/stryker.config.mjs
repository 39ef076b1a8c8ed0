/** How Stryker runs our tests. run.ts names the file to mutate, and the tests in MUTATION_TESTS, one a line. */
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export default {
  plugins: ['@stryker-mutator/tap-runner'],
  testRunner: 'tap',
  tap: {
    testFiles: (process.env.MUTATION_TESTS ?? '').split('\n'),
    // A test file is a program; node:test prints TAP only when it is asked to.
    nodeArgs: ['--test-reporter=tap', '-r', '{{hookFile}}', '{{testFile}}'],
    forceBail: true,
  },
  // Two cores; a test process starts in a third of a second.
  concurrency: 2,
  reporters: ['clear-text', 'progress-append-only'],
  clearTextReporter: { logTests: false, reportTests: false },
  // Node strips the types, and TypeScript 7 has no JavaScript interface that Stryker could read the settings with.
  tsconfigFile: 'none',
  tempDirName: join(tmpdir(), `duebridge-mutation-${process.pid}`),
  ignorePatterns: ['dist', '.duebridge', 'tools'],
  disableTypeChecks: false,
};
