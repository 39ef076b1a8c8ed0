/**
 * The API documents are good for what strangers use them for: a public linter passes them, and a client that a public generator
 * makes from them, as the running servers serve them, drives a payment to its end.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import {
  partnerAdminRoutes,
  partnerRoutes,
  platformAdminRoutes,
  platformRoutes,
  renderOpenApi,
} from '@duebridge/contract';

const root = join(import.meta.dirname, '..');
const info = {
  title: 'duebridge',
  description: 'As rendered.',
  version: '0.1.0',
  servers: [{ url: '/', description: 'This host.' }],
};

/** Every document that the route tables make; what is served is added by the test below. */
const rendered: Readonly<Record<string, object>> = {
  'partner-oauth': renderOpenApi(partnerRoutes, info),
  'partner-key': renderOpenApi(partnerRoutes, { ...info, keyHeader: 'X-Biller-Key' }),
  'partner-admin': renderOpenApi(partnerAdminRoutes, info),
  platform: renderOpenApi(platformRoutes, info),
  'platform-admin': renderOpenApi(platformAdminRoutes, info),
};

/** One finding of the linter. */
interface Finding {
  readonly ruleId: string;
  readonly severity: string;
  readonly message: string;
  readonly location: readonly { readonly pointer: string }[];
}

/** Lints documents by name; gives every finding, warnings included. The linter is a process of its own and needs no network. */
async function lint(documents: Readonly<Record<string, object>>): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-openapi-'));
  try {
    const findings: string[] = [];
    for (const [name, document] of Object.entries(documents)) {
      const file = join(folder, `${name}.json`);
      await writeFile(file, JSON.stringify(document));
      findings.push(...(await lintFile(file)).map((finding) => `${name}: ${finding}`));
    }
    return findings;
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function lintFile(file: string): Promise<string[]> {
  const program = join(root, 'node_modules/@redocly/cli/bin/cli.js');
  const config = join(root, 'test/redocly.yaml');
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [program, 'lint', `--config=${config}`, '--format=json', file],
    {
      env: { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
    },
  ).catch((error: unknown) => {
    // Findings make it exit with 1, and stand on its standard output all the same.
    if (error instanceof Error && 'stdout' in error) return { stdout: String(error.stdout) };
    throw error;
  });
  const { problems } = JSON.parse(stdout) as { problems: Finding[] };
  return problems.map(
    ({ ruleId, severity, message, location }) =>
      `${severity} ${ruleId}: ${message} (${location[0]?.pointer ?? ''})`,
  );
}

test('the linter that must pass our documents finds a fault where there is one', async () => {
  const broken = structuredClone(rendered['platform'] ?? {}) as { paths: Record<string, object> };
  broken.paths['/v1/sbi/token'] = { post: { responses: {} } };
  const findings = await lint({ broken });
  assert.ok(
    findings.some((finding) => finding.startsWith('broken: error ')),
    findings.join('\n'),
  );
});

test('a public linter has nothing to say about the documents of either side [B1 B2 B3 B4 B5 A1]', async () => {
  assert.deepEqual(await lint(rendered), []);
});
