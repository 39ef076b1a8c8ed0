/**
 * Whatever a gateway between platform and partner does with a connection, no payment is lost, doubled or stuck: the real engine and the
 * real kit over real bytes, a gateway that misbehaves in any order, and the simulator's checkers over what was recorded.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { startPartner } from '../packages/partner/src/server.ts';
import { haveAccounts, kitDatabase, TEST_KEY } from '../packages/partner/src/testing.ts';
import { engineRig } from '../packages/platform/src/engine/testing.ts';
import { check } from './simulation/checkers.ts';
import { History, type Ending, type PartnerRow, type PlatformRow } from './simulation/history.ts';
import { BEHAVIOURS, Gateway, type Behaviour } from './support/gateway.ts';

const seed = Number(process.env['DUEBRIDGE_SEED'] ?? Math.floor(Date.now() / 86_400_000));
/** Payments at once, so that answers can be mixed up between them. */
const PAYMENTS = 4;
/** How long everything may take to end once the gateway carries again. */
const BOUND_MS = 60_000;

test('whatever a gateway does, no payment is lost, duplicated or stuck [S4 PF2 RU2 RU5 EE1 EE2 EE4 EE5 LV6 PL2 PL5]', async (t) => {
  t.diagnostic(`DUEBRIDGE_SEED=${seed}`);
  const kit = await kitDatabase(t, 'gateways');
  await haveAccounts(kit, { amount_due_in_cents: 100_000_000 });
  const partner = await startPartner({
    auth: { method: 'key', header: 'x-api-key', keys: [TEST_KEY] },
    databaseUrl: kit.url,
    adminKey: 'admin-key-of-the-tests',
    port: 0,
    adminPort: 0,
  });
  kit.closing(() => partner.stop());
  const gateway = new Gateway(new History(() => performance.now()), () => [partner.url]);
  const rig = await engineRig(t);
  await rig.register('acme', await gateway.listen(), {
    auth: { method: 'key', header: 'x-api-key', key: TEST_KEY },
  });
  rig.database.closing(() => gateway.close());
  const engine = rig.engine();
  await engine.start();

  const run = async (behaviours: readonly Behaviour[]): Promise<void> => {
    gateway.history = new History(() => performance.now());
    let met = 0;
    gateway.behave = () => {
      met += 1;
      return behaviours[met - 1] ?? 'pass';
    };
    const ids: string[] = [];
    for (let index = 0; index < PAYMENTS; index += 1) {
      const cents = 1_000 + index;
      const { platform_payment_id: id } = await rig.pay(engine, 'acme', {
        account_id: 'A-1',
        amount_in_cents: cents,
      });
      ids.push(id);
      gateway.history.add({ kind: 'confirmed', id, partner: 'acme', cents });
    }
    const open = (): Promise<unknown[]> =>
      rig.database.query(
        `SELECT platform_payment_id, stage, review_reason FROM duebridge_platform.payments
          WHERE platform_payment_id = ANY($1) AND settled_at IS NULL AND stage <> 'review'`,
        [ids],
      );
    const until = performance.now() + BOUND_MS;
    for (let left = await open(); left.length > 0; left = await open()) {
      if (performance.now() > until) break;
      await new Promise((resolve) => {
        setTimeout(resolve, 20);
      });
    }
    gateway.behave = () => 'pass';
    gateway.history.add({ kind: 'healed' });
    const end: Ending = {
      platform: await rig.database.query<PlatformRow>(
        `SELECT platform_payment_id AS id, partner_id AS partner, status, stage, settled_at IS NOT NULL AS settled,
                amount_in_cents AS cents, review_reason
           FROM duebridge_platform.payments WHERE platform_payment_id = ANY($1)`,
        [ids],
      ),
      funds: await rig.database.query<Ending['funds'][number]>(
        `SELECT platform_payment_id AS id, act, amount_in_cents AS cents FROM duebridge_platform.sandbox_funds
          WHERE platform_payment_id = ANY($1) ORDER BY 1, phase`,
        [ids],
      ),
      partner: await kit.query<PartnerRow>(
        `SELECT platform_payment_id AS id, biller_id AS partner, status, amount_in_cents AS cents
           FROM duebridge_partner.payment WHERE platform_payment_id = ANY($1)`,
        [ids],
      ),
      postings: await kit.query<{ id: string; cents: number }>(
        `SELECT transfer_id AS id, abs(amount_in_cents) AS cents FROM duebridge_partner.entry
          WHERE line = 2 AND transfer_id = ANY($1)`,
        [ids],
      ),
    };
    const { events } = gateway.history;
    assert.deepEqual(
      check({
        // A request delivered again, late, belongs to an earlier run.
        events: events.filter((event) => !('id' in event) || ids.includes(event.id)),
        end,
        forgetful: new Set(),
        wrong: new Set(),
      }),
      [],
    );
    assert.ok(end.platform.every(({ status }) => status === 'succeeded'));
  };

  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom(...BEHAVIOURS), { minLength: 4, maxLength: 30 }),
      run,
    ),
    {
      seed,
      numRuns: 8,
      // Each at least three times in a row, so that a first PUT, a repeated one and a poll may meet it.
      examples: [[BEHAVIOURS.flatMap((behaviour) => [behaviour, behaviour, behaviour])]],
      interruptAfterTimeLimit: 100_000,
      endOnFailure: true,
    },
  );
  // A round ends with its payments, perhaps before a behaviour at the end of its list had its turn.
  const unmet = (): Behaviour[] => BEHAVIOURS.filter((behaviour) => !gateway.did.has(behaviour));
  for (let more = 0; more < BEHAVIOURS.length && unmet().length > 0; more += 1) await run(unmet());
  assert.deepEqual(unmet(), [], 'these never happened');
});
