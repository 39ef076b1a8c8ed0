/**
 * Lines of a partner's export, read and compared in turns: a file of a million lines holds nobody up.
 *
 * enters: `platform_payment_id,status,amount_in_cents` in pieces, and the lines of our own batch page by page.  leaves: the
 *         differences.  holds: no turn of the event loop takes longer than LINES_AT_ONCE lines need.
 */
import {
  compileCheck,
  isPaymentStatus,
  PlatformPaymentId,
  Refusal,
  type Detail,
  type Difference,
  type PaymentStatus,
} from '@duebridge/contract';
import { LINES_AT_ONCE, sortById, turn, type StatementLine } from './statement.ts';

const idCheck = compileCheck(PlatformPaymentId);
/** Problems named in one answer: enough to fix an export. */
const MAX_DETAILS = 20;
/** Largest file, in bytes: a million lines. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;

/** The lines of an export that arrives in pieces; yields to the event loop in between. */
export async function readFile(file: AsyncIterable<Uint8Array>): Promise<StatementLine[]> {
  const reader = lineReader();
  const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const decode = (bytes?: Uint8Array): string => {
    try {
      return bytes === undefined ? utf8.decode() : utf8.decode(bytes, { stream: true });
    } catch {
      throw new Refusal('INVALID_REQUEST', {
        details: [{ path: 'body', problem: 'is not UTF-8: save the file as CSV UTF-8' }],
      });
    }
  };
  let bytes = 0;
  let rest = '';
  const take = async (text: string, last: boolean): Promise<void> => {
    // A return at the very end may be the first half of a line break.
    const parts = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = last ? '' : (parts.pop() ?? '');
    for (let from = 0; from < parts.length; from += LINES_AT_ONCE) {
      reader.read(parts.slice(from, from + LINES_AT_ONCE));
      await turn();
    }
  };
  for await (const chunk of file) {
    bytes += chunk.length;
    if (bytes > MAX_FILE_BYTES) {
      throw new Refusal('PAYLOAD_TOO_LARGE', { message: 'The file is larger than 64 MiB' });
    }
    await take(decode(chunk), false);
  }
  await take(decode(), true);
  return reader.end();
}

/** Reads lines `platform_payment_id,status,amount_in_cents`; a heading line is skipped. `end` throws Refusal INVALID_REQUEST. */
function lineReader(): { read(texts: readonly string[]): void; end(): StatementLine[] } {
  const lines: StatementLine[] = [];
  const details: Detail[] = [];
  let number = 0;
  const readOne = (text: string): void => {
    number += 1;
    const fields = text
      .replace(/^\uFEFF/, '')
      .split(',')
      .map((field) => field.trim().replace(/^"(.*)"$/, '$1'));
    const [platform_payment_id, status, amount = ''] = fields;
    if (text.trim() === '' || platform_payment_id === 'platform_payment_id') return;
    // Decision 11, except for zero, which an export may have for a payment that came to nothing.
    if (
      fields.length === 3 &&
      idCheck.holds(platform_payment_id) &&
      isPaymentStatus(status) &&
      /^(0|[1-9][0-9]{0,14})$/.test(amount)
    ) {
      lines.push({ platform_payment_id, status, amount_in_cents: Number(amount) });
    } else if (details.length < MAX_DETAILS) {
      details.push({
        path: `body.csv.line_${number}`,
        problem: 'must be platform_payment_id,status,amount_in_cents',
      });
    }
  };
  return {
    read: (texts) => texts.forEach(readOne),
    end() {
      if (details.length > 0) throw new Refusal('INVALID_REQUEST', { details });
      return lines;
    },
  };
}

/** What an export says of one payment. */
interface TheirLine {
  readonly status: PaymentStatus;
  readonly amount_in_cents: number;
  /** How often the id occurs; the amounts are added up. */
  readonly lines: number;
}

/** The comparison of two sides. */
export interface Compared {
  /** Payments that either side has: the number that differences are counted against. */
  readonly compared: number;
  /** In the order of their ids. */
  readonly differences: Difference[];
}

/** Compares our lines, page by page, with an export. An id that occurs twice there counts with the sum of its amounts. */
export async function compareLines(
  ours: AsyncIterable<readonly StatementLine[]> | Iterable<readonly StatementLine[]>,
  theirs: readonly StatementLine[],
): Promise<Compared> {
  const there = new Map<string, TheirLine>();
  for (let from = 0; from < theirs.length; from += LINES_AT_ONCE) {
    for (const { platform_payment_id, status, amount_in_cents } of theirs.slice(
      from,
      from + LINES_AT_ONCE,
    )) {
      const before = there.get(platform_payment_id);
      there.set(platform_payment_id, {
        status,
        amount_in_cents: amount_in_cents + (before?.amount_in_cents ?? 0),
        lines: 1 + (before?.lines ?? 0),
      });
    }
    await turn();
  }
  const differences: Difference[] = [];
  let compared = there.size;
  for await (const page of ours) {
    for (const line of page) {
      const other = there.get(line.platform_payment_id);
      there.delete(line.platform_payment_id);
      if (other === undefined) compared += 1;
      differences.push(...compareLine(line, other));
    }
    await turn();
  }
  for (const [platform_payment_id, { status }] of there) {
    differences.push({ platform_payment_id, kind: 'missing_here', here: null, there: status });
    if (differences.length % LINES_AT_ONCE === 0) await turn();
  }
  return { compared, differences: await sortById(differences) };
}

function compareLine(line: StatementLine, other: TheirLine | undefined): Difference[] {
  const { platform_payment_id, status, amount_in_cents } = line;
  if (other === undefined) {
    return [{ platform_payment_id, kind: 'missing_there', here: status, there: null }];
  }
  const differences: Difference[] = [];
  if (other.status !== status) {
    differences.push({ platform_payment_id, kind: 'status', here: status, there: other.status });
  }
  if (other.amount_in_cents !== amount_in_cents || other.lines > 1) {
    const times = other.lines > 1 ? ` in ${other.lines} lines` : '';
    const there = `${other.amount_in_cents}${times}`;
    differences.push({
      platform_payment_id,
      kind: 'amount',
      here: String(amount_in_cents),
      there,
    });
  }
  return differences;
}
