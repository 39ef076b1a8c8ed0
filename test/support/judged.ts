/** Runs the judge against our partner kit and returns its verdict: for the tests that judge our own servers. */
import type { Draft, RunReport } from '@duebridge/conformance';
import type { BothSides, PartnerSide } from './both-sides.ts';

export const KEY = 'the-key-that-the-biller-chose';
export const CLIENT = { client_id: 'platform', client_secret: 'a-long-secret-of-the-biller' };
const MAXIMUM = 3_000_000_000;

/** A real run's pace, shortened. */
export const PACE = {
  poll_first_ms: 20,
  poll_longest_ms: 200,
  burst_per_second: 10,
  burst_seconds: 2,
  after_end_ms: 20,
  balance_lag_ms: 2_000,
  request_timeout_ms: 15_000,
  quiet_ms: 1_500,
};

/** A kit with three accounts. */
export async function judgedPartner(
  sides: BothSides,
  method: 'key' | 'oauth',
): Promise<{ side: PartnerSide; draft: Draft }> {
  const side = await sides.partner({
    auth:
      method === 'key'
        ? { method, header: 'x-api-key', keys: [KEY] }
        : {
            method,
            client_id: CLIENT.client_id,
            secrets: [CLIENT.client_secret],
          },
    billers: [{ biller_id: 'gas', max_amount_in_cents: MAXIMUM }],
  });
  await side.importAccounts(
    'biller_id,account_id,status,amount_due\ngas,A-1,active,99.00\ngas,unit 2/B,active,10.00\ngas,A-3,inactive,1.00\n',
  );
  const draft: Draft = {
    base_url: side.server.url,
    authentication:
      method === 'key'
        ? { method, header: 'x-api-key', key: KEY }
        : { method, ...CLIENT, token_url: `${side.server.url}/oauth/token` },
    biller_id: 'gas',
    accounts: { payable: 'A-1', other: 'unit 2/B', unknown: 'nobody', inactive: 'A-3' },
    limits: { max_amount_in_cents: MAXIMUM },
    terminal_window_seconds: 10,
  };
  return { side, draft };
}

/** The judge's findings about a server, one line each; empty when there are none. */
export function findings(report: RunReport): string {
  return report.results
    .filter(({ findings }) => findings.length > 0)
    .map(({ id, verdict, findings }) => `${id} ${verdict} ${JSON.stringify(findings)}`)
    .concat(report.judge_failed, report.config?.sentence ?? [])
    .join('\n');
}

/** The checks that were not judged. */
export function unjudged(report: RunReport): string[] {
  return report.results.filter(({ verdict }) => verdict === 'SKIP').map(({ id }) => id);
}
