/**
 * What the inline script of the page (first.ts) has begun for the page's own script (main.tsx), and the functions that both need: a
 * visit downloads each of them once.
 */
import type { request } from './request.ts';
import type { NoVisit, Site } from './site.ts';
import type { Tag } from './tags.ts';
import type { Words } from './words/en.ts';

export interface Begun {
  /** The connection; undefined when the page is not embedded or the site may not show it. */
  readonly site: Promise<Site | NoVisit | undefined>;
  /** A language's text, requested once, however long the network takes. */
  readonly words: (tag: Tag) => Promise<Words>;
  readonly request: typeof request;
}

declare global {
  interface Window {
    begun?: Begun;
  }
}
