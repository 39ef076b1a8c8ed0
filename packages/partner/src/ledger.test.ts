import assert from 'node:assert/strict';
import test from 'node:test';
import type { Refusal } from '@duebridge/contract';
import { sqlState, type Database, type Transaction } from '@duebridge/runtime';
import { seededRandom } from '@duebridge/runtime/testing';
import { toPosting, type Posting } from './account-system.ts';
import { importAccounts, ledger, type ImportedAccount } from './ledger.ts';
import { endPayments } from './store.ts';
import {
  accepted,
  ended,
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  processing,
  startKit,
  testAccount,
  untilOneWaits,
} from '../test/kit.ts';

/** Inconsistencies in the ledger; each row is a finding, so an empty result is correct. */
async function findings(database: Database | Transaction): Promise<unknown[]> {
  return database.query(
    `SELECT 'balance is not the sum of its entries' AS finding, account_id AS what FROM duebridge_partner.account AS a
      WHERE amount_due_in_cents <> (SELECT coalesce(sum(amount_in_cents), 0) FROM duebridge_partner.movement AS e
                                     WHERE e.account_id = a.account_id AND e.biller_id = a.biller_id)
     UNION ALL
     SELECT 'succeeded without its posting, or posted without success', platform_payment_id FROM duebridge_partner.payment AS p
      WHERE (status = 'succeeded') <> EXISTS (SELECT FROM duebridge_partner.movement AS e WHERE e.platform_payment_id = p.platform_payment_id
               AND e.amount_in_cents = -p.amount_in_cents AND e.account_id = p.account_id AND e.biller_id = p.biller_id)
     UNION ALL
     SELECT 'work list differs from the payments', coalesce(p.platform_payment_id, w.platform_payment_id)
       FROM (SELECT platform_payment_id FROM duebridge_partner.payment WHERE status = 'processing') AS p
       FULL JOIN duebridge_partner.payment_processing AS w USING (platform_payment_id)
      WHERE p.platform_payment_id IS NULL OR w.platform_payment_id IS NULL`,
  );
}

test('the ledger adds up after concurrent payments, repeats, failures, cancels and imports [ST2 PF6 S5 KT12]', async (t) => {
  const seed = Number(process.env['SEED'] ?? 20_261_121);
  t.diagnostic(`seed ${seed}`);
  const random = seededRandom(seed);
  const database = await kitDatabase(t);
  const names = ['A-1', 'A-2', 'A-3', 'A-4', 'A-5'];
  await haveAccounts(
    database,
    ...names.map((account_id, index): Partial<ImportedAccount> => ({
      account_id,
      ...(index === 4 ? { status: 'inactive' } : {}),
      ...(index === 3 ? { max_amount_in_cents: 300 } : {}),
    })),
  );
  const partners = [await startKit(database), await startKit(database)];
  let imports: Promise<unknown> = Promise.resolve();
  const work = Array.from({ length: 600 }, async (_, index) => {
    const partner = partners[index % 2]!;
    const account = names[Math.floor(random() * 6)] ?? 'A-unknown';
    const id = `p-${Math.floor(random() * 400)}`;
    const kind = random();
    const cents = 1 + Math.floor(random() * 500);
    if (kind < 0.85) {
      const body = instruction(cents);
      const answer = await partner.call('PUT', paymentPath(id, account), { body });
      assert.equal(answer.status, 200, answer.text);
    } else if (kind < 0.95) await partner.app.partnerKit.cancel(id, 'operator', 'test');
    else {
      const bill = { account_id: names[index % 5]!, amount_due_in_cents: cents * 10 };
      // One after the other, as they run anyway: on a slow machine the last of thirty would wait longer than a statement may take.
      imports = imports.then(() =>
        importAccounts(database, [{ biller_id: 'acme', ...bill }], new Date().toISOString()),
      );
      await imports;
    }
  });
  await Promise.all(work);
  for (const partner of partners) await partner.close();
  await (await startKit(database)).close();
  const left = await database.query('SELECT 1 FROM duebridge_partner.payment_processing');
  assert.equal(left.length, 0, 'a start and a stop leave nothing processing');
  assert.deepEqual(await findings(database), []);
  const statuses = await database.query<{ status: string }>(
    'SELECT DISTINCT status FROM duebridge_partner.payment',
  );
  assert.ok(statuses.length >= 2, 'the run must have met more than one end');
});

