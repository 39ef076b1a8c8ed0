/** @jsxImportSource react */
/** A partner's React page under StrictMode, which mounts everything twice. */
import { StrictMode, type ComponentType } from 'react';
import { createRoot } from 'react-dom/client';

/** Renders a component; gives what changes its props, and what removes it. */
export function renderStrictly(Shown: ComponentType<object>, place: Element, props: object) {
  const root = createRoot(place);
  const show = (more: object): void =>
    root.render(
      <StrictMode>
        <Shown {...props} {...more} />
      </StrictMode>,
    );
  show({});
  return { show, leave: (): void => root.unmount() };
}
