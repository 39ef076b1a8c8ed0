/**
 * Stage 9, reconciliation: one batch of ours against the partner's records (PF3, EE3, decision 26).
 *
 * enters: a batch, and perhaps the partner's own file.  leaves: every disagreement, typed; the outcome is in the audit.
 * holds:  nothing is repaired here: an operator decides on a difference (resume, refund, or ask the partner). Reading payment by payment
 *         takes at most half of the partner's budget, a page of memory, and no caller's patience: it runs on, and the same request
 *         again is answered with its progress, then with its result.
 *
 * The partner is asked for its statement first: two equal hashes settle a batch of any size in one call. A partner without
 * statements, and one whose statement differs, is read payment by payment. A file, when given, is compared instead.
 */
import {
  BatchStatement,
  compileCheck,
  Refusal,
  type Difference,
  type Reconciliation,
} from '@duebridge/contract';
import { sql, type Clock, type Database } from '@duebridge/runtime';
import { note } from '../store/audit.ts';
import { keepDifferences } from './differences.ts';
import { compareLines, comparePayment, otherThan } from './compare.ts';
import { readExport } from './export-file.ts';
import { readStatement, REACHED_THE_PARTNER, withLines } from './batch.ts';
import type { PartnerClient } from '../partners/client.ts';
import type { Exchange } from '../partners/http-call.ts';
import type { NotSent } from '../partners/oauth-client.ts';
import type { Partner } from '../partners/registry.ts';
import type { Services } from '../services.ts';
import { PAYMENT_COLUMNS, type PaymentRow } from '../store/payments.ts';

/** What reconciliation needs. */
type Dependencies = Pick<Services, 'database' | 'registry' | 'client' | 'clock'>;

/** Payments read at once at most. Few, because the engine calls the same partner (PL16). */
const READ_AT_ONCE = 4;
/** The share of the partner's calls a second that reading takes: the engine needs the rest. */
const RATE_SHARE = 0.5;
/** Payments of one statement, which sorts the batch's index entries: some ten megabytes. */
const PAGE = 10_000;
/** Retry-After when the partner cannot be reached. */
const RETRY_AFTER_S = '30';
/** A caller waits this long for the end of a comparison, and then gets its progress. */
const ANSWER_MS = 10_000;
/** How long a result is kept for whoever asked for it. */
const RESULT_MS = 60_000;

/** How far a comparison is, and what ends it early. */
interface Run {
  readonly progress: { compared: number; of: number };
  readonly signal: AbortSignal;
}

/** Comparisons by reading each payment, which go on while nobody waits. */
export type Reconciliations = ReturnType<typeof openReconciliations>;

/** Opens the comparisons. */
export function openReconciliations(dependencies: Dependencies) {
  const { database, clock } = dependencies;
  const stopping = new AbortController();
  const { signal } = stopping;
  type Begun = Pick<Run, 'progress'> & { readonly result: Promise<Reconciliation> };
  const runs = new Map<string, Begun>();

  const toTheEnd = async (batch: string, actor: string, run: Run): Promise<Reconciliation> => {
    const start = await startOf(database, batch);
    const found = await compareWithPartner(dependencies, batch, start.partner_id, run);
    await keep(database, start, found, actor);
    return found.result;
  };
  const begin = (platform_batch_id: string, actor: string): Begun => {
    const progress = { compared: 0, of: 0 };
    const run = { progress, result: toTheEnd(platform_batch_id, actor, { progress, signal }) };
    runs.set(platform_batch_id, run);
    const forget = async (): Promise<void> => {
      await clock.sleep(RESULT_MS, signal);
      if (runs.get(platform_batch_id) === run) runs.delete(platform_batch_id);
    };
    run.result.then(forget, forget);
    return run;
  };

  return {
    /**
     * Compares a batch. Answers after ANSWER_MS with `running`, its progress, when it takes longer; the same request again then waits for the
     * same comparison. Throws Refusal BATCH_NOT_FOUND, and PARTNER_UNREACHABLE when the
     * comparison could not be finished: half a comparison would look like agreement. A difference that the partner's statement shows and
     * no payment of ours explains stands under the batch's own id.
     */
    async compare(platform_batch_id: string, actor: string): Promise<Reconciliation> {
      const run = runs.get(platform_batch_id) ?? begin(platform_batch_id, actor);
      const waited = new AbortController();
      const late = clock.sleep(ANSWER_MS, waited.signal).then(() => undefined);
      try {
        const result = await Promise.race([run.result, late]);
        if (result !== undefined) runs.delete(platform_batch_id);
        const { compared, of } = run.progress;
        const soFar = { compared, differences: [], running: { of } };
        return result ?? { platform_batch_id, method: 'payments', ...soFar };
      } catch (error) {
        runs.delete(platform_batch_id);
        throw error;
      } finally {
        waited.abort();
      }
    },

    /** Ends what is under way. */
    async stop(): Promise<void> {
      stopping.abort();
      await Promise.allSettled([...runs.values()].map(({ result }) => result));
    },
  };
}

