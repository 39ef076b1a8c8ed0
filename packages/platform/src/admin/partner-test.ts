/**
 * Tests a partner: is its address right, and does it accept the credentials? It changes nothing at the partner: the one call is a
 * GET of an account that does not exist, so a 404 proves that the credentials were accepted.
 */
import { randomBytes } from 'node:crypto';
import type { PartnerTest } from '@duebridge/contract';
import type { Partner } from '../partners/registry.ts';
import type { Services } from '../services.ts';

/** Longer than a person likes to wait after pressing a button. */
const DEADLINE_MS = 8_000;

/** Tests the partner once. Never throws because of the partner. */
export async function testPartner(
  { client, clock }: Pick<Services, 'client' | 'clock'>,
  partner: Partner,
): Promise<PartnerTest> {
  const startedAt = clock.monotonic();
  const account = {
    biller_id: partner.biller_id ?? 'duebridge-test',
    account_id: `duebridge-test-${randomBytes(6).toString('hex')}`,
  };
  const outcome = await client.getAccount(partner, account, { deadlineMs: DEADLINE_MS });
  const took_ms = Math.round(clock.monotonic() - startedAt);
  const found = (reachable: boolean, authorized: boolean | null, finding: string): PartnerTest => ({
    partner_id: partner.partner_id,
    reachable,
    authorized,
    took_ms,
    finding,
  });
  if (outcome.kind === 'not_found') {
    return found(true, true, 'The partner answers and accepts the credentials.');
  }
  if (outcome.kind === 'found') {
    return found(
      true,
      true,
      'The partner answers, but knows an account that cannot exist: check the path of Get Account.',
    );
  }
  const { reason } = outcome;
  const status = /^status_(\d+)$/.exec(reason)?.[1];
  if (status === undefined)
    return found(false, null, FINDINGS[reason] ?? `There is no usable answer (${reason}).`);
  if (status === '401' || status === '403') {
    return found(
      true,
      false,
      `The partner answers ${status} to the credentials: check them and their scope.`,
    );
  }
  return found(
    true,
    null,
    `The partner answers ${status} to Get Account of an unknown account, where 404 with a JSON body is expected: check base_url and paths.`,
  );
}

/** The meaning of each reason for a missing answer, and what to do. */
const FINDINGS: Readonly<Record<string, string>> = {
  timeout: `There was no answer within ${DEADLINE_MS / 1_000} seconds: check the address, and whether a firewall lets us through.`,
  connection: 'The connection was refused or broken: check host and port of base_url.',
  name: 'The host name does not resolve: check base_url.',
  address:
    'The host resolves to a private address, which may not be called: check base_url (DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES admits it in development).',
  certificate: 'The certificate is not valid for this host: the partner has to renew it.',
  protocol: 'What answers there does not speak HTTP: check the port of base_url.',
  too_large: 'The answer is larger than 256 KiB: check the path of Get Account.',
  refused: 'The token endpoint refuses the client credentials: check client_id and client_secret.',
  scope: 'The token endpoint grants no scope that covers reads: check scope.',
  invalid_answer: 'The token endpoint does not answer as RFC 6749 says: check token_url.',
  unreachable: 'The token endpoint cannot be reached: check token_url.',
};
