/**
 * The partners of a simulated world: our own kit, on as many replicas as the seed says, and partners in memory that are slow,
 * forgetful, broken or hostile. Each takes a request and returns an answer; what happens to both on the way is up to the network.
 */
import assert from 'node:assert/strict';
import type { Json } from '@duebridge/contract';
import {
  createServer,
  importAccounts,
  partnerKit,
  type AccountsInOwnSystem,
  type Posting,
  type PostOutcome,
} from '@duebridge/partner';
import type { SimulatedPostgres, DatabaseFaults } from './database.ts';
import type { PartnerRow } from './history.ts';
import { Process, type World } from './time.ts';

/** A request of the platform as the partner gets it. */
export interface Request {
  readonly method: 'PUT' | 'GET';
  readonly id: string;
  readonly biller_id: string;
  readonly account_id: string;
  readonly body:
    | { readonly amount_in_cents: number; readonly platform_batch_id: string }
    | undefined;
  /** Seconds for which the answer may be held until the status changes; 0 for none. */
  readonly wait: number;
}

/** What the partner answers. `silent`: it never does. */
export type Response =
  | {
      readonly kind: 'http';
      readonly status: number;
      readonly json: Json | undefined;
      readonly retryAfter?: string;
      readonly waited?: boolean;
    }
  | { readonly kind: 'silent' }
  /** Its certificate is not valid. */
  | { readonly kind: 'certificate' };

/** A partner. */
export interface SimulatedPartner {
  readonly name: string;
  readonly biller_id: string;
  /** Its answers may rightly lead to a review. */
  readonly isWrong: boolean;
  /** It loses accepted payments and then accepts them as new ones. */
  readonly isForgetful: boolean;
  /** The DNS servers of its name are silent. */
  readonly hasDeadName?: boolean;
  handle(request: Request): Promise<Response>;
  /** Ends its faults. */
  heal(): void;
  rows(): Promise<PartnerRow[]>;
  postings(): Promise<{ id: string; cents: number }[]>;
}

const KEY = 'a-key-for-the-simulation';

/**
 * A biller's own system behind the kit, which posts whatever it is given: nothing in it notices that an id comes twice, so that only
 * the kit can keep a payment from being posted again.
 */
export class OwnSystem {
  readonly postings: { id: string; cents: number }[] = [];
  /** Chances that a call fails before it posts, that its answer is lost afterwards, and that a look-up fails; how slow it is. */
  readonly faults = { before: 0, after: 0, lookup: 0, slowMs: 20 };
  /** For how long the replica that looks up next is suspended while it waits for the answer, once. */
  suspendsMs = 0;
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  /** The system as one replica reaches it. */
  asSeenBy(process: Process): AccountsInOwnSystem {
    return {
      posts: 'in_own_system',
      findAccount: (biller_id, account_id) =>
        Promise.resolve({ biller_id, account_id, status: 'active' }),
      post: (payments) => process.arrive(this.#post(payments)),
      lookup: (id) => {
        if (this.suspendsMs > 0) process.pause(this.suspendsMs);
        this.suspendsMs = 0;
        return process.arrive(this.#lookUp(id));
      },
    };
  }

  async #post(payments: readonly Posting[]): Promise<readonly PostOutcome[]> {
    await this.#pause();
    const chance = this.#world.random();
    if (chance < this.faults.before) throw new Error('the system did not answer');
    for (const { platform_payment_id: id, amount_in_cents: cents } of payments) {
      this.postings.push({ id, cents });
    }
    await this.#pause();
    if (chance < this.faults.before + this.faults.after) throw new Error('its answer was lost');
    return payments.map(() => ({ outcome: 'posted' }));
  }

  async #lookUp(id: string): Promise<PostOutcome | undefined> {
    await this.#pause();
    if (this.#world.random() < this.faults.lookup) throw new Error('the system did not answer');
    return this.postings.some((one) => one.id === id) ? { outcome: 'posted' } : undefined;
  }

  #pause(): Promise<void> {
    return this.#world.sleep(this.faults.slowMs * this.#world.random());
  }
}

