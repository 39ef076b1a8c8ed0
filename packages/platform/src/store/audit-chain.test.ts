/** The seals over the audit: tampering by somebody with access to the database is detected and located (decision 135). */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import test, { type TestContext } from 'node:test';
import { AuditChain, type Database } from '@duebridge/runtime';
import { testDatabase, until, type TestDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import { auditTables, note } from './audit.ts';

const key = createSecretKey(Buffer.alloc(32, 7));

/** An audit whose lines are sealed immediately instead of after half a minute. */
function chainOf(database: Database, withKey = true): AuditChain {
  const tables = auditTables;
  return new AuditChain({ database, tables, marginMs: 0, ...(withKey ? { key } : {}) });
}

function audited(t: TestContext): Promise<TestDatabase> {
  return testDatabase(t, { migrations, name: 'chain' });
}

async function say(on: Pick<Database, 'query'>, ...events: string[]): Promise<void> {
  for (const event of events) {
    await note(on, {
      actor: 'ada',
      event,
      platform_payment_id: 'p',
      detail: { reason: `of ${event}` },
    });
  }
}

/** Writes lines of one moment. */
const write = (on: Database, count: number, at = 'clock_timestamp()') =>
  on.query(
    `INSERT INTO duebridge_platform.audit (at, actor, event) SELECT ${at}, 'ada', 'x' FROM generate_series(1, ${count})`,
  );

/** Seals all existing lines, in as many rounds as needed. */
async function sealAll(
  database: Database,
  chain: AuditChain,
  past = 'clock_timestamp()',
): Promise<void> {
  await until('the lines are sealed', async () => {
    await chain.seal();
    const [left] = await database.query<{ lines: number }>(
      `SELECT count(*) AS lines FROM duebridge_platform.audit WHERE at < ${past} AND at >
         coalesce((SELECT to_at FROM duebridge_platform.audit_seals ORDER BY seal_no DESC LIMIT 1), '-infinity')`,
    );
    return left?.lines === 0;
  });
}

/** Verifies everything, in as many pages as needed. */
async function verify(chain: AuditChain, limit = 3) {
  const sum = { seals: 0, lines: 0 };
  for (let after = 0; ;) {
    const page = await chain.verify(after, limit);
    sum.seals += page.seals;
    sum.lines += page.lines;
    if (page.next === null) return { ...page, ...sum };
    after = page.next;
  }
}

/** Only the owner of the tables can do this, and undoes it: the triggers forbid it to everybody else. */
async function tamper(database: Database, ...statements: string[]): Promise<void> {
  await database.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    for (const statement of statements) await tx.query(statement);
  });
}

