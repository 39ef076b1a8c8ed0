/**
 * Seals over an audit table, so that what was written there can be shown to be what is there now (decision 135).
 *
 * enters: lines that any transaction appended, each with the database's time.
 * leaves: a chain of seals. Each holds the SHA-256 of every line of one stretch of time and a digest over those, the stretch and the
 *         seal before it, keyed where the server has a secret outside the database.
 * holds:  writing a line costs nothing more than before; a line is sealed once every transaction that could still write beside it has
 *         ended. Any replica may seal: the number of a seal is its primary key, so one of them wins.
 */
import assert from 'node:assert/strict';
import { createHash, createHmac, type KeyObject } from 'node:crypto';
import type { AuditVerification } from '@duebridge/contract';
import { sql, type Database } from './postgres.ts';
import { repeatedly, type Repetition } from './repeatedly.ts';

/** The audit of one side. */
export interface AuditTables {
  /** Schema and table of the lines, which have the columns `at` and `audit_id`, and an index that begins with `at`. */
  readonly lines: string;
  /** Schema and table of the seals. */
  readonly seals: string;
  /** The other columns of a line, in the order of the digest. The order never changes for sealed lines. */
  readonly columns: readonly string[];
  /** Schema and table of archives, whose lines before `until` are in files. Their seals stay, and are compared with each other only. */
  readonly archives?: string;
}

type BrokenAudit = NonNullable<AuditVerification['broken']>;

/** Lines in one seal: 64 kB of digests, and few enough to locate a problem. */
const LINES_PER_SEAL = 2_000;
/** Seals per round: more than the engine writes in ten seconds at its fastest. */
const SEALS_PER_ROUND = 100;
/**
 * The age at which a line is sealed. It exceeds the time that earlier statements of its transaction may take, because some lines
 * have the time at which their transaction began, before it held the lock.
 */
const MARGIN_MS = 30_000;
/** Without new lines, the stretch is closed at this interval anyway, so that nothing can be inserted into it afterwards. */
const EMPTY_SEAL_MS = 10 * 60_000;
/** The database's clock went back by more than this: new lines then have times within sealed stretches. */
const CLOCK_STEP_MS = 2_000;
/** How far to look back in that case: the exact time of the step is unknown, except that no earlier round saw it. */
const LOOK_BACK_MS = 10 * 60_000;
/** A call of `verify` ends after the seal at which this has passed: it answers whatever the load and the size of the audit. */
const PIECE_MS = 2_000;
/** Unsealed lines are counted up to this. Counting millions takes longer than a statement may. */
const MOST_UNSEALED = 10_000;
const DIGEST_BYTES = 32;
const NO_SEAL = Buffer.alloc(DIGEST_BYTES);

interface SealRow {
  readonly seal_no: number;
  readonly from_at: string;
  readonly to_at: string;
  readonly sealed_at: string;
  readonly lines: number;
  readonly digests: Buffer;
  readonly previous: Buffer;
  readonly seal: Buffer;
}

interface LineDigest {
  readonly digest: Buffer;
  readonly at: string;
  readonly audit_id: string;
}

/** The start of the first seal, in the time format used here: to the microsecond, in UTC. */
const BEGINNING = '-infinity';
const utc = (column: string): string =>
  `CASE WHEN ${column} = '-infinity' THEN '-infinity' ELSE to_char(${column}, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END`;

/** A seal, as it is logged and printed. */
type Seal = { readonly seal_no: number; readonly seal: string };

/** The seals of one audit. */
export class AuditChain {
  readonly #database: Database;
  readonly #statements: Statements;
  readonly #key: KeyObject | undefined;
  readonly #marginMs: number;
  readonly #pieceMs: number;
  /** Milliseconds since the end of the newest seal's stretch at the last call of `seal`; 0 before it. */
  ageMs = 0;
  /** The time before which no line can be added any more, and the one that will be it once these writers have ended. */
  #settled: string | undefined;
  #waitsFor: { readonly at: string; readonly writers: readonly string[] } | undefined;

  /**
   * `key` is a secret outside the database: without it, somebody who can only write to the database cannot forge a chain. `marginMs`
   * and `pieceMs` are for tests.
   */
  constructor(options: {
    readonly database: Database;
    readonly tables: AuditTables;
    readonly key?: KeyObject;
    readonly marginMs?: number;
    readonly pieceMs?: number;
  }) {
    this.#database = options.database;
    this.#statements = statementsOf(options.tables);
    this.#key = options.key;
    this.#marginMs = options.marginMs ?? MARGIN_MS;
    this.#pieceMs = options.pieceMs ?? PIECE_MS;
  }

