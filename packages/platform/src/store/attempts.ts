/**
 * Evidence: what was sent to a partner for one payment, and what came back.
 *
 * enters: every answer to a PUT or a status GET, from the partner client.  leaves: rows of `attempts`, and one log line for each.
 * holds:  a poll without news costs no write: a run of identical polls is counted in memory and written with the next change, so a
 *         crash loses at most such counts. Evidence never delays or fails a payment; when the database is unavailable it is
 *         dropped, and this is logged. Bodies are kept for answers that were not the expected record only: of a record that breaks
 *         the interface its own fields, of anything else 1,000 characters; secrets, account ids and contact data taken out, and sealed.
 */
import type { Attempt } from '@duebridge/contract';
import { messageOf, sql, type Clock, type Database, type Log } from '@duebridge/runtime';
import { maskAccountId } from '../mask.ts';
import type { AnsweredCall } from '../partners/client.ts';
import type { Sealer } from '../partners/seal.ts';
import type { Queryable } from './payments.ts';

/**
 * How long an entry waits for more attempts of its payment before it is written: most payments end within it and cost one row.
 */
const FLUSH_EVERY_MS = 2_000;
/** Payments whose runs are counted in memory, at most; about 30 MB. Beyond this the oldest of them loses what is not written yet. */
const MAX_KEPT = 100_000;
/** Maximum rows per statement. */
const MAX_ROWS = 500;
/** Maximum characters of a body that are kept. */
const MAX_BODY = 1_000;
/** Maximum characters of a field of a record that are kept. */
const MAX_FIELD = 200;
/** Maximum entries shown of one payment: the latest. */
const MAX_SHOWN = 500;
/** Maximum rows read at once: several of each payment of a long list. */
const MAX_READ = 5_000;

/** The evidence of this process, and what is stored. */
export type Attempts = ReturnType<typeof openAttempts>;

/** A call, or a run of polls with the same answer; times in wall milliseconds, the body sealed. */
export interface RecordedCall {
  readonly kind: Attempt['kind'];
  readonly at: number;
  last_at: number;
  count: number;
  took_ms: number;
  readonly http_status: number | null;
  readonly result: string;
  readonly request_id: string;
  body?: string;
}

/** How many calls, and the result of the last one. Pure. */
export function summarize(calls: readonly RecordedCall[]) {
  const last = calls.toSorted((one, other) => one.last_at - other.last_at).at(-1);
  const attempts = calls.reduce((sum, { count }) => sum + count, 0);
  return { attempts, last_result: last?.result ?? null };
}

interface Kept {
  readonly entries: RecordedCall[];
  /** False while the last entry is a run that is already written or has nothing new. */
  news: boolean;
  since: number;
}

const insertStatement = sql(`
   INSERT INTO duebridge_platform.attempts (platform_payment_id, at, entries)
   SELECT r.id, r.at, r.entries FROM json_to_recordset($1::json) AS r (id text, at timestamptz, entries jsonb)`);
const selectStatement = sql(`
   SELECT platform_payment_id, entries FROM duebridge_platform.attempts WHERE platform_payment_id = ANY($1)
    ORDER BY at DESC, part LIMIT ${MAX_READ}`);

