/**
 * Payments that only wait for their next step, as bytes (decision 185): about 150 for each, in a few large arrays, so that the garbage
 * collector has nothing to visit.
 *
 * enters: a payment, by `put`.  leaves: the same payment, by `take`, when its next step is due.
 * holds:  what `take` returns equals what `put` was given. A payment that cannot be written exactly is refused, and its owner keeps
 *         the object: `put` never alters one.
 *
 * Each payment is a record: one entry in every column, and a block of text. Columns come in segments, so that growing copies nothing and
 * leaves no memory behind that the allocator keeps; records and blocks are reused. `find` searches an open-addressing table by the words of the id, which are random enough to serve as their own hash.
 */
import { PAYMENT_STAGES, PAYMENT_STATUSES } from '@duebridge/contract';
import type { Anomaly } from '../partners/payment-record.ts';
import { ActivePayment, type PaymentGroup } from './active-payment.ts';

/** No record, no block. */
const NONE = 0xffff_ffff;
/** Records of one segment, as a power of two: 1.3 MB of columns. */
const SEGMENT_BITS = 14;
const SEGMENT = 1 << SEGMENT_BITS;
/** In the column of slots: the record is free, or was dropped and is still in a lane. */
const NO_SLOT = -2;
/** The length of a payment_id that is null. */
const NULL_LENGTH = 0xffff;
/** Largest value that a column of small numbers holds. */
const MAX_COUNT = 0xffff_ffff;
const MAX_GRACE = 0xff;

/** The columns of one segment, one entry for each record; `id` has four words. */
function newColumns() {
  return {
    id: new Uint32Array(4 * SEGMENT),
    at: new Float64Array(SEGMENT),
    createdAt: new Float64Array(SEGMENT),
    acceptedAt: new Float64Array(SEGMENT),
    /** NaN when there was no failure. */
    failedAt: new Float64Array(SEGMENT),
    amount_in_cents: new Float64Array(SEGMENT),
    polls: new Uint32Array(SEGMENT),
    tries: new Uint32Array(SEGMENT),
    ownFaults: new Uint32Array(SEGMENT),
    /** See `flagsOf`. */
    flags: new Uint32Array(SEGMENT),
    slot: new Int16Array(SEGMENT).fill(NO_SLOT),
    /** The block of the texts; of a free record, the next free one. */
    text: new Uint32Array(SEGMENT),
    accountLength: new Uint16Array(SEGMENT),
    paymentLength: new Uint16Array(SEGMENT),
  };
}

type Columns = ReturnType<typeof newColumns>;

/** Payments as bytes. A record is valid from `put` until `take` or `release`. */
export class WaitingPayments {
  readonly #segments: Columns[] = [];
  /** By record: objects that many payments share. */
  readonly #groups: (PaymentGroup | undefined)[] = [];
  #used = 0;
  #free = NONE;
  #size = 0;
  readonly #texts = new TextBlocks();
  /** Record + 1 by hash, with linear probing; 0 is empty. At most half full. */
  #table = new Uint32Array(2 * SEGMENT);
  readonly #anomalies: Anomaly[] = [];

  /** Payments that wait. */
  get size(): number {
    return this.#size;
  }

