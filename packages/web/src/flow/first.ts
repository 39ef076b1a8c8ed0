/**
 * Inlined at the top of the page, so that what takes a round trip begins before the page's other files have come: the connection to
 * the site, the session and the text. It also applies the site's theme. If a file of the page fails to load, it tells the customer,
 * and the site's SDK, which then need not wait for its timeout.
 */
import { FAILED } from '../messages.ts';
import type { Begun } from './begun.ts';
import { request } from './request.ts';
import { connect, isDark, registeredOrigins } from './site.ts';
import { tagOf, type Tag } from './tags.ts';
import type { Words } from './words/en.ts';
import { loadWords } from './words-file.ts';

/** If the page is not shown within this time, it says so itself: with the whole tab to itself, no SDK does. */
const LATE_MS = 15_000;

// The site's theme is in the fragment, which no server sees.
const { hash } = location;
const showsDark = hash.startsWith('#dark') || (!hash.startsWith('#light') && isDark());
document.documentElement.dataset['theme'] = showsDark ? 'dark' : 'light';

const showLate = (): void => {
  const late = document.querySelector<HTMLElement>('#late');
  if (late) late.hidden = false;
};
setTimeout(showLate, LATE_MS);
addEventListener(
  'error',
  ({ target }) => {
    if (!(target instanceof HTMLScriptElement)) return;
    for (const origin of parent === window ? [] : registeredOrigins()) {
      parent.postMessage({ duebridge: FAILED }, origin);
    }
    showLate();
    addEventListener('DOMContentLoaded', showLate);
  },
  true,
);

const loading = new Map<Tag, Promise<Words>>();
const words = (tag: Tag): Promise<Words> => {
  const text = loading.get(tag) ?? loadWords(tag);
  loading.set(tag, text);
  return text;
};
// Most sites use the language of their customer's browser.
void words(tagOf(navigator.language));
const site = connect((init) => void words(tagOf(init.locale)));
const begun: Begun = { site, words, request };
Object.assign(window, { begun });
