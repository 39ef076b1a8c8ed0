/**
 * The page: meets its site, applies the look and the language, shows the screen that Flow is at.
 */
import { render, type VNode } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Appearance } from '../embed/types.ts';
import type { ToPage } from '../messages.ts';
import { createApi } from './api.ts';
import { themeProperties } from './appearance.ts';
import { Flow, type View } from './flow.ts';
import { language, type Language } from './i18n.ts';
import {
  Amount,
  Confirm,
  Loading,
  ProblemScreen,
  problemWords,
  Receipt,
  Review,
  Status,
} from './screens.tsx';
import { findSite, type Site } from './site.ts';
import './style.css';

/** At most one announcement in this time, so that a screen reader can finish a sentence. */
const ANNOUNCE_EVERY_MS = 5_000;
/** Set by the build: the version of this package. */
declare const DUEBRIDGE_VERSION: string;

const root = document.querySelector('#app');
if (root) void main(root);

async function main(place: Element): Promise<void> {
  render(<Frame screen={<Loading words={language(navigator.language)} />} />, place);
  applyLook({});
  const site = await findSite(registeredOrigins());
  if (site) {
    render(<App site={site} />, place);
  } else {
    const words = language(navigator.language);
    const alone = <ProblemScreen code="alone" biller={undefined} words={words} />;
    speak(words);
    render(<Frame screen={alone} />, place);
  }
}

function registeredOrigins(): readonly string[] {
  const meta = document.querySelector<HTMLMetaElement>('meta[name=duebridge-origins]');
  const origins: unknown = JSON.parse(meta?.content ?? '[]');
  return Array.isArray(origins) ? origins.filter((origin) => typeof origin === 'string') : [];
}

function App({ site }: { readonly site: Site }): VNode {
  const [words, setWords] = useState(() => language(site.init.locale));
  const [, setTurn] = useState(0);
  const [flow] = useState(
    () =>
      new Flow(site, createApi(new URL('../../', location.href)), () =>
        setTurn((turn) => turn + 1),
      ),
  );
  const { view } = flow;
  flow.locale = words.locale;
  const biller = view.session?.biller.name;
  flow.describe = (code) =>
    words.say(problemWords(code)[0], { biller: biller ?? words.say('the_biller') });

  useEffect(() => {
    let appearance = site.init.appearance;
    applyLook(appearance);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () =>
      applyLook(appearance),
    );
    site.listen((message: ToPage) => {
      if (message.type === 'update') {
        if (message.locale !== undefined) setWords(language(message.locale));
        appearance = message.appearance ?? appearance;
        applyLook(appearance);
      } else if (message.type === 'focus') {
        document.querySelector<HTMLElement>('#title')?.focus();
      } else if (message.type === 'close') {
        flow.close();
      }
    });
    const seen = new ResizeObserver(() =>
      site.send({ type: 'resize', height: Math.ceil(document.body.offsetHeight) }),
    );
    seen.observe(document.body);
    // In a frame, Escape does not reach the site's dialog: the page has to pass it on.
    if (site.init.display === 'modal') {
      document.addEventListener('keydown', (event) => event.key === 'Escape' && flow.close());
    }
    void flow.start();
  }, []);
  useLayoutEffect(() => speak(words), [words]);

  // The first screen takes no focus: that would pull it out of the site's page. Later ones do, and
  // only if it is here already. Before the paint: a key pressed in between would go nowhere.
  const shown = useRef('');
  const screen = `${view.screen} ${view.payment?.status ?? ''} ${view.problem?.code ?? ''}`;
  useLayoutEffect(() => {
    if (view.screen === 'loading' || shown.current === screen) return;
    if (shown.current === '') site.send({ type: 'ready', version: DUEBRIDGE_VERSION });
    else if (document.hasFocus()) document.querySelector<HTMLElement>('#title')?.focus();
    if (!shown.current.startsWith(`${view.screen} `)) {
      site.send({ type: 'screen', name: view.screen });
    }
    scrollTo(0, 0);
    shown.current = screen;
  }, [screen]);

  const closable = site.init.display !== 'inline';
  return (
    <Frame
      screen={<Screen flow={flow} view={view} words={words} closable={closable} />}
      head={
        <>
          <div>
            {biller !== undefined && <p class="biller">{biller}</p>}
            {view.session?.funding_methods.some((method) => method.sandbox) && (
              <p class="test">{words.say('test_mode')}</p>
            )}
          </div>
          {closable && (
            <button
              class="close"
              type="button"
              aria-label={words.say('close')}
              onClick={() => flow.close()}
            >
              <svg viewBox="0 0 24 24" aria-hidden="true">
                <path d="M6 6l12 12M18 6L6 18" />
              </svg>
            </button>
          )}
        </>
      }
      foot={<Notices flow={flow} view={view} words={words} />}
    />
  );
}

