/** How a payment leaves review: closed by an operator, never against what the partner shows. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { Refusal, type ErrorCode } from '@duebridge/contract';
import { auditOfPayment } from '../store/audit.ts';
import { findPayment, type PaymentRow } from '../store/payments.ts';
import { resumePayment } from '../store/terminal.ts';
import { closeRejected, closeReview } from './review.ts';
import {
  actsOf,
  scriptedPartner,
  engineRig,
  type Answer,
  type Seen,
  type ScriptedPartner,
  type EngineRig,
} from './testing.ts';

const inReview = (row: PaymentRow): boolean => row.stage === 'review';
const settled = (row: PaymentRow): boolean => row.settled_at !== null;
const TOO_HIGH = { code: 'AMOUNT_TOO_HIGH', message: 'The amount is above the limit of $50.' };

/** A payment in review, whose PUT the partner refused with 422. */
async function refusedPayment(
  t: Parameters<typeof engineRig>[0],
  onGet: (seen: Seen) => Answer | undefined = () => undefined,
): Promise<{ rig: EngineRig; partner: ScriptedPartner; id: string }> {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  partner.script = (seen) =>
    seen.method === 'PUT' ? { status: 422, json: TOO_HIGH } : onGet(seen);
  const engine = rig.engine();
  await engine.start();
  const { platform_payment_id: id } = await rig.pay(engine, 'acme');
  await rig.until(id, inReview);
  return { rig, partner, id };
}

const because = (id: string) => ({
  platform_payment_id: id,
  reason: 'the biller confirmed by phone',
  actor: 'operator-1',
  approved_by: 'operator-2',
});

async function refuses(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  await assert.rejects(promise, (error) => error instanceof Refusal && error.code === code);
}

test('a refused payment that the partner does not know is closed as failed, its funds released [ST3 FR1 LV6]', async (t) => {
  const { rig, partner, id } = await refusedPayment(t);
  const gets = partner.seen.filter((seen) => seen.method === 'GET').length;
  const closed = await closeRejected(rig, because(id));
  assert.deepEqual(
    [closed.status, closed.failure_reason, closed.review_reason],
    ['failed', 'The amount is above the limit of $50.', null],
  );
  assert.equal(
    partner.seen.filter((seen) => seen.method === 'GET').length,
    gets + 1,
    'the partner is asked at that moment',
  );
  await rig.until(id, settled);
  assert.deepEqual(await actsOf(rig, id), ['authorize', 'void']);
  const end = (await auditOfPayment(rig.database, id)).find(
    (line) => line.event === 'payment_ended',
  );
  assert.equal(end?.actor, 'operator-1');
  assert.deepEqual(end.detail, {
    status: 'failed',
    by: 'operator',
    review_reason: 'rejected_422_AMOUNT_TOO_HIGH',
    reason: 'the biller confirmed by phone',
    approved_by: 'operator-2',
    evidence: 'not_found',
  });
  await refuses(closeRejected(rig, because(id)), 'CONFLICT');
  await refuses(closeRejected(rig, because('never-was')), 'PAYMENT_NOT_FOUND');
});

test('a refused payment that the partner has nevertheless is not closed [RU5]', async (t) => {
  let has = false;
  const { rig, partner, id } = await refusedPayment(t, (seen) => {
    if (has && partner.payments.size === 0)
      partner.right({ ...seen, method: 'PUT', body: bodyOf() });
    return undefined;
  });
  const bodyOf = (): string => partner.seen.find((seen) => seen.method === 'PUT')?.body ?? '';
  has = true;
  await refuses(closeRejected(rig, because(id)), 'CONFLICT');
  await refuses(closeReview(rig, { ...because(id), status: 'canceled' }), 'CONFLICT');
  assert.equal((await findPayment(rig.database, id))?.stage, 'review');
  assert.deepEqual(await actsOf(rig, id), ['authorize']);
});

test('an inconclusive answer closes nothing: no reply, 500, a 404 of a proxy', async (t) => {
  const answers: Answer[] = [
    (response) => void response.socket?.destroy(),
    { status: 500, json: {} },
    { status: 404, json: { message: 'no Route matched' } },
    (response) => void response.writeHead(404, { 'content-type': 'text/html' }).end('<html>'),
  ];
  let next: number | undefined;
  const { rig, id } = await refusedPayment(t, () =>
    next === undefined ? undefined : answers[next++],
  );
  next = 0;
  for (const _ of answers) await refuses(closeRejected(rig, because(id)), 'SERVICE_UNAVAILABLE');
  assert.equal((await findPayment(rig.database, id))?.stage, 'review');
  assert.equal((await closeRejected(rig, because(id))).status, 'failed');
});

test('a refusal that the partner declares final fails the payment automatically [ST3 FR1]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url, { refusals: ['AMOUNT_TOO_HIGH', 'ACCOUNT_CLOSED'] });
  const answers: Record<string, Answer> = {
    high: { status: 422, json: TOO_HIGH },
    closed: { status: 400, json: { code: 'ACCOUNT_CLOSED' } },
    odd: { status: 422, json: { code: 'SOMETHING_ELSE', message: 'no' } },
  };
  partner.script = (seen) => {
    const account = /\/account\/([a-z]+)\//.exec(seen.path)?.[1] ?? '';
    return seen.method === 'PUT' ? answers[account] : undefined;
  };
  const engine = rig.engine();
  await engine.start();
  const [high, closed, odd] = await Promise.all(
    ['high', 'closed', 'odd'].map((account_id) => rig.pay(engine, 'acme', { account_id })),
  );
  assert(high && closed && odd);
  assert.equal(
    (await rig.until(high.platform_payment_id, settled)).failure_reason,
    'The amount is above the limit of $50.',
  );
  assert.equal(
    (await rig.until(closed.platform_payment_id, settled)).failure_reason,
    'The biller refused the payment (ACCOUNT_CLOSED).',
  );
  assert.deepEqual(await actsOf(rig, high.platform_payment_id), ['authorize', 'void']);
  const waits = await rig.until(odd.platform_payment_id, inReview);
  assert.equal(waits.rejection_message, 'no');
});

test('any review can be closed on the partner’s word, unless its record says otherwise', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  partner.script = (seen) => {
    const answer = partner.right(seen);
    assert(typeof answer === 'object');
    return { json: { ...(answer.json as object), amount_in_cents: 1 } };
  };
  const engine = rig.engine();
  await engine.start();
  const { platform_payment_id: id } = await rig.pay(engine, 'acme');
  await rig.until(id, inReview);
  await refuses(closeRejected(rig, because(id)), 'CONFLICT');
  const row = await closeReview(rig, { ...because(id), status: 'canceled' });
  assert.deepEqual([row.status, row.failure_reason], ['canceled', null]);
  await rig.until(id, settled);
  assert.deepEqual(await actsOf(rig, id), ['authorize', 'void']);
  await refuses(resumePayment(rig.database, id, 'too late', 'operator'), 'CONFLICT');
});