test('no statement can change or remove what has ended or was posted [RU2 PF2 PF6 KT5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const partner = await startKit(database);
  await partner.call('PUT', paymentPath('p'), { body: instruction() });
  await ended(partner, 'p');
  await partner.call('PUT', paymentPath('open', 'A-2'), { body: instruction() });
  await partner.close();
  await database.query(
    `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents)
     VALUES ('open-2', gen_random_uuid(), 'b', 'acme', 'A-1', 'c', 5)`,
  );
  await database.query(
    `INSERT INTO duebridge_partner.payment_audit (platform_payment_id, actor, event, detail) VALUES ('p', 'a', 'canceled', '{}')`,
  );
  const forbidden = [
    `UPDATE duebridge_partner.payment SET status = 'failed', failure_reason = 'x', posted_at = NULL WHERE platform_payment_id = 'p'`,
    `UPDATE duebridge_partner.payment SET status = 'processing', posted_at = NULL, ended_at = NULL WHERE platform_payment_id = 'p'`,
    `UPDATE duebridge_partner.payment SET posted_at = posted_at + interval '1 second' WHERE platform_payment_id = 'p'`,
    ...['platform_payment_id', 'platform_batch_id', 'biller_id', 'account_id', 'client_id'].map(
      (column) =>
        `UPDATE duebridge_partner.payment SET ${column} = 'x' WHERE platform_payment_id = 'open-2'`,
    ),
    `UPDATE duebridge_partner.payment SET amount_in_cents = 6 WHERE platform_payment_id = 'open-2'`,
    `UPDATE duebridge_partner.payment SET payment_id = gen_random_uuid() WHERE platform_payment_id = 'open-2'`,
    `UPDATE duebridge_partner.payment SET initiated_at = now() WHERE platform_payment_id = 'open-2'`,
    ...['payment', 'billed', 'payment_audit', 'account'].map(
      (name) => `DELETE FROM duebridge_partner.${name}`,
    ),
    ...['payment', 'billed', 'payment_audit'].map((name) => `TRUNCATE duebridge_partner.${name}`),
    `UPDATE duebridge_partner.payment SET in_ledger = NOT in_ledger WHERE platform_payment_id = 'p'`,
    `UPDATE duebridge_partner.billed SET amount_in_cents = 1`,
    `UPDATE duebridge_partner.payment_audit SET actor = 'nobody'`,
  ];
  for (const statement of forbidden) {
    const state = await database.query(statement).then(
      () => 'it was done',
      (error: unknown) => sqlState(error),
    );
    assert.equal(state, '23001', statement);
  }
  const impossible = [
    `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents) VALUES ('z', gen_random_uuid(), 'b', 'a', 'a', 'c', 0)`,
    `UPDATE duebridge_partner.payment SET status = 'succeeded', ended_at = now() WHERE platform_payment_id = 'open-2'`,
    `UPDATE duebridge_partner.payment SET status = 'failed', ended_at = now() WHERE platform_payment_id = 'open-2'`,
    `UPDATE duebridge_partner.payment SET status = 'failed', ended_at = now(), failure_reason = ' ' WHERE platform_payment_id = 'open-2'`,
    `UPDATE duebridge_partner.payment SET posted_at = now() WHERE platform_payment_id = 'open-2'`,
    `UPDATE duebridge_partner.payment SET in_ledger = true WHERE platform_payment_id = 'open-2'`,
    `UPDATE duebridge_partner.payment SET status = 'done', ended_at = now() WHERE platform_payment_id = 'open-2'`,
    `UPDATE duebridge_partner.payment SET status = 'succeeded', ended_at = now(), posted_at = initiated_at - interval '1 ms' WHERE platform_payment_id = 'open-2'`,
  ];
  for (const statement of impossible) {
    const state = await database.query(statement).then(
      () => 'it was done',
      (error: unknown) => sqlState(error),
    );
    assert.equal(state, '23514', statement);
  }
});

