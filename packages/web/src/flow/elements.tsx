/** What every screen is made of: titles, buttons, amounts, facts and signs. */
import type { ComponentChildren, VNode } from 'preact';
import type { Flow } from './flow.ts';
import type { Language } from './i18n.ts';
import { billerOf } from './site.ts';
import type { Screen, ScreenOf } from './state.ts';

/** The props of what acts and speaks. */
export interface Acting {
  readonly flow: Flow;
  readonly words: Language;
}
/** The props of every screen: its own part of the state. */
export interface Props<N extends Screen['name']> extends Acting {
  readonly screen: ScreenOf<N>;
}

/** The biller of a bill, and before there is one, the page's own. */
export const billerName = ({ say }: Language, { bill }: Screen): string =>
  bill?.session.biller.name ?? billerOf().name ?? say('the_biller');

export function Title({ children }: { readonly children: ComponentChildren }): VNode {
  return (
    <h1 id="title" tabIndex={-1}>
      {children}
    </h1>
  );
}

/** A button that does something at once. `kind`: the first of a screen, or one within a text. */
export function Press(props: {
  readonly kind?: 'main' | 'quiet' | undefined;
  readonly onClick: () => void;
  readonly children: ComponentChildren;
}): VNode {
  const { kind, onClick, children } = props;
  return (
    <button class={kind} type="button" onClick={onClick}>
      {children}
    </button>
  );
}

/** The label of the button that leaves the page: a general word in a frame; the destination when the page has the whole tab. */
export function leaveLabel(flow: Flow, { say }: Language, word: 'close' | 'done'): string {
  if (flow.site.returnUrl === undefined) return say(word);
  const site = flow.state.screen.bill?.session.partner.name ?? say('the_site');
  return say('back_to', { site });
}

/** The button that leaves the page, until it was pressed: a frame in the site's own page stays there. */
export function Leave(
  props: Acting & { readonly kind?: 'main' | undefined; readonly word?: 'done' },
): VNode | null {
  const { flow, words, kind, word = 'close' } = props;
  if (flow.state.left) return null;
  return (
    <Press kind={kind} onClick={() => flow.close()}>
      {leaveLabel(flow, words, word)}
    </Press>
  );
}

/** Labels and their values; one without a value is left out. */
export function Facts(props: {
  readonly rows: readonly (readonly [label: string, value: string | undefined])[];
}): VNode {
  return (
    <dl>
      {props.rows.map(
        ([label, value]) =>
          value !== undefined && (
            <div key={label}>
              <dt>{label}</dt>
              <dd>{value}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

/** An amount of the screen's own, on one line: it grows with the customer's text, as far as the width allows (style.css). */
export function Sum({ cents, words }: { readonly cents: number; readonly words: Language }): VNode {
  const text = words.money(cents);
  return (
    <strong class="money sum" style={{ '--n': text.length }}>
      {text}
    </strong>
  );
}

const SHAPES = {
  right: 'M7 13l4 4 7-9',
  wrong: 'M12 6v7m0 4v.5',
  neutral: 'M7 12.5h10',
};

/** Shows the outcome by shape as well as by colour; the words beside it say the same. `isMuted`: without its colour. */
export function Sign(props: {
  readonly kind: keyof typeof SHAPES;
  readonly isMuted?: boolean;
}): VNode {
  const { kind, isMuted } = props;
  return (
    <svg class={`sign ${isMuted ? '' : kind}`} viewBox="0 0 24 24" aria-hidden="true">
      <circle cx="12" cy="12" r="11" />
      <path d={SHAPES[kind]} />
    </svg>
  );
}
