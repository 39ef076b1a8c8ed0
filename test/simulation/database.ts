/**
 * The database of a simulated world: PostgreSQL itself, compiled to run in this thread, with both sides' real migrations and
 * statements, the world's time for its clock, and faults between a statement and its answer.
 *
 * One session serves all processes, so statements run one after another and a transaction keeps the others out: what only two
 * sessions at once can show (lock waits, deadlocks, serialization failures) is for the tests on a server, not for this one.
 */
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { messages, PGlite, protocol, types } from '@electric-sql/pglite';
import {
  DatabaseUnavailable,
  type Database,
  type Statement,
  type Transaction,
} from '@duebridge/runtime';
import type { Process, World } from './time.ts';

/** What stands between a process and the database. */
export interface DatabaseFaults {
  /** The database cannot be reached at all. */
  down: boolean;
  /** Chance that the connection is lost before a statement was executed. */
  lostBefore: number;
  /** Chance that it is lost after the commit, before the answer (F70). */
  lostAnswer: number;
  /** Virtual milliseconds that a statement takes, there and back. */
  latencyMs: number;
}

/** No faults, an ordinary latency. */
export function healthyDatabase(): DatabaseFaults {
  return { down: false, lostBefore: 0, lostAnswer: 0, latencyMs: 2 };
}

const SIDES = ['platform', 'partner'] as const;

/** One PostgreSQL for any number of worlds, one after another. */
export class SimulatedPostgres {
  readonly #postgres: PGlite;
  #world: World | undefined;
  /** The session is one: whoever holds this may use it. */
  #turn: Promise<unknown> = Promise.resolve();

  readonly #tables: readonly string[];
  /** Tables in which the migrations put rows; `world.new_N` keeps those of the Nth. */
  readonly #seeded: readonly string[];

  /** What is known of each statement, by its text: parsed and planned once for all worlds of the process. */
  readonly #prepared = new Map<string, Prepared>();
  readonly #parser = new protocol.Parser();

  private constructor(postgres: PGlite, tables: readonly string[], seeded: readonly string[]) {
    this.#postgres = postgres;
    this.#tables = tables;
    this.#seeded = seeded;
  }

  static async open(): Promise<SimulatedPostgres> {
    const postgres = await PGlite.create();
    // Functions of this schema come before PostgreSQL's own: both sides' statements, defaults and triggers tell the world's time.
    await postgres.exec(`
      CREATE SCHEMA world;
      CREATE FUNCTION world.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
        AS $$ SELECT to_timestamp(pg_catalog.current_setting('world.now')::float8 / 1000) $$;
      CREATE FUNCTION world.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT world.clock_timestamp() $$;
      -- This PostgreSQL lives in memory; the check of a durable server has tests of its own.
      CREATE FUNCTION world.current_setting(text) RETURNS text LANGUAGE sql STABLE AS $$
        SELECT CASE WHEN $1 IN ('fsync', 'full_page_writes') THEN 'on' ELSE pg_catalog.current_setting($1) END $$;
      SET TIME ZONE 'UTC';
      SET world.now = '0';
      SET search_path = world, pg_catalog;
      -- Every world runs the same few hundred statements over a few dozen rows: planning them anew took longer than running them.
      SET plan_cache_mode = force_generic_plan;`);
    for (const side of SIDES) {
      const folder = join(import.meta.dirname, `../../packages/${side}/src/migrations`);
      await postgres.exec(`CREATE SCHEMA duebridge_${side}`);
      for (const file of readdirSync(folder)
        .filter((name) => name.endsWith('.sql'))
        .sort()) {
        await postgres.exec(readFileSync(join(folder, file), 'utf8'));
      }
    }
    const { rows } = await postgres.query<{ name: string }>(
      `SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname LIKE 'duebridge%'`,
    );
    const tables = rows.map(({ name }) => name);
    const seeded: string[] = [];
    for (const name of tables) {
      const { rows: some } = await postgres.query(`SELECT FROM ${name} LIMIT 1`);
      if (some.length === 0) continue;
      await postgres.exec(`CREATE TABLE world.new_${seeded.length} AS TABLE ${name}`);
      seeded.push(name);
    }
    return new SimulatedPostgres(postgres, tables, seeded);
  }