test('an import creates and updates, and a repeated import changes nothing', async (t) => {
  const database = await kitDatabase(t);
  const file: ImportedAccount[] = [
    testAccount,
    { ...testAccount, account_id: 'A-2', amount_due_in_cents: -500, due_date: null },
    { ...testAccount, account_id: 'A-1', biller_id: 'other' },
  ];
  assert.deepEqual(await importAccounts(database, file), { created: 3, updated: 0, unchanged: 0 });
  assert.deepEqual(await importAccounts(database, file), { created: 0, updated: 0, unchanged: 3 });
  await importAccounts(database, [{ biller_id: 'acme', account_id: 'bare' }]);
  const { balance: nothing, ...bare } = (await ledger(database).findAccount('acme', 'bare')) ?? {};
  assert.deepEqual(bare, { biller_id: 'acme', account_id: 'bare', status: 'active' });
  assert.equal(nothing?.amount_due_in_cents, 0);
  const changed = [{ ...file[0]!, amount_due_in_cents: 120_000 }, file[1]!, file[2]!];
  assert.deepEqual(await importAccounts(database, changed), {
    created: 0,
    updated: 1,
    unchanged: 2,
  });
  // A column that the file does not have keeps what is stored.
  const narrow = { biller_id: 'acme', account_id: 'A-1', due_date: '2027-01-31' };
  assert.deepEqual(await importAccounts(database, [narrow]), {
    created: 0,
    updated: 1,
    unchanged: 0,
  });
  const account = await ledger(database).findAccount('acme', 'A-1');
  assert.equal(account?.balance?.amount_due_in_cents, 120_000);
  assert.equal(account?.balance?.due_date, '2027-01-31');
  assert.deepEqual(account?.holder, { first_name: 'Ada', last_name: 'Lovelace' });
  // A change of one column alone is a change.
  for (const change of [
    { status: 'inactive' },
    { first_name: 'Augusta' },
    { last_name: 'King' },
    { max_amount_in_cents: 900 },
    { min_amount_in_cents: 90 },
  ] as const) {
    const one = { biller_id: 'acme', account_id: 'A-1', ...change };
    assert.equal((await importAccounts(database, [one])).updated, 1, JSON.stringify(change));
    assert.equal((await importAccounts(database, [one])).unchanged, 1, JSON.stringify(change));
  }
  const { balance, ...rest } = (await ledger(database).findAccount('acme', 'A-1')) ?? {};
  assert.deepEqual(rest, {
    biller_id: 'acme',
    account_id: 'A-1',
    status: 'inactive',
    holder: { first_name: 'Augusta', last_name: 'King' },
    payment_rules: { min_amount_in_cents: 90, max_amount_in_cents: 900 },
  });
  assert.equal(balance?.amount_due_in_cents, 120_000);
  assert.deepEqual(await findings(database), []);
});

test('two imports of the same new accounts at once do not bill twice', async (t) => {
  const database = await kitDatabase(t);
  const file = Array.from({ length: 20 }, (_, index) => ({
    ...testAccount,
    account_id: `N-${index}`,
  }));
  await Promise.all(Array.from({ length: 6 }, () => importAccounts(database, file)));
  const rows = await database.query(
    'SELECT DISTINCT amount_due_in_cents AS owed FROM duebridge_partner.account',
  );
  assert.deepEqual(rows, [{ owed: 100_000 }]);
  assert.deepEqual(await findings(database), []);
});

test('an import whose new maximum crosses a stored minimum is refused and changes nothing', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, { min_amount_in_cents: 1_000 });
  const file = [
    { ...testAccount, account_id: 'A-2' },
    { biller_id: 'acme', account_id: 'A-1', max_amount_in_cents: 500 },
  ];
  await assert.rejects(importAccounts(database, file), { code: 'INVALID_REQUEST' });
  assert.equal((await database.query('SELECT 1 FROM duebridge_partner.account')).length, 1);
  const fixed = { biller_id: 'acme', account_id: 'A-1', max_amount_in_cents: 1_000 };
  assert.equal((await importAccounts(database, [fixed])).updated, 1, 'one amount only is a rule');
});