function Screen(props: {
  readonly flow: Flow;
  readonly view: View;
  readonly words: Language;
  readonly closable: boolean;
}): VNode {
  const { flow, view, words } = props;
  const { session, payment, problem } = view;
  if (view.screen === 'problem' && problem) {
    return (
      <ProblemScreen
        {...problem}
        biller={session?.biller.name}
        close={props.closable ? () => flow.close() : undefined}
        words={words}
      />
    );
  }
  if (!session) return <Loading words={words} />;
  const given = { flow, view, words, session };
  switch (view.screen) {
    case 'review':
      return <Review {...given} />;
    case 'amount':
      return <Amount {...given} />;
    case 'confirm':
      return <Confirm {...given} />;
    case 'status':
      return payment ? <Status {...given} payment={payment} /> : <Loading words={words} />;
    case 'receipt':
      return payment ? <Receipt {...given} payment={payment} /> : <Loading words={words} />;
    case 'problem':
    case 'loading':
      return <Loading words={words} />;
  }
}

/** What is said beside any screen: the connection, the end of the session, closing while sending. */
function Notices({ flow, view, words }: Omit<Parameters<typeof Screen>[0], 'closable'>): VNode {
  const { say } = words;
  const offline = view.offline && view.screen !== 'problem';
  const lost = say(view.sending ? 'offline_sending' : 'offline');
  const ends =
    view.endsAt === undefined || view.screen === 'problem' || view.payment !== undefined
      ? undefined
      : say('ends_soon', { time: words.clock(view.endsAt) });
  return (
    <>
      <Announcer
        text={
          offline ? lost : view.asksToClose ? say('ask_close') : (ends ?? progress(view, words))
        }
      />
      {offline && <p class="notice">{lost}</p>}
      {ends !== undefined && (
        <div class="notice">
          <p>{ends}</p>
          {flow.canRenew && (
            <button type="button" onClick={() => void flow.stay()}>
              {say('stay')}
            </button>
          )}
        </div>
      )}
      {view.asksToClose && (
        <div class="notice">
          <p>{say('ask_close')}</p>
          <button type="button" onClick={() => flow.close(true)}>
            {say('ask_close_yes')}
          </button>
          <button type="button" onClick={() => flow.keepOpen()}>
            {say('ask_close_no')}
          </button>
        </div>
      )}
    </>
  );
}

/** The state of the payment in one sentence, for those who do not see the steps. */
function progress(
  { payment, session, slow, amountProblem, screen }: View,
  words: Language,
): string {
  const biller = session?.biller.name ?? '';
  if (screen === 'amount' && amountProblem !== undefined) return '';
  switch (payment?.status) {
    case 'processing':
      if (slow) return words.say('slow_note', { biller });
      return words.say(payment.progress === 'sending' ? 'status_title' : 'step_accepted', {
        biller,
      });
    case 'succeeded':
      return words.say('receipt_title');
    case 'failed':
      return words.say('failed_title');
    case 'canceled':
      return words.say('canceled_title');
    case undefined:
      return '';
  }
}

/** One live region for the life of the page; the last thing said wins when several come quickly. */
function Announcer({ text }: { readonly text: string }): VNode {
  const [said, say] = useState('');
  const last = useRef(0);
  useEffect(() => {
    const wait = Math.max(0, last.current + ANNOUNCE_EVERY_MS - Date.now());
    const timer = setTimeout(() => {
      // Silence takes nobody's time.
      if (text !== '') last.current = Date.now();
      say(text);
    }, wait);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <p class="sr" role="status">
      {said}
    </p>
  );
}

function Frame(props: {
  readonly screen: VNode;
  readonly head?: VNode;
  readonly foot?: VNode;
}): VNode {
  return (
    <>
      <header>{props.head}</header>
      <main>{props.screen}</main>
      <footer>{props.foot}</footer>
    </>
  );
}

function speak(words: Language): void {
  document.documentElement.lang = words.tag;
  document.title = words.say('page_title');
}

function applyLook(appearance: Appearance): void {
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const { theme, properties } = themeProperties(appearance, dark);
  const { style, dataset } = document.documentElement;
  style.cssText = '';
  dataset['theme'] = theme;
  for (const [name, value] of Object.entries(properties)) style.setProperty(name, value);
}
