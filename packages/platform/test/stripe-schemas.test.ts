/** The check against Stripe's description finds what departs from it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkAnswer, checkEvent, checkRequest } from './stripe-schemas.ts';

const CREATE = 'POST /v1/payment_intents';
const good =
  'amount=12345&currency=usd&capture_method=manual&allowed_payment_method_types[0]=card&metadata[platform_payment_id]=p-1';

test('a request with the encoding and the parameters of the description is accepted', () => {
  assert.deepEqual(checkRequest(CREATE, good), []);
  assert.deepEqual(checkRequest('GET /v1/payment_intents', 'customer=cus_1&limit=10'), []);
  assert.deepEqual(checkRequest('POST /v1/payment_intents/:id/capture', ''), []);
});

for (const [what, route, encoded] of [
  ['a parameter that does not exist', CREATE, `${good}&amount_in_cents=1`],
  ['a required parameter is missing', CREATE, 'currency=usd'],
  ['a fraction of a cent', CREATE, good.replace('12345', '123.45')],
  ['an amount that is no number', CREATE, good.replace('12345', 'all')],
  ['a value that is not listed', CREATE, good.replace('manual', 'later')],
  ['a list that is sent as text', CREATE, good.replace('types[0]=', 'types=')],
  [
    'an object that is sent as text',
    CREATE,
    good.replace('metadata[platform_payment_id]', 'metadata'),
  ],
  ['an object that we do not use', CREATE, `${good}&shipping[name]=Ada`],
  ['parameters where there are none', 'DELETE /v1/customers/:id', 'force=true'],
  ['an operation that we do not use', 'POST /v1/payouts', ''],
] as const) {
  test(`a request that deviates from the description is detected: ${what}`, () => {
    assert.notDeepEqual(checkRequest(route, encoded), []);
  });
}

test('answers, errors and webhooks that deviate from the description are detected', () => {
  const gone = { id: 'cus_1', object: 'customer', deleted: true };
  const answer = (change: object): string[] =>
    checkAnswer('DELETE /v1/customers/:id', 200, JSON.stringify({ ...gone, ...change }));
  assert.deepEqual(answer({}), []);
  assert.notDeepEqual(answer({ deleted: 'yes' }), []);
  assert.notDeepEqual(answer({ deleted: undefined }), []);
  assert.notDeepEqual(answer({ reason: 'asked' }), []);

  const refusal = (error: object): string[] => checkAnswer(CREATE, 402, JSON.stringify({ error }));
  assert.deepEqual(
    refusal({ type: 'card_error', code: 'card_declined', message: 'Declined.' }),
    [],
  );
  assert.notDeepEqual(refusal({ type: 'rate_limit_error', message: 'Slow down.' }), []);
  assert.notDeepEqual(refusal({ type: 'card_error', code: 'no_such_code' }), []);
  assert.notDeepEqual(checkAnswer(CREATE, 402, JSON.stringify({ message: 'Declined.' })), []);

  assert.notDeepEqual(checkEvent(JSON.stringify({ type: 'charge.refunded', data: {} })), []);
  assert.notDeepEqual(checkEvent(JSON.stringify({ type: 'no.such.event' })), []);
});
