/**
 * Acts on several payments, one after the other (decision 166): what was planned, and what became of each.
 *
 * enters: a plan from the payments list.  leaves: one call for each payment, and its result.
 * holds:  a run is kept in this browser after every step, so that it goes on after a reload; a call whose answer was not seen is
 *         looked up in the payment's audit before it is made again. One tab drives a run; others follow it.
 */
import type {
  BulkAct,
  BulkPreview,
  PartnerAnswer,
  PaymentDetail,
  ReviewClose,
} from '@duebridge/contract';
import { signal } from '@preact/signals';
import { ApiError, get, post, self, whoAmI } from './api.ts';

/** One payment of a run. */
export interface Item {
  readonly id: string;
  readonly partner: string;
  readonly cents: number;
  /** What the dry run said. */
  readonly would: string;
  readonly state: 'waiting' | 'asking' | 'done' | 'refused';
  /** What came of it, or why it was refused. */
  readonly told: string;
}

/** One act on several payments. */
export interface Run {
  readonly id: string;
  readonly act: BulkAct;
  /** The operator who planned it; nobody else goes on with it. */
  readonly by: string;
  readonly planned_at: string;
  readonly started_at: string | null;
  readonly reason: string;
  readonly state: 'planned' | 'running' | 'stopped' | 'done';
  readonly items: readonly Item[];
}

const PREFIX = 'bulk-run ';
/** Runs that a browser keeps; the oldest are forgotten, the audit keeps every act. */
const KEPT = 20;
/** Before a call whose answer is not known is looked up. */
const AGAIN_MS = 2_000;
/** How far this computer's clock may be ahead of the database's. */
const SKEW_MS = 120_000;

/** Counts changes, here or in another tab, so that pages read again. */
export const changes = signal(0);
addEventListener('storage', ({ key }) => {
  if (key?.startsWith(PREFIX) === true) changes.value += 1;
});

export function runOf(id: string): Run | undefined {
  try {
    const text = localStorage.getItem(PREFIX + id);
    return text === null ? undefined : (JSON.parse(text) as Run);
  } catch {
    return undefined;
  }
}

/** The runs of this browser, newest first. */
export function runs(): readonly Run[] {
  return Object.keys(localStorage)
    .filter((key) => key.startsWith(PREFIX))
    .map((key) => runOf(key.slice(PREFIX.length)))
    .filter((run) => run !== undefined)
    .sort((a, b) => (a.planned_at < b.planned_at ? 1 : -1));
}

function keep(run: Run): void {
  localStorage.setItem(PREFIX + run.id, JSON.stringify(run));
  changes.value += 1;
}

/** Asks what the act would do to each of these payments, and keeps the plan. Throws ApiError. */
export async function planRun(act: BulkAct, ids: readonly string[]): Promise<string> {
  // Also where the console is served without TLS, which has no randomUUID.
  const id = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) =>
    byte.toString(16).padStart(2, '0'),
  ).join('');
  const by = self.value?.operator_id ?? '';
  const items = await previewed(act, ids);
  const state = 'planned';
  const planned_at = new Date().toISOString();
  for (const old of runs().slice(KEPT - 1)) localStorage.removeItem(PREFIX + old.id);
  keep({ id, act, by, planned_at, started_at: null, reason: '', state, items });
  return id;
}

async function previewed(act: BulkAct, ids: readonly string[]): Promise<Item[]> {
  const body = { act, platform_payment_ids: ids };
  const { payments } = await post<BulkPreview>('/payments/preview', body);
  return payments.map(({ platform_payment_id, payment, refused, would }) => ({
    id: platform_payment_id,
    partner: payment?.partner_id ?? '',
    cents: payment?.amount_in_cents ?? 0,
    would,
    state: refused ? 'refused' : 'waiting',
    told: refused ? would : '',
  }));
}

/** Starts a planned run. Payments that the dry run refused stay refused. */
export function startRun(id: string, reason: string): void {
  const run = runOf(id);
  if (run?.state !== 'planned') return;
  keep({ ...run, reason, state: 'running', started_at: new Date().toISOString() });
  drive(id);
}

