/**
 * The database of a simulated world: PostgreSQL compiled to run in this thread, with both sides' real migrations and
 * statements, the world's time as its clock, and faults between a statement and its answer.
 *
 * One session serves all processes, so statements run one after another and a transaction excludes the others: what only two
 * sessions at once can show (lock waits, deadlocks, serialization failures) is for the tests on a server, not for this one.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import {
  DatabaseUnavailable,
  type Database,
  type Statement,
  type Transaction,
} from '@duebridge/runtime';
import { testTools } from '../../scripts/tool.ts';
import type { messages as Messages, PGlite as Postgres } from '../../tools/test/index.ts';
import type { Process, World } from './time.ts';

const { messages, PGlite, protocol, types } = await (await testTools()).pglite();

/** The faults between a process and the database. */
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

/** The time at which the database is made. */
const BIRTH = Date.UTC(2026, 5, 1);

/** A new database, kept for the next process: making it takes longer than a world. Beside the library, whose version it depends on. */
const KEPT = join(import.meta.dirname, '../../tools/test/node_modules/.cache');

const BIRTH_SQL = `
  CREATE SCHEMA world;
  CREATE TABLE world.server AS SELECT timestamptz '2026-06-01 00:00Z' AS started;
  CREATE FUNCTION world.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT started FROM world.server';
  -- A function of this schema comes before PostgreSQL's own. This PostgreSQL lives in memory; the check of a durable server has tests of its own.
  CREATE FUNCTION world.current_setting(text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $1 IN ('fsync', 'full_page_writes') THEN 'on' ELSE pg_catalog.current_setting($1) END $$;`;

/** What a session is told when it opens. */
const SESSION = `
  SET TIME ZONE 'UTC';
  SET search_path = world, pg_catalog;
  -- Every world runs the same few hundred statements over a few dozen rows: planning them anew took longer than running them.
  SET plan_cache_mode = force_generic_plan;`;

/** One PostgreSQL for any number of worlds, one after another. */
export class SimulatedPostgres {
  readonly #postgres: Postgres;
  #world: World | undefined;
  /** How far the clock of its host is off, in milliseconds. */
  #clockOffMs = 0;
  /** There is one session: whoever holds this may use it. */
  #turn: Promise<unknown> = Promise.resolve();

  readonly #tables: readonly string[];
  /** Tables in which the migrations put rows, of which copies are kept. */
  readonly #seeded: readonly string[];

  /** What is known of each statement, by its text: parsed and planned once for all worlds of the process. */
  readonly #prepared = new Map<string, Prepared>();
  readonly #parser = new protocol.Parser();
  /** Answers to reads, by statement and values, and after how many changes they were read. */
  readonly #answers = new Map<string, { readonly rows: unknown[]; readonly at: number }>();
  /** After how many changes each table was changed last. */
  readonly #changed = new Map<string, number>();
  #changes = 0;

  private constructor(postgres: Postgres, tables: readonly string[], seeded: readonly string[]) {
    this.#postgres = postgres;
    this.#tables = tables;
    this.#seeded = seeded;
  }

  static async open(): Promise<SimulatedPostgres> {
    // Born before every world, or it would set itself timers that run for half a year.
    const { now } = Date;
    Date.now = () => BIRTH;
    try {
      return await SimulatedPostgres.#create();
    } finally {
      Date.now = now;
    }
  }

