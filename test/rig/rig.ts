/**
 * Both sides as real processes under faults: two platform workers and two kits over a real PostgreSQL, each behind a proxy of ours. A
 * round lets customers pay while one fault happens, heals, waits until everything has come to its end, and compares the two sides. What
 * the messages between them may do is the simulator's: here are the faults that only processes, disks and servers have.
 */
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { ClientKeyGrant } from '@duebridge/contract';
import { importAccounts } from '@duebridge/partner';
import { ensureDatabase, startEmbeddedPostgres, type EmbeddedPostgres } from '@duebridge/runtime';
import { freePort, seededRandom, until } from '@duebridge/runtime/testing';
import { gasCompany } from '../support/both-sides.ts';
import { call, type Client } from '../support/customer.ts';
import { ACCOUNTS, judge, startLoad, withBooks } from '../support/paying-load.ts';
import { Server } from '../support/processes.ts';
import { PostgresProxy } from './postgres-proxy.ts';
import type { Armed } from './preload.ts';

const KEY = 'static-key-of-the-crash-rig';
const ADMIN = { authorization: 'Bearer admin-key-of-the-crash-rig' };
/** Between two payments of a customer. */
const REST_MS = 500;
/** Lines that the kit imports at once. */
const LINES = 1_000;
/** Debian's library that fakes the wall clock of one process. */
const FAKETIME = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1';
export const hasFaketime = existsSync(FAKETIME);

type Side = 'platform' | 'kit';

/** Everything that runs. */
export class Rig {
  readonly random: () => number;
  readonly folder: string;
  /** The running one: it is started again whenever it has died. */
  postgres: EmbeddedPostgres;
  /** Where our own connections go, which bypass every fault: another server after a failover. */
  databasePort: number;
  /** Before the database of each side, and before the kits. */
  readonly proxies: Readonly<Record<Side | 'network', PostgresProxy>>;
  readonly servers: Record<Side, readonly Server[]> = { platform: [], kit: [] };
  /** Wall clocks of the second worker and the second kit, where libfaketime is installed. */
  readonly clockFile: string;
  #client: Client | undefined;
  readonly #acknowledged = new Map<string, string>();
  readonly #closing = new AbortController();
  #kept: Promise<void> = Promise.resolve();

  private constructor(folder: string, seed: number, postgres: EmbeddedPostgres) {
    this.folder = folder;
    this.random = seededRandom(seed);
    this.postgres = postgres;
    this.databasePort = Number(new URL(postgres.url).port);
    this.clockFile = join(folder, 'clock');
    const server = { host: '127.0.0.1', port: this.databasePort };
    let turn = 0;
    const nextKit = () => {
      const { port } = new URL(this.servers.kit[(turn += 1) % 2]?.url ?? '');
      return { host: '127.0.0.1', port: Number(port) };
    };
    this.proxies = {
      platform: new PostgresProxy(server, this.random),
      kit: new PostgresProxy(server, this.random),
      network: new PostgresProxy(nextKit),
    };
  }

  /** Starts everything. Close it, also after a failure. */
  static async open(folder: string, seed: number): Promise<Rig> {
    mkdirSync(folder, { recursive: true });
    // When root starts it, the server's user id must be able to enter, or the cluster is stored elsewhere and left there.
    chmodSync(folder, 0o711);
    const postgres = await startEmbeddedPostgres({ dataDirectory: join(folder, 'data') });
    const rig = new Rig(folder, seed, postgres);
    try {
      await rig.#setUp();
    } catch (error) {
      await rig.close();
      throw error;
    }
    return rig;
  }

  async close(): Promise<void> {
    for (const server of this.#all()) {
      server.signal('SIGCONT');
      await server.kill();
    }
    for (const proxy of Object.values(this.proxies)) await proxy.close();
    this.#closing.abort();
    await this.#kept;
    await this.postgres.stop();
  }

