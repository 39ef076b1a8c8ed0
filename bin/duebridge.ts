#!/usr/bin/env node
/**
 * The command `duebridge`: one sentence for whatever goes wrong. It is CommonJS (package.json beside it) and has no types, so that a Node
 * which reads no TypeScript takes it for JavaScript, fails at the first import, and says what to do.
 */
async function duebridge() {
  try {
    await import('@duebridge/contract/supported-node');
    await import('../cli/commands.ts');
  } catch (error) {
    const isOld =
      error instanceof Error && 'code' in error && error.code === 'ERR_UNKNOWN_FILE_EXTENSION';
    const sentence = isOld
      ? `this is Node ${process.versions.node}, which reads no TypeScript: run npm ci, and then npx duebridge or npm start, which use the Node that the repository brings`
      : error instanceof Error
        ? error.message
        : String(error);
    process.stderr.write(`duebridge: ${sentence}\n`);
    // The exit code means something; ConfigurationError says 2 by itself.
    const code = error instanceof Error && 'exitCode' in error ? Number(error.exitCode) : 1;
    process.exitCode = isOld ? 2 : code;
  }
}

void duebridge();
