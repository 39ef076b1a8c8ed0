/**
 * What the payment page and the frame of a funding method tell each other, by `postMessage` within one origin (decision 110). The frame
 * gets no token and no session; the page gets an opaque instrument, never a number.
 */

/** From the page. */
export type ToFund =
  | {
      readonly fund: 'start';
      readonly amount_in_cents: number;
      readonly locale: string;
      readonly dark: boolean;
      /** The data of a `step_up` action: the frame has the customer do it, instead of asking for details. */
      readonly act: string | undefined;
      /** What the processor needs to show and save the customer's methods. */
      readonly saved?: string | null;
    }
  /** The customer has pressed the button: check the details, and answer with an instrument or a problem. */
  | { readonly fund: 'ask' };

/** From the frame. */
export type FromFund =
  | { readonly fund: 'ready' }
  | { readonly fund: 'height'; readonly height: number }
  /** The answer to `ask`; or, from a page with a button of its own, that the customer pays. */
  | { readonly fund: 'instrument'; readonly instrument: string }
  /** The frame shows what is wrong with the details. */
  | { readonly fund: 'problem' }
  /** The action is over, however it ended: the platform asks the processor. */
  | { readonly fund: 'acted' };
