/**
 * Inlined at the top of the page, so that what takes a round trip begins before the page's other files have come: the connection to
 * the site, the session and the text. It also applies the site's theme. If a file of the page fails to load, it tells the customer,
 * and the site's SDK, which then need not wait for its timeout.
 */
import { FAILED } from '../messages.ts';
import { createApi } from './api.ts';
import { connect, isDark, metaOf, registeredOrigins } from './site.ts';
import { tagOf, type Tag } from './tags.ts';
import type { Words } from './words.ts';

/** What this script has begun for the page's own (main.tsx). */
export type Begun = typeof begun;

declare global {
  interface Window {
    begun?: Begun;
  }
}

/** Set by the build: the file of each language's text, below `flow/assets/`. */
declare const PAGE_WORDS: Readonly<Record<Tag, string>>;

/** An attempt to load the text that takes longer is given up; the next one uses another connection. */
const ATTEMPT_MS = 10_000;
/** Delay between two attempts: nothing can be shown without the text. */
const RETRY_MS = 2_000;

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
/** A language's text, requested once, however long the network takes. */
const words = (tag: Tag): Promise<Words> => {
  const text = loading.get(tag) ?? loadWords(tag);
  loading.set(tag, text);
  return text;
};
// Most sites use the language of their customer's browser.
void words(tagOf(navigator.language));
const api = createApi(metaOf('partner'));
const site = connect(api, (init) => void words(tagOf(init.locale)));
const begun = { site, words, api };
Object.assign(window, { begun });

/** Loads a language's text, however long the network takes. */
async function loadWords(tag: Tag): Promise<Words> {
  for (;;) {
    try {
      const file = new URL(`../assets/${PAGE_WORDS[tag]}`, location.href);
      const signal = AbortSignal.timeout(ATTEMPT_MS);
      const answer = await fetch(file, { credentials: 'omit', signal });
      if (answer.ok) return (await answer.json()) as Words;
    } catch {
      // The same as an answer that is not a file.
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
