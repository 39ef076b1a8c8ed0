/**
 * Real processes, as in production, for tests that kill them: each is the command line in a Node process of its own, with its
 * settings in the environment and its log in a file.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '@duebridge/runtime/testing';
import { request } from 'undici';

const entryPoint = join(import.meta.dirname, '..', '..', 'bin', 'duebridge.ts');

/** A server process that can be killed and restarted at the same address. */
export class Server {
  readonly url: string;
  readonly #args: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #logFile: string;
  readonly #preload: string | undefined;
  readonly #readyPath: string;
  #child: ChildProcess | undefined;

  constructor(options: {
    args: readonly string[];
    port: number;
    env: Readonly<Record<string, string>>;
    logFile: string;
    /** What answers 200 once it is ready. */
    readyPath?: string;
    /** A module that is loaded before the program and receives the messages of `send`. */
    preload?: string;
  }) {
    this.url = `http://127.0.0.1:${options.port}`;
    this.#args = options.args;
    this.#env = { ...options.env, PORT: String(options.port) };
    this.#logFile = options.logFile;
    this.#preload = options.preload;
    this.#readyPath = options.readyPath ?? '/readyz';
  }

  /** Starts the process and resolves when it reports that it is ready. */
  async start(): Promise<void> {
    const log = openSync(this.#logFile, 'a');
    const preload = this.#preload === undefined ? [] : ['--import', this.#preload];
    const child = spawn(process.execPath, [...preload, entryPoint, ...this.#args], {
      env: {
        PATH: process.env['PATH'],
        NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
        ...this.#env,
      },
      stdio: ['ignore', log, log, ...(preload.length === 0 ? [] : (['ipc'] as const))],
    });
    closeSync(log);
    this.#child = child;
    await until(`${this.#args.join(' ')} is ready`, () => {
      if (child.exitCode !== null) {
        const said = readFileSync(this.#logFile, 'utf8').slice(-1_500);
        throw new Error(`${this.#args.join(' ')} ended with ${child.exitCode}: ${said}`);
      }
      return this.isReady();
    });
  }

  /** Whether it says that it is ready. */
  async isReady(): Promise<boolean> {
    try {
      const answer = await request(this.url + this.#readyPath, {
        signal: AbortSignal.timeout(2_000),
      });
      await answer.body.dump();
      return answer.statusCode === 200;
    } catch {
      return false;
    }
  }

  /** Whether the process runs or is stopped; false once it has ended. */
  get isAlive(): boolean {
    const child = this.#child;
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  /** Milliseconds of processor time that the process has taken. Only Linux tells. */
  get processorMs(): number {
    const stat = readFileSync(`/proc/${this.#child?.pid ?? ''}/stat`, 'utf8');
    // The 14th and 15th field, in hundredths of a second; the second may contain spaces.
    const [user, system] = stat.split(') ').at(-1)?.split(' ').slice(11, 13) ?? [];
    return 10 * (Number(user) + Number(system));
  }

  /** How the process ended, in words, for a message. */
  get ending(): string {
    const { exitCode = null, signalCode = null } = this.#child ?? {};
    return `${this.#args.join(' ')} ended with ${signalCode ?? exitCode ?? 'nothing yet'}, see ${this.#logFile}`;
  }

  /** Sends the process a signal without waiting; harmless when it has ended. */
  signal(signal: NodeJS.Signals): void {
    if (this.isAlive) this.#child?.kill(signal);
  }

  /** Sends a message to the preloaded module; harmless when the process has ended. */
  send(message: object): void {
    // The channel of a process that dies meanwhile fails; ignore that error.
    if (this.isAlive) this.#child?.send(message, () => undefined);
  }

  /** SIGKILL: the process ends without any cleanup. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** SIGTERM; returns the exit code. */
  async stop(): Promise<number | null> {
    return this.#end('SIGTERM');
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return null;
    const exit = once(child, 'exit');
    child.kill(signal);
    await exit;
    return child.exitCode;
  }
}

/** The processes that this one has started and that still run. Only Linux tells. */
export function childrenOf(pid: number): number[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      // "pid (name) state parent …"; the name may contain spaces.
      const [, parent] = /\) \S (\d+) /.exec(readFileSync(`/proc/${name}/stat`, 'utf8')) ?? [];
      return Number(parent) === pid ? [Number(name)] : [];
    } catch {
      return []; // It has ended meanwhile.
    }
  });
}

/** Sends a signal to a process, which may have ended. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
