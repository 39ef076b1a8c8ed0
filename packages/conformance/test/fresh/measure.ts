/**
 * Judges peers that nobody wrote a check against, one fault each, in the strict profile.
 *
 *   node packages/conformance/test/fresh/measure.ts [partners|platforms|callers] [NAME …]
 */
import { parseArgs } from 'node:util';
import type { Pace } from '../../src/check/pace.ts';
import { partnerTarget, platformTarget, type Draft } from '../../src/check/target.ts';
import { judgePartner, judgePlatform, type RunReport } from '../../src/run.ts';
import { freePort } from '../peers.ts';
import { Caller, type Access } from './caller.ts';
import { ACCOUNTS, BILLER, CLIENT, KEY, MAX_AMOUNT_IN_CENTS, Partner } from './partner.ts';
import { CREDENTIALS, KNOWN_ACCOUNT, Platform, UNKNOWN_ACCOUNT } from './platform.ts';
import { WRONG_CALLERS, type WrongCaller } from './wrong-callers.ts';
import { WRONG_PARTNERS, type WrongPartner } from './wrong-partners.ts';
import { WRONG_PLATFORMS, type WrongPlatform } from './wrong-platforms.ts';

/** What the judge said of one peer: the checks that failed, and those that only warned. */
export interface Said {
  readonly failed: readonly string[];
  readonly warned: readonly string[];
  /** The first finding of each. */
  readonly first: readonly string[];
  readonly duration_ms: number;
  readonly skipped: readonly string[];
}

function said(report: RunReport): Said {
  const of = (verdict: string): string[] =>
    report.results.filter((one) => one.verdict === verdict).map(({ id }) => id);
  const first = report.results.flatMap(({ id, verdict, findings: [one] }) =>
    one === undefined ? [] : `${id} ${verdict}: expected ${one.expected}; got ${one.got}`,
  );
  return {
    failed: of('FAIL'),
    warned: of('WARN'),
    first: [...first, ...report.judge_failed, ...(report.config ? [report.config.sentence] : [])],
    duration_ms: report.duration_ms,
    skipped: report.results
      .filter(({ id, verdict }) => verdict === 'SKIP' && !id.startsWith('T'))
      .map(({ id, skipped }) => `${id} ${skipped ?? ''}`),
  };
}

export async function judgeFreshPartner(
  { make, auth }: Pick<WrongPartner, 'make' | 'auth'>,
  pace: Partial<Pace> = {},
): Promise<Said> {
  const partner = new make(auth);
  const url = await partner.open();
  try {
    const draft: Draft = {
      base_url: url,
      authentication:
        auth === 'key'
          ? { method: 'key', header: 'x-api-key', key: KEY }
          : { method: 'oauth', ...CLIENT, token_url: `${url}/oauth/token` },
      biller_id: BILLER,
      accounts: {
        payable: ACCOUNTS.active,
        other: ACCOUNTS.other,
        inactive: ACCOUNTS.inactive,
        unknown: ACCOUNTS.unknown,
        canceled: ACCOUNTS.canceling,
      },
      limits: { max_amount_in_cents: MAX_AMOUNT_IN_CENTS },
      terminal_window_seconds: 20,
      spending_cap_in_cents: 1_000_000_000_000,
    };
    const report = await judgePartner(partnerTarget(draft, {}), {
      profile: 'strict',
      pace: { request_timeout_ms: 15_000, ...pace },
      restart: async () => partner.restart(),
    });
    return said(report);
  } finally {
    await partner.close();
  }
}

export async function judgeFreshPlatform({
  make,
  kind,
}: Pick<WrongPlatform, 'make' | 'kind'>): Promise<Said> {
  const platform = new make(kind);
  const base_url = await platform.open();
  try {
    const draft: Draft = {
      base_url,
      ...CREDENTIALS,
      kind,
      biller_id: 'city-water',
      account_id: KNOWN_ACCOUNT,
      unknown_account_id: UNKNOWN_ACCOUNT,
      token_sample: 100,
      burst: 80,
    };
    return said(await judgePlatform(platformTarget(draft, {}), { profile: 'strict' }));
  } finally {
    await platform.close();
  }
}

