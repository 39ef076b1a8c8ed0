/**
 * Parts of the page that the bill does not need: files of their own, loaded when they may be needed.
 */
import { useEffect, useState } from 'preact/hooks';
import { FIRST_WAIT_MS, longer } from './waiting.ts';

/** A file that has not come within this time is told as missing; the page takes it all the same when it comes. */
const LATE_MS = 10_000;

/** A part, once it is loaded. `missing`: its file has not come so far; the page keeps trying. */
export interface Part<T> {
  readonly part?: T;
  readonly missing?: boolean;
}

/**
 * Loads a part, however long the network takes, once `wanted`. `load` is an `import()`, whose result the browser keeps, even a failure:
 * the build adds `end` to its address.
 */
export function usePart<T extends object>(
  load: (end?: string) => Promise<T>,
  wanted = true,
): Part<T> {
  const [state, setState] = useState<Part<T>>({});
  useEffect(() => {
    let wait = FIRST_WAIT_MS;
    let end: string | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let gone = !wanted;
    const attempt = (): void => {
      const late = setTimeout(() => gone || setState({ missing: true }), LATE_MS);
      load(end)
        .finally(() => clearTimeout(late))
        .then(
          (part) => gone || setState({ part }),
          () => {
            if (gone) return;
            setState({ missing: true });
            // No server sees it, and it may be any that was not used before.
            end = `#${performance.now()}`;
            timer = setTimeout(attempt, wait);
            wait = longer(wait);
          },
        );
    };
    if (wanted) attempt();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [wanted]);
  return state;
}
