/**
 * Inspection of the running sandbox partner: a page for people, JSON for programs, and a developer's controls (reset, move the
 * clock, heal, end a payment). It is served next to the partner's own paths without a credential, because the sandbox listens on
 * this machine and holds no real data.
 */
import type http from 'node:http';
import { randomBytes } from 'node:crypto';
import { formatCents, isTerminal, Refusal } from '@duebridge/contract';
import type { Answer } from './behaviour.ts';
import { MAGIC_AMOUNTS } from './magic.ts';
import type { ScriptedPartner } from './running-partner.ts';
import { html, htmlAnswer, isForeign } from './html.ts';

/** Maximum number of payments and exchanges shown: the newest, as many as fit on a page. */
const SHOWN = 100;

/** True for a path of the inspection. */
export function isInspection(path: string): boolean {
  return /^\/sandbox(?:[/?]|$)/.test(path);
}

/** Answers one request of the inspection. Takes the body as text: JSON, or the page's form. */
export async function answerInspection(
  request: http.IncomingMessage,
  body: string,
  partner: ScriptedPartner,
): Promise<Answer> {
  const path = (request.url ?? '').split('?')[0] ?? '';
  // `curl -d` labels any text as a form; text that starts like an object is parsed as JSON.
  const fromPage =
    !body.startsWith('{') &&
    /^application\/x-www-form-urlencoded\b/.test(request.headers['content-type'] ?? '');
  try {
    if (request.method === 'GET') return read(path, partner);
    if (request.method !== 'POST') throw new Refusal('METHOD_NOT_ALLOWED');
    if (isForeign(request.headers)) throw new Refusal('ORIGIN_NOT_ALLOWED');
    const done = await act(path, readFields(body, fromPage), partner);
    return fromPage ? { status: 303, headers: { Location: '/sandbox' }, body: '' } : done;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { status: error.status, headers: error.headers, body: { ...error.toBody() } };
  }
}

function read(path: string, partner: ScriptedPartner): Answer {
  switch (path) {
    case '/sandbox':
      return page(partner);
    case '/sandbox/payments':
      return { status: 200, body: { payments: partner.payments(), postings: partner.postings() } };
    case '/sandbox/exchanges':
      return { status: 200, body: { exchanges: partner.exchanges() } };
    case '/sandbox/accounts':
      return { status: 200, body: { accounts: partner.accounts() } };
    default:
      throw new Refusal('NOT_FOUND');
  }
}

async function act(
  path: string,
  fields: Readonly<Record<string, unknown>>,
  partner: ScriptedPartner,
): Promise<Answer> {
  const payment = /^\/sandbox\/payments\/([^/]+)\/end$/.exec(path)?.[1];
  if (payment !== undefined) {
    const { status } = fields;
    if (status !== 'succeeded' && status !== 'failed' && status !== 'canceled') {
      throw invalid('body.status', 'must be succeeded, failed or canceled');
    }
    partner.end(decodeURIComponent(payment), status);
    return { status: 200, body: { status } };
  }
  switch (path) {
    case '/sandbox/reset':
      partner.reset();
      return { status: 200, body: { reset: true } };
    case '/sandbox/heal':
      await partner.heal();
      return { status: 200, body: { healed: true } };
    case '/sandbox/clock': {
      const ms = Number(fields['advance_ms']);
      // Forward only, because a partner's ledger does not go back. A century is more than any test needs.
      if (!Number.isSafeInteger(ms) || ms < 1 || ms > 100 * 365 * 24 * 3_600_000) {
        throw invalid('body.advance_ms', 'must be an integer of at least 1 (milliseconds)');
      }
      partner.advance(ms);
      return { status: 200, body: { now: new Date(partner.now()).toISOString() } };
    }
    default:
      throw new Refusal('NOT_FOUND');
  }
}

const invalid = (path: string, problem: string) =>
  new Refusal('INVALID_REQUEST', { details: [{ path, problem }] });

function readFields(body: string, fromPage: boolean): Record<string, unknown> {
  if (fromPage) return Object.fromEntries(new URLSearchParams(body));
  if (body === '') return {};
  try {
    const value: unknown = JSON.parse(body);
    if (typeof value === 'object' && value !== null) return { ...value };
  } catch {
    // Falls through, so that everything that is not an object gets the same answer.
  }
  throw invalid('body', 'must be a JSON object');
}

