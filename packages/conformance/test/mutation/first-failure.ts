/** A node:test reporter that exits at the first failing test: one is enough to kill a mutant. */
import type { TestEvent } from 'node:test/reporters';

export default async function* firstFailure(
  events: AsyncIterable<TestEvent>,
): AsyncGenerator<string> {
  for await (const { type, data } of events) {
    if (type !== 'test:fail') continue;
    // Written directly: the process exits before anything yielded would be flushed.
    process.stdout.write(`${data.name}\n`, () => process.exit(1));
    yield '';
  }
}
