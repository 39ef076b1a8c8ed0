/**
 * The script-tag build: `window.duebridge.createDuebridge(...)`. The platform's address is where the
 * script came from, so that a page need not say it twice.
 */
import { createDuebridge, DuebridgeError } from './index.ts';
import type { Duebridge, DuebridgeOptions } from './types.ts';

declare global {
  interface Window {
    duebridge: {
      createDuebridge: (options: DuebridgeOptions) => Duebridge;
      DuebridgeError: typeof DuebridgeError;
    };
  }
}

const script = document.currentScript;
const frameOrigin =
  script instanceof HTMLScriptElement && script.src ? new URL(script.src).origin : undefined;

window.duebridge = {
  createDuebridge: (options) =>
    createDuebridge({ ...options, frameOrigin: options.frameOrigin ?? frameOrigin }),
  DuebridgeError,
};
