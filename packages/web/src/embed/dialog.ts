/** `modal`: a native dialog over the site, shown as a bottom sheet on phones. */
import type { Mounting } from './mounting.ts';

/**
 * Opens a dialog around the frame, for as long as the mount lasts. `isSheet`: the frame has the same height on all screens. `close`: the
 * customer asks to close, or the browser has closed it (`gone`).
 */
export function openDialog(
  frame: HTMLElement,
  { listen, place }: Mounting,
  isSheet: boolean,
  close: (gone?: boolean) => void,
  waits: () => boolean,
): void {
  const { style: page } = document.documentElement;
  const { overflow } = page;
  const element = document.createElement('dialog');
  const { style } = element;
  element.ariaLabel = frame.title;
  style.cssText = 'all:unset;position:fixed;inset:0;display:flex;background:#0008';
  frame.style.cssText += isSheet
    ? ';margin:auto 0 0;height:92%;border-radius:16px 16px 0 0'
    : ';margin:auto;max-width:30rem;max-height:100%;border-radius:16px';
  element.addEventListener('cancel', (event) => {
    event.preventDefault();
    close();
  });
  // Browsers close a dialog on a second Escape in any case; a confirmed payment continues.
  element.addEventListener('close', () => close(true), listen);
  element.addEventListener('click', () => waits() && close());
  element.append(frame);
  place.append(element);
  // A phone's keyboard covers the lower part of the window, which stays as tall, and Safari then moves what is seen over the rest: the
  // dialog takes the part that is seen. Zooming alone does not change the product, and moving about in a zoomed page no dialog.
  const seen = visualViewport;
  for (const change of ['resize', 'scroll'])
    seen?.addEventListener(
      change,
      () => {
        style.height = `${seen.height * seen.scale}px`;
        style.top = `${seen.scale > 1 ? 0 : seen.offsetTop}px`;
      },
      listen,
    );
  listen.signal.addEventListener('abort', () => {
    element.close();
    page.overflow = overflow;
    element.remove();
  });
  page.overflow = 'hidden';
  element.showModal();
  // An empty frame would swallow Escape, so the dialog itself has the focus until the page is shown.
  element.tabIndex = -1;
  element.focus();
}
