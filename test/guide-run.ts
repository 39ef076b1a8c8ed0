/**
 * Carries out the guide's commands on this machine: servers as processes of their own, on free ports and on databases of a test
 * server, in a folder of their own. The guide's addresses are turned into those, and back in what comes out.
 */
import assert from 'node:assert/strict';
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ensureDatabase, openDatabase } from '@duebridge/runtime';
import { freePort, testServer } from '@duebridge/runtime/testing';
import { shellWords } from './curl.ts';
import type { Runner } from './guide.ts';

const root = join(import.meta.dirname, '..');

/** Ports as the guide writes them. The last has nobody behind it. */
const GUIDE_PORTS = [4000, 4001, 4100, 4101, 4110, 4111, 4999];

/** A server that has not answered by then will not. */
const START_MS = 30_000;
/** A server that has not stopped by then is cut; its own limit is ten seconds. */
const STOP_MS = 15_000;

/** A runner, and the end of everything it started. */
export interface GuideRun extends Runner {
  close(): Promise<void>;
}

/** Prepares a run; nothing is started before the guide says so. */
export async function openGuideRun(): Promise<GuideRun> {
  const postgres = await testServer();
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-guide-'));
  const ports = new Map<number, number>();
  for (const port of GUIDE_PORTS) ports.set(port, await freePort());
  const variables = new Map<string, string>();
  const children: ChildProcess[] = [];
  const databases: string[] = [];

  const port = (text: string | undefined, otherwise: number): string =>
    String(ports.get(Number(text ?? otherwise)) ?? assert.fail(`the guide has no port ${text}`));

  const start = async (script: string): Promise<void> => {
    const words = shellWords(script, variables).map(outward);
    const command = words.findIndex((word) => !/^\w+=/.test(word));
    assert.deepEqual(words.slice(command, command + 2), ['npx', 'duebridge'], script);
    const args = words.slice(command + 2);
    const given = Object.fromEntries(words.slice(0, command).map(assignment));
    const name = `guide_${randomBytes(6).toString('hex')}`;
    const databaseUrl = await ensureDatabase(postgres.url, name);
    databases.push(name);
    const isPlatform = args[0] === 'platform';
    const environment = {
      PATH: process.env['PATH'],
      LOG_LEVEL: 'warn',
      DATABASE_URL: databaseUrl,
      ...(isPlatform ? { DUEBRIDGE_SEAL_KEY: key(), DUEBRIDGE_KEY_PEPPER: key() } : {}),
      ...given,
      PORT: port(given['PORT'], isPlatform ? 4000 : 4100),
      ADMIN_PORT: port(given['ADMIN_PORT'], isPlatform ? 4001 : 4101),
    };
    const child = spawn(process.execPath, [join(root, 'bin/duebridge.ts'), ...args], {
      cwd: folder,
      env: environment,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    children.push(child);
    let log = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      log = (log + text).slice(-4_000);
    });
    await Promise.all(
      [environment.PORT, environment.ADMIN_PORT].map((at) =>
        answers(`http://127.0.0.1:${at}/healthz`, () => {
          assert.equal(child.exitCode, null, `${args.join(' ')} ended: ${log}`);
        }),
      ),
    );
  };

  const outward = (text: string): string =>
    text.replaceAll(/127\.0\.0\.1:(\d+)/g, (_, at: string) => `127.0.0.1:${port(at, 0)}`);
  const home = new Map([...ports].map(([guide, real]) => [String(real), guide]));

  return {
    variables,
    outward,
    homeward: (text) =>
      text.replaceAll(/127\.0\.0\.1:(\d+)/g, (whole, at: string) => {
        const guide = home.get(at);
        return guide === undefined ? whole : `127.0.0.1:${guide}`;
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
      const { stdout } = await promisify(execFile)('sh', ['-c', script], { cwd: folder });
      return stdout;
    },
    async close() {
      await Promise.all(children.map(end));
      const admin = openDatabase({
        url: postgres.url,
        applicationName: 'guide',
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

async function answers(url: string, check: () => void): Promise<void> {
  const until = performance.now() + START_MS;
  for (;;) {
    check();
    const isUp = await fetch(url).then(
      (answer) => answer.ok,
      () => false,
    );
    if (isUp) return;
    assert.ok(performance.now() < until, `${url} does not answer`);
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
  }
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
