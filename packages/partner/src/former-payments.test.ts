import assert from 'node:assert/strict';
import test from 'node:test';
import { importFormerPayments, parseFormerPayments } from './former-payments.ts';
import { haveAccounts, instruction, kitDatabase, paymentPath, startKit } from './testing.ts';

const header =
  'platform_payment_id,payment_id,platform_batch_id,biller_id,account_id,status,amount_in_cents,initiated_at,posted_at,failure_reason\n';
const file =
  header +
  'old-1,R-1,batch-0,acme,A-1,succeeded,2500,2024-05-01T10:00:00+02:00,2024-05-01T10:00:03+02:00,\n' +
  'old-2,R-2,batch-0,acme,A-1,failed,100,2024-05-01T08:00:00Z,,"No such account, sorry"\n' +
  'old-3,R-3,batch-0,acme,A-9,canceled,1,2024-05-01T08:00:00Z,,\n';

test('payments of a previous server are known forever: a repeated id returns them, and nothing is paid twice [PF2 RU5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const parsed = parseFormerPayments(file, 'static-key');
  assert.ok(parsed.ok);
  assert.deepEqual(await importFormerPayments(database, parsed.payments), {
    imported: 3,
    known: 0,
    differing: [],
  });
  const partner = await startKit(database);
  const repeat = await partner.call('PUT', paymentPath('old-1'), {
    body: instruction(2_500, 'batch-0'),
  });
  assert.deepEqual(repeat.body, {
    payment_id: 'R-1',
    platform_payment_id: 'old-1',
    platform_batch_id: 'batch-0',
    biller_id: 'acme',
    account_id: 'A-1',
    status: 'succeeded',
    amount_in_cents: 2_500,
    initiated_at: '2024-05-01T08:00:00.000Z',
    posted_at: '2024-05-01T08:00:03.000Z',
  });
  await partner.app.partnerKit.sweep();
  const balance = await partner.call('GET', '/biller/acme/account/A-1/balance');
  assert.equal(balance.body['amount_due_in_cents'], 100_000);
  // Again, with one that differs.
  const other = parseFormerPayments(file.replace('2500', '2600'), 'static-key');
  assert.ok(other.ok);
  assert.deepEqual(await importFormerPayments(database, other.payments), {
    imported: 0,
    known: 3,
    differing: ['old-1'],
  });
  assert.equal((await partner.call('GET', '/payment/old-1')).body['amount_in_cents'], 2_500);
});

test('a file with an unfinished payment or an invalid field is refused, with its lines [PF2 PF7 PF8]', () => {
  const wrong: [string, RegExp][] = [
    ['p,R,b,acme,A,processing,1,2024-05-01T08:00:00Z,,', /status must be/],
    ['p,R,b,acme,A,succeeded,1,2024-05-01T08:00:00Z,,', /posted_at must be a time/],
    ['p,R,b,acme,A,succeeded,1,2024-05-01T08:00:00Z,2024-04-01T08:00:00Z,', /before initiated_at/],
    ['p,R,b,acme,A,canceled,1,2024-05-01 08:00,,', /initiated_at/],
    ['p,R,b,acme,A,failed,1,2024-05-01T08:00:00Z,,', /failure_reason/],
    ['p,R,b,acme,A,canceled,1.5,2024-05-01T08:00:00Z,,', /amount_in_cents/],
    ['p q,R,b,acme,A,canceled,1,2024-05-01T08:00:00Z,,', /platform_payment_id/],
  ];
  for (const [line, problem] of wrong) {
    const parsed = parseFormerPayments(`${header}${line}\n`, 'static-key');
    assert.ok(!parsed.ok, line);
    assert.match(parsed.problems[0]?.problem ?? '', problem);
  }
  const twice = parseFormerPayments(file + file.slice(header.length), 'static-key');
  assert.ok(!twice.ok && twice.problems.length === 3);
  const short = parseFormerPayments('platform_payment_id\np\n', 'static-key');
  assert.ok(!short.ok && /payment_id, platform_batch_id/.test(short.problems[0]?.problem ?? ''));
  assert.ok(!parseFormerPayments('a,b\n"', 'static-key').ok);
});
