/** @jsxImportSource react */
/** A partner's React page under StrictMode; the test changes its props through the window. */
import { StrictMode, useState, type ReactElement } from 'react';
import { createRoot } from 'react-dom/client';
import {
  DuebridgeFrame,
  type DuebridgeFrameProps,
} from '../../../packages/web/src/embed/react.tsx';

interface ReactSite {
  setProps: (change: Partial<DuebridgeFrameProps>) => void;
  shown: (shown: boolean) => void;
  startReact: (props: DuebridgeFrameProps) => void;
}

function App({ first }: { readonly first: DuebridgeFrameProps }): ReactElement {
  const [props, setProps] = useState(first);
  const [shown, setShown] = useState(true);
  const site = window as unknown as ReactSite;
  site.setProps = (change) => setProps((before) => ({ ...before, ...change }));
  site.shown = setShown;
  return shown ? <DuebridgeFrame {...props} /> : <p>gone</p>;
}

(window as unknown as ReactSite).startReact = (props) => {
  const place = document.querySelector('#place');
  if (!place) return;
  createRoot(place).render(
    <StrictMode>
      <App first={props} />
    </StrictMode>,
  );
};