  /** Writes a payment into a record. Undefined if it cannot be written exactly. */
  put(payment: ActivePayment): number | undefined {
    const { account_id, payment_id } = payment;
    const accountLength = textLength(account_id);
    const paymentLength = payment_id === null ? 0 : textLength(payment_id);
    const counts = Math.max(payment.polls, payment.tries, payment.ownFaults);
    if (accountLength === undefined || paymentLength === undefined) return undefined;
    if (accountLength + paymentLength > MAX_TEXT || counts > MAX_COUNT) return undefined;
    if (payment.grace > MAX_GRACE || !readId(payment.platform_payment_id)) return undefined;
    const record = this.#newRecord();
    const columns = this.#columnsOf(record);
    const at = indexOf(record);
    columns.id.set(words, 4 * at);
    columns.at[at] = payment.at;
    columns.createdAt[at] = payment.createdAt;
    columns.acceptedAt[at] = payment.acceptedAt;
    columns.failedAt[at] = payment.failedAt ?? Number.NaN;
    columns.amount_in_cents[at] = payment.amount_in_cents;
    columns.polls[at] = payment.polls;
    columns.tries[at] = payment.tries;
    columns.ownFaults[at] = payment.ownFaults;
    columns.flags[at] = this.#flagsOf(payment);
    columns.slot[at] = payment.slot;
    columns.accountLength[at] = accountLength;
    columns.paymentLength[at] = payment_id === null ? NULL_LENGTH : paymentLength;
    columns.text[at] = this.#texts.put(
      payment_id === null ? account_id : account_id + payment_id,
      accountLength + paymentLength,
    );
    this.#groups[record] = payment.group;
    this.#index(record);
    this.#size += 1;
    return record;
  }

  /** Returns the payment of a record, and frees the record. */
  take(record: number): ActivePayment {
    const columns = this.#columnsOf(record);
    const at = indexOf(record);
    const group = this.#groups[record];
    if (group === undefined) throw new Error('a record that is free was taken');
    const flags = columns.flags[at] ?? 0;
    const accountLength = columns.accountLength[at] ?? 0;
    const paymentLength = columns.paymentLength[at] ?? 0;
    const block = columns.text[at] ?? 0;
    const payment = new ActivePayment({
      at: columns.at[at] ?? 0,
      platform_payment_id: this.idOf(record),
      account_id: this.#texts.read(block, 0, accountLength),
      amount_in_cents: columns.amount_in_cents[at] ?? 0,
      group,
      createdAt: columns.createdAt[at] ?? 0,
      stage: PAYMENT_STAGES[flags & 7] ?? 'created',
      status: PAYMENT_STATUSES[(flags >> 3) & 3] ?? 'processing',
      payment_id:
        paymentLength === NULL_LENGTH
          ? null
          : this.#texts.read(block, accountLength, accountLength + paymentLength),
      acceptedAt: columns.acceptedAt[at] ?? 0,
      slot: columns.slot[at] ?? NO_SLOT,
    });
    payment.polls = columns.polls[at] ?? 0;
    payment.tries = columns.tries[at] ?? 0;
    payment.ownFaults = columns.ownFaults[at] ?? 0;
    payment.resubmit = (flags & RESUBMIT) !== 0;
    payment.crossed = (flags >> CROSSED) & 3;
    payment.grace = (flags >> 8) & MAX_GRACE;
    // Code 0 is none.
    payment.anomaly = this.#anomalies[(flags >> 16) - 1];
    const failedAt = columns.failedAt[at] ?? Number.NaN;
    if (!Number.isNaN(failedAt)) payment.failedAt = failedAt;
    this.drop(record);
    this.release(record);
    return payment;
  }

  /** The record of a payment, or undefined. */
  find(platform_payment_id: string): number | undefined {
    if (!readId(platform_payment_id)) return undefined;
    const mask = this.#table.length - 1;
    for (let place = hashOf(words, 0) & mask; ; place = (place + 1) & mask) {
      const record = (this.#table[place] ?? 0) - 1;
      if (record < 0) return undefined;
      const { id } = this.#columnsOf(record);
      const from = 4 * indexOf(record);
      if (
        id[from] === words[0] &&
        id[from + 1] === words[1] &&
        id[from + 2] === words[2] &&
        id[from + 3] === words[3]
      )
        return record;
    }
  }

  /** Forgets the payment of a record. The record itself stays reserved until `release`, because a lane still names it. */
  drop(record: number): void {
    this.#columnsOf(record).slot[indexOf(record)] = NO_SLOT;
    this.#groups[record] = undefined;
    this.#unindex(record);
    this.#size -= 1;
  }

  /** Frees a record that was dropped, and that no lane names any more. */
  release(record: number): void {
    const { text, accountLength, paymentLength } = this.#columnsOf(record);
    const at = indexOf(record);
    const payment = paymentLength[at] ?? 0;
    const length = (accountLength[at] ?? 0) + (payment === NULL_LENGTH ? 0 : payment);
    this.#texts.free(text[at] ?? 0, length);
    text[at] = this.#free;
    this.#free = record;
  }

  /** False after `drop`. */
  holds(record: number): boolean {
    return this.#columnsOf(record).slot[indexOf(record)] !== NO_SLOT;
  }

  /** When the next step of a record's payment is due. */
  atOf(record: number): number {
    return this.#columnsOf(record).at[indexOf(record)] ?? 0;
  }

  slotOf(record: number): number {
    return this.#columnsOf(record).slot[indexOf(record)] ?? NO_SLOT;
  }

  idOf(record: number): string {
    const { id } = this.#columnsOf(record);
    const from = 4 * indexOf(record);
    const word = (at: number): string => (id[from + at] ?? 0).toString(16).padStart(8, '0');
    const [second, third] = [word(1), word(2)];
    return `${word(0)}-${second.slice(0, 4)}-${second.slice(4)}-${third.slice(0, 4)}-${third.slice(4)}${word(3)}`;
  }

  /** Every record that holds a payment. They may be dropped while they are listed. */
  *records(): Generator<number> {
    for (let record = 0; record < this.#used; record += 1) if (this.holds(record)) yield record;
  }

  /** Visits `createdAt` of every payment, in the order of the records. */
  eachCreationTime(visit: (createdAt: number) => void): void {
    for (const { createdAt, slot } of this.#segments) {
      for (let at = 0; at < SEGMENT; at += 1) if (slot[at] !== NO_SLOT) visit(createdAt[at] ?? 0);
    }
  }

  #flagsOf(payment: ActivePayment): number {
    let anomaly = 0;
    if (payment.anomaly !== undefined) {
      if (!this.#anomalies.includes(payment.anomaly)) this.#anomalies.push(payment.anomaly);
      anomaly = this.#anomalies.indexOf(payment.anomaly) + 1;
    }
    return (
      PAYMENT_STAGES.indexOf(payment.stage) |
      (PAYMENT_STATUSES.indexOf(payment.status) << 3) |
      (payment.resubmit ? RESUBMIT : 0) |
      (payment.crossed << CROSSED) |
      (payment.grace << 8) |
      (anomaly << 16)
    );
  }

  #newRecord(): number {
    if (this.#free !== NONE) {
      const record = this.#free;
      this.#free = this.#columnsOf(record).text[indexOf(record)] ?? NONE;
      return record;
    }
    if (this.#used === this.#segments.length * SEGMENT) this.#grow();
    this.#used += 1;
    return this.#used - 1;
  }

  #grow(): void {
    this.#segments.push(newColumns());
    const records = this.#segments.length * SEGMENT;
    if (2 * records <= this.#table.length) return;
    this.#table = new Uint32Array(2 * this.#table.length);
    for (const record of this.records()) this.#index(record);
  }

  #columnsOf(record: number): Columns {
    const columns = this.#segments[record >>> SEGMENT_BITS];
    if (columns === undefined) throw new Error('a record that does not exist');
    return columns;
  }

  #hashOf(record: number): number {
    return hashOf(this.#columnsOf(record).id, 4 * indexOf(record));
  }

  #index(record: number): void {
    const table = this.#table;
    const mask = table.length - 1;
    let place = this.#hashOf(record) & mask;
    while (table[place] !== 0) place = (place + 1) & mask;
    table[place] = record + 1;
  }

  /** Removes a record from the table, and closes the gap, so that no probe ends too early. */
  #unindex(record: number): void {
    const table = this.#table;
    const mask = table.length - 1;
    let gap = this.#hashOf(record) & mask;
    while (table[gap] !== record + 1) gap = (gap + 1) & mask;
    for (let place = (gap + 1) & mask; table[place] !== 0; place = (place + 1) & mask) {
      const entry = table[place] ?? 0;
      const home = this.#hashOf(entry - 1) & mask;
      // It may move up to the gap unless its home lies behind the gap.
      if (((place - home) & mask) < ((place - gap) & mask)) continue;
      table[gap] = entry;
      gap = place;
    }
    table[gap] = 0;
  }
}

