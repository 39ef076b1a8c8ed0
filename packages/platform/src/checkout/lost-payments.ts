/**
 * Payments that the database has lost after their commit, as it does when an asynchronous standby takes over.
 *
 * enters: every payment that this process has just committed.  leaves: each that is gone is told (log, metric, a mark on the
 *         operators' list, the audit) and put back under its own id, so that its partner posts it once (RU5).
 * holds:  what is known of the latest payments, in memory: the latest KEPT of the last KEPT_MS. The database is asked for them only
 *         after another server has begun to answer, or one did not answer.
 *
 * A payment that its process and the database have both forgotten is found by reconciliation, and by the page that still has its id
 * (payment-id.ts).
 */
import {
  sql,
  type Clock,
  type Database,
  type Log,
  type Metrics,
  type Transaction,
} from '@duebridge/runtime';
import type { Funds } from '../funding/funds.ts';
import { maskAccountId } from '../mask.ts';
import type { PartnerRegistry } from '../partners/registry.ts';
import { batchFor } from '../reconciliation/batch.ts';
import { note } from '../store/audit.ts';
import { openCase } from '../store/cases.ts';
import { ARRIVALS, insertPayment, type AuditDetail, type PaymentRow } from '../store/payments.ts';
import { flowPayment, lockFlow, noteFlowPayment, type PayableSession } from './flow.ts';

/** A standby that is further behind than this is no standby to fail over to. */
const KEPT_MS = 15 * 60_000;
/** At 50 payments a second, all of KEPT_MS; some 50 MB. */
const KEPT = 50_000;
/** Interval of asking which server answers: a customer who tries again needs longer. */
const LOOK_EVERY_MS = 1_000;
/** Ids in one statement. */
const AT_ONCE = 5_000;
const ACTOR = 'platform';

/** What is needed to make a payment again. */
export interface MadePayment {
  readonly payment: PaymentRow;
  readonly session: PayableSession;
  /** Its place in the flow's sequence of ids. */
  readonly place: number;
  readonly instrument: string | undefined;
}

export interface LostPayments {
  /** Remembers a payment that was committed. */
  keep(made: MadePayment): void;
  /** The flow's latest payment that this process committed lately; whether the database still has it is not known. */
  latestOf(flow_id: Buffer): MadePayment | undefined;
  /**
   * Writes a payment again that the database does not have, into the batch given, inside a transaction that holds the flow's lock; any
   * worker takes it from there.
   */
  putBack(tx: Transaction, made: MadePayment, platform_batch_id: string): Promise<PaymentRow>;
  /** Looks once: after the first look, at what was kept. For `watch` and tests. */
  look(): Promise<void>;
  /** Looks until `signal` aborts, then resolves. */
  watch(signal: AbortSignal): Promise<void>;
}

/** The server that answers, by when it was started: after a failover it is another. */
const serverStatement = sql(
  'lost_server',
  `SELECT extract(epoch FROM pg_postmaster_start_time())::float8 AS started`,
);
const presentStatement = sql(
  'lost_present',
  'SELECT platform_payment_id FROM duebridge_platform.payments WHERE platform_payment_id = ANY($1::text[])',
);

/** What looking for lost payments depends on. */
interface LostOptions {
  readonly database: Database;
  readonly registry: Pick<PartnerRegistry, 'get'>;
  readonly funding: Pick<Funds, 'keep'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics | undefined;
}

export function openLostPayments(options: LostOptions): LostPayments {
  const { database, clock, log, metrics } = options;
  const memory = openMemory(clock);
  const { kept, missing } = memory;
  /** The server at the last look; undefined before the first, null after one that failed. */
  let server: number | null | undefined;
  const found = metrics?.counter(
    'duebridge_payments_lost_total',
    'Acknowledged payments that the database has lost; each is put back',
  );
  metrics?.gauge(
    'duebridge_payments_lost',
    'Payments that the database has lost and that could not be put back yet',
    [],
    () => missing.size,
  );

  /** Says once that a payment is lost. */
  const tell = (made: MadePayment): void => {
    const { platform_payment_id } = made.payment;
    if (missing.has(platform_payment_id)) return;
    missing.add(platform_payment_id);
    found?.inc({});
    log.error(known(made), 'the database has lost a payment that it had acknowledged');
  };

  const putBack: LostPayments['putBack'] = (tx, made, platform_batch_id) => {
    tell(made);
    return writeAgain(tx, options, made, platform_batch_id);
  };

  const look = async (): Promise<void> => {
    const started = await database.query<{ started: number }>(serverStatement).then(
      ([row]) => row?.started ?? 0,
      () => null,
    );
    const before = server;
    if (started === null) {
      server = null;
      return;
    }
    memory.prune();
    // Nothing is looked for after the first look. Another server may lack anything; the same one what it lacked.
    const ids = before === undefined ? [] : [...(before === started ? missing : kept.keys())];
    for (let from = 0; from < ids.length; from += AT_ONCE) {
      const some = ids.slice(from, from + AT_ONCE);
      const rows = await database.query<{ platform_payment_id: string }>(presentStatement, [some]);
      const present = new Set(rows.map((row) => row.platform_payment_id));
      for (const id of some) {
        const made = kept.get(id);
        if (made === undefined) continue;
        if (!present.has(id)) tell(made);
        if (present.has(id) || (await restore(options, made))) missing.delete(id);
      }
    }
    server = started;
  };

  return {
    keep: (made) => memory.keep(made),
    latestOf: (flow_id) => memory.latestOf(flow_id),
    putBack,
    look,
    async watch(signal) {
      while (!signal.aborted) {
        await look().catch((error: unknown) => {
          log.warn({ error }, 'could not look for payments that the database lost');
        });
        await clock.sleep(LOOK_EVERY_MS, signal);
      }
    },
  };
}

