/**
 * The judge's own history: the ids that its runs used at a server and the last record of each payment. A later run can then check
 * that the server still knows them (PF2: kept forever; RU2: a terminal status never changes). It also keeps which checks failed
 * last, for `--failed`.
 * Plain JSON in a folder (default `.duebridge-conform/`), written to a new file that then replaces the old one, so that a killed
 * run leaves the old file intact.
 */
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
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
export interface History {
  entries(): readonly HistoryEntry[];
  add(entries: readonly HistoryEntry[]): void;
  /** The checks that did not pass in the last run against this address. */
  lastFailed(base_url: string): readonly string[];
  keepFailed(base_url: string, checks: readonly string[]): void;
}

/** The two lists of a history, wherever they are kept. */
type Kept = 'payments' | 'failed';

function historyOver(
  read: (kept: Kept) => unknown,
  write: (kept: Kept, value: unknown) => void,
): History {
  const failed = (): Record<string, unknown> => {
    const value = read('failed');
    return isObject(value) ? value : {};
  };
  const entries = (): readonly HistoryEntry[] => {
    const value = read('payments');
    return Array.isArray(value) ? value.filter(isEntry) : [];
  };
  return {
    entries,
    add(more) {
      if (more.length > 0) write('payments', [...entries(), ...more].slice(-MAX_ENTRIES));
    },
    lastFailed(base_url) {
      const list = failed()[base_url];
      return Array.isArray(list) ? list.filter((id) => typeof id === 'string') : [];
    },
    keepFailed: (base_url, checks) => write('failed', { ...failed(), [base_url]: checks }),
  };
}

/**
 * A history in a folder, which is created when the first entry is added. Unreadable files count as empty. `onTrouble` is told, once
 * and with the file system's words, when the folder cannot be written: a run on a read-only disk still has its report.
 */
export function fileHistory(
  folder: string,
  onTrouble: (why: string) => void = () => undefined,
): History {
  let told = false;
  const file = (kept: Kept): string => join(folder, `${kept}.json`);
  return historyOver(
    (kept) => {
      try {
        return JSON.parse(readFileSync(file(kept), 'utf8'));
      } catch {
        return undefined;
      }
    },
    (kept, value) => {
      const draft = `${file(kept)}.${process.pid}`;
      try {
        mkdirSync(folder, { recursive: true });
        writeFileSync(draft, `${JSON.stringify(value, undefined, 2)}\n`, { mode: 0o600 });
        renameSync(draft, file(kept));
      } catch (error) {
        if (!told) onTrouble(error instanceof Error ? error.message : String(error));
        told = true;
      }
    },
  );
}

/** A history in memory, lost when the process exits. */
export function memoryHistory(entries: readonly HistoryEntry[] = []): History {
  const kept = new Map<Kept, unknown>([['payments', entries]]);
  return historyOver(
    (name) => kept.get(name),
    (name, value) => void kept.set(name, value),
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isEntry(value: unknown): value is HistoryEntry {
  return (
    isObject(value) &&
    typeof value['base_url'] === 'string' &&
    typeof value['biller_id'] === 'string' &&
    typeof value['made_at'] === 'string' &&
    isObject(value['intent']) &&
    isObject(value['record'])
  );
}