test('a line that was altered, removed, exchanged, inserted or moved is detected, and so is a seal [EE8]', async (t) => {
  const database = await audited(t);
  const chain = chainOf(database);
  for (const events of [['one', 'two'], ['three', 'four', 'five'], ['six']]) {
    await say(database, ...events);
    await sealAll(database, chain);
  }
  await say(database, 'seven');
  const whole = await verify(chain);
  assert.deepEqual([whole.seals, whole.lines, whole.unsealed, whole.broken], [3, 6, 1, null]);

  const lines = 'duebridge_platform.audit';
  const seals = 'duebridge_platform.audit_seals';
  const of = (event: string): string => `WHERE event = '${event}'`;
  await database.query(`CREATE TABLE public.lines AS SELECT * FROM ${lines}`);
  await database.query(`CREATE TABLE public.seals AS SELECT * FROM ${seals}`);
  const cases: readonly [what: string, seal_no: number, ...statements: string[]][] = [
    ['altered', 2, `UPDATE ${lines} SET detail = '{"reason": "another"}' ${of('four')}`],
    ['altered', 2, `UPDATE ${lines} SET actor = 'bob' ${of('three')}`],
    ['altered', 2, `UPDATE ${lines} SET platform_payment_id = NULL ${of('five')}`],
    // A digest over concatenated texts would not detect a character moved from one column to the next.
    ['altered', 1, `UPDATE ${lines} SET actor = 'adao', event = 'ne' ${of('one')}`],
    ['removed', 1, `DELETE FROM ${lines} ${of('one')}`],
    ['removed', 2, `DELETE FROM ${lines} ${of('four')}`],
    ['removed', 3, `DELETE FROM ${lines} ${of('six')}`],
    [
      'altered',
      2,
      `UPDATE ${lines} SET at = (SELECT at FROM public.lines ${of('five')}) ${of('three')}`,
      `UPDATE ${lines} SET at = (SELECT at FROM public.lines ${of('three')}) ${of('five')}`,
    ],
    [
      'inserted',
      2,
      `INSERT INTO ${lines} (at, actor, event) SELECT at + interval '1 microsecond', 'eve', 'x' FROM public.lines ${of('four')}`,
    ],
    ['inserted', 1, `INSERT INTO ${lines} (at, actor, event) VALUES ('2001-01-01', 'eve', 'x')`],
    ['inserted', 2, `INSERT INTO ${lines} SELECT * FROM public.lines ${of('four')}`],
    ['seal_missing', 2, `DELETE FROM ${seals} WHERE seal_no = 1`],
    ['seal_missing', 3, `DELETE FROM ${seals} WHERE seal_no = 2`],
    [
      'seal_altered',
      2,
      `DELETE FROM ${lines} ${of('five')}`,
      `UPDATE ${seals} SET lines = 2, digests = substr(digests, 1, 64) WHERE seal_no = 2`,
    ],
    [
      'seal_altered',
      3,
      `UPDATE ${seals} SET from_at = from_at - interval '1 second' WHERE seal_no = 3`,
    ],
    [
      'seal_altered',
      2,
      `UPDATE ${seals} SET to_at = to_at - interval '1 microsecond' WHERE seal_no = 2`,
    ],
  ];
  for (const [what, seal_no, ...statements] of cases) {
    await tamper(database, ...statements);
    const { broken } = await verify(chain);
    assert.deepEqual([broken?.what, broken?.seal_no], [what, seal_no], statements.join('; '));
    await tamper(
      database,
      `DELETE FROM ${lines}`,
      `INSERT INTO ${lines} SELECT * FROM public.lines`,
      `DELETE FROM ${seals}`,
      `INSERT INTO ${seals} SELECT * FROM public.seals`,
    );
    assert.equal((await verify(chain)).broken, null);
  }

  // After the end is cut off, the rest is still a valid chain: only a seal recorded elsewhere reveals it.
  await tamper(
    database,
    `DELETE FROM ${lines} ${of('six')}`,
    `DELETE FROM ${seals} WHERE seal_no = 3`,
  );
  const cut = await verify(chain);
  assert.deepEqual([cut.broken, cut.through?.seal_no], [null, 2]);
});

test('a comparison reads bounded pieces, however many lines were inserted or are not sealed [EE8]', async (t) => {
  const database = await audited(t);
  const chain = chainOf(database);
  for (const event of ['one', 'two', 'three']) {
    await say(database, event);
    await sealAll(database, chain);
  }
  const read: number[] = [];
  const counted: Database = {
    ...database,
    async query<Row>(statement: Parameters<Database['query']>[0], values?: readonly unknown[]) {
      const rows = await database.query<Row>(statement, values);
      read.push(rows.length);
      return rows;
    },
  };
  const reader = chainOf(counted);
  // Lines with the time of the second, as a restored or forged table may have them; and as many that are new.
  await write(database, 12_000);
  const intact = await reader.verify(0, 50);
  assert.deepEqual([intact.broken, intact.newest, intact.unsealed], [null, 3, 10_000]);
  await write(database, 12_000, `(SELECT at FROM duebridge_platform.audit WHERE event = 'two')`);
  const { broken } = await reader.verify(0, 50);
  assert.deepEqual([broken?.what, broken?.seal_no], ['inserted', 2]);
  assert.ok(Math.max(...read) < 3_000, `${Math.max(...read)} rows in one answer`);
});

test('pieces that end early leave no seal out, and see what is changed between two of them [EE8]', async (t) => {
  const database = await audited(t);
  const sealing = chainOf(database);
  for (const event of ['one', 'two', 'three', 'four']) {
    await say(database, event);
    await sealAll(database, sealing);
  }
  // Each piece ends after its first seal, as on a large audit or a loaded server.
  const chain = new AuditChain({ database, tables: auditTables, key, pieceMs: -1 });
  const { seals, lines, broken } = await verify(chain, 50);
  assert.deepEqual([seals, lines, broken], [4, 4, null]);

  const altered = `UPDATE duebridge_platform.audit SET actor = 'eve' WHERE event =`;
  await tamper(database, `${altered} 'four'`);
  const last = (await verify(chain, 50)).broken;
  assert.deepEqual([last?.what, last?.seal_no], ['altered', 4]);
  const piece = await chain.verify(1, 50);
  assert.deepEqual([piece.next, piece.broken], [2, null]);
  // The seal at the border of two pieces is exchanged after the first.
  await tamper(
    database,
    `UPDATE duebridge_platform.audit_seals SET seal = sha256('eve') WHERE seal_no = 2`,
  );
  const next = await chain.verify(2, 50);
  assert.deepEqual([next.broken?.what, next.broken?.seal_no], ['seal_altered', 3]);
});