/**
 * Compares a batch with a file that arrives as a stream: lines are read as they come, so that 100,000 of them block nothing. Throws
 * Refusal BATCH_NOT_FOUND, PAYLOAD_TOO_LARGE, and INVALID_REQUEST for a file that cannot be read.
 */
export async function reconcileFile(
  database: Database,
  platform_batch_id: string,
  file: AsyncIterable<Uint8Array>,
  actor: string,
): Promise<Reconciliation> {
  const start = await startOf(database, platform_batch_id);
  const lines = await readExport(file);
  const found = await withLines(database, platform_batch_id, (pages) => compareLines(pages, lines));
  const result: Reconciliation = { platform_batch_id, method: 'csv', ...found };
  await keep(database, start, { result, theirs: null }, actor);
  return result;
}

/**
 * Whose batch a comparison is of, and when it began by the database's clock: it says nothing of what came later, such as the last payments
 * before the cut-off, however late it ends.
 */
type Start = Readonly<Record<'partner_id' | 'began_at', string>>;

const startStatement = sql(`
   SELECT partner_id, clock_timestamp()::text AS began_at FROM duebridge_platform.batches WHERE platform_batch_id = $1`);
async function startOf(database: Database, platform_batch_id: string): Promise<Start> {
  const [start] = await database.query<Start>(startStatement, [platform_batch_id]);
  if (start === undefined) throw new Refusal('BATCH_NOT_FOUND');
  return start;
}

/** What a run found, and what the partner says about the batch as a whole. */
interface Found {
  readonly result: Reconciliation;
  readonly theirs: BatchStatement | null;
}

const keepStatement = sql(`
   INSERT INTO duebridge_platform.comparisons (platform_batch_id, compared_at, actor, method, compared, differences, partner_statement)
   VALUES ($1, $2, $3, $4, $5, $6, $7)`);
/** Keeps what a run found and the partner's statement, with its line of the audit, in one transaction that holds the batch. */
async function keep(
  database: Database,
  { partner_id, began_at }: Start,
  { result, theirs }: Found,
  actor: string,
): Promise<void> {
  const { platform_batch_id, method, compared, differences } = result;
  await database.transaction(async (tx) => {
    await tx.query(
      'SELECT 1 FROM duebridge_platform.batches WHERE platform_batch_id = $1 FOR NO KEY UPDATE',
      [platform_batch_id],
    );
    const gone = await keepDifferences(tx, { partner_id, began_at, result, actor });
    const row = [platform_batch_id, began_at, actor, method, compared, differences.length];
    await tx.query(keepStatement, [...row, theirs && JSON.stringify(theirs)]);
    const detail = { platform_batch_id, method, compared, differences: differences.length, gone };
    await note(tx, { actor, event: 'batch_reconciled', partner_id, detail });
  });
}

// With the partner itself --------------------------------------------------------------------------------------------------

