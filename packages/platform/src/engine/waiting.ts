/**
 * Payments that only wait for their next step, as bytes (decision 185): about 150 for each, in a few large arrays, so that the garbage
 * collector has nothing to visit.
 *
 * enters: a payment, by `put`.  leaves: the same payment, by `take`, when its next step is due.
 * holds:  what `take` returns equals what `put` was given. A payment that cannot be written exactly is refused, and its owner keeps
 *         the object: `put` never alters one.
 *
 * Each payment is a record: one entry in every column, and a block of text. Columns only grow; records and blocks are reused.
 * `find` searches an open-addressing table by the words of the id, which are random enough to serve as their own hash.
 */
import { PAYMENT_STAGES, PAYMENT_STATUSES } from '@duebridge/contract';
import type { Anomaly } from '../partners/payment-record.ts';
import { ActivePayment, type PaymentGroup } from './active-payment.ts';

/** No record, no block. */
const NONE = 0xffff_ffff;
/** Records at first; doubled when they are used up. */
const FIRST_CAPACITY = 1_024;
/** In the column of slots: the record is free, or was dropped and is still in a lane. */
const NO_SLOT = -2;
/** The length of a payment_id that is null. */
const NULL_LENGTH = 0xffff;
/** Largest value that a column of small numbers holds. */
const MAX_COUNT = 0xffff_ffff;
const MAX_GRACE = 0xff;

/** All columns, one entry for each record; `id` has four words. */
function newColumns(capacity: number) {
  return {
    id: new Uint32Array(4 * capacity),
    at: new Float64Array(capacity),
    createdAt: new Float64Array(capacity),
    acceptedAt: new Float64Array(capacity),
    /** NaN when there was no failure. */
    failedAt: new Float64Array(capacity),
    amount_in_cents: new Float64Array(capacity),
    polls: new Uint32Array(capacity),
    tries: new Uint32Array(capacity),
    ownFaults: new Uint32Array(capacity),
    /** See `flagsOf`. */
    flags: new Uint32Array(capacity),
    slot: new Int16Array(capacity).fill(NO_SLOT),
    /** The block of the texts; of a free record, the next free one. */
    text: new Uint32Array(capacity),
    accountLength: new Uint16Array(capacity),
    paymentLength: new Uint16Array(capacity),
  };
}

