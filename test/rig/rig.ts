/**
 * Both sides as real processes under faults: two platform workers and two kits, each behind proxies of ours, over a real PostgreSQL.
 * A round drives payments, lets one fault happen in the middle, heals, and waits until everything has come to its end; then the
 * simulator's checkers judge what was recorded.
 *
 * Kits keep their accounts in their own database (`books`) or in front of another system (`own`).
 *
 * One file because a round starts, breaks, heals and reads the same processes.
 */
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ClientKeyGrant } from '@duebridge/contract';
import {
  ensureDatabase,
  openDatabase,
  startEmbeddedPostgres,
  type Database,
  type EmbeddedPostgres,
} from '@duebridge/runtime';
import { freePort, seededRandom } from '@duebridge/runtime/testing';
import { request } from 'undici';
import { check, type Violation } from '../simulation/checkers.ts';
import { History, type Ending, type PartnerRow, type PlatformRow } from '../simulation/history.ts';
import { Browser, call, createToken, type Answer } from '../support/customer.ts';
import { Gateway } from './gateway.ts';
import { Server } from '../support/processes.ts';
import { OwnSystem } from './own-system.ts';
import { healthyPostgres, PostgresProxy } from './postgres-proxy.ts';
import type { Armed } from './preload.ts';

/**
 * After healing, payments must go on ending: when for so long not one of those that are open has been settled, they are stuck. What
 * is merely slow, because other programs have the processors, is waited for.
 */
const BOUND_MS = 90_000;
/** However slow the machine is, a round is judged after this time. */
const LONGEST_MS = 4 * BOUND_MS;
const KEY = 'static-key-of-the-crash-rig';
const ADMIN_KEY = 'admin-key-of-the-crash-rig';
const SECRET = 'secret-of-the-account-service';
const OPENING_BALANCE_IN_CENTS = 1_000_000;
const ACCOUNTS = 20_000;
/** Debian's library that fakes the wall clock of one process. */
const FAKETIME = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1';
export const hasFaketime = existsSync(FAKETIME);

/** The options of a rig. */
export interface RigOptions {
  readonly folder: string;
  readonly seed: number;
  readonly mode: 'books' | 'own';
  /** Accounts at the biller; each is paid once. */
  readonly accounts?: number;
}

/** Whether a process runs; one whose parent has not taken note of its end is listed with an empty command line. */
function isRunning(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8') !== '';
  } catch {
    return false;
  }
}

/** The result of a round. */
export interface Judged {
  readonly payments: number;
  /** Payments that a customer was told about. */
  readonly acknowledged: number;
  readonly violations: readonly Violation[];
  /** From healing to the last settlement. */
  readonly convergedMs: number;
}

/** Customers of one round. */
export interface Load {
  /** Resolves when every customer has been served, or was called off. */
  readonly done: Promise<void>;
  /** No more customers arrive than necessary. */
  stop(): void;
  /** Stops the customers that are still trying. */
  callOff(): void;
}

interface Client {
  readonly client_id: string;
  readonly api_key: string;
}

/** Everything that runs. */
export class Rig {
  readonly random: () => number;
  readonly mode: RigOptions['mode'];
  readonly folder: string;
  /** The running one: it is started again whenever it has died. */
  postgres: EmbeddedPostgres;
  readonly platformProxy: PostgresProxy;
  readonly kitProxy: PostgresProxy;
  readonly gateway: Gateway;
  readonly own: OwnSystem;
  readonly workers: readonly Server[];
  readonly kits: readonly Server[];
  /** Direct connections, which bypass every fault. */
  ours: Database;
  theirs: Database;
  history: History;
  /** Wall clocks of the second worker and the second kit; undefined where libfaketime is not installed. */
  readonly clockFile: string | undefined;
  readonly #adminPorts: readonly number[];
  readonly #admin = { authorization: `Bearer ${ADMIN_KEY}` };
  #client: Client = { client_id: '', api_key: '' };
  #nextAccount = 0;
  readonly #accounts: number;
  /** Payments of earlier rounds, which are judged again only at the end. */
  readonly #judged = new Set<string>();
  #extra: Violation[] = [];
  #acknowledged = 0;
  #looking = new AbortController();
  #looked: Promise<void> = Promise.resolve();
  readonly #closing = new AbortController();
  readonly #kept: Promise<void>;

