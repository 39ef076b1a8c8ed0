/**
 * The page: connects to its site, applies appearance and language, and shows the current screen of Flow.
 */
import { render, type VNode } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Appearance } from '../embed/types.ts';
import type { ToPage } from '../messages.ts';
import { themeProperties } from './appearance.ts';
import { Flow } from './flow.ts';
import { loadLanguage, type Language } from './i18n.ts';
import { Amount } from './amount.tsx';
import { billerName, leaveLabel, Press, type Acting, type Props } from './elements.tsx';
import { Receipt, Status } from './outcome.tsx';
import { Loading, ProblemScreen, problemWords, Review } from './screens.tsx';
import type { Begun } from './first.ts';
import { billerOf, isDark, metaOf, type Site } from './site.ts';
import { nameOf, paymentOf, sends, type Screen, type State } from './state.ts';
import { plainText } from './text.ts';
import './style.css';

/** At most one announcement in this time, so that a screen reader can finish a sentence. */
const ANNOUNCE_EVERY_MS = 5_000;
/** A second press this soon, and this near, was meant for what stood there before: a double tap on "Continue" is no "Pay". */
const DOUBLE_PRESS_MS = 700;
const DOUBLE_PRESS_PX = 24;
/** No phone's screen is wider. */
const PHONE_PX = 600;
/** Set by the build: the version of this package. */
declare const DUEBRIDGE_VERSION: string;

const root = document.querySelector('#app');
const { begun } = window;
// It holds the connection to the site: for this module only.
delete window.begun;
if (root && begun) void main(root, begun);

async function main(
  place: Element,
  { site: connecting, words: textOf, api }: Begun,
): Promise<void> {
  const site = await connecting;
  applyLook(site.init.appearance);
  // A frame in the site's page is as high as its content; a sheet on a phone, and a tab, are not.
  if (site.display !== 'inline' && screen.width <= PHONE_PX)
    document.documentElement.dataset['tall'] = '';
  const flow = new Flow(site, api);
  if (!site.problem) void flow.start();
  const speakIn = (locale: string): Promise<Language> => loadLanguage(locale, textOf);
  const first = await speakIn(site.init.locale);
  place.replaceChildren();
  document.querySelector('#late')?.remove();
  render(<App {...{ site, flow, first, speakIn }} />, place);
}

/** What each screen shows. */
const SCREENS: { readonly [N in Screen['name']]: (props: Props<N>) => VNode } = {
  loading: Loading,
  review: Review,
  amount: Amount,
  status: Status,
  receipt: Receipt,
  problem: ProblemScreen,
};

