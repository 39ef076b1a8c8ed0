/** Cells of the CSV files that people open: exports, and the statements of billers. */

/** Where a spreadsheet may see the beginning of a cell: at ours, and where another list separator than a comma would split it. */
const FORMULA = /(^|[;\t\r\n|])(?=[=+\-@\t\r'])/g;

/** One cell (RFC 4180). A spreadsheet would run text that begins with = + - @ as a formula; an apostrophe in front keeps it text. An apostrophe there
 * gets another one, so that `partner import-payments` can take off what was added. Pure.
 */
export function csvCell(value: string | number | null): string {
  if (value === null) return '';
  if (typeof value === 'number') return String(value);
  const safe = value.replaceAll(FORMULA, "$1'");
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