  private constructor(
    options: RigOptions,
    parts: {
      postgres: EmbeddedPostgres;
      platformProxy: PostgresProxy;
      kitProxy: PostgresProxy;
      gateway: Gateway;
      own: OwnSystem;
      workers: readonly Server[];
      kits: readonly Server[];
      adminPorts: readonly number[];
      ours: Database;
      theirs: Database;
      random: () => number;
      history: History;
      clockFile: string | undefined;
    },
  ) {
    this.mode = options.mode;
    this.folder = options.folder;
    this.#accounts = options.accounts ?? ACCOUNTS;
    this.random = parts.random;
    this.postgres = parts.postgres;
    this.platformProxy = parts.platformProxy;
    this.kitProxy = parts.kitProxy;
    this.gateway = parts.gateway;
    this.own = parts.own;
    this.workers = parts.workers;
    this.kits = parts.kits;
    this.#adminPorts = parts.adminPorts;
    this.ours = parts.ours;
    this.theirs = parts.theirs;
    this.history = parts.history;
    this.clockFile = parts.clockFile;
    this.#kept = this.#keepPostgres(this.#closing.signal);
  }

  /** Starts everything. Close it, also after a failure. */
  static async open(options: RigOptions): Promise<Rig> {
    const { folder, seed, mode } = options;
    const random = seededRandom(seed);
    mkdirSync(folder, { recursive: true });
    // When root starts it, the server's user id must be able to enter, or the cluster is stored elsewhere and left there.
    chmodSync(folder, 0o711);
    const postgres = await startEmbeddedPostgres({ dataDirectory: join(folder, 'data') });
    await keepNoLogFiles(postgres.url);
    const platformUrl = await ensureDatabase(postgres.url, 'rig_platform');
    const kitUrl = await ensureDatabase(postgres.url, 'rig_partner');
    const upstream = { host: '127.0.0.1', port: Number(new URL(postgres.url).port) };
    const platformProxy = new PostgresProxy(upstream, random);
    const kitProxy = new PostgresProxy(upstream, random);
    const through = async (proxy: PostgresProxy, url: string): Promise<string> => {
      const address = new URL(url);
      address.port = String(await proxy.listen());
      return address.href;
    };
    const urls = {
      platform: await through(platformProxy, platformUrl),
      kit: await through(kitProxy, kitUrl),
    };
    const started = performance.now();
    const history = new History(() => performance.now() - started);
    const kits: Server[] = [];
    const gateway = new Gateway(history, () => kits.map(({ url }) => url));
    const own = new OwnSystem(random);
    const [gatewayUrl, ownUrl] = await Promise.all([gateway.listen(), own.listen()]);
    const ports = await Promise.all(Array.from({ length: 8 }, () => freePort()));
    const clockFile = hasFaketime ? join(folder, 'clock') : undefined;
    if (clockFile !== undefined) writeFileSync(clockFile, '+0');
    const server = (
      index: number,
      name: string,
      args: readonly string[],
      env: Readonly<Record<string, string>>,
    ): Server =>
      new Server({
        args,
        port: ports[index] ?? 0,
        env: {
          ADMIN_PORT: String(ports[index + 4]),
          DUEBRIDGE_ADMIN_KEY: ADMIN_KEY,
          DUEBRIDGE_DATA_DIR: folder,
          LOG_LEVEL: 'warn',
          // The second process of each side runs on a host whose clock may step.
          ...(clockFile === undefined || index % 2 === 0
            ? {}
            : {
                LD_PRELOAD: FAKETIME,
                FAKETIME_TIMESTAMP_FILE: clockFile,
                FAKETIME_CACHE_DURATION: '1',
                FAKETIME_DONT_FAKE_MONOTONIC: '1',
                DONT_FAKE_MONOTONIC: '1',
              }),
          ...env,
        },
        logFile: join(folder, `${name}.log`),
        preload: join(import.meta.dirname, 'preload.ts'),
      });
    const workers = ['worker-1', 'worker-2'].map((name, index) =>
      server(index, name, ['platform', 'serve'], {
        DATABASE_URL: urls.platform,
        DUEBRIDGE_SEAL_KEY: Buffer.alloc(32, 's').toString('base64'),
        DUEBRIDGE_KEY_PEPPER: Buffer.alloc(32, 'p').toString('base64'),
        DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES: '1',
        DUEBRIDGE_IP_RATE: '0',
      }),
    );
    kits.push(
      ...['kit-1', 'kit-2'].map((name, index) =>
        server(index + 2, name, ['partner', 'serve'], {
          DATABASE_URL: urls.kit,
          DUEBRIDGE_PARTNER_KEY: KEY,
          ...(mode === 'books'
            ? {}
            : {
                DUEBRIDGE_PARTNER_ACCOUNTS_URL: ownUrl,
                DUEBRIDGE_PARTNER_ACCOUNTS_SECRET: SECRET,
              }),
        }),
      ),
    );
    const rig = new Rig(options, {
      postgres,
      platformProxy,
      kitProxy,
      gateway,
      own,
      workers,
      kits,
      adminPorts: ports.slice(4),
      ours: openDatabase({ url: platformUrl, applicationName: 'crash rig' }),
      theirs: openDatabase({ url: kitUrl, applicationName: 'crash rig' }),
      random,
      history,
      clockFile,
    });
    try {
      await Promise.all([...workers, ...kits].map((one) => one.start()));
      await rig.#setUp(gatewayUrl);
    } catch (error) {
      await rig.close();
      throw error;
    }
    return rig;
  }