export async function judgeFreshCaller({
  make,
  access: how,
}: Pick<WrongCaller, 'make' | 'access'>): Promise<Said> {
  const port = await freePort();
  const partner = `http://127.0.0.1:${String(port)}`;
  const access: Access =
    how === 'oauth' ? CLIENT : { header: how === 'key' ? 'x-api-key' : 'authorization', key: KEY };
  const caller = new make(partner, access);
  const url = await caller.open();
  try {
    const draft: Draft = {
      caller: {
        port,
        authentication:
          'key' in access
            ? { method: 'key', ...access }
            : { method: 'oauth', ...CLIENT, token_url: `${partner}/oauth/token` },
        biller_id: BILLER,
        account_id: ACCOUNTS.active,
        patience_seconds: 15,
        pay_url: `${url}/pay`,
        status_url: `${url}/payments/{platform_payment_id}`,
      },
    };
    return said(
      await judgePlatform(platformTarget(draft, {}), {
        profile: 'strict',
        pace: { quiet_ms: 800 },
      }),
    );
  } finally {
    await caller.close();
  }
}

interface Job {
  readonly kind: string;
  readonly name: string;
  readonly defect: number;
  readonly how: string;
  readonly judge: () => Promise<Said>;
}

function jobs(): readonly Job[] {
  return [
    ...(['key', 'oauth'] as const).map((auth) => ({
      kind: 'partners',
      name: `Right ${auth}`,
      defect: 0,
      how: 'right',
      judge: () => judgeFreshPartner({ make: Partner, auth }),
    })),
    ...WRONG_PARTNERS.map((one) => ({
      kind: 'partners',
      ...one,
      judge: () => judgeFreshPartner(one),
    })),
    ...(['biller', 'aggregator'] as const).map((kind) => ({
      kind: 'platforms',
      name: `Right ${kind}`,
      defect: 0,
      how: 'right',
      judge: () => judgeFreshPlatform({ make: Platform, kind }),
    })),
    ...WRONG_PLATFORMS.map((one) => ({
      ...one,
      kind: 'platforms',
      judge: () => judgeFreshPlatform(one),
    })),
    ...(['key', 'authorization', 'oauth'] as const).map((access) => ({
      kind: 'callers',
      name: `Right ${access}`,
      defect: 0,
      how: 'right',
      judge: () => judgeFreshCaller({ make: Caller, access }),
    })),
    ...WRONG_CALLERS.map((one) => ({
      kind: 'callers',
      ...one,
      judge: () => judgeFreshCaller(one),
    })),
  ];
}

if (import.meta.main) {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { 'at-once': { type: 'string' }, all: { type: 'boolean' } },
  });
  const [kind, ...names] = positionals;
  const queue = jobs().filter(
    (job) =>
      (kind === undefined || job.kind === kind) &&
      (names.length === 0 || names.some((name) => job.name.startsWith(name))),
  );
  const worker = async (): Promise<void> => {
    for (let job = queue.shift(); job !== undefined; job = queue.shift()) {
      const { failed, warned, first, duration_ms, skipped } = await job.judge();
      const word = failed.length > 0 ? 'caught' : warned.length > 0 ? 'WARNED' : 'MISSED';
      console.log(
        `${word} ${job.kind} ${job.defect} ${job.name} [${[...failed, '|', ...warned].join(' ')}] ${Math.round(duration_ms / 1000)}s  ${job.how}`,
      );
      if (values.all === true || job.defect === 0) {
        for (const line of [...first, ...skipped]) console.log(`    ${line.slice(0, 300)}`);
      }
    }
  };
  await Promise.all(Array.from({ length: Number(values['at-once'] ?? 4) }, worker));
}