function page(partner: ScriptedPartner): Answer {
  const nonce = randomBytes(16).toString('base64');
  const { scenario } = partner;
  const payments = partner.payments().slice(-SHOWN).toReversed();
  const exchanges = partner.exchanges().slice(-SHOWN).toReversed();
  const button = (path: string, label: string, hidden: Record<string, string> = {}) =>
    html`<form method="post" action="${path}">
      ${Object.entries(hidden).map(
        ([name, value]) => html`<input type="hidden" name="${name}" value="${value}" />`,
      )}<button>${label}</button>
    </form>`;
  const body = html` <h1>Sandbox partner</h1>
    <p>${partner.plain_url}, clock: ${new Date(partner.now()).toISOString()}.</p>
    ${
      scenario === undefined
        ? html`<p>No fault is active: this partner behaves correctly.</p>`
        : html`<p>
            <b>${scenario.name}</b>: ${scenario.title}. A correct caller: ${scenario.caller}
            <br />${partner.faults()} faulty responses so far;
            ${partner.healed() ? 'healed' : 'still faulty'}.
          </p>`
    }
    <div class="acts">
      ${button('/sandbox/heal', 'Heal')} ${button('/sandbox/reset', 'Reset')}
      ${button('/sandbox/clock', 'Clock +1 minute', { advance_ms: '60000' })}
      ${button('/sandbox/clock', 'Clock +1 day', { advance_ms: '86400000' })}
    </div>
    <h2>Payments</h2>
    <table>
      <thead>
        <tr>
          <th>platform_payment_id</th>
          <th>account</th>
          <th>amount</th>
          <th>status</th>
          <th>initiated_at</th>
          <th>posted_at</th>
          <th>reason</th>
          <th></th>
        </tr>
      </thead>
      <tbody>
        ${payments.map(
          (payment) =>
            html`<tr>
              <td>${payment.platform_payment_id}</td>
              <td>${payment.biller_id} / ${payment.account_id}</td>
              <td class="number">${formatCents(payment.amount_in_cents)}</td>
              <td>${payment.status}</td>
              <td>${payment.initiated_at}</td>
              <td>${payment.posted_at ?? ''}</td>
              <td>${payment.failure_reason ?? ''}</td>
              <td>
                ${
                  isTerminal(payment.status)
                    ? ''
                    : button(
                        `/sandbox/payments/${encodeURIComponent(payment.platform_payment_id)}/end`,
                        'Cancel',
                        { status: 'canceled' },
                      )
                }
              </td>
            </tr>`,
        )}
      </tbody>
    </table>
    <h2>Exchanges</h2>
    <table>
      <thead>
        <tr>
          <th>#</th>
          <th>request</th>
          <th>body</th>
          <th>credential</th>
          <th>response</th>
        </tr>
      </thead>
      <tbody>
        ${exchanges.map(
          (exchange) =>
            html`<tr>
              <td>${exchange.number}</td>
              <td>${exchange.method} ${exchange.path}</td>
              <td>${exchange.body}</td>
              <td>${exchange.credential.replaceAll('_', ' ')}</td>
              <td>${answerText(exchange)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
    <h2>Magic accounts</h2>
    <table>
      <thead>
        <tr>
          <th>biller_id</th>
          <th>account_id</th>
          <th>behavior</th>
        </tr>
      </thead>
      <tbody>
        ${partner.accounts().map(
          (account) =>
            html`<tr>
              <td>${account.biller_id}</td>
              <td>${account.account_id}</td>
              <td>${account.note ?? ''}</td>
            </tr>`,
        )}
      </tbody>
    </table>
    <h2>Magic amounts</h2>
    <table>
      <thead>
        <tr>
          <th>amount_in_cents</th>
          <th>how the payment ends</th>
        </tr>
      </thead>
      <tbody>
        ${MAGIC_AMOUNTS.map(
          (entry) =>
            html`<tr>
              <td class="number">${entry.amount_in_cents}</td>
              <td>${entry.note}</td>
            </tr>`,
        )}
      </tbody>
    </table>`;
  return htmlAnswer('Sandbox partner', nonce, body);
}

function answerText(exchange: ReturnType<ScriptedPartner['exchanges']>[number]): string {
  const { answer } = exchange;
  if (answer === undefined)
    return exchange.taken_over ? 'no ordinary response' : 'not answered yet';
  const text = `${answer.status} ${answer.body}`;
  return text.length > 400 ? `${text.slice(0, 400)} …` : text;
}