test('lines of a month that goes to files while they are compared were not removed [EE8]', async (t) => {
  const database = await audited(t);
  await write(database, 1);
  await sealAll(database, chainOf(database));
  const query: Database['query'] = async (statement, values) => {
    // After the question what is in files.
    if (JSON.stringify(statement).includes('AS line WHERE')) {
      await tamper(
        database,
        'DELETE FROM duebridge_platform.audit',
        `INSERT INTO duebridge_platform.archives (month, until, until_id, folder, payments, payments_sha256, lines, audit_sha256)
         VALUES ('2026-01', now(), '', '', 0, '', 1, '') ON CONFLICT DO NOTHING`,
      );
    }
    return database.query(statement, values);
  };
  const { broken, seals } = await chainOf({ ...database, query }).verify(0, 50);
  assert.deepEqual([broken, seals], [null, 1]);
});

test('a writer to the database without the key cannot make valid seals [EE8]', async (t) => {
  const database = await audited(t);
  await say(database, 'one', 'two');
  await sealAll(database, chainOf(database));
  await tamper(
    database,
    `DELETE FROM duebridge_platform.audit WHERE event = 'two'`,
    `DELETE FROM duebridge_platform.audit_seals`,
  );
  const forger = chainOf(database, false);
  await sealAll(database, forger);
  assert.equal((await verify(forger)).broken, null);
  assert.equal((await verify(chainOf(database))).broken?.what, 'seal_altered');
});

test('sealing waits for lines of open transactions, and seals them once they are committed [EE8]', async (t) => {
  const database = await audited(t);
  const chain = chainOf(database);
  const [opened, close] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow = database.transaction(async (tx) => {
    await say(tx, 'slow');
    opened.resolve();
    await close.promise;
  });
  await opened.promise;
  await say(database, 'quick');
  for (let round = 0; round < 4; round += 1) assert.equal(await chain.seal(), undefined);
  close.resolve();
  await slow;
  await sealAll(database, chain);
  const done = await verify(chain);
  assert.deepEqual([done.lines, done.unsealed, done.broken], [2, 0, null]);
});

test('replicas that seal at the same time make one chain, however many lines share a moment [EE8]', async (t) => {
  const database = await audited(t);
  // More lines than one seal covers; then the same number with an identical timestamp.
  await write(database, 4_100);
  await write(database, 2_500, 'now()');
  const chains = Array.from({ length: 4 }, () => chainOf(database));
  for (let round = 0; round < 3; round += 1) {
    await Promise.all(chains.map((chain) => chain.seal()));
    await write(database, 3);
  }
  await Promise.all(chains.map((chain) => sealAll(database, chain)));
  const done = await verify(chains[0] as AuditChain, 2);
  assert.deepEqual([done.lines, done.unsealed, done.broken], [6_609, 0, null]);
  assert.ok(done.seals >= 4);
});

test('a database whose clock went back an hour continues sealing, and no line counts as inserted [EE8]', async (t) => {
  const database = await audited(t);
  const hour = `interval '1 hour'`;
  /** The database as it was while its clock was an hour ahead. */
  const ahead: Database = {
    ...database,
    async query<Row>(statement: Parameters<Database['query']>[0], values?: readonly unknown[]) {
      const rows = await database.query<Row & { now?: string }>(statement, values);
      const [row] = rows;
      if (typeof row?.now !== 'string') return rows;
      const at = new Date(Date.parse(row.now) + 3_600_000).toISOString();
      return [{ ...row, now: at.replace('Z', '000Z') }];
    },
  };
  await write(
    database,
    10,
    `clock_timestamp() + ${hour} - interval '1 second' * (generate_series - 1)`,
  );
  await sealAll(database, chainOf(ahead), `clock_timestamp() + ${hour}`);
  const chain = chainOf(database);
  for (const event of ['after', 'the', 'step']) {
    await say(database, event);
    await sealAll(database, chain);
  }
  // And when the clock again reaches times that were sealed before the step:
  await write(database, 1, `clock_timestamp() + ${hour} - interval '5.5 seconds'`);
  const later = chainOf(ahead);
  await sealAll(database, later, `clock_timestamp() + ${hour}`);
  const done = await verify(chain);
  assert.deepEqual([done.lines, done.unsealed, done.broken], [14, 0, null]);
  // A line inserted afterwards is still detected.
  await write(database, 1, `clock_timestamp() - interval '2 hours'`);
  assert.equal((await verify(chain)).broken?.what, 'inserted');
});
