/** An operator of one partner reaches nothing of another, by any operation of the route table, and sends a conformance report alone. */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import {
  platformAdminRoutes,
  type DifferencePage,
  type ListedBatch,
  type PartnerView,
  type PaymentPage,
  type Route,
} from '@duebridge/contract';
import { withoutOurWords } from './partner-scope.ts';
import { bearer, startTestPartner, startTestPlatform, type Answer } from '../checkout/testing.ts';

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
const routes: readonly Route[] = Object.values(platformAdminRoutes);

/** A partner with a payment, a batch, a difference and a remittance; the words are in every answer about it. */
async function made(partner_id: string) {
  await platform.register(partner, { partner_id, name: `Name of ${partner_id}` });
  const credentials = await platform.credentials(partner_id);
  const paid = await platform.pay(credentials, 'a1', 'jo@canary.example', 500);
  const { batches } = (await platform.admin('GET', `/admin/v1/batches?partner_id=${partner_id}`))
    .body as unknown as { batches: ListedBatch[] };
  const platform_batch_id = batches[0]?.platform_batch_id ?? '';
  const compared = await platform.admin(
    'POST',
    `/admin/v1/batches/${platform_batch_id}/reconcile-file`,
    `only-at-${partner_id},succeeded,100`,
  );
  assert.equal(compared.status, 200, compared.text);
  const remittance_id = `remittance-of-${partner_id}`;
  await platform.database.query(
    `INSERT INTO duebridge_platform.remittances (remittance_id, platform_batch_id, partner_id, biller_id, payments, gross_in_cents,
       deducted_in_cents, carried_in_cents, net_in_cents, sha256, due_on, state)
     VALUES ($1, $2, $3, 'water', 1, 500, 0, 0, 500, 'x', '2026-03-21', 'due')`,
    [remittance_id, platform_batch_id, partner_id],
  );
  return {
    partner_id,
    platform_payment_id: paid.id,
    platform_batch_id,
    remittance_id,
    client_id: credentials['x-client-id'] ?? '',
  };
}
const ours = await made('our-water');
const theirs = await made('other-power');

/** What an operator of a partner may send, by the id of its operation. */
const BODIES: Readonly<Record<string, string>> = {
  put_conformance_report: JSON.stringify({
    base_url: 'https://pay.water.example',
    profile: 'contract',
    started_at: '2026-03-21T10:00:00.000Z',
    kit_version: '0.1.0',
    verdict: 'passed',
    passed: 35,
    others: [],
  }),
};

async function signedIn(): Promise<(route: Route, of: Record<string, string>) => Promise<Answer>> {
  const { partner_id } = ours;
  const { operator_key } = await platform.operator('wendy', 'partner', { partner_id });
  return async (route, of) => {
    const path = route.path.replaceAll(/\{([a-z_]+)\}/g, (_, name: string) => of[name] ?? 'x');
    const isNamed = route.query?.properties['partner_id'] !== undefined && of['in_query'] === 'yes';
    const url = new URL(path, platform.adminUrl);
    if (isNamed) url.searchParams.set('partner_id', of['partner_id'] ?? '');
    if (of['id'] !== undefined) url.searchParams.set('id', of['id']);
    const response = await fetch(url, {
      method: route.method,
      headers: { ...bearer(operator_key), 'content-type': route.bodyType ?? 'application/json' },
      ...(route.body === undefined ? {} : { body: BODIES[route.id] ?? '{}' }),
    });
    const { status, headers } = response;
    // The statement of our remittance breaks off: its batch has not closed.
    return { status, headers, text: await response.text().catch(() => ''), body: {} };
  };
}
const call = await signedIn();

/** Every word of the other partner. */
const FOREIGN = new RegExp([...Object.values(theirs), 'other-power'].join('|'));

