import assert from 'node:assert/strict';
import test from 'node:test';
import type { Database } from '@duebridge/runtime';
import type { AccountsInTransaction } from './account-system.ts';
import type { Applier } from './apply.ts';
import { ledger } from './ledger.ts';
import type { EndedByHand } from './end-by-hand.ts';
import { findPayments, insertPayments, type PaymentRow } from './store.ts';
import {
  accepted,
  applierOn,
  ended,
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  startKit,
} from '../test/kit.ts';

async function statusOf(database: Database, id: string): Promise<string | undefined> {
  return (await findPayments(database, [id])).get(id)?.status;
}

function cancel(applier: Applier, platform_payment_id: string): Promise<EndedByHand> {
  return applier.end(
    { platform_payment_id, status: 'canceled', failure_reason: null },
    { actor: 'operator', event: 'canceled', reason: 'race' },
  );
}

async function owed(database: Database, account_id = 'A-1'): Promise<number> {
  const [row] = await database.query<{ owed: number }>(
    'SELECT amount_due_in_cents AS owed FROM duebridge_partner.account WHERE account_id = $1',
    [account_id],
  );
  return row!.owed;
}

test('two replicas that apply the same payments post each once [ST2 RU2 KT2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'A-2' });
  const ids = Array.from({ length: 300 }, (_, index) => `p-${index}`);
  const rows = [
    ...(await accepted(database, ids.slice(0, 150))),
    ...(await accepted(database, ids.slice(150), { account_id: 'A-2' })),
  ];
  const endings: string[] = [];
  const announce = (done: readonly PaymentRow[]): void => {
    endings.push(...done.map((row) => row.platform_payment_id));
  };
  const appliers = [applierOn(database, { announce }), applierOn(database, { announce })];
  appliers[0]!.take(rows);
  appliers[1]!.take(rows.toReversed());
  // On a busy machine a group may run into its time limit, which changes nothing.
  while (endings.length < ids.length) {
    await Promise.all(appliers.map((applier) => applier.sweep(0)));
  }
  await Promise.all(appliers.map((applier) => applier.stop()));
  assert.deepEqual(endings.sort(), ids.toSorted(), 'each ended at one of the two');
  assert.equal(
    (await database.query(`SELECT 1 FROM duebridge_partner.payment WHERE in_ledger`)).length,
    300,
  );
  assert.deepEqual([await owed(database), await owed(database, 'A-2')], [85_000, 85_000]);
});

test('a crash in the middle of posting leaves neither half done, and the next attempt does both [ST2 PF8 KT6]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const [row] = await accepted(database, ['half']);
  const kitLedger = ledger(database);
  // Together with others, and alone.
  let crashes = 2;
  const accounts: AccountsInTransaction = {
    ...kitLedger,
    async post(payments, tx) {
      const outcomes = await kitLedger.post(payments, tx);
      if (crashes > 0) {
        crashes -= 1;
        // Ends its own database session, as a crash of the process or of the server would.
        await tx.query('SELECT pg_terminate_backend(pg_backend_pid())');
      }
      return outcomes;
    },
  };
  const applier = applierOn(database, { accounts });
  applier.take([row!]);
  await applier.stop();
  assert.equal(await statusOf(database, 'half'), 'processing');
  assert.equal(await owed(database), 100_000);
  assert.deepEqual(
    await database.query(`SELECT 1 FROM duebridge_partner.payment WHERE in_ledger`),
    [],
  );
  // On a busy machine a try may also run into its time limit, which changes nothing either.
  while ((await statusOf(database, 'half')) === 'processing') {
    await applierOn(database, { accounts }).sweep(0);
  }
  assert.equal(crashes, 0);
  assert.equal(await statusOf(database, 'half'), 'succeeded');
  assert.equal(await owed(database), 99_900);
});

test('a cancel races the posting: there is one terminal status, and the ledger agrees with it [ST4 RU2 KT5 F94]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const ids = Array.from({ length: 60 }, (_, index) => `race-${index}`);
  const rows = await accepted(database, ids);
  const applier = applierOn(database);
  const cancels = ids.map(async (id, index) => {
    if (index % 2 === 1) {
      await new Promise((resolve) => {
        setImmediate(resolve);
      });
    }
    return cancel(applier, id);
  });
  applier.take(rows);
  const outcomes = await Promise.all(cancels);
  await applier.stop();
  const stored = await findPayments(database, ids);
  ids.forEach((id, index) => {
    const expected = outcomes[index]?.outcome === 'ended' ? 'canceled' : 'succeeded';
    assert.equal(stored.get(id)?.status, expected, id);
  });
  const posted = [...stored.values()].filter(({ status }) => status === 'succeeded').length;
  assert.equal(await owed(database), 100_000 - posted * 100);
  const audits = await database.query(
    `SELECT 1 FROM duebridge_partner.payment_audit WHERE event = 'canceled'`,
  );
  assert.equal(audits.length, ids.length - posted);
});

test('a cancel races the acceptance: the payment is not found yet or canceled, never too late [ST4 ST1]', async (t) => {
  const database = await kitDatabase(t);
  const applier = applierOn(database);
  for (let round = 0; round < 150; round += 1) {
    const platform_payment_id = `race-${round}`;
    const insert = insertPayments(database, [
      {
        platform_payment_id,
        platform_batch_id: 'batch-1',
        biller_id: 'acme',
        account_id: 'A-1',
        client_id: 'static-key',
        amount_in_cents: 100,
      },
    ]);
    for (let outcome = 'not_found'; outcome !== 'ended';) {
      ({ outcome } = await cancel(applier, platform_payment_id));
      assert.ok(outcome === 'not_found' || outcome === 'ended', outcome);
    }
    await insert;
  }
});

test('a canceled payment is never posted, and stays canceled when it is put again [ST4 RU2 RU5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const partner = await startKit(database, { holdMs: 600_000 });
  await partner.call('PUT', paymentPath('c'), { body: instruction() });
  const waiting = ended(partner, 'c');
  const { outcome } = await partner.app.partnerKit.cancel('c', 'operator', 'asked by the customer');
  assert.equal(outcome, 'ended');
  const end = await waiting;
  assert.deepEqual([end.body['status'], end.body['posted_at']], ['canceled', null]);
  const again = await partner.call('PUT', paymentPath('c'), { body: instruction() });
  assert.deepEqual(again.body, end.body);
  await applierOn(database).sweep(0);
  assert.equal(await owed(database), 100_000);
});
