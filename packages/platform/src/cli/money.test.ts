/** docs/money.md at a terminal: its commands, in its order, against a platform with money in it. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { after } from 'node:test';
import type { MoneyBalances, MoneyCheck } from '@duebridge/contract';
import { bearer, startTestPartner, startTestPlatform } from '../checkout/testing.ts';
import { eventually } from '../../test/engine-rig.ts';
import { platformCommand } from '../main.ts';

const page = readFileSync(join(import.meta.dirname, '../../../../docs/money.md'), 'utf8');
assert.match(page, /# Where the money is/, 'docs/money.md');

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
await platform.register(partner, { partner_id: 'water' });
const credentials = await platform.credentials('water');

/** Runs a command of the page; `words` as a shell would split them. */
async function run(words: readonly string[], key = platform.adminKey): Promise<string> {
  let out = '';
  const command = platformCommand({
    env: { DUEBRIDGE_ADMIN_URL: platform.adminUrl, DUEBRIDGE_ADMIN_KEY: key },
    stdin: (async function* () {})(),
    write: (text) => void (out += text),
  });
  await command.parseAsync([...words], { from: 'user' });
  return out;
}

const json = async <T>(words: readonly string[], key?: string): Promise<T> =>
  JSON.parse(await run([...words, '--json'], key)) as T;

async function pay(amount_in_cents: number, email: string): Promise<string> {
  partner.endings.set('a1', { status: 'succeeded', posted_at: new Date().toISOString() });
  const { session } = await platform.session(credentials, 'a1', email);
  const headers = bearer(session);
  const body = { amount_in_cents, funding_method: 'sandbox_bank' };
  const made = await platform.call('POST', '/v1/flow/payments', { headers, body });
  return String(made.body['platform_payment_id']);
}

test('what was paid is owed to the biller, by day, and the check holds', async () => {
  assert.match(await run(['money']), /No money has moved/);
  await pay(2_500, 'one@example.com');
  await pay(1_250, 'two@example.com');
  await eventually('both are captured', async () =>
    (await json<{ balances: MoneyBalances[] }>(['money'])).balances.some(
      (one) => one.owed === 3_750 && one.taken === 3_750 && one.partner_id === 'water',
    ),
  );
  assert.match(await run(['money']), /water .* \$37\.50 +\$37\.50 +\$0\.00/);
  assert.match(await run(['money', '--day', '2020-01-01']), /No money has moved/);
  const check = await json<MoneyCheck>(['money', 'check', '--days', '400']);
  assert.deepEqual([check.holds, check.faults], [true, []]);
  assert.match(await run(['money', 'check']), /Every cent of the payments of 3 days/);
});

test('a cent that is missing ends the check with exit code 1 and its payment', async () => {
  const id = await pay(700, 'three@example.com');
  await eventually('it is captured', async () =>
    (await json<{ balances: MoneyBalances[] }>(['money'])).balances.some(
      (one) => one.owed === 4_450,
    ),
  );
  await platform.database.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query('DELETE FROM duebridge_platform.transfers WHERE id = $1', [id]);
  });
  let out = '';
  const failed = run(['money', 'check']).then((text) => void (out = text));
  await assert.rejects(failed, { exitCode: 1, message: /1 fault/ });
  assert.equal(out, '');
});
