/**
 * What the browser tests share: a build, one browser and one scripted platform a file.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach } from 'node:test';
import { PATIENCE_MS } from '@duebridge/runtime/testing';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import type { DuebridgeOptions, FrameDouble } from '../../packages/web/src/embed/types.ts';
import { buildWeb, release } from '../../packages/web/build.ts';
import { around } from '../support/around.ts';
import { launchChromium } from './chromium.ts';
import type { EngineName } from './engines.ts';
import { startScriptedFlow, type ScriptedFlow } from './scripted-flow.ts';

/** An event as the site heard it, in order. */
export interface Heard {
  readonly event: string;
  readonly value: unknown;
}

export type SiteOptions = Omit<Partial<DuebridgeOptions>, 'fetchToken' | 'frame' | 'signal'> & {
  frame?: FrameDouble;
};

/** The browser files of real releases; absent until the first. */
const RELEASED = join(import.meta.dirname, '../../packages/web/released');

export type Rig = ReturnType<typeof useRig>;

/**
 * Call once a test file. `withRelease`: the build keeps the files of a release before it; before the first, of one made up.
 * `withChromium: false`: for a file that only drives engines (site-visit.ts), which start by themselves; then there is no `page`.
 */
export function useRig({ withRelease = false, withChromium = true } = {}) {
  let flow: ScriptedFlow;
  const flows = new Map<EngineName, Promise<ScriptedFlow>>();
  let browser: Browser;
  let folder: string;
  let dist: string;
  const open = async (): Promise<void> => {
    folder = mkdtempSync(join(tmpdir(), 'duebridge-web-'));
    dist = join(folder, 'dist');
    const build = async (): Promise<void> => {
      let released = RELEASED;
      if (withRelease && !existsSync(RELEASED)) {
        released = join(folder, 'released');
        await release({ dist: join(folder, 'before'), released, as: '0.0.1' });
      }
      await buildWeb(dist, released);
    };
    const [launched, built] = await Promise.allSettled([
      withChromium ? launchChromium() : undefined,
      build(),
    ]);
    // Kept even when the build failed: a browser that nobody closes would keep the test file running.
    if (launched.status === 'fulfilled' && launched.value) browser = launched.value;
    for (const step of [launched, built]) if (step.status === 'rejected') throw step.reason;
    flow = await startScriptedFlow(dist);
  };
  // A test that failed leaves its pages open, and those would go on asking.
  afterEach(async () => {
    for (const context of browser?.contexts() ?? []) await context.close();
  });
  around(open, async () => {
    await browser?.close();
    await flow?.stop();
    for (const one of flows.values()) await (await one).stop();
    rmSync(folder, { recursive: true, force: true });
  });
  return {
    get flow(): ScriptedFlow {
      return flow;
    },
    /** A scripted platform for one engine alone, started when it is first asked for. */
    flowIn(name: EngineName): Promise<ScriptedFlow> {
      const started = flows.get(name) ?? startScriptedFlow(dist);
      flows.set(name, started);
      return started;
    },
    /** A page of Chromium with storage of its own. */
    async page(options: BrowserContextOptions = {}): Promise<Page> {
      const page = await (await browser.newContext(options)).newPage();
      page.setDefaultTimeout(PATIENCE_MS);
      await page.addInitScript(morePatience);
      return page;
    },
    /** What the build made for these tests. */
    get dist(): string {
      return dist;
    },
  };
}

/** Runs in a site that loads the SDK by its script tag: the SDK's own patience is a customer's, not a busy machine's. */
function morePatience(): void {
  let loaded: { createDuebridge(options: object): object };
  Object.defineProperty(window, 'duebridge', {
    get: () => loaded,
    set(sdk: typeof loaded) {
      const createDuebridge = (options: object): object =>
        sdk.createDuebridge({ loadTimeoutMs: 120_000, ...options });
      loaded = { ...sdk, createDuebridge };
    },
  });
}

/** The values of one kind of event. */
export function values(heard: readonly Heard[], event: string): unknown[] {
  return heard.filter((one) => one.event === event).map((one) => one.value);
}

/** A gate that holds whoever awaits it until it is opened. */
export function gate(): { readonly held: Promise<undefined>; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  return { held: promise, open: () => resolve(undefined) };
}

/** Waits until a condition of the test's own process holds; for what no page shows. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const begun = Date.now();
  while (!(await holds())) {
    const waited = Date.now() - begun;
    assert.ok(waited < PATIENCE_MS, `never came true: ${holds.toString()}`);
    // Each question costs the browser a message between its processes: what takes long is asked less often.
    await new Promise((resolve) => setTimeout(resolve, Math.min(20 + waited / 4, 120)));
  }
}
