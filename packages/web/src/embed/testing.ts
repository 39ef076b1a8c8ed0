/**
 * The test kit: simulates the payment page in a partner's own tests, without a platform or a network. The SDK under test is the
 * real one; only the frame is simulated. Works wherever the tests have a DOM and a MessageChannel (a browser, jsdom or happy-dom
 * on Node).
 */
import type { ToPage, ToSite } from '../messages.ts';
import type {
  DuebridgeErrorCode,
  FrameDouble,
  PaymentUpdate,
  ScreenName,
  TokenReason,
} from './types.ts';

/** One step of the simulated page. */
export type FakeStep =
  | 'ready'
  | { readonly token: TokenReason }
  | { readonly screen: ScreenName }
  | ({ readonly payment: PaymentUpdate['status'] } & Partial<Omit<PaymentUpdate, 'status'>>)
  | {
      readonly error: DuebridgeErrorCode;
      readonly recoverable?: boolean;
      readonly displayMessage?: string;
    }
  | { readonly resize: number }
  | { readonly exit: 'completed' | 'user' | 'error'; readonly at?: ScreenName };

/** A message is told of, and fetched; one that comes during a fetch waits for the next. */
const WAYS = 4;

export interface FakeFrameOptions {
  /** Steps, played in order from the start at each mount. */
  readonly script: readonly FakeStep[];
}

export interface FakeFrame extends FrameDouble {
  /** The tokens that the site supplied; null where it had none. */
  readonly tokens: readonly (string | null)[];
  /** The other messages from the site: changes of language or appearance, focus, close. */
  readonly heard: readonly ToPage[];
  /** Plays one more step after the script, such as the customer's next action. */
  play(step: FakeStep): Promise<void>;
  /** Settles when the script has been played. */
  readonly played: Promise<void>;
}

/**
 * Creates a frame that follows a script. Pass it as `frame` to createDuebridge (or to the React component). Payments of one frame
 * share an id; values that a step omits get fixed defaults.
 */
export function createFakeFrame(options: FakeFrameOptions): FakeFrame {
  const tokens: (string | null)[] = [];
  const heard: ToPage[] = [];
  let port: MessagePort | undefined;
  let gotToken = (): void => {};
  let latest: PaymentUpdate | undefined;
  let finished = (): void => {};
  const played = new Promise<void>((resolve) => (finished = resolve));
  let element: HTMLElement | undefined;

  const say = (message: ToSite): void => port?.postMessage(message);
  async function play(step: FakeStep): Promise<void> {
    if (step === 'ready') {
      say({ type: 'ready', version: 'fake' });
    } else if ('token' in step) {
      const answered = new Promise<void>((resolve) => (gotToken = resolve));
      say({ type: 'token', why: step.token });
      await answered;
    } else if ('screen' in step) {
      say({ type: 'screen', name: step.screen });
    } else if ('payment' in step) {
      const { payment: status, ...given } = step;
      latest = {
        platformPaymentId: 'fake-payment',
        amountInCents: 10_000,
        initiatedAt: '2026-01-02T03:04:05.000Z',
        postedAt: status === 'succeeded' ? '2026-01-02T03:04:06.000Z' : null,
        ...(status === 'failed' ? { failureReason: 'Account not found or inactive' } : {}),
        ...given,
        status,
      };
      say({ type: 'payment', payment: latest });
    } else if ('error' in step) {
      const { error: code, recoverable = false, displayMessage } = step;
      say({
        type: 'error',
        error: { code, recoverable, displayMessage, message: `fake: ${code}` },
      });
    } else if ('resize' in step) {
      say({ type: 'resize', height: step.resize });
    } else {
      const { exit: reason, at = 'receipt' } = step;
      say({ type: 'exit', exit: { reason, at, sessionId: 'fake-session', payment: latest } });
    }
    await delivered();
  }

  return {
    get element() {
      return (element ??= document.createElement('div'));
    },
    tokens,
    heard,
    play,
    played,
    connect(given) {
      port = given;
      port.addEventListener('message', (event: MessageEvent<ToPage>) => {
        if (event.data.type === 'token') {
          tokens.push(event.data.token);
          gotToken();
        } else {
          heard.push(event.data);
        }
      });
      port.start();
      void (async () => {
        for (const step of options.script) await play(step);
        finished();
      })();
    },
  };
}

/**
 * Waits until the messages posted so far have arrived, so that a caller that awaits sees their effect. A turn is not enough: WebKit
 * sends each message through another process and fetches it from there, so messages of other ports make the same ways in the meantime.
 */
async function delivered(): Promise<void> {
  const { port1, port2 } = new MessageChannel();
  port2.start();
  for (let way = 0; way < WAYS; way += 1) {
    await new Promise((resolve) => {
      port2.addEventListener('message', resolve, { once: true });
      port1.postMessage(way);
    });
  }
  port1.close();
  // One turn for what the last of them has set off.
  await new Promise((resolve) => setTimeout(resolve));
}