  #all(): readonly Server[] {
    return [...this.servers.platform, ...this.servers.kit];
  }

  /** The address of a side's database. */
  url(side: Side, port = this.databasePort): string {
    const address = new URL(this.postgres.url);
    address.pathname = `/rig_${side}`;
    address.port = String(port);
    return address.href;
  }

  async #setUp(): Promise<void> {
    const { url } = this.postgres;
    await Promise.all([ensureDatabase(url, 'rig_platform'), ensureDatabase(url, 'rig_kit')]);
    // PostgreSQL keeps no files of its log to be used again: its next one needs room, which a full disk does not have.
    await withBooks(url, async (books) => {
      await books.query('ALTER SYSTEM SET wal_recycle = off');
      await books.query('SELECT pg_reload_conf()');
    });
    writeFileSync(this.clockFile, '+0');
    const [ours, theirs, network] = await Promise.all(
      (['platform', 'kit', 'network'] as const).map((name) => this.proxies[name].listen()),
    );
    const adminPorts = { platform: await freePort(), kit: await freePort() };
    this.servers.platform = await this.#pair('platform', adminPorts.platform, {
      DATABASE_URL: this.url('platform', ours),
      DUEBRIDGE_SEAL_KEY: Buffer.alloc(32, 's').toString('base64'),
      DUEBRIDGE_KEY_PEPPER: Buffer.alloc(32, 'p').toString('base64'),
      DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES: '1',
      DUEBRIDGE_IP_RATE: '0',
    });
    this.servers.kit = await this.#pair('kit', adminPorts.kit, {
      DATABASE_URL: this.url('kit', theirs),
      DUEBRIDGE_PARTNER_KEY: KEY,
    });
    await Promise.all(this.#all().map((server) => server.start()));
    this.#kept = this.#keepPostgres(this.#closing.signal);

    const ask = async <T>(path: string, body: object): Promise<T> => {
      const address = `http://127.0.0.1:${adminPorts.platform}/admin/v1${path}`;
      const answer = await call<T>('POST', address, ADMIN, body);
      if (answer.status !== 200) throw new Error(`${path}: ${JSON.stringify(answer)}`);
      return answer.body;
    };
    for (let from = 0; from < ACCOUNTS; from += LINES) {
      const accounts = Array.from({ length: LINES }, (_, at) => ({
        biller_id: 'gas',
        account_id: `acc-${from + at}`,
        amount_due_in_cents: 1_000_000,
      }));
      await withBooks(this.url('kit'), (books) => importAccounts(books, accounts));
    }
    await ask('/partners', {
      ...gasCompany(`http://127.0.0.1:${network}`, KEY),
      origins: [],
      budget: { call_timeout_ms: 2_000, wait_seconds: 2 },
    });
    const granted = await ask<ClientKeyGrant>('/partners/gas/keys', {});
    this.#client = { platformUrl: '', ...granted };
  }

  /** Two processes of a side. The second runs on a host whose clock may step. */
  async #pair(
    side: Side,
    adminPort: number,
    env: Readonly<Record<string, string>>,
  ): Promise<readonly Server[]> {
    const fakeTime = {
      LD_PRELOAD: FAKETIME,
      FAKETIME_TIMESTAMP_FILE: this.clockFile,
      FAKETIME_CACHE_DURATION: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      DONT_FAKE_MONOTONIC: '1',
    };
    const servers: Server[] = [];
    for (const isFirst of [true, false]) {
      servers.push(
        new Server({
          args: [side === 'kit' ? 'partner' : side, 'serve'],
          port: await freePort(),
          env: {
            ADMIN_PORT: String(isFirst ? adminPort : await freePort()),
            DUEBRIDGE_ADMIN_KEY: ADMIN.authorization.slice('Bearer '.length),
            DUEBRIDGE_DATA_DIR: this.folder,
            LOG_LEVEL: 'warn',
            ...(isFirst || !hasFaketime ? {} : fakeTime),
            ...env,
          },
          logFile: join(this.folder, `${side}-${servers.length + 1}.log`),
          preload: join(import.meta.dirname, 'preload.ts'),
        }),
      );
    }
    return servers;
  }

  /**
   * One round: customers pay, the fault happens, everything heals and ends, and nothing was lost, doubled or captured twice. Gives whether
   * the fault happened and how many payments were acknowledged meanwhile.
   */
  async round(fault: (rig: Rig) => Promise<boolean>) {
    // A process that reached its step too late for the previous round may be dead.
    await this.heal();
    if (this.#client === undefined) throw new Error('not set up');
    const urls = this.servers.platform.map(({ url }) => url);
    const load = startLoad(urls, this.#client, REST_MS);
    await load.payments(2);
    const reached = await fault(this);
    await this.heal();
    await load.payments(2);
    const { acknowledged } = await load.stop();
    for (const [id, account] of acknowledged) this.#acknowledged.set(id, account);
    await judge({ platform: this.url('platform'), partner: this.url('kit') }, this.#acknowledged);
    return { reached, payments: acknowledged.size };
  }

  /** Ends every fault: proxies forward again, stopped processes continue, dead ones are restarted, clocks are reset. */
  async heal(): Promise<void> {
    for (const proxy of Object.values(this.proxies)) proxy.heal();
    writeFileSync(this.clockFile, '+0');
    await Promise.all(
      this.#all().map(async (server) => {
        server.signal('SIGCONT');
        // A start that meets a fault is repeated, as by a supervisor.
        for (let tried = 0; !server.isAlive; tried += 1) {
          await server.start().catch(async (error: unknown) => {
            await server.kill();
            if (tried === 5) throw error;
          });
        }
      }),
    );
  }

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
    for (const end = performance.now() + ms; performance.now() < end; await pause(15)) {
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

  /** Starts PostgreSQL again at its address whenever it has died, as a service manager does: on a full disk, once there is room. */
  async #keepPostgres(signal: AbortSignal): Promise<void> {
    const dataDirectory = join(this.folder, 'data');
    const port = Number(new URL(this.postgres.url).port);
    for (; !signal.aborted; await pause(100)) {
      if (isRunning(this.postgres.pid)) continue;
      await startEmbeddedPostgres({ dataDirectory, port }).then(
        (started) => (this.postgres = started),
        () => undefined,
      );
    }
  }

  /** Ends PostgreSQL, by SIGKILL unless told otherwise, and waits until it is restarted. */
  async killPostgres(
    end: (postmaster: number) => void = (pid) => process.kill(pid, 'SIGKILL'),
  ): Promise<void> {
    const { pid } = this.postgres;
    end(pid);
    await until('PostgreSQL comes back', () => this.postgres.pid !== pid);
  }

  /** Waits until PostgreSQL takes statements. */
  untilPostgresAnswers(): Promise<boolean> {
    return until('PostgreSQL answers', () =>
      withBooks(this.url('platform'), (books) => books.query('SELECT 1')).then(
        () => true,
        () => false,
      ),
    );
  }
}

/** Whether a process runs; one whose parent has not taken note of its end is listed with an empty command line. */
function isRunning(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8') !== '';
  } catch {
    return false;
  }
}