/** The latest payments of this process, and which of them are lost and not put back yet. */
function openMemory(clock: Clock) {
  const kept = new Map<string, MadePayment & { readonly at: number }>();
  const latest = new Map<string, string>();
  const missing = new Set<string>();
  const forget = (id: string, { session }: MadePayment): void => {
    kept.delete(id);
    const flow = session.flow_id.toString('hex');
    if (latest.get(flow) === id) latest.delete(flow);
  };
  const prune = (): void => {
    for (const [id, made] of kept) {
      if (kept.size <= KEPT && clock.monotonic() - made.at < KEPT_MS) return;
      // A missing one is kept for longer.
      if (!missing.has(id)) forget(id, made);
      else if (kept.size > 2 * KEPT) return;
    }
  };
  return {
    kept,
    missing,
    prune,
    keep(made: MadePayment): void {
      const { platform_payment_id } = made.payment;
      kept.set(platform_payment_id, { ...made, at: clock.monotonic() });
      latest.set(made.session.flow_id.toString('hex'), platform_payment_id);
      prune();
    },
    latestOf(flow_id: Buffer): MadePayment | undefined {
      return kept.get(latest.get(flow_id.toString('hex')) ?? '');
    },
  };
}

/** Puts a lost payment back; false when it could not be. */
async function restore(options: LostOptions, made: MadePayment): Promise<boolean> {
  const { database, registry, clock, log } = options;
  const { payment, session } = made;
  const { platform_payment_id, partner_id, created_at } = payment;
  try {
    const partner = await registry.get(partner_id);
    if (partner === undefined) throw new Error(`the database has lost the partner ${partner_id}`);
    const write = async (batch: string): Promise<void> =>
      database.transaction(async (tx) => {
        await lockFlow(tx, session);
        // A repeated confirm may have made it again.
        if ((await flowPayment(tx, session, platform_payment_id)) !== undefined) return;
        await writeAgain(tx, options, made, batch);
      });
    // The window of the confirm, under the id that the partner was told; the one open now if that has been closed.
    await write(await batchFor(database, partner, Date.parse(created_at))).catch(async () =>
      write(await batchFor(database, partner, clock.now())),
    );
    log.warn(known(made), 'the lost payment was put back');
    return true;
  } catch (error) {
    log.error(
      { ...known(made), error },
      'the lost payment could not be put back yet; trying again',
    );
    return false;
  }
}

/** The payment as it was, without a worker. Whichever finds it first takes it. */
async function writeAgain(
  tx: Transaction,
  { funding, clock }: Pick<LostOptions, 'funding' | 'clock'>,
  { payment: before, session, place, instrument }: MadePayment,
  platform_batch_id: string,
): Promise<PaymentRow> {
  const { platform_payment_id, partner_id, biller_id, account_id, created_at } = before;
  const payment = await insertPayment(tx, {
    platform_payment_id,
    partner_id,
    biller_id,
    account_id,
    platform_batch_id,
    amount_in_cents: before.amount_in_cents,
    session_id: before.session_id,
    funding_method: before.funding_method,
    slot: ARRIVALS,
    stage: 'created',
    maybe_sent: true,
    actor: ACTOR,
  });
  await funding.keep(tx, payment, instrument, session.flow_id);
  await noteFlowPayment(tx, session, { platform_payment_id, place, now: clock.now() });
  await notePutBack(tx, payment, clock.now(), {
    confirmed_at: created_at,
    former_batch_id: before.platform_batch_id,
  });
  return payment;
}

/**
 * Tells operators, in the audit and in a case, that a payment was made again because the database had lost it.
 */
async function notePutBack(
  tx: Transaction,
  { platform_payment_id, partner_id }: PaymentRow,
  now: number,
  detail: AuditDetail,
): Promise<void> {
  await note(tx, {
    actor: ACTOR,
    event: 'payment_put_back',
    platform_payment_id,
    partner_id,
    detail,
  });
  await openCase(tx, 'complained', {
    case_id: `put-back-${platform_payment_id}`,
    platform_payment_id,
    reason_code: 'other',
    actor: ACTOR,
    at: new Date(now).toISOString(),
    reason: 'The database had lost this payment; it was put back',
  });
}

/** What the log says of a lost payment: enough to find it in other books. */
function known({ payment }: MadePayment) {
  return {
    platform_payment_id: payment.platform_payment_id,
    partner_id: payment.partner_id,
    biller_id: payment.biller_id,
    account: maskAccountId(payment.account_id),
    amount_in_cents: payment.amount_in_cents,
    funding_method: payment.funding_method,
    platform_batch_id: payment.platform_batch_id,
    confirmed_at: payment.created_at,
  };
}
