#!/usr/bin/env node
/** The command `duebridge`: one sentence for whatever goes wrong, and for a Node that is too old to load commands.ts. */
try {
  await import('@duebridge/contract/supported-node');
  await import('./commands.ts');
} catch (error) {
  // The exit code means something; ConfigurationError says 2 by itself.
  process.stderr.write(`duebridge: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = error instanceof Error && 'exitCode' in error ? Number(error.exitCode) : 1;
}
