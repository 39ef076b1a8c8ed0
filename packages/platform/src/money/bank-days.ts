/** Days on which banks in the United States transfer money: not at weekends, nor on the holidays of the Federal Reserve. Pure. */

const DAY_MS = 24 * 3_600_000;

/** `YYYY-MM-DD` of a moment in UTC. */
export const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** The first bank day at or after a day, `YYYY-MM-DD`. */
export function bankDayFrom(day: string): string {
  let ms = Date.parse(`${day}T00:00:00Z`);
  while (!isBankDay(ms)) ms += DAY_MS;
  return dayOf(ms);
}

/** The day after, `YYYY-MM-DD`. */
export function dayAfter(day: string): string {
  return dayOf(Date.parse(`${day}T00:00:00Z`) + DAY_MS);
}

function isBankDay(ms: number): boolean {
  const weekday = new Date(ms).getUTCDay();
  if (weekday === 0 || weekday === 6) return false;
  // A holiday on a Sunday is kept on the Monday; one on a Saturday is not kept on the Friday.
  return !isHoliday(ms) && !(weekday === 1 && isHoliday(ms - DAY_MS));
}

/** By month, counted from 1: days of the month, and the how manieth Monday or Thursday (-1: the last). */
const FIXED = ['01-01', '06-19', '07-04', '11-11', '12-25'];
const MOVING: readonly [month: number, weekday: number, place: number][] = [
  [1, 1, 3],
  [2, 1, 3],
  [5, 1, -1],
  [9, 1, 1],
  [10, 1, 2],
  [11, 4, 4],
];

function isHoliday(ms: number): boolean {
  const date = new Date(ms);
  if (FIXED.includes(dayOf(ms).slice(5))) return true;
  const isLast = new Date(ms + 7 * DAY_MS).getUTCMonth() !== date.getUTCMonth();
  return MOVING.some(
    ([month, weekday, place]) =>
      date.getUTCMonth() + 1 === month &&
      date.getUTCDay() === weekday &&
      (place === -1 ? isLast : Math.ceil(date.getUTCDate() / 7) === place),
  );
}
