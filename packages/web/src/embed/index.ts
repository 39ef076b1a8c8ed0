/**
 * The embedded SDK: creates an instance and mounts it, as a frame in the page or in a dialog over it (frame.ts), or in the whole tab
 * (redirect.ts).
 * States: idle -> loading (frame created) -> connected (the page is verified and has its port) -> ready (first screen shown) ->
 * exited. Importing has no side effect, on a server too; mount() is the first access to the document. It sets styles through the
 * CSSOM only and creates no script, so a site's Content-Security-Policy needs `frame-src <platform>` (for a redirect `form-action`)
 * and nothing else, even with Trusted Types.
 */
import { loadFrame } from './frame.ts';
import { beginMount, failure, findPlace, share, wrongConfig } from './mounting.ts';
import { leaveSite } from './redirect.ts';
import { DuebridgeError, type Duebridge, type DuebridgeOptions } from './types.ts';

export { DuebridgeError };
export type * from './types.ts';

/**
 * Creates an instance; shows nothing yet. Throws DuebridgeError `config_invalid` for options that cannot work, on the server as
 * in the browser.
 */
export function createDuebridge(options: DuebridgeOptions): Duebridge {
  const shared = share(options);
  const { signal } = options;
  const instance: Duebridge = {
    async mount(target) {
      if (shared.state === 'destroyed') throw failure('destroyed', 'make a new one');
      if (shared.origin === location.origin && !shared.frame)
        throw wrongConfig('frameOrigin is yours');
      if (shared.leave) throw wrongConfig('is mounted');
      const by = beginMount(
        shared,
        shared.display === 'inline' ? findPlace(target) : document.body,
      );
      if (shared.display === 'redirect') void leaveSite(shared, by);
      else loadFrame(shared, by);
      return by.done;
    },
    update(change) {
      shared.locale = change.locale ?? shared.locale;
      shared.appearance = change.appearance ?? shared.appearance;
      shared.post?.({ type: 'update', ...change });
    },
    focus: () => shared.focus?.(),
    unmount: () => shared.leave?.('idle'),
    destroy() {
      shared.leave?.('destroyed');
      shared.state = 'destroyed';
      shared.bus = new EventTarget();
    },
    on(event, listener) {
      const heard = (news: Event): void =>
        listener((news as CustomEvent<Parameters<typeof listener>[0]>).detail);
      shared.bus.addEventListener(event, heard);
      return () => shared.bus.removeEventListener(event, heard);
    },
    get state() {
      return shared.state;
    },
  };
  if (signal?.aborted) instance.destroy();
  signal?.addEventListener('abort', () => instance.destroy());
  return instance;
}
