/** @jsxImportSource react */
'use client';
/**
 * `<DuebridgeFrame/>`: the SDK as a React component. It supports StrictMode (mount, unmount, mount) and server rendering. New
 * callbacks or a new appearance never restart the page; a new partner, account or token does.
 */
import { useEffect, useRef, type ReactElement } from 'react';
import { createDuebridge } from './index.ts';
import type {
  Duebridge,
  DuebridgeError,
  DuebridgeEvents,
  DuebridgeOptions,
  PaymentUpdate,
} from './types.ts';

export interface DuebridgeFrameProps extends Omit<DuebridgeOptions, 'signal'> {
  readonly className?: string | undefined;
  /** Identifies the bill, for React only: a change restarts the page with a new token. */
  readonly account?: string | undefined;
  readonly onReady?: ((event: DuebridgeEvents['ready']) => void) | undefined;
  readonly onScreen?: ((event: DuebridgeEvents['screen']) => void) | undefined;
  readonly onPayment?: ((payment: PaymentUpdate) => void) | undefined;
  readonly onExit?: ((event: DuebridgeEvents['exit']) => void) | undefined;
  /** Called for a rejected mount and for a problem that the frame shows. */
  readonly onError?: ((error: DuebridgeError) => void) | undefined;
}

/** Shows the payment page in place (`inline`), or over the page (`modal`) while it is rendered. */
export function DuebridgeFrame(props: DuebridgeFrameProps): ReactElement {
  const place = useRef<HTMLDivElement>(null);
  const latest = useRef(props);
  const instance = useRef<Duebridge>(undefined);
  latest.current = props;
  const { partner, frameOrigin, display, locale, appearance, frame, account, token } = props;
  const look = JSON.stringify(appearance);

  useEffect(() => {
    const now = (): DuebridgeFrameProps => latest.current;
    const failed = (error: DuebridgeError): void => now().onError?.(error);
    let made: Duebridge;
    try {
      made = createDuebridge({
        ...now(),
        fetchToken: now().fetchToken && ((why) => now().fetchToken?.(why) ?? Promise.reject()),
      });
    } catch (error) {
      failed(error as DuebridgeError);
      return;
    }
    instance.current = made;
    made.on('ready', (event) => now().onReady?.(event));
    made.on('screen', (event) => now().onScreen?.(event));
    made.on('payment', (event) => now().onPayment?.(event));
    made.on('exit', (event) => now().onExit?.(event));
    made.on('error', failed);
    let gone = false;
    made.mount(place.current ?? undefined).catch((error: DuebridgeError) => gone || failed(error));
    return () => {
      gone = true;
      made.destroy();
    };
  }, [partner, frameOrigin, display, frame, account, token]);

  useEffect(
    () => instance.current?.update({ locale, appearance: latest.current.appearance }),
    [locale, look],
  );
  return <div ref={place} className={props.className} />;
}