/** Stops after the call that is under way. */
export function stopRun(id: string): void {
  const run = runOf(id);
  if (run?.state === 'running') keep({ ...run, state: 'stopped' });
}

export function continueRun(id: string): void {
  const run = runOf(id);
  if (run?.state !== 'stopped') return;
  keep({ ...run, state: 'running' });
  drive(id);
}

/** Goes on with this operator's runs, after a reload or a new sign-in. */
export function resumeRuns(): void {
  for (const run of runs()) {
    if (isOn(run)) drive(run.id);
  }
}

/** Whether a run goes on here: nobody goes on with that of another operator. */
const isOn = (run: Run | undefined): run is Run =>
  run?.state === 'running' && run.by === self.value?.operator_id;

const driven = new Set<string>();

/** Drives a run to its end, once its turn comes: another tab may be driving it. */
function drive(id: string): void {
  if (driven.has(id)) return;
  driven.add(id);
  const turn =
    'locks' in navigator ? navigator.locks.request(PREFIX + id, () => steps(id)) : steps(id);
  void turn.finally(() => {
    driven.delete(id);
    // It was stopped and continued while its last call was under way.
    if (isOn(runOf(id))) drive(id);
  });
}

async function steps(id: string): Promise<void> {
  for (;;) {
    const run = runOf(id);
    if (!isOn(run)) return;
    // One that was being asked when the page was left comes first.
    const item =
      run.items.find(({ state }) => state === 'asking') ??
      run.items.find(({ state }) => state === 'waiting');
    if (item === undefined) {
      keep({ ...run, state: 'done' });
      return;
    }
    const wasAsked = item.state === 'asking';
    change(id, item.id, { state: 'asking', told: '' });
    try {
      const told =
        wasAsked && (await isInAudit(run, item.id))
          ? 'Done; its answer was not seen.'
          : await ask(run, item.id);
      change(id, item.id, { state: 'done', told });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      // Signed out: it stays asked, and goes on at the next sign-in.
      if (error.code === 'UNAUTHORIZED') return;
      // Somebody signed in again in another tab.
      const isStale = error.code === 'CSRF_TOKEN_REQUIRED';
      if (isStale) await whoAmI();
      if (error.again || isStale) {
        change(id, item.id, { state: 'asking', told: error.message });
        await new Promise((resolve) => {
          setTimeout(resolve, AGAIN_MS);
        });
      } else change(id, item.id, { state: 'refused', told: error.message });
    }
  }
}

function change(id: string, payment: string, to: Pick<Item, 'state' | 'told'>): void {
  const run = runOf(id);
  if (run === undefined) return;
  keep({
    ...run,
    items: run.items.map((item) => (item.id === payment ? { ...item, ...to } : item)),
  });
}

async function ask({ act, reason }: Run, payment: string): Promise<string> {
  const answer = await post<unknown>(`/payments/${encodeURIComponent(payment)}/${act}`, { reason });
  switch (act) {
    case 'resume':
      return 'It is sent again.';
    case 'withdraw':
      return 'It is canceled.';
    case 'poll':
      return `The partner says: ${(answer as PartnerAnswer).answer}.`;
    case 'close':
      return (answer as ReviewClose).outcome === 'closed'
        ? 'It ended as failed.'
        : 'It waits for a second person.';
  }
}

const EVENTS: Readonly<Record<BulkAct, readonly string[]>> = {
  resume: ['payment_resumed'],
  withdraw: ['payment_ended'],
  poll: ['payment_polled'],
  close: ['payment_ended', 'review_close_requested'],
};

/** Whether this run's act on a payment stands in the payment's audit. */
async function isInAudit({ act, by, reason, started_at }: Run, payment: string): Promise<boolean> {
  const { audit } = await get<PaymentDetail>(`/payments/${encodeURIComponent(payment)}`);
  const since = new Date(Date.parse(started_at ?? '') - SKEW_MS).toISOString();
  return audit.some(
    (entry) =>
      EVENTS[act].includes(entry.event) &&
      entry.detail['reason'] === reason &&
      // The audit names the first of two persons who closed it.
      (entry.actor === by || entry.detail['approved_by'] === by) &&
      new Date(entry.at).toISOString() >= since,
  );
}