test('an import never reverts a payment posted after its as-of time [ST2 S5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'A-2' });
  const partner = await startKit(database);
  const pay = async (id: string, account: string, cents: number): Promise<void> => {
    await partner.call('PUT', paymentPath(id, account), { body: instruction(cents) });
    await ended(partner, id, paymentPath(id, account));
  };
  const moment = async (): Promise<string> => {
    const [row] = await database.query<{ at: string }>('SELECT clock_timestamp() AS at');
    // Times have milliseconds: a posting in the same millisecond counts as earlier.
    await database.query('SELECT pg_sleep(0.005)');
    return row!.at;
  };
  const owed = async (): Promise<number[]> => {
    const rows = await database.query<{ n: number }>(
      'SELECT amount_due_in_cents AS n FROM duebridge_partner.account ORDER BY account_id',
    );
    return rows.map((row) => row.n);
  };
  const file = (one: number, two: number): ImportedAccount[] => [
    { ...testAccount, amount_due_in_cents: one },
    { ...testAccount, account_id: 'A-2', amount_due_in_cents: two },
  ];
  await pay('before', 'A-1', 1_000);
  const exported = await moment();
  await pay('after', 'A-1', 300);
  await pay('after-too', 'A-2', 50);

  // The export of that moment includes the first payment, but not the others.
  await assert.rejects(importAccounts(database, file(150_000, 150_000)), {
    code: 'INVALID_REQUEST',
    details: ['A-1', 'A-2'].map((account_id) => ({
      path: `account ${account_id}`,
      problem: 'has been paid here: say of which moment its amount is true (--as-of, as_of)',
    })),
  });
  await importAccounts(database, file(99_000, 120_000), exported);
  assert.deepEqual(await owed(), [98_700, 119_950]);
  // Importing the same file again changes nothing.
  const again = await importAccounts(database, file(99_000, 120_000), exported);
  assert.deepEqual(again, { created: 0, updated: 0, unchanged: 2 });
  // Newer figures replace it; older ones that arrive late do not.
  await importAccounts(database, file(10_000, 20_000), await moment());
  await importAccounts(database, file(99_000, 120_000), exported);
  assert.deepEqual(await owed(), [10_000, 20_000]);
  // A file that names no amount, or the amounts as they are, undoes nothing and says nothing of when they were true.
  const between = await moment();
  const renamed = {
    biller_id: 'acme',
    account_id: 'A-1',
    first_name: 'Grace',
    last_name: 'Hopper',
  };
  await importAccounts(database, [renamed], await moment());
  assert.equal((await importAccounts(database, file(10_000, 20_000))).updated, 1, 'her name');
  await importAccounts(database, file(99_000, 120_000), exported);
  assert.deepEqual(await owed(), [10_000, 20_000]);
  await importAccounts(database, file(11_000, 20_000), between);
  assert.deepEqual(await owed(), [11_000, 20_000]);
  // To the millisecond: a payment posted in it is part of the export, and a corrected export of it counts.
  await pay('same', 'A-1', 70);
  const [same] = await database.query<{ at: string }>(
    `SELECT moved_at AS at FROM duebridge_partner.movement WHERE platform_payment_id = 'same'`,
  );
  for (const cents of [5_000, 6_000]) {
    await importAccounts(database, file(cents, 20_000), same!.at);
    assert.deepEqual(await owed(), [cents, 20_000]);
  }
  assert.deepEqual(await findings(database), []);
});

test('a payment that a server of an earlier version posts during an update counts, and an import by one is refused [EE10 KT12]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  await accepted(database, ['earlier']);
  // What its statements write, in its transaction.
  const written = (kind: string, id: string) => `
    WITH moved AS (INSERT INTO duebridge_partner.transfer (transfer_id, kind) VALUES ('${id}', '${kind}')), lines AS (
      INSERT INTO duebridge_partner.entry (transfer_id, line, biller_id, account_id, amount_in_cents)
      VALUES ('${id}', 1, 'acme', 'A-1', -100), ('${id}', 2, 'acme', ':received', 100))
    UPDATE duebridge_partner.account SET amount_due_in_cents = amount_due_in_cents - 100`;
  const before = new Date(Date.now() - 60_000).toISOString();
  await database.transaction(async (tx) => {
    await tx.query(written('payment', 'earlier'));
    await endPayments(tx, [
      { platform_payment_id: 'earlier', status: 'succeeded', failure_reason: null },
    ]);
  });
  assert.deepEqual(await findings(database), []);
  await importAccounts(database, [{ ...testAccount, amount_due_in_cents: 9_000 }], before);
  const [account] = await database.query<{ owed: number }>(
    'SELECT amount_due_in_cents AS owed FROM duebridge_partner.account',
  );
  assert.equal(account?.owed, 8_900);
  await assert.rejects(database.query(written('import', 'import:x:0')), (error: unknown) => {
    assert.equal(sqlState(error), '23514');
    return true;
  });
  assert.deepEqual(await findings(database), []);
});