function App(props: {
  readonly site: Site;
  readonly flow: Flow;
  readonly first: Language;
  readonly speakIn: (locale: string) => Promise<Language>;
}): VNode {
  const { site, flow } = props;
  const [words, setWords] = useState(props.first);
  const [, setTurn] = useState(0);
  const { state } = flow;
  const { screen } = state;
  const biller = billerName(words, screen);
  const logo = screen.bill?.session.biller.logo ?? billerOf().logo;
  flow.describe = (code) => words.say(problemWords(code, words)[0], { biller });

  useEffect(() => {
    flow.changed = () => setTurn((turn) => turn + 1);
    // Handle what happened before the listeners were added.
    setTurn((turn) => turn + 1);
    let appearance = site.init.appearance;
    const tellLook = (problems: readonly string[]): void => {
      if (problems.length === 0) return;
      const message = problems.join('; ');
      const code = 'appearance_invalid';
      site.send({ type: 'error', error: { code, message, recoverable: true } });
    };
    tellLook(applyLook(appearance));
    site.listen((message: ToPage) => {
      if (message.type === 'update') {
        if (message.locale !== undefined) void props.speakIn(message.locale).then(setWords);
        appearance = message.appearance ?? appearance;
        tellLook(applyLook(appearance));
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
    let pressed: MouseEvent | undefined;
    addEventListener('click', (event) => (pressed = refuseEcho(event, pressed)), true);
    // In a frame, Escape does not reach the site's dialog: the page has to pass it on.
    if (site.display === 'modal') {
      document.addEventListener('keydown', (event) => event.key === 'Escape' && flow.close());
    }
  }, []);
  useLayoutEffect(() => {
    document.documentElement.lang = words.tag;
    document.title = words.say('page_title');
  }, [words]);

  // The first screen does not take the focus, which would pull it out of the site's page. Later screens do, and only if the focus
  // is already in this page, or was on what this screen replaces: the customer may be looking at another window. Before the paint, so
  // that no key press in between is lost.
  const shown = useRef('');
  const held = document.activeElement !== document.body;
  const name = nameOf(screen);
  const status = paymentOf(screen)?.status ?? '';
  const place = `${name} ${status} ${screen.name === 'problem' ? screen.code : ''} ${state.left}`;
  useLayoutEffect(() => {
    if (name === undefined || shown.current === place) return;
    if (shown.current === '') site.send({ type: 'ready', version: DUEBRIDGE_VERSION });
    // On the field of an amount the customer types at once; any other screen is read from its title.
    else if (held || document.hasFocus())
      (document.getElementById('amount') ?? document.getElementById('title'))?.focus();
    if (!shown.current.startsWith(`${name} `)) site.send({ type: 'screen', name });
    scrollTo(0, 0);
    shown.current = place;
  }, [place]);

  const Shown = SCREENS[screen.name] as (props: Props<Screen['name']>) => VNode;
  return (
    <>
      <header>
        {metaOf('mode') === 'test' && <p class="test">{words.say('test_mode')}</p>}
        <div>
          {logo && <img src={`../logos/${logo}`} alt="" />}
          <p class="biller" dir="auto">
            {biller}
          </p>
        </div>
        {site.display !== 'inline' && (
          <button
            class="close"
            type="button"
            aria-label={leaveLabel(flow, words, 'close')}
            onClick={() => flow.close()}
          >
            <svg viewBox="0 0 24 24" aria-hidden="true">
              <path d="M6 6l12 12M18 6L6 18" />
            </svg>
          </button>
        )}
      </header>
      <main>
        <Shown {...{ flow, words, screen }} />
      </main>
      <footer>
        <Notices {...{ flow, words, state }} />
        <Trust {...{ biller, words, screen }} />
      </footer>
    </>
  );
}

/**
 * Cancels the second press of a double press whose first one has replaced the screen. Of a mouse the browser counts the presses by
 * itself; not every browser counts those of a finger. Returns the press to compare the next one with.
 */
function refuseEcho(press: MouseEvent, before: MouseEvent | undefined): MouseEvent {
  const isEcho =
    before !== undefined &&
    !(before.target as Node).isConnected &&
    // A key that presses a button counts as none.
    press.detail > ((press as PointerEvent).pointerType === 'mouse' ? 1 : 0) &&
    press.timeStamp - before.timeStamp < DOUBLE_PRESS_MS &&
    Math.abs(press.clientY - before.clientY) < DOUBLE_PRESS_PX;
  if (!isEcho) return press;
  press.preventDefault();
  press.stopPropagation();
  return before;
}

/**
 * Who processes the payment and what becomes of its data, before it is made; and how to reach the biller, wherever the customer may
 * need it: as it registered, or where its customers find it.
 */
function Trust(props: {
  readonly biller: string;
  readonly words: Language;
  readonly screen: Screen;
}): VNode {
  const { biller, words, screen } = props;
  const { say } = words;
  const contact = screen.bill?.session.partner.support_contact ?? billerOf().contact;
  const isPaying = screen.name === 'review' || screen.name === 'amount';
  return (
    <>
      {isPaying && (
        <p class="small lock">
          <svg viewBox="0 0 24 24" aria-hidden="true">
            <path d="M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3" />
          </svg>
          {say('secure', { host: location.hostname, biller })}
        </p>
      )}
      {screen.name !== 'loading' && (
        <p class="small">
          {contact
            ? say('support_at', { biller, contact: plainText(contact) })
            : say('support', { biller })}
        </p>
      )}
    </>
  );
}

/** Shown beside any screen: the state of the connection, the end of the session, closing while sending. */
function Notices(props: Acting & { readonly state: State }): VNode {
  const { flow, words, state } = props;
  const { say } = words;
  const { screen } = state;
  const payment = paymentOf(screen);
  const isProblem = screen.name === 'problem';
  const sending = screen.name === 'review' && screen.sending;
  const lost = state.offline && !isProblem && say(sending ? 'offline_sending' : 'offline');
  const asks = sending === 'asks' && say('ask_close');
  const ends =
    state.endsAt !== undefined &&
    !isProblem &&
    !payment &&
    say('ends_soon', { time: words.clock(state.endsAt) });
  return (
    <>
      <Announcer
        isLast={payment?.progress === 'ended'}
        text={lost || asks || ends || progress(state, words)}
      />
      {lost && (
        <div class="notice">
          <span class="spinner" />
          <p>{lost}</p>
          <Press onClick={() => flow.waiting.wake()}>{say('try_again')}</Press>
        </div>
      )}
      {ends && (
        <div class="notice">
          <p>{ends}</p>
          {flow.site.init.renews && <Press onClick={() => void flow.stay()}>{say('stay')}</Press>}
        </div>
      )}
      {asks && (
        <div class="notice">
          <p>{asks}</p>
          <Press onClick={() => flow.close(true)}>{say('ask_close_yes')}</Press>
          <Press onClick={() => flow.apply(sends('sends'))}>{say('ask_close_no')}</Press>
        </div>
      )}
    </>
  );
}

/** The state of the payment in one sentence, for people who do not see the steps. */
function progress({ screen }: State, words: Language): string {
  const payment = paymentOf(screen);
  const biller = screen.bill?.session.biller.name ?? '';
  switch (payment?.status) {
    case 'processing':
      if (screen.name === 'status' && screen.slow) return words.say('slow_note', { biller });
      return words.say(payment.progress === 'sending' ? 'status_title' : 'accepted_note', {
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

/** One live region for the life of the page; when several announcements come quickly, the last one wins. */
function Announcer({ text, isLast }: { readonly text: string; readonly isLast: boolean }): VNode {
  const [said, say] = useState('');
  const last = useRef(-ANNOUNCE_EVERY_MS);
  useEffect(() => {
    // How a payment ended is said at once: what is not said yet is no longer true.
    const wait = isLast ? 0 : Math.max(0, last.current + ANNOUNCE_EVERY_MS - performance.now());
    const timer = setTimeout(() => {
      // An empty announcement needs no delay.
      if (text !== '') last.current = performance.now();
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

/** Applies it over the biller's own colour; returns what could not be applied. */
function applyLook(appearance: Appearance): readonly string[] {
  const { theme, properties, problems } = themeProperties(appearance, isDark(), billerOf().colour);
  const { style, dataset } = document.documentElement;
  document.documentElement.dir = appearance.direction === 'rtl' ? 'rtl' : 'ltr';
  style.cssText = '';
  dataset['theme'] = theme;
  for (const [name, value] of Object.entries(properties)) style.setProperty(name, value);
  return problems;
}