test('an operator of a partner is refused every operation that the table does not tie to one partner', async () => {
  for (const route of routes) {
    if (route.tiedBy !== undefined) continue;
    const answer = await call(route, ours);
    assert.equal(answer.status, 403, `${route.id}: ${answer.text}`);
    assert.match(answer.text, /INSUFFICIENT_ROLE/);
    assert.doesNotMatch(answer.text, FOREIGN, route.id);
  }
  // What is open is a decision for each; every one of these is tried below.
  assert.deepEqual(
    routes.flatMap(({ id, tiedBy, method }) => (tiedBy === undefined ? [] : `${method} ${id}`)),
    [
      'GET get_partner',
      'GET list_keys',
      'GET list_payments',
      'GET get_admin_payment',
      'GET list_batches',
      'GET get_batch',
      'GET get_self',
      'GET get_partner_health',
      'GET list_answers',
      'GET get_conformance_report',
      'PUT put_conformance_report',
      'GET list_differences',
      'GET get_figures',
      'GET list_payouts',
      'GET list_remittances',
      'GET get_remittance_statement',
    ],
  );
});

test('an operator of a partner gets what is that partner’s, and of another not even that it exists', async () => {
  for (const route of routes) {
    if (route.tiedBy === undefined) continue;
    const own = await call(route, ours);
    assert.equal(own.status, 200, `${route.id}: ${own.text}`);
    assert.doesNotMatch(own.text, FOREIGN, route.id);
    const tied = route.tiedBy === 'self' ? undefined : route.tiedBy;
    const inPath = tied !== undefined && route.path.includes(`{${tied}}`);
    const inQuery = tied !== undefined && route.query?.properties[tied] !== undefined;
    assert.ok(route.tiedBy === 'self' || inPath || inQuery, `${route.id} has no field ${tied}`);
    for (const in_query of ['yes', 'no']) {
      const foreign = await call(route, { ...theirs, in_query });
      assert.doesNotMatch(foreign.text, FOREIGN, route.id);
      if (inPath || (inQuery && in_query === 'yes')) {
        const unknown = await call(route, { ...nobodys, in_query });
        assert.equal(foreign.status, 404, `${route.id}: ${foreign.text}`);
        assert.deepEqual([foreign.status, codeOf(foreign)], [unknown.status, codeOf(unknown)]);
      }
    }
  }
  // What it wrote is its own alone.
  const reports = await platform.database.query(
    'SELECT partner_id FROM duebridge_platform.conformance_reports',
  );
  assert.deepEqual(reports, [{ partner_id: ours.partner_id }]);
  const listed = await call(platformAdminRoutes.list_payments, {});
  assert.match(listed.text, new RegExp(ours.platform_payment_id));
  const differences = await call(platformAdminRoutes.list_differences, {});
  assert.match(differences.text, /only-at-our-water/);
});

test('a path that no id can be is no error of ours and shows nothing', async () => {
  for (const [route, code] of [
    [platformAdminRoutes.get_admin_payment, 'PAYMENT_NOT_FOUND'],
    [platformAdminRoutes.get_batch, 'BATCH_NOT_FOUND'],
    [platformAdminRoutes.get_remittance_statement, 'NOT_FOUND'],
  ] as const) {
    for (const [id, status, expected] of [
      ['x'.repeat(65), 404, code],
      ['a%00b', 400, 'INVALID_REQUEST'],
    ] as const) {
      const of = { platform_payment_id: id, platform_batch_id: id, remittance_id: id };
      const answer = await call(route, of);
      assert.deepEqual([answer.status, codeOf(answer)], [status, expected], `${route.id} ${id}`);
    }
  }
});

test('an id of another partner’s hides no payment of the same name, which would show that it exists', async () => {
  const { platform_payment_id, partner_id } = ours;
  // A partner chooses what it calls a payment.
  for (const id of [theirs.platform_payment_id, theirs.platform_batch_id, 'nobody-s']) {
    await platform.database.query(
      `INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
       VALUES ('test', 'payment_ended', $1, $2, jsonb_build_object('payment_id', $3::text))`,
      [platform_payment_id, partner_id, id],
    );
    const { text } = await call(platformAdminRoutes.list_payments, { id });
    const { payments } = JSON.parse(text) as PaymentPage;
    assert.deepEqual(
      payments.map((one) => one.platform_payment_id),
      [platform_payment_id],
      id,
    );
  }
});

