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

/** What a history holds; each part is a file. */
interface Kept {
  payments: readonly HistoryEntry[];
  failed: Readonly<Record<string, readonly string[]>>;
}

/** A history in memory, lost when the process exits; `write` is told what has changed. */
export function memoryHistory(
  payments: readonly HistoryEntry[] = [],
  failed: Kept['failed'] = {},
  write: (part: keyof Kept, value: unknown) => void = () => undefined,
): History {
  const kept: Kept = { payments, failed };
  return {
    entries: () => kept.payments,
    add(more) {
      if (more.length === 0) return;
      kept.payments = [...kept.payments, ...more].slice(-MAX_ENTRIES);
      write('payments', kept.payments);
    },
    lastFailed: (base_url) => kept.failed[base_url] ?? [],
    keepFailed(base_url, checks) {
      kept.failed = { ...kept.failed, [base_url]: checks };
      write('failed', kept.failed);
    },
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
  const file = (part: keyof Kept): string => join(folder, `${part}.json`);
  const read = (part: keyof Kept): unknown => {
    try {
      return JSON.parse(readFileSync(file(part), 'utf8'));
    } catch {
      return undefined;
    }
  };
  const [payments, failed] = [read('payments'), read('failed')];
  let told = false;
  return memoryHistory(
    Array.isArray(payments) ? payments.filter(isEntry) : [],
    typeof failed === 'object' ? { ...(failed as Kept['failed']) } : {},
    (part, value) => {
      const draft = `${file(part)}.${process.pid}`;
      try {
        mkdirSync(folder, { recursive: true });
        writeFileSync(draft, `${JSON.stringify(value, undefined, 2)}\n`, { mode: 0o600 });
        renameSync(draft, file(part));
      } catch (error) {
        if (!told) onTrouble(error instanceof Error ? error.message : String(error));
        told = true;
      }
    },
  );
}

function isEntry(value: Partial<HistoryEntry> | null): value is HistoryEntry {
  return typeof value?.made_at === 'string' && Boolean(value.intent) && Boolean(value.record);
}