/** The place of a record in its segment. */
function indexOf(record: number): number {
  return record & (SEGMENT - 1);
}

const RESUBMIT = 1 << 5;
/** Where the two bits of this number begin. */
const CROSSED = 6;

// Ids -----------------------------------------------------------------------------------------------------------------------

/** The id that `readId` read last. */
const words = new Uint32Array(4);

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Reads an id into `words`. False if it is not a UUID in the form that the platform mints, and could not be written the same way. */
function readId(id: string): boolean {
  if (!UUID.test(id)) return false;
  words[0] = Number.parseInt(id.slice(0, 8), 16);
  words[1] = Number.parseInt(id.slice(9, 13) + id.slice(14, 18), 16);
  words[2] = Number.parseInt(id.slice(19, 23) + id.slice(24, 28), 16);
  words[3] = Number.parseInt(id.slice(28), 16);
  return true;
}

/** The random words of an id; the first two of a UUIDv7 are a time. */
function hashOf(ids: Uint32Array, from: number): number {
  return (ids[from + 3] ?? 0) ^ Math.imul(ids[from + 2] ?? 0, 0x9e37_79b1);
}

// Texts ---------------------------------------------------------------------------------------------------------------------

/** Bytes of text in one chunk. */
const CHUNK = 1 << 20;
/** A block is a multiple of this, so that blocks are reused by others of nearly the same length. */
const UNIT = 8;
const UNITS_PER_CHUNK = CHUNK / UNIT;
/** Bytes of one payment's texts at most; account ids and payment ids are far shorter. */
const MAX_TEXT = 2_048;

