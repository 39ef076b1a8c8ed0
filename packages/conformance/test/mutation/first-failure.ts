/** A reporter for node:test that ends the process at the first test that fails: one is enough to kill a mutant. */
import type { TestEvent } from 'node:test/reporters';

export default async function* firstFailure(
  events: AsyncIterable<TestEvent>,
): AsyncGenerator<string> {
  for await (const { type, data } of events) {
    if (type !== 'test:fail') continue;
    // Not yielded: the process ends before what is yielded would be written.
    process.stdout.write(`${data.name}\n`, () => process.exit(1));
    yield '';
  }
}
