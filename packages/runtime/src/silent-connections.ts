/**
 * Ends connections that the database has forgotten.
 *
 * After some failovers (a host that vanished, an address that moved, a firewall that lost its table) old connections fall silent: no
 * packet says that they are gone, and TCP gives up after minutes. A statement may take its ten seconds, so its silence alone says
 * nothing. But the server that answers now knows its own sessions: when a statement has no answer for a second, a fresh connection asks
 * which of ours exist, and those that do not are ended. If no server answers, nothing is decided.
 */
import { Client } from 'pg';
import { messageOf } from './errors.ts';
import type { Log } from './log.ts';

/** A connection as this module needs it. */
export interface WatchedConnection {
  /** Its session on the server; undefined behind a pooler, which makes its numbers up. */
  readonly processId: number | undefined;
  /** Since when it has waited for an answer, monotonic milliseconds; undefined while it is idle. */
  readonly askedAt: number | undefined;
  /** Ends it without a word to the server. */
  destroy(): void;
}

/** A statement without an answer for this long makes us ask: far above what statements take, and half of what a failover may. */
const SILENT_MS = 1_000;
/** How often connections are looked at. */
const LOOK_EVERY_MS = 500;
/** A server that does not answer the question by then cannot be asked now. */
const ASK_MS = 1_000;

/** Watches the connections that `all` returns until it is called to stop. */
export function endSilentConnections(options: {
  readonly url: string;
  readonly all: () => Iterable<WatchedConnection>;
  readonly log: Log;
}): () => void {
  const { url, all, log } = options;
  let isAsking = false;
  const look = async (): Promise<void> => {
    const now = performance.now();
    const watched = [...all()].filter(({ processId }) => processId !== undefined);
    const isSilent = watched.some(({ askedAt }) => now - (askedAt ?? now) > SILENT_MS);
    if (!isSilent || isAsking) return;
    isAsking = true;
    try {
      const ids = watched.flatMap(({ processId }) => processId ?? []);
      const known = await sessionsOn(url, ids);
      const gone = watched.filter(({ processId }) => !known.has(processId ?? 0));
      if (gone.length === 0) return;
      log.warn({ connections: gone.length }, 'the database does not know these connections: ended');
      for (const connection of gone) connection.destroy();
    } catch (error) {
      log.debug({ error: messageOf(error) }, 'the database cannot be asked for its sessions');
    } finally {
      isAsking = false;
    }
  };
  const timer = setInterval(() => void look(), LOOK_EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}

async function sessionsOn(url: string, processIds: readonly number[]): Promise<Set<number>> {
  const client = new Client({
    connectionString: url,
    application_name: 'duebridge sessions',
    connectionTimeoutMillis: ASK_MS,
    query_timeout: ASK_MS,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    const { rows } = await client.query<{ pid: number }>(
      'SELECT pid FROM pg_stat_activity WHERE pid = ANY ($1::int[])',
      [processIds],
    );
    return new Set(rows.map(({ pid }) => pid));
  } finally {
    client.end().catch(() => undefined);
  }
}
