/**
 * The scripted partner itself: correct by default, wrong in one way when a behaviour says so. The judge and its
 * wrong peers prove most of it; these tests cover what they cannot see: magic accounts and amounts, and what it shows its developer.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { request } from 'undici';
import { MACHINE_CLOCK, SANDBOX_BILLER, SLOW_MS, startScriptedPartner } from './partner.ts';

test('magic accounts and amounts end payments as documented, and what it holds is shown without its key [FR1 ST3 ST4]', async (t) => {
  const partner = await startScriptedPartner({
    auth: { method: 'key', header: 'Authorization', key: 'the-key' },
    // Moves only when it is advanced.
    clock: { ...MACHINE_CLOCK, now: () => Date.UTC(2026, 2, 21, 12) },
  });
  t.after(() => partner.stop());
  const send = async (method: 'GET' | 'PUT', path: string, body?: object) => {
    const { body: answer } = await request(partner.url + path, {
      method,
      headers: { authorization: 'the-key', 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    });
    return answer.json() as Promise<Record<string, unknown>>;
  };
  const pathOf = (account: string, id: number) =>
    `/biller/${SANDBOX_BILLER}/account/${account}/payment/p${id}`;
  const cases: readonly [account: string, cents: number, status: string, later?: string][] = [
    ['active', 1_250, 'succeeded'],
    ['inactive', 1_250, 'failed'],
    ['nobody', 1_250, 'failed'],
    ['maximum', 50_000, 'succeeded'],
    ['maximum', 50_001, 'failed'],
    ['failing', 1_250, 'failed'],
    ['canceled', 1_250, 'canceled'],
    ['slow', 1_250, 'processing', 'succeeded'],
    ['stuck', 1_250, 'processing'],
    ['active', 66_601, 'failed'],
    ['active', 66_602, 'failed'],
    ['active', 66_603, 'failed'],
    ['active', 66_604, 'canceled'],
    ['active', 66_605, 'processing', 'succeeded'],
    ['active', 66_606, 'processing'],
  ];
  for (const [index, [account, amount_in_cents]] of cases.entries()) {
    await send('PUT', pathOf(account, index), { amount_in_cents, platform_batch_id: 'b1' });
  }
  const shows = async (wanted: (row: (typeof cases)[number]) => string): Promise<void> => {
    for (const [index, row] of cases.entries()) {
      const { status, failure_reason } = await send('GET', pathOf(row[0], index));
      assert.equal(status, wanted(row), `${row[0]} ${row[1]}`);
      assert.equal(failure_reason !== undefined, status === 'failed');
    }
  };
  partner.advance(1_000);
  await shows(([, , status]) => status);
  partner.advance(SLOW_MS);
  await shows(([, , status, later = status]) => later);
  const shown = await (await request(`${partner.url}/sandbox/payments`)).body.json();
  assert.equal((shown as { payments: unknown[] }).payments.length, cases.length);
  const exchanges = await (await request(`${partner.url}/sandbox/exchanges`)).body.text();
  assert.ok(exchanges.includes('p14') && !exchanges.includes('the-key'));
});
