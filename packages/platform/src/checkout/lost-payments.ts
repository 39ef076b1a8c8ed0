/**
 * Payments that the database has lost after their commit, as it does when an asynchronous standby takes over.
 *
 * enters: every payment that this process has just committed.  leaves: each that is gone is told (log, metric, a case, the audit) and
 *         put back under its own id, so that its partner posts it once (RU5).
 * holds:  what is known of the latest payments, in memory: the latest KEPT of the last KEPT_MS. The database is asked for them only
 *         after another server has begun to answer, or one did not answer.
 *
 * A payment that its process and the database have both forgotten is found by reconciliation, and by the page that still has its id
 * (payment-id.ts).
 */
import { repeatedly, sql, type Metrics, type Transaction } from '@duebridge/runtime';
import { maskAccountId } from '../mask.ts';
import { batchFor } from '../reconciliation/batch.ts';
import type { Services } from '../services.ts';
import { note } from '../store/audit.ts';
import { openCase } from '../store/cases.ts';
import { ARRIVALS, type PaymentRow } from '../store/payments.ts';
import { flowPayment, lockFlow, writePayment, type PayableSession } from './flow.ts';

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

/** The server that answers, by when it was started: after a failover it is another. */
const serverStatement = sql(`
   SELECT extract(epoch FROM pg_postmaster_start_time())::float8 AS started`);
const presentStatement = sql(`
   SELECT platform_payment_id FROM duebridge_platform.payments WHERE platform_payment_id = ANY($1::text[])`);

/** What looking for lost payments depends on. */
type LostOptions = Pick<Services, 'database' | 'registry' | 'funding' | 'clock' | 'log'> &
  Partial<Pick<Services, 'metrics'>>;

/** The payments of one process. */
export class LostPayments {
  readonly #on: LostOptions;
  readonly #found: ReturnType<Metrics['counter']> | undefined;
  readonly #kept = new Map<string, MadePayment & { readonly at: number }>();
  /** The id of each flow's latest. */
  readonly #latest = new Map<string, string>();
  /** Those that the database lacks and that are not put back yet. */
  readonly #missing = new Set<string>();
  /** The server at the last look; undefined before the first, null after one that failed. */
  #server: number | null | undefined;

