/**
 * Visits in an engine whose browser may crash. A crash says nothing about the page, so the visit is made again in a new browser; a
 * defect of the page fails every visit.
 */
import assert from 'node:assert/strict';
import {
  MISSING,
  startEngine,
  type Engine,
  type EngineName,
  type Settings,
  type Tab,
} from './engines.ts';
import { DriverLost } from './webdriver.ts';

/** The last of these visits fails the test. */
const VISITS = 3;

/**
 * One engine for any number of visits, started at the first. `keepsTab`: the first tab of a visit that passed is the first of the next
 * one too, with whatever its site has stored. WebKit starts a browser for each tab, so this is much faster.
 */
export class Visitor {
  readonly #name: EngineName;
  readonly #keepsTab: boolean;
  readonly #settings: Settings;
  #engine: Engine | undefined;
  #kept: Tab | undefined;

  constructor(
    name: EngineName,
    { keepsTab = false, settings = {} }: { keepsTab?: boolean; settings?: Settings } = {},
  ) {
    this.#name = name;
    this.#keepsTab = keepsTab;
    this.#settings = settings;
  }

  /**
   * Makes a visit, VISITS times at most. Says so where the engine is not installed, and returns. `frameUrl`: how the address of the
   * payment page starts. `body` opens its tabs by `open`; `attempt` counts from 0, for what only one visit can use.
   */
  async visit(
    t: { diagnostic(sentence: string): void },
    frameUrl: string,
    body: (open: () => Promise<Tab>, attempt: number) => Promise<void>,
  ): Promise<void> {
    for (let attempt = 0; ; attempt += 1) {
      this.#engine ??= await startEngine(this.#name, this.#settings);
      const engine = this.#engine;
      if (engine === undefined) {
        assert.equal(attempt, 0, `${this.#name} does not start again`);
        t.diagnostic(MISSING[this.#name]);
        return;
      }
      const tabs: Tab[] = [];
      try {
        await body(async () => {
          const tab = this.#kept ?? (await engine.open(frameUrl));
          this.#kept = undefined;
          tabs.push(tab);
          return tab;
        }, attempt);
        if (this.#keepsTab) this.#kept = tabs.shift();
        return;
      } catch (error) {
        const isLost = error instanceof DriverLost || tabs.some((tab) => tab.lost());
        // WebKitGTK has no window manager here and now and then drops a key or the focus.
        if ((!isLost && this.#name !== 'webkit') || attempt + 1 === VISITS) throw error;
        t.diagnostic(`the visit is made again: ${String(error)}`);
      } finally {
        for (const tab of tabs) await tab.close().catch(() => {});
      }
      await this.stop();
    }
  }

  /** Stops the browser. Calling it again is harmless. */
  async stop(): Promise<void> {
    const engine = this.#engine;
    this.#engine = undefined;
    // WebKit's browser is the tab's own.
    await this.#kept?.close().catch(() => {});
    this.#kept = undefined;
    await engine?.stop().catch(() => {});
  }
}
