/**
 * What we answered a partner's calls: Create Token, counted by hour, client, status and cause, with the last request of each.
 *
 * enters: the end of each request that names a client.  leaves: rows of `answers`, for operators and the partner's own people.
 * holds:  counting delays and fails no request: it is in memory and written every few seconds. What a client may choose is bounded:
 *         so many kinds of answers between two writes, causes cut and redacted, clients that were never issued dropped.
 */
import type { PartnerCallAnswer, Refusal } from '@duebridge/contract';
import { messageOf, sql, type Database } from '@duebridge/runtime';
import type { Services } from '../services.ts';
import { redact } from '../store/attempts.ts';

/** Kinds of answers between two writes at most; beyond, an answer is not counted. */
const MAX_KINDS = 1_000;
/** Of these, for those whose key was not right: anybody can send any client id. */
const MAX_UNVERIFIED_KINDS = 100;
/** Characters of a cause. */
const MAX_CAUSE = 200;
const HOUR_MS = 3_600_000;
/** Kinds of answers shown at most: the latest. */
const MAX_SHOWN = 200;

/** An answer to a call that names a client. */
export interface Answered {
  readonly client_id: string;
  /** Whether its key was right; otherwise anybody may have sent the call. */
  readonly isVerified: boolean;
  readonly status: number;
  readonly request_id: string;
  /** Undefined for a 200. */
  readonly refusal: Refusal | undefined;
}

/** Why, in a sentence, where the code alone does not say it. */
const CAUSES: Readonly<Record<string, string>> = {
  UNAUTHORIZED: 'X-Api-Key is missing, wrong, expired or revoked.',
  NOT_FOUND: 'Get Account says that the account does not exist.',
  TOO_MANY_REQUESTS: 'More requests a second than one client may send.',
};

interface Kind {
  readonly client_id: string;
  readonly hour: string;
  readonly status: number;
  readonly code: string;
  readonly cause: string;
  count: number;
  last_at: string;
  request_id: string;
}

/** One statement; a client that was never issued has no partner and leaves no row. */
const writeStatement = sql(`
   INSERT INTO duebridge_platform.answers (client_id, partner_id, hour, status, code, cause, count, last_at, request_id)
   SELECT c.client_id, c.partner_id, i.hour, i.status, i.code, i.cause, i.count, i.last_at, i.request_id
     FROM jsonb_to_recordset($1::jsonb) AS i (client_id text, hour timestamptz, status smallint, code text, cause text, count int,
                                              last_at timestamptz, request_id text)
     JOIN duebridge_platform.clients c ON c.client_id = i.client_id
   ON CONFLICT (client_id, hour, status, code, cause) DO UPDATE SET count = answers.count + excluded.count,
     last_at = excluded.last_at, request_id = excluded.request_id`);
const listStatement = sql(`
   SELECT client_id, status, code, cause, count, hour, last_at, request_id FROM duebridge_platform.answers
    WHERE partner_id = $1 ORDER BY last_at DESC LIMIT ${MAX_SHOWN}`);

/** The answers of this process. */
export type Answers = ReturnType<typeof openAnswers>;

/** Opens the counting. */
export function openAnswers(services: Pick<Services, 'database' | 'clock' | 'log'>) {
  const { database, clock, log } = services;
  let kinds = new Map<string, Kind>();
  let unverified = 0;
  return {
    /** Counts one. */
    note({ client_id, isVerified, status, request_id, refusal }: Answered): void {
      const now = clock.now();
      const hour = new Date(Math.floor(now / HOUR_MS) * HOUR_MS).toISOString();
      const code = refusal?.code ?? '';
      const cause = refusal === undefined ? '' : causeOf(refusal);
      const key = JSON.stringify([client_id, hour, status, code, cause]);
      const at = new Date(now).toISOString();
      const known = kinds.get(key);
      if (known !== undefined) {
        known.count += 1;
        Object.assign(known, { last_at: at, request_id });
      } else if (kinds.size < MAX_KINDS && (isVerified || unverified < MAX_UNVERIFIED_KINDS)) {
        if (!isVerified) unverified += 1;
        kinds.set(key, { client_id, hour, status, code, cause, count: 1, last_at: at, request_id });
      }
    },
    /** Writes what was counted: to be called every second or two, and when stopping. */
    async flush(): Promise<void> {
      if (kinds.size === 0) return;
      // In one order at every replica, so that two writes never wait for each other.
      const rows = [...kinds].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row);
      kinds = new Map();
      unverified = 0;
      try {
        await database.query(writeStatement, [JSON.stringify(rows)]);
      } catch (error) {
        log.warn({ error: messageOf(error), kinds: rows.length }, 'could not record answers');
      }
    },
  };
}

/** The answers to a partner, the latest first. */
export function listAnswers(database: Database, partner_id: string): Promise<PartnerCallAnswer[]> {
  return database.query<PartnerCallAnswer>(listStatement, [partner_id]);
}

/** What was wrong, as the answer said it or better; nothing of a customer. Pure. */
function causeOf({ code, message, details = [] }: Refusal): string {
  const [first] = details;
  if (first === undefined) return CAUSES[code] ?? message;
  // The path is the schema's: a field that it does not have is ignored (VE1), so no caller chooses it.
  return redact(`${first.path} ${first.problem}`, []).slice(0, MAX_CAUSE);
}