  constructor(options: LostOptions) {
    this.#on = options;
    this.#found = options.metrics?.counter(
      'duebridge_payments_lost_total',
      'Acknowledged payments that the database has lost; each is put back',
    );
    options.metrics?.gauge(
      'duebridge_payments_lost',
      'Payments that the database has lost and that could not be put back yet',
      [],
      () => this.#missing.size,
    );
  }

  /** Remembers a payment that was committed. */
  keep(made: MadePayment): void {
    const { platform_payment_id } = made.payment;
    this.#kept.set(platform_payment_id, { ...made, at: this.#on.clock.monotonic() });
    this.#latest.set(made.session.flow_id.toString('hex'), platform_payment_id);
    this.#prune();
  }

  /** The flow's latest payment that this process committed lately; whether the database still has it is not known. */
  latestOf(flow_id: Buffer): MadePayment | undefined {
    return this.#kept.get(this.#latest.get(flow_id.toString('hex')) ?? '');
  }

  /**
   * Writes a payment again that the database does not have, into the batch given, inside a transaction that holds the flow's lock; any
   * worker takes it from there.
   */
  async putBack(
    tx: Transaction,
    made: MadePayment,
    platform_batch_id: string,
  ): Promise<PaymentRow> {
    this.#tell(made);
    const { payment: before, session, place, instrument } = made;
    const { platform_payment_id, partner_id, created_at } = before;
    const now = this.#on.clock.now();
    const payment = await writePayment(tx, this.#on.funding, {
      session,
      place,
      instrument,
      now,
      platform_payment_id,
      platform_batch_id,
      amount_in_cents: before.amount_in_cents,
      funding_method: before.funding_method,
      slot: ARRIVALS,
      stage: 'created',
      maybe_sent: true,
      actor: ACTOR,
    });
    const detail = { confirmed_at: created_at, former_batch_id: before.platform_batch_id };
    const event = 'payment_put_back';
    await note(tx, { actor: ACTOR, event, platform_payment_id, partner_id, detail });
    await openCase(tx, 'complained', {
      case_id: `put-back-${platform_payment_id}`,
      platform_payment_id,
      reason_code: 'other',
      actor: ACTOR,
      at: new Date(now).toISOString(),
      reason: 'The database had lost this payment; it was put back',
    });
    return payment;
  }

  /** Looks until `signal` aborts, then resolves. */
  watch(signal: AbortSignal): Promise<void> {
    const failure = 'could not look for payments that the database lost';
    return repeatedly({ ...this.#on, signal }, LOOK_EVERY_MS, failure, () => this.look());
  }

  /** Looks once: after the first look, at what was kept. For `watch` and tests. */
  async look(): Promise<void> {
    const [row] = await this.#on.database
      .query<{ started: number }>(serverStatement)
      .catch(() => []);
    if (row !== undefined) {
      this.#prune();
      // Nothing is looked for at first. Another server may lack anything; the same one what it lacked.
      const isSame = this.#server === row.started;
      if (this.#server !== undefined) await this.#restoreOf(isSame ? this.#missing : this.#kept);
    }
    this.#server = row?.started ?? null;
  }

  /** Puts back those that the database does not have. */
  async #restoreOf(all: { keys(): Iterable<string> }): Promise<void> {
    const ids = [...all.keys()];
    for (let from = 0; from < ids.length; from += AT_ONCE) {
      const some = ids.slice(from, from + AT_ONCE);
      const rows = await this.#on.database.query<Pick<PaymentRow, 'platform_payment_id'>>(
        presentStatement,
        [some],
      );
      const present = new Set(rows.map((one) => one.platform_payment_id));
      for (const id of some) {
        const made = this.#kept.get(id);
        if (made === undefined) continue;
        if (!present.has(id)) this.#tell(made);
        if (present.has(id) || (await this.#restore(made))) this.#missing.delete(id);
      }
    }
  }

  /** Says once that a payment is lost. */
  #tell(made: MadePayment): void {
    const { platform_payment_id } = made.payment;
    if (this.#missing.has(platform_payment_id)) return;
    this.#missing.add(platform_payment_id);
    this.#found?.inc({});
    this.#on.log.error(known(made), 'the database has lost a payment that it had acknowledged');
  }

  /** Puts a lost payment back; false when it could not be. */
  async #restore(made: MadePayment): Promise<boolean> {
    const { database, registry, clock, log } = this.#on;
    const { payment, session } = made;
    const { platform_payment_id, partner_id, created_at } = payment;
    try {
      const partner = await registry.get(partner_id);
      if (partner === undefined) throw new Error(`the database has lost the partner ${partner_id}`);
      const write = async (at: number): Promise<void> => {
        const batch = await batchFor(database, partner, at);
        await database.transaction(async (tx) => {
          await lockFlow(tx, session);
          // A repeated confirm may have made it again.
          const stored = await flowPayment(tx, session, platform_payment_id);
          if (stored === undefined) await this.putBack(tx, made, batch);
        });
      };
      // The window of the confirm, under the id that the partner was told; the one open now if that has been closed.
      await write(Date.parse(created_at)).catch(() => write(clock.now()));
      log.warn(known(made), 'the lost payment was put back');
      return true;
    } catch (error) {
      const said = 'the lost payment could not be put back yet; trying again';
      log.error({ ...known(made), error }, said);
      return false;
    }
  }

  /** Forgets the oldest; one that is missing is kept for longer. */
  #prune(): void {
    const now = this.#on.clock.monotonic();
    for (const [id, made] of this.#kept) {
      const size = this.#kept.size;
      if (size <= KEPT && now - made.at < KEPT_MS) return;
      if (this.#missing.has(id)) {
        if (size > 2 * KEPT) return;
        continue;
      }
      this.#kept.delete(id);
      const flow = made.session.flow_id.toString('hex');
      if (this.#latest.get(flow) === id) this.#latest.delete(flow);
    }
  }
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