  static async #create(): Promise<SimulatedPostgres> {
    const migrations = SIDES.flatMap((side) => {
      const folder = join(import.meta.dirname, `../../packages/${side}/src/migrations`);
      return (
        globSync('*.sql', { cwd: folder })
          .sort()
          .map((file) => readFileSync(join(folder, file), 'utf8'))
          // As at a first start, where there are no writers.
          .map((migration) => migration.replaceAll('INDEX CONCURRENTLY', 'INDEX'))
      );
    });
    const text = [...migrations, readFileSync(import.meta.filename, 'utf8')].join('\n');
    const file = join(KEPT, `world-${createHash('sha256').update(text).digest('hex')}.tar`);
    if (!existsSync(file)) await keepNew(migrations, file);
    const postgres = await PGlite.create({ loadDataDir: new Blob([readFileSync(file)]) });
    await postgres.exec(SESSION);
    const tables = await tablesOf(postgres);
    const { rows } = await postgres.query<{ name: string }>(
      "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'world'",
    );
    const copies = rows.map(({ name }) => `world.${name}`);
    return new SimulatedPostgres(
      postgres,
      tables,
      tables.filter((name) => copies.includes(copyOf('new', name))),
    );
  }

  /** Empties every table for a new world. */
  async begin(world: World): Promise<void> {
    this.#world = world;
    this.#clockOffMs = 0;
    this.#answers.clear();
    this.#turn = Promise.resolve();
    // A table without pages is already empty. Emptied tables are as new, so that one seed leaves no trace for the next.
    const used = await this.#nonEmpty(this.#tables);
    if (used.length > 0) {
      await this.#postgres.exec(`
        SET session_replication_role = replica;
        TRUNCATE ${used.join(', ')} RESTART IDENTITY CASCADE;
        ${this.#seeded.map((name) => (used.includes(name) ? `INSERT INTO ${name} TABLE ${copyOf('new', name)};` : '')).join('\n')}
        SET session_replication_role = origin;`);
    }
  }

  async #nonEmpty(tables: readonly string[]): Promise<string[]> {
    const { rows } = await this.#postgres.query<{ name: string }>(
      'SELECT name FROM unnest($1::text[]) AS t (name) WHERE pg_relation_size(name::regclass) > 0',
      [tables],
    );
    return rows.map(({ name }) => name);
  }

  /** The platform's database as its asynchronous standby has it at this moment. */
  copyToStandby(): Promise<void> {
    return this.#exclusively(async () => {
      for (const name of await this.#nonEmpty(this.#tablesOfPlatform())) {
        await this.#postgres.exec(`INSERT INTO ${copyOf('standby', name)} TABLE ${name}`);
      }
    });
  }

  /** The standby takes over: what the platform committed since the copy is gone. */
  failOver(): Promise<void> {
    return this.#exclusively(async () => {
      this.#answers.clear();
      const tables = this.#tablesOfPlatform();
      const used = await this.#nonEmpty(tables);
      const copies = await this.#nonEmpty(tables.map((name) => copyOf('standby', name)));
      const back = tables.filter((name) => copies.includes(copyOf('standby', name)));
      await this.#postgres.exec(`
        SET session_replication_role = replica;
        TRUNCATE ${used.join(', ')} CASCADE;
        ${back.map((name) => `INSERT INTO ${name} TABLE ${copyOf('standby', name)};`).join('\n')}
        TRUNCATE ${copies.join(', ')};
        UPDATE world.server SET started = started + interval '1 day';
        SET session_replication_role = origin;`);
    });
  }

  #tablesOfPlatform(): string[] {
    return this.#tables.filter((name) => name.startsWith('duebridge_platform.'));
  }

  /** Steps the wall clock of its host, either way. */
  stepClock(ms: number): void {
    this.#clockOffMs += ms;
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
      connections: 10,
      stats: () => ({ open: 1, idle: 1, waiting: 0 }),
      close: () => Promise.resolve(),
    };
  }

  /** Queries from outside the world: no latency, no faults. */
  look<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    return this.#exclusively(() => this.#query<Row>(statement, values));
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

  /**
   * Runs a statement that is prepared once. In one thread nobody else uses the session meanwhile, so it needs no promise. Workers and looks
   * from outside read the same again and again: an answer stays as it is until a statement has changed a table of which it is.
   */
  #run<Row>(text: string, values: readonly unknown[]): Row[] {
    const { tables, kind } = this.#prepare(text);
    if (kind === 'read') {
      const key = `${text} ${JSON.stringify(values)}`;
      const known = this.#answers.get(key);
      if (known && !tables.some((table) => (this.#changed.get(table) ?? 0) > known.at)) {
        return known.rows.map((row) => ({ ...(row as object) }) as Row);
      }
      const rows = this.#execute<Row>(text, values);
      this.#answers.set(key, { rows, at: this.#changes });
      return rows.map((row) => ({ ...row }));
    }
    if (kind === 'back') this.#answers.clear();
    this.#changes += 1;
    for (const table of tables) this.#changed.set(table, this.#changes);
    return this.#execute(text, values);
  }

  #execute<Row>(text: string, values: readonly unknown[]): Row[] {
    const { name, parameters, columns } = this.#prepare(text);
    const { serialize } = protocol;
    const answer = this.#send([
      serialize.bind({
        statement: name,
        values: parameters.map((type, index) => this.#written(type, values[index])),
      }),
      EXECUTE,
    ]);
    const rows: Row[] = [];
    // Messages of the protocol: a letter, the length of what follows, the body. The library's parser takes longer than the statement.
    for (let at = 0; at < answer.length; at += 1 + answer.readInt32BE(at + 1)) {
      if (answer[at] === ERROR) this.#understood(answer);
      if (answer[at] !== DATA_ROW) continue;
      const row: Record<string, unknown> = {};
      let field = at + 7;
      for (const column of columns) {
        const length = answer.readInt32BE(field);
        field += 4;
        const text = length < 0 ? null : answer.toString('utf8', field, field + length);
        row[column.name] = text === null ? null : column.parse(text);
        field += Math.max(0, length);
      }
      rows.push(row as Row);
    }
    return rows;
  }

  #prepare(text: string): Prepared {
    const known = this.#prepared.get(text);
    if (known !== undefined) return known;
    const name = `s${this.#prepared.size}`;
    const { serialize } = protocol;
    let parameters: readonly number[] = [];
    let columns: Prepared['columns'] = [];
    const answer = this.#talk([
      serialize.parse({ name, text }),
      serialize.describe({ type: 'S', name }),
      serialize.sync(),
    ]);
    for (const message of answer) {
      if (message instanceof messages.ParameterDescriptionMessage) parameters = message.dataTypeIDs;
      if (!(message instanceof messages.RowDescriptionMessage)) continue;
      columns = message.fields.map(({ name, dataTypeID: type }) => {
        const parse = PARSERS[type] ?? this.#postgres.parsers[type];
        return { name, parse: (text) => (parse === undefined ? text : parse(text, type)) };
      });
    }
    const prepared = {
      name,
      parameters,
      columns,
      tables: [...text.matchAll(TABLE)].map(([table]) => table),
      kind: kindOf(text),
    };
    this.#prepared.set(text, prepared);
    return prepared;
  }

  #written(type: number, value: unknown): string | null {
    if (value === null || value === undefined) return null;
    const write = this.#postgres.serializers[type];
    if (write !== undefined) return write(value);
    return typeof value === 'string' ? value : JSON.stringify(value);
  }

  /** Sends messages and returns the answer. Throws PostgreSQL's error. */
  #talk(sent: readonly Uint8Array[]): Messages.BackendMessage[] {
    return this.#understood(this.#send(sent));
  }

  #understood(data: Buffer): Messages.BackendMessage[] {
    const answer: Messages.BackendMessage[] = [];
    this.#parser.parse(data, (message) => answer.push(message));
    const error = answer.find((message) => message instanceof messages.DatabaseError);
    if (error !== undefined) throw error;
    return answer;
  }

  #send(sent: readonly Uint8Array[]): Buffer {
    const world = this.#ofWorld();
    // PostgreSQL asks JavaScript for the time: statements, defaults and triggers of both sides see that of the world. It also sets timers
    // for its statistics, which would run in real time.
    const { now } = Date;
    const { setTimeout } = globalThis;
    Date.now = () => world.now() + this.#clockOffMs;
    Object.assign(globalThis, { setTimeout: () => 0 });
    try {
      const data = this.#postgres.execProtocolRawSync(Buffer.concat(sent));
      return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    } finally {
      Date.now = now;
      Object.assign(globalThis, { setTimeout });
    }
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