/** Payments as bytes. A record is valid from `put` until `take` or `release`. */
export class WaitingPayments {
  #columns = newColumns(FIRST_CAPACITY);
  /** By record: objects that many payments share. */
  readonly #groups: (PaymentGroup | undefined)[] = [];
  #capacity = FIRST_CAPACITY;
  #used = 0;
  #free = NONE;
  #size = 0;
  readonly #texts = new TextBlocks();
  /** Record + 1 by hash, with linear probing; 0 is empty. At most half full. */
  #table = new Uint32Array(2 * FIRST_CAPACITY);
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
    const columns = this.#columns;
    columns.id.set(words, 4 * record);
    columns.at[record] = payment.at;
    columns.createdAt[record] = payment.createdAt;
    columns.acceptedAt[record] = payment.acceptedAt;
    columns.failedAt[record] = payment.failedAt ?? Number.NaN;
    columns.amount_in_cents[record] = payment.amount_in_cents;
    columns.polls[record] = payment.polls;
    columns.tries[record] = payment.tries;
    columns.ownFaults[record] = payment.ownFaults;
    columns.flags[record] = this.#flagsOf(payment);
    columns.slot[record] = payment.slot;
    columns.accountLength[record] = accountLength;
    columns.paymentLength[record] = payment_id === null ? NULL_LENGTH : paymentLength;
    columns.text[record] = this.#texts.put(
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
    const columns = this.#columns;
    const group = this.#groups[record];
    if (group === undefined) throw new Error('a record that is free was taken');
    const flags = columns.flags[record] ?? 0;
    const accountLength = columns.accountLength[record] ?? 0;
    const paymentLength = columns.paymentLength[record] ?? 0;
    const block = columns.text[record] ?? 0;
    const payment = new ActivePayment({
      at: columns.at[record] ?? 0,
      platform_payment_id: this.idOf(record),
      account_id: this.#texts.read(block, 0, accountLength),
      amount_in_cents: columns.amount_in_cents[record] ?? 0,
      group,
      createdAt: columns.createdAt[record] ?? 0,
      stage: PAYMENT_STAGES[flags & 7] ?? 'created',
      status: PAYMENT_STATUSES[(flags >> 3) & 3] ?? 'processing',
      payment_id:
        paymentLength === NULL_LENGTH
          ? null
          : this.#texts.read(block, accountLength, accountLength + paymentLength),
      acceptedAt: columns.acceptedAt[record] ?? 0,
      slot: columns.slot[record] ?? NO_SLOT,
    });
    payment.polls = columns.polls[record] ?? 0;
    payment.tries = columns.tries[record] ?? 0;
    payment.ownFaults = columns.ownFaults[record] ?? 0;
    payment.funded = (flags & FUNDED) !== 0;
    payment.resubmit = (flags & RESUBMIT) !== 0;
    payment.wasCrossed = (flags & WAS_CROSSED) !== 0;
    payment.grace = (flags >> 8) & MAX_GRACE;
    // Code 0 is none.
    payment.anomaly = this.#anomalies[(flags >> 16) - 1];
    const failedAt = columns.failedAt[record] ?? Number.NaN;
    if (!Number.isNaN(failedAt)) payment.failedAt = failedAt;
    this.drop(record);
    this.release(record);
    return payment;
  }

  /** The record of a payment, or undefined. */
  find(platform_payment_id: string): number | undefined {
    if (!readId(platform_payment_id)) return undefined;
    const { id } = this.#columns;
    const mask = this.#table.length - 1;
    for (let place = hashOf(words, 0) & mask; ; place = (place + 1) & mask) {
      const record = (this.#table[place] ?? 0) - 1;
      if (record < 0) return undefined;
      const from = 4 * record;
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
    this.#columns.slot[record] = NO_SLOT;
    this.#groups[record] = undefined;
    this.#unindex(record);
    this.#size -= 1;
  }

  /** Frees a record that was dropped, and that no lane names any more. */
  release(record: number): void {
    const { text, accountLength, paymentLength } = this.#columns;
    const payment = paymentLength[record] ?? 0;
    const length = (accountLength[record] ?? 0) + (payment === NULL_LENGTH ? 0 : payment);
    this.#texts.free(text[record] ?? 0, length);
    text[record] = this.#free;
    this.#free = record;
  }

  /** False after `drop`. */
  holds(record: number): boolean {
    return this.#columns.slot[record] !== NO_SLOT;
  }

  /** When the next step of a record's payment is due. */
  atOf(record: number): number {
    return this.#columns.at[record] ?? 0;
  }

  slotOf(record: number): number {
    return this.#columns.slot[record] ?? NO_SLOT;
  }

  createdAtOf(record: number): number {
    return this.#columns.createdAt[record] ?? 0;
  }

  idOf(record: number): string {
    const { id } = this.#columns;
    const word = (at: number): string => (id[4 * record + at] ?? 0).toString(16).padStart(8, '0');
    const [second, third] = [word(1), word(2)];
    return `${word(0)}-${second.slice(0, 4)}-${second.slice(4)}-${third.slice(0, 4)}-${third.slice(4)}${word(3)}`;
  }

  /** Every record that holds a payment. They may be dropped while they are listed. */
  *records(): Generator<number> {
    for (let record = 0; record < this.#used; record += 1) if (this.holds(record)) yield record;
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
      (payment.funded ? FUNDED : 0) |
      (payment.resubmit ? RESUBMIT : 0) |
      (payment.wasCrossed ? WAS_CROSSED : 0) |
      (payment.grace << 8) |
      (anomaly << 16)
    );
  }

  #newRecord(): number {
    if (this.#free !== NONE) {
      const record = this.#free;
      this.#free = this.#columns.text[record] ?? NONE;
      return record;
    }
    if (this.#used === this.#capacity) this.#grow();
    this.#used += 1;
    return this.#used - 1;
  }

  #grow(): void {
    this.#capacity *= 2;
    const [old, columns] = [this.#columns, newColumns(this.#capacity)];
    for (const [name, column] of Object.entries(columns)) column.set(old[name as keyof typeof old]);
    this.#columns = columns;
    this.#table = new Uint32Array(2 * this.#capacity);
    for (const record of this.records()) this.#index(record);
  }

  #index(record: number): void {
    const table = this.#table;
    const mask = table.length - 1;
    let place = hashOf(this.#columns.id, 4 * record) & mask;
    while (table[place] !== 0) place = (place + 1) & mask;
    table[place] = record + 1;
  }

  /** Removes a record from the table, and closes the gap, so that no probe ends too early. */
  #unindex(record: number): void {
    const table = this.#table;
    const { id } = this.#columns;
    const mask = table.length - 1;
    let gap = hashOf(id, 4 * record) & mask;
    while (table[gap] !== record + 1) gap = (gap + 1) & mask;
    for (let place = (gap + 1) & mask; table[place] !== 0; place = (place + 1) & mask) {
      const entry = table[place] ?? 0;
      const home = hashOf(id, 4 * (entry - 1)) & mask;
      // It may move up to the gap unless its home lies behind the gap.
      if (((place - home) & mask) < ((place - gap) & mask)) continue;
      table[gap] = entry;
      gap = place;
    }
    table[gap] = 0;
  }
}

const FUNDED = 1 << 5;
const RESUBMIT = 1 << 6;
const WAS_CROSSED = 1 << 7;

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
