/**
 * The API documents are good for what strangers use them for: a public linter passes them, and a public generator makes clients from
 * them. That the servers keep to them is checked by the fuzzer.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stripTypeScriptTypes } from 'node:module';
import test from 'node:test';
import { promisify } from 'node:util';
import {
  partnerAdminRoutes,
  partnerRoutes,
  platformAdminRoutes,
  platformRoutes,
  renderOpenApi,
} from '@duebridge/contract';
import { partnerOpenApi } from '@duebridge/partner';
import { importTool } from '../scripts/tool.ts';

const root = join(import.meta.dirname, '..');
const { generateApi, linter } = await importTool<{
  /** Makes a client from an OpenAPI document. */
  readonly generateApi: (options: object) => Promise<{
    files: readonly { readonly fileExtension: string; readonly fileContent: string }[];
  }>;
  /** The program of a public linter. */
  readonly linter: string;
}>('checks', 'openapi');
const info = { title: 'duebridge', description: 'As rendered.' };

const TABLES = {
  'partner-oauth': partnerRoutes,
  'partner-admin': partnerAdminRoutes,
  platform: platformRoutes,
  'platform-admin': platformAdminRoutes,
} as const;

/** Every document that the route tables make. */
const rendered: Readonly<Record<string, object>> = {
  ...Object.fromEntries(
    Object.entries(TABLES).map(([name, routes]) => [name, renderOpenApi(routes, info)]),
  ),
  'partner-key': partnerOpenApi('X-Biller-Key'),
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
  const config = join(root, 'test/redocly.yaml');
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [linter, 'lint', `--config=${config}`, '--format=json', file],
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

test('the linter of our API documents finds a fault if there is one', async () => {
  const broken = structuredClone(rendered['platform'] ?? {}) as { paths: Record<string, object> };
  broken.paths['/v1/sbi/token'] = { post: { responses: {} } };
  const findings = await lint({ broken });
  assert.ok(
    findings.some((finding) => finding.startsWith('broken: error ')),
    findings.join('\n'),
  );
});

test('a public linter has no finding in the API documents of either side', async () => {
  assert.deepEqual(await lint(rendered), []);
});

test('a public generator makes a program from each document, with every operation', async () => {
  for (const [name, routes] of Object.entries(TABLES)) {
    const spec = rendered[name];
    const options = { spec, fileName: 'client.ts', output: false, toJS: true, silent: true };
    const { files } = await generateApi(options);
    const program = files.find(({ fileExtension }) => fileExtension === '.js');
    assert.ok(program, name);
    assert.doesNotThrow(() => stripTypeScriptTypes(program.fileContent), name);
    for (const id of Object.keys(routes)) {
      const method = id.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
      assert.ok(program.fileContent.includes(`${method}:`), `${name}: ${method}`);
    }
  }
});
