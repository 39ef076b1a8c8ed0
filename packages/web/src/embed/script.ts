/** The script-tag build: `window.duebridge.createDuebridge(...)`. The platform's address defaults to the script's origin. */
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

const src = (document.currentScript as HTMLScriptElement | null)?.src;

window.duebridge = {
  createDuebridge: (options) =>
    createDuebridge({ ...options, frameOrigin: options.frameOrigin ?? src }),
  DuebridgeError,
};