  async close(): Promise<void> {
    this.#looking.abort();
    await this.#looked;
    await Promise.all(
      [...this.workers, ...this.kits].map(async (server) => {
        server.signal('SIGCONT');
        await server.kill();
      }),
    );
    await Promise.all([this.ours.close(), this.theirs.close()]);
    await Promise.all([this.gateway.close(), this.own.close()]);
    await Promise.all([this.platformProxy.close(), this.kitProxy.close()]);
    this.#closing.abort();
    await this.#kept;
    await this.postgres.stop();
  }

  // A round -----------------------------------------------------------------------------------------------------------------

  /** Starts recording row changes for one round. */
  begin(): void {
    this.history.events.length = 0;
    this.#extra = [];
    this.#acknowledged = 0;
    this.own.complaints.length = 0;
    this.#looking = new AbortController();
    this.#looked = this.#look(this.#looking.signal);
  }

  /**
   * Customers who pay, one every `everyMs`: at least `least`, and more until the load is stopped. Each retries until it is
   * served.
   */
  load(least: number, everyMs: number, most = least): Load {
    const closing = new AbortController();
    const stopped = new AbortController();
    const one = async (): Promise<void> => {
      try {
        await this.#pay(closing.signal);
      } catch (error) {
        if (closing.signal.aborted) return;
        this.#extra.push({
          rule: 'LV6',
          what: error instanceof Error ? error.message : String(error),
        });
      }
    };
    const all = async (): Promise<void> => {
      const customers: Promise<void>[] = [];
      while (customers.length < most && !(stopped.signal.aborted && customers.length >= least)) {
        customers.push(one());
        await pause(everyMs);
      }
      await Promise.all(customers);
    };
    return {
      done: all(),
      stop: () => stopped.abort(),
      callOff: () => closing.abort(),
    };
  }

  /** Ends every fault: proxies forward again, stopped processes continue, dead ones are restarted, clocks are reset. */
  async heal(): Promise<void> {
    Object.assign(this.platformProxy.faults, healthyPostgres());
    Object.assign(this.kitProxy.faults, healthyPostgres());
    this.gateway.behave = () => 'pass';
    this.gateway.latencyMs = 0;
    this.gateway.isCut = false;
    this.own.lostAnswer = 0;
    if (this.clockFile !== undefined) writeFileSync(this.clockFile, '+0');
    await Promise.all([...this.workers, ...this.kits].map((server) => this.#revive(server)));
  }

  /** Waits until everything has ended and judges the round. */
  async judge(load: Load): Promise<Judged> {
    const healedAt = performance.now();
    this.history.add({ kind: 'healed' });
    const timer = setTimeout(() => load.callOff(), BOUND_MS);
    await load.done;
    clearTimeout(timer);
    const open = `SELECT count(*)::int AS count FROM duebridge_platform.payments WHERE settled_at IS NULL AND stage <> 'review'`;
    let fewest = Infinity;
    let until = 0;
    for (;;) {
      const [left] = await this.ours.query<{ count: number }>(open);
      const count = left?.count ?? 0;
      if (count < fewest) until = performance.now() + BOUND_MS;
      fewest = Math.min(fewest, count);
      if (count === 0 || performance.now() > Math.min(until, healedAt + LONGEST_MS)) break;
      await pause(100);
    }
    const convergedMs = Math.round(performance.now() - healedAt);
    this.#looking.abort();
    await this.#looked;
    const end = await this.#ending();
    const isMine = ({ id }: { readonly id: string }): boolean => !this.#judged.has(id);
    const mine = <T extends { readonly id: string }>(rows: readonly T[]): T[] =>
      rows.filter(isMine);
    const rows = mine(end.platform);
    const violations = [
      ...check({
        // A call about a payment of an earlier round may come late.
        events: this.history.events.filter((event) => !('id' in event) || isMine(event)),
        end: {
          platform: rows,
          funds: mine(end.funds),
          partner: mine(end.partner),
          postings: mine(end.postings),
        },
        forgetful: new Set(),
        wrong: new Set(),
      }),
      ...this.#extra,
      ...this.own.complaints.map((what) => ({ rule: 'KT2', what })),
    ];
    if (violations.some(({ rule }) => rule === 'LV6')) await this.#tellStuck();
    for (const { id } of end.platform) this.#judged.add(id);
    return { payments: rows.length, acknowledged: this.#acknowledged, violations, convergedMs };
  }

  // What faults use ---------------------------------------------------------------------------------------------------------

  /** Has a process killed or stopped at a step; resolves with whether it reached the step within `ms`. */
  async strike(
    server: Server,
    at: string,
    signal: Armed['signal'],
    nth: number,
    ms: number,
  ): Promise<boolean> {
    const file = join(this.folder, `reached-${Math.floor(this.random() * 1e9)}`);
    const order: Armed = { at, signal, nth, file };
    server.send(order);
    for (const until = performance.now() + ms; performance.now() < until; await pause(15)) {
      if (!existsSync(file)) continue;
      rmSync(file);
      // The mark is written just before the signal, so the process may still be alive when the mark appears.
      if (signal === 'SIGKILL') await server.kill();
      return true;
    }
    // A process that reaches the step later must not be killed by it any more.
    server.send({ ...order, at: 'never' });
    return existsSync(file);
  }

  /** Calls the platform's admin API, on whichever worker answers. */
  async admin<T>(method: 'GET' | 'POST', path: string, body?: unknown): Promise<Answer<T>> {
    let last: Answer<T> | undefined;
    for (const port of this.#adminPorts.slice(0, 2)) {
      last = await call<T>(method, `http://127.0.0.1:${port}${path}`, this.#admin, body);
      if (last.status === 200) break;
    }
    if (last === undefined) throw new Error('no admin port');
    return last;
  }

  /** Starts PostgreSQL again at its address whenever it has died, as a service manager does: on a full disk, once there is room. */
  async #keepPostgres(signal: AbortSignal): Promise<void> {
    const dataDirectory = join(this.folder, 'data');
    const port = Number(new URL(this.postgres.url).port);
    while (!signal.aborted) {
      if (!isRunning(this.postgres.pid)) {
        this.postgres = await startEmbeddedPostgres({ dataDirectory, port }).catch(
          () => this.postgres,
        );
      }
      await pause(100);
    }
  }

  /** Ends PostgreSQL, by SIGKILL unless told otherwise, and waits until it is restarted. */
  async killPostgres(
    end: (postmaster: number) => void = (pid) => process.kill(pid, 'SIGKILL'),
  ): Promise<void> {
    const { pid } = this.postgres;
    end(pid);
    const until = performance.now() + 60_000;
    while (this.postgres.pid === pid) {
      if (performance.now() > until) throw new Error('PostgreSQL did not come back');
      await pause(20);
    }
  }

  /** Waits until PostgreSQL takes statements: it may have to be restarted, and to replay its log first. */
  async untilPostgresAnswers(): Promise<void> {
    const until = performance.now() + 60_000;
    while (
      !(await this.ours.query('SELECT 1').then(
        () => true,
        () => false,
      ))
    ) {
      if (performance.now() > until) throw new Error('PostgreSQL did not come back');
      await pause(50);
    }
  }

  /** Moves our own connections to another server on this machine. */
  async connectTo(port: number): Promise<void> {
    await Promise.all([this.ours.close(), this.theirs.close()]);
    const at = (database: string): Database => {
      const address = new URL(urlOf(this.postgres.url, database));
      address.port = String(port);
      return openDatabase({ url: address.href, applicationName: 'crash rig' });
    };
    this.ours = at('rig_platform');
    this.theirs = at('rig_partner');
  }

  /** Single faults since the last call, by kind: those of the gateway, and commits whose answer was lost. */
  injected(): Record<string, number> {
    const { did } = this.gateway;
    const found: Record<string, number> = {};
    for (const [behaviour, times] of did)
      if (behaviour !== 'pass') found[`gateway: ${behaviour}`] = times;
    did.clear();
    const lost = this.platformProxy.lostCommits + this.kitProxy.lostCommits;
    if (lost > 0) found['answer of a commit lost'] = lost;
    this.platformProxy.lostCommits = this.kitProxy.lostCommits = 0;
    return found;
  }

  /** Restarts a killed process and continues a stopped one; a start that meets a fault is repeated, as by a supervisor. */
  async #revive(server: Server): Promise<void> {
    server.signal('SIGCONT');
    for (let tried = 0; ; tried += 1) {
      if (server.isAlive) return;
      try {
        await server.start();
      } catch (error) {
        await server.kill();
        if (tried === 5) throw error;
      }
    }
  }

  async #setUp(gatewayUrl: string): Promise<void> {
    if (this.mode === 'books') {
      const lines = Array.from(
        { length: this.#accounts },
        (_, index) => `gas,acc-${index},active,${OPENING_BALANCE_IN_CENTS}`,
      );
      for (let from = 0; from < lines.length; from += 1_000) {
        const imported = await call(
          'POST',
          `http://127.0.0.1:${this.#adminPorts[2]}/admin/v1/accounts/import`,
          this.#admin,
          {
            csv: `biller_id,account_id,status,amount_due_in_cents\n${lines.slice(from, from + 1_000).join('\n')}\n`,
          },
        );
        if (imported.status !== 200) throw new Error(`import: ${JSON.stringify(imported)}`);
      }
    }
    const registered = await this.admin('POST', '/admin/v1/partners', {
      partner_id: 'gas',
      name: 'Gas',
      kind: 'biller',
      biller_id: 'gas',
      base_url: gatewayUrl,
      origins: [],
      auth: { method: 'key', header: 'x-api-key', key: KEY },
      account_check: 'off',
      budget: { call_timeout_ms: 2_000, wait_seconds: 2 },
    });
    if (registered.status !== 200) throw new Error(`register: ${JSON.stringify(registered)}`);
    const granted = await this.admin<ClientKeyGrant>('POST', '/admin/v1/partners/gas/keys', {});
    this.#client = granted.body;
  }

  /** One customer, from the token to the payment, who retries at the other platform whatever happens. */
  async #pay(signal: AbortSignal): Promise<void> {
    const account = this.#nextAccount;
    this.#nextAccount += 1;
    if (account >= this.#accounts) throw new Error('the accounts of the rig are used up');
    const account_id = `acc-${account}`;
    const cents = 100 + Math.floor(this.random() * 10_000);
    const insist = async <T>(step: (url: string) => Promise<Answer<T>>): Promise<T> => {
      for (let tried = account; ; tried += 1) {
        const url = this.workers[tried % this.workers.length]?.url ?? '';
        const answer = await step(url).catch(() => undefined);
        if (answer?.status === 200) return answer.body;
        if (signal.aborted) throw new Error(`the customer of ${account_id} was never served`);
        if (answer !== undefined && ![429, 500, 503].includes(answer.status)) {
          throw new Error(
            `the customer of ${account_id} was refused: ${answer.status} ${JSON.stringify(answer.body)}`,
          );
        }
        await pause(60);
      }
    };
    const { token } = await insist((platformUrl) =>
      createToken({ platformUrl, ...this.#client }, { account_id }),
    );
    const { session } = await insist((url) =>
      call<{ session: string }>(
        'POST',
        `${url}/v1/flow/session`,
        { authorization: `Bearer ${token}` },
        {},
      ),
    );
    const confirm = async (): Promise<string> => {
      const body = await insist((url) => new Browser(url, session).confirm(cents));
      return body.platform_payment_id;
    };
    const id = await confirm();
    this.#acknowledged += 1;
    this.history.add({ kind: 'confirmed', id, partner: 'gas', cents });
    const again = await confirm();
    if (again !== id) this.#extra.push({ rule: 'PL3', what: `one flow made ${id} and ${again}` });
  }

  /** Records how rows change. */
  async #look(signal: AbortSignal): Promise<void> {
    const seen = new Map<string, string>();
    while (!signal.aborted) {
      try {
        const rows = await this.ours.query<{
          id: string;
          stage: string;
          status: string;
          slot: number | null;
        }>(
          `SELECT platform_payment_id AS id, stage, status, slot FROM duebridge_platform.payments
            WHERE created_at > clock_timestamp() - interval '5 minutes'`,
        );
        for (const { id, stage, status, slot } of rows) {
          const now = `${stage} ${status} ${slot ?? ''}`;
          if (seen.get(id) === now || this.#judged.has(id)) continue;
          seen.set(id, now);
          this.history.add({ kind: 'row', id, stage, status, slot });
        }
      } catch {
        // The database is unavailable; there is nothing to read.
      }
      await pause(150);
    }
  }

  /** Writes to stderr who should have driven the payments that are stuck, and how the workers see themselves. */
  async #tellStuck(): Promise<void> {
    const payments = await this.ours.query<{ row: unknown }>(
      `SELECT to_jsonb(p) || jsonb_build_object('owner', s.worker_id) AS row FROM duebridge_platform.payments p
         LEFT JOIN duebridge_platform.slots s USING (slot) WHERE settled_at IS NULL`,
    );
    const workers = await this.ours.query<{ row: unknown }>(
      'SELECT to_jsonb(w) AS row FROM duebridge_platform.workers w',
    );
    const slots = await this.ours.query<{ row: unknown }>(
      `SELECT jsonb_build_object('owner', worker_id, 'slots', count(*)) AS row FROM duebridge_platform.slots GROUP BY worker_id`,
    );
    const metrics = await Promise.all(
      this.#adminPorts.slice(0, 2).map(async (port) => {
        const answer = await request(`http://127.0.0.1:${port}/metrics`, { headers: this.#admin });
        return (await answer.body.text()).split('\n').filter((line) => !/^#| 0$/.test(line));
      }),
    ).catch(String);
    console.error(JSON.stringify({ at: new Date(), payments, workers, slots, metrics }));
  }

  async #ending(): Promise<Ending> {
    const platform = await this.ours.query<PlatformRow>(
      `SELECT platform_payment_id AS id, partner_id AS partner, status, stage, settled_at IS NOT NULL AS settled,
              amount_in_cents AS cents, review_reason
         FROM duebridge_platform.payments ORDER BY 1`,
    );
    const funds = await this.ours.query<Ending['funds'][number]>(
      'SELECT platform_payment_id AS id, act, amount_in_cents AS cents FROM duebridge_platform.sandbox_funds ORDER BY 1, phase',
    );
    const partner = await this.theirs.query<PartnerRow>(
      `SELECT platform_payment_id AS id, biller_id AS partner, status, amount_in_cents AS cents FROM duebridge_partner.payment ORDER BY 1`,
    );
    const postings =
      this.mode === 'own'
        ? [...this.own.booked.values()]
        : await this.theirs.query<{ id: string; cents: number }>(
            `SELECT transfer_id AS id, abs(amount_in_cents) AS cents FROM duebridge_partner.entry
               JOIN duebridge_partner.transfer USING (transfer_id) WHERE line = 2 AND kind = 'payment'`,
          );
    return { platform, funds, partner, postings };
  }
}

/** Lets PostgreSQL keep no files of its log to be used again: then its next one needs room, which a full disk does not have. */
async function keepNoLogFiles(url: string): Promise<void> {
  const database = openDatabase({ url, applicationName: 'crash rig' });
  await database.query('ALTER SYSTEM SET wal_recycle = off');
  await database.query('SELECT pg_reload_conf()');
  await database.close();
}

function urlOf(url: string, database: string): string {
  const address = new URL(url);
  address.pathname = `/${database}`;
  return address.href;
}

/** Waits. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
