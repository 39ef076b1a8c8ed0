/**
 * A stranger's project: an empty folder outside the workspace, our packages from tarballs, other people's from npm's cache or the
 * registry, and programs started there. Nothing of the workspace can be found from it by accident.
 */
import assert from 'node:assert/strict';
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { freePort, until } from '@duebridge/runtime/testing';
import { buildPackages, pack } from '../../scripts/build.ts';

const execute = promisify(execFile);

/** Tests clean up through this: the context of node:test, or its module for a whole file. */
export interface Cleanup {
  after(hook: () => Promise<void>): unknown;
}

/** A new folder outside the workspace, removed at the end. */
export async function emptyFolder(cleanup: Cleanup, name: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), `duebridge-${name}-`));
  cleanup.after(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
  return folder;
}

/** A fenced block of a page: `sh` commands, or a program whose file name stands after the language. */
export interface Block {
  readonly language: string;
  readonly file: string | undefined;
  readonly text: string;
}

/** The part of a built package.json that is read here. */
export interface BuiltManifest {
  readonly name: string;
  readonly version: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>;
}

/** A package as the registry would have it. */
export interface PackedPackage {
  readonly manifest: BuiltManifest;
  readonly folder: string;
  readonly tarball: string;
}

export type Packed = ReadonlyMap<string, PackedPackage>;

/** Builds and packs every package into `folder`; the browser files are those that the install built. */
export async function packAll(folder: string): Promise<Packed> {
  const staged = await buildPackages(join(folder, 'packages'), { web: false });
  const tarballs = await pack(staged, join(folder, 'tarballs'));
  return new Map(
    staged.map((path, index) => {
      const text = readFileSync(join(path, 'package.json'), 'utf8');
      const manifest = JSON.parse(text) as BuiltManifest;
      return [manifest.name, { manifest, folder: path, tarball: tarballs[index] ?? '' }];
    }),
  );
}

const own = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8'),
) as Record<'dependencies' | 'devDependencies', Record<string, string>>;

/** The versions of other people's packages that are installed where a page names none, so that a release of theirs breaks no test. */
const TRIED: Readonly<Record<string, string>> = {
  ...own.dependencies,
  ...own.devDependencies,
  express: '5.3.0',
  koa: '3.3.0',
  hono: '4.13.19',
  '@hono/node-server': '2.1.9',
};

/** How npm installs: from its cache where it can, and without what is only said to people. */
const QUIETLY = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];

/** What `npm install` leaves in a project. */
const INSTALLED = ['node_modules', 'package.json', 'package-lock.json'];

/** Copies of what the first install of an empty project made, by its words: npm takes ten seconds of a processor for it, a copy one. */
const firstInstalls = new Map<string, Promise<string>>();

/** Settings of a project. */
export interface ConsumerOptions {
  readonly packed: Packed;
  readonly name: string;
  /** The Node that runs its programs; default: the one of the tests. */
  readonly node?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

/** A stranger's project. */
export class Consumer {
  readonly folder: string;
  readonly #packed: Packed;
  /** The environment of its programs. */
  readonly environment: NodeJS.ProcessEnv;

  /** A project in a folder that is there. */
  constructor(folder: string, options: Omit<ConsumerOptions, 'name'>) {
    this.folder = folder;
    this.#packed = options.packed;
    this.environment = {
      ...strangersEnvironment(options.node ?? process.execPath),
      ...options.environment,
    };
  }

  /** A project in a new, empty folder. */
  static async create(cleanup: Cleanup, options: ConsumerOptions): Promise<Consumer> {
    return new Consumer(await emptyFolder(cleanup, options.name), options);
  }

