/**
 * Dates and times on the wire (PF7, PF8, TR3, decision 12).
 *
 * `Date.parse` reads 2026-02-30 as the second of March, and a time without an offset as local time. Both would silently change a
 * payment's timestamps, so each part of the text is checked first.
 */

const DATE = /^(\d{4})-(\d{2})-(\d{2})$/;
const DATE_TIME =
  /^(\d{4}-\d{2}-\d{2})T(\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?:(Z)|([+-]\d{2})(?::?(\d{2}))?)?$/;

/** True for a calendar date that exists, written YYYY-MM-DD (TR3). */
export function isDate(text: string): boolean {
  const parts = DATE.exec(text);
  if (parts === null) return false;
  const [year, month, day] = [Number(parts[1]), Number(parts[2]), Number(parts[3])];
  if (month < 1 || month > 12 || day < 1) return false;
  return day <= new Date(Date.UTC(year, month, 0)).getUTCDate();
}

/** True for an ISO 8601 date and time that exists; the zone may be missing (TR3, last_updated_at). */
export function isDateTime(text: string): boolean {
  return read(text) !== undefined;
}

/** The form of our own APIs, RFC 3339: seconds, a point before the fraction, and a zone with minutes. */
const OWN_FORM = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$/;

/** True for an instant that exists, written as RFC 3339 has it. Other forms of ISO 8601 are read from partners alone. */
export function isOwnInstant(text: string): boolean {
  return OWN_FORM.test(text) && parseInstant(text) !== undefined;
}

/** Years 0001 to 9999 in UTC: others cannot be written in this format or stored. */
const FIRST_INSTANT = Date.parse('0001-01-01T00:00:00.000Z');
const LAST_INSTANT = Date.parse('9999-12-31T23:59:59.999Z');

/**
 * An ISO 8601 instant with its zone, as milliseconds since 1970 (PF7, PF8). Returns undefined for a time without a zone, a date
 * that does not exist, a leap second, or a year beyond 1 to 9999 in UTC.
 */
export function parseInstant(text: string): number | undefined {
  const parts = read(text);
  if (parts === undefined || parts.zone === undefined) return undefined;
  const milliseconds = Date.parse(parts.local + parts.zone);
  return milliseconds >= FIRST_INSTANT && milliseconds <= LAST_INSTANT ? milliseconds : undefined;
}

/** The same instant as a text in UTC with milliseconds, `2026-03-01T09:30:00.123Z` (decision 12). Such texts sort by time. */
export function instantText(text: string): string | undefined {
  const milliseconds = parseInstant(text);
  return milliseconds === undefined ? undefined : new Date(milliseconds).toISOString();
}

function read(text: string): { local: string; zone: string | undefined } | undefined {
  const parts = DATE_TIME.exec(text);
  if (parts === null) return undefined;
  const [, date = '', hour = '', minute = '', second = '00', fraction = '0'] = parts;
  const [utc, hours, minutes = '00'] = parts.slice(6);
  if (!isDate(date) || Number(hour) > 23 || Number(minute) > 59 || Number(second) > 59) {
    return undefined;
  }
  if (Math.abs(Number(hours ?? 0)) > 23 || Number(minutes) > 59) return undefined;
  const milliseconds = fraction.padEnd(3, '0').slice(0, 3);
  const zone = hours === undefined ? utc : `${hours}:${minutes}`;
  return { local: `${date}T${hour}:${minute}:${second}.${milliseconds}`, zone };
}
