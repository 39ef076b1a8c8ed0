/** What the inline script of the page (first.ts) has begun for the page's own script (main.tsx). */
import type { NoVisit, Site } from './site.ts';
import type { Tag } from './tags.ts';
import type { Words } from './words/en.ts';

export interface Begun {
  /** The connection; undefined when the page is not embedded or the site may not show it. */
  readonly site: Promise<Site | NoVisit | undefined>;
  readonly words: Map<Tag, Promise<Words>>;
}

declare global {
  interface Window {
    begun?: Begun;
  }
}
