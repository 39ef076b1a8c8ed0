/** What the wrong peers of all sides have in common: the check that catches each, and what else its defect breaks. */

export interface Wrong<B> {
  /** The check that must catch it. */
  readonly breaks: string;
  /** What is wrong with it, as a verb phrase; unique among the peers of its side. */
  readonly wrong: string;
  /** WARN if it breaks only should-rules. */
  readonly verdict: 'FAIL' | 'WARN';
  readonly behaviour: B;
  /** Other must-checks that fail because the same defect shows there too; `many` where it shows in many. */
  readonly also?: readonly string[] | 'many';
  /** The profile that it takes to be caught; `contract` unless given. */
  readonly profile?: 'strict';
}

type More<S> = S & Pick<Wrong<unknown>, 'also' | 'profile'>;

/** The two words with which a table of wrong peers is written: one that fails its check, and one that is only warned of. */
export function wrongPeers<B, S extends object>(): Readonly<
  Record<
    'fails' | 'warns',
    (breaks: string, wrong: string, behaviour: B, more?: More<S>) => Wrong<B> & S
  >
> {
  const peer =
    (verdict: 'FAIL' | 'WARN') =>
    (breaks: string, wrong: string, behaviour: B, more?: More<S>): Wrong<B> & S => ({
      ...(more ?? ({} as More<S>)),
      breaks,
      wrong,
      verdict,
      behaviour,
    });
  return { fails: peer('FAIL'), warns: peer('WARN') };
}
