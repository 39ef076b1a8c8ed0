/** Every word that the page says, a file for each language. `{name}` is filled in by the caller. For the build and for tests: the page loads one. */
import type { Tag } from './tags.ts';
import en from './words/en.json' with { type: 'json' };
import es from './words/es.json' with { type: 'json' };
import fr from './words/fr.json' with { type: 'json' };
import pt from './words/pt.json' with { type: 'json' };

/** What each language has to say: a text that is missing does not compile. */
export type Word = keyof typeof en;
export type Words = Readonly<Record<Word, string>>;

export const WORDS: Readonly<Record<Tag, Words>> = { en, es, fr, pt };