/** A payment as the kit hands it to the ledger. */
function posting(id: string, account_id: string, biller_id = 'acme', cents = 100): Posting {
  return toPosting(processing(id, { account_id, biller_id, amount_in_cents: cents }));
}

test('accounts of one number at two billers are two accounts, in one transaction too [PF2 ST2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(
    database,
    {},
    { biller_id: 'water', status: 'inactive', amount_due_in_cents: 700 },
    { account_id: 'A-2', max_amount_in_cents: 50 },
  );
  const payments = [
    posting('p', 'A-1', 'acme', 30),
    posting('q', 'A-1', 'water', 20),
    posting('r', 'A-1', 'acme', 5),
    posting('s', 'A-2', 'acme', 50),
    posting('u', 'A-2', 'acme', 51),
  ];
  const outcomes = await database.transaction((tx) => ledger(database).post(payments, tx));
  assert.deepEqual(
    outcomes.map(({ outcome }) => outcome),
    ['posted', 'failed', 'posted', 'posted', 'failed'],
  );
  const balances = await database.query(
    `SELECT biller_id, account_id, amount_due_in_cents AS owed FROM duebridge_partner.account ORDER BY account_id, biller_id`,
  );
  assert.deepEqual(balances, [
    { biller_id: 'acme', account_id: 'A-1', owed: 99_965 },
    { biller_id: 'water', account_id: 'A-1', owed: 700 },
    { biller_id: 'acme', account_id: 'A-2', owed: 99_950 },
  ]);
});

test('a posting alone waits for the import of its account, and meets it as the import left it; several do not wait [FR1 ST2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, { account_id: 'A' }, { account_id: 'Z' });
  const post = async (...payments: Posting[]): Promise<string[]> => {
    const outcomes = await database.transaction((tx) => ledger(database).post(payments, tx));
    return outcomes.map(({ outcome }) => outcome);
  };
  let alone: Promise<string[]> = Promise.resolve([]);
  await database.transaction(async (tx) => {
    await tx.query(
      `UPDATE duebridge_partner.account SET status = 'inactive' WHERE account_id = 'A'`,
    );
    assert.deepEqual(await post(posting('p', 'Z'), posting('q', 'A')), ['posted', 'locked']);
    alone = post(posting('q', 'A'));
    await untilOneWaits(database);
  });
  assert.deepEqual(await alone, ['failed']);
});

test('an import whose amount is as stored says that it was true later; its time is a real one, and not in the future [S5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const bill = (cents: number): ImportedAccount[] => [
    { ...testAccount, amount_due_in_cents: cents },
  ];
  await importAccounts(database, bill(500), '2026-01-01T00:00:00Z');
  await importAccounts(database, bill(500), '2026-01-03T01:00:00+01');
  // Exported on the second, it comes late.
  await importAccounts(database, bill(900), '2026-01-02T00:00:00+00');
  const [row] = await database.query<{ cents: number; at: string }>(
    'SELECT amount_due_in_cents AS cents, amount_as_of AS at FROM duebridge_partner.account',
  );
  assert.deepEqual(row, { cents: 500, at: '2026-01-03T00:00:00.000Z' });
  for (const [as_of, problem] of [
    ['2062-01-01T00:00:00Z', /future/],
    ['2026-02-30T00:00:00Z', /must be a time/],
  ] as const) {
    await assert.rejects(importAccounts(database, bill(1), as_of), (error: Refusal) => {
      assert.match(String(error.details?.[0]?.problem), problem);
      return true;
    });
  }
});
