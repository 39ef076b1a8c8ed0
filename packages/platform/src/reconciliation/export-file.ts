/**
 * A partner's export of a batch, `platform_payment_id,status,amount_in_cents`, read as it arrives: after each piece the event loop gets a turn, so
 * that a file of a million lines holds nobody up. compare.ts compares it.
 */
import { setImmediate as turn } from 'node:timers/promises';
import {
  compileCheck,
  isPaymentStatus,
  PlatformPaymentId,
  Refusal,
  type Detail,
} from '@duebridge/contract';
import type { TheirLine } from './compare.ts';
import type { StatementLine } from './batch.ts';

const idCheck = compileCheck(PlatformPaymentId);
/** Problems named in one answer: enough to fix an export. */
const MAX_DETAILS = 20;
/** Largest file, in bytes: a million lines. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;

/** Reads an export that arrives in pieces, by ids; a heading is skipped. Throws Refusal PAYLOAD_TOO_LARGE, and INVALID_REQUEST. */
export async function readExport(
  file: AsyncIterable<Uint8Array>,
): Promise<ReadonlyMap<string, TheirLine>> {
  const lines = new Map<string, TheirLine>();
  const details: Detail[] = [];
  let number = 0;
  for await (const texts of textsOf(file)) {
    for (const text of texts) {
      number += 1;
      const line = lineOf(text);
      if (line === undefined) {
        const problem = 'must be platform_payment_id,status,amount_in_cents';
        if (details.length < MAX_DETAILS)
          details.push({ path: `body.csv.line_${number}`, problem });
      }
      if (line === undefined || line === null) continue;
      const { platform_payment_id, status, amount_in_cents } = line;
      const before = lines.get(platform_payment_id);
      lines.set(platform_payment_id, {
        status,
        amount_in_cents: amount_in_cents + (before?.amount_in_cents ?? 0),
        lines: 1 + (before?.lines ?? 0),
      });
    }
    await turn();
  }
  if (details.length > 0) throw new Refusal('INVALID_REQUEST', { details });
  return lines;
}

/** The lines of each piece. Throws Refusal PAYLOAD_TOO_LARGE, and INVALID_REQUEST for what is not UTF-8. */
async function* textsOf(file: AsyncIterable<Uint8Array>): AsyncGenerator<string[]> {
  const utf8 = new TextDecoder('utf-8', { fatal: true });
  let bytes = 0;
  let rest = '';
  try {
    for await (const piece of file) {
      bytes += piece.length;
      if (bytes > MAX_FILE_BYTES) {
        throw new Refusal('PAYLOAD_TOO_LARGE', { message: 'The file is larger than 64 MiB' });
      }
      // A return at the very end may be the first half of a line break.
      const texts = (rest + utf8.decode(piece, { stream: true })).split(/\r\n|\n|\r(?!$)/);
      rest = texts.pop() ?? '';
      yield texts;
    }
    yield [rest + utf8.decode()];
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    const problem = 'is not UTF-8: save the file as CSV UTF-8';
    throw new Refusal('INVALID_REQUEST', { details: [{ path: 'body', problem }] });
  }
}

/** A line; null for one that says nothing, undefined for one that cannot be read. Pure. */
function lineOf(text: string): StatementLine | null | undefined {
  const fields = text.split(',').map((field) => field.trim().replace(/^"(.*)"$/, '$1'));
  const [platform_payment_id, status, amount = ''] = fields;
  if (text.trim() === '' || platform_payment_id === 'platform_payment_id') return null;
  // Decision 11, except for zero, which an export may have for a payment that came to nothing.
  const isAmount = /^(0|[1-9][0-9]{0,14})$/.test(amount);
  return fields.length === 3 &&
    isAmount &&
    idCheck.holds(platform_payment_id) &&
    isPaymentStatus(status)
    ? { platform_payment_id, status, amount_in_cents: Number(amount) }
    : undefined;
}
