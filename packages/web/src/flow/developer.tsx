/**
 * The developer tools of a test page: what the page and its site say to each other, the session, and buttons that choose how a payment
 * ends. For the site's engineer, so in English. A part of its own, which a live page never loads. It shows no token.
 */
import type { TestAmount } from '@duebridge/contract';
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { ToPage, ToSite } from '../messages.ts';
import type { Flow } from './flow.ts';
import { formatMoney } from './money.ts';
import type { Site } from './site.ts';
import { isChoosing, type State } from './state.ts';

/** Set by the build: the contract's table. */
declare const DUEBRIDGE_TEST_AMOUNTS: readonly Pick<TestAmount, 'amount_in_cents' | 'note'>[];

/** Lines kept: more than a visit has. */
const MAX_LINES = 200;

interface Line {
  readonly at: string;
  /** Who said it. */
  readonly from: 'page' | 'site';
  readonly type: string;
  readonly text: string;
  /** The code of an error. */
  readonly code?: string | undefined;
}

/** A connection whose messages are noted for `Tools`. */
export interface Watched {
  readonly site: Site;
  readonly lines: readonly Line[];
  /** Called at each new line. */
  heard: () => void;
}

/** Notes what goes over a connection to the site. */
export function watch(site: Site): Watched {
  const lines: Line[] = [];
  const note = (from: Line['from'], message: ToSite | ToPage | { type: 'token' }): void => {
    const { type, ...rest } = message;
    const code = 'error' in message ? message.error.code : undefined;
    // A token opens a session: neither the screen nor a picture of it may show one.
    const text = type === 'token' && from === 'site' ? '' : JSON.stringify(rest).slice(1, -1);
    // A line makes the page taller, of which the page tells the site: one line for all heights in a row, or this would go on.
    if (type === 'resize' && lines[0]?.type === 'resize') lines.shift();
    lines.unshift({ at: new Date().toISOString().slice(11, 23), from, type, text, code });
    lines.length = Math.min(lines.length, MAX_LINES);
    watched.heard();
  };
  const watched: Watched = {
    lines,
    heard() {},
    site: {
      ...site,
      send(message) {
        note('page', message);
        site.send(message);
      },
      async token(why, slow) {
        note('page', { type: 'token', why });
        const token = await site.token(why, slow);
        note('site', { type: 'token' });
        return token;
      },
      listen: (listener) =>
        site.listen((message) => {
          note('site', message);
          listener(message);
        }),
    },
  };
  return watched;
}

/** The button at the foot of the page, and what it opens. */
export function Tools(props: {
  readonly flow: Flow;
  readonly state: State;
  readonly watched: Watched;
}): VNode {
  const { flow, state, watched } = props;
  const { screen } = state;
  const [open, setOpen] = useState(false);
  const [, turn] = useState(0);
  useEffect(() => {
    // Later: a line that changes the height while the browser tells of a height is an error on the window.
    watched.heard = () => void requestAnimationFrame(() => turn((count) => count + 1));
  }, []);
  const session = screen.bill?.session;
  const chooses = isChoosing(screen);
  return (
    <div class="tools" lang="en" dir="ltr">
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        Developer tools
      </button>
      {open && (
        <section aria-label="Developer tools">
          <h2>Session</h2>
          <dl>
            {[
              ['Partner', session?.partner.partner_id],
              ['Site', watched.site.origin],
              ['Screen', screen.name],
              ['Session', session?.session_id],
              ['Session ends', session?.expires_at],
            ].map(([label, value]) => (
              <div key={label}>
                <dt>{label}</dt>
                <dd>{value ?? 'none yet'}</dd>
              </div>
            ))}
          </dl>
          <h2>Choose an outcome</h2>
          <p class="small">
            {chooses
              ? 'Pay the amount with the sandbox bank account.'
              : 'On the screens of the bill and of the amount.'}
          </p>
          <ul>
            {DUEBRIDGE_TEST_AMOUNTS.map(({ amount_in_cents, note }) => (
              <li key={note}>
                <button
                  type="button"
                  disabled={!chooses}
                  onClick={() => flow.apply({ type: 'chose', amount: amount_in_cents })}
                >
                  {formatMoney(amount_in_cents, 'en-US')} {note}
                </button>
              </li>
            ))}
          </ul>
          <h2>Messages, the newest first</h2>
          <ol>
            {watched.lines.map(({ at, from, type, text, code }, index) => (
              <li key={watched.lines.length - index}>
                <code>
                  {at} {from} {type} {text}
                </code>
                {code !== undefined && (
                  <p>
                    <a href={`../errors#${code}`} target="_blank" rel="noopener">
                      What {code} means
                    </a>
                  </p>
                )}
              </li>
            ))}
          </ol>
        </section>
      )}
    </div>
  );
}
