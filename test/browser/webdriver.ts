/**
 * The few WebDriver commands that the tests need, over HTTP as the W3C's "WebDriver" names them. Why not a client library: each
 * command needs a limit of its own, and a driver that falls silent has to be killed with all of its browser's processes. One
 * driver process serves one session, so nothing that one visit broke is left for the next.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { freePort } from '@duebridge/runtime/testing';
import { spawnWithUs } from './with-us.ts';

/** The driver, or the browser behind it, no longer answers: nothing that the page under test did. */
export class DriverLost extends Error {}

/** The name under which WebDriver's answers hold an element. */
const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

/** What a driver answers when its browser has crashed. */
const LOST: readonly string[] = ['invalid session id', 'session not created', 'unknown error'];

/** Loads end within `patienceMs` by themselves, so a command that takes this much longer will not come back. */
const GRACE_MS = 10_000;
const START_MS = 20_000;

export interface DriverOptions {
  readonly program: string;
  readonly environment: NodeJS.ProcessEnv;
  /** What `POST /session` asks for. */
  readonly capabilities: object;
  readonly patienceMs: number;
}

export class WebDriverSession {
  /** True once a command was not answered; every later command fails at once. */
  lost = false;
  /** What the driver said of its browser. */
  browserVersion = '';
  readonly #driver: ChildProcess;
  readonly #url: string;
  readonly #patienceMs: number;
  #id = '';

  private constructor(driver: ChildProcess, url: string, patienceMs: number) {
    this.#driver = driver;
    this.#url = url;
    this.#patienceMs = patienceMs;
  }

  /** Starts a driver and its browser. Rejects with DriverLost when the session does not begin. */
  static async start(options: DriverOptions): Promise<WebDriverSession> {
    const port = await freePort();
    // The driver's browser and the browser's helpers are of its process group, and end with it.
    const driver = spawnWithUs(
      options.program,
      [`--port=${port}`, '--host=127.0.0.1'],
      options.environment,
    );
    driver.on('error', () => {});
    const url = `http://127.0.0.1:${port}`;
    const session = new WebDriverSession(driver, url, options.patienceMs);
    try {
      await session.#listening();
      const made = await session.#send<{
        sessionId: string;
        capabilities: { browserVersion?: string };
      }>('POST', '/session', { capabilities: { alwaysMatch: options.capabilities } });
      session.#id = made.sessionId;
      session.browserVersion = made.capabilities.browserVersion ?? '';
      // No limit of the driver's own for scripts: WebKit's is a timer of the page, and ends a script when a test moves the page's time.
      const pageLoad = options.patienceMs;
      await session.command('POST', '/timeouts', { script: null, pageLoad });
      return session;
    } catch (error) {
      await session.end();
      throw error instanceof DriverLost ? error : new DriverLost(String(error));
    }
  }

  /** Sends a command of this session. Rejects with the driver's error, or with DriverLost. */
  command<T = null>(method: 'GET' | 'POST' | 'DELETE', path: string, body?: object): Promise<T> {
    return this.#send(method, `/session/${this.#id}${path}`, body);
  }

  /** The first elements of a CSS selector, as WebDriver's references. */
  async elements(selector: string): Promise<readonly object[]> {
    return this.command('POST', '/elements', { using: 'css selector', value: selector });
  }

  async click(element: object): Promise<void> {
    const id = (element as Record<string, string>)[ELEMENT] ?? '';
    await this.command('POST', `/element/${id}/click`, {});
  }

  /** Presses the mouse at a point of the window, `times` times without a pause. */
  async clickAt(x: number, y: number, times: number): Promise<void> {
    const press = [
      { type: 'pointerDown', button: 0 },
      { type: 'pointerUp', button: 0 },
    ];
    const actions = [
      { type: 'pointerMove', x, y },
      ...Array.from({ length: times }, () => press).flat(),
    ];
    const mouse = { type: 'pointer', id: 'mouse', parameters: { pointerType: 'mouse' }, actions };
    await this.command('POST', '/actions', { actions: [mouse] });
  }

  /** Presses and releases each key in turn. */
  async keys(keys: readonly string[]): Promise<void> {
    const actions = keys.flatMap((value) => [
      { type: 'keyDown', value },
      { type: 'keyUp', value },
    ]);
    await this.command('POST', '/actions', { actions: [{ type: 'key', id: 'keyboard', actions }] });
  }

  /** Ends the browser, politely if it answers, and the driver. Never rejects. */
  async end(): Promise<void> {
    if (!this.lost && this.#id !== '') await this.command('DELETE', '').catch(() => {});
    this.lost = true;
    const { pid } = this.#driver;
    if (pid === undefined) return;
    try {
      process.kill(-pid, 'SIGKILL');
    } catch {
      // The group has ended already.
    }
    if (this.#driver.exitCode === null && this.#driver.signalCode === null) {
      await once(this.#driver, 'exit');
    }
  }

  async #listening(): Promise<void> {
    const end = Date.now() + START_MS;
    for (;;) {
      const answer = await fetch(`${this.#url}/status`, {
        signal: AbortSignal.timeout(2_000),
      }).catch(() => undefined);
      await answer?.arrayBuffer();
      if (answer?.ok === true) return;
      if (Date.now() > end) throw new DriverLost('the driver does not start');
      await new Promise((resolve) => {
        setTimeout(resolve, 20);
      });
    }
  }

  async #send<T>(method: string, path: string, body?: object): Promise<T> {
    if (this.lost) throw new DriverLost(`${method} ${path}: the driver is gone`);
    let value: unknown;
    try {
      const answer = await fetch(`${this.#url}${path}`, {
        method,
        signal: AbortSignal.timeout(this.#patienceMs + GRACE_MS),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        headers: { 'content-type': 'application/json', connection: 'close' },
      });
      ({ value } = (await answer.json()) as { value: unknown });
      if (answer.ok) return value as T;
    } catch (error) {
      this.lost = true;
      throw new DriverLost(`${method} ${path}: ${String(error)}`, { cause: error });
    }
    const { error, message } = value as { error: string; message: string };
    if (LOST.includes(error)) {
      this.lost = true;
      throw new DriverLost(`${method} ${path}: ${error}`);
    }
    throw new Error(`${method} ${path}: ${error}: ${message}`);
  }
}