/** The copy of a table that the worlds keep beside it. */
function copyOf(kind: 'new' | 'standby', table: string): string {
  return `world.${kind}_${table.replace('.', '_')}`;
}

async function tablesOf(postgres: Postgres): Promise<string[]> {
  const { rows } = await postgres.query<{ name: string }>(
    "SELECT schemaname || '.' || tablename AS name FROM pg_tables WHERE schemaname LIKE 'duebridge%' ORDER BY 1",
  );
  return rows.map(({ name }) => name);
}

/** Makes a database with both sides' tables, empty copies of them, and copies of what the migrations put into them; keeps it in `file`. */
async function keepNew(migrations: readonly string[], file: string): Promise<void> {
  const postgres = await PGlite.create();
  await postgres.exec(BIRTH_SQL + SESSION);
  for (const side of SIDES) await postgres.exec(`CREATE SCHEMA duebridge_${side}`);
  for (const migration of migrations) await postgres.exec(migration);
  for (const name of await tablesOf(postgres)) {
    await postgres.exec(`CREATE TABLE ${copyOf('standby', name)} AS TABLE ${name} WITH NO DATA`);
    const { rows } = await postgres.query(`SELECT FROM ${name} LIMIT 1`);
    if (rows.length > 0)
      await postgres.exec(`CREATE TABLE ${copyOf('new', name)} AS TABLE ${name}`);
  }
  // The next process recovers it as after a crash: the timer for its progress would fire every ten seconds and keep that process alive.
  await postgres.exec('ALTER SYSTEM SET log_startup_progress_interval = 0');
  const kept = await postgres.dumpDataDir('none');
  await postgres.close();
  // Renamed when it is whole, and never taken away: several processes may come here at the same time.
  const draft = `${file}.${process.pid}`;
  mkdirSync(KEPT, { recursive: true });
  writeFileSync(draft, Buffer.from(await kept.arrayBuffer()));
  renameSync(draft, file);
  for (const other of globSync('world-*.tar', { cwd: KEPT })) {
    if (join(KEPT, other) !== file) rmSync(join(KEPT, other), { force: true });
  }
}