/** Opens the evidence. Call `flush` every second or two, and with `all` when stopping. */
export function openAttempts(options: {
  database: Database;
  sealer: Sealer;
  clock: Clock;
  log: Log;
}) {
  const { database, sealer, clock, log } = options;
  const kept = new Map<string, Kept>();

  const note = (call: AnsweredCall): void => {
    const { platform_payment_id, partner_id } = call;
    const entry = entryOf(call);
    const { kind, http_status, result, took_ms, request_id } = entry;
    log.debug(
      { platform_payment_id, partner_id, kind, http_status, result, took_ms, request_id },
      'attempt',
    );
    const body = evidenceOf(call);
    if (body !== undefined) entry.body = sealer.seal(body, placeOf(platform_payment_id));
    const now = clock.monotonic();
    const mine = kept.get(platform_payment_id);
    if (mine === undefined) {
      const [oldest] = kept.size < MAX_KEPT ? [] : kept.keys();
      if (oldest !== undefined) kept.delete(oldest);
      kept.set(platform_payment_id, { entries: [entry], news: true, since: now });
      return;
    }
    const known = mine.entries.length;
    append(mine.entries, entry);
    if (!mine.news && mine.entries.length > known) Object.assign(mine, { news: true, since: now });
  };

  const write = async (ids: readonly string[]): Promise<void> => {
    const rows: object[] = [];
    for (const id of ids) {
      const mine = kept.get(id);
      const [first] = mine?.entries ?? [];
      if (mine === undefined || first === undefined) continue;
      rows.push({ id, at: new Date(first.at).toISOString(), entries: [...mine.entries] });
      const last = mine.entries.at(-1);
      // The run continues in memory: its next polls are counted from zero and written with the next change.
      if (last?.kind === 'get' && last.result === 'processing') {
        mine.entries.splice(0, mine.entries.length, { ...last, count: 0 });
        mine.news = false;
      } else kept.delete(id);
    }
    for (let from = 0; from < rows.length; from += MAX_ROWS) {
      await database.query(insertStatement, [JSON.stringify(rows.slice(from, from + MAX_ROWS))]);
    }
  };

  const callsOf = async (ids: readonly string[]): Promise<Map<string, RecordedCall[]>> => {
    const calls = new Map(ids.map((id) => [id, [...(kept.get(id)?.entries ?? [])]]));
    type Row = { readonly platform_payment_id: string; readonly entries: RecordedCall[] };
    for (const row of await database.query<Row>(selectStatement, [ids])) {
      calls.get(row.platform_payment_id)?.push(...row.entries);
    }
    return calls;
  };

  return {
    /** Records a call; returns immediately and never throws. */
    note,
    /** The recorded calls for each of these payments, in no order. */
    callsOf,
    /**
     * The attempts of a payment, oldest first, including those that this process has not written yet. `bodies`: decrypts them too.
     */
    async of(platform_payment_id: string, { bodies }: { bodies: boolean }): Promise<Attempt[]> {
      const entries = (await callsOf([platform_payment_id])).get(platform_payment_id) ?? [];
      entries.sort((a, b) => a.at - b.at || a.last_at - b.last_at);
      const runs: RecordedCall[] = [];
      for (const entry of entries) append(runs, entry);
      return runs.slice(-MAX_SHOWN).map(({ body, at, last_at, ...entry }) => ({
        ...entry,
        at: new Date(at).toISOString(),
        last_at: new Date(last_at).toISOString(),
        body: bodies && body !== undefined ? sealer.open(body, placeOf(platform_payment_id)) : null,
      }));
    },

    /** Writes entries that have waited long enough; `all` writes everything, including runs without news. */
    async flush(all = false): Promise<void> {
      const now = clock.monotonic();
      const ids = [...kept]
        .filter(
          ([, mine]) =>
            (mine.news && (all || now - mine.since >= FLUSH_EVERY_MS)) ||
            (all && (mine.entries.at(-1)?.count ?? 0) > 0),
        )
        .map(([id]) => id);
      try {
        await write(ids);
      } catch (error) {
        log.warn({ error: messageOf(error), payments: ids.length }, 'could not record attempts');
      }
    },
  };
}

/** Until `signal` aborts: writes evidence every second or two, and everything at the end. */
export async function keepAttempts(options: {
  attempts: Pick<Attempts, 'flush'>;
  clock: Clock;
  signal: AbortSignal;
}): Promise<void> {
  const { attempts, clock, signal } = options;
  while (!signal.aborted) {
    await clock.sleep(FLUSH_EVERY_MS / 2, signal);
    await attempts.flush(signal.aborted);
  }
}

/** Deletes the evidence of these payments, to erase a person's data. */
export async function eraseAttempts(on: Queryable, ids: readonly string[]): Promise<void> {
  await on.query(
    sql(`DELETE FROM duebridge_platform.attempts WHERE platform_payment_id = ANY($1)`),
    [ids],
  );
}

function placeOf(platform_payment_id: string): string {
  return `attempts/${platform_payment_id}`;
}

/**
 * Adds a call, or a part of a run of polls that was written in parts: equal polls that follow each other are one entry, every PUT keeps
 * its own.
 */
