import assert from 'node:assert/strict';
import { connect, createServer, type Socket } from 'node:net';
import { openDatabase } from './postgres.ts';
import { assertInTime, served, testDatabase, testInRealTime } from '../test/testing.ts';

const migrations = {
  schema: 'test_ground',
  directory: new URL('./fixtures/migrations/', import.meta.url),
};

testInRealTime(
  'connections that fall silent in a failover are replaced within seconds, slow statements are not ended',
  async (t) => {
    const direct = await testDatabase(t, { migrations });
    const there = new URL(direct.url);
    const lines = new Set<{ ours: Socket; theirs: Socket }>();
    /** The way to the database: a host that can vanish, so that nothing comes back and nothing is refused. */
    const way = createServer((ours) => {
      const theirs = connect(Number(there.port), there.hostname);
      for (const socket of [ours, theirs]) socket.on('error', () => undefined);
      ours.pipe(theirs).pipe(ours);
      lines.add({ ours, theirs });
    });
    const url = new URL(direct.url);
    url.port = new URL(await served(t, way)).port;
    const database = openDatabase({
      url: url.href,
      applicationName: 'failover',
      maxConnections: 4,
    });
    direct.closing(async () => {
      await database.close();
      for (const socket of [...lines].flatMap(({ ours, theirs }) => [ours, theirs]))
        socket.destroy();
    });

    const slow = Array.from({ length: 4 }, () => database.query('SELECT pg_sleep(2.2)'));
    await Promise.all(slow);

    for (const { ours, theirs } of lines) {
      ours.unpipe(theirs);
      theirs.unpipe(ours);
      theirs.destroy();
      ours.resume();
    }
    const before = performance.now();
    const lost = { name: 'DatabaseUnavailable', outcome: 'unknown' };
    await assert.rejects(database.query('SELECT 1'), lost);
    // The others were idle, and are gone as well.
    await Promise.all(Array.from({ length: 4 }, () => database.query('SELECT 1')));
    const ms = performance.now() - before;
    t.diagnostic(`${Math.round(ms)} ms`);
    // Without a question to the server it took the 15 s of a statement and its grace.
    assertInTime(ms < 8_000, `it took ${ms} ms`);
  },
);
