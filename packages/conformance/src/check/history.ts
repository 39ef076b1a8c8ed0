/**
 * The judge's own history: the ids that its runs used at a server and the last record of each payment. A later run can then check
 * that the server still knows them (PF2: kept forever; RU2: a terminal status never changes).
 * Plain JSON in a folder (default `.duebridge-conform/`), written to a new file that then replaces the old one, so that a killed
 * run leaves the old file intact.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Json } from '@duebridge/contract';
import type { Intent } from './payment-fields.ts';

/** The default folder. */
export const DEFAULT_HISTORY = '.duebridge-conform';

/** Maximum number of payments remembered; the oldest are dropped. A full run makes about thirty. */
const MAX_ENTRIES = 2_000;

/** One payment of an earlier run. */
export interface HistoryEntry {
  readonly base_url: string;
  readonly biller_id: string;
  readonly intent: Intent;
  /** ISO 8601. */
  readonly made_at: string;
  /** The last record that the server returned for it. */
  readonly record: Readonly<Record<string, Json>>;
}

/** What a run reads from the history and adds to it. */
export type History = ReturnType<typeof memoryHistory>;

/** A history in memory, lost when the process exits; `write` is told of all payments whenever there are more. */
export function memoryHistory(
  payments: readonly HistoryEntry[] = [],
  write: (payments: readonly HistoryEntry[]) => void = () => undefined,
) {
  let kept = payments;
  return {
    entries: () => kept,
    add(more: readonly HistoryEntry[]): void {
      if (more.length === 0) return;
      kept = [...kept, ...more].slice(-MAX_ENTRIES);
      write(kept);
    },
  };
}

/**
 * A history in a folder, which is created when the first entry is added. An unreadable file counts as empty. `onTrouble` is told,
 * with the file system's words, when the folder cannot be written: a run on a read-only disk still has its report.
 */
export function fileHistory(
  folder: string,
  onTrouble: (why: string) => void = () => undefined,
): History {
  const file = join(folder, 'payments.json');
  let payments: unknown;
  try {
    payments = JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    // There is none, or it is damaged.
  }
  return memoryHistory(Array.isArray(payments) ? payments.filter(isEntry) : [], (all) => {
    const draft = `${file}.${process.pid}`;
    try {
      makeFolder(folder);
      writeFileSync(draft, `${JSON.stringify(all, undefined, 2)}\n`, { mode: 0o600 });
      renameSync(draft, file);
    } catch (error) {
      onTrouble(error instanceof Error ? error.message : String(error));
    }
  });
}

/** Makes a folder and those above it. Node's own way to do so never returns below /proc. */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder));
  mkdirSync(folder);
}

function isEntry(value: Partial<HistoryEntry> | null): value is HistoryEntry {
  return typeof value?.made_at === 'string' && Boolean(value.intent) && Boolean(value.record);
}