async function compareWithPartner(
  { database, registry, client, clock }: Dependencies,
  platform_batch_id: string,
  partner_id: string,
  { progress, signal }: Run,
): Promise<Found> {
  const partner = await registry.get(partner_id);
  if (partner === undefined) throw new Refusal('BATCH_NOT_FOUND');
  const here = await readStatement(database, platform_batch_id);
  const there = judgeStatement(await client.getStatement(partner, platform_batch_id));
  if (there?.sha256 === here.sha256 && there.count === here.count) {
    const compared = here.count;
    return {
      result: { platform_batch_id, method: 'statement', compared, differences: [] },
      theirs: there,
    };
  }
  progress.of = here.count;
  const pace = paceOf(partner, clock, signal);
  const differences: Difference[] = [];
  for await (const payments of paymentsOf(database, platform_batch_id)) {
    differences.push(...(await readEach(client, partner, payments, { pace, progress, signal })));
  }
  const { compared } = progress;
  // Its statement can count ours, but for those that it lacks or has in another batch.
  const absent = differences.filter(
    ({ kind, there }) =>
      kind === 'missing_there' && (there === null || there === otherThan('platform_batch_id')),
  );
  const shared = here.count - absent.length;
  const extra = there === undefined ? 0 : there.count - shared;
  if (there !== undefined && extra > 0) {
    differences.push({
      platform_payment_id: platform_batch_id,
      kind: 'missing_here',
      here: `${shared} payments`,
      there: `${there.count} payments`,
    });
  }
  return {
    result: {
      platform_batch_id,
      method: 'payments',
      // What only the partner has is counted too; otherwise the report could say six differences in five payments.
      compared: compared + (extra > 0 ? 1 : 0),
      differences,
      ...(there !== undefined && extra <= 0 ? {} : { file_needed: fileNeeded(extra) }),
    },
    theirs: there ?? null,
  };
}

/** Reading payment by payment cannot find what only the partner has. */
function fileNeeded(extra: number): string {
  const what =
    extra > 0
      ? `The partner counts ${extra} more payments than were found here.`
      : 'The partner offers no statement, so payments that only it has were not looked for.';
  return `${what} To see their ids, compare with its file of the batch (lines platform_payment_id,status,amount_in_cents; from the partner kit: duebridge partner batch export ID).`;
}

const pageStatement = sql(`
   SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.payments p
    WHERE p.platform_batch_id = $1 AND p.platform_payment_id > $2 AND ${REACHED_THE_PARTNER}
    ORDER BY p.platform_payment_id LIMIT ${PAGE}`);

/** The payments of a batch, by id, a page at a time. */
async function* paymentsOf(
  database: Database,
  platform_batch_id: string,
): AsyncGenerator<PaymentRow[]> {
  for (let cursor = ''; ;) {
    const page = await database.query<PaymentRow>(pageStatement, [platform_batch_id, cursor]);
    yield page;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    cursor = last.platform_payment_id;
  }
}

/** Resolves when the next call may leave. */
function paceOf(
  { budget }: Pick<Partner, 'budget'>,
  clock: Clock,
  signal: AbortSignal,
): () => Promise<void> {
  const everyMs = 1_000 / (budget.max_calls_per_second * RATE_SHARE);
  let next = clock.monotonic();
  return async () => {
    const at = Math.max(next, clock.monotonic());
    next = at + everyMs;
    await clock.sleep(at - clock.monotonic(), signal);
  };
}

const statementCheck = compileCheck(BatchStatement);

/** The partner's statement; undefined when it does not offer the extension. Pure. */
function judgeStatement(answer: Exchange | NotSent): BatchStatement | undefined {
  if (answer.kind !== 'reply' || answer.status !== 200) return undefined;
  return statementCheck.holds(answer.json) ? answer.json : undefined;
}

async function readEach(
  client: PartnerClient,
  partner: Partner,
  payments: readonly PaymentRow[],
  { pace, progress, signal }: Run & { readonly pace: () => Promise<void> },
): Promise<Difference[]> {
  const differences: Difference[] = [];
  let next = 0;
  const readOn = async (): Promise<void> => {
    for (let payment = payments[next]; payment !== undefined; payment = payments[next]) {
      next += 1;
      await pace();
      const found = signal.aborted
        ? undefined
        : comparePayment(payment, await client.poll(partner, payment));
      if (found === undefined) {
        next = payments.length;
        throw new Refusal('PARTNER_UNREACHABLE', { headers: { 'Retry-After': RETRY_AFTER_S } });
      }
      differences.push(...found);
      progress.compared += 1;
    }
  };
  const atOnce = Math.min(READ_AT_ONCE, partner.budget.max_concurrent_calls);
  await Promise.all(Array.from({ length: atOnce }, readOn));
  return differences.sort((a, b) => (a.platform_payment_id < b.platform_payment_id ? -1 : 1));
}
