/**
 * Both sides in this process, each on its own fresh database, connected over HTTP: the starting point of tests across packages.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ClientKeyGrant, PartnerRegistration } from '@duebridge/contract';
import { importAccountsFile, startPartner, type PartnerConfig } from '@duebridge/partner';
import { startPlatform, type PlatformConfig } from '@duebridge/platform';
import { openDatabase, silentLog, type Database } from '@duebridge/runtime';
import { ACQUIRE_MS, emptyDatabase, testServer } from '@duebridge/runtime/testing';
import { call, type Client } from './customer.ts';

/** A platform, with access to its internals. */
export type PlatformSide = Awaited<ReturnType<BothSides['platform']>>;

/** A partner's registration; origins may be left out. */
export type Registration = Omit<PartnerRegistration, 'origins'> & { readonly origins?: string[] };

/** The biller that most tests register: it authenticates the platform by a key in `x-api-key`. */
export function gasCompany(base_url: string, key: string): Registration {
  return {
    partner_id: 'gas',
    name: 'Gas Company',
    kind: 'biller',
    biller_id: 'gas',
    base_url,
    auth: { method: 'key', header: 'x-api-key', key },
  };
}

/** A partner kit and its database. */
export type PartnerSide = Awaited<ReturnType<BothSides['partner']>>;

/** Starts servers for one test file and ends them, in the right order, when `stop` is called. */
export class BothSides {
  readonly #closers: (() => Promise<unknown>)[] = [];
  readonly #folder: Promise<string> = mkdtemp(join(tmpdir(), 'duebridge-both-'));

  /** A platform that admits partners on this machine and limits no rate; `books` is its database, for inspection. */
  async platform(config: PlatformConfig = {}) {
    const { url, books } = await this.#database('platform');
    const options: PlatformConfig = {
      host: '127.0.0.1',
      port: 0,
      adminPort: 0,
      databaseUrl: url,
      dataDirectory: await this.#folder,
      sealKey: randomBytes(32).toString('base64'),
      keyPepper: randomBytes(32).toString('base64'),
      adminKey: randomBytes(24).toString('base64url'),
      allowPrivateAddresses: true,
      ipRate: undefined,
      clientRate: { perSecond: 10_000, burst: 10_000 },
      databaseAcquireMs: ACQUIRE_MS,
      log: silentLog,
      ...config,
    };
    const platform = await startPlatform(options);
    this.#closers.push(() => platform.stop());
    /** Calls the admin API; returns the body of a 200, throws otherwise. */
    const admin = async <T>(
      method: 'GET' | 'POST' | 'PATCH' | 'DELETE',
      path: string,
      body?: unknown,
    ): Promise<T> => {
      const headers = { authorization: `Bearer ${platform.adminKey}` };
      const answer = await call<T>(method, `${platform.adminUrl}/admin/v1${path}`, headers, body);
      if (answer.status === 200) return answer.body;
      throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    };
    /** Registers a partner and issues it a key. */
    const register = async (registration: Registration): Promise<Client> => {
      await admin('POST', '/partners', { origins: [], ...registration });
      const path = `/partners/${registration.partner_id}/keys`;
      const { client_id, api_key } = await admin<ClientKeyGrant>('POST', path, {});
      return { platformUrl: platform.url, client_id, api_key };
    };
    return { platform, books, admin, register };
  }

  /** A partner kit on the default ledger; `url` and `books` are its database: the address, and a connection for inspection. */
  async partner(config: Pick<PartnerConfig, 'auth'> & Partial<PartnerConfig>) {
    const { url, books } = await this.#database('partner');
    const server = await startPartner({
      port: 0,
      adminPort: 0,
      databaseUrl: url,
      dataDirectory: await this.#folder,
      adminKey: randomBytes(24).toString('base64url'),
      databaseAcquireMs: ACQUIRE_MS,
      log: silentLog,
      ...config,
    });
    this.#closers.push(() => server.stop());
    return {
      server,
      url,
      books,
      /** Imports accounts from a CSV text. `as_of` is when its amounts were true; needed where a payment has been posted. */
      async importAccounts(csv: string, as_of?: string): Promise<void> {
        await importAccountsFile(server.database, () => [csv], { as_of });
      },
    };
  }

  /**
   * Stops everything in reverse order and drops the databases. Whatever fails, the rest is stopped too, so that the test file ends; the
   * first failure is thrown then.
   */
  async stop(): Promise<void> {
    const failures: unknown[] = [];
    for (const close of this.#closers.splice(0).toReversed()) {
      await close().catch((error: unknown) => failures.push(error));
    }
    await rm(await this.#folder, { recursive: true, force: true });
    if (failures.length > 0) throw failures[0];
  }

  async #database(side: string): Promise<{ url: string; books: Database }> {
    const server = await testServer();
    const { url, drop } = await emptyDatabase(server.url, `both_${side}`);
    const books = openDatabase({ url, applicationName: 'duebridge test', maxConnections: 2 });
    this.#closers.push(async () => {
      await books.close();
      try {
        await drop();
      } finally {
        await server.stop();
      }
    });
    return { url, books };
  }
}
