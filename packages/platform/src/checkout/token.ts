/**
 * Stage 2: Create Token. Takes a customer, returns the start value of the payment flow (S1, A1, A2, TR1-TR4, TK1).
 *
 * enters: the client that keys.ts authenticated, and a body that passed the schema.  leaves: a token, its row committed (PL11).
 * holds:  only a hash of the token is stored; personal data is sealed in a row of its own; only a partner's definite "no such
 *         account" prevents a token (decision 7).
 * next:   the customer's browser brings the token to session.ts.
 */
import { invalidField, type TokenRequest } from '@duebridge/contract';
import { groupCommit, sql } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import { notFound, type Client } from './keys.ts';
import { pickBalance, type AccountKey } from '../partners/client.ts';
import type { Partner } from '../partners/registry.ts';
import type { Services } from '../services.ts';
import { emailDigest, flowId, hashSecret, newSecret } from './secrets.ts';

/** Life of a token (decision 8): a page left open over lunch asks for another. */
const TOKEN_MINUTES = 30;
/** How long the partner may take to say whether the account exists (decision 7): a customer waits for the page. */
const ACCOUNT_DEADLINE_MS = 2_000;
/**
 * Personal data of customers who open the flow and pay nothing is erased after this; confirm.ts keeps that of those who pay for longer.
 */
const UNPAID_HOURS = 24;
/** Tokens in one statement at most: beyond a few hundred a flush only takes longer. */
const MAX_BATCH = 500;
/** Tokens waiting at most: about one second of load; beyond that, requests get 503 and are retried. */
const MAX_QUEUED = 10_000;

/** Customers and tokens of one flush, in one statement: all are stored, or none. */
const insertTokens = sql(
  'token_insert',
  `WITH customer AS (
     INSERT INTO duebridge_platform.customers (customer_id, partner_id, sealed, email_digest, erase_after)
     SELECT customer_id, partner_id, sealed, email_digest, now() + interval '${UNPAID_HOURS} hours'
       FROM jsonb_to_recordset($1::jsonb) AS item (customer_id uuid, partner_id text, sealed text, email_digest bytea)
   )
   INSERT INTO duebridge_platform.tokens (token_hash, client_id, partner_id, customer_id, biller_id, account_id, flow_id, balance, expires_at)
   SELECT token_hash, client_id, partner_id, customer_id, biller_id, account_id, flow_id, balance, now() + interval '${TOKEN_MINUTES} minutes'
     FROM jsonb_to_recordset($1::jsonb) AS item (token_hash bytea, client_id text, partner_id text, customer_id uuid, biller_id text,
                                                 account_id text, flow_id bytea, balance jsonb)
   RETURNING expires_at`,
);

/** Stage 2. */
export type Tokens = ReturnType<typeof openTokens>;

/** Opens stage 2. */
export function openTokens(
  services: Pick<Services, 'database' | 'registry' | 'client' | 'sealer' | 'pepper' | 'log'>,
) {
  const { database, registry, sealer, pepper } = services;
  const rows = groupCommit<object, string>({
    maxBatch: MAX_BATCH,
    maxQueued: MAX_QUEUED,
    async flush(items) {
      const stored = await database.query<{ expires_at: string }>(insertTokens, [
        JSON.stringify(items),
      ]);
      // One statement has one now(), so all rows have the same expiry, in whatever order they come back.
      return stored.map((row) => row.expires_at);
    },
  });

  return {
    /**
     * Makes a token for the client's customer: shown once, it opens the flow until `expires_at` (ISO 8601, UTC). Throws Refusal
     * INVALID_REQUEST (biller_id missing from an aggregator, or another biller's), NOT_FOUND (the account cannot be found, ER1).
     */
    async create(caller: Client, request: TokenRequest) {
      const partner = await registry.known(caller.partner_id);
      const account = accountOf(partner, request);
      if (account !== undefined) await checkAccount(services, partner, account);

      const token = newSecret('dbt_');
      const customer_id = uuidv7();
      const { first_name, last_name, email, phone_number, address, balance } = request;
      const expires_at = await rows.add({
        token_hash: hex(hashSecret(token)),
        client_id: caller.client_id,
        partner_id: partner.partner_id,
        customer_id,
        sealed: sealer.seal(
          JSON.stringify({ first_name, last_name, email, phone_number, address }),
          `customers/${customer_id}`,
        ),
        ...account,
        flow_id:
          account && hex(flowId(pepper, { partner_id: partner.partner_id, ...account, email })),
        email_digest: hex(emailDigest(pepper, email)),
        balance: balance && pickBalance(balance),
      });
      return { token, expires_at };
    },
    /** Resolves when every token requested so far is stored or refused. */
    drain: () => rows.drain(),
  };
}

/** Bytes as PostgreSQL reads them from text. */
const hex = (bytes: Buffer): string => `\\x${bytes.toString('hex')}`;

/** The account that the customer is to pay, or undefined when the partner named none (TR4, decision 20). */
function accountOf(partner: Partner, request: TokenRequest): AccountKey | undefined {
  const given = request.external_identifiers;
  if (given === undefined) return undefined;
  const path = 'body.external_identifiers.biller_id';
  const biller_id = given.biller_id ?? partner.biller_id;
  if (biller_id === null) {
    throw invalidField(path, 'is required for an aggregator');
  }
  if (partner.biller_id !== null && biller_id !== partner.biller_id) {
    throw invalidField(path, 'is not the biller that this client was issued for');
  }
  return { biller_id, account_id: given.account_id };
}

/** Asks the partner for the account: only its own word that there is none refuses the token (decision 7). */
async function checkAccount(
  { client, log }: Pick<Services, 'client' | 'log'>,
  partner: Partner,
  account: AccountKey,
): Promise<void> {
  const outcome = await client.getAccount(partner, account, { deadlineMs: ACCOUNT_DEADLINE_MS });
  switch (outcome.kind) {
    case 'found':
      return;
    case 'not_found':
      log.info(
        { what: 'account', partner_id: partner.partner_id },
        'no token: what was named is unknown',
      );
      throw notFound('account', partner.mode);
    case 'unreachable':
      log.info(
        { partner_id: partner.partner_id, reason: outcome.reason },
        'a token was issued without checking its account',
      );
  }
}