  /** Empties every table for a new world. */
  async begin(world: World): Promise<void> {
    this.#world = world;
    this.#turn = Promise.resolve();
    // A table without a page has nothing to be emptied of. Emptied tables are as new, so that a seed meets no trace of another.
    const { rows } = await this.#postgres.query<{ name: string }>(
      'SELECT name FROM unnest($1::text[]) AS t (name) WHERE pg_relation_size(name::regclass) > 0',
      [this.#tables],
    );
    const used = rows.map(({ name }) => name);
    if (used.length > 0) {
      await this.#postgres.exec(`
        SET session_replication_role = replica;
        TRUNCATE ${used.join(', ')} RESTART IDENTITY CASCADE;
        ${this.#seeded.map((name, index) => (used.includes(name) ? `INSERT INTO ${name} TABLE world.new_${index};` : '')).join('\n')}
        SET session_replication_role = origin;`);
    }
    this.#toldAt = -1;
    this.#talk(this.#time());
  }

  /** The database as a process sees it, through `faults`. */
  connect(process: Process, faults: DatabaseFaults): Database {
    const world = this.#ofWorld();
    const through = async <T>(work: () => Promise<T>): Promise<T> => {
      const run = async (): Promise<T> => {
        await world.sleep(faults.latencyMs / 2);
        if (faults.down || world.random() < faults.lostBefore) {
          throw new DatabaseUnavailable('the connection was lost', 'not_executed');
        }
        const result = await work();
        await world.sleep(faults.latencyMs / 2);
        if (world.random() < faults.lostAnswer) {
          throw new DatabaseUnavailable('the connection was lost', 'unknown');
        }
        return result;
      };
      return process.arrive(run());
    };
    return {
      query: (statement, values) =>
        through(() => this.#exclusively(() => this.#query(statement, values))),
      transaction: (work) =>
        through(() =>
          this.#exclusively(async () => {
            await this.#query('BEGIN');
            try {
              const result = await work(this.#transaction(process));
              if (process.isDead) throw new DatabaseUnavailable('killed', 'not_executed');
              await this.#query('COMMIT');
              return result;
            } catch (error) {
              await this.#query('ROLLBACK');
              throw error;
            }
          }),
        ),
      withConnection: () => assert.fail('the simulated database has one session'),
      stats: () => ({ open: 1, idle: 1, waiting: 0 }),
      close: () => Promise.resolve(),
    };
  }

  /** Asks as somebody who stands outside the world: no latency, no faults. */
  look<Row>(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    return this.#exclusively(() => this.#query<Row>(text, values));
  }

  close(): Promise<void> {
    return this.#postgres.close();
  }

  #transaction(process: Process): Transaction {
    return {
      query: (statement, values) => {
        if (process.isDead) throw new DatabaseUnavailable('killed', 'not_executed');
        return this.#query(statement, values);
      },
    };
  }

  async #query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    const world = this.#ofWorld();
    const text = typeof statement === 'string' ? statement : statement.text;
    return world.busy(() => Promise.resolve().then(() => this.#run<Row>(text, values)));
  }

  /** Runs a statement that is prepared once. In one thread nobody else uses the session meanwhile, so it needs no promise. */
  #run<Row>(text: string, values: readonly unknown[]): Row[] {
    const { name, parameters, fields } = this.#prepare(text);
    const { serialize } = protocol;
    const rows: Row[] = [];
    const answer = this.#talk([
      ...this.#time(),
      serialize.bind({
        statement: name,
        values: parameters.map((type, index) => this.#written(type, values[index])),
      }),
      serialize.execute({}),
      serialize.sync(),
    ]);
    for (const message of answer) {
      if (!(message instanceof messages.DataRowMessage)) continue;
      const entries = fields.map(({ name, dataTypeID }, index) => {
        const value = message.fields[index] ?? null;
        const parse = PARSERS[dataTypeID] ?? this.#postgres.parsers[dataTypeID];
        return [name, value === null || parse === undefined ? value : parse(value, dataTypeID)];
      });
      rows.push(Object.fromEntries(entries) as Row);
    }
    return rows;
  }

  #prepare(text: string): Prepared {
    const known = this.#prepared.get(text);
    if (known !== undefined) return known;
    const name = `s${this.#prepared.size}`;
    const { serialize } = protocol;
    let parameters: readonly number[] = [];
    let fields: Prepared['fields'] = [];
    const answer = this.#talk([
      serialize.parse({ name, text }),
      serialize.describe({ type: 'S', name }),
      serialize.sync(),
    ]);
    for (const message of answer) {
      if (message instanceof messages.ParameterDescriptionMessage) parameters = message.dataTypeIDs;
      if (message instanceof messages.RowDescriptionMessage) fields = message.fields;
    }
    const prepared = { name, parameters, fields };
    this.#prepared.set(text, prepared);
    return prepared;
  }

  #written(type: number, value: unknown): string | null {
    if (value === null || value === undefined) return null;
    const write = this.#postgres.serializers[type];
    if (write !== undefined) return write(value);
    return typeof value === 'string' ? value : JSON.stringify(value);
  }

  /** Sends messages and gives what came back. Throws PostgreSQL's error. */
  #talk(sent: readonly Uint8Array[]): messages.BackendMessage[] {
    const answer: messages.BackendMessage[] = [];
    const data = this.#postgres.execProtocolRawSync(Buffer.concat(sent));
    this.#parser.parse(data, (message) => answer.push(message));
    const error = answer.find((message) => message instanceof messages.DatabaseError);
    if (error !== undefined) throw error;
    return answer;
  }

  #toldAt = -1;
  /** Tells the session the world's time, if it has moved. */
  #time(): Uint8Array[] {
    const now = this.#ofWorld().now();
    if (now === this.#toldAt) return [];
    this.#toldAt = now;
    return [protocol.serialize.query(`SET world.now = '${now}'`)];
  }

  /** Waits for the session. A real statement takes no virtual time, so nobody waits for long. */
  #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const world = this.#ofWorld();
    const mine = this.#turn.then(() => world.busy(work));
    this.#turn = mine.catch(() => undefined);
    return mine;
  }

  #ofWorld(): World {
    assert(this.#world, 'no world has begun');
    return this.#world;
  }
}

/** A statement that the session knows. */
interface Prepared {
  readonly name: string;
  readonly parameters: readonly number[];
  readonly fields: readonly { readonly name: string; readonly dataTypeID: number }[];
}

/** Values as runtime/postgres.ts gives them: a bigint as a safe integer, a time as ISO 8601 in UTC, a date as its text. */
const PARSERS: Readonly<Record<number, (text: string) => unknown>> = {
  [types.INT8]: (text: string) => {
    const value = Number(text);
    assert(Number.isSafeInteger(value));
    return value;
  },
  [types.TIMESTAMPTZ]: (text: string) => new Date(text).toISOString(),
  [types.DATE]: (text: string) => text,
  [types.NUMERIC]: (text: string) => text,
};
