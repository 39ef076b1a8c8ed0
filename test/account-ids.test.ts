/** Account ids are the biller's own: whatever is printable goes through every path, file and table of both sides as it is written. */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { importFormerPayments } from '../packages/partner/src/former-payments.ts';
import { csvCell } from '../packages/platform/src/csv-cell.ts';
import { BothSides } from './support/both-sides.ts';
import { createToken, openSession } from './support/customer.ts';

const sides = new BothSides();
after(() => sides.stop());

test('an account id with a space, a slash, # and an umlaut, or one that begins as a formula, is paid as it is written [B1 TR4]', async () => {
  const { platform, register } = await sides.platform();
  const partner = await sides.partner({
    auth: { method: 'key', header: 'x-api-key', keys: ['a-key-of-the-odd-biller'] },
  });
  const ids = ['12 34/5 ä#', ":'=a%2F..;'-b", ' "quoted", twice '];
  const cell = (id: string): string => `"${id.replaceAll('"', '""')}"`;
  const rows = ids.map((id) => `odd,${cell(id)},active,10.00\n`);
  await partner.importAccounts(`biller_id,account_id,status,amount_due\n${rows.join('')}`);
  const client = await register({
    partner_id: 'odd',
    name: 'Odd',
    kind: 'biller',
    biller_id: 'odd',
    base_url: partner.server.url,
    auth: { method: 'key', header: 'x-api-key', key: 'a-key-of-the-odd-biller' },
  });
  for (const account_id of ids) {
    const { status, body } = await createToken(client, { account_id });
    assert.equal(status, 200, account_id);
    const browser = await openSession(platform.url, body.token);
    const { platform_payment_id } = (await browser.confirm(1_000)).body;
    assert.equal((await browser.ended(platform_payment_id)).status, 'succeeded', account_id);
    const cells = [platform_payment_id, account_id].map((value) => csvCell(value));
    const csv = `platform_payment_id,account_id,payment_id,platform_batch_id,biller_id,status,amount_in_cents,initiated_at,posted_at,failure_reason\nrestored-${cells.join(',')},P-${platform_payment_id},B-1,odd,canceled,1000,2026-03-01T09:30:00Z,,\n`;
    await importFormerPayments(partner.books, () => [csv]);
    const restored = await partner.books.query(
      'SELECT account_id FROM duebridge_partner.payment WHERE platform_payment_id = $1',
      [`restored-${platform_payment_id}`],
    );
    assert.deepEqual(restored, [{ account_id }], 'after a restore');
  }
  const paid = await partner.books.query<{ account_id: string }>(
    'SELECT account_id FROM duebridge_partner.account WHERE amount_due_in_cents = 0',
  );
  assert.deepEqual(paid.map((row) => row.account_id).toSorted(), ids.toSorted());
});
