/** A month goes to files: nothing that is open goes, and what went is proved, shown and kept. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rename, rm, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { text } from 'node:stream/consumers';
import { zstdDecompressSync } from 'node:zlib';
import type { PaymentDetail } from '@duebridge/contract';
import { exportPayments } from '../admin/export.ts';
import { AuditChain } from '@duebridge/runtime';
import { force, testDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import { startPlatform } from '../server.ts';
import { fillTables } from '../../test/month.ts';
import { readStatement } from '../reconciliation/batch.ts';
import { readArchive, writeArchive } from './archive-file.ts';
import { archiveMonths, type ArchivedMonth } from './archive.ts';
import { auditOfPayment, auditTables } from './audit.ts';
import { listPayments } from './payment-search.ts';
import { insertPayment } from './payments.ts';

/** No whole number of portions or blocks. */
const PAYMENTS = 5_003;
const folder = await mkdtemp(join(tmpdir(), 'duebridge-archive-test-'));
after(() => rm(folder, { recursive: true }));
const database = await testDatabase({ after }, { migrations, name: 'archive' });
await fillTables(database, PAYMENTS);
// Lines of no payment, and a payment with more lines than a block has.
await database.query(
  `INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id)
   SELECT 'ada', 'test', CASE WHEN n > 500 THEN (SELECT max(platform_payment_id) FROM duebridge_platform.payments) END,
          CASE WHEN n % 2 = 0 THEN 'partner-1' END FROM generate_series(1, 1400) n`,
);
const chain = new AuditChain({ database, tables: auditTables, marginMs: 0 });
// The second round seals what the first found written.
for (let round = 0; round < 2; round += 1) await chain.seal();

const [first] = await database.query<{ name: string; month: string; before: string }>(
  `SELECT substr(relname, 10) AS name, replace(substr(relname, 10), '_', '-') AS month,
          to_char(to_date(substr(relname, 10), 'YYYY_MM') + interval '1 month', 'YYYY-MM') AS before
     FROM pg_class WHERE oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'duebridge_platform.payments'::regclass)
      AND relname ~ '_\\d{4}_\\d\\d$' ORDER BY relname LIMIT 1`,
);
assert.ok(first);
const { name, month, before } = first;
const YEAR_MS = 366 * 86_400_000;
const said: string[] = [];
/** A year from now, unless said otherwise, the first partition is long over. */
const clock = { now: () => Date.now() + YEAR_MS };
const given = { database, before, folder, clock, actor: 'ada', progress: said.push.bind(said) };
async function archive(more: Partial<typeof given> = {}): Promise<ArchivedMonth[]> {
  const months: ArchivedMonth[] = [];
  await archiveMonths({ ...given, ...more, archived: (month) => months.push(month) });
  return months;
}

