/**
 * A developer's controls of the running sandbox partner: what it holds as JSON, and reset, clock, heal and the end of a payment. They
 * are served next to the partner's own paths without a credential, because the sandbox listens on this machine and holds no real data.
 */
import type http from 'node:http';
import { JsonProblem, parseJson, Refusal, type Json } from '@duebridge/contract';
import type { Answer } from './behaviour.ts';
import type { ScriptedPartner } from './running-partner.ts';

/** True for a path of the controls. */
export function isControl(path: string): boolean {
  return /^\/sandbox(?:[/?]|$)/.test(path);
}

/** Answers one request. Throws Refusal. */
export async function answerControl(
  request: http.IncomingMessage,
  body: string,
  partner: ScriptedPartner,
): Promise<Answer> {
  const path = (request.url ?? '').split('?')[0] ?? '';
  const { origin, host } = request.headers;
  if (request.method === 'GET') return { status: 200, body: read(path, partner) };
  if (request.method !== 'POST') throw new Refusal('METHOD_NOT_ALLOWED');
  // A page of another site that the developer's browser shows: it sends the request, but the developer did not ask for it.
  if (origin !== undefined && origin !== `http://${host}`) throw new Refusal('ORIGIN_NOT_ALLOWED');
  return { status: 200, body: await act(path, fieldsOf(body), partner) };
}

function read(path: string, partner: ScriptedPartner): Record<string, unknown> {
  switch (path) {
    case '/sandbox':
    case '/sandbox/payments':
      return { payments: partner.payments(), postings: partner.postings() };
    case '/sandbox/exchanges':
      return { exchanges: partner.exchanges() };
    case '/sandbox/accounts':
      return { accounts: partner.accounts() };
    default:
      throw new Refusal('NOT_FOUND');
  }
}

async function act(
  path: string,
  fields: Readonly<Record<string, Json>>,
  partner: ScriptedPartner,
): Promise<Record<string, unknown>> {
  const payment = /^\/sandbox\/payments\/([^/]+)\/end$/.exec(path)?.[1];
  if (payment !== undefined) {
    const { status } = fields;
    if (status !== 'succeeded' && status !== 'failed' && status !== 'canceled') {
      throw invalid('body.status', 'must be succeeded, failed or canceled');
    }
    partner.end(decodeURIComponent(payment), status);
    return { status };
  }
  switch (path) {
    case '/sandbox/reset':
      partner.reset();
      return { reset: true };
    case '/sandbox/heal':
      await partner.heal();
      return { healed: true };
    case '/sandbox/clock': {
      const ms = Number(fields['advance_ms']);
      // Forward only, because a partner's ledger does not go back. A century is more than any test needs.
      if (!Number.isSafeInteger(ms) || ms < 1 || ms > 100 * 365 * 24 * 3_600_000) {
        throw invalid('body.advance_ms', 'must be an integer of at least 1 (milliseconds)');
      }
      partner.advance(ms);
      return { now: new Date(partner.now()).toISOString() };
    }
    default:
      throw new Refusal('NOT_FOUND');
  }
}

const invalid = (path: string, problem: string) =>
  new Refusal('INVALID_REQUEST', { details: [{ path, problem }] });

function fieldsOf(body: string): Readonly<Record<string, Json>> {
  try {
    const value = parseJson(body === '' ? '{}' : body);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      return value as Readonly<Record<string, Json>>;
    }
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
  }
  throw invalid('body', 'must be a JSON object');
}