/** A statement that the session knows. */
interface Prepared {
  readonly name: string;
  readonly parameters: readonly number[];
  readonly tables: readonly string[];
  readonly kind: Kind;
  readonly columns: readonly {
    readonly name: string;
    readonly parse: (text: string) => unknown;
  }[];
}

const EXECUTE = Buffer.concat([protocol.serialize.execute({}), protocol.serialize.sync()]);
const DATA_ROW = 'D'.charCodeAt(0);
const ERROR = 'E'.charCodeAt(0);

/**
 * `read`: the answer depends on tables that its text names and on its values alone; `back`: every table may be another one; `other`: it may
 * change the tables that it names. No trigger and no foreign key changes another table.
 */
type Kind = 'read' | 'back' | 'other';

const TABLE = /\bduebridge_(?:platform|partner)\.\w+/g;
/** What changes a table, or depends on more than tables: the time, chance, the server, a view. */
const NO_READ =
  /\b(?:INSERT|UPDATE|DELETE|TRUNCATE|LOCK|now|clock_timestamp|statement_timestamp|transaction_timestamp|current_\w+|localtime\w*|gen_random_uuid|random|nextval|setval|set_config|pg_\w+|movement)\b/i;
/** A call of a function of ours, which may change any table. */
const FUNCTION = /(?<!INTO )\bduebridge_\w+\.\w+ ?\(/i;

function kindOf(text: string): Kind {
  if (/^\s*ROLLBACK/i.test(text) || FUNCTION.test(text)) return 'back';
  return /^\s*(?:SELECT|WITH)\b/i.test(text) && !NO_READ.test(text) ? 'read' : 'other';
}

/** The type of a list of slots, which is read at every round and is long. */
const INT2_ARRAY = 1005;

/** Values as runtime/postgres.ts gives them: a bigint as a safe integer, a time as ISO 8601 in UTC, a date as its text. */
const PARSERS: Readonly<Record<number, (text: string) => unknown>> = {
  [INT2_ARRAY]: (text: string) => text.slice(1, -1).split(',').map(Number),
  [types.INT8]: (text: string) => {
    const value = Number(text);
    assert(Number.isSafeInteger(value));
    return value;
  },
  [types.TIMESTAMPTZ]: (text: string) => new Date(text).toISOString(),
  [types.DATE]: (text: string) => text,
  [types.NUMERIC]: (text: string) => text,
};