async function count(table: string): Promise<number> {
  const [row] = await database.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM duebridge_platform.${table}`,
  );
  return row?.n ?? 0;
}

const lines = await count('audit');
/** Around the end of a block of 400, and at both ends of the file. */
const ids = await database.query<{ id: string }>(
  `SELECT id FROM (SELECT platform_payment_id AS id, row_number() OVER (ORDER BY platform_payment_id) AS n FROM duebridge_platform.payments) p
    WHERE n IN (1, 399, 400, 401, ${PAYMENTS}) ORDER BY n`,
);
const told = await Promise.all(ids.map(({ id }) => auditOfPayment(database, id)));

test('a month with anything open stays, and the reason is said', async () => {
  await assert.rejects(archive({ clock: Date }), /has not been over for 31 days/);
  await assert.rejects(archive(), /payments have not ended, or their funds are not settled \(6\)/);
  await force(
    database,
    `UPDATE duebridge_platform.payments SET status = 'failed', stage = 'ended', failure_reason = 'closed', review_reason = NULL, slot = 1,
            ended_by = 'operator', ended_at = now(), settled_at = now() WHERE settled_at IS NULL;
     UPDATE duebridge_platform.payments SET funding_method = 'sandbox_card' WHERE platform_payment_id LIKE '%7'`,
  );
  await assert.rejects(archive(), /batches are open/);
  await force(
    database,
    `UPDATE duebridge_platform.batches SET closed_at = now(), statement = '{}' WHERE platform_batch_id LIKE 'batch-%'`,
  );
  assert.equal(await count('audit'), lines);
  assert.equal(await count('archives'), 0);
});

test('a run that fails leaves the month as it was, and one that was killed is begun again', async () => {
  const inTheWay = join(folder, month, 'audit.zst');
  await mkdir(inTheWay, { recursive: true });
  await assert.rejects(archive(), /EISDIR|ENOTEMPTY|EEXIST/);
  await assert.rejects(archive({ folder: '/proc/none' }), /ENOENT/);
  assert.equal(await count('audit'), lines);
  const left = await database.query(
    `SELECT 1 FROM pg_trigger WHERE tgname = 'being_archived' UNION ALL SELECT 1 FROM pg_class WHERE relname LIKE 'payments%short'`,
  );
  assert.deepEqual(left, []);
  await rmdir(inTheWay);
  // What a killed run leaves: its trigger and its table.
  await database.query(
    `CREATE TRIGGER being_archived BEFORE INSERT OR UPDATE ON duebridge_platform.payments_${name}
       FOR EACH ROW EXECUTE FUNCTION duebridge_platform.being_archived();
     CREATE TABLE duebridge_platform.payments_${name}_short (one int)`,
  );
});

test('a month goes to files that were read back, and short rows stay', async () => {
  const { rows: kept } = await sample();
  const [{ platform_batch_id = '' } = {}] = await database.query<{ platform_batch_id?: string }>(
    'SELECT platform_batch_id FROM duebridge_platform.payments ORDER BY platform_payment_id LIMIT 1',
  );
  const statement = await readStatement(database, platform_batch_id);
  assert.ok(statement.count > 0);
  // A run that begins before another comes to the files after it.
  const did: ArchivedMonth[] = [];
  let isGuarded = false;
  const transaction: typeof database.transaction = async (work, options = {}) => {
    if (isGuarded && did.length === 0) did.push(...(await archive()));
    isGuarded = options.lockTimeoutMs !== undefined;
    return database.transaction(work, options);
  };
  const overtaken = archive({ database: { ...database, transaction } });
  await assert.rejects(overtaken, /audit_\d{4}_\d\d" does not exist/);
  const [done, ...more] = did;
  assert.ok(done && more.length === 0);
  assert.deepEqual([done.month, done.payments.rows, done.audit.rows], [month, PAYMENTS, lines]);
  for (const what of ['payments', 'audit'] as const) {
    const path = join(done.folder, `${what}.zst`);
    const bytes: Buffer = await readFile(path);
    assert.equal(createHash('sha256').update(bytes).digest('hex'), done[what].sha256);
    type Blocks = readonly [least: string, greatest: string, offset: number][];
    const blocks = JSON.parse(await readFile(`${path}.blocks`, 'utf8')) as Blocks;
    const parts = blocks.slice(1).map(([, , to], at) => bytes.subarray(blocks[at]?.[2], to));
    const all = parts.map((part) => zstdDecompressSync(part).toString()).join('');
    assert.equal(all.trimEnd().split('\n').length, done[what].rows);
  }
  assert.ok(said.includes(`${month}: ${PAYMENTS} payments written …`));
  assert.equal(await count('payments'), PAYMENTS);
  assert.deepEqual((await sample()).rows, kept, 'who, what, how much and how it ended stay');
  assert.deepEqual(await readStatement(database, platform_batch_id), statement);
  const noted = await database.query<{ event: string; detail: Record<string, unknown> }>(
    'SELECT event, detail FROM duebridge_platform.audit',
  );
  assert.deepEqual(
    noted.map(({ event, detail }) => [event, detail['audit_sha256']]),
    [['month_archived', done.audit.sha256]],
  );
  assert.deepEqual(await archive(), [], 'what is archived is not archived again');
  const partition = `duebridge_platform.payments_${name}`;
  const [size] = await database.query<{ row: number; late: number }>(
    `SELECT pg_relation_size('${partition}')::float8 / ${PAYMENTS} AS row,
            (SELECT count(*)::int FROM pg_indexes WHERE tablename = 'payments_${name}' AND indexname NOT LIKE '%short%') AS late`,
  );
  assert.ok(size && size.row < 165, `a short row takes ${size?.row} bytes`);
  assert.equal(size.late, 0, 'an index was made while payments waited');
  await assert.rejects(database.query(`DELETE FROM ${partition}`), /kept as they are/);
});

test('a row is found in its file however the database sorts text', async () => {
  const path = join(folder, 'sorted.zst');
  // As en_US has them: ids of a partner's file, in upper case, between those of payments.
  const keys = Array.from({ length: 1_200 }, (_, n) => (n % 100 === 0 ? `A${n}` : `a${n}`));
  const rows = keys.map((key) => ({ key, line: JSON.stringify({ platform_payment_id: key }) }));
  await writeArchive(path, async (take) => {
    for (let at = 0; at < rows.length; at += 100) await take(rows.slice(at, at + 100));
  });
  for (const platform_payment_id of keys)
    assert.deepEqual(await readArchive(path, [platform_payment_id]), [{ platform_payment_id }]);
});

async function sample() {
  const rows = await database.query<{ platform_payment_id: string; payment_id: string }>(
    `SELECT platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, funding_method, status, stage,
            payment_id, failure_reason, ended_by, posted_at, created_at, ended_at, accepted_at IS NULL AS unsent, settled_at IS NULL AS open
       FROM duebridge_platform.payments ORDER BY platform_payment_id LIMIT 100 OFFSET 1950`,
  );
  return { rows };
}

test('a payment of an archived month is found by the id that the partner gave it, by an index', async () => {
  const [one] = (await sample()).rows;
  const { platform_payment_id = '', payment_id = '' } = one ?? {};
  const find = async (id: string, partner_id?: string): Promise<string[]> => {
    const rows = await listPayments(database, { id, partner_id, limit: 10 });
    return rows.map((row) => row.platform_payment_id);
  };
  assert.deepEqual(await find(payment_id), [platform_payment_id]);
  assert.deepEqual(await find(payment_id, 'partner-9'), []);
  const plan = await database.query<{ 'QUERY PLAN': string }>(
    `EXPLAIN SELECT 1 FROM duebridge_platform.payments_${name} WHERE hashtext(payment_id) = hashtext('${payment_id}') AND payment_id = '${payment_id}'`,
  );
  assert.match(JSON.stringify(plan), /Index Scan/);
});

test('an export has of archived payments what the import of a partner needs, which short rows lack', async () => {
  const as = { unmasked: true, modeOf: async () => 'test' as const };
  const csv = await text(exportPayments(database, { status: 'succeeded', sort: 'oldest' }, as));
  // The customer confirmed when the partner accepted.
  const whole = csv.match(/,(20[^,]*Z),\1,/g) ?? [];
  assert.ok(whole.length > 4_000 && whole.length === csv.split('\n').length - 2);
});

test('an id of an archived month is still that of its payment', async () => {
  const [one] = (await sample()).rows;
  assert.ok(one);
  await database.query(
    `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at) VALUES ('open', 'partner-1', now() + interval '1 day')`,
  );
  const again = insertPayment(database, {
    platform_payment_id: one.platform_payment_id,
    partner_id: 'partner-1',
    biller_id: 'b',
    account_id: 'a',
    platform_batch_id: 'open',
    amount_in_cents: 100,
    funding_method: 'sandbox_bank',
    actor: 'test',
    slot: -1,
    stage: 'created',
  });
  await assert.rejects(again, { code: '23505' });
});

test('the seals of an archived month hold, and those after it are compared with their lines', async () => {
  // As if the month had ended with its last seal: this test is run in the month that it archives.
  await force(
    database,
    'UPDATE duebridge_platform.archives SET until = (SELECT max(to_at) FROM duebridge_platform.audit_seals)',
  );
  const seals = await count('audit_seals');
  for (let round = 0; round < 2; round += 1) await chain.seal();
  const { broken, lines: compared } = await chain.verify(0, 100);
  assert.equal(broken, null);
  assert.equal(compared, lines + 1);
  assert.ok((await count('audit_seals')) > seals);
  await force(
    database,
    `UPDATE duebridge_platform.audit SET actor = 'eve' WHERE event = 'month_archived'`,
  );
  assert.equal((await chain.verify(0, 100)).broken?.what, 'altered');
  await force(
    database,
    `UPDATE duebridge_platform.audit SET actor = 'ada' WHERE event = 'month_archived'`,
  );
});

test('a payment of an archived month is shown from its file, or with the place of the file', async () => {
  const platform = await startPlatform({
    port: 0,
    adminPort: 0,
    databaseUrl: database.url,
    adminKey: 'a-key-of-this-test-0123456789',
    sealKey: Buffer.alloc(32, 1).toString('base64'),
    keyPepper: Buffer.alloc(32, 2).toString('base64'),
  });
  database.closing(() => platform.stop());
  const show = async (id: string): Promise<PaymentDetail> => {
    const answer = await fetch(`${platform.adminUrl}/admin/v1/payments/${id}`, {
      headers: { authorization: `Bearer ${platform.adminKey}` },
    });
    assert.equal(answer.status, 200);
    return (await answer.json()) as PaymentDetail;
  };
  for (const [at, { id }] of ids.entries()) {
    const { payment, audit } = await show(id);
    assert.notEqual(payment.initiated_at, null);
    assert.deepEqual(audit, told[at], 'with the times of its acceptance and its funds');
  }
  const [{ id } = { id: '' }] = ids;
  await rename(join(folder, month), join(folder, 'elsewhere'));
  const { payment, audit } = await show(id);
  assert.equal(payment.status, 'succeeded');
  assert.deepEqual(
    audit.flatMap(({ event, detail }) => (event === 'archived_elsewhere' ? [detail['where']] : [])),
    ['payments.zst', 'audit.zst'].map((file) => join(folder, month, file)),
  );
});
