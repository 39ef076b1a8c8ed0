/**
 * docs/quickstart-partner.md, followed to the letter by somebody who has nothing but the packages: an empty folder, the page's
 * commands and programs, a server, and a judge that must be satisfied.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, after, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { freePort, testDatabase } from '@duebridge/runtime/testing';
import { Consumer, emptyFolder, packAll, type Cleanup } from './consumer.ts';
import { follow, readPage } from './page.ts';

const page = readPage(
  readFileSync(join(import.meta.dirname, '../../docs', 'quickstart-partner.md'), 'utf8'),
);
const packed = await packAll(await emptyFolder({ after }, 'packed'));
const migrations = {
  schema: 'nothing',
  directory: pathToFileURL(`${await emptyFolder({ after }, 'no-migrations')}/`),
};

/** The ways through step 3, and the database of each: the first reader has none and takes the one that comes along. */
const VARIANTS = [
  { heading: 'With Fastify', ownDatabase: false },
  { heading: 'With Express', ownDatabase: true },
] as const;

test('every way through the page is followed here', () => {
  const third = page.findIndex(({ heading }) => heading.startsWith('3. '));
  const fourth = page.findIndex(({ heading }) => heading.startsWith('4. '));
  assert.deepEqual(
    page.slice(third + 1, fourth).map(({ heading }) => heading),
    VARIANTS.map(({ heading }) => heading),
  );
});

describe('a stranger who follows the page ends with a green report', { concurrency: true }, () => {
  for (const { heading, ownDatabase } of VARIANTS) {
    test(heading, async (t) => {
      const begun = performance.now();
      const database = ownDatabase ? await testDatabase(t, { migrations }) : undefined;
      // A server that uses the database ends before the database does.
      const cleanup: Cleanup = {
        after: (hook) => (database ? database.closing(hook) : t.after(hook)),
      };
      const port = await freePort();
      const consumer = await Consumer.create(t, {
        packed,
        name: 'stranger',
        environment: { PORT: String(port), ...(database && { DATABASE_URL: database.url }) },
      });
      const blocks = page
        .filter(
          (part) => part.heading === heading || !VARIANTS.some((v) => v.heading === part.heading),
        )
        .flatMap((part) => part.blocks);
      const report = await follow(cleanup, consumer, blocks, new Map([[4100, port]]));
      assert.match(report, /keeps the interface: (\d+) of \1 checks passed/);
      t.diagnostic(`${((performance.now() - begun) / 1000).toFixed(1)} s from an empty folder`);
    });
  }
});
