/** docs/money.md at a terminal: its commands, in its order, against a platform with money in it. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { after } from 'node:test';
import type { BankFileView, MoneyBalances, MoneyCheck, RemittanceView } from '@duebridge/contract';
import { force, until } from '@duebridge/runtime/testing';
import { startTestPartner, startTestPlatform } from '../checkout/testing.ts';
import { runCommand, type CommandWords } from './testing.ts';

const page = readFileSync(join(import.meta.dirname, '../../../../docs/money.md'), 'utf8');
assert.match(page, /# Where the money is/, 'docs/money.md');

const partner = await startTestPartner({ after });
const payer = {
  name: 'Payments Inc',
  routing_number: '011000015',
  account_number: '123456789',
  company_id: '1234567890',
};
const platform = await startTestPlatform({ after }, { payer });
await platform.register(partner, { partner_id: 'water' });
const credentials = await platform.credentials('water');

const run = (words: CommandWords, stdin?: string): Promise<string> =>
  runCommand(platform, words, undefined, stdin);

const json = async <T>(words: CommandWords): Promise<T> => {
  const given = typeof words === 'string' ? words.split(' ') : words;
  return JSON.parse(await run([...given, '--json'])) as T;
};

async function pay(amount_in_cents: number, email: string): Promise<string> {
  partner.endings.set('a1', { status: 'succeeded', posted_at: new Date().toISOString() });
  return (await platform.pay(credentials, 'a1', email, amount_in_cents)).id;
}

let first = '';
const HOLDS = /^Every cent is where it should be; payments of the last 3 days/m;

test('what was paid is owed to the biller, by day, and the check holds', async () => {
  assert.match(await run(['money']), /Nothing found/);
  first = await pay(2_500, 'one@example.com');
  await pay(1_250, 'two@example.com');
  await until('both are captured', async () =>
    (await json<{ balances: MoneyBalances[] }>(['money'])).balances.some(
      (one) => one.owed === 3_750 && one.taken === 3_750 && one.partner_id === 'water',
    ),
  );
  assert.match(await run(['money']), /water .* \$37\.50 +\$0\.00 +\$37\.50 +\$0\.00/);
  assert.match(await run(['money', '--day', '2020-01-01']), /Nothing found/);
  const check = await json<MoneyCheck>(['money', 'check', '--days', '400']);
  assert.deepEqual([check.holds, check.faults], [true, []]);
  assert.match(await run(['money', 'check']), HOLDS);
});

test('the batch becomes a remittance, a file of the bank, and a statement', async (t) => {
  const payout = 'money payout --partner water';
  const account = ['--holder', 'Water Works', '--routing', '021000021', '--account', '-'];
  const refused = (routing: string, number: string, words: RegExp) =>
    assert.rejects(
      run(`${payout} --way pain001 --holder W --routing ${routing} --account ${number}`),
      words,
    );
  await refused('021000022', '1234567', /routing_number/);
  await refused('0210000210', '1234567', /routing_number must be nine digits/);
  await refused('021000021', '123', /account_number must be 4 to 17 digits/);
  const set = await run(
    [...payout.split(' '), '--way', 'pain001', ...account],
    '12345678901234567\n',
  );
  assert.match(set, /water .*pain001 +Water Works +…4567 +\$0\.01 +no/);
  assert.equal(await run(['money', 'payouts', '--partner', 'water']), set);
  await force(
    platform.database,
    `UPDATE duebridge_platform.batches SET cutoff_at = now() - interval '7 days'`,
  );
  const [batch] = (await json<{ batches: { platform_batch_id: string }[] }>(['batch'])).batches;
  await run(['batch', 'close', batch?.platform_batch_id ?? '', '--reason', 'the day is over']);
  const listed = async (...words: string[]): Promise<RemittanceView[]> =>
    (await json<{ remittances: RemittanceView[] }>(['money', 'remittances', ...words])).remittances;
  // The test partner offers no statement, so that its payments are read one by one.
  await until('it is compared and sent', async () => {
    await run(['money', 'remit']);
    return (await listed())[0]?.state === 'sent';
  });
  const [one] = await listed();
  assert.deepEqual([one?.net_in_cents, one?.payments], [3_750, 2]);
  const id = one?.remittance_id ?? '';
  const bankFile = ['money', 'bank-file', '--mode', 'test'];
  const file = await json<BankFileView>([...bankFile, '--way', 'pain001']);
  assert.match(file.content, /<InstdAmt Ccy="USD">37\.50</);
  const told = t.mock.method(process.stderr, 'write', () => true);
  assert.equal(await run(['money', 'bank-file', 'show', file.file_id]), file.content);
  assert.deepEqual(
    told.mock.calls.map((call) => call.arguments[0]),
    [`file ${file.file_id}, 1 transfers, $37.50\n`],
  );
  told.mock.restore();
  assert.match(await run(['money', 'remittances']), new RegExp(file.file_id));
  assert.match(
    await run(['money', 'end', file.file_id, '--outcome', 'paid', '--reference', 'BANK-1']),
    /^transfers +1$/m,
  );
  assert.match(await run(['money', 'remit']), /^Nothing waits for anybody\.$/m);
  assert.equal((await listed('--state', 'paid'))[0]?.remittance_id, id);
  assert.match(await run(['money']), /\$37\.50 +\$0\.00 +\$0\.00 +\$37\.50/);
  const statement = await run(['money', 'statement', id, '--format', 'csv']);
  assert.match(statement, /total,,,,3750,/);
  assert.match(await run(['money', 'statement', id, '--format', 'camt054']), /camt\.054/);
  assert.match(await run(['money', 'check']), HOLDS);
});

test('a cent that is missing ends the check with exit code 1', async () => {
  await force(platform.database, 'DELETE FROM duebridge_platform.transfers WHERE id = $1', [first]);
  // The payment, and what its biller is owed in all.
  await assert.rejects(run(['money', 'check']), { exitCode: 1, message: /2 faults/ });
});

test('a NACHA file is printed with the blanks at the end of its last record', async () => {
  // Of three transfers its records fill a block, so that no record of nines follows the last one.
  await force(
    platform.database,
    `INSERT INTO duebridge_platform.remittances (remittance_id, platform_batch_id, partner_id, biller_id, payments, gross_in_cents,
            deducted_in_cents, carried_in_cents, net_in_cents, sha256, due_on, state, way)
     SELECT 'r-' || n, 'b-' || n, partner_id, biller_id, 1, 1, 0, 0, 1, '', now(), 'sent', 'nacha'
       FROM duebridge_platform.payouts, generate_series(1, 3) AS n`,
  );
  const file = await json<BankFileView>('money bank-file --mode test --way nacha');
  assert.match(file.content, /^9000001000001.{42} {39}$/m);
  assert.equal(await run(['money', 'bank-file', 'show', file.file_id]), file.content);
});
