/**
 * Judges the fresh wrong peers, one fault each, in the strict profile, and writes the findings to
 * results.json and docs/fresh-peers.md.
 */
import { writeFileSync } from 'node:fs';
import { format, resolveConfig } from 'prettier';
import { freePort } from '@duebridge/runtime/testing';
import { readWords, refuse, whole } from '../../../../scripts/words.ts';
import type { Pace } from '../../src/check/pace.ts';
import { partnerTarget, platformTarget, type Draft } from '../../src/check/target.ts';
import { judgePartner, judgePlatform, type RunReport } from '../../src/run.ts';
import { Caller, type Access } from './caller.ts';
import { ACCOUNTS, BILLER, CLIENT, KEY, MAX_AMOUNT_IN_CENTS, Partner } from './partner.ts';
import {
  fresh,
  FILE,
  kept,
  page,
  PAGE,
  unusual,
  type Fresh,
  type Kept,
  type Kind,
} from './results.ts';
import {
  CREDENTIALS,
  KNOWN_ACCOUNT,
  OTHER_CREDENTIALS,
  Platform,
  UNKNOWN_ACCOUNT,
} from './platform.ts';
import type { WrongCaller } from './wrong-callers.ts';
import type { WrongPartner } from './wrong-partners.ts';
import type { WrongPlatform } from './wrong-platforms.ts';

const KINDS: readonly Kind[] = ['partners', 'platforms', 'callers'];
const HELP = `Usage: npm run fresh -- [${KINDS.join('|')}] [NAME …] [--at-once N] [--all]

NAME is the beginning of a name; all of a kind unless given. --all prints each finding.`;