function append(entries: RecordedCall[], entry: RecordedCall): void {
  const last = entries.at(-1);
  const isSame =
    last?.kind === 'get' &&
    entry.kind === 'get' &&
    last.http_status === entry.http_status &&
    last.result === entry.result &&
    (last.body === undefined) === (entry.body === undefined);
  if (isSame) {
    last.count += entry.count;
    last.last_at = Math.max(last.last_at, entry.last_at);
    last.took_ms = entry.took_ms;
  } else if (entry.count > 0) entries.push({ ...entry });
}

function entryOf({ kind, sent_at, took_ms, request_id, answer }: AnsweredCall): RecordedCall {
  return {
    kind,
    at: sent_at,
    last_at: sent_at,
    count: 1,
    took_ms: Math.round(took_ms),
    http_status: answer.kind === 'reply' ? answer.status : null,
    result: resultOf(answer),
    request_id,
  };
}

/** The answer in one word: the status of a record, an error's code, or why there is no body. */
function resultOf(answer: AnsweredCall['answer']): string {
  if (answer.kind !== 'reply') return answer.reason;
  const { status, code } = Object(answer.json) as Readonly<Record<string, unknown>>;
  const result = (answer.status === 200 ? status : undefined) ?? code;
  if (typeof result === 'string' && /^[A-Za-z0-9_.-]{1,64}$/.test(result)) return result;
  return answer.problem === undefined ? `http_${answer.status}` : `not_json_${answer.problem}`;
}

/** The body as evidence; undefined when the answer was the expected record, which the payment's row contains. */
function evidenceOf(call: AnsweredCall): string | undefined {
  const { answer, secrets, account_id } = call;
  if (answer.kind !== 'reply' || call.isExpected) return undefined;
  const { status, json, raw = '' } = answer;
  if (status === 200 && typeof json === 'object' && json !== null && !Array.isArray(json)) {
    return recordEvidence(json, secrets);
  }
  return raw === '' ? undefined : redact(raw, [...secrets, account_id]);
}

/** The fields of a payment record that may be compared with what was asked. Any other field may hold a person's data. */
const RECORD_FIELDS = [
  'platform_payment_id',
  'payment_id',
  'platform_batch_id',
  'biller_id',
  'account_id',
  'amount_in_cents',
  'status',
  'failure_reason',
  'initiated_at',
  'posted_at',
];
/** An id, a word or an instant: nothing that needs to be taken out. */
const PLAIN = /^[\w.:+-]{1,128}$/;

/**
 * A record that breaks the interface, as JSON of its known fields, so that it can be compared with what was asked. The account is
 * masked as everywhere, texts are redacted. Pure.
 */
export function recordEvidence(json: object, secrets: readonly string[]): string {
  const fields = json as Readonly<Record<string, unknown>>;
  const kept = RECORD_FIELDS.filter((name) => fields[name] !== undefined).map((name) => {
    const value = fields[name];
    if (typeof value !== 'string') return [name, typeof value === 'object' ? null : value];
    if (name === 'account_id') return [name, maskAccountId(value)];
    const isPlain = PLAIN.test(value) && !secrets.some((secret) => value.includes(secret));
    return [name, isPlain ? value : redact(value, secrets).slice(0, MAX_FIELD)];
  });
  return JSON.stringify(Object.fromEntries(kept));
}

/** Contact data and anything that looks like a secret, a card number or an account number. */
const PERSONAL = [
  /\b(?:Bearer|Basic)\s+[^\s,;"']+/gi,
  /\b(?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{24,}\b/g, // a token; a UUID with its hyphens too
  /[\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+/gu, // an e-mail address
  /\+?\d[\d ()./-]{6,}\d/g, // a phone, card or account number
];

/**
 * A text in the form that may be stored and shown: known secrets and ids are replaced first, then anything that looks like one.
 * Pure.
 */
export function redact(text: string, secrets: readonly string[]): string {
  let out = text.slice(0, 4 * MAX_BODY).toWellFormed();
  for (const secret of secrets) if (secret.length > 1) out = out.replaceAll(secret, '•••');
  for (const pattern of PERSONAL) out = out.replaceAll(pattern, '•••');
  out = out.replaceAll(/\p{Cc}+/gu, ' ');
  return out.length > MAX_BODY ? `${out.slice(0, MAX_BODY)}…` : out;
}
