import { after, before } from 'node:test';

/**
 * Opens what a test file needs before its tests, and closes it after them. When `--test-name-pattern` leaves no test of the file, Node
 * runs `after` while `before` is still under way: what opens later would stay open, and the file would not end.
 */
export function around(open: () => Promise<void>, close: () => Promise<void>): void {
  let opening: Promise<void> | undefined;
  before(() => (opening = open()));
  after(async () => {
    // Its failure is reported by `before`.
    await opening?.catch(() => {});
    await close();
  });
}