  /** Writes a file of the project. */
  async write(name: string, text: string): Promise<void> {
    const path = join(this.folder, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }

  /**
   * `npm install` of packages as a page names them: `@duebridge/partner`, `fastify@5.12.8`, `--save-dev`. Ours come from tarballs,
   * with those of ours that they need, as the registry would give them.
   */
  async install(...wanted: readonly string[]): Promise<void> {
    const ours = new Set<string>();
    const add = (name: string): void => {
      const found = this.#packed.get(name);
      if (found === undefined || ours.has(found.tarball)) return;
      ours.add(found.tarball);
      for (const needed of Object.keys(found.manifest.dependencies ?? {})) add(needed);
    };
    wanted.forEach(add);
    const others = wanted
      .filter((name) => !this.#packed.has(name))
      .map((name) => (name in TRIED ? `${name}@${TRIED[name] ?? ''}` : name));
    const words = ['install', ...QUIETLY, ...ours, ...others];
    const isEmpty = !existsSync(join(this.folder, 'node_modules'));
    // What npm makes of the same words in another empty project of the same file is the same.
    const known = isEmpty ? firstInstalls.get(words.join(' ')) : undefined;
    if (known !== undefined) {
      const kept = await known;
      await execute('cp', ['-a', ...INSTALLED.map((name) => join(kept, name)), this.folder]);
    } else if (isEmpty) {
      const kept = this.run('npm', words).then(async () => {
        const folder = await mkdtemp(join(dirname([...ours][0] ?? this.folder), 'installed-'));
        await execute('cp', ['-a', ...INSTALLED.map((name) => join(this.folder, name)), folder]);
        return folder;
      });
      firstInstalls.set(words.join(' '), kept);
      await kept;
    } else await this.run('npm', words);
  }

  /** Runs a program in the project to its end; gives what it printed. Fails the test unless it exits with `exitCode`. */
  async run(
    program: string,
    args: readonly string[],
    { exitCode = 0, env = {} }: { exitCode?: number; env?: Readonly<Record<string, string>> } = {},
  ): Promise<string> {
    const { stdout, stderr, code } = await this.outcome(program, args, env);
    assert.equal(code, exitCode, `${program} ${args.join(' ')}\n${stdout}\n${stderr}`);
    return stdout;
  }

  /** Runs a program in the project to its end, whatever it is; gives its exit code and what it printed. */
  async outcome(
    program: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ): Promise<{ stdout: string; stderr: string; code: number }> {
    const options = {
      cwd: this.folder,
      env: { ...this.environment, ...env },
      maxBuffer: 16 * 1024 * 1024,
    };
    return execute(program, [...args], options).then(
      (output) => ({ ...output, code: 0 }),
      (error: { stdout: string; stderr: string; code: number }) => error,
    );
  }

  /**
   * Starts a server of the project and resolves when it listens on the port. It is stopped at the end of the test, or by `terminate`,
   * which sends SIGTERM to the program that was started (npm, perhaps) and to nothing below it, and waits until nobody listens.
   */
  async serve(
    cleanup: Cleanup,
    command: string,
    port: number,
    env: Readonly<Record<string, string>> = {},
  ): Promise<{ terminate(): Promise<void> }> {
    const child = spawn('bash', ['-c', command], {
      cwd: this.folder,
      env: { ...this.environment, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own, so that a signal reaches what npm or npx started in between.
      detached: true,
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => (output += text));
    }
    cleanup.after(() => stop(child));
    const listening = (): string => `${command} listens on ${port}:\n${output}`;
    await until(listening, () => {
      assert.equal(child.exitCode, null, `${command} has ended:\n${output}`);
      return listens(port);
    });
    return {
      async terminate() {
        child.kill('SIGTERM');
        await until(`SIGTERM ends what ${command} started`, async () => !(await listens(port)));
      },
    };
  }

  /**
   * Carries out blocks of the quickstart: writes its programs, installs, starts what ends with `&` and waits until it listens. Its ports
   * become ours: 4100, the partner server's, is PORT. Gives what the last command printed; fails the test when one fails.
   */
  async follow(cleanup: Cleanup, blocks: readonly Block[]): Promise<string> {
    const ports = { '4300': String(await freePort()), '4100': this.environment['PORT'] ?? '' };
    const inOurs = (text: string): string =>
      text.replaceAll('4300', ports['4300']).replaceAll('4100', ports['4100']);
    // A service beside the kit starts before it.
    const starting = blocks.some(({ text }) => text.includes('4300')) ? [ports['4300']] : [];
    starting.push(ports['4100']);
    const env: Record<string, string> = {};
    let output = '';
    for (const { language, file, text } of blocks) {
      if (file !== undefined) await this.write(file, inOurs(text));
      if (language !== 'sh') continue;
      const commands = inOurs(text)
        .replaceAll(/\\\n\s*/g, '')
        .split('\n');
      for (const command of commands.filter((line) => line !== '' && !line.startsWith('#'))) {
        const [, name, value = ''] = /^export ([A-Z_]+)='?([^'\s]+)'?$/.exec(command) ?? [];
        if (name !== undefined) env[name] = value;
        else if (command.startsWith('npm install ')) {
          await this.install(...command.split(/\s+/).slice(2));
        } else if (command.endsWith(' &')) {
          const port = Number(starting.shift());
          await this.serve(cleanup, `exec ${command.slice(0, -2)}`, port, env);
        } else output = await this.run('bash', ['-c', command], { env });
      }
    }
    return output;
  }
}

/** What a stranger's shell would have: no setting of the npm run around us, no program of the workspace. */
function strangersEnvironment(node: string): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) =>
      !/^(npm_(package|lifecycle)_|npm_config_local_prefix|INIT_CWD|NODE_(OPTIONS|TEST_CONTEXT)|DUEBRIDGE_)/.test(
        name,
      ),
  );
  const path = (process.env['PATH'] ?? '')
    .split(delimiter)
    .filter((folder) => !folder.endsWith(join('node_modules', '.bin')));
  return { ...Object.fromEntries(kept), PATH: [dirname(node), ...path].join(delimiter) };
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const ended = once(child, 'exit');
  process.kill(-child.pid, 'SIGTERM');
  await ended;
}

/** Whether somebody listens at a port of this machine. */
export function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port });
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
}
