#!/usr/bin/env node
/** The command `duebridge-conform`: one sentence for whatever goes wrong, and for a Node that is too old to load commands.ts. */
try {
  await import('@duebridge/contract/supported-node');
  await import('./commands.ts');
} catch (error) {
  const message = error instanceof Error ? error.message : String(error);
  process.stderr.write(`duebridge-conform: ${message}\n`);
  process.exitCode = error instanceof Error && 'exitCode' in error ? Number(error.exitCode) : 1;
}