test('a partner’s file that names a payment of another partner shows nothing of it', async () => {
  const compared = await platform.admin(
    'POST',
    `/admin/v1/batches/${ours.platform_batch_id}/reconcile-file`,
    `${theirs.platform_payment_id},succeeded,100`,
  );
  assert.equal(compared.status, 200, compared.text);
  const { text } = await call(platformAdminRoutes.list_differences, {});
  const { differences } = JSON.parse(text) as DifferencePage;
  const named = differences.filter((one) => one.platform_payment_id === theirs.platform_payment_id);
  assert.deepEqual(
    named.map(({ kind, here, amount_in_cents }) => [kind, here, amount_in_cents]),
    [['missing_here', null, null]],
  );
});

test('an operator of a partner reads no word or name of the platform’s own people', async () => {
  const { platform_payment_id, partner_id } = ours;
  const said = 'a word among us';
  const post = async (path: string, body: unknown): Promise<Answer> => {
    const answer = await platform.admin('POST', `/admin/v1${path}`, body);
    assert.equal(answer.status, 200, answer.text);
    return answer;
  };
  await post(`/payments/${platform_payment_id}/cases`, { reason: said });
  await platform.database.query(
    `INSERT INTO duebridge_platform.asks (subject, act, version, asked_by, reason)
     VALUES ('payment/' || $1, 'close', '', 'admin-key', $2)`,
    [platform_payment_id, said],
  );
  const listed = (await platform.admin('GET', `/admin/v1/differences?partner_id=${partner_id}`))
    .body as unknown as DifferencePage;
  await post(`/differences/${listed.differences[0]?.difference_id}/resolve`, { reason: said });
  const paused = await platform.admin('PATCH', `/admin/v1/partners/${partner_id}`, {
    paused: true,
    reason: said,
  });
  assert.equal(paused.status, 200, paused.text);
  for (const route of routes) {
    if (route.tiedBy === undefined) continue;
    const { text } = await call(route, ours);
    assert.doesNotMatch(text, /a word among us|admin-key/, route.id);
  }
  const view = JSON.parse((await call(platformAdminRoutes.get_partner, ours)).text) as PartnerView;
  assert.equal(view.pause_reason, 'paused by an operator');
});

const nobodys = {
  partner_id: 'nobody',
  platform_payment_id: 'nothing',
  platform_batch_id: 'nothing',
  remittance_id: 'nothing',
};
const codeOf = ({ text }: Answer): unknown => (JSON.parse(text) as { code: unknown }).code;

test('an operator has the role partner and a registered partner, or neither', async () => {
  const person = { operator_id: 'mixed', name: 'x' };
  for (const wrong of [
    { role: 'partner' },
    { role: 'viewer', partner_id: ours.partner_id },
    { role: 'partner', partner_id: 'nobody' },
  ]) {
    const answer = await platform.admin('POST', '/admin/v1/operators', { ...person, ...wrong });
    assert.equal(answer.status, 409, answer.text);
  }
  const raised = await platform.admin('PATCH', '/admin/v1/operators/wendy', { role: 'admin' });
  assert.equal(raised.status, 409, raised.text);
});

test('the names of billers reach their partner, whatever their ids spell', () => {
  const biller_names = { actor: 'Acting School', audit: 'Audit Office' };
  const answer = { partner: { biller_names }, entries: [{ actor: 'ada' }], audit: [{ at: 1 }] };
  assert.deepEqual(withoutOurWords(answer), {
    partner: { biller_names },
    entries: [{ actor: '' }],
    audit: [],
  });
});
