/**
 * A partner's backend and a customer's browser in a few lines, for tests across packages: real HTTP calls, nothing of the
 * platform imported.
 */
import type { FlowPayment, FlowSession, FlowSessionGrant, TokenReply } from '@duebridge/contract';
import { until } from '@duebridge/runtime/testing';
import { request } from 'undici';

/** The customer for whom tokens are made; all data is invented. */
const customer = {
  first_name: 'Ada',
  last_name: 'Lovelace',
  email: 'ada@example.com',
  phone_number: '+15125550100',
  address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
} as const;

/** A client of the token endpoint. */
export interface Client {
  readonly platformUrl: string;
  readonly client_id: string;
  readonly api_key: string;
}

/** One HTTP answer: its status and its JSON body. */
export interface Answer<T> {
  readonly status: number;
  readonly body: T;
}

/** Sends one JSON request; returns the answer, whatever its status. Throws only when there is no answer. */
export async function call<T>(
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  url: string,
  headers: Readonly<Record<string, string>>,
  body?: unknown,
): Promise<Answer<T>> {
  const answer = await request(url, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(120_000),
  });
  const text = await answer.body.text();
  return { status: answer.statusCode, body: (text === '' ? null : JSON.parse(text)) as T };
}

/** The partner's backend asks for a token (A1); `email` for a customer other than Ada. */
export function createToken(
  client: Client,
  external_identifiers: { biller_id?: string; account_id: string },
  email: string = customer.email,
): Promise<Answer<TokenReply>> {
  return call(
    'POST',
    `${client.platformUrl}/v1/sbi/token`,
    { 'x-client-id': client.client_id, 'x-api-key': client.api_key },
    { ...customer, email, external_identifiers },
  );
}

/** The page exchanges the token for a session and returns what it needs to continue. */
export async function openSession(platformUrl: string, token: string): Promise<Browser> {
  const grant = await call<FlowSessionGrant>(
    'POST',
    `${platformUrl}/v1/flow/session`,
    { authorization: `Bearer ${token}` },
    {},
  );
  if (grant.status !== 200) throw new Error(`no session: ${JSON.stringify(grant)}`);
  return new Browser(platformUrl, grant.body.session, grant.body.bill?.next_payment_id);
}

/** A customer's page with an open session. */
export class Browser {
  readonly #platformUrl: string;
  readonly #headers: Readonly<Record<string, string>>;
  #next: string | undefined;

  /** `next`: the id of the next payment, which came with the bill. */
  constructor(platformUrl: string, session: string, next?: string) {
    this.#platformUrl = platformUrl;
    this.#next = next;
    this.#headers = { authorization: `Bearer ${session}` };
  }

  /** Reads the bill; the next confirm is of the payment that follows what it shows. */
  async bill(): Promise<Answer<FlowSession>> {
    const read = await call<FlowSession>(
      'GET',
      `${this.#platformUrl}/v1/flow/session`,
      this.#headers,
    );
    this.#next = read.body.next_payment_id ?? this.#next;
    return read;
  }

  /** Waits until the page asks for a payment: it shows none to make while the last one is on its way, or the bill cannot be read. */
  async canPay(): Promise<void> {
    const asks = async (): Promise<boolean> => {
      if (this.#next === undefined) await this.bill();
      return this.#next !== undefined;
    };
    await until('the page asks for a payment', asks, 100);
  }

  /** Confirms; may be repeated any number of times. */
  confirm(amount_in_cents: number, funding_method = 'sandbox_bank'): Promise<Answer<FlowPayment>> {
    return call('POST', `${this.#platformUrl}/v1/flow/payments`, this.#headers, {
      amount_in_cents,
      funding_method,
      platform_payment_id: this.#next,
    });
  }

  /** Reads the payment. */
  payment(platform_payment_id: string): Promise<Answer<FlowPayment>> {
    return call(
      'GET',
      `${this.#platformUrl}/v1/flow/payments/${platform_payment_id}`,
      this.#headers,
    );
  }

  /** Waits until the payment has ended, which the page asks once a second. */
  ended(platform_payment_id: string, everyMs = 25): Promise<FlowPayment> {
    const end = async (): Promise<FlowPayment | false> => {
      const { status, body } = await this.payment(platform_payment_id);
      return status === 200 && body.progress === 'ended' && body;
    };
    return until(`the end of ${platform_payment_id}`, end, everyMs);
  }
}
