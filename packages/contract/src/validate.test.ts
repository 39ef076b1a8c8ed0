import assert from 'node:assert/strict';
import test from 'node:test';
import { platformAdminRoutes } from './admin-routes.ts';
import { PartnerChange } from './admin.ts';
import { TokenRequest } from './customer.ts';
import { PaymentInstruction } from './payment.ts';
import { FORMAT_WORDS, PATTERN_WORDS } from './pattern-words.ts';
import { partnerAdminRoutes } from './kit-admin.ts';
import { partnerRoutes, platformRoutes, type Route } from './routes.ts';
import { compileCheck } from './validate.ts';

const instruction = compileCheck(PaymentInstruction);
const tokenRequest = compileCheck(TokenRequest);

const customer = {
  first_name: 'Ada',
  last_name: 'Lovelace',
  email: 'ada@example.com',
  phone_number: '555 0100',
  address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
};

test('a payment without its batch is refused [PF3]', () => {
  const problems = instruction.problems({ amount_in_cents: 1 }, 'body');
  assert.deepEqual(problems, [{ path: 'body.platform_batch_id', problem: 'is required' }]);
});

test('ids that a URL would change or a database would refuse are rejected [F99]', () => {
  for (const id of ['', '.', '..', 'a/b', 'a b', 'é', 'x'.repeat(65), 'a\u0000', 'a~b']) {
    assert.equal(
      instruction.holds({ amount_in_cents: 1, platform_batch_id: id }),
      false,
      JSON.stringify(id),
    );
  }
});

test('each missing field of the token request is named [TR1 TR2]', () => {
  assert.deepEqual(tokenRequest.problems(customer, 'body'), []);
  for (const name of Object.keys(customer)) {
    const body: Record<string, unknown> = { ...customer };
    delete body[name];
    assert.deepEqual(tokenRequest.problems(body, 'body'), [
      { path: `body.${name}`, problem: 'is required' },
    ]);
  }
  for (const name of Object.keys(customer.address)) {
    const address: Record<string, unknown> = { ...customer.address };
    delete address[name];
    assert.deepEqual(tokenRequest.problems({ ...customer, address }, 'body'), [
      { path: `body.address.${name}`, problem: 'is required' },
    ]);
  }
});

test('balance and identifiers may be absent, but not invalid [TR3 TR4]', () => {
  const wrong = [
    { balance: { amount_due_in_cents: 12.5 } },
    { balance: { amount_due_in_cents: '1250' } },
    { balance: { due_date: '2026-13-01' } },
    { balance: { last_updated_at: 'yesterday' } },
    { external_identifiers: { biller_id: 'b-1' } },
    { external_identifiers: { account_id: 'a\u0000b' } },
    { external_identifiers: { account_id: 'a\ud800' } },
    { external_identifiers: { account_id: '..' } },
    { external_identifiers: { account_id: 'ä'.repeat(129) } },
    { balance: null },
  ];
  for (const part of wrong) {
    assert.equal(tokenRequest.holds({ ...customer, ...part }), false, JSON.stringify(part));
  }
  const right = {
    balance: { amount_due_in_cents: -5 },
    external_identifiers: { account_id: '12 34/5 ä#' },
  };
  assert.equal(tokenRequest.holds({ ...customer, ...right }), true);
});

test('a misspelt field of the admin API is named, in words that say what is wrong with it', () => {
  const change = compileCheck(PartnerChange);
  assert.deepEqual(change.problems({ nmae: 'x', budget: { wait: 1 } }, 'body'), [
    { path: 'body.nmae', problem: 'is not known here' },
    { path: 'body.budget.wait', problem: 'is not known here' },
  ]);
});

test('the pattern or format of a field is explained in words, for every operation', () => {
  const unsaid: string[] = [];
  const look = (schema: unknown, place: string): void => {
    if (typeof schema !== 'object' || schema === null) return;
    for (const [key, value] of Object.entries(schema)) {
      if (key === 'pattern' && typeof value === 'string' && PATTERN_WORDS[value] === undefined) {
        unsaid.push(`${place}: ${value}`);
      }
      if (key === 'format' && typeof value === 'string' && FORMAT_WORDS[value] === undefined) {
        unsaid.push(`${place}: ${value}`);
      }
      look(value, `${place}.${key}`);
    }
  };
  for (const routes of [partnerRoutes, platformRoutes, partnerAdminRoutes, platformAdminRoutes]) {
    for (const [name, route] of Object.entries<Route>(routes)) {
      look([route.params, route.query, route.body], name);
    }
  }
  assert.deepEqual(unsaid, []);
  const wrong = { ...customer, address: { ...customer.address, state: 'Texas' } };
  assert.deepEqual(tokenRequest.problems(wrong, 'body'), [
    { path: 'body.address.state', problem: 'must be two letters, such as TX' },
  ]);
});
