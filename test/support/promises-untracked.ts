/**
 * Loaded into the process of each test file by `npm test`: keeps the test runner from following every promise. It does so with an
 * asynchronous hook, to tell which test an uncaught error belongs to, and files that await all the time spent a fifth of their
 * processor time in it.
 *
 * Timers, sockets and other resources are still followed: an error thrown there fails its test. A rejection that nobody handles fails
 * its file instead, with the error in the output; `node --test FILE` names the test.
 */
import asyncHooks from 'node:async_hooks';

const { createHook } = asyncHooks;

// The runner makes its hook with the function that is there when `node:test` is loaded.
Object.assign(asyncHooks, {
  createHook: (callbacks: asyncHooks.HookCallbacks) =>
    createHook(Object.assign(callbacks, { trackPromises: false })),
});
await import('node:test');
Object.assign(asyncHooks, { createHook });