  /**
   * Seals what is ready; returns the newest seal of this call, or undefined when there was none to create. Call it every few
   * seconds.
   */
  async seal(): Promise<Seal | undefined> {
    const now = await this.#settle();
    let newest: Seal | undefined;
    for (let made = 0; made < SEALS_PER_ROUND; made += 1) {
      const one = await this.#sealOne(now);
      newest = one ?? newest;
      if (one?.isFull !== true) break;
    }
    return newest;
  }

  /** Compares at most `limit` seals after number `after` with the lines of their time; fewer when that takes more than two seconds. */
  async verify(after: number, limit: number): Promise<AuditVerification> {
    const seals = await this.#database.query<SealRow>(this.#statements.some, [
      after - 1,
      limit + 1,
    ]);
    let before = after > 0 && seals[0]?.seal_no === after ? seals.shift() : undefined;
    const rows = seals.filter(({ seal_no }) => seal_no > after).slice(0, limit);
    let broken: BrokenAudit | undefined;
    if (after > 0 && before === undefined) {
      broken = { seal_no: after, what: 'seal_missing', at: null, audit_id: null };
    }
    const found = { seals: 0, lines: 0 };
    const archived = await this.#archivedUntil();
    const startedAt = performance.now();
    for (const row of broken === undefined ? rows : []) {
      broken = await this.#compare(row, before, archived);
      // Its month may have gone to files since `archived` was read, and lines that went there were not removed.
      broken &&= await this.#compare(row, before, await this.#archivedUntil());
      if (broken !== undefined) break;
      found.seals += 1;
      found.lines += row.lines;
      before = row;
      if (performance.now() - startedAt > this.#pieceMs) break;
    }
    const isLast = rows.length < limit && found.seals === rows.length;
    const [last] = await this.#database.query<{ seal_no: number }>(this.#statements.newest);
    const [rest] =
      broken === undefined && isLast
        ? await this.#database.query<{ lines: number }>(this.#statements.rest, [
            before?.to_at ?? BEGINNING,
          ])
        : [];
    return {
      ...found,
      through:
        before === undefined
          ? null
          : { seal_no: before.seal_no, seal: before.seal.toString('hex'), to: before.to_at },
      next: broken === undefined && !isLast ? (before?.seal_no ?? null) : null,
      newest: last?.seal_no ?? 0,
      broken: broken ?? null,
      unsealed: rest?.lines ?? 0,
    };
  }

  #sealOf(row: Omit<SealRow, 'seal'>): Buffer {
    const { seal_no, from_at, to_at, sealed_at, lines, digests, previous } = row;
    const digest = createHash('sha256').update(digests).digest('hex');
    const facts = [seal_no, from_at, to_at, sealed_at, lines, digest, previous.toString('hex')];
    const hash = this.#key ? createHmac('sha256', this.#key) : createHash('sha256');
    return hash.update(JSON.stringify(facts)).digest();
  }

  /**
   * Learns the time before which nothing can be added any more, and returns the time now. A transaction that has written a line holds the
   * table's write lock until it ends. For each time, the holders of that lock are remembered; once they have ended, no line older than the
   * margin before that time can be added.
   */
  async #settle(): Promise<string> {
    const [row] = await this.#database.query<{ now: string; writers: string[] }>(
      this.#statements.now,
    );
    assert(row);
    const { now, writers } = row;
    if (this.#waitsFor?.writers.every((writer) => !writers.includes(writer))) {
      this.#settled = this.#waitsFor.at;
      this.#waitsFor = undefined;
    }
    if (writers.length === 0) this.#settled = now;
    else this.#waitsFor ??= { at: now, writers };
    return now;
  }

  /** Adds the seal after `last`; undefined when another replica was faster. */
  async #write(
    last: SealRow | undefined,
    stretch: Pick<SealRow, 'from_at' | 'to_at' | 'sealed_at'>,
    digests: readonly Buffer[],
  ): Promise<Seal | undefined> {
    const row = {
      seal_no: (last?.seal_no ?? 0) + 1,
      ...stretch,
      lines: digests.length,
      digests: Buffer.concat(digests),
      previous: last?.seal ?? NO_SEAL,
    };
    const seal = this.#sealOf(row);
    const made = await this.#database.query(this.#statements.add, [...Object.values(row), seal]);
    return made.length === 0 ? undefined : { seal_no: row.seal_no, seal: seal.toString('hex') };
  }

  /** Digests of lines in (from, to] that other seals cover: after the clock went back, stretches overlap. */
  async #sealedWithin(from: string, to: string, but: number): Promise<Set<string>> {
    const rows = await this.#database.query<{ digests: Buffer }>(this.#statements.overlapping, [
      from,
      to,
      but,
    ]);
    return new Set(rows.flatMap(({ digests }) => partsOf(digests)));
  }

  async #sealOne(now: string): Promise<(Seal & { readonly isFull: boolean }) | undefined> {
    const [last] = await this.#database.query<SealRow>(this.#statements.last);
    const from_at = last?.to_at ?? BEGINNING;
    this.ageMs = last === undefined ? 0 : Math.max(0, millis(now) - millis(last.to_at));
    if (last !== undefined && millis(now) < millis(last.sealed_at) - CLOCK_STEP_MS) {
      // An empty seal whose time goes back records the step; the next ones seal the lines written in the meantime.
      const back = shifted(now, -this.#marginMs - LOOK_BACK_MS);
      const stretch = { from_at: back, to_at: back, sealed_at: now };
      const seal = await this.#write(last, stretch, []);
      // Times remembered before the step are now in the future.
      this.#waitsFor = undefined;
      this.#settled = undefined;
      return seal && { ...seal, isFull: false };
    }
    if (this.#settled === undefined) return undefined;
    const until = shifted(this.#settled, -this.#marginMs);
    if (from_at !== BEGINNING && until <= from_at) return undefined;
    const found = await this.#database.query<LineDigest>(this.#statements.ready, [from_at, until]);
    const isFull = found.length >= LINES_PER_SEAL;
    const isDue = from_at === BEGINNING || millis(until) - millis(from_at) >= EMPTY_SEAL_MS;
    if (found.length === 0 && !isDue) return undefined;
    const to_at = (isFull ? found.at(-1)?.at : undefined) ?? until;
    const known = await this.#sealedWithin(from_at, to_at, (last?.seal_no ?? 0) + 1);
    const fresh = found
      .map(({ digest }) => digest)
      .filter((one) => !known.has(one.toString('hex')));
    const seal = await this.#write(last, { from_at, to_at, sealed_at: now }, fresh);
    return seal && { ...seal, isFull };
  }

  /** The time before which lines are in files; empty, which no time is before, where there are none. */
  async #archivedUntil(): Promise<string> {
    const { archived } = this.#statements;
    if (archived === undefined) return '';
    const [row] = await this.#database.query<{ until: string | null }>(archived);
    return row?.until ?? '';
  }

  /** Compares one seal with the seal before it and, unless its stretch begins before `archived`, with the lines of its stretch. */
  async #compare(
    row: SealRow,
    before: SealRow | undefined,
    archived: string,
  ): Promise<BrokenAudit | undefined> {
    const broken = (
      what: BrokenAudit['what'],
      line?: { at: string; audit_id: string },
    ): BrokenAudit => ({
      seal_no: row.seal_no,
      what,
      at: line?.at ?? null,
      audit_id: line?.audit_id ?? null,
    });
    const { seal_no, from_at, to_at } = row;
    if (seal_no !== (before?.seal_no ?? 0) + 1) return broken('seal_missing');
    const goesBack = row.lines === 0 && from_at === to_at;
    if (
      !row.seal.equals(this.#sealOf(row)) ||
      !row.previous.equals(before?.seal ?? NO_SEAL) ||
      row.digests.length !== row.lines * DIGEST_BYTES ||
      (from_at !== (before?.to_at ?? BEGINNING) && !goesBack)
    ) {
      return broken('seal_altered');
    }
    if (goesBack || from_at < archived) return undefined;
    // Bounded, because somebody may have inserted millions of lines.
    const within = (most: number): Promise<LineDigest[]> =>
      this.#database.query<LineDigest>(this.#statements.within, [from_at, to_at, most]);
    const usual = await within(row.lines + 1);
    if (Buffer.concat(usual.map(({ digest }) => digest)).equals(row.digests)) return undefined;
    const sealed = partsOf(row.digests);
    const elsewhere = await this.#sealedWithin(from_at, to_at, seal_no);
    const known = new Set([...sealed, ...elsewhere]);
    const lines = await within(known.size + LINES_PER_SEAL);
    const extra = lines.find(({ digest }) => !known.has(digest.toString('hex')));
    const there = new Set(lines.map(({ digest }) => digest.toString('hex')));
    const gone = sealed.findIndex((digest) => !there.has(digest));
    // With that many lines inserted, those that are sealed may only not have been read.
    const isWhole = lines.length < known.size + LINES_PER_SEAL;
    if (extra !== undefined) return broken(gone < 0 || !isWhole ? 'inserted' : 'altered', extra);
    // An exact copy has the digest of its line. No table forbids one, because the platform's lines have no key.
    const copy = lines.find(({ digest }, place) => lines[place - 1]?.digest.equals(digest));
    if (gone < 0) return copy && broken('inserted', copy);
    const good = sealed.slice(0, gone).findLast((digest) => there.has(digest));
    const line = lines.find(({ digest }) => digest.toString('hex') === good);
    return { ...broken('removed'), at: line?.at ?? from_at };
  }
}