/** The verdict on one peer: the checks that failed, and those that only warned. */
export interface Said {
  readonly failed: readonly string[];
  readonly warned: readonly string[];
  /** The first finding of each check. */
  readonly first: readonly string[];
  readonly duration_ms: number;
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
      cancel: { method: 'POST', url: `${url}/operator/cancel/{platform_payment_id}` },
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
      other_client: OTHER_CREDENTIALS,
      kind,
      biller_id: BILLER,
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

/** Values that a caller must encode, as a form field and in a path. */
const CALLERS_CLIENT = { ...CLIENT, client_secret: 's3cret +of/the&platform=100%' };
const CALLERS_OTHER_ACCOUNT = 'A 1002/é+';

export async function judgeFreshCaller({
  make,
  access: how,
}: Pick<WrongCaller, 'make' | 'access'>): Promise<Said> {
  const port = await freePort();
  const partner = `http://127.0.0.1:${String(port)}`;
  const access: Access =
    how === 'oauth'
      ? CALLERS_CLIENT
      : { header: how === 'key' ? 'x-api-key' : 'authorization', key: KEY };
  const caller = new make(partner, access);
  const url = await caller.open();
  try {
    const draft: Draft = {
      caller: {
        port,
        authentication:
          'key' in access
            ? { method: 'key', ...access }
            : { method: 'oauth', ...CALLERS_CLIENT, token_url: `${partner}/oauth/token` },
        biller_id: BILLER,
        account_id: ACCOUNTS.active,
        other_account_id: CALLERS_OTHER_ACCOUNT,
        patience_seconds: 15,
        pay_url: `${url}/pay`,
        status_url: `${url}/payments/{platform_payment_id}`,
      },
    };
    return said(
      await judgePlatform(platformTarget(draft, {}), {
        profile: 'strict',
        pace: { quiet_ms: 800 },
        restart: async () => {
          caller.restart();
          caller.resume();
        },
      }),
    );
  } finally {
    await caller.close();
  }
}

interface Job {
  readonly kind: Kind;
  readonly name: string;
  readonly how: string;
  readonly judge: (pace?: Partial<Pace>) => Promise<Said>;
}

/** The correct peers, which must pass without a warning, and every wrong one. */
export function jobs(): readonly Job[] {
  const right = (kind: Kind, of: string, judge: Job['judge']): Job => ({
    kind,
    name: `Right ${of}`,
    how: 'right',
    judge,
  });
  return [
    ...(['key', 'oauth'] as const).map((auth) =>
      right('partners', auth, (pace) => judgeFreshPartner({ make: Partner, auth }, pace)),
    ),
    ...(['biller', 'aggregator'] as const).map((kind) =>
      right('platforms', kind, () => judgeFreshPlatform({ make: Platform, kind })),
    ),
    ...(['key', 'authorization', 'oauth'] as const).map((access) =>
      right('callers', access, () => judgeFreshCaller({ make: Caller, access })),
    ),
    ...unusual().map(({ kind, name, peer }) => right(kind, name, (pace) => judge(peer, pace))),
    ...fresh().map(({ kind, name, how, peer }): Job => ({
      kind,
      name,
      how,
      judge: (pace) => judge(peer, pace),
    })),
  ];
}

async function judge(peer: Fresh['peer'], pace?: Partial<Pace>): Promise<Said> {
  if ('auth' in peer) return judgeFreshPartner(peer, pace);
  return 'access' in peer ? judgeFreshCaller(peer) : judgeFreshPlatform(peer);
}

/** Parses the command line. Unknown names are refused before anything is written. */
function chosen(): { readonly queue: Job[]; readonly at_once: number; readonly all: boolean } {
  const { positionals, values } = readWords('fresh', HELP, {
    allowPositionals: true,
    options: {
      'at-once': { type: 'string', default: '4' },
      all: { type: 'boolean', default: false },
    },
  });
  const [kind, ...names] = positionals;
  if (kind !== undefined && !KINDS.some((one) => one === kind)) {
    refuse('fresh', `there is no kind "${kind}"; there are ${KINDS.join(', ')}`);
  }
  const own = jobs().filter((job) => kind === undefined || job.kind === kind);
  const missing = names.find((name) => !own.some((job) => job.name.startsWith(name)));
  if (missing !== undefined) {
    refuse('fresh', `no peer of ${kind} is called "${missing}"; docs/fresh-peers.md lists them`);
  }
  const at_once = whole('fresh', 'at-once', values['at-once']);
  if (at_once < 1) refuse('fresh', '--at-once takes 1 or more');
  return {
    queue: own.filter(
      (job) => names.length === 0 || names.some((name) => job.name.startsWith(name)),
    ),
    at_once,
    all: values.all,
  };
}

if (import.meta.main) {
  const { queue, at_once, all } = chosen();
  const worker = async (): Promise<void> => {
    for (let job = queue.shift(); job !== undefined; job = queue.shift()) {
      const { failed, warned, first: lines, duration_ms } = await job.judge();
      const word = failed.length > 0 ? 'caught' : warned.length > 0 ? 'warned' : 'missed';
      const found = [...failed, ...warned].join(' ');
      const took = `${String(Math.round(duration_ms / 1_000))} s`;
      console.log(`${word.padEnd(6)} ${job.kind} ${job.name} (${job.how}) ${found} ${took}`);
      if (all || job.how === 'right') {
        for (const line of lines) console.log(`    ${line.slice(0, 300)}`);
      }
      if (job.how === 'right') continue;
      const key = `${job.kind} ${job.name}`;
      // Read again each time: another run may have written its results meanwhile.
      const results = kept();
      const { before } = results[key] ?? {};
      const now: Kept = { ...(before === undefined ? {} : { before }), now: { failed, warned } };
      writeFileSync(FILE, JSON.stringify({ ...results, [key]: now }));
    }
  };
  await Promise.all(Array.from({ length: at_once }, worker));
  const sorted = Object.entries(kept()).sort(([one], [other]) => (one < other ? -1 : 1));
  const json = JSON.stringify(Object.fromEntries(sorted), undefined, 1);
  writeFileSync(FILE, await format(json, { ...(await resolveConfig(FILE)), filepath: FILE }));
  writeFileSync(PAGE, page(Object.fromEntries(sorted)));
}
