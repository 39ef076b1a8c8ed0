/**
 * What the running sandbox partner holds, as JSON for its developer. Served next to the partner's own paths without a credential,
 * because the sandbox listens on this machine and holds no real data.
 */
import type { Answer } from './behaviour.ts';
import type { ScriptedPartner } from './running-partner.ts';

const VIEWS: Readonly<Record<string, (partner: ScriptedPartner) => Record<string, unknown>>> = {
  '/sandbox/payments': (one) => ({ payments: one.payments(), postings: one.postings() }),
  '/sandbox/exchanges': (one) => ({ exchanges: one.exchanges() }),
  '/sandbox/accounts': (one) => ({ accounts: one.accounts() }),
};

/** The answer to a GET of one of them; undefined for any other request. */
export function answerControl(
  { method, url = '' }: { readonly method?: string | undefined; readonly url?: string | undefined },
  partner: ScriptedPartner,
): Answer | undefined {
  const view = method === 'GET' ? VIEWS[url] : undefined;
  return view && { status: 200, body: view(partner) };
}