/** How often a replica looks for lines to seal. */
const EVERY_MS = 10_000;
/** How often the newest seal is logged: a log kept elsewhere reveals that the end of the chain was cut off. */
const LOGGED_EVERY_MS = 60 * 60_000;

/** Seals every ten seconds until `signal` aborts; resolves then. */
export function keepSealing(on: Repetition & { readonly chain: AuditChain }): Promise<void> {
  const { chain, clock, log } = on;
  let loggedAt = -Infinity;
  return repeatedly(on, EVERY_MS, 'could not seal the audit; retrying', async () => {
    const newest = await chain.seal();
    if (newest === undefined || clock.monotonic() - loggedAt < LOGGED_EVERY_MS) return;
    const { seal_no, seal } = newest;
    log.info({ seal_no, seal }, 'the audit is sealed up to this seal');
    loggedAt = clock.monotonic();
  });
}

type Statements = ReturnType<typeof statementsOf>;

/** The statements over one side's tables. */
function statementsOf({ lines, seals, columns, archives }: AuditTables) {
  // An array of values as JSON is unambiguous, and PostgreSQL formats jsonb in only one way.
  const digest = `sha256(convert_to(jsonb_build_array(audit_id, ${utc('at')}, ${columns.join(', ')})::text, 'UTF8')) AS digest`;
  const line = `${digest}, ${utc('at')} AS at, audit_id::text AS audit_id`;
  const seal = `seal_no, ${utc('from_at')} AS from_at, ${utc('to_at')} AS to_at, ${utc('sealed_at')} AS sealed_at, lines, digests, previous, seal`;
  return {
    archived:
      archives === undefined
        ? undefined
        : sql(`SELECT ${utc('max(until)')} AS until FROM ${archives}`),
    now: sql(`
       SELECT ${utc('clock_timestamp()')} AS now,
              ARRAY(SELECT DISTINCT virtualtransaction FROM pg_catalog.pg_locks
                     WHERE locktype = 'relation' AND relation = '${lines}'::regclass AND mode = 'RowExclusiveLock'
                       AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())) AS writers`),
    last: sql(`SELECT ${seal} FROM ${seals} ORDER BY seal_no DESC LIMIT 1`),
    newest: sql(`SELECT max(seal_no) AS seal_no FROM ${seals}`),
    some: sql(`SELECT ${seal} FROM ${seals} WHERE seal_no > $1 ORDER BY seal_no LIMIT $2`),
    add: sql(`
       INSERT INTO ${seals} (seal_no, from_at, to_at, sealed_at, lines, digests, previous, seal)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (seal_no) DO NOTHING RETURNING 1`),
    overlapping: sql(`
       SELECT digests FROM ${seals} WHERE to_at > $1 AND from_at < $2 AND seal_no <> $3`),
    // Lines with the same time are sealed together, so that a time can be the end of a stretch.
    ready: sql(`
       SELECT ${line} FROM (
         SELECT * FROM ${lines} WHERE at > $1 AND at <= $2 ORDER BY at FETCH FIRST ${LINES_PER_SEAL} ROWS WITH TIES
       ) AS ready ORDER BY ready.at, ready.audit_id`),
    within: sql(`
       SELECT ${line} FROM ${lines} AS line WHERE line.at > $1 AND line.at <= $2
        ORDER BY line.at, line.audit_id LIMIT $3`),
    rest: sql(`
       SELECT count(*) AS lines FROM (SELECT 1 FROM ${lines} WHERE at > $1 LIMIT ${MOST_UNSEALED}) AS unsealed`),
  };
}

/** Digests one by one, as text that can be looked up. */
function partsOf(digests: Buffer): string[] {
  return Array.from({ length: Math.floor(digests.length / DIGEST_BYTES) }, (_, index) =>
    digests.subarray(index * DIGEST_BYTES, (index + 1) * DIGEST_BYTES).toString('hex'),
  );
}

/** A time of these tables in milliseconds; microseconds are cut. */
function millis(text: string): number {
  return text === BEGINNING ? -Infinity : Date.parse(text);
}

/** A time of these tables, moved by whole milliseconds; the microseconds stay. */
function shifted(text: string, ms: number): string {
  const micros = text.slice(23, 26);
  return new Date(Date.parse(text) + ms).toISOString().replace('Z', `${micros}Z`);
}