/** Our kit: the real plugin on the real tables, in one or two processes that can be killed and come back. */
export class KitPartner implements SimulatedPartner {
  readonly name: string;
  readonly biller_id: string;
  readonly isWrong = false;
  readonly isForgetful = false;
  readonly #world: World;
  readonly #postgres: SimulatedPostgres;
  readonly #faults: DatabaseFaults;
  readonly #replicas: { process: Process; app: ReturnType<typeof createServer> | undefined }[] = [];
  readonly #own: OwnSystem | undefined;
  #next = 0;
  #holdMs = 0;

  constructor(
    world: World,
    postgres: SimulatedPostgres,
    faults: DatabaseFaults,
    name: string,
    biller_id: string,
    own?: OwnSystem,
  ) {
    this.#own = own;
    this.#world = world;
    this.#postgres = postgres;
    this.#faults = faults;
    this.name = name;
    this.biller_id = biller_id;
  }

  /** `holdMs`: how long a payment can be canceled before it is posted; then a crash leaves payments that a sweep has to find. */
  async start(replicas: number, accounts: readonly string[], holdMs: number): Promise<void> {
    this.#holdMs = holdMs;
    const setUp = this.#postgres.connect(new Process(this.#world, 'set-up'), {
      down: false,
      lostBefore: 0,
      lostAnswer: 0,
      latencyMs: 0,
    });
    await importAccounts(
      setUp,
      accounts.map((account_id) => ({
        biller_id: this.biller_id,
        account_id,
        status: 'active' as const,
        amount_due_in_cents: 1_000_000,
      })),
    );
    for (let index = 0; index < replicas; index += 1) await this.#open(index);
  }

  /** Kills one replica; it is back after `ms`. */
  crash(ms: number): void {
    const index = this.#next % this.#replicas.length;
    const replica = this.#replicas[index];
    if (replica?.app === undefined) return;
    replica.process.kill();
    replica.app = undefined;
    this.#world.after(ms, () => void this.#open(index));
  }

  pause(ms: number): void {
    this.#replicas[this.#next % this.#replicas.length]?.process.pause(ms);
  }

  stepWallClock(ms: number): void {
    for (const { process } of this.#replicas) process.stepWallClock(ms);
  }

  async handle(request: Request): Promise<Response> {
    this.#next += 1;
    const replica = this.#replicas[this.#next % this.#replicas.length];
    if (replica?.app === undefined) return { kind: 'silent' };
    const { app, process } = replica;
    const { method, id, biller_id, account_id, body, wait } = request;
    const answer = await process.arrive(
      app
        .inject({
          method,
          url: `/biller/${biller_id}/account/${account_id}/payment/${id}`,
          headers: {
            'x-api-key': KEY,
            ...(wait > 0 ? { prefer: `wait=${wait}` } : {}),
            ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          },
          ...(body === undefined ? {} : { payload: JSON.stringify(body) }),
        })
        .then((reply) => reply),
    );
    return {
      kind: 'http',
      status: answer.statusCode,
      json: answer.body === '' ? undefined : (JSON.parse(answer.body) as Json),
      ...(answer.headers['retry-after'] === undefined
        ? {}
        : { retryAfter: answer.headers['retry-after'] }),
      waited: answer.headers['preference-applied'] !== undefined,
    };
  }

  heal(): void {
    // Replicas come back by themselves; the database's faults are the world's to end.
    if (this.#own) Object.assign(this.#own.faults, { before: 0, after: 0, lookup: 0, slowMs: 20 });
  }

  async rows(): Promise<PartnerRow[]> {
    const rows = await this.#postgres.look<{ id: string; status: string; cents: number }>(
      `SELECT platform_payment_id AS id, status, amount_in_cents AS cents FROM duebridge_partner.payment
        WHERE biller_id = $1`,
      [this.biller_id],
    );
    return rows.map((row) => ({ ...row, partner: this.name }));
  }

  postings(): Promise<{ id: string; cents: number }[]> {
    if (this.#own) return Promise.resolve([...this.#own.postings]);
    // What a balance lacks or has beyond its entries was posted for no payment.
    return this.#postgres.look(
      `SELECT platform_payment_id AS id, amount_in_cents AS cents FROM duebridge_partner.payment WHERE in_ledger AND biller_id = $1
        UNION ALL
       SELECT account_id, (entries - owed)::float8 FROM (
         SELECT account_id, amount_due_in_cents AS owed, (SELECT coalesce(sum(amount_in_cents), 0) FROM duebridge_partner.movement AS e
                 WHERE e.account_id = a.account_id AND e.biller_id = a.biller_id) AS entries
           FROM duebridge_partner.account AS a WHERE biller_id = $1) AS balances WHERE entries <> owed`,
      [this.biller_id],
    );
  }

  stop(): void {
    for (const { process } of this.#replicas) process.kill();
  }

  async #open(index: number): Promise<void> {
    const process = new Process(this.#world, `${this.name} ${index + 1}`);
    const slot = this.#replicas[index] ?? { process, app: undefined };
    slot.process = process;
    this.#replicas[index] = slot;
    const app = createServer({ clock: process.clock });
    for (;;) {
      try {
        await app.register(partnerKit, {
          database: this.#postgres.connect(process, this.#faults),
          auth: { method: 'key', header: 'x-api-key', keys: [KEY] },
          clock: process.clock,
          holdMs: this.#holdMs,
          ...(this.#own === undefined ? {} : { accounts: this.#own.asSeenBy(process) }),
        });
        await app.ready();
        break;
      } catch {
        // The database is down: a supervisor restarts the process.
        await process.clock.sleep(1_000);
        return this.#open(index);
      }
    }
    slot.app = app;
  }
}

/** How a partner in memory behaves until it is healed. */
export type Trouble =
  | 'none'
  | 'always_500'
  | 'refuses_credentials'
  | 'refuses_one'
  | 'fails_one'
  | 'hangs'
  | 'too_many_requests'
  | 'forgets'
  /** It accepts a payment each time it is put, and knows nothing of it when it is read. */
  | 'denies_reads'
  /** It asks for ten minutes' patience with the first payment, and takes every other. */
  | 'delays_one'
  | 'claims_to_wait'
  /** The DNS servers of its name are silent. */
  | 'dead_name'
  | 'html'
  | 'other_amount';

/** A partner in memory, correct except for its trouble. */
export class ModelPartner implements SimulatedPartner {
  readonly name: string;
  readonly biller_id: string;
  readonly #world: World;
  readonly #settleMs: number;
  readonly #payments = new Map<string, Stored>();
  readonly #posted: { id: string; cents: number }[] = [];
  /** The one payment that `refuses_one`, `fails_one` and `delays_one` pick on: the first. */
  #victim: string | undefined;
  #trouble: Trouble;
  readonly isWrong: boolean;
  readonly isForgetful: boolean;

  constructor(world: World, name: string, biller_id: string, trouble: Trouble, settleMs: number) {
    this.#world = world;
    this.name = name;
    this.biller_id = biller_id;
    this.#trouble = trouble;
    this.#settleMs = settleMs;
    this.isWrong = trouble === 'other_amount' || trouble === 'denies_reads';
    this.isForgetful = trouble === 'forgets';
  }

  get hasDeadName(): boolean {
    return this.#trouble === 'dead_name';
  }

  handle(request: Request): Promise<Response> {
    this.#victim ??= request.id;
    const troubled = this.#troubled(request);
    return Promise.resolve(troubled ?? this.#answer(request));
  }

  heal(): void {
    this.#trouble = 'none';
  }

  /**
   * Loses its newest records, as a restore from a backup does: those that have not ended. One whose end was reported and then lost
   * is found only by reconciliation, because nobody asks again.
   */
  forget(): void {
    const open = [...this.#payments].filter(([, { status }]) => status === 'processing');
    for (const [id] of open.slice(-3)) this.#payments.delete(id);
  }

  rows(): Promise<PartnerRow[]> {
    return Promise.resolve(
      [...this.#payments].map(([id, { status, cents }]) => ({
        id,
        status,
        cents,
        partner: this.name,
      })),
    );
  }

  postings(): Promise<{ id: string; cents: number }[]> {
    return Promise.resolve([...this.#posted]);
  }

  #troubled({ id, method }: Request): Response | undefined {
    switch (this.#trouble) {
      case 'always_500':
        return http(500, { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' });
      case 'refuses_credentials':
        return http(401, { code: 'UNAUTHORIZED', message: 'no' });
      case 'refuses_one':
        return id === this.#victim ? http(403, { code: 'FORBIDDEN', message: 'no' }) : undefined;
      case 'fails_one':
        return id === this.#victim ? http(500, { code: 'X', message: 'no' }) : undefined;
      case 'delays_one':
        return id === this.#victim
          ? { ...http(503, { code: 'LATER', message: 'no' }), retryAfter: '600' }
          : undefined;
      case 'denies_reads':
        return method === 'GET'
          ? http(404, { code: 'PAYMENT_NOT_FOUND', message: 'Payment not found' })
          : undefined;
      case 'hangs':
        return { kind: 'silent' };
      case 'too_many_requests':
        return this.#world.random() < 0.7
          ? http(429, { code: 'TOO_MANY', message: 'no' })
          : undefined;
      case 'html':
        return { kind: 'http', status: 200, json: undefined };
      case 'none':
      case 'forgets':
      case 'claims_to_wait':
      case 'dead_name':
      case 'other_amount':
        return undefined;
    }
  }

  #answer({ method, id, body }: Request): Response {
    if (method === 'PUT' && !this.#payments.has(id)) {
      assert(body);
      this.#accept(id, body.amount_in_cents, body.platform_batch_id);
    }
    const stored = this.#payments.get(id);
    if (stored === undefined)
      return http(404, { code: 'PAYMENT_NOT_FOUND', message: 'Payment not found' });
    // What it denies when it is read, it never reports as ended.
    const { status, posted_at } =
      this.#trouble === 'denies_reads'
        ? { status: 'processing' as const, posted_at: null }
        : stored;
    return {
      ...http(200, {
        payment_id: stored.payment_id,
        platform_payment_id: id,
        platform_batch_id: stored.batch,
        status,
        amount_in_cents: this.#trouble === 'other_amount' ? stored.cents + 1 : stored.cents,
        initiated_at: stored.initiated_at,
        posted_at,
        ...(status === 'failed' ? { failure_reason: 'Account not found or inactive' } : {}),
      }),
      waited: this.#trouble === 'claims_to_wait',
    };
  }

  #accept(id: string, cents: number, batch: string): void {
    const stored: Stored = {
      payment_id: `their-${this.#world.elapsed}-${this.#payments.size}`,
      batch,
      cents,
      status: 'processing',
      initiated_at: new Date(this.#world.now()).toISOString(),
      posted_at: null,
    };
    this.#payments.set(id, stored);
    this.#world.after(this.#settleMs * (0.5 + this.#world.random()), () => {
      if (this.#payments.get(id) !== stored) return;
      const chance = this.#world.random();
      stored.status = chance < 0.85 ? 'succeeded' : chance < 0.95 ? 'failed' : 'canceled';
      if (stored.status !== 'succeeded') return;
      stored.posted_at = new Date(this.#world.now()).toISOString();
      this.#posted.push({ id, cents });
    });
  }
}

interface Stored {
  readonly payment_id: string;
  readonly batch: string;
  readonly cents: number;
  status: 'processing' | 'succeeded' | 'failed' | 'canceled';
  readonly initiated_at: string;
  posted_at: string | null;
}

function http(status: number, json: Json): Extract<Response, { kind: 'http' }> {
  return { kind: 'http', status, json };
}
