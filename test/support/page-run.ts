/**
 * Runs the commands of a page on this machine: servers as separate processes, on free ports and on databases of a test server, in a
 * temporary folder. Addresses of the page are translated to those of the run, and back in what is printed.
 */
import assert from 'node:assert/strict';
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { ensureDatabase, openDatabase } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { shellWords } from './curl.ts';
import type { Runner } from './runnable-page.ts';

const root = join(import.meta.dirname, '../..');

/** The addresses at which a page says that nobody listens, and a reserved port where nobody does. */
const NOBODY = [4999, 1] as const;

/** Time limit for a server to answer. */
const START_MS = 30_000;
/** Time limit for a server to stop before it is killed; its own limit is ten seconds. */
const STOP_MS = 15_000;

/** A runner, with a function that stops everything it started. */
export interface PageRun extends Runner {
  close(): Promise<void>;
}

/** Prepares a run; nothing starts before the page says so. */
export async function openPageRun(): Promise<PageRun> {
  const postgres = await testServer();
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-page-'));
  /** Ports as written in the page, and as used in this run; known once a server has logged where it listens. */
  const ports = new Map<number, number>([NOBODY]);
  const variables = new Map<string, string>();
  const children: ChildProcess[] = [];
  const databases: string[] = [];

  const start = async (script: string): Promise<void> => {
    const words = shellWords(script, variables);
    const command = words.findIndex((word) => !/^\w+=/.test(word));
    assert.deepEqual(words.slice(command, command + 2), ['npx', 'duebridge'], script);
    const args = words.slice(command + 2);
    const given = Object.fromEntries(words.slice(0, command).map(assignment));
    const name = `page_${randomBytes(6).toString('hex')}`;
    const databaseUrl = await ensureDatabase(postgres.url, name);
    databases.push(name);
    const isPlatform = args[0] === 'platform';
    const child = spawn(process.execPath, [join(root, 'bin/duebridge.ts'), ...args], {
      cwd: folder,
      env: {
        PATH: process.env['PATH'],
        NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
        DATABASE_URL: databaseUrl,
        ...(isPlatform ? { DUEBRIDGE_SEAL_KEY: key(), DUEBRIDGE_KEY_PEPPER: key() } : {}),
        ...given,
        PORT: '0',
        ADMIN_PORT: '0',
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    children.push(child);
    const { url, adminUrl } = await addresses(child);
    ports.set(Number(given['PORT'] ?? (isPlatform ? 4000 : 4100)), Number(new URL(url).port));
    ports.set(
      Number(given['ADMIN_PORT'] ?? (isPlatform ? 4001 : 4101)),
      Number(new URL(adminUrl).port),
    );
  };

  const outward = (text: string): string =>
    text.replaceAll(/127\.0\.0\.1:(\d+)/g, (_, at: string) => {
      const port = ports.get(Number(at));
      assert(port !== undefined, `the page started no server at port ${at}`);
      return `127.0.0.1:${port}`;
    });

  return {
    variables,
    outward,
    homeward: (text) =>
      text.replaceAll(/127\.0\.0\.1:(\d+)/g, (whole, at: string) => {
        const known = [...ports].find(([, port]) => String(port) === at);
        return known === undefined ? whole : `127.0.0.1:${known[0]}`;
      }),
    readFile: (name) => readFileSync(join(folder, name), 'utf8'),
    async command(script) {
      if (script.endsWith('&')) {
        await start(script.slice(0, -1));
        return '';
      }
      const lines = script.split('\n');
      if (lines.every((line) => /^\w+=\S*$/.test(line))) {
        for (const line of lines) {
          const [name, value] = assignment(shellWords(line, variables)[0] ?? '');
          variables.set(name, value);
        }
        return '';
      }
      const { stdout } = await promisify(execFile)('sh', ['-c', script], {
        cwd: folder,
        timeout: START_MS,
      });
      return stdout;
    },
    async close() {
      await Promise.all(children.map(end));
      const admin = openDatabase({
        url: postgres.url,
        applicationName: 'page-run',
        maxConnections: 1,
      });
      for (const name of databases) await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
      await admin.close();
      await postgres.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function assignment(word: string): [name: string, value: string] {
  const equals = word.indexOf('=');
  return [word.slice(0, equals), word.slice(equals + 1)];
}

function key(): string {
  return randomBytes(32).toString('base64');
}

/** The address of a server, taken from its log. Fails when it ends, or logs nothing for too long. */
async function addresses(child: ChildProcess): Promise<{ url: string; adminUrl: string }> {
  assert(child.stderr);
  const lines = createInterface({ input: child.stderr });
  const late = setTimeout(() => {
    child.kill('SIGKILL');
    // A program that it has started may hold the pipe open.
    lines.close();
  }, START_MS);
  let log = '';
  try {
    for await (const line of lines) {
      log += `${line}\n`;
      if (!line.startsWith('{')) continue;
      const { url, adminUrl, admin_url } = JSON.parse(line) as Record<string, unknown>;
      const admin = adminUrl ?? admin_url;
      if (typeof url === 'string' && typeof admin === 'string') return { url, adminUrl: admin };
    }
  } finally {
    clearTimeout(late);
    // Keep reading, or the server blocks on a full pipe.
    child.stderr.resume();
  }
  return assert.fail(`a server of the page did not start: ${log}`);
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => {
    child.once('exit', resolve);
  });
  child.kill('SIGTERM');
  const cut = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  await ended;
  clearTimeout(cut);
}
