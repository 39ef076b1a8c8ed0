/**
 * How long a complete run takes against a partner that delays each response, at the usual pace:
 *
 *   node packages/conformance/test/timing.ts [milliseconds …]      50 and 2000 by default
 *
 * Prints one line for each, with the slowest checks. docs/conformance.md lists the results.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { partnerTarget } from '../src/check/target.ts';
import { judgePartner } from '../src/run.ts';
import { startScriptedPartner } from '../src/sandbox/partner.ts';

const delays = process.argv.slice(2).map(Number);

for (const ms of delays.length === 0 ? [50, 2_000] : delays) {
  const partner = await startScriptedPartner({
    auth: { method: 'key', header: 'x-api-key', key: 'a-key-of-the-timing' },
    behaviour: {
      async receive() {
        await pause(ms);
        return undefined;
      },
    },
  });
  const target = partnerTarget(
    {
      base_url: partner.url,
      authentication: { method: 'key', header: 'x-api-key', key: 'a-key-of-the-timing' },
      biller_id: 'sandbox-utility',
      accounts: { payable: 'active', other: 'active-2', unknown: 'nobody', inactive: 'inactive' },
      terminal_window_seconds: 30,
      spending_cap_in_cents: 20_000_000_000,
    },
    {},
  );
  const report = await judgePartner(target);
  await partner.stop();
  const slowest = [...report.results].sort((one, other) => other.duration_ms - one.duration_ms);
  console.log(
    `${ms} ms a call: ${report.counts.PASS} checks passed, ${report.counts.FAIL} failed, in ${(report.duration_ms / 1_000).toFixed(1)} s; slowest ${slowest
      .slice(0, 5)
      .map(({ id, duration_ms }) => `${id} ${(duration_ms / 1_000).toFixed(1)}`)
      .join(', ')}`,
  );
}
