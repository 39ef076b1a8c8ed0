/** The file of each language's text. */
import type { Tag } from './tags.ts';
import type { Words } from './words/en.ts';

/** Set by the build: the file of each language's text, below `flow/assets/`. */
declare const PAGE_WORDS: Readonly<Record<Tag, string>>;

/** An attempt that takes longer is given up; the next one uses another connection. */
const ATTEMPT_MS = 10_000;
/** Delay between two attempts to load the text: nothing can be shown without it. */
const RETRY_MS = 2_000;

/** Loads a language's text, however long the network takes. */
export async function loadWords(tag: Tag): Promise<Words> {
  for (;;) {
    try {
      const file = new URL(`../assets/${PAGE_WORDS[tag]}`, location.href);
      const signal = AbortSignal.timeout(ATTEMPT_MS);
      const answer = await fetch(file, { credentials: 'omit', signal });
      if (answer.ok) return (await answer.json()) as Words;
    } catch {
      // The same as an answer that is not a file.
    }
    await new Promise((resolve) => {
      setTimeout(resolve, RETRY_MS);
    });
  }
}