/** The length in bytes, or undefined for a text that UTF-8 would change. */
function textLength(text: string): number | undefined {
  return text.isWellFormed() ? Buffer.byteLength(text) : undefined;
}

/** Texts in chunks of bytes. A block is named by its place, in units. */
class TextBlocks {
  readonly #chunks: Buffer[] = [];
  /** Units used of the last chunk. */
  #end = UNITS_PER_CHUNK;
  /** The first free block by its length in units; each holds the place of the next. */
  readonly #free = new Uint32Array(unitsOf(MAX_TEXT) + 1).fill(NONE);

  put(text: string, length: number): number {
    const block = this.#newBlock(unitsOf(length));
    this.#chunkOf(block).write(text, offsetOf(block), 'utf8');
    return block;
  }

  read(block: number, from: number, to: number): string {
    const offset = offsetOf(block);
    return this.#chunkOf(block).toString('utf8', offset + from, offset + to);
  }

  free(block: number, length: number): void {
    const units = unitsOf(length);
    this.#chunkOf(block).writeUInt32LE(this.#free[units] ?? NONE, offsetOf(block));
    this.#free[units] = block;
  }

  #newBlock(units: number): number {
    const free = this.#free[units] ?? NONE;
    if (free !== NONE) {
      this.#free[units] = this.#chunkOf(free).readUInt32LE(offsetOf(free));
      return free;
    }
    if (this.#end + units > UNITS_PER_CHUNK) {
      this.#chunks.push(Buffer.allocUnsafeSlow(CHUNK));
      this.#end = 0;
    }
    const block = (this.#chunks.length - 1) * UNITS_PER_CHUNK + this.#end;
    this.#end += units;
    return block;
  }

  #chunkOf(block: number): Buffer {
    const chunk = this.#chunks[Math.floor(block / UNITS_PER_CHUNK)];
    if (chunk === undefined) throw new Error('a text block that does not exist');
    return chunk;
  }
}

function unitsOf(length: number): number {
  return Math.max(1, Math.ceil(length / UNIT));
}

function offsetOf(block: number): number {
  return (block % UNITS_PER_CHUNK) * UNIT;
}
