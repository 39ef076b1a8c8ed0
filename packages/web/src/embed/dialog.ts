/** `modal`: a native dialog over the site, shown as a bottom sheet on phones. */
import type { Mounting } from './mounting.ts';

/** Below this width the dialog is a sheet of the same height on all screens. */
const SHEET = '(max-width:600px)';

export interface Dialog {
  readonly element: HTMLDialogElement;
  /** The dialog has a fixed height and does not follow that of the page. */
  readonly isSheet: boolean;
}

/** Shows the frame in a dialog until the mount ends. `close`: the customer asks to close; `closed`: the browser has closed it. */
export function showDialog(
  frame: HTMLElement,
  listen: Mounting['listen'],
  on: { readonly close: () => void; readonly closed: () => void; readonly waits: () => boolean },
): Dialog {
  const { style: page } = document.documentElement;
  const { overflow } = page;
  const isSheet = matchMedia(SHEET).matches;
  const element = document.createElement('dialog');
  element.ariaLabel = frame.title;
  element.style.cssText =
    'border:0;padding:0;margin:0;width:100%;height:100%;max-width:100%;max-height:100%;display:flex;background:#0000008c;outline:0';
  frame.style.cssText += isSheet
    ? ';margin:auto 0 0;height:92%;border-radius:16px 16px 0 0'
    : ';margin:auto;max-width:30rem;max-height:100%;border-radius:16px';
  element.addEventListener('cancel', (event) => {
    event.preventDefault();
    on.close();
  });
  // Browsers close a dialog on a second Escape in any case; a confirmed payment continues.
  element.addEventListener('close', on.closed, listen);
  element.addEventListener('click', () => on.waits() && on.close());
  element.append(frame);
  document.body.append(element);
  page.overflow = 'hidden';
  // A phone's keyboard covers the lower part of the window, which stays as tall: the dialog takes what is left. Zooming alone does
  // not change the product.
  const seen = visualViewport;
  seen?.addEventListener(
    'resize',
    () => (element.style.height = `${seen.height * seen.scale}px`),
    listen,
  );
  element.showModal();
  // An empty frame would swallow Escape, so the dialog itself has the focus until the page is shown.
  element.tabIndex = -1;
  element.focus();
  listen.signal.addEventListener('abort', () => {
    element.close();
    page.overflow = overflow;
    element.remove();
  });
  return { element, isSheet };
}
